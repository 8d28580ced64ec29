//! Reading at an offset, without a shared position: what every parser here reads through.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

/// A fixed number of bytes that can be read at any offset, by many threads at once.
pub trait ReadAt: Send + Sync {
    /// The number of bytes, which never changes.
    fn size(&self) -> u64;

    /// Fills `buf` from `offset`; reading past the end is `UnexpectedEof`.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// The first range at or after `from` that may hold something else than zeros; `None`: only zeros to the end.
    ///
    /// It only saves reading: what lies outside reads as zeros, and what lies inside may be zeros too.
    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        Ok((from < self.size()).then(|| from..self.size()))
    }

    /// An error where the bytes are known to have changed since this was opened; sources that can't tell say `Ok`.
    ///
    /// For those who read a source in many steps and must not mix two states of it: asked once, at the end.
    fn check_unchanged(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Whatever points at a source is one.
macro_rules! read_through {
    ($($pointer:ty),+) => {$(
        impl<T: ReadAt + ?Sized> ReadAt for $pointer {
            fn size(&self) -> u64 {
                (**self).size()
            }
            fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
                (**self).read_exact_at(buf, offset)
            }
            fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
                (**self).next_data(from)
            }
            fn check_unchanged(&self) -> io::Result<()> {
                (**self).check_unchanged()
            }
        }
    )+};
}

read_through!(&T, Box<T>, std::sync::Arc<T>);

impl ReadAt for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let range = checked_range(offset, buf.len(), self.size())?;
        // The range lies inside the slice, so it fits a usize.
        buf.copy_from_slice(&self[range.start as usize..range.end as usize]);
        Ok(())
    }
}

impl ReadAt for Vec<u8> {
    fn size(&self) -> u64 {
        self.as_slice().size()
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.as_slice().read_exact_at(buf, offset)
    }
}

/// `offset..offset + len`, if that lies within `size` bytes.
pub(super) fn checked_range(offset: u64, len: usize, size: u64) -> io::Result<Range<u64>> {
    match offset.checked_add(len as u64) {
        Some(end) if end <= size => Ok(offset..end),
        _ => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("{len} bytes at offset {offset} lie past the end ({size} bytes)"),
        )),
    }
}

/// A part of a source, with offsets of its own: a partition of a disk, say.
#[derive(Debug, Clone)]
pub struct Window<R> {
    source: R,
    start: u64,
    size: u64,
}

impl<R: ReadAt> Window<R> {
    /// The `size` bytes of `source` from `start`, or `None` where they reach past its end.
    pub fn new(source: R, start: u64, size: u64) -> Option<Self> {
        let end = start.checked_add(size)?;
        (end <= source.size()).then_some(Self { source, start, size })
    }

    /// Where in the source this part begins, in bytes.
    pub fn start(&self) -> u64 {
        self.start
    }
}

impl<R: ReadAt> ReadAt for Window<R> {
    fn size(&self) -> u64 {
        self.size
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let range = checked_range(offset, buf.len(), self.size)?;
        self.source.read_exact_at(buf, self.start + range.start)
    }
    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        if from >= self.size {
            return Ok(None);
        }
        let end = self.start + self.size;
        Ok(self.source.next_data(self.start + from)?.and_then(|data| {
            let range = data.start - self.start..data.end.min(end).saturating_sub(self.start);
            (range.start < range.end).then_some(range)
        }))
    }
    fn check_unchanged(&self) -> io::Result<()> {
        self.source.check_unchanged()
    }
}

/// A position over a [`ReadAt`], for libraries that want `Read + Seek`.
#[derive(Debug)]
pub struct Cursor<R> {
    source: R,
    position: u64,
}

impl<R: ReadAt> Cursor<R> {
    /// Starts at offset 0.
    pub fn new(source: R) -> Self {
        Self { source, position: 0 }
    }
}

impl<R: ReadAt> Read for Cursor<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.source.size().saturating_sub(self.position);
        let len = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if len > 0 {
            self.source.read_exact_at(&mut buf[..len], self.position)?;
        }
        self.position += len as u64;
        Ok(len)
    }
}

impl<R: ReadAt> Seek for Cursor<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(delta) => self.source.size().checked_add_signed(delta),
            SeekFrom::Current(delta) => self.position.checked_add_signed(delta),
        };
        self.position =
            target.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "seek before the start"))?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_window_never_reads_its_neighbours() {
        let disk: Vec<u8> = (0..100).collect();
        let window = Window::new(&disk, 10, 20).unwrap();
        let mut buf = [0; 20];
        window.read_exact_at(&mut buf, 0).unwrap();
        assert_eq!((buf[0], buf[19]), (10, 29));
        assert_eq!(window.read_exact_at(&mut buf, 1).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(
            window.read_exact_at(&mut buf, u64::MAX).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
        assert_eq!(window.next_data(5).unwrap(), Some(5..20));
        assert!(Window::new(&disk, 90, 11).is_none());
        assert!(Window::new(&disk, u64::MAX, 2).is_none());
    }

    #[test]
    fn a_cursor_stops_at_the_end() {
        let mut cursor = Cursor::new(vec![1u8, 2, 3]);
        cursor.seek(SeekFrom::End(-1)).unwrap();
        let mut buf = [0; 8];
        assert_eq!(cursor.read(&mut buf).unwrap(), 1);
        assert_eq!(cursor.read(&mut buf).unwrap(), 0);
        cursor.seek(SeekFrom::Start(50)).unwrap();
        assert_eq!(cursor.read(&mut buf).unwrap(), 0);
        assert!(cursor.seek(SeekFrom::Current(-51)).is_err());
    }
}
