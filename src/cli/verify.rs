//! `verify`: media against their pins.

use std::path::PathBuf;

use serde::Serialize;

use super::media_args::{self, MediaArgs};
use super::recipe::OverrideArgs;
use super::{Classify, Console, Exit, Failure};
use crate::io::path_text;
use crate::media::{self, HashError, MediaError, MediaFacts, PinnedFile, Sha256};
use crate::recipe::{self, Recipe};

/// Hash a recipe's media and check them against their pins.
///
/// Files are read and never changed. Exit code 3 when one is missing or is not
/// what the recipe pins.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The recipe.
    recipe: PathBuf,
    #[command(flatten)]
    media: MediaArgs,
    #[command(flatten)]
    overrides: OverrideArgs,
    /// Print what was found as JSON.
    #[arg(long)]
    json: bool,
}

impl Classify for MediaError {
    fn exit(&self) -> Exit {
        match self {
            Self::Missing { .. }
            | Self::NotAFile { .. }
            | Self::Mismatch(_)
            | Self::NotAnImage { .. }
            | Self::Hash(HashError::Changed { .. }) => Exit::Rejected,
            Self::Open { .. } | Self::Hash(HashError::Read { .. }) => Exit::Failed,
            Self::Hash(HashError::Interrupted(_)) => Exit::Interrupted,
        }
    }

    fn cure(&self) -> Option<String> {
        let cure = match self {
            Self::Missing { .. } => {
                "put the file there, or name its folder with --media-dir; sealroot downloads nothing"
            }
            Self::NotAFile { .. } => "name an ISO file in the recipe",
            Self::Mismatch(_) => {
                "get the medium again; change the pin only if its publisher names the hash it has"
            }
            Self::NotAnImage { .. } => "get the medium, and its hash from its publisher",
            Self::Hash(HashError::Changed { .. }) => "wait until it is whole, then verify again",
            Self::Open { .. } | Self::Hash(_) => return None,
        };
        Some(cure.into())
    }
}

/// One medium of `verify --json`.
#[derive(Debug, Serialize)]
struct Report {
    medium: &'static str,
    #[serde(serialize_with = "path_text")]
    path: PathBuf,
    expected: Sha256,
    verified: bool,
    /// Of a file that is not the pinned one.
    #[serde(skip_serializing_if = "Option::is_none")]
    got: Option<Sha256>,
    #[serde(skip_serializing_if = "Option::is_none")]
    facts: Option<MediaFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Report {
    fn new(medium: &'static str, pinned: &PinnedFile, result: &Result<MediaFacts, MediaError>) -> Self {
        let got = match result {
            Err(MediaError::Mismatch(mismatch)) => Some(mismatch.got),
            _ => None,
        };
        Self {
            medium,
            path: pinned.path.clone(),
            expected: pinned.sha256,
            verified: result.is_ok(),
            got,
            facts: result.as_ref().ok().cloned(),
            error: result.as_ref().err().map(ToString::to_string),
        }
    }
}

/// Runs the command.
pub fn run(args: Args, console: &Console) -> Result<(), Failure> {
    let recipe = recipe::load(&args.recipe, &args.overrides.set)?;
    let pinned = recipe.pinned(args.media.media_dir.as_deref());
    let cache = args.media.cache()?;
    let results = media::verify(&pinned, cache.as_ref(), console)?;
    media_args::save(cache.as_ref(), console);
    let pins = [("windows", &recipe.media.windows.pin_at), ("virtio", &recipe.media.virtio.pin_at)];
    let mut reports = Vec::new();
    let mut failures = Vec::new();
    for (((medium, pin_at), pinned), result) in pins.into_iter().zip(&pinned).zip(results) {
        reports.push(Report::new(medium, pinned, &result));
        match result {
            Ok(facts) if !args.json => console.result(line(medium, &facts)),
            Ok(_) => {}
            Err(error) => {
                let context = format!("{medium} (pinned at {}:{pin_at})", args.recipe.display());
                failures.push(Failure::from(error).context(context));
            }
        }
    }
    if args.json {
        console.json(&reports);
    }
    tell_expect(&recipe, console);
    if failures.is_empty() {
        return Ok(());
    }
    // A medium that fails its check says more than one that can't be read.
    let rejected = failures.iter().any(|failure| failure.exit() == Exit::Rejected);
    let exit = if rejected { Exit::Rejected } else { Exit::Failed };
    let told: Vec<_> = failures.iter().map(ToString::to_string).collect();
    Err(Failure::new(exit, told.join("\n\n")))
}

/// Says what a matching pin leaves open.
pub fn tell_expect(recipe: &Recipe, console: &Console) {
    if recipe.media.expects_something() {
        console.note("note: beyond its hash, what is on a medium is not compared with the recipe's `expect`");
    }
}

fn line(medium: &str, facts: &MediaFacts) -> String {
    let label = facts.label.as_deref().map(|label| format!(", volume {label}")).unwrap_or_default();
    let cached = facts.hash_cached.as_deref();
    let cached = cached.map(|when| format!(" (not hashed now: of {when}, from the hash cache)"));
    let name = media::known(&facts.sha256).map(|known| format!("\n  known as {known}"));
    format!(
        "{medium}: verified {}\n  {} bytes, {}{label}\n  sha256 {}{}{}\n",
        facts.path.display(),
        facts.size,
        facts.format.name(),
        facts.sha256,
        cached.unwrap_or_default(),
        name.unwrap_or_default()
    )
}
