//! A layer read from end to end: its digest, that of the tar in it, and what the tar holds.

use std::io::{self, BufRead, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use ::tar::{Archive, EntryType};
use flate2::bufread::MultiGzDecoder;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::digest::Digest;
use super::tar::{FILE, FOLDER, OWNER};
use crate::io::{Interrupted, Task};

/// Bytes that go from thread to thread at once, and how many such pieces may wait.
const PIECE: usize = 1 << 20;
const WAITING: usize = 4;

/// A layer that was read whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeLayer {
    /// The digest of its bytes.
    pub digest: Digest,
    /// Its bytes.
    pub size: u64,
    /// The tar in it; or why it can't be unpacked.
    pub tar: Result<WholeTar, String>,
}

/// The tar in a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeTar {
    /// The digest of its bytes.
    pub diff_id: Digest,
    /// The disk in it; or why it is no containerDisk as it is made here.
    pub disk: Result<WholeDisk, String>,
}

/// The disk in a tar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WholeDisk {
    /// Bytes of the qcow2 file.
    pub file_size: u64,
    /// The size of the disk in the qcow2 file, in bytes.
    pub virtual_size: u64,
}

/// Why a layer could not be read to its end.
#[derive(Debug, Error)]
pub enum ReadLayerError {
    /// Its bytes could not be had.
    #[error("the layer can't be read")]
    Read(#[source] io::Error),
    /// The user asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// Reads a layer of this media type from end to end. `task` counts its bytes.
///
/// Two threads read, hash and unpack, and one more hashes the tar; a few MiB are in memory at once.
pub fn read_layer(
    source: impl Read + Send,
    media_type: &str,
    task: &dyn Task,
) -> Result<WholeLayer, ReadLayerError> {
    let (mut layer_hash, mut tar_hash) = (Sha256::new(), Sha256::new());
    let (disk, reading) = thread::scope(|scope| {
        let (to_decoder, pieces) = sync_channel(WAITING);
        let (to_hash, tar) = sync_channel::<Vec<u8>>(WAITING);
        let (layer_hash, tar_hash) = (&mut layer_hash, &mut tar_hash);
        let reader = scope.spawn(move || read_all(source, layer_hash, &to_decoder, task));
        scope.spawn(move || tar.iter().for_each(|piece| tar_hash.update(&piece)));
        (unpack(media_type, Pieces::new(pieces), to_hash), reader.join())
    });
    let size = match reading {
        Ok(size) => size?,
        Err(_) => return Err(ReadLayerError::Read(io::Error::other("the reading thread failed"))),
    };
    Ok(WholeLayer {
        digest: Digest::from_hash(layer_hash),
        size,
        tar: disk.map(|disk| WholeTar { diff_id: Digest::from_hash(tar_hash), disk }),
    })
}

/// Hashes all of it, and hands it to the decoder for as long as that wants it. Returns how many bytes there are.
fn read_all(
    mut source: impl Read,
    hash: &mut Sha256,
    to_decoder: &SyncSender<Vec<u8>>,
    task: &dyn Task,
) -> Result<u64, ReadLayerError> {
    let mut size = 0;
    loop {
        let mut piece = Vec::with_capacity(PIECE);
        let read = (&mut source).take(PIECE as u64).read_to_end(&mut piece).map_err(ReadLayerError::Read)?;
        if read == 0 {
            return Ok(size);
        }
        size += read as u64;
        task.advance(read as u64)?;
        hash.update(&piece);
        let _ = to_decoder.send(piece);
    }
}

/// Checks the tar in the layer, and hands all of it on. The outer error: it can't be unpacked; the inner: it holds
/// something else than a containerDisk.
fn unpack(
    media_type: &str,
    layer: Pieces,
    to_hash: SyncSender<Vec<u8>>,
) -> Result<Result<WholeDisk, String>, String> {
    let broken = |e: io::Error| format!("its tar can't be read: {e}");
    let decoder: Box<dyn Read> = if media_type.ends_with("+zstd") {
        Box::new(zstd::Decoder::with_buffer(layer).map_err(broken)?)
    } else if media_type.ends_with("gzip") {
        Box::new(MultiGzDecoder::new(layer))
    } else if media_type.ends_with(".tar") {
        Box::new(layer)
    } else {
        return Err(format!("{media_type:?} is not known here"));
    };
    let mut archive = Archive::new(Tee { inner: decoder, piece: Vec::new(), to_hash });
    let disk = check_tar(&mut archive).map_err(broken)?;
    archive.into_inner().finish().map_err(broken)?;
    Ok(disk)
}

/// Exactly the two entries; the inner error is what is wrong with them.
fn check_tar(archive: &mut Archive<impl Read>) -> io::Result<Result<WholeDisk, String>> {
    let mut disk = None;
    let mut expected = [(FOLDER, EntryType::Directory, 0o755), (FILE, EntryType::Regular, 0o440)].iter();
    // Extensions of headers count as entries: nothing is read into memory because a header says so.
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        let (header, name) = (entry.header(), String::from_utf8_lossy(&entry.path_bytes()).into_owned());
        let (kind, mode, owner) = (header.entry_type(), header.mode()?, (header.uid()?, header.gid()?));
        let is_right = |want: &&_| **want == (&*name, kind, mode) && owner == (OWNER, OWNER);
        let Some(want) = expected.next().filter(is_right) else {
            return Ok(Err(format!("unexpected entry {name:?}, {kind:?}, mode {mode:o}, owner {owner:?}")));
        };
        if want.1 == EntryType::Regular {
            let mut head = [0; 32];
            entry.read_exact(&mut head)?;
            let Some(virtual_size) = head.strip_prefix(b"QFI\xfb").and_then(|rest| rest.last_chunk()) else {
                return Ok(Err(format!("{FILE} is no qcow2 file")));
            };
            let virtual_size = u64::from_be_bytes(*virtual_size);
            disk = Some(WholeDisk { file_size: entry.size(), virtual_size });
        }
        let mut buf = vec![0; PIECE];
        while entry.read(&mut buf)? > 0 {}
    }
    Ok(disk.ok_or_else(|| format!("no {FILE} in it")))
}

/// What comes through a channel, as something to read.
pub(super) struct Pieces {
    pieces: Receiver<Vec<u8>>,
    piece: Vec<u8>,
    used: usize,
}

impl Pieces {
    pub(super) fn new(pieces: Receiver<Vec<u8>>) -> Self {
        Self { pieces, piece: Vec::new(), used: 0 }
    }
}

impl BufRead for Pieces {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used == self.piece.len() {
            // A closed channel is the end of the file.
            self.piece = self.pieces.recv().unwrap_or_default();
            self.used = 0;
        }
        Ok(&self.piece[self.used..])
    }
    fn consume(&mut self, amount: usize) {
        self.used += amount;
    }
}

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buf)?;
        self.consume(read);
        Ok(read)
    }
}

/// Hands on a copy of all that is read.
struct Tee<R> {
    inner: R,
    piece: Vec<u8>,
    to_hash: SyncSender<Vec<u8>>,
}

impl<R: Read> Read for Tee<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buf)?;
        self.piece.extend_from_slice(&buf[..read]);
        if self.piece.len() >= PIECE {
            let full = std::mem::replace(&mut self.piece, Vec::with_capacity(2 * PIECE));
            let _ = self.to_hash.send(full);
        }
        Ok(read)
    }
}

impl<R: Read> Tee<R> {
    /// Reads what is left, and hands on the last of it.
    fn finish(mut self) -> io::Result<()> {
        let mut buf = vec![0; PIECE];
        while self.read(&mut buf)? > 0 {}
        let _ = self.to_hash.send(self.piece);
        Ok(())
    }
}
