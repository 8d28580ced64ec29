//! The patch that seals a root: its cached answer files are gone, its first boot points at the answer CD or nowhere.

use serde::Serialize;

use super::RootError;
use super::answer_files::AnswerFile;
use super::audit::{Findings, Policy, check_safety, refuse};
use super::facts::RootFacts;
use super::hives::{HiveFile, LogReplay, Replayed, RootHive};
use super::installation::{Installation, SETUP, UNATTEND_FILE};
use super::scrub::scrub;
use super::windows_volume::WindowsVolume;
use crate::io::{Draft, Patch, PatchError, ReadAt};

/// How a clone's first boot finds its answers (chosen, never assumed: a pointer to a missing file makes
/// Setup fail).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstBoot {
    /// Setup reads `DRIVE:\autounattend.xml`; a CD with that file must be there.
    AnswerCd {
        /// The CD's drive letter, `D` to `Z`.
        drive: char,
    },
    /// cloudbase-init does it: no pointer, and its own cached answer file stays.
    CloudbaseInit,
    /// Nothing does: no pointer, and somebody answers Windows' questions.
    Nothing,
}

impl FirstBoot {
    /// The value `UnattendFile` is to have.
    pub fn pointer(&self) -> Option<String> {
        match self {
            Self::AnswerCd { drive } => Some(format!("{}:\\autounattend.xml", drive.to_ascii_uppercase())),
            Self::CloudbaseInit | Self::Nothing => None,
        }
    }

    /// Whether sealing leaves this answer file where it is.
    pub(super) fn keeps(&self, file: &AnswerFile) -> bool {
        *self == Self::CloudbaseInit && file.runs_cloudbase_init && !file.holds_password
    }
}

/// A root as it was found, and the patch that seals it.
#[derive(Debug)]
pub struct Sealed {
    /// What the root said of itself before.
    pub facts: RootFacts,
    /// What sealing changes; empty when all is right already.
    pub patch: Patch,
    /// What sealing does, for people and evidence.
    pub report: SealReport,
}

/// What sealing does to a root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SealReport {
    /// Size of the disk as the guest sees it, in bytes.
    pub virtual_size: u64,
    /// The pointer the sealed root has.
    pub pointer: Option<String>,
    /// The pointer that was there before.
    pub previous_pointer: Option<String>,
    /// How many bytes of the disk change.
    pub changed_bytes: u64,
    /// How many separate places they are in.
    pub changed_places: u64,
    /// Log entries that are laid over the SYSTEM hive, if it was dirty.
    pub replayed: Option<Replayed>,
    /// Cached answer files that are zeroed and removed, by path.
    pub answer_files_scrubbed: Vec<String>,
    /// Cached answer files whose bytes are zeroed but whose names stay, empty, by path.
    pub answer_files_emptied: Vec<String>,
    /// Other names of those files, which went with them.
    pub other_names_removed: Vec<String>,
}

/// Works out the patch for the root on `disk`; refuses one in a state in which nothing may be done with it.
///
/// Whether the sealed root is fit to publish is for [`audit`](super::audit()) to say, of the disk with the patch.
pub fn seal(disk: &dyn ReadAt, first_boot: &FirstBoot, replay: LogReplay) -> Result<Sealed, RootError> {
    let windows = WindowsVolume::find(disk)?;
    let installation = Installation::open(&windows, replay)?;
    let facts = RootFacts::read(&installation)?;
    let policy = Policy::default();
    let mut findings = Findings::new(&policy);
    check_safety(&installation, &facts, &mut findings)?;
    refuse(&findings.finish())?;
    let cached = installation.cached.files.iter();
    // What can't be edited stays, and is for the audit of the sealed root to judge.
    let files: Vec<_> = cached.filter(|file| file.editable && !first_boot.keeps(file)).cloned().collect();
    refuse_hives(&windows, &files)?;
    let replayed = installation.system.replayed();
    let mut draft = Draft::new(disk);
    let scrubbed = scrub(&mut draft, &windows.table, &files)?;
    point(&mut draft, &windows, installation.system, first_boot)?;
    let patch = draft.into_patch()?;
    let report = SealReport {
        virtual_size: disk.size(),
        pointer: first_boot.pointer(),
        previous_pointer: facts.pointer.clone(),
        changed_bytes: patch.changed_bytes(),
        changed_places: patch.edits().count() as u64,
        replayed,
        answer_files_scrubbed: scrubbed.removed,
        answer_files_emptied: scrubbed.emptied,
        other_names_removed: scrubbed.other_names,
    };
    Ok(Sealed { facts, patch, report })
}

/// Files go under all their names, so none of them may be a hive's.
fn refuse_hives(windows: &WindowsVolume<'_>, files: &[AnswerFile]) -> Result<(), RootError> {
    for hive in HiveFile::ALL {
        let Some(reference) = windows.find_file(hive.path)?.map(|file| file.reference()) else { continue };
        let same = |file: &&AnswerFile| file.partition == windows.partition.number && file.file == reference;
        if let Some(linked) = files.iter().find(same) {
            return Err(RootError::LinkedHive { path: linked.path.clone() });
        }
    }
    Ok(())
}

/// Sets the pointer in the SYSTEM hive, or takes it away. What the hive's logs hold is written with it.
fn point(
    draft: &mut Draft<&dyn ReadAt>,
    windows: &WindowsVolume<'_>,
    system: RootHive<'_, '_>,
    first_boot: &FirstBoot,
) -> Result<(), RootError> {
    let failed = HiveFile::SYSTEM.error();
    let mut editor = system.into_editor()?;
    match first_boot.pointer() {
        Some(pointer) => editor.set_string(SETUP, UNATTEND_FILE, &pointer),
        None => editor.remove(SETUP, UNATTEND_FILE).map(drop),
    }
    .map_err(&failed)?;
    let file = windows.needed_file(HiveFile::SYSTEM.path)?;
    for edit in editor.finish().map_err(&failed)? {
        let mut new = edit.bytes.as_slice();
        let pieces = file.map(edit.offset, new.len() as u64).map_err(|source| windows.ntfs_error(source))?;
        for piece in pieces {
            // The pieces make up the range asked for, so none is longer than what is left.
            let (here, rest) = new.split_at(piece.length as usize);
            let offset = windows.partition.start + piece.volume_offset;
            draft.write(offset, here).map_err(|source| PatchError::Read { offset, source })?;
            new = rest;
        }
    }
    Ok(())
}
