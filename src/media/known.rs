//! Media whose hashes are public: a name for a hash.
//!
//! The table says what third parties recorded. It can tell that a file is what many others have; a hash that it does
//! not know says nothing.

use std::fmt;
use std::sync::LazyLock;

use super::Sha256;

/// The table: one medium a line, tab-separated, `#` for comments.
const TABLE: &str = include_str!("known_media.tsv");

static KNOWN: LazyLock<Vec<KnownMedium>> = LazyLock::new(|| TABLE.lines().filter_map(row).collect());

/// A medium that others have, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownMedium {
    /// Of the whole file.
    pub sha256: Sha256,
    /// In bytes, where that was recorded.
    pub size: Option<u64>,
    /// What it is, as `Windows 11 Enterprise evaluation` or `virtio-win`.
    pub product: &'static str,
    /// Windows' build, as `26100.1742`, or the drivers' version, as `0.1.271-1`; empty where none was recorded.
    pub version: &'static str,
    /// Of a Windows medium, as `en-us`.
    pub language: Option<&'static str>,
    /// Where it was recorded.
    pub source: &'static str,
}

/// As `Windows 11 Enterprise evaluation, 26100.1742, en-us`.
impl fmt::Display for KnownMedium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.product)?;
        if !self.version.is_empty() {
            write!(f, ", {}", self.version)?;
        }
        self.language.map_or(Ok(()), |language| write!(f, ", {language}"))
    }
}

/// The medium with that hash.
pub fn known(sha256: &Sha256) -> Option<&'static KnownMedium> {
    KNOWN.iter().find(|medium| medium.sha256 == *sha256)
}

impl KnownMedium {
    /// Whether `version`, of a medium at hand, is this one's. A virtio-win medium does not say the number of its
    /// release: `0.1.271` is `0.1.271-1`.
    pub fn is_version(&self, version: &str) -> bool {
        let rest = self.version.strip_prefix(version);
        !version.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }
}

/// Every recorded virtio-win medium of `version`, which has no release number where the label has none:
/// `0.1.271` is `0.1.271-1` too. A version does not identify bytes: 0.1.271-1 was replaced in place.
pub fn known_drivers(version: &str) -> impl Iterator<Item = &'static KnownMedium> {
    KNOWN.iter().filter(move |medium| medium.product == "virtio-win" && medium.is_version(version))
}

fn row(line: &'static str) -> Option<KnownMedium> {
    let mut fields = line.split('\t');
    let sha256 = fields.next()?.parse().ok()?;
    let size = fields.next()?.parse().ok();
    let (product, version) = (fields.next()?, fields.next()?);
    let language = Some(fields.next()?).filter(|language| !language.is_empty());
    Some(KnownMedium { sha256, size, product, version, language, source: fields.next()? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_whole_table_is_read() {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(lines.count(), KNOWN.len());
        for (index, medium) in KNOWN.iter().enumerate() {
            assert!(!KNOWN[..index].iter().any(|other| other.sha256 == medium.sha256), "{medium} twice");
            assert!(!medium.product.is_empty() && !medium.source.is_empty(), "{medium}");
        }
    }

    #[test]
    fn a_hash_has_a_name() {
        let name = |hash: &str| known(&hash.parse().unwrap()).map(ToString::to_string);
        assert_eq!(
            name("755a90d43e826a74b9e1932a34788b898e028272439b777e5593dee8d53622ae").as_deref(),
            Some("Windows 11 Enterprise evaluation, 26100.1742, en-us")
        );
        assert_eq!(
            name("e14cf2b94492c3e925f0070ba7fdfedeb2048c91eea9c5a5afb30232a3976331").as_deref(),
            Some("virtio-win, 0.1.285")
        );
        assert_eq!(name(&"ab".repeat(32)), None);
    }

    #[test]
    fn one_version_may_have_several_hashes() {
        assert_eq!(known_drivers("0.1.271").count(), 2);
        assert_eq!(known_drivers("0.1.271-1").count(), 2);
        assert_eq!(known_drivers("0.1.27").count(), 0);
        assert_eq!(known_drivers("0.1.285").count(), 1);
    }
}
