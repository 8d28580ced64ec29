//! The disk in a layer, out of one pass over it: compressed frames, tar, the file in it, the disk's bytes in order.
//!
//! Nothing is kept but what is on its way. That the layer is the one it is said to be is known only at its end.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use ::tar::{Archive, EntryType};
use flate2::bufread::MultiGzDecoder;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::digest::Digest;
use super::image::Descriptor;
use super::whole_layer::Pieces;
use crate::disk::qcow2::{Qcow2Stream, StreamError};
use crate::disk::targets::{DiskSink, TargetError};
use crate::disk::{FOREIGN_START as START, refuse_foreign};
use crate::io::{Interrupted, Task};

/// Bytes that go from thread to thread at once, and how many such pieces may wait.
const PIECE: usize = 1 << 20;
const WAITING: usize = 4;
/// How often a wait looks whether it should go on.
const TICK: Duration = Duration::from_millis(200);
/// What is read of the tar beside its files: headers, and what extends them.
const MAX_HEADERS: u64 = 16 << 20;
/// A tar's block: an entry ends with one that is filled up.
const BLOCK: u64 = 512;
/// The largest disk: no storage has one.
const MAX_DISK: u64 = 1 << 50;
/// The folder that the disk is in, whatever its file is called.
const FOLDER: &[u8] = b"disk/";

/// Why a layer does not become a disk.
#[derive(Debug, Error)]
pub enum UnpackError {
    /// The layer can't be read.
    #[error("the layer can't be read")]
    Read(#[source] io::Error),
    /// It is another one.
    #[error("the layer is damaged: expected {expected}, found {found}")]
    Damaged {
        /// What names it.
        expected: String,
        /// Its own.
        found: String,
    },
    /// It holds something else.
    #[error("the layer holds no disk that can be written: {0}")]
    Content(String),
    /// Its disk can't be had in one pass.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The target.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The user asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

enum Item {
    Size(u64),
    Data(u64, Vec<u8>),
}

/// Reads `layer` to its end, and gives the disk in it to `sink`. `task` is only asked whether to go on.
///
/// On any error, the last one included, what `sink` was given is not to be used.
pub fn unpack(
    layer: &mut (dyn Read + Send),
    descriptor: &Descriptor,
    sink: &mut dyn DiskSink,
    task: &dyn Task,
) -> Result<(), UnpackError> {
    let stop = AtomicBool::new(false);
    let (given, unpacked, read) = thread::scope(|scope| {
        let (to_decoder, pieces) = sync_channel(WAITING);
        let (to_sink, items) = sync_channel(WAITING);
        let stop = &stop;
        let reader = scope.spawn(move || read_all(layer, descriptor.size, &to_decoder, stop));
        let decoder = scope.spawn(move || decode(Pieces::new(pieces), &descriptor.media_type, to_sink, stop));
        let given = loop {
            match items.recv_timeout(TICK) {
                Ok(item) => {
                    let given = match item {
                        Item::Size(size) => sink.begin(size),
                        Item::Data(offset, bytes) => sink.data(offset, &bytes),
                    };
                    if let Err(error) = given {
                        break Err(UnpackError::from(error));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = task.advance(0) {
                        break Err(error.into());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break Ok(()),
            }
        };
        if given.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        drop(items);
        (given, decoder.join(), reader.join())
    });
    given?;
    let died = || io::Error::other("a thread failed");
    let (found, size) = read.unwrap_or_else(|_| Err(died())).map_err(UnpackError::Read)?;
    // First, since a damaged layer may fail to decode too, and that it is damaged says more.
    if size != descriptor.size {
        let bytes = |size| format!("{size} bytes");
        return Err(UnpackError::Damaged { expected: bytes(descriptor.size), found: bytes(size) });
    }
    if found != descriptor.digest {
        let (expected, found) = (descriptor.digest.to_string(), found.to_string());
        return Err(UnpackError::Damaged { expected, found });
    }
    unpacked.unwrap_or_else(|_| Err(UnpackError::Read(died())))
}

/// Hashes the whole layer, and hands it to the decoder for as long as that wants it.
fn read_all(
    layer: &mut (dyn Read + Send),
    limit: u64,
    to_decoder: &SyncSender<Vec<u8>>,
    stop: &AtomicBool,
) -> io::Result<(Digest, u64)> {
    let (mut hash, mut size) = (Sha256::new(), 0);
    // One byte more tells a longer layer from the right one.
    let mut layer = layer.take(limit.saturating_add(1));
    loop {
        let mut piece = Vec::with_capacity(PIECE);
        let read = (&mut layer).take(PIECE as u64).read_to_end(&mut piece)?;
        if read == 0 || stop.load(Ordering::Relaxed) {
            return Ok((Digest::from_hash(hash), size));
        }
        size += read as u64;
        hash.update(&piece);
        let _ = to_decoder.send(piece);
    }
}

/// An end to reading when nobody wants it any more, or when headers, which are kept in memory, have no end.
struct Stoppable<'s, R> {
    inner: R,
    stop: &'s AtomicBool,
    /// Bytes that may still be read.
    budget: &'s AtomicU64,
}

impl<R: Read> Read for Stoppable<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("stopped"));
        }
        let left = self.budget.load(Ordering::Relaxed);
        if left == 0 {
            return Err(io::Error::other("its headers are larger than those of any image"));
        }
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let read = self.inner.read(&mut buf[..length])?;
        if left != u64::MAX {
            self.budget.fetch_sub(read as u64, Ordering::Relaxed);
        }
        Ok(read)
    }
}

/// Whether an entry's extensions say that its bytes are only those of a sparse file's data.
fn is_sparse(entry: &mut ::tar::Entry<'_, impl Read>) -> io::Result<bool> {
    let Some(extensions) = entry.pax_extensions()? else { return Ok(false) };
    for extension in extensions {
        if extension?.key_bytes().starts_with(b"GNU.sparse.") {
            return Ok(true);
        }
    }
    Ok(false)
}

fn decode(
    layer: Pieces,
    media_type: &str,
    out: SyncSender<Item>,
    stop: &AtomicBool,
) -> Result<(), UnpackError> {
    let broken = |e: io::Error| UnpackError::Content(format!("its tar can't be read: {e}"));
    let decoder: Box<dyn Read> = if media_type.ends_with("+zstd") || media_type.ends_with(".zstd") {
        Box::new(zstd::Decoder::with_buffer(layer).map_err(broken)?)
    } else if media_type.ends_with("gzip") {
        Box::new(MultiGzDecoder::new(layer))
    } else if media_type.ends_with(".tar") {
        Box::new(layer)
    } else {
        return Err(UnpackError::Content(format!("{media_type:?} is not known here")));
    };
    let budget = AtomicU64::new(MAX_HEADERS);
    let mut archive = Archive::new(Stoppable { inner: decoder, stop, budget: &budget });
    let mut found = false;
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let path = entry.path_bytes().into_owned();
        let inside = path.strip_prefix(b"./").unwrap_or(&path).strip_prefix(FOLDER);
        let size = entry.size();
        // What belongs to the entry is read on the way to the next.
        budget.fetch_add(size.saturating_add(BLOCK), Ordering::Relaxed);
        let kind = entry.header().entry_type();
        if kind == EntryType::Directory || inside.is_none_or(<[u8]>::is_empty) {
            continue;
        }
        // Of two, unpackers take the last: be it a link.
        if std::mem::replace(&mut found, true) {
            return Err(UnpackError::Content("there are several files in its disk/".into()));
        }
        if kind != EntryType::Regular || is_sparse(&mut entry).map_err(broken)? {
            return Err(UnpackError::Content(
                "the file in its disk/ is no plain one (sparse, or a link)".into(),
            ));
        }
        disk(&mut entry, size, &out)?;
    }
    if !found {
        return Err(UnpackError::Content("there is no file in its disk/".into()));
    }
    // To the layer's end: the rest is padding.
    budget.store(u64::MAX, Ordering::Relaxed);
    io::copy(&mut archive.into_inner(), &mut io::sink()).map(drop).map_err(broken)
}

/// The disk in a file of `size` bytes.
fn disk(file: &mut dyn Read, size: u64, out: &SyncSender<Item>) -> Result<(), UnpackError> {
    let short = |e: io::Error| UnpackError::Content(format!("its file can't be read: {e}"));
    if !(4..=MAX_DISK).contains(&size) {
        let why = if size < 4 { "its file is empty" } else { "its file is larger than any disk" };
        return Err(UnpackError::Content(why.into()));
    }
    // As much as tells one kind of file from another.
    let mut start = vec![0; size.min(START as u64) as usize];
    file.read_exact(&mut start).map_err(short)?;
    let is_qcow2 = start.starts_with(b"QFI\xfb");
    if !is_qcow2 {
        refuse_foreign(&start).map_err(|e| UnpackError::Content(format!("its file is no disk: {e}")))?;
    }
    let mut file = io::Cursor::new(start).chain(file);
    // Nobody listens: the other side knows why.
    if !is_qcow2 {
        if out.send(Item::Size(size)).is_err() {
            return Ok(());
        }
        let mut at = 0;
        while at < size {
            let mut piece = vec![0; (size - at).min(PIECE as u64) as usize];
            file.read_exact(&mut piece).map_err(short)?;
            let read = piece.len() as u64;
            if out.send(Item::Data(at, piece)).is_err() {
                return Ok(());
            }
            at += read;
        }
        return Ok(());
    }
    let mut stream = Qcow2Stream::open(file, size)?;
    if out.send(Item::Size(stream.size())).is_err() {
        return Ok(());
    }
    loop {
        let mut piece = Vec::new();
        let Some(offset) = stream.next(&mut piece)? else { return Ok(()) };
        if out.send(Item::Data(offset, piece)).is_err() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::containerdisk::{Qcow2Image, Tar};
    use crate::io::{ReadAt, Silent};
    use crate::root::keep::{CLUSTER, Kept};
    use proptest::prelude::*;

    /// Keeps a disk in memory, if it has a size that a test's disk may have.
    #[derive(Default)]
    struct Memory {
        disk: Vec<u8>,
    }

    impl DiskSink for Memory {
        fn begin(&mut self, size: u64) -> Result<(), TargetError> {
            if size > 64 << 20 {
                return Err(TargetError::TooSmall { has: 64 << 20, needs: size });
            }
            self.disk = vec![0; size as usize];
            Ok(())
        }
        fn data(&mut self, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
            assert!(offset.is_multiple_of(CLUSTER));
            self.disk[offset as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
    }

    fn unpacked(layer: &[u8], media_type: &str) -> Result<Vec<u8>, UnpackError> {
        let descriptor = Descriptor::of(media_type, layer);
        let mut memory = Memory::default();
        unpack(&mut &layer[..], &descriptor, &mut memory, &Silent)?;
        Ok(memory.disk)
    }

    const TAR: &str = "application/vnd.oci.image.layer.v1.tar";
    const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";

    fn tar_of(disk: &dyn ReadAt) -> Vec<u8> {
        let kept = Kept::all(disk, &Silent).unwrap();
        let image = Qcow2Image::new(&kept);
        let tar = Tar::new(&image);
        let mut bytes = vec![0; tar.size() as usize];
        tar.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn what_was_packed_comes_out_and_damage_does_no_harm(
            marks in prop::collection::vec(0u64..40 * CLUSTER, 0..20), sectors in 1u64..40 * CLUSTER / 512,
            hits in prop::collection::vec((any::<u32>(), any::<u8>()), 1..4), cut in any::<u32>(),
        ) {
            let mut disk = vec![0u8; sectors as usize * 512];
            for (i, at) in marks.iter().filter(|at| **at < sectors * 512).enumerate() {
                disk[*at as usize] = i as u8 + 1;
            }
            let mut tar = tar_of(&disk);
            let plain = unpacked(&tar, TAR).unwrap();
            prop_assert!(plain == disk);
            let zstd = unpacked(&zstd::encode_all(&tar[..], 1).unwrap(), ZSTD).unwrap();
            prop_assert!(zstd == disk);
            // Whatever is hit, in headers and tables above all: an error, or some disk.
            for (at, value) in hits {
                let tables = tar.len().min(6 * CLUSTER as usize);
                tar[at as usize % tables] = value;
            }
            let _ = unpacked(&tar, TAR);
            tar.truncate(cut as usize % tar.len());
            let _ = unpacked(&tar, TAR);
        }
    }

    #[test]
    fn a_layer_is_the_one_that_its_digest_names_or_fails_at_its_end() {
        let tar = tar_of(&vec![7; 1 << 20]);
        let descriptor = Descriptor::of(TAR, &tar);
        for damaged in
            [&tar[..tar.len() - 1], &[&tar[..], &[0]].concat(), &[&tar[..tar.len() - 1], &[1]].concat()]
        {
            let mut memory = Memory::default();
            let failed = unpack(&mut &damaged[..], &descriptor, &mut memory, &Silent);
            assert!(matches!(failed, Err(UnpackError::Damaged { .. })), "{failed:?}");
        }
        assert!(matches!(unpacked(&tar, "text/plain"), Err(UnpackError::Content(_))));
        assert!(matches!(unpacked(&[0; 1024], TAR), Err(UnpackError::Content(_))));
    }

    /// Reading that fails is told as that.
    struct Broken;

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }

    #[test]
    fn a_layer_that_can_not_be_read_is_no_damage() {
        let descriptor = Descriptor::of(TAR, b"x");
        let failed = unpack(&mut Broken, &descriptor, &mut Memory::default(), &Silent);
        assert!(matches!(failed, Err(UnpackError::Read(_))), "{failed:?}");
    }
}
