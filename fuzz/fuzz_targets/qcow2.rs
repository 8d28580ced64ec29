//! Any bytes as a qcow2 image: opened, mapped, read, and judged for writing in place.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealroot::disk::Qcow2;
use sealroot::disk::qcow2::Writable;
use sealroot::io::ReadAt;

fuzz_target!(|data: &[u8]| {
    let Ok(image) = Qcow2::open(data) else { return };
    let size = image.size();
    let mut buf = vec![0; size.min(96 << 10) as usize];
    for offset in [0, size / 2, size - buf.len() as u64] {
        let len = buf.len().min((size - offset) as usize);
        let _ = image.read_exact_at(&mut buf[..len], offset);
    }
    // A few ranges of many.
    let mut from = 0;
    for _ in 0..16 {
        match image.next_data(from) {
            Ok(Some(range)) => {
                assert!(from <= range.start && range.start < range.end && range.end <= size);
                from = range.end;
            }
            _ => break,
        }
    }
    let Ok(writable) = Writable::new(&image) else { return };
    for offset in [0, size / 2, size.saturating_sub(5000)] {
        for extent in writable.extents(&image, offset, 5000.min(size - offset)).unwrap_or_default() {
            assert!(extent.offset > 0 && extent.offset + extent.length <= data.len() as u64);
        }
    }
});
