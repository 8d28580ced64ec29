//! What Windows means by all this: is a root fit to publish, and the patch that seals it.
//!
//! [`audit()`] reads a disk and says what it found, check by check; [`seal`] works out a
//! [`Patch`](crate::io::Patch). Nothing here writes to a disk. Both start from one open installation: the volume,
//! its hives made whole by their logs, the answer files that are cached on it.

mod answer_files;
pub mod audit;
mod error;
mod facts;
mod hives;
mod installation;
mod inventory;
pub mod keep;
mod pointer;
mod scrub;
mod seal;
mod walk;
mod windows_volume;

pub use audit::{Audit, Finding, Policy, audit};
pub use error::RootError;
pub use facts::{PageFile, RootFacts, Sysprep, WindowsVersion};
pub use hives::{LogReplay, Replayed};
pub use inventory::{DriverPackage, Inventory, Service, inventory};
pub use seal::{FirstBoot, SealReport, Sealed, seal};
