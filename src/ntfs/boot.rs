//! The boot sector: what a volume is, and its geometry.

use super::NtfsError;
use super::record::{le16, le64};
use crate::io::ReadAt;

/// What the first sector of a partition says it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// NTFS.
    Ntfs,
    /// A volume that BitLocker has encrypted, whole or in part.
    BitLocker,
    /// Anything else, or nothing.
    Other,
}

/// Looks at the first sector only.
pub fn probe(partition: &dyn ReadAt) -> Result<Probe, NtfsError> {
    let mut name = [0; 8];
    if partition.size() < 512 {
        return Ok(Probe::Other);
    }
    partition.read_exact_at(&mut name, 3).map_err(NtfsError::read(3))?;
    Ok(match &name {
        b"NTFS    " => Probe::Ntfs,
        b"-FVE-FS-" => Probe::BitLocker,
        _ => Probe::Other,
    })
}

/// Sizes and places that the boot sector gives, checked against the partition's size. All in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    pub sector_size: u64,
    pub cluster_size: u64,
    /// Of the file system: sectors times their size; the boot sector's copy follows.
    pub size: u64,
    /// Whole clusters in it.
    pub clusters: u64,
    pub mft_cluster: u64,
    pub record_size: u64,
}

impl Geometry {
    pub(super) fn read(partition: &dyn ReadAt) -> Result<Self, NtfsError> {
        match probe(partition)? {
            Probe::Ntfs => {}
            Probe::BitLocker => return Err(NtfsError::BitLocker),
            Probe::Other => return Err(NtfsError::NotNtfs),
        }
        let damaged = |offset, why| NtfsError::Damaged { what: "boot sector", offset, why };
        let mut sector = [0; 512];
        partition.read_exact_at(&mut sector, 0).map_err(NtfsError::read(0))?;
        if sector[510..] != [0x55, 0xaa] {
            return Err(damaged(510, "its signature is missing"));
        }
        let sector_size = u64::from(le16(&sector, 11));
        if !sector_size.is_power_of_two() || !(512..=4096).contains(&sector_size) {
            return Err(damaged(11, "the sector size is out of range"));
        }
        // Above 128 the byte is a negative power of two.
        let sectors_per_cluster = match sector[13] {
            count @ 1..=128 if count.is_power_of_two() => u64::from(count),
            power @ 244.. => 1 << (256 - u64::from(power)),
            _ => return Err(damaged(13, "the cluster size is out of range")),
        };
        let cluster_size = sector_size * sectors_per_cluster;
        if cluster_size > 2 << 20 {
            return Err(damaged(13, "the cluster size is out of range"));
        }
        let Some(size) = le64(&sector, 40).checked_mul(sector_size) else {
            return Err(damaged(40, "the number of sectors is out of range"));
        };
        if size > partition.size() {
            return Err(damaged(40, "the file system is larger than its partition; was the disk cut short?"));
        }
        let clusters = size / cluster_size;
        let mft_cluster = le64(&sector, 48);
        if mft_cluster == 0 || mft_cluster >= clusters {
            return Err(damaged(48, "$MFT lies past the volume's end"));
        }
        // In clusters, or as a negative power of two.
        let record_size = match sector[64] {
            count @ 1..=127 => u64::from(count) * cluster_size,
            power @ 244..=247 => 1 << (256 - u64::from(power)),
            _ => 0,
        };
        if !(512..=4096).contains(&record_size) || !record_size.is_power_of_two() {
            return Err(damaged(64, "the size of file records is out of range"));
        }
        Ok(Self { sector_size, cluster_size, size, clusters, mft_cluster, record_size })
    }
}
