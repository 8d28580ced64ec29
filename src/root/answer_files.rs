//! Answer files that Windows Setup has kept in a root, and whether one holds a password.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::RootError;
use super::walk::walk;
use super::windows_volume::WindowsVolume;
use crate::io::ReadAt;
use crate::ntfs::{self, File, FileReference, Probe, Volume};

/// Where Setup and sysprep keep them. Folders below these are looked at too, except in the root folder.
const FOLDERS: [(&str, bool); 3] =
    [("", false), ("Windows\\Panther", true), ("Windows\\System32\\Sysprep", true)];
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
    /// Whether it is cloudbase-init's.
    pub runs_cloudbase_init: bool,
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
    /// Each volume that was not searched, and why.
    pub unsearched: Vec<String>,
}

/// Finds `*unattend*.xml` and `sysprep.inf` where Windows keeps them, on every NTFS volume that may be edited.
///
/// The file on the Windows volume that `pointer` names is among them if it is an answer file with a password.
pub fn find(windows: &WindowsVolume<'_>, pointer: Option<&str>) -> Result<Found, RootError> {
    let mut found = Found::default();
    find_on(&windows.volume, windows.partition.number, "", &mut found.files)?;
    if let Some(path) = pointer.and_then(path_on_windows_volume) {
        add_pointed_at(windows, path, &mut found.files)?;
    }
    for partition in &windows.table.partitions {
        let number = partition.number;
        let ntfs_error = |source| RootError::Ntfs { partition: number, source };
        let Some(bytes) = partition.window(windows.disk).filter(|_| number != windows.partition.number)
        else {
            continue;
        };
        if ntfs::probe(&bytes).map_err(ntfs_error)? != Probe::Ntfs {
            continue;
        }
        let volume = Volume::open(bytes).map_err(ntfs_error)?;
        let state = volume.state().map_err(ntfs_error)?;
        match state.reasons.iter().find(|reason| !reason.allows_edits()) {
            Some(reason) => found.unsearched.push(format!("partition {number}: {reason}")),
            None => find_on(&volume, number, &format!("partition {number}:\\"), &mut found.files)?,
        }
    }
    found.files.sort_by(|a, b| (a.partition, &a.path).cmp(&(b.partition, &b.path)));
    Ok(found)
}

/// What a path on drive C: is on the Windows volume: that is the letter Windows gives its own.
pub fn path_on_windows_volume(path: &str) -> Option<&str> {
    let (drive, rest) = path.split_once(':')?;
    drive.eq_ignore_ascii_case("c").then(|| rest.trim_start_matches(['\\', '/']))
}

fn find_on<R: ReadAt>(
    volume: &Volume<R>,
    partition: u32,
    prefix: &str,
    found: &mut Vec<AnswerFile>,
) -> Result<(), RootError> {
    let ntfs_error = |source| RootError::Ntfs { partition, source };
    for (folder, below) in FOLDERS {
        let mut met = Vec::new();
        walk(volume, folder, below, &mut |path, entry| {
            if is_answer_file(&entry.name) {
                met.push((path, entry.file));
            }
        })
        .map_err(ntfs_error)?;
        for (path, reference) in met {
            let path = format!("{prefix}{path}");
            let file = volume.file_by_reference(reference).map_err(ntfs_error)?;
            let text = read_text(&file, &path)?;
            found.push(AnswerFile {
                holds_password: text.as_deref().is_none_or(|text| holds_password(&path, text)),
                runs_cloudbase_init: text.is_some_and(|text| runs_cloudbase_init(&text)),
                path,
                partition,
                file: reference,
            });
        }
    }
    Ok(())
}

/// Adds the file that the pointer names, if nothing speaks for leaving it.
fn add_pointed_at(
    windows: &WindowsVolume<'_>,
    path: &str,
    found: &mut Vec<AnswerFile>,
) -> Result<(), RootError> {
    if !windows.has_file(path)? {
        return Ok(());
    }
    let Some(file) = windows.file(path)? else { return Ok(()) };
    let reference = file.reference();
    if found.iter().any(|known| known.file == reference) {
        return Ok(());
    }
    // What is too large to be read is no answer file, as far as can be told.
    let Some(text) = read_text(&file, path)? else { return Ok(()) };
    if root_is_unattend(&text) && xml_holds_password(&text) {
        let partition = windows.partition.number;
        let (path, file) = (path.to_owned(), reference);
        found.push(AnswerFile { path, holds_password: true, runs_cloudbase_init: false, partition, file });
    }
    Ok(())
}

fn is_answer_file(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "sysprep.inf" || (name.contains("unattend") && name.ends_with(".xml"))
}

/// The file's text; `None` where it is too large to be one.
fn read_text<R: ReadAt>(file: &File<'_, R>, path: &str) -> Result<Option<String>, RootError> {
    file.check_plain().map_err(|source| RootError::AnswerFile { path: path.to_owned(), source })?;
    if file.size() > MAX_SIZE {
        return Ok(None);
    }
    let mut bytes = vec![0; file.size() as usize];
    file.read_exact_at(&mut bytes, 0).map_err(|source| RootError::Read { path: path.into(), source })?;
    Ok(Some(text_of(&bytes)))
}

fn holds_password(path: &str, text: &str) -> bool {
    match path.to_ascii_lowercase().ends_with(".inf") {
        true => inf_holds_password(text),
        false => xml_holds_password(text),
    }
}

/// cloudbase-init's own answer file runs its program in the specialize pass.
fn runs_cloudbase_init(text: &str) -> bool {
    text.to_ascii_lowercase().contains("cloudbase-init")
}

/// Whether the document's outermost element is `unattend`, in whatever namespace.
fn root_is_unattend(text: &str) -> bool {
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    loop {
        match reader.read_event() {
            Ok(Event::Start(element) | Event::Empty(element)) => {
                return element.local_name().as_ref().eq_ignore_ascii_case("unattend");
            }
            Ok(Event::Eof) | Err(_) => return false,
            Ok(_) => {}
        }
    }
}

/// UTF-16 by its mark or, as Setup reads it too, by the zeros of its ASCII; else UTF-8, whatever it is.
pub(super) fn text_of(bytes: &[u8]) -> String {
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
    fn an_answer_file_is_known_by_its_outermost_element() {
        for text in
            ["<unattend/>", "\u{feff}<?xml version='1.0'?><!-- x --><u:Unattend xmlns:u='x'></u:Unattend>"]
        {
            assert!(root_is_unattend(text), "{text}");
        }
        for text in ["", "<a><unattend/></a>", "plain text with <unattend", "<"] {
            assert!(!root_is_unattend(text), "{text}");
        }
        assert_eq!(path_on_windows_volume("c:\\a\\b.xml"), Some("a\\b.xml"));
        assert_eq!(path_on_windows_volume("D:\\autounattend.xml"), None);
        assert_eq!(path_on_windows_volume("a.xml"), None);
    }

    #[test]
    fn names_are_told_apart() {
        for name in ["unattend.xml", "Unattend-Original.XML", "autounattend.xml", "sysprep.inf"] {
            assert!(is_answer_file(name), "{name}");
        }
        assert!(!is_answer_file("unattend.txt") && !is_answer_file("setup.xml"));
    }
}
