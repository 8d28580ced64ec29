//! Installation media: hashing against a pin, and what a file is.

pub mod driver;
mod hash;
mod pin;
mod sniff;
mod verify;
mod volume;

pub use hash::{FileHash, HashError, hash};
pub use pin::{PinError, Sha256};
pub use sniff::{Content, sniff};
pub use verify::{MediaError, MediaFacts, Mismatch, PinnedFile, look, verify};
pub use volume::{Volume, VolumeKind};
