//! One partition: may its free clusters be left out, and if not, why.

use serde::Serialize;

use crate::disk::partitions::Partition;
use crate::io::{ReadAt, Window};
use crate::ntfs::{Extent, NtfsError, Probe, Volume, probe};

use super::KeepError;
use super::pieces::Pieces;
use super::records::Records;
use super::trimmed::Trimmed;

/// Files in a volume's root whose content Windows makes anew.
const DROPPED: [&str; 3] = ["pagefile.sys", "swapfile.sys", "hiberfil.sys"];

/// A file in more pieces than this is no page file; the list of them is held in memory.
const MOST_EXTENTS: usize = 1 << 16;

/// What is left out of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Shipping {
    /// What NTFS says is in use, less the content of some files.
    InUse {
        /// Bytes that are left out: in free clusters, and in the files.
        left_out: u64,
        /// The files whose content is left out, and its bytes.
        files: Vec<(&'static str, u64)>,
    },
    /// All but clusters of zeros.
    Whole {
        /// Why nothing more can be left out.
        why: String,
    },
}

/// What was found of a partition.
pub(super) enum Found {
    Trimmed(Box<Trimmed>, Vec<(&'static str, u64)>),
    Whole(String),
}

/// Looks at a partition. A volume that can't be understood is shipped whole; only a disk that can't be read is an
/// error.
pub(super) fn look(disk: &dyn ReadAt, partition: &Partition) -> Result<Found, KeepError> {
    let Some(window) = partition.window(disk) else {
        return Ok(Found::Whole("it reaches past the end of the disk".into()));
    };
    match judge(disk, &window) {
        Ok(found) => Ok(found),
        Err(NtfsError::Read { source, .. }) => Err(KeepError::Read(source)),
        Err(e) => Ok(Found::Whole(e.to_string())),
    }
}

fn judge(disk: &dyn ReadAt, partition: &Window<&dyn ReadAt>) -> Result<Found, NtfsError> {
    let whole = |why: &str| Ok(Found::Whole(why.into()));
    match probe(partition)? {
        Probe::Ntfs => {}
        Probe::BitLocker => return whole("it is encrypted with BitLocker"),
        Probe::Other => return whole("it is no NTFS volume"),
    }
    let start = partition.start();
    let volume = Volume::open(partition)?;
    let state = volume.state()?;
    if !state.is_trimmable() {
        let reasons: Vec<String> = state.reasons.iter().map(ToString::to_string).collect();
        return whole(&reasons.join("; "));
    }
    let bitmap = volume.bitmap()?;
    let Some(map) = Pieces::of(&bitmap.extents(), start) else {
        return whole("its $Bitmap has holes");
    };
    if bitmap.initialized_size() < volume.clusters().div_ceil(8) {
        return whole("its $Bitmap was never written to its end");
    }
    let mut dropped = Vec::new();
    let mut files = Vec::new();
    for name in DROPPED {
        let Some(extents) = content(&volume, name)? else { continue };
        if extents.len() > MOST_EXTENTS {
            return whole(&format!("its {name} lies in {} pieces", extents.len()));
        }
        let size = volume.cluster_size();
        let runs = extents.iter().filter_map(|extent| Some((extent.volume_offset?, extent.length)));
        dropped.extend(runs.clone().map(|(at, length)| at / size..(at + length) / size));
        files.push((name, runs.map(|(_, length)| length).sum()));
    }
    let sane = Trimmed::new(start, volume.cluster_size(), volume.clusters(), map.clone(), dropped);
    let Some(trimmed) = sane else {
        return whole("its $Bitmap is too short");
    };
    // A map that calls itself free is not to be believed in anything else either.
    let first_cluster = start..start + 1;
    for own in map.iter().map(|(_, piece)| piece.bytes()).chain([first_cluster]) {
        let offset = own.start;
        if !trimmed.in_use(disk, own).map_err(|source| NtfsError::Read { offset, source })? {
            return whole("its $Bitmap calls clusters free that can't be");
        }
    }
    // Nor one that contradicts the files: what it misses would be lost.
    if let Some(contradiction) = volume.contradiction()? {
        return whole(&contradiction.to_string());
    }
    let Some(records) = Records::of(&volume, start)? else {
        return whole("its file records, or their bitmap, have no places of their own");
    };
    Ok(Found::Trimmed(Box::new(trimmed.with_records(records)), files))
}

/// The clusters of a file in the root, where it is one whose clusters hold its content and nothing else.
///
/// One that has another name besides (a hard link) is somebody's file, and not Windows' own.
fn content(volume: &Volume<&Window<&dyn ReadAt>>, name: &str) -> Result<Option<Vec<Extent>>, NtfsError> {
    match volume.file(name) {
        Ok(Some(file)) => Ok((file.check_plain().is_ok() && file.names() == 1).then(|| file.extents())),
        Ok(None) | Err(NtfsError::IsDirectory { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}
