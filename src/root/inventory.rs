//! What is installed on a root: services and driver packages, as SYSTEM lists them.

use serde::Serialize;

use super::RootError;
use super::hives::LogReplay;
use super::installation::Installation;
use super::windows_volume::WindowsVolume;
use crate::io::ReadAt;

/// The store of driver packages, one key each: `NAME.inf_ARCHITECTURE_HASH`.
const PACKAGES: &str = "DriverDatabase\\DriverPackages";
/// In a package's `Version`, a REG_BINARY: the architecture, the class, a FILETIME, and from here on four numbers of 16
/// bits, the last of the version's first. Seen in hives of Windows 10: 10.0.16299.309 is `35 01 AB 3F 00 00 0A 00`.
const VERSION_AT: usize = 32;

/// Services and drivers of a root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inventory {
    /// Services and drivers that Windows starts, in the registry's order, which is that of their names.
    pub services: Vec<Service>,
    /// Driver packages in the store, Windows' own among them. Before Windows 8 there is no such list.
    pub driver_packages: Vec<DriverPackage>,
}

/// A service or driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// Its key below `Services`.
    pub name: String,
    /// `Start`: 0 at boot, 1 by the kernel, 2 automatically, 3 on demand, 4 never.
    pub start: Option<u32>,
    /// `Type`: 1 and 2 are drivers, 16 and 32 services.
    pub kind: Option<u32>,
    /// `ImagePath`
    pub image_path: Option<String>,
}

/// A driver package in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DriverPackage {
    /// `netkvm.inf_amd64_...`: the name that its maker gave it, the architecture, and a hash of its content.
    pub name: String,
    /// `oem3.inf` for a package that was added to Windows.
    pub published_name: Option<String>,
    /// `Red Hat, Inc.`
    pub provider: Option<String>,
    /// `100.101.104.24000`
    pub version: Option<String>,
}

impl DriverPackage {
    /// `netkvm.inf`
    pub fn inf(&self) -> &str {
        let end = self.name.to_ascii_lowercase().find(".inf_").map(|at| at + ".inf".len());
        end.and_then(|end| self.name.get(..end)).unwrap_or(&self.name)
    }

    /// Whether it was added to Windows.
    pub fn is_added(&self) -> bool {
        let name = self.published_name.as_deref().unwrap_or_default();
        name.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("oem"))
    }
}

/// Lists what is installed on the root on `disk`.
pub fn inventory(disk: &dyn ReadAt, replay: LogReplay) -> Result<Inventory, RootError> {
    let windows = WindowsVolume::find(disk)?;
    let installation = Installation::open(&windows, replay)?;
    let mut services = Vec::new();
    if let Some(key) = installation.system.key(&installation.in_control_set("Services")?)? {
        for service in key.subkeys()? {
            let (start, kind) = (service.number("Start")?, service.number("Type")?);
            // A key without both belongs to a service of another name, or holds settings only.
            if start.is_some() || kind.is_some() {
                let image_path = service.string("ImagePath")?;
                services.push(Service { name: service.name(), start, kind, image_path });
            }
        }
    }
    let mut driver_packages = Vec::new();
    if let Some(key) = installation.system.key(PACKAGES)? {
        for package in key.subkeys()? {
            driver_packages.push(DriverPackage {
                name: package.name(),
                published_name: package.string("")?,
                provider: package.string("Provider")?,
                version: package.data("Version")?.as_deref().and_then(version),
            });
        }
    }
    Ok(Inventory { services, driver_packages })
}

fn version(value: &[u8]) -> Option<String> {
    let numbers: &[u8; 8] = value.get(VERSION_AT..)?.first_chunk()?;
    let parts = numbers.chunks_exact(2).rev().map(|part| u16::from_le_bytes([part[0], part[1]]).to_string());
    Some(parts.collect::<Vec<_>>().join("."))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_version_is_read_from_where_windows_writes_it() {
        // acpi.inf of Windows 10, version 1709.
        let value = "ffff0900000000007de9364d25e3ce11bfc108002be1031800808ca3c594c6013501ab3f00000a000000000000000000";
        assert_eq!(version(&hex::decode(value).unwrap()).unwrap(), "10.0.16299.309");
        assert_eq!(version(&[0; 39]), None);
    }

    #[test]
    fn a_package_is_known_by_its_inf() {
        let package = |name: &str, published: &str| DriverPackage {
            name: name.into(),
            published_name: Some(published.into()),
            provider: None,
            version: None,
        };
        let added = package("netkvm.inf_amd64_0123456789abcdef", "oem3.inf");
        assert!(added.inf() == "netkvm.inf" && added.is_added());
        let own = package("ACPI.INF_amd64_93fd8bdd92e92793", "acpi.inf");
        assert!(own.inf() == "ACPI.INF" && !own.is_added());
        assert_eq!(package("odd", "").inf(), "odd");
    }
}
