//! A dirty hive and its two logs: replayed, read as a whole, and edited after that.
//!
//! Random bytes would not get past the sums and hashes. So the input's last byte says which of them are made
//! right first; the four before it are the lengths of the logs, in units of 512 bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealroot::hive::{as_found, recover};
use sealroot_fuzz::hives::{self, put, repair_entries, repair_sum, set_dirty, word};

const HIVE_IS_DIRTY: u8 = 1;
const HIVE_SUM: u8 = 1 << 1;
const LOG_SUMS: u8 = 1 << 2;
const ENTRIES: u8 = 1 << 3;
const NUMBERS: u8 = 1 << 4;
const PAGES_FIT: u8 = 1 << 5;
/// A log of the older kind is known by the hive's time.
const TIMES: u8 = 1 << 6;
const SWAPPED: u8 = 1 << 7;

fuzz_target!(|bytes: &[u8]| {
    let Some((bytes, [a, b, c, d, mode])) = bytes.split_last_chunk::<5>() else { return };
    let set = |bit| mode & bit != 0;
    let last = |bytes: &[u8], units: [u8; 2]| {
        let at = bytes.len().saturating_sub(usize::from(u16::from_le_bytes(units)) * 512);
        let (before, last) = bytes.split_at(at);
        (before.to_vec(), last.to_vec())
    };
    let (bytes, mut second) = last(bytes, [*c, *d]);
    let (mut hive, mut first) = last(&bytes, [*a, *b]);
    if set(HIVE_IS_DIRTY) {
        set_dirty(&mut hive, true);
    }
    if set(HIVE_SUM) {
        repair_sum(&mut hive);
    }
    let mut next = (set(NUMBERS) && hive.len() >= 512).then(|| word(&hive, 8));
    for log in [&mut first, &mut second] {
        if set(ENTRIES) {
            next = repair_entries(log, next, set(PAGES_FIT));
        }
        if set(TIMES) && log.len() >= 512 && hive.len() >= 512 {
            log[12..20].copy_from_slice(&hive[12..20]);
        }
        if set(LOG_SUMS) && log.len() >= 512 {
            log[..4].copy_from_slice(b"regf");
            set_dirty(log, false);
            let bins = word(log, 40).checked_next_multiple_of(4096).unwrap_or(4096);
            put(log, 40, bins);
            repair_sum(log);
        }
    }
    if set(SWAPPED) {
        std::mem::swap(&mut first, &mut second);
    }
    if let Ok(found) = as_found(&hive) {
        hives::walk(found.hive());
    }
    let Ok(recovered) = recover(&hive, &[&first, &second]) else { return };
    assert!(!recovered.hive().is_dirty());
    hives::walk(recovered.hive());
    if let Ok(editor) = recovered.into_editor() {
        hives::edit(editor, &hive);
    }
});
