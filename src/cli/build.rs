//! `build`: a recipe, all the way to a digest.

use std::path::PathBuf;

use super::package::{created, open_registry, push_target};
use super::recipe::OverrideArgs;
use super::registry_args::RegistryArgs;
use super::{Classify, Console, Exit, Failure};
use crate::build::{self, AnswersError, BuildError, FolderError, Job, Planned};
use crate::containerdisk::LayoutError;
use crate::recipe;

/// Take a recipe to a digest-pinned image.
///
/// Verifies the media against their pins, renders the answers with fresh credentials, audits and seals the root,
/// packages it into an OCI layout, reads that back, pushes it if asked, and writes evidence.json. What an earlier
/// build of the same recipe has done and what is unchanged is kept; media are always hashed again.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The recipe.
    recipe: PathBuf,
    /// The root disk, instead of the recipe's root.disk.
    #[arg(long, value_name = "DISK")]
    disk: Option<PathBuf>,
    /// The build folder [default: out/NAME, with the recipe's name].
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Where the media are, instead of the recipe's folder.
    #[arg(long, value_name = "DIR")]
    media_dir: Option<PathBuf>,
    #[command(flatten)]
    overrides: OverrideArgs,
    /// Push the image to HOST[:PORT]/REPOSITORY:TAG as well.
    #[arg(long, value_name = "REFERENCE")]
    push: Option<String>,
    /// Say what would be done, and what is missing for it; exit code 3 when something is.
    #[arg(long)]
    dry_run: bool,
    /// Print the evidence (or the plan) as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    registry: RegistryArgs,
}

/// Runs the command.
pub fn run(args: Args, console: &Console) -> Result<(), Failure> {
    let recipe = recipe::load(&args.recipe, &args.overrides.set)?;
    // A dry run needs no login.
    let push = args.push.as_deref();
    let registry = if args.dry_run { None } else { open_registry(push, &args.registry)? };
    let job = Job {
        output: args.output.unwrap_or_else(|| PathBuf::from("out").join(&recipe.name)),
        recipe: &recipe,
        overrides: args.overrides.set.iter().map(ToString::to_string).collect(),
        media_dir: args.media_dir,
        disk: args.disk,
        registry: registry.as_ref(),
        created: created()?,
    };
    if args.dry_run {
        return dry_run(&job, push, args.json, console);
    }
    let mut watch = |step: build::Step| {
        let kept = if step.kept { " (kept)" } else { "" };
        console.note(format!("{:<8} {}{kept}", step.name, step.outcome));
    };
    let evidence = build::build(&job, &mut watch, console)?;
    console.note(format!("evidence {}", job.output.join(build::EVIDENCE).display()));
    if args.json {
        console.json(&evidence);
    } else {
        let name = evidence.pushed.clone().unwrap_or_else(|| evidence.image.manifest_digest.to_string());
        console.result(format!("{name}\n"));
    }
    Ok(())
}

fn dry_run(job: &Job<'_>, push: Option<&str>, json: bool, console: &Console) -> Result<(), Failure> {
    let target = push.map(push_target).transpose()?;
    let stages = build::plan(job, target.as_ref())?;
    if json {
        console.json(&stages);
    } else {
        for Planned { name, what, missing } in &stages {
            let missing = if *missing { "missing: " } else { "" };
            console.result(format!("{name:<8} {missing}{what}\n"));
        }
    }
    match stages.iter().filter(|stage| stage.missing).count() {
        0 => Ok(()),
        1 => Err(Failure::new(Exit::Rejected, "something is missing for this build")),
        n => Err(Failure::new(Exit::Rejected, format!("{n} things are missing for this build"))),
    }
}

impl Classify for FolderError {
    fn exit(&self) -> Exit {
        match self {
            Self::Busy { .. }
            | Self::NotAFolder { .. }
            | Self::Taken { .. }
            | Self::Foreign { .. }
            | Self::OtherRecipe { .. }
            | Self::Unreadable { .. } => Exit::Refused,
            Self::Io { .. } => Exit::Failed,
            Self::New(error) => error.exit(),
        }
    }
}

impl Classify for AnswersError {
    fn exit(&self) -> Exit {
        match self {
            Self::NoImageName | Self::Name(_) | Self::Label(_) => Exit::Rejected,
            Self::OtherSettings { .. } => Exit::Refused,
            Self::Credentials(error) => error.exit(),
            Self::Answer(error) => error.exit(),
            Self::Bootstrap(error) => error.exit(),
            Self::Folder(error) => error.exit(),
            Self::Settings(_) => Exit::Failed,
        }
    }

    fn cure(&self) -> Option<String> {
        match self {
            Self::OtherSettings { folder } => Some(format!(
                "its credentials may be in use: move {folder} away to have it rendered anew, or take --output"
            )),
            _ => None,
        }
    }
}

impl Classify for LayoutError {
    fn exit(&self) -> Exit {
        match self {
            Self::Read { .. } => Exit::Failed,
            Self::Interrupted(error) => error.exit(),
            _ => Exit::Rejected,
        }
    }
}

impl Classify for BuildError {
    fn exit(&self) -> Exit {
        match self {
            Self::Recipe { .. } | Self::Json(_) | Self::Verify(LayoutError::Read { .. }) => Exit::Failed,
            Self::Folder(error) => error.exit(),
            // The worst of them.
            Self::Media(errors) => {
                let failed = errors.iter().any(|error| error.exit() == Exit::Failed);
                if failed { Exit::Failed } else { Exit::Rejected }
            }
            Self::Answers(error) => error.exit(),
            Self::NoDisk => Exit::Rejected,
            Self::Disk { source, .. } => source.exit(),
            Self::Root { source, .. } => source.exit(),
            Self::Patch(error) => error.exit(),
            Self::Level(_) => Exit::Rejected,
            Self::Publish(error) => error.exit(),
            Self::Verify(LayoutError::Interrupted(error)) | Self::Interrupted(error) => error.exit(),
            // It was written a moment ago.
            Self::Verify(_) => Exit::Failed,
            Self::Registry(error) => error.exit(),
        }
    }

    fn cure(&self) -> Option<String> {
        match self {
            Self::Media(errors) => errors.iter().find_map(Classify::cure),
            Self::Answers(error) => error.cure(),
            Self::Root { source, .. } => source.cure(),
            Self::Publish(error) => error.cure(),
            Self::Registry(error) => error.cure(),
            _ => None,
        }
    }
}
