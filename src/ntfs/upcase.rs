//! $UpCase: how this volume turns names to upper case, and with that their order.

use std::cmp::Ordering;

use super::NtfsError;
use super::attribute::DATA;
use super::attribute_list::Mft;
use crate::io::ReadAt;

const UPCASE_RECORD: u64 = 10;
const TABLE_SIZE: u64 = 2 << 16;

/// One upper-case UTF-16 unit for each unit.
#[derive(Debug)]
pub(super) struct Upcase(Vec<u16>);

impl Upcase {
    pub(super) fn read<R: ReadAt>(mft: &Mft<R>) -> Result<Self, NtfsError> {
        let record = mft.base_record(UPCASE_RECORD)?;
        let stream = mft.stream(&record, DATA, &[])?;
        let stream = stream.ok_or_else(|| record.damaged("$UpCase has no data"))?;
        if stream.size != TABLE_SIZE {
            return Err(record.damaged("$UpCase is not 128 KiB long"));
        }
        let table = stream.read_all(&mft.volume, &mft.geometry, TABLE_SIZE)?;
        Ok(Self(table.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect()))
    }

    fn of(&self, unit: u16) -> u16 {
        self.0.get(usize::from(unit)).copied().unwrap_or(unit)
    }

    /// The order of names in a directory's index, in which case does not matter.
    pub(super) fn compare(&self, a: &[u16], b: &[u16]) -> Ordering {
        a.iter().map(|unit| self.of(*unit)).cmp(b.iter().map(|unit| self.of(*unit)))
    }
}
