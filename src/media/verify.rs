//! Pinned files against their pins: all side by side, one thread each.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;

use super::hash_cache::{HashCache, Identity, Remembered};
use super::{Content, FileHash, HashError, Sha256, hash, sniff};
use crate::io::{Interrupted, Progress, ReadAt, SourceFile, path_text};
use crate::iso::VolumeKind;

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
) -> Result<Vec<Result<MediaFacts, MediaError>>, Interrupted> {
    let results: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> =
            files.iter().map(|file| scope.spawn(move || verify_one(file, cache, progress))).collect();
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
    Ok(open(pinned)?.size())
}

fn open(pinned: &PinnedFile) -> Result<SourceFile, MediaError> {
    let path = || pinned.path.clone();
    SourceFile::open(&pinned.path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => MediaError::Missing { path: path() },
        io::ErrorKind::InvalidInput => MediaError::NotAFile { path: path(), source },
        _ => MediaError::Open { path: path(), source },
    })
}

fn verify_one(
    pinned: &PinnedFile,
    cache: Option<&HashCache>,
    progress: &dyn Progress,
) -> Result<MediaFacts, MediaError> {
    let path = || pinned.path.clone();
    let file = open(pinned)?;
    let content = sniff(&file).map_err(|source| HashError::Read { path: path(), offset: 0, source })?;
    let (size, sha256, hash_cached) = hash_once(&file, &pinned.path, cache, progress)?;
    if sha256 != pinned.sha256 {
        let mismatch = Mismatch { path: path(), size, expected: pinned.sha256, got: sha256, content };
        return Err(MediaError::Mismatch(Box::new(mismatch)));
    }
    match content {
        Content::Image(volume) => Ok(MediaFacts {
            path: path(),
            size,
            sha256,
            hash_cached,
            format: volume.kind,
            label: volume.label,
        }),
        content => Err(MediaError::NotAnImage { path: path(), content }),
    }
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
fn task_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    match name.char_indices().nth(24) {
        None => name.into_owned(),
        Some(_) => format!("{}...", name.chars().take(21).collect::<String>()),
    }
}
