//! Answer files that Windows Setup has kept in a root, and whether one holds a password.

use std::collections::HashSet;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::RootError;
use super::windows_volume::WindowsVolume;
use crate::io::ReadAt;
use crate::ntfs::{self, File, FileReference, NtfsError, Probe, Volume};

/// Where Setup and sysprep keep them. Folders below these are looked at too, except in the root folder.
const FOLDERS: [(&str, bool); 3] =
    [("", false), ("Windows\\Panther", true), ("Windows\\System32\\Sysprep", true)];
/// Windows' own are some dozens on a volume; more than this are a made-up tree.
const MAX_FOLDERS: usize = 1 << 14;
/// In bytes; NTFS' own limit is as many UTF-16 units.
const MAX_PATH: usize = 32_767;
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
    // Folders that were met: a damaged volume may have one within itself.
    let mut met = HashSet::new();
    let mut folders = Vec::new();
    for (path, below) in FOLDERS {
        if let Some(entries) = volume.list(path).map_err(ntfs_error)? {
            folders.push((path.to_owned(), below, entries));
        }
    }
    let mut waiting = Vec::new();
    loop {
        let (folder, below, entries) = match folders.pop() {
            Some(folder) => folder,
            None => match waiting.pop() {
                Some((path, reference)) => {
                    (path, true, volume.list_by_reference(reference).map_err(ntfs_error)?)
                }
                None => return Ok(()),
            },
        };
        for entry in entries {
            let searched = entry.is_directory && below && !entry.is_reparse_point;
            if !searched && (entry.is_directory || !is_answer_file(&entry.name)) {
                continue;
            }
            let path =
                if folder.is_empty() { entry.name.clone() } else { format!("{folder}\\{}", entry.name) };
            if searched {
                if !met.insert(entry.file) {
                    continue;
                }
                if met.len() > MAX_FOLDERS || path.len() > MAX_PATH {
                    let why = "its folder is one of more, or lies deeper, than any Windows makes";
                    return Err(ntfs_error(NtfsError::DamagedFile { record: entry.file.record, why }));
                }
                waiting.push((path, entry.file));
            } else {
                let path = format!("{prefix}{path}");
                let file = volume.file_by_reference(entry.file).map_err(ntfs_error)?;
                file.check_plain().map_err(|source| RootError::AnswerFile { path: path.clone(), source })?;
                let holds_password = file_holds_password(&file, &path)?;
                found.push(AnswerFile { path, holds_password, partition, file: entry.file });
            }
        }
    }
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

/// UTF-16 by its mark or, as Setup reads it too, by the zeros of its ASCII; else UTF-8, whatever it is.
fn text_of(bytes: &[u8]) -> String {
    let utf16 = |bytes: &[u8], from_bytes: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| from_bytes([pair[0], pair[1]])).collect();
        String::from_utf16_lossy(&units)
    };
    let zeros = |at: usize| bytes.chunks_exact(2).filter(|pair| pair[at] == 0).count();
    let (high, low) = (zeros(0), zeros(1));
    match bytes {
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes),
        _ if low > high && low >= bytes.len() / 16 => utf16(bytes, u16::from_le_bytes),
        _ if high > low && high >= bytes.len() / 16 => utf16(bytes, u16::from_be_bytes),
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

/// Text in an element whose name ends in `Password` (or below one), or in such an attribute; what Setup's clean-up
/// leaves, and what says how a password is written, excepted.
///
/// What can't be parsed is taken to hold one.
fn xml_holds_password(text: &str) -> bool {
    let text = text.trim_start_matches('\u{feff}');
    if text.contains('\0') {
        return true;
    }
    let mut reader = Reader::from_str(text);
    // The open elements.
    let mut open: Vec<Place> = Vec::new();
    loop {
        let place = open.last().copied().unwrap_or(Place::Elsewhere);
        match reader.read_event() {
            Ok(Event::Start(element)) => {
                let within = place.below(element.local_name().as_ref());
                if attributes_hold_password(&element, within) {
                    return true;
                }
                open.push(within);
            }
            Ok(Event::Empty(element)) => {
                if attributes_hold_password(&element, place.below(element.local_name().as_ref())) {
                    return true;
                }
            }
            Ok(Event::End(_)) => drop(open.pop()),
            Ok(Event::Text(text)) => {
                if place.is_secret(&text) {
                    return true;
                }
            }
            Ok(Event::CData(_) | Event::GeneralRef(_)) if place != Place::Elsewhere => return true,
            Ok(Event::Eof) => return false,
            Ok(_) => {}
            Err(_) => return true,
        }
    }
}

/// Where in an answer file a text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Outside of any password.
    Elsewhere,
    /// In a password, or in an element of one.
    Password,
    /// In a password's element that says whether it is encoded.
    PlainText,
}

impl Place {
    fn below(self, name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        match self {
            Self::Elsewhere if name.ends_with("password") => Self::Password,
            Self::Elsewhere => Self::Elsewhere,
            Self::Password if name == "plaintext" => Self::PlainText,
            Self::Password | Self::PlainText => Self::Password,
        }
    }

    fn is_secret(self, text: &str) -> bool {
        let text = text.trim();
        match self {
            Self::Elsewhere => false,
            Self::Password => !text.is_empty() && text != DELETED,
            Self::PlainText => !["", "true", "false", DELETED].contains(&text.to_ascii_lowercase().as_str()),
        }
    }
}

fn attributes_hold_password(element: &BytesStart<'_>, place: Place) -> bool {
    element.attributes().any(|attribute| {
        let Ok(attribute) = attribute else { return true };
        let name = attribute.key.local_name().as_ref().to_ascii_lowercase();
        let password = name.ends_with("password") || (place != Place::Elsewhere && name == "value");
        password && Place::Password.is_secret(&attribute.value)
    })
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
        assert!(xml_holds_password("<u><Password><PlainText>hunter2</PlainText></Password></u>"));
        assert!(xml_holds_password("<u><Password><PlainText><![CDATA[x]]></PlainText></Password></u>"));
        assert!(xml_holds_password("<u><Credentials Domain='d' w:AdminPassword='p'/></u>"));
        assert!(xml_holds_password("<u><Password><Value Value='p'></Value></Password></u>"));
        assert!(xml_holds_password("<u>\0</u>"));
        assert!(!xml_holds_password(
            "<u><Password w:action='add'><PlainText> False </PlainText></Password></u>"
        ));
        assert!(!xml_holds_password("<u><PlainText>anything</PlainText><a Password=''/></u>"));
        assert!(!xml_holds_password(&answer("*SENSITIVE*DATA*DELETED*")));
        assert!(!xml_holds_password(&answer("")));
        assert!(!xml_holds_password("\u{feff}<unattend/>"));
        assert!(!xml_holds_password("<unattend><ProductKey>x</ProductKey></unattend>"));
        assert!(inf_holds_password("[GuiUnattended]\r\nAdminPassword = \"x\"\r\n"));
        assert!(!inf_holds_password("AdminPassword=*\r\nTimeZone=85"));
    }

    #[test]
    fn utf16_answers_are_read() {
        for (mark, answer) in [("\u{feff}", "p"), ("", "p"), ("", "\u{65e5}\u{672c}"), ("\u{feff}", "")] {
            let text = format!("{mark}<u><Password>{answer}</Password></u>");
            for to_bytes in [u16::to_le_bytes, u16::to_be_bytes] {
                let bytes: Vec<u8> = text.encode_utf16().flat_map(to_bytes).collect();
                assert_eq!(xml_holds_password(&text_of(&bytes)), !answer.is_empty(), "{text}");
            }
            assert_eq!(text_of(text.as_bytes()), text);
        }
    }

    #[test]
    fn names_are_told_apart() {
        for name in ["unattend.xml", "Unattend-Original.XML", "autounattend.xml", "sysprep.inf"] {
            assert!(is_answer_file(name), "{name}");
        }
        assert!(!is_answer_file("unattend.txt") && !is_answer_file("setup.xml"));
    }
}
