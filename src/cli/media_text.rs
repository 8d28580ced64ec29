//! What `media inspect` found, as rows for people.

use std::path::Path;

use super::media_inspect::{Held, Medium};
use crate::iso::Tree;
use crate::media::wim::Image;
use crate::media::{DriverMedium, Infs, WindowsMedium};

/// Columns of a terminal that nobody has made wider.
const WIDTH: usize = 80;
/// Columns before a row's value.
const INDENT: usize = 13;
/// Characters of one of a medium's texts that are shown.
const MAX_SHOWN: usize = 200;

/// Everything of a medium, in rows.
pub fn medium(path: &Path, medium: &Medium) -> String {
    let mut rows = Rows(String::new());
    let what = match &medium.contents {
        Held::Windows { .. } => "a Windows medium",
        Held::Drivers { .. } => "a driver medium",
        Held::Other => "a disc without Windows' images and without drivers",
    };
    rows.row("medium", &shown(&path.display().to_string()));
    rows.row("", what);
    let label = medium.label.as_deref().map_or("no label".into(), shown);
    let systems = match medium.tree {
        Tree::Udf => medium.format.name(),
        Tree::RockRidge => "ISO 9660 with Rock Ridge",
        Tree::Joliet => "ISO 9660 with Joliet",
        Tree::Enhanced => "ISO 9660:1999",
        Tree::Plain => "ISO 9660",
    };
    rows.row("volume", &format!("{label}, {systems}"));
    rows.row("size", &format!("{} bytes", medium.size));
    if let Some(sha256) = medium.sha256 {
        rows.row("sha256", &sha256.to_string());
    }
    if let Some(name) = &medium.known_as {
        rows.row("known as", name);
    }
    if !medium.same_version.is_empty() {
        rows.row("note", "same version, different bytes; the known ones have");
        medium.same_version.iter().for_each(|other| rows.row("", &other.to_string()));
    }
    match &medium.contents {
        Held::Windows { windows } => rows.windows(windows),
        Held::Drivers { drivers } => rows.drivers(drivers),
        Held::Other => {}
    }
    rows.0
}

/// Text in rows: a name, and a value that goes on below itself.
struct Rows(String);

impl Rows {
    /// A row; what does not fit is wrapped between words.
    fn row(&mut self, name: &str, value: &str) {
        self.wrapped(name, value, INDENT);
    }

    fn wrapped(&mut self, name: &str, value: &str, indent: usize) {
        let mut line = format!("{name:<width$}", width = INDENT - 1);
        let mut columns = line.chars().count();
        for (index, word) in value.split(' ').enumerate() {
            let length = word.chars().count();
            if index > 0 && columns + 1 + length > WIDTH {
                self.0 += line.trim_end();
                self.0 += "\n";
                line = " ".repeat(indent - 1);
                columns = indent - 1;
            }
            line = line + " " + word;
            columns += 1 + length;
        }
        self.0 += line.trim_end();
        self.0 += "\n";
    }

    fn windows(&mut self, medium: &WindowsMedium) {
        let install = &medium.install;
        let solid = if install.solid { ", solid" } else { "" };
        let parts = match install.parts {
            1 => String::new(),
            parts => format!(", in {parts} parts"),
        };
        let images = count(install.images.len(), "image");
        self.row("archive", &format!("{}: {images}{solid}{parts}", install.file));
        self.row("", &format!("GUID {}", install.guid));
        for image in &install.images {
            self.image(image);
        }
        if let Some(channel) = &medium.channel {
            let edition =
                channel.edition_id.as_deref().map(|edition| format!("edition {}, ", shown(edition)));
            let name = channel.channel.as_deref().map_or("no channel".into(), shown);
            let volume = if channel.volume_licence { ", volume licence" } else { "" };
            self.row("ei.cfg", &format!("{}{name}{volume}", edition.unwrap_or_default()));
        }
        if !medium.setup_languages.is_empty() {
            let languages: Vec<_> = medium.setup_languages.iter().map(|language| shown(language)).collect();
            self.row("Setup", &languages.join(", "));
        }
        for image in &medium.boot_images {
            self.row("boot image", &shown(&image.name));
        }
        let by = match medium.boots_by_uefi.as_slice() {
            [] => "not by UEFI".into(),
            architectures => format!("by UEFI on {}", architectures.join(", ")),
        };
        let prompt = if medium.boots_without_prompt { "with" } else { "without" };
        self.row("boots", &format!("{by}; {prompt} efisys_noprompt.bin"));
    }

    fn image(&mut self, image: &Image) {
        self.row(&format!("image {}", image.index), &name(&image.name));
        if let Some(displayed) = image.display_name.as_deref().filter(|displayed| *displayed != image.name) {
            self.row("", &format!("displayed as {}", name(displayed)));
        }
        let languages: Vec<_> = image
            .languages
            .iter()
            .map(|language| match &image.default_language {
                Some(default) if image.languages.len() > 1 && default == language => {
                    format!("{} (default)", shown(language))
                }
                _ => shown(language),
            })
            .collect();
        let text = |text: &Option<String>| text.as_deref().map(shown);
        let facts = [
            Some(text(&image.edition_id).unwrap_or("no edition".into())),
            text(&image.installation_type),
            Some(
                image.architecture.map_or("unknown architecture", |architecture| architecture.name()).into(),
            ),
            Some(if languages.is_empty() { "no language".into() } else { languages.join(", ") }),
            image.build(),
            image.total_bytes.map(size),
        ];
        self.row("", &facts.into_iter().flatten().collect::<Vec<_>>().join(", "));
        if !image.is_installable() {
            self.row("", "not to be installed: no edition of Windows");
        }
    }

    fn drivers(&mut self, medium: &DriverMedium) {
        self.row("version", &version(medium));
        let listed = medium.drivers.iter().filter(|folder| folder.listed).count();
        let (all, told) = (medium.drivers.len(), count(medium.drivers.len(), "folder"));
        self.row(
            "drivers",
            &match listed {
                0 => format!("{told}; DriverVer is read from their INF files"),
                _ if listed == all => format!("{told}; DriverVer is what data/info.json lists"),
                _ => format!(
                    "{told}; DriverVer is what data/info.json lists for {listed}, and read for the others"
                ),
            },
        );
        let folders = medium.drivers.iter().map(|folder| {
            let told = format!("{} {}", shown(&folder.driver), infs(&folder.infs, &folder.driver));
            (told, format!("{}/{}", shown(&folder.os), folder.architecture))
        });
        self.grouped("driver", folders);
        let folders = medium.setup_folders.iter().map(|folder| (infs(&folder.infs, ""), shown(&folder.path)));
        self.grouped("for Setup", folders);
        for (name, files) in [("guest agent", &medium.guest_agent), ("guest tools", &medium.guest_tools)] {
            let files: Vec<_> = files.iter().map(|file| shown(file)).collect();
            self.row(name, &if files.is_empty() { "none".into() } else { files.join(", ") });
        }
    }

    /// Folders of which the same is told have one row.
    fn grouped(&mut self, name: &str, folders: impl Iterator<Item = (String, String)>) {
        let mut groups: Vec<(String, Vec<String>)> = Vec::new();
        for (told, folder) in folders {
            match groups.iter_mut().find(|(other, _)| *other == told) {
                Some((_, group)) => group.push(folder),
                None => groups.push((told, vec![folder])),
            }
        }
        for (told, folders) in groups {
            self.row(name, &told);
            self.wrapped("", &format!("  {}", folders.join(" ")), INDENT + 2);
        }
    }
}

/// The release, and by what. Builds are a hundred times its last number.
fn version(medium: &DriverMedium) -> String {
    let of_build = medium.newest_build.map(|build| (build, format!("0.1.{}", build / 100)));
    match (&medium.version, of_build) {
        // The label has no number of the package, as in 0.1.271-1; a recipe's may.
        (Some(label), Some((build, release))) if label.split('-').next() == Some(&release) => {
            format!("{} by the volume's label, and by the drivers' newest build, {build}", shown(label))
        }
        (Some(label), Some((build, release))) => format!(
            "{} by the volume's label, but the drivers' newest build is {build}, which is that of {release}",
            shown(label)
        ),
        (Some(label), None) => format!("{} by the volume's label", shown(label)),
        (None, Some((build, release))) => {
            format!("{release} by the drivers' newest build, {build}; the label names none")
        }
        (None, None) => "unknown".into(),
    }
}

/// INF files and their DriverVer; a name that is the driver's own is left out.
fn infs(infs: &Infs, driver: &str) -> String {
    let told = infs.iter().map(|(name, driver_ver)| {
        let version = driver_ver.map_or("without a DriverVer".into(), |ver| ver.to_string());
        let stem = name.get(..name.len().saturating_sub(".inf".len())).unwrap_or(name);
        if infs.len() == 1 && stem.eq_ignore_ascii_case(driver) {
            version
        } else {
            format!("{} {version}", shown(name))
        }
    });
    told.collect::<Vec<_>>().join(", ")
}

fn name(text: &str) -> String {
    if text.is_empty() { "(no name)".into() } else { shown(text) }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Bytes in the largest unit of which there is one.
fn size(bytes: u64) -> String {
    match bytes {
        0x4000_0000.. => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
        0x10_0000.. => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{bytes} bytes"),
    }
}

/// A text of a medium: what a terminal acts on, or what turns the text around, is replaced, and there is an end.
fn shown(text: &str) -> String {
    let acts = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut clean: String =
        text.chars().take(MAX_SHOWN).map(|c| if acts(c) { char::REPLACEMENT_CHARACTER } else { c }).collect();
    if text.chars().nth(MAX_SHOWN).is_some() {
        clean += "...";
    }
    clean
}
