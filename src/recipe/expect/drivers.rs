//! The drivers that the recipe needs: their folders for its Windows, and the catalogs that vouch for them.

use serde::Serialize;

use super::{Difference, Found, Recipe, shown};
use crate::io::ReadAt;
use crate::iso::{Disc, Entry, Kind};
use crate::media::driver::{DriverVersion, FolderFile, Judge, Proof, known_bad, prove};
use crate::media::{DriverFolder, DriverMedium, MediumError};
use crate::recipe::section::nearest;
use crate::recipe::{Architecture, VirtioOs};

/// What was found on a driver medium.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DriversFound {
    /// The release that the label names.
    pub version: Option<String>,
    /// The guest agent's installers.
    pub guest_agent: Vec<String>,
    /// The folders that the recipe needs, proved.
    pub folders: Vec<ProvedFolder>,
}

/// A driver's folder, all of whose packages are as their catalogs have them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvedFolder {
    /// The driver, as the recipe has it.
    pub driver: String,
    /// The folder's path on the medium.
    pub path: String,
    /// A proof for each INF in it.
    pub packages: Vec<Proof>,
}

const DRIVERS: &str = "media.virtio.expect.drivers";
const OS: &str = "media.virtio.expect.os";
const VERSION: &str = "media.virtio.expect.version";
/// Files of a driver's folder that are opened; real ones have about ten.
const MAX_FILES: usize = 256;

/// Compares the medium with what the recipe expects of it.
pub(super) fn check(
    recipe: &Recipe,
    source: &dyn ReadAt,
    medium: DriverMedium,
    judge: Judge<'_>,
    found: &mut Found,
) -> Result<DriversFound, MediumError> {
    let expect = &recipe.media.virtio.expect;
    let Architecture::Amd64 = recipe.media.windows.expect.architecture.unwrap_or(Architecture::Amd64);
    let architecture = Architecture::Amd64.name();
    let mut folders = Vec::new();
    if let Some(os) = expect.os {
        let disc = Disc::open(source)?;
        for driver in &expect.drivers {
            match medium.folder(driver, os.folder(), architecture) {
                Some(folder) => {
                    let (packages, differences) = proved(&disc, folder, architecture, judge)?;
                    found.differences.extend(differences);
                    let (driver, path) = (driver.clone(), folder.path.clone());
                    folders.push(ProvedFolder { driver, path, packages });
                }
                None => found.differences.push(no_folder(driver, os, architecture, &medium)),
            }
        }
        if !medium
            .drivers
            .iter()
            .any(|folder| folder.os == os.folder() && folder.architecture == architecture)
        {
            let message = format!("the medium has no drivers for {} on {architecture}", os.folder());
            found.differences.push(Difference::new(OS, message));
        }
        guest_agent(&medium, found);
    }
    version(expect.version.as_deref(), &medium, &folders, found);
    let build = recipe.media.windows.expect.wim_build;
    for package in folders.iter().flat_map(|folder| &folder.packages) {
        let driver = package.inf.strip_suffix(".inf").unwrap_or(&package.inf);
        let Some(ver) = &package.driver_ver else { continue };
        for known in known_bad(driver, ver.version, build) {
            found.warnings.push(format!("{driver} {}: {} ({})", ver.version, known.what, known.source));
        }
        if package.is_weak() {
            found.warnings.push(format!("{driver}: its catalog rests on SHA-1, which Windows does not take"));
        }
    }
    Ok(DriversFound { version: medium.version, guest_agent: medium.guest_agent, folders })
}

fn no_folder(driver: &str, os: VirtioOs, architecture: &str, medium: &DriverMedium) -> Difference {
    let there: Vec<_> = medium
        .drivers
        .iter()
        .filter(|folder| folder.driver.eq_ignore_ascii_case(driver) && folder.architecture == architecture)
        .map(|folder| shown(&folder.os))
        .collect();
    let os = os.folder();
    if there.is_empty() {
        let difference = Difference::new(DRIVERS, format!("the medium has no driver `{}`", shown(driver)));
        let names = medium.drivers.iter().map(|folder| folder.driver.as_str());
        return match nearest(driver, names) {
            Some(near) => difference.help(format!("did you mean `{}`?", shown(near))),
            None => difference,
        };
    }
    let message = format!(
        "`{driver}` has no folder {driver}/{os}/{architecture}; for {architecture} it has {}",
        there.join(", ")
    );
    Difference::new(DRIVERS, message).help("a driver for another Windows is not taken for this one's")
}

fn guest_agent(medium: &DriverMedium, found: &mut Found) {
    // Both installers are named by architecture: qemu-ga-x86_64.msi, qemu-ga-i386.msi.
    if !medium.guest_agent.iter().any(|name| name.to_lowercase().contains("x86_64")) {
        let got = if medium.guest_agent.is_empty() {
            "nothing".into()
        } else {
            medium.guest_agent.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", ")
        };
        let message =
            format!("the medium lacks the guest agent (guest-agent/qemu-ga-x86_64.msi): it has {got}");
        found.differences.push(Difference::new(OS, message));
    }
}

/// The release: as the label names it, and by the drivers' own versions, whose last number is a hundred times the
/// release's: 0.1.285 has drivers of 100.x.104.28500.
fn version(wanted: Option<&str>, medium: &DriverMedium, folders: &[ProvedFolder], found: &mut Found) {
    let Some(wanted) = wanted else { return };
    // The number after the hyphen is that of the package, which the medium does not say.
    let release = wanted.split('-').next().unwrap_or(wanted);
    match &medium.version {
        Some(version) if version == release || version == wanted => {}
        Some(version) => {
            let message = format!("not `{wanted}`: the volume is labelled virtio-win-{}", shown(version));
            found.differences.push(Difference::new(VERSION, message));
        }
        None => found.warnings.push(format!("{VERSION}: the volume's label names no release")),
    }
    let packages = folders.iter().flat_map(|folder| &folder.packages);
    let builds = packages.filter_map(|package| package.driver_ver.as_ref()).map(|ver| {
        let DriverVersion([.., build]) = ver.version;
        build
    });
    if let Some(newest) = builds.max()
        && release.rsplit('.').next().and_then(|last| last.parse().ok()) != Some(newest / 100)
    {
        let message =
            format!("the newest of the drivers is of build {newest}, which is not that of {wanted}");
        found.differences.push(Difference::new(VERSION, message).help("is the volume labelled rightly?"));
    }
}

/// The proofs of a folder's packages, and what is wrong with the others.
fn proved(
    disc: &Disc<'_>,
    folder: &DriverFolder,
    architecture: &str,
    judge: Judge<'_>,
) -> Result<(Vec<Proof>, Vec<Difference>), MediumError> {
    let entries = disc.find_directory(&folder.path)?;
    let entries: Vec<&Entry> =
        entries.iter().filter(|entry| entry.kind == Kind::File).take(MAX_FILES).collect();
    let files: Vec<_> = entries.iter().map(|entry| disc.file(&entry.node)).collect::<Result<_, _>>()?;
    let listed: Vec<_> = entries
        .iter()
        .zip(&files)
        .map(|(entry, file)| FolderFile { name: &entry.name, bytes: file })
        .collect();
    let (mut packages, mut differences) = (Vec::new(), Vec::new());
    let wrong =
        |file: &str, why: &str| Difference::new(DRIVERS, format!("{}/{}: {why}", folder.path, shown(file)));
    for result in prove(&listed, architecture, judge) {
        match result {
            Ok(proof) => packages.push(proof),
            Err(unproved) => differences.extend(
                unproved.failures.iter().map(|failure| wrong(&failure.file, &failure.reason.to_string())),
            ),
        }
    }
    if packages.is_empty() && differences.is_empty() {
        differences.push(wrong("*.inf", "there is none"));
    }
    Ok((packages, differences))
}
