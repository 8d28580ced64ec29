//! The two hives that say what a root is, each made whole by its logs.

use std::fmt;

use serde::Serialize;

use super::RootError;
use super::windows_volume::{PartitionBytes, WindowsVolume};
use crate::hive::{self, Editor, Hive, HiveError, Key, PageCache, Recovered};
use crate::io::{Draft, ReadAt};
use crate::ntfs::File;

/// A hive of every Windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HiveFile {
    /// `SYSTEM`
    pub name: &'static str,
    /// Its path on the Windows volume.
    pub path: &'static str,
    /// Its logs, in their order.
    logs: [&'static str; 2],
}

impl HiveFile {
    /// Drivers, services, and where Setup looks for its answers.
    pub const SYSTEM: Self = Self {
        name: "SYSTEM",
        path: "Windows\\System32\\config\\SYSTEM",
        logs: ["Windows\\System32\\config\\SYSTEM.LOG1", "Windows\\System32\\config\\SYSTEM.LOG2"],
    };
    /// Which Windows it is, and how far Setup came.
    pub const SOFTWARE: Self = Self {
        name: "SOFTWARE",
        path: "Windows\\System32\\config\\SOFTWARE",
        logs: ["Windows\\System32\\config\\SOFTWARE.LOG1", "Windows\\System32\\config\\SOFTWARE.LOG2"],
    };
    /// What only Windows itself may read: its secrets among it.
    pub const SECURITY: Self = Self {
        name: "SECURITY",
        path: "Windows\\System32\\config\\SECURITY",
        logs: ["Windows\\System32\\config\\SECURITY.LOG1", "Windows\\System32\\config\\SECURITY.LOG2"],
    };

    /// All of them.
    pub const ALL: [Self; 3] = [Self::SYSTEM, Self::SOFTWARE, Self::SECURITY];

    /// The hive's path and its logs'.
    pub fn paths(self) -> [&'static str; 3] {
        [self.path, self.logs[0], self.logs[1]]
    }

    /// An error of this hive, with its path.
    pub fn error(self) -> impl Fn(HiveError) -> RootError {
        move |source| RootError::Hive { path: self.path, source }
    }
}

/// What is done with a hive whose last changes are in its logs only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogReplay {
    /// They are laid over it, as Windows does when it loads the hive.
    #[default]
    Replay,
    /// It is refused.
    Refuse,
}

/// A log replay, as it goes into reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replayed {
    /// `SYSTEM` or `SOFTWARE`
    pub hive: &'static str,
    /// How many entries of its logs were laid over it.
    pub entries: u32,
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = if self.entries == 1 { "entry" } else { "entries" };
        write!(f, "{} {entries} of {}'s logs", self.entries, self.hive)
    }
}

type Bytes<'v, 'd> = PageCache<File<'v, PartitionBytes<'d>>>;

/// A hive of the root, whole or not.
pub struct RootHive<'v, 'd> {
    file: HiveFile,
    recovered: Recovered<Bytes<'v, 'd>>,
    /// Why it is not whole: what is missing is in no log, or may not be taken from there.
    dirt: Option<String>,
}

impl<'v, 'd> RootHive<'v, 'd> {
    /// Opens a hive that is there in every Windows. One that is not whole opens too: see [`RootHive::dirt`].
    pub fn open(
        windows: &'v WindowsVolume<'d>,
        file: HiveFile,
        replay: LogReplay,
    ) -> Result<Self, RootError> {
        let bytes = || Ok::<_, RootError>(PageCache::new(windows.needed_file(file.path)?));
        let mut logs = Vec::new();
        if replay == LogReplay::Replay {
            for path in file.logs {
                logs.extend(windows.find_file(path)?);
            }
        }
        let logs: Vec<&dyn ReadAt> = logs.iter().map(|log| log as &dyn ReadAt).collect();
        match hive::recover(bytes()?, &logs) {
            Ok(recovered) => Ok(Self { file, recovered, dirt: None }),
            Err(HiveError::Dirty { mut reason }) => {
                let recovered = hive::as_found(bytes()?).map_err(file.error())?;
                if let (LogReplay::Refuse, Some(sign)) = (replay, recovered.hive().dirt()) {
                    reason = format!("{sign}, and its logs are not to be replayed");
                }
                Ok(Self { file, recovered, dirt: Some(reason) })
            }
            Err(error) => Err(file.error()(error)),
        }
    }

    /// Which hive this is.
    pub fn file(&self) -> HiveFile {
        self.file
    }

    /// Why the hive is not whole, if it is not.
    pub fn dirt(&self) -> Option<&str> {
        self.dirt.as_deref()
    }

    /// The replay that made it whole; `None` where it was whole, or is not.
    pub fn replayed(&self) -> Option<Replayed> {
        let entries = self.recovered.replayed();
        (entries > 0).then_some(Replayed { hive: self.file.name, entries })
    }

    /// The key at `path`; see [`Hive::key`].
    pub fn key(&self, path: &str) -> Result<Option<HiveKey<'_, 'v, 'd>>, RootError> {
        self.hive()
            .key(path)
            .map(|key| key.map(|key| HiveKey { file: self.file, key }))
            .map_err(self.file.error())
    }

    /// A text value of the key at `path`; `None` where the key, the value, or a text in it is missing.
    pub fn string(&self, path: &str, name: &str) -> Result<Option<String>, RootError> {
        self.key(path)?.map_or(Ok(None), |key| key.string(name))
    }

    /// As [`RootHive::string`], a number.
    pub fn number(&self, path: &str, name: &str) -> Result<Option<u32>, RootError> {
        self.key(path)?.map_or(Ok(None), |key| key.number(name))
    }

    /// Edits the hive. What its logs change is part of the edits.
    pub fn into_editor(self) -> Result<Editor<Bytes<'v, 'd>>, RootError> {
        self.recovered.into_editor().map_err(self.file.error())
    }

    fn hive(&self) -> &Hive<Draft<Bytes<'v, 'd>>> {
        self.recovered.hive()
    }
}

/// A key of a root's hive, whose errors say which hive.
pub struct HiveKey<'h, 'v, 'd> {
    file: HiveFile,
    key: Key<'h, Draft<Bytes<'v, 'd>>>,
}

impl<'h, 'v, 'd> HiveKey<'h, 'v, 'd> {
    /// The key's own name.
    pub fn name(&self) -> String {
        self.key.name()
    }

    /// A text; `None` where there is none of that name.
    pub fn string(&self, name: &str) -> Result<Option<String>, RootError> {
        let value = self.key.value(name).map_err(self.file.error())?;
        value.map_or(Ok(None), |value| value.as_string().map_err(self.file.error()))
    }

    /// A number; `None` where there is none of that name.
    pub fn number(&self, name: &str) -> Result<Option<u32>, RootError> {
        let value = self.key.value(name).map_err(self.file.error())?;
        value.map_or(Ok(None), |value| value.as_u32().map_err(self.file.error()))
    }

    /// The bytes of a value of any type; `None` where there is none of that name.
    pub fn data(&self, name: &str) -> Result<Option<Vec<u8>>, RootError> {
        let value = self.key.value(name).map_err(self.file.error())?;
        value.map_or(Ok(None), |value| value.data().map(Some).map_err(self.file.error()))
    }

    /// The key of that name below this one.
    pub fn subkey(&self, name: &str) -> Result<Option<Self>, RootError> {
        let key = self.key.subkey(name).map_err(self.file.error())?;
        Ok(key.map(|key| Self { file: self.file, key }))
    }

    /// The keys below this one.
    pub fn subkeys(&self) -> Result<Vec<Self>, RootError> {
        let keys = self.key.subkeys().map_err(self.file.error())?;
        keys.map(|key| key.map(|key| Self { file: self.file, key }).map_err(self.file.error())).collect()
    }

    /// Whether the key has any value.
    pub fn has_values(&self) -> Result<bool, RootError> {
        self.key.values().map(|mut values| values.next().is_some()).map_err(self.file.error())
    }
}
