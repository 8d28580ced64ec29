//! What Windows means by all this: is a root fit to seal, and the patch that seals it.
//!
//! [`examine`] reads a disk once and says what it found and what stands against sealing it; [`seal`] turns
//! that into a [`Patch`](crate::io::Patch). Nothing here writes to a disk.

mod answer_files;
mod examine;
mod facts;
pub mod keep;
mod refusal;
mod scrub;
mod seal;
mod windows_volume;

pub use examine::{Examination, examine};
pub use facts::{RootFacts, Sysprep, WindowsVersion};
pub use refusal::{Refusal, RootError};
pub use seal::{FirstBoot, SealReport, Sealed, seal};
