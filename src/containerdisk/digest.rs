//! SHA-256 digests as OCI writes them: `sha256:` and 64 lower-case hex digits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// The SHA-256 digest of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// Not a digest of the one kind that is used here.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is no digest: sha256: and 64 lower-case hex digits are expected")]
pub struct DigestError {
    text: String,
}

impl Digest {
    /// Hashes bytes at hand.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// What a running hash came to.
    pub fn from_hash(hash: Sha256) -> Self {
        Self(hash.finalize().into())
    }

    /// The 64 hex digits alone: a blob's file name in an OCI layout.
    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let mut bytes = [0; 32];
        // Upper case would be a second spelling of the same digest, which OCI forbids.
        text.strip_prefix("sha256:")
            .filter(|digits| !digits.bytes().any(|b| b.is_ascii_uppercase()))
            .and_then(|digits| hex::decode_to_slice(digits, &mut bytes).ok())
            .map(|()| Self(bytes))
            .ok_or_else(|| DigestError { text: text.chars().take(100).collect() })
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_the_one_spelling_is_read() {
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), text);
        assert_eq!(text.parse::<Digest>().unwrap(), Digest::of(b""));
        for bad in [
            "",
            "sha256:",
            "sha512:00",
            &text[..70],
            &text.to_uppercase(),
            &format!("{text}0"),
            "sha256:../../x",
        ] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
        assert!(text.replace('e', "E").parse::<Digest>().is_err());
    }
}
