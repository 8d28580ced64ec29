//! The reader and the editor, judged by hivex, reged and a checker that shares no code with them.
#![allow(clippy::unwrap_used, clippy::panic)]

mod edits;
mod hostile;
mod judges;
mod model;
mod real;
mod recovery;
mod room;
mod structure;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use super::{Editor, Hive, HiveError};
use crate::io::Change;

/// An empty hive of that minor version, with `bins` pages in one bin and `slack` bytes after it.
pub fn empty_hive(minor: u32, bins: usize, slack: usize) -> Vec<u8> {
    let cell = |content: &[u8]| {
        let size = (content.len() + 4).next_multiple_of(8);
        let mut cell = (size as u32).wrapping_neg().to_le_bytes().to_vec();
        cell.extend_from_slice(content);
        cell.resize(size, 0);
        cell
    };
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let nil = u32::MAX;
    let nk = |sk: u32| {
        let mut nk = b"nk\x2c\0".to_vec();
        nk.extend(words(&[0, 0x01d5_c000, 0, 0, 0, 0, nil, nil, 0, nil, sk, nil, 0, 0, 0, 0, 0]));
        nk.extend([4, 0, 0, 0]);
        nk.extend(b"ROOT");
        cell(&nk)
    };
    let sk_at = 32 + nk(0).len() as u32;
    // Owner and group Administrators, no list: everyone may do everything.
    let sid = [1, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 0x20, 2, 0, 0];
    let mut descriptor = vec![1, 0, 0, 0x80];
    descriptor.extend(words(&[20, 36, 0, 0]));
    descriptor.extend([sid, sid].concat());
    let mut sk = b"sk\0\0".to_vec();
    sk.extend(words(&[sk_at, sk_at, 1, descriptor.len() as u32]));
    sk.extend(descriptor);

    let size = bins * 4096;
    let mut bin = b"hbin".to_vec();
    bin.extend(words(&[0, size as u32, 0, 0, 0, 0, 0]));
    bin.extend(nk(sk_at));
    bin.extend(cell(&sk));
    bin.extend(((size - bin.len()) as u32).to_le_bytes());
    bin.resize(size, 0);

    let mut base = b"regf".to_vec();
    base.extend(words(&[1, 1, 0, 0x01d5_c000, 1, minor, 0, 1, 32, size as u32, 1]));
    base.resize(508, 0);
    let sum = base.chunks(4).fold(0, |x, w| x ^ u32::from_le_bytes(w.try_into().unwrap()));
    base.extend(sum.to_le_bytes());
    base.resize(4096, 0);
    [base, bin, vec![0xaa; slack]].concat()
}

/// An empty hive filled by hivexsh; `commands` begin at the root.
pub fn hivexsh(commands: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (hive, script) = (folder.path().join("hive"), folder.path().join("script"));
    std::fs::write(&hive, empty_hive(5, 1, 0)).unwrap();
    std::fs::write(&script, format!("cd \\\n{commands}\ncommit\n")).unwrap();
    let run = Command::new("hivexsh").arg("-w").arg(&hive).arg("-f").arg(&script).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    std::fs::read(&hive).unwrap()
}

/// A SYSTEM hive of the least that a sealed root has, and values of many kinds.
pub fn small_system() -> Vec<u8> {
    // The tool need not run for every case of a property.
    static HIVE: OnceLock<Vec<u8>> = OnceLock::new();
    let make = || {
        hivexsh(
            "add Select\nadd Setup\nadd Empty\ncd Select\nsetval 1\nCurrent\ndword:1\n\
         cd \\Setup\nsetval 3\nSetupType\ndword:2\nCmdLine\nstring:oobe\\windeploy.exe\n@\nstring:default\n\
         add Status\ncd Status\nsetval 1\nBytes\nhex:3:01,02,03,04,05,06,07,08,09",
        )
    };
    HIVE.get_or_init(make).clone()
}

/// The folder of real hives.
fn real_hives_folder() -> PathBuf {
    let beside = || concat!(env!("CARGO_MANIFEST_DIR"), "/../shared").into();
    PathBuf::from(std::env::var_os("SEALROOT_SHARED").unwrap_or_else(beside)).join("hives")
}

/// A real hive, unpacked; `None`, with a message, where the folder of them is absent.
pub fn real_hive(name: &str) -> Option<Vec<u8>> {
    let packed = real_hives_folder().join(format!("{name}.xz"));
    if !packed.exists() {
        eprintln!("skipped: there is no {}", packed.display());
        return None;
    }
    let run = Command::new("xz").arg("-dc").arg(packed).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    Some(run.stdout)
}

/// The files of an archive of small hives, by name.
pub fn real_hives(archive: &str) -> Option<BTreeMap<String, Vec<u8>>> {
    let tar = real_hive(&format!("{archive}.tar"))?;
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(tar.as_slice()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        let path = entry.path().unwrap().into_owned();
        files.insert(path.file_name().unwrap().to_str().unwrap().to_owned(), bytes);
    }
    Some(files)
}

/// The file with edits in it.
pub fn apply(file: &[u8], edits: &[Change]) -> Vec<u8> {
    let mut file = file.to_vec();
    for edit in edits {
        file[edit.offset as usize..][..edit.bytes.len()].copy_from_slice(&edit.bytes);
    }
    file
}

/// Edits a hive file and checks what must hold after every edit: cells, base block, order and no waste.
pub fn edited<'h>(
    file: &'h [u8],
    edit: impl FnOnce(&mut Editor<&&'h [u8]>) -> Result<(), HiveError>,
) -> Result<Vec<u8>, HiveError> {
    let hive = Hive::open(file).unwrap();
    let mut editor = Editor::new(&hive).unwrap();
    edit(&mut editor)?;
    let edits = editor.finish().unwrap();
    let after = apply(file, &edits);
    structure::check_edit(file, &after, &edits);
    Ok(after)
}
