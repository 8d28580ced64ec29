//! `package`: a disk into a containerDisk layer, in one pass.

use super::{Console, Exit, Failure};

/// Package a root disk as a containerDisk.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_: Args, _: &Console) -> Result<(), Failure> {
    Err(Failure::new(Exit::Failed, "not built yet"))
}
