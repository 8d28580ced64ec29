//! The SHA-256 of a whole file, as fast as the processor hashes.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::Advice;
use sha2::Digest;
use thiserror::Error;

use super::Sha256;
use crate::io::{Interrupted, Progress, ReadAt, SourceFile};

/// Bytes a read: few system calls, and still inside the processor's second-level cache when hashed.
const CHUNK: usize = 1 << 20;

/// What hashing a file found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHash {
    /// Bytes hashed: the whole file.
    pub size: u64,
    /// Their SHA-256.
    pub sha256: Sha256,
}

/// Why a file has no hash.
#[derive(Debug, Error)]
pub enum HashError {
    /// Reading failed.
    #[error("{} can't be read at offset {offset}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// In bytes.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// Somebody wrote to it meanwhile, so the hash is of no file that ever was.
    #[error("{} changed while it was hashed ({what})", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// What was seen to change.
        what: String,
    },
    /// The user asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// Hashes all of `file`, which `path` names in messages; `name` names the task in progress reports.
pub fn hash(
    file: &SourceFile,
    path: &Path,
    name: &str,
    progress: &dyn Progress,
) -> Result<FileHash, HashError> {
    let size = file.size();
    let read_error = |offset| move |source| HashError::Read { path: path.into(), offset, source };
    // Only a hint: larger read-ahead. Where it is not known, nothing is lost.
    let _ = rustix::fs::fadvise(file.as_file(), 0, None, Advice::Sequential);
    let task = progress.task(name, size);
    let mut sha = sha2::Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut done: u64 = 0;
    while done < size {
        let wanted = buffer.len().min(usize::try_from(size - done).unwrap_or(usize::MAX));
        let chunk = &mut buffer[..wanted];
        if let Err(e) = file.read_exact_at(chunk, done) {
            return Err(match e.kind() {
                io::ErrorKind::UnexpectedEof => {
                    HashError::Changed { path: path.into(), what: "it became shorter".into() }
                }
                _ => read_error(done)(e),
            });
        }
        sha.update(&*chunk);
        done += wanted as u64;
        task.advance(wanted as u64)?;
    }
    unchanged(file, path)?;
    Ok(FileHash { size, sha256: Sha256::new(sha.finalize().into()) })
}

/// Compares the open file with what it was when it was opened.
fn unchanged(file: &SourceFile, path: &Path) -> Result<(), HashError> {
    let (before, after) = (file.metadata(), file.as_file().metadata());
    let after = after.map_err(|source| HashError::Read { path: path.into(), offset: 0, source })?;
    let what = if before.len() != after.len() {
        format!("it had {} bytes, now it has {}", before.len(), after.len())
    } else if (before.mtime(), before.mtime_nsec()) != (after.mtime(), after.mtime_nsec()) {
        "it was written to".into()
    } else {
        return Ok(());
    };
    Err(HashError::Changed { path: path.into(), what })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::sync::Mutex;

    use super::*;
    use crate::io::{Silent, Task};

    #[test]
    fn known_values() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let source = SourceFile::open(file.path()).unwrap();
        let found = hash(&source, file.path(), "empty", &Silent).unwrap();
        assert_eq!(found.size, 0);
        assert_eq!(
            found.sha256.to_string(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        // One million times `a`: a test vector of FIPS 180-2.
        std::fs::write(file.path(), vec![b'a'; 1_000_000]).unwrap();
        let source = SourceFile::open(file.path()).unwrap();
        assert_eq!(
            hash(&source, file.path(), "a", &Silent).unwrap().sha256.to_string(),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
        );
    }

    type Act = Box<dyn FnOnce() -> Result<(), Interrupted> + Send>;

    /// Does something to the file at the first report.
    struct Meddler(Mutex<Option<Act>>);

    impl Progress for Meddler {
        fn task(&self, _: &str, _: u64) -> Box<dyn Task> {
            Box::new(Self(Mutex::new(self.0.lock().unwrap().take())))
        }
    }

    impl Task for Meddler {
        fn advance(&self, _: u64) -> Result<(), Interrupted> {
            self.0.lock().unwrap().take().map_or(Ok(()), |act| act())
        }
    }

    fn meddled(act: impl FnOnce(&Path) -> Result<(), Interrupted> + Send + 'static) -> HashError {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![7; 3 * CHUNK]).unwrap();
        let source = SourceFile::open(file.path()).unwrap();
        let path = file.path().to_owned();
        let meddler = Meddler(Mutex::new(Some(Box::new(move || act(&path)))));
        hash(&source, file.path(), "meddled", &meddler).unwrap_err()
    }

    #[test]
    fn a_file_that_grows_or_shrinks_has_no_hash() {
        let grown = meddled(|path| {
            OpenOptions::new().append(true).open(path).unwrap().write_all(b"more").unwrap();
            Ok(())
        });
        assert!(grown.to_string().contains("now it has"), "{grown}");
        let shrunk = meddled(|path| {
            OpenOptions::new().write(true).open(path).unwrap().set_len(CHUNK as u64 + 5).unwrap();
            Ok(())
        });
        assert!(shrunk.to_string().contains("shorter"), "{shrunk}");
    }

    #[test]
    fn asking_to_stop_stops() {
        assert!(matches!(meddled(|_| Err(Interrupted)), HashError::Interrupted(_)));
    }
}
