//! What a root says of itself, read from its hives and a few small files.

use serde::Serialize;

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

impl Sysprep {
    /// Whether the deciding proof says that the image is generalised.
    pub fn is_generalised(&self) -> bool {
        self.image_state.as_deref() == Some(GENERALISED)
    }

    /// The other signs that disagree with a generalised image, each named.
    pub fn disagreements(&self) -> Vec<String> {
        let mut signs = Vec::new();
        if self.setup_type != Some(2) {
            signs.push(match self.setup_type {
                Some(found) => format!("SYSTEM\\Setup SetupType is {found}, not 2"),
                None => "SYSTEM\\Setup SetupType is missing".into(),
            });
        }
        let starts_setup =
            self.cmd_line.as_deref().is_some_and(|line| line.to_ascii_lowercase().contains("windeploy.exe"));
        if !starts_setup {
            signs.push(match self.cmd_line.as_deref() {
                Some(line) if !line.is_empty() => {
                    format!("SYSTEM\\Setup CmdLine is {line:?}, which does not start windeploy.exe")
                }
                _ => "SYSTEM\\Setup CmdLine is empty".into(),
            });
        }
        match self.state_ini.as_deref() {
            Some(GENERALISED) => {}
            Some(found) => signs.push(format!("\\Windows\\Setup\\State\\State.ini says {found}")),
            None => signs.push("\\Windows\\Setup\\State\\State.ini is missing".into()),
        }
        if !self.succeeded_tag {
            signs.push("\\Windows\\System32\\Sysprep\\Sysprep_succeeded.tag is missing".into());
        }
        signs
    }
}
