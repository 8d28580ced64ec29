//! `render-import-secret`: registry credentials for CDI's import.

use super::{Console, Exit, Failure};

/// Render the Secret that CDI's registry import needs.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_: Args, _: &Console) -> Result<(), Failure> {
    Err(Failure::new(Exit::Failed, "not built yet"))
}
