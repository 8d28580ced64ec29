//! Directory records (ECMA-119 9.1).

use super::super::block::Block;
use super::super::extents::Extent;
use super::super::{DiscError, SECTOR};
use super::Content;

/// Bytes before the name.
const HEADER: usize = 33;

/// One directory record.
#[derive(Debug)]
pub(super) struct Record<'b> {
    block: &'b Block,
    at: usize,
    /// In bytes, padding and system use area included.
    pub length: usize,
    name: usize,
}

impl<'b> Record<'b> {
    /// The record at byte `at`; `None` where the sector holds no more.
    pub fn read(block: &'b Block, at: usize) -> Result<Option<Self>, DiscError> {
        let length = usize::from(block.u8(at)?);
        if length == 0 {
            return Ok(None);
        }
        let name = usize::from(block.u8(at + 32)?);
        if name == 0 || length < HEADER + name {
            return Err(block.damaged(at, "it is shorter than its name"));
        }
        block.slice(at, length)?;
        Ok(Some(Self { block, at, length, name }))
    }

    /// Where it stands in the image.
    pub fn offset(&self) -> u64 {
        self.block.offset(self.at)
    }

    /// Its name, as it is recorded: one byte of 0 for the directory itself, of 1 for its parent.
    pub fn name(&self) -> Result<&'b [u8], DiscError> {
        self.block.slice(self.at + HEADER, self.name)
    }

    /// What follows the name, and where that begins in the block: the system use area.
    pub fn system_use(&self) -> Result<(usize, &'b [u8]), DiscError> {
        // A name of even length is padded.
        let start = (HEADER + self.name).next_multiple_of(2).min(self.length);
        Ok((self.at + start, self.block.slice(self.at + start, self.length - start)?))
    }

    fn flags(&self) -> Result<u8, DiscError> {
        self.block.u8(self.at + 25)
    }

    /// Whether it is a directory's.
    pub fn is_directory(&self) -> Result<bool, DiscError> {
        Ok(self.flags()? & 0x02 != 0)
    }

    /// Whether the file goes on in the next record.
    pub fn goes_on(&self) -> Result<bool, DiscError> {
        Ok(self.flags()? & 0x80 != 0)
    }

    /// Where its bytes are, as far as this record says.
    pub fn content(&self) -> Result<Content, DiscError> {
        let (block, at) = (self.block, self.at);
        let attributes = u64::from(block.u8(at + 1)?);
        let first = u64::from(block.u32(at + 2)?);
        let size = u64::from(block.u32(at + 10)?);
        // Units and gaps that interleave a file with others (6.4.3).
        let interleaved = block.u8(at + 26)? != 0 || block.u8(at + 27)? != 0;
        let extent = Extent { length: size, at: Some((first + attributes) * SECTOR) };
        let unread = interleaved.then_some("the file is interleaved with others");
        Ok(Content { size, extents: vec![extent], record: self.offset(), unread })
    }
}
