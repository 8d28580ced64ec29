//! What a root is held to.

use super::super::FirstBoot;

/// What a root is held to beyond the checks themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// How a clone is to find its answers; `None`: not known, so that any way will do.
    pub first_boot: Option<FirstBoot>,
    /// The Windows that it should be.
    pub expected: ExpectedWindows,
    /// Ids of checks that would fail, and may.
    pub allow: Vec<&'static str>,
    /// Ids of checks that would warn, and fail instead.
    pub require: Vec<&'static str>,
}

/// A Windows, as far as it is known beforehand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExpectedWindows {
    /// `Professional`
    pub edition_id: Option<String>,
    /// `26100.1742`: the second number is not compared.
    pub build: Option<String>,
    /// `amd64`
    pub architecture: Option<String>,
    /// `en-US`
    pub language: Option<String>,
}
