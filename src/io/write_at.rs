//! Writing at an offset: what changes a disk where it lies.

use std::io;

use super::ReadAt;

/// Bytes that can be changed, but never grow.
pub trait WriteAt: ReadAt {
    /// Writes all of `bytes` from `offset`; what was written is seen by reads at once, and lasts after
    /// [`WriteAt::sync`].
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Returns when all that was written would outlive a power cut.
    fn sync(&self) -> io::Result<()>;
}
