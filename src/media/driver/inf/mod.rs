//! INF files: what a driver package says of itself.
//!
//! Only what tells a driver's identity and its files is read; how it is installed is Windows' business.

mod syntax;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use thiserror::Error;

use self::syntax::{Entry, Sections};

/// An INF file of a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inf {
    /// The device setup class, `SCSIAdapter` say.
    pub class: Option<String>,
    /// The class's GUID, as written, with its braces.
    pub class_guid: Option<String>,
    /// Who made the package, its `%token%` replaced.
    pub provider: Option<String>,
    /// `DriverVer`.
    pub driver_ver: Option<DriverVer>,
    /// The catalogs that vouch for the package.
    pub catalogs: Vec<CatalogName>,
    /// What the package consists of besides the INF and its catalogs, each path once.
    pub files: Vec<PackageFile>,
    /// The files that its services run (`ServiceBinary`), without folders. Those that Windows brings are not
    /// among `files`.
    pub service_binaries: Vec<String>,
}

/// A `CatalogFile` entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogName {
    /// The decoration in lower case, `ntamd64` say; none: for every platform that has no entry of its own.
    pub platform: Option<String>,
    /// The file's name; it lies beside the INF.
    pub name: String,
}

/// A file of the package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageFile {
    /// Relative to the folder of the INF, with `\` between its parts.
    pub path: String,
    /// The processors it is for, in lower case as INF files name them (`x86`, `amd64`, `arm`, `arm64`); none: all.
    pub architectures: BTreeSet<String>,
}

/// `DriverVer`: what Windows ranks drivers of one device by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct DriverVer {
    /// The date.
    pub date: DriverDate,
    /// The four numbers; zeros where the INF leaves them out.
    pub version: DriverVersion,
}

/// A day, as `DriverVer` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DriverDate {
    /// With its century.
    pub year: u16,
    /// From 1 to 12.
    pub month: u8,
    /// From 1 to 31.
    pub day: u8,
}

/// A driver's version: four numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DriverVersion(pub [u16; 4]);

/// Why a file is no INF of a driver. Lines are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InfError {
    /// Larger than any driver's.
    #[error("the INF has {size} bytes; more than {} are not read", Inf::MAX_SIZE)]
    TooLarge {
        /// Its size in bytes.
        size: u64,
    },
    /// A NUL character: not text, or UTF-16 without its byte order mark.
    #[error("line {line} holds a NUL character: this is no INF file, or UTF-16 without a byte order mark")]
    NotText {
        /// Where the first is.
        line: usize,
    },
    /// UTF-16 of the order that Windows does not read.
    #[error("the text is UTF-16 with its big end first, which Windows does not read")]
    BigEndian,
    /// UTF-16 of an odd number of bytes.
    #[error("the UTF-16 text ends within a character: the file is cut short")]
    HalfCharacter,
    /// An entry before the first section.
    #[error("line {line} stands before the first [section]: this is no INF file")]
    OutsideSection {
        /// Where it is.
        line: usize,
    },
    /// `[` without `]`.
    #[error("line {line}: the name of the section has no closing bracket")]
    OpenSection {
        /// Where it is.
        line: usize,
    },
    /// A section whose name Windows would not take.
    #[error("line {line}: the name of the section is longer than the 255 characters that Windows takes")]
    LongName {
        /// Where it is.
        line: usize,
    },
    /// More entries or fields than any driver's INF has.
    #[error(
        "line {line}: the INF has more entries than any driver's (200,000, with 500,000 values, are read)"
    )]
    TooMany {
        /// Where the limit is passed.
        line: usize,
    },
    /// More files than any driver's package has.
    #[error("the INF names more than {} files", MAX_FILES)]
    TooManyFiles,
    /// A string that Windows would not take.
    #[error(
        "line {line}: with its %tokens% replaced, this is longer than the 4,096 characters that Windows takes"
    )]
    TooLong {
        /// Where it is.
        line: usize,
    },
    /// Not `[Version]`, or not one that Windows takes.
    #[error(
        "there is no [Version] section with Signature = \"$Windows NT$\": this is no INF file of a driver"
    )]
    NoSignature,
    /// `DriverVer` is not `mm/dd/yyyy,w.x.y.z`.
    #[error("line {line}: DriverVer = {text}: it must be mm/dd/yyyy,w.x.y.z")]
    DriverVer {
        /// Where it is.
        line: usize,
        /// What stands there.
        text: String,
    },
}

/// Far more than any package has; it bounds what `%tokens%` can blow up.
const MAX_FILES: usize = 10_000;

impl Inf {
    /// The most bytes that an INF may have: drivers' have tens of kilobytes, the largest printers' a few megabytes.
    pub const MAX_SIZE: u64 = 4 << 20;

    /// Reads an INF in any of the encodings that Windows reads: UTF-8 and UTF-16LE with a byte order mark, and
    /// without one UTF-8 or Windows-1252.
    ///
    /// # Errors
    /// What is no INF, or one that Windows would not take, is told with its line.
    pub fn parse(bytes: &[u8]) -> Result<Self, InfError> {
        let size = bytes.len() as u64;
        if size > Self::MAX_SIZE {
            return Err(InfError::TooLarge { size });
        }
        let sections = Sections::parse(&text::decode(bytes)?)?;
        let version = Version { sections: &sections };
        // `$Chicago$` is what Windows 95 asked for; all take it.
        let signature = version.get("Signature")?.unwrap_or_default().to_lowercase();
        if !["$windows nt$", "$chicago$"].contains(&signature.as_str()) {
            return Err(InfError::NoSignature);
        }
        Ok(Self {
            class: version.get("Class")?,
            class_guid: version.get("ClassGuid")?,
            provider: version.get("Provider")?,
            driver_ver: version.driver_ver()?,
            catalogs: version.catalogs()?,
            files: files(&sections)?,
            service_binaries: service_binaries(&sections)?,
        })
    }

    /// The catalog that Windows takes for a processor, `amd64` say: the one of its own, else the one for all.
    pub fn catalog(&self, architecture: &str) -> Option<&str> {
        let own = format!("nt{}", architecture.to_lowercase());
        let of = |platform: Option<&str>| {
            self.catalogs.iter().find(|catalog| catalog.platform.as_deref() == platform)
        };
        [Some(own.as_str()), Some("nt"), None].into_iter().find_map(of).map(|catalog| catalog.name.as_str())
    }

    /// The files that the package must have for a processor, `amd64` say.
    pub fn files_for<'a>(&'a self, architecture: &'a str) -> impl Iterator<Item = &'a PackageFile> {
        self.files.iter().filter(move |file| {
            file.architectures.is_empty()
                || file.architectures.iter().any(|other| other.eq_ignore_ascii_case(architecture))
        })
    }
}

/// The `[Version]` section.
struct Version<'a> {
    sections: &'a Sections,
}

impl<'a> Version<'a> {
    fn entry(&self, key: &str) -> Option<&'a Entry> {
        self.sections.entries("version").iter().find(|entry| is_key(entry, key))
    }

    /// The first value, unless it is empty.
    fn get(&self, key: &str) -> Result<Option<String>, InfError> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        let value = self.sections.expand(entry.fields.first().map_or("", String::as_str), entry.line)?;
        Ok((!value.is_empty()).then_some(value))
    }

    fn driver_ver(&self) -> Result<Option<DriverVer>, InfError> {
        let Some(entry) = self.entry("DriverVer") else { return Ok(None) };
        let text = self.sections.expand(&entry.fields.join(","), entry.line)?;
        text.parse().map(Some).map_err(|_| InfError::DriverVer { line: entry.line, text })
    }

    fn catalogs(&self) -> Result<Vec<CatalogName>, InfError> {
        let mut catalogs = Vec::new();
        for entry in self.sections.entries("version") {
            let Some(key) = &entry.key else { continue };
            let key = key.to_lowercase();
            let platform = match key.split_once('.') {
                None if key == "catalogfile" => None,
                Some(("catalogfile", platform)) => Some(platform.to_owned()),
                _ => continue,
            };
            let name = self.sections.expand(entry.fields.first().map_or("", String::as_str), entry.line)?;
            if !name.is_empty() {
                catalogs.push(CatalogName { platform, name });
            }
            at_most(catalogs.len())?;
        }
        Ok(catalogs)
    }
}

fn is_key(entry: &Entry, key: &str) -> bool {
    entry.key.as_ref().is_some_and(|other| other.eq_ignore_ascii_case(key))
}

/// What the package consists of: `SourceDisksFiles` has all that lies on the medium, and where. A copied file that
/// it does not list lies beside the INF, unless the INF borrows from Windows (`LayoutFile`, `Include`): then it is
/// one of Windows' own. The same goes for what a service runs.
fn files(sections: &Sections) -> Result<Vec<PackageFile>, InfError> {
    let mut files = Files::default();
    let disks = disk_folders(sections)?;
    for (name, entries) in sections.iter() {
        let Some(architecture) = decorated(name, "sourcedisksfiles") else { continue };
        for entry in entries {
            let Some(file) = &entry.key else { continue };
            let file = sections.expand(file, entry.line)?;
            let field =
                |at: usize| sections.expand(entry.fields.get(at).map_or("", String::as_str), entry.line);
            let disk = disks.get(&field(0)?).map_or("", String::as_str);
            files.add(&[disk, &field(1)?], &file, architecture)?;
        }
    }
    let borrows = sections.entries("version").iter().any(|entry| is_key(entry, "LayoutFile"))
        || sections.iter().any(|(_, entries)| entries.iter().any(|entry| is_key(entry, "Include")));
    if !borrows {
        for name in copied(sections)?.into_iter().chain(service_binaries(sections)?) {
            files.add_unlisted(&name)?;
        }
    }
    Ok(files.files.into_values().map(|(_, file)| file).collect())
}

/// The folders of `[SourceDisksNames]`: `disk = description, tag file, unused, path`.
fn disk_folders(sections: &Sections) -> Result<BTreeMap<String, String>, InfError> {
    let mut folders = BTreeMap::new();
    for (name, entries) in sections.iter() {
        if decorated(name, "sourcedisksnames").is_none() {
            continue;
        }
        for entry in entries {
            if let (Some(disk), Some(path)) = (&entry.key, entry.fields.get(3)) {
                folders.insert(disk.clone(), sections.expand(path, entry.line)?);
            }
            at_most(folders.len())?;
        }
    }
    Ok(folders)
}

/// What `CopyFiles` directives copy: `@file`, or a section of `destination, source, unused, flags`.
fn copied(sections: &Sections) -> Result<BTreeSet<String>, InfError> {
    let mut lists: BTreeSet<String> = BTreeSet::new();
    let mut names = BTreeSet::new();
    for (_, entries) in sections.iter() {
        for entry in entries.iter().filter(|entry| is_key(entry, "CopyFiles")) {
            for field in &entry.fields {
                let field = sections.expand(field, entry.line)?;
                match field.strip_prefix('@') {
                    Some(file) => names.extend([file.trim().to_owned()]),
                    None => lists.extend([field.to_lowercase()]),
                }
                at_most(names.len().max(lists.len()))?;
            }
        }
    }
    for list in lists {
        for entry in sections.entries(&list) {
            let source = entry.fields.get(1).filter(|source| !source.is_empty()).or(entry.fields.first());
            if let Some(source) = source {
                names.insert(sections.expand(source, entry.line)?);
            }
            at_most(names.len())?;
        }
    }
    names.remove("");
    Ok(names)
}

/// The last part of every `ServiceBinary`, in order, each once.
fn service_binaries(sections: &Sections) -> Result<Vec<String>, InfError> {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (_, entries) in sections.iter() {
        for entry in entries.iter().filter(|entry| is_key(entry, "ServiceBinary")) {
            let path = sections.expand(entry.fields.first().map_or("", String::as_str), entry.line)?;
            let name = path.rsplit(['\\', '/']).next().unwrap_or_default();
            if !name.is_empty() {
                names.entry(name.to_lowercase()).or_insert_with(|| name.to_owned());
            }
            at_most(names.len())?;
        }
    }
    Ok(names.into_values().collect())
}

fn at_most(files: usize) -> Result<(), InfError> {
    if files > MAX_FILES { Err(InfError::TooManyFiles) } else { Ok(()) }
}

/// What a section's name, in lower case, has behind `base` and a dot; empty without one.
fn decorated<'a>(name: &'a str, base: &str) -> Option<&'a str> {
    let rest = name.strip_prefix(base)?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('.') }
}

/// The files so far, by their paths in lower case.
#[derive(Default)]
struct Files {
    /// With whether a section without decoration lists it: then it is for every processor.
    files: BTreeMap<String, (bool, PackageFile)>,
    /// Names in lower case, without folders.
    names: BTreeSet<String>,
}

impl Files {
    fn add(&mut self, folders: &[&str], name: &str, architecture: &str) -> Result<(), InfError> {
        let parts = folders.iter().chain([&name]).flat_map(|part| part.split(['\\', '/']));
        let path = parts.filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("\\");
        if path.is_empty() {
            return Ok(());
        }
        self.names.insert(name.to_lowercase());
        let new = PackageFile { path: path.clone(), architectures: BTreeSet::new() };
        let (for_all, file) = self.files.entry(path.to_lowercase()).or_insert((false, new));
        *for_all |= architecture.is_empty();
        if *for_all {
            file.architectures.clear();
        } else {
            file.architectures.insert(architecture.to_owned());
        }
        at_most(self.files.len())
    }

    fn add_unlisted(&mut self, name: &str) -> Result<(), InfError> {
        if self.names.contains(&name.to_lowercase()) { Ok(()) } else { self.add(&[], name, "") }
    }
}

impl std::str::FromStr for DriverVer {
    type Err = DriverVerError;

    /// `mm/dd/yyyy[,w[.x[.y[.z]]]]`; dashes are as good as slashes.
    fn from_str(text: &str) -> Result<Self, DriverVerError> {
        driver_ver(text).ok_or_else(|| DriverVerError { text: text.to_owned() })
    }
}

fn driver_ver(text: &str) -> Option<DriverVer> {
    let (date, version) = text.split_once(',').unwrap_or((text, ""));
    let parts: Vec<&str> = date.trim().split(['/', '-']).collect();
    let [month, day, year] = parts[..] else { return None };
    let date = DriverDate { year: number(year)?, month: number(month)?, day: number(day)? };
    if !(1..=12).contains(&date.month) || !(1..=31).contains(&date.day) {
        return None;
    }
    let version = match version.trim() {
        "" => DriverVersion([0; 4]),
        version => version.parse().ok()?,
    };
    Some(DriverVer { date, version })
}

/// Decimal digits only: no sign, no spaces.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl std::str::FromStr for DriverVersion {
    type Err = DriverVersionError;

    /// One to four numbers below 65536, with dots between them.
    fn from_str(text: &str) -> Result<Self, DriverVersionError> {
        let wrong = || DriverVersionError { text: text.to_owned() };
        let mut version = [0; 4];
        for (at, part) in text.split('.').enumerate() {
            *version.get_mut(at).ok_or_else(wrong)? = number(part).ok_or_else(wrong)?;
        }
        Ok(Self(version))
    }
}

/// A text is no `DriverVer`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is no DriverVer: a date as 05/31/2025, and a version")]
pub struct DriverVerError {
    /// What was given.
    pub text: String,
}

/// A text is no driver version.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is no driver version: up to four numbers below 65536, with dots between them")]
pub struct DriverVersionError {
    /// What was given.
    pub text: String,
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [w, x, y, z] = self.0;
        write!(f, "{w}.{x}.{y}.{z}")
    }
}

/// As in ISO 8601.
impl fmt::Display for DriverDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl fmt::Display for DriverVer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.version, self.date)
    }
}

impl Serialize for DriverVersion {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for DriverDate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests;
