//! How blobs are to be sent, and what there is to say on the way.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::backoff;
use super::limits::Limit;
use crate::containerdisk::Digest;

/// The smallest chunk that may be asked for, in bytes.
pub const MIN_CHUNK: usize = 64 << 10;
/// The largest chunk that may be asked for, in bytes: a chunk is held in memory, to be sent again if need be.
pub const MAX_CHUNK: usize = 64 << 20;

/// How blobs are to be sent.
#[derive(Clone)]
pub struct UploadOptions {
    /// Bytes of each PATCH, between [`MIN_CHUNK`] and [`MAX_CHUNK`]; nothing sends a blob in one PATCH, as long
    /// as the registry takes it so.
    pub chunk_size: Option<usize>,
    /// Another repository of the same registry, which may hold the blobs already: they are taken over from there
    /// where the registry can, and sent where it can't.
    pub mount_from: Option<String>,
    /// The pause after a first failure; later ones grow.
    pub first_pause: Duration,
    /// Is told what a user wants to know. It is called from the thread that drives the network.
    pub notify: Arc<dyn Fn(&Notice) + Send + Sync>,
}

impl Default for UploadOptions {
    fn default() -> Self {
        Self {
            chunk_size: None,
            mount_from: None,
            first_pause: backoff::FIRST,
            notify: Arc::new(|_: &Notice| {}),
        }
    }
}

impl fmt::Debug for UploadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UploadOptions")
            .field("chunk_size", &self.chunk_size)
            .field("mount_from", &self.mount_from)
            .field("first_pause", &self.first_pause)
            .finish_non_exhaustive()
    }
}

/// Something that happened to an upload, or may happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// An upload failed and goes on where the registry has it.
    Resumed {
        /// Bytes it has.
        offset: u64,
        /// How it failed.
        why: String,
    },
    /// An upload failed and begins again, since the registry has nothing of it that can be relied on.
    Restarted {
        /// How it failed.
        why: String,
    },
    /// The registry, or a proxy before it, refused a request as too large.
    Chunks {
        /// Bytes that are sent at a time from now on.
        size: usize,
        /// 413 or 416.
        status: u16,
    },
    /// The registry knows no PATCH, so a blob is sent with the request that names it.
    Monolithic {
        /// What it answered to the PATCH.
        status: u16,
    },
    /// The tag leads to another image, until now.
    TagMoves {
        /// The tag.
        tag: String,
        /// That image's digest.
        from: Digest,
    },
    /// The layer may be more than the registry is known to take.
    Limit {
        /// What is known of the registry.
        limit: &'static Limit,
        /// The layer's bytes, or those it has before it is compressed.
        size: u64,
        /// Whether `size` is that of the layer itself.
        exact: bool,
    },
}
