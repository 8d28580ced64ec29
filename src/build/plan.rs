//! What a build would do, and what stands in its way: nothing is hashed, written or sent.

use super::answers::Found;
use super::folder::{IMAGE, refuse_unfit};
use super::run::{BuildError, Job};
use super::state::State;
use crate::media;
use crate::registry::ImageName;

/// One stage, before it is done.
#[derive(Debug)]
pub struct Planned {
    /// The stage.
    pub name: &'static str,
    /// What it would do.
    pub what: Result<String, BuildError>,
    /// What does not stand in its way, but should be known.
    pub warnings: Vec<String>,
}

/// Looks at everything a build would use. Another recipe's folder is an error; what is merely missing is not.
pub fn plan(job: &Job<'_>, push: Option<&ImageName>) -> Result<Vec<Planned>, BuildError> {
    refuse_unfit(&job.output)?;
    let state = State::load(&job.output, job.owner()?)?;
    let mut stages = Vec::new();
    let mut add = |name, what| stages.push(Planned { name, what, warnings: Vec::new() });
    if let Err(error) = job.lock_fits() {
        add("verify", Err(error));
    }
    for medium in job.recipe.pinned(job.media_dir.as_deref()) {
        let what = media::look(&medium)
            .map(|size| format!("hash {} ({size} bytes)", medium.path.display()))
            .map_err(|error| BuildError::Media(vec![error]));
        add("verify", what);
    }
    for mode in job.modes() {
        let folder = job.output.join(mode.folder());
        let what = job.find_answer(*mode, &state).map(|(_, found)| match found {
            Found::Kept(_) => format!("keep {}", folder.display()),
            Found::New => format!("render {}", folder.display()),
            Found::Gone => format!("render {} anew, the earlier one is gone", folder.display()),
        });
        add("answer", what);
    }
    let image = job.output.join(IMAGE);
    match job.examine() {
        Ok(examined) => {
            let kept = state.image.is_some_and(|earlier| earlier.made_from == examined.made_from);
            let bytes = examined.patch.report.changed_bytes;
            let disk = examined.root.disk.display();
            add("audit", Ok(examined.root.summary()));
            add("seal", Ok(format!("{disk}: change {bytes} bytes in the image, none on the disk")));
            let package = match kept && image.exists() {
                true => format!("keep {} if it reads back", image.display()),
                false => format!("package into {}", image.display()),
            };
            add("package", Ok(package));
            if let Some(audit) = stages.iter_mut().find(|stage| stage.name == "audit") {
                audit.warnings = examined.root.remarks();
            }
        }
        Err(error) => {
            add("audit", Err(error));
            for name in ["seal", "package"] {
                add(name, Ok("pending: it needs a root disk that passes the audit".into()));
            }
        }
    }
    if let Some(image) = push {
        let what = format!("to {image}; the registry is not asked");
        stages.push(Planned { name: "push", what: Ok(what), warnings: Vec::new() });
    }
    Ok(stages)
}
