//! INF files: a driver's class, version, catalog, and the files it installs.
//!
//! Source: "General Syntax Rules for INF Files" and "INF Version Section" of the Windows Driver Kit.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};
use thiserror::Error;

use super::super::text::{decode, pair, section};

/// The largest INF that is read, in bytes; graphics drivers' have about 1 MiB.
pub(in super::super) const MAX_SIZE: u64 = 4 << 20;
/// The most files one INF names.
const MAX_FILES: usize = 4096;

/// Why a file is no INF.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InfError {
    /// There is no `[Version]` with a signature.
    #[error("it has no [Version] section with a Signature, so it is no INF file")]
    NoVersion,
    /// It is too large.
    #[error("it is larger than any INF file ({size} bytes)")]
    TooLarge {
        /// In bytes.
        size: usize,
    },
    /// It names too much.
    #[error("it names more than {MAX_FILES} files")]
    TooManyFiles,
}

/// `DriverVer`: the date is the vendor's, the version decides which driver is newer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverVersion {
    /// As `09/15/2025`: month, day, year.
    pub date: String,
    /// As `100.102.104.28500`.
    pub version: String,
}

/// As `09/15/2025,100.102.104.28500`.
impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.date, self.version)
    }
}

impl Serialize for DriverVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What an INF says of its driver. Texts are the file's: they may hold anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inf {
    /// The device class, as `SCSIAdapter`.
    pub class: Option<String>,
    /// Who made it.
    pub provider: Option<String>,
    /// Its version.
    pub driver_version: Option<DriverVersion>,
    /// The catalogs that sign it, for whichever Windows: mostly one.
    pub catalogs: Vec<String>,
    /// The files it installs, by name, lower-case, in order of names.
    pub files: Vec<String>,
}

impl Inf {
    /// Reads an INF.
    pub fn parse(bytes: &[u8]) -> Result<Self, InfError> {
        if bytes.len() as u64 > MAX_SIZE {
            return Err(InfError::TooLarge { size: bytes.len() });
        }
        let text = decode(bytes);
        let strings = Strings::read(&text);
        let (mut inf, mut signed) = (
            Self {
                class: None,
                provider: None,
                driver_version: None,
                catalogs: Vec::new(),
                files: Vec::new(),
            },
            false,
        );
        for line in section(&text, "Version") {
            let Some((key, value)) = pair(&line) else { continue };
            let (key, value) = (key.to_ascii_lowercase(), strings.fill(value));
            match key.as_str() {
                "signature" => signed = true,
                "class" => inf.class = Some(value),
                "provider" => inf.provider = Some(value),
                "driverver" => {
                    let (date, version) = value.split_once(',').unwrap_or((&value, ""));
                    inf.driver_version = Some(DriverVersion {
                        date: date.trim().to_owned(),
                        version: version.trim().to_owned(),
                    });
                }
                // CatalogFile, CatalogFile.NTamd64 and the like.
                key if key == "catalogfile" || key.starts_with("catalogfile.") => {
                    if !inf.catalogs.iter().any(|other| other.eq_ignore_ascii_case(&value)) {
                        inf.catalogs.push(value);
                    }
                }
                _ => {}
            }
        }
        if !signed {
            return Err(InfError::NoVersion);
        }
        inf.files = files(&text, &strings)?;
        Ok(inf)
    }
}

/// The names in every `[SourceDisksFiles]`, of all architectures.
fn files(text: &str, strings: &Strings) -> Result<Vec<String>, InfError> {
    let mut files = Vec::new();
    for decoration in ["", ".x86", ".amd64", ".arm64", ".arm"] {
        for line in section(text, &format!("SourceDisksFiles{decoration}")) {
            let name = line.split_once('=').map_or(line.as_str(), |(name, _)| name);
            files.push(strings.fill(name.trim().trim_matches('"')).to_lowercase());
            if files.len() > MAX_FILES {
                return Err(InfError::TooManyFiles);
            }
        }
    }
    files.sort();
    files.dedup();
    Ok(files)
}

/// `[Strings]`: what `%name%` stands for.
struct Strings(BTreeMap<String, String>);

impl Strings {
    fn read(text: &str) -> Self {
        let lines = section(text, "Strings");
        let pairs = lines.iter().filter_map(|line| pair(line));
        Self(pairs.map(|(key, value)| (key.to_lowercase(), value.to_owned())).collect())
    }

    /// `text` with its names filled in, once: what a string holds is text. A name that is not known stays.
    fn fill(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('%') {
            filled.push_str(before);
            let Some((name, tail)) = after.split_once('%') else {
                filled.push('%');
                rest = after;
                continue;
            };
            match self.0.get(&name.to_lowercase()) {
                // `%%` is a percent sign.
                _ if name.is_empty() => filled.push('%'),
                Some(value) => filled.push_str(value),
                None => filled.push_str(&format!("%{name}%")),
            }
            rest = tail;
        }
        filled.push_str(rest);
        filled
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    const VIOSTOR: &str = "; comment\r\n[version]\r\nsignature=\"$WINDOWS NT$\"\r\nClass = SCSIAdapter ; disks\r\n\
        Provider=%VENDOR%\r\nCatalogFile=viostor.cat\r\nCatalogFile.NTamd64 = VIOSTOR.cat\r\n\
        DriverVer=09/15/2025, 100.102.104.28500\r\n\
        [SourceDisksFiles]\r\nviostor.sys=1,,\r\n[SourceDisksFiles.amd64]\r\n\"VioStor.sys\" = 1\r\n%dll% = 1, \\\r\n sub\r\n\
        [STRINGS]\r\nVendor = \"Red; Hat\"\r\ndll=\"co.dll\"\r\n";

    #[test]
    fn what_it_says_is_read_in_every_encoding() {
        let wide: Vec<u8> =
            "\u{feff}".encode_utf16().chain(VIOSTOR.encode_utf16()).flat_map(u16::to_le_bytes).collect();
        let marked = [b"\xef\xbb\xbf", VIOSTOR.as_bytes()].concat();
        let latin = [VIOSTOR.as_bytes(), b"; \xe9\r\n"].concat();
        for bytes in [VIOSTOR.as_bytes(), &wide, &marked, &latin] {
            let inf = Inf::parse(bytes).unwrap();
            assert_eq!(inf.class.as_deref(), Some("SCSIAdapter"));
            assert_eq!(inf.provider.as_deref(), Some("Red; Hat"));
            assert_eq!(inf.driver_version.unwrap().to_string(), "09/15/2025,100.102.104.28500");
            assert_eq!(inf.catalogs, ["viostor.cat"]);
            assert_eq!(inf.files, ["co.dll", "viostor.sys"]);
        }
    }

    #[test]
    fn what_is_no_inf_is_refused() {
        assert_eq!(Inf::parse(b""), Err(InfError::NoVersion));
        assert_eq!(Inf::parse(b"[Version]\nClass=Net\n"), Err(InfError::NoVersion));
        assert!(matches!(Inf::parse(&vec![b' '; 5 << 20]), Err(InfError::TooLarge { .. })));
        let many: String = (0..5000).map(|n| format!("f{n}.sys=1\n")).collect();
        let many = format!("[Version]\nSignature=x\n[SourceDisksFiles]\n{many}");
        assert_eq!(Inf::parse(many.as_bytes()), Err(InfError::TooManyFiles));
    }

    #[test]
    fn strings_are_filled_in_once() {
        let text = "[Strings]\na=%b%\nb=c\n";
        let strings = Strings::read(text);
        assert_eq!(strings.fill("%a%-%B%-%none%-100%%-%"), "%b%-c-%none%-100%-%");
    }

    proptest! {
        #[test]
        fn any_text_is_an_inf_or_an_error(text in "([\\[\\]=;%\"\\\\,a-z\n ]|\\[Version\\]\nSignature=|\\PC){0,80}") {
            let _ = Inf::parse(text.as_bytes());
            let _ = section(&text, "version");
        }
    }
}
