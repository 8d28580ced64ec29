//! Writes a disk to a target, clears what the disk has as zeros, and reads all of it back.

use std::ops::Range;

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::file::write_zeros;
use super::{Clear, DiskSink, Target, TargetError};
use crate::io::Task;

/// The largest disk that is written, in bytes: 64 TiB, for which the map takes 128 MiB at most.
const MAX_DISK: u64 = 1 << 46;
/// What is written or left out as one, in bytes; a block of zeros is a hole.
pub const BLOCK: u64 = 64 << 10;
static ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];
/// Each has a checksum of its own, to say where what is read back differs.
const REGION: u64 = 64 << 20;
/// Held back until everything else is there, in bytes: a boot sector and the partition tables.
const HEAD: u64 = 1 << 20;
/// Read at once when comparing, in bytes.
const READ_AT_ONCE: u64 = 4 << 20;
/// Flushed each time so much was written: else the last flush takes minutes, and nothing is heard of it.
const SYNC_EVERY: u64 = 1 << 30;

/// What is done where the disk has zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Holes {
    /// Nothing: the target reads as zeros there.
    Skip,
    /// Given back to the storage, where it promises zeros; else zeros are written.
    Punch,
    /// Zeros are written, and keep their place.
    Zero,
}

/// What became of the disk's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The disk's size.
    pub size: u64,
    /// Bytes written.
    pub written: u64,
    /// Bytes of the disk that are zeros and were skipped, punched or zeroed.
    pub holes: u64,
    /// The sector size of its GPT, if it has one.
    pub gpt_sector: Option<u32>,
}

/// One disk on its way to one target.
pub struct Flasher<'t> {
    target: &'t mut dyn Target,
    task: Box<dyn Task>,
    holes: Holes,
    /// A GPT of other sectors than the target's is written all the same.
    any_sector: bool,
    /// It will be read back.
    compare: bool,
    started: bool,
    size: u64,
    /// Up to here the disk is written or cleared.
    at: u64,
    head: Vec<u8>,
    /// Which blocks were written: a bit each.
    map: Vec<u64>,
    sums: Vec<[u8; 32]>,
    hash: Sha256,
    written: u64,
    unsynced: u64,
}

impl<'t> Flasher<'t> {
    /// `task` is over the disk's size.
    pub fn new(target: &'t mut dyn Target, holes: Holes, any_sector: bool, task: Box<dyn Task>) -> Self {
        Self {
            target,
            task,
            holes,
            any_sector,
            compare: true,
            started: false,
            size: 0,
            at: 0,
            head: Vec::new(),
            map: Vec::new(),
            sums: Vec::new(),
            hash: Sha256::new(),
            written: 0,
            unsynced: 0,
        }
    }

    /// Saves what [`Flasher::verify`] needs, which is not to be called then.
    pub fn without_verify(mut self) -> Self {
        self.compare = false;
        self
    }

    /// Whether anything was written: a target that is not new is not what it was.
    pub fn has_begun(&self) -> bool {
        self.started
    }

    fn is_data(&self, block: u64) -> bool {
        self.map.get((block / 64) as usize).is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    /// Before the first byte is written: what was bootable is so no longer.
    fn start(&mut self, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
        if std::mem::replace(&mut self.started, true) {
            return Ok(());
        }
        let sectors = if offset == 0 { gpt_sector(bytes) } else { None };
        if let (Some(disk), Some(device), false) = (sectors, self.target.sector_size(), self.any_sector)
            && disk != device
        {
            return Err(TargetError::SectorSize { device, disk });
        }
        if !self.target.is_new() {
            self.target.write(&self.head, 0, &*self.task)?;
            // On a larger target: where an older disk's backup GPT would be.
            if let Some(end) = self.target.capacity().filter(|end| *end > self.size) {
                let last = self.size.next_multiple_of(BLOCK).max(end.saturating_sub(HEAD)).min(end);
                write_zeros(last..end, &*self.task, |zeros, at| self.target.write(zeros, at, &*self.task))?;
            }
            self.target.sync(&*self.task)?;
        }
        Ok(())
    }

    /// Makes everything from `at` to `end` zeros; what belongs to the head is zeros there already.
    fn pass_over(&mut self, end: u64) -> Result<(), TargetError> {
        let gap = self.at.max(HEAD.min(self.size))..end;
        if gap.start < gap.end {
            match self.holes {
                Holes::Skip => {}
                Holes::Punch => self.target.clear(gap, Clear::Punch, &*self.task)?,
                Holes::Zero => self.target.clear(gap, Clear::Zero, &*self.task)?,
            }
        }
        self.seal_regions(end);
        self.task.advance(end - self.at)?;
        self.at = end;
        Ok(())
    }

    /// Ends the checksum of every region that lies wholly before `at`.
    fn seal_regions(&mut self, at: u64) {
        while (self.sums.len() as u64 + 1) * REGION <= at {
            self.sums.push(std::mem::take(&mut self.hash).finalize().into());
        }
    }

    /// Writes a run of blocks that are not all zeros.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
        self.pass_over(offset)?;
        let end = offset + bytes.len() as u64;
        for block in offset / BLOCK..end.div_ceil(BLOCK) {
            if let Some(word) = self.map.get_mut((block / 64) as usize) {
                *word |= 1 << (block % 64);
            }
        }
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            self.seal_regions(at);
            let (piece, left) = rest.split_at(((REGION - at % REGION) as usize).min(rest.len()));
            if self.compare {
                self.hash.update(piece);
            }
            at += piece.len() as u64;
            rest = left;
        }
        let kept = HEAD.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let (head, body) = bytes.split_at(kept);
        if !head.is_empty() {
            self.head[offset as usize..offset as usize + kept].copy_from_slice(head);
        }
        if !body.is_empty() {
            self.target.write(body, offset + kept as u64, &*self.task)?;
        }
        self.written += bytes.len() as u64;
        self.unsynced += bytes.len() as u64;
        if self.unsynced >= SYNC_EVERY && !self.target.is_new() {
            self.target.sync(&*self.task)?;
            self.unsynced = 0;
        }
        self.task.advance(bytes.len() as u64)?;
        self.at = end;
        self.seal_regions(end);
        Ok(())
    }

    /// Clears what is left, and writes the head. What the disk's bytes are worth must be known by now.
    pub fn finish(&mut self) -> Result<Written, TargetError> {
        self.start(self.size, &[])?;
        self.pass_over(self.size)?;
        self.target.sync(&*self.task)?;
        for block in 0..HEAD.min(self.size).div_ceil(BLOCK) {
            let (start, end) = (block * BLOCK, ((block + 1) * BLOCK).min(self.head.len() as u64));
            if self.is_data(block) || self.holes == Holes::Zero {
                self.target.write(&self.head[start as usize..end as usize], start, &*self.task)?;
            }
        }
        self.target.sync(&*self.task)?;
        let left = std::mem::take(&mut self.hash).finalize();
        self.sums.push(left.into());
        let (size, written) = (self.size, self.written);
        Ok(Written { size, written, holes: size - written, gpt_sector: gpt_sector(&self.head) })
    }

    /// Reads the target back and compares; `task` is over the disk's size.
    pub fn verify(&mut self, task: &dyn Task) -> Result<(), TargetError> {
        self.target.forget();
        let mut buf = vec![0; READ_AT_ONCE as usize];
        for (region, sum) in self.sums.clone().into_iter().enumerate() {
            let start = region as u64 * REGION;
            let end = (start + REGION).min(self.size);
            let (mut at, mut hash) = (start, Sha256::new());
            while at < end {
                let data = self.is_data(at / BLOCK);
                let run = self.run(at..end, data);
                match data {
                    true => {
                        let piece = &mut buf[..(run.end - run.start).min(READ_AT_ONCE) as usize];
                        self.target.read(piece, at, task)?;
                        hash.update(&*piece);
                        at += piece.len() as u64;
                        task.advance(piece.len() as u64)?;
                    }
                    false => {
                        self.compare_zeros(run.clone(), &mut buf, task)?;
                        at = run.end;
                    }
                }
            }
            if <[u8; 32]>::from(hash.finalize()) != sum {
                return Err(TargetError::Differs { range: start..end });
            }
        }
        Ok(())
    }

    /// The part of `within` from its start whose blocks are all data, or all not.
    fn run(&self, within: Range<u64>, data: bool) -> Range<u64> {
        let mut block = within.start / BLOCK;
        while block * BLOCK < within.end && self.is_data(block) == data {
            block += 1;
        }
        within.start..(block * BLOCK).min(within.end)
    }

    fn compare_zeros(
        &mut self,
        range: Range<u64>,
        buf: &mut [u8],
        task: &dyn Task,
    ) -> Result<(), TargetError> {
        let mut at = range.start;
        while at < range.end {
            let there = self.target.next_data(at).map_or(range.end, |data| data.start.min(range.end));
            if there > at {
                task.advance(there - at)?;
                at = there;
                continue;
            }
            let piece = &mut buf[..(range.end - at).min(READ_AT_ONCE) as usize];
            self.target.read(piece, at, task)?;
            // Whole blocks first: comparing them is as fast as memory.
            let wrong = piece.chunks(ZEROS.len()).position(|block| block != &ZEROS[..block.len()]);
            if let Some(block) = wrong {
                let within = block * ZEROS.len();
                let first = piece[within..].iter().position(|byte| *byte != 0).unwrap_or_default();
                let wrong = within + first;
                let offset = at + wrong as u64;
                return Err(match self.holes {
                    Holes::Skip if !self.target.is_new() => TargetError::NotBlank { offset },
                    _ => TargetError::Differs { range: offset..range.end },
                });
            }
            task.advance(piece.len() as u64)?;
            at += piece.len() as u64;
        }
        Ok(())
    }
}

impl DiskSink for Flasher<'_> {
    fn begin(&mut self, size: u64) -> Result<(), TargetError> {
        if let Some(has) = self.target.capacity().filter(|has| *has < size) {
            return Err(TargetError::TooSmall { has, needs: size });
        }
        if size > MAX_DISK {
            return Err(TargetError::TooLarge { size });
        }
        self.target.set_size(size)?;
        self.size = size;
        self.map = vec![0; size.div_ceil(BLOCK).div_ceil(64) as usize];
        self.head = vec![0; HEAD.min(size) as usize];
        Ok(())
    }

    fn data(&mut self, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
        debug_assert!(offset.is_multiple_of(BLOCK) && offset >= self.at);
        self.start(offset, bytes)?;
        let is_zeros = |block: &[u8]| block == &ZEROS[..block.len()];
        let block = BLOCK as usize;
        let mut start = 0;
        while start < bytes.len() {
            let data = !is_zeros(&bytes[start..bytes.len().min(start + block)]);
            let mut end = start;
            while end < bytes.len() && is_zeros(&bytes[end..bytes.len().min(end + block)]) != data {
                end += block;
            }
            let end = end.min(bytes.len());
            if data {
                self.write(offset + start as u64, &bytes[start..end])?;
            }
            start = end;
        }
        Ok(())
    }
}

/// The sector size that a GPT counts in, by where its header lies.
fn gpt_sector(start: &[u8]) -> Option<u32> {
    [512, 4096]
        .into_iter()
        .find(|at| start.get(*at as usize..).is_some_and(|rest| rest.starts_with(b"EFI PART")))
}
