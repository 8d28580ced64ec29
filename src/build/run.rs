//! A build from one end to the other.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::answers::{AnswersError, Found, Mode, Settings};
use super::evidence::{
    AnswerEvidence, EVIDENCE, Evidence, ImageEvidence, MediaEvidence, RecipeEvidence, Tool, now,
};
use super::examine::Examined;
use super::folder::{Folder, FolderError, IMAGE, refuse_unfit};
use super::publish::{PublishError, Target, publish};
use super::state::{ImageState, Owner, Publication, State};
use crate::containerdisk::{Layout, LayoutError, LevelError, Verified, verify};
use crate::disk::DiskError;
use crate::io::{Interrupted, Overlay, PatchError, Progress};
use crate::media::driver::Judge;
use crate::media::{self, HashCache, MediaError, VerifiedFile};
use crate::recipe::expect::{self, Difference, Differences, UnreadMedium};
use crate::recipe::lock::{Lock, LockError};
use crate::recipe::{self, Recipe};
use crate::registry::{Registry, RegistryError};
use crate::root::RootError;

/// What is to be built, from what, and where.
#[derive(Debug)]
pub struct Job<'j> {
    /// The recipe.
    pub recipe: &'j Recipe,
    /// What `--set` laid over it, as it can be shown.
    pub overrides: Vec<String>,
    /// Where the media are, instead of the recipe's folder.
    pub media_dir: Option<PathBuf>,
    /// The roots that drivers' certificates are judged by.
    pub trust: Judge<'j>,
    /// Hashes of earlier builds, where the user wants media not to be hashed again.
    pub hash_cache: Option<&'j HashCache>,
    /// The root disk, instead of the recipe's.
    pub disk: Option<PathBuf>,
    /// The build folder.
    pub output: PathBuf,
    /// Where the image is pushed, if at all.
    pub registry: Option<&'j Registry>,
    /// When the image says it was made.
    pub created: Option<String>,
}

/// A stage that is done, for whoever watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The stage.
    pub name: &'static str,
    /// Whether an earlier build had done it.
    pub kept: bool,
    /// What came of it.
    pub outcome: String,
    /// What did not stand in its way, but should be known.
    pub warnings: Vec<String>,
}

impl Step {
    fn new(name: &'static str, outcome: String) -> Self {
        Self { name, kept: false, outcome, warnings: Vec::new() }
    }
}

/// Why a build ended early. What was whole by then stays, and is kept by the next build.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The recipe's file has no absolute path.
    #[error("the recipe {} can't be found any more", path.display())]
    Recipe {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The build folder can't be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// One medium or both are not what is pinned.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Media(Vec<MediaError>),
    /// The recipe's lock can't be used.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A verified medium can't be read.
    #[error(transparent)]
    Unread(#[from] UnreadMedium),
    /// The media do not hold what the recipe expects.
    #[error(transparent)]
    Expect(#[from] Differences),
    /// An answer can't be rendered.
    #[error(transparent)]
    Answers(#[from] AnswersError),
    /// Neither the recipe nor the command line names a disk.
    #[error("the recipe names no root disk (root.disk), and --disk was not given")]
    NoDisk,
    /// The disk can't be opened.
    #[error("{}: {source}", path.display())]
    Disk {
        /// The disk.
        path: PathBuf,
        /// Why.
        source: DiskError,
    },
    /// The root is unfit, or can't be read.
    #[error("{}: {source}", path.display())]
    Root {
        /// The disk.
        path: PathBuf,
        /// Why.
        source: RootError,
    },
    /// The patch can't be fingerprinted.
    #[error(transparent)]
    Patch(#[from] PatchError),
    /// The recipe's compression level is none.
    #[error(transparent)]
    Level(#[from] LevelError),
    /// The image can't be packaged.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// What was written does not read back.
    #[error("the image that was written does not read back")]
    Verify(#[source] LayoutError),
    /// The push failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// Facts that can't be written down.
    #[error("the evidence can't be written as JSON")]
    Json(#[from] serde_json::Error),
    /// The user asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl BuildError {
    /// A layout of this build's own that does not read back, or was not read to its end.
    fn read_back(error: LayoutError) -> Self {
        match error {
            LayoutError::Interrupted(interrupted) => interrupted.into(),
            other => Self::Verify(other),
        }
    }
}

/// Builds, telling `watch` after each stage; the evidence is in the build folder when this returns.
pub fn build(
    job: &Job<'_>,
    watch: &mut dyn FnMut(Step),
    progress: &dyn Progress,
) -> Result<Evidence, BuildError> {
    let started = now();
    let owner = job.owner()?;
    // Before anything is made or hashed: all that can be known already.
    refuse_unfit(&job.output)?;
    let state = State::load(&job.output, owner.clone())?;
    job.look_at_media()?;
    for mode in job.modes() {
        job.find_answer(*mode, &state)?;
    }
    let examined = job.examine()?;
    if let Some(registry) = job.registry {
        registry.hello(progress)?;
    }
    let folder = Folder::open(&job.output)?;
    let mut state = State::load(&job.output, owner.clone())?;
    state.save(&folder)?;

    let media = job.verify_media(watch, progress)?;
    let install = job.answer(Mode::Install, &folder, &mut state, watch)?;
    let clone = match job.modes().contains(&Mode::Clone) {
        true => Some(job.answer(Mode::Clone, &folder, &mut state, watch)?),
        false => None,
    };
    tell_root(&examined, watch);
    let (root, patch) = (examined.root.clone(), examined.patch.clone());
    let image = job.image(&folder, &mut state, examined, watch, progress)?;
    let pushed = job.push(&folder, &mut state, watch, progress)?;
    let evidence = Evidence {
        format: "sealroot-evidence-1",
        tool: Tool::THIS,
        started,
        finished: now(),
        recipe: RecipeEvidence::new(owner, job.recipe, job.overrides.clone()),
        media,
        install,
        clone,
        root,
        patch,
        image,
        pushed,
    };
    folder.write_json(EVIDENCE, &evidence)?;
    Ok(evidence)
}

impl Job<'_> {
    pub(super) fn owner(&self) -> Result<Owner, BuildError> {
        let path = &self.recipe.file;
        let file = path.canonicalize().map_err(|source| BuildError::Recipe { path: path.clone(), source })?;
        Ok(Owner { name: self.recipe.name.clone(), file: file.to_string_lossy().into_owned() })
    }

    /// The answers it takes.
    pub(super) fn modes(&self) -> &'static [Mode] {
        match self.recipe.root.first_boot {
            recipe::FirstBoot::AnswerCd => &[Mode::Install, Mode::Clone],
            _ => &[Mode::Install],
        }
    }

    /// An answer's settings, and what an earlier build left of it.
    pub(super) fn find_answer(&self, mode: Mode, state: &State) -> Result<(Settings, Found), BuildError> {
        let settings = Settings::of(self.recipe, mode)?;
        let found = settings.find(&self.output, state)?;
        Ok((settings, found))
    }

    /// Whether both media are there, and the lock fits: without that, hashing is pointless.
    fn look_at_media(&self) -> Result<(), BuildError> {
        self.lock_fits()?;
        let pinned = self.recipe.pinned(self.media_dir.as_deref());
        let errors: Vec<_> = pinned.iter().filter_map(|medium| media::look(medium).err()).collect();
        if errors.is_empty() { Ok(()) } else { Err(BuildError::Media(errors)) }
    }

    /// Whether the recipe's lock, if there is one, is of its pins.
    pub(super) fn lock_fits(&self) -> Result<(), BuildError> {
        let lock = Lock::read(&self.recipe.file)?;
        hold(lock.map(|lock| lock.fits(self.recipe)).unwrap_or_default())
    }

    fn verify_media(
        &self,
        watch: &mut dyn FnMut(Step),
        progress: &dyn Progress,
    ) -> Result<MediaEvidence, BuildError> {
        let lock = Lock::read(&self.recipe.file)?;
        let pinned = self.recipe.pinned(self.media_dir.as_deref());
        let (mut facts, mut errors) = (Vec::new(), Vec::new());
        for result in media::verify(&pinned, self.hash_cache, progress)? {
            match result {
                Ok(medium) => facts.push(medium),
                Err(error) => errors.push(error),
            }
        }
        let Ok([windows, virtio]) = <[VerifiedFile; 2]>::try_from(facts) else {
            return Err(BuildError::Media(errors));
        };
        for VerifiedFile { facts: medium, .. } in [&windows, &virtio] {
            let hashed = medium.hash_cached.as_deref();
            let hashed = hashed.map(|when| format!(" (not hashed now: of {when}, from the hash cache)"));
            let outcome = format!("{} matches its pin{}", medium.path.display(), hashed.unwrap_or_default());
            watch(Step::new("verify", outcome));
        }
        let found = expect::check(self.recipe, &windows, &virtio, lock.as_ref(), self.trust)?;
        hold(found.differences.clone())?;
        let image = found.windows.as_ref().and_then(|found| found.image.as_ref());
        let image = image.map(|image| format!("image {}, {}; ", image.index, image.name)).unwrap_or_default();
        let folders = found.drivers.as_ref().map_or(0, |found| found.folders.len());
        let outcome = format!("{image}{folders} driver folders as their catalogs have them");
        watch(Step { warnings: found.warnings.clone(), ..Step::new("verify", outcome) });
        Ok(MediaEvidence { windows: windows.facts, virtio: virtio.facts, found })
    }

    fn answer(
        &self,
        mode: Mode,
        folder: &Folder,
        state: &mut State,
        watch: &mut dyn FnMut(Step),
    ) -> Result<AnswerEvidence, BuildError> {
        let (settings, found) = self.find_answer(mode, state)?;
        let path = folder.join(mode.folder());
        let anew = if found == Found::Gone { "; the earlier one is gone" } else { "" };
        let (answer, kept) = match found {
            Found::Kept(answer) => (answer, true),
            Found::New | Found::Gone => (settings.render(folder, state)?, false),
        };
        let outcome = format!("{}: {} for {}{anew}", path.display(), mode.folder(), answer.hostname);
        watch(Step { kept, ..Step::new("answer", outcome) });
        Ok(AnswerEvidence { folder: path, hostname: answer.hostname, username: answer.username, kept })
    }

    fn image(
        &self,
        folder: &Folder,
        state: &mut State,
        examined: Examined,
        watch: &mut dyn FnMut(Step),
        progress: &dyn Progress,
    ) -> Result<ImageEvidence, BuildError> {
        let Examined { disk, sealed, packaging, made_from, .. } = examined;
        let path = folder.join(IMAGE);
        let earlier = state.image.clone().filter(|image| image.made_from == made_from);
        let kept = match earlier {
            Some(image) => read_back(&path, progress)?
                .filter(|found| found.manifest == image.digest)
                .map(|verified| (verified, image)),
            None => None,
        };
        let (verified, image, kept) = match kept {
            Some((verified, image)) => (verified, image, true),
            None => {
                let fresh = folder.next_image();
                let view = Overlay::new(&disk, sealed.patch);
                let target = Target { layout: Some(fresh.path()), registry: None };
                let published = publish(&view, &packaging, target, progress)?;
                let verified = verify(fresh.path(), progress).map_err(BuildError::read_back)?;
                fresh.succeed()?;
                // What was pushed is the same image still.
                let same = state.image.take().filter(|earlier| earlier.digest == published.digest);
                let image = ImageState {
                    made_from,
                    digest: published.digest,
                    packaged: now(),
                    volumes: serde_json::to_value(&published.volumes)?,
                    pushed: same.and_then(|earlier| earlier.pushed),
                };
                state.image = Some(image.clone());
                state.save(folder)?;
                (verified, image, false)
            }
        };
        let outcome =
            format!("{}: {}, layer of {} bytes", path.display(), verified.manifest, verified.layer_size);
        watch(Step { kept, ..Step::new("package", outcome) });
        Ok(ImageEvidence {
            layout: path,
            manifest_digest: verified.manifest,
            layer_digest: verified.layer,
            layer_size: verified.layer_size,
            diff_id: verified.diff_id,
            file_size: verified.file_size,
            kept,
            packaged: image.packaged,
            volumes: image.volumes,
        })
    }

    /// Pushes the image, if that is asked for; the last push of it otherwise.
    fn push(
        &self,
        folder: &Folder,
        state: &mut State,
        watch: &mut dyn FnMut(Step),
        progress: &dyn Progress,
    ) -> Result<Option<Publication>, BuildError> {
        let Some(registry) = self.registry else {
            return Ok(state.image.as_ref().and_then(|image| image.pushed.clone()));
        };
        let layout = Layout::open(&folder.join(IMAGE)).map_err(BuildError::read_back)?;
        let pushed = registry.push_layout(&layout, progress)?;
        let already = if pushed.blobs_uploaded == 0 { " (blobs there already)" } else { "" };
        let outcome = format!("{}, tag {}{already}", pushed.reference, pushed.tag);
        watch(Step::new("push", outcome));
        let publication = Publication { reference: pushed.reference, tag: pushed.tag, time: now() };
        if let Some(image) = &mut state.image {
            image.pushed = Some(publication.clone());
        }
        state.save(folder)?;
        Ok(Some(publication))
    }
}

fn hold(differences: Vec<Difference>) -> Result<(), BuildError> {
    if differences.is_empty() { Ok(()) } else { Err(Differences(differences).into()) }
}

fn tell_root(examined: &Examined, watch: &mut dyn FnMut(Step)) {
    let warnings = examined.root.remarks();
    watch(Step { warnings, ..Step::new("audit", examined.root.summary()) });
    let report = &examined.patch.report;
    let pointer = report.pointer.as_deref().unwrap_or("none");
    let scrubbed = match report.answer_files_scrubbed.len() + report.answer_files_emptied.len() {
        0 => String::new(),
        n => format!(", {n} cached answer files zeroed"),
    };
    let outcome = format!("pointer {pointer}, {} bytes to change{scrubbed}", report.changed_bytes);
    watch(Step::new("seal", outcome));
}

/// An image of an earlier build, if it is whole.
fn read_back(path: &Path, progress: &dyn Progress) -> Result<Option<Verified>, BuildError> {
    match verify(path, progress) {
        Ok(verified) => Ok(Some(verified)),
        Err(LayoutError::Interrupted(interrupted)) => Err(interrupted.into()),
        // Missing or damaged: it is made again.
        Err(_) => Ok(None),
    }
}
