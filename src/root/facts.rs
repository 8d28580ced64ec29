//! What a root says of itself, read from its hives and a few small files.

use serde::Serialize;

use super::RootError;
use super::answer_files::text_of;
use super::hives::Replayed;
use super::installation::{Installation, SETUP};
use super::windows_volume::SmallFile;
use crate::disk::partitions::Scheme;

/// A State.ini is a few lines.
const MAX_STATE_INI: u64 = 64 << 10;
/// Files in the root folder that Windows makes anew: their contents are not shipped.
const PAGE_FILES: [&str; 3] = ["pagefile.sys", "swapfile.sys", "hiberfil.sys"];

/// A root disk's facts, as they go into reports and evidence. Nothing secret is among them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RootFacts {
    /// Size of the disk as the guest sees it, in bytes.
    pub virtual_size: u64,
    /// `gpt` or `mbr`.
    pub partition_scheme: &'static str,
    /// The sector size the partition table counts in, in bytes.
    pub sector_size: u32,
    /// The number of the partition that holds Windows.
    pub partition: u32,
    /// Where that partition begins, in bytes.
    pub partition_start: u64,
    /// The Windows that is installed.
    pub windows: WindowsVersion,
    /// How far sysprep came.
    pub sysprep: Sysprep,
    /// SYSTEM\Setup, UnattendFile: where Setup looks for its answer file first.
    pub pointer: Option<String>,
    /// Cached answer files, by path: each may hold a password.
    pub answer_files: Vec<String>,
    /// Log entries that were laid over the hives to read them.
    pub replayed: Vec<Replayed>,
    /// Size of the Windows volume's clusters together, in bytes.
    pub volume_size: u64,
    /// How much of it NTFS calls free, in bytes; a clean volume's is not shipped.
    pub volume_free: u64,
    /// Files whose contents are not shipped from a clean volume.
    pub page_files: Vec<PageFile>,
}

/// A file that Windows swaps memory to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PageFile {
    /// Its name in the volume's root folder.
    pub name: &'static str,
    /// In bytes.
    pub size: u64,
}

/// SOFTWARE\Microsoft\Windows NT\CurrentVersion, as far as it is there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WindowsVersion {
    /// `Professional`, `Enterprise`, `ServerStandard`, ...
    pub edition_id: Option<String>,
    /// `CurrentBuild` and, when there, `UBR`: `26100.1742`.
    pub build: Option<String>,
    /// `24H2`
    pub display_version: Option<String>,
    /// `Client`, `Server` or `Server Core`
    pub installation_type: Option<String>,
    /// `amd64`
    pub architecture: Option<String>,
    /// Languages of the user interface: `en-US`
    pub languages: Vec<String>,
}

/// The proofs of generalisation; the image state in SOFTWARE decides (as in Windows' own Setup).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sysprep {
    /// SOFTWARE\Microsoft\Windows\CurrentVersion\Setup\State, ImageState
    pub image_state: Option<String>,
    /// The same in \Windows\Setup\State\State.ini
    pub state_ini: Option<String>,
    /// SYSTEM\Setup, SetupType: 2 when Setup runs at the next start
    pub setup_type: Option<u32>,
    /// SYSTEM\Setup, CmdLine
    pub cmd_line: Option<String>,
    /// Whether \Windows\System32\Sysprep\Sysprep_succeeded.tag is there
    pub succeeded_tag: bool,
}

/// The state sysprep leaves a generalised image in, ready for its first boot.
pub const GENERALISED: &str = "IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE";

impl RootFacts {
    /// Reads the facts of an installation.
    pub(super) fn read(installation: &Installation<'_, '_>) -> Result<Self, RootError> {
        let windows = installation.windows;
        let free = count_free(installation)?;
        Ok(Self {
            virtual_size: windows.disk.size(),
            partition_scheme: match windows.table.scheme {
                Scheme::Gpt => "gpt",
                Scheme::Mbr => "mbr",
            },
            sector_size: windows.table.sector_size,
            partition: windows.partition.number,
            partition_start: windows.partition.start,
            windows: WindowsVersion::read(installation)?,
            sysprep: Sysprep::read(installation)?,
            pointer: installation.pointer.clone(),
            answer_files: installation.cached.files.iter().map(|file| file.path.clone()).collect(),
            replayed: [&installation.system, &installation.software]
                .into_iter()
                .filter_map(|hive| hive.replayed())
                .collect(),
            volume_size: windows.volume.clusters() * windows.volume.cluster_size(),
            volume_free: free * windows.volume.cluster_size(),
            page_files: page_files(installation)?,
        })
    }
}

fn count_free(installation: &Installation<'_, '_>) -> Result<u64, RootError> {
    let windows = installation.windows;
    let mut bitmap = windows.volume.bitmap().map_err(|source| windows.ntfs_error(source))?;
    let mut free = windows.volume.clusters();
    let mut at = 0;
    while let Some(run) = bitmap.next_allocated(at).map_err(|source| windows.ntfs_error(source))? {
        free -= run.end - run.start;
        at = run.end;
    }
    Ok(free)
}

fn page_files(installation: &Installation<'_, '_>) -> Result<Vec<PageFile>, RootError> {
    let mut files = Vec::new();
    for name in PAGE_FILES {
        files.extend(installation.windows.size(name)?.map(|size| PageFile { name, size }));
    }
    Ok(files)
}

impl WindowsVersion {
    fn read(installation: &Installation<'_, '_>) -> Result<Self, RootError> {
        let mut version = Self::default();
        if let Some(key) = installation.software.key("Microsoft\\Windows NT\\CurrentVersion")? {
            version.edition_id = key.string("EditionID")?;
            version.display_version = key.string("DisplayVersion")?;
            version.installation_type = key.string("InstallationType")?;
            // Older systems have only the second name.
            let build = match key.string("CurrentBuild")? {
                Some(build) => Some(build),
                None => key.string("CurrentBuildNumber")?,
            };
            let revision = key.number("UBR")?;
            version.build = build.map(|build| match revision {
                Some(revision) => format!("{build}.{revision}"),
                None => build,
            });
        }
        let system = &installation.system;
        let environment = installation.in_control_set("Control\\Session Manager\\Environment")?;
        let architecture = system.string(&environment, "PROCESSOR_ARCHITECTURE")?;
        version.architecture = architecture.map(|name| name.to_ascii_lowercase());
        if let Some(languages) = system.key(&installation.in_control_set("Control\\MUI\\UILanguages")?)? {
            version.languages = languages.subkeys()?.iter().map(|language| language.name()).collect();
        }
        Ok(version)
    }
}

impl Sysprep {
    fn read(installation: &Installation<'_, '_>) -> Result<Self, RootError> {
        const TAG: &str = "Windows\\System32\\Sysprep\\Sysprep_succeeded.tag";
        const STATE: &str = "Microsoft\\Windows\\CurrentVersion\\Setup\\State";
        const STATE_INI: &str = "Windows\\Setup\\State\\State.ini";
        Ok(Self {
            image_state: installation.software.string(STATE, "ImageState")?,
            state_ini: match installation.windows.small_file(STATE_INI, MAX_STATE_INI)? {
                SmallFile::Bytes(bytes) => image_state_of(&text_of(&bytes)),
                SmallFile::Missing | SmallFile::Unread(_) => None,
            },
            setup_type: installation.system.number(SETUP, "SetupType")?,
            cmd_line: installation.system.string(SETUP, "CmdLine")?,
            succeeded_tag: installation.windows.has_file(TAG)?,
        })
    }

    /// Whether the deciding proof says that the image is generalised.
    pub fn is_generalised(&self) -> bool {
        self.image_state.as_deref() == Some(GENERALISED)
    }
}

/// `ImageState` of an .ini file.
fn image_state_of(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, state) = line.trim_start_matches('\u{feff}').split_once('=')?;
        key.trim().eq_ignore_ascii_case("ImageState").then(|| state.trim().to_owned())
    })
}
