//! A module uses only those above it: data flows one way, and nothing above has to know what is below.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

/// From the ground up.
const ORDER: [&str; 18] = [
    "io",
    "windows",
    "xml",
    "disk",
    "ntfs",
    "hive",
    "iso",
    "media",
    "answer",
    "root",
    "containerdisk",
    "registry",
    "guest",
    "kube",
    "vm",
    "recipe",
    "build",
    "cli",
];

fn rank(module: &str) -> Option<usize> {
    ORDER.iter().position(|name| *name == module)
}

/// Every module named after `crate::`, in `use` lists too.
fn used_modules(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in source.match_indices("crate::") {
        let rest = &source[at + "crate::".len()..];
        let names: Vec<&str> = match rest.strip_prefix('{') {
            Some(list) => {
                let mut depth = 1;
                let end = list
                    .find(|c| {
                        depth += i32::from(c == '{') - i32::from(c == '}');
                        depth == 0
                    })
                    .unwrap();
                // Top-level names of the list only.
                let mut depth = 0;
                list[..end]
                    .split(|c| {
                        depth += i32::from(c == '{') - i32::from(c == '}');
                        depth == 0 && c == ','
                    })
                    .collect()
            }
            None => vec![rest],
        };
        for name in names {
            let name = name.trim_start();
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
            found.push(name[..end].to_owned());
        }
    }
    found
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

#[test]
fn a_module_uses_only_those_above_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    assert!(files.len() > 10);
    let mut uses = 0;
    for file in files {
        let relative = file.strip_prefix(&src).unwrap();
        let own = relative.components().next().unwrap().as_os_str().to_str().unwrap();
        if own.ends_with(".rs") {
            continue;
        }
        let Some(own_rank) = rank(own) else { panic!("src/{own} has no place in the order") };
        for used in used_modules(&fs::read_to_string(&file).unwrap()) {
            let Some(used_rank) = rank(&used) else {
                panic!("{}: what is crate::{used}?", relative.display())
            };
            assert!(used_rank <= own_rank, "src/{}: {own} must not use {used}", relative.display());
            uses += 1;
        }
    }
    assert!(uses > 0, "no `crate::` was found at all");
}

#[test]
fn lists_are_taken_apart() {
    let source = "use crate::{disk::{self, raw}, io::Patch};\nlet x = crate::hive::Hive;";
    assert_eq!(used_modules(source), ["disk", "io", "hive"]);
}
