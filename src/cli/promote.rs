//! `promote`: an image from one place in a registry to another.

use std::path::PathBuf;

use super::audit_report::AuditReport;
use super::image_source::ImageSource;
use super::inspect;
use super::package::push_target;
use super::registry_args::TrustArgs;
use super::root_args::ReplayArgs;
use super::upload_args::UploadArgs;
use super::{Console, Exit, Failure};
use crate::recipe::{self, Recipe};
use crate::registry::{ImageName, Registry, RegistryError, Remote};

/// Copy a published image to another registry, repository or tag, by its digest.
///
/// Blobs that the target has are not sent; within one registry they are taken over where the registry can; all others
/// are streamed through, with no temporary file. The target's reference by digest is printed when its registry has
/// served the image by it. Logins come from the login files: REGISTRY_AUTH_FILE, docker's config.json, podman's
/// auth.json.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The image: HOST[:PORT]/REPOSITORY@sha256:HEX, or :TAG, which is resolved once.
    #[arg(value_name = "SRC")]
    source: String,
    /// Where to: HOST[:PORT]/REPOSITORY:TAG.
    #[arg(value_name = "DST")]
    target: String,
    /// Audit the image first, as `inspect --audit` does; one that is not fit is not copied (exit code 3).
    #[arg(long)]
    require_audit: bool,
    /// With --require-audit: hold the root to this recipe.
    #[arg(long, value_name = "RECIPE", requires = "require_audit")]
    recipe: Option<PathBuf>,
    #[command(flatten)]
    replay: ReplayArgs,
    /// Print what was copied as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    upload: UploadArgs,
}

/// Runs the command.
pub fn run(args: Args, console: &Console) -> Result<(), Failure> {
    let name: ImageName = args.source.parse().map_err(RegistryError::from)?;
    let target = push_target(&args.target)?;
    let recipe = args.recipe.map(|recipe| recipe::load(&recipe, &[])).transpose()?;
    let policy = recipe.as_ref().map(Recipe::policy).unwrap_or_default();
    let connection = args.trust.connection(&name)?;
    let remote = Remote::open(name, connection)?;
    let connection = args.trust.connection(&target)?;
    let registry = Registry::open_with(target, connection, args.upload.options(None, console))?;
    let source = ImageSource::open_remote(remote, console)?;
    if args.require_audit {
        let audited = inspect::audit(&source, &policy, &args.replay, console)?;
        console.note(format!("audited: {}", audited.cost()));
        let report = AuditReport::of(&audited.audit);
        report.tell_remarks(console);
        report.verdict(&args.source, console)?;
    }
    let ImageSource::Registry { remote, image } = &source else {
        return Err(Failure::new(Exit::Failed, "the source is no registry"));
    };
    if image.index.is_some() {
        let why = format!("{} is an index of images for several platforms", args.source);
        let one = remote.image().pinned(image.digest);
        return Err(Failure::new(Exit::Rejected, why).cure(format!("name one of them: {one} is linux/amd64")));
    }
    let promoted = registry.promote(remote, image, console)?;
    console.note(format!(
        "{} blobs copied ({} bytes), {} taken over, {} there already",
        promoted.blobs_copied, promoted.bytes_copied, promoted.blobs_mounted, promoted.blobs_present
    ));
    if args.json {
        console.json(&promoted);
    } else {
        console.result(format!("{}\n", promoted.reference));
    }
    Ok(())
}
