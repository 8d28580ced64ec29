//! A blob that is uploaded while it is made.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::RegistryError;
use super::feed::{CHUNK, Item, QUEUE};
use super::network::{Meter, Network};
use super::target::Target;
use super::upload::{Turn, Upload};
use crate::containerdisk::{Chunk, Digest, Sink};
use crate::io::Task;

/// Uploads a layer as it comes; a full queue makes the layer wait.
///
/// After [`Sink::take`] has failed, [`BlobSink::resume`] tells whether to go on, at which byte, or why not. Dropped
/// before [`BlobSink::finish`], the upload is broken off and nothing appears in the registry.
pub struct BlobSink<'a> {
    network: &'a Network,
    task: Box<dyn Task + 'a>,
    meter: Arc<Meter>,
    /// Where each turn of the upload wants its bytes; ends with the upload.
    turns: mpsc::Receiver<Opening>,
    /// Where the present turn wants them.
    items: Option<mpsc::Sender<Item>>,
    /// The next byte that it wants.
    taken: u64,
    upload: JoinHandle<Result<u64, RegistryError>>,
    /// Why the layer was told to stop, if not because the upload ended.
    stopped: Option<RegistryError>,
    /// Whether the layer was told to stop because earlier bytes are wanted again.
    rewound: bool,
}

/// A turn of the upload: from which byte on, and where to.
struct Opening {
    at: u64,
    items: mpsc::Sender<Item>,
}

/// How [`BlobSink::finish`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The registry holds the blob, with so many bytes.
    Done(u64),
    /// It lost some of it. The blob has to be made again from this byte on, and finished again.
    From(u64),
}

impl<'a> BlobSink<'a> {
    pub(super) fn begin(network: &'a Network, target: Arc<Target>, task: Box<dyn Task + 'a>) -> Self {
        let (opened, turns) = mpsc::channel(1);
        let meter = Arc::new(Meter::default());
        let counted = Arc::clone(&meter);
        let upload = network.handle().spawn(async move { upload(&target, counted, opened).await });
        Self { network, task, meter, turns, items: None, taken: 0, upload, stopped: None, rewound: false }
    }

    /// Names the blob, and waits until the registry holds all of it.
    pub fn finish(&mut self, digest: Digest) -> Result<Finish, RegistryError> {
        let total = self.taken;
        loop {
            if self.send(Item::End { digest }).is_ok() {
                // The end of the upload, or its next turn.
                match self.wait_for_turn() {
                    Ok(true) => {}
                    Ok(false) => return self.join().map(Finish::Done),
                    Err(_) => return self.failure(),
                }
            } else if self.items.is_none() {
                return self.failure();
            }
            if self.taken < total {
                return Ok(Finish::From(self.taken));
            }
        }
    }

    /// After [`Sink::take`] has failed: the byte from which on the blob is wanted, or nothing where the failure is
    /// not the upload's. An error where the upload has ended.
    pub fn resume(&mut self) -> Result<Option<u64>, RegistryError> {
        if let Some(error) = self.stopped.take() {
            return Err(error);
        }
        if std::mem::take(&mut self.rewound) {
            return Ok(Some(self.taken));
        }
        match self.items {
            Some(_) => Ok(None),
            None => self.join().map(|_| None),
        }
    }

    fn failure(&mut self) -> Result<Finish, RegistryError> {
        match self.stopped.take() {
            Some(error) => Err(error),
            None => self.join().map(Finish::Done),
        }
    }

    fn join(&mut self) -> Result<u64, RegistryError> {
        let joined = self.network.wait(&*self.task, &self.meter, &mut self.upload)?;
        joined.map_err(|e| RegistryError::Setup { source: e.into() })?
    }

    /// Waits for a turn of the upload to begin; false when the upload has ended. An error when told to stop.
    fn wait_for_turn(&mut self) -> io::Result<bool> {
        self.items = None;
        match self.network.wait(&*self.task, &self.meter, self.turns.recv()) {
            Ok(Some(Opening { at, items })) => {
                (self.taken, self.items) = (at, Some(items));
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(interrupted) => {
                self.stopped = Some(interrupted.into());
                Err(io::Error::other(interrupted))
            }
        }
    }

    /// Sends to the present turn. After an error there is another turn, at another byte, or none.
    fn send(&mut self, item: Item) -> io::Result<()> {
        if let Some(items) = &self.items {
            match self.network.wait(&*self.task, &self.meter, items.send(item)) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(_)) => {}
                Err(interrupted) => {
                    self.stopped = Some(interrupted.into());
                    self.items = None;
                    return Err(io::Error::other(interrupted));
                }
            }
        }
        match self.wait_for_turn()? {
            true => Err(io::Error::other("the upload goes on at another byte")),
            false => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the upload has ended early")),
        }
    }

    /// What of a chunk is wanted next; nothing of it where bytes before it are.
    fn wanted(&self, chunk: &Chunk) -> Option<Bytes> {
        let had = self.taken.checked_sub(chunk.offset())?;
        let mut bytes = Bytes::from_owner(chunk.clone());
        let had = usize::try_from(had).unwrap_or(usize::MAX).min(bytes.len());
        Some(bytes.split_off(had))
    }
}

impl Sink for BlobSink<'_> {
    fn take(&mut self, chunk: &Chunk) -> io::Result<()> {
        loop {
            if self.items.is_none() && !self.wait_for_turn()? {
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the upload has ended early"));
            }
            let Some(mut bytes) = self.wanted(chunk) else {
                self.rewound = true;
                return Err(io::Error::other(format!("the upload goes on at byte {}", self.taken)));
            };
            if bytes.is_empty() {
                return Ok(());
            }
            let piece = bytes.split_to(bytes.len().min(CHUNK));
            let size = piece.len() as u64;
            match self.send(Item::Data(piece)) {
                Ok(()) => self.taken += size,
                // A new turn, which may want bytes of this very chunk.
                Err(_) if self.items.is_some() => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Turn after turn, until the blob is there.
async fn upload(
    target: &Target,
    meter: Arc<Meter>,
    opened: mpsc::Sender<Opening>,
) -> Result<u64, RegistryError> {
    let mut upload = Upload::new(target, meter, 0);
    loop {
        let at = upload.ready().await?;
        let (items, feed) = mpsc::channel(QUEUE);
        if opened.send(Opening { at, items }).await.is_err() {
            return Err(RegistryError::Abandoned);
        }
        match upload.send(feed).await? {
            Turn::Done(size) => return Ok(size),
            Turn::Again => {}
            // What can be made only once can't be sent in a request that says how long it is.
            Turn::NoPatch(error) => return Err(error),
        }
    }
}
