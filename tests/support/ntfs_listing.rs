//! What is on an NTFS volume, as ntfs-3g reads it, and whether that stays so.
// A test file uses the part of this that it needs.
#![allow(dead_code)]
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::ntfs_volume::{Mounted, noise, path_str, run};

/// Size, hash and number of names of every file, and every folder.
pub type Listing = BTreeMap<PathBuf, (u64, u64, u64)>;

fn list(folder: &Path, below: &Path, into: &mut Listing) {
    let mut children = Vec::new();
    for entry in fs::read_dir(folder.join(below)).unwrap() {
        let entry = entry.unwrap();
        let path = below.join(entry.file_name());
        let metadata = entry.metadata().unwrap();
        if metadata.is_dir() {
            into.insert(path.clone(), (0, 0, 0));
            children.push(path);
            continue;
        }
        // By name, too: a listing does not look names up.
        // ntfs-3g does not read what Windows has compressed.
        let content =
            if path.ends_with("wof.xml") { Vec::new() } else { fs::read(folder.join(&path)).unwrap() };
        let mut hash = DefaultHasher::new();
        content.hash(&mut hash);
        assert!(into.insert(path, (metadata.size(), hash.finish(), metadata.nlink())).is_none());
    }
    children.iter().for_each(|child| list(folder, child, into));
}

pub fn listing(image: &Path) -> Listing {
    let mounted = Mounted::new(image, "");
    let mut listing = Listing::new();
    list(&mounted.point, Path::new(""), &mut listing);
    mounted.unmount();
    listing
}

/// Whether the clusters add up, by ntfsresize.
pub fn clusters_agree(image: &Path) {
    run("ntfsresize", &["-i", "-f", path_str(image)]);
}

/// Whether a text is there, as it is or in UTF-16.
pub fn holds(bytes: &[u8], text: &str) -> bool {
    let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    [text.as_bytes(), &utf16].iter().any(|wanted| {
        // Most of a disk is zeros, which are told quickly.
        (0..bytes.len()).step_by(4096).any(|start| {
            let block = &bytes[start..bytes.len().min(start + 4095 + wanted.len())];
            block.iter().any(|byte| *byte != 0) && block.windows(wanted.len()).any(|found| found == *wanted)
        })
    })
}

/// Creates and deletes many files where files were scrubbed, and sees that all others stay.
pub fn use_heavily(image: &Path, folder: &str, expected: &Listing, count: usize) {
    let mounted = Mounted::new(image, "");
    for number in 0..count {
        let content = noise(number as u32, if number % 5 == 0 { 5000 } else { 90 });
        mounted.write(&format!("./{folder}/{number:05} new name {}", "n".repeat(number % 60)), &content);
    }
    mounted.unmount();
    clusters_agree(image);
    assert_eq!(listing(image).len(), expected.len() + count);
    let mounted = Mounted::new(image, "");
    for number in (0..count).rev() {
        let name = format!("./{folder}/{number:05} new name {}", "n".repeat(number % 60));
        fs::remove_file(mounted.point.join(name)).unwrap();
    }
    mounted.unmount();
    clusters_agree(image);
    assert!(listing(image) == *expected, "other files changed with use");
}
