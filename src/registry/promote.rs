//! An image from one repository to another, blob by blob, with nothing in between.

use std::sync::Arc;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::remote::mismatch;
use super::{BlobSink, BlobStream, Finish, Registry, RegistryError, Remote, RemoteImage};
use crate::containerdisk::{Chunk, Descriptor, Digest, Sink};
use crate::io::{Interrupted, Progress, Task};

/// What goes to the upload at once, in bytes.
const PIECE: usize = 1 << 20;

/// An image that was copied: the registry has served the manifest by this digest and by this tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Promoted {
    /// `HOST/REPOSITORY@sha256:HEX`.
    pub reference: String,
    /// The manifest's digest, which is the source's.
    pub digest: Digest,
    /// The tag it can be found under, for now.
    pub tag: String,
    /// Blobs that were copied through this machine.
    pub blobs_copied: usize,
    /// Blobs that the registry took over from the source's repository.
    pub blobs_mounted: usize,
    /// Blobs that were there already.
    pub blobs_present: usize,
    /// Bytes that were copied.
    pub bytes_copied: u64,
}

impl Registry {
    /// Copies an image here by its digest: the blobs that are not there, then its manifest, byte for byte.
    ///
    /// A blob that another repository of the same registry holds is taken over from there, where the registry can.
    pub fn promote(
        &self,
        from: &Remote,
        image: &RemoteImage,
        progress: &dyn Progress,
    ) -> Result<Promoted, RegistryError> {
        self.hello(progress)?;
        image.manifest.layers.iter().for_each(|layer| self.expect_layer(layer.size, true));
        let mut promoted = Promoted {
            reference: self.image().pinned(image.digest),
            digest: image.digest,
            tag: self.image().push_tag()?.to_owned(),
            blobs_copied: 0,
            blobs_mounted: 0,
            blobs_present: 0,
            bytes_copied: 0,
        };
        let same_registry = self.image().host() == from.image().host();
        for blob in image.manifest.layers.iter().chain([&image.manifest.config]) {
            let task = progress.task("copying", blob.size);
            if self.has_blob(blob.digest, blob.size, &*task)? {
                promoted.blobs_present += 1;
            } else if same_registry
                && self.mount_blob(blob.digest, blob.size, from.image().repository(), &*task)?
            {
                promoted.blobs_mounted += 1;
            } else {
                self.copy(from, blob, task)?;
                promoted.blobs_copied += 1;
                promoted.bytes_copied += blob.size;
            }
        }
        let task = progress.task("manifest", 0);
        self.publish(&image.manifest_bytes, &image.media_type, &*task)?;
        Ok(promoted)
    }

    fn copy(&self, from: &Remote, blob: &Descriptor, task: Box<dyn Task>) -> Result<(), RegistryError> {
        let task: Arc<dyn Task> = task.into();
        let mut sink = self.begin_blob(Box::new(Counting(Arc::clone(&task))));
        let mut hash = RunningHash::default();
        let mut at = 0;
        loop {
            let source = from.stream(blob, at, Box::new(Listening(Arc::clone(&task))));
            if let Some(wanted) = pour(source, at, &mut sink, &mut hash)? {
                at = wanted;
                continue;
            }
            let found = Digest::from_hash(hash.hash.clone());
            if found != blob.digest {
                // The upload is dropped without its end: nothing of it appears.
                return Err(mismatch(from.http(), format!("blob {}", blob.digest), blob.digest, found));
            }
            match sink.finish(found)? {
                Finish::Done(_) => return Ok(()),
                Finish::From(wanted) => at = wanted,
            }
        }
    }
}

/// The hash of a blob some of whose bytes may come more than once.
#[derive(Default)]
struct RunningHash {
    hash: Sha256,
    /// Bytes that are in it.
    size: u64,
}

impl RunningHash {
    /// Takes the bytes at `offset`, which is not past what was taken before.
    fn take(&mut self, offset: u64, bytes: &[u8]) {
        let new = usize::try_from(self.size.saturating_sub(offset)).ok().and_then(|had| bytes.get(had..));
        let new = new.unwrap_or_default();
        self.hash.update(new);
        self.size += new.len() as u64;
    }
}

/// Sends what a source has, from byte `offset` on. The byte that the upload wants instead, if it stops on the way.
fn pour(
    mut source: BlobStream<'_>,
    mut offset: u64,
    sink: &mut BlobSink<'_>,
    hash: &mut RunningHash,
) -> Result<Option<u64>, RegistryError> {
    loop {
        let mut piece = Vec::with_capacity(PIECE);
        while piece.len() < PIECE
            && let Some(bytes) = source.piece()?
        {
            piece.extend_from_slice(&bytes);
        }
        if piece.is_empty() {
            return Ok(None);
        }
        hash.take(offset, &piece);
        let chunk = Chunk::new(offset, piece);
        offset += chunk.as_ref().len() as u64;
        if let Err(error) = sink.take(&chunk) {
            let setup = || RegistryError::Setup { source: error.into() };
            return sink.resume()?.ok_or_else(setup).map(Some);
        }
    }
}

/// One half of a task: counts.
struct Counting(Arc<dyn Task>);
/// The other half: only hears when to stop.
struct Listening(Arc<dyn Task>);

impl Task for Counting {
    fn advance(&self, bytes: u64) -> Result<(), Interrupted> {
        self.0.advance(bytes)
    }
}

impl Task for Listening {
    fn advance(&self, _: u64) -> Result<(), Interrupted> {
        self.0.advance(0)
    }
}
