//! The hashes that catalogs know files by.

use std::fmt;
use std::io;

use ring::digest;
use serde::{Serialize, Serializer};

use crate::io::ReadAt;

/// What is read at once, in bytes.
const CHUNK: u64 = 1 << 20;

/// Which hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// Weak: Windows 10 and later do not take it from drivers alone.
    Sha1,
    /// What is used today.
    Sha256,
    /// For signatures.
    Sha384,
    /// For signatures.
    Sha512,
}

/// A hash of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileDigest {
    /// Weak, see [`Algorithm::Sha1`].
    Sha1([u8; 20]),
    /// What is used today.
    Sha256([u8; 32]),
}

/// Both hashes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileDigests {
    /// For old catalogs.
    pub sha1: FileDigest,
    /// For those of today.
    pub sha256: FileDigest,
}

impl Algorithm {
    pub(super) fn of(self, bytes: &[u8]) -> digest::Digest {
        digest::digest(self.implementation(), bytes)
    }

    pub(super) fn implementation(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        }
    }
}

impl FileDigest {
    /// Of these bytes, which must be as long as one of the hashes.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().map(Self::Sha256).or_else(|_| bytes.try_into().map(Self::Sha1)).ok()
    }

    /// The bytes of the hash.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Sha1(bytes) => bytes,
            Self::Sha256(bytes) => bytes,
        }
    }

    /// Which hash it is.
    pub fn algorithm(&self) -> Algorithm {
        match self {
            Self::Sha1(_) => Algorithm::Sha1,
            Self::Sha256(_) => Algorithm::Sha256,
        }
    }
}

impl FileDigests {
    /// Of all bytes of a file: how catalogs know INF files, and all others that carry no signature of their own.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn flat(file: &dyn ReadAt) -> io::Result<Self> {
        let mut hasher = Hasher::new();
        hasher.read(file, 0, file.size())?;
        Ok(hasher.finish())
    }
}

/// Both hashes as they grow.
pub(super) struct Hasher {
    sha1: digest::Context,
    sha256: digest::Context,
}

impl Hasher {
    pub fn new() -> Self {
        Self {
            sha1: digest::Context::new(Algorithm::Sha1.implementation()),
            sha256: digest::Context::new(Algorithm::Sha256.implementation()),
        }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.sha1.update(bytes);
        self.sha256.update(bytes);
    }

    /// The bytes of `file` from `start` to `end`; nothing where that is not behind.
    pub fn read(&mut self, file: &dyn ReadAt, start: u64, end: u64) -> io::Result<()> {
        let mut at = start;
        let mut buffer = Vec::new();
        while at < end {
            let length = CHUNK.min(end - at);
            buffer.resize(length as usize, 0);
            file.read_exact_at(&mut buffer, at)?;
            self.update(&buffer);
            at += length;
        }
        Ok(())
    }

    pub fn finish(self) -> FileDigests {
        let (mut sha1, mut sha256) = ([0; 20], [0; 32]);
        sha1.copy_from_slice(self.sha1.finish().as_ref());
        sha256.copy_from_slice(self.sha256.finish().as_ref());
        FileDigests { sha1: FileDigest::Sha1(sha1), sha256: FileDigest::Sha256(sha256) }
    }
}

/// As it is written in text: `SHA-256`.
impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sha1 => "SHA-1",
            Self::Sha256 => "SHA-256",
            Self::Sha384 => "SHA-384",
            Self::Sha512 => "SHA-512",
        })
    }
}

/// Lower-case hexadecimal digits.
impl fmt::Display for FileDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.as_bytes()))
    }
}

impl Serialize for Algorithm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for FileDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
