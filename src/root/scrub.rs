//! Cached answer files taken out of a root, so that not even their bytes are published.

use std::collections::BTreeMap;

use super::RootError;
use super::answer_files::AnswerFile;
use crate::disk::partitions::PartitionTable;
use crate::io::{Draft, PatchError, ReadAt};
use crate::ntfs::unlink;

/// What became of the files, by path.
#[derive(Debug, Default)]
pub struct Scrubbed {
    /// Zeroed and unlinked.
    pub removed: Vec<String>,
    /// Zeroed, but the names stay.
    pub emptied: Vec<String>,
    /// Other names that went with them.
    pub other_names: Vec<String>,
}

/// Removes the files from the disk as `draft` has it, one after the other: they share directories and bitmaps.
pub fn scrub(
    draft: &mut Draft<&dyn ReadAt>,
    table: &PartitionTable,
    files: &[AnswerFile],
) -> Result<Scrubbed, RootError> {
    // Hard links of one file are unlinked together.
    let mut paths: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for file in files {
        paths.entry((file.partition, file.file)).or_default().push(&file.path);
    }
    let mut scrubbed = Scrubbed::default();
    for ((number, file), paths) in paths {
        let Some(partition) = table.partitions.iter().find(|partition| partition.number == number) else {
            continue;
        };
        let unlinked = {
            // The table's reader has checked that every partition lies on the disk.
            let Some(bytes) = partition.window(&*draft) else { continue };
            unlink(&bytes, file)
                .map_err(|source| RootError::AnswerFile { path: paths.join(", \\"), source })?
        };
        for change in unlinked.changes {
            let offset = partition.start + change.offset;
            draft.write(offset, &change.bytes).map_err(|source| PatchError::Read { offset, source })?;
        }
        if unlinked.names.len() > paths.len() {
            // Of a name that was searched for there is a path already.
            let ends = |name: &str, path: &str| path.rsplit('\\').next() == Some(name);
            let others = unlinked.names.into_iter().filter(|name| !paths.iter().any(|path| ends(name, path)));
            scrubbed.other_names.extend(others.map(|name| format!("{name} (a hard link of {})", paths[0])));
        }
        let into = if unlinked.emptied.is_some() { &mut scrubbed.emptied } else { &mut scrubbed.removed };
        into.extend(paths.into_iter().map(str::to_owned));
    }
    scrubbed.removed.sort();
    scrubbed.emptied.sort();
    Ok(scrubbed)
}
