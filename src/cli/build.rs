//! `build`: a recipe, all the way to a digest.

use super::{Console, Exit, Failure};

/// Take a recipe to a digest-pinned image.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_: Args, _: &Console) -> Result<(), Failure> {
    Err(Failure::new(Exit::Failed, "not built yet"))
}
