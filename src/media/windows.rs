//! A Windows medium: the images that can be installed from it, and how it boots.

use std::io;

use serde::Serialize;
use thiserror::Error;

use super::Sha256;
use super::text::{decode, pair, section};
use super::wim::{Guid, Image, MAX_PARTS, Wim, WimError};
use crate::io::ReadAt;
use crate::iso::{Disc, DiscError, Entry, File, Kind};

/// The largest of the small text files that is read, in bytes.
const MAX_TEXT: u64 = 64 << 10;

/// Why a medium is not read.
#[derive(Debug, Error)]
pub enum MediumError {
    /// Its file system can't be read.
    #[error(transparent)]
    Disc(#[from] DiscError),
    /// Somebody wrote to it meanwhile.
    #[error("it changed while it was read: {0}")]
    Changed(io::Error),
    /// An archive on it can't be read.
    #[error("{file}: {source}")]
    Wim {
        /// The archive's path on the medium.
        file: String,
        /// Why.
        source: WimError,
    },
}

/// What a Windows medium holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WindowsMedium {
    /// Where the images are.
    pub install: InstallArchive,
    /// The images of `sources/boot.wim`: Windows PE, and Setup.
    pub boot_images: Vec<Image>,
    /// What `sources/ei.cfg` says, where it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<Channel>,
    /// Setup's own languages, from `sources/lang.ini`.
    pub setup_languages: Vec<String>,
    /// The architectures it boots on by UEFI: `bootx64.efi` and `bootaa64.efi`.
    pub boots_by_uefi: Vec<&'static str>,
    /// Whether the boot image that waits for no key is there: `efisys_noprompt.bin`.
    pub boots_without_prompt: bool,
}

/// `sources/install.wim`, `.esd` or `.swm`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstallArchive {
    /// Its path; of a split one, that of the first part.
    pub file: String,
    /// How many parts it has.
    pub parts: u16,
    /// Whether resources are compressed together.
    pub solid: bool,
    /// Its identity.
    pub guid: Guid,
    /// Of its XML's bytes.
    pub xml_sha256: Sha256,
    /// Its images.
    pub images: Vec<Image>,
}

/// The edition and channel that Setup is held to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Channel {
    /// As `Professional`; none: Setup asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edition_id: Option<String>,
    /// `Retail`, `OEM`, `Volume`, `Eval`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Whether it takes volume licence keys.
    pub volume_licence: bool,
}

impl WindowsMedium {
    /// Reads a medium; `None` where there is nothing to install on it.
    pub fn read(disc: &Disc<'_>) -> Result<Option<Self>, MediumError> {
        let sources = Sources { disc, entries: disc.find_directory("sources")? };
        let Some(install) = install_archive(&sources)? else { return Ok(None) };
        let boot = sources.file("boot.wim")?.map(|file| Wim::read(&file)).transpose();
        let boot = boot.map_err(in_archive("boot.wim"))?;
        let there = |path: &str| disc.find(path).map(|entry| entry.is_some_and(|e| e.kind == Kind::File));
        let mut boots_by_uefi = Vec::new();
        for (name, architecture) in
            [("bootx64.efi", "amd64"), ("bootaa64.efi", "arm64"), ("bootia32.efi", "x86")]
        {
            if there(&format!("efi/boot/{name}"))? {
                boots_by_uefi.push(architecture);
            }
        }
        Ok(Some(Self {
            install,
            boot_images: boot.map(|wim| wim.images).unwrap_or_default(),
            channel: sources.text("ei.cfg")?.map(|text| channel(&text)),
            setup_languages: sources.text("lang.ini")?.map(|text| languages(&text)).unwrap_or_default(),
            boots_by_uefi,
            boots_without_prompt: there("efi/microsoft/boot/efisys_noprompt.bin")?,
        }))
    }

    /// The images that Setup can install.
    pub fn installable(&self) -> impl Iterator<Item = &Image> {
        self.install.images.iter().filter(|image| image.is_installable())
    }
}

/// The folder `sources`, listed once: it has hundreds of files.
struct Sources<'d, 's> {
    disc: &'d Disc<'s>,
    entries: Vec<Entry>,
}

impl<'s> Sources<'_, 's> {
    /// The file of that name, which is compared as Windows does.
    fn file(&self, name: &str) -> Result<Option<File<'s>>, DiscError> {
        let found = self
            .entries
            .iter()
            .find(|entry| entry.kind == Kind::File && entry.name.eq_ignore_ascii_case(name));
        found.map(|entry| self.disc.file(&entry.node)).transpose()
    }

    /// A small text file; `None` where it is not there, or not small.
    fn text(&self, name: &str) -> Result<Option<String>, DiscError> {
        let Some(file) = self.file(name)?.filter(|file| file.size() <= MAX_TEXT) else { return Ok(None) };
        let mut bytes = vec![0; file.size() as usize];
        file.read_exact_at(&mut bytes, 0).map_err(|source| DiscError::Read { offset: 0, source })?;
        Ok(Some(decode(&bytes)))
    }
}

/// An archive's error, with its path.
fn in_archive(name: &str) -> impl FnOnce(WimError) -> MediumError {
    let file = format!("sources/{name}");
    move |source| MediumError::Wim { file, source }
}

fn install_archive(sources: &Sources<'_, '_>) -> Result<Option<InstallArchive>, MediumError> {
    for name in ["install.wim", "install.esd", "install.swm"] {
        let Some(first) = sources.file(name)? else { continue };
        let wim = if name == "install.swm" {
            let mut parts = vec![Some(first)];
            for number in 2..=MAX_PARTS {
                parts.push(sources.file(&format!("install{number}.swm"))?);
            }
            let parts: Vec<_> =
                parts.iter().map(|part| part.as_ref().map(|part| part as &dyn ReadAt)).collect();
            Wim::read_split(&parts)
        } else {
            Wim::read(&first)
        };
        let wim = wim.map_err(in_archive(name))?;
        return Ok(Some(InstallArchive {
            file: format!("sources/{name}"),
            parts: wim.header.parts.1,
            solid: wim.header.solid,
            guid: wim.header.guid,
            xml_sha256: wim.xml_sha256,
            images: wim.images,
        }));
    }
    if sources.file("install2.swm")?.is_some() {
        let why = "part 1 is missing, though install2.swm is there";
        return Err(in_archive("install.swm")(WimError::Parts(why.into())));
    }
    Ok(None)
}

/// `ei.cfg`: each section is one line.
fn channel(text: &str) -> Channel {
    let line = |name| section(text, name).into_iter().next();
    Channel {
        edition_id: line("EditionID"),
        channel: line("Channel"),
        volume_licence: line("VL").is_some_and(|value| value == "1"),
    }
}

/// `lang.ini`: `en-US = 3`.
fn languages(text: &str) -> Vec<String> {
    let lines = section(text, "Available UI Languages");
    lines.iter().filter_map(|line| pair(line)).map(|(language, _)| language.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ei_cfg_holds_setup_to_an_edition_or_not() {
        let full = channel("[EditionID]\r\nProfessional\r\n[Channel]\r\nVolume\r\n\r\n[VL]\r\n1\r\n");
        assert_eq!(
            (full.edition_id.as_deref(), full.channel.as_deref()),
            (Some("Professional"), Some("Volume"))
        );
        assert!(full.volume_licence);
        // An empty section leaves the choice to Setup, as it stands on retail media.
        let retail = channel("[EditionID]\r\n\r\n[channel]\r\nRetail ; as sold\r\n[VL]\r\n0\r\n");
        assert_eq!((retail.edition_id, retail.channel.as_deref()), (None, Some("Retail")));
        assert!(!retail.volume_licence);
        assert_eq!(channel(""), Channel { edition_id: None, channel: None, volume_licence: false });
    }

    #[test]
    fn lang_ini_lists_what_setup_speaks() {
        let text = "[Available UI Languages]\r\nen-US = 3\r\nde-DE=2\r\n\r\n[Fallback Languages]\r\nen-US = en-us\r\n";
        assert_eq!(languages(text), ["en-US", "de-DE"]);
        let utf16: Vec<u8> = "\u{feff}"
            .chars()
            .chain(text.chars())
            .collect::<String>()
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        assert_eq!(languages(&decode(&utf16)), ["en-US", "de-DE"]);
        assert!(languages("[Available").is_empty());
    }

    proptest! {
        #[test]
        fn any_text_file(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let text = decode(&bytes);
            channel(&text);
            languages(&text);
        }
    }
}
