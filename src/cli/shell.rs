//! `completions` and `man`: what a package of sealroot ships beside the binary.

use clap::CommandFactory;

use super::{Cli, Console, Exit, Failure};

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell.
    shell: clap_complete::Shell,
}

/// Print the manual page.
#[derive(Debug, clap::Args)]
pub struct ManArgs {}

/// Prints the script on standard output.
pub fn completions(args: CompletionsArgs, console: &Console) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "sealroot", &mut script);
    console.result(script);
    Ok(())
}

/// Prints the page, as roff, on standard output.
pub fn man(_: ManArgs, console: &Console) -> Result<(), Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command())
        .render(&mut page)
        .map_err(|e| Failure::new(Exit::Failed, format!("the manual page can't be made: {e}")))?;
    console.result(page);
    Ok(())
}
