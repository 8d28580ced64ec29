//! Any bytes as a disk with a partition table: what is read lies on the disk, in parts that do not overlap.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealroot::disk::partitions::read_table;
use sealroot::io::Window;

fuzz_target!(|data: &[u8]| {
    let Ok(table) = read_table(&data) else { return };
    let mut partitions = table.partitions;
    for partition in &partitions {
        assert!(Window::new(data, partition.start, partition.size).is_some());
    }
    partitions.sort_by_key(|partition| partition.start);
    for pair in partitions.windows(2) {
        assert!(pair[0].start + pair[0].size <= pair[1].start);
    }
});
