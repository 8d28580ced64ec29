//! `--set key=value`: a value laid over the recipe's.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::source::names_secret;

/// One override, as given; whether its key exists and takes the value is the recipe's to judge.
#[derive(Clone, PartialEq, Eq)]
pub struct Override {
    pub(super) key: String,
    pub(super) value: String,
}

/// Why an argument is no override.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OverrideError {
    /// There is no `=`.
    #[error("write it as key=value, for example install.hostname=KW-1")]
    NoEquals,
    /// The key is empty.
    #[error("there is no key before the `=`")]
    NoKey,
}

impl FromStr for Override {
    type Err = OverrideError;

    fn from_str(text: &str) -> Result<Self, OverrideError> {
        let (key, value) = text.split_once('=').ok_or(OverrideError::NoEquals)?;
        match key.trim() {
            "" => Err(OverrideError::NoKey),
            key => Ok(Self { key: key.into(), value: value.into() }),
        }
    }
}

/// As it can be shown: without the value where the key names a secret.
impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = if names_secret(&self.key) { "..." } else { &self.value };
        for c in format!("{}={value}", self.key).chars() {
            write!(f, "{}", if c.is_control() { '\u{fffd}' } else { c })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
