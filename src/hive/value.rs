//! Values (`vk` cells).

use std::fmt;

use super::data::{self, Storage};
use super::hive_file::{Cell, half, word};
use super::{Hive, HiveError, name};
use crate::io::ReadAt;

/// The type of a value's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueKind(pub u32);

impl ValueKind {
    /// Bytes of no type.
    pub const NONE: Self = Self(0);
    /// UTF-16LE text, ended by a NUL.
    pub const SZ: Self = Self(1);
    /// Text with `%VARIABLES%` in it.
    pub const EXPAND_SZ: Self = Self(2);
    /// Any bytes.
    pub const BINARY: Self = Self(3);
    /// A little-endian 32-bit number.
    pub const DWORD: Self = Self(4);
    /// A big-endian 32-bit number.
    pub const DWORD_BIG_ENDIAN: Self = Self(5);
    /// The target of a symbolic link.
    pub const LINK: Self = Self(6);
    /// Texts, each ended by a NUL, with one more NUL after the last.
    pub const MULTI_SZ: Self = Self(7);
    /// A little-endian 64-bit number.
    pub const QWORD: Self = Self(11);
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::NONE => "REG_NONE",
            Self::SZ => "REG_SZ",
            Self::EXPAND_SZ => "REG_EXPAND_SZ",
            Self::BINARY => "REG_BINARY",
            Self::DWORD => "REG_DWORD",
            Self::DWORD_BIG_ENDIAN => "REG_DWORD_BIG_ENDIAN",
            Self::LINK => "REG_LINK",
            Self::MULTI_SZ => "REG_MULTI_SZ",
            Self::QWORD => "REG_QWORD",
            Self(other) => return write!(f, "type {other:#x}"),
        };
        f.write_str(name)
    }
}

/// Where the fields of a `vk` lie, in bytes from its signature.
pub(super) const DATA_SIZE: u32 = 4;
pub(super) const FLAGS: u32 = 16;

/// Length of a `vk` before its name.
pub(super) const FIXED: u32 = 20;

/// The longest name of a value, in UTF-16 units.
pub(super) const LONGEST_NAME: usize = 16383;

/// Flag: the name is Latin-1.
pub(super) const LATIN1: u16 = 1;

/// Flag of layered hives: the value is deleted, and hides one of the layer below.
pub(super) const TOMBSTONE: u16 = 2;

/// A value of a key.
pub struct Value<'h, R> {
    hive: &'h Hive<R>,
    cell: Cell,
    fixed: [u8; FIXED as usize],
    name: Vec<u16>,
}

impl<'h, R: ReadAt> Value<'h, R> {
    /// Reads the value whose cell lies at `offset`.
    pub(super) fn read(hive: &'h Hive<R>, offset: u32) -> Result<Self, HiveError> {
        let (cell, fixed) = Self::read_fixed(hive, offset)?;
        let len = half(&fixed, 2);
        if usize::from(len) > 2 * LONGEST_NAME {
            return Err(HiveError::cell("vk", offset, format!("a name can't have {len} bytes")));
        }
        let stored = hive.bytes("vk", cell, FIXED, u32::from(len))?;
        let name = name::decode(&stored, half(&fixed, FLAGS as usize) & LATIN1 != 0);
        Ok(Self { hive, cell, fixed, name })
    }

    /// Reads that value only if its name is `wanted`: of most others, not even the name is read.
    pub(super) fn read_if_named(
        hive: &'h Hive<R>,
        offset: u32,
        wanted: &[u16],
    ) -> Result<Option<Self>, HiveError> {
        let (_, fixed) = Self::read_fixed(hive, offset)?;
        let width = if half(&fixed, FLAGS as usize) & LATIN1 != 0 { 1 } else { 2 };
        if usize::from(half(&fixed, 2)) / width != wanted.len() {
            return Ok(None);
        }
        Ok(Some(Self::read(hive, offset)?).filter(|value| name::same(&value.name, wanted)))
    }

    fn read_fixed(hive: &Hive<R>, offset: u32) -> Result<(Cell, [u8; FIXED as usize]), HiveError> {
        let cell = hive.cell("vk", offset)?;
        let fixed: [u8; FIXED as usize] = hive.fixed("vk", cell, 0)?;
        if &fixed[..2] != b"vk" {
            return Err(HiveError::cell("vk", offset, "it does not begin with \"vk\""));
        }
        Ok((cell, fixed))
    }

    /// The value's name; empty for a key's default value.
    pub fn name(&self) -> String {
        String::from_utf16_lossy(&self.name)
    }

    /// The type its data claims to have.
    pub fn kind(&self) -> ValueKind {
        ValueKind(word(&self.fixed, 12))
    }

    /// The bytes of its data.
    pub fn data(&self) -> Result<Vec<u8>, HiveError> {
        data::read(self.hive, self.cell, &self.fixed)
    }

    /// The text of a `REG_SZ` or `REG_EXPAND_SZ` up to its first NUL, or all of it; `None` for other types.
    ///
    /// What is not UTF-16 becomes U+FFFD.
    pub fn as_string(&self) -> Result<Option<String>, HiveError> {
        if !matches!(self.kind(), ValueKind::SZ | ValueKind::EXPAND_SZ) {
            return Ok(None);
        }
        let units = name::utf16(&self.data()?);
        Ok(units.split(|unit| *unit == 0).next().map(String::from_utf16_lossy))
    }

    /// The texts of a `REG_MULTI_SZ` up to the first empty one; `None` for other types.
    pub fn as_strings(&self) -> Result<Option<Vec<String>>, HiveError> {
        if self.kind() != ValueKind::MULTI_SZ {
            return Ok(None);
        }
        let units = name::utf16(&self.data()?);
        let texts = units.split(|unit| *unit == 0).take_while(|text| !text.is_empty());
        Ok(Some(texts.map(String::from_utf16_lossy).collect()))
    }

    /// The number of a `REG_DWORD`, of either byte order; `None` for other types, and for data not of 4 bytes.
    pub fn as_u32(&self) -> Result<Option<u32>, HiveError> {
        if !matches!(self.kind(), ValueKind::DWORD | ValueKind::DWORD_BIG_ENDIAN) {
            return Ok(None);
        }
        let Ok(bytes) = <[u8; 4]>::try_from(self.data()?) else { return Ok(None) };
        Ok(Some(match self.kind() {
            ValueKind::DWORD => u32::from_le_bytes(bytes),
            _ => u32::from_be_bytes(bytes),
        }))
    }

    pub(super) fn is_tombstone(&self) -> bool {
        self.flags() & TOMBSTONE != 0
    }

    pub(super) fn flags(&self) -> u16 {
        half(&self.fixed, FLAGS as usize)
    }

    pub(super) fn cell(&self) -> Cell {
        self.cell
    }

    /// The cells that hold its data.
    pub(super) fn storage(&self) -> Result<Storage, HiveError> {
        data::locate(self.hive, self.cell, &self.fixed)
    }
}

// The data may be a secret: only the name is shown.
impl<R> fmt::Debug for Value<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value {{ {:?} }}", String::from_utf16_lossy(&self.name))
    }
}
