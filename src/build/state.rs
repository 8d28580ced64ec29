//! What an earlier build made and from what: the difference between "done" and "done and unchanged".

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::folder::{Folder, FolderError, STATE, read_json};
use crate::containerdisk::Digest;

/// A build folder's memory. It decides what is kept; it proves nothing: what is kept is checked again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    format: String,
    /// The recipe the folder belongs to.
    pub recipe: Owner,
    /// The install answer that was, or is about to be, rendered.
    pub install: Option<AnswerState>,
    /// The clone answer that was, or is about to be, rendered.
    pub clone: Option<AnswerState>,
    /// The image in the folder.
    pub image: Option<ImageState>,
}

/// A recipe's identity: its name and where it lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The recipe's own name.
    pub name: String,
    /// Its file, as an absolute path; bytes that are no UTF-8 are U+FFFD.
    pub file: String,
}

/// An answer, less its secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerState {
    /// Every setting it was rendered from.
    pub made_from: Key,
    /// The computer's name.
    pub hostname: String,
    /// The local administrator's name.
    pub username: String,
}

/// The image in the folder, and what it was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageState {
    /// Everything that decides its bytes.
    pub made_from: Key,
    /// Its manifest's digest.
    pub digest: Digest,
    /// When it was packaged, UTC.
    pub packaged: String,
    /// What was shipped of each partition, as evidence has it.
    pub volumes: serde_json::Value,
    /// Where it was last pushed.
    #[serde(default)]
    pub pushed: Option<Publication>,
}

/// A push that was served back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publication {
    /// `HOST/REPOSITORY@sha256:...`
    pub reference: String,
    /// The tag it was put under.
    pub tag: String,
    /// When, UTC.
    pub time: String,
}

/// A fingerprint of a stage's inputs: equal keys, equal inputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key(String);

impl Key {
    /// The fingerprint of `inputs`, by their JSON form (whose order of fields is fixed).
    pub fn of(inputs: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(Self(hex::encode(Sha256::digest(serde_json::to_vec(inputs)?))))
    }
}

const FORMAT: &str = "sealroot-build-1";

impl State {
    /// The state in `folder`, or a new one there; refused where the folder is another recipe's.
    pub fn load(folder: &Path, owner: Owner) -> Result<Self, FolderError> {
        let path = folder.join(STATE);
        let Some(state) = read_json::<Self>(&path)? else {
            return Ok(Self {
                format: FORMAT.into(),
                recipe: owner,
                install: None,
                clone: None,
                image: None,
            });
        };
        if state.format != FORMAT {
            let why = format!("its format is {:?}, this version writes {FORMAT:?}", state.format);
            return Err(FolderError::Unreadable { path, why });
        }
        if state.recipe != owner {
            return Err(FolderError::OtherRecipe {
                path: folder.into(),
                found: state.recipe.to_string(),
                wanted: owner.to_string(),
            });
        }
        Ok(state)
    }

    /// Writes the state into its folder.
    pub fn save(&self, folder: &Folder) -> Result<(), FolderError> {
        folder.write_json(STATE, self)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.file)
    }
}
