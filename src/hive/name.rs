//! Names of keys and values: how they are stored, and when two are the same.

/// A name as stored: Latin-1, one byte a character, or UTF-16LE.
pub(super) fn decode(bytes: &[u8], latin1: bool) -> Vec<u16> {
    if latin1 { bytes.iter().map(|b| u16::from(*b)).collect() } else { utf16(bytes) }
}

/// The bytes to store a name in, and whether they are Latin-1; Windows stores so whatever fits.
pub(super) fn encode(name: &[u16]) -> (Vec<u8>, bool) {
    match name.iter().map(|unit| u8::try_from(*unit)).collect::<Result<Vec<u8>, _>>() {
        Ok(bytes) => (bytes, true),
        Err(_) => (name.iter().flat_map(|unit| unit.to_le_bytes()).collect(), false),
    }
}

/// UTF-16LE units; a last odd byte is left out.
pub(super) fn utf16(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
}

/// Whether two names are the same to the registry: case does not count.
pub(super) fn same(a: &[u16], b: &[u16]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| upcase(*a) == upcase(*b))
}

/// The hash that `lh` lists carry of a name.
pub(super) fn hash(name: &[u16]) -> u32 {
    name.iter().fold(0u32, |hash, unit| hash.wrapping_mul(37).wrapping_add(u32::from(upcase(*unit))))
}

/// One unit in upper case, by the rule of the kernel's table: one unit to one unit.
///
/// Unlike Unicode's, that table maps nothing into ASCII from outside, and leaves the micro sign alone.
fn upcase(unit: u16) -> u16 {
    if unit < 0x80 {
        return u16::from((unit as u8).to_ascii_uppercase());
    }
    let Some(character) = char::from_u32(u32::from(unit)) else { return unit };
    let mut upper = character.to_uppercase();
    match (upper.next().map(u32::from).map(u16::try_from), upper.next()) {
        (Some(Ok(one)), None) if one >= 0x80 && unit != 0xb5 => one,
        _ => unit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(text: &str) -> Vec<u16> {
        text.encode_utf16().collect()
    }

    #[test]
    fn case_does_not_count() {
        assert!(same(&units("UnattendFile"), &units("UNATTENDFILE")));
        assert!(same(&units("größe"), &units("GRÖßE")));
        assert!(!same(&units("a"), &units("ab")));
        // Unicode would have these the same; the registry keeps them apart.
        assert!(!same(&units("ı"), &units("I")));
        assert!(!same(&units("µ"), &units("Μ")));
        assert!(same(&[0xd800], &[0xd800]));
    }

    #[test]
    fn names_are_stored_as_windows_does() {
        assert_eq!(encode(&units("ü")), (vec![0xfc], true));
        assert_eq!(encode(&units("Ω")), (vec![0xa9, 0x03], false));
        for name in ["", "Setup", "ü", "Ω😀"] {
            let (bytes, latin1) = encode(&units(name));
            assert_eq!(decode(&bytes, latin1), units(name));
        }
    }

    #[test]
    fn the_hash_is_that_of_real_lists() {
        assert_eq!(hash(&units("Setup")), hash(&units("SETUP")));
        // 'A' * 37 + 'B'
        assert_eq!(hash(&units("ab")), 65 * 37 + 66);
    }
}
