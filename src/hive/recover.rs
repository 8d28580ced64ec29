//! A dirty hive made whole by its logs.

use super::base_block::{self, BaseBlock};
use super::logs::{Entry, Log};
use super::{Editor, Hive, HiveError};
use crate::io::{Draft, ReadAt};

/// A hive as its logs leave it, in memory: of the file, nothing is changed.
#[derive(Debug)]
pub struct Recovered<R> {
    hive: Hive<Draft<R>>,
    replayed: u32,
}

/// Reads a hive with its log files (`.LOG1`, `.LOG2`), as Windows would when it loads it.
///
/// A clean hive is taken as it is, whatever its logs hold. A dirty one whose logs don't fit is refused: keys may be
/// missing from it, or half-written.
pub fn recover<R: ReadAt>(hive: R, logs: &[&dyn ReadAt]) -> Result<Recovered<R>, HiveError> {
    let base = BaseBlock::read(&hive)?;
    let Some(reason) = base.dirt() else {
        return Ok(Recovered { hive: Hive::with_base(Draft::new(hive), base)?, replayed: 0 });
    };
    let mut whole = Vec::new();
    for (number, log) in (1..).zip(logs) {
        let failed = |source| HiveError::ReadLog { number, source };
        if let Some(log) = Log::open(*log).map_err(failed)? {
            whole.push((number, log));
        }
    }
    let mut recovery = Recovery { draft: Draft::new(hive), base, highest: 0, replayed: 0 };
    recovery.replay_entries(&whole)?;
    if recovery.replayed == 0 {
        recovery.replay_dirt(&whole)?;
    }
    if recovery.replayed == 0 {
        let reason = format!("{reason}, and no log file holds what is missing");
        return Err(HiveError::Dirty { reason });
    }
    // What a hive is longer by, its last writer wrote to the logs: no sizes out of thin air.
    let (longer, held) = (recovery.draft.outgrown(), logs.iter().map(|log| log.size()).sum::<u64>());
    if longer > held {
        let reason = format!("its log files make it {longer} bytes longer, but have only {held} themselves");
        return Err(HiveError::Dirty { reason });
    }
    recovery.finish()
}

/// Reads a hive as it is, be it dirty: whoever only looks can tell what is in it.
pub fn as_found<R: ReadAt>(hive: R) -> Result<Recovered<R>, HiveError> {
    let base = BaseBlock::read(&hive)?;
    Ok(Recovered { hive: Hive::with_base(Draft::new(hive), base)?, replayed: 0 })
}

impl<R: ReadAt> Recovered<R> {
    /// The hive, whole if its logs have made it so.
    pub fn hive(&self) -> &Hive<Draft<R>> {
        &self.hive
    }

    /// How many entries of the logs were replayed (1 for a `DIRT` log); 0 if the hive was clean.
    pub fn replayed(&self) -> u32 {
        self.replayed
    }

    /// Edits the hive further. What the logs change is part of [`Editor::finish`]'s edits.
    ///
    /// A hive that is still dirty is refused.
    pub fn into_editor(self) -> Result<Editor<R>, HiveError> {
        if let Some(reason) = self.hive.dirt() {
            return Err(HiveError::Dirty { reason });
        }
        Editor::of_draft(self.hive, self.replayed > 0)
    }
}

/// A recovery under way.
struct Recovery<R> {
    draft: Draft<R>,
    base: BaseBlock,
    /// The highest number of all entries seen, replayed or not.
    highest: u32,
    replayed: u32,
}

impl<R: ReadAt> Recovery<R> {
    /// Replays `HvLE` entries in order of their numbers, from the first that the hive may lack up to a gap.
    fn replay_entries(&mut self, logs: &[(u32, Log<'_>)]) -> Result<(), HiveError> {
        let mut runs = Vec::new();
        for (number, log) in logs {
            let failed = |source| HiveError::ReadLog { number: *number, source };
            let mut entries = log.entries().map_err(failed)?;
            self.highest = entries.iter().map(|entry| entry.sequence).fold(self.highest, u32::max);
            // A log is written from its start again and again: older entries may follow the newest.
            let run = entries.windows(2).take_while(|pair| follows(&pair[0], &pair[1])).count() + 1;
            entries.truncate(run);
            if !entries.is_empty() {
                runs.push((*number, log, entries));
            }
        }
        runs.sort_by_key(|(_, _, entries)| entries[0].sequence);
        let from = if self.base.sum_is_right() {
            self.base.sequence_2()
        } else {
            // Nothing in the hive says how far it got: its base block is the newest log's, and all entries
            // that lead up to that log's last are replayed.
            let Some((_, log, entries)) = runs.last() else { return Ok(()) };
            self.base = log.base.clone().into_primary();
            let newest = entries[0].sequence;
            runs.iter().rev().skip(1).fold(newest, |start, (_, _, entries)| match entries.last() {
                Some(last) if last.sequence.checked_add(1) == Some(start) => entries[0].sequence,
                _ => start,
            })
        };
        let mut next = None;
        for (number, log, entries) in runs {
            for entry in entries.iter().filter(|entry| entry.sequence >= from) {
                if next.is_some_and(|next| next != entry.sequence) {
                    break;
                }
                let failed = |source| HiveError::ReadLog { number, source };
                log.apply(entry, &mut self.draft).map_err(failed)?;
                self.base.set_bins_size(entry.bins);
                self.replayed += 1;
                next = entry.sequence.checked_add(1);
            }
        }
        Ok(())
    }

    /// Replays the first `DIRT` log that was written for this state of the hive.
    fn replay_dirt(&mut self, logs: &[(u32, Log<'_>)]) -> Result<(), HiveError> {
        let sum_is_right = self.base.sum_is_right();
        // The first bin carries the time too, should the base block be lost.
        let written = if sum_is_right { self.base.last_written() } else { self.first_bin_time()? };
        for (number, log) in logs {
            let failed = |source| HiveError::ReadLog { number: *number, source };
            if !log.is_dirt().map_err(failed)? || log.base.last_written() != written {
                continue;
            }
            if !log.apply_dirt(&mut self.draft).map_err(failed)? {
                continue;
            }
            if sum_is_right {
                self.base.set_bins_size(log.base.bins_size());
            } else {
                self.base = log.base.clone().into_primary();
            }
            self.highest = log.base.sequence_1();
            self.replayed = 1;
            return Ok(());
        }
        Ok(())
    }

    fn first_bin_time(&self) -> Result<u64, HiveError> {
        let offset = base_block::SIZE + 20;
        let mut time = [0; 8];
        self.draft.read_exact_at(&mut time, offset).map_err(|source| HiveError::Read { offset, source })?;
        Ok(u64::from_le_bytes(time))
    }

    /// A clean hive, newer than every entry seen.
    fn finish(self) -> Result<Recovered<R>, HiveError> {
        let newest = self.highest.max(self.base.sequence_1());
        let base = BaseBlock::new(self.base.finished(newest))?;
        Ok(Recovered { hive: Hive::with_base(self.draft, base)?, replayed: self.replayed })
    }
}

fn follows(entry: &Entry, next: &Entry) -> bool {
    entry.sequence.checked_add(1) == Some(next.sequence)
}
