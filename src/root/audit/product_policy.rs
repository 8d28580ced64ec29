//! The value SYSTEM\ControlSetNNN\Control\ProductOptions, ProductPolicy: what the licence allows.
//!
//! A header of 20 bytes (sizes of the whole, of the entries, of the end; a number; the version, 1), then entries of
//! 16 bytes (their size, the name's, the data's type and size, flags, a number), each followed by its name in
//! UTF-16 and its data. As described in Geoff Chappell's "Product Policy" notes (geoffchappell.com).

use time::{Date, Duration, OffsetDateTime};

const HEADER: usize = 20;
const ENTRY: usize = 16;
/// Data type: bytes.
const BINARY: u16 = 3;
const NAME: &str = "Kernel-ExpirationDate";

/// The day on which this Windows expires; `None` where none is set, or the value is not as described.
pub fn expiration(policy: &[u8]) -> Option<Date> {
    let entries = u32::from_le_bytes(policy.get(4..8)?.try_into().ok()?) as usize;
    let mut rest = policy.get(HEADER..HEADER.checked_add(entries)?)?;
    while rest.len() >= ENTRY {
        let half = |at: usize| u16::from_le_bytes([rest[at], rest[at + 1]]);
        let (size, name_len, kind, data_len) =
            (usize::from(half(0)), usize::from(half(2)), half(4), usize::from(half(6)));
        if size < ENTRY {
            return None;
        }
        let name = rest.get(ENTRY..ENTRY + name_len)?;
        if kind == BINARY && name.iter().copied().eq(NAME.encode_utf16().flat_map(u16::to_le_bytes)) {
            let data = rest.get(ENTRY + name_len..ENTRY + name_len + data_len)?;
            return day(u64::from_le_bytes(data.get(..8)?.try_into().ok()?));
        }
        rest = rest.get(size..)?;
    }
    None
}

/// The day of a FILETIME: steps of 100 ns since 1601.
fn day(filetime: u64) -> Option<Date> {
    let days = i64::try_from(filetime / 10_000_000 / 86_400).ok().filter(|days| *days > 0)?;
    let epoch = OffsetDateTime::UNIX_EPOCH.date().checked_sub(Duration::days(134_774))?;
    epoch.checked_add(Duration::days(days))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn entry(name: &str, kind: u16, data: &[u8]) -> Vec<u8> {
        let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let size = (ENTRY + name.len() + data.len()).next_multiple_of(4);
        let halves = [size as u16, name.len() as u16, kind, data.len() as u16];
        let mut bytes: Vec<u8> = halves.into_iter().flat_map(u16::to_le_bytes).collect();
        bytes.extend([0; 8]);
        bytes.extend(name);
        bytes.extend(data);
        bytes.resize(size, 0);
        bytes
    }

    fn policy(entries: &[Vec<u8>]) -> Vec<u8> {
        let entries = entries.concat();
        let words = [HEADER as u32 + entries.len() as u32 + 4, entries.len() as u32, 4, 0, 1];
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        bytes.extend(entries);
        bytes.extend(0x45_u32.to_le_bytes());
        bytes
    }

    #[test]
    fn the_day_is_found_among_others() {
        // 2026-09-15 12:00 UTC
        let filetime: u64 = (1_789_473_600 + 11_644_473_600) * 10_000_000;
        let other = entry("Kernel-MaxPhysicalPage", 4, &[1, 0, 0, 0]);
        let date =
            |data: &[u8]| expiration(&policy(&[other.clone(), entry(NAME, BINARY, data), other.clone()]));
        assert_eq!(date(&filetime.to_le_bytes()).unwrap().to_string(), "2026-09-15");
        assert_eq!(date(&0_u64.to_le_bytes()), None);
        assert_eq!(date(&[1]), None);
        assert_eq!(expiration(&policy(&[other])), None);
        assert_eq!(expiration(&[]), None);
    }

    proptest! {
        #[test]
        fn anything_ends(bytes in proptest::collection::vec(any::<u8>(), 0..200), entries in 0u32..300) {
            let mut bytes = bytes;
            if bytes.len() >= 8 {
                bytes[4..8].copy_from_slice(&entries.to_le_bytes());
            }
            expiration(&bytes);
        }
    }
}
