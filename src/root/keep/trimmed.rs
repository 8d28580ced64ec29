//! A clean NTFS volume: `$Bitmap` says what of it is shipped.
//!
//! The map is not held in memory. It is read again, a window at a time, whenever a part of the volume is read:
//! a bit a cluster, so 128 bytes for 4 MiB of a volume with 4 KiB clusters.

use std::io;
use std::ops::Range;

use super::clusters::Clusters;
use super::pieces::Pieces;
use super::records::Records;
use crate::io::ReadAt;

/// A volume whose free clusters are not shipped.
#[derive(Debug)]
pub(super) struct Trimmed {
    /// Where its first cluster lies on the disk, in bytes.
    start: u64,
    /// Bytes in a cluster.
    cluster_size: u64,
    /// Clusters that the map speaks of.
    count: u64,
    /// Where `$Bitmap` lies.
    map: Pieces,
    /// Its file records; `None`: they are shipped as they are.
    records: Option<Records>,
    /// Clusters of files whose content is not shipped, sorted, apart from each other.
    dropped: Vec<Range<u64>>,
}

/// Bytes of `$Bitmap` read at once: half a million clusters.
const WINDOW: u64 = 64 << 10;

impl Trimmed {
    /// `None` where the pieces of `map` are too short for `count` clusters, or the numbers make no volume.
    pub fn new(
        start: u64,
        cluster_size: u64,
        count: u64,
        map: Pieces,
        mut dropped: Vec<Range<u64>>,
    ) -> Option<Self> {
        let end = count.checked_mul(cluster_size)?.checked_add(start)?;
        if cluster_size == 0 || map.size() < count.div_ceil(8) || end > i64::MAX as u64 {
            return None;
        }
        dropped.retain(|run| !run.is_empty());
        dropped.sort_by_key(|run| run.start);
        dropped.dedup_by(|next, run| {
            let joins = next.start <= run.end;
            if joins {
                run.end = run.end.max(next.end);
            }
            joins
        });
        Some(Self { start, cluster_size, count, map, records: None, dropped })
    }

    /// Ships its file records without what they have kept of deleted files.
    pub fn with_records(self, records: Records) -> Self {
        Self { records: Some(records), ..self }
    }

    /// The bytes of the disk that the map speaks of.
    pub fn bytes(&self) -> Range<u64> {
        self.start..self.start + self.count * self.cluster_size
    }

    /// Ships what the map calls in use.
    pub fn ship(&self, disk: &dyn ReadAt, clusters: &mut Clusters) -> io::Result<()> {
        self.each_run(disk, self.bytes(), |bytes, kept| {
            if kept {
                clusters.ship(bytes);
            }
        })
    }

    /// How many bytes are not shipped.
    pub fn left_out(&self, disk: &dyn ReadAt) -> io::Result<u64> {
        let mut left_out = 0;
        self.each_run(disk, self.bytes(), |bytes, kept| {
            if !kept {
                left_out += bytes.end - bytes.start;
            }
        })?;
        Ok(left_out)
    }

    /// Zeroes, in the bytes of the disk at `offset`, what is not shipped, and clears file records.
    pub fn blank(&self, disk: &dyn ReadAt, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let own = self.bytes();
        let part = own.start.max(offset)..own.end.min(offset + buf.len() as u64);
        self.each_run(disk, part, |bytes, kept| {
            if !kept {
                buf[(bytes.start - offset) as usize..(bytes.end - offset) as usize].fill(0);
            }
        })?;
        match &self.records {
            Some(records) => records.clear(disk, buf, offset),
            None => Ok(()),
        }
    }

    /// Whether every cluster that these bytes of the disk touch is called in use.
    pub fn in_use(&self, disk: &dyn ReadAt, bytes: Range<u64>) -> io::Result<bool> {
        let mut all = true;
        self.each_run(disk, bytes, |_, kept| all &= kept)?;
        Ok(all)
    }

    /// The runs of kept and of free clusters within `part`, as bytes of the disk, in order.
    fn each_run(
        &self,
        disk: &dyn ReadAt,
        part: Range<u64>,
        mut each: impl FnMut(Range<u64>, bool),
    ) -> io::Result<()> {
        if part.is_empty() {
            return Ok(());
        }
        let mut at = (part.start - self.start) / self.cluster_size;
        let end = (part.end - self.start).div_ceil(self.cluster_size).min(self.count);
        let mut bits = Vec::new();
        while at < end {
            let first = at / 8 * 8;
            let stop = (first + WINDOW * 8).min(end);
            bits.resize((stop - first).div_ceil(8) as usize, 0);
            self.map.read(disk, &mut bits, first / 8)?;
            self.drop_files(&mut bits, first);
            while at < stop {
                let (run_end, kept) = run(&bits, first, at..stop);
                let from = (self.start + at * self.cluster_size).max(part.start);
                let to = (self.start + run_end * self.cluster_size).min(part.end);
                each(from..to, kept);
                at = run_end;
            }
        }
        Ok(())
    }

    /// Clears the bits of files that are not shipped.
    fn drop_files(&self, bits: &mut [u8], first: u64) {
        let end = first + bits.len() as u64 * 8;
        let begin = self.dropped.partition_point(|run| run.end <= first);
        for run in self.dropped[begin..].iter().take_while(|run| run.start < end) {
            for cluster in run.start.max(first)..run.end.min(end) {
                let at = cluster - first;
                bits[(at / 8) as usize] &= !(1 << (at % 8));
            }
        }
    }
}

/// Where the run that starts at `clusters.start` ends, and whether it is in use.
fn run(bits: &[u8], first: u64, clusters: Range<u64>) -> (u64, bool) {
    let bit = |cluster: u64| bits[((cluster - first) / 8) as usize] >> (cluster % 8) & 1 == 1;
    let kept = bit(clusters.start);
    let whole = if kept { 0xff } else { 0 };
    let mut end = clusters.start + 1;
    while end < clusters.end {
        if end.is_multiple_of(8) && clusters.end - end >= 8 && bits[((end - first) / 8) as usize] == whole {
            end += 8;
        } else if bit(end) == kept {
            end += 1;
        } else {
            break;
        }
    }
    (end, kept)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::pieces::Piece;
    use super::*;
    use proptest::prelude::*;

    const DISK: usize = 1 << 20;
    const START: u64 = 1536;
    const SIZE: u64 = 512;

    /// A disk of 0xEE with a map in two pieces behind the volume; bit n of `map` is cluster n.
    fn volume(map: &[u8], count: u64, dropped: Vec<Range<u64>>) -> (Vec<u8>, Trimmed) {
        let mut disk = vec![0xEE; DISK];
        let half = map.len() / 2;
        disk[DISK - 1000..DISK - 1000 + half].copy_from_slice(&map[..half]);
        disk[DISK - 2000..DISK - 2000 + map.len() - half].copy_from_slice(&map[half..]);
        let pieces = vec![
            Piece { disk_offset: DISK as u64 - 1000, len: half as u64 },
            Piece { disk_offset: DISK as u64 - 2000, len: (map.len() - half) as u64 },
        ];
        (disk, Trimmed::new(START, SIZE, count, Pieces::new(pieces).unwrap(), dropped).unwrap())
    }

    proptest! {
        #[test]
        fn free_clusters_read_as_zeros(
            map in prop::collection::vec(prop::sample::select(vec![0u8, 0xff, 0x0f, 0xa5]), 2..150),
            short in 0u64..8, dropped in prop::collection::vec((0u64..1200, 0u64..40), 0..4),
            offset in 0u64..100_000, len in 0usize..200_000,
        ) {
            let count = map.len() as u64 * 8 - short;
            let dropped: Vec<_> = dropped.into_iter().map(|(at, n)| at..at + n).collect();
            let (disk, volume) = volume(&map, count, dropped.clone());
            let kept = |byte: u64| {
                let Some(cluster) = byte.checked_sub(START).map(|b| b / SIZE).filter(|c| *c < count) else { return true };
                map[(cluster / 8) as usize] >> (cluster % 8) & 1 == 1
                    && !dropped.iter().any(|run| run.contains(&cluster))
            };
            let mut buf = vec![0xEE; len];
            volume.blank(&disk, &mut buf, offset).unwrap();
            for (i, byte) in buf.iter().enumerate() {
                prop_assert_eq!(*byte == 0xEE, kept(offset + i as u64), "byte {}", offset + i as u64);
            }
            let mut clusters = Clusters::none_of(DISK as u64);
            volume.ship(&disk, &mut clusters).unwrap();
            let left_out = volume.left_out(&disk).unwrap();
            let free = (0..count).filter(|c| !kept(START + c * SIZE)).count() as u64;
            prop_assert_eq!(left_out, free * SIZE);
            for cluster in 0..clusters.len() {
                let own = volume.bytes();
                let expected = (cluster << 16..(cluster + 1) << 16).any(|b| own.contains(&b) && kept(b));
                prop_assert_eq!(clusters.contains(cluster), expected);
            }
        }
    }

    #[test]
    fn a_map_that_is_too_short_makes_no_volume() {
        let piece = |len| Pieces::new(vec![Piece { disk_offset: 0, len }]).unwrap();
        assert!(Trimmed::new(0, 4096, 17, piece(2), vec![]).is_none());
        assert!(Trimmed::new(0, 4096, 16, piece(2), vec![]).is_some());
        assert!(Trimmed::new(0, 0, 16, piece(2), vec![]).is_none());
        assert!(Trimmed::new(u64::MAX, 4096, 16, piece(2), vec![]).is_none());
        assert!(Trimmed::new(0, u64::MAX, 16, piece(2), vec![]).is_none());
    }
}
