//! Any bytes as a published layer: its seek table, the tar in it, the disk in that.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealroot::containerdisk::PublishedDisk;
use sealroot::io::ReadAt;

fuzz_target!(|data: &[u8]| {
    let Ok(disk) = PublishedDisk::open(data, "application/vnd.oci.image.layer.v1.tar+zstd") else { return };
    let size = disk.size();
    let mut buf = vec![0; size.min(64 << 10) as usize];
    for offset in [0, size / 2, size - buf.len() as u64] {
        let len = buf.len().min((size - offset) as usize);
        let _ = disk.read_exact_at(&mut buf[..len], offset);
    }
    assert!(disk.fetched() > 0);
});
