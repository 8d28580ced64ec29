//! What a build would do, and what it would miss: nothing is hashed, written or sent.

use serde::Serialize;

use super::answers::{Mode, Settings};
use super::evidence::{FileIdentity, PatchEvidence, RootEvidence};
use super::folder::{IMAGE, refuse_unfit};
use super::run::{BuildError, Job, key, open};
use super::state::State;
use crate::containerdisk::Digest;
use crate::io::ReadAt;
use crate::recipe;
use crate::registry::ImageName;
use crate::root::{self, RootError};

/// One stage, before it is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Planned {
    /// The stage.
    pub name: &'static str,
    /// What it would do, or why it can't.
    pub what: String,
    /// Whether something is missing for it.
    pub missing: bool,
}

/// Looks at everything a build would use. Another recipe's folder is an error; what is merely missing is not.
pub fn plan(job: &Job<'_>, push: Option<&ImageName>) -> Result<Vec<Planned>, BuildError> {
    refuse_unfit(&job.output)?;
    let state = State::load(&job.output, job.owner()?)?;
    let mut stages = Vec::new();
    let mut add = |name, missing, what: String| stages.push(Planned { name, what, missing });
    for medium in job.recipe.pinned(job.media_dir.as_deref()) {
        let path = medium.path.display();
        match medium.path.metadata() {
            Ok(found) => add("verify", false, format!("hash {path} ({} bytes)", found.len())),
            Err(e) => add("verify", true, format!("{path}: {e}")),
        }
    }
    let modes: &[Mode] = match job.recipe.root.first_boot {
        recipe::FirstBoot::AnswerCd => &[Mode::Install, Mode::Clone],
        _ => &[Mode::Install],
    };
    for mode in modes {
        let folder = job.output.join(mode.folder());
        match Settings::of(job.recipe, *mode).and_then(|settings| settings.is_kept(&job.output, &state)) {
            Ok(Some(_)) => add("answer", false, format!("keep {}", folder.display())),
            Ok(None) => add("answer", false, format!("render {}", folder.display())),
            Err(e) => add("answer", true, e.to_string()),
        }
    }
    match image_stage(job, &state) {
        Ok(stages) => stages.into_iter().for_each(|(name, what)| add(name, false, what)),
        Err(e) => add("seal", true, e.to_string()),
    }
    if let Some(image) = push {
        add("push", false, format!("to {}/{}", image.host(), image.repository()));
    }
    Ok(stages)
}

/// Seals in memory, which is quick, and compares with what the folder's image was made from.
fn image_stage(job: &Job<'_>, state: &State) -> Result<[(&'static str, String); 2], BuildError> {
    let path = job.disk_path()?;
    let disk = open(&path)?;
    let sealed = root::seal(&disk, &job.first_boot())
        .map_err(|source: RootError| BuildError::Root { path: path.clone(), source })?;
    let patch =
        PatchEvidence { sha256: Digest::of(&sealed.patch.to_json(disk.size())?), report: sealed.report };
    let root = RootEvidence {
        identity: FileIdentity::of(disk.metadata()),
        disk: path.clone(),
        warnings: sealed.examination.warnings,
        facts: sealed.examination.facts,
    };
    let made_from = key(&job.packaging(&root)?, &root, &patch)?;
    let image = job.output.join(IMAGE);
    let kept = state.image.as_ref().is_some_and(|image| image.made_from == made_from) && image.exists();
    let seal = format!(
        "{}: change {} bytes in the image, none on the disk",
        path.display(),
        patch.report.changed_bytes
    );
    let package = if kept {
        format!("keep {} if it reads back", image.display())
    } else {
        format!("package into {}", image.display())
    };
    Ok([("seal", seal), ("package", package)])
}
