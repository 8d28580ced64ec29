//! `flash`: a disk out of an image, or as an image would hold it, onto a file, a block device or a LUN.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::ValueEnum;
use serde::Serialize;

use super::flash_target::{Asks, Goal, To, refuse_same, to};
use super::image_source::layout_in;
use super::package::{tell_volumes, warn_of_no_pointer};
use super::registry_args::RegistryArgs;
use super::root_args::{FirstBootArg, ReplayArgs, SpoolArg, drive_letter, open_disk, tell_scrubbed};
use super::{Console, Exit, Failure};
use crate::containerdisk::{Descriptor, Digest, Layout, Manifest, UnpackError, unpack};
use crate::disk::Disk;
use crate::disk::targets::{Backup, DiskSink, Flasher, Holes, TargetError, Written, grow, refuse_contents};
use crate::io::{Overlay, Patch, Progress, ReadAt, Task};
use crate::registry::{ImageName, RegistryError, Remote};
use crate::root::keep::Kept;
use crate::root::{self, Policy};

/// Write a root disk to a raw file, a block device or a LUN.
///
/// The disk comes out of an image (a registry's, or an OCI layout) in one pass, or with --disk from a disk, as its
/// image would hold it: audited, with --seal sealed, and without what NTFS calls free. What was written is read back
/// and compared. A layer that is not the one its digest names fails at its end.
///
/// A device that is in use (mounted, swap, part of LVM or a RAID, behind a loop device, open in QEMU) or too small is
/// always refused; one that holds anything, and a file that is there, unless --force is given. A new file appears
/// when it is whole. A device gets its first MiB last: until then it has no partition table. Whether somebody else
/// uses an NBD export or a LUN can't be seen from here.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("from").required(true).args(["source", "disk"])))]
pub struct Args {
    /// The image: an OCI layout's folder, or HOST[:PORT]/REPOSITORY with :TAG or @sha256:HEX.
    #[arg(value_name = "REF|LAYOUT")]
    source: Option<String>,
    /// Or a root disk: raw, qcow2 or a block device.
    #[arg(long, value_name = "DISK")]
    disk: Option<PathBuf>,
    /// Where to: a file, a block device, nbd://HOST[:PORT]/EXPORT,
    /// nbd+unix:///EXPORT?socket=PATH, or iscsi://HOST[:PORT]/TARGET/LUN (by qemu-nbd).
    #[arg(long, value_name = "PATH", value_parser = to)]
    to: To,
    /// What is done where the disk has zeros [default: skip for a new file, else punch].
    #[arg(long, value_enum)]
    holes: Option<HolesArg>,
    /// Overwrite what a device holds, or replace a file.
    #[arg(long)]
    force: bool,
    /// Don't read back what was written.
    #[arg(long)]
    no_verify: bool,
    /// On a target larger than the disk, move the backup of the partition table (GPT) to the target's end.
    #[arg(long)]
    grow_gpt: bool,
    #[command(flatten)]
    spool: SpoolArg,
    /// With --disk: seal it on the way, as `package` would; the disk is not changed.
    #[arg(long, requires = "disk", conflicts_with = "no_audit")]
    seal: bool,
    /// With --seal: the drive letter the answer CD will have [default: D].
    #[arg(long, value_name = "LETTER", value_parser = drive_letter, requires = "seal")]
    sysprep_drive: Option<char>,
    /// With --seal: how a clone's first boot finds its answers [default: answer-cd].
    #[arg(long, value_enum, requires = "seal")]
    first_boot: Option<FirstBootArg>,
    #[command(flatten)]
    replay: ReplayArgs,
    /// With --disk: write what NTFS calls free as well, deleted files included.
    #[arg(long, requires = "disk")]
    keep_free_clusters: bool,
    /// With --disk: write whatever it holds, fit or not, Windows or not.
    #[arg(long, requires = "disk")]
    no_audit: bool,
    /// Print what was written as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    registry: RegistryArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum HolesArg {
    /// Leave them as they are: for a device known to be blank, which is found out in reading back.
    Skip,
    /// Give them back to the storage where it promises to read as zeros after; write zeros where not.
    Punch,
    /// Write zeros and keep them allocated.
    Zero,
}

/// What was written, for `--json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    target: String,
    source: String,
    /// The image's digest; none of a disk.
    digest: Option<Digest>,
    layer_digest: Option<Digest>,
    /// Bytes of the disk.
    size: u64,
    written: u64,
    /// Bytes of zeros, which were treated as `holes` says.
    skipped: u64,
    holes: Holes,
    verified: bool,
    gpt_moved: bool,
}

/// Runs the command.
pub fn run(args: Args, console: &Console) -> Result<(), Failure> {
    refuse_disk_options(&args)?;
    let name = shown(&args.to);
    if let To::Path(path) = &args.to
        && let Some(kind) = path.extension().and_then(|end| end.to_str()).filter(|end| NOT_RAW.contains(end))
    {
        console.warn(format!("a raw disk is written, though {name} is named as a {kind} disk"));
    }
    let in_target = |error: TargetError| Failure::from(error).context(&name);
    if let Some(disk) = &args.disk {
        refuse_same(disk, &args.to)?;
    }
    let mut goal = Goal::open(&args.to, args.force, console).map_err(in_target)?;
    if !args.force {
        refuse_contents(goal.target(), &Asks(console.clone())).map_err(in_target)?;
    }
    let is_new = goal.target().is_new();
    let capacity = goal.target().capacity();
    let holes = match args.holes {
        Some(HolesArg::Skip) => Holes::Skip,
        Some(HolesArg::Punch) => Holes::Punch,
        Some(HolesArg::Zero) => Holes::Zero,
        None if is_new => Holes::Skip,
        None => Holes::Punch,
    };
    let begun = Instant::now();
    let mut flasher = Flasher::new(goal.target(), holes, args.force, Box::new(Asks(console.clone())));
    if args.no_verify {
        flasher = flasher.without_verify();
    }
    let done = write(&args, &mut flasher, console);
    let done = done.and_then(|image| {
        let written = flasher.finish().map_err(in_target)?;
        tell_rate("written", written.written, begun, console);
        if !args.no_verify {
            let begun = Instant::now();
            let task = console.task("verifying", written.size);
            flasher.verify(&*task).map_err(in_target)?;
            tell_rate("read back and compared", written.size, begun, console);
        }
        Ok((image, written))
    });
    let spoilt = flasher.has_begun() && !is_new;
    let (image, written) = done.map_err(|failure| match spoilt {
        true => failure.context(format!("{name} is not usable now, flash it again")),
        false => failure,
    })?;
    let gpt_moved = end_gpt(&args, &mut goal, written, capacity, console).map_err(in_target)?;
    goal.finish().map_err(in_target)?;
    if args.json {
        console.json(&Report {
            target: name,
            source: image.source,
            digest: image.digest,
            layer_digest: image.layer,
            size: written.size,
            written: written.written,
            skipped: written.holes,
            holes,
            verified: !args.no_verify,
            gpt_moved,
        });
    } else {
        console.result(format!("{name}\n"));
    }
    Ok(())
}

/// Ends of names that raw disks don't have.
const NOT_RAW: [&str; 5] = ["qcow2", "vmdk", "vhd", "vhdx", "vdi"];

/// What is only for a disk is refused with an image: it would change nothing of it.
fn refuse_disk_options(args: &Args) -> Result<(), Failure> {
    let given = [
        ("--seal", args.seal),
        ("--sysprep-drive", args.sysprep_drive.is_some()),
        ("--first-boot", args.first_boot.is_some()),
        ("--keep-free-clusters", args.keep_free_clusters),
        ("--no-audit", args.no_audit),
        ("--no-replay-logs", args.replay.given()),
        ("--spool", args.spool.given()),
    ];
    match given.into_iter().find(|(_, given)| *given && args.disk.is_none()) {
        Some((option, _)) => {
            let why = format!("{option} is for --disk: an image is written as it is");
            Err(Failure::new(Exit::Usage, why))
        }
        None => Ok(()),
    }
}

/// What was read.
struct Source {
    source: String,
    digest: Option<Digest>,
    layer: Option<Digest>,
}

fn write(args: &Args, flasher: &mut Flasher<'_>, console: &Console) -> Result<Source, Failure> {
    if let Some(path) = &args.disk {
        write_disk(args, path, flasher, console)?;
        return Ok(Source { source: path.display().to_string(), digest: None, layer: None });
    }
    let source = args.source.clone().unwrap_or_default();
    if Path::new(&source).is_dir() {
        let layout = Layout::open(&layout_in(Path::new(&source)))
            .map_err(|e| Failure::from(RegistryError::from(e)))?;
        let layer = only_layer(&layout.manifest, &source)?;
        let path = layout.layers.first().map(|blob| blob.path.clone()).unwrap_or_default();
        let unreadable = |e| Failure::from(UnpackError::Read(e)).context(path.display());
        let task = console.task("writing", layer.size);
        let mut file = Counted { file: File::open(&path).map_err(unreadable)?, task };
        unpack(&mut file, layer, flasher, &Asks(console.clone()))
            .map_err(|e| layer_failure(e, path.display()))?;
        let digest = Some(layout.manifest_descriptor.digest);
        return Ok(Source { source, digest, layer: Some(layer.digest) });
    }
    if !source.contains(':') && !source.contains('@') {
        let why = format!("{source} is no folder, and no image name either");
        return Err(Failure::new(Exit::Usage, why).cure(
            "name an OCI layout, HOST/REPOSITORY:TAG or HOST/REPOSITORY@sha256:HEX, or a disk with --disk",
        ));
    }
    let image: ImageName = source.parse().map_err(RegistryError::from)?;
    let connection = args.registry.connection(&image)?;
    let remote = Remote::open(image, connection)?;
    let image = remote.resolve(&Asks(console.clone()))?;
    let layer = only_layer(&image.manifest, &source)?;
    let mut blob = remote.stream(layer, 0, console.task("writing", layer.size));
    let unpacked = unpack(&mut blob, layer, flasher, &Asks(console.clone()));
    unpacked.map_err(|error| match (error, blob.take_failure()) {
        (UnpackError::Read(_), Some(cause)) => Failure::from(cause),
        (error, _) => layer_failure(error, &source),
    })?;
    let reference = remote.image().pinned(image.digest);
    Ok(Source { source: reference, digest: Some(image.digest), layer: Some(layer.digest) })
}

/// A target's own error has nothing to do with where the layer is.
fn layer_failure(error: UnpackError, layer: impl std::fmt::Display) -> Failure {
    match error {
        UnpackError::Target(_) | UnpackError::Interrupted(_) => error.into(),
        _ => Failure::from(error).context(layer),
    }
}

fn only_layer<'m>(manifest: &'m Manifest, source: &str) -> Result<&'m Descriptor, Failure> {
    match manifest.layers.as_slice() {
        [layer] => Ok(layer),
        layers => {
            let why = format!("{source} has {} layers; a containerDisk has one", layers.len());
            Err(Failure::new(Exit::Rejected, why))
        }
    }
}

fn write_disk(args: &Args, path: &Path, flasher: &mut Flasher<'_>, console: &Console) -> Result<(), Failure> {
    let in_disk = |failure: Failure| failure.context(path.display());
    let disk = open_disk(path, &args.spool, console)?;
    // Before anything is read for it: a target too small is known by now.
    flasher.begin(disk.size())?;
    let patch = patch(args, &disk, console).map_err(in_disk)?;
    let view = Overlay::new(&disk, patch);
    if !args.no_audit {
        let policy = Policy::default();
        let audit = root::audit(&view, &policy, args.replay.replay()).map_err(|e| in_disk(e.into()))?;
        audit.remarks().filter(|finding| !finding.stops()).for_each(|finding| console.warn(finding.remark()));
        let fit = audit.fit().map_err(|e| in_disk(e.into()))?;
        warn_of_no_pointer(&fit, args.first_boot.is_some(), console);
    }
    let kept = if args.keep_free_clusters { Kept::all(&view, console) } else { Kept::in_use(&view, console) };
    let kept = kept.map_err(|e| in_disk(e.into()))?;
    kept.check_shipped(view.patch()).map_err(|e| in_disk(e.into()))?;
    tell_volumes(kept.volumes(), console);
    let task = console.task("writing", kept.size());
    let mut buf = vec![0; AT_ONCE];
    let (mut from, mut told) = (0, 0);
    let unreadable =
        |e: io::Error| Failure::new(Exit::Failed, format!("{} can't be read: {e}", path.display()));
    while let Some(run) = kept.next_data(from).map_err(unreadable)? {
        let piece = &mut buf[..(run.end - run.start).min(AT_ONCE as u64) as usize];
        kept.read_exact_at(piece, run.start).map_err(unreadable)?;
        flasher.data(run.start, piece)?;
        from = run.start + piece.len() as u64;
        task.advance(from - told)?;
        told = from;
    }
    kept.check_unchanged().map_err(unreadable)
}

/// Bytes of a disk that are read and written at once: whole clusters.
const AT_ONCE: usize = 1 << 20;

fn patch(args: &Args, disk: &Disk, console: &Console) -> Result<Patch, Failure> {
    if !args.seal {
        return Ok(Patch::new());
    }
    let first_boot = args.first_boot.unwrap_or(FirstBootArg::AnswerCd);
    let first_boot = first_boot.with_drive(args.sysprep_drive.unwrap_or('D'));
    let sealed = root::seal(disk, &first_boot, args.replay.replay())?;
    tell_scrubbed(&sealed.report, console);
    Ok(sealed.patch)
}

/// The backup of a GPT on a larger target: moved, or told of. Whether it was moved.
fn end_gpt(
    args: &Args,
    goal: &mut Goal,
    written: Written,
    capacity: Option<u64>,
    console: &Console,
) -> Result<bool, TargetError> {
    let larger = capacity.filter(|capacity| *capacity > written.size);
    let (Some(target), Some(sector)) = (larger, written.gpt_sector) else { return Ok(false) };
    if args.grow_gpt {
        grow(goal.target(), Backup { sector, disk: written.size, target }, &Asks(console.clone()))?;
        return Ok(true);
    }
    console.note(format!(
        "the target has {} MiB more than the disk: the backup of the partition table is not at its end; Windows \
         repairs that when it extends a volume, `sgdisk -e` and --grow-gpt do it now",
        (target - written.size) >> 20
    ));
    Ok(false)
}

fn tell_rate(what: &str, bytes: u64, begun: Instant, console: &Console) {
    let seconds = begun.elapsed().as_secs_f64();
    let rate = (bytes >> 20) as f64 / seconds.max(0.001);
    console.note(format!("{what}: {} MiB in {seconds:.1} s, {rate:.0} MiB/s", bytes >> 20));
}

fn shown(to: &To) -> String {
    match to {
        To::Path(path) => path.display().to_string(),
        To::Nbd(address) => address.to_string(),
        To::Iscsi(address) => address.clone(),
    }
}

/// A file that tells how far it was read.
struct Counted {
    file: File,
    task: Box<dyn Task>,
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buf)?;
        // Whoever writes asks whether to stop.
        let _ = self.task.advance(read as u64);
        Ok(read)
    }
}
