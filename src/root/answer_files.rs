//! Answer files that Windows Setup has kept in a root, and whether one holds a password.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::RootError;
use super::pointer::{Place, place};
use super::walk::walk;
use super::windows_volume::{Resolved, WindowsVolume};
use crate::io::ReadAt;
use crate::ntfs::{self, File, FileReference, NtfsError, Probe, Volume};

/// Where Setup and sysprep keep them. Folders below these are looked at too, except in the root folder.
const FOLDERS: [(&str, bool); 3] =
    [("", false), ("Windows\\Panther", true), ("Windows\\System32\\Sysprep", true)];
/// An answer file is a few KiB; one this large is not read for passwords, but taken to hold one.
const MAX_SIZE: u64 = 4 << 20;
/// Windows keeps a handful; more than this are a made-up tree, and each takes its time to remove.
const MAX_FILES: usize = 1000;
/// What Setup writes in place of a password it has used.
const DELETED: &str = "*SENSITIVE*DATA*DELETED*";

/// A cached answer file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerFile {
    /// Its path on the Windows volume; on another one with `partition N:\` before it.
    pub path: String,
    /// Whether a password, or what can't be ruled out to be one, is in it.
    pub holds_password: bool,
    /// Why it can't be read, where it can't; then it can't be scrubbed either.
    pub unread: Option<String>,
    /// Whether it is cloudbase-init's, and nothing else is in it.
    pub runs_cloudbase_init: bool,
    /// The number of the partition it is on.
    pub partition: u32,
    /// Whether that volume may be edited.
    pub editable: bool,
    /// Which file it is there.
    pub file: FileReference,
}

/// The answer files of a disk, and where none could be looked for.
#[derive(Debug, Default)]
pub struct Found {
    /// By partition and path.
    pub files: Vec<AnswerFile>,
    /// Each other volume that was not searched, and why.
    pub unsearched: Vec<String>,
    /// Each folder of the Windows volume that leads elsewhere.
    pub away: Vec<String>,
}

/// Finds `*unattend*.xml` and `sysprep.inf` where Windows keeps them, on every NTFS volume.
///
/// The file that `pointer` names is among them if it is an answer file with a password.
pub fn find(windows: &WindowsVolume<'_>, pointer: Option<&str>) -> Result<Found, RootError> {
    let mut found = Found::default();
    let own = Searched {
        volume: &windows.volume,
        partition: windows.partition.number,
        prefix: String::new(),
        editable: true,
    };
    for (folder, below) in FOLDERS {
        let mut met = Vec::new();
        found.away.extend(windows.walk(folder, below, &mut |path, entry| {
            if is_answer_file(&entry.name) {
                met.push((path, entry.file));
            }
        })?);
        for (path, file) in met {
            found.files.push(own.judge(path, file)?);
        }
    }
    let pointer = pointer.map(place);
    if let Some(Place::WindowsVolume(path)) = &pointer
        && let Resolved::Path(path) = windows.resolve(path)?
    {
        own.add_pointed_at(path, &mut found.files)?;
    }
    for partition in &windows.table.partitions {
        let number = partition.number;
        if let Some(bytes) = partition.window(windows.disk).filter(|_| number != windows.partition.number)
            && let Err(error) = find_on_other(bytes, number, pointer.as_ref(), &mut found)
        {
            found.unsearched.push(format!("partition {number}: {error}"));
        }
    }
    if found.files.len() > MAX_FILES {
        return Err(RootError::TooManyAnswerFiles { found: found.files.len() });
    }
    found.files.sort_by(|a, b| (a.partition, &a.path).cmp(&(b.partition, &b.path)));
    Ok(found)
}

/// The same on another volume: one that can't be read is no error of the root's.
fn find_on_other<R: ReadAt>(
    bytes: R,
    number: u32,
    pointer: Option<&Place>,
    found: &mut Found,
) -> Result<(), RootError> {
    let ntfs_error = |source| RootError::Ntfs { partition: number, source };
    if ntfs::probe(&bytes).map_err(ntfs_error)? != Probe::Ntfs {
        return Ok(());
    }
    let volume = Volume::open(bytes).map_err(ntfs_error)?;
    let state = volume.state().map_err(ntfs_error)?;
    let unclean = state.reasons.iter().find(|reason| !reason.allows_edits());
    found.unsearched.extend(
        unclean.map(|reason| format!("partition {number}: {reason}; what was found there can't be scrubbed")),
    );
    let prefix = format!("partition {number}:\\");
    let other = Searched { volume: &volume, partition: number, prefix, editable: unclean.is_none() };
    for (folder, below) in FOLDERS {
        let mut met = Vec::new();
        walk(&volume, folder, below, &mut |path, entry| {
            if is_answer_file(&entry.name) {
                met.push((path, entry.file));
            }
        })
        .map_err(ntfs_error)?;
        for (path, file) in met {
            found.files.push(other.judge(path, file)?);
        }
    }
    // Which letter the volume would have is not known: whatever the letter, this may be meant.
    if let Some(Place::OtherDrive { path, .. }) = pointer {
        other.add_pointed_at(path.clone(), &mut found.files)?;
    }
    Ok(())
}

/// A volume that is searched.
struct Searched<'v, R> {
    volume: &'v Volume<R>,
    partition: u32,
    /// What comes before a path on it.
    prefix: String,
    editable: bool,
}

impl<R: ReadAt> Searched<'_, R> {
    fn judge(&self, path: String, file: FileReference) -> Result<AnswerFile, RootError> {
        let ntfs_error = |source| RootError::Ntfs { partition: self.partition, source };
        let opened = self.volume.file_by_reference(file).map_err(ntfs_error)?;
        let unread = opened.check_plain().err().map(|error| error.to_string());
        let text = if unread.is_none() { read_text(&opened, &path)? } else { None };
        let holds_password = text.as_deref().is_none_or(holds_password);
        let streams = self.volume.has_named_streams(file).map_err(ntfs_error)?;
        Ok(AnswerFile {
            holds_password,
            unread,
            runs_cloudbase_init: !streams && text.is_some_and(|text| runs_cloudbase_init(&text)),
            path: format!("{}{path}", self.prefix),
            partition: self.partition,
            editable: self.editable,
            file,
        })
    }

    /// Adds the file that the pointer names, if nothing speaks for leaving it.
    fn add_pointed_at(&self, path: String, found: &mut Vec<AnswerFile>) -> Result<(), RootError> {
        let file = match self.volume.file(&path) {
            Ok(Some(file)) => file,
            Ok(None) | Err(NtfsError::IsDirectory { .. } | NtfsError::ReparsePoint { .. }) => return Ok(()),
            Err(source) => return Err(RootError::Ntfs { partition: self.partition, source }),
        };
        let reference = file.reference();
        if found.iter().any(|known| (known.partition, known.file) == (self.partition, reference)) {
            return Ok(());
        }
        // What can't be read as a text is no answer file, as far as can be told.
        if file.check_plain().is_ok()
            && let Some(text) = read_text(&file, &path)?
            && root_is_unattend(&text)
            && holds_password(&text)
        {
            found.push(self.judge(path, reference)?);
        }
        Ok(())
    }
}

fn is_answer_file(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "sysprep.inf" || (name.contains("unattend") && name.ends_with(".xml"))
}

/// The file's text; `None` where it is too large, or in no encoding that Setup reads, so that it may hold anything.
fn read_text<R: ReadAt>(file: &File<'_, R>, path: &str) -> Result<Option<String>, RootError> {
    if file.size() > MAX_SIZE {
        return Ok(None);
    }
    let mut bytes = vec![0; file.size() as usize];
    file.read_exact_at(&mut bytes, 0).map_err(|source| RootError::Read { path: path.into(), source })?;
    let text = text_of(&bytes);
    Ok((!text.contains('\0')).then_some(text))
}

/// Whether a password may be in the text: Setup takes XML, and older ones what is written as an .ini file.
fn holds_password(text: &str) -> bool {
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.starts_with('<') { xml_holds_password(text) } else { inf_holds_password(text) }
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

/// UTF-16 by its mark or, as Setup reads it too, where every ASCII character of it has its zero; else UTF-8,
/// whatever it is.
pub(super) fn text_of(bytes: &[u8]) -> String {
    let utf16 = |bytes: &[u8], from_bytes: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| from_bytes([pair[0], pair[1]])).collect();
        String::from_utf16_lossy(&units)
    };
    match bytes {
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes),
        // Answer files begin with `<`, .ini files with a letter, `[` or `;`.
        [1..=0x7f, 0, ..] => utf16(bytes, u16::from_le_bytes),
        [0, 1..=0x7f, ..] => utf16(bytes, u16::from_be_bytes),
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

/// Text in an element that holds a password (or below one), or in such an attribute, or in a command that sets one;
/// what Setup's clean-up leaves, and what says how a password is written, excepted.
///
/// What can't be parsed, or declares entities of its own, is taken to hold one, and so is a comment with a password's
/// element in it.
fn xml_holds_password(text: &str) -> bool {
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    // The open elements.
    let mut open: Vec<Within> = Vec::new();
    loop {
        let place = open.last().copied().unwrap_or(Within::Elsewhere);
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
            Ok(Event::CData(text)) => {
                if place != Within::Elsewhere && place != Within::Command || sets_password(&text) {
                    return true;
                }
            }
            Ok(Event::GeneralRef(_)) if !matches!(place, Within::Elsewhere | Within::Command) => return true,
            Ok(Event::Comment(text)) => {
                let text = text.to_ascii_lowercase();
                if text.contains("password>") || text.contains("password ") || text.contains("accountdata>") {
                    return true;
                }
            }
            Ok(Event::DocType(text)) if text.contains('[') => return true,
            Ok(Event::Eof) => return !open.is_empty(),
            Ok(_) => {}
            Err(_) => return true,
        }
    }
}

/// Commands that are known to take a password, and words that come with one.
fn sets_password(command: &str) -> bool {
    let command = command.to_ascii_lowercase();
    ["net user ", "net.exe user ", "net1 user ", "password", "passwd"]
        .iter()
        .any(|word| command.contains(word))
}

/// Where in an answer file a text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    /// Outside of any password.
    Elsewhere,
    /// In a command.
    Command,
    /// In a password, or in an element of one.
    Password,
    /// In a password's element that says whether it is encoded.
    PlainText,
}

impl Within {
    fn below(self, name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        match self {
            Self::Elsewhere | Self::Command => match name.as_str() {
                // A machine's own password in a domain, and a wireless network's.
                "accountdata" | "keymaterial" => Self::Password,
                name if name.ends_with("password") => Self::Password,
                "path" | "commandline" | "command" => Self::Command,
                _ => Self::Elsewhere,
            },
            Self::Password if name == "plaintext" => Self::PlainText,
            Self::Password | Self::PlainText => Self::Password,
        }
    }

    fn is_secret(self, text: &str) -> bool {
        let text = text.trim();
        match self {
            Self::Elsewhere => false,
            Self::Command => sets_password(text),
            Self::Password => !text.is_empty() && text != DELETED,
            Self::PlainText => !["", "true", "false", DELETED].contains(&text.to_ascii_lowercase().as_str()),
        }
    }
}

fn attributes_hold_password(element: &BytesStart<'_>, within: Within) -> bool {
    element.attributes().any(|attribute| {
        let Ok(attribute) = attribute else { return true };
        let name = attribute.key.local_name().as_ref().to_ascii_lowercase();
        let password = name.ends_with("password") || (within == Within::Password && name == "value");
        password && Within::Password.is_secret(&attribute.value)
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
        for held in [
            "<u><AccountData>x</AccountData></u>",
            "<u><keyMaterial>x</keyMaterial></u>",
            "<u><!-- <Password>x</Password> --></u>",
            "<u><Path>cmd /c net user admin pw /add</Path></u>",
            "<u><CommandLine><![CDATA[tool --password x]]></CommandLine></u>",
            "<!DOCTYPE u [<!ENTITY p '<Password>x</Password>'>]><u>&p;</u>",
            "<u>",
        ] {
            assert!(holds_password(held), "{held}");
        }
        assert!(!holds_password("<u><Path>cmd /c sc start x &amp;&amp; exit</Path><!-- nothing --></u>"));
        assert!(holds_password("[GuiUnattended]\nAdminPassword=x") && !holds_password(""));
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
    }

    #[test]
    fn names_are_told_apart() {
        for name in ["unattend.xml", "Unattend-Original.XML", "autounattend.xml", "sysprep.inf"] {
            assert!(is_answer_file(name), "{name}");
        }
        assert!(!is_answer_file("unattend.txt") && !is_answer_file("setup.xml"));
    }
}
