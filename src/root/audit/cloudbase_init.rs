//! cloudbase-init: is it there, does it look at a NoCloud seed, and has it not run yet?
//!
//! Names and defaults are those of its own configuration (cloudbase/cloudbase-init, conf/default.py) and installer.

use super::super::FirstBoot;
use super::super::RootError;
use super::super::answer_files::text_of;
use super::super::installation::Installation;
use super::super::windows_volume::SmallFile;
use super::Findings;
use super::check::{
    CLOUDBASE_ANSWERS, CLOUDBASE_FILES, CLOUDBASE_INIT, CLOUDBASE_NOCLOUD, CLOUDBASE_SERVICE,
    CLOUDBASE_UNUSED,
};
use super::drivers::{Service, told};

/// Where its installer puts it.
const FOLDER: &str = "Program Files\\Cloudbase Solutions\\Cloudbase-Init";
/// Where it remembers what has run: a key an instance, or none, with one named Plugins below.
const REMEMBERED: [&str; 2] =
    ["Cloudbase Solutions\\Cloudbase-Init", "Wow6432Node\\Cloudbase Solutions\\Cloudbase-Init"];
/// What the names of its services for NoCloud seeds begin with.
const NO_CLOUD: &str = "cloudbaseinit.metadata.services.nocloudservice.";
/// A configuration is a few KiB.
const MAX_CONF: u64 = 1 << 20;

pub fn check(installation: &Installation<'_, '_>, findings: &mut Findings<'_>) -> Result<(), RootError> {
    files(installation, findings)?;
    if findings.policy().first_boot != Some(FirstBoot::CloudbaseInit) {
        for check in
            [&CLOUDBASE_INIT, &CLOUDBASE_SERVICE, &CLOUDBASE_NOCLOUD, &CLOUDBASE_UNUSED, &CLOUDBASE_ANSWERS]
        {
            findings.skip(check, "the first boot is not cloudbase-init's");
        }
        return Ok(());
    }
    match Service::find(installation, "cloudbase-init")? {
        None => {
            findings.object(&CLOUDBASE_INIT, "cloudbase-init is not installed");
            findings.skip(&CLOUDBASE_SERVICE, "cloudbase-init is not installed");
        }
        Some(service) => {
            match service.fault() {
                Some(fault) => findings.object(&CLOUDBASE_INIT, fault),
                None => findings.pass(&CLOUDBASE_INIT, "installed"),
            }
            let saw = format!("Start is {}", told(service.start));
            findings.judge(&CLOUDBASE_SERVICE, service.starts_by_itself(), saw);
        }
    }
    no_cloud(installation, findings)?;
    let used = has_run(installation)?;
    let saw = if used { "the registry remembers that its plugins ran" } else { "it has not run" };
    findings.judge(&CLOUDBASE_UNUSED, !used, saw);
    let own = installation.cached.files.iter().find(|file| FirstBoot::CloudbaseInit.keeps(file));
    match own {
        Some(file) => findings.pass(&CLOUDBASE_ANSWERS, format!("\\{}", file.path)),
        None => findings
            .object(&CLOUDBASE_ANSWERS, "no cached answer file without a password runs cloudbase-init"),
    }
    Ok(())
}

fn no_cloud(installation: &Installation<'_, '_>, findings: &mut Findings<'_>) -> Result<(), RootError> {
    let path = format!("{FOLDER}\\conf\\cloudbase-init.conf");
    let text = match installation.windows.small_file(&path, MAX_CONF)? {
        SmallFile::Bytes(bytes) => text_of(&bytes),
        SmallFile::Missing => {
            findings.object(&CLOUDBASE_NOCLOUD, format!("\\{path} is missing"));
            return Ok(());
        }
        SmallFile::Unread(why) => {
            findings.object(&CLOUDBASE_NOCLOUD, format!("\\{path} can't be read: {why}"));
            return Ok(());
        }
    };
    // The last one counts.
    let services = settings(&text).into_iter().rfind(|(key, _)| key == "metadata_services");
    match services {
        None => findings
            .object(&CLOUDBASE_NOCLOUD, "metadata_services is not set, and the default has no NoCloud"),
        Some((_, services)) => {
            let named = services.split(',').any(|service| service.trim().starts_with(NO_CLOUD));
            let saw = if named { "metadata_services names it" } else { "metadata_services does not name it" };
            findings.judge(&CLOUDBASE_NOCLOUD, named, saw);
        }
    }
    Ok(())
}

/// The settings of an .ini file, whatever section they are in; a line that begins with a space goes on with the
/// one before.
fn settings(text: &str) -> Vec<(String, String)> {
    let mut settings: Vec<(String, String)> = Vec::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with(['#', ';'])) {
        match line.split_once('=') {
            _ if line.starts_with([' ', '\t']) => {
                if let Some((_, value)) = settings.last_mut() {
                    value.push_str(line.trim());
                }
            }
            Some((key, value)) => settings.push((key.trim().to_ascii_lowercase(), value.trim().to_owned())),
            None => {}
        }
    }
    settings
}

fn has_run(installation: &Installation<'_, '_>) -> Result<bool, RootError> {
    for path in REMEMBERED {
        let Some(key) = installation.software.key(path)? else { continue };
        let mut instances = key.subkeys()?;
        instances.push(key);
        for instance in instances {
            if let Some(plugins) = instance.subkey("Plugins")?
                && plugins.has_values()?
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// What it may have left, by name.
fn files(installation: &Installation<'_, '_>, findings: &mut Findings<'_>) -> Result<(), RootError> {
    let mut found = Vec::new();
    for log in installation.windows.entries(&format!("{FOLDER}\\log"))? {
        if !log.is_directory && log.size > 0 {
            found.push(format!("\\{FOLDER}\\log\\{}", log.name));
        }
    }
    for conf in installation.windows.entries(&format!("{FOLDER}\\conf"))? {
        if conf.is_directory || !conf.name.to_ascii_lowercase().ends_with(".conf") {
            continue;
        }
        let path = format!("{FOLDER}\\conf\\{}", conf.name);
        if let SmallFile::Bytes(bytes) = installation.windows.small_file(&path, MAX_CONF)?
            && settings(&text_of(&bytes)).iter().any(|(key, value)| is_password(key, value))
        {
            found.push(format!("\\{path} sets a password"));
        }
    }
    findings.none_of(&CLOUDBASE_FILES, found, "none");
    Ok(())
}

/// `*password*` with more than a switch or a length behind it.
fn is_password(key: &str, value: &str) -> bool {
    let switch = ["", "true", "false"].contains(&value.to_ascii_lowercase().as_str());
    key.contains("password") && !switch && !value.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_go_over_lines() {
        let text = "[DEFAULT]\r\nusername=Admin\r\n# metadata_services=x\r\nMetadata_Services=a.B,\r\n    \
                    cloudbaseinit.metadata.services.nocloudservice.NoCloudConfigDriveService\r\n";
        let settings = settings(text);
        assert_eq!(settings.len(), 2);
        assert_eq!(settings[1].0, "metadata_services");
        assert!(settings[1].1.ends_with("NoCloudConfigDriveService"));
    }

    #[test]
    fn passwords_are_told_from_switches() {
        assert!(is_password("admin_password", "x"));
        for value in ["", "True", "false", "20"] {
            assert!(!is_password("inject_user_password", value));
        }
        assert!(!is_password("username", "x"));
    }
}
