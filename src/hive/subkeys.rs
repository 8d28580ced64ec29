//! Lists of subkeys: `li`, `lf` and `lh`, or an `ri` list of those.

use super::hive_file::{Cell, NIL, half, word, words};
use super::{Hive, HiveError};
use crate::io::ReadAt;

/// The least a key takes: a size field, the fixed part of an `nk`, and a name of one byte, rounded up to 8.
const SMALLEST_KEY: u32 = 88;

/// One entry of a list.
pub(super) struct Entry {
    /// The cell of the key.
    pub offset: u32,
    /// The hash of its name, in lists of type `lh`.
    pub hash: Option<u32>,
}

/// The entries of the list at `list`, for the key in `parent`, which counts `count` subkeys.
pub(super) fn read<R: ReadAt>(
    hive: &Hive<R>,
    parent: Cell,
    count: u32,
    list: u32,
) -> Result<Vec<Entry>, HiveError> {
    let mut entries = Vec::new();
    if count == 0 || list == NIL {
        return Ok(entries);
    }
    let cell = hive.cell("subkey list", list)?;
    let head: [u8; 4] = hive.fixed("subkey list", cell, 0)?;
    if &head[..2] == b"ri" {
        let leaves = hive.bytes("ri", cell, 4, u32::from(half(&head, 2)) * 4)?;
        for leaf in words(&leaves) {
            // A leaf is never an `ri` again, so this goes no deeper.
            read_leaf(hive, parent, leaf, &mut entries)?;
        }
    } else {
        read_leaf(hive, parent, list, &mut entries)?;
    }
    Ok(entries)
}

fn read_leaf<R: ReadAt>(
    hive: &Hive<R>,
    parent: Cell,
    list: u32,
    entries: &mut Vec<Entry>,
) -> Result<(), HiveError> {
    let cell = hive.cell("subkey list", list)?;
    let head: [u8; 4] = hive.fixed("subkey list", cell, 0)?;
    let count = u32::from(half(&head, 2));
    let (structure, width) = match &head[..2] {
        b"li" => ("li", 4),
        b"lf" => ("lf", 8),
        b"lh" => ("lh", 8),
        other => {
            let why = format!("a list of subkeys can't begin with \"{}\"", other.escape_ascii());
            return Err(HiveError::cell("subkey list", list, why));
        }
    };
    // Leaves named twice could make more entries than the hive has keys.
    let most = (hive.base().bins_size() / SMALLEST_KEY) as usize;
    if entries.len() + count as usize > most {
        let why = format!("it lists more subkeys than the hive has room for ({most})");
        return Err(HiveError::cell("nk", parent.offset, why));
    }
    let bytes = hive.bytes(structure, cell, 4, count * width)?;
    entries.extend(
        bytes
            .chunks_exact(width as usize)
            .map(|entry| Entry { offset: word(entry, 0), hash: (structure == "lh").then(|| word(entry, 4)) }),
    );
    Ok(())
}
