//! The qcow2 header. Format: QEMU's docs/interop/qcow2.rst; all numbers are big-endian.

use super::Qcow2Error;
use crate::io::ReadAt;

pub(super) const MAGIC: [u8; 4] = *b"QFI\xfb";
const V2_LENGTH: u64 = 72;
const V3_LENGTH: u64 = 104;
/// As QEMU has it: a first-level table of more than 32 MiB is taken for damage.
const MAX_L1_BYTES: u64 = 32 << 20;

const DIRTY: u64 = 1 << 0;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION_TYPE: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;

/// How compressed clusters are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    /// Deflate without a zlib header.
    Deflate,
    /// One zstd frame a cluster.
    Zstd,
}

/// What reading needs to know, checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub version: u32,
    /// Of a cluster, as a power of two, 9 to 21.
    pub cluster_bits: u32,
    /// Of the disk, in bytes.
    pub size: u64,
    pub compression: Compression,
    pub l1_offset: u64,
    /// Entries that the disk's size asks for.
    pub l1_entries: u64,
    /// Where reference counts are found; not looked at for reading.
    pub refcount_table_offset: u64,
    pub refcount_table_clusters: u32,
    /// Of a reference count's width in bits, as a power of two.
    pub refcount_order: u32,
    /// Features that a writer who does not know them must switch off.
    pub autoclear: u64,
}

fn u32_at(bytes: &[u8; V3_LENGTH as usize + 8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8; V3_LENGTH as usize + 8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

impl Header {
    pub(super) fn read(file: &dyn ReadAt) -> Result<Self, Qcow2Error> {
        let damaged = |offset, why| Qcow2Error::Damaged { what: "header", offset, why };
        let mut bytes = [0; V3_LENGTH as usize + 8];
        let have = file.size().min(bytes.len() as u64);
        if have < V2_LENGTH {
            return Err(damaged(0, "the file ends inside it"));
        }
        file.read_exact_at(&mut bytes[..have as usize], 0)
            .map_err(|source| Qcow2Error::Read { offset: 0, source })?;

        let version = u32_at(&bytes, 4);
        if !(2..=3).contains(&version) {
            return Err(Qcow2Error::Version(version));
        }
        let (incompatible, header_length) = match version {
            2 => (0, V2_LENGTH),
            _ => (u64_at(&bytes, 72), u64::from(u32_at(&bytes, 100))),
        };
        if version == 3 && (have < V3_LENGTH || header_length < V3_LENGTH) {
            return Err(damaged(100, "the header is shorter than version 3 asks for"));
        }
        refuse_features(incompatible)?;

        let cluster_bits = u32_at(&bytes, 20);
        if !(9..=21).contains(&cluster_bits) {
            return Err(damaged(20, "clusters are not between 512 bytes and 2 MiB"));
        }
        if u64_at(&bytes, 8) != 0 {
            return Err(Qcow2Error::BackingFile);
        }
        if u32_at(&bytes, 32) != 0 {
            return Err(Qcow2Error::Encrypted);
        }
        let snapshots = u32_at(&bytes, 60);
        if snapshots != 0 {
            return Err(Qcow2Error::Snapshots(snapshots));
        }
        // The byte exists only in headers long enough for it; absent, it is 0.
        let compression_type = if header_length > V3_LENGTH { bytes[V3_LENGTH as usize] } else { 0 };
        let compression = match (compression_type, incompatible & COMPRESSION_TYPE != 0) {
            (0, false) => Compression::Deflate,
            (1, true) => Compression::Zstd,
            (0, true) | (1, false) => {
                return Err(damaged(104, "the compression type and its feature bit disagree"));
            }
            (other, _) => return Err(Qcow2Error::Compression(other)),
        };

        let size = u64_at(&bytes, 24);
        // A second-level table is one cluster of 8-byte entries.
        let l2_span_bits = cluster_bits + (cluster_bits - 3);
        let l1_entries = size.div_ceil(1 << l2_span_bits);
        let l1_offset = u64_at(&bytes, 40);
        if u64::from(u32_at(&bytes, 36)) < l1_entries {
            return Err(damaged(36, "the first-level table is too short for the disk's size"));
        }
        if l1_entries > MAX_L1_BYTES / 8 {
            return Err(damaged(24, "the disk's size is beyond what qcow2 can map"));
        }
        if !l1_offset.is_multiple_of(1 << cluster_bits) {
            return Err(damaged(40, "the first-level table is not aligned to a cluster"));
        }
        if l1_offset.checked_add(l1_entries * 8).is_none_or(|end| end > file.size()) {
            return Err(damaged(40, "the first-level table lies past the end of the file"));
        }
        // Version 2 has 16-bit counts and no features.
        let (autoclear, refcount_order) =
            if version == 2 { (0, 4) } else { (u64_at(&bytes, 88), u32_at(&bytes, 96)) };
        Ok(Self {
            version,
            cluster_bits,
            size,
            compression,
            l1_offset,
            l1_entries,
            refcount_table_offset: u64_at(&bytes, 48),
            refcount_table_clusters: u32_at(&bytes, 56),
            refcount_order,
            autoclear,
        })
    }
}

fn refuse_features(incompatible: u64) -> Result<(), Qcow2Error> {
    let known = DIRTY | CORRUPT | EXTERNAL_DATA | COMPRESSION_TYPE | EXTENDED_L2;
    if incompatible & EXTERNAL_DATA != 0 {
        return Err(Qcow2Error::ExternalData);
    }
    if incompatible & CORRUPT != 0 {
        return Err(Qcow2Error::MarkedCorrupt);
    }
    if incompatible & DIRTY != 0 {
        return Err(Qcow2Error::MarkedDirty);
    }
    if incompatible & EXTENDED_L2 != 0 {
        return Err(Qcow2Error::ExtendedL2);
    }
    match incompatible & !known {
        0 => Ok(()),
        unknown => Err(Qcow2Error::Features(unknown)),
    }
}
