//! An archive's XML: what it says of every image.

use serde::Serialize;

use crate::windows::Architecture;
use crate::xml::{self, Element};

/// Images of an archive that are read; media with every edition have eleven.
const MAX_IMAGES: usize = 256;

/// One image, as the XML describes it. Texts are the medium's: they may hold anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Counted from 1.
    pub index: u32,
    /// NAME: what Setup's `/IMAGE/NAME` is compared with.
    pub name: String,
    /// DESCRIPTION.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// DISPLAYNAME: what Setup shows; on some media not the same as NAME.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// EDITIONID, as `Professional`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edition_id: Option<String>,
    /// INSTALLATIONTYPE: `Client`, `Server`, `Server Core`, `WindowsPE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installation_type: Option<String>,
    /// PRODUCTTYPE: `WinNT`, `ServerNT`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product_type: Option<String>,
    /// FLAGS: mostly the edition; `2` and `9` for Setup and Windows PE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flags: Option<String>,
    /// ARCH.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<Architecture>,
    /// Every LANGUAGE.
    pub languages: Vec<String>,
    /// The DEFAULT one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_language: Option<String>,
    /// The version of the Windows in it. Releases that are enablement packages carry the one that they are based on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// TOTALBYTES of its files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
}

/// A Windows version, as the XML has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// MAJOR.
    pub major: u32,
    /// MINOR.
    pub minor: u32,
    /// BUILD, as 26100.
    pub build: u32,
    /// SPBUILD: the revision.
    pub revision: u32,
    /// SPLEVEL: the service pack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_pack: Option<u32>,
    /// BRANCH, as `ge_release`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
}

impl Image {
    /// Whether Setup can install it: it has an edition, and is not Setup itself, as the first images of a
    /// downloaded `.esd` are.
    pub fn is_installable(&self) -> bool {
        self.edition_id.as_deref().is_some_and(|edition| edition != "WindowsPE")
            && self.installation_type.as_deref() != Some("WindowsPE")
    }

    /// Build and revision, as `26100.4349`.
    pub fn build(&self) -> Option<String> {
        self.version.as_ref().map(|version| format!("{}.{}", version.build, version.revision))
    }
}

/// The images that `xml`, the resource's bytes, describes; in the order of their indexes, which are 1, 2, 3.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Image>, String> {
    let Some(text) = bytes.strip_prefix(b"\xff\xfe") else {
        return Err("it does not begin as UTF-16LE does".into());
    };
    if text.len() % 2 != 0 {
        return Err("it has an odd number of bytes".into());
    }
    let units = text.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let text: String =
        char::decode_utf16(units).collect::<Result<_, _>>().map_err(|e| format!("it is no UTF-16: {e}"))?;
    // Some tools end it with a NUL.
    let root = xml::parse(text.trim_end_matches('\0')).map_err(|e| e.to_string())?;
    if root.name != "WIM" {
        return Err("its root is not WIM".into());
    }
    let mut images = root.children("IMAGE").take(MAX_IMAGES + 1).map(image).collect::<Result<Vec<_>, _>>()?;
    if images.len() > MAX_IMAGES {
        return Err(format!("it describes more than {MAX_IMAGES} images"));
    }
    images.sort_by_key(|image| image.index);
    if images.iter().zip(1..).any(|(image, index)| image.index != index) {
        return Err("its images are not counted from 1".into());
    }
    Ok(images)
}

fn image(element: &Element) -> Result<Image, String> {
    let index = element.attribute("INDEX").and_then(|index| index.parse().ok());
    let text = |name: &str| element.child(name).and_then(Element::text).map(str::to_owned);
    let windows = element.child("WINDOWS");
    let of_windows = |name: &str| windows?.child(name)?.text();
    let languages = windows.and_then(|windows| windows.child("LANGUAGES"));
    Ok(Image {
        index: index.ok_or("an image has no index")?,
        name: text("NAME").unwrap_or_default(),
        description: text("DESCRIPTION"),
        display_name: text("DISPLAYNAME"),
        edition_id: of_windows("EDITIONID").map(str::to_owned),
        installation_type: of_windows("INSTALLATIONTYPE").map(str::to_owned),
        product_type: of_windows("PRODUCTTYPE").map(str::to_owned),
        flags: text("FLAGS"),
        architecture: of_windows("ARCH").and_then(|arch| arch.parse().ok()).and_then(Architecture::of_wim),
        languages: languages
            .map(|languages| {
                languages.children("LANGUAGE").filter_map(Element::text).map(str::to_owned).collect()
            })
            .unwrap_or_default(),
        default_language: languages
            .and_then(|languages| languages.child("DEFAULT")?.text())
            .map(str::to_owned),
        version: windows.and_then(|windows| windows.child("VERSION")).and_then(version),
        total_bytes: text("TOTALBYTES").and_then(|bytes| bytes.parse().ok()),
    })
}

fn version(element: &Element) -> Option<Version> {
    let number = |name: &str| element.child(name)?.text()?.parse::<u32>().ok();
    Some(Version {
        major: number("MAJOR")?,
        minor: number("MINOR").unwrap_or(0),
        build: number("BUILD")?,
        revision: number("SPBUILD").unwrap_or(0),
        service_pack: number("SPLEVEL"),
        branch: element.child("BRANCH").and_then(Element::text).map(str::to_owned),
    })
}
