//! How a clone's first boot finds its answers: the pointer, and what it points at.

use super::super::RootError;
use super::super::answer_files::path_on_windows_volume;
use super::super::installation::Installation;
use super::Findings;
use super::check::{FIRST_BOOT, POINTER_FILE};

pub fn check(installation: &Installation<'_, '_>, findings: &mut Findings<'_>) -> Result<(), RootError> {
    let pointer = installation.pointer.as_deref();
    let saw = pointer.map_or("no UnattendFile".into(), |pointer| format!("UnattendFile is {pointer}"));
    match &findings.policy().first_boot {
        None => findings.skip(&FIRST_BOOT, format!("no recipe says how a clone first boots; {saw}")),
        Some(first_boot) => {
            let wanted = first_boot.pointer();
            let same = match (pointer, wanted.as_deref()) {
                (Some(found), Some(wanted)) => found.eq_ignore_ascii_case(wanted),
                (found, wanted) => found == wanted,
            };
            let needs = wanted.map_or("none".into(), |wanted| format!("{wanted:?}"));
            let saw = if same { saw } else { format!("{saw}, but the first boot needs {needs}") };
            findings.judge(&FIRST_BOOT, same, saw);
        }
    }
    let Some(path) = pointer.and_then(path_on_windows_volume) else {
        findings.pass(&POINTER_FILE, "it names no file on the Windows volume");
        return Ok(());
    };
    let there = installation.windows.has_file(path)?;
    let verb = if there { "is there" } else { "is not there" };
    findings.judge(&POINTER_FILE, there, format!("UnattendFile names \\{path}, which {verb}"));
    Ok(())
}
