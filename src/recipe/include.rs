//! The files that a recipe includes. They lie under it and are one level deep: what a recipe pins, and what it is
//! called, stands in the recipe itself.

use std::io;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::rules::{self, Fault};
use super::source::{Source, folder};
use super::tree::{self, Items, Origin, Value};

/// The most files a recipe includes.
pub(super) const MOST: usize = 8;

/// A file that a recipe names under `include`.
pub(super) struct Include {
    /// Its name, as the recipe has it.
    pub name: PathBuf,
    /// Where it is named.
    pub at: Origin,
    /// Where it is.
    pub path: PathBuf,
    /// What it holds.
    pub bytes: io::Result<Vec<u8>>,
}

/// Reads every file that `source` includes. Names that are none are left out here: reading the recipe notes them.
pub(super) fn read(source: &Source<'_>, open: &dyn Fn(&Path) -> io::Result<Vec<u8>>) -> Vec<Include> {
    let (table, _) = DeTable::parse_recoverable(source.text);
    let mut items = tree::from_text(table.get_ref(), 0);
    let Some(Value::Array(nodes)) = items.remove("include").map(|item| item.node.value) else {
        return Vec::new();
    };
    let mut includes = Vec::new();
    for node in nodes.into_iter().take(MOST) {
        if let Value::String(name) = &node.value
            && let Ok(name) = rules::file(name)
        {
            let path = folder(source.path).join(&name);
            includes.push(Include { bytes: open(&path), name, at: node.at, path });
        }
    }
    includes
}

/// Takes out of an included file's tree what only the recipe itself may say; a fault for each.
pub(super) fn hold_to_tables(items: &mut Items) -> Vec<(Origin, &'static str, Fault)> {
    let mut faults = Vec::new();
    let own = [
        ("include", "an included file includes no others"),
        ("schema", "an included file has no schema of its own"),
        ("name", "an included file does not name the recipe"),
    ];
    for (key, why) in own {
        if let Some(item) = items.remove(key) {
            faults.push((item.key_at, key, Fault::new(why).help("let this stand in the recipe itself")));
        }
    }
    let Some(Value::Table(media)) = items.get_mut("media").map(|item| &mut item.node.value) else {
        return faults;
    };
    for (medium, key) in [("windows", "media.windows.sha256"), ("virtio", "media.virtio.sha256")] {
        if let Some(Value::Table(medium)) = media.get_mut(medium).map(|item| &mut item.node.value)
            && let Some(pin) = medium.remove("sha256")
        {
            let fault =
                Fault::new("an included file holds no pin: the recipe that uses it is what is reviewed")
                    .help("let the pin stand in the recipe itself");
            faults.push((pin.key_at, key, fault));
        }
    }
    faults
}
