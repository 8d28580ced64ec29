//! New pins in a recipe's text, and nothing else changed: comments, order and line ends stay.

use std::path::Path;

use thiserror::Error;
use toml_edit::{DocumentMut, Item, Table, TableLike, Value, value};

use super::{Problems, Recipe, parse, source};
use crate::media::Sha256;

/// Why a text can't get pins.
#[derive(Debug, Error)]
pub enum PinError {
    /// It is no recipe, whatever its pins are.
    #[error(transparent)]
    Recipe(#[from] Problems),
    /// It is no TOML.
    #[error("this is no TOML: {0}")]
    Toml(String),
    /// Something else stands where the pin belongs.
    #[error("`{key}` is no table, so that no pin can be written into it")]
    NoTable {
        /// The key.
        key: String,
    },
    /// Writing it back would change more than the pins.
    #[error("the pins can't be written without changing how the rest is written; write them by hand")]
    Rewritten,
}

/// A recipe whose pins are to be written: everything else in it is valid.
#[derive(Debug)]
pub struct Unpinned {
    text: String,
    /// The recipe, with stand-ins for pins.
    pub recipe: Recipe,
    /// What stands there as pins: Windows' and virtio's, whatever they are.
    pub old: [Option<String>; 2],
}

const MEDIA: [&str; 2] = ["windows", "virtio"];

impl Unpinned {
    /// Reads a recipe that may lack its pins, or have place-holders or wrong ones for them.
    pub fn new(path: &Path, bytes: Vec<u8>) -> Result<Self, PinError> {
        let text =
            String::from_utf8(bytes).map_err(|e| match parse(path, e.as_bytes(), &[], &source::read) {
                Err(problems) => PinError::Recipe(problems),
                Ok(_) => PinError::Rewritten,
            })?;
        let stand_ins = [b"stand-in: windows".as_slice(), b"stand-in: virtio"].map(Sha256::of);
        let Ok(document) = text.parse::<DocumentMut>() else {
            // The recipe's own reader says it better.
            let no_toml = parse(path, text.as_bytes(), &[], &source::read).map(|_| ());
            return Err(
                no_toml.map_or_else(PinError::Recipe, |()| PinError::Toml("it can't be edited".into()))
            );
        };
        let old = MEDIA.map(|medium| {
            let pin = document.get("media")?.get(medium)?.get("sha256")?;
            Some(pin.as_str().map_or_else(|| pin.to_string().trim().to_owned(), str::to_owned))
        });
        let with = with_pins(&text, &stand_ins)?;
        let recipe = parse(path, with.as_bytes(), &[], &source::read)?;
        Ok(Self { text, recipe, old })
    }

    /// The text with these pins, Windows' first: a valid recipe.
    pub fn pinned(&self, pins: &[Sha256; 2]) -> Result<String, PinError> {
        let text = with_pins(&self.text, pins)?;
        parse(&self.recipe.file, text.as_bytes(), &[], &source::read)?;
        Ok(text)
    }

    /// The text as it was read.
    pub fn text(&self) -> &str {
        &self.text
    }
}

fn with_pins(text: &str, pins: &[Sha256; 2]) -> Result<String, PinError> {
    let (mark, body) = match text.strip_prefix('\u{feff}') {
        Some(body) => ("\u{feff}", body),
        None => ("", text),
    };
    // Line ends are the editor's own `\n` inside; a file that mixes them could not be written back as it was.
    let crlf = body.contains("\r\n");
    let ended = |text: String| if crlf { text.replace('\n', "\r\n") } else { text };
    let inside = body.replace("\r\n", "\n");
    let mut document: DocumentMut =
        inside.parse().map_err(|e: toml_edit::TomlError| PinError::Toml(e.message().into()))?;
    if ended(document.to_string()) != body {
        return Err(PinError::Rewritten);
    }
    let media = table(document.as_table_mut(), "media", "media")?;
    for (medium, pin) in MEDIA.into_iter().zip(pins) {
        let medium = table(media, medium, &format!("media.{medium}"))?;
        match medium.get_mut("sha256") {
            Some(Item::Value(old)) => {
                // What is around it stays: blanks, and a comment behind it.
                let decor = old.decor().clone();
                *old = Value::from(pin.to_string());
                *old.decor_mut() = decor;
            }
            _ => {
                medium.insert("sha256", value(pin.to_string()));
            }
        }
    }
    Ok(format!("{mark}{}", ended(document.to_string())))
}

/// The table of that name, which is made where there is none.
fn table<'t>(
    parent: &'t mut (dyn TableLike + 't),
    name: &str,
    full: &str,
) -> Result<&'t mut dyn TableLike, PinError> {
    if parent.get(name).is_none() {
        let mut table = Table::new();
        // No header of its own where it holds tables alone.
        table.set_implicit(true);
        parent.insert(name, Item::Table(table));
    }
    let no_table = || PinError::NoTable { key: full.into() };
    parent.get_mut(name).and_then(Item::as_table_like_mut).ok_or_else(no_table)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const RECIPE: &str = "#:schema ./recipe.schema.json\n# A comment.\nschema = 1\nname = \"x\" # here\n\n\
        [media.windows]\nfile = \"w.iso\"\n# of the publisher\nsha256 = 'TODO'   # later\n\n[media.windows.expect]\n\
        name = \"Windows 11 Pro\"\n\n[media.virtio]\nfile   =   \"v.iso\"\n\n[clone]\nhostname = \"KW-1\"\n";

    fn pins() -> [Sha256; 2] {
        [b"a", b"b"].map(|bytes| Sha256::of(bytes))
    }

    fn pinned(text: &str) -> String {
        Unpinned::new(Path::new("r.toml"), text.into()).unwrap().pinned(&pins()).unwrap()
    }

    #[test]
    fn only_the_pins_change() {
        let [windows, virtio] = pins();
        let wanted = RECIPE
            .replace("'TODO'", &format!("\"{windows}\""))
            .replace("\"v.iso\"\n", &format!("\"v.iso\"\nsha256 = \"{virtio}\"\n"));
        assert_eq!(pinned(RECIPE), wanted);
        // Again: nothing is left to change.
        assert_eq!(pinned(&wanted), wanted);
        let crlf = RECIPE.replace('\n', "\r\n");
        assert_eq!(pinned(&crlf), wanted.replace('\n', "\r\n"));
        assert_eq!(pinned(&format!("\u{feff}{RECIPE}")), format!("\u{feff}{wanted}"));
        let old = Unpinned::new(Path::new("r.toml"), RECIPE.into()).unwrap().old;
        assert_eq!(old, [Some("TODO".to_owned()), None]);
    }

    #[test]
    fn every_way_to_write_a_table_will_do() {
        let [windows, virtio] = pins();
        let inline = "schema = 1\nname = \"x\"\nmedia = { windows = { file = \"w\", sha256 = \"?\" }, virtio = { file = \"v\" } }\n";
        let text = pinned(inline);
        assert!(
            text.contains(&format!("sha256 = \"{windows}\" }}")) && text.contains(&virtio.to_string()),
            "{text}"
        );
        let dotted = "schema = 1\nname = \"x\"\nmedia.windows.file = \"w\"\nmedia.virtio.file = \"v\"\n";
        let text = pinned(dotted);
        assert!(text.starts_with(dotted.split("media.virtio").next().unwrap()), "{text}");
        assert!(text.contains(&virtio.to_string()), "{text}");
    }

    #[test]
    fn what_is_wrong_beside_the_pins_is_told() {
        let wrong = |text: &str| Unpinned::new(Path::new("r.toml"), text.into()).unwrap_err().to_string();
        let typo = RECIPE.replace("hostname", "hostnme");
        assert!(wrong(&typo).contains("[clone] has no key `hostnme`"));
        assert!(wrong("schema = ").contains("this is no TOML"));
        assert!(wrong("schema = 1\nmedia = 3\n").contains("`media` is no table"));
        let bytes = b"schema = 1\n# \xff\n".to_vec();
        let error = Unpinned::new(Path::new("r.toml"), bytes).unwrap_err().to_string();
        assert!(error.contains("byte 0xff is no UTF-8"), "{error}");
    }
}
