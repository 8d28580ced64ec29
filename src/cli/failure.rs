//! How a command ends when it does not succeed: what, where, why, what to do, and the exit code.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use crate::io::{Interrupted, NewPathError};

/// The exit codes, the same for every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// I/O, network, a tool, or a bug.
    Failed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// Something given does not pass its check: pin, recipe, medium, answer file, policy.
    Rejected = 3,
    /// The state is unsafe or unfit: not generalised, dirty, in use, output exists.
    Refused = 4,
    /// The user asked to stop; nothing is half-written.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// What the command line has to know of a library error: its exit code, and what the user can do.
///
/// Implemented beside the first subcommand that meets the error.
pub trait Classify: Error + Send + Sync + 'static {
    /// The exit code this error ends the command with.
    fn exit(&self) -> Exit;

    /// What to do about it, where the message does not say so already.
    fn cure(&self) -> Option<String> {
        None
    }
}

/// A command's end: an error with its context.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    context: Option<String>,
    error: Box<dyn Error + Send + Sync>,
    cure: Option<String>,
}

impl Failure {
    /// Several failures, told together; `None` where there are none. One that fails a check says more than one that
    /// can't be read.
    pub fn all(failures: &[Self]) -> Option<Self> {
        let rejected = failures.iter().any(|failure| failure.exit() == Exit::Rejected);
        let exit = if rejected { Exit::Rejected } else { Exit::Failed };
        let told: Vec<_> = failures.iter().map(ToString::to_string).collect();
        (!failures.is_empty()).then(|| Self::new(exit, told.join("\n\n")))
    }

    /// A failure with no library error behind it.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, context: None, error: message.into().into(), cure: None }
    }

    /// Says what was being done, or to which file.
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.context = Some(match self.context {
            Some(inner) => format!("{context}: {inner}"),
            None => context.to_string(),
        });
        self
    }

    /// Says what to do about it.
    pub fn cure(mut self, cure: impl Into<String>) -> Self {
        self.cure = Some(cure.into());
        self
    }

    /// What went wrong, without what to do about it.
    pub fn reason(&self) -> String {
        let told = self.to_string();
        let cure = self.cure.as_ref().map(|cure| format!("\n  {cure}")).unwrap_or_default();
        told.strip_suffix(&cure).map(str::to_owned).unwrap_or(told)
    }

    /// The exit code.
    pub fn exit(&self) -> Exit {
        self.exit
    }
}

impl<E: Classify> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { exit: error.exit(), context: None, cure: error.cure(), error: Box::new(error) }
    }
}

/// The whole story on one line, causes included, and the cure on a line of its own.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(context) = &self.context {
            write!(f, "{context}: ")?;
        }
        write!(f, "{}", self.error)?;
        let mut told = self.error.to_string();
        let mut cause = self.error.source();
        while let Some(error) = cause {
            // Some libraries repeat their source in their own message.
            let message = error.to_string();
            if !told.contains(&message) {
                write!(f, ": {message}")?;
                told.push_str(&message);
            }
            cause = error.source();
        }
        if let Some(cure) = &self.cure {
            write!(f, "\n  {cure}")?;
        }
        Ok(())
    }
}

impl Classify for Interrupted {
    fn exit(&self) -> Exit {
        Exit::Interrupted
    }
}

impl Classify for NewPathError {
    fn exit(&self) -> Exit {
        match self {
            Self::Exists { .. } => Exit::Refused,
            Self::NoFolder { .. } | Self::Io { .. } => Exit::Failed,
        }
    }
}
