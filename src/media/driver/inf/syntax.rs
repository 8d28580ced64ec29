//! The lines of an INF file: sections, entries, values. What they mean is not known here.
//!
//! Source: "General Syntax Rules for INF Files" and "INF Strings Section" of the Windows driver documentation.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

use super::InfError;

/// More entries than the largest printer driver has; they bound what a small file of newlines can allocate.
const MAX_ENTRIES: usize = 200_000;
/// Fields (`a,b,c` are three) in the whole file: as above.
const MAX_FIELDS: usize = 500_000;
/// Windows takes no longer name of a section.
const MAX_NAME: usize = 255;
/// Windows takes no longer string, with its `%tokens%` replaced (MAX_INF_STRING_LENGTH of setupapi.h).
const MAX_STRING: usize = 4096;

/// One entry: `key = field, field`, or only fields.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// What stands before the first `=`, as written; `%tokens%` not replaced.
    pub key: Option<String>,
    /// As written, without quotes; `%tokens%` not replaced.
    pub fields: Vec<String>,
    /// Where it begins, from 1.
    pub line: usize,
}

/// All sections by their names in lower case; several of one name are one.
#[derive(Debug, Default)]
pub(super) struct Sections {
    sections: BTreeMap<String, Vec<Entry>>,
    /// What stands for a `%token%`, by its name in lower case.
    strings: BTreeMap<String, String>,
}

impl Sections {
    pub fn parse(text: &str) -> Result<Self, InfError> {
        let mut reader = Reader { chars: text.chars().peekable(), line: 1 };
        let mut sections: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
        let mut current = None;
        let (mut entries, mut fields) = (0, 0);
        while reader.skip_to_entry() {
            if reader.chars.peek() == Some(&'[') {
                let name = reader.section()?;
                sections.entry(name.clone()).or_default();
                current = Some(name);
                continue;
            }
            let line = reader.line;
            let Some(section) = current.as_ref().and_then(|name| sections.get_mut(name)) else {
                return Err(InfError::OutsideSection { line });
            };
            let entry = reader.entry(MAX_FIELDS - fields)?;
            entries += 1;
            fields += entry.fields.len();
            if entries > MAX_ENTRIES {
                return Err(InfError::TooMany { line });
            }
            section.push(entry);
        }
        let mut sections = Self { sections, strings: BTreeMap::new() };
        let mut strings = BTreeMap::new();
        // English, where the INF has no neutral section.
        for entry in sections.entries("strings").iter().chain(sections.entries("strings.0409")) {
            if let (Some(key), Some(value)) = (&entry.key, entry.fields.first()) {
                strings.entry(key.to_lowercase()).or_insert_with(|| value.clone());
            }
        }
        sections.strings = strings;
        Ok(sections)
    }

    /// The entries of a section, named in any case; none where there is no such section.
    pub fn entries(&self, name: &str) -> &[Entry] {
        self.sections.get(&name.to_lowercase()).map_or(&[], Vec::as_slice)
    }

    /// All of them, with their names in lower case.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[Entry])> {
        self.sections.iter().map(|(name, entries)| (name.as_str(), entries.as_slice()))
    }

    /// `text` with every `%token%` replaced that `[Strings]` has; others (`%12%` is a folder) stay; `%%` is `%`.
    pub fn expand(&self, text: &str, line: usize) -> Result<String, InfError> {
        let mut expanded = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('%') {
            expanded.push_str(before);
            match after.split_once('%') {
                Some(("", after)) => {
                    expanded.push('%');
                    rest = after;
                }
                Some((token, after)) => {
                    match self.strings.get(&token.trim().to_lowercase()) {
                        Some(value) => expanded.push_str(value),
                        None => {
                            expanded.push('%');
                            expanded.push_str(token);
                            expanded.push('%');
                        }
                    }
                    rest = after;
                }
                None => {
                    expanded.push('%');
                    rest = after;
                }
            }
            if expanded.len() > MAX_STRING {
                return Err(InfError::TooLong { line });
            }
        }
        expanded.push_str(rest);
        if expanded.len() > MAX_STRING { Err(InfError::TooLong { line }) } else { Ok(expanded) }
    }
}

struct Reader<'a> {
    chars: Peekable<Chars<'a>>,
    line: usize,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.chars.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    fn skip_line(&mut self) {
        while self.chars.peek().is_some_and(|c| *c != '\n') {
            self.next();
        }
    }

    /// Goes to the first character that is neither white space nor comment; `false`: there is none.
    fn skip_to_entry(&mut self) -> bool {
        loop {
            match self.chars.peek() {
                None => return false,
                Some(';') => self.skip_line(),
                Some(c) if c.is_whitespace() => {
                    self.next();
                }
                Some(_) => return true,
            }
        }
    }

    /// `[name]`, in lower case. Whatever follows on its line is ignored, as Windows does.
    fn section(&mut self) -> Result<String, InfError> {
        let line = self.line;
        self.next();
        let mut name = String::new();
        loop {
            match self.chars.peek() {
                Some(']') => break,
                None | Some('\n') => return Err(InfError::OpenSection { line }),
                Some(_) if name.len() >= MAX_NAME => return Err(InfError::LongName { line }),
                Some(c) => name.extend(c.to_lowercase()),
            }
            self.next();
        }
        self.skip_line();
        Ok(name.trim().trim_matches('"').to_owned())
    }

    /// An entry of at most `most` fields: to the end of its line, and of those that a `\` at the end joins to it.
    fn entry(&mut self, most: usize) -> Result<Entry, InfError> {
        let mut entry = Entry { line: self.line, ..Entry::default() };
        let mut field = Field::default();
        loop {
            match self.next() {
                None | Some('\n') => break,
                Some(';') => self.skip_line(),
                Some('"') => self.quoted(&mut field),
                Some('\\') if self.continues() => {}
                Some('=') if entry.key.is_none() && entry.fields.is_empty() => {
                    entry.key = Some(std::mem::take(&mut field).finish());
                }
                Some(',') => {
                    if entry.fields.len() >= most {
                        return Err(InfError::TooMany { line: self.line });
                    }
                    entry.fields.push(std::mem::take(&mut field).finish());
                }
                Some(c) => field.push(c),
            }
        }
        entry.fields.push(field.finish());
        Ok(entry)
    }

    /// What stands between quotes; a doubled quote is one. The end of the line ends it too.
    fn quoted(&mut self, field: &mut Field) {
        loop {
            match self.chars.peek() {
                None | Some('\n') => return,
                Some('"') => {
                    self.next();
                    if self.chars.peek() != Some(&'"') {
                        return;
                    }
                    field.push_quoted('"');
                    self.next();
                }
                Some(c) => {
                    field.push_quoted(*c);
                    self.next();
                }
            }
        }
    }

    /// After a `\`: whether only white space or a comment follow on the line. The next line is then gone to.
    fn continues(&mut self) -> bool {
        let mut ahead = self.chars.clone();
        loop {
            match ahead.next() {
                // At the end of the file there is nothing to go on with.
                None => break,
                Some('\n' | ';') => break,
                Some(c) if c.is_whitespace() => {}
                Some(_) => return false,
            }
        }
        self.skip_line();
        self.next();
        true
    }
}

/// A field as it grows: white space around it goes, but what was quoted stays.
#[derive(Default)]
struct Field {
    text: String,
    /// The length up to which white space at the end is kept.
    kept: usize,
}

impl Field {
    fn push(&mut self, c: char) {
        if self.text.is_empty() && c.is_whitespace() {
            return;
        }
        self.text.push(c);
        if !c.is_whitespace() {
            self.kept = self.text.len();
        }
    }

    fn push_quoted(&mut self, c: char) {
        self.text.push(c);
        self.kept = self.text.len();
    }

    fn finish(mut self) -> String {
        self.text.truncate(self.kept);
        self.text.shrink_to_fit();
        self.text
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn fields(text: &str) -> Vec<String> {
        let sections = Sections::parse(&format!("[s]\n{text}")).unwrap();
        let entries = sections.entries("S");
        assert_eq!(entries.len(), 1, "{entries:?}");
        let entry = &entries[0];
        entry.key.iter().chain(&entry.fields).cloned().collect()
    }

    #[test]
    fn entries_are_split_as_windows_does() {
        assert_eq!(fields(" key = a , b,,\"c, ;d\" ; comment\r\n"), ["key", "a", "b", "", "c, ;d"]);
        assert_eq!(fields("only a field"), ["only a field"]);
        assert_eq!(fields("a = b = c"), ["a", "b = c"]);
        assert_eq!(fields("a = \" kept \" "), ["a", " kept "]);
        assert_eq!(fields("a = \"say \"\"hi\"\"\""), ["a", "say \"hi\""]);
        assert_eq!(fields("a = b, \\ ; more\r\n  c, \\\r\n d"), ["a", "b", "c", "d"]);
        assert_eq!(fields("a = %12%\\b.sys"), ["a", "%12%\\b.sys"]);
        assert_eq!(fields("a = \"open"), ["a", "open"]);
        assert_eq!(fields("a = b\\"), ["a", "b"]);
        assert_eq!(fields("HKR,,Name,%REG%,\"%%Root%%\\x\""), ["HKR", "", "Name", "%REG%", "%%Root%%\\x"]);
    }

    #[test]
    fn sections_are_joined_without_case() {
        let sections = Sections::parse("[A]\nx=1\n[b] rest\ny=2\n[ a ]\nz=3\n[empty]").unwrap();
        let keys: Vec<_> = sections.entries("a").iter().map(|e| e.key.as_deref().unwrap()).collect();
        assert_eq!(keys, ["x", "z"]);
        assert_eq!(sections.entries("a")[1].line, 6);
        assert!(sections.entries("EMPTY").is_empty() && sections.entries("none").is_empty());
        assert!(matches!(Sections::parse("\n[a\nb]"), Err(InfError::OpenSection { line: 2 })));
        assert!(matches!(Sections::parse("\n\na=b"), Err(InfError::OutsideSection { line: 3 })));
    }

    #[test]
    fn strings_are_replaced_once() {
        let sections =
            Sections::parse("[Strings]\nA = \"x %b%\"\nB = 1\n[strings.0409]\nc = english").unwrap();
        let expand = |text| sections.expand(text, 1).unwrap();
        assert_eq!(expand("%a%, %B%"), "x %b%, 1");
        assert_eq!(expand("%12%\\%c%.sys"), "%12%\\english.sys");
        assert_eq!(expand("100%% of %"), "100% of %");
    }

    #[test]
    fn what_grows_is_bounded() {
        let long = format!("[Strings]\na = {}\n", "x".repeat(4000));
        let sections = Sections::parse(&long).unwrap();
        assert!(sections.expand("%a%", 7).is_ok());
        assert!(matches!(sections.expand("%a%%a%", 7), Err(InfError::TooLong { line: 7 })));
        let name = format!("[{}]", "n".repeat(MAX_NAME + 1));
        assert!(matches!(Sections::parse(&name), Err(InfError::LongName { line: 1 })));
        let many = format!("[s]\n{}", "a\n".repeat(MAX_ENTRIES + 1));
        assert!(matches!(Sections::parse(&many), Err(InfError::TooMany { .. })));
        let many = format!("[s]\n{}", ",".repeat(MAX_FIELDS + 1));
        assert!(matches!(Sections::parse(&many), Err(InfError::TooMany { line: 2 })));
    }
}
