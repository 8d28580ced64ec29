//! Keys (`nk` cells).

use std::fmt;

use super::hive_file::{Cell, half, word, words};
use super::{Hive, HiveError, Value, name, subkeys};
use crate::io::ReadAt;

/// Where the fields of an `nk` lie, in bytes from its signature.
pub(super) const VALUE_COUNT: u32 = 36;
pub(super) const VALUE_LIST: u32 = 40;
/// In bytes of UTF-16, however the name is stored.
pub(super) const LONGEST_VALUE_NAME: u32 = 60;
pub(super) const LARGEST_VALUE_DATA: u32 = 64;

/// Length of an `nk` before its name.
const FIXED: u32 = 76;

/// The longest name of a key in bytes: 256 units of UTF-16.
const LONGEST_NAME: u32 = 512;

/// Flag: the name is Latin-1.
const LATIN1: u16 = 0x20;

/// A key of a hive.
pub struct Key<'h, R> {
    hive: &'h Hive<R>,
    cell: Cell,
    fixed: [u8; FIXED as usize],
    name: Vec<u16>,
}

impl<'h, R: ReadAt> Key<'h, R> {
    /// Reads the key whose cell lies at `offset`.
    pub(super) fn read(hive: &'h Hive<R>, offset: u32) -> Result<Self, HiveError> {
        let cell = hive.cell("nk", offset)?;
        let fixed: [u8; FIXED as usize] = hive.fixed("nk", cell, 0)?;
        if &fixed[..2] != b"nk" {
            return Err(HiveError::cell("nk", offset, "it does not begin with \"nk\""));
        }
        let len = u32::from(half(&fixed, 72));
        if len > LONGEST_NAME {
            let why = format!("a name can't have {len} bytes");
            return Err(HiveError::cell("nk", offset, why));
        }
        let stored = hive.bytes("nk", cell, FIXED, len)?;
        let name = name::decode(&stored, half(&fixed, 2) & LATIN1 != 0);
        Ok(Self { hive, cell, fixed, name })
    }

    /// The key's own name, in the case it was given.
    pub fn name(&self) -> String {
        String::from_utf16_lossy(&self.name)
    }

    /// When the key was last written: a FILETIME, 100 ns steps since 1601 in UTC.
    pub fn last_written(&self) -> u64 {
        u64::from(word(&self.fixed, 4)) | u64::from(word(&self.fixed, 8)) << 32
    }

    /// The keys below this one, in the hive's order.
    pub fn subkeys(
        &self,
    ) -> Result<impl Iterator<Item = Result<Key<'h, R>, HiveError>> + use<'h, R>, HiveError> {
        let hive = self.hive;
        let entries = self.subkey_entries()?;
        Ok(entries.into_iter().map(move |entry| Key::read(hive, entry.offset)))
    }

    /// The key of that name below this one; case does not count.
    pub fn subkey(&self, wanted: &str) -> Result<Option<Key<'h, R>>, HiveError> {
        let wanted: Vec<u16> = wanted.encode_utf16().collect();
        // The hash saves reading; outside of ASCII it depends on its writer's table of cases.
        let hash = wanted.iter().all(|unit| *unit < 0x80).then(|| name::hash(&wanted));
        for entry in self.subkey_entries()? {
            if hash.is_some() && entry.hash.is_some() && hash != entry.hash {
                continue;
            }
            let key = Key::read(self.hive, entry.offset)?;
            if name::same(&key.name, &wanted) {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    fn subkey_entries(&self) -> Result<Vec<subkeys::Entry>, HiveError> {
        subkeys::read(self.hive, self.cell, word(&self.fixed, 20), word(&self.fixed, 28))
    }

    /// The key's values, in the hive's order.
    pub fn values(
        &self,
    ) -> Result<impl Iterator<Item = Result<Value<'h, R>, HiveError>> + use<'h, R>, HiveError> {
        let hive = self.hive;
        let values = self.value_offsets()?.into_iter().map(move |offset| Value::read(hive, offset));
        Ok(values.filter(|value| !value.as_ref().is_ok_and(Value::is_tombstone)))
    }

    /// The value of that name, `""` for the key's default value; case does not count.
    pub fn value(&self, wanted: &str) -> Result<Option<Value<'h, R>>, HiveError> {
        Ok(self.find_value(wanted)?.map(|(_, value)| value).filter(|value| !value.is_tombstone()))
    }

    /// Place in the list, and the value, a tombstone too.
    pub(super) fn find_value(&self, wanted: &str) -> Result<Option<(u32, Value<'h, R>)>, HiveError> {
        let wanted: Vec<u16> = wanted.encode_utf16().collect();
        for (index, offset) in (0..).zip(self.value_offsets()?) {
            if let Some(value) = Value::read_if_named(self.hive, offset, &wanted)? {
                return Ok(Some((index, value)));
            }
        }
        Ok(None)
    }

    /// The cells of the key's values.
    pub(super) fn value_offsets(&self) -> Result<Vec<u32>, HiveError> {
        let Some(list) = self.value_list()? else { return Ok(Vec::new()) };
        let bytes = self.hive.bytes("value list", list, 0, self.value_count() * 4)?;
        Ok(words(&bytes).collect())
    }

    /// The cell of the value list, which has room for [`Key::value_count`] values or more.
    pub(super) fn value_list(&self) -> Result<Option<Cell>, HiveError> {
        let count = self.value_count();
        if count == 0 {
            return Ok(None);
        }
        let list = self.hive.cell("value list", word(&self.fixed, VALUE_LIST as usize))?;
        if count > list.len / 4 {
            let why = format!("it has room for {} values, but {count} are counted", list.len / 4);
            return Err(HiveError::cell("value list", list.offset, why));
        }
        Ok(Some(list))
    }

    pub(super) fn value_count(&self) -> u32 {
        word(&self.fixed, VALUE_COUNT as usize)
    }

    pub(super) fn cell(&self) -> Cell {
        self.cell
    }
}

impl<R> fmt::Debug for Key<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key {{ {:?} }}", String::from_utf16_lossy(&self.name))
    }
}
