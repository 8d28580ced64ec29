//! A standalone qcow2 file that is never written: any part of it can be computed when it is asked for.
//!
//! Its clusters are not compressed, so the map of shipped clusters alone gives its size and every offset in it,
//! before a byte of data is read. Several threads can read different parts at once.
//!
//! Format: QEMU's docs/interop/qcow2.txt, version 3. The file holds, in this order: header, refcount table,
//! refcount blocks, L1 table, the L2 tables that are needed, and the data clusters in the disk's order.

use std::io::{self, Write};
use std::ops::Range;

use thiserror::Error;

use crate::io::{Interrupted, ReadAt, Task};
use crate::root::keep::{CLUSTER, Kept};

const CLUSTER_BITS: u32 = CLUSTER.trailing_zeros();
/// Clusters that one L2 table maps: 8 bytes an entry.
pub(super) const PER_L2: u64 = CLUSTER / 8;
/// Words of the cluster map that one L2 table maps.
const WORDS_PER_L2: usize = (PER_L2 / 64) as usize;
/// Clusters that one refcount block counts: 2 bytes each.
pub(super) const PER_REFCOUNT_BLOCK: u64 = CLUSTER / 2;
/// An L1 or L2 entry whose cluster has a refcount of exactly one.
pub(super) const COPIED: u64 = 1 << 63;
const HEADER_LENGTH: u32 = 104;
/// Bytes written at once.
const WRITE_AT_ONCE: u64 = 4 << 20;

/// Why a qcow2 file was not written.
#[derive(Debug, Error)]
pub enum Qcow2WriteError {
    /// The disk could not be read, or has changed in the meantime.
    #[error("reading the disk failed")]
    Read(#[source] io::Error),
    /// The file could not be written.
    #[error("writing the qcow2 file failed")]
    Write(#[source] io::Error),
    /// The user asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// The qcow2 file of a disk, as bytes that can be read at any offset.
pub struct Qcow2Image<'d> {
    disk: &'d Kept<'d>,
    parts: Parts,
    /// How many clusters are shipped before each stretch that one L2 table maps, and in all.
    shipped_before: Vec<u64>,
    /// The stretches that have an L2 table, in order.
    mapped: Vec<u64>,
}

/// Where each part of the file ends, in clusters.
#[derive(Debug)]
pub(super) struct Parts {
    refcount_table: u64,
    refcount_blocks: u64,
    l1: u64,
    l2: u64,
    end: u64,
}

impl Parts {
    /// The header comes first, in a cluster of its own.
    pub(super) fn new(l1: u64, l2: u64, data: u64) -> Self {
        // The refcounts count themselves: add blocks until nothing is uncounted.
        let (mut table, mut blocks) = (1, 1);
        loop {
            let end = 1 + table + blocks + l1 + l2 + data;
            let needed = end.div_ceil(PER_REFCOUNT_BLOCK);
            let table_needed = needed.div_ceil(CLUSTER / 8);
            if (table, blocks) == (table_needed, needed) {
                let refcount_table = 1 + table;
                let refcount_blocks = refcount_table + blocks;
                let l1_end = refcount_blocks + l1;
                return Self { refcount_table, refcount_blocks, l1: l1_end, l2: l1_end + l2, end };
            }
            (table, blocks) = (table_needed.max(table), needed.max(blocks));
        }
    }

    pub(super) fn refcount_table_clusters(&self) -> u64 {
        self.refcount_table - 1
    }
}

/// What a header says that is not the same in every file. Places are in clusters.
pub(super) struct Header {
    /// In bytes.
    pub virtual_size: u64,
    pub l1_entries: u64,
    pub refcount_table: u64,
    pub refcount_table_clusters: u64,
    pub l1: u64,
}

impl Header {
    /// The zeros that follow end the list of header extensions.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        [
            &b"QFI\xfb"[..],
            &3u32.to_be_bytes(),
            &[0; 12], // No backing file: offset and length of its name.
            &CLUSTER_BITS.to_be_bytes(),
            &self.virtual_size.to_be_bytes(),
            &0u32.to_be_bytes(), // Not encrypted.
            &(self.l1_entries as u32).to_be_bytes(),
            &(self.l1 * CLUSTER).to_be_bytes(),
            &(self.refcount_table * CLUSTER).to_be_bytes(),
            &(self.refcount_table_clusters as u32).to_be_bytes(),
            &[0; 12],            // No snapshots: number and offset.
            &[0; 24],            // No feature bits: incompatible, compatible, autoclear.
            &4u32.to_be_bytes(), // Refcounts of 1 << 4 bits.
            &HEADER_LENGTH.to_be_bytes(),
        ]
        .concat()
    }
}

impl<'d> Qcow2Image<'d> {
    /// Lays the file out.
    pub fn new(disk: &'d Kept<'d>) -> Self {
        let clusters = disk.clusters();
        let mut shipped_before = Vec::new();
        let mut mapped = Vec::new();
        let mut shipped = 0;
        for (stretch, words) in clusters.words().chunks(WORDS_PER_L2).enumerate() {
            shipped_before.push(shipped);
            shipped += words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            if shipped_before.last() != Some(&shipped) {
                mapped.push(stretch as u64);
            }
        }
        shipped_before.push(shipped);
        let l1 = (l1_entries(clusters.len()) * 8).div_ceil(CLUSTER);
        let parts = Parts::new(l1, mapped.len() as u64, shipped);
        Self { disk, parts, shipped_before, mapped }
    }

    /// The size of the disk inside, in bytes: whole sectors, as QEMU rounds too.
    pub fn virtual_size(&self) -> u64 {
        self.disk.size().next_multiple_of(512)
    }

    /// Writes the whole file, for those who want it on a disk of their own.
    pub fn write(&self, out: &mut dyn Write, task: &dyn Task) -> Result<(), Qcow2WriteError> {
        let mut buf = vec![0; WRITE_AT_ONCE as usize];
        let mut at = 0;
        while at < self.size() {
            let piece = &mut buf[..(self.size() - at).min(WRITE_AT_ONCE) as usize];
            task.advance(piece.len() as u64)?;
            self.read_exact_at(piece, at).map_err(Qcow2WriteError::Read)?;
            out.write_all(piece).map_err(Qcow2WriteError::Write)?;
            at += piece.len() as u64;
        }
        self.check_unchanged().map_err(Qcow2WriteError::Read)
    }

    /// Fills one cluster of what comes before the data.
    fn metadata(&self, cluster: u64, buf: &mut [u8]) {
        buf.fill(0);
        let parts = &self.parts;
        if cluster == 0 {
            let header = Header {
                virtual_size: self.virtual_size(),
                l1_entries: l1_entries(self.disk.clusters().len()),
                refcount_table: 1,
                refcount_table_clusters: parts.refcount_table_clusters(),
                l1: parts.refcount_blocks,
            }
            .to_bytes();
            buf[..header.len()].copy_from_slice(&header);
        } else if cluster < parts.refcount_table {
            let first = (cluster - 1) * (CLUSTER / 8);
            let blocks = parts.refcount_blocks - parts.refcount_table;
            entries(buf, first, blocks, |block| (parts.refcount_table + block) * CLUSTER);
        } else if cluster < parts.refcount_blocks {
            let first = (cluster - parts.refcount_table) * PER_REFCOUNT_BLOCK;
            let used = (parts.end - first).min(PER_REFCOUNT_BLOCK) as usize;
            buf[..used * 2].as_chunks_mut().0.fill(1u16.to_be_bytes());
        } else if cluster < parts.l1 {
            let first = (cluster - parts.refcount_blocks) * (CLUSTER / 8);
            entries(buf, first, l1_entries(self.disk.clusters().len()), |stretch| {
                match self.mapped.binary_search(&stretch) {
                    Ok(table) => COPIED | ((parts.l1 + table as u64) * CLUSTER),
                    Err(_) => 0,
                }
            });
        } else {
            let stretch = self.mapped[(cluster - parts.l1) as usize];
            let mut next = parts.l2 + self.shipped_before[stretch as usize];
            entries(buf, 0, PER_L2, |entry| {
                let shipped = self.disk.clusters().contains(stretch * PER_L2 + entry);
                next += u64::from(shipped);
                if shipped { COPIED | ((next - 1) * CLUSTER) } else { 0 }
            });
        }
    }

    /// The clusters of the disk that data cluster `index` and those after it hold: a run without a gap, `want` at most.
    fn data_run(&self, index: u64, want: u64) -> Range<u64> {
        let stretch = self.shipped_before.partition_point(|before| *before <= index) - 1;
        let mut left = index - self.shipped_before[stretch];
        let words = self.disk.clusters().words();
        let mut word = stretch * WORDS_PER_L2;
        while left >= u64::from(words[word].count_ones()) {
            left -= u64::from(words[word].count_ones());
            word += 1;
        }
        let mut bits = words[word];
        for _ in 0..left {
            bits &= bits - 1;
        }
        let first = word as u64 * 64 + u64::from(bits.trailing_zeros());
        let mut end = first + 1;
        while end - first < want && self.disk.clusters().contains(end) {
            end += 1;
        }
        first..end
    }
}

/// Reads from the disk; what a last, short cluster lacks is zeros.
pub(super) fn read_cluster_padded(disk: &Kept<'_>, buf: &mut [u8], offset: u64) -> io::Result<()> {
    let there = disk.size().saturating_sub(offset).min(buf.len() as u64) as usize;
    buf[there..].fill(0);
    if there == 0 {
        return Ok(());
    }
    disk.read_exact_at(&mut buf[..there], offset)
        .map_err(|e| io::Error::new(e.kind(), format!("{there} bytes of the disk at offset {offset}: {e}")))
}

pub(super) fn l1_entries(clusters: u64) -> u64 {
    clusters.div_ceil(PER_L2).max(1)
}

/// Fills a table of 8-byte entries, from entry `first` of `count`.
fn entries(buf: &mut [u8], first: u64, count: u64, mut entry: impl FnMut(u64) -> u64) {
    for (slot, index) in buf.as_chunks_mut().0.iter_mut().zip(first..count) {
        *slot = entry(index).to_be_bytes();
    }
}

impl ReadAt for Qcow2Image<'_> {
    fn size(&self) -> u64 {
        self.parts.end * CLUSTER
    }

    fn read_exact_at(&self, mut buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.size()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut at = offset;
        let mut scratch = Vec::new();
        while !buf.is_empty() {
            let (cluster, within) = (at / CLUSTER, at % CLUSTER);
            let take;
            if cluster < self.parts.l2 {
                take = ((CLUSTER - within) as usize).min(buf.len());
                scratch.resize(CLUSTER as usize, 0);
                self.metadata(cluster, &mut scratch);
                buf[..take].copy_from_slice(&scratch[within as usize..within as usize + take]);
            } else {
                let want = (within + buf.len() as u64).div_ceil(CLUSTER);
                let run = self.data_run(cluster - self.parts.l2, want);
                take = (((run.end - run.start) * CLUSTER - within) as usize).min(buf.len());
                read_cluster_padded(self.disk, &mut buf[..take], run.start * CLUSTER + within)?;
            }
            at += take as u64;
            buf = &mut buf[take..];
        }
        Ok(())
    }

    fn check_unchanged(&self) -> io::Result<()> {
        self.disk.check_unchanged()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::io::Silent;
    use proptest::prelude::*;

    /// Reads a cluster of the disk through the tables, as a reader of the format would.
    fn through_tables(file: &[u8], cluster: u64) -> Option<&[u8]> {
        let be64 = |at: u64| u64::from_be_bytes(file[at as usize..at as usize + 8].try_into().unwrap());
        let place = |entry: u64| (entry != 0).then_some(entry & 0x00ff_ffff_ffff_fe00);
        let l2 = place(be64(be64(40) + cluster / PER_L2 * 8))?;
        let data = place(be64(l2 + cluster % PER_L2 * 8))? as usize;
        Some(&file[data..data + CLUSTER as usize])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn any_part_equals_the_whole(
            marks in prop::collection::vec(0u64..60 * CLUSTER, 0..30), size in 1u64..60 * CLUSTER,
            reads in prop::collection::vec((any::<u32>(), 0usize..300_000), 0..10),
        ) {
            let mut disk = vec![0u8; size as usize];
            for (i, at) in marks.iter().filter(|at| **at < size).enumerate() {
                disk[*at as usize] = i as u8 + 1;
            }
            let kept = Kept::all(&disk, &Silent).unwrap();
            let image = Qcow2Image::new(&kept);
            let mut whole = vec![0xEE; image.size() as usize];
            image.read_exact_at(&mut whole, 0).unwrap();
            for (from, len) in reads {
                let from = u64::from(from) % image.size();
                let mut buf = vec![0xDD; len.min((image.size() - from) as usize)];
                image.read_exact_at(&mut buf, from).unwrap();
                prop_assert_eq!(&buf[..], &whole[from as usize..from as usize + buf.len()]);
            }
            for cluster in 0..kept.clusters().len() {
                let from = (cluster * CLUSTER) as usize;
                let mut expected = disk[from..disk.len().min(from + CLUSTER as usize)].to_vec();
                expected.resize(CLUSTER as usize, 0);
                match through_tables(&whole, cluster) {
                    Some(found) => prop_assert_eq!(found, &expected[..]),
                    None => prop_assert!(expected.iter().all(|b| *b == 0)),
                }
            }
            prop_assert!(image.read_exact_at(&mut [0; 2], image.size() - 1).is_err());
        }
    }

    #[test]
    fn refcounts_count_themselves() {
        for data in [0, 1, 32_700, 32_764, 32_765, 32_766, 65_530, 268_000_000, 268_435_456] {
            let parts = Parts::new(1, 3, data);
            let blocks = parts.refcount_blocks - parts.refcount_table;
            let table = parts.refcount_table - 1;
            assert_eq!(parts.end, 1 + table + blocks + 1 + 3 + data);
            assert!(blocks * PER_REFCOUNT_BLOCK >= parts.end && table * PER_L2 >= blocks, "{parts:?}");
        }
    }
}
