//! Small disc images with some of their bytes changed: a fuzzer's input is the changes, 16 bytes each.

use sealroot::io::{Draft, ReadAt};
use sealroot::iso::{Disc, Kind, Node};

/// A pure UDF image: scattered files, allocation descriptors that go on elsewhere.
pub static UDF: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/discs/udf"));
/// Rock Ridge with moved directories, Joliet, and the enhanced descriptor.
pub static ISO9660: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/discs/iso9660"));

const SECTOR: usize = 2048;
/// Length of one change in the input, in bytes.
const EDIT: usize = 16;
/// More are not looked at.
const MOST_EDITS: usize = 48;

/// `image` with the changes that `input` asks for; `mend` makes a changed sector's checksums right again.
pub fn edited(image: &'static [u8], input: &[u8], mend: fn(&mut [u8])) -> Draft<&'static [u8]> {
    let used: Vec<usize> = (0..image.len() / SECTOR)
        .filter(|sector| image[sector * SECTOR..][..SECTOR].iter().any(|byte| *byte != 0))
        .collect();
    let mut disc = Draft::new(image);
    for edit in input.chunks_exact(EDIT).take(MOST_EDITS) {
        let half = |at: usize| usize::from(u16::from_le_bytes([edit[at], edit[at + 1]]));
        let sector = used[half(0) % used.len()] * SECTOR;
        let (at, length) = (half(2) % SECTOR, usize::from(edit[4]) % 10 + 1);
        let mut bytes = vec![0; SECTOR];
        disc.read_exact_at(&mut bytes, sector as u64).expect("it lies on the disc");
        let end = (at + length).min(SECTOR);
        bytes[at..end].copy_from_slice(&edit[6..6 + end - at]);
        if edit[5] & 1 == 0 {
            mend(&mut bytes);
        }
        disc.write(sector as u64, &bytes).expect("it lies on the disc");
    }
    disc
}

/// Makes the tag of a UDF structure right, or those of all entries of a directory.
pub fn mend_tags(sector: &mut [u8]) {
    let mut at = 0;
    while at + 38 <= sector.len() {
        let half = |at: usize| usize::from(u16::from_le_bytes([sector[at], sector[at + 1]]));
        let (identifier, length) = (half(at), half(at + 10));
        let Some(covered) = sector.get(at + 16..at + 16 + length) else { return };
        let crc = covered.iter().fold(0u16, |crc, byte| {
            (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
            })
        });
        let next = (38 + half(at + 36) + usize::from(sector[at + 19])).next_multiple_of(4);
        sector[at + 8..at + 10].copy_from_slice(&crc.to_le_bytes());
        sector[at + 4] = 0;
        sector[at + 4] = sector[at..at + 16].iter().fold(0, |sum, byte| sum.wrapping_add(*byte));
        if identifier != 257 {
            return;
        }
        at += next;
    }
}

/// Reads everything there is to read, within bounds: an image may hold a directory that holds itself.
pub fn look_around(source: &dyn ReadAt) {
    let Ok(disc) = Disc::open(source) else { return };
    let _ = disc.find_file("SOURCES/install.wim");
    let mut left = 500;
    walk(&disc, &disc.root(), 10, &mut left);
}

fn walk(disc: &Disc<'_>, at: &Node, depth: u32, left: &mut u32) {
    for entry in disc.list(at).unwrap_or_default() {
        if *left == 0 || depth == 0 {
            return;
        }
        *left -= 1;
        assert!(!entry.name.is_empty());
        if entry.kind == Kind::Directory {
            walk(disc, &entry.node, depth - 1, left);
        } else if let Ok(file) = disc.file(&entry.node) {
            let size = file.size();
            let mut bytes = [0; 64];
            let length = size.min(64) as usize;
            let _ = file.read_exact_at(&mut bytes[..length], 0);
            let _ = file.read_exact_at(&mut bytes[..length], size - length as u64);
        }
    }
}
