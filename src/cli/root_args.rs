//! What every command that reads a root disk shares: opening it, and what its errors mean.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::{Classify, Console, Exit, Failure};
use crate::disk::spool::{self, SpoolError};
use crate::disk::{self, Disk, DiskError};
use crate::io::PatchError;
use crate::root::keep::MAX_DISK;
use crate::root::{Audit, FirstBoot, LogReplay, RootError, SealReport};

/// How a clone's first boot finds its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FirstBootArg {
    /// Setup reads autounattend.xml from the answer CD; the CD must be there.
    AnswerCd,
    /// cloudbase-init does it; no pointer is set, and its own answer file stays.
    CloudbaseInit,
    /// Nothing does; no pointer is set, and somebody answers Windows' questions.
    None,
}

impl FirstBootArg {
    /// With the answer CD's drive letter.
    pub fn with_drive(self, drive: char) -> FirstBoot {
        match self {
            Self::AnswerCd => FirstBoot::AnswerCd { drive },
            Self::CloudbaseInit => FirstBoot::CloudbaseInit,
            Self::None => FirstBoot::Nothing,
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

impl SpoolArg {
    /// Whether a folder was given.
    pub fn given(&self) -> bool {
        self.spool.is_some()
    }
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

/// What is done with a hive that was not written out whole.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct ReplayArgs {
    /// Refuse a registry hive that needs its logs, instead of reading them with it.
    #[arg(long)]
    no_replay_logs: bool,
}

impl ReplayArgs {
    /// Whether anything was chosen.
    pub fn given(self) -> bool {
        self.no_replay_logs
    }

    /// The choice.
    pub fn replay(self) -> LogReplay {
        if self.no_replay_logs { LogReplay::Refuse } else { LogReplay::Replay }
    }
}

/// Says what should be known of a root.
pub fn warn_about(audit: &Audit, console: &Console) {
    for finding in audit.remarks() {
        console.warn(finding.remark());
    }
}

/// Text from a disk, which may hold anything, in one line.
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Says what sealing does beside the pointer.
pub fn tell_scrubbed(report: &SealReport, console: &Console) {
    if let Some(logs) = &report.replayed {
        console.note(format!("{logs} laid over the hive"));
    }
    for path in &report.answer_files_scrubbed {
        console.note(format!("\\{}: zeroed and removed", one_line(path)));
    }
    for name in &report.other_names_removed {
        console.warn(format!("{}: went with it", one_line(name)));
    }
    for path in &report.answer_files_emptied {
        console.warn(format!("\\{}: zeroed and emptied, not removed", one_line(path)));
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
            Self::Unfit { .. } => Exit::Rejected,
            _ => Exit::Refused,
        }
    }

    fn cure(&self) -> Option<String> {
        let (Self::Refused { findings } | Self::Unfit { findings }) = self else { return None };
        if let [finding] = findings.as_slice() {
            return Some(finding.cure().to_owned());
        }
        let cures: Vec<_> =
            findings.iter().map(|finding| format!("{}: {}", finding.check.id, finding.cure())).collect();
        Some(cures.join("\n  "))
    }
}
