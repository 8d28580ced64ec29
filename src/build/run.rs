//! A build from one end to the other.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;

use super::answers::{AnswersError, Mode, Settings};
use super::evidence::{
    AnswerEvidence, EVIDENCE, Evidence, FileIdentity, ImageEvidence, MediaEvidence, PatchEvidence,
    RecipeEvidence, RootEvidence, Tool, now,
};
use super::folder::{Folder, FolderError, IMAGE, refuse_unfit};
use super::publish::{Packaging, PublishError, Target, publish};
use super::state::{ImageState, Key, Owner, State};
use crate::containerdisk::{Compression, Digest, Image, Layout, LayoutError, LevelError, Verified, verify};
use crate::disk::{self, Disk, DiskError};
use crate::io::{Interrupted, Overlay, PatchError, Progress, ReadAt};
use crate::media::{self, MediaError, MediaFacts};
use crate::recipe::{self, Recipe};
use crate::registry::{Registry, RegistryError};
use crate::root::{self, FirstBoot, RootError, Sealed};

/// What is to be built, from what, and where.
#[derive(Debug)]
pub struct Job<'j> {
    /// The recipe.
    pub recipe: &'j Recipe,
    /// What `--set` laid over it, as it can be shown.
    pub overrides: Vec<String>,
    /// Where the media are, instead of the recipe's folder.
    pub media_dir: Option<PathBuf>,
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

/// Builds, telling `watch` after each stage; the evidence is in the build folder when this returns.
pub fn build(
    job: &Job<'_>,
    watch: &mut dyn FnMut(Step),
    progress: &dyn Progress,
) -> Result<Evidence, BuildError> {
    let started = now();
    let owner = job.owner()?;
    // Before anything is made: whose folder is it?
    refuse_unfit(&job.output)?;
    State::load(&job.output, owner.clone())?;
    if let Some(registry) = job.registry {
        registry.hello(progress)?;
    }
    let folder = Folder::open(&job.output)?;
    let mut state = State::load(&job.output, owner.clone())?;
    state.save(&folder)?;

    let media = job.verify_media(watch, progress)?;
    let install = job.answer(Mode::Install, &folder, &mut state, watch)?;
    let clone = match job.recipe.root.first_boot {
        recipe::FirstBoot::AnswerCd => Some(job.answer(Mode::Clone, &folder, &mut state, watch)?),
        _ => None,
    };
    let disk_path = job.disk_path()?;
    let disk = open(&disk_path)?;
    let sealed = job.seal(&disk, &disk_path, watch)?;
    let patch = PatchEvidence {
        report: sealed.report.clone(),
        sha256: Digest::of(&sealed.patch.to_json(disk.size())?),
    };
    let root = RootEvidence {
        identity: FileIdentity::of(disk.metadata()),
        disk: disk_path,
        warnings: sealed.examination.warnings.clone(),
        facts: sealed.examination.facts.clone(),
    };
    let image = job.image(&folder, &mut state, (&disk, sealed), (&root, &patch), watch, progress)?;
    let pushed = job.push(&folder, watch, progress)?;
    let evidence = Evidence {
        format: "sealroot-evidence-1",
        tool: Tool::THIS,
        started,
        finished: now(),
        recipe: RecipeEvidence { owner, sha256: job.recipe.file_sha256, overrides: job.overrides.clone() },
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

    pub(super) fn disk_path(&self) -> Result<PathBuf, BuildError> {
        let named = self.recipe.root.disk.as_ref().map(|disk| self.recipe.path(disk));
        self.disk.clone().or(named).ok_or(BuildError::NoDisk)
    }

    pub(super) fn first_boot(&self) -> FirstBoot {
        match self.recipe.root.first_boot {
            recipe::FirstBoot::AnswerCd => FirstBoot::AnswerCd { drive: self.recipe.root.drive_letter },
            recipe::FirstBoot::CloudbaseInit | recipe::FirstBoot::None => FirstBoot::NoPointer,
        }
    }

    fn verify_media(
        &self,
        watch: &mut dyn FnMut(Step),
        progress: &dyn Progress,
    ) -> Result<MediaEvidence, BuildError> {
        let pinned = self.recipe.pinned(self.media_dir.as_deref());
        let (mut facts, mut errors) = (Vec::new(), Vec::new());
        for result in media::verify(&pinned, progress)? {
            match result {
                Ok(medium) => facts.push(medium),
                Err(error) => errors.push(error),
            }
        }
        let Ok([windows, virtio]) = <[MediaFacts; 2]>::try_from(facts) else {
            return Err(BuildError::Media(errors));
        };
        for medium in [&windows, &virtio] {
            let outcome = format!("{} matches its pin", medium.path.display());
            watch(Step { name: "verify", kept: false, outcome });
        }
        Ok(MediaEvidence { windows, virtio })
    }

    fn answer(
        &self,
        mode: Mode,
        folder: &Folder,
        state: &mut State,
        watch: &mut dyn FnMut(Step),
    ) -> Result<AnswerEvidence, BuildError> {
        let settings = Settings::of(self.recipe, mode)?;
        let path = folder.join(mode.folder());
        let (answer, kept) = match settings.is_kept(&self.output, state)? {
            Some(answer) => (answer, true),
            None => (settings.render(folder, state)?, false),
        };
        let outcome = format!("{}: {} for {}", path.display(), mode.folder(), answer.hostname);
        watch(Step { name: "answer", kept, outcome });
        Ok(AnswerEvidence { folder: path, hostname: answer.hostname, username: answer.username, kept })
    }

    fn seal(&self, disk: &Disk, path: &Path, watch: &mut dyn FnMut(Step)) -> Result<Sealed, BuildError> {
        let sealed = root::seal(disk, &self.first_boot())
            .map_err(|source| BuildError::Root { path: path.into(), source })?;
        let facts = &sealed.examination.facts.windows;
        let edition = facts.edition_id.as_deref().unwrap_or("unknown edition");
        let build = facts.build.as_deref().unwrap_or("unknown build");
        let outcome = format!("{}: {edition} {build}, generalised and clean", path.display());
        watch(Step { name: "audit", kept: false, outcome });
        let pointer = sealed.report.pointer.as_deref().unwrap_or("none");
        let outcome = format!("pointer {pointer}, {} bytes to change", sealed.report.changed_bytes);
        watch(Step { name: "seal", kept: false, outcome });
        Ok(sealed)
    }

    fn image(
        &self,
        folder: &Folder,
        state: &mut State,
        (disk, sealed): (&Disk, Sealed),
        (root, patch): (&RootEvidence, &PatchEvidence),
        watch: &mut dyn FnMut(Step),
        progress: &dyn Progress,
    ) -> Result<ImageEvidence, BuildError> {
        let packaging = self.packaging(root)?;
        let made_from = key(&packaging, root, patch)?;
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
                let view = Overlay::new(disk, sealed.patch);
                let target = Target { layout: Some(fresh.path()), registry: None };
                let published = publish(&view, &packaging, target, progress)?;
                let verified = verify(fresh.path(), progress).map_err(BuildError::Verify)?;
                fresh.succeed()?;
                let image = ImageState {
                    made_from,
                    digest: published.digest,
                    packaged: now(),
                    volumes: serde_json::to_value(&published.volumes)?,
                };
                state.image = Some(image.clone());
                state.save(folder)?;
                (verified, image, false)
            }
        };
        let outcome =
            format!("{}: {}, layer of {} bytes", path.display(), verified.manifest, verified.layer_size);
        watch(Step { name: "package", kept, outcome });
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

    pub(super) fn packaging(&self, root: &RootEvidence) -> Result<Packaging, BuildError> {
        let image = &self.recipe.image;
        let level = image.level.map(|level| i32::try_from(level).unwrap_or(i32::MAX));
        let compression = match image.compression {
            recipe::Compression::Zstd => Compression::zstd(level)?,
            recipe::Compression::Gzip => Compression::gzip(level)?,
        };
        let mut annotations = BTreeMap::from([
            ("org.opencontainers.image.title".to_owned(), self.recipe.name.clone()),
            ("io.sealroot.virtual-size".to_owned(), root.facts.virtual_size.to_string()),
            ("io.sealroot.pin.windows".to_owned(), self.recipe.media.windows.sha256.to_string()),
            ("io.sealroot.pin.virtio".to_owned(), self.recipe.media.virtio.sha256.to_string()),
        ]);
        // The recipe's own come last: it may say more, and better.
        annotations.extend(image.annotations.clone());
        Ok(Packaging {
            compression,
            keep_free_clusters: false,
            image: Image { created: self.created.clone(), env: BTreeMap::new(), annotations },
        })
    }

    fn push(
        &self,
        folder: &Folder,
        watch: &mut dyn FnMut(Step),
        progress: &dyn Progress,
    ) -> Result<Option<String>, BuildError> {
        let Some(registry) = self.registry else { return Ok(None) };
        let layout = Layout::open(&folder.join(IMAGE)).map_err(BuildError::Verify)?;
        let pushed = registry.push_layout(&layout, progress)?;
        watch(Step { name: "push", kept: pushed.blobs_uploaded == 0, outcome: pushed.reference.clone() });
        Ok(Some(pushed.reference))
    }
}

pub(super) fn open(path: &Path) -> Result<Disk, BuildError> {
    disk::open(path).map_err(|source| BuildError::Disk { path: path.into(), source })
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

/// Everything that decides the image's bytes, and the root's identity: a root counts as the same only if its
/// file looks untouched and a fresh examination agrees.
pub(super) fn key(
    packaging: &Packaging,
    root: &RootEvidence,
    patch: &PatchEvidence,
) -> Result<Key, serde_json::Error> {
    #[derive(Serialize)]
    struct Inputs<'a> {
        tool: Tool,
        root: &'a RootEvidence,
        patch: &'a PatchEvidence,
        compression: String,
        keep_free_clusters: bool,
        created: &'a Option<String>,
        env: &'a BTreeMap<String, String>,
        annotations: &'a BTreeMap<String, String>,
    }
    Key::of(&Inputs {
        tool: Tool::THIS,
        root,
        patch,
        compression: format!("{:?}", packaging.compression),
        keep_free_clusters: packaging.keep_free_clusters,
        created: &packaging.image.created,
        env: &packaging.image.env,
        annotations: &packaging.image.annotations,
    })
}
