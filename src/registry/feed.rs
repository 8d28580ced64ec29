//! The body of an upload: chunks from a thread that reads or makes them, to the connection that sends them.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use reqwest::Body;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::RegistryError;
use super::network::Meter;
use crate::containerdisk::{Digest, LayoutError};

/// Large enough that neither thread wakes often, small enough that a few in flight are no memory.
pub(super) const CHUNK: usize = 1 << 20;
/// Chunks waiting for the connection; then the producer waits.
pub(super) const QUEUE: usize = 4;

/// What the producer's side sends.
#[derive(Debug)]
pub(super) enum Item {
    /// Bytes, in order.
    Data(Bytes),
    /// All were sent; this is their digest.
    End {
        /// What the blob is called.
        digest: Digest,
    },
    /// The producer failed.
    Failed(RegistryError),
}

/// The end of a feed, and how it goes.
#[derive(Debug)]
struct State {
    sent: u64,
    /// Since when it is the network's turn; nothing while the producer is waited for.
    waiting: Option<Instant>,
    /// The digest, or why there is none. Nothing until the end.
    end: Option<Result<Digest, RegistryError>>,
    /// What comes first, and then the rest; taken away when the feed is closed.
    first: Option<Bytes>,
    items: Option<mpsc::Receiver<Item>>,
    waker: Option<Waker>,
}

/// Watches a body from outside while the connection takes it.
#[derive(Debug, Clone)]
pub(super) struct Feed {
    state: Arc<Mutex<State>>,
}

impl Feed {
    /// A body out of `first` and what `items` brings. `meter` reaches `before` and each byte that follows.
    pub(super) fn body(
        first: Bytes,
        items: mpsc::Receiver<Item>,
        meter: Arc<Meter>,
        before: u64,
    ) -> (Self, Body) {
        let (feed, chunks) = Self::chunks(Some(first), items, meter, before);
        (feed, Body::wrap_stream(chunks))
    }

    fn chunks(
        first: Option<Bytes>,
        items: mpsc::Receiver<Item>,
        meter: Arc<Meter>,
        before: u64,
    ) -> (Self, impl Stream<Item = io::Result<Bytes>> + Send + 'static) {
        let waiting = Some(Instant::now());
        let state = State { sent: 0, waiting, end: None, first, items: Some(items), waker: None };
        let feed = Self { state: Arc::new(Mutex::new(state)) };
        let watched = feed.clone();
        let chunks = stream::poll_fn(move |context: &mut Context<'_>| {
            let mut state = watched.state();
            let next = match (state.first.take(), &mut state.items) {
                (Some(first), _) => Poll::Ready(Some(Item::Data(first))),
                (None, Some(items)) => items.poll_recv(context),
                (None, None) => {
                    return Poll::Ready(Some(Err(io::Error::other("the body is no longer wanted"))));
                }
            };
            state.waiting = next.is_ready().then(Instant::now);
            let Poll::Ready(item) = next else {
                state.waker = Some(context.waker().clone());
                return Poll::Pending;
            };
            // An error makes the HTTP library break the connection off: what was sent stays unfinished.
            let broken = |state: &mut State, error| {
                state.end = Some(Err(error));
                Poll::Ready(Some(Err(io::Error::other("the body ends before its end"))))
            };
            match item {
                Some(Item::Data(bytes)) => {
                    state.sent += bytes.len() as u64;
                    meter.reached(before + state.sent);
                    Poll::Ready(Some(Ok(bytes)))
                }
                Some(Item::End { digest }) => {
                    state.end = Some(Ok(digest));
                    Poll::Ready(None)
                }
                Some(Item::Failed(error)) => broken(&mut state, error),
                None => broken(&mut state, RegistryError::Abandoned),
            }
        });
        (feed, chunks)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the feed from outside. A connection that still holds the body breaks off, and the producer's next
    /// chunk finds nobody: it may have to go on elsewhere.
    pub(super) fn close(&self) {
        let mut state = self.state();
        (state.items, state.first) = (None, None);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Bytes that the connection has taken.
    pub(super) fn sent(&self) -> u64 {
        self.state().sent
    }

    /// How long the network has not moved though it was its turn.
    pub(super) fn stalled(&self) -> Duration {
        self.state().waiting.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The producer's own failure, if that is what ended the body.
    pub(super) fn producer_failure(&self) -> Option<RegistryError> {
        let mut state = self.state();
        match state.end.take() {
            Some(Err(error)) => Some(error),
            other => {
                state.end = other;
                None
            }
        }
    }

    /// The digest and size, once everything went through.
    pub(super) fn finished(&self) -> Option<(Digest, u64)> {
        let state = self.state();
        match &state.end {
            Some(Ok(digest)) => Some((*digest, state.sent)),
            _ => None,
        }
    }
}

/// A blob whose content can be read as often as it takes.
#[derive(Debug, Clone)]
pub(super) struct Content {
    pub(super) digest: Digest,
    /// Bytes.
    pub(super) size: u64,
    pub(super) source: Source,
}

/// Where the content is.
#[derive(Debug, Clone)]
pub(super) enum Source {
    File(PathBuf),
    Bytes(Bytes),
}

impl Content {
    /// Sends the content from byte `from` on into a feed. A file that is not what its name says fails at its
    /// end: it is read from its start, since its digest is of all of it.
    pub(super) fn pour(&self, from: u64, items: &mpsc::Sender<Item>) {
        let last = match &self.source {
            Source::Bytes(bytes) => {
                let had = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
                match had == bytes.len() || items.blocking_send(Item::Data(bytes.slice(had..))).is_ok() {
                    true => Item::End { digest: self.digest },
                    false => return,
                }
            }
            Source::File(path) => match self.pour_file(path, from, items) {
                Ok(Some(end)) => end,
                // Nobody listens any more; the other side knows why.
                Ok(None) => return,
                Err(error) => Item::Failed(error.into()),
            },
        };
        let _ = items.blocking_send(last);
    }

    fn pour_file(
        &self,
        path: &Path,
        from: u64,
        items: &mpsc::Sender<Item>,
    ) -> Result<Option<Item>, LayoutError> {
        let unreadable = |source| LayoutError::Read { path: path.into(), source };
        let mut file = File::open(path).map_err(unreadable)?;
        let (mut hash, mut size) = (Sha256::new(), 0u64);
        loop {
            let mut chunk = Vec::with_capacity(CHUNK);
            let read = file.by_ref().take(CHUNK as u64).read_to_end(&mut chunk).map_err(unreadable)?;
            if read == 0 {
                break;
            }
            let had = from.saturating_sub(size).min(read as u64) as usize;
            size += read as u64;
            hash.update(&chunk);
            let new = Bytes::from(chunk).slice(had..);
            if (!new.is_empty() && items.blocking_send(Item::Data(new)).is_err()) || items.is_closed() {
                return Ok(None);
            }
        }
        let digest = Digest::from_hash(hash);
        if digest != self.digest || size != self.size {
            let (expected, found) = (self.digest.to_string(), digest.to_string());
            return Err(LayoutError::Blob { path: path.into(), expected, found });
        }
        Ok(Some(Item::End { digest }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures_util::FutureExt;
    use futures_util::stream::StreamExt;

    fn content(bytes: &'static [u8]) -> Content {
        let bytes = Bytes::from_static(bytes);
        Content { digest: Digest::of(&bytes), size: bytes.len() as u64, source: Source::Bytes(bytes) }
    }

    #[test]
    fn only_the_networks_own_time_counts_as_a_stall() {
        let (sender, items) = mpsc::channel(QUEUE);
        let (feed, mut chunks) = Feed::chunks(None, items, Arc::default(), 0);
        let nap = Duration::from_millis(20);
        std::thread::sleep(nap);
        assert!(feed.stalled() >= nap);
        // The network asks, and there is nothing yet: the producer's turn.
        assert!(chunks.next().now_or_never().is_none());
        std::thread::sleep(nap);
        assert_eq!(feed.stalled(), Duration::ZERO);
        content(b"all").pour(0, &sender);
        assert_eq!(chunks.next().now_or_never().unwrap().unwrap().unwrap(), "all");
        std::thread::sleep(nap);
        assert!(feed.stalled() >= nap);
        assert!(feed.finished().is_none());
        assert!(chunks.next().now_or_never().unwrap().is_none());
        assert_eq!(feed.finished(), Some((Digest::of(b"all"), 3)));
        assert!(feed.producer_failure().is_none() && feed.finished().is_some());
    }

    #[test]
    fn a_body_without_its_end_is_an_error() {
        let (sender, items) = mpsc::channel(QUEUE);
        let (feed, mut chunks) = Feed::chunks(None, items, Arc::default(), 0);
        drop(sender);
        assert!(chunks.next().now_or_never().unwrap().unwrap().is_err());
        assert!(matches!(feed.producer_failure(), Some(RegistryError::Abandoned)));
        assert!(feed.finished().is_none());
    }

    #[test]
    fn a_file_that_changed_is_found_out_before_its_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "other").unwrap();
        let changed = Content { source: Source::File(file.path().into()), ..content(b"bytes") };
        let (sender, mut items) = mpsc::channel(QUEUE);
        changed.pour(0, &sender);
        assert!(matches!(items.try_recv().unwrap(), Item::Data(_)));
        let Item::Failed(error) = items.try_recv().unwrap() else { unreachable!() };
        assert!(error.to_string().contains(&Digest::of(b"other").to_string()), "{error}");
    }
}
