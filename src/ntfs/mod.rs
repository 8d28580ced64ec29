//! NTFS read offline: volume state, files and where their bytes lie, free clusters.
//!
//! Everything here is judged byte by byte, because an edit of the wrong cluster destroys a disk. The `ntfs`
//! crate, which the tests use as one of the judges, is not enough for that: it takes a file whose extents are
//! spread over several records for shorter than it is, knows no initialized size, and can be made to panic,
//! to loop and to allocate at will by a damaged index. Format facts: the Linux-NTFS documentation
//! (flatcap.github.io/linux-ntfs) and ntfs-3g's layout.h.

mod attribute;
mod attribute_list;
mod bitmap;
mod boot;
mod error;
mod file;
mod index;
mod logfile;
mod record;
mod runs;
mod state;
mod stream;
mod upcase;
mod volume;

pub use bitmap::Bitmap;
pub use boot::{Probe, probe};
pub use error::NtfsError;
pub use file::{Extent, File, Piece};
pub use index::{Entry, FileReference};
pub use state::{Reason, VolumeState};
pub use volume::Volume;
