//! The tar around the qcow2 file, as bytes that can be read at any offset.
//!
//! The two entries are what KubeVirt and CDI look for: the folder `disk`, and in it one file. It belongs to uid
//! and gid 107, as which KubeVirt reads it. Nothing depends on the clock or on who runs this.

use std::io;

use ::tar::{EntryType, Header};

use crate::io::ReadAt;

/// The folder's name in the tar.
pub const FOLDER: &str = "disk/";
/// The file's name in the tar.
pub const FILE: &str = "disk/disk.qcow2";
/// The user and group that KubeVirt reads disks as.
pub const OWNER: u64 = 107;

const BLOCK: u64 = 512;

/// A tar that holds `disk/` and `disk/disk.qcow2`.
pub struct Tar<'d> {
    head: Vec<u8>,
    file: &'d dyn ReadAt,
    size: u64,
}

impl<'d> Tar<'d> {
    /// The tar of this file.
    pub fn new(file: &'d dyn ReadAt) -> Self {
        let head = [
            header(FOLDER, EntryType::Directory, 0o755, 0),
            header(FILE, EntryType::Regular, 0o440, file.size()),
        ]
        .concat();
        // Two blocks of zeros end a tar.
        let size = head.len() as u64 + file.size().next_multiple_of(BLOCK) + 2 * BLOCK;
        Self { head, file, size }
    }
}

/// One header block. A size of 8 GiB or more is in GNU's base-256 form, which every reader in use knows.
fn header(name: &str, kind: EntryType, mode: u32, size: u64) -> [u8; BLOCK as usize] {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(OWNER);
    header.set_gid(OWNER);
    header.set_mtime(0);
    header.set_size(size);
    header.set_cksum();
    *header.as_bytes()
}

impl ReadAt for Tar<'_> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let file_start = self.head.len() as u64;
        let file_end = file_start + self.file.size();
        let (head, buf) = buf.split_at_mut(file_start.saturating_sub(offset).min(buf.len() as u64) as usize);
        if !head.is_empty() {
            self.head.read_exact_at(head, offset)?;
        }
        let offset = offset + head.len() as u64;
        let (file, tail) = buf.split_at_mut(file_end.saturating_sub(offset).min(buf.len() as u64) as usize);
        if !file.is_empty() {
            self.file.read_exact_at(file, offset - file_start)?;
        }
        tail.fill(0);
        Ok(())
    }

    fn check_unchanged(&self) -> io::Result<()> {
        self.file.check_unchanged()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    proptest! {
        #[test]
        fn any_part_equals_the_whole(len in 0usize..2000, from in 0usize..6000, want in 0usize..4000) {
            let file: Vec<u8> = (0..len).map(|i| i as u8 | 1).collect();
            let tar = Tar::new(&file);
            let mut whole = vec![0xEE; tar.size() as usize];
            tar.read_exact_at(&mut whole, 0).unwrap();
            prop_assert_eq!(&whole[1024..1024 + len], &file[..]);
            prop_assert!(whole[1024 + len..].iter().all(|b| *b == 0));
            let from = from.min(whole.len());
            let mut buf = vec![0xDD; want.min(whole.len() - from)];
            tar.read_exact_at(&mut buf, from as u64).unwrap();
            prop_assert_eq!(&buf[..], &whole[from..from + buf.len()]);
        }
    }

    /// Python's tarfile, an independent reader, on a header alone: the data it speaks of need not exist.
    #[test]
    fn other_readers_see_the_same_entry_at_any_size() {
        for size in [0, 65_536, (8 << 30) - 1, 8 << 30, (8 << 30) + 65_536, 9 << 40] {
            let bytes = header(FILE, EntryType::Regular, 0o440, size);
            let script = "import sys,tarfile\n\
                          t=tarfile.TarInfo.frombuf(bytes.fromhex(sys.argv[1]),'utf-8','strict')\n\
                          print(t.name,t.size,t.uid,t.gid,oct(t.mode),t.mtime,t.isreg(),t.uname+t.gname)";
            let out = Command::new("python3").args(["-c", script, &hex::encode(bytes)]).output().unwrap();
            assert_eq!(
                String::from_utf8(out.stdout).unwrap().trim_end(),
                format!("disk/disk.qcow2 {size} 107 107 0o440 0 True"),
                "{}",
                String::from_utf8_lossy(&out.stderr)
            );
        }
    }
}
