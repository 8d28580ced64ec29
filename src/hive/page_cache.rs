//! A small cache in front of a slow source.

use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::io::ReadAt;

/// Page size in bytes: that of a hive's smallest bin, so that a look-up's cells mostly share one.
const PAGE: usize = 4096;

/// How many pages are kept at most: half a MiB.
const SLOTS: usize = 128;

/// A page's number, and its bytes.
type Slot = Option<(u64, Box<[u8]>)>;

/// A source with its last used pages of 4096 bytes in memory, 512 KiB at most.
///
/// Reads of a page or more pass it by.
#[derive(Debug)]
pub struct PageCache<R> {
    source: R,
    /// Page `n` has its place in slot `n % SLOTS`.
    slots: Mutex<Vec<Slot>>,
}

impl<R: ReadAt> PageCache<R> {
    /// Reads `source` by pages.
    pub fn new(source: R) -> Self {
        Self { source, slots: Mutex::new(vec![None; SLOTS]) }
    }

    /// Copies the part of one page that `buf` asks for.
    fn read_in_page(&self, buf: &mut [u8], page: u64, within: usize) -> io::Result<()> {
        // What a panicking thread leaves in a slot is a whole page or none.
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut slots[(page % SLOTS as u64) as usize];
        let bytes = match slot {
            Some((number, bytes)) if *number == page => bytes,
            _ => {
                let start = page * PAGE as u64;
                // The last page may be short.
                let len = (self.source.size() - start).min(PAGE as u64) as usize;
                let mut bytes = vec![0; len].into_boxed_slice();
                self.source.read_exact_at(&mut bytes, start)?;
                &mut slot.insert((page, bytes)).1
            }
        };
        buf.copy_from_slice(&bytes[within..within + buf.len()]);
        Ok(())
    }
}

impl<R: ReadAt> ReadAt for PageCache<R> {
    fn size(&self) -> u64 {
        self.source.size()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let inside = offset.checked_add(buf.len() as u64).is_some_and(|end| end <= self.size());
        // The source words the error for a read past the end.
        if buf.len() >= PAGE || !inside {
            return self.source.read_exact_at(buf, offset);
        }
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let within = (at % PAGE as u64) as usize;
            let len = (PAGE - within).min(buf.len() - done);
            self.read_in_page(&mut buf[done..done + len], at / PAGE as u64, within)?;
            done += len;
        }
        Ok(())
    }

    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        self.source.next_data(from)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    struct Counting(Vec<u8>, AtomicU32);
    impl ReadAt for Counting {
        fn size(&self) -> u64 {
            self.0.size()
        }
        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.read_exact_at(buf, offset)
        }
    }

    #[test]
    fn bytes_are_the_same_and_reads_are_fewer() {
        let bytes: Vec<u8> = (0..2_000_003u32).map(|i| (i % 251) as u8).collect();
        let source = Counting(bytes.clone(), AtomicU32::new(0));
        let cache = PageCache::new(&source);
        let mut buf = [0; 300];
        for offset in (0..bytes.len() - 300).step_by(100) {
            cache.read_exact_at(&mut buf, offset as u64).unwrap();
            assert_eq!(&buf[..], &bytes[offset..offset + 300]);
        }
        assert!(source.1.load(Ordering::Relaxed) <= 489);
        let mut rest = [0; 3];
        cache.read_exact_at(&mut rest, 2_000_000).unwrap();
        assert!(cache.read_exact_at(&mut rest, 2_000_001).is_err());
        assert!(cache.read_exact_at(&mut rest, u64::MAX).is_err());
        let mut big = vec![0; 70_000];
        cache.read_exact_at(&mut big, 5).unwrap();
        assert_eq!(&big[..], &bytes[5..70_005]);
    }
}
