//! `RECIPE.lock`: what the pinned media were found to hold when they were pinned.
//!
//! The pins alone say which bytes are meant. The lock says what is in them, for people to review, and for `verify` to
//! hold the media to: where a pin is changed by hand, the lock is found not to fit it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Recipe;
use super::expect::{Difference, Found};
use crate::media::{MediaFacts, Sha256};

const FORMAT: &str = "sealroot-lock-1";
/// The largest lock that is read, in bytes.
const MAX_SIZE: u64 = 1 << 20;
const HEADER: &str = "# Written by `sealroot pin`, not by hand: what the recipe's pinned media hold. `sealroot verify` and\n\
                      # `sealroot build` hold them to it.\n";

/// What both media hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    format: String,
    windows: LockedWindows,
    virtio: LockedDrivers,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockedWindows {
    sha256: Sha256,
    size: u64,
    archive: String,
    guid: String,
    xml_sha256: Sha256,
    /// Of the image that the recipe means, if it means one.
    index: Option<u32>,
    name: Option<String>,
    edition_id: Option<String>,
    /// As it is in the archive: `26100.1742`.
    wim_build: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockedDrivers {
    sha256: Sha256,
    size: u64,
    version: Option<String>,
    /// The versions of the needed drivers, by the path of their INF.
    drivers: BTreeMap<String, String>,
}

/// Why there is no lock.
#[derive(Debug, Error)]
pub enum LockError {
    /// It is there, and can't be read.
    #[error("the lock {} can't be read", path.display())]
    Read {
        /// The lock's file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is no lock of sealroot's: {what}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

/// Where a recipe's lock is: beside it, under its name with `.lock` behind it.
pub fn path(recipe: &Path) -> PathBuf {
    let mut name = recipe.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

impl Lock {
    /// The lock of what was found on verified media; nothing where either is not what it should be.
    pub fn new(windows: &MediaFacts, virtio: &MediaFacts, found: &Found) -> Option<Self> {
        let (on_windows, on_virtio) = (found.windows.as_ref()?, found.drivers.as_ref()?);
        let image = on_windows.image.as_ref();
        let packages = on_virtio.folders.iter().flat_map(|folder| {
            folder.packages.iter().map(|package| {
                let version = package.driver_ver.as_ref().map(|ver| ver.version.to_string());
                (format!("{}/{}", folder.path, package.inf), version.unwrap_or_default())
            })
        });
        Some(Self {
            format: FORMAT.into(),
            windows: LockedWindows {
                sha256: windows.sha256,
                size: windows.size,
                archive: on_windows.archive.clone(),
                guid: on_windows.guid.to_string(),
                xml_sha256: on_windows.xml_sha256,
                index: image.map(|image| image.index),
                name: image.map(|image| image.name.clone()),
                edition_id: image.and_then(|image| image.edition_id.clone()),
                wim_build: image.and_then(|image| image.build()),
            },
            virtio: LockedDrivers {
                sha256: virtio.sha256,
                size: virtio.size,
                version: on_virtio.version.clone(),
                drivers: packages.collect(),
            },
        })
    }

    /// The lock beside the recipe at `recipe`; nothing where there is none.
    pub fn read(recipe: &Path) -> Result<Option<Self>, LockError> {
        let path = path(recipe);
        let in_read = |source| LockError::Read { path: path.clone(), source };
        let foreign = |what: String| LockError::Foreign { path: path.clone(), what };
        match fs::metadata(&path) {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(e) => return Err(in_read(e)),
            Ok(metadata) if !metadata.is_file() => return Err(foreign("it is no file".into())),
            Ok(metadata) if metadata.len() > MAX_SIZE => {
                return Err(foreign(format!("it is larger than {MAX_SIZE} bytes")));
            }
            Ok(_) => {}
        }
        let text = fs::read(&path).map_err(in_read)?;
        let text = String::from_utf8(text).map_err(|_| foreign("it is no UTF-8 text".into()))?;
        let lock: Self = toml::from_str(&text).map_err(|e| foreign(e.message().to_owned()))?;
        if lock.format != FORMAT {
            return Err(foreign("it has another format".into()));
        }
        Ok(Some(lock))
    }

    /// As it is written.
    pub fn to_text(&self) -> Result<String, toml::ser::Error> {
        Ok(format!("{HEADER}{}", toml::to_string(self)?))
    }

    /// Whether the recipe's pins are those that were locked. It is asked before anything is hashed.
    pub fn fits(&self, recipe: &Recipe) -> Vec<Difference> {
        let pins = [
            ("media.windows.sha256", self.windows.sha256, recipe.media.windows.sha256),
            ("media.virtio.sha256", self.virtio.sha256, recipe.media.virtio.sha256),
        ];
        let changed = pins.into_iter().filter(|(_, locked, pinned)| locked != pinned);
        changed
            .map(|(key, locked, _)| Difference {
                key,
                message: format!("the recipe's lock was made for another pin, {locked}"),
                help: Some("`sealroot pin` makes both anew; review what it shows".into()),
            })
            .collect()
    }

    /// What differs from `now`, the lock of what the same media were found to hold.
    pub fn differences(&self, now: &Self) -> Vec<Difference> {
        let mut differences = Vec::new();
        let mut compare = |key: &'static str, locked: String, found: String| {
            if locked != found {
                let message = format!("locked as {locked}, found as {found}");
                let help = "is the lock of another version of this recipe? `sealroot pin` makes it anew";
                differences.push(Difference { key, message, help: Some(help.into()) });
            }
        };
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".into());
        let index = |lock: &Self| lock.windows.index.map_or_else(|| "nothing".into(), |i| i.to_string());
        let (a, b) = (&self.windows, &now.windows);
        compare("lock windows.size", a.size.to_string(), b.size.to_string());
        compare("lock windows.archive", a.archive.clone(), b.archive.clone());
        compare("lock windows.guid", a.guid.clone(), b.guid.clone());
        compare("lock windows.xml_sha256", a.xml_sha256.to_string(), b.xml_sha256.to_string());
        compare("lock windows.index", index(self), index(now));
        compare("lock windows.name", text(&a.name), text(&b.name));
        compare("lock windows.edition_id", text(&a.edition_id), text(&b.edition_id));
        compare("lock windows.wim_build", text(&a.wim_build), text(&b.wim_build));
        let (a, b) = (&self.virtio, &now.virtio);
        compare("lock virtio.size", a.size.to_string(), b.size.to_string());
        compare("lock virtio.version", text(&a.version), text(&b.version));
        let mut paths: Vec<_> = a.drivers.keys().chain(b.drivers.keys()).collect();
        paths.sort();
        paths.dedup();
        for path in paths {
            let of = |drivers: &BTreeMap<String, String>| {
                format!("{path} {}", drivers.get(path).map_or("nothing", String::as_str))
            };
            compare("lock virtio.drivers", of(&a.drivers), of(&b.drivers));
        }
        differences
    }

    /// Which media hold the same version as those that were locked, in other bytes: a publisher has replaced a file.
    pub fn same_version(&self, now: &Self) -> (bool, bool) {
        let (a, b) = (&self.windows, &now.windows);
        let windows = a.sha256 != b.sha256
            && a.wim_build.is_some()
            && (&a.wim_build, &a.name) == (&b.wim_build, &b.name);
        let (a, b) = (&self.virtio, &now.virtio);
        (windows, a.sha256 != b.sha256 && a.version.is_some() && a.version == b.version)
    }
}
