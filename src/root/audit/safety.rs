//! States in which nothing may be done with a root, and what disagrees with them.

use super::super::RootError;
use super::super::facts::{GENERALISED as READY, RootFacts};
use super::super::installation::Installation;
use super::Findings;
use super::check::{
    BITLOCKER, CLUSTER_MAP, GENERALISED, HIBERNATION, HIVE_LOGS, HIVE_WHOLE, SHADOW_COPIES, SYSPREP_SETUP,
    SYSPREP_STATE_INI, SYSPREP_TAG, VOLUME_CLEAN,
};
use crate::ntfs::Reason;

/// Everything that sealing depends on.
pub fn check(
    installation: &Installation<'_, '_>,
    facts: &RootFacts,
    findings: &mut Findings<'_>,
) -> Result<(), RootError> {
    volume(installation, findings)?;
    hives(installation, findings);
    sysprep(facts, findings);
    Ok(())
}

fn volume(installation: &Installation<'_, '_>, findings: &mut Findings<'_>) -> Result<(), RootError> {
    let windows = installation.windows;
    let ntfs_error = |source| windows.ntfs_error(source);
    let state = windows.volume.state().map_err(ntfs_error)?;
    let (mut unclean, mut hibernated, mut shadows) = (false, false, false);
    for reason in state.reasons {
        let (check, seen) = match reason {
            Reason::Hibernated => (&HIBERNATION, &mut hibernated),
            Reason::ShadowCopies => (&SHADOW_COPIES, &mut shadows),
            _ => (&VOLUME_CLEAN, &mut unclean),
        };
        *seen = true;
        findings.object_with_cure(check, reason.to_string(), reason.cure());
    }
    if !unclean {
        findings.pass(&VOLUME_CLEAN, "not marked dirty, $LogFile closed");
    }
    if !hibernated {
        findings.pass(&HIBERNATION, "no hibernated Windows");
    }
    if !shadows {
        findings.pass(&SHADOW_COPIES, "none");
    }
    // An encrypted volume that holds Windows is never found to hold it.
    findings.pass(&BITLOCKER, "not encrypted");
    let relied_on = installation.relied_on()?;
    match windows.volume.file_in_free_clusters(relied_on).map_err(ntfs_error)? {
        None => findings.pass(&CLUSTER_MAP, "$Bitmap agrees with the hives and metadata"),
        Some(record) => findings.object(
            &CLUSTER_MAP,
            format!(
                "the volume's cluster map contradicts its files: $Bitmap calls clusters free that file record \
                 {record} uses"
            ),
        ),
    }
    Ok(())
}

fn hives(installation: &Installation<'_, '_>, findings: &mut Findings<'_>) {
    let (mut dirty, mut replayed) = (Vec::new(), Vec::new());
    for hive in [&installation.system, &installation.software] {
        let name = hive.file().name;
        dirty.extend(hive.dirt().map(|reason| format!("the {name} hive is dirty: {reason}")));
        replayed.extend(hive.replayed().map(|logs| format!("{logs} not yet in the hive")));
    }
    findings.none_of(&HIVE_WHOLE, dirty, "SYSTEM and SOFTWARE are whole");
    findings.none_of(&HIVE_LOGS, replayed, "not needed");
}

fn sysprep(facts: &RootFacts, findings: &mut Findings<'_>) {
    let sysprep = &facts.sysprep;
    let state = sysprep.image_state.as_deref();
    if !sysprep.is_generalised() {
        let state = state.unwrap_or("missing");
        findings.object(&GENERALISED, format!("the root is not generalised: its image state is {state}"));
        for check in [&SYSPREP_SETUP, &SYSPREP_STATE_INI, &SYSPREP_TAG] {
            findings.skip(check, "the root is not generalised");
        }
        return;
    }
    findings.pass(&GENERALISED, READY);

    let mut setup = Vec::new();
    match sysprep.setup_type {
        Some(2) => {}
        Some(found) => setup.push(format!("SYSTEM\\Setup SetupType is {found}, not 2")),
        None => setup.push("SYSTEM\\Setup SetupType is missing".into()),
    }
    match sysprep.cmd_line.as_deref() {
        Some(line) if line.to_ascii_lowercase().contains("windeploy.exe") => {}
        Some(line) if !line.is_empty() => {
            setup.push(format!("SYSTEM\\Setup CmdLine is {line:?}, which does not start windeploy.exe"));
        }
        _ => setup.push("SYSTEM\\Setup CmdLine is empty".into()),
    }
    findings.none_of(&SYSPREP_SETUP, setup, "SetupType 2, CmdLine starts windeploy.exe");

    match sysprep.state_ini.as_deref() {
        Some(READY) => findings.pass(&SYSPREP_STATE_INI, READY),
        Some(other) => {
            findings.object(&SYSPREP_STATE_INI, format!("\\Windows\\Setup\\State\\State.ini says {other}"));
        }
        None => findings.object(&SYSPREP_STATE_INI, "\\Windows\\Setup\\State\\State.ini says nothing"),
    }
    let (there, missing) = ("Sysprep_succeeded.tag is there", "Sysprep_succeeded.tag is missing");
    findings.judge(&SYSPREP_TAG, sysprep.succeeded_tag, if sysprep.succeeded_tag { there } else { missing });
}
