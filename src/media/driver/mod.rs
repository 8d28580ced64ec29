//! A driver's files: its INF, and what that says of it.

mod inf;

pub(super) use inf::MAX_SIZE as MAX_INF;
pub use inf::{DriverVersion, Inf, InfError};
