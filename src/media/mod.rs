//! Installation media: hashing against a pin, and what a file is.

mod contents;
pub mod driver;
mod hash;
mod hash_cache;
mod known;
mod pin;
mod sniff;
mod text;
mod verify;
mod virtio;
pub mod wim;
mod windows;

pub use contents::Contents;
pub use hash::{FileHash, HashError, hash};
pub use hash_cache::{HashCache, HashCacheError};
pub use known::{KnownMedium, known, known_drivers};
pub use pin::{PinError, Sha256};
pub use sniff::{Content, sniff};
pub use verify::{
    MediaError, MediaFacts, Mismatch, PinnedFile, VerifiedFile, look, open, open_and_hash, verify,
};
pub use virtio::{DriverFolder, DriverMedium, Infs, SetupFolder};
pub use windows::{Channel, InstallArchive, MediumError, WindowsMedium};
