//! The patch that seals a root: its first boot points at the answer CD, or at nothing.

use serde::Serialize;

use super::RootError;
use super::examine::{Examination, SETUP, UNATTEND_FILE, examine_volume, in_hive};
use super::windows_volume::{SYSTEM, WindowsVolume};
use crate::hive::{Editor, Hive, PageCache};
use crate::io::{Patch, ReadAt};

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
    /// Cached answer files that stay in the root, by path.
    pub answer_files: Vec<String>,
}

/// Examines `disk` and works out the patch; refuses a root in any unfit state.
pub fn seal(disk: &dyn ReadAt, first_boot: &FirstBoot) -> Result<Sealed, RootError> {
    let windows = WindowsVolume::find(disk)?;
    let examination = examine_volume(disk, &windows)?.fit()?;
    let file = windows.needed_file(SYSTEM)?;
    let hive = Hive::open(PageCache::new(&file)).map_err(in_hive(SYSTEM))?;
    let mut editor = Editor::new(&hive).map_err(in_hive(SYSTEM))?;
    match first_boot.pointer() {
        Some(pointer) => editor.set_string(SETUP, UNATTEND_FILE, &pointer),
        None => editor.remove(SETUP, UNATTEND_FILE).map(drop),
    }
    .map_err(in_hive(SYSTEM))?;
    let mut patch = Patch::new();
    for edit in editor.finish().map_err(in_hive(SYSTEM))? {
        let mut new = edit.bytes.as_slice();
        let pieces = file.map(edit.offset, new.len() as u64).map_err(|source| windows.ntfs_error(source))?;
        for piece in pieces {
            // The pieces make up the range asked for, so none is longer than what is left.
            let (here, rest) = new.split_at(piece.length as usize);
            patch.replace(disk, windows.partition.start + piece.volume_offset, here)?;
            new = rest;
        }
    }
    let report = SealReport {
        virtual_size: disk.size(),
        pointer: first_boot.pointer(),
        previous_pointer: examination.facts.pointer.clone(),
        changed_bytes: patch.changed_bytes(),
        changed_places: patch.edits().count() as u64,
        answer_files: examination.facts.answer_files.clone(),
    };
    Ok(Sealed { examination, patch, report })
}
