//! `render-bootstrap`: an answer file with credentials of its own.

use super::{Console, Exit, Failure};

/// Render an answer file with fresh credentials.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_: Args, _: &Console) -> Result<(), Failure> {
    Err(Failure::new(Exit::Failed, "not built yet"))
}
