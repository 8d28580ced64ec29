//! The disk in a qcow2 file that comes as a stream: all tables first, then the clusters in the disk's order.
//!
//! So are the files that are made here for a containerDisk. Other writers spread their tables over the file.

use std::io::{self, Read};

use thiserror::Error;

use super::header::Header;
use super::{COMPRESSED, OFFSET_MASK, Qcow2Error, ZERO, be64};
use crate::io::ReadAt;

/// The header and its longest known field.
const START: u64 = 112;
/// Clusters are whole blocks of what they are written in, in bytes.
const LEAST_CLUSTER: u64 = 64 << 10;
/// Bytes of the map of clusters: 16 TiB of the usual ones take 32 MiB.
const MAX_MAP: usize = 64 << 20;
/// Bytes given out at once, unless a cluster is larger.
const AT_ONCE: u64 = 1 << 20;

/// Why a stream is not read as a disk.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The stream itself.
    #[error("the qcow2 file can't be read at offset {offset}")]
    Read {
        /// Where in the file, in bytes.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// The header.
    #[error(transparent)]
    Header(#[from] Qcow2Error),
    /// Only a file that can be read at any place will do.
    #[error("its qcow2 file can't be read in one pass: {why}; it was not made by sealroot")]
    Order {
        /// What is in the way.
        why: &'static str,
    },
    /// A table can't be so.
    #[error("qcow2 {what} at offset {offset}: {why}")]
    Damaged {
        /// Which table.
        what: &'static str,
        /// Where in the file, in bytes.
        offset: u64,
        /// What is wrong.
        why: &'static str,
    },
}

/// A disk that is read from its start to its end.
pub struct Qcow2Stream<R> {
    file: R,
    file_size: u64,
    /// The next byte of the file.
    at: u64,
    header: Header,
    /// For each table, in order: the first cluster that it maps, and a bit for each that is there.
    map: Vec<(u64, Vec<u64>)>,
    /// Where in `map` the next cluster is: the table, the cluster in it.
    next: (usize, u64),
}

/// The header's bytes, with the file's size: all that is looked at in reading it.
struct Start {
    bytes: Vec<u8>,
    size: u64,
}

impl ReadAt for Start {
    fn size(&self) -> u64 {
        self.size
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.bytes.read_exact_at(buf, offset)
    }
}

impl<R: Read> Qcow2Stream<R> {
    /// Reads header and tables of a file of `file_size` bytes.
    pub fn open(mut file: R, file_size: u64) -> Result<Self, StreamError> {
        let mut bytes = vec![0; file_size.min(START) as usize];
        file.read_exact(&mut bytes).map_err(|source| StreamError::Read { offset: 0, source })?;
        let at = bytes.len() as u64;
        let header = Header::read(&Start { bytes, size: file_size })?;
        let mut stream = Self { file, file_size, at, header, map: Vec::new(), next: (0, 0) };
        stream.tables()?;
        Ok(stream)
    }

    /// The disk's size in bytes.
    pub fn size(&self) -> u64 {
        self.header.size
    }

    fn cluster(&self) -> u64 {
        1 << self.header.cluster_bits
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<(), StreamError> {
        let offset = self.at;
        self.file.read_exact(buf).map_err(|source| StreamError::Read { offset, source })?;
        self.at += buf.len() as u64;
        Ok(())
    }

    /// Passes over what lies before `offset`.
    fn forward(&mut self, offset: u64) -> Result<(), StreamError> {
        let Some(gap) = offset.checked_sub(self.at) else {
            return Err(StreamError::Order { why: "its tables come after what they describe" });
        };
        let at = self.at;
        let passed = io::copy(&mut (&mut self.file).take(gap), &mut io::sink());
        match passed {
            Ok(passed) if passed == gap => {
                self.at = offset;
                Ok(())
            }
            Ok(_) => Err(StreamError::Read { offset: at, source: io::ErrorKind::UnexpectedEof.into() }),
            Err(source) => Err(StreamError::Read { offset: at, source }),
        }
    }

    fn tables(&mut self) -> Result<(), StreamError> {
        let cluster = self.cluster();
        if cluster < LEAST_CLUSTER {
            return Err(StreamError::Order { why: "its clusters are smaller than 64 KiB" });
        }
        let (l1_offset, clusters) = (self.header.l1_offset, self.header.size.div_ceil(cluster));
        self.forward(l1_offset)?;
        let mut l1 = vec![0; (self.header.l1_entries * 8) as usize];
        self.fill(&mut l1)?;
        let per_table = cluster / 8;
        let mut table = vec![0; cluster as usize];
        let (mut mapped, mut expected) = (0, None);
        for (index, entry) in l1.chunks_exact(8).enumerate() {
            let offset = be64(entry) & OFFSET_MASK;
            if offset == 0 {
                continue;
            }
            self.forward(offset)?;
            self.fill(&mut table)?;
            let first = index as u64 * per_table;
            let mut bits = vec![0u64; per_table.div_ceil(64) as usize];
            for (number, entry) in table.chunks_exact(8).enumerate() {
                let damaged = |why| StreamError::Damaged {
                    what: "second-level table entry",
                    offset: offset + number as u64 * 8,
                    why,
                };
                let entry = be64(entry);
                if entry & COMPRESSED != 0 {
                    return Err(StreamError::Order { why: "its clusters are compressed" });
                }
                let place = entry & OFFSET_MASK;
                if place == 0 || entry & ZERO != 0 && self.header.version > 2 {
                    continue;
                }
                if first + number as u64 >= clusters {
                    return Err(damaged("the cluster lies past the disk's end"));
                }
                if *expected.get_or_insert(place) != place {
                    return Err(StreamError::Order { why: "its clusters are not in the disk's order" });
                }
                if place.checked_add(cluster).is_none_or(|end| end > self.file_size) {
                    return Err(damaged("the cluster lies past the end of the file"));
                }
                expected = Some(place + cluster);
                bits[number / 64] |= 1 << (number % 64);
            }
            mapped += bits.len() * 8;
            if mapped > MAX_MAP {
                return Err(StreamError::Order { why: "its tables describe more than any system disk" });
            }
            self.map.push((first, bits));
        }
        // The first cluster's place: the last one's end, less all of them.
        let count: u64 =
            self.map.iter().flat_map(|(_, bits)| bits).map(|word| u64::from(word.count_ones())).sum();
        match expected {
            Some(end) => self.forward(end - count * cluster),
            None => Ok(()),
        }
    }

    /// Replaces `buf` by the next bytes that are there, and says where on the disk they are; `None` at the end.
    pub fn next(&mut self, buf: &mut Vec<u8>) -> Result<Option<u64>, StreamError> {
        let cluster = self.cluster();
        let Some(first) = self.take(None) else { return Ok(None) };
        let mut count = 1;
        while (count + 1) * cluster <= AT_ONCE && self.take(Some(first + count)).is_some() {
            count += 1;
        }
        let start = first * cluster;
        buf.resize((count * cluster) as usize, 0);
        self.fill(buf)?;
        buf.truncate((self.header.size - start).min(buf.len() as u64) as usize);
        Ok(Some(start))
    }

    /// The next cluster that is there, if it is the `wanted` one.
    fn take(&mut self, wanted: Option<u64>) -> Option<u64> {
        loop {
            let (first, bits) = self.map.get(self.next.0)?;
            let within = self.next.1;
            let Some(word) = bits.get((within / 64) as usize) else {
                self.next = (self.next.0 + 1, 0);
                continue;
            };
            let left = word >> (within % 64);
            if left == 0 {
                self.next.1 = (within / 64 + 1) * 64;
                continue;
            }
            let found = within + u64::from(left.trailing_zeros());
            if wanted.is_some_and(|wanted| wanted != first + found) {
                return None;
            }
            self.next.1 = found + 1;
            return Some(first + found);
        }
    }
}
