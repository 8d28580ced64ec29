//! Pinned files against their pins: all side by side, one thread each.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;

use super::hash_cache::{HashCache, Identity, Remembered};
use super::{Content, Contents, FileHash, HashError, KnownMedium, Sha256, hash, known, sniff};
use crate::io::{Interrupted, Progress, ReadAt, SourceFile, path_text};
use crate::iso::{Volume, VolumeKind};

/// A file and the hash it must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its pin.
    pub sha256: Sha256,
}

/// What is known of a medium that matches its pin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MediaFacts {
    /// The file that was hashed.
    #[serde(serialize_with = "path_text")]
    pub path: PathBuf,
    /// In bytes.
    pub size: u64,
    /// Of the whole file; the same as its pin.
    pub sha256: Sha256,
    /// When it was hashed, UTC, where the hash is that of an earlier run; `None`: it was hashed now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_cached: Option<String>,
    /// The file systems on it.
    pub format: VolumeKind,
    /// The volume's label: for people to read, never to decide by.
    pub label: Option<String>,
}

/// A medium that matches its pin, still open: what is read of it is what was hashed.
#[derive(Debug)]
pub struct VerifiedFile {
    /// What is known of it.
    pub facts: MediaFacts,
    /// Its bytes.
    pub file: SourceFile,
}

/// Why a medium is not what the recipe pins.
#[derive(Debug, Error)]
pub enum MediaError {
    /// There is no such file.
    #[error("{} is not there", path.display())]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A folder, a FIFO or the like.
    #[error("{} is no medium", path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
        /// What it is.
        source: io::Error,
    },
    /// It is there and can't be read.
    #[error("{} can't be opened", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not the one that was pinned.
    #[error(transparent)]
    Mismatch(Box<Mismatch>),
    /// The pin is right, and what it pins is no medium.
    #[error("{} matches its pin, but it is {content}; somebody pinned the wrong file", path.display())]
    NotAnImage {
        /// The file.
        path: PathBuf,
        /// What the file was found to be.
        content: Content,
    },
    /// A file that is to be pinned is no medium.
    #[error("{}: this is {content}", path.display())]
    NoMedium {
        /// The file.
        path: PathBuf,
        /// What the file was found to be.
        content: Content,
    },
    /// It can't be hashed.
    #[error(transparent)]
    Hash(#[from] HashError),
}

/// A file that is not the pinned one: expected and found, and what explains the difference.
#[derive(Debug, PartialEq, Eq, Error)]
pub struct Mismatch {
    /// The file.
    pub path: PathBuf,
    /// In bytes.
    pub size: u64,
    /// The pin.
    pub expected: Sha256,
    /// The file's SHA-256.
    pub got: Sha256,
    /// What the file was found to be.
    pub content: Content,
    /// Where the pin's medium is a known one, and the file holds the same version: which one.
    pub same_version: Option<&'static KnownMedium>,
}

/// One line of explanation, then the values under each other, so that they can be compared by eye.
impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.content {
            Content::Image(volume) => match volume.size {
                Some(says) if says > self.size => write!(
                    f,
                    "truncated: the volume says {says} bytes, the file has {}; an incomplete download or copy",
                    self.size
                )?,
                _ if self.same_version.is_some() => write!(
                    f,
                    "same version, different bytes: the pin is that of {}",
                    self.same_version.map(ToString::to_string).unwrap_or_default()
                )?,
                _ => write!(
                    f,
                    "a disc image, but not the pinned one (volume label {})",
                    volume.label.as_deref().unwrap_or("empty")
                )?,
            },
            other => write!(f, "this is {other}")?,
        }
        write!(
            f,
            "\n  size      {} bytes\n  expected  {}\n  got       {}",
            self.size, self.expected, self.got
        )
    }
}

impl MediaError {
    /// Whether the user asked to stop.
    pub fn interrupted(&self) -> bool {
        matches!(self, Self::Hash(HashError::Interrupted(_)))
    }
}

/// Hashes every file and compares; one result for each, in the same order. Files are read and never changed. With a
/// cache, a file that an earlier run hashed is not read again, and what is hashed is remembered.
///
/// An interruption is the whole call's.
pub fn verify(
    files: &[PinnedFile],
    cache: Option<&HashCache>,
    progress: &dyn Progress,
) -> Result<Vec<Result<VerifiedFile, MediaError>>, Interrupted> {
    side_by_side(files, &|pinned| verify_one(pinned, cache, progress))
}

/// Hashes files that have no pin yet, side by side; one result for each, in the same order.
pub fn open_and_hash(
    paths: &[PathBuf],
    progress: &dyn Progress,
) -> Result<Vec<Result<VerifiedFile, MediaError>>, Interrupted> {
    side_by_side(paths, &|path| {
        let (file, content) = open(path)?;
        let FileHash { size, sha256 } = hash(&file, path, &task_name(path), progress)?;
        facts(path, file, content, (size, sha256, None)).map_err(|e| match e {
            MediaError::NotAnImage { path, content } => MediaError::NoMedium { path, content },
            other => other,
        })
    })
}

/// One thread a file: each hashes as fast as a core does.
fn side_by_side<T: Sync>(
    files: &[T],
    work: &(dyn Fn(&T) -> Result<VerifiedFile, MediaError> + Sync),
) -> Result<Vec<Result<VerifiedFile, MediaError>>, Interrupted> {
    let results: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = files.iter().map(|file| scope.spawn(move || work(file))).collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    if results.iter().any(|result| result.as_ref().is_err_and(MediaError::interrupted)) {
        return Err(Interrupted);
    }
    Ok(results)
}

/// Whether a file is there and can be read, and its size in bytes; it is not hashed.
pub fn look(pinned: &PinnedFile) -> Result<u64, MediaError> {
    Ok(open_file(&pinned.path)?.size())
}

fn open_file(path: &Path) -> Result<SourceFile, MediaError> {
    let path = || path.to_owned();
    SourceFile::open(&path()).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => MediaError::Missing { path: path() },
        io::ErrorKind::InvalidInput => MediaError::NotAFile { path: path(), source },
        _ => MediaError::Open { path: path(), source },
    })
}

/// Opens a file, and looks at what it is.
pub fn open(path: &Path) -> Result<(SourceFile, Content), MediaError> {
    let file = open_file(path)?;
    let content = sniff(&file).map_err(|source| HashError::Read { path: path.into(), offset: 0, source })?;
    Ok((file, content))
}

fn verify_one(
    pinned: &PinnedFile,
    cache: Option<&HashCache>,
    progress: &dyn Progress,
) -> Result<VerifiedFile, MediaError> {
    let path = &pinned.path;
    let (file, content) = open(path)?;
    let hashed = hash_once(&file, path, cache, progress)?;
    let (size, got, _) = hashed;
    if got != pinned.sha256 {
        let same_version = same_version(&pinned.sha256, &file);
        let (path, expected) = (path.clone(), pinned.sha256);
        let mismatch = Mismatch { path, size, expected, got, content, same_version };
        return Err(MediaError::Mismatch(Box::new(mismatch)));
    }
    facts(path, file, content, hashed)
}

/// What is known of a file that was hashed, if it is a medium.
fn facts(
    path: &Path,
    file: SourceFile,
    content: Content,
    (size, sha256, hash_cached): (u64, Sha256, Option<String>),
) -> Result<VerifiedFile, MediaError> {
    match content {
        Content::Image(Volume { kind: format, label, .. }) => {
            let path = path.into();
            Ok(VerifiedFile { facts: MediaFacts { path, size, sha256, hash_cached, format, label }, file })
        }
        content => Err(MediaError::NotAnImage { path: path.into(), content }),
    }
}

/// The known medium of that pin, if the file holds the same version. It explains a mismatch: a file that can't be read
/// explains nothing.
fn same_version(pin: &Sha256, file: &SourceFile) -> Option<&'static KnownMedium> {
    let known = known(pin)?;
    let versions = Contents::read(file).ok()?.versions();
    versions.iter().any(|version| known.is_version(version)).then_some(known)
}

/// A file's size and hash, and when it was hashed if that was earlier.
fn hash_once(
    file: &SourceFile,
    path: &Path,
    cache: Option<&HashCache>,
    progress: &dyn Progress,
) -> Result<(u64, Sha256, Option<String>), HashError> {
    let name = task_name(path);
    let Some(cache) = cache else {
        let FileHash { size, sha256 } = hash(file, path, &name, progress)?;
        return Ok((size, sha256, None));
    };
    let identity =
        Identity::of(file).map_err(|source| HashError::Read { path: path.into(), offset: 0, source })?;
    if let Some(Remembered { sha256, hashed }) = cache.find(&identity) {
        return Ok((file.size(), sha256, Some(hashed)));
    }
    let FileHash { size, sha256 } = hash(file, path, &name, progress)?;
    cache.add(identity, sha256);
    Ok((size, sha256, None))
}

/// A file's name, cut to what a progress line has room for.
pub fn task_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    match name.char_indices().nth(24) {
        None => name.into_owned(),
        Some(_) => format!("{}...", name.chars().take(21).collect::<String>()),
    }
}
