//! A recipe's text, and where in it a byte stands.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::problem::{Excerpt, Place, Problem, Problems};

/// The largest recipe read, in bytes; real ones have a few thousand.
const MAX_SIZE: usize = 1 << 20;
/// Characters of a line that are shown around a problem.
const SHOWN: usize = 100;

/// Reads at most one byte more than a recipe may have. A FIFO or standard input will do.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_SIZE as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a recipe.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub path: &'a Path,
    /// What places in it are told by, where it is not the recipe itself.
    pub included: Option<String>,
    /// The file as it is.
    pub bytes: &'a [u8],
    /// The same, decoded.
    pub text: &'a str,
}

impl<'a> Source<'a> {
    /// Decodes the file; what is no UTF-8 text of a sensible size is refused here.
    pub fn new(path: &'a Path, included: Option<String>, bytes: &'a [u8]) -> Result<Self, Problems> {
        let refuse = |place, message: String, help: &str| {
            let problem =
                Problem { place, key: String::new(), message, help: Some(help.into()), excerpt: None };
            Err(Problems::new(path, vec![problem]))
        };
        let start = Place::File { file: included.clone(), line: 1, column: 1 };
        if bytes.len() > MAX_SIZE {
            return refuse(
                start,
                format!("this is larger than {MAX_SIZE} bytes, so it is no recipe"),
                "was a medium named instead of the recipe?",
            );
        }
        if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
            return refuse(start, "this is UTF-16 text; a recipe is UTF-8".into(), "save it as UTF-8");
        }
        match std::str::from_utf8(bytes) {
            // The mark some editors put in front of UTF-8 means nothing.
            Ok(text) => {
                Ok(Self { path, included, bytes, text: text.strip_prefix('\u{feff}').unwrap_or(text) })
            }
            Err(e) => {
                let valid = std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or_default();
                let source = Self { path, included, bytes, text: valid };
                refuse(
                    source.place(valid.len()),
                    format!("byte {:#04x} is no UTF-8", bytes[valid.len()]),
                    "save the recipe as UTF-8; is this a text file at all?",
                )
            }
        }
    }

    /// Line and column of a byte, both counted from 1, columns in characters.
    pub fn place(&self, at: usize) -> Place {
        let before = &self.text[..self.text.floor_char_boundary(at)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Place::File {
            file: self.included.clone(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    /// The line that `span` begins on, ready to be shown, with the part of it that is meant.
    pub fn excerpt(&self, span: &Range<usize>) -> Excerpt {
        let start = self.text.floor_char_boundary(span.start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text[line_start..].split('\n').next().unwrap_or_default();
        let line = mask(line.strip_suffix('\r').unwrap_or(line));
        let column = self.text[line_start..start].chars().count();
        let end = self.text.floor_char_boundary(span.end).max(start);
        let width = self.text[start..end].split('\n').next().unwrap_or_default().trim_end().chars().count();

        // Long lines are shown in part: what a terminal can hold.
        let skipped = if column + width.min(SHOWN / 2) > SHOWN { column - SHOWN / 4 } else { 0 };
        let shown: String = line.chars().skip(skipped).take(SHOWN).map(printable).collect();
        let column = (column - skipped).min(shown.chars().count());
        let width = width.clamp(1, (shown.chars().count() - column).max(1));
        Excerpt { line: shown, column, width }
    }
}

/// One character in the terminal for each in the line, and none that a terminal acts on.
fn printable(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// A line with the value of a key that names a secret blanked: no secret may reach a log, even from a file that
/// should not have held it.
fn mask(line: &str) -> Cow<'_, str> {
    match line.split_once('=') {
        Some((key, _)) if names_secret(key) => Cow::Owned(format!("{key}= (not shown)")),
        _ if line.split(['"', '\'', ' ', '=']).any(is_product_key) => {
            Cow::Borrowed("(a product key; not shown)")
        }
        _ => Cow::Borrowed(line),
    }
}

/// Whether a key's name says that its value is secret. A file that holds one may be named.
pub(super) fn names_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase().replace(['_', '-'], "");
    !key.trim_end().ends_with("file")
        && ["password", "passwd", "passphrase", "secret", "token", "productkey", "privatekey", "credential"]
            .iter()
            .any(|word| key.contains(word))
}

/// Five groups of five letters and digits.
pub(super) fn is_product_key(text: &str) -> bool {
    let groups: Vec<_> = text.split('-').collect();
    groups.len() == 5
        && groups.iter().all(|group| group.len() == 5 && group.bytes().all(|b| b.is_ascii_alphanumeric()))
}

/// The folder that file names in a recipe start from.
pub(super) fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.into(),
        _ => ".".into(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn excerpt(text: &str, span: Range<usize>) -> Excerpt {
        Source { path: Path::new("x"), included: None, bytes: text.as_bytes(), text }.excerpt(&span)
    }

    #[test]
    fn a_long_line_is_shown_around_the_problem() {
        let text = format!("{}here{}", "x".repeat(500), "y".repeat(500));
        let shown = excerpt(&text, 500..504);
        assert_eq!(shown.line.len(), SHOWN);
        assert_eq!(&shown.line[shown.column..shown.column + shown.width], "here");
    }

    #[test]
    fn nothing_that_a_terminal_acts_on_is_shown() {
        let shown = excerpt("a\t\u{1b}[31m = 1\r\n", 0..1);
        assert_eq!(shown.line, "a \u{fffd}[31m = 1");
    }

    #[test]
    fn secrets_are_not_shown() {
        for line in ["admin_password = \"hunter2\"", "a.Token=\"hunter2\"", "product-key = 'hunter2'"] {
            assert!(!excerpt(line, 0..3).line.contains("hunter2"), "{line}");
        }
        assert!(!excerpt("key = \"ABCDE-12345-ABCDE-12345-ABCDE\"", 0..3).line.contains("12345"));
        assert!(excerpt("password_file = \"there\"", 0..3).line.contains("there"));
    }

    #[test]
    fn spans_past_the_end_are_harmless() {
        assert_eq!(excerpt("ab", 9..12), Excerpt { line: "ab".into(), column: 2, width: 1 });
        assert_eq!(excerpt("", 0..0), Excerpt { line: String::new(), column: 0, width: 1 });
    }
}
