//! Installation media: hashing against a pin, and what a file is.

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

pub use hash::{FileHash, HashError, hash};
pub use hash_cache::{HashCache, HashCacheError};
pub use known::{KnownMedium, known, known_drivers};
pub use pin::{PinError, Sha256};
pub use sniff::{Content, sniff};
pub use verify::{MediaError, MediaFacts, Mismatch, PinnedFile, look, verify};
pub use virtio::{DriverFolder, DriverMedium};
pub use windows::{Channel, InstallArchive, MediumError, WindowsMedium};
