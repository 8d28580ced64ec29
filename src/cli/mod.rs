//! The command line: one file a subcommand, from arguments to library calls, and all the printing.

mod console;
mod failure;

mod audit;
mod audit_report;
mod build;
mod diff;
mod flash;
mod flash_target;
mod image_source;
mod in_place;
mod inspect;
mod media;
mod media_args;
mod media_inspect;
mod media_text;
mod package;
mod pin;
mod prepare_sealed_root;
mod promote;
mod push;
mod recipe;
mod recipe_new;
mod registry_args;
mod render_bootstrap;
mod render_import_secret;
mod root_args;
mod shell;
mod upload_args;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use console::Console;
pub use failure::{Classify, Exit, Failure};

/// From Windows media to a sealed, digest-pinned containerDisk; offline, without root.
#[derive(Debug, Parser)]
#[command(name = "sealroot", version, max_term_width = 80, infer_subcommands = false)]
pub struct Cli {
    /// Say nothing but results and errors.
    #[arg(long, short, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Build(build::Args),
    Verify(verify::Args),
    Pin(pin::Args),
    Media(media::Args),
    Recipe(recipe::Args),
    RenderBootstrap(render_bootstrap::Args),
    Audit(audit::Args),
    PrepareSealedRoot(prepare_sealed_root::Args),
    Package(package::Args),
    Push(push::Args),
    Inspect(inspect::Args),
    Diff(diff::Args),
    Promote(promote::Args),
    Flash(Box<flash::Args>),
    RenderImportSecret(render_import_secret::Args),
    Completions(shell::CompletionsArgs),
    Man(shell::ManArgs),
}

/// Parses the arguments, runs the command, prints what failed, and says how it ended.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let console = Console::new(cli.quiet);
    let outcome = match cli.command {
        Command::Build(args) => build::run(args, &console),
        Command::Verify(args) => verify::run(args, &console),
        Command::Pin(args) => pin::run(args, &console),
        Command::Media(args) => media::run(args, &console),
        Command::Recipe(args) => recipe::run(args, &console),
        Command::RenderBootstrap(args) => render_bootstrap::run(args, &console),
        Command::Audit(args) => audit::run(args, &console),
        Command::PrepareSealedRoot(args) => prepare_sealed_root::run(args, &console),
        Command::Package(args) => package::run(args, &console),
        Command::Push(args) => push::run(args, &console),
        Command::Inspect(args) => inspect::run(args, &console),
        Command::Diff(args) => diff::run(args, &console),
        Command::Promote(args) => promote::run(args, &console),
        Command::Flash(args) => flash::run(*args, &console),
        Command::RenderImportSecret(args) => render_import_secret::run(args, &console),
        Command::Completions(args) => shell::completions(args, &console),
        Command::Man(args) => shell::man(args, &console),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            console.error(&failure);
            failure.exit().into()
        }
    }
}
