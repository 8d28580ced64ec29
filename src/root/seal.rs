//! The patch that seals a root: its cached answer files are gone, its first boot points at the answer CD or nowhere.

use serde::Serialize;

use super::answer_files;
use super::examine::{Examination, SETUP, UNATTEND_FILE, examine_volume, in_hive};
use super::scrub::scrub;
use super::windows_volume::{SYSTEM, WindowsVolume};
use super::{Refusal, RootError};
use crate::hive::{Editor, Hive, PageCache};
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
    /// No pointer: cloudbase-init does it, or nothing does.
    NoPointer,
}

impl FirstBoot {
    /// The value `UnattendFile` is to have.
    pub fn pointer(&self) -> Option<String> {
        match self {
            Self::AnswerCd { drive } => Some(format!("{}:\\autounattend.xml", drive.to_ascii_uppercase())),
            Self::NoPointer => None,
        }
    }
}

/// A root as it was found, and the patch that seals it.
#[derive(Debug)]
pub struct Sealed {
    /// What was found.
    pub examination: Examination,
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
    /// Cached answer files that are zeroed and removed, by path.
    pub answer_files_scrubbed: Vec<String>,
    /// Cached answer files whose bytes are zeroed but whose names stay, empty, by path.
    pub answer_files_emptied: Vec<String>,
}

/// Examines `disk` and works out the patch; refuses a root in any unfit state.
///
/// A password in a cached answer file is no such state: the file does not get into the sealed root.
pub fn seal(disk: &dyn ReadAt, first_boot: &FirstBoot) -> Result<Sealed, RootError> {
    let windows = WindowsVolume::find(disk)?;
    let cached = answer_files::find(disk, &windows)?;
    let files = cached.files.clone();
    let mut examination = examine_volume(disk, &windows, cached)?;
    examination.refusals.retain(|refusal| !matches!(refusal, Refusal::Password { .. }));
    let examination = examination.fit()?;
    let mut draft = Draft::new(disk);
    let scrubbed = scrub(&mut draft, &windows.table, &files)?;
    point(&mut draft, &windows, first_boot)?;
    let patch = draft.into_patch()?;
    let report = SealReport {
        virtual_size: disk.size(),
        pointer: first_boot.pointer(),
        previous_pointer: examination.facts.pointer.clone(),
        changed_bytes: patch.changed_bytes(),
        changed_places: patch.edits().count() as u64,
        answer_files_scrubbed: scrubbed.removed,
        answer_files_emptied: scrubbed.emptied,
    };
    Ok(Sealed { examination, patch, report })
}

/// Sets the pointer in the SYSTEM hive, or takes it away.
fn point(
    draft: &mut Draft<&dyn ReadAt>,
    windows: &WindowsVolume<'_>,
    first_boot: &FirstBoot,
) -> Result<(), RootError> {
    let file = windows.needed_file(SYSTEM)?;
    let hive = Hive::open(PageCache::new(&file)).map_err(in_hive(SYSTEM))?;
    let mut editor = Editor::new(&hive).map_err(in_hive(SYSTEM))?;
    match first_boot.pointer() {
        Some(pointer) => editor.set_string(SETUP, UNATTEND_FILE, &pointer),
        None => editor.remove(SETUP, UNATTEND_FILE).map(drop),
    }
    .map_err(in_hive(SYSTEM))?;
    for edit in editor.finish().map_err(in_hive(SYSTEM))? {
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
