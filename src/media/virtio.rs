//! A virtio-win medium: drivers by Windows and architecture, the guest agent, the installers.
//!
//! Source of the layout: virtio-win-pkg-scripts. A driver is in `<Driver>/<os>/<arch>/`; `amd64/<os>/` and
//! `i386/<os>/` hold the storage drivers once more, for Setup's dialogs. `data/info.json` lists every INF with its
//! version; an INF that it does not list is read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::driver::{DriverVersion, Inf};
use super::windows::MediumError;
use crate::io::ReadAt;
use crate::iso::{Disc, DiscError, Entry, Kind};

/// Folders of a medium that are looked at; the real one has about 300 above the drivers' own.
const MAX_FOLDERS: usize = 4096;
/// The largest list of drivers that is read, in bytes; the real one has about 100 KiB.
const MAX_LIST: u64 = 1 << 20;
/// What the folders of architectures are called.
const ARCHITECTURES: [(&str, &str); 3] = [("amd64", "amd64"), ("x86", "x86"), ("arm64", "arm64")];

/// What a virtio-win medium holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DriverMedium {
    /// The release, as `0.1.285`, where the volume's label is `virtio-win-<release>`. No file on the medium says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Every driver folder, in the order of driver, Windows and architecture.
    pub drivers: Vec<DriverFolder>,
    /// The guest agent's installers: `guest-agent/*.msi`.
    pub guest_agent: Vec<String>,
    /// The installers of everything: `virtio-win-gt-*.msi`, `virtio-win-guest-tools.exe`.
    pub guest_tools: Vec<String>,
}

/// One folder of a driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DriverFolder {
    /// The driver, as the medium calls its folder: `viostor`, `NetKVM`.
    pub driver: String,
    /// The Windows, as the medium has it: `w11`, `2k25`.
    pub os: String,
    /// The architecture, as answer files have it.
    pub architecture: &'static str,
    /// Its path.
    pub path: String,
    /// Its INF files' versions, by file name in lower case; none where an INF has none that can be read.
    pub versions: BTreeMap<String, Option<DriverVersion>>,
}

/// `data/info.json`.
#[derive(Debug, Deserialize)]
struct List {
    drivers: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
struct Listed {
    inf_path: String,
    driver_version: String,
}

impl DriverMedium {
    /// Reads a medium; `None` where no driver is on it.
    pub fn read(disc: &Disc<'_>) -> Result<Option<Self>, MediumError> {
        let root = disc.list(&disc.root())?;
        let list = list(disc)?;
        let mut drivers = Vec::new();
        let mut folders = 0;
        for driver in root.iter().filter(|entry| entry.kind == Kind::Directory) {
            for os in disc.list(&driver.node)?.iter().filter(|entry| entry.kind == Kind::Directory) {
                for entry in disc.list(&os.node)? {
                    folders += 1;
                    if folders > MAX_FOLDERS {
                        let why = "it has more folders than any driver medium";
                        return Err(DiscError::Damaged { what: "folder tree", offset: 0, why }.into());
                    }
                    let Some(architecture) = architecture(&entry) else { continue };
                    let path = format!("{}/{}/{}", driver.name, os.name, entry.name);
                    let versions = versions(disc, &entry, &path, &list)?;
                    if !versions.is_empty() {
                        let (driver, os) = (driver.name.clone(), os.name.clone());
                        drivers.push(DriverFolder { driver, os, architecture, path, versions });
                    }
                }
            }
        }
        if drivers.is_empty() {
            return Ok(None);
        }
        let key =
            |folder: &DriverFolder| (folder.driver.to_lowercase(), folder.os.clone(), folder.architecture);
        drivers.sort_by_cached_key(key);
        let named = |entries: &[Entry], ends: &[&str]| {
            let mut names: Vec<_> = entries
                .iter()
                .filter(|entry| entry.kind == Kind::File)
                .map(|entry| entry.name.clone())
                .filter(|name| ends.iter().any(|end| name.to_lowercase().ends_with(end)))
                .collect();
            names.sort();
            names
        };
        let mut guest_tools = named(&root, &[".msi", ".exe"]);
        guest_tools.retain(|name| name.to_lowercase().starts_with("virtio-win-"));
        Ok(Some(Self {
            version: disc.volume().label.as_deref().and_then(release),
            drivers,
            guest_agent: named(&disc.find_directory("guest-agent")?, &[".msi"]),
            guest_tools,
        }))
    }

    /// The folder of a driver for a Windows and an architecture. Driver folders are compared as Windows does.
    pub fn folder(&self, driver: &str, os: &str, architecture: &str) -> Option<&DriverFolder> {
        self.drivers.iter().find(|folder| {
            folder.driver.eq_ignore_ascii_case(driver)
                && folder.os.eq_ignore_ascii_case(os)
                && folder.architecture == architecture
        })
    }
}

fn architecture(entry: &Entry) -> Option<&'static str> {
    let found = ARCHITECTURES.iter().find(|(folder, _)| entry.name.eq_ignore_ascii_case(folder));
    found.filter(|_| entry.kind == Kind::Directory).map(|(_, architecture)| *architecture)
}

/// The release in a label: `virtio-win-0.1.285`.
fn release(label: &str) -> Option<String> {
    let release = label.to_lowercase();
    let release = release.strip_prefix("virtio-win-")?;
    release.starts_with(|c: char| c.is_ascii_digit()).then(|| release.to_owned())
}

/// Every INF that the medium's own list names, by its path in lower case, with its version.
fn list(disc: &Disc<'_>) -> Result<BTreeMap<String, DriverVersion>, MediumError> {
    let Some(file) = disc.find_file("data/info.json")?.filter(|file| file.size() <= MAX_LIST) else {
        return Ok(BTreeMap::new());
    };
    let mut json = vec![0; file.size() as usize];
    file.read_exact_at(&mut json, 0).map_err(|source| DiscError::Read { offset: 0, source })?;
    // A list of another form is no reason to refuse the medium: the INF files say the same.
    let list = serde_json::from_slice::<List>(&json).map(|list| list.drivers).unwrap_or_default();
    let versions = list.into_iter().filter_map(|listed| {
        let version = listed.driver_version.parse().ok()?;
        Some((listed.inf_path.replace('\\', "/").to_lowercase(), version))
    });
    Ok(versions.collect())
}

/// The INF files of a folder, with their versions: as listed, or else as they say themselves.
fn versions(
    disc: &Disc<'_>,
    folder: &Entry,
    path: &str,
    list: &BTreeMap<String, DriverVersion>,
) -> Result<BTreeMap<String, Option<DriverVersion>>, MediumError> {
    let prefix = format!("{}/", path.to_lowercase());
    let listed: BTreeMap<_, _> = list
        .range(prefix.clone()..)
        .take_while(|(path, _)| path.starts_with(&prefix))
        .map(|(path, version)| (path[prefix.len()..].to_owned(), Some(*version)))
        .collect();
    if !listed.is_empty() {
        return Ok(listed);
    }
    let mut versions = BTreeMap::new();
    for entry in disc.list(&folder.node)? {
        if entry.kind != Kind::File || !entry.name.to_lowercase().ends_with(".inf") {
            continue;
        }
        let file = disc.file(&entry.node)?;
        let version = if file.size() <= Inf::MAX_SIZE {
            let mut bytes = vec![0; file.size() as usize];
            file.read_exact_at(&mut bytes, 0).map_err(|source| DiscError::Read { offset: 0, source })?;
            Inf::parse(&bytes).ok().and_then(|inf| inf.driver_ver).map(|ver| ver.version)
        } else {
            None
        };
        versions.insert(entry.name.to_lowercase(), version);
    }
    Ok(versions)
}
