//! A build folder: one recipe's, one build at a time, and what is left of a build that was killed.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::io::{NewPathError, UNFINISHED, is_leftover, replace_file};

/// The file that makes a folder a build folder.
pub const STATE: &str = "state.json";

/// Why a folder can't be built in.
#[derive(Debug, Error)]
pub enum FolderError {
    /// Another build holds it.
    #[error("another build is running in {}", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// It holds something, but no build.
    #[error("{} is not a build folder (it holds {example:?} and no {STATE}); name another with --output", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// A name found in it.
        example: String,
    },
    /// It holds another recipe's build.
    #[error("{} holds the build of recipe {found}, not of {wanted}; name another with --output", path.display())]
    OtherRecipe {
        /// The folder.
        path: PathBuf,
        /// Whose build it holds.
        found: String,
        /// Whose build was to go there.
        wanted: String,
    },
    /// A file of the folder can't be understood.
    #[error("{} can't be understood: {why}; if a build wrote it, take the folder away and build again", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A file can't be read or written.
    #[error("{}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A new file can't appear.
    #[error(transparent)]
    New(#[from] NewPathError),
}

impl FolderError {
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Io { path: path.into(), source }
    }
}

/// A build folder that no other build can use while this value lives.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The lock goes with the open folder.
    _lock: File,
}

impl Folder {
    /// Opens or makes the folder, takes its lock, and clears away what a killed build left half-made.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(FolderError::io(path))?;
        let lock = File::open(path).map_err(FolderError::io(path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(FolderError::Busy { path: path.into() }),
            Err(e) => return Err(FolderError::io(path)(e.into())),
        }
        let folder = Self { path: path.into(), _lock: lock };
        refuse_foreign(path)?;
        folder.clear_leftovers()?;
        Ok(folder)
    }

    fn clear_leftovers(&self) -> Result<(), FolderError> {
        for name in names(&self.path)?.into_iter().filter(|name| is_leftover(name)) {
            let path = self.path.join(name);
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(FolderError::io(&path))?;
        }
        // A folder is replaced in two renames; killed between them, the old one is still whole.
        let names = names(&self.path)?;
        for retired in names.iter().filter_map(|name| name.strip_suffix(RETIRED)) {
            let (old, current) = (self.path.join(format!("{retired}{RETIRED}")), self.path.join(retired));
            let settled =
                if current.exists() { fs::remove_dir_all(&old) } else { fs::rename(&old, &current) };
            settled.map_err(FolderError::io(&old))?;
        }
        Ok(())
    }

    /// The path of something in the folder.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Where the successor of what is at `name` is made.
    pub fn successor(&self, name: &'static str) -> Successor<'_> {
        Successor { folder: self, name, path: self.join(&format!("{UNFINISHED}{name}")) }
    }

    /// Writes a JSON file of the folder, whole, in place of an earlier one.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), FolderError> {
        let path = self.join(name);
        let json = serde_json::to_string_pretty(value)
            .map_err(|e| FolderError::Unreadable { path: path.clone(), why: e.to_string() })?;
        replace_file(&path, |file| writeln!(file, "{json}"))?;
        Ok(())
    }
}

/// A folder that will take the place of another; dropped before [`Successor::succeed`], it leaves nothing.
pub struct Successor<'f> {
    folder: &'f Folder,
    name: &'static str,
    path: PathBuf,
}

impl Successor<'_> {
    /// Where to make it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts it in its place, and deletes what was there.
    pub fn succeed(self) -> Result<(), FolderError> {
        let path = self.folder.join(self.name);
        let retired = self.folder.join(&format!("{}{RETIRED}", self.name));
        match fs::rename(&path, &retired) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(FolderError::io(&path)(e)),
            _ => {}
        }
        fs::rename(&self.path, &path).map_err(FolderError::io(&path))?;
        match fs::remove_dir_all(&retired) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(FolderError::io(&retired)(e)),
            _ => Ok(()),
        }
    }
}

impl Drop for Successor<'_> {
    fn drop(&mut self) {
        // Renamed away or never made, there is nothing; and what can't be deleted, the next build deletes.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Refuses a folder that holds something, but no build.
pub fn refuse_foreign(path: &Path) -> Result<(), FolderError> {
    let names = names(path)?;
    if names.iter().any(|name| name == STATE) {
        return Ok(());
    }
    match names.into_iter().find(|name| !is_leftover(name)) {
        None => Ok(()),
        Some(example) => Err(FolderError::Foreign { path: path.into(), example }),
    }
}

/// The names in a folder; none where there is no folder.
fn names(path: &Path) -> Result<Vec<String>, FolderError> {
    let entries = match fs::read_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(FolderError::io(path))?,
    };
    entries
        .map(|entry| Ok(entry.map_err(FolderError::io(path))?.file_name().to_string_lossy().into()))
        .collect()
}

/// What a retired folder's name ends in.
const RETIRED: &str = ".retired";

/// Reads a JSON file; `None` where it is missing.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, FolderError> {
    let json = match fs::read(path) {
        Ok(json) => json,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(FolderError::io(path)(e)),
    };
    serde_json::from_slice(&json)
        .map(Some)
        .map_err(|e| FolderError::Unreadable { path: path.into(), why: e.to_string() })
}
