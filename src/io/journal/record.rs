//! What a journal's file holds.
//!
//! | bytes | what |
//! |---|---|
//! | 0..16 | [`MAGIC`] |
//! | 16..24 | length of the payload, little-endian |
//! | 24..56 | SHA-256 of the payload |
//! | 56..88 | SHA-256 of `committed` and the 32 bytes before: the change is whole. Anything else: it is not |
//! | 88.. | the payload: the patch as JSON, with the disk's size |

use sha2::{Digest, Sha256};

use super::{JournalError, State};
use crate::io::Patch;

const MAGIC: &[u8; 16] = b"sealroot-undo-1\n";
const DIGEST: usize = 24;
/// Where the mark is.
pub(super) const MARK: usize = 56;
/// Bytes before the payload.
pub(super) const HEADER: usize = 88;

fn mark(digest: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(b"committed").chain_update(digest).finalize().into()
}

/// A journal without mark.
pub(super) fn encode(patch: &Patch, disk_size: u64) -> Result<Vec<u8>, JournalError> {
    let payload = patch.to_json(disk_size).map_err(JournalError::Patch)?;
    let mut file = Vec::with_capacity(HEADER + payload.len());
    file.extend_from_slice(MAGIC);
    file.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    file.extend_from_slice(&Sha256::digest(&payload));
    file.resize(HEADER, 0);
    file.extend_from_slice(&payload);
    Ok(file)
}

/// The mark that says that the change is whole, for a journal that begins with `header`.
pub(super) fn commit_mark(header: &[u8]) -> [u8; 32] {
    mark(header.get(DIGEST..MARK).unwrap_or_default())
}

/// What a journal that begins so says of its disk.
pub(super) fn state(header: &[u8]) -> Result<State, JournalError> {
    let Some(header) = header.get(..HEADER).filter(|header| header.starts_with(MAGIC)) else {
        return Err(JournalError::Damaged { why: "it does not begin as a journal does".into() });
    };
    let committed = header[MARK..] == mark(&header[DIGEST..MARK]);
    Ok(if committed { State::Committed } else { State::Uncommitted })
}

/// The patch in a journal, for a disk of `disk_size` bytes.
pub(super) fn decode(file: &[u8], disk_size: u64) -> Result<Patch, JournalError> {
    state(file)?;
    let damaged = |why: &str| JournalError::Damaged { why: why.into() };
    let (header, payload) = file.split_at(HEADER);
    if header[MAGIC.len()..DIGEST] != (payload.len() as u64).to_le_bytes() {
        return Err(damaged("it is not as long as it says"));
    }
    if Sha256::digest(payload).as_slice() != &header[DIGEST..MARK] {
        return Err(damaged("its checksum is wrong"));
    }
    let patch = Patch::for_disk_size(payload, disk_size).map_err(JournalError::Patch)?;
    match patch.edits().last() {
        Some(last) if last.end() > disk_size => Err(damaged("it reaches past the end of the disk")),
        _ => Ok(patch),
    }
}
