//! `prepare-sealed-root`: the sealed derivative of a generalised root.

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread::available_parallelism;

use super::in_place;
use super::root_args::{
    FirstBootArg, ReplayArgs, SpoolArg, drive_letter, open_disk, tell_scrubbed, warn_about,
};
use super::{Classify, Console, Exit, Failure};
use crate::containerdisk::{Qcow2Image, Qcow2WriteError, write_compressed};
use crate::io::{NewFile, NewPathError, Overlay, Privacy, Progress, ReadAt};
use crate::root::keep::{CLUSTER, KeepError, Kept};
use crate::root::{self, FirstBoot, Policy};

/// Seal a generalised root: scrub cached answer files, point its first boot at the answer CD.
///
/// Answer files that Windows Setup keeps (*unattend*.xml, sysprep.inf) are zeroed and removed, and
/// HKLM\SYSTEM\Setup\UnattendFile is set to D:\autounattend.xml (or taken away), in a new disk or a patch; the disk
/// given is changed only by --in-place, which can be undone. A root that is not generalised, or was not shut down
/// in peace, is refused; whatever else `audit` would say of the sealed root is a warning. A change in place that
/// was stopped half-way is taken back first.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("result").required(true).args(["output", "patch", "in_place", "undo"])))]
pub struct Args {
    /// The root disk: raw, qcow2 or a block device.
    #[arg(long, value_name = "DISK")]
    disk: PathBuf,
    #[command(flatten)]
    spool: SpoolArg,
    /// Write the sealed root as a new qcow2 file.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// With --output: compress it, as `qemu-img convert -c` does.
    #[arg(long, requires = "output", conflicts_with_all = ["patch", "in_place", "undo"])]
    compress: bool,
    /// Write only what sealing changes, for `package --patch`. It holds the bytes it replaces, and with them what was
    /// secret in a cached answer file.
    #[arg(long, value_name = "FILE")]
    patch: Option<PathBuf>,
    /// Change the disk itself; the bytes replaced are kept in DISK.sealroot-undo. Whenever this is stopped, the
    /// next run ends with the old disk or the new one. A disk in use is refused.
    #[arg(long, conflicts_with = "spool")]
    in_place: bool,
    /// Take back what --in-place did, if the bytes it wrote are still there. What else was written to the disk since is
    /// not noticed, and stays.
    #[arg(long, conflicts_with_all = ["first_boot", "sysprep_drive", "remove_pointer", "spool"])]
    undo: bool,
    /// The drive letter the answer CD will have [default: D].
    #[arg(long, value_name = "LETTER", value_parser = drive_letter)]
    sysprep_drive: Option<char>,
    /// How a clone's first boot finds its answers.
    #[arg(long, value_enum, default_value = "answer-cd")]
    first_boot: FirstBootArg,
    /// Take the pointer away; the same as --first-boot none.
    #[arg(long, conflicts_with_all = ["first_boot", "sysprep_drive"])]
    remove_pointer: bool,
    #[command(flatten)]
    replay: ReplayArgs,
    /// Print what was done as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args, console: &Console) -> Result<(), Failure> {
    if args.undo {
        return in_place::undo(&args.disk, args.json, console);
    }
    let first_boot = if args.remove_pointer {
        FirstBoot::Nothing
    } else {
        args.first_boot.with_drive(args.sysprep_drive.unwrap_or('D'))
    };
    if args.in_place {
        return in_place::seal(&args.disk, &first_boot, args.replay.replay(), args.json, console);
    }
    // Before the work, so that a name that is taken costs nothing.
    let target = args.output.as_ref().or(args.patch.as_ref());
    // A patch holds what it replaces; a disk is as public as the umask has it.
    let privacy = if args.patch.is_some() { Privacy::Secret } else { Privacy::Public };
    let new = target.map(|path| NewFile::create(path, privacy)).transpose()?;
    in_place::recover(&args.disk, console)?;
    let disk = open_disk(&args.disk, &args.spool, console)?;
    let in_disk = |failure: Failure| failure.context(args.disk.display());
    let replay = args.replay.replay();
    let sealed = root::seal(&disk, &first_boot, replay).map_err(|e| in_disk(e.into()))?;
    let report = sealed.report;
    let view = Overlay::new(&disk, sealed.patch);
    let policy = Policy { first_boot: Some(first_boot), ..Policy::default() };
    let audit = root::audit(&view, &policy, replay).map_err(|e| in_disk(e.into()))?;
    warn_about(&audit, console);
    if let Some(mut file) = new {
        let path = target.cloned().unwrap_or_default();
        let shown = path.display().to_string();
        if args.patch.is_some() {
            let json = view.patch().to_json(disk.size()).map_err(|e| in_disk(e.into()))?;
            file.write_all(&json).map_err(|source| NewPathError::Io { path, source })?;
        } else {
            let kept = Kept::all(&view, console).map_err(|e| in_disk(e.into()))?;
            let written = if args.compress {
                let task = console.task("writing", kept.clusters().count() * CLUSTER);
                let workers = available_parallelism().unwrap_or(NonZeroUsize::MIN);
                write_compressed(&kept, file.as_file(), workers, &*task)
            } else {
                let image = Qcow2Image::new(&kept);
                let task = console.task("writing", image.size());
                image.write(&mut file, &*task)
            };
            written.map_err(|e| Failure::from(e).context(&shown))?;
        }
        file.finish()?;
        if args.patch.is_some() {
            console.note(format!(
                "patch {shown}: it holds the bytes that it replaces, keep it as private as those"
            ));
        } else {
            console.note(format!(
                "sealed root {shown}: with what file systems call free, deleted files included"
            ));
        }
    }
    tell_scrubbed(&report, console);
    if args.json {
        console.json(&report);
    } else {
        let pointer = report.pointer.as_deref().unwrap_or("none");
        console.result(format!("pointer {pointer}, {} bytes changed\n", report.changed_bytes));
    }
    Ok(())
}

impl Classify for KeepError {
    fn exit(&self) -> Exit {
        match self {
            Self::Read(_) => Exit::Failed,
            Self::TooLarge { .. } | Self::LeftOut { .. } => Exit::Refused,
            Self::Interrupted(error) => error.exit(),
        }
    }
}

impl Classify for Qcow2WriteError {
    fn exit(&self) -> Exit {
        match self {
            Self::Read(_) | Self::Write(_) => Exit::Failed,
            Self::Interrupted(error) => error.exit(),
        }
    }
}
