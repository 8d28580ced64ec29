//! Driver versions that others had trouble with: a warning, never a failure.

use std::ops::RangeInclusive;

use serde::Serialize;

use super::inf::DriverVersion;

/// Trouble with some versions of a virtio-win driver.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct KnownBad {
    /// The drivers, by the names of their INF files without `.inf`.
    pub drivers: &'static [&'static str],
    /// The fourth numbers of their versions: a hundred times the last number of virtio-win's, 26600 for 0.1.266.
    #[serde(skip)]
    pub builds: RangeInclusive<u16>,
    /// The first Windows build it is of, 26100 say; none: of all.
    pub since_windows: Option<u32>,
    /// What happens, and what helps.
    pub what: &'static str,
    /// Where it is told.
    pub source: &'static str,
}

/// What is known, with where it is told.
const KNOWN: &[KnownBad] = &[
    KnownBad {
        drivers: &["vioscsi", "viostor"],
        builds: 28500..=29200,
        since_windows: None,
        what: "reads fail and are repeated under parallel load, most on Server 2025 with SQL Server: requests get \
               one identifier twice; take 0.1.271, or a version after 0.1.292 that has the fix",
        source: "https://github.com/virtio-win/kvm-guest-drivers-windows/issues/1453",
    },
    KnownBad {
        drivers: &["viostor"],
        builds: 28500..=28500,
        since_windows: None,
        what: "a blue screen (0x1a, 0x3f) is reported when much is paged: what comes back from the pagefile is \
               wrong; 0.1.271 did not fail",
        source: "https://github.com/virtio-win/kvm-guest-drivers-windows/issues/1614",
    },
    KnownBad {
        drivers: &["vioscsi"],
        builds: 0..=25799,
        since_windows: Some(26100),
        what: "Setup of 24H2 and Server 2025 fails where its ISO is a CD of the virtio SCSI controller: attach the \
               ISO as a SATA CD, or take 0.1.258 or later",
        source: "https://github.com/virtio-win/kvm-guest-drivers-windows/issues/1100",
    },
    KnownBad {
        drivers: &["vioscsi"],
        builds: 21500..=24800,
        since_windows: None,
        what: "\"Reset to device, \\Device\\RaidPort, was issued\" and a hanging system under parallel load are \
               reported; 0.1.208 did not fail",
        source: "https://github.com/virtio-win/kvm-guest-drivers-windows/issues/756",
    },
    KnownBad {
        drivers: &["viostor"],
        builds: 21700..=21700,
        since_windows: None,
        what: "Setup of Windows 10 21H2 is reported to stop at 94 % with 0.1.217-1; 0.1.215-2 did not fail",
        source: "https://github.com/virtio-win/kvm-guest-drivers-windows/issues/761",
    },
];

/// What is known of a version of a driver on a Windows build; where that is not known, of all builds.
///
/// `driver` is the name of its INF without `.inf`, in any case.
pub fn known_bad(
    driver: &str,
    version: DriverVersion,
    windows_build: Option<u32>,
) -> impl Iterator<Item = &'static KnownBad> {
    KNOWN.iter().filter(move |known| {
        let DriverVersion([.., build]) = version;
        let is_windows = known.since_windows.zip(windows_build).is_none_or(|(since, is)| is >= since);
        is_windows
            && known.builds.contains(&build)
            && known.drivers.iter().any(|name| name.eq_ignore_ascii_case(driver))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn sources(driver: &str, version: &str, windows: Option<u32>) -> Vec<&'static str> {
        known_bad(driver, version.parse().unwrap(), windows)
            .map(|known| known.source.rsplit('/').next().unwrap())
            .collect()
    }

    #[test]
    fn versions_and_builds() {
        assert_eq!(sources("vioscsi", "100.92.104.22900", Some(26100)), ["1100", "756"]);
        assert_eq!(sources("VIOSCSI", "100.92.104.22900", Some(22631)), ["756"]);
        assert_eq!(sources("vioscsi", "100.95.104.25800", Some(26100)), [""; 0]);
        assert_eq!(sources("vioscsi", "62.73.104.20800", None), ["1100"]);
        assert_eq!(sources("viostor", "100.101.104.28500", None), ["1453", "1614"]);
        assert_eq!(sources("viostor", "100.101.104.29200", None), ["1453"]);
        assert_eq!(sources("viostor", "100.100.104.27100", None), [""; 0]);
        assert_eq!(sources("netkvm", "100.101.104.28500", None), [""; 0]);
    }

    #[test]
    fn each_says_what_and_where() {
        for known in KNOWN {
            assert!(known.source.starts_with("https://") && !known.what.is_empty());
        }
    }
}
