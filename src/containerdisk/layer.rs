//! The layer: frames compressed by all cores, handed on in order, hashed on the way.
//!
//! Workers read and compress frames, each by itself. The calling thread puts them in order, hashes the layer and
//! feeds the sinks; one more thread hashes the tar, since SHA-256 can't be shared out and may take as long as
//! compressing does. Buffers go round between them, so memory is bounded by the number of workers alone.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::compression::{Compression, Compressor};
use super::digest::Digest;
use crate::io::{Interrupted, ReadAt, Task};

/// Some bytes of the layer, one after another: usually a frame. Clones share the bytes.
#[derive(Debug, Clone)]
pub struct Chunk {
    offset: u64,
    bytes: Arc<Vec<u8>>,
}

impl Chunk {
    /// Bytes that belong at `offset` of the layer.
    pub fn new(offset: u64, bytes: Vec<u8>) -> Self {
        Self { offset, bytes: Arc::new(bytes) }
    }

    /// Where in the layer the bytes belong.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Where the layer goes: a file, an upload.
pub trait Sink {
    /// Takes the next bytes of the layer.
    ///
    /// After a restart from an earlier frame, bytes that this sink has taken come again, the same as before:
    /// it passes over them, by their offset.
    fn take(&mut self, chunk: &Chunk) -> io::Result<()>;
}

/// What a manifest says of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerInfo {
    /// How it is compressed.
    pub compression: Compression,
    /// The digest of its bytes.
    pub digest: Digest,
    /// Its bytes.
    pub size: u64,
    /// The digest of the tar inside.
    pub diff_id: Digest,
    /// The bytes of the tar inside.
    pub tar_size: u64,
}

/// Why a layer can't be written.
#[derive(Debug, Error)]
pub enum LayerError {
    /// The disk could not be read.
    #[error("reading what is to be packaged failed, at offset {offset} of the tar")]
    Read {
        /// The tar offset of the frame that was being made.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// The compressor failed.
    #[error("compressing failed")]
    Compress(#[source] io::Error),
    /// A sink did not take the bytes.
    #[error("writing the layer failed at offset {offset}")]
    Sink {
        /// Which of the sinks, in the order in which they were given.
        sink: usize,
        /// Where in the layer.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// The disk changed while it was read: the layer would be a mixture.
    #[error("the disk was changed while it was packaged; nothing else may use it in the meantime")]
    Changed(#[source] io::Error),
    /// A frame that was made a second time is not what it was.
    #[error("frame {frame} came out differently when it was made again: the disk has changed")]
    Differs {
        /// The frame's number.
        frame: u64,
    },
    /// The user asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// A layer in the making.
pub struct Layer<'d> {
    tar: &'d dyn ReadAt,
    compression: Compression,
    workers: NonZeroUsize,
    /// Where each frame made so far ends in the layer. Both hashes have come to the last of them.
    ends: Vec<u64>,
    tar_hash: Sha256,
    layer_hash: Sha256,
    done: Option<LayerInfo>,
}

impl<'d> Layer<'d> {
    /// The layer of this tar. The number of workers changes nothing of its bytes.
    pub fn new(tar: &'d dyn ReadAt, compression: Compression, workers: NonZeroUsize) -> Self {
        Self {
            tar,
            compression,
            workers,
            ends: Vec::new(),
            tar_hash: Sha256::new(),
            layer_hash: Sha256::new(),
            done: None,
        }
    }

    /// The frame that holds this byte of the layer, or the next one to be made where it is not made yet.
    pub fn frame_at(&self, offset: u64) -> u64 {
        self.ends.partition_point(|end| *end <= offset) as u64
    }

    /// Makes the frames from number `from` on, and hands them to every sink.
    ///
    /// Where a sink failed, this can be called again: with [`Layer::frame_at`] the first byte that a sink lacks.
    /// What was hashed is not hashed again. `task` counts bytes of the tar.
    pub fn write(
        &mut self,
        from: u64,
        sinks: &mut [&mut dyn Sink],
        task: &dyn Task,
    ) -> Result<LayerInfo, LayerError> {
        // Frames that were never made can't be passed over: they must be hashed.
        let from = from.min(self.ends.len() as u64);
        let count = self.compression.frames(self.tar.size());
        self.stream(from..count, sinks, task)?;
        // Before the last bytes, so that no sink ever holds a whole layer of a changed disk.
        self.tar.check_unchanged().map_err(LayerError::Changed)?;
        let offset = self.ends.last().copied().unwrap_or(0);
        let tail = self.compression.tail(self.frame_sizes());
        let info = match self.done {
            Some(info) => info,
            None => {
                self.layer_hash.update(&tail);
                *self.done.insert(LayerInfo {
                    compression: self.compression,
                    digest: Digest::from_hash(self.layer_hash.clone()),
                    size: offset + tail.len() as u64,
                    diff_id: Digest::from_hash(self.tar_hash.clone()),
                    tar_size: self.tar.size(),
                })
            }
        };
        feed(sinks, &Chunk { offset, bytes: Arc::new(tail) })?;
        Ok(info)
    }

    /// Each frame's bytes in the layer and in the tar.
    fn frame_sizes(&self) -> impl Iterator<Item = (u64, u64)> {
        let starts = std::iter::once(&0).chain(&self.ends);
        self.ends.iter().zip(starts).zip(0..).map(|((end, start), index)| {
            let tar = self.compression.frame(index, self.tar.size());
            (end - start, tar.end - tar.start)
        })
    }

    fn stream(
        &mut self,
        frames: Range<u64>,
        sinks: &mut [&mut dyn Sink],
        task: &dyn Task,
    ) -> Result<(), LayerError> {
        let (raw_back, raw) = channel();
        let (packed_back, packed) = channel();
        // Enough that workers seldom wait for a slower one's frame to be handed on. With the compressor's tables,
        // that is less than 64 MiB and 32 MiB a worker.
        let workers = self.workers.get();
        for _ in 0..workers + workers / 2 + 3 {
            let _ = raw_back.send(Vec::new());
            let _ = packed_back.send(Vec::new());
        }
        let line =
            Line { layer: self, sinks, task, next: frames.start, waiting: BTreeMap::new(), packed_back };
        let (tar, compression) = (line.layer.tar, line.layer.compression);
        let desk = Mutex::new(Desk { frames, raw, packed });
        let mut tar_hash = line.layer.tar_hash.clone();
        let outcome = thread::scope(|scope| {
            let (done, finished) = channel();
            for _ in 0..workers {
                let (done, desk) = (done.clone(), &desk);
                scope.spawn(move || work(tar, compression, desk, &done));
            }
            drop(done);
            let (to_hash, hash_these) = channel();
            let tar_hash = &mut tar_hash;
            scope.spawn(move || {
                for (raw, new) in hash_these {
                    if new {
                        tar_hash.update(&raw);
                    }
                    // No worker may be left to want it.
                    let _ = raw_back.send(raw);
                }
            });
            // On an error all channels close as they are dropped here, and every thread ends at its next step.
            line.run(finished, to_hash)
        });
        self.tar_hash = tar_hash;
        outcome
    }
}

/// A frame, compressed.
struct Made {
    index: u64,
    raw: Vec<u8>,
    packed: Vec<u8>,
}

/// Where workers get the next frame's number and the buffers for it.
struct Desk {
    frames: Range<u64>,
    raw: Receiver<Vec<u8>>,
    packed: Receiver<Vec<u8>>,
}

impl Desk {
    /// `None` when no frame is left, or when nobody wants one any more.
    ///
    /// Buffers first, then the number: so every numbered frame is finished, and the lowest is never waited for in vain.
    fn take(&mut self) -> Option<Made> {
        if self.frames.is_empty() {
            return None;
        }
        let (raw, packed) = (self.raw.recv().ok()?, self.packed.recv().ok()?);
        Some(Made { index: self.frames.next()?, raw, packed })
    }
}

fn work(
    tar: &dyn ReadAt,
    compression: Compression,
    desk: &Mutex<Desk>,
    done: &Sender<Result<Made, LayerError>>,
) {
    let make = |compressor: &mut Compressor, frame: &mut Made| {
        let range = compression.frame(frame.index, tar.size());
        frame.raw.resize((range.end - range.start) as usize, 0);
        tar.read_exact_at(&mut frame.raw, range.start)
            .map_err(|source| LayerError::Read { offset: range.start, source })?;
        compressor.compress(frame.index, &frame.raw, &mut frame.packed).map_err(LayerError::Compress)
    };
    let _alarm = Alarm(done);
    let mut compressor = match compression.compressor() {
        Ok(compressor) => compressor,
        Err(e) => {
            let _ = done.send(Err(LayerError::Compress(e)));
            return;
        }
    };
    // A poisoned lock means that another worker panicked, which ends the whole.
    while let Some(mut frame) = desk.lock().ok().and_then(|mut desk| desk.take()) {
        let outcome = make(&mut compressor, &mut frame).map(|()| frame);
        let failed = outcome.is_err();
        if done.send(outcome).is_err() || failed {
            return;
        }
    }
}

/// Ends the wait for a frame whose worker panicked: a bug must not look like a disk that takes long.
struct Alarm<'a>(&'a Sender<Result<Made, LayerError>>);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.0.send(Err(LayerError::Compress(io::Error::other("a worker panicked"))));
        }
    }
}

/// Puts frames in order and hands them on: the one place where order matters.
struct Line<'l, 'd, 's, 'w> {
    layer: &'l mut Layer<'d>,
    sinks: &'s mut [&'w mut dyn Sink],
    task: &'s dyn Task,
    next: u64,
    waiting: BTreeMap<u64, Made>,
    packed_back: Sender<Vec<u8>>,
}

impl Line<'_, '_, '_, '_> {
    fn run(
        mut self,
        finished: Receiver<Result<Made, LayerError>>,
        to_hash: Sender<(Vec<u8>, bool)>,
    ) -> Result<(), LayerError> {
        for made in finished {
            let made = made?;
            self.waiting.insert(made.index, made);
            while let Some(made) = self.waiting.remove(&self.next) {
                self.hand_on(made, &to_hash)?;
                self.next += 1;
            }
        }
        Ok(())
    }

    fn hand_on(&mut self, made: Made, to_hash: &Sender<(Vec<u8>, bool)>) -> Result<(), LayerError> {
        let Made { index, raw, packed } = made;
        let ends = &mut self.layer.ends;
        let offset = index.checked_sub(1).and_then(|before| ends.get(before as usize)).copied().unwrap_or(0);
        let end = offset + packed.len() as u64;
        let known = ends.get(index as usize).copied();
        if known.is_some_and(|known| known != end) {
            return Err(LayerError::Differs { frame: index });
        }
        let new = known.is_none();
        self.task.advance(if new { raw.len() as u64 } else { 0 })?;
        if new {
            ends.push(end);
            self.layer.layer_hash.update(&packed);
        }
        let _ = to_hash.send((raw, new));
        let chunk = Chunk { offset, bytes: Arc::new(packed) };
        feed(self.sinks, &chunk)?;
        // A sink may still hold the bytes: then its place in the round is taken by a new buffer.
        let _ = self.packed_back.send(Arc::into_inner(chunk.bytes).unwrap_or_default());
        Ok(())
    }
}

fn feed(sinks: &mut [&mut dyn Sink], chunk: &Chunk) -> Result<(), LayerError> {
    for (sink, writer) in sinks.iter_mut().enumerate() {
        writer.take(chunk).map_err(|source| LayerError::Sink { sink, offset: chunk.offset, source })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::io::Silent;
    use std::io::Read;
    use std::sync::atomic::{AtomicU64, Ordering};

    const MIB: usize = 1 << 20;

    fn workers(n: usize) -> NonZeroUsize {
        NonZeroUsize::new(n).unwrap()
    }

    /// Compressible, and different in every frame.
    fn tar(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i / 997 * (i % 5 + 1)) as u8).collect()
    }

    /// Keeps what it takes, and fails once at a byte.
    #[derive(Default)]
    struct Kept {
        bytes: Vec<u8>,
        fail_at: Option<u64>,
    }
    impl Sink for Kept {
        fn take(&mut self, chunk: &Chunk) -> io::Result<()> {
            let (offset, bytes) = (chunk.offset() as usize, chunk.as_ref());
            assert!(offset <= self.bytes.len());
            if self.fail_at.is_some_and(|at| at < (offset + bytes.len()) as u64) {
                // Half of it arrived, as on a line that was cut.
                self.bytes.extend_from_slice(&bytes[..bytes.len() / 2]);
                self.fail_at = None;
                return Err(io::Error::other("cut"));
            }
            let had = self.bytes.len() - offset;
            self.bytes.extend_from_slice(bytes.get(had..).unwrap_or_default());
            Ok(())
        }
    }

    fn written(tar: &[u8], compression: Compression, n: usize) -> (LayerInfo, Vec<u8>) {
        let source = tar.to_vec();
        let mut kept = Kept::default();
        let info = Layer::new(&source, compression, workers(n)).write(0, &mut [&mut kept], &Silent).unwrap();
        (info, kept.bytes)
    }

    fn unpacked(layer: &[u8], compression: Compression) -> Vec<u8> {
        let mut out = Vec::new();
        match compression {
            Compression::None => out.extend_from_slice(layer),
            Compression::Gzip(_) => {
                flate2::read::MultiGzDecoder::new(layer).read_to_end(&mut out).unwrap();
            }
            Compression::Zstd(_) => out = zstd::decode_all(layer).unwrap(),
        }
        out
    }

    #[test]
    fn the_digests_are_of_what_was_written_whatever_the_workers() {
        let tar = tar(19 * MIB + 12_345);
        for compression in [Compression::Zstd(1), Compression::Gzip(1), Compression::None] {
            let (info, layer) = written(&tar, compression, 1);
            assert_eq!(unpacked(&layer, compression), tar);
            assert_eq!((info.digest, info.size), (Digest::of(&layer), layer.len() as u64));
            assert_eq!((info.diff_id, info.tar_size), (Digest::of(&tar), tar.len() as u64));
            for n in [2, 5] {
                assert!(written(&tar, compression, n) == (info, layer.clone()), "{compression:?}");
            }
        }
    }

    #[test]
    fn the_first_zstd_frame_is_stored_and_the_last_is_a_seek_table() {
        let tar = tar(9 * MIB);
        let (_, layer) = written(&tar, Compression::Zstd(3), 2);
        assert_eq!(layer[..4], [0x28, 0xB5, 0x2F, 0xFD]);
        assert_eq!(layer[12..12 + 65_536], tar[..65_536]);
        // The table alone is enough to find each frame.
        assert_eq!(layer[layer.len() - 4..], 0x8F92_EAB1u32.to_le_bytes());
        let count = u32::from_le_bytes(layer[layer.len() - 9..layer.len() - 5].try_into().unwrap()) as usize;
        let table = &layer[layer.len() - 9 - count * 8..];
        let (mut at, mut found) = (0, Vec::new());
        for entry in table[..count * 8].chunks(8) {
            let len = u32::from_le_bytes(entry[..4].try_into().unwrap()) as usize;
            let frame = zstd::decode_all(&layer[at..at + len]).unwrap();
            assert_eq!(frame.len(), u32::from_le_bytes(entry[4..].try_into().unwrap()) as usize);
            found.extend(frame);
            at += len;
        }
        assert_eq!(found, tar);
        assert_eq!(at, layer.len() - 9 - count * 8 - 8);
    }

    #[test]
    fn a_cut_sink_is_taken_up_again_from_its_frame() {
        let source = tar(30 * MIB);
        let (expected, whole) = written(&source, Compression::Zstd(1), 2);
        for fail_at in [0, 70_000, whole.len() as u64 / 2, whole.len() as u64 - 1] {
            let mut file = Kept::default();
            let mut upload = Kept { fail_at: Some(fail_at), ..Kept::default() };
            let mut layer = Layer::new(&source, Compression::Zstd(1), workers(2));
            let failed = layer.write(0, &mut [&mut file, &mut upload], &Silent);
            assert!(matches!(failed, Err(LayerError::Sink { sink: 1, .. })));
            let from = layer.frame_at(upload.bytes.len() as u64);
            let info = layer.write(from, &mut [&mut file, &mut upload], &Silent).unwrap();
            assert_eq!(info, expected);
            assert!(file.bytes == whole && upload.bytes == whole);
            // And once more, for a registry that forgot everything.
            let mut again = Kept::default();
            assert_eq!(layer.write(0, &mut [&mut again], &Silent).unwrap(), expected);
            assert!(again.bytes == whole);
        }
    }

    /// A source that fails, changes, or is changed under the reader.
    struct Faulty {
        bytes: Vec<u8>,
        bad: Option<u64>,
        reads: AtomicU64,
        changes_after: u64,
    }
    impl ReadAt for Faulty {
        fn size(&self) -> u64 {
            self.bytes.size()
        }
        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
            let end = offset + buf.len() as u64;
            if self.bad.is_some_and(|bad| (offset..end).contains(&bad)) {
                return Err(io::Error::other("bad sector"));
            }
            self.bytes.read_exact_at(buf, offset)?;
            if self.reads.fetch_add(1, Ordering::Relaxed) >= self.changes_after {
                buf.iter_mut().step_by(3).for_each(|b| *b = b.wrapping_mul(167));
            }
            Ok(())
        }
        fn check_unchanged(&self) -> io::Result<()> {
            if self.reads.load(Ordering::Relaxed) > self.changes_after {
                return Err(io::Error::other("touched"));
            }
            Ok(())
        }
    }

    #[test]
    fn a_bad_sector_or_a_changed_disk_never_makes_a_layer() {
        let source = |bad, changes_after| Faulty {
            bytes: tar(30 * MIB),
            bad,
            reads: AtomicU64::new(0),
            changes_after,
        };
        let bad = source(Some(17 * MIB as u64), u64::MAX);
        let mut kept = Kept::default();
        let failed = Layer::new(&bad, Compression::Zstd(1), workers(3)).write(0, &mut [&mut kept], &Silent);
        assert!(matches!(failed, Err(LayerError::Read { offset, .. }) if offset <= 17 * MIB as u64));

        let changed = source(None, 3);
        let mut kept = Kept::default();
        let mut layer = Layer::new(&changed, Compression::Zstd(1), workers(3));
        assert!(matches!(layer.write(0, &mut [&mut kept], &Silent), Err(LayerError::Changed(_))));
        assert_ne!(kept.bytes[kept.bytes.len() - 4..], 0x8F92_EAB1u32.to_le_bytes());
        // Made again it would not be the same: said, not sent.
        assert!(matches!(layer.write(0, &mut [&mut kept], &Silent), Err(LayerError::Differs { .. })));
    }

    struct StopAfter(AtomicU64);
    impl Task for StopAfter {
        fn advance(&self, bytes: u64) -> Result<(), Interrupted> {
            let left = self.0.load(Ordering::Relaxed);
            self.0.store(left.saturating_sub(bytes), Ordering::Relaxed);
            if left < bytes { Err(Interrupted) } else { Ok(()) }
        }
    }

    #[test]
    fn it_stops_when_asked() {
        let source = tar(30 * MIB);
        let mut kept = Kept::default();
        let stopped = Layer::new(&source, Compression::Zstd(1), workers(2)).write(
            0,
            &mut [&mut kept],
            &StopAfter(AtomicU64::new(9 << 20)),
        );
        assert!(matches!(stopped, Err(LayerError::Interrupted(_))));
    }
}
