//! What every command that reads a root disk shares: opening it, and what its errors mean.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::{Classify, Console, Exit, Failure};
use crate::disk::spool::{self, SpoolError};
use crate::disk::{self, Disk, DiskError};
use crate::io::PatchError;
use crate::root::keep::MAX_DISK;
use crate::root::{Examination, FirstBoot, RootError, SealReport};

/// How a clone's first boot finds its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FirstBootArg {
    /// Setup reads autounattend.xml from the answer CD; the CD must be there.
    AnswerCd,
    /// cloudbase-init does it; no pointer is set.
    CloudbaseInit,
    /// Nothing does; no pointer is set, and somebody answers Windows' questions.
    None,
}

impl FirstBootArg {
    /// With the answer CD's drive letter.
    pub fn with_drive(self, drive: char) -> FirstBoot {
        match self {
            Self::AnswerCd => FirstBoot::AnswerCd { drive },
            Self::CloudbaseInit | Self::None => FirstBoot::NoPointer,
        }
    }
}

/// A drive letter a CD can have: D to Z.
pub fn drive_letter(text: &str) -> Result<char, String> {
    let mut letters = text.chars();
    match (letters.next().map(|c| c.to_ascii_uppercase()), letters.next()) {
        (Some(letter @ 'D'..='Z'), None) => Ok(letter),
        _ => Err("a single letter from D to Z".into()),
    }
}

/// Where a packed disk is unpacked.
#[derive(Debug, clap::Args)]
pub struct SpoolArg {
    /// Where to unpack a disk that is packed by gzip or zstd. It is kept there, and used by the next command that
    /// names the same, unchanged file.
    #[arg(long, value_name = "DIR")]
    spool: Option<PathBuf>,
}

/// Opens a root disk for reading; a packed one is unpacked first, where that is asked for.
pub fn open_disk(path: &Path, spool: &SpoolArg, console: &Console) -> Result<Disk, Failure> {
    let spooled = spool.unpacked(path, console)?;
    disk::open(spooled.as_deref().unwrap_or(path)).map_err(|e| Failure::from(e).context(path.display()))
}

impl SpoolArg {
    /// The unpacked file of a disk that is packed; none where it is not, or where it is to be left so.
    pub fn unpacked(&self, path: &Path, console: &Console) -> Result<Option<PathBuf>, Failure> {
        let Some(folder) = &self.spool else { return Ok(None) };
        let spooled = spool::unpack(path, folder, MAX_DISK, console)
            .map_err(|e| Failure::from(e).context(path.display()))?;
        Ok(spooled.map(|spooled| {
            let what = if spooled.found {
                "was unpacked before"
            } else {
                "is unpacked, for the next commands too; remove it when it is no longer wanted"
            };
            console.note(format!("{}: {} {what}", path.display(), spooled.path.display()));
            spooled.path
        }))
    }
}

/// Says what does not stand against a root, but should be known.
pub fn warn_about(examination: &Examination, console: &Console) {
    for warning in &examination.warnings {
        console.warn(warning);
    }
}

/// Says which cached answer files do not get into the sealed root.
pub fn tell_scrubbed(report: &SealReport, console: &Console) {
    for path in &report.answer_files_scrubbed {
        console.note(format!("\\{path}: zeroed and removed"));
    }
    for path in &report.answer_files_emptied {
        console.warn(format!("\\{path}: zeroed and emptied, not removed"));
    }
}

impl Classify for DiskError {
    fn exit(&self) -> Exit {
        match self {
            Self::Open(_) | Self::Read { .. } => Exit::Failed,
            Self::Journal(error) => error.exit(),
            _ => Exit::Refused,
        }
    }
}

impl Classify for SpoolError {
    fn exit(&self) -> Exit {
        match self {
            Self::Disk(error) => error.exit(),
            Self::Write(error) => error.exit(),
            Self::Interrupted(error) => error.exit(),
            _ => Exit::Refused,
        }
    }
}

impl Classify for PatchError {
    fn exit(&self) -> Exit {
        match self {
            Self::Read { .. } => Exit::Failed,
            Self::Format { .. } | Self::Malformed { .. } | Self::Overlap { .. } => Exit::Rejected,
            Self::Differs { .. } | Self::Size { .. } => Exit::Refused,
        }
    }
}

impl Classify for RootError {
    fn exit(&self) -> Exit {
        match self {
            Self::Read { .. } => Exit::Failed,
            Self::Patch(error) => error.exit(),
            _ => Exit::Refused,
        }
    }

    fn cure(&self) -> Option<String> {
        let Self::Refused { refusals } = self else { return None };
        let mut cures: Vec<_> =
            refusals.iter().map(|refusal| format!("{refusal}: {}", refusal.cure())).collect();
        if let [_] = cures.as_slice() {
            cures = refusals.iter().map(|refusal| refusal.cure().to_owned()).collect();
        }
        Some(cures.join("\n  "))
    }
}
