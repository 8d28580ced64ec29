//! Walking a volume's folders, within bounds.

use std::collections::HashSet;

use crate::io::ReadAt;
use crate::ntfs::{Entry, NtfsError, Volume};

/// Windows' own trees that are walked have some dozens of folders; more than this are made up.
const MAX_FOLDERS: usize = 1 << 14;
/// In bytes; NTFS' own limit is as many UTF-16 units.
const MAX_PATH: usize = 32_767;

/// Calls `visit` with the path of every file in the folder at `start`, and with `below` in all folders below it.
///
/// Reparse points are not followed. A folder that is missing, or is one itself, has no files.
pub fn walk<R: ReadAt>(
    volume: &Volume<R>,
    start: &str,
    below: bool,
    visit: &mut dyn FnMut(String, &Entry),
) -> Result<(), NtfsError> {
    let entries = match volume.list(start) {
        Ok(Some(entries)) => entries,
        Ok(None) | Err(NtfsError::ReparsePoint { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    // Folders that were met: a damaged volume may have one within itself.
    let mut met = HashSet::new();
    let mut waiting = Vec::new();
    let mut folder = Some((start.to_owned(), entries));
    while let Some((path, entries)) = folder.take() {
        for entry in entries {
            let within = if path.is_empty() { entry.name.clone() } else { format!("{path}\\{}", entry.name) };
            if !entry.is_directory {
                visit(within, &entry);
                continue;
            }
            if !below || entry.is_reparse_point || !met.insert(entry.file) {
                continue;
            }
            if met.len() > MAX_FOLDERS || within.len() > MAX_PATH {
                let why = "its folder is one of more, or lies deeper, than any Windows makes";
                return Err(NtfsError::DamagedFile { record: entry.file.record, why });
            }
            waiting.push((within, entry.file));
        }
        if let Some((path, reference)) = waiting.pop() {
            folder = Some((path, volume.list_by_reference(reference)?));
        }
    }
    Ok(())
}
