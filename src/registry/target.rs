//! Where blobs go, and in what size of requests.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::http::Http;
use super::options::{MAX_CHUNK, MIN_CHUNK};
use super::{Notice, UploadOptions};

/// What is tried, one after another, where a request was too large; the first is what GHCR takes at most.
const SMALLER: [usize; 3] = [4 << 20, 1 << 20, 256 << 10];

/// Where blobs go, and how.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) http: Http,
    pub(super) options: UploadOptions,
    /// Bytes of a PATCH, for this blob and all that follow; zero for one PATCH.
    chunk: AtomicUsize,
}

impl Target {
    pub(super) fn new(http: Http, options: UploadOptions) -> Self {
        let chunk = options.chunk_size.map_or(0, |size| size.clamp(MIN_CHUNK, MAX_CHUNK));
        Self { http, options, chunk: AtomicUsize::new(chunk) }
    }

    /// Bytes of a PATCH; nothing for one PATCH.
    pub(super) fn chunk(&self) -> Option<usize> {
        Some(self.chunk.load(Ordering::Relaxed)).filter(|size| *size > 0)
    }

    /// The next smaller size of a request, from now on.
    pub(super) fn smaller(&self) -> Option<usize> {
        let now = self.chunk().unwrap_or(usize::MAX);
        let size = SMALLER.into_iter().find(|size| *size < now)?;
        self.chunk.store(size, Ordering::Relaxed);
        Some(size)
    }

    pub(super) fn tell(&self, notice: &Notice) {
        (self.options.notify)(notice);
    }
}
