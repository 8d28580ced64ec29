//! A disk as a containerDisk: allocation map, qcow2 stream, layer frames, OCI layout.

mod compression;
mod digest;
mod image;
mod layer;
mod layout;
mod qcow2;
mod stored;
mod tar;
mod verify;

pub use compression::{Compression, LevelError};
pub use digest::{Digest, DigestError};
pub use image::{
    CONFIG_TYPE, CreatedError, Descriptor, Documents, Image, MANIFEST_TYPE, Manifest, created_from_epoch,
};
pub use layer::{Chunk, Layer, LayerError, LayerInfo, Sink};
pub use layout::LayoutWriter;
pub use qcow2::{Qcow2Image, Qcow2WriteError};
pub use stored::{Blob, Layout, LayoutError};
pub use tar::Tar;
pub use verify::{Verified, verify};
