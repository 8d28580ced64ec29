//! `recipe`: validate recipes, print their schema, begin a new one.

use std::path::PathBuf;

use serde::Serialize;

use super::{Classify, Console, Exit, Failure, recipe_new};
use crate::io::path_text;
use crate::recipe::{self, Override, RecipeError};

/// Check recipes, begin a new one, or print their JSON Schema.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Check recipes and show everything that is wrong; needs no media.
    ///
    /// Exit code 3 when a recipe has problems.
    Validate(ValidateArgs),
    New(Box<recipe_new::Args>),
    /// Print the JSON Schema of recipes, for editors.
    Schema,
}

#[derive(Debug, clap::Args)]
struct ValidateArgs {
    /// The recipes.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    overrides: OverrideArgs,
    /// Print the problems as JSON.
    #[arg(long)]
    json: bool,
}

/// Overrides, for every subcommand that takes a recipe.
#[derive(Debug, clap::Args)]
pub struct OverrideArgs {
    /// Set a value of the recipe, as install.hostname=KW-1; neither a pin nor a
    /// secret. May be given many times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<Override>,
}

/// Runs the command.
pub fn run(args: Args, console: &Console) -> Result<(), Failure> {
    match args.command {
        Command::Validate(args) => validate(args, console),
        Command::New(args) => recipe_new::run(*args, console),
        Command::Schema => {
            console.json(&recipe::schema());
            Ok(())
        }
    }
}

impl Classify for RecipeError {
    fn exit(&self) -> Exit {
        match self {
            Self::Read { .. } => Exit::Failed,
            Self::Rejected(_) => Exit::Rejected,
        }
    }
}

/// One file of `recipe validate --json`.
#[derive(Debug, Serialize)]
struct Verdict {
    #[serde(serialize_with = "path_text")]
    file: PathBuf,
    valid: bool,
    /// Why it could not be read at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    problems: Vec<recipe::Problem>,
}

fn validate(args: ValidateArgs, console: &Console) -> Result<(), Failure> {
    let mut verdicts = Vec::new();
    let mut messages = Vec::new();
    let mut exit = Exit::Failed;
    for file in args.files {
        let verdict = match recipe::load(&file, &args.overrides.set) {
            Ok(_) => Verdict { file, valid: true, error: None, problems: Vec::new() },
            Err(RecipeError::Rejected(problems)) => {
                // A recipe that breaks a rule says more than one that can't be read.
                exit = Exit::Rejected;
                messages.push(problems.to_string());
                Verdict { file, valid: false, error: None, problems: problems.problems }
            }
            Err(unreadable) => {
                let message = Failure::from(unreadable).to_string();
                messages.push(message.clone());
                Verdict { file, valid: false, error: Some(message), problems: Vec::new() }
            }
        };
        if verdict.valid && !args.json {
            console.result(format!("{}: valid\n", verdict.file.display()));
        }
        verdicts.push(verdict);
    }
    if args.json {
        console.json(&verdicts);
    }
    if messages.is_empty() {
        return Ok(());
    }
    // As JSON, the problems have been told already.
    let message = if args.json {
        let many = verdicts.len();
        format!("{} of {many} recipe{} not valid", messages.len(), if many == 1 { " is" } else { "s are" })
    } else {
        messages.join("\n\n")
    };
    Err(Failure::new(exit, message))
}
