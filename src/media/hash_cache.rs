//! Hashes of earlier runs, for who builds often from the same media and asks for it.
//!
//! A file is taken for the one that was hashed if its device, inode, size and times are the same, and its first and
//! last MiB. That finds every accident, not every intent: whoever can write the file's middle and set its times, or
//! write the cache, decides what the hash is. So it is never used unless asked for, and what came from it is labelled.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use sha2::Digest;
use thiserror::Error;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Sha256;
use crate::io::{NewPathError, Privacy, ReadAt, SourceFile, replace_file};

/// Bytes that are compared at either end of a file.
const END: u64 = 1 << 20;
/// The largest cache that is read, in bytes.
const MAX_SIZE: u64 = 1 << 20;
/// The most files it remembers: the oldest are forgotten.
const MOST: usize = 256;
const FORMAT: &str = "sealroot-hash-cache-1";

/// Why there is no cache.
#[derive(Debug, Error)]
pub enum HashCacheError {
    /// Reading failed.
    #[error("the hash cache {} can't be read", path.display())]
    Read {
        /// The cache's file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is no hash cache of sealroot's: {what}", path.display())]
    Foreign {
        /// The file that was named.
        path: PathBuf,
        /// What was found instead.
        what: String,
    },
    /// Others may write it, and so decide what a medium's hash is.
    #[error("the hash cache {} {what}", path.display())]
    NotOurs {
        /// The cache's file.
        path: PathBuf,
        /// Who else may write it.
        what: &'static str,
    },
    /// It can't be saved.
    #[error(transparent)]
    Write(#[from] NewPathError),
}

/// The hashes of earlier runs, in a file of the user's own.
#[derive(Debug)]
pub struct HashCache {
    path: PathBuf,
    entries: Mutex<Vec<Entry>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    format: String,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Entry {
    file: Identity,
    sha256: Sha256,
    /// When it was hashed, UTC.
    hashed: String,
}

/// What tells one state of a file from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    /// Since 1970.
    modified_nanoseconds: i64,
    /// Since 1970; unlike the time of writing, no user can set it.
    changed_nanoseconds: i64,
    /// Of the first MiB and the last.
    ends: Sha256,
}

/// A hash of an earlier run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remembered {
    pub sha256: Sha256,
    /// When it was hashed, UTC.
    pub hashed: String,
}

impl Identity {
    /// Of an open file; this reads its ends.
    pub fn of(file: &SourceFile) -> io::Result<Self> {
        let (size, metadata) = (file.size(), file.metadata());
        let length = size.min(END);
        let mut end = vec![0; length as usize];
        let mut ends = sha2::Sha256::new();
        for offset in [0, size - length] {
            file.read_exact_at(&mut end, offset)?;
            ends.update(&end);
        }
        let nanoseconds =
            |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size,
            modified_nanoseconds: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed_nanoseconds: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
            ends: Sha256::new(ends.finalize().into()),
        })
    }
}

impl HashCache {
    /// Reads the cache at `path`; one that is not there is empty, and appears when it is saved.
    pub fn open(path: &Path) -> Result<Self, HashCacheError> {
        let entries = read(path)?;
        Ok(Self { path: path.into(), entries: Mutex::new(entries) })
    }

    /// What an earlier run found for that file.
    pub(super) fn find(&self, file: &Identity) -> Option<Remembered> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.iter().find(|entry| entry.file == *file)?;
        Some(Remembered { sha256: entry.sha256, hashed: entry.hashed.clone() })
    }

    /// Remembers a hash that was computed just now.
    pub(super) fn add(&self, file: Identity, sha256: Sha256) {
        // Formatting fails only for years outside of 0 to 9999.
        let hashed = OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| (entry.file.device, entry.file.inode) != (file.device, file.inode));
        entries.push(Entry { file, sha256, hashed });
    }

    /// Writes the cache, with what another run may have added meanwhile.
    pub fn save(&self) -> Result<(), HashCacheError> {
        let mut entries = read(&self.path)?;
        let ours = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in ours.iter() {
            entries.retain(|other| {
                (other.file.device, other.file.inode) != (entry.file.device, entry.file.inode)
            });
            entries.push(entry.clone());
        }
        let first = entries.len().saturating_sub(MOST);
        let content = Content { format: FORMAT.into(), entries: entries.split_off(first) };
        let json = serde_json::to_vec_pretty(&content).map_err(|e| self.foreign(e.to_string()))?;
        Ok(replace_file(&self.path, Privacy::Secret, |file| file.write_all(&json))?)
    }

    fn foreign(&self, what: String) -> HashCacheError {
        HashCacheError::Foreign { path: self.path.clone(), what }
    }
}

fn read(path: &Path) -> Result<Vec<Entry>, HashCacheError> {
    let in_read = |source| HashCacheError::Read { path: path.into(), source };
    let foreign = |what: String| HashCacheError::Foreign { path: path.into(), what };
    // Looked at before it is opened: a FIFO would hang.
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(in_read(e)),
        Ok(metadata) if !metadata.is_file() => return Err(foreign("it is no file".into())),
        Ok(metadata) if metadata.uid() != rustix::process::geteuid().as_raw() => {
            return Err(HashCacheError::NotOurs { path: path.into(), what: "belongs to another user" });
        }
        Ok(metadata) if metadata.mode() & 0o022 != 0 => {
            return Err(HashCacheError::NotOurs { path: path.into(), what: "can be written by other users" });
        }
        Ok(_) => {}
    }
    let mut json = Vec::new();
    File::open(path).map_err(in_read)?.take(MAX_SIZE + 1).read_to_end(&mut json).map_err(in_read)?;
    if json.len() as u64 > MAX_SIZE {
        return Err(foreign(format!("it is larger than {MAX_SIZE} bytes")));
    }
    let content: Content = serde_json::from_slice(&json).map_err(|e| foreign(e.to_string()))?;
    if content.format != FORMAT {
        return Err(foreign("it has another format".into()));
    }
    Ok(content.entries)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::{FileExt, PermissionsExt};

    use super::*;

    fn identity(path: &Path) -> Identity {
        Identity::of(&SourceFile::open(path).unwrap()).unwrap()
    }

    #[test]
    fn a_file_is_found_again_until_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let (file, path) = (folder.path().join("a.iso"), folder.path().join("cache.json"));
        fs::write(&file, vec![7; 3 << 20]).unwrap();
        let cache = HashCache::open(&path).unwrap();
        let before = identity(&file);
        let hash = Sha256::of(b"a");
        assert_eq!(cache.find(&before), None);
        cache.add(before.clone(), hash);
        cache.save().unwrap();

        let cache = HashCache::open(&path).unwrap();
        assert_eq!(cache.find(&identity(&file)).unwrap().sha256, hash);
        let writable = fs::OpenOptions::new().write(true).open(&file).unwrap();
        // Whichever of the two ends changes, and with the time of writing put back.
        let modified = fs::metadata(&file).unwrap().modified().unwrap();
        writable.write_all_at(b"x", 5).unwrap();
        writable.set_modified(modified).unwrap();
        let after = identity(&file);
        assert_ne!(after.ends, before.ends);
        assert_eq!(cache.find(&after), None);
        // In the middle: the times tell.
        let before = identity(&file);
        writable.write_all_at(b"x", 3 << 19).unwrap();
        writable.set_modified(modified).unwrap();
        let after = identity(&file);
        assert_eq!(after.ends, before.ends);
        assert_ne!(after, before);
    }

    #[test]
    fn two_runs_lose_nothing_of_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache.json");
        let files = ["a", "b"].map(|name| folder.path().join(name));
        for file in &files {
            fs::write(file, file.to_str().unwrap()).unwrap();
        }
        let caches = [HashCache::open(&path).unwrap(), HashCache::open(&path).unwrap()];
        for (cache, file) in caches.iter().zip(&files) {
            cache.add(identity(file), Sha256::of(b"x"));
            cache.save().unwrap();
        }
        let cache = HashCache::open(&path).unwrap();
        assert!(files.iter().all(|file| cache.find(&identity(file)).is_some()));
    }

    #[test]
    fn it_forgets_the_oldest() {
        let folder = tempfile::tempdir().unwrap();
        let (file, path) = (folder.path().join("a"), folder.path().join("cache.json"));
        fs::write(&file, b"").unwrap();
        let cache = HashCache::open(&path).unwrap();
        for inode in 0..MOST as u64 + 3 {
            cache.add(Identity { inode, ..identity(&file) }, Sha256::of(b"x"));
        }
        cache.save().unwrap();
        let cache = HashCache::open(&path).unwrap();
        let inodes: Vec<_> = cache.entries.lock().unwrap().iter().map(|entry| entry.file.inode).collect();
        assert_eq!(inodes, (3..MOST as u64 + 3).collect::<Vec<_>>());
    }

    #[test]
    fn what_others_may_write_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache.json");
        HashCache::open(&path).unwrap().save().unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
        assert!(matches!(HashCache::open(&path), Err(HashCacheError::NotOurs { .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        for wrong in ["", "[]", "{\"format\": \"sealroot-hash-cache-2\", \"entries\": []}"] {
            fs::write(&path, wrong).unwrap();
            assert!(matches!(HashCache::open(&path), Err(HashCacheError::Foreign { .. })), "{wrong}");
        }
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        assert!(matches!(HashCache::open(&path), Err(HashCacheError::Foreign { .. })));
    }
}
