//! Secrets in an image: plain ones fail, places that may hold one are named. Nothing secret is in what is said.

use quick_xml::Reader;
use quick_xml::events::Event;

use super::super::RootError;
use super::super::answer_files::text_of;
use super::super::hives::{HiveFile, LogReplay, RootHive};
use super::super::installation::Installation;
use super::super::windows_volume::{Resolved, SmallFile};
use super::Findings;
use super::check::{
    ANSWER_FILES, ANSWER_PASSWORD, AUTO_LOGON, LSA_PASSWORD, POLICY_PASSWORD, POWERSHELL_HISTORY,
    SETUP_SCRIPTS, WINLOGON_PASSWORD,
};

const SCRIPTS: &str = "Windows\\Setup\\Scripts";
const POLICIES: &str = "ProgramData\\Microsoft\\Group Policy\\History";
/// A preference's file is a few KiB.
const MAX_POLICY: u64 = 1 << 20;
/// Profiles that are not below \Users.
const SERVICE_PROFILES: [&str; 3] = [
    "Windows\\System32\\config\\systemprofile",
    "Windows\\ServiceProfiles\\LocalService",
    "Windows\\ServiceProfiles\\NetworkService",
];
const HISTORY: &str = "AppData\\Roaming\\Microsoft\\Windows\\PowerShell\\PSReadLine\\ConsoleHost_history.txt";

pub fn check(installation: &Installation<'_, '_>, findings: &mut Findings<'_>) -> Result<(), RootError> {
    answer_files(installation, findings);
    winlogon(installation, findings)?;
    lsa(installation, findings)?;
    policies(installation, findings)?;
    let mut scripts = Vec::new();
    let away = installation.windows.walk(SCRIPTS, true, &mut |path, _| scripts.push(format!("\\{path}")))?;
    scripts.extend(away);
    findings.none_of(&SETUP_SCRIPTS, scripts, "none");
    history(installation, findings)
}

fn answer_files(installation: &Installation<'_, '_>, findings: &mut Findings<'_>) {
    let (mut passwords, mut others) = (installation.cached.away.clone(), Vec::new());
    let mut unread = false;
    let first_boot = &findings.policy().first_boot;
    for file in &installation.cached.files {
        let path = &file.path;
        if let Some(why) = &file.unread {
            findings.object_with_cure(
                &ANSWER_PASSWORD,
                format!("\\{path} can't be read, nor scrubbed: {why}"),
                "delete it in Windows before it is generalised",
            );
            unread = true;
        } else if file.holds_password && !file.editable {
            findings.object_with_cure(
                &ANSWER_PASSWORD,
                format!("\\{path} holds a password, on a volume that can't be edited"),
                "have Windows check that volume (chkdsk /f), shut down, and delete the file or seal the root",
            );
            unread = true;
        } else if file.holds_password {
            passwords.push(format!(
                "\\{path} holds a password in plain or encoded form, which would be published"
            ));
        } else if !first_boot.as_ref().is_some_and(|first_boot| first_boot.keeps(file)) {
            others.push(format!("\\{path} is a cached answer file"));
        }
    }
    let rest = if passwords.is_empty() { "none" } else { "none without a password" };
    if !(unread && passwords.is_empty()) {
        findings.none_of(&ANSWER_PASSWORD, passwords, "none");
    }
    findings.none_of(&ANSWER_FILES, others, rest);
}

fn winlogon(installation: &Installation<'_, '_>, findings: &mut Findings<'_>) -> Result<(), RootError> {
    const WINLOGON: &str = "Microsoft\\Windows NT\\CurrentVersion\\Winlogon";
    let (mut on, mut password) = (false, false);
    if let Some(key) = installation.software.key(WINLOGON)? {
        let text = key.string("AutoAdminLogon")?;
        on = text.is_some_and(|text| text.trim() == "1") || key.number("AutoAdminLogon")? == Some(1);
        // Whatever type it has.
        password = key.data("DefaultPassword")?.is_some_and(|data| data.iter().any(|byte| *byte != 0));
    }
    findings.judge(&AUTO_LOGON, !on, if on { "AutoAdminLogon is 1" } else { "AutoAdminLogon is not 1" });
    let saw = if password { "Winlogon's DefaultPassword is set" } else { "no DefaultPassword" };
    findings.judge(&WINLOGON_PASSWORD, !password, saw);
    Ok(())
}

/// LSA's secrets are encrypted, with a key that is in the same hive and in SYSTEM.
fn lsa(installation: &Installation<'_, '_>, findings: &mut Findings<'_>) -> Result<(), RootError> {
    if !installation.windows.has_file(HiveFile::SECURITY.path)? {
        findings.skip(&LSA_PASSWORD, "there is no SECURITY hive");
        return Ok(());
    }
    let kept =
        RootHive::open(installation.windows, HiveFile::SECURITY, LogReplay::Replay).and_then(|security| {
            match security.key("Policy\\Secrets\\DefaultPassword\\CurrVal")? {
                Some(key) => Ok(key.data("")?.is_some_and(|secret| !secret.is_empty())),
                None => Ok(false),
            }
        });
    match kept {
        Ok(true) => findings.object(&LSA_PASSWORD, "SECURITY\\Policy\\Secrets\\DefaultPassword is there"),
        Ok(false) => findings.pass(&LSA_PASSWORD, "none"),
        Err(error) => findings.object(&LSA_PASSWORD, format!("the SECURITY hive can't be read: {error}")),
    }
    Ok(())
}

fn policies(installation: &Installation<'_, '_>, findings: &mut Findings<'_>) -> Result<(), RootError> {
    let mut files = Vec::new();
    let away = installation.windows.walk(POLICIES, true, &mut |path, entry| {
        if entry.name.to_ascii_lowercase().ends_with(".xml") {
            files.push((path, entry.file));
        }
    })?;
    let mut found: Vec<_> = away.into_iter().collect();
    for (path, file) in files {
        match installation.windows.small_file_of(file, &path, MAX_POLICY)? {
            SmallFile::Bytes(bytes) if has_cpassword(&text_of(&bytes)) => {
                found.push(format!("\\{path} has a cpassword"));
            }
            SmallFile::Unread(why) => found.push(format!("\\{path} can't be read: {why}")),
            SmallFile::Bytes(_) | SmallFile::Missing => {}
        }
    }
    findings.none_of(&POLICY_PASSWORD, found, "none");
    Ok(())
}

/// Whether an attribute `cpassword` has a value. What can't be parsed is searched for the word.
fn has_cpassword(text: &str) -> bool {
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    loop {
        match reader.read_event() {
            Ok(Event::Start(element) | Event::Empty(element)) => {
                let holds = element.attributes().flatten().any(|attribute| {
                    let name = attribute.key.local_name();
                    name.as_ref().eq_ignore_ascii_case("cpassword") && !attribute.value.is_empty()
                });
                if holds {
                    return true;
                }
            }
            Ok(Event::Eof) => return false,
            Err(_) => return text.to_ascii_lowercase().contains("cpassword"),
            Ok(_) => {}
        }
    }
}

fn history(installation: &Installation<'_, '_>, findings: &mut Findings<'_>) -> Result<(), RootError> {
    let windows = installation.windows;
    let mut found = Vec::new();
    if let Resolved::Away(target) = windows.resolve("Users")? {
        found.push(format!("\\Users leads to {target}, which can't be looked at"));
    }
    let users = windows.entries("Users")?;
    let profiles = users.iter().filter(|entry| entry.is_directory && !entry.is_reparse_point);
    let profiles = profiles.map(|entry| format!("Users\\{}", entry.name));
    for profile in profiles.chain(SERVICE_PROFILES.map(str::to_owned)) {
        let path = format!("{profile}\\{HISTORY}");
        if profile.contains(char::REPLACEMENT_CHARACTER) {
            found.push(format!("\\{profile} has no proper name, and can't be looked into"));
        } else if windows.size(&path)?.is_some_and(|size| size > 0) {
            found.push(format!("\\{path}"));
        }
    }
    findings.none_of(&POWERSHELL_HISTORY, found, "none");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::has_cpassword;

    #[test]
    fn a_cpassword_is_an_attribute_with_a_value() {
        assert!(has_cpassword(
            "<Groups><User><Properties cpassword=\"j1Uyj3V\" userName='a'/></User></Groups>"
        ));
        assert!(has_cpassword("<Groups><Properties cPassword='x'"));
        assert!(!has_cpassword("<Groups><Properties cpassword='' userName='cpassword'/></Groups>"));
        assert!(!has_cpassword(""));
    }
}
