//! Setting and removing values.

use super::base_block::SIZE;
use super::data::{INLINE, INLINE_MAX, LAST_WITHOUT_BIG_DATA, SEGMENT, Storage};
use super::hive_file::{Cell, NIL};
use super::key::{LARGEST_VALUE_DATA, LONGEST_VALUE_NAME, VALUE_COUNT, VALUE_LIST};
use super::space::Space;
use super::value::{DATA_SIZE, FLAGS, LATIN1, LONGEST_NAME, TOMBSTONE};
use super::{Hive, HiveError, Key, Value, ValueKind, name};
use crate::io::{Change, Draft, ReadAt};

/// Edits of one hive, seen by later edits, and written nowhere.
///
/// Free cells are used first, then the file's room after its last bin; the file never grows. What is freed is
/// zeroed, for it may have been a secret. Times of last write are left as they are, so the same edit of the same
/// hive always gives the same bytes. An edit that fails changes nothing.
pub struct Editor<R> {
    space: Space<R>,
    /// The base block is to be written whatever else is.
    was_dirty: bool,
}

impl<'h, R: ReadAt> Editor<&'h R> {
    /// Begins to edit `hive`; refuses a dirty one, and one whose cells don't tile its bins.
    pub fn new(hive: &'h Hive<R>) -> Result<Self, HiveError> {
        if let Some(reason) = hive.dirt() {
            return Err(HiveError::Dirty { reason });
        }
        Self::of_draft(Hive::with_base(Draft::new(hive.source()), hive.base().clone())?, false)
    }
}

impl<R: ReadAt> Editor<R> {
    /// Goes on with a hive that is in memory, as far as it differs from its file.
    pub(super) fn of_draft(hive: Hive<Draft<R>>, was_dirty: bool) -> Result<Self, HiveError> {
        Ok(Self { space: Space::scan(hive)?, was_dirty })
    }

    /// The hive as it would be.
    pub fn hive(&self) -> &Hive<Draft<R>> {
        self.space.hive()
    }

    /// Sets a `REG_SZ`.
    pub fn set_string(&mut self, key: &str, name: &str, text: &str) -> Result<(), HiveError> {
        let data: Vec<u8> = text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
        self.set(key, name, ValueKind::SZ, &data)
    }

    /// Sets the value `name` of the key at path `key`, in place of one of that name; the key must exist.
    ///
    /// A value that is so already is left alone.
    pub fn set(&mut self, key: &str, name: &str, kind: ValueKind, data: &[u8]) -> Result<(), HiveError> {
        let len = u32::try_from(data.len()).ok().filter(|len| *len < INLINE);
        let Some(len) = len else {
            return Err(HiveError::Unstorable { why: format!("{} bytes of data", data.len()).into() });
        };
        let units: Vec<u16> = name.encode_utf16().collect();
        if units.len() > LONGEST_NAME {
            return Err(HiveError::Unstorable { why: format!("a name of {} units", units.len()).into() });
        }
        self.undone_by_an_error(|editor| {
            let found = editor.find(key, name)?;
            let Some(target) = found else { return Err(HiveError::NoKey { path: key.to_owned() }) };
            match target.value {
                Some(value) if value.is(kind, data) => return Ok(()),
                Some(value) => editor.replace(value, kind, data)?,
                None => editor.insert(&target.key, &units, kind, data)?,
            }
            editor.raise(&target.key, LONGEST_VALUE_NAME, units.len() as u32 * 2)?;
            editor.raise(&target.key, LARGEST_VALUE_DATA, len)
        })
    }

    /// Removes the value `name` of the key at path `key`; `false` where there is none.
    pub fn remove(&mut self, key: &str, name: &str) -> Result<bool, HiveError> {
        self.undone_by_an_error(|editor| {
            let Some(Target { key, value: Some(value) }) = editor.find(key, name)? else { return Ok(false) };
            if value.flags & TOMBSTONE != 0 {
                return Ok(false);
            }
            editor.release_data(value.storage)?;
            editor.space.release("vk", value.cell)?;
            editor.unlist(&key, value.index)?;
            Ok(true)
        })
    }

    /// What is to be written: cells in order of offset, and the base block last. Nothing, if nothing changed.
    pub fn finish(self) -> Result<Vec<Change>, HiveError> {
        let mut hive = self.space.into_hive();
        let failed = |source| HiveError::Read { offset: 0, source };
        if !self.was_dirty && hive.source().changes().map_err(failed)?.is_empty() {
            return Ok(Vec::new());
        }
        match hive.source().outgrown() {
            0 => {}
            missing => return Err(HiveError::Outgrown { missing }),
        }
        let base = hive.base().clone();
        let sequence = base.sequence_1().wrapping_add(1);
        hive.source_mut().write(0, &base.finished(sequence)).map_err(failed)?;
        let mut edits = hive.source().changes().map_err(failed)?;
        let cells = edits.partition_point(|edit| edit.offset < SIZE);
        edits.rotate_left(cells);
        Ok(edits)
    }

    /// Comes back to where it was, should `edit` fail half-way.
    fn undone_by_an_error<T>(
        &mut self,
        edit: impl FnOnce(&mut Self) -> Result<T, HiveError>,
    ) -> Result<T, HiveError> {
        let before = self.space.checkpoint();
        let done = edit(self);
        if done.is_err() {
            self.space.restore(before);
        }
        done
    }

    fn find(&self, path: &str, name: &str) -> Result<Option<Target>, HiveError> {
        let Some(key) = self.hive().key(path)? else { return Ok(None) };
        let value = match key.find_value(name)? {
            Some((index, value)) => Some(Found::new(index, &value)?),
            None => None,
        };
        Ok(Some(Target { key: Place::new(&key)?, value }))
    }

    /// Gives a value new data and perhaps a new type.
    fn replace(&mut self, value: Found, kind: ValueKind, data: &[u8]) -> Result<(), HiveError> {
        let fields = match value.storage {
            Storage::Cell(cell) if data.len() <= cell.len as usize && self.takes_one_cell(data) => {
                // Padded, so that nothing of a longer value stays.
                let mut padded = data.to_vec();
                padded.resize(cell.len as usize, 0);
                self.space.write("value data", cell, 0, &padded)?;
                (data.len() as u32, cell.offset.to_le_bytes())
            }
            storage => {
                self.release_data(storage)?;
                self.store(data)?
            }
        };
        self.space.write("vk", value.cell, DATA_SIZE, &vk_fields(fields, kind))?;
        let flags = value.flags & !TOMBSTONE;
        self.space.write("vk", value.cell, FLAGS, &flags.to_le_bytes())
    }

    /// Makes a value and puts it at the end of the key's list.
    fn insert(&mut self, key: &Place, name: &[u16], kind: ValueKind, data: &[u8]) -> Result<(), HiveError> {
        let fields = self.store(data)?;
        let (stored, latin1) = name::encode(name);
        let mut vk = b"vk".to_vec();
        // At most twice `LONGEST_NAME`.
        vk.extend((stored.len() as u16).to_le_bytes());
        vk.extend(vk_fields(fields, kind));
        // As Windows has it, a value without a name has no flag for one.
        let flags = if latin1 && !name.is_empty() { LATIN1 } else { 0 };
        vk.extend(flags.to_le_bytes());
        vk.extend([0; 2]);
        vk.extend(stored);
        let offset = self.space.allocate(&vk)?;
        self.list(key, offset)
    }

    /// Puts data where it belongs; returns the `vk`'s size and offset fields.
    fn store(&mut self, data: &[u8]) -> Result<(u32, [u8; 4]), HiveError> {
        let len = data.len() as u32;
        if len <= INLINE_MAX {
            let mut inline = [0; 4];
            inline[..data.len()].copy_from_slice(data);
            return Ok((len | INLINE, inline));
        }
        if self.takes_one_cell(data) {
            return Ok((len, self.space.allocate(data)?.to_le_bytes()));
        }
        let Ok(count) = u16::try_from(len.div_ceil(SEGMENT)) else {
            return Err(HiveError::Unstorable { why: format!("{len} bytes of data").into() });
        };
        let mut list = Vec::with_capacity(usize::from(count) * 4);
        for segment in data.chunks(SEGMENT as usize) {
            // Readers take a segment's cell to end with four bytes that are not data.
            let cell = [segment, &[0; 4]].concat();
            list.extend(self.space.allocate(&cell)?.to_le_bytes());
        }
        let list = self.space.allocate(&list)?;
        let mut head = b"db".to_vec();
        head.extend(count.to_le_bytes());
        head.extend(list.to_le_bytes());
        Ok((len, self.space.allocate(&head)?.to_le_bytes()))
    }

    /// Whether Windows looks for such data in a cell of its own, not in the `vk` or behind a `db`.
    fn takes_one_cell(&self, data: &[u8]) -> bool {
        let large = self.hive().base().minor() > LAST_WITHOUT_BIG_DATA && data.len() > SEGMENT as usize;
        data.len() > INLINE_MAX as usize && !large
    }

    fn release_data(&mut self, storage: Storage) -> Result<(), HiveError> {
        match storage {
            Storage::Inline => Ok(()),
            Storage::Cell(cell) => self.space.release("value data", cell),
            Storage::Big { head, list, segments } => {
                self.space.release("db", head)?;
                self.space.release("segment list", list)?;
                segments.into_iter().try_for_each(|cell| self.space.release("data segment", cell))
            }
        }
    }

    /// Adds a value to a key's list: in its spare room, or in a longer list.
    fn list(&mut self, key: &Place, vk: u32) -> Result<(), HiveError> {
        let count = key.offsets.len() as u32;
        let offset = match key.list {
            Some(list) if count < list.len / 4 => {
                self.space.write("value list", list, count * 4, &vk.to_le_bytes())?;
                list.offset
            }
            list => {
                if let Some(list) = list {
                    self.space.release("value list", list)?;
                }
                let offsets = key.offsets.iter().copied().chain([vk]);
                self.space.allocate(&offsets.flat_map(u32::to_le_bytes).collect::<Vec<_>>())?
            }
        };
        self.point_at_list(key, count + 1, offset)
    }

    /// Takes a value out of a key's list, and the list away with the last of them.
    fn unlist(&mut self, key: &Place, index: u32) -> Result<(), HiveError> {
        // A key with a value has a list.
        let Some(list) = key.list else { return Ok(()) };
        let mut offsets = key.offsets.clone();
        offsets.remove(index as usize);
        if offsets.is_empty() {
            self.space.release("value list", list)?;
            self.space.write("nk", key.cell, LONGEST_VALUE_NAME, &[0; 8])?;
            return self.point_at_list(key, 0, NIL);
        }
        let count = offsets.len() as u32;
        offsets.push(0);
        let bytes: Vec<u8> = offsets.into_iter().flat_map(u32::to_le_bytes).collect();
        self.space.write("value list", list, 0, &bytes)?;
        self.point_at_list(key, count, list.offset)
    }

    fn point_at_list(&mut self, key: &Place, count: u32, list: u32) -> Result<(), HiveError> {
        self.space.write("nk", key.cell, VALUE_COUNT, &count.to_le_bytes())?;
        self.space.write("nk", key.cell, VALUE_LIST, &list.to_le_bytes())
    }

    /// Sets a field of the key that keeps a maximum, if it is below `at_least`.
    fn raise(&mut self, key: &Place, field: u32, at_least: u32) -> Result<(), HiveError> {
        let now = u32::from_le_bytes(self.hive().fixed("nk", key.cell, field)?);
        if now >= at_least {
            return Ok(());
        }
        self.space.write("nk", key.cell, field, &at_least.to_le_bytes())
    }
}

/// A key, and the value asked for, without hold on the hive.
struct Target {
    key: Place,
    value: Option<Found>,
}

/// Where a key and its list of values are.
struct Place {
    cell: Cell,
    list: Option<Cell>,
    offsets: Vec<u32>,
}

impl Place {
    fn new<R: ReadAt>(key: &Key<'_, R>) -> Result<Self, HiveError> {
        Ok(Self { cell: key.cell(), list: key.value_list()?, offsets: key.value_offsets()? })
    }
}

/// A value that is there: its place in the list, its cells, and what it holds.
struct Found {
    index: u32,
    cell: Cell,
    flags: u16,
    kind: ValueKind,
    data: Vec<u8>,
    storage: Storage,
}

impl Found {
    fn new<R: ReadAt>(index: u32, value: &Value<'_, R>) -> Result<Self, HiveError> {
        Ok(Self {
            index,
            cell: value.cell(),
            flags: value.flags(),
            kind: value.kind(),
            data: value.data()?,
            storage: value.storage()?,
        })
    }

    fn is(&self, kind: ValueKind, data: &[u8]) -> bool {
        self.flags & TOMBSTONE == 0 && self.kind == kind && self.data == data
    }
}

/// Data size, data offset and type, as they lie in a `vk`.
fn vk_fields((size, data): (u32, [u8; 4]), kind: ValueKind) -> Vec<u8> {
    [size.to_le_bytes(), data, kind.0.to_le_bytes()].concat()
}
