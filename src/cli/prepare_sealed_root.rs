//! `prepare-sealed-root`: the sealed derivative of a generalised root.

use super::{Console, Exit, Failure};

/// Seal a generalised root: point its first boot at the answer CD.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_: Args, _: &Console) -> Result<(), Failure> {
    Err(Failure::new(Exit::Failed, "not built yet"))
}
