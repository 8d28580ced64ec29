//! How a clone's first boot finds its answers: the pointer, and what it points at.

use super::super::RootError;
use super::super::installation::Installation;
use super::super::pointer::{Place, place};
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
    match pointer.map(place) {
        None => findings.pass(&POINTER_FILE, "no UnattendFile"),
        Some(Place::WindowsVolume(path)) => {
            let there = installation.windows.has_file(&path)?;
            let verb = if there { "is there" } else { "is not there" };
            findings.judge(&POINTER_FILE, there, format!("UnattendFile names \\{path}, which {verb}"));
        }
        Some(Place::OtherDrive { letter, path }) => {
            findings.pass(
                &POINTER_FILE,
                format!("UnattendFile names \\{path} on drive {letter}, the answer CD's"),
            );
        }
        Some(Place::Unknown) => findings.object(
            &POINTER_FILE,
            format!("which file UnattendFile names can't be told: {}", pointer.unwrap_or_default()),
        ),
    }
    Ok(())
}
