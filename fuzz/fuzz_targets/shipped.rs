//! A small NTFS volume on a disk, with any bytes of it changed, as it is shipped: without what is free. Whatever could
//! be read of its files is still there.
#![no_main]

use std::io;

use libfuzzer_sys::fuzz_target;
use sealroot::io::{Draft, ReadAt, Silent, Window};
use sealroot::ntfs::{Entry, FileReference, Volume};
use sealroot::root::keep::{Kept, Shipping};
use sealroot_fuzz::edits::{self, VOLUME};

const FOLDERS: [&str; 5] = [
    "",
    "Windows\\Panther",
    "Windows\\Panther\\Unattend",
    "Windows\\System32\\Sysprep",
    "Windows\\System32\\config",
];
/// Where the volume begins on the disk, in bytes.
const START: u64 = 1 << 20;

/// A disk with an MBR and one partition.
struct Disk(Draft<&'static [u8]>);

impl Disk {
    fn mbr() -> [u8; 512] {
        let mut mbr = [0; 512];
        mbr[446 + 4] = 7;
        mbr[446 + 8..446 + 12].copy_from_slice(&((START / 512) as u32).to_le_bytes());
        mbr[446 + 12..446 + 16].copy_from_slice(&((VOLUME.len() / 512) as u32).to_le_bytes());
        mbr[510..].copy_from_slice(&[0x55, 0xaa]);
        mbr
    }
}

impl ReadAt for Disk {
    fn size(&self) -> u64 {
        START + VOLUME.len() as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset + buf.len() as u64 > self.size() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buf.fill(0);
        let length = buf.len();
        if offset < 512 {
            let end = length.min(512 - offset as usize);
            buf[..end].copy_from_slice(&Self::mbr()[offset as usize..][..end]);
        }
        let before = START.saturating_sub(offset).min(length as u64) as usize;
        if before == length {
            Ok(())
        } else {
            self.0.read_exact_at(&mut buf[before..], offset.max(START) - START)
        }
    }
}

fuzz_target!(|input: &[u8]| {
    // Some read it in parts of an odd size.
    let Some((step, input)) = input.split_first() else { return };
    let disk = Disk(edits::volume(input));
    let Ok(kept) = Kept::in_use(&disk, &Silent) else { return };
    if !matches!(kept.volumes(), [volume] if matches!(volume.shipping, Shipping::InUse { .. })) {
        return;
    }
    let shipped = copy(&kept, (usize::from(*step) + 1) * 4096 - 7);
    let (Some(before), Some(after)) = (files(&disk), files(&shipped)) else {
        panic!("the volume opens no more")
    };
    assert_eq!(before.0, after.0);
    for (before, after) in before.1.iter().zip(&after.1) {
        assert!(before == after, "{:?} is not what it was, or can't be read", before.0);
    }
});

/// What a reader of the parts that have data gets, which are all that is shipped.
fn copy(kept: &Kept<'_>, step: usize) -> Vec<u8> {
    let mut copy = vec![0; kept.size() as usize];
    let mut from = 0;
    while let Some(data) = kept.next_data(from).expect("the disk can be read") {
        for part in
            copy[data.start as usize..data.end as usize].chunks_mut(step).scan(data.start, |at, part| {
                let here = *at;
                *at += part.len() as u64;
                Some((here, part))
            })
        {
            kept.read_exact_at(part.1, part.0).expect("the disk can be read");
        }
        from = data.end;
    }
    copy
}

type Contents = Vec<(FileReference, Option<Vec<u8>>)>;

/// What can be read of the volume: names, and the bytes of files.
fn files(disk: &dyn ReadAt) -> Option<(Vec<Option<Vec<Entry>>>, Contents)> {
    let volume = Volume::open(Window::new(disk, START, VOLUME.len() as u64)?).ok()?;
    let names: Vec<_> = FOLDERS.iter().map(|folder| volume.list(folder).ok().flatten()).collect();
    let mut contents = Vec::new();
    for entry in names.iter().flatten().flatten().filter(|entry| !entry.is_directory) {
        let bytes = volume.file_by_reference(entry.file).ok().and_then(|file| {
            let mut bytes = vec![0; usize::try_from(file.size()).ok().filter(|size| *size <= VOLUME.len())?];
            file.read_exact_at(&mut bytes, 0).ok()?;
            Some(bytes)
        });
        // $MFT itself is what is cleared.
        if entry.file.record > 1 {
            contents.push((entry.file, bytes));
        }
    }
    Some((names, contents))
}
