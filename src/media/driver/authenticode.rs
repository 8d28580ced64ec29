//! The Authenticode hash of a PE file: how catalogs know drivers.
//!
//! It covers all of the file but its checksum, and the signature inside and where that lies, so that signing a file
//! does not change it. Source: "Windows Authenticode Portable Executable Signature Format", and what `osslsigncode`
//! computes: the tests compare with it.
//!
//! The `authenticode` crate is not used: it wants the file in memory, leaves out the zeros that Windows hashes
//! behind a file whose size is no multiple of eight, and brings a second generation of the ASN.1 and hash crates.

use std::io;

use super::digest::{FileDigests, Hasher};
use crate::io::ReadAt;

/// Offsets in the PE headers, in bytes. Source: "PE Format" of the Windows documentation.
const NEW_HEADER: u64 = 0x3c;
const OPTIONAL_HEADER: u64 = 24;
const CHECKSUM: u64 = 64;
/// From the optional header to the directories: PE32, PE32+.
const DIRECTORIES: [(u16, u64); 2] = [(0x10b, 96), (0x20b, 112)];
/// Which directory says where the signature lies, and the length of one.
const SECURITY: u32 = 4;
const DIRECTORY: u64 = 8;

/// Where the parts lie that the hash leaves out.
#[derive(Debug, PartialEq, Eq)]
struct Layout {
    checksum: u64,
    /// The entry that tells where the signature lies.
    entry: Option<u64>,
    /// Where the signature begins, or the file ends.
    end: u64,
}

/// The Authenticode hashes of a PE file; `None`: it is no PE file, and catalogs know it by all its bytes.
///
/// # Errors
/// The file cannot be read, or its headers contradict each other (`InvalidData`).
pub fn authenticode(file: &dyn ReadAt) -> io::Result<Option<FileDigests>> {
    let Some(layout) = layout(file)? else { return Ok(None) };
    let mut hasher = Hasher::new();
    hasher.read(file, 0, layout.checksum)?;
    let after = layout.checksum + 4;
    match layout.entry {
        Some(entry) => {
            hasher.read(file, after, entry)?;
            hasher.read(file, entry + DIRECTORY, layout.end)?;
        }
        None => hasher.read(file, after, layout.end)?,
    }
    // A signature is appended at a multiple of eight bytes, so a file without one is hashed as if it went so far.
    hasher.update(&[0; 8][..(layout.end.next_multiple_of(8) - layout.end) as usize]);
    Ok(Some(hasher.finish()))
}

fn layout(file: &dyn ReadAt) -> io::Result<Option<Layout>> {
    let size = file.size();
    let Some(start) = read::<4>(file, NEW_HEADER)?.map(u32::from_le_bytes).map(u64::from) else {
        return Ok(None);
    };
    if read(file, 0)? != Some(*b"MZ") || read(file, start)? != Some(*b"PE\0\0") {
        return Ok(None);
    }
    let header = start + OPTIONAL_HEADER;
    let magic = read(file, header)?.map(u16::from_le_bytes);
    let Some((_, directories)) = DIRECTORIES.into_iter().find(|(of, _)| Some(*of) == magic) else {
        return Err(wrong("the optional header is neither that of PE32 nor of PE32+"));
    };
    let directories = header + directories;
    let Some(count) = read(file, directories - 4)?.map(u32::from_le_bytes) else {
        return Err(wrong("the file ends within the headers"));
    };
    let checksum = header + CHECKSUM;
    if count <= SECURITY {
        return Ok(Some(Layout { checksum, entry: None, end: size }));
    }
    let entry = directories + u64::from(SECURITY) * DIRECTORY;
    let (Some(at), Some(length)) = (
        read(file, entry)?.map(u32::from_le_bytes).map(u64::from),
        read(file, entry + 4)?.map(u32::from_le_bytes).map(u64::from),
    ) else {
        return Err(wrong("the file ends within the headers"));
    };
    // Where there is none, both are zero.
    let end = if at == 0 && length == 0 { size } else { at };
    // What lay behind the signature would be covered by nothing: Windows takes no such file.
    if end < entry + DIRECTORY || (end != size && end.checked_add(length) != Some(size)) {
        return Err(wrong("the signature is not at the end of the file"));
    }
    Ok(Some(Layout { checksum, entry: Some(entry), end }))
}

/// `N` bytes, unless the file ends before.
fn read<const N: usize>(file: &dyn ReadAt, at: u64) -> io::Result<Option<[u8; N]>> {
    let mut bytes = [0; N];
    if at.checked_add(N as u64).is_none_or(|end| end > file.size()) {
        return Ok(None);
    }
    file.read_exact_at(&mut bytes, at)?;
    Ok(Some(bytes))
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    /// Headers only, and bytes that count up behind them.
    fn pe(magic: u16, directories: u32, signature: (u32, u32), size: usize) -> Vec<u8> {
        let mut file: Vec<u8> = (0..size).map(|n| n as u8).collect();
        file[..2].copy_from_slice(b"MZ");
        file[0x3c..0x40].copy_from_slice(&64u32.to_le_bytes());
        file[64..68].copy_from_slice(b"PE\0\0");
        file[88..90].copy_from_slice(&magic.to_le_bytes());
        let table = 88 + if magic == 0x10b { 96 } else { 112 };
        file[table - 4..table].copy_from_slice(&directories.to_le_bytes());
        file[table + 32..table + 36].copy_from_slice(&signature.0.to_le_bytes());
        file[table + 36..table + 40].copy_from_slice(&signature.1.to_le_bytes());
        file
    }

    #[test]
    fn checksum_and_signature_do_not_count() {
        let plain = pe(0x20b, 16, (0, 0), 1000);
        let expected = authenticode(&plain).unwrap().unwrap();
        let mut signed = plain.clone();
        signed.extend([7; 24]);
        signed[88 + 112 + 32..88 + 112 + 40].copy_from_slice(&[0xe8, 3, 0, 0, 24, 0, 0, 0]);
        signed[88 + 64..88 + 68].copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(authenticode(&signed).unwrap(), Some(expected));
        let mut altered = plain.clone();
        altered[999] ^= 1;
        assert_ne!(authenticode(&altered).unwrap(), Some(expected));
        // Padded as if it were to be signed.
        let padded = pe(0x20b, 16, (0, 0), 997);
        let longer = [padded.as_slice(), &[0; 3]].concat();
        assert_eq!(authenticode(&padded).unwrap(), authenticode(&longer).unwrap());
    }

    #[test]
    fn every_kind_of_header() {
        assert!(authenticode(&pe(0x10b, 16, (0, 0), 600)).unwrap().is_some());
        assert!(authenticode(&pe(0x10b, 4, (5, 5), 600)).unwrap().is_some());
        assert!(authenticode(&pe(0x30b, 16, (0, 0), 600)).is_err());
        assert!(authenticode(&pe(0x20b, 16, (500, 50), 600)).is_err());
        assert!(authenticode(&pe(0x20b, 16, (100, 500), 600)).is_err());
        assert!(authenticode(&pe(0x20b, 16, (u32::MAX, u32::MAX), 600)).is_err());
        assert_eq!(authenticode(&b"[Version]".to_vec()).unwrap(), None);
        assert_eq!(authenticode(&vec![0; 600]).unwrap(), None);
        assert!(authenticode(&pe(0x20b, 16, (0, 0), 600)[..150].to_vec()).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_headers(at in 64usize..300, bytes in proptest::collection::vec(any::<u8>(), 1..40)) {
            let mut file = pe(0x20b, 16, (0, 0), 600);
            file[at..at + bytes.len()].copy_from_slice(&bytes);
            let _ = authenticode(&file);
        }
    }
}
