//! A standalone qcow2 file of compressed clusters, written in one pass.
//!
//! How long a cluster gets is known when it is compressed, so every table is written behind what it maps: an L2 table
//! after the clusters of its 512 MiB of disk; a refcount block first in each 2 GiB of file that it counts, once these
//! are full; L1 and refcount table, of known size, in front. Nothing of that but the table at hand is held in memory.
//!
//! Format: QEMU's docs/interop/qcow2.txt, version 3. A compressed cluster is a raw deflate stream (window of 4 KiB) at
//! any byte offset; several share a cluster of the file, which counts each of them. One that compressing does not make
//! smaller lies in a cluster of its own, as it is.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use flate2::{Compress, Compression, FlushCompress, Status};

use super::qcow2::{
    COPIED, Header, PER_L2, PER_REFCOUNT_BLOCK, Parts, Qcow2WriteError, l1_entries, read_cluster_padded,
};
use crate::io::{ReadAt, Task};
use crate::root::keep::{CLUSTER, Clusters, Kept};

/// Base-2 logarithm of the deflate window: what the format has, and all that QEMU unpacks.
const WINDOW_BITS: u8 = 12;
/// zlib-rs at 6 makes files 3% larger than QEMU's zlib does at 6; at 9 they are as small, in less time than QEMU's.
const LEVEL: u32 = 9;
/// Clusters that a worker reads and compresses at once.
const BATCH: u64 = 16;
/// Batches that may wait to be written, for each worker.
const WAITING: usize = 4;
/// In L2 entries: the cluster is compressed.
const COMPRESSED: u64 = 1 << 62;
/// In L2 entries: where the number of further sectors begins.
const SECTORS_SHIFT: u32 = 62 - (CLUSTER.trailing_zeros() - 8);
const SECTOR: u64 = 512;

/// Writes the disk as a qcow2 file of compressed clusters into `out`, which is empty. The bytes do not depend on the
/// number of workers. `task` counts clusters that are shipped, in bytes.
pub fn write_compressed(
    disk: &Kept<'_>,
    out: &File,
    workers: NonZeroUsize,
    task: &dyn Task,
) -> Result<(), Qcow2WriteError> {
    thread::scope(|scope| {
        let workers = workers.get();
        let lines: Vec<Receiver<_>> = (0..workers)
            .map(|worker| {
                let (line, received) = sync_channel(WAITING);
                scope.spawn(move || {
                    // Dealt out in turn, so that they come back in the disk's order.
                    let own = batches(disk.clusters()).skip(worker).step_by(workers);
                    compress_all(disk, own, &line);
                });
                received
            })
            .collect();
        let mut image = Writer::new(disk.size(), disk.clusters().count(), out);
        // A worker that is not waited for any more ends.
        for (line, batch) in lines.iter().cycle().zip(batches(disk.clusters())) {
            task.advance((batch.end - batch.start) * CLUSTER)?;
            let packed = line.recv().map_err(|_| read_error("a thread that compresses has ended"))?;
            for (cluster, packed) in batch.zip(packed.map_err(Qcow2WriteError::Read)?) {
                image.put(cluster, &packed).map_err(Qcow2WriteError::Write)?;
            }
        }
        image.finish().map_err(Qcow2WriteError::Write)?;
        disk.check_unchanged().map_err(Qcow2WriteError::Read)
    })
}

fn read_error(why: &str) -> Qcow2WriteError {
    Qcow2WriteError::Read(io::Error::other(why))
}

/// The clusters that are shipped, in order, in runs without a gap.
fn batches(clusters: &Clusters) -> impl Iterator<Item = Range<u64>> + '_ {
    let mut run = 0..0;
    std::iter::from_fn(move || {
        if run.is_empty() {
            run = clusters.next_run(run.end)?;
        }
        let batch = run.start..run.end.min(run.start + BATCH);
        run.start = batch.end;
        Some(batch)
    })
}

/// What lies in the file for a cluster of the disk.
enum Packed {
    Deflated(Vec<u8>),
    Plain(Vec<u8>),
}

type Line = SyncSender<io::Result<Vec<Packed>>>;

fn compress_all(disk: &Kept<'_>, batches: impl Iterator<Item = Range<u64>>, line: &Line) {
    let mut deflate = Compress::new_with_window_bits(Compression::new(LEVEL), false, WINDOW_BITS);
    let mut plain = Vec::new();
    for batch in batches {
        plain.resize(((batch.end - batch.start) * CLUSTER) as usize, 0);
        let packed = read_cluster_padded(disk, &mut plain, batch.start * CLUSTER).and_then(|()| {
            plain.chunks(CLUSTER as usize).map(|cluster| pack(&mut deflate, cluster)).collect()
        });
        let is_last = packed.is_err();
        if line.send(packed).is_err() || is_last {
            return;
        }
    }
}

fn pack(deflate: &mut Compress, cluster: &[u8]) -> io::Result<Packed> {
    // Where nothing is gained, there is no room for its end.
    let mut deflated = Vec::with_capacity(cluster.len() - SECTOR as usize);
    deflate.reset();
    let status =
        deflate.compress_vec(cluster, &mut deflated, FlushCompress::Finish).map_err(io::Error::other)?;
    Ok(match status {
        Status::StreamEnd => Packed::Deflated(deflated),
        Status::Ok | Status::BufError => Packed::Plain(cluster.to_vec()),
    })
}

/// The file in the making.
struct Writer<'o> {
    out: &'o File,
    header: Header,
    /// The first cluster of the file that nothing has yet.
    next: u64,
    /// Where the next compressed cluster may begin: inside of the last cluster that one lies in, or nowhere.
    open: Option<u64>,
    l1: Vec<u64>,
    l2: Vec<u64>,
    /// Which stretch of the disk `l2` maps.
    stretch: u64,
    refcount_table: Vec<u64>,
    /// The counts of the clusters from the last entry of `refcount_table` on.
    refcounts: Vec<u16>,
}

impl<'o> Writer<'o> {
    /// For a disk of `size` bytes, of which `shipped` clusters will come.
    fn new(size: u64, shipped: u64, out: &'o File) -> Self {
        let clusters = size.div_ceil(CLUSTER);
        let l1_entries = l1_entries(clusters);
        let l1 = (l1_entries * 8).div_ceil(CLUSTER);
        // None takes more than one new cluster of the file.
        let most = Parts::new(l1, clusters.div_ceil(PER_L2), shipped);
        let table = most.refcount_table_clusters();
        let header = Header {
            virtual_size: size.next_multiple_of(SECTOR),
            l1_entries,
            refcount_table: 1,
            refcount_table_clusters: table,
            l1: 1 + table,
        };
        let front = header.l1 + l1;
        Self {
            out,
            header,
            // The first refcount block counts what is in front of it, too.
            next: front + 1,
            open: None,
            l1: vec![0; l1_entries as usize],
            l2: vec![0; PER_L2 as usize],
            stretch: 0,
            refcount_table: vec![front * CLUSTER],
            refcounts: (0..PER_REFCOUNT_BLOCK).map(|cluster| u16::from(cluster <= front)).collect(),
        }
    }

    /// Takes the next cluster of the disk.
    fn put(&mut self, cluster: u64, packed: &Packed) -> io::Result<()> {
        if cluster / PER_L2 != self.stretch {
            self.end_stretch()?;
            self.stretch = cluster / PER_L2;
        }
        let (bytes, at, entry);
        match packed {
            Packed::Plain(plain) => {
                at = self.allocate()? * CLUSTER;
                entry = COPIED | at;
                bytes = plain;
            }
            Packed::Deflated(deflated) => {
                at = self.allocate_bytes(deflated.len() as u64)?;
                let further_sectors = (at + deflated.len() as u64 - 1) / SECTOR - at / SECTOR;
                entry = COMPRESSED | further_sectors << SECTORS_SHIFT | at;
                bytes = deflated;
            }
        }
        self.l2[(cluster % PER_L2) as usize] = entry;
        self.out.write_all_at(bytes, at)
    }

    /// A cluster of the file, counted once.
    fn allocate(&mut self) -> io::Result<u64> {
        if self.next.is_multiple_of(PER_REFCOUNT_BLOCK) {
            self.end_refcounts()?;
            self.refcount_table.push(self.next * CLUSTER);
            self.count(self.next);
            self.next += 1;
        }
        let cluster = self.next;
        self.count(cluster);
        self.next += 1;
        Ok(cluster)
    }

    /// Room for a compressed cluster, which may reach over into the next cluster of the file where that is free.
    fn allocate_bytes(&mut self, length: u64) -> io::Result<u64> {
        if let Some(at) = self.open {
            let last = (at + length - 1) / CLUSTER;
            let reaches_over = last > at / CLUSTER;
            if !reaches_over || last == self.next && !last.is_multiple_of(PER_REFCOUNT_BLOCK) {
                self.count(at / CLUSTER);
                if reaches_over {
                    self.allocate()?;
                }
                self.close_at(at + length);
                return Ok(at);
            }
        }
        let at = self.allocate()? * CLUSTER;
        self.close_at(at + length);
        Ok(at)
    }

    /// Where the next compressed cluster may begin, this one ending at `end`.
    fn close_at(&mut self, end: u64) {
        self.open = (!end.is_multiple_of(CLUSTER)).then_some(end);
    }

    fn count(&mut self, cluster: u64) {
        // The open cluster is given up with the block that counts it. Some thousands share it at most.
        self.refcounts[(cluster % PER_REFCOUNT_BLOCK) as usize] += 1;
    }

    fn end_refcounts(&mut self) -> io::Result<()> {
        let block: Vec<_> = self.refcounts.iter().flat_map(|count| count.to_be_bytes()).collect();
        let at = self.refcount_table.last().copied().unwrap_or(0);
        self.out.write_all_at(&block, at)?;
        self.refcounts.fill(0);
        self.open = None;
        Ok(())
    }

    fn end_stretch(&mut self) -> io::Result<()> {
        if self.l2.iter().any(|entry| *entry != 0) {
            let at = self.allocate()? * CLUSTER;
            self.write_table(&self.l2, at)?;
            self.l1[self.stretch as usize] = COPIED | at;
            self.l2.fill(0);
        }
        Ok(())
    }

    fn write_table(&self, entries: &[u64], at: u64) -> io::Result<()> {
        let table: Vec<_> = entries.iter().flat_map(|entry| entry.to_be_bytes()).collect();
        self.out.write_all_at(&table, at)
    }

    fn finish(mut self) -> io::Result<()> {
        self.end_stretch()?;
        self.end_refcounts()?;
        self.write_table(&self.l1, self.header.l1 * CLUSTER)?;
        self.write_table(&self.refcount_table, self.header.refcount_table * CLUSTER)?;
        self.out.write_all_at(&self.header.to_bytes(), 0)?;
        // The last compressed cluster is read in whole sectors.
        self.out.set_len(self.next * CLUSTER)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::Command;

    /// Clusters of a few bytes each, so that a file of many GiB is written at once; qemu-img counts what refers to what.
    #[test]
    fn tables_hold_in_files_of_many_gib() {
        let mut state = 1u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        // All plain; all compressed, and hardly; a mixture, with gaps.
        for (plain, long, gap) in [(100, 0, 1), (0, 100, 1), (70, 10, 3), (90, 1, 20)] {
            let file = tempfile::NamedTempFile::new().unwrap();
            let shipped = if plain == 0 { 34_000 } else { 100_000 };
            let size = shipped * gap * CLUSTER + 512;
            let mut writer = Writer::new(size, shipped, file.as_file());
            let mut cluster = 0;
            for _ in 0..shipped {
                writer
                    .put(
                        cluster,
                        &match random(100) {
                            below if below < plain => Packed::Plain(vec![1]),
                            below if below < plain + long => {
                                Packed::Deflated(vec![1; 65_000 + random(24) as usize])
                            }
                            _ => Packed::Deflated(vec![1; 1 + random(3000) as usize]),
                        },
                    )
                    .unwrap();
                cluster += 1 + random(gap);
            }
            let blocks = writer.refcount_table.len();
            writer.finish().unwrap();
            let output =
                Command::new("qemu-img").args(["check", "-f", "qcow2"]).arg(file.path()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{plain} {long} {gap}: {said}");
            assert!(said.contains("No errors were found"), "{said}");
            assert!(blocks > 1, "{plain} {long} {gap}");
        }
    }

    #[test]
    fn batches_are_the_shipped_clusters() {
        let mut disk = vec![0u8; 100 * CLUSTER as usize];
        for cluster in (0..40).chain([42, 99]) {
            disk[cluster * CLUSTER as usize] = 1;
        }
        let kept = Kept::all(&disk, &crate::io::Silent).unwrap();
        let found: Vec<_> = batches(kept.clusters()).collect();
        assert_eq!(found, [0..16, 16..32, 32..40, 42..43, 99..100]);
    }
}
