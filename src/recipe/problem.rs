//! What is wrong with a recipe, and where: for people, and as JSON for machines.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use crate::io::path_text;

/// Where a value stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum Place {
    /// In the recipe's file, or in one that it includes.
    File {
        /// The included file; `None` for the recipe's own.
        #[serde(skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in characters.
        column: usize,
    },
    /// In an override.
    Set {
        /// The argument of `--set`; the value is left out where the key names a secret.
        set: String,
    },
}

impl Place {
    pub(super) fn same_line(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File { file, line, .. }, Self::File { file: other_file, line: other, .. }) => {
                (file, line) == (other_file, other)
            }
            _ => false,
        }
    }
}

/// Where it stands, without the recipe's own file: `12:10`, `base.toml:12:10`, or the override.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file: None, line, column } => write!(f, "{line}:{column}"),
            Self::File { file: Some(file), line, column } => write!(f, "{file}:{line}:{column}"),
            Self::Set { set } => write!(f, "--set {set}"),
        }
    }
}

/// A line of the recipe and the part of it that is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Excerpt {
    pub line: String,
    /// Where the part begins, in characters from 0.
    pub column: usize,
    /// Characters it is long, at least 1.
    pub width: usize,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// The key's full name, as `media.windows.sha256`; empty for the file as a whole.
    pub key: String,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
    #[serde(rename = "text", serialize_with = "only_line")]
    pub(super) excerpt: Option<Excerpt>,
}

fn only_line<S: Serializer>(excerpt: &Option<Excerpt>, serializer: S) -> Result<S::Ok, S::Error> {
    excerpt.as_ref().map(|excerpt| &excerpt.line).serialize(serializer)
}

/// Everything that is wrong with one recipe; never empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problems {
    /// The recipe's file.
    #[serde(serialize_with = "path_text")]
    pub file: PathBuf,
    /// In the order of the text; overrides last.
    pub problems: Vec<Problem>,
}

impl std::error::Error for Problems {}

impl Problems {
    /// The most that is told of one recipe; a file with more is no recipe with slips in it.
    pub(super) const MOST: usize = 100;

    pub(super) fn new(file: &Path, mut problems: Vec<Problem>) -> Self {
        problems.sort_by(|a, b| a.place.cmp(&b.place));
        Self { file: file.into(), problems }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.problems.len();
        let more = if count < Self::MOST { "" } else { " or more" };
        write!(f, "{}: {count}{more} problem{}", self.file.display(), if count == 1 { "" } else { "s" })?;
        for problem in &self.problems {
            write!(f, "\n\n")?;
            match &problem.place {
                place @ Place::File { file: None, .. } => write!(f, "{}:{place}: ", self.file.display())?,
                place => write!(f, "{place}: ")?,
            }
            write!(f, "{}", problem.message)?;
            if let (Some(excerpt), Place::File { line, .. }) = (&problem.excerpt, &problem.place) {
                let number = line.to_string();
                let margin = " ".repeat(number.len());
                write!(f, "\n  {number} | {}", excerpt.line.trim_end())?;
                write!(f, "\n  {margin} | {}{}", " ".repeat(excerpt.column), "^".repeat(excerpt.width))?;
            }
            if let Some(help) = &problem.help {
                write!(f, "\n  help: {help}")?;
            }
        }
        Ok(())
    }
}
