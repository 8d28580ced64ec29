//! Where a journal is kept: beside its disk.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::io::new_path::appear;

/// What the name of a disk's journal ends with.
const SUFFIX: &str = ".sealroot-undo";
/// And that of one that is not yet written whole.
const UNFINISHED: &str = ".sealroot-undo.new";
/// More than any patch of a root comes to; what is longer is no journal.
const MAX_LENGTH: u64 = 1 << 30;

/// The two names a journal has in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// While it is written: the disk has not been touched.
    Unfinished,
    /// From then on.
    Journal,
}

/// The steps in which a journal is kept; each is done when it returns, and lasts when synced.
pub trait Store {
    /// The first `limit` bytes of the journal, if there is one.
    fn read(&self, limit: u64) -> io::Result<Option<Vec<u8>>>;
    /// Makes an empty unfinished journal; another one there is an error.
    fn create(&self) -> io::Result<()>;
    /// Writes `bytes` at `offset`.
    fn write_at(&self, name: Name, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Syncs content and length.
    fn sync(&self, name: Name) -> io::Result<()>;
    /// Gives the unfinished journal its name.
    fn publish(&self) -> io::Result<()>;
    /// Takes it away; `false`: there was none.
    fn remove(&self, name: Name) -> io::Result<bool>;
    /// Syncs the names.
    fn sync_folder(&self) -> io::Result<()>;
}

/// A journal in the folder of its disk.
#[derive(Debug)]
pub struct Beside {
    folder: PathBuf,
    journal: PathBuf,
    unfinished: PathBuf,
    /// Who owns the disk.
    owner: u32,
}

impl Beside {
    /// The journal of the disk at `path`; that of the file itself where `path` is a link to it.
    pub fn disk(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let owner = path.metadata()?.uid();
        let with = |suffix: &str| {
            let mut name = OsString::from(&path);
            name.push(suffix);
            PathBuf::from(name)
        };
        let folder = path.parent().unwrap_or(Path::new("/")).into();
        Ok(Self { folder, journal: with(SUFFIX), unfinished: with(UNFINISHED), owner })
    }

    /// The journal's path.
    pub fn path(&self) -> &Path {
        &self.journal
    }

    fn at(&self, name: Name) -> &Path {
        match name {
            Name::Unfinished => &self.unfinished,
            Name::Journal => &self.journal,
        }
    }

    fn open(&self, name: Name, how: &mut OpenOptions) -> io::Result<File> {
        how.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32).open(self.at(name))
    }
}

impl Store for Beside {
    fn read(&self, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let file = match self.open(Name::Journal, OpenOptions::new().read(true)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let metadata = file.metadata()?;
        // In a folder that others can write to, theirs must not be taken for ours: it is written to the disk.
        let ours = [rustix::process::geteuid().as_raw(), self.owner, 0].contains(&metadata.uid());
        if !metadata.is_file() || !ours || metadata.mode() & 0o022 != 0 {
            let why = "it is not a file that only the disk's owner, or this user, can write";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        if metadata.len() > MAX_LENGTH {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is longer than any journal"));
        }
        let mut content = Vec::new();
        file.take(limit).read_to_end(&mut content)?;
        Ok(Some(content))
    }

    fn create(&self) -> io::Result<()> {
        self.open(Name::Unfinished, OpenOptions::new().write(true).create_new(true).mode(0o600)).map(drop)
    }

    fn write_at(&self, name: Name, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.open(name, OpenOptions::new().write(true))?.write_all_at(bytes, offset)
    }

    fn sync(&self, name: Name) -> io::Result<()> {
        self.open(name, OpenOptions::new().write(true))?.sync_all()
    }

    fn publish(&self) -> io::Result<()> {
        appear(&self.unfinished, &self.journal)
    }

    fn remove(&self, name: Name) -> io::Result<bool> {
        match std::fs::remove_file(self.at(name)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
}
