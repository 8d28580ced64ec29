//! The small text files of Windows media: their encodings, and the sections of .inf, .ini and .cfg files.

/// The text of a file: UTF-16LE or UTF-8 by its mark, else UTF-8 if it is that, else Windows-1252's common part.
pub(super) fn decode(bytes: &[u8]) -> String {
    if let Some(units) = bytes.strip_prefix(b"\xff\xfe") {
        let units = units.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
        return char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
    }
}

/// The lines of all sections of that name, without comments and blank lines. Names are compared without case; a
/// section that stands twice is one. A line that ends in `\` goes on in the next.
pub(super) fn section(text: &str, name: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut inside, mut joined) = (false, String::new());
    for line in text.lines() {
        let line = without_comment(line).trim();
        if let Some(part) = line.strip_suffix('\\') {
            joined.push_str(part);
            continue;
        }
        joined.push_str(line);
        let line = std::mem::take(&mut joined);
        if let Some(header) = line.strip_prefix('[') {
            inside = header.split(']').next().is_some_and(|header| header.trim().eq_ignore_ascii_case(name));
        } else if inside && !line.is_empty() {
            lines.push(line);
        }
    }
    lines
}

/// Key and value of a line; the value without quotes around it.
pub(super) fn pair(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once('=')?;
    let value = value.trim();
    let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    Some((key.trim(), bare.unwrap_or(value)))
}

/// The line up to a `;` that is not in quotes.
fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            ';' if !quoted => return &line[..at],
            _ => {}
        }
    }
    line
}
