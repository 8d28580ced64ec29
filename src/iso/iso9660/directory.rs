//! A directory's records, joined to files.

use super::super::block::Block;
use super::super::{DiscError, Kind, SECTOR, Tree};
use super::record::Record;
use super::{Content, Iso9660, MAX_DIRECTORY, names, rock_ridge};
use crate::io::ReadAt;

/// The entries of a directory, without those of itself and its parent.
pub(super) fn list(
    iso: &Iso9660,
    source: &dyn ReadAt,
    directory: &Content,
) -> Result<Vec<(String, Kind, Content)>, DiscError> {
    let block = read(source, directory)?;
    let mut entries: Vec<(String, Kind, Content)> = Vec::new();
    // The file whose next extent the next record has.
    let mut unfinished: Option<(String, Kind, Content)> = None;
    let mut at = 0;
    while at < block.bytes().len() {
        let sector_end = (at / SECTOR as usize + 1) * SECTOR as usize;
        let Some(record) = Record::read(&block, at)? else {
            at = sector_end;
            continue;
        };
        if at + record.length > sector_end {
            return Err(block.damaged(at, "it crosses the end of its sector"));
        }
        at += record.length;
        if matches!(record.name()?, [0 | 1]) {
            continue;
        }
        let Some((name, kind, content)) = entry(iso, source, &block, &record)? else { continue };
        let whole = match unfinished.take() {
            None => (name, kind, content),
            Some((first, kind, mut joined)) => {
                if first != name {
                    return Err(block.damaged(at, "a file's further extents have another name"));
                }
                if joined.extents.last().is_some_and(|last| last.length % SECTOR != 0) {
                    return Err(block.damaged(at, "an extent before the last is no multiple of a sector"));
                }
                joined.size += content.size;
                joined.extents.extend(content.extents);
                joined.unread = joined.unread.or(content.unread);
                (first, kind, joined)
            }
        };
        if record.goes_on()? {
            unfinished = Some(whole);
        } else {
            entries.push(whole);
        }
    }
    if unfinished.is_some() {
        return Err(block.damaged(0, "the last file in it lacks its last extent"));
    }
    Ok(entries)
}

/// All of a directory's bytes.
pub(super) fn read(source: &dyn ReadAt, directory: &Content) -> Result<Block, DiscError> {
    let what = "ISO 9660 directory record";
    let Some(offset) = directory.extents.first().and_then(|extent| extent.at) else {
        return Err(DiscError::Damaged { what, offset: directory.record, why: "it leads nowhere" });
    };
    if directory.size > MAX_DIRECTORY {
        let why = "the directory is larger than any";
        return Err(DiscError::Damaged { what, offset: directory.record, why });
    }
    Block::read(source, offset, directory.size as usize, what)
}

/// What one record says; `None` for one that stands for no entry of its own.
fn entry(
    iso: &Iso9660,
    source: &dyn ReadAt,
    block: &Block,
    record: &Record<'_>,
) -> Result<Option<(String, Kind, Content)>, DiscError> {
    let mut kind = if record.is_directory()? { Kind::Directory } else { Kind::File };
    let mut content = record.content()?;
    let mut name = None;
    if iso.tree == Tree::RockRidge {
        let rock_ridge = rock_ridge::read(source, block, record, iso.skip)?;
        // Shown where it was before directories were moved up for want of depth.
        if rock_ridge.relocated {
            return Ok(None);
        }
        if let Some(child) = rock_ridge.child {
            content = moved(source, child, record)?;
            kind = Kind::Directory;
        } else if let Some(other) = rock_ridge.kind {
            kind = other;
        }
        content.unread = content.unread.or(rock_ridge.unread);
        name = rock_ridge.name;
    }
    if kind == Kind::Symlink {
        content.unread = Some("it is a symbolic link");
    }
    let name = match name {
        Some(name) => name,
        None => names::decode(record.name()?, iso.tree)
            .ok_or_else(|| block.damaged(0, "a record's name is empty"))?,
    };
    Ok(Some((name, kind, content)))
}

/// The directory that was moved to block `child`: its first record is of itself.
fn moved(source: &dyn ReadAt, child: u32, from: &Record<'_>) -> Result<Content, DiscError> {
    let block =
        Block::read(source, u64::from(child) * SECTOR, SECTOR as usize, "Rock Ridge relocated directory")?;
    match Record::read(&block, 0)? {
        Some(own) if own.name()? == [0] && own.is_directory()? => {
            Ok(Content { record: from.offset(), ..own.content()? })
        }
        _ => Err(block.damaged(0, "it does not begin with itself")),
    }
}
