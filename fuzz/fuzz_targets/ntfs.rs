//! A small NTFS volume with any bytes of it changed: its state, its folders, its files and where they lie, and its
//! answer files removed.
#![no_main]

use std::ops::Range;

use libfuzzer_sys::fuzz_target;
use sealroot::io::{Draft, ReadAt};
use sealroot::ntfs::{Entry, File, FileReference, Volume, clear_residue, unlink};
use sealroot_fuzz::edits::{self, VOLUME};

const FOLDERS: [&str; 4] =
    ["Windows\\Panther", "Windows\\System32\\Sysprep", "Windows\\Panther\\Unattend", ""];

fuzz_target!(|input: &[u8]| {
    // Everything is read; or answer files of a folder go, one or several in turn.
    let Some(([what, which], input)) = input.split_first_chunk() else { return };
    let mut disk = edits::volume(input);
    let folder = FOLDERS[usize::from(what % 4)];
    if what & 0x80 != 0 {
        look_around(&disk, folder);
        return;
    }
    let times = if what & 0x70 == 0x70 { 12 } else { 1 };
    for _ in 0..times {
        if !remove(&mut disk, folder, usize::from(*which)) {
            return;
        }
    }
});

fn look_around(disk: &Draft<&[u8]>, folder: &str) {
    let Ok(volume) = Volume::open(disk) else { return };
    let _ = volume.state();
    let _ = volume.contradiction();
    let _ = volume.file_in_free_clusters(64..150);
    let _ = volume.file("windows\\system32\\CONFIG\\system").map(|file| file.map(|file| read(&file)));
    let _ = allocated(&volume);
    if let Ok(mft) = volume.mft() {
        clear_records(&mft, volume.record_size() as usize);
    }
    for entry in list(&volume, folder).iter().take(32) {
        if entry.is_directory {
            for below in volume.list_by_reference(entry.file).unwrap_or_default().iter().take(16) {
                let _ = volume.file_by_reference(below.file).map(|file| read(&file));
            }
        } else {
            let _ = volume.file_by_reference(entry.file).map(|file| read(&file));
        }
    }
}

/// Removes the `nth` answer file of a folder from the volume; whatever that is, that file goes, and no other.
fn remove(disk: &mut Draft<&'static [u8]>, folder: &str, nth: usize) -> bool {
    let Ok(volume) = Volume::open(&*disk) else { return false };
    let before = list(&volume, folder);
    let answers: Vec<_> = before.iter().filter(|entry| entry.name.contains("unattend")).collect();
    let Some(target) = answers.get(nth % answers.len().max(1)).map(|entry| entry.file) else { return false };
    let (places, used) = (places(&volume, target), allocated(&volume));
    let Ok(unlinked) = unlink(disk, target) else { return false };
    drop(volume);
    for change in unlinked.changes {
        disk.write(change.offset, &change.bytes).expect("a change lies on the volume");
    }

    let volume = Volume::open(&*disk).expect("the volume opens");
    let after = volume.list(folder).expect("its folder can be read").expect("its folder is there");
    // A name in a folder that the file itself does not know of, as damage makes them, stays.
    let others =
        |entries: &[Entry]| entries.iter().filter(|entry| entry.file != target).cloned().collect::<Vec<_>>();
    assert_eq!(others(&after), others(&before));
    if unlinked.emptied.is_some() {
        assert_eq!(volume.file_by_reference(target).expect("it is there").size(), 0);
        assert_eq!(after.len(), before.len());
    } else {
        assert!(volume.file_by_reference(target).is_err());
    }
    let (Some(used), Some(still)) = (used, allocated(&volume)) else { return true };
    assert!(still.iter().zip(&used).all(|(still, used)| *used | !*still));
    for place in places {
        let mut bytes = vec![0xff; (place.end - place.start) as usize];
        disk.read_exact_at(&mut bytes, place.start).expect("it lies on the volume");
        assert!(bytes == vec![0; bytes.len()]);
        assert!(!still[(place.start / volume.cluster_size()) as usize]);
    }
    true
}

fn list<R: ReadAt>(volume: &Volume<R>, folder: &str) -> Vec<Entry> {
    volume.list(folder).ok().flatten().unwrap_or_default()
}

/// Where a file in clusters lies.
fn places<R: ReadAt>(volume: &Volume<R>, file: FileReference) -> Vec<Range<u64>> {
    let Ok(file) = volume.file_by_reference(file) else { return Vec::new() };
    if file.is_resident() {
        return Vec::new();
    }
    let places = file.map(0, file.size()).unwrap_or_default();
    places.iter().map(|piece| piece.volume_offset..piece.volume_offset + piece.length).collect()
}

fn read<R: ReadAt>(file: &File<'_, R>) {
    let mut buf = vec![0; file.size().min(64 << 10) as usize];
    let _ = file.read_exact_at(&mut buf, 0);
    let _ = file.next_data(0);
    for piece in file.map(0, file.size()).unwrap_or_default() {
        assert!(piece.volume_offset + piece.length <= VOLUME.len() as u64);
    }
}

/// What the shipped view does with file records.
fn clear_records<R: ReadAt>(mft: &File<'_, R>, size: usize) {
    let mut records = vec![0; mft.size().min(256 << 10) as usize];
    if mft.read_exact_at(&mut records, 0).is_ok() {
        for (number, record) in (0..).zip(records.chunks_exact_mut(size)) {
            clear_residue(number, record, number % 4 != 0);
        }
    }
}

/// For each cluster whether it is in use, if $Bitmap can be read.
fn allocated<R: ReadAt>(volume: &Volume<R>) -> Option<Vec<bool>> {
    let mut bitmap = volume.bitmap().ok()?;
    let mut used = vec![false; volume.clusters() as usize];
    let mut from = 0;
    while let Some(run) = bitmap.next_allocated(from).ok()? {
        assert!(from <= run.start && run.start < run.end && run.end <= volume.clusters());
        used[run.start as usize..run.end as usize].fill(true);
        from = run.end;
    }
    Some(used)
}
