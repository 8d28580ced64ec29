//! A disk as a containerDisk: allocation map, qcow2 stream, layer frames, OCI layout.

mod compression;
mod digest;
mod layer;
mod qcow2;
mod tar;

pub use compression::{Compression, LevelError};
pub use digest::{Digest, DigestError};
pub use layer::{Chunk, Layer, LayerError, LayerInfo, Sink};
pub use qcow2::Qcow2Image;
pub use tar::Tar;
