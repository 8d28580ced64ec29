//! What a build leaves to be audited: pins, facts, digests and times. No secret is among them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::state::{Owner, Publication};
use crate::containerdisk::Digest;
use crate::io::path_text;
use crate::media::{MediaFacts, Sha256};
use crate::recipe::Recipe;
use crate::recipe::expect::Found;
use crate::root::{Finding, RootFacts, SealReport};

/// The file the evidence goes to.
pub const EVIDENCE: &str = "evidence.json";

/// A whole build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// `sealroot-evidence-1`
    pub format: &'static str,
    /// What built it.
    pub tool: Tool,
    /// When the build began, UTC.
    pub started: String,
    /// When it was done, UTC.
    pub finished: String,
    /// The recipe.
    pub recipe: RecipeEvidence,
    /// Both media, verified against their pins.
    pub media: MediaEvidence,
    /// The installation's answer.
    pub install: AnswerEvidence,
    /// The clone's answer; none where clones boot without an answer CD.
    pub clone: Option<AnswerEvidence>,
    /// The root disk.
    pub root: RootEvidence,
    /// What sealing changed.
    pub patch: PatchEvidence,
    /// The image.
    pub image: ImageEvidence,
    /// Where it was pushed, by this build or by an earlier one that made the same image.
    pub pushed: Option<Publication>,
}

/// This program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tool {
    /// `sealroot`
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
}

impl Tool {
    /// The program that is running.
    pub const THIS: Self = Self { name: env!("CARGO_PKG_NAME"), version: env!("CARGO_PKG_VERSION") };
}

/// The recipe, as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecipeEvidence {
    /// Its name and file.
    #[serde(flatten)]
    pub owner: Owner,
    /// Of the file's bytes.
    pub sha256: Sha256,
    /// What it includes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub included: Vec<IncludedEvidence>,
    /// What `--set` laid over it.
    pub overrides: Vec<String>,
}

/// A file that the recipe includes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IncludedEvidence {
    /// Its name, as the recipe has it.
    #[serde(serialize_with = "path_text")]
    pub file: PathBuf,
    /// Of its bytes.
    pub sha256: Sha256,
}

impl RecipeEvidence {
    pub(super) fn new(owner: Owner, recipe: &Recipe, overrides: Vec<String>) -> Self {
        let included = recipe.include.iter();
        let included =
            included.map(|file| IncludedEvidence { file: file.name.clone(), sha256: file.sha256 }).collect();
        Self { owner, sha256: recipe.file_sha256, included, overrides }
    }
}

/// Both media.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MediaEvidence {
    /// The Windows ISO; its hash is its pin.
    pub windows: MediaFacts,
    /// The virtio-win ISO; its hash is its pin.
    pub virtio: MediaFacts,
    /// What is on them: all that the recipe expects.
    pub found: Found,
}

/// One rendered answer, less its secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AnswerEvidence {
    /// Where it is.
    #[serde(serialize_with = "path_text")]
    pub folder: PathBuf,
    /// The computer's name.
    pub hostname: String,
    /// The local administrator's name.
    pub username: String,
    /// Whether an earlier build rendered it.
    pub kept: bool,
}

/// The root disk and what was found on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RootEvidence {
    /// The file.
    #[serde(serialize_with = "path_text")]
    pub disk: PathBuf,
    /// Which file it was.
    #[serde(flatten)]
    pub identity: FileIdentity,
    /// What the audit of the sealed root warned of, or was told to allow.
    pub findings: Vec<Finding>,
    /// What it says of itself.
    #[serde(flatten)]
    pub facts: RootFacts,
}

/// What tells one state of a file from another, as far as a file system knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileIdentity {
    /// In bytes.
    pub file_size: u64,
    /// The file system it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// When it was last written, in nanoseconds since 1970.
    pub modified_nanoseconds: i128,
}

impl FileIdentity {
    /// From what the file system says.
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            file_size: metadata.len(),
            device: metadata.dev(),
            inode: metadata.ino(),
            modified_nanoseconds: i128::from(metadata.mtime()) * 1_000_000_000
                + i128::from(metadata.mtime_nsec()),
        }
    }
}

/// What sealing changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PatchEvidence {
    /// What it did.
    #[serde(flatten)]
    pub report: SealReport,
    /// Of the patch in its saved form.
    pub sha256: Digest,
}

/// The image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageEvidence {
    /// The OCI layout.
    #[serde(serialize_with = "path_text")]
    pub layout: PathBuf,
    /// The image's digest.
    pub manifest_digest: Digest,
    /// The layer's digest.
    pub layer_digest: Digest,
    /// The layer's bytes.
    pub layer_size: u64,
    /// The digest of the tar in the layer.
    pub diff_id: Digest,
    /// Bytes of the qcow2 file in it.
    pub file_size: u64,
    /// Whether an earlier build packaged it.
    pub kept: bool,
    /// When it was packaged, UTC.
    pub packaged: String,
    /// What was shipped of each partition.
    pub volumes: serde_json::Value,
}

/// The time now, as evidence has it.
pub fn now() -> String {
    // Formatting fails only for years outside of 0 to 9999.
    OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default()
}
