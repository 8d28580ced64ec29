//! What every command that reads a root disk shares: opening it, and what its errors mean.

use std::path::Path;

use clap::ValueEnum;

use super::{Classify, Console, Exit, Failure};
use crate::disk::{self, Disk, DiskError};
use crate::io::PatchError;
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

/// Opens a root disk for reading.
pub fn open_disk(path: &Path) -> Result<Disk, Failure> {
    disk::open(path).map_err(|e| Failure::from(e).context(path.display()))
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
