//! `package`: a disk into a containerDisk, in one pass.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::registry_args::RegistryArgs;
use super::root_args::{FirstBootArg, ReplayArgs, SpoolArg, drive_letter, open_disk, tell_scrubbed};
use super::upload_args::UploadArgs;
use super::{Classify, Console, Exit, Failure};
use crate::build::{Packaging, PublishError, Published, Target, publish};
use crate::containerdisk::{Compression, CreatedError, Image, LayerError, LevelError, created_from_epoch};
use crate::disk::Disk;
use crate::io::{Overlay, Patch, ReadAt, SourceFile};
use crate::recipe::{self, Recipe};
use crate::registry::{ImageName, Registry, RegistryError};
use crate::root::keep::{KeptVolume, Shipping};
use crate::root::{self, FirstBoot, Policy};

/// Package a root disk as a containerDisk.
///
/// The disk is read once and streamed: qcow2, tar, compressed frames, digest; into an OCI layout, a registry, or
/// both at the same time, without a temporary copy. What NTFS calls free is not shipped. The same disk gives the
/// same digest, be it raw, sparse or qcow2. An unfit root is refused, as by `audit`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("target").required(true).multiple(true).args(["output", "push"])))]
pub struct Args {
    /// The root disk: raw, qcow2 or a block device.
    #[arg(long, value_name = "DISK")]
    disk: PathBuf,
    #[command(flatten)]
    spool: SpoolArg,
    /// Seal it on the way, as `prepare-sealed-root` would; the disk is not changed.
    #[arg(long, conflicts_with_all = ["patch", "no_audit"])]
    seal: bool,
    /// Lay a patch over it that `prepare-sealed-root --patch` made.
    #[arg(long, value_name = "FILE")]
    patch: Option<PathBuf>,
    /// With --seal: the drive letter the answer CD will have [default: as the recipe has it, or D].
    #[arg(long, value_name = "LETTER", value_parser = drive_letter, requires = "seal")]
    sysprep_drive: Option<char>,
    /// With --seal: how a clone's first boot finds its answers [default: as the recipe has it, or answer-cd].
    #[arg(long, value_enum, requires = "seal")]
    first_boot: Option<FirstBootArg>,
    /// Hold the root to this recipe: its audit rules, and the Windows and first boot it expects.
    #[arg(long, value_name = "RECIPE", conflicts_with = "no_audit")]
    recipe: Option<PathBuf>,
    #[command(flatten)]
    replay: ReplayArgs,
    /// Make a new OCI layout.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Push to HOST[:PORT]/REPOSITORY:TAG.
    #[arg(long, value_name = "REFERENCE")]
    push: Option<String>,
    /// How the layer is compressed.
    #[arg(long, value_enum, default_value = "zstd")]
    compression: CompressionArg,
    /// How hard: 1 to 19 for zstd [default: 3], 1 to 9 for gzip [default: 6].
    #[arg(long, value_name = "N")]
    level: Option<i32>,
    /// Ship what NTFS calls free as well, deleted files included.
    #[arg(long)]
    keep_free_clusters: bool,
    /// Package whatever the disk holds, fit or not, Windows or not.
    #[arg(long)]
    no_audit: bool,
    /// Print what was published as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    registry: RegistryArgs,
    #[command(flatten)]
    upload: UploadArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CompressionArg {
    Zstd,
    Gzip,
    None,
}

/// Tells of a root that no answer CD will be looked for from, unless that was `chosen`.
pub fn warn_of_no_pointer(fit: &root::Audit, chosen: bool, console: &Console) {
    if fit.facts.pointer.is_none() && !chosen {
        console.warn(
            "this root is not sealed, or sealed without a pointer: a clone's first boot looks for no answer CD \
             (--seal seals it on the way)",
        );
    }
}

/// Runs the command.
pub fn run(args: Args, console: &Console) -> Result<(), Failure> {
    let compression = compression(args.compression, args.level)?;
    let registry = open_registry(args.push.as_deref(), &args.registry, &args.upload, console)?;
    let policy = policy(&args)?;
    let disk = open_disk(&args.disk, &args.spool, console)?;
    let patch = patch(&args, &policy, &disk, console)?;
    let view = Overlay::new(&disk, patch);
    if !args.no_audit {
        let in_disk = |error| Failure::from(error).context(args.disk.display());
        let audit = root::audit(&view, &policy, args.replay.replay()).map_err(in_disk)?;
        audit.remarks().filter(|finding| !finding.stops()).for_each(|finding| console.warn(finding.remark()));
        let fit = audit.fit().map_err(in_disk)?;
        warn_of_no_pointer(&fit, policy.first_boot.is_some(), console);
    }
    let packaging = Packaging {
        compression,
        keep_free_clusters: args.keep_free_clusters,
        image: Image { created: created()?, env: BTreeMap::new(), annotations: BTreeMap::new() },
    };
    let target = Target { layout: args.output.as_deref(), registry: registry.as_ref() };
    let published = publish(&view, &packaging, target, console)?;
    tell(&published, args.output.as_deref(), console);
    if args.json {
        console.json(&published);
    } else {
        let name = published.reference.clone().unwrap_or_else(|| published.digest.to_string());
        console.result(format!("{name}\n"));
    }
    Ok(())
}

/// Opens the registry of a `--push`; its login is read here, nothing is sent.
pub fn open_registry(
    push: Option<&str>,
    args: &RegistryArgs,
    upload: &UploadArgs,
    console: &Console,
) -> Result<Option<Registry>, Failure> {
    let Some(push) = push else { return Ok(None) };
    let image = push_target(push)?;
    let connection = args.connection(&image)?;
    Ok(Some(Registry::open_with(image, connection, upload.options(None, console))?))
}

/// A name that can be pushed to.
pub fn push_target(name: &str) -> Result<ImageName, Failure> {
    let image: ImageName = name.parse().map_err(RegistryError::from)?;
    image.push_tag().map_err(RegistryError::from)?;
    Ok(image)
}

/// When the image says it was made: as SOURCE_DATE_EPOCH has it, or not at all.
pub fn created() -> Result<Option<String>, Failure> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        // Set to nothing is how some shells and CI systems unset it.
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => Ok(Some(created_from_epoch(&text)?)),
        Err(_) => Ok(None),
    }
}

/// Says what was left out, and what could not be.
pub fn tell_volumes(volumes: &[KeptVolume], console: &Console) {
    for volume in volumes {
        match &volume.shipping {
            Shipping::InUse { left_out, .. } => {
                console.note(format!(
                    "partition {}: {} MiB of free space not shipped",
                    volume.number,
                    left_out >> 20
                ));
            }
            Shipping::Whole { why } => {
                console.note(format!("partition {}: shipped whole ({why})", volume.number));
            }
        }
    }
}

fn tell(published: &Published, layout: Option<&Path>, console: &Console) {
    if published.volumes.is_empty() {
        console.note("what file systems call free is shipped as well, deleted files included");
    }
    tell_volumes(&published.volumes, console);
    console.note(format!("layer: {} bytes", published.layer_size));
    if let Some(layout) = layout {
        console.note(format!("OCI layout: {}", layout.display()));
    }
}

fn compression(kind: CompressionArg, level: Option<i32>) -> Result<Compression, Failure> {
    Ok(match kind {
        CompressionArg::Zstd => Compression::zstd(level)?,
        CompressionArg::Gzip => Compression::gzip(level)?,
        CompressionArg::None if level.is_some() => {
            return Err(Failure::new(Exit::Usage, "--compression none has no --level"));
        }
        CompressionArg::None => Compression::None,
    })
}

/// What the root is held to: the recipe's rules, and the first boot that is asked for.
fn policy(args: &Args) -> Result<Policy, Failure> {
    let recipe = args.recipe.as_ref().map(|recipe| recipe::load(recipe, &[])).transpose()?;
    let mut policy = recipe.as_ref().map(Recipe::policy).unwrap_or_default();
    if args.seal {
        let drive = args.sysprep_drive.or(recipe.map(|recipe| recipe.root.drive_letter)).unwrap_or('D');
        policy.first_boot = match (args.first_boot, policy.first_boot) {
            (Some(chosen), _) => Some(chosen.with_drive(drive)),
            (None, Some(FirstBoot::AnswerCd { .. }) | None) => Some(FirstBoot::AnswerCd { drive }),
            (None, other) => other,
        };
    }
    Ok(policy)
}

fn patch(args: &Args, policy: &Policy, disk: &Disk, console: &Console) -> Result<Patch, Failure> {
    if args.seal
        && let Some(first_boot) = &policy.first_boot
    {
        let sealed = root::seal(disk, first_boot, args.replay.replay())
            .map_err(|e| Failure::from(e).context(args.disk.display()))?;
        tell_scrubbed(&sealed.report, console);
        return Ok(sealed.patch);
    }
    let Some(file) = &args.patch else { return Ok(Patch::new()) };
    let json = read_patch(file)
        .map_err(|e| Failure::new(Exit::Failed, format!("{} can't be read: {e}", file.display())))?;
    Patch::from_json(&json, disk as &dyn ReadAt).map_err(|e| Failure::from(e).context(file.display()))
}

/// A patch holds what is scrubbed, twice, in hex: a few MiB at most.
const MAX_PATCH: u64 = 256 << 20;

fn read_patch(path: &Path) -> io::Result<Vec<u8>> {
    let file = SourceFile::open(path)?;
    if !file.metadata().is_file() || file.size() > MAX_PATCH {
        return Err(io::Error::other("a patch is a regular file of at most 256 MiB"));
    }
    let mut json = vec![0; file.size() as usize];
    file.read_exact_at(&mut json, 0)?;
    Ok(json)
}

impl Classify for LevelError {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
}

impl Classify for CreatedError {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
}

impl Classify for PublishError {
    fn exit(&self) -> Exit {
        match self {
            Self::Keep(error) => error.exit(),
            Self::Layer(LayerError::Interrupted(error)) => error.exit(),
            Self::Layer(LayerError::Changed(_) | LayerError::Differs { .. }) => Exit::Refused,
            Self::Layer(_) | Self::Document(_) => Exit::Failed,
            Self::Layout(error) => error.exit(),
            Self::Registry(error) => error.exit(),
        }
    }

    fn cure(&self) -> Option<String> {
        match self {
            Self::Registry(error) => error.cure(),
            _ => None,
        }
    }
}
