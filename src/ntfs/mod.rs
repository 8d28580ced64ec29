//! NTFS read offline: volume state, files and where their bytes lie, free clusters.
//!
//! Everything here is judged byte by byte, because an edit of the wrong cluster destroys a disk. The `ntfs`
//! crate, one of the judges in the tests, is not enough for that: of a file whose extents are spread over
//! several records it reads nothing, without an error; it can't read a fragmented $MFT, ignores initialized
//! sizes, and bounds neither the depth of an index nor the size of its nodes. Format facts: the Linux-NTFS
//! documentation (flatcap.github.io/linux-ntfs) and ntfs-3g's layout.h.

mod attribute;
mod attribute_list;
mod bitmap;
mod boot;
mod consistency;
mod edit;
mod error;
mod file;
mod index;
mod index_edit;
mod index_tree;
mod logfile;
mod record;
mod residue;
mod runs;
mod state;
mod stream;
mod unlink;
mod upcase;
mod volume;

pub use bitmap::Bitmap;
pub use boot::{Probe, probe};
pub use consistency::Contradiction;
pub use error::NtfsError;
pub use file::{Extent, File, Piece};
pub use index::{Entry, FileReference};
pub use residue::clear_residue;
pub use state::{Reason, VolumeState};
pub use unlink::{Unlinked, unlink};
pub use volume::Volume;
