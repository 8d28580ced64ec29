//! A SHA-256 value that a recipe pins a file with.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::Digest as _;
use thiserror::Error;

/// A SHA-256 value; shown as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sha256([u8; 32]);

/// Why a text is no pin.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PinError {
    /// The text is as long as another hash.
    #[error(
        "this is as long as an {name} value ({digits} hexadecimal digits); only SHA-256 identifies a medium"
    )]
    OtherHash {
        /// The other hash.
        name: &'static str,
        /// How many digits it has.
        digits: usize,
    },
    /// An algorithm is named in front of the digits.
    #[error("a pin is the 64 hexadecimal digits alone, without `{prefix}` in front")]
    Prefix {
        /// Everything up to the colon.
        prefix: String,
    },
    /// Some other length.
    #[error("a SHA-256 value has 64 hexadecimal digits, this has {length} characters")]
    Length {
        /// The characters given.
        length: usize,
    },
    /// A character that is no digit.
    #[error("`{}` (character {position}) is no hexadecimal digit", character.escape_debug())]
    Digit {
        /// The first such character.
        character: char,
        /// Where it stands, counted from 1.
        position: usize,
    },
    /// One digit, 64 times: a place-holder.
    #[error("a pin of nothing but `{digit}` is a place-holder, not the hash of a file")]
    PlaceHolder {
        /// The digit.
        digit: char,
    },
}

impl Sha256 {
    /// Hashes bytes at hand.
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// From the raw hash.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl FromStr for Sha256 {
    type Err = PinError;

    fn from_str(text: &str) -> Result<Self, PinError> {
        if let Some((prefix, _)) = text.split_once(':') {
            return Err(PinError::Prefix { prefix: format!("{prefix}:") });
        }
        let length = text.chars().count();
        if let Some((at, character)) = text.chars().enumerate().find(|(_, c)| !c.is_ascii_hexdigit()) {
            // A text of another length altogether is better named by its length.
            return Err(if length == 64 {
                PinError::Digit { character, position: at + 1 }
            } else {
                PinError::Length { length }
            });
        }
        for (name, digits) in [("MD5", 32), ("SHA-1", 40), ("SHA-384", 96), ("SHA-512", 128)] {
            if length == digits {
                return Err(PinError::OtherHash { name, digits });
            }
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| PinError::Length { length })?;
        match text.chars().next() {
            Some(digit) if text.chars().all(|c| c == digit) => Err(PinError::PlaceHolder { digit }),
            _ => Ok(Self(bytes)),
        }
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Sha256 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sha256 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Sha256 {
    fn schema_name() -> Cow<'static, str> {
        "Sha256".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "SHA-256 of the file, as 64 hexadecimal digits.",
            "pattern": "^[0-9A-Fa-f]{64}$",
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Sha256>().unwrap_err().to_string()
    }

    #[test]
    fn a_pin_is_64_hexadecimal_digits() {
        let pin = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(pin.parse::<Sha256>().unwrap().to_string(), pin);
        assert_eq!(pin.to_uppercase().parse::<Sha256>().unwrap().to_string(), pin);
        assert!(error(&pin[1..]).contains("63 characters"));
        assert!(error(&format!("sha256:{pin}")).contains("without `sha256:`"));
        assert!(error(&format!("g{}", &pin[1..])).contains("`g` (character 1)"));
        assert!(error("").contains("0 characters"));
        assert!(error("https").contains("5 characters"));
    }

    #[test]
    fn other_hashes_and_place_holders_are_named() {
        assert!(error("d41d8cd98f00b204e9800998ecf8427e").contains("MD5"));
        assert!(error("da39a3ee5e6b4b0d3255bfef95601890afd80709").contains("SHA-1"));
        assert!(error(&"ab".repeat(64)).contains("SHA-512"));
        assert!(error(&"0".repeat(64)).contains("place-holder"));
        assert!(error(&"F".repeat(64)).contains("place-holder"));
    }
}
