//! Where `flash` writes to, out of `--to`, and what its refusals mean.

use std::path::{Path, PathBuf};

use super::{Classify, Console, Exit, Failure};
use crate::containerdisk::UnpackError;
use crate::disk::qcow2::StreamError;
use crate::disk::targets::{
    Device, FileTarget, Nbd, NbdAddress, NbdError, PathKind, QemuNbd, QemuNbdError, Target, TargetError,
    path_kind,
};
use crate::io::{Interrupted, Task};

/// An open target.
pub enum Goal {
    /// A file that is not there yet.
    File(FileTarget),
    /// A block device.
    Device(Device),
    /// An NBD export, and the server behind it where that is ours: it ends last.
    Nbd(Box<Nbd>, Option<QemuNbd>),
}

/// Where to write, as it was given.
#[derive(Debug, Clone)]
pub enum To {
    /// A file or block device.
    Path(PathBuf),
    /// An NBD export.
    Nbd(NbdAddress),
    /// An iSCSI LUN, as qemu-nbd reads it.
    Iscsi(String),
}

/// Reads `--to`.
pub fn to(text: &str) -> Result<To, NbdError> {
    match text.split_once("://") {
        Some(("iscsi", _)) => Ok(To::Iscsi(text.into())),
        Some(("nbd" | "nbds" | "nbd+unix" | "nbds+unix", _)) => Ok(To::Nbd(text.parse()?)),
        Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+') => {
            let why =
                format!("{scheme}:// is not known; a path, nbd://, nbd+unix:// or iscsi:// is expected");
            Err(NbdError::Address { why })
        }
        _ => Ok(To::Path(text.into())),
    }
}

/// A task that only hears whether to stop.
pub struct Asks(pub Console);

impl Task for Asks {
    fn advance(&self, _: u64) -> Result<(), Interrupted> {
        self.0.interrupted()
    }
}

impl Goal {
    /// Opens it; nothing is written yet.
    pub fn open(to: &To, force: bool, console: &Console) -> Result<Self, TargetError> {
        let asks = Asks(console.clone());
        Ok(match to {
            To::Path(path) => match path_kind(path.clone())? {
                PathKind::File(path) => Self::File(FileTarget::create(&path, force)?),
                PathKind::Device(path) => Self::Device(Device::open(&path, force)?),
            },
            To::Nbd(address) => Self::Nbd(Box::new(Nbd::open(address, &asks)?), None),
            To::Iscsi(address) => {
                let server = QemuNbd::open(address, &asks)?;
                match Nbd::open(&server.address(), &asks) {
                    Ok(nbd) => Self::Nbd(Box::new(nbd), Some(server)),
                    Err(interrupted @ TargetError::Interrupted(_)) => return Err(interrupted),
                    Err(failure) => return Err(server.explain(failure)),
                }
            }
        })
    }

    /// What is written to.
    pub fn target(&mut self) -> &mut dyn Target {
        match self {
            Self::File(file) => file,
            Self::Device(device) => device,
            Self::Nbd(nbd, _) => nbd.as_mut(),
        }
    }

    /// All is as it should be: a file gets its name.
    pub fn finish(self) -> Result<(), TargetError> {
        match self {
            Self::File(file) => file.finish(),
            Self::Device(_) => Ok(()),
            Self::Nbd(nbd, server) => {
                drop(nbd);
                drop(server);
                Ok(())
            }
        }
    }
}

/// Refuses to write a disk over itself.
pub fn refuse_same(disk: &Path, to: &To) -> Result<(), Failure> {
    use std::os::unix::fs::MetadataExt;
    let To::Path(path) = to else { return Ok(()) };
    if let (Ok(from), Ok(to)) = (disk.metadata(), path.metadata())
        && (from.rdev() != 0 && from.rdev() == to.rdev() || (from.dev(), from.ino()) == (to.dev(), to.ino()))
    {
        let why = format!("{} is both what is read and what is written", path.display());
        return Err(Failure::new(Exit::Usage, why));
    }
    if let Some(file) = behind_loop(path)
        && let (Ok(from), Ok(to)) = (disk.metadata(), file.metadata())
        && (from.dev(), from.ino()) == (to.dev(), to.ino())
    {
        let why =
            format!("{} is a loop device over {}, which is what is read", path.display(), disk.display());
        return Err(Failure::new(Exit::Usage, why));
    }
    Ok(())
}

/// The file behind a loop device, or behind the one that a partition is of.
fn behind_loop(device: &Path) -> Option<PathBuf> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let metadata = device.metadata().ok()?;
    if !metadata.file_type().is_block_device() {
        return None;
    }
    let number = metadata.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let block = Path::new("/sys/dev/block").join(format!("{major}:{minor}")).canonicalize().ok()?;
    let whole = if block.join("partition").exists() { block.parent()?.to_owned() } else { block };
    let file = std::fs::read_to_string(whole.join("loop/backing_file")).ok()?;
    Some(PathBuf::from(file.trim_end_matches('\n')))
}

impl Classify for TargetError {
    fn exit(&self) -> Exit {
        match self {
            Self::Interrupted(error) => error.exit(),
            Self::NewPath(error) => error.exit(),
            Self::Nbd(error) => error.exit(),
            Self::QemuNbd(error) => error.exit(),
            Self::InUse { .. }
            | Self::TooSmall { .. }
            | Self::TooLarge { .. }
            | Self::Holds { .. }
            | Self::Exists
            | Self::Partition
            | Self::SectorSize { .. }
            | Self::NotBlank { .. }
            | Self::Kind { .. } => Exit::Refused,
            Self::Open(_) | Self::Io { .. } | Self::Differs { .. } | Self::Backup(_) => Exit::Failed,
        }
    }

    fn cure(&self) -> Option<String> {
        let cure = match self {
            Self::InUse { .. } => {
                "let go of it first: umount, swapoff, vgchange -an, losetup -d, or end the VM"
            }
            Self::TooSmall { .. } => "make it larger, or name another",
            Self::Holds { .. } => "is it the right one? With --force what it holds is overwritten and lost",
            Self::Exists => "name another, or give --force to replace it",
            Self::Partition => "name the whole device, or give --force",
            Self::SectorSize { .. } => {
                "no firmware would find the partitions; have the storage show sectors of that size, or give --force"
            }
            Self::NotBlank { .. } => "flash it again without --holes skip",
            Self::Differs { .. } => {
                "the storage does not keep what it is given; look at its log and the kernel's"
            }
            Self::Backup(_) => "the disk itself is written; move it with sgdisk -e",
            Self::Open(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                "block devices are for root, or for members of the group they belong to"
            }
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                "make room, or name a place that has it"
            }
            Self::Nbd(error) => return error.cure(),
            _ => return None,
        };
        Some(cure.into())
    }
}

impl Classify for NbdError {
    fn exit(&self) -> Exit {
        match self {
            Self::Address { .. } => Exit::Usage,
            Self::ReadOnly => Exit::Refused,
            _ => Exit::Failed,
        }
    }

    fn cure(&self) -> Option<String> {
        let cure = match self {
            Self::Connect { .. } => "look at host and port, and whether the server is running",
            Self::NotNbd | Self::Protocol(_) => "look at the port; the server may be of another kind",
            Self::ReadOnly => "have it exported for writing",
            Self::Refused { .. } => "see what the server exports: qemu-img info nbd://HOST:PORT/EXPORT",
            Self::Failed { .. } | Self::Closed | Self::Broken(_) | Self::Silent { .. } => {
                "look at the server's log, then flash again"
            }
            Self::Address { .. } => return None,
        };
        Some(cure.into())
    }
}

impl Classify for QemuNbdError {
    fn exit(&self) -> Exit {
        match self {
            Self::Secret => Exit::Usage,
            _ => Exit::Failed,
        }
    }
}

impl Classify for UnpackError {
    fn exit(&self) -> Exit {
        match self {
            Self::Read(_) | Self::Stream(StreamError::Read { .. }) => Exit::Failed,
            Self::Damaged { .. } | Self::Content(_) | Self::Stream(_) => Exit::Rejected,
            Self::Target(error) => error.exit(),
            Self::Interrupted(error) => error.exit(),
        }
    }

    fn cure(&self) -> Option<String> {
        match self {
            Self::Damaged { .. } => Some("fetch or package the image again".into()),
            Self::Stream(StreamError::Order { .. }) => {
                Some("take disk.qcow2 out of the layer with tar, and name that with --disk".into())
            }
            Self::Target(error) => error.cure(),
            _ => None,
        }
    }
}
