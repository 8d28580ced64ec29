//! Any bytes as an NTFS volume: its state, its folders two levels down, its files and where they lie.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealroot::io::ReadAt;
use sealroot::ntfs::{File, Volume};

fn read<R: ReadAt>(file: &File<'_, R>, volume_size: u64) {
    let mut buf = vec![0; file.size().min(64 << 10) as usize];
    let _ = file.read_exact_at(&mut buf, 0);
    let _ = file.next_data(0);
    for piece in file.map(0, file.size()).unwrap_or_default() {
        assert!(piece.volume_offset + piece.length <= volume_size);
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(volume) = Volume::open(data) else { return };
    let _ = volume.state();
    let _ = volume.file("Windows\\System32\\config\\SYSTEM");
    for entry in volume.list("").ok().flatten().unwrap_or_default().iter().take(64) {
        let _ = volume.list(&entry.name);
        if entry.is_directory {
            for below in volume.list_by_reference(entry.file).unwrap_or_default().iter().take(16) {
                let _ = volume.file_by_reference(below.file).map(|file| read(&file, data.len() as u64));
            }
        } else {
            let _ = volume.file_by_reference(entry.file).map(|file| read(&file, data.len() as u64));
        }
    }
    if let Ok(mut bitmap) = volume.bitmap() {
        let mut from = 0;
        while let Ok(Some(run)) = bitmap.next_allocated(from) {
            assert!(from <= run.start && run.start < run.end && run.end <= volume.clusters());
            from = run.end;
        }
    }
});
