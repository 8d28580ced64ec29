//! `media`: installation media, by themselves.

use super::{Console, Failure, media_inspect};

/// Look at installation media.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Inspect(media_inspect::Args),
}

/// Runs the command.
pub fn run(args: Args, console: &Console) -> Result<(), Failure> {
    match args.command {
        Command::Inspect(args) => media_inspect::run(args, console),
    }
}
