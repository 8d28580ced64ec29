//! `audit`: is a root fit to seal and publish?

use super::{Console, Exit, Failure};

/// Read a root disk offline and say whether it is fit to publish.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_: Args, _: &Console) -> Result<(), Failure> {
    Err(Failure::new(Exit::Failed, "not built yet"))
}
