//! What of a disk is shipped, and the disk as it will be read where it is.
//!
//! Content decides, never how sparse a file happens to be: on an NTFS volume proved clean `$Bitmap` says what is
//! in use, and $MFT's bitmap which file records are; everything else is shipped where it is not all zeros. Holes
//! only save reading. So a sparse file, a
//! full one and a qcow2 of the same disk are shipped alike.

mod clusters;
mod pieces;
mod records;
mod scan;
mod trimmed;
mod volume;

use std::io;
use std::ops::Range;

use serde::Serialize;
use thiserror::Error;

use crate::disk::partitions::{self, PartitionError};
use crate::io::{Interrupted, Patch, Progress, ReadAt};
pub use clusters::{CLUSTER, Clusters};
use scan::scan;
use trimmed::Trimmed;
pub use volume::Shipping;
use volume::{Found, look};

/// The largest disk that is shipped, in bytes: its map of clusters then takes 32 MiB.
pub const MAX_DISK: u64 = 16 << 40;

/// Why the map can't be made.
#[derive(Debug, Error)]
pub enum KeepError {
    /// The disk could not be read.
    #[error("the disk could not be read")]
    Read(#[from] io::Error),
    /// Far more than any system disk.
    #[error("the disk has {size} bytes; at most {MAX_DISK} can be packaged")]
    TooLarge {
        /// The disk's size in bytes.
        size: u64,
    },
    /// A patch writes where nothing is shipped.
    #[error(
        "what the patch writes at offset {offset} of the disk would not be shipped: the volume calls it free"
    )]
    LeftOut {
        /// Where the edit begins, in bytes.
        offset: u64,
    },
    /// The user asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// A partition, and what is shipped of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptVolume {
    /// The partition's number in its table.
    pub number: u32,
    /// Its first byte on the disk.
    pub start: u64,
    /// Its size in bytes.
    pub size: u64,
    /// What is shipped.
    pub shipping: Shipping,
}

/// A disk as it is shipped: what is not, reads as zeros.
pub struct Kept<'d> {
    disk: &'d dyn ReadAt,
    clusters: Clusters,
    trimmed: Vec<Trimmed>,
    volumes: Vec<KeptVolume>,
}

impl<'d> Kept<'d> {
    /// Without the free clusters of clean NTFS volumes, what unused file records hold, and the content of page files;
    /// anything else but zeros.
    pub fn in_use(disk: &'d dyn ReadAt, progress: &dyn Progress) -> Result<Self, KeepError> {
        let partitions = match partitions::read_table(disk) {
            Ok(table) => table.partitions,
            Err(PartitionError::Read { source, .. }) => return Err(source.into()),
            // No table, or a damaged one: no volume is known, so all is shipped.
            Err(_) => Vec::new(),
        };
        let (mut trimmed, mut volumes) = (Vec::new(), Vec::new());
        for partition in partitions {
            let shipping = match look(disk, &partition)? {
                Found::Whole(why) => Shipping::Whole { why },
                Found::Trimmed(volume, files) => {
                    let left_out = volume.left_out(disk)?;
                    trimmed.push(*volume);
                    Shipping::InUse { left_out, files }
                }
            };
            let (number, start, size) = (partition.number, partition.start, partition.size);
            volumes.push(KeptVolume { number, start, size, shipping });
        }
        Ok(Self { volumes, ..Self::with(disk, trimmed, progress)? })
    }

    /// All of the disk but zeros, by a scan of everything that is no hole.
    pub fn all(disk: &'d dyn ReadAt, progress: &dyn Progress) -> Result<Self, KeepError> {
        Self::with(disk, Vec::new(), progress)
    }

    fn with(
        disk: &'d dyn ReadAt,
        mut trimmed: Vec<Trimmed>,
        progress: &dyn Progress,
    ) -> Result<Self, KeepError> {
        let size = disk.size();
        if size > MAX_DISK {
            return Err(KeepError::TooLarge { size });
        }
        trimmed.sort_by_key(|volume| volume.bytes().start);
        let mut clusters = Clusters::none_of(size);
        for volume in &trimmed {
            volume.ship(disk, &mut clusters)?;
        }
        let rest = between(&trimmed, size);
        let task = progress.task("scanning", rest.iter().map(|region| region.end - region.start).sum());
        for region in rest {
            scan(disk, region, &mut clusters, &mut |bytes| task.advance(bytes).map_err(KeepError::from))?;
        }
        Ok(Self { disk, clusters, trimmed, volumes: Vec::new() })
    }

    /// What is shipped of each partition; empty where all partitions were taken alike, or none was found.
    pub fn volumes(&self) -> &[KeptVolume] {
        &self.volumes
    }

    /// Makes sure that what `patch` writes is shipped as it is. The disk must have been read through it.
    pub fn check_shipped(&self, patch: &Patch) -> Result<(), KeepError> {
        let mut shipped = Vec::new();
        for edit in patch.edits() {
            shipped.resize(edit.new.len(), 0);
            self.read_exact_at(&mut shipped, edit.offset)?;
            if shipped != edit.new {
                return Err(KeepError::LeftOut { offset: edit.offset });
            }
        }
        Ok(())
    }

    /// Which clusters are shipped.
    pub fn clusters(&self) -> &Clusters {
        &self.clusters
    }
}

/// The regions of the disk that no trimmed volume speaks for.
fn between(trimmed: &[Trimmed], size: u64) -> Vec<Range<u64>> {
    let mut regions = Vec::new();
    let mut at = 0;
    for own in trimmed.iter().map(Trimmed::bytes) {
        regions.push(at..own.start);
        at = own.end;
    }
    regions.push(at..size);
    regions.retain(|region| !region.is_empty());
    regions
}

impl ReadAt for Kept<'_> {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    /// Free parts of a cluster that is shipped read as zeros; so does every cluster that is not. File records that
    /// are not in use read as empty ones.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.read_exact_at(buf, offset)?;
        for volume in &self.trimmed {
            volume.blank(self.disk, buf, offset)?;
        }
        Ok(())
    }

    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        Ok(self
            .clusters
            .next_run(from / CLUSTER)
            .map(|run| (run.start * CLUSTER).max(from)..(run.end * CLUSTER).min(self.size()))
            .filter(|data| !data.is_empty()))
    }

    fn check_unchanged(&self) -> io::Result<()> {
        self.disk.check_unchanged()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::io::{Overlay, Silent};
    use pieces::{Piece, Pieces};

    #[test]
    fn what_a_patch_writes_into_a_free_cluster_is_not_lost_in_silence() {
        // Two clusters of 4096 bytes at 0, the first in use; the map behind them.
        let mut disk = vec![7; 8192 + 512];
        disk[8192] = 1;
        let mut patch = Patch::new();
        patch.replace(&disk, 10, b"kept").unwrap();
        let free = |patch: &mut Patch, new: &[u8]| patch.replace(&disk, 4096 + 10, new).unwrap();
        let check = |patch: Patch| {
            let view = Overlay::new(&disk, patch);
            let map = Pieces::new(vec![Piece { disk_offset: 8192, len: 1 }]).unwrap();
            let volume = Trimmed::new(0, 4096, 2, map, Vec::new()).unwrap();
            Kept::with(&view, vec![volume], &Silent).unwrap().check_shipped(view.patch())
        };
        check(patch.clone()).unwrap();
        let mut scrubbed = patch.clone();
        free(&mut scrubbed, &[0; 4]);
        check(scrubbed).unwrap();
        free(&mut patch, b"lost");
        assert!(matches!(check(patch), Err(KeepError::LeftOut { offset: 4106 })));
    }
}
