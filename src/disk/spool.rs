//! Packed disks (`disk.img.gz`, as a cluster exports them), unpacked once into a sparse file.
//!
//! The file's name carries a hash of the packed file's path, size, time of modification and inode: a packed file that
//! has changed is unpacked anew. What is unpacked can't be written to, and has the packed file's time (in whole
//! seconds): by that, one that was written to all the same is known, and refused.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;
use rustix::fs::{Timespec, Timestamps, futimens};
use sha2::{Digest, Sha256};
use thiserror::Error;
use zstd::stream::read::Decoder as ZstdDecoder;

use super::{DiskError, foreign};
use crate::io::{Cursor, Interrupted, NewFile, NewPathError, Privacy, Progress, ReadAt, SourceFile, Task};

/// How a gzip member begins (RFC 1952), with deflate, the one method there is.
pub(super) const GZIP: &[u8] = b"\x1f\x8b\x08";
/// How a zstd frame begins (RFC 8878).
pub(super) const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// How the skippable frame begins that pzstd puts before each of its frames.
pub(super) const SKIPPABLE: &[u8] = b"\x50\x2a\x4d\x18";

/// Packed bytes read at once.
const READ_AT_ONCE: usize = 256 << 10;
/// Unpacked bytes held at once: a whole number of blocks.
const HELD: usize = 1 << 20;
/// A block of zeros of this size becomes a hole, in bytes. Smaller holes would cost more in extents than they save.
const BLOCK: usize = 64 << 10;
static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// Why a packed disk is not unpacked.
#[derive(Debug, Error)]
pub enum SpoolError {
    /// The packed file, or what is in it, is not taken as a disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The packed bytes end too soon.
    #[error("the {format} data ends in the middle, at offset {offset}; was its download or copy cut short?")]
    CutShort {
        /// gzip or zstd.
        format: &'static str,
        /// Where in the packed file, in bytes.
        offset: u64,
    },
    /// The packed bytes make no sense, or take more memory than zstd uses unless told to.
    #[error(
        "the {format} data can't be unpacked, at offset {offset} or shortly before; is it damaged? Fetch or copy it \
         again"
    )]
    Damaged {
        /// gzip or zstd.
        format: &'static str,
        /// How far in the packed file was read, in bytes.
        offset: u64,
        /// What the decoder says.
        source: io::Error,
    },
    /// The packed bytes are followed by others.
    #[error("what follows the {format} data at offset {offset} is no {format} data; was something appended?")]
    Trailing {
        /// gzip or zstd.
        format: &'static str,
        /// Where in the packed file, in bytes.
        offset: u64,
    },
    /// It does not end where the largest disk does.
    #[error("it unpacks to more than {limit} bytes, the most a disk may have")]
    TooLarge {
        /// In bytes.
        limit: u64,
    },
    /// Two states of the packed file would be mixed.
    #[error("it was changed while it was unpacked; let whoever writes it end first")]
    Changed(#[source] io::Error),
    /// The unpacked file can't be written.
    #[error(transparent)]
    Write(#[from] NewPathError),
    /// There is a file of that name that is not as it was left.
    #[error("{} {why}, so it is not used; remove it, and it is unpacked anew", path.display())]
    Stranger {
        /// The unpacked file.
        path: PathBuf,
        /// What tells.
        why: &'static str,
    },
    /// The user asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// A packed disk's unpacked file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spooled {
    /// Where it is.
    pub path: PathBuf,
    /// An earlier run had unpacked it.
    pub found: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Gzip,
    Zstd,
}

impl Packing {
    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// What begins at `offset` of `file`.
    fn at(file: &SourceFile, offset: u64) -> Result<Option<Self>, DiskError> {
        let mut start = [0; 4];
        let there = file.size().saturating_sub(offset).min(4) as usize;
        file.read_exact_at(&mut start[..there], offset)
            .map_err(|source| DiskError::Read { offset, source })?;
        Ok(if start.starts_with(GZIP) {
            Some(Self::Gzip)
        } else if start.starts_with(ZSTD) || start[1..] == SKIPPABLE[1..] && start[0] >> 4 == 5 {
            Some(Self::Zstd)
        } else {
            None
        })
    }
}

/// Whether a file begins as a packed one does.
pub(super) fn is_packed(file: &SourceFile) -> Result<bool, DiskError> {
    Ok(Packing::at(file, 0)?.is_some())
}

/// Unpacks the disk at `path` into `folder`, unless it is there already; `None`: it is not packed.
///
/// The unpacked disk may have `limit` bytes. It appears when it is whole, and only if it can be opened as a disk.
pub fn unpack(
    path: &Path,
    folder: &Path,
    limit: u64,
    progress: &dyn Progress,
) -> Result<Option<Spooled>, SpoolError> {
    let source = SourceFile::open(path).map_err(DiskError::Open)?;
    // What is appended to a block device can't be told from what was there.
    if !source.metadata().is_file() {
        return Ok(None);
    }
    let Some(packing) = Packing::at(&source, 0)? else { return Ok(None) };
    let unpacked = folder.join(name(path, source.metadata()).map_err(DiskError::Open)?);
    if is_there(&unpacked, source.metadata())? {
        return Ok(Some(Spooled { path: unpacked, found: true }));
    }
    let new = NewFile::create(&unpacked, Privacy::Secret)?;
    let task = progress.task("unpacking", source.size());
    let mut out =
        Sparse { file: new.as_file(), path: &unpacked, limit, at: 0, held: Vec::with_capacity(HELD) };
    unpack_all(&source, packing, &mut out, &*task)?;
    out.finish(&*task)?;
    source.check_unchanged().map_err(SpoolError::Changed)?;
    mark(new.as_file(), source.metadata()).map_err(|source| write_error(&unpacked, source))?;
    match new.finish() {
        // Another run was faster.
        Err(NewPathError::Exists { .. }) if is_there(&unpacked, source.metadata())? => {}
        other => other?,
    }
    if let Err(error) = super::open(&unpacked) {
        std::fs::remove_file(&unpacked).map_err(|source| write_error(&unpacked, source))?;
        return Err(error.into());
    }
    Ok(Some(Spooled { path: unpacked, found: false }))
}

/// What the unpacked file is called: harmless, whatever the packed one is called.
fn name(path: &Path, metadata: &Metadata) -> io::Result<String> {
    let path = path.canonicalize()?;
    let file_name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let harmless = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let shown: String = file_name.trim_start_matches('.').chars().map(harmless).take(64).collect();
    let mut hash = Sha256::new();
    for number in [metadata.size(), metadata.ino()] {
        hash.update(number.to_le_bytes());
    }
    for number in [metadata.mtime(), metadata.mtime_nsec()] {
        hash.update(number.to_le_bytes());
    }
    hash.update(path.as_os_str().as_bytes());
    Ok(format!("{shown}-{}.disk", hex::encode(&hash.finalize()[..16])))
}

/// Gives the unpacked file what it is known by.
fn mark(file: &File, packed: &Metadata) -> io::Result<()> {
    // Nobody may read more than before.
    let mode = if packed.mode() & 0o004 == 0 { 0o400 } else { 0o444 };
    file.set_permissions(Permissions::from_mode(mode))?;
    // Not every file system keeps more than whole seconds.
    let time = Timespec { tv_sec: packed.mtime(), tv_nsec: 0 };
    Ok(futimens(file, &Timestamps { last_access: time, last_modification: time })?)
}

/// Whether the unpacked file is there, as [`mark`] left it.
fn is_there(unpacked: &Path, packed: &Metadata) -> Result<bool, SpoolError> {
    let metadata = match unpacked.symlink_metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(write_error(unpacked, error).into()),
    };
    let ours = [rustix::process::geteuid().as_raw(), packed.uid(), 0].contains(&metadata.uid());
    let why = if !metadata.is_file() {
        "is no regular file"
    } else if !ours {
        "belongs to somebody else"
    } else if metadata.mode() & 0o222 != 0 || (metadata.mtime(), metadata.mtime_nsec()) != (packed.mtime(), 0)
    {
        "was changed since it was unpacked"
    } else {
        return Ok(true);
    };
    Err(SpoolError::Stranger { path: unpacked.into(), why })
}

fn write_error(path: &Path, source: io::Error) -> NewPathError {
    NewPathError::Io { path: path.into(), source }
}

/// The packed file as a stream that says how far it was read.
struct Packed<'s> {
    cursor: Cursor<&'s SourceFile>,
    read: u64,
    task: &'s dyn Task,
}

impl Read for Packed<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.cursor.read(buf)?;
        self.read += read as u64;
        // Whoever writes what is unpacked asks again.
        let _ = self.task.advance(read as u64);
        Ok(read)
    }
}

/// Members or frames one after another, to the file's end.
fn unpack_all(
    source: &SourceFile,
    packing: Packing,
    out: &mut Sparse<'_>,
    task: &dyn Task,
) -> Result<(), SpoolError> {
    let format = packing.name();
    let packed = Packed { cursor: Cursor::new(source), read: 0, task };
    let mut input = BufReader::with_capacity(READ_AT_ONCE, packed);
    let mut offset = 0;
    while offset < source.size() {
        task.advance(0)?;
        if Packing::at(source, offset)? != Some(packing) {
            return Err(SpoolError::Trailing { format, offset });
        }
        let taken = match packing {
            Packing::Gzip => out.take_all(&mut GzDecoder::new(&mut input), task),
            Packing::Zstd => ZstdDecoder::with_buffer(&mut input)
                .map_err(Taken::Decoder)
                .and_then(|decoder| out.take_all(&mut decoder.single_frame(), task)),
        };
        offset = input.get_ref().read - input.buffer().len() as u64;
        match taken {
            Ok(()) => {}
            Err(Taken::Failed(error)) => return Err(error),
            Err(Taken::Decoder(error)) => {
                source.check_unchanged().map_err(SpoolError::Changed)?;
                return Err(match error.kind() {
                    // What the operating system says is not about the data.
                    _ if error.raw_os_error().is_some() => DiskError::Read { offset, source: error }.into(),
                    io::ErrorKind::UnexpectedEof => SpoolError::CutShort { format, offset },
                    _ => SpoolError::Damaged { format, offset, source: error },
                });
            }
        }
    }
    Ok(())
}

/// Why not all was taken.
enum Taken {
    Decoder(io::Error),
    Failed(SpoolError),
}

/// The unpacked file in the making: what is zeros is not written.
struct Sparse<'f> {
    file: &'f File,
    path: &'f Path,
    limit: u64,
    /// Where in the file the held bytes belong: a whole number of blocks.
    at: u64,
    held: Vec<u8>,
}

impl Sparse<'_> {
    /// Takes all that the decoder gives.
    fn take_all(&mut self, decoder: &mut dyn Read, task: &dyn Task) -> Result<(), Taken> {
        loop {
            let room = (HELD - self.held.len()) as u64;
            let taken =
                Read::take(&mut *decoder, room).read_to_end(&mut self.held).map_err(Taken::Decoder)?;
            if (taken as u64) < room {
                return Ok(());
            }
            self.write(task).map_err(Taken::Failed)?;
        }
    }

    fn write(&mut self, task: &dyn Task) -> Result<(), SpoolError> {
        // A few packed bytes can make many.
        task.advance(0)?;
        if self.at == 0 {
            foreign::refuse_start(&self.held[..self.held.len().min(foreign::START)])?;
        }
        if self.at + self.held.len() as u64 > self.limit {
            return Err(SpoolError::TooLarge { limit: self.limit });
        }
        let (mut start, held) = (0, &self.held);
        let is_zeros = |from: usize| {
            let block = &held[from..held.len().min(from + BLOCK)];
            block == &ZEROS[..block.len()]
        };
        while start < held.len() {
            if is_zeros(start) {
                start += BLOCK;
                continue;
            }
            let mut end = start + BLOCK;
            while end < held.len() && !is_zeros(end) {
                end += BLOCK;
            }
            self.file
                .write_all_at(&held[start..end.min(held.len())], self.at + start as u64)
                .map_err(|source| write_error(self.path, source))?;
            start = end;
        }
        self.at += self.held.len() as u64;
        self.held.clear();
        Ok(())
    }

    /// Writes what is left, and the length.
    fn finish(mut self, task: &dyn Task) -> Result<(), SpoolError> {
        self.write(task)?;
        self.file.set_len(self.at).map_err(|source| write_error(self.path, source))?;
        Ok(())
    }
}
