//! `push`: an OCI layout into a registry.

use super::{Console, Exit, Failure};

/// Push an OCI layout to a registry and print its digest.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_: Args, _: &Console) -> Result<(), Failure> {
    Err(Failure::new(Exit::Failed, "not built yet"))
}
