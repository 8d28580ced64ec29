//! Names as a directory record has them.

use super::super::Tree;

/// A record's name as it is shown, or `None` where nothing of it is left.
pub(super) fn decode(bytes: &[u8], tree: Tree) -> Option<String> {
    let name = match tree {
        Tree::Joliet => {
            let units = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        _ => bytes_as_text(bytes),
    };
    let name = without_version(&name);
    // A plain name without an extension keeps the dot (ECMA-119 7.5.1).
    let name = if tree == Tree::Plain { name.strip_suffix('.').unwrap_or(name) } else { name };
    (!name.is_empty()).then(|| name.to_owned())
}

/// Bytes of a character set that nothing names: UTF-8 where they are that, else Latin-1.
pub(super) fn bytes_as_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
    }
}

/// Without `;1`: a file's version.
fn without_version(name: &str) -> &str {
    match name.rsplit_once(';') {
        Some((name, version)) if !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn versions_and_empty_extensions_are_left_out() {
        let plain = |name: &str| decode(name.as_bytes(), Tree::Plain);
        assert_eq!(plain("README.TXT;1").unwrap(), "README.TXT");
        assert_eq!(plain("SOURCES.;1").unwrap(), "SOURCES");
        assert_eq!(plain("A;B").unwrap(), "A;B");
        assert_eq!(plain(".;1"), None);
        assert_eq!(decode(b"\0a\0;\x001", Tree::Joliet).unwrap(), "a");
        assert_eq!(decode("\u{e9}.".as_bytes(), Tree::Enhanced).unwrap(), "\u{e9}.");
        assert_eq!(decode(b"\xe9", Tree::Enhanced).unwrap(), "\u{e9}");
    }
}
