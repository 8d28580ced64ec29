//! What an audit found, for people and as JSON: the same for a disk and for a published image.

use std::fmt::Display;

use serde::Serialize;

use super::root_args::one_line;
use super::{Console, Exit, Failure};
use crate::root::{Audit, Finding, RootFacts};

/// An audit's result.
#[derive(Debug, Serialize)]
pub struct AuditReport<'a> {
    fit: bool,
    facts: &'a RootFacts,
    findings: &'a [Finding],
}

impl<'a> AuditReport<'a> {
    /// The report of this audit.
    pub fn of(audit: &'a Audit) -> Self {
        let fit = !audit.findings.iter().any(Finding::stops);
        Self { fit, facts: &audit.facts, findings: &audit.findings }
    }

    /// Prints facts and findings.
    pub fn tell(&self, console: &Console) {
        console.result(facts(self.facts));
        self.findings.iter().for_each(|finding| console.result(line(finding)));
    }

    /// Tells what did not pass, as `audit` does, on standard error.
    pub fn tell_remarks(&self, console: &Console) {
        let remarks = self.findings.iter().filter(|finding| finding.is_remark());
        remarks.for_each(|finding| console.note(line(finding).trim_end()));
    }

    /// Says whether the root may be published; an error where it may not. The whole story is told before.
    pub fn verdict(&self, what: impl Display, console: &Console) -> Result<(), Failure> {
        if self.fit {
            console.note("fit to publish");
            return Ok(());
        }
        let mut failed: Vec<_> =
            self.findings.iter().filter(|finding| finding.stops()).map(|finding| finding.check.id).collect();
        failed.dedup();
        let message = format!("{what}: the root is not fit to publish: {}", failed.join(", "));
        Err(Failure::new(Exit::Rejected, message))
    }
}

fn facts(facts: &RootFacts) -> String {
    let page_files: Vec<_> =
        facts.page_files.iter().map(|file| format!("{} {} MiB", file.name, file.size >> 20)).collect();
    let not_shipped = match page_files.as_slice() {
        [] => format!("{} MiB free", facts.volume_free >> 20),
        files => format!("{} MiB free, {}", facts.volume_free >> 20, files.join(", ")),
    };
    let rows = [
        ("size", format!("{} bytes", facts.virtual_size)),
        ("pointer", facts.pointer.as_ref().map_or("none".into(), |pointer| one_line(pointer))),
        ("not shipped", not_shipped),
    ];
    rows.iter().map(|(name, value)| format!("{name:<12} {value}\n")).collect()
}

/// A finding: one line where all is well, else with why it matters and what to do.
fn line(finding: &Finding) -> String {
    let status = finding.status.word();
    let line = format!("{status:<7} {:<22} {}\n", finding.check.id, finding.saw);
    if !finding.is_remark() {
        return line;
    }
    let indent = " ".repeat(31);
    format!("{line}{indent}why: {}\n{indent}cure: {}\n", finding.check.why, finding.cure())
}
