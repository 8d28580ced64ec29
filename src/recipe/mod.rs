//! Recipes: one TOML file that says what is pinned and what is wanted.
//!
//! [`load`] reads a file, lays `--set` overrides over it, and either returns plain typed values or everything
//! that is wrong with it at once, each with its place:
//!
//! - `source`: the text and its lines; what is no TOML at all;
//! - `include`: the files whose tables lie under the recipe's own;
//! - `tree`: the parsed text and the overrides as one tree whose every value knows where it came from;
//! - `section`: reads one table, key by key, and notes what is missing, misspelt or of the wrong type;
//! - `rules`: what a single value must look like;
//! - `read`: the recipe's tables, and the rules between values;
//! - `problem`: what is wrong, told to people and to machines.

pub mod draft;
pub mod expect;
mod include;
pub mod lock;
mod model;
mod overrides;
pub mod pin;
mod problem;
mod read;
mod rules;
mod section;
mod source;
mod tree;

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

pub use model::{
    Architecture, AuditRules, CloneSettings, Compression, DEFAULT_USERNAME, FirstBoot, Image, Included,
    Install, Media, Medium, Recipe, Root, VirtioExpect, VirtioOs, WindowsExpect, schema,
};
pub use overrides::{Override, OverrideError};
pub use problem::{Place, Problem, Problems};

/// Why there is no recipe.
#[derive(Debug, Error)]
pub enum RecipeError {
    /// The file can't be read.
    #[error("the recipe {} can't be read", path.display())]
    Read {
        /// The recipe's file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file or an override breaks a rule.
    #[error(transparent)]
    Rejected(#[from] Problems),
}

/// Reads the recipe at `path` with `overrides` laid over it. Media and disks are not looked at.
pub fn load(path: &Path, overrides: &[Override]) -> Result<Recipe, RecipeError> {
    let bytes = source::read(path).map_err(|source| RecipeError::Read { path: path.into(), source })?;
    Ok(parse(path, &bytes, overrides, &source::read)?)
}

/// As [`load`], from bytes already read; `path` is for messages and for the folder that file names start from, and
/// `open` reads an included file.
pub fn parse(
    path: &Path,
    bytes: &[u8],
    overrides: &[Override],
    open: &dyn Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<Recipe, Problems> {
    let source = source::Source::new(path, None, bytes)?;
    let includes = include::read(&source, open);
    read::recipe(source, &includes, overrides)
}
