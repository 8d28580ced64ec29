//! What the checks found, weighed by a policy.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::Policy;
use super::check::{CHECKS, Check, Severity};

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// The root is as it should be.
    Pass,
    /// It is not, and that should be known.
    Warn,
    /// It is not, and is not published so.
    Fail,
    /// It is in a state in which nothing is done with it.
    Refused,
    /// It is not, but the policy allows it.
    Allowed,
    /// The check does not apply, or there is nothing to compare with.
    NotChecked,
}

impl Status {
    /// The status in a word, for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
            Self::Refused => "refuse",
            Self::Allowed => "allowed",
            Self::NotChecked => "-",
        }
    }
}

/// One thing that a check saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The check.
    pub check: &'static Check,
    /// How it ended.
    pub status: Status,
    /// What was seen; nothing secret.
    pub saw: String,
    /// What to do, where that differs from the check's.
    own_cure: Option<&'static str>,
}

impl Finding {
    /// A state in which nothing is done with a root.
    pub(in crate::root) fn refused(check: &'static Check, saw: String) -> Self {
        Self { check, status: Status::Refused, saw, own_cure: None }
    }

    /// What to do about it.
    pub fn cure(&self) -> &'static str {
        self.own_cure.unwrap_or(self.check.cure)
    }

    /// Whether the root must not be published as it is.
    pub fn stops(&self) -> bool {
        matches!(self.status, Status::Fail | Status::Refused)
    }

    /// The finding in one line, for those who see nothing else of the audit.
    pub fn remark(&self) -> String {
        let allowed = if self.status == Status::Allowed { " (allowed by the recipe)" } else { "" };
        format!("{}: {}{allowed}", self.check.id, self.saw)
    }

    /// Whether there is something to be told.
    pub fn is_remark(&self) -> bool {
        self.stops() || matches!(self.status, Status::Warn | Status::Allowed)
    }
}

impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let told = self.is_remark();
        let mut fields = serializer.serialize_struct("Finding", if told { 5 } else { 3 })?;
        fields.serialize_field("id", self.check.id)?;
        fields.serialize_field("status", &self.status)?;
        fields.serialize_field("saw", &self.saw)?;
        if told {
            fields.serialize_field("why", self.check.why)?;
            fields.serialize_field("cure", self.cure())?;
        }
        fields.end()
    }
}

/// Gathers findings, each weighed by the policy.
pub(in crate::root) struct Findings<'p> {
    policy: &'p Policy,
    all: Vec<Finding>,
}

impl<'p> Findings<'p> {
    pub fn new(policy: &'p Policy) -> Self {
        Self { policy, all: Vec::new() }
    }

    /// What the checks are held to.
    pub fn policy(&self) -> &'p Policy {
        self.policy
    }

    /// The root is as the check asks.
    pub fn pass(&mut self, check: &'static Check, saw: impl Into<String>) {
        self.add(check, Status::Pass, saw.into(), None);
    }

    /// The check does not apply, or can't be made: then it does not pass where the policy requires it.
    pub fn skip(&mut self, check: &'static Check, why: impl Into<String>) {
        if self.policy.require.contains(&check.id) {
            self.add(check, Status::Fail, format!("it can't be checked: {}", why.into()), None);
        } else {
            self.add(check, Status::NotChecked, why.into(), None);
        }
    }

    /// The root is not as the check asks.
    pub fn object(&mut self, check: &'static Check, saw: impl Into<String>) {
        self.add(check, self.weigh(check), saw.into(), None);
    }

    /// As [`Findings::object`], with a cure of its own.
    pub fn object_with_cure(&mut self, check: &'static Check, saw: impl Into<String>, cure: &'static str) {
        self.add(check, self.weigh(check), saw.into(), Some(cure));
    }

    /// Passes where `sound` holds, objects otherwise.
    pub fn judge(&mut self, check: &'static Check, sound: bool, saw: impl Into<String>) {
        if sound { self.pass(check, saw) } else { self.object(check, saw) }
    }

    /// One objection for each of these, or a pass where there are none.
    pub fn none_of(&mut self, check: &'static Check, found: Vec<String>, passes: &str) {
        if found.is_empty() {
            self.pass(check, passes);
        }
        for saw in found {
            self.object(check, saw);
        }
    }

    /// In the order of the table.
    pub fn finish(mut self) -> Vec<Finding> {
        self.all.sort_by_key(|finding| CHECKS.iter().position(|check| *check == finding.check));
        self.all
    }

    fn weigh(&self, check: &'static Check) -> Status {
        match check.severity {
            Severity::Refuse => Status::Refused,
            Severity::Fail if self.policy.allow.contains(&check.id) => Status::Allowed,
            Severity::Fail => Status::Fail,
            Severity::Warn if self.policy.require.contains(&check.id) => Status::Fail,
            Severity::Warn => Status::Warn,
        }
    }

    fn add(&mut self, check: &'static Check, status: Status, saw: String, own_cure: Option<&'static str>) {
        self.all.push(Finding { check, status, saw: printable(&saw), own_cure });
    }
}

/// Text in one line.
fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}
