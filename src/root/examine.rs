//! One look at a root: its facts, what stands against sealing it, and what disagrees.

use super::answer_files;
use super::facts::{RootFacts, Sysprep, WindowsVersion};
use super::windows_volume::{PartitionBytes, SOFTWARE, SYSTEM, WindowsVolume};
use super::{Refusal, RootError};
use crate::disk::partitions::Scheme;
use crate::hive::{Hive, HiveError, Key, PageCache};
use crate::io::ReadAt;
use crate::ntfs::File;

/// The key in SYSTEM that Setup reads at every start.
pub(super) const SETUP: &str = "Setup";
/// The value of [`SETUP`] that says where Setup looks for its answer file first.
pub(super) const UNATTEND_FILE: &str = "UnattendFile";
/// A State.ini is a few lines.
const MAX_STATE_INI: u64 = 64 << 10;

/// What was found on a root disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examination {
    /// The facts.
    pub facts: RootFacts,
    /// Why it must not be sealed or published; empty for a fit root.
    pub refusals: Vec<Refusal>,
    /// What does not stand against it, but should be known.
    pub warnings: Vec<String>,
}

impl Examination {
    /// The examination of a fit root; an unfit one as an error.
    pub fn fit(self) -> Result<Self, RootError> {
        if self.refusals.is_empty() { Ok(self) } else { Err(RootError::Refused { refusals: self.refusals }) }
    }
}

/// Reads the root on `disk`. An unfit one is no error: it is in [`Examination::refusals`], unless not even
/// its Windows can be read.
pub fn examine(disk: &dyn ReadAt) -> Result<Examination, RootError> {
    let windows = WindowsVolume::find(disk)?;
    examine_volume(disk, &windows, answer_files::find(disk, &windows)?)
}

pub(super) fn examine_volume(
    disk: &dyn ReadAt,
    windows: &WindowsVolume<'_>,
    cached: answer_files::Found,
) -> Result<Examination, RootError> {
    let mut refusals = Vec::new();
    let state = windows.volume.state().map_err(|source| windows.ntfs_error(source))?;
    let unfit = state.reasons.into_iter().filter(|reason| !reason.allows_edits());
    refusals.extend(unfit.map(|reason| Refusal::Volume { reason }));

    let contradiction = windows.volume.file_in_free_clusters(relied_on(windows, &cached)?);
    let contradiction = contradiction.map_err(|source| windows.ntfs_error(source))?;
    refusals.extend(contradiction.map(|record| Refusal::ClusterMap { record }));

    let system = open_hive(windows, SYSTEM)?;
    let software = open_hive(windows, SOFTWARE)?;
    for (name, hive) in [("SYSTEM", &system), ("SOFTWARE", &software)] {
        refusals.extend(hive.dirt().map(|sign| Refusal::DirtyHive { hive: name, sign }));
    }

    let setup = read_setup(&system).map_err(in_hive(SYSTEM))?;
    let (version, image_state) = read_software(&software).map_err(in_hive(SOFTWARE))?;
    let sysprep = Sysprep {
        image_state,
        state_ini: read_state_ini(windows)?,
        setup_type: setup.setup_type,
        cmd_line: setup.cmd_line,
        succeeded_tag: windows.file("Windows\\System32\\Sysprep\\Sysprep_succeeded.tag")?.is_some(),
    };
    let mut warnings = Vec::new();
    if sysprep.is_generalised() {
        warnings.extend(sysprep.disagreements());
    } else {
        refusals.push(Refusal::NotGeneralised { image_state: sysprep.image_state.clone() });
    }

    let mut answer_files = Vec::new();
    warnings.extend(cached.warnings);
    for file in cached.files {
        if file.holds_password {
            refusals.push(Refusal::Password { path: file.path.clone() });
        } else {
            warnings.push(format!("\\{} is a cached answer file, which sealing removes", file.path));
        }
        answer_files.push(file.path);
    }
    if let Some(damage) = &windows.table.primary_damage {
        warnings.push(format!("the first partition table is damaged ({damage}); its backup was read"));
    }
    let facts = RootFacts {
        virtual_size: disk.size(),
        partition_scheme: match windows.table.scheme {
            Scheme::Gpt => "gpt",
            Scheme::Mbr => "mbr",
        },
        sector_size: windows.table.sector_size,
        partition: windows.partition.number,
        partition_start: windows.partition.start,
        windows: version,
        sysprep,
        pointer: setup.pointer,
        answer_files,
    };
    Ok(Examination { facts, refusals, warnings })
}

/// The records of the files that are judged here and edited by sealing.
fn relied_on(windows: &WindowsVolume<'_>, cached: &answer_files::Found) -> Result<Vec<u64>, RootError> {
    let here = cached.files.iter().filter(|file| file.partition == windows.partition.number);
    let mut records: Vec<u64> = here.map(|file| file.file.record).collect();
    for hive in [SYSTEM, SOFTWARE] {
        for ending in ["", ".LOG1", ".LOG2"] {
            let file = windows.file(&format!("{hive}{ending}"))?;
            records.extend(file.map(|file| file.reference().record));
        }
    }
    Ok(records)
}

type VolumeHive<'v, 'd> = Hive<PageCache<File<'v, PartitionBytes<'d>>>>;

fn open_hive<'v, 'd>(
    windows: &'v WindowsVolume<'d>,
    path: &'static str,
) -> Result<VolumeHive<'v, 'd>, RootError> {
    Hive::open(PageCache::new(windows.needed_file(path)?)).map_err(in_hive(path))
}

pub(super) fn in_hive(path: &'static str) -> impl Fn(HiveError) -> RootError {
    move |source| RootError::Hive { path, source }
}

fn string<R: ReadAt>(key: &Key<'_, R>, name: &str) -> Result<Option<String>, HiveError> {
    match key.value(name)? {
        Some(value) => value.as_string(),
        None => Ok(None),
    }
}

fn number<R: ReadAt>(key: &Key<'_, R>, name: &str) -> Result<Option<u32>, HiveError> {
    match key.value(name)? {
        Some(value) => value.as_u32(),
        None => Ok(None),
    }
}

/// SYSTEM\Setup, as far as it is there.
#[derive(Default)]
struct SetupKey {
    setup_type: Option<u32>,
    cmd_line: Option<String>,
    pointer: Option<String>,
}

fn read_setup<R: ReadAt>(system: &Hive<R>) -> Result<SetupKey, HiveError> {
    let Some(setup) = system.key(SETUP)? else { return Ok(SetupKey::default()) };
    Ok(SetupKey {
        setup_type: number(&setup, "SetupType")?,
        cmd_line: string(&setup, "CmdLine")?,
        pointer: string(&setup, UNATTEND_FILE)?,
    })
}

/// The version and the image state.
fn read_software<R: ReadAt>(software: &Hive<R>) -> Result<(WindowsVersion, Option<String>), HiveError> {
    let mut version = WindowsVersion::default();
    if let Some(key) = software.key("Microsoft\\Windows NT\\CurrentVersion")? {
        version.edition_id = string(&key, "EditionID")?;
        version.display_version = string(&key, "DisplayVersion")?;
        version.installation_type = string(&key, "InstallationType")?;
        // Older systems have only the second name.
        let build = match string(&key, "CurrentBuild")? {
            Some(build) => Some(build),
            None => string(&key, "CurrentBuildNumber")?,
        };
        let revision = number(&key, "UBR")?;
        version.build = build.map(|build| match revision {
            Some(revision) => format!("{build}.{revision}"),
            None => build,
        });
    }
    let image_state = match software.key("Microsoft\\Windows\\CurrentVersion\\Setup\\State")? {
        Some(state) => string(&state, "ImageState")?,
        None => None,
    };
    Ok((version, image_state))
}

/// `ImageState` of \Windows\Setup\State\State.ini, which may be ANSI or UTF-16.
fn read_state_ini(windows: &WindowsVolume<'_>) -> Result<Option<String>, RootError> {
    const PATH: &str = "Windows\\Setup\\State\\State.ini";
    let Some(file) = windows.file(PATH)? else { return Ok(None) };
    let mut bytes = vec![0; file.size().min(MAX_STATE_INI) as usize];
    file.read_exact_at(&mut bytes, 0).map_err(|source| RootError::Read { path: PATH.into(), source })?;
    // The keys and states are ASCII: without the zero bytes, UTF-16 reads the same.
    let text: String = bytes.iter().filter(|b| b.is_ascii() && **b != 0).map(|b| char::from(*b)).collect();
    Ok(text.lines().find_map(|line| {
        let (key, state) = line.split_once('=')?;
        key.trim().eq_ignore_ascii_case("ImageState").then(|| state.trim().to_owned())
    }))
}
