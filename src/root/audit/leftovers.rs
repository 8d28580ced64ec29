//! What a build leaves behind: profiles, and an older Windows.

use super::super::RootError;
use super::super::installation::Installation;
use super::super::windows_volume::Resolved;
use super::Findings;
use super::check::{PREVIOUS_WINDOWS, PROFILES};

/// Windows' own in \Users. The last is what Setup works in.
const OWN_PROFILES: [&str; 5] = ["public", "default", "default user", "all users", "defaultuser0"];

pub fn check(installation: &Installation<'_, '_>, findings: &mut Findings<'_>) -> Result<(), RootError> {
    let windows = installation.windows;
    let old = windows.entries("")?.into_iter().filter(|entry| {
        let name = entry.name.to_ascii_lowercase();
        entry.is_directory && (name.starts_with("windows.old") || name.starts_with("$windows.~"))
    });
    findings.none_of(&PREVIOUS_WINDOWS, old.map(|entry| format!("\\{}", entry.name)).collect(), "none");
    if let Resolved::Away(target) = windows.resolve("Users")? {
        findings.object(&PROFILES, format!("\\Users leads to {target}, which can't be looked at"));
        return Ok(());
    }
    let others = windows.entries("Users")?.into_iter().filter(|entry| {
        let own = OWN_PROFILES.contains(&entry.name.to_ascii_lowercase().as_str());
        entry.is_directory && !entry.is_reparse_point && !own
    });
    findings.none_of(&PROFILES, others.map(|entry| format!("\\Users\\{}", entry.name)).collect(), "none");
    Ok(())
}
