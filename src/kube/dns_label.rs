//! Names of namespaces and Secrets.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A DNS label (RFC 1123): 1 to 63 small letters, digits and inner hyphens.
///
/// A Secret's name might be longer and hold dots; the narrower rule also lets it name volumes and files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsLabel(String);

/// Why a text is not a DNS label.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{value:?} is not a DNS label: 1 to 63 characters from a-z, 0-9 and inner hyphens")]
pub struct DnsLabelError {
    value: String,
}

impl DnsLabel {
    /// The label.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DnsLabel {
    type Err = DnsLabelError;

    fn from_str(text: &str) -> Result<Self, DnsLabelError> {
        let good = (1..=63).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !text.starts_with('-')
            && !text.ends_with('-');
        if good { Ok(Self(text.to_owned())) } else { Err(DnsLabelError { value: text.to_owned() }) }
    }
}

impl fmt::Display for DnsLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels() {
        let long = "a".repeat(63);
        for good in ["a", "0", "windows11-private", &long] {
            assert!(good.parse::<DnsLabel>().is_ok(), "{good}");
        }
        let longer = "a".repeat(64);
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "ä", "a\n", &longer] {
            assert!(bad.parse::<DnsLabel>().is_err(), "{bad}");
        }
    }
}
