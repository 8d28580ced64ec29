//! A blob that is uploaded while it is made.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::feed::{CHUNK, Item, QUEUE};
use super::http::Http;
use super::network::{Meter, Network};
use super::{RegistryError, blob};
use crate::containerdisk::{Chunk, Digest, Sink};
use crate::io::Task;

/// Uploads a layer as it comes; a full queue makes the layer wait.
///
/// Dropped before [`BlobSink::finish`], the upload is broken off and nothing appears in the registry. After
/// [`Sink::take`] has failed, [`BlobSink::abandon`] tells why.
pub struct BlobSink<'a> {
    network: &'a Network,
    task: Box<dyn Task>,
    meter: Arc<Meter>,
    items: mpsc::Sender<Item>,
    /// Bytes handed to the upload.
    taken: u64,
    upload: JoinHandle<Result<u64, RegistryError>>,
    /// Why the layer was told to stop, if not because the upload ended.
    stopped: Option<RegistryError>,
}

impl<'a> BlobSink<'a> {
    pub(super) fn begin(network: &'a Network, http: Arc<Http>, task: Box<dyn Task>) -> Self {
        let (items, receiver) = mpsc::channel(QUEUE);
        let meter = Arc::new(Meter::default());
        let counted = Arc::clone(&meter);
        let upload = network.handle().spawn(async move { blob::upload(&http, receiver, counted).await });
        Self { network, task, meter, items, taken: 0, upload, stopped: None }
    }

    /// Names the blob, and returns its size once the registry holds all of it.
    pub fn finish(mut self, digest: Digest) -> Result<u64, RegistryError> {
        // Should the upload have ended already, joining it tells why.
        let _ = self.send(Item::End { digest });
        match self.stopped.take() {
            Some(error) => Err(error),
            None => self.join(),
        }
    }

    /// Gives the blob up after a failure, and returns the upload's own error if that came first.
    pub fn abandon(mut self) -> Option<RegistryError> {
        if self.stopped.is_some() || !self.items.is_closed() {
            return self.stopped.take();
        }
        self.join().err()
    }

    fn join(&mut self) -> Result<u64, RegistryError> {
        let joined = self.network.wait(&*self.task, &self.meter, &mut self.upload)?;
        joined.map_err(|e| RegistryError::Setup { source: e.into() })?
    }

    fn send(&mut self, item: Item) -> io::Result<()> {
        match self.network.wait(&*self.task, &self.meter, self.items.send(item)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the upload has ended early")),
            Err(interrupted) => {
                self.stopped = Some(interrupted.into());
                Err(io::Error::other(interrupted))
            }
        }
    }
}

impl Sink for BlobSink<'_> {
    fn take(&mut self, chunk: &Chunk) -> io::Result<()> {
        let had = self.taken.checked_sub(chunk.offset()).ok_or_else(|| {
            io::Error::other(format!("bytes {} to {} of the layer are missing", self.taken, chunk.offset()))
        })?;
        let mut bytes = Bytes::from_owner(chunk.clone());
        let had = usize::try_from(had).unwrap_or(usize::MAX).min(bytes.len());
        let _ = bytes.split_to(had);
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(CHUNK));
            let size = piece.len() as u64;
            self.send(Item::Data(piece))?;
            self.taken += size;
        }
        Ok(())
    }
}
