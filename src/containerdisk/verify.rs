//! Everything in a layout, read again: sizes, digests, and what the layer's tar holds.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use ::tar::{Archive, EntryType};
use flate2::bufread::MultiGzDecoder;
use sha2::{Digest as _, Sha256};

use super::digest::Digest;
use super::stored::{Blob, Layout, LayoutError, damaged};
use super::tar::{FILE, FOLDER, OWNER};
use crate::io::{Interrupted, Progress, Task};

/// Bytes that go from thread to thread at once, and how many such pieces may wait.
const PIECE: usize = 1 << 20;
const WAITING: usize = 4;

/// A layout that holds what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// The image's digest.
    pub manifest: Digest,
    /// The layer's digest.
    pub layer: Digest,
    /// The layer's bytes.
    pub layer_size: u64,
    /// The digest of the tar in the layer.
    pub diff_id: Digest,
    /// The bytes of the qcow2 file in the tar.
    pub file_size: u64,
    /// The size of the disk in the qcow2 file, in bytes.
    pub virtual_size: u64,
}

/// Reads the layout at `path` from end to end.
pub fn verify(path: &Path, progress: &dyn Progress) -> Result<Verified, LayoutError> {
    let layout = Layout::open(path)?;
    let ([blob], [diff_id]) = (&layout.layers[..], &layout.diff_ids()?[..]) else {
        let why = format!("{} layers; a containerDisk has one", layout.layers.len());
        return Err(LayoutError::Content { path: path.into(), why });
    };
    let task = progress.task("verifying", blob.descriptor.size);
    let read = |source| LayoutError::Read { path: blob.path.clone(), source };
    let file = File::open(&blob.path).map_err(read)?;
    let (mut layer_hash, mut tar_hash) = (Sha256::new(), Sha256::new());
    let (content, reading) = thread::scope(|scope| {
        let (to_decoder, pieces) = sync_channel(WAITING);
        let (to_hash, tar) = sync_channel::<Vec<u8>>(WAITING);
        let (layer_hash, tar_hash, task) = (&mut layer_hash, &mut tar_hash, &*task);
        let reader = scope.spawn(move || read_all(file, layer_hash, &to_decoder, task));
        scope.spawn(move || tar.iter().for_each(|piece| tar_hash.update(&piece)));
        (unpack(blob, Pieces::new(pieces), to_hash), reader.join())
    });
    match reading {
        Ok(Ok(())) => {}
        Ok(Err(Stopped::Read(source))) => return Err(read(source)),
        Ok(Err(Stopped::Interrupted(stop))) => return Err(stop.into()),
        Err(_) => return Err(read(io::Error::other("the reading thread failed"))),
    }
    let layer = Digest::from_hash(layer_hash);
    // First, since a damaged layer may fail to decode too, and that it is damaged says more.
    if layer != blob.descriptor.digest {
        return Err(damaged(blob, blob.descriptor.digest, layer));
    }
    let (file_size, virtual_size) = content?;
    let found = Digest::from_hash(tar_hash);
    if found != *diff_id {
        return Err(damaged(blob, format!("diff id {diff_id}"), found));
    }
    Ok(Verified {
        manifest: layout.manifest_descriptor.digest,
        layer,
        layer_size: blob.descriptor.size,
        diff_id: found,
        file_size,
        virtual_size,
    })
}

enum Stopped {
    Read(io::Error),
    Interrupted(Interrupted),
}

/// Hashes the whole file, and hands it to the decoder for as long as that wants it.
fn read_all(
    mut file: File,
    hash: &mut Sha256,
    to_decoder: &SyncSender<Vec<u8>>,
    task: &dyn Task,
) -> Result<(), Stopped> {
    loop {
        let mut piece = Vec::with_capacity(PIECE);
        let read = (&mut file).take(PIECE as u64).read_to_end(&mut piece).map_err(Stopped::Read)?;
        if read == 0 {
            return Ok(());
        }
        task.advance(read as u64).map_err(Stopped::Interrupted)?;
        hash.update(&piece);
        let _ = to_decoder.send(piece);
    }
}

/// Checks the tar in the layer, and hands all of it on: the sizes of the file in it and of the disk in that.
fn unpack(blob: &Blob, layer: Pieces, to_hash: SyncSender<Vec<u8>>) -> Result<(u64, u64), LayoutError> {
    let content = |why: String| LayoutError::Content { path: blob.path.clone(), why };
    let broken = |e: io::Error| content(format!("its tar can't be read: {e}"));
    let media_type = blob.descriptor.media_type.as_str();
    let decoder: Box<dyn Read> = if media_type.ends_with("+zstd") {
        Box::new(zstd::Decoder::with_buffer(layer).map_err(broken)?)
    } else if media_type.ends_with("gzip") {
        Box::new(MultiGzDecoder::new(layer))
    } else if media_type.ends_with(".tar") {
        Box::new(layer)
    } else {
        return Err(content(format!("{media_type:?} is not known here")));
    };
    let mut archive = Archive::new(Tee { inner: decoder, piece: Vec::new(), to_hash });
    let sizes = check_tar(&mut archive).map_err(broken)?.map_err(content)?;
    archive.into_inner().finish().map_err(broken)?;
    Ok(sizes)
}

/// Exactly the two entries; the inner error is what is wrong with them.
fn check_tar(archive: &mut Archive<impl Read>) -> io::Result<Result<(u64, u64), String>> {
    let mut sizes = None;
    let mut expected = [(FOLDER, EntryType::Directory, 0o755), (FILE, EntryType::Regular, 0o440)].iter();
    for entry in archive.entries()? {
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
            sizes = Some((entry.size(), u64::from_be_bytes(*virtual_size)));
        }
        let mut buf = vec![0; PIECE];
        while entry.read(&mut buf)? > 0 {}
    }
    Ok(sizes.ok_or_else(|| format!("no {FILE} in it")))
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
