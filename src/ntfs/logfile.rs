//! $LogFile's restart pages: was the volume closed, and by which Windows.
//!
//! Judged as ntfs-3g's logfile.c does. The log's records are not read: whether it is closed is in the pages.

use super::record::{le16, le32, le64, undo_fixups};
use super::{File, NtfsError};
use crate::io::ReadAt;

const NO_CLIENT: u16 = 0xffff;
const VOLUME_IS_CLEAN: u16 = 0x0002;
const BLOCK: usize = 512;
/// System pages are 4 KiB on every machine that runs Windows; this bounds what is read.
const MAX_PAGE: u64 = 64 << 10;
const EMPTY: &[u8] = &[0xff; 4];

/// What the log says of the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Log {
    Clean,
    /// Changes in it may not have reached their places.
    InUse,
    /// Version 2.0: Windows keeps it only while a volume is mounted, or kept over a fast startup.
    FastStartup,
    /// Neither empty nor readable.
    Damaged,
}

struct RestartPage {
    version: (u16, u16),
    lsn: u64,
    in_use: bool,
}

pub(super) fn judge<R: ReadAt>(log: &File<'_, R>) -> Result<Log, NtfsError> {
    let block = |offset: u64| -> Result<Option<Vec<u8>>, NtfsError> {
        if offset + BLOCK as u64 > log.size() {
            return Ok(None);
        }
        read(log, offset, BLOCK).map(Some)
    };
    // Emptied by ntfs-3g, mkntfs or chkdsk: then it was clean. Looked at wherever a page can begin.
    let mut empty = true;
    let mut offset = 0;
    while let Some(start) = block(offset)? {
        empty &= start.starts_with(EMPTY);
        offset = (offset * 2).max(BLOCK as u64);
    }
    if empty {
        return Ok(Log::Clean);
    }
    let Some(first) = block(0)? else { return Ok(Log::Damaged) };
    let page_size = page_size(&first).unwrap_or(4096);
    let mut newest: Option<RestartPage> = None;
    for offset in [0, page_size] {
        if offset + page_size > log.size() {
            continue;
        }
        let page = parse(read(log, offset, page_size as usize)?);
        newest = match (newest, page) {
            (Some(a), Some(b)) => Some(if b.lsn > a.lsn { b } else { a }),
            (a, b) => a.or(b),
        };
    }
    Ok(match newest {
        None => Log::Damaged,
        Some(page) if page.version == (2, 0) => Log::FastStartup,
        Some(page) if page.version != (1, 1) => Log::Damaged,
        Some(page) if page.in_use => Log::InUse,
        Some(_) => Log::Clean,
    })
}

fn read<R: ReadAt>(log: &File<'_, R>, offset: u64, length: usize) -> Result<Vec<u8>, NtfsError> {
    let mut bytes = vec![0; length];
    log.read_bytes(&mut bytes, offset)?;
    Ok(bytes)
}

fn is_restart_page(page: &[u8]) -> bool {
    // chkdsk signs its own.
    page.starts_with(b"RSTR") || page.starts_with(b"CHKD")
}

fn page_size(block: &[u8]) -> Option<u64> {
    let size = u64::from(le32(block, 16));
    (is_restart_page(block) && size.is_power_of_two() && (BLOCK as u64..=MAX_PAGE).contains(&size))
        .then_some(size)
}

fn parse(mut page: Vec<u8>) -> Option<RestartPage> {
    if page_size(&page)? != page.len() as u64 {
        return None;
    }
    let by_chkdsk = page.starts_with(b"CHKD");
    // chkdsk may leave its page without an update sequence.
    if !(by_chkdsk && le16(&page, 6) == 0) {
        undo_fixups(&mut page).ok()?;
    }
    let start = usize::from(le16(&page, 24));
    let area = page.get(start..start + 16)?;
    let (clients, in_use, flags) = (le16(area, 8), le16(area, 12), le16(area, 14));
    if start < 30 || start % 8 != 0 || (in_use != NO_CLIENT && in_use >= clients) {
        return None;
    }
    Some(RestartPage {
        version: (le16(&page, 28), le16(&page, 26)),
        lsn: if by_chkdsk { le64(&page, 8) } else { le64(area, 0) },
        in_use: in_use != NO_CLIENT && flags & VOLUME_IS_CLEAN == 0,
    })
}
