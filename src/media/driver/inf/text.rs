//! The characters of an INF file: which encoding it has.

use super::InfError;

/// Windows-1252 from 0x80 to 0x9f; the five bytes that it leaves out are the C1 controls, as Windows has them.
/// The rest is Latin-1. Source: Unicode's table bestfit1252.txt.
const WINDOWS_1252: [char; 32] = [
    '\u{20ac}', '\u{81}', '\u{201a}', '\u{192}', '\u{201e}', '\u{2026}', '\u{2020}', '\u{2021}', '\u{2c6}',
    '\u{2030}', '\u{160}', '\u{2039}', '\u{152}', '\u{8d}', '\u{17d}', '\u{8f}', '\u{90}', '\u{2018}',
    '\u{2019}', '\u{201c}', '\u{201d}', '\u{2022}', '\u{2013}', '\u{2014}', '\u{2dc}', '\u{2122}', '\u{161}',
    '\u{203a}', '\u{153}', '\u{9d}', '\u{17e}', '\u{178}',
];

/// The text of an INF file: by its byte order mark; without one UTF-8, and where it is not that, Windows-1252.
///
/// Windows takes a file without a mark to be in the machine's ANSI code page, so the two differ only in what is
/// shown: names of files are ASCII.
pub(super) fn decode(bytes: &[u8]) -> Result<String, InfError> {
    let text = match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest)?,
        [0xfe, 0xff, ..] => return Err(InfError::BigEndian),
        [0xef, 0xbb, 0xbf, rest @ ..] => ansi(rest),
        _ => ansi(bytes),
    };
    match text.find('\0') {
        Some(at) => Err(InfError::NotText { line: 1 + text[..at].bytes().filter(|b| *b == b'\n').count() }),
        None => Ok(text),
    }
}

fn utf16(bytes: &[u8]) -> Result<String, InfError> {
    if !bytes.len().is_multiple_of(2) {
        return Err(InfError::HalfCharacter);
    }
    let units = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    Ok(char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
}

fn ansi(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes
            .iter()
            .map(|byte| match byte {
                0x80..=0x9f => WINDOWS_1252[usize::from(*byte - 0x80)],
                _ => char::from(*byte),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn encodings() {
        let text = "Gr\u{f6}\u{df}e \u{20ac}\u{2122}\r\n";
        let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(decode(text.as_bytes()).unwrap(), text);
        assert_eq!(decode(&[b"\xef\xbb\xbf", text.as_bytes()].concat()).unwrap(), text);
        assert_eq!(decode(&[b"\xff\xfe".as_slice(), &utf16].concat()).unwrap(), text);
        assert_eq!(decode(b"Gr\xf6\xdfe \x80\x99\r\n").unwrap(), text);
        assert_eq!(decode(b"").unwrap(), "");
    }

    #[test]
    fn what_is_no_text_is_refused() {
        assert!(matches!(decode(b"a\nb\nc\0"), Err(InfError::NotText { line: 3 })));
        assert!(matches!(decode(b"\xfe\xff\0["), Err(InfError::BigEndian)));
        assert!(matches!(decode(b"\xff\xfea"), Err(InfError::HalfCharacter)));
        // A lone surrogate is no reason to give up.
        assert_eq!(decode(b"\xff\xfe\x00\xd8").unwrap(), "\u{fffd}");
    }
}
