//! A disk as a containerDisk: allocation map, qcow2 stream, layer frames, OCI layout.
//!
//! One pass over the disk, no temporary file, and the same bytes every time:
//!
//! ```no_run
//! # use sealroot::{containerdisk::*, disk, io::Silent, root::keep::Kept};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let disk = disk::open("root.qcow2".as_ref())?;
//! let kept = Kept::in_use(&disk, &Silent)?;
//! // Virtual files: nothing is read until a worker asks for its part.
//! let image = Qcow2Image::new(&kept);
//! let tar = Tar::new(&image);
//! let mut layer = Layer::new(&tar, Compression::zstd(None)?, std::thread::available_parallelism()?);
//! let mut layout = LayoutWriter::create("image".as_ref())?;
//! // An upload can be a second sink of the same pass.
//! let info = layer.write(0, &mut [&mut layout], &Silent)?;
//! let documents = layout.finish(&Image::default(), &info)?;
//! assert_eq!(verify("image".as_ref(), &Silent)?.manifest, documents.manifest_descriptor.digest);
//! # Ok(())
//! # }
//! ```

mod compression;
mod digest;
mod image;
mod image_config;
mod layer;
mod layout;
mod published_disk;
mod qcow2;
mod qcow2_compressed;
mod seek_table;
mod seekable;
mod stored;
mod tar;
mod unpack;
mod verify;
mod whole_layer;

pub use compression::{Compression, FRAME, LevelError};
pub use digest::{Digest, DigestError};
pub use image::{
    CONFIG_TYPE, CreatedError, Descriptor, Documents, Image, MANIFEST_TYPE, Manifest, created_from_epoch,
};
pub use image_config::ImageConfig;
pub use layer::{Chunk, Layer, LayerError, LayerInfo, Sink};
pub use layout::LayoutWriter;
pub use published_disk::{PublishedDisk, PublishedDiskError};
pub use qcow2::{Qcow2Image, Qcow2WriteError};
pub use qcow2_compressed::write_compressed;
pub use seek_table::{SeekTable, SeekTableError};
pub use seekable::SeekableTar;
pub use stored::{Blob, Layout, LayoutError};
pub use tar::Tar;
pub use unpack::{UnpackError, unpack};
pub use verify::{Verified, verify};
pub use whole_layer::{ReadLayerError, WholeDisk, WholeLayer, WholeTar, read_layer};
