//! `recipe`: validate recipes, print their schema.

use super::{Console, Exit, Failure};

/// Check recipes, or print their JSON Schema.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_: Args, _: &Console) -> Result<(), Failure> {
    Err(Failure::new(Exit::Failed, "not built yet"))
}
