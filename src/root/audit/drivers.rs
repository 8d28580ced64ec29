//! Drivers and services that a clone needs on KubeVirt.

use super::super::RootError;
use super::super::installation::Installation;
use super::super::pointer::{Place, place};
use super::Findings;
use super::check::{Check, DEVICE_ENCRYPTION, GUEST_AGENT, NETWORK_DRIVER, SERIAL_DRIVER, STORAGE_DRIVER};

/// Start types of a service.
const BOOT: u32 = 0;
const AUTOMATIC: u32 = 2;
const DISABLED: u32 = 4;

pub fn check(installation: &Installation<'_, '_>, findings: &mut Findings<'_>) -> Result<(), RootError> {
    storage(installation, findings)?;
    // The names of the services, by what they are looked for under in turn.
    driver(installation, findings, &NETWORK_DRIVER, &["netkvm"])?;
    driver(installation, findings, &SERIAL_DRIVER, &["VirtioSerial", "vioser"])?;
    agent(installation, findings)?;
    let key = installation.in_control_set("Control\\BitLocker")?;
    let prevented = installation.system.number(&key, "PreventDeviceEncryption")? == Some(1);
    let saw = if prevented { "PreventDeviceEncryption is 1" } else { "PreventDeviceEncryption is not set" };
    findings.judge(&DEVICE_ENCRYPTION, prevented, saw);
    Ok(())
}

/// A service as the registry has it.
pub(super) struct Service {
    name: &'static str,
    pub start: Option<u32>,
    /// Its program or driver, as a path on the Windows volume.
    image: String,
    /// Its size in bytes; `None`: it is not there.
    size: Option<u64>,
}

impl Service {
    /// The service of that name, if it is registered.
    pub fn find(installation: &Installation<'_, '_>, name: &'static str) -> Result<Option<Self>, RootError> {
        let key = installation.in_control_set(&format!("Services\\{name}"))?;
        let Some(key) = installation.system.key(&key)? else { return Ok(None) };
        let image = key.string("ImagePath")?.filter(|path| !path.is_empty());
        // A driver that names no file is looked for by its service's name.
        let image = image.map_or(format!("Windows\\System32\\drivers\\{name}.sys"), |path| image_file(&path));
        let size = installation.windows.size(&image)?;
        // What Windows sets where it moved to other hardware: it counts instead of Start.
        let instead = match key.subkey("StartOverride")? {
            Some(key) => key.number("0")?,
            None => None,
        };
        Ok(Some(Self { name, start: instead.or(key.number("Start")?), image, size }))
    }

    /// What is wrong with it, but for its start type.
    pub fn fault(&self) -> Option<String> {
        let fault = match self.size {
            None => "is missing",
            Some(0) => "is empty",
            Some(_) => return None,
        };
        Some(format!("{} is registered, but \\{} {fault}", self.name, self.image))
    }
}

/// The file that an ImagePath names, as a path on the Windows volume.
fn image_file(path: &str) -> String {
    let path = path.trim();
    // Arguments may follow: the program is in quotation marks, or ends in its extension.
    let file = match path.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next().unwrap_or_default(),
        None => {
            let lower = path.to_ascii_lowercase();
            let end = [".exe", ".sys"].iter().filter_map(|end| lower.find(end)).min();
            end.and_then(|at| path.get(..at + 4)).unwrap_or(path)
        }
    };
    if let Place::WindowsVolume(path) = place(file) {
        // A path that begins with a backslash is the kernel's own: \SystemRoot\...
        let root = "SystemRoot\\";
        return match path.get(..root.len()) {
            Some(start) if start.eq_ignore_ascii_case(root) => format!("Windows\\{}", &path[root.len()..]),
            _ => path,
        };
    }
    // Relative to the Windows folder.
    format!("Windows\\{file}")
}

fn storage(installation: &Installation<'_, '_>, findings: &mut Findings<'_>) -> Result<(), RootError> {
    let mut faults = Vec::new();
    let mut ready = Vec::new();
    for name in ["viostor", "vioscsi"] {
        match Service::find(installation, name)? {
            None => faults.push(format!("{name} is not installed")),
            Some(service) => match service.fault() {
                Some(fault) => faults.push(fault),
                None if service.start == Some(BOOT) => ready.push(name),
                None => {
                    faults.push(format!("{name} does not start at boot (Start is {})", told(service.start)))
                }
            },
        }
    }
    if ready.is_empty() {
        findings.object(&STORAGE_DRIVER, faults.join(", "));
    } else {
        let verb = if ready.len() == 1 { "starts" } else { "start" };
        findings.pass(&STORAGE_DRIVER, format!("{} {verb} at boot", ready.join(" and ")));
    }
    Ok(())
}

fn driver(
    installation: &Installation<'_, '_>,
    findings: &mut Findings<'_>,
    check: &'static Check,
    names: &[&'static str],
) -> Result<(), RootError> {
    for name in names {
        let Some(service) = Service::find(installation, name)? else { continue };
        match service.fault() {
            Some(fault) => findings.object(check, fault),
            None if service.start == Some(DISABLED) => findings.object(check, format!("{name} is disabled")),
            None => findings.pass(check, format!("{name} is installed")),
        }
        return Ok(());
    }
    findings.object(check, format!("{} is not installed", names[0]));
    Ok(())
}

fn agent(installation: &Installation<'_, '_>, findings: &mut Findings<'_>) -> Result<(), RootError> {
    let Some(service) = Service::find(installation, "QEMU-GA")? else {
        findings.object(&GUEST_AGENT, "QEMU-GA is not installed");
        return Ok(());
    };
    match service.fault() {
        Some(fault) => findings.object(&GUEST_AGENT, fault),
        None => findings.judge(
            &GUEST_AGENT,
            service.starts_by_itself(),
            format!("QEMU-GA is installed, Start is {}", told(service.start)),
        ),
    }
    Ok(())
}

impl Service {
    /// Whether Windows starts it without being asked.
    pub fn starts_by_itself(&self) -> bool {
        self.start.is_some_and(|start| start <= AUTOMATIC)
    }
}

/// A start type, for people.
pub(super) fn told(start: Option<u32>) -> String {
    start.map_or("missing".into(), |start| start.to_string())
}

#[cfg(test)]
mod tests {
    use super::image_file;

    #[test]
    fn image_paths_lead_to_files() {
        for (path, file) in [
            ("System32\\drivers\\viostor.sys", "Windows\\System32\\drivers\\viostor.sys"),
            ("\\SystemRoot\\System32\\drivers\\netkvm.sys", "Windows\\System32\\drivers\\netkvm.sys"),
            ("%SystemRoot%\\system32\\svchost.exe -k netsvcs -p", "Windows\\system32\\svchost.exe"),
            (
                "\"C:\\Program Files\\Qemu-ga\\qemu-ga.exe\" -d --retry-path",
                "Program Files\\Qemu-ga\\qemu-ga.exe",
            ),
            ("C:\\Program Files\\Qemu-ga\\qemu-ga.exe -d", "Program Files\\Qemu-ga\\qemu-ga.exe"),
            ("\\??\\C:\\Windows\\System32\\drivers\\x.sys", "Windows\\System32\\drivers\\x.sys"),
            ("%ProgramFiles%\\Qemu-ga\\qemu-ga.exe", "Program Files\\Qemu-ga\\qemu-ga.exe"),
            ("\"", "Windows\\"),
            ("\u{130}.exe", "Windows\\\u{130}.exe"),
        ] {
            assert_eq!(image_file(path), file);
        }
    }
}
