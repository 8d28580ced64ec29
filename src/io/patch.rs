//! A patch: what sealing would change on a disk, as bytes, before anything is changed.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::ReadAt;

/// One run of bytes to replace. They may be secrets: `Debug` shows none.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// Where on the disk, in bytes.
    pub offset: u64,
    /// What is there now.
    #[serde(with = "hex::serde")]
    pub old: Vec<u8>,
    /// What is to be there, as long as `old`.
    #[serde(with = "hex::serde")]
    pub new: Vec<u8>,
}

impl fmt::Debug for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Edit {{ {} bytes at {} }}", self.old.len(), self.offset)
    }
}

impl Edit {
    /// The first offset past this edit.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.old.len() as u64)
    }
}

/// Edits of one disk: sorted by offset, never overlapping, never empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patch {
    edits: BTreeMap<u64, Edit>,
}

/// Why a patch can't be made, read or used.
#[derive(Debug, Error)]
pub enum PatchError {
    /// The disk could not be read.
    #[error("the disk could not be read at offset {offset}")]
    Read {
        /// Where, in bytes.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// The disk does not hold what the patch was made from.
    #[error("the disk differs at offset {offset} from the one this patch was made for")]
    Differs {
        /// The first edit that does not fit, in bytes.
        offset: u64,
    },
    /// An edit that can't be part of any patch.
    #[error("edit at offset {offset}: {why}")]
    Malformed {
        /// The edit's place, in bytes.
        offset: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Two edits want the same bytes.
    #[error("edits overlap at offset {offset}")]
    Overlap {
        /// The later edit's place, in bytes.
        offset: u64,
    },
    /// The patch was made for a disk of another size.
    #[error("the patch is for a disk of {expected} bytes, this one has {found}")]
    Size {
        /// The size the patch names.
        expected: u64,
        /// The size of the disk at hand.
        found: u64,
    },
    /// Not a patch file, or of an unknown version.
    #[error("not a sealroot patch file: {why}")]
    Format {
        /// What was expected.
        why: String,
    },
}

/// The saved form. The size guards against the wrong disk before a byte is read.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    format: String,
    disk_size: u64,
    edits: Vec<Edit>,
}

const FORMAT: &str = "sealroot-patch-1";

impl Patch {
    /// A patch that changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the replacement of the bytes at `offset` by `new`, reading what is there from `disk` (unpatched).
    ///
    /// Bytes that stay the same are left out, at either end.
    pub fn replace(&mut self, disk: &dyn ReadAt, offset: u64, new: &[u8]) -> Result<(), PatchError> {
        let mut old = vec![0; new.len()];
        disk.read_exact_at(&mut old, offset).map_err(|source| PatchError::Read { offset, source })?;
        let Some(first) = old.iter().zip(new).position(|(a, b)| a != b) else {
            return Ok(());
        };
        let last = old.iter().zip(new).rposition(|(a, b)| a != b).unwrap_or(first);
        self.insert(Edit {
            offset: offset + first as u64,
            old: old[first..=last].to_vec(),
            new: new[first..=last].to_vec(),
        })
    }

    /// Adds one edit; it must not overlap another.
    pub fn insert(&mut self, edit: Edit) -> Result<(), PatchError> {
        let offset = edit.offset;
        let malformed = |why| Err(PatchError::Malformed { offset, why });
        if edit.old.len() != edit.new.len() {
            return malformed("old and new bytes differ in length");
        }
        if edit.old.is_empty() {
            return malformed("no bytes");
        }
        if offset.checked_add(edit.old.len() as u64).is_none() {
            return malformed("past the end of any disk");
        }
        let before = self.edits.range(..=offset).next_back();
        let after = self.edits.range(offset..).next();
        if before.is_some_and(|(_, e)| e.end() > offset)
            || after.is_some_and(|(start, _)| *start < edit.end())
        {
            return Err(PatchError::Overlap { offset });
        }
        self.edits.insert(offset, edit);
        Ok(())
    }

    /// The edits in order of offset.
    pub fn edits(&self) -> impl Iterator<Item = &Edit> {
        self.edits.values()
    }

    /// The edits that touch `start..end`, in order.
    pub fn edits_in(&self, start: u64, end: u64) -> impl Iterator<Item = &Edit> {
        let from = match self.edits.range(..start).next_back() {
            Some((offset, edit)) if edit.end() > start => *offset,
            _ => start,
        };
        self.edits.range(from..end.max(from)).map(|(_, edit)| edit)
    }

    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// How many bytes are replaced.
    pub fn changed_bytes(&self) -> u64 {
        self.edits().map(|edit| edit.new.len() as u64).sum()
    }

    /// Checks that `disk` holds the old bytes of every edit.
    pub fn check(&self, disk: &dyn ReadAt) -> Result<(), PatchError> {
        for edit in self.edits() {
            let mut found = vec![0; edit.old.len()];
            disk.read_exact_at(&mut found, edit.offset)
                .map_err(|source| PatchError::Read { offset: edit.offset, source })?;
            if found != edit.old {
                return Err(PatchError::Differs { offset: edit.offset });
            }
        }
        Ok(())
    }

    /// The saved form (JSON), for a disk of `disk_size` bytes.
    pub fn to_json(&self, disk_size: u64) -> Result<Vec<u8>, PatchError> {
        let saved = Saved { format: FORMAT.into(), disk_size, edits: self.edits().cloned().collect() };
        let mut json =
            serde_json::to_vec_pretty(&saved).map_err(|e| PatchError::Format { why: e.to_string() })?;
        json.push(b'\n');
        Ok(json)
    }

    /// Reads the saved form and checks it against `disk`: its size, then every old byte.
    pub fn from_json(json: &[u8], disk: &dyn ReadAt) -> Result<Self, PatchError> {
        let patch = Self::for_disk_size(json, disk.size())?;
        patch.check(disk)?;
        Ok(patch)
    }

    /// Reads the saved form for a disk of `disk_size` bytes, whatever that holds.
    pub(super) fn for_disk_size(json: &[u8], disk_size: u64) -> Result<Self, PatchError> {
        let saved: Saved =
            serde_json::from_slice(json).map_err(|e| PatchError::Format { why: e.to_string() })?;
        if saved.format != FORMAT {
            return Err(PatchError::Format {
                why: format!("its format is {:?}, not {FORMAT:?}", saved.format),
            });
        }
        if saved.disk_size != disk_size {
            return Err(PatchError::Size { expected: saved.disk_size, found: disk_size });
        }
        let mut patch = Self::new();
        for edit in saved.edits {
            patch.insert(edit)?;
        }
        Ok(patch)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_what_differs_is_kept() {
        let disk = b"0123456789".to_vec();
        let mut patch = Patch::new();
        patch.replace(&disk, 2, b"2x4y6").unwrap();
        let edits: Vec<_> = patch.edits().cloned().collect();
        assert_eq!(edits, [Edit { offset: 3, old: b"345".to_vec(), new: b"x4y".to_vec() }]);
        patch.replace(&disk, 0, b"01").unwrap();
        assert_eq!(patch.changed_bytes(), 3);
    }

    #[test]
    fn overlaps_and_malformed_edits_are_refused() {
        let edit = |offset, len| Edit { offset, old: vec![0; len], new: vec![1; len] };
        let mut patch = Patch::new();
        patch.insert(edit(10, 10)).unwrap();
        for bad in [edit(10, 1), edit(19, 1), edit(5, 6), edit(0, 30)] {
            assert!(matches!(patch.insert(bad), Err(PatchError::Overlap { .. })));
        }
        patch.insert(edit(20, 1)).unwrap();
        patch.insert(edit(9, 1)).unwrap();
        assert!(patch.insert(edit(50, 0)).is_err());
        assert!(patch.insert(Edit { offset: 60, old: vec![0], new: vec![] }).is_err());
        assert!(patch.insert(edit(u64::MAX, 2)).is_err());
        let touched: Vec<_> = patch.edits_in(15, 21).map(|e| e.offset).collect();
        assert_eq!(touched, [10, 20]);
    }

    #[test]
    fn a_saved_patch_fits_only_its_disk() {
        let disk = b"0123456789".to_vec();
        let mut patch = Patch::new();
        patch.replace(&disk, 4, b"AB").unwrap();
        let json = patch.to_json(disk.size()).unwrap();
        assert_eq!(Patch::from_json(&json, &disk).unwrap(), patch);
        assert!(matches!(Patch::from_json(&json, &b"01234".to_vec()), Err(PatchError::Size { .. })));
        assert!(matches!(
            Patch::from_json(&json, &b"0123x56789".to_vec()),
            Err(PatchError::Differs { offset: 4 })
        ));
        assert!(matches!(Patch::from_json(b"{}", &disk), Err(PatchError::Format { .. })));
    }
}
