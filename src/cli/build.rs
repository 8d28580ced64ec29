//! `build`: a recipe, all the way to a digest.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::media_args::{self, HashCacheArg, MediaArgs};
use super::package::{created, open_registry, push_target};
use super::recipe::OverrideArgs;
use super::registry_args::RegistryArgs;
use super::root_args::SpoolArg;
use super::upload_args::UploadArgs;
use super::{Classify, Console, Exit, Failure};
use crate::build::{self, AnswersError, BuildError, FolderError, Job, Planned};
use crate::containerdisk::LayoutError;
use crate::recipe::{self, Recipe};
use crate::root::RootError;

/// Take a recipe to a digest-pinned image.
///
/// Verifies the media against their pins, renders the answers with fresh credentials, audits and seals the root,
/// packages it into an OCI layout, reads that back, pushes it if asked, and writes evidence.json. What an earlier
/// build of the same recipe has done and what is unchanged is kept; media are hashed again, unless --hash-cache is given.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The recipe.
    recipe: PathBuf,
    /// The root disk, instead of the recipe's root.disk.
    #[arg(long, value_name = "DISK")]
    disk: Option<PathBuf>,
    #[command(flatten)]
    spool: SpoolArg,
    /// The build folder [default: out/NAME, with the recipe's name].
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    media: MediaArgs,
    #[command(flatten)]
    hash_cache: HashCacheArg,
    #[command(flatten)]
    overrides: OverrideArgs,
    /// Push the image as well: to HOST[:PORT]/REPOSITORY:TAG, or to the recipe's image.repository and image.tag
    /// where none is given.
    #[arg(long, value_name = "REFERENCE", num_args = 0..=1)]
    push: Option<Option<String>>,
    /// Say what would be done, and what stands in its way; exit code 3 when something does, 4 when it is only
    /// something in a state that nothing is done with.
    #[arg(long)]
    dry_run: bool,
    /// Print the evidence (or the plan) as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    registry: RegistryArgs,
    #[command(flatten)]
    upload: UploadArgs,
}

/// Runs the command.
pub fn run(args: Args, console: &Console) -> Result<(), Failure> {
    let recipe = recipe::load(&args.recipe, &args.overrides.set)?;
    // A dry run needs no login.
    let push = args.push.map(|given| target(given, &recipe, console)).transpose()?;
    let push = push.as_deref();
    let registry =
        if args.dry_run { None } else { open_registry(push, &args.registry, &args.upload, console)? };
    let disk = args.disk.or_else(|| recipe.root.disk.as_ref().map(|disk| recipe.path(disk)));
    let unpacked = disk.as_deref().map(|disk| args.spool.unpacked(disk, console)).transpose()?.flatten();
    let (cache, roots) = (args.hash_cache.open()?, args.media.roots()?);
    let job = Job {
        output: args.output.unwrap_or_else(|| PathBuf::from("out").join(&recipe.name)),
        recipe: &recipe,
        overrides: args.overrides.set.iter().map(ToString::to_string).collect(),
        media_dir: args.media.media_dir.clone(),
        trust: media_args::judge(roots.as_ref()),
        hash_cache: cache.as_ref(),
        disk: unpacked.or(disk),
        registry: registry.as_ref(),
        created: created()?,
    };
    if args.dry_run {
        return dry_run(&job, push, args.json, console);
    }
    let mut watch = |step: build::Step| {
        let kept = if step.kept { " (kept)" } else { "" };
        console.note(format!("{:<8} {}{kept}", step.name, step.outcome));
        step.warnings.iter().for_each(|warning| console.warn(warning));
    };
    let evidence = build::build(&job, &mut watch, console);
    media_args::save(cache.as_ref(), console);
    let evidence = evidence?;
    console.note(format!("evidence {}", job.output.join(build::EVIDENCE).display()));
    if args.json {
        console.json(&evidence);
    } else {
        let name = match &evidence.pushed {
            Some(pushed) if registry.is_some() => pushed.reference.clone(),
            _ => evidence.image.manifest_digest.to_string(),
        };
        console.result(format!("{name}\n"));
    }
    Ok(())
}

/// Where to push: as given, or else as the recipe has it.
fn target(given: Option<String>, recipe: &Recipe, console: &Console) -> Result<String, Failure> {
    let image = &recipe.image;
    match (given, &image.repository, &image.tag) {
        (Some(given), Some(repository), _) => {
            let name = push_target(&given)?;
            let elsewhere = format!("{}/{}", name.host(), name.repository());
            if elsewhere != *repository {
                console.warn(format!(
                    "--push names {elsewhere}, but the recipe's image belongs in {repository}"
                ));
            }
            Ok(given)
        }
        (Some(given), None, _) => Ok(given),
        (None, Some(repository), Some(tag)) => {
            let target = format!("{repository}:{tag}");
            // The recipe is what does not pass, not the command line.
            match push_target(&target) {
                Ok(_) => Ok(target),
                Err(failure) => Err(Failure::new(Exit::Rejected, format!("image.repository: {failure}"))),
            }
        }
        (None, repository, _) => {
            let lacks = if repository.is_some() { "image.tag" } else { "image.repository" };
            let message = format!("--push has no value, and {} has no {lacks}", recipe.file.display());
            let failure = Failure::new(Exit::Rejected, message);
            Err(failure.cure("write --push HOST/REPOSITORY:TAG, or set image.repository and image.tag"))
        }
    }
}

fn dry_run(job: &Job<'_>, push: Option<&str>, json: bool, console: &Console) -> Result<(), Failure> {
    let target = push.map(push_target).transpose()?;
    let (mut stages, mut exits) = (Vec::new(), Vec::new());
    for Planned { name, what, warnings } in build::plan(job, target.as_ref())? {
        warnings.iter().for_each(|warning| console.warn(warning));
        stages.push(match what {
            Ok(what) => Stage { name, what, obstacle: None, cure: None },
            Err(error) => {
                exits.push(error.exit());
                let unfit = matches!(error, BuildError::Root { source: RootError::Unfit { .. }, .. });
                let refused = unfit || error.exit() == Exit::Refused;
                let obstacle = if refused { Obstacle::Refused } else { Obstacle::Missing };
                let cure = error.cure();
                Stage { name, what: story(&error), obstacle: Some(obstacle), cure }
            }
        });
    }
    if json {
        console.json(&stages);
    } else {
        stages.iter().for_each(|stage| console.result(stage.to_string()));
    }
    let exit = if exits.iter().all(|exit| *exit == Exit::Refused) { Exit::Refused } else { Exit::Rejected };
    match exits.len() {
        0 => Ok(()),
        1 => Err(Failure::new(exit, "something stands in the way of this build")),
        n => Err(Failure::new(exit, format!("{n} things stand in the way of this build"))),
    }
}

/// An error with its causes, where its message does not tell them.
fn story(error: &dyn Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !told.contains(&message) {
            told.push_str(&format!(": {message}"));
        }
        cause = error.source();
    }
    told
}

/// One stage of `build --dry-run`.
#[derive(Debug, Serialize)]
struct Stage {
    name: &'static str,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    obstacle: Option<Obstacle>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Obstacle {
    /// Something is not there, or does not pass its check.
    Missing,
    /// Something is there in a state that nothing is built from or over.
    Refused,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let obstacle = match self.obstacle {
            None => "",
            Some(Obstacle::Missing) => "missing: ",
            Some(Obstacle::Refused) => "refused: ",
        };
        writeln!(f, "{:<8} {obstacle}{}", self.name, self.what)?;
        match &self.cure {
            Some(cure) => writeln!(f, "  {cure}"),
            None => Ok(()),
        }
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
            Self::OtherSettings { .. } | Self::Unfit { .. } => Exit::Refused,
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
                "its credentials may be in use: to keep it, take the settings back to what they were; to have it \
                 rendered anew, move {folder} away, or name another folder with --output"
            )),
            Self::Unfit { folder, .. } => {
                Some(format!("put it right, or move {folder} away to have it rendered anew"))
            }
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
            Self::Lock(error) => error.exit(),
            Self::Unread(error) => error.exit(),
            Self::Expect(error) => error.exit(),
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
            Self::Lock(error) => error.cure(),
            Self::Unread(error) => error.cure(),
            Self::Answers(error) => error.cure(),
            Self::Root { source, .. } => source.cure(),
            Self::Publish(error) => error.cure(),
            Self::Registry(error) => error.cure(),
            _ => None,
        }
    }
}
