//! The tar in a layer, read at any offset: only the frames that are needed are fetched.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use zstd::bulk;

use super::seek_table::{Frame, SeekTable};
use crate::io::ReadAt;

/// What is kept of frames that were unpacked: 16 of ours.
const KEPT: u64 = 64 << 20;
/// The most that is fetched at once: frames side by side that one read wants.
const MERGED: u64 = 16 << 20;

/// A tar that is read through a seek table.
///
/// Nothing is checked against a digest: that takes the whole layer.
pub struct SeekableTar<R> {
    layer: R,
    table: SeekTable,
    kept: Mutex<Kept>,
}

/// Frames that were unpacked, the last used one at the end.
#[derive(Default)]
struct Kept {
    frames: VecDeque<(usize, Arc<[u8]>)>,
    bytes: u64,
}

impl Kept {
    fn get(&mut self, number: usize) -> Option<Arc<[u8]>> {
        let at = self.frames.iter().position(|(kept, _)| *kept == number)?;
        let (number, frame) = self.frames.remove(at)?;
        self.frames.push_back((number, frame.clone()));
        Some(frame)
    }

    fn has(&self, number: usize) -> bool {
        self.frames.iter().any(|(kept, _)| *kept == number)
    }

    fn put(&mut self, number: usize, frame: Arc<[u8]>) {
        self.bytes += frame.len() as u64;
        self.frames.push_back((number, frame));
        while self.bytes > KEPT
            && let Some((_, oldest)) = self.frames.pop_front()
        {
            self.bytes -= oldest.len() as u64;
        }
    }
}

impl<R: ReadAt> SeekableTar<R> {
    /// Reads the tar in `layer`, whose frames are where `table` says.
    pub fn new(layer: R, table: SeekTable) -> Self {
        Self { layer, table, kept: Mutex::default() }
    }

    /// The table.
    pub fn table(&self) -> &SeekTable {
        &self.table
    }

    /// The layer.
    pub fn layer(&self) -> &R {
        &self.layer
    }

    /// Frame `number`, which is fetched with those that follow it up to `last`, as far as they are not kept and
    /// not too many.
    fn fetch(&self, kept: &mut Kept, number: usize, last: usize) -> io::Result<Arc<[u8]>> {
        if let Some(frame) = kept.get(number) {
            return Ok(frame);
        }
        let missing = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let mut frames = vec![self.table.frame(number).ok_or_else(missing)?];
        let from = frames[0].layer.start;
        for next in number + 1..=last {
            match self.table.frame(next) {
                Some(frame)
                    if !kept.has(next)
                        && frame.layer.end - from <= MERGED
                        // Else the first of them would be forgotten before they are used.
                        && frame.tar.end - frames[0].tar.start <= KEPT / 2 =>
                {
                    frames.push(frame);
                }
                _ => break,
            }
        }
        let end = frames.last().map_or(from, |frame| frame.layer.end);
        let mut bytes = vec![0; (end - from) as usize];
        self.layer.read_exact_at(&mut bytes, from)?;
        let mut wanted = None;
        for (nth, frame) in frames.iter().enumerate() {
            let within = (frame.layer.start - from) as usize..(frame.layer.end - from) as usize;
            let unpacked: Arc<[u8]> = self.unpack(frame, &bytes[within])?.into();
            wanted.get_or_insert_with(|| unpacked.clone());
            kept.put(number + nth, unpacked);
        }
        wanted.ok_or_else(missing)
    }

    fn unpack(&self, frame: &Frame, packed: &[u8]) -> io::Result<Vec<u8>> {
        if !self.table.is_packed() {
            return Ok(packed.to_vec());
        }
        let want = (frame.tar.end - frame.tar.start) as usize;
        let damaged = |why: String| {
            let at = frame.layer.start;
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the layer's frame at offset {at} is damaged: {why}"),
            )
        };
        // Without `want` bytes of room the decoder fails: no frame takes more than its entry says.
        let unpacked = bulk::decompress(packed, want).map_err(|e| damaged(e.to_string()))?;
        if unpacked.len() != want {
            return Err(damaged(format!("it holds {} bytes and not {want}", unpacked.len())));
        }
        Ok(unpacked)
    }
}

impl<R: ReadAt> ReadAt for SeekableTar<R> {
    fn size(&self) -> u64 {
        self.table.tar_size()
    }

    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= self.size());
        let Some(end) = end else { return Err(io::ErrorKind::UnexpectedEof.into()) };
        if buf.is_empty() {
            return Ok(());
        }
        let last = self.table.frame_at(end - 1);
        // One reader at a time: what two want is fetched once. A panic leaves whole frames.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        while !buf.is_empty() {
            let number = self.table.frame_at(offset);
            let frame = self.fetch(&mut kept, number, last)?;
            let tar: Range<u64> = self.table.frame(number).map_or(0..0, |frame| frame.tar);
            let within = (offset - tar.start) as usize;
            let len = (frame.len() - within).min(buf.len());
            let (now, rest) = buf.split_at_mut(len);
            now.copy_from_slice(&frame[within..within + len]);
            buf = rest;
            offset += len as u64;
        }
        Ok(())
    }

    fn check_unchanged(&self) -> io::Result<()> {
        self.layer.check_unchanged()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::containerdisk::{Chunk, Compression, Layer, Sink};
    use crate::io::Silent;
    use std::num::NonZeroUsize;

    /// Says what was asked of it.
    struct Watched {
        bytes: Vec<u8>,
        asked: Mutex<Vec<Range<u64>>>,
    }

    impl ReadAt for Watched {
        fn size(&self) -> u64 {
            self.bytes.len() as u64
        }
        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
            self.asked.lock().unwrap().push(offset..offset + buf.len() as u64);
            self.bytes.read_exact_at(buf, offset)
        }
    }

    struct Kept(Vec<u8>);
    impl Sink for Kept {
        fn take(&mut self, chunk: &Chunk) -> io::Result<()> {
            self.0.extend_from_slice(chunk.as_ref());
            Ok(())
        }
    }

    fn written(tar: &[u8], compression: Compression) -> SeekableTar<Watched> {
        let mut layer = Kept(Vec::new());
        Layer::new(&tar, compression, NonZeroUsize::MIN).write(0, &mut [&mut layer], &Silent).unwrap();
        let layer = Watched { bytes: layer.0, asked: Mutex::default() };
        let table = SeekTable::read(&layer, compression.media_type()).unwrap();
        layer.asked.lock().unwrap().clear();
        SeekableTar::new(layer, table)
    }

    fn read(tar: &SeekableTar<Watched>, range: Range<usize>) -> Vec<u8> {
        let mut buf = vec![0; range.len()];
        tar.read_exact_at(&mut buf, range.start as u64).unwrap();
        buf
    }

    #[test]
    fn any_part_is_what_was_packed_and_only_its_frames_are_fetched() {
        let content: Vec<u8> = (0..30usize << 20).map(|i| (i / 997 * (i % 5 + 1)) as u8).collect();
        for compression in [Compression::Zstd(1), Compression::None] {
            let tar = written(&content, compression);
            assert_eq!(tar.size(), content.len() as u64);
            for range in [0..1, 65_530..65_540, 5_000_000..5_000_000, 29 << 20..30 << 20, 3 << 20..17 << 20] {
                assert!(read(&tar, range.clone()) == content[range.clone()], "{compression:?} {range:?}");
            }
            assert!(tar.read_exact_at(&mut [0; 2], tar.size() - 1).is_err());
            assert!(tar.read_exact_at(&mut [0; 2], u64::MAX).is_err());
        }
    }

    #[test]
    fn neighbours_are_fetched_at_once_and_nothing_twice() {
        let tar = written(&vec![7; 40 << 20], Compression::Zstd(1));
        read(&tar, 1 << 20..2 << 20);
        assert_eq!(tar.layer().asked.lock().unwrap().len(), 1);
        read(&tar, 0..39 << 20);
        // Frame 0, and those after the one that is kept: 32 MiB and the rest.
        assert_eq!(tar.layer().asked.lock().unwrap().len(), 4);
        read(&tar, 30 << 20..39 << 20);
        assert_eq!(tar.layer().asked.lock().unwrap().len(), 4);
    }

    #[test]
    fn memory_is_bounded() {
        let tar = written(&vec![7; 200 << 20], Compression::Zstd(1));
        read(&tar, 0..200 << 20);
        assert!(tar.layer().asked.lock().unwrap().len() <= 8);
        for at in 0..200 {
            read(&tar, at << 20..(at << 20) + 1);
        }
        assert!(tar.kept.lock().unwrap().bytes <= KEPT);
    }

    #[test]
    fn a_damaged_frame_is_told() {
        let mut tar = written(&vec![7; 9 << 20], Compression::Zstd(1));
        let frame = tar.table.frame(1).unwrap();
        tar.layer.bytes[frame.layer.start as usize] ^= 1;
        let error = tar.read_exact_at(&mut [0; 1], 1 << 20).unwrap_err().to_string();
        assert!(error.contains("frame at offset") && error.contains("damaged"), "{error}");
    }
}
