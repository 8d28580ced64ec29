//! Volume descriptors (ECMA-119 8.4 and 8.5), and which tree they lead to.

use super::super::block::Block;
use super::super::{DiscError, FIRST_DESCRIPTOR, SECTOR, Tree};
use super::record::Record;
use super::{Iso9660, rock_ridge};
use crate::io::ReadAt;

/// Descriptors that are looked at; real images have fewer than ten.
const MAX_DESCRIPTORS: u64 = 64;
/// Joliet's escape sequences: UCS-2 of levels 1, 2 and 3.
const JOLIET: [&[u8]; 3] = [b"%/@", b"%/C", b"%/E"];

/// Opens the volume by the best of its trees.
pub(super) fn open(source: &dyn ReadAt) -> Result<Iso9660, DiscError> {
    let (mut primary, mut joliet, mut enhanced) = (None, None, None);
    for index in 0..MAX_DESCRIPTORS {
        let offset = FIRST_DESCRIPTOR + index * SECTOR;
        let block = Block::read(source, offset, SECTOR as usize, "ISO 9660 volume descriptor")?;
        if block.slice(1, 5)? != b"CD001" {
            break;
        }
        match (block.u8(0)?, block.u8(6)?) {
            (1, _) => primary = primary.or(Some(block)),
            (2, 2) => enhanced = enhanced.or(Some(block)),
            (2, _) if JOLIET.contains(&block.slice(88, 3)?) => joliet = joliet.or(Some(block)),
            (255, _) => break,
            _ => {}
        }
    }
    let Some(primary) = primary else { return Err(DiscError::NotADisc) };
    let volume = tree(&primary, Tree::Plain)?;
    // Rock Ridge begins in the primary tree's root, in the entry of itself.
    if let Some(skip) = rock_ridge::begins(source, &volume.root)? {
        return Ok(Iso9660 { tree: Tree::RockRidge, skip, ..volume });
    }
    match (joliet, enhanced) {
        (Some(joliet), _) => tree(&joliet, Tree::Joliet),
        (None, Some(enhanced)) => tree(&enhanced, Tree::Enhanced),
        (None, None) => Ok(volume),
    }
}

fn tree(descriptor: &Block, tree: Tree) -> Result<Iso9660, DiscError> {
    if u64::from(descriptor.u16(128)?) != SECTOR {
        return Err(descriptor.unsupported(128, "its blocks have another size than 2048 bytes"));
    }
    let Some(root) = Record::read(descriptor, 156)? else {
        return Err(descriptor.damaged(156, "it has no root directory"));
    };
    Ok(Iso9660 { tree, root: root.content()?, skip: 0 })
}
