//! What state a volume is in: may it be edited, may its free clusters be left out.

use std::fmt;

use super::attribute::VOLUME_INFORMATION;
use super::logfile::{self, Log};
use super::record::{FileRecord, le16, le64};
use super::volume::{LOGFILE_RECORD, VOLUME_RECORD};
use super::{NtfsError, Volume};
use crate::io::ReadAt;

const DIRTY: u16 = 0x0001;
const CHKDSK_UNDERWAY: u16 = 0x4000;

/// How many records $MFTMirr has for certain.
const MIRRORED: u64 = 4;

/// What shadow copies' files are called, after a GUID of their own.
const SHADOW_COPY: &str = "{3808876b-c176-4e48-b7ae-04046e6cc752}";
/// The same GUID's bytes begin the block that leads to the shadow copies' catalogue, in a fixed place.
const SHADOW_HEADER_OFFSET: u64 = 0x1e00;
const SHADOW_ID: [u8; 16] = *b"\x6b\x87\x08\x38\x76\xc1\x48\x4e\xb7\xae\x04\x04\x6e\x6c\xc7\x52";

/// A reason why a volume must be left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Windows has marked it for a check.
    DirtyFlag,
    /// The copy of $MFT's first records is no copy.
    MirrorDiffers,
    /// Its journal has changes that may not have reached their places.
    LogInUse,
    /// Its journal is of the version that Windows keeps over a fast startup.
    FastStartup,
    /// Its journal can't be read.
    LogDamaged,
    /// It holds the memory of a Windows that will go on.
    Hibernated,
    /// It has shadow copies, which keep data in clusters that are free by $Bitmap: this forbids trimming only.
    ShadowCopies,
}

impl Reason {
    /// Whether files on the volume may be edited in spite of it.
    pub fn allows_edits(self) -> bool {
        self == Self::ShadowCopies
    }

    /// What to do about it.
    pub fn cure(self) -> &'static str {
        match self {
            Self::DirtyFlag | Self::MirrorDiffers | Self::LogDamaged => {
                "start Windows from it, run chkdsk /f, and shut it down (shutdown /s /t 0)"
            }
            Self::LogInUse => "start Windows from it and shut it down properly (shutdown /s /t 0)",
            Self::FastStartup => {
                "start Windows from it and shut it down fully: shutdown /s /t 0, not the Start menu; \
                 powercfg /h off keeps it so"
            }
            Self::Hibernated => {
                "start Windows from it, run powercfg /h off, and shut it down (shutdown /s /t 0)"
            }
            Self::ShadowCopies => {
                "nothing is trimmed; to have it smaller, delete them in Windows: vssadmin delete shadows /all"
            }
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DirtyFlag => "the volume is marked dirty ($Volume has flag 0x1 or a running chkdsk's)",
            Self::MirrorDiffers => "the volume's $MFTMirr differs from the first records of $MFT",
            Self::LogInUse => "the volume was not closed: $LogFile is in use (power cut, or still running?)",
            Self::FastStartup => {
                "the volume was not fully closed: $LogFile is version 2.0 (Fast Startup, or a power cut)"
            }
            Self::LogDamaged => "the volume's $LogFile is neither empty nor readable",
            Self::Hibernated => "Windows is hibernated on the volume (hiberfil.sys)",
            Self::ShadowCopies => "the volume has shadow copies",
        })
    }
}

/// All that speaks against changing a volume; nothing in it: the volume is clean.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeState {
    /// In the order of [`Reason`].
    pub reasons: Vec<Reason>,
}

impl VolumeState {
    /// Whether files on it may be edited.
    pub fn is_editable(&self) -> bool {
        self.reasons.iter().all(|reason| reason.allows_edits())
    }

    /// Whether clusters that $Bitmap calls free may be left out.
    pub fn is_trimmable(&self) -> bool {
        self.reasons.is_empty()
    }
}

impl<R: ReadAt> Volume<R> {
    /// Looks at everything that says how the volume was left.
    pub fn state(&self) -> Result<VolumeState, NtfsError> {
        let mut reasons = Vec::new();
        if self.flags()? & (DIRTY | CHKDSK_UNDERWAY) != 0 {
            reasons.push(Reason::DirtyFlag);
        }
        if self.mirror_differs()? {
            reasons.push(Reason::MirrorDiffers);
        }
        match logfile::judge(&self.system_file(LOGFILE_RECORD)?)? {
            Log::Clean => {}
            Log::InUse => reasons.push(Reason::LogInUse),
            Log::FastStartup => reasons.push(Reason::FastStartup),
            Log::Damaged => reasons.push(Reason::LogDamaged),
        }
        if self.is_hibernated()? {
            reasons.push(Reason::Hibernated);
        }
        if self.has_shadow_copies()? {
            reasons.push(Reason::ShadowCopies);
        }
        Ok(VolumeState { reasons })
    }

    fn flags(&self) -> Result<u16, NtfsError> {
        let record = self.mft.base_record(VOLUME_RECORD)?;
        let missing = || record.damaged("$Volume has no volume information");
        let information = self.mft.stream(&record, VOLUME_INFORMATION, &[])?.ok_or_else(missing)?;
        if information.size < 12 {
            return Err(missing());
        }
        let information = information.read_all(&self.mft.volume, &self.mft.geometry, 4096)?;
        Ok(le16(&information, 10))
    }

    /// Compared as ntfs-3g does: the parts in use of four records. Where clusters are large, Windows does not keep
    /// the copies of those behind them up to date.
    fn mirror_differs(&self) -> Result<bool, NtfsError> {
        let mirror = self.mft_mirror()?;
        let size = self.mft.geometry.record_size;
        for number in 0..MIRRORED {
            let record = self.mft.record(number)?;
            if mirror.size() < (number + 1) * size {
                return Ok(true);
            }
            let mut bytes = vec![0; size as usize];
            mirror.read_bytes(&mut bytes, number * size)?;
            let Ok(copy) = FileRecord::parse(number, bytes) else { return Ok(true) };
            if record.bytes[..record.used()] != copy.bytes[..record.used()] {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_hibernated(&self) -> Result<bool, NtfsError> {
        let file = match self.file("hiberfil.sys") {
            Ok(Some(file)) => file,
            // A folder of that name is nobody's memory.
            Ok(None) | Err(NtfsError::IsDirectory { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut signature = [0; 4];
        if file.size() < signature.len() as u64 {
            return Ok(false);
        }
        file.read_bytes(&mut signature, 0)?;
        Ok(signature.eq_ignore_ascii_case(b"hibr"))
    }

    fn has_shadow_copies(&self) -> Result<bool, NtfsError> {
        // A pointer to the catalogue, at 48, is there as soon as a first copy was made.
        let mut header = [0; 56];
        if SHADOW_HEADER_OFFSET + header.len() as u64 <= self.source().size() {
            self.source()
                .read_exact_at(&mut header, SHADOW_HEADER_OFFSET)
                .map_err(NtfsError::read(SHADOW_HEADER_OFFSET))?;
            if header.starts_with(&SHADOW_ID) && le64(&header, 48) != 0 {
                return Ok(true);
            }
        }
        let entries = self.list("System Volume Information")?.unwrap_or_default();
        Ok(entries.iter().any(|entry| entry.name.to_ascii_lowercase().ends_with(SHADOW_COPY)))
    }
}
