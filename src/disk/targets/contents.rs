//! What a device holds already, by its first and last MiB.

use super::{Target, TargetError};
use crate::io::Task;

/// Read from either end, in bytes: every magic below lies in it.
const EDGE: u64 = 1 << 20;

/// Magic bytes at the start: where, what, and the name.
const MAGICS: &[(usize, &[u8], &str)] = &[
    (512, b"EFI PART", "a partition table (GPT)"),
    (4096, b"EFI PART", "a partition table (GPT)"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"-FVE-FS-", "a BitLocker volume"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (54, b"FAT1", "a FAT file system"),
    (82, b"FAT32", "a FAT file system"),
    (1080, b"\x53\xef", "an ext file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x1_0040, b"_BHRfS_M", "a btrfs file system"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (512, b"LABELONE", "an LVM volume"),
    (4086, b"SWAPSPACE2", "swap space"),
    (4096, b"\xfc\x4e\x2b\xa9", "part of a RAID"),
    (32769, b"CD001", "an ISO 9660 image"),
    (0, b"QFI\xfb", "a qcow2 image"),
    (510, b"\x55\xaa", "a partition table (MBR)"),
];

/// Refuses a target that holds something.
pub fn refuse_contents(target: &mut dyn Target, task: &dyn Task) -> Result<(), TargetError> {
    let Some(size) = target.capacity() else { return Ok(()) };
    let mut start = vec![0; size.min(EDGE) as usize];
    target.read(&mut start, 0, task)?;
    let mut end = vec![0; size.min(EDGE) as usize];
    target.read(&mut end, size.saturating_sub(EDGE), task)?;
    match found(&start, &end) {
        Some(what) => Err(TargetError::Holds { what: what.into() }),
        None => Ok(()),
    }
}

fn found(start: &[u8], end: &[u8]) -> Option<&'static str> {
    let has = |(at, magic, _): &&(usize, &[u8], &str)| start.get(*at..).is_some_and(|r| r.starts_with(magic));
    if let Some((_, _, name)) = MAGICS.iter().find(has) {
        return Some(name);
    }
    let backup = [512, 4096].iter().any(|sector| {
        let at = end.len().checked_sub(*sector);
        at.is_some_and(|at| end[at..].starts_with(b"EFI PART"))
    });
    if backup {
        return Some("the backup of a partition table (GPT)");
    }
    start.iter().chain(end).any(|byte| *byte != 0).then_some("data of a kind that is not known here")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_named() {
        let mut start = vec![0; EDGE as usize];
        let mut end = start.clone();
        assert_eq!(found(&start, &end), None);
        assert_eq!(found(&[], &[]), None);
        start[5000] = 1;
        assert_eq!(found(&start, &end), Some("data of a kind that is not known here"));
        start[1080..1082].copy_from_slice(b"\x53\xef");
        assert_eq!(found(&start, &end), Some("an ext file system"));
        let at = end.len() - 4096;
        end[at..at + 8].copy_from_slice(b"EFI PART");
        assert_eq!(found(&vec![0; 4096], &end), Some("the backup of a partition table (GPT)"));
    }
}
