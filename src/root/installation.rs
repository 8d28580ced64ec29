//! A Windows installation on a root disk, open for reading: what audit and sealing both start from.

use super::RootError;
use super::answer_files::{self, Found};
use super::hives::{HiveFile, LogReplay, RootHive};
use super::windows_volume::WindowsVolume;

/// The key in SYSTEM that Setup reads at every start.
pub const SETUP: &str = "Setup";
/// The value of [`SETUP`] that says where Setup looks for its answer file first.
pub const UNATTEND_FILE: &str = "UnattendFile";

/// The volume, its hives, and the answer files on the disk.
pub struct Installation<'v, 'd> {
    /// Where it is.
    pub windows: &'v WindowsVolume<'d>,
    /// The hive of that name.
    pub system: RootHive<'v, 'd>,
    /// The hive of that name.
    pub software: RootHive<'v, 'd>,
    /// SYSTEM\Setup, UnattendFile.
    pub pointer: Option<String>,
    /// Cached answer files.
    pub cached: Found,
}

impl<'v, 'd> Installation<'v, 'd> {
    /// Opens the installation on this volume, be it fit or not.
    pub fn open(windows: &'v WindowsVolume<'d>, replay: LogReplay) -> Result<Self, RootError> {
        let system = RootHive::open(windows, HiveFile::SYSTEM, replay)?;
        let software = RootHive::open(windows, HiveFile::SOFTWARE, replay)?;
        let pointer = system.string(SETUP, UNATTEND_FILE)?.filter(|pointer| !pointer.is_empty());
        let cached = answer_files::find(windows, pointer.as_deref())?;
        Ok(Self { windows, system, software, pointer, cached })
    }

    /// The records of the files that are judged here and edited by sealing.
    pub fn relied_on(&self) -> Result<Vec<u64>, RootError> {
        let own = self.windows.partition.number;
        let here = self.cached.files.iter().filter(|file| file.partition == own);
        let mut records: Vec<u64> = here.map(|file| file.file.record).collect();
        for path in [HiveFile::SYSTEM, HiveFile::SOFTWARE].into_iter().flat_map(HiveFile::paths) {
            records.extend(self.windows.find_file(path)?.map(|file| file.reference().record));
        }
        Ok(records)
    }

    /// A path in the control set that Windows uses, which it calls CurrentControlSet when it runs.
    pub fn in_control_set(&self, path: &str) -> Result<String, RootError> {
        // The loader starts the default one and calls it current; where both are missing, there is one set only.
        let number = match self.system.number("Select", "Default")? {
            Some(number) => number,
            None => self.system.number("Select", "Current")?.unwrap_or(1),
        };
        Ok(format!("ControlSet{number:03}\\{path}"))
    }
}
