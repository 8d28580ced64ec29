//! A hive of any bytes: read and edited.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealroot::hive::{Editor, Hive};
use sealroot_fuzz::hives;

fuzz_target!(|bytes: &[u8]| {
    // The last byte says whether the sequence numbers stay as they are: mostly they are made equal.
    let Some((mode, bytes)) = bytes.split_last() else { return };
    let mut file = bytes.to_vec();
    if mode & 1 == 0 {
        hives::set_dirty(&mut file, false);
    }
    hives::repair_sum(&mut file);
    let Ok(hive) = Hive::open(file.as_slice()) else { return };
    hives::walk(&hive);
    if let Ok(editor) = Editor::new(&hive) {
        hives::edit(editor, &file);
    }
});
