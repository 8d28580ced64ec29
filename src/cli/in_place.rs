//! What `prepare-sealed-root` does to the disk itself: change it, undo that, end what was stopped half-way.

use std::path::Path;

use serde::Serialize;

use super::root_args::{tell_scrubbed, warn_about};
use super::{Classify, Console, Exit, Failure};
use crate::disk::qcow2::NotInPlace;
use crate::disk::{InPlaceDisk, InPlaceError};
use crate::io::journal::{self, Beside, JournalError, Recovery, State};
use crate::io::{Overlay, Progress};
use crate::root::{self, FirstBoot, LogReplay, Policy, SealReport};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sealed<'a> {
    #[serde(flatten)]
    report: &'a SealReport,
    in_place: bool,
    undo_journal: Option<&'a Path>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Undone {
    undone: bool,
    /// The change was never whole.
    was_half_written: bool,
}

/// Seals the disk at `path` where it lies.
pub fn seal(
    path: &Path,
    first_boot: &FirstBoot,
    replay: LogReplay,
    json: bool,
    console: &Console,
) -> Result<(), Failure> {
    let in_disk = |failure: Failure| failure.context(path.display());
    let (disk, store) = open(path, console)?;
    let sealed = root::seal(&disk, first_boot, replay).map_err(|e| in_disk(e.into()))?;
    let policy = Policy { first_boot: Some(first_boot.clone()), ..Policy::default() };
    let view = Overlay::new(&disk, sealed.patch.clone());
    let audit = root::audit(&view, &policy, replay).map_err(|e| in_disk(e.into()))?;
    warn_about(&audit, console);
    if !sealed.patch.is_empty() {
        disk.check(&sealed.patch).map_err(|e| in_disk(e.into()))?;
        // From here on it is too short to be stopped: while a task runs, the first signal only asks.
        console.interrupted()?;
        let _running = console.task("writing", sealed.patch.changed_bytes());
        journal::apply(&disk, &store, &sealed.patch).map_err(|e| journal_failure(e, &store))?;
    }
    // Of this run, or of an earlier one that left nothing to do.
    let kept = journal::state(&store).map_err(|e| journal_failure(e, &store))? == State::Committed;
    let undo_journal = kept.then(|| store.path());
    let report = sealed.report;
    tell_scrubbed(&report, console);
    if json {
        console.json(&Sealed { report: &report, in_place: true, undo_journal });
    } else {
        let pointer = report.pointer.as_deref().unwrap_or("none");
        console.result(format!("pointer {pointer}, {} bytes changed in place\n", report.changed_bytes));
    }
    if let Some(journal) = undo_journal {
        console.note(format!(
            "undo journal {}: it holds the bytes that were replaced; remove it when --undo is no longer wanted",
            journal.display()
        ));
    }
    Ok(())
}

/// Puts back what [`seal`] replaced in the disk at `path`.
pub fn undo(path: &Path, json: bool, console: &Console) -> Result<(), Failure> {
    let (disk, store) = lock(path)?;
    let recovery = journal::recover(&disk, &store).map_err(|e| journal_failure(e, &store))?;
    if recovery != Recovery::RolledBack {
        let patch = journal::undoable(&disk, &store).map_err(|e| journal_failure(e, &store))?;
        disk.check(&patch).map_err(|e| Failure::from(e).context(path.display()))?;
        journal::undo(&disk, &store).map_err(|e| journal_failure(e, &store))?;
    }
    if json {
        console.json(&Undone { undone: true, was_half_written: recovery == Recovery::RolledBack });
    } else {
        console.result("the old bytes are back\n");
    }
    Ok(())
}

/// Puts the old bytes back where a change in place was stopped half-way; nothing else is written.
pub fn recover(path: &Path, console: &Console) -> Result<(), Failure> {
    let state = journal::state_beside(path).map_err(|e| Failure::from(e).context(path.display()))?;
    if state == State::Uncommitted {
        open(path, console)?;
    }
    Ok(())
}

fn lock(path: &Path) -> Result<(InPlaceDisk, Beside), Failure> {
    let disk = InPlaceDisk::open(path).map_err(|e| Failure::from(e).context(path.display()))?;
    let store = Beside::disk(path)
        .map_err(|e| Failure::new(Exit::Failed, format!("{} can't be found: {e}", path.display())))?;
    Ok((disk, store))
}

fn open(path: &Path, console: &Console) -> Result<(InPlaceDisk, Beside), Failure> {
    let (disk, store) = lock(path)?;
    match journal::recover(&disk, &store).map_err(|e| journal_failure(e, &store))? {
        Recovery::Nothing => {}
        Recovery::Removed => console.note(format!(
            "{}: an earlier run was stopped before it changed the disk; its unfinished journal was removed",
            path.display()
        )),
        Recovery::RolledBack => console.note(format!(
            "{}: an earlier change in place was stopped half-way; the old bytes were put back",
            path.display()
        )),
    }
    Ok((disk, store))
}

fn journal_failure(error: JournalError, store: &Beside) -> Failure {
    Failure::from(error).context(store.path().display())
}

impl Classify for JournalError {
    fn exit(&self) -> Exit {
        match self {
            Self::Journal { .. } | Self::Read { .. } | Self::PutBack { .. } | Self::Broken { .. } => {
                Exit::Failed
            }
            Self::Patch(error) => error.exit(),
            _ => Exit::Refused,
        }
    }
}

impl Classify for InPlaceError {
    fn exit(&self) -> Exit {
        match self {
            Self::Open(_) | Self::Qcow2(NotInPlace::Read(_)) => Exit::Failed,
            Self::Disk(error) => error.exit(),
            _ => Exit::Refused,
        }
    }
}
