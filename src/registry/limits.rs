//! What registries are known to refuse, so that it can be said before hours of upload.

use std::time::Duration;

/// A registry's limits on one layer.
#[derive(Debug, PartialEq, Eq)]
pub struct Limit {
    /// The host it is known of; hosts below it are meant as well.
    pub host: &'static str,
    /// The largest layer, in bytes.
    pub layer: u64,
    /// How long an upload may take.
    pub time: Option<Duration>,
}

/// Where each comes from is said beside it.
const KNOWN: [Limit; 3] = [
    // GitHub, "Working with the Container registry": 10 GB for each layer, 10 minutes for uploads.
    Limit { host: "ghcr.io", layer: 10_000_000_000, time: Some(Duration::from_secs(600)) },
    // The same service for GitHub Enterprise Cloud with data residency: containers.NAME.ghe.com.
    Limit { host: "ghe.com", layer: 10_000_000_000, time: Some(Duration::from_secs(600)) },
    // Quay, MAXIMUM_LAYER_SIZE: 20G unless configured otherwise.
    Limit { host: "quay.io", layer: 20 << 30, time: None },
];

impl Limit {
    /// What is known of a registry, given as `HOST[:PORT]`.
    pub fn of(host: &str) -> Option<&'static Self> {
        let name = host.split(':').next().unwrap_or_default().to_ascii_lowercase();
        let is =
            |known: &&Self| name.strip_suffix(known.host).is_some_and(|l| l.is_empty() || l.ends_with('.'));
        KNOWN.iter().find(is)
    }

    /// Whether a layer of `size` bytes is, or may be, too much for it: too large, or not through in its time at
    /// 100 Mbit/s.
    pub(super) fn may_refuse(&self, size: u64) -> bool {
        const BYTES_PER_SECOND: u64 = 12_500_000;
        size > self.layer || self.time.is_some_and(|time| size / BYTES_PER_SECOND > time.as_secs())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_the_hosts_that_are_known_have_limits() {
        let ghcr = Limit::of("ghcr.io").unwrap();
        assert_eq!(Limit::of("GHCR.io:443"), Some(ghcr));
        assert_eq!(Limit::of("containers.acme.ghe.com").unwrap().layer, 10_000_000_000);
        for other in ["notghcr.io", "ghcr.io.example", "localhost:5000", "[::1]:5000"] {
            assert_eq!(Limit::of(other), None, "{other}");
        }
        assert!(ghcr.may_refuse(10_000_000_001) && ghcr.may_refuse(8_000_000_000));
        assert!(!ghcr.may_refuse(7_000_000_000));
        let quay = Limit::of("quay.io").unwrap();
        assert!(quay.may_refuse((20 << 30) + 1) && !quay.may_refuse(20 << 30));
    }
}
