//! A virtio-win medium: drivers by Windows and architecture, the guest agent, the installers.
//!
//! Source of the layout: virtio-win-pkg-scripts. A driver is in `<Driver>/<os>/<arch>/`; `amd64/<os>/` and
//! `i386/<os>/` hold the storage drivers once more, where Setup looks for them. `data/info.json` lists most INF files
//! with their DriverVer, so that hundreds of small files need not be read; an INF of a folder that it does not list
//! is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::driver::{DriverVer, DriverVersion, Inf};
use super::windows::MediumError;
use crate::io::ReadAt;
use crate::iso::{Disc, DiscError, Entry, Kind, Node};

/// What listing folders may cost in all: each counts for so many entries, and its entries. The real medium has about
/// 300 folders, with some ten entries each.
const MAX_COST: usize = 1 << 16;
const FOLDER_COST: usize = 16;
/// INF files that are read at most, where the medium does not list them; the real one has about 250.
const MAX_READ: usize = 2048;
/// The largest list of drivers that is read, in bytes; the real one has about 60 KiB.
const MAX_LIST: u64 = 1 << 20;
/// What the folders of architectures are called, in lower case, and the architectures.
const ARCHITECTURES: [(&str, &str); 3] = [("amd64", "amd64"), ("x86", "x86"), ("arm64", "arm64")];
/// The same at the root, where Setup looks.
const FOR_SETUP: [(&str, &str); 2] = [("amd64", "amd64"), ("i386", "x86")];
/// The drivers that are built for each release, unlike some that are the same for years.
const OF_THE_RELEASE: [&str; 5] = ["viostor", "vioscsi", "netkvm", "vioserial", "balloon"];

/// INF files by their names, and their DriverVer; none where it has none that can be read.
pub type Infs = BTreeMap<String, Option<DriverVer>>;

/// What a virtio-win medium holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DriverMedium {
    /// The release, as `0.1.285`, where the volume's label is `virtio-win-<release>`. No file on the medium says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The newest build of the drivers that each release has anew: a hundred times the release's last number, as 28500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest_build: Option<u16>,
    /// Every driver folder, in the order of driver, Windows and architecture.
    pub drivers: Vec<DriverFolder>,
    /// The folders where Setup looks for storage drivers.
    pub setup_folders: Vec<SetupFolder>,
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
    /// Its INF files; never none.
    pub infs: Infs,
    /// Whether `data/info.json` lists them, and their DriverVer is what it says. Otherwise they were read.
    pub listed: bool,
}

/// A folder with the storage drivers of one Windows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetupFolder {
    /// The Windows, as the medium has it.
    pub os: String,
    /// The architecture, as answer files have it.
    pub architecture: &'static str,
    /// Its path.
    pub path: String,
    /// Its INF files, which were read.
    pub infs: Infs,
}

impl DriverMedium {
    /// Reads a medium; `None` where no driver is on it.
    pub fn read(disc: &Disc<'_>) -> Result<Option<Self>, MediumError> {
        let mut walk = Walk { disc, cost: 0, read: 0 };
        let root = walk.list(&disc.root())?;
        let list = list(disc)?;
        let (mut drivers, mut setup_folders) = (Vec::new(), Vec::new());
        for driver in folders(&root) {
            let for_setup = named(driver, &FOR_SETUP);
            let Some(systems) = walk.unless_something_else(&driver.node, drivers.is_empty())? else {
                return Ok(None);
            };
            for os in folders(&systems).filter(|os| is_windows(&os.name)) {
                let path = format!("{}/{}", driver.name, os.name);
                if let Some(architecture) = for_setup {
                    let infs = walk.infs(&os.node)?;
                    setup_folders.push(SetupFolder { os: os.name.clone(), architecture, path, infs });
                    continue;
                }
                for folder in folders(&walk.list(&os.node)?) {
                    let Some(architecture) = named(folder, &ARCHITECTURES) else { continue };
                    let path = format!("{path}/{}", folder.name);
                    let listed = list.of_folder(&path);
                    let (listed, infs) = match listed.is_empty() {
                        false => (true, listed),
                        true => (false, walk.infs(&folder.node)?),
                    };
                    if !infs.is_empty() {
                        let (driver, os) = (driver.name.clone(), os.name.clone());
                        drivers.push(DriverFolder { driver, os, architecture, path, infs, listed });
                    }
                }
            }
        }
        if drivers.is_empty() {
            return Ok(None);
        }
        drivers.sort_by_cached_key(|folder| {
            (folder.driver.to_lowercase(), folder.os.clone(), folder.architecture)
        });
        setup_folders.retain(|folder| !folder.infs.is_empty());
        setup_folders.sort_by(|a, b| a.path.cmp(&b.path));
        let mut guest_tools = files(&root, &[".msi", ".exe"]);
        guest_tools.retain(|name| name.to_lowercase().starts_with("virtio-win-"));
        Ok(Some(Self {
            version: disc.volume().label.as_deref().and_then(release),
            newest_build: newest_build(&drivers),
            drivers,
            setup_folders,
            guest_agent: files(&disc.find_directory("guest-agent")?, &[".msi"]),
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

/// Folders of a disc, listed as long as that has some bound.
struct Walk<'d, 's> {
    disc: &'d Disc<'s>,
    cost: usize,
    read: usize,
}

impl Walk<'_, '_> {
    fn list(&mut self, folder: &Node) -> Result<Vec<Entry>, DiscError> {
        let entries = self.disc.list(folder)?;
        self.cost += FOLDER_COST + entries.len();
        if self.cost > MAX_COST {
            return Err(too_many("it has more folders and files than any driver medium"));
        }
        Ok(entries)
    }

    /// As `list`; `None` where the disc has so much that it is no driver medium, and nothing speaks for one.
    fn unless_something_else(
        &mut self,
        folder: &Node,
        nothing_yet: bool,
    ) -> Result<Option<Vec<Entry>>, DiscError> {
        let listed = self.list(folder);
        if nothing_yet && self.cost > MAX_COST { Ok(None) } else { listed.map(Some) }
    }

    /// The INF files in a folder.
    fn infs(&mut self, folder: &Node) -> Result<Infs, DiscError> {
        let mut infs = Infs::new();
        for entry in self.list(folder)? {
            if entry.kind != Kind::File || !entry.name.to_lowercase().ends_with(".inf") {
                continue;
            }
            self.read += 1;
            if self.read > MAX_READ {
                return Err(too_many("it has more INF files than any driver medium"));
            }
            let file = self.disc.file(&entry.node)?;
            let driver_ver = if file.size() <= Inf::MAX_SIZE {
                let mut bytes = vec![0; file.size() as usize];
                file.read_exact_at(&mut bytes, 0).map_err(|source| DiscError::Read { offset: 0, source })?;
                Inf::parse(&bytes).ok().and_then(|inf| inf.driver_ver)
            } else {
                None
            };
            infs.insert(entry.name, driver_ver);
        }
        Ok(infs)
    }
}

fn too_many(why: &'static str) -> DiscError {
    DiscError::Damaged { what: "folder tree", offset: 0, why }
}

fn folders(entries: &[Entry]) -> impl Iterator<Item = &Entry> {
    entries.iter().filter(|entry| entry.kind == Kind::Directory)
}

/// What a folder's name stands for.
fn named(folder: &Entry, names: &[(&str, &'static str)]) -> Option<&'static str> {
    names
        .iter()
        .find(|(name, _)| folder.name.eq_ignore_ascii_case(name))
        .map(|(_, architecture)| *architecture)
}

/// Whether a folder's name is that of a Windows: `w11`, `w8.1`, `2k25`, `2k12R2`, `xp`.
fn is_windows(name: &str) -> bool {
    let name = name.to_lowercase();
    let number = name.strip_prefix("2k").or(name.strip_prefix('w'));
    name == "xp" || number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}

/// The names of files with these ends, sorted.
fn files(entries: &[Entry], ends: &[&str]) -> Vec<String> {
    let files = entries.iter().filter(|entry| entry.kind == Kind::File).map(|entry| entry.name.clone());
    let mut names: Vec<_> =
        files.filter(|name| ends.iter().any(|end| name.to_lowercase().ends_with(end))).collect();
    names.sort();
    names
}

/// The release in a label: `virtio-win-0.1.285`.
fn release(label: &str) -> Option<String> {
    let release = label.to_lowercase();
    let release = release.strip_prefix("virtio-win-")?;
    release.starts_with(|c: char| c.is_ascii_digit()).then(|| release.to_owned())
}

fn newest_build(drivers: &[DriverFolder]) -> Option<u16> {
    let of_the_release = drivers
        .iter()
        .filter(|folder| OF_THE_RELEASE.iter().any(|driver| folder.driver.eq_ignore_ascii_case(driver)));
    let versions = of_the_release.flat_map(|folder| folder.infs.values()).flatten();
    versions.map(|DriverVer { version: DriverVersion([.., build]), .. }| *build).max()
}

/// `data/info.json`: INF files by their paths in lower case, each with its name and DriverVer.
struct List(BTreeMap<String, (String, DriverVer)>);

#[derive(Debug, Deserialize)]
struct InfoJson {
    drivers: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
struct Listed {
    inf_path: String,
    /// The text of DriverVer: date and version, and whatever comment follows on that line.
    driver_version: String,
}

/// Reads the medium's own list; an empty one where there is none.
fn list(disc: &Disc<'_>) -> Result<List, MediumError> {
    let Some(file) = disc.find_file("data/info.json")?.filter(|file| file.size() <= MAX_LIST) else {
        return Ok(List(BTreeMap::new()));
    };
    let mut json = vec![0; file.size() as usize];
    file.read_exact_at(&mut json, 0).map_err(|source| DiscError::Read { offset: 0, source })?;
    Ok(List::parse(&json))
}

impl List {
    /// A list of another form is no reason to refuse the medium: the INF files say the same. Neither is an entry.
    fn parse(json: &[u8]) -> Self {
        let listed = serde_json::from_slice::<InfoJson>(json).map(|list| list.drivers).unwrap_or_default();
        let infs = listed.into_iter().filter_map(|Listed { inf_path, driver_version }| {
            let text = driver_version.split(';').next().unwrap_or_default();
            let path = inf_path.replace('\\', "/");
            let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
            Some((path.to_lowercase(), (name, text.trim().parse().ok()?)))
        });
        Self(infs.collect())
    }

    /// The INF files in the folder of that path.
    fn of_folder(&self, path: &str) -> Infs {
        let prefix = format!("{}/", path.to_lowercase());
        let under = self.0.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        let directly = under.filter(|(path, _)| !path[prefix.len()..].contains('/'));
        directly.map(|(_, (name, driver_ver))| (name.clone(), Some(*driver_ver))).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn windows_have_names_of_a_pattern() {
        for name in ["xp", "2k3", "2k12R2", "w7", "w8.1", "W11", "2k25"] {
            assert!(is_windows(name), "{name}");
        }
        for name in ["", "w", "2k", "windows", "xp64", "k8", "rhel"] {
            assert!(!is_windows(name), "{name}");
        }
    }

    #[test]
    fn a_list_has_date_and_version() {
        // As virtio-win-pkg-scripts writes it: the INF's own text.
        let json = br#"{"drivers": [
            {"arch": "amd64", "driver_version": "05/05/2025,100.100.104.27100",
             "inf_path": "NetKVM/w11/amd64/netkvm.inf", "name": "Red Hat VirtIO Ethernet Adapter", "windows_version": "w11"},
            {"driver_version": "01/02/2003,1.2.3.4 ; by stampinf", "inf_path": "NetKVM\\w11\\AMD64\\Other.inf"},
            {"driver_version": "100.100.104.27100", "inf_path": "viostor/w11/amd64/viostor.inf"},
            {"driver_version": "05/05/2025,1", "inf_path": "NetKVM/w11/amd64/sub/x.inf"}]}"#;
        let list = List::parse(json);
        let infs = list.of_folder("netkvm/W11/amd64");
        let shown: Vec<_> = infs.iter().map(|(name, ver)| format!("{name} {}", ver.unwrap())).collect();
        assert_eq!(shown, ["Other.inf 1.2.3.4 of 2003-01-02", "netkvm.inf 100.100.104.27100 of 2025-05-05"]);
        // Without a date it is no DriverVer: the INF is read.
        assert!(list.of_folder("viostor/w11/amd64").is_empty());
        for other in ["", "[]", "{}", r#"{"drivers": [{"inf_path": 1}]}"#] {
            assert!(List::parse(other.as_bytes()).0.is_empty());
        }
    }

    proptest! {
        #[test]
        fn any_list(path in "\\PC{0,30}", version in "\\PC{0,30}", folder in "\\PC{0,30}") {
            let json = serde_json::json!({"drivers": [{"inf_path": path, "driver_version": version}]});
            List::parse(json.to_string().as_bytes()).of_folder(&folder);
        }
    }
}
