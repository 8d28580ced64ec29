//! Is a root fit to publish? A table of checks, and what each saw.
//!
//! Nothing is written. [`CHECKS`] is the table; a [`Policy`] says what a root is held to beyond it. One file a
//! subject: each looks at the installation and adds a finding for every check it owns.

mod check;
mod cloudbase_init;
mod drivers;
mod finding;
mod first_boot;
mod layout;
mod leftovers;
mod policy;
mod product_policy;
mod safety;
mod secrets;
mod version;

use super::RootError;
use super::facts::RootFacts;
use super::hives::LogReplay;
use super::installation::Installation;
use super::windows_volume::WindowsVolume;
use crate::io::ReadAt;

pub(super) use check::BITLOCKER;
pub use check::{CHECKS, Check, Severity, by_id};
pub(super) use finding::Findings;
pub use finding::{Finding, Status};
pub use policy::{ExpectedWindows, Policy};
pub(super) use safety::check as check_safety;

/// What was found on a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// What it says of itself.
    pub facts: RootFacts,
    /// What the checks saw, in the order of [`CHECKS`]; a check may have seen several things.
    pub findings: Vec<Finding>,
}

impl Audit {
    /// The audit of a root that may be published; any other as an error.
    pub fn fit(self) -> Result<Self, RootError> {
        refuse(&self.findings)?;
        let failed: Vec<_> = self.findings.iter().filter(|finding| finding.stops()).cloned().collect();
        if failed.is_empty() { Ok(self) } else { Err(RootError::Unfit { findings: failed }) }
    }

    /// Whether the root is in a state in which nothing is done with it.
    pub fn is_refused(&self) -> bool {
        refuse(&self.findings).is_err()
    }

    /// What should be told of it.
    pub fn remarks(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.is_remark())
    }
}

/// An error where one of these is a state in which nothing is done with a root.
pub(super) fn refuse(findings: &[Finding]) -> Result<(), RootError> {
    let refused: Vec<_> =
        findings.iter().filter(|finding| finding.status == Status::Refused).cloned().collect();
    if refused.is_empty() { Ok(()) } else { Err(RootError::Refused { findings: refused }) }
}

/// Looks at the root on `disk`. An unfit one is no error, unless not even its Windows can be read.
pub fn audit(disk: &dyn ReadAt, policy: &Policy, replay: LogReplay) -> Result<Audit, RootError> {
    let windows = WindowsVolume::find(disk)?;
    let installation = Installation::open(&windows, replay)?;
    let facts = RootFacts::read(&installation)?;
    let mut findings = Findings::new(policy);
    check_safety(&installation, &facts, &mut findings)?;
    layout::check(&installation, &facts, &mut findings);
    version::check(&installation, &facts, &mut findings)?;
    drivers::check(&installation, &mut findings)?;
    first_boot::check(&installation, &mut findings)?;
    cloudbase_init::check(&installation, &mut findings)?;
    secrets::check(&installation, &mut findings)?;
    leftovers::check(&installation, &mut findings)?;
    Ok(Audit { facts, findings: findings.finish() })
}
