//! Bytes of the image that know where they stand, so that every field is checked and every error has its offset.

use super::DiscError;
use crate::io::ReadAt;

/// Some bytes of the image, of one structure.
#[derive(Debug, Clone)]
pub(super) struct Block {
    /// Where they stand in the image.
    offset: u64,
    bytes: Vec<u8>,
    /// The structure, for messages.
    what: &'static str,
}

impl Block {
    /// Reads `length` bytes at `offset`; callers bound the length.
    pub fn read(
        source: &dyn ReadAt,
        offset: u64,
        length: usize,
        what: &'static str,
    ) -> Result<Self, DiscError> {
        let size = source.size();
        if offset.checked_add(length as u64).is_none_or(|end| end > size) {
            return Err(DiscError::Truncated { what, offset, length: length as u64, size });
        }
        let mut bytes = vec![0; length];
        source.read_exact_at(&mut bytes, offset).map_err(|source| DiscError::Read { offset, source })?;
        Ok(Self { offset, bytes, what })
    }

    /// Bytes of a structure that were read already: `offset` is where they begin.
    pub fn new(offset: u64, bytes: Vec<u8>, what: &'static str) -> Self {
        Self { offset, bytes, what }
    }

    /// Where the byte `at` stands in the image.
    pub fn offset(&self, at: usize) -> u64 {
        self.offset.saturating_add(at as u64)
    }

    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// `length` bytes from `at`.
    pub fn slice(&self, at: usize, length: usize) -> Result<&[u8], DiscError> {
        let end = at.checked_add(length);
        end.and_then(|end| self.bytes.get(at..end)).ok_or_else(|| self.damaged(at, "it is cut off"))
    }

    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], DiscError> {
        let mut array = [0; N];
        array.copy_from_slice(self.slice(at, N)?);
        Ok(array)
    }

    /// One byte.
    pub fn u8(&self, at: usize) -> Result<u8, DiscError> {
        Ok(self.array::<1>(at)?[0])
    }

    /// A little-endian number of 2 bytes.
    pub fn u16(&self, at: usize) -> Result<u16, DiscError> {
        Ok(u16::from_le_bytes(self.array(at)?))
    }

    /// A little-endian number of 4 bytes.
    pub fn u32(&self, at: usize) -> Result<u32, DiscError> {
        Ok(u32::from_le_bytes(self.array(at)?))
    }

    /// A little-endian number of 8 bytes.
    pub fn u64(&self, at: usize) -> Result<u64, DiscError> {
        Ok(u64::from_le_bytes(self.array(at)?))
    }

    /// What is wrong with the structure, at its byte `at`.
    pub fn damaged(&self, at: usize, why: &'static str) -> DiscError {
        DiscError::Damaged { what: self.what, offset: self.offset(at), why }
    }

    /// What the structure uses that is not read, at its byte `at`.
    pub fn unsupported(&self, at: usize, why: &'static str) -> DiscError {
        DiscError::Unsupported { what: self.what, offset: self.offset(at), why }
    }
}
