//! From the anchor to the root directory (ECMA-167 3/8.4.2, 3/10, 4/14.1).

use super::super::block::Block;
use super::super::{DiscError, SECTOR};
use super::{Icb, Partition, Tag, Udf, read_tagged};
use crate::io::ReadAt;

/// Descriptors of a volume that are looked at; real volumes have about six.
const MAX_DESCRIPTORS: u32 = 256;
/// Partition maps of a volume; optical media have one or two.
const MAX_MAPS: u32 = 16;
/// The sector of the first anchor.
const ANCHOR: u64 = 256;

/// Descriptors, as far as they matter.
#[derive(Default)]
struct Found {
    /// Number and place.
    partitions: Vec<(u16, Partition)>,
    logical_volume: Option<Block>,
}

/// Opens the volume by the first anchor, and the first of its two sequences, that is whole.
pub(super) fn open(source: &dyn ReadAt) -> Result<Udf, DiscError> {
    let sectors = source.size() / SECTOR;
    let places = [Some(ANCHOR), sectors.checked_sub(1), sectors.checked_sub(1 + ANCHOR)];
    let mut first_error = None;
    for sector in places.into_iter().flatten() {
        match anchored(source, sector) {
            Ok(udf) => return Ok(udf),
            // What the usual place says is what is told.
            Err(e) => first_error = first_error.or(Some(e)),
        }
    }
    Err(first_error.unwrap_or(DiscError::NotADisc))
}

fn anchored(source: &dyn ReadAt, sector: u64) -> Result<Udf, DiscError> {
    let Ok(location) = u32::try_from(sector) else { return Err(DiscError::NotADisc) };
    let (tag, anchor) = read_tagged(source, sector * SECTOR, location, "UDF anchor")?;
    if tag != Tag::Anchor {
        return Err(anchor.damaged(0, "this is another structure"));
    }
    // The main sequence's extent, then that of its copy.
    let main = sequence(source, anchor.u32(16)?, anchor.u32(20)?);
    let found = match main {
        Ok(found) => found,
        Err(e) => sequence(source, anchor.u32(24)?, anchor.u32(28)?).map_err(|_| e)?,
    };
    volume(source, found)
}

/// Reads a volume descriptor sequence: `length` bytes from sector `first`, and where its pointers lead.
fn sequence(source: &dyn ReadAt, length: u32, first: u32) -> Result<Found, DiscError> {
    let mut found = Found::default();
    let (mut sector, mut left) = (first, length / SECTOR as u32);
    for _ in 0..MAX_DESCRIPTORS {
        if left == 0 {
            break;
        }
        let (tag, block) = read_tagged(source, u64::from(sector) * SECTOR, sector, "UDF volume descriptor")?;
        (sector, left) = (sector.saturating_add(1), left - 1);
        match tag {
            Tag::Terminator => break,
            Tag::VolumePointer => (left, sector) = (block.u32(20)? / SECTOR as u32, block.u32(24)?),
            Tag::Partition => {
                let number = block.u16(22)?;
                let [start, length] = [block.u32(188)?, block.u32(192)?].map(|n| u64::from(n) * SECTOR);
                found.partitions.push((number, Partition { start, length }));
            }
            Tag::LogicalVolume => found.logical_volume = Some(block),
            _ => {}
        }
    }
    if found.logical_volume.is_none() {
        let (what, offset) = ("UDF volume descriptors", u64::from(first) * SECTOR);
        return Err(DiscError::Damaged { what, offset, why: "no logical volume is among them" });
    }
    Ok(found)
}

fn volume(source: &dyn ReadAt, found: Found) -> Result<Udf, DiscError> {
    let Some(volume) = found.logical_volume else { return Err(DiscError::NotADisc) };
    if u64::from(volume.u32(212)?) != SECTOR {
        return Err(volume.unsupported(212, "its blocks have another size than 2048 bytes"));
    }
    let maps = volume.u32(268)?;
    if maps > MAX_MAPS {
        return Err(volume.damaged(268, "it has more partition maps than any disc"));
    }
    let mut partitions = Vec::new();
    let mut at = 440;
    for _ in 0..maps {
        let (kind, length) = (volume.u8(at)?, usize::from(volume.u8(at + 1)?));
        if length < 6 {
            return Err(volume.damaged(at + 1, "a partition map is too short"));
        }
        // Type 1 names a partition by its number; type 2 are UDF's virtual, sparable and metadata partitions.
        let number = (kind == 1).then(|| volume.u16(at + 4)).transpose()?;
        let partition = number.and_then(|number| found.partitions.iter().find(|(other, _)| *other == number));
        partitions.push(partition.map(|(_, partition)| *partition));
        at += length;
    }
    let set = Icb::read(&volume, 248)?;
    let mut udf = Udf { partitions, root: set };
    let offset = udf.locate(&volume, 248, set.partition, set.block, SECTOR)?;
    let (tag, set) = read_tagged(source, offset, set.block, "UDF file set")?;
    if tag != Tag::FileSet {
        return Err(set.damaged(0, "this is another structure"));
    }
    udf.root = Icb::read(&set, 400)?;
    Ok(udf)
}
