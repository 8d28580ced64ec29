//! hivex and reged, run on a hive in a scratch folder.

use std::collections::BTreeMap;
use std::process::Command;

use super::super::{Hive, Key};

/// Path below the root and name of a value (`None`: the key itself), to its type and bytes.
pub type Tree = BTreeMap<(String, Option<String>), (u32, Vec<u8>)>;

fn run(command: &mut Command) -> String {
    let run = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(run.status.success(), "{command:?}: {}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).unwrap()
}

/// Lays the hive into a folder for as long as `judge` runs.
fn with_file<T>(hive: &[u8], judge: impl FnOnce(&std::path::Path) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hive");
    std::fs::write(&path, hive).unwrap();
    judge(&path)
}

pub fn hivexget(hive: &[u8], key: &str, value: &str) -> String {
    with_file(hive, |path| run(Command::new("hivexget").arg(path).arg(key).arg(value)).trim_end().into())
}

pub fn hivexml(hive: &[u8]) -> String {
    with_file(hive, |path| run(Command::new("hivexml").arg(path)))
}

/// `reged -x` of one key, as the text of a .reg file.
pub fn reged(hive: &[u8], key: &str) -> String {
    with_file(hive, |path| {
        let out = path.with_extension("reg");
        // reged exits with 0 whatever it finds; the file says more.
        let run = Command::new("reged").args(["-x"]).arg(path).args(["H", key]).arg(&out).output().unwrap();
        std::fs::read_to_string(out).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&run.stdout)))
    })
}

/// All that hivex finds in a hive.
pub fn hivexregedit(hive: &[u8]) -> Tree {
    let text = with_file(hive, |path| {
        run(Command::new("hivexregedit").env("PERL_UNICODE", "SO").arg("--export").arg(path).arg("\\"))
    });
    let mut tree = Tree::new();
    let mut key = String::new();
    for line in text.lines().skip(1).filter(|line| !line.is_empty()) {
        if let Some(path) = line.strip_prefix("[\\") {
            key = path.strip_suffix(']').unwrap().to_owned();
            tree.insert((key.clone(), None), (0, Vec::new()));
            continue;
        }
        let (name, data) = split_line(line);
        let (kind, bytes) = match data.strip_prefix("dword:") {
            Some(number) => (4, u32::from_str_radix(number, 16).unwrap().to_le_bytes().to_vec()),
            None => {
                let (kind, hex) = data.strip_prefix("hex(").unwrap().split_once("):").unwrap();
                let bytes = hex.split(',').filter(|b| !b.is_empty());
                let bytes = bytes.map(|b| u8::from_str_radix(b, 16).unwrap()).collect();
                (u32::from_str_radix(kind, 16).unwrap(), bytes)
            }
        };
        tree.insert((key.clone(), Some(name)), (kind, bytes));
    }
    tree
}

/// `"name"=data` or `@=data`.
fn split_line(line: &str) -> (String, &str) {
    if let Some(data) = line.strip_prefix("@=") {
        return (String::new(), data);
    }
    let mut name = String::new();
    let mut characters = line.strip_prefix('"').unwrap().char_indices();
    loop {
        match characters.next().unwrap() {
            (_, '\\') => name.push(characters.next().unwrap().1),
            (at, '"') => return (name, line[1 + at + 1..].strip_prefix('=').unwrap()),
            (_, other) => name.push(other),
        }
    }
}

/// All that our own reader finds.
pub fn ours(file: &[u8]) -> Tree {
    let hive = Hive::open(file).unwrap();
    let mut tree = Tree::new();
    walk(&hive.root().unwrap(), String::new(), &mut tree);
    tree
}

fn walk(key: &Key<'_, &[u8]>, path: String, tree: &mut Tree) {
    for value in key.values().unwrap() {
        let value = value.unwrap();
        tree.insert((path.clone(), Some(value.name())), (value.kind().0, value.data().unwrap()));
    }
    for subkey in key.subkeys().unwrap() {
        let subkey = subkey.unwrap();
        let below = if path.is_empty() { subkey.name() } else { format!("{path}\\{}", subkey.name()) };
        walk(&subkey, below, tree);
    }
    tree.insert((path, None), (0, Vec::new()));
}
