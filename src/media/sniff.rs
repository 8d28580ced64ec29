//! What a file is, by its first bytes: a wrong download is best named as what it is.

use std::fmt;
use std::io;

use crate::io::ReadAt;
use crate::iso::{LEAST, Volume, volume};

/// What a file was found to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A disc image, as media are.
    Image(Volume),
    /// A web page, saved under the image's name.
    Html,
    /// A compressed file or archive, by name.
    Archive(&'static str),
    /// A BitTorrent file: it names an image, and holds none.
    Torrent,
    /// Text: an error message, a list of checksums.
    Text,
    /// A virtual disk, by name: media are images of discs.
    VirtualDisk(&'static str),
    /// Nothing but zeros where an image would begin: space set aside for a download, say.
    Zeros,
    /// Too few bytes for any image.
    TooShort(u64),
    /// None of these, and no image either.
    Unknown,
}

/// A magic number, where it stands, and what it means.
const MAGIC: [(&[u8], usize, Content); 10] = [
    (b"PK\x03\x04", 0, Content::Archive("zip")),
    (b"\x1f\x8b", 0, Content::Archive("gzip")),
    (b"\xfd7zXZ\0", 0, Content::Archive("xz")),
    (b"BZh", 0, Content::Archive("bzip2")),
    (b"\x28\xb5\x2f\xfd", 0, Content::Archive("zstd")),
    (b"7z\xbc\xaf\x27\x1c", 0, Content::Archive("7z")),
    (b"MSWIM\0\0\0", 0, Content::Archive("WIM")),
    (b"Rar!\x1a\x07", 0, Content::Archive("rar")),
    (b"QFI\xfb", 0, Content::VirtualDisk("qcow2")),
    (b"vhdxfile", 0, Content::VirtualDisk("VHDX")),
];

/// Looks at the beginning of `file`: a few small reads, whatever its size.
pub fn sniff(file: &dyn ReadAt) -> io::Result<Content> {
    let size = file.size();
    if let Some(volume) = volume(file)? {
        return Ok(Content::Image(volume));
    }
    let mut head = vec![0; usize::try_from(size.min(LEAST)).unwrap_or(0)];
    file.read_exact_at(&mut head, 0)?;
    Ok(by_magic(&head).unwrap_or_else(|| {
        if size > 0 && is_text(&head) {
            Content::Text
        } else if size < LEAST {
            Content::TooShort(size)
        } else if head.iter().all(|byte| *byte == 0) {
            Content::Zeros
        } else {
            Content::Unknown
        }
    }))
}

fn by_magic(head: &[u8]) -> Option<Content> {
    for (magic, at, content) in MAGIC {
        if head.get(at..).is_some_and(|rest| rest.starts_with(magic)) {
            return Some(content);
        }
    }
    // `d8:announce`: a dictionary whose first key is the tracker.
    if head.starts_with(b"d8:announce") || head.starts_with(b"d13:announce") {
        return Some(Content::Torrent);
    }
    let start: Vec<u8> = head.iter().take(1024).map(u8::to_ascii_lowercase).collect();
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&start).trim_ascii_start();
    let tags: [&[u8]; 5] = [b"<!doctype html", b"<html", b"<head", b"<body", b"<script"];
    // Comments may come before the first tag.
    let html = tags.iter().any(|tag| start.starts_with(tag))
        || (start.starts_with(b"<")
            && tags.iter().any(|tag| start.windows(tag.len()).any(|part| part == *tag)));
    html.then_some(Content::Html)
}

/// UTF-8 without control characters other than white space; a character cut at the end is no objection.
fn is_text(head: &[u8]) -> bool {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(e) if e.error_len().is_none() => std::str::from_utf8(&head[..e.valid_up_to()]).unwrap_or("\0"),
        Err(_) => return false,
    };
    !text.chars().any(|c| c.is_control() && !c.is_ascii_whitespace())
}

/// Completes "this is ...".
impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(volume) => write!(f, "a disc image ({})", volume.kind.name()),
            Self::Html => f.write_str("a web page (HTML), not a disc image"),
            Self::Archive(kind) => write!(f, "a {kind} file, not a disc image"),
            Self::Torrent => f.write_str("a torrent file, not a disc image"),
            Self::Text => f.write_str("text, not a disc image"),
            Self::VirtualDisk(kind) => write!(f, "a {kind} virtual disk, not a disc image"),
            Self::Zeros => f.write_str("nothing but zeros where a disc image begins"),
            Self::TooShort(0) => f.write_str("empty"),
            Self::TooShort(size) => write!(f, "only {size} bytes, too short for a disc image"),
            Self::Unknown => {
                f.write_str("no disc image: neither ISO 9660 nor UDF descriptors are where they belong")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn kind(bytes: &[u8]) -> Content {
        sniff(&bytes.to_vec()).unwrap()
    }

    #[test]
    fn what_is_downloaded_by_mistake_is_named() {
        assert_eq!(kind(b""), Content::TooShort(0));
        assert_eq!(kind(b"\r\n<!DOCTYPE html><html>"), Content::Html);
        assert_eq!(kind(b"<!-- moved -->\n<HTML><body>"), Content::Html);
        assert_eq!(kind(b"PK\x03\x04rest"), Content::Archive("zip"));
        assert_eq!(kind(b"\x1f\x8b\x08"), Content::Archive("gzip"));
        assert_eq!(kind(b"d8:announce35:udp://tracker.example"), Content::Torrent);
        assert_eq!(kind(b"404: not found\n"), Content::Text);
        assert_eq!(kind("Zugriff verweigert: Schl\u{fc}ssel".as_bytes()), Content::Text);
        assert_eq!(kind(&[0; 50_000]), Content::Zeros);
        assert_eq!(kind(&[0; 500]), Content::TooShort(500));
        assert_eq!(kind(&[0xa5; 50_000]), Content::Unknown);
        assert_eq!(kind(&[b"QFI\xfb".as_slice(), &[1; 50_000]].concat()), Content::VirtualDisk("qcow2"));
    }

    proptest! {
        #[test]
        fn arbitrary_files(bytes in proptest::collection::vec(any::<u8>(), 0..40_000)) {
            sniff(&bytes).unwrap();
        }
    }
}
