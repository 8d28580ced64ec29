//! `verify`: media against their pins.

use super::{Console, Exit, Failure};

/// Hash media and check them against their pins.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_: Args, _: &Console) -> Result<(), Failure> {
    Err(Failure::new(Exit::Failed, "not built yet"))
}
