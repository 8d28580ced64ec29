//! A blob that is uploaded while it is made.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::feed::{CHUNK, Item, QUEUE};
use super::http::Http;
use super::network::{Meter, Network};
use super::{RegistryError, blob};
use crate::io::Task;

/// Takes a blob's bytes in order and uploads them; a full queue makes the writer wait.
///
/// Dropped before [`BlobSink::finish`], the upload is broken off and nothing appears in the registry. After a
/// write has failed, [`BlobSink::abandon`] tells why.
pub struct BlobSink<'a> {
    network: &'a Network,
    task: Box<dyn Task>,
    meter: Arc<Meter>,
    items: mpsc::Sender<Item>,
    chunk: BytesMut,
    upload: JoinHandle<Result<(String, u64), RegistryError>>,
    /// Why the writer was told to stop, if not because the upload ended.
    stopped: Option<RegistryError>,
}

impl<'a> BlobSink<'a> {
    pub(super) fn begin(network: &'a Network, http: Arc<Http>, task: Box<dyn Task>) -> Self {
        let (items, receiver) = mpsc::channel(QUEUE);
        let meter = Arc::new(Meter::default());
        let counted = Arc::clone(&meter);
        let upload = network.handle().spawn(async move { blob::upload(&http, receiver, counted, 0).await });
        Self { network, task, meter, items, chunk: BytesMut::new(), upload, stopped: None }
    }

    /// Sends what is left, names the blob, and returns its size once the registry holds all of it.
    pub fn finish(mut self, digest: &str) -> Result<u64, RegistryError> {
        if self.send_chunk().is_ok() {
            // Should the upload have ended already, joining it tells why.
            let _ = self.send(Item::End { digest: digest.into() });
        }
        if let Some(error) = self.stopped.take() {
            return Err(error);
        }
        self.join().map(|(_, size)| size)
    }

    /// Gives the blob up after a failure, and returns the upload's own error if that came first.
    pub fn abandon(mut self) -> Option<RegistryError> {
        if self.stopped.is_some() || !self.items.is_closed() {
            return self.stopped.take();
        }
        self.join().err()
    }

    fn join(&mut self) -> Result<(String, u64), RegistryError> {
        let joined = self.network.wait(&*self.task, &self.meter, &mut self.upload)?;
        joined.map_err(|e| RegistryError::Setup { source: e.into() })?
    }

    fn send_chunk(&mut self) -> io::Result<()> {
        let chunk: Bytes = self.chunk.split().freeze();
        if chunk.is_empty() { Ok(()) } else { self.send(Item::Data(chunk)) }
    }

    fn send(&mut self, item: Item) -> io::Result<()> {
        match self.network.wait(&*self.task, &self.meter, self.items.send(item)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the upload has ended early")),
            Err(interrupted) => {
                self.stopped = Some(interrupted.into());
                // Not `ErrorKind::Interrupted`, which would only be tried again.
                Err(io::Error::other(interrupted))
            }
        }
    }
}

impl Write for BlobSink<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let room = CHUNK - self.chunk.len();
        let taken = buf.len().min(room);
        if self.chunk.capacity() == 0 {
            self.chunk.reserve(CHUNK);
        }
        self.chunk.extend_from_slice(buf.get(..taken).unwrap_or(buf));
        if self.chunk.len() >= CHUNK {
            self.send_chunk()?;
        }
        Ok(taken)
    }

    /// Does nothing: chunks go when they are full, the last one in [`BlobSink::finish`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
