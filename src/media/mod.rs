//! Installation media: hashing against a pin, and what a file is.

mod hash;
mod hash_cache;
mod known;
mod pin;
mod sniff;
mod verify;

pub use hash::{FileHash, HashError, hash};
pub use hash_cache::{HashCache, HashCacheError};
pub use known::{KnownMedium, known, known_drivers};
pub use pin::{PinError, Sha256};
pub use sniff::{Content, sniff};
pub use verify::{MediaError, MediaFacts, Mismatch, PinnedFile, look, verify};
