//! A build folder: one recipe's, one build at a time, and what is left of a build that was killed.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::io::{NewPathError, Privacy, UNFINISHED, replace_file};

/// The file that makes a folder a build folder.
pub const STATE: &str = "state.json";
/// The image's folder in a build folder.
pub const IMAGE: &str = "image";
/// Where the image is while its successor takes its place.
const RETIRED_IMAGE: &str = "image.retired";
/// The largest JSON file read, in bytes; real ones have a few thousand.
const MAX_JSON: u64 = 16 << 20;

/// Why a folder can't be built in.
#[derive(Debug, Error)]
pub enum FolderError {
    /// Another build holds it.
    #[error("another build is running in {}", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// Something else has its name.
    #[error("{} can't be a build folder: {why}; name another with --output", path.display())]
    NotAFolder {
        /// What was named.
        path: PathBuf,
        /// What it is.
        why: &'static str,
    },
    /// A name of the folder's own is taken.
    #[error("{} is no folder, so no build made it; take it away", path.display())]
    Taken {
        /// What has the name.
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
        refuse_unfit(path)?;
        folder.clear_leftovers()?;
        Ok(folder)
    }

    fn clear_leftovers(&self) -> Result<(), FolderError> {
        for name in names(&self.path)?.iter().filter(|name| is_leftover(name)) {
            remove(&self.path.join(name))?;
        }
        // The image is replaced in two renames; killed between them, the old one is still whole.
        let (old, current) = (self.join(RETIRED_IMAGE), self.join(IMAGE));
        if current.symlink_metadata().is_ok() {
            return remove(&old);
        }
        missing_is_fine(fs::rename(&old, &current)).map_err(FolderError::io(&old))
    }

    /// The path of something in the folder.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Where the image's successor is made.
    pub fn next_image(&self) -> NextImage<'_> {
        NextImage { folder: self, path: self.path.join(next_image_name()) }
    }

    /// Writes a JSON file of the folder, whole, in place of an earlier one.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), FolderError> {
        let path = self.join(name);
        let json = serde_json::to_string_pretty(value)
            .map_err(|e| FolderError::Unreadable { path: path.clone(), why: e.to_string() })?;
        replace_file(&path, Privacy::Public, |file| writeln!(file, "{json}"))?;
        Ok(())
    }
}

/// An image that will take the place of another; dropped before [`NextImage::succeed`], it leaves nothing.
pub struct NextImage<'f> {
    folder: &'f Folder,
    path: PathBuf,
}

impl NextImage<'_> {
    /// Where to make it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts it in its place, and deletes what was there.
    pub fn succeed(self) -> Result<(), FolderError> {
        let (path, retired) = (self.folder.join(IMAGE), self.folder.join(RETIRED_IMAGE));
        missing_is_fine(fs::rename(&path, &retired)).map_err(FolderError::io(&path))?;
        fs::rename(&self.path, &path).map_err(FolderError::io(&path))?;
        remove(&retired)
    }
}

impl Drop for NextImage<'_> {
    fn drop(&mut self) {
        // Renamed away or never made, there is nothing; and what can't be deleted, the next build deletes.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn next_image_name() -> String {
    format!("{UNFINISHED}{IMAGE}")
}

/// Whether a killed build left it: the image's successor, or an unfinished file or folder of `crate::io`, whose
/// names end in six random letters and digits.
fn is_leftover(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let random = |end: &str| end.len() == 6 && end.bytes().all(|b| b.is_ascii_alphanumeric());
    name == next_image_name() || name.strip_prefix(UNFINISHED).is_some_and(random)
}

/// Removes what is there, if anything is; a link, not what it names.
fn remove(path: &Path) -> Result<(), FolderError> {
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(e) => Err(e),
    };
    missing_is_fine(removed).map_err(FolderError::io(path))
}

fn missing_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Refuses what is no folder, what holds something, but no build, and what has other things under its names.
pub fn refuse_unfit(path: &Path) -> Result<(), FolderError> {
    let not_a_folder = |why| Err(FolderError::NotAFolder { path: path.into(), why });
    match path.metadata() {
        Ok(found) if !found.is_dir() => return not_a_folder("it is a file"),
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound && path.symlink_metadata().is_ok() => {
            return not_a_folder("it is a link to something that is not there");
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            return not_a_folder("a part of its path is a file");
        }
        Err(e) => return Err(FolderError::io(path)(e)),
    }
    let names = names(path)?;
    let is_build = names.iter().any(|name| name == STATE);
    if !is_build && let Some(example) = names.iter().find(|name| !is_leftover(name)) {
        let example = example.to_string_lossy().into();
        return Err(FolderError::Foreign { path: path.into(), example });
    }
    for own in [IMAGE, RETIRED_IMAGE].map(|name| path.join(name)) {
        if own.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
            return Err(FolderError::Taken { path: own });
        }
    }
    Ok(())
}

/// The names in a folder.
fn names(path: &Path) -> Result<Vec<OsString>, FolderError> {
    let entries = fs::read_dir(path).map_err(FolderError::io(path))?;
    entries.map(|entry| Ok(entry.map_err(FolderError::io(path))?.file_name())).collect()
}

/// Reads a JSON file; `None` where it is missing. Whatever has its name, this neither waits nor fills the memory.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, FolderError> {
    let unreadable = |why: String| FolderError::Unreadable { path: path.into(), why };
    // A FIFO would otherwise wait for a writer.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(FolderError::io(path)(e)),
    };
    if !file.metadata().map_err(FolderError::io(path))?.is_file() {
        return Err(unreadable("it is no regular file".into()));
    }
    let mut json = Vec::new();
    file.take(MAX_JSON + 1).read_to_end(&mut json).map_err(FolderError::io(path))?;
    if json.len() as u64 > MAX_JSON {
        return Err(unreadable(format!("it has more than {MAX_JSON} bytes")));
    }
    serde_json::from_slice(&json).map(Some).map_err(|e| unreadable(e.to_string()))
}
