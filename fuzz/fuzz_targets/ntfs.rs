//! A small NTFS volume with any bytes of it changed: its state, its folders, its files and where they lie, and its
//! answer files removed.
#![no_main]

use std::ops::Range;

use libfuzzer_sys::fuzz_target;
use sealroot::io::{Draft, ReadAt};
use sealroot::ntfs::{Entry, File, FileReference, Volume, unlink};
use sealroot_fuzz::edits::{self, VOLUME};

const FOLDERS: [&str; 3] = ["Windows\\Panther", "Windows\\System32\\Sysprep", ""];

fuzz_target!(|input: &[u8]| {
    // The first byte says which folder is looked into, which of its answer files goes, and whether more is read.
    let Some((which, input)) = input.split_first() else { return };
    let disk = edits::volume(input);
    let Ok(volume) = Volume::open(&disk) else { return };
    if which & 0x80 != 0 {
        let _ = volume.state();
        let _ = volume.record_in_free_clusters();
        let _ = volume.file("windows\\system32\\CONFIG\\system").map(|file| file.map(|file| read(&file)));
    }
    let folder = FOLDERS[usize::from(*which) % FOLDERS.len()];
    let entries = volume.list(folder).ok().flatten().unwrap_or_default();
    for entry in entries.iter().take(32) {
        if entry.is_directory {
            for below in volume.list_by_reference(entry.file).unwrap_or_default().iter().take(16) {
                let _ = volume.file_by_reference(below.file).map(|file| read(&file));
            }
        } else {
            let _ = volume.file_by_reference(entry.file).map(|file| read(&file));
        }
    }
    let answers: Vec<_> = entries.iter().filter(|entry| entry.name.contains("unattend")).collect();
    if let Some(entry) = answers.get(usize::from(which / 8 & 7) % answers.len().max(1)) {
        remove(&disk, &volume, (folder, &entries), entry.file);
    }
});

/// Whatever was done to the volume, removing a file removes that file, and no more.
fn remove<R: ReadAt>(
    disk: &Draft<&[u8]>,
    volume: &Volume<R>,
    (folder, entries): (&str, &[Entry]),
    target: FileReference,
) {
    let (places, allocated) = (places(volume, target), allocated(volume));
    let Ok(unlinked) = unlink(disk, target) else { return };
    let mut after = Draft::new(disk);
    for change in unlinked.changes {
        after.write(change.offset, &change.bytes).expect("a change lies on the volume");
    }
    let volume = Volume::open(&after).expect("the volume opens");
    let left = volume.list(folder).expect("its folder can be read").expect("its folder is there");
    if unlinked.emptied.is_some() {
        assert_eq!(volume.file_by_reference(target).expect("it is there").size(), 0);
        assert_eq!(left.len(), entries.len());
    } else {
        assert!(volume.file_by_reference(target).is_err());
        // A name in a folder that the file itself does not know of, as damage makes them, stays.
        let others = |entries: &[Entry]| {
            entries.iter().filter(|entry| entry.file != target).cloned().collect::<Vec<_>>()
        };
        assert_eq!(others(&left), others(entries));
    }
    let now = self::allocated(&volume);
    if let (Some(before), Some(now)) = (&allocated, now) {
        for range in &now {
            assert!(before.iter().any(|before| before.start <= range.start && range.end <= before.end));
        }
        for place in places {
            let mut bytes = vec![0xff; (place.end - place.start) as usize];
            after.read_exact_at(&mut bytes, place.start).expect("it lies on the volume");
            assert!(bytes == vec![0; bytes.len()]);
            let cluster = place.start / volume.cluster_size();
            assert!(!now.iter().any(|range| range.contains(&cluster)));
        }
    }
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

/// The clusters in use, if $Bitmap can be read.
fn allocated<R: ReadAt>(volume: &Volume<R>) -> Option<Vec<Range<u64>>> {
    let mut bitmap = volume.bitmap().ok()?;
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(run) = bitmap.next_allocated(from).ok()? {
        assert!(from <= run.start && run.start < run.end && run.end <= volume.clusters());
        from = run.end;
        found.push(run);
    }
    Some(found)
}
