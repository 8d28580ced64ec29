//! Files that are no raw disk, known by their first bytes: named, with the command that helps.

use super::DiskError;
use super::spool::{GZIP, SKIPPABLE, ZSTD};
use crate::io::ReadAt;

const CONVERT: &str = "make a qcow2 of it: qemu-img convert -O qcow2 FILE disk.qcow2";
const MEDIUM: &str = "it is a medium to install from; name the installed disk";
const FETCH: &str = "fetch it again; the server answered with a page instead of the file";
const GUNZIP: &str = "let --spool DIR unpack it, or do it yourself, keeping holes: gzip -dc FILE | cp --sparse=always \
                      /dev/stdin disk.raw";
const UNZSTD: &str =
    "let --spool DIR unpack it, or do it yourself, keeping holes: zstd -d --sparse FILE -o disk.raw";
const EXTRACT: &str = "extract the disk from it first";

/// Magic bytes: where, what, the name of the kind, and its cure.
const MAGICS: &[(u64, &[u8], &str, &str)] = &[
    (0, b"vhdxfile", "a VHDX image", CONVERT),
    (0, b"conectix", "a dynamic VHD image", CONVERT),
    (0, b"KDMV", "a VMDK image", CONVERT),
    (0, b"COWD", "a VMDK image", CONVERT),
    (0, b"# Disk DescriptorFile", "a VMDK descriptor", CONVERT),
    (0x40, b"\x7f\x10\xda\xbe", "a VDI image", CONVERT),
    (0, b"QED\0", "a QED image", CONVERT),
    (0, b"WithoutFreeSpace", "a Parallels image", CONVERT),
    (0, b"WithouFreSpacExt", "a Parallels image", CONVERT),
    (0, GZIP, "a gzip file", GUNZIP),
    (0, ZSTD, "a zstd file", UNZSTD),
    (0, SKIPPABLE, "a zstd file", UNZSTD),
    (0, b"\xfd7zXZ\0", "an xz file", "unpack it first, keeping holes: xz -dk FILE"),
    (0, b"BZh", "a bzip2 file", "unpack it first: bzip2 -dk FILE"),
    (0, b"PK\x03\x04", "a zip archive", EXTRACT),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", EXTRACT),
    (257, b"ustar", "a tar archive", EXTRACT),
    (0, b"MSWIM\0\0\0", "a WIM file", MEDIUM),
    (32769, b"CD001", "an ISO 9660 image", MEDIUM),
    (32769, b"BEA01", "a UDF image", MEDIUM),
    (0, b"<!DOCTYPE", "a web page", FETCH),
    (0, b"<html", "a web page", FETCH),
];

/// As much of a file's start as tells what it is: the last magic ends at 32774.
pub const START: usize = 33 << 10;

/// An error for a file known to be of another kind by its first [`START`] bytes, or all it has.
pub fn refuse_start(start: &[u8]) -> Result<(), DiskError> {
    let text = start.trim_ascii_start();
    for &(offset, magic, what, cure) in MAGICS {
        let found = if cure == FETCH {
            text.get(..magic.len()).is_some_and(|head| head.eq_ignore_ascii_case(magic))
        } else {
            start.get(offset as usize..).is_some_and(|rest| rest.starts_with(magic))
        };
        if found {
            return Err(DiskError::Foreign { what, cure });
        }
    }
    Ok(())
}

/// An error for a file known to be of another kind.
pub(super) fn refuse(file: &dyn ReadAt) -> Result<(), DiskError> {
    let mut start = vec![0; file.size().min(START as u64) as usize];
    file.read_exact_at(&mut start, 0).map_err(|source| DiskError::Read { offset: 0, source })?;
    refuse_start(&start)?;
    // A fixed VHD is a raw disk with a footer of one sector.
    let Some(offset) = file.size().checked_sub(512) else { return Ok(()) };
    let mut footer = [0; 8];
    file.read_exact_at(&mut footer, offset).map_err(|source| DiskError::Read { offset, source })?;
    if &footer == b"conectix" {
        return Err(DiskError::Foreign { what: "a fixed VHD image", cure: CONVERT });
    }
    Ok(())
}
