//! New files and folders that appear whole, by rename, or not at all.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use thiserror::Error;

/// Who may read what is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privacy {
    /// Files 0600 in folders 0700, whatever the umask: secrets.
    Secret,
    /// As the umask has it.
    Public,
}

/// Why a new file or folder can't appear.
#[derive(Debug, Error)]
pub enum NewPathError {
    /// Something has that name already; it is left as it is.
    #[error("{} exists already, and nothing is overwritten; name another, or take it away", path.display())]
    Exists {
        /// The name asked for.
        path: PathBuf,
    },
    /// There is no folder for it to appear in.
    #[error("{} can't be written: the folder {} does not exist", path.display(), folder_of(path).display())]
    NoFolder {
        /// The name asked for.
        path: PathBuf,
    },
    /// The folder it should appear in can't take it.
    #[error("{} can't be written", path.display())]
    Io {
        /// The name asked for.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl NewPathError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| match source.kind() {
            io::ErrorKind::AlreadyExists => Self::Exists { path: path.into() },
            _ => Self::Io { path: path.into(), source },
        }
    }
}

/// As [`NewPathError::io`], for what fails in making a temporary: its name says nothing to anyone.
fn not_begun(path: &Path) -> impl FnOnce(io::Error) -> NewPathError + '_ {
    move |source| match source.kind() {
        io::ErrorKind::NotFound => NewPathError::NoFolder { path: path.into() },
        kind => NewPathError::Io { path: path.into(), source: kind.into() },
    }
}

/// How many unfinished files and folders this process has.
static UNFINISHED_PATHS: AtomicUsize = AtomicUsize::new(0);

/// Whether this process has a file or folder in the making, which it would leave behind if it ended now.
pub fn is_anything_unfinished() -> bool {
    UNFINISHED_PATHS.load(Ordering::SeqCst) > 0
}

/// Counted while it is there.
#[derive(Debug)]
struct Counted;

impl Counted {
    fn new() -> Self {
        UNFINISHED_PATHS.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        UNFINISHED_PATHS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What the name of everything unfinished begins with.
pub const UNFINISHED: &str = ".sealroot-";

/// Writes a file in place of an earlier one of that name: whole, or the earlier one stays.
///
/// For files that are this program's own memory; what a user named is never replaced.
pub fn replace_file(
    path: &Path,
    privacy: Privacy,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), NewPathError> {
    let _counted = Counted::new();
    let mut temporary = unfinished(path, privacy)?;
    write(temporary.as_file_mut())
        .and_then(|()| temporary.as_file().sync_all())
        .map_err(NewPathError::io(path))?;
    temporary.persist(path).map_err(|e| NewPathError::io(path)(e.error))?;
    File::open(folder_of(path)).and_then(|folder| folder.sync_all()).map_err(NewPathError::io(path))
}

fn unfinished(path: &Path, privacy: Privacy) -> Result<tempfile::NamedTempFile, NewPathError> {
    let mode = match privacy {
        Privacy::Secret => 0o600,
        Privacy::Public => 0o666,
    };
    let temporary = tempfile::Builder::new()
        .prefix(UNFINISHED)
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder_of(path))
        .map_err(not_begun(path))?;
    if privacy == Privacy::Secret {
        // Again, because the umask may have taken the owner's own rights.
        let permissions = Permissions::from_mode(mode);
        temporary.as_file().set_permissions(permissions).map_err(NewPathError::io(path))?;
    }
    Ok(temporary)
}

/// The folder a path will appear in; `.` for a bare name.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn refuse_existing(path: &Path) -> Result<(), NewPathError> {
    match path.symlink_metadata() {
        Ok(_) => Err(NewPathError::Exists { path: path.into() }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(NewPathError::io(path)(e)),
    }
}

/// Moves a finished temporary to its name, never over something that got there first.
pub(super) fn appear(temporary: &Path, path: &Path) -> io::Result<()> {
    match renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE) {
        // A file system without that flag: look again, then a plain rename, which never replaces a full folder.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            if path.symlink_metadata().is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            std::fs::rename(temporary, path)?;
        }
        other => other?,
    }
    // The name itself must outlive a power cut too.
    File::open(folder_of(path))?.sync_all()
}

/// A file that appears under its name when [`NewFile::finish`] is called; dropped before, it leaves nothing.
#[derive(Debug)]
pub struct NewFile {
    temporary: tempfile::NamedTempFile,
    path: PathBuf,
    replace: bool,
    // Last, so that it is dropped after the temporary is gone.
    counted: Counted,
}

impl NewFile {
    /// Begins the file that will appear at `path`, which must not exist.
    pub fn create(path: &Path, privacy: Privacy) -> Result<Self, NewPathError> {
        refuse_existing(path)?;
        Self::begin(path, privacy, false)
    }

    /// As [`NewFile::create`], in place of a file that may be there: it stays until the new one is whole. For what
    /// the user asked for in as many words.
    pub fn replace(path: &Path, privacy: Privacy) -> Result<Self, NewPathError> {
        Self::begin(path, privacy, true)
    }

    fn begin(path: &Path, privacy: Privacy, replace: bool) -> Result<Self, NewPathError> {
        let counted = Counted::new();
        let temporary = unfinished(path, privacy)?;
        Ok(Self { temporary, path: path.into(), replace, counted })
    }

    /// The open file.
    pub fn as_file(&self) -> &File {
        self.temporary.as_file()
    }

    /// Takes over the mode of the file that it replaces, and the owner: only root can give a file away, and anybody
    /// else's is their own already.
    pub fn inherit(&self, replaced: &Metadata) -> io::Result<()> {
        let _ = fchown(self.as_file(), Some(replaced.uid()), Some(replaced.gid()));
        self.as_file().set_permissions(replaced.permissions())
    }

    /// Syncs the file and gives it its name.
    pub fn finish(self) -> Result<(), NewPathError> {
        let Self { temporary, path, replace, counted: _counted } = self;
        temporary.as_file().sync_all().map_err(NewPathError::io(&path))?;
        if replace {
            temporary.persist(&path).map_err(|e| NewPathError::io(&path)(e.error))?;
            return File::open(folder_of(&path)).and_then(|f| f.sync_all()).map_err(NewPathError::io(&path));
        }
        // On an error the temporary is dropped, and with it the file.
        appear(temporary.path(), &path).map_err(NewPathError::io(&path))?;
        // The name it had is gone, so there is nothing left to delete.
        let _ = temporary.into_temp_path().keep();
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.temporary.write(buf)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.temporary.flush()
    }
}

/// A folder that appears under its name when [`NewDir::finish`] is called; dropped before, it leaves nothing.
#[derive(Debug)]
pub struct NewDir {
    temporary: tempfile::TempDir,
    path: PathBuf,
    counted: Counted,
}

impl NewDir {
    /// Begins the folder that will appear at `path`, which must not exist.
    pub fn create(path: &Path, privacy: Privacy) -> Result<Self, NewPathError> {
        refuse_existing(path)?;
        let counted = Counted::new();
        let mode = match privacy {
            Privacy::Secret => 0o700,
            Privacy::Public => 0o777,
        };
        let temporary = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .permissions(Permissions::from_mode(mode))
            .tempdir_in(folder_of(path))
            .map_err(not_begun(path))?;
        if privacy == Privacy::Secret {
            let permissions = Permissions::from_mode(mode);
            std::fs::set_permissions(temporary.path(), permissions).map_err(NewPathError::io(path))?;
        }
        Ok(Self { temporary, path: path.into(), counted })
    }

    /// Where to put what the folder is to hold.
    pub fn path(&self) -> &Path {
        self.temporary.path()
    }

    /// Writes one file of the folder, synced.
    pub fn write(&self, name: &str, content: &[u8], privacy: Privacy) -> Result<(), NewPathError> {
        let mut file = NewFile::create(&self.path().join(name), privacy)?;
        file.write_all(content).map_err(NewPathError::io(&self.path.join(name)))?;
        file.finish()
    }

    /// Gives the folder its name.
    pub fn finish(self) -> Result<(), NewPathError> {
        let Self { temporary, path, counted: _counted } = self;
        appear(temporary.path(), &path).map_err(NewPathError::io(&path))?;
        let _ = temporary.keep();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            folder.read_dir().unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let mut file = NewFile::create(&path, Privacy::Secret).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        assert!(names(folder.path()).is_empty());

        let mut file = NewFile::create(&path, Privacy::Secret).unwrap();
        file.write_all(b"whole").unwrap();
        file.finish().unwrap();
        assert_eq!(names(folder.path()), ["new"]);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(NewFile::create(&path, Privacy::Secret), Err(NewPathError::Exists { .. })));
    }

    #[test]
    fn a_missing_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing/new");
        let file = NewFile::create(&path, Privacy::Secret).unwrap_err();
        let dir = NewDir::create(&path, Privacy::Public).unwrap_err();
        for error in [file.to_string(), dir.to_string()] {
            let missing = folder.path().join("missing");
            assert!(error.ends_with(&format!("the folder {} does not exist", missing.display())), "{error}");
            assert!(!error.contains(UNFINISHED), "{error}");
        }
    }

    #[test]
    fn a_replaced_file_is_the_old_one_or_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory");
        replace_file(&path, Privacy::Public, |file| file.write_all(b"one")).unwrap();
        replace_file(&path, Privacy::Public, |_| Err(io::ErrorKind::StorageFull.into())).unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        replace_file(&path, Privacy::Public, |file| file.write_all(b"two")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(names(folder.path()), ["memory"]);
    }

    #[test]
    fn whoever_came_first_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let file = NewFile::create(&path, Privacy::Public).unwrap();
        std::fs::write(&path, "first").unwrap();
        assert!(matches!(file.finish(), Err(NewPathError::Exists { .. })));
        let made = NewDir::create(&folder.path().join("dir"), Privacy::Secret).unwrap();
        std::fs::create_dir(folder.path().join("dir")).unwrap();
        assert!(matches!(made.finish(), Err(NewPathError::Exists { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        assert_eq!(names(folder.path()), ["dir", "new"]);
    }

    #[test]
    fn a_folder_of_secrets_is_closed_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dir");
        let made = NewDir::create(&path, Privacy::Secret).unwrap();
        made.write("inside", b"x", Privacy::Secret).unwrap();
        made.finish().unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(names(&path), ["inside"]);
    }
}
