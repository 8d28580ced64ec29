//! Changing a disk where it lies, so that whatever happens it is the old disk or the new one.
//!
//! 1. Before the disk's first byte changes, the journal (old and new bytes of every edit, checksummed) is
//!    written under another name, synced, named, and its folder synced.
//! 2. The disk is written and synced.
//! 3. The journal is marked committed, and stays for [`undo`].
//!
//! A journal without that mark means that the disk may be half written: [`recover`] puts the old bytes back,
//! which can be done again however often it is stopped. [`undo`] takes the mark away, then does the same. A
//! journal is never believed of another disk: the size must be right, and every byte the old or the new one.
//! One process at a time may work on a disk: the caller holds its lock.

mod record;
mod store;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;

use thiserror::Error;

use super::{Patch, PatchError, WriteAt};
pub use store::{Beside, Name, Store};

/// What the journal says of its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// There is none.
    Absent,
    /// The disk holds the new bytes, or did when the change was made.
    Committed,
    /// The disk may be half written.
    Uncommitted,
}

/// What [`recover`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// There was nothing to do.
    Nothing,
    /// An unfinished journal was taken away; the disk had not been touched.
    Removed,
    /// The disk holds the old bytes again.
    RolledBack,
}

/// Why a disk is not changed, or not put back.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The journal's file or folder does not let itself be read or written; the disk was not touched.
    #[error("the undo journal can't be {what}; the disk was not changed")]
    Journal {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The journal is not what was written.
    #[error(
        "the undo journal is damaged ({why}), so whether the disk is whole can't be known; if you are sure of \
         the disk, move the journal away"
    )]
    Damaged {
        /// What is wrong with it.
        why: String,
    },
    /// An earlier change can still be undone.
    #[error(
        "an earlier change in place can still be undone; do that first (--undo), or remove its journal to keep \
         that change for good"
    )]
    Exists,
    /// Nothing to undo.
    #[error("there is no undo journal")]
    NoJournal,
    /// The disk is another one, or was written to since.
    #[error(
        "the undo journal does not fit the disk: at offset {offset} it holds neither the old nor the new bytes, \
         so it is another disk or was written to since; nothing was changed"
    )]
    OtherDisk {
        /// The first byte that does not fit.
        offset: u64,
    },
    /// To be undone, but the disk does not hold what was written.
    #[error(
        "the disk was changed since, at offset {offset}: undoing would mix two states of it; nothing was changed"
    )]
    ChangedSince {
        /// The first edit that does not fit.
        offset: u64,
    },
    /// The patch or the journal does not fit the disk, which was not changed.
    #[error(transparent)]
    Patch(PatchError),
    /// The disk could not be read.
    #[error("the disk can't be read at offset {offset}")]
    Read {
        /// Where, in bytes.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// Writing failed, and all is as before.
    #[error("writing to the disk failed; the old bytes were put back, so it is as it was")]
    PutBack {
        /// Why writing failed.
        source: io::Error,
    },
    /// Writing failed half-way.
    #[error(
        "the disk may be half written; its undo journal is kept, and the next run puts the old bytes back"
    )]
    Broken {
        /// Why writing failed.
        source: io::Error,
    },
}

fn journal(what: &'static str) -> impl FnOnce(io::Error) -> JournalError {
    move |source| JournalError::Journal { what, source }
}

/// What the journal says; only its first bytes are read.
pub fn state(store: &dyn Store) -> Result<State, JournalError> {
    match store.read(record::HEADER as u64).map_err(journal("read"))? {
        Some(header) => record::state(&header),
        None => Ok(State::Absent),
    }
}

/// What the journal beside the disk at `path` says.
pub fn state_beside(path: &Path) -> Result<State, JournalError> {
    match Beside::disk(path) {
        Ok(store) => state(&store),
        // A disk without a name (any more) has nothing beside it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(State::Absent),
        Err(error) => Err(journal("looked for")(error)),
    }
}

/// Changes `disk` as `patch` says. When this returns an error, the disk is as it was, but for
/// [`JournalError::Broken`].
pub fn apply(disk: &dyn WriteAt, store: &dyn Store, patch: &Patch) -> Result<(), JournalError> {
    if state(store)? != State::Absent {
        return Err(JournalError::Exists);
    }
    patch.check(disk).map_err(JournalError::Patch)?;
    let record = record::encode(patch, disk.size())?;
    store.create().map_err(journal("created"))?;
    if let Err(error) = keep(store, &record) {
        // Whichever name it has by now: the disk was not touched.
        let _ = store.remove(Name::Unfinished);
        let _ = store.remove(Name::Journal);
        let _ = store.sync_folder();
        return Err(error);
    }
    let written = patch.edits().try_for_each(|edit| disk.write_all_at(&edit.new, edit.offset));
    let mark = record::commit_mark(&record);
    let done = written
        .and_then(|()| disk.sync())
        .and_then(|()| store.write_at(Name::Journal, &mark, record::MARK as u64))
        .and_then(|()| store.sync(Name::Journal));
    match done {
        Ok(()) => Ok(()),
        Err(source) => match put_back(disk, store, patch) {
            Ok(()) => Err(JournalError::PutBack { source }),
            Err(_) => Err(JournalError::Broken { source }),
        },
    }
}

/// Writes the journal so that it outlives a power cut.
fn keep(store: &dyn Store, record: &[u8]) -> Result<(), JournalError> {
    store
        .write_at(Name::Unfinished, record, 0)
        .and_then(|()| store.sync(Name::Unfinished))
        .and_then(|()| store.publish())
        .and_then(|()| store.sync_folder())
        .map_err(journal("written"))
}

/// Ends what an earlier run was stopped at: afterwards the disk holds the old bytes or all the new ones.
pub fn recover(disk: &dyn WriteAt, store: &dyn Store) -> Result<Recovery, JournalError> {
    let removed = store.remove(Name::Unfinished).map_err(journal("removed"))?;
    if state(store)? != State::Uncommitted {
        return Ok(if removed { Recovery::Removed } else { Recovery::Nothing });
    }
    let patch = load(disk, store)?;
    for edit in patch.edits() {
        let found = read(disk, edit.offset, edit.old.len())?;
        let fits = |at: &usize| found[*at] == edit.old[*at] || found[*at] == edit.new[*at];
        if let Some(at) = (0..found.len()).find(|at| !fits(at)) {
            return Err(JournalError::OtherDisk { offset: edit.offset + at as u64 });
        }
    }
    put_back(disk, store, &patch).map_err(|source| JournalError::Broken { source })?;
    Ok(Recovery::RolledBack)
}

/// The change that can be undone, if the disk still holds it whole.
pub fn undoable(disk: &dyn WriteAt, store: &dyn Store) -> Result<Patch, JournalError> {
    if state(store)? == State::Absent {
        return Err(JournalError::NoJournal);
    }
    let patch = load(disk, store)?;
    for edit in patch.edits() {
        if read(disk, edit.offset, edit.new.len())? != edit.new {
            return Err(JournalError::ChangedSince { offset: edit.offset });
        }
    }
    Ok(patch)
}

/// Puts the old bytes back where the disk holds all the new ones, and takes the journal away.
pub fn undo(disk: &dyn WriteAt, store: &dyn Store) -> Result<(), JournalError> {
    let patch = undoable(disk, store)?;
    put_back(disk, store, &patch).map_err(|source| JournalError::Broken { source })
}

fn load(disk: &dyn WriteAt, store: &dyn Store) -> Result<Patch, JournalError> {
    let file = store.read(u64::MAX).map_err(journal("read"))?.ok_or(JournalError::NoJournal)?;
    record::decode(&file, disk.size())
}

fn read(disk: &dyn WriteAt, offset: u64, length: usize) -> Result<Vec<u8>, JournalError> {
    let mut bytes = vec![0; length];
    disk.read_exact_at(&mut bytes, offset).map_err(|source| JournalError::Read { offset, source })?;
    Ok(bytes)
}

/// From here on, until the journal is gone, the next run would do the same.
fn put_back(disk: &dyn WriteAt, store: &dyn Store, patch: &Patch) -> io::Result<()> {
    store.write_at(Name::Journal, &[0; 32], record::MARK as u64)?;
    store.sync(Name::Journal)?;
    patch.edits().try_for_each(|edit| disk.write_all_at(&edit.old, edit.offset))?;
    disk.sync()?;
    store.remove(Name::Journal)?;
    store.sync_folder()
}
