//! The body of an upload: chunks from a thread that reads or makes them, to the connection that sends them.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use reqwest::Body;
use tokio::sync::mpsc;

use super::RegistryError;
use super::network::Meter;
use crate::containerdisk::Digest;

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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures_util::FutureExt;
    use futures_util::stream::StreamExt;

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
        let all = Bytes::from_static(b"all");
        sender.try_send(Item::Data(all.clone())).unwrap();
        sender.try_send(Item::End { digest: Digest::of(&all) }).unwrap();
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
}
