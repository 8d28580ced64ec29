//! Answer files that Windows Setup has kept in a root, and whether one holds a password.

use quick_xml::Reader;
use quick_xml::events::Event;

use super::RootError;
use super::windows_volume::WindowsVolume;
use crate::io::ReadAt;
use crate::ntfs::{self, File, FileReference, Probe, Volume};

/// Where Setup and sysprep keep them. Folders below these are looked at too, except in the root folder.
const FOLDERS: [(&str, bool); 3] =
    [("", false), ("Windows\\Panther", true), ("Windows\\System32\\Sysprep", true)];
/// Windows' own folders nest a few levels.
const MAX_DEPTH: usize = 16;
/// An answer file is a few KiB; one this large is not read for passwords, but taken to hold one.
const MAX_SIZE: u64 = 4 << 20;
/// What Setup writes in place of a password it has used.
const DELETED: &str = "*SENSITIVE*DATA*DELETED*";

/// A cached answer file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerFile {
    /// Its path on the Windows volume; on another one with `partition N:\` before it.
    pub path: String,
    /// Whether a password, or what can't be ruled out to be one, is in it.
    pub holds_password: bool,
    /// The number of the partition it is on.
    pub partition: u32,
    /// Which file it is there.
    pub file: FileReference,
}

/// The answer files of a disk, and the volumes where none were looked for.
#[derive(Debug, Default)]
pub struct Found {
    /// By partition and path.
    pub files: Vec<AnswerFile>,
    /// Each volume that was left out, and why.
    pub warnings: Vec<String>,
}

/// Finds `*unattend*.xml` and `sysprep.inf` where Windows keeps them, on every NTFS volume that may be edited.
pub fn find(disk: &dyn ReadAt, windows: &WindowsVolume<'_>) -> Result<Found, RootError> {
    let mut found = Found::default();
    find_on(&windows.volume, windows.partition.number, "", &mut found.files)?;
    for partition in &windows.table.partitions {
        let number = partition.number;
        let ntfs_error = |source| RootError::Ntfs { partition: number, source };
        let Some(bytes) = partition.window(disk).filter(|_| number != windows.partition.number) else {
            continue;
        };
        if ntfs::probe(&bytes).map_err(ntfs_error)? != Probe::Ntfs {
            continue;
        }
        let volume = Volume::open(bytes).map_err(ntfs_error)?;
        let state = volume.state().map_err(ntfs_error)?;
        match state.reasons.iter().find(|reason| !reason.allows_edits()) {
            Some(reason) => found
                .warnings
                .push(format!("answer files were not looked for on partition {number}: {reason}")),
            None => find_on(&volume, number, &format!("partition {number}:\\"), &mut found.files)?,
        }
    }
    found.files.sort_by(|a, b| (a.partition, &a.path).cmp(&(b.partition, &b.path)));
    Ok(found)
}

fn find_on<R: ReadAt>(
    volume: &Volume<R>,
    partition: u32,
    prefix: &str,
    found: &mut Vec<AnswerFile>,
) -> Result<(), RootError> {
    let ntfs_error = |source| RootError::Ntfs { partition, source };
    let mut folders: Vec<_> = FOLDERS.iter().map(|(path, below)| (path.to_string(), *below, 0)).collect();
    while let Some((folder, below, depth)) = folders.pop() {
        for entry in volume.list(&folder).map_err(ntfs_error)?.unwrap_or_default() {
            let path =
                if folder.is_empty() { entry.name.clone() } else { format!("{folder}\\{}", entry.name) };
            if entry.is_directory {
                if below && !entry.is_reparse_point && depth < MAX_DEPTH {
                    folders.push((path, true, depth + 1));
                }
            } else if is_answer_file(&entry.name) {
                let path = format!("{prefix}{path}");
                let file = volume.file_by_reference(entry.file).map_err(ntfs_error)?;
                file.check_plain().map_err(|source| RootError::AnswerFile { path: path.clone(), source })?;
                let holds_password = file_holds_password(&file, &path)?;
                found.push(AnswerFile { path, holds_password, partition, file: entry.file });
            }
        }
    }
    Ok(())
}

fn is_answer_file(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "sysprep.inf" || (name.contains("unattend") && name.ends_with(".xml"))
}

fn file_holds_password<R: ReadAt>(file: &File<'_, R>, path: &str) -> Result<bool, RootError> {
    if file.size() > MAX_SIZE {
        return Ok(true);
    }
    let mut bytes = vec![0; file.size() as usize];
    file.read_exact_at(&mut bytes, 0).map_err(|source| RootError::Read { path: path.into(), source })?;
    if path.to_ascii_lowercase().ends_with(".inf") {
        return Ok(inf_holds_password(&text_of(&bytes)));
    }
    Ok(xml_holds_password(&text_of(&bytes)))
}

/// UTF-16 with its mark, or else as UTF-8, whatever it is.
fn text_of(bytes: &[u8]) -> String {
    let units = |from_bytes: fn([u8; 2]) -> u16| -> Vec<u16> {
        bytes[2..].chunks_exact(2).map(|pair| from_bytes([pair[0], pair[1]])).collect()
    };
    match bytes {
        [0xFF, 0xFE, ..] => String::from_utf16_lossy(&units(u16::from_le_bytes)),
        [0xFE, 0xFF, ..] => String::from_utf16_lossy(&units(u16::from_be_bytes)),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// `AdminPassword=` and the like, with something behind it but `*` (ask).
fn inf_holds_password(text: &str) -> bool {
    text.lines().filter_map(|line| line.split_once('=')).any(|(key, value)| {
        let value = value.trim().trim_matches('"');
        key.to_ascii_lowercase().contains("password") && !value.is_empty() && value != "*"
    })
}

/// Text in an element whose name ends in `Password` (or below one), a product of Setup's clean-up excepted.
///
/// What can't be parsed is taken to hold one.
fn xml_holds_password(text: &str) -> bool {
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    // For each open element, whether it is a password or within one, and whether it may hold the secret.
    let mut open: Vec<(bool, bool)> = Vec::new();
    loop {
        match reader.read_event() {
            Ok(Event::Start(element)) => {
                let name = element.local_name().as_ref().to_ascii_lowercase();
                let within = open.last().is_some_and(|(within, _)| *within) || name.ends_with("password");
                open.push((within, within && name != "plaintext"));
            }
            Ok(Event::End(_)) => drop(open.pop()),
            Ok(Event::Text(text)) if open.last().is_some_and(|(_, secret)| *secret) => {
                if !text.trim().is_empty() && text.trim() != DELETED {
                    return true;
                }
            }
            Ok(Event::CData(_) | Event::GeneralRef(_)) if open.last().is_some_and(|(_, secret)| *secret) => {
                return true;
            }
            Ok(Event::Eof) => return false,
            Ok(_) => {}
            Err(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_told_from_what_setup_left() {
        let answer = |value: &str| {
            format!(
                "<unattend><a><AdministratorPassword><Value>{value}</Value><PlainText>true</PlainText></AdministratorPassword></a></unattend>"
            )
        };
        assert!(xml_holds_password(&answer("secret")));
        assert!(xml_holds_password(&answer("&#65;")));
        assert!(xml_holds_password(&answer("<![CDATA[x]]>")));
        assert!(xml_holds_password("<unattend><Credentials><Password>p</Password></Credentials></unattend>"));
        assert!(xml_holds_password("<unattend><broken"));
        assert!(!xml_holds_password(&answer("*SENSITIVE*DATA*DELETED*")));
        assert!(!xml_holds_password(&answer("")));
        assert!(!xml_holds_password("\u{feff}<unattend/>"));
        assert!(!xml_holds_password("<unattend><ProductKey>x</ProductKey></unattend>"));
        assert!(inf_holds_password("[GuiUnattended]\r\nAdminPassword = \"x\"\r\n"));
        assert!(!inf_holds_password("AdminPassword=*\r\nTimeZone=85"));
    }

    #[test]
    fn utf16_answers_are_read() {
        let mut bytes = vec![0xFF, 0xFE];
        bytes.extend("<u><Password>p</Password></u>".encode_utf16().flat_map(u16::to_le_bytes));
        assert!(xml_holds_password(&text_of(&bytes)));
    }

    #[test]
    fn names_are_told_apart() {
        for name in ["unattend.xml", "Unattend-Original.XML", "autounattend.xml", "sysprep.inf"] {
            assert!(is_answer_file(name), "{name}");
        }
        assert!(!is_answer_file("unattend.txt") && !is_answer_file("setup.xml"));
    }
}
