//! Which Windows it is, and how long it will run.

use super::super::RootError;
use super::super::facts::RootFacts;
use super::super::installation::Installation;
use super::Findings;
use super::check::{ARCHITECTURE, BUILD, EDITION, EVALUATION, LANGUAGE, REARM};
use super::product_policy::expiration;

pub fn check(
    installation: &Installation<'_, '_>,
    facts: &RootFacts,
    findings: &mut Findings<'_>,
) -> Result<(), RootError> {
    compare(facts, findings);
    evaluation(installation, facts, findings)?;
    const PLATFORM: &str = "Microsoft\\Windows NT\\CurrentVersion\\SoftwareProtectionPlatform";
    match installation.software.number(PLATFORM, "SkipRearm")? {
        Some(1) => findings.object(&REARM, "SkipRearm is 1: sysprep has not reset the activation"),
        _ => findings.pass(&REARM, "SkipRearm is not set"),
    }
    Ok(())
}

/// Holds the version to the one expected.
fn compare(facts: &RootFacts, findings: &mut Findings<'_>) {
    let found = &facts.windows;
    let expected = &findings.policy().expected;
    let unknown = "not said in SOFTWARE";

    let edition = found.edition_id.as_deref().unwrap_or(unknown);
    match &expected.edition_id {
        Some(wanted) if !wanted.eq_ignore_ascii_case(edition) => {
            findings.object(&EDITION, format!("EditionID is {edition:?}, but {wanted:?} is expected"));
        }
        _ => findings.pass(&EDITION, edition),
    }

    let build = found.build.as_deref().unwrap_or(unknown);
    let number = |build: &str| build.split('.').next().unwrap_or_default().to_owned();
    match &expected.build {
        Some(wanted) if number(wanted) != number(build) => {
            findings.object(&BUILD, format!("the build is {build}, but {wanted} is expected"));
        }
        _ => {
            let release = found.display_version.as_ref().map(|release| format!(" ({release})"));
            findings.pass(&BUILD, format!("{build}{}", release.unwrap_or_default()));
        }
    }

    let wanted = expected.architecture.as_deref().unwrap_or("amd64");
    match found.architecture.as_deref() {
        Some(architecture) if !architecture.eq_ignore_ascii_case(wanted) => {
            findings.object(&ARCHITECTURE, format!("PROCESSOR_ARCHITECTURE is {architecture}, not {wanted}"))
        }
        Some(architecture) => findings.pass(&ARCHITECTURE, architecture),
        None => findings.skip(&ARCHITECTURE, "PROCESSOR_ARCHITECTURE is not said in SYSTEM"),
    }

    let languages = found.languages.join(", ");
    match &expected.language {
        _ if found.languages.is_empty() => {
            findings.skip(&LANGUAGE, "SYSTEM names no language of the user interface");
        }
        Some(wanted) if !found.languages.iter().any(|language| language.eq_ignore_ascii_case(wanted)) => {
            findings.object(&LANGUAGE, format!("{languages} installed, but {wanted} is expected"));
        }
        _ => findings.pass(&LANGUAGE, languages),
    }
}

fn evaluation(
    installation: &Installation<'_, '_>,
    facts: &RootFacts,
    findings: &mut Findings<'_>,
) -> Result<(), RootError> {
    let options = installation.in_control_set("Control\\ProductOptions")?;
    let policy = match installation.system.key(&options)? {
        Some(key) => key.data("ProductPolicy")?,
        None => None,
    };
    let ends = policy.as_deref().and_then(expiration);
    let edition = facts.windows.edition_id.as_deref().unwrap_or_default();
    match (edition.to_ascii_lowercase().ends_with("eval"), ends) {
        (_, Some(day)) => findings.object(&EVALUATION, format!("this Windows expires on {day}")),
        (true, None) => findings.object(
            &EVALUATION,
            format!("{edition} is an evaluation edition; the registry does not say when it ends"),
        ),
        (false, None) => findings.pass(&EVALUATION, "no end is set"),
    }
    Ok(())
}
