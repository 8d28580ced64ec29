//! What is decided before anything is hashed or made: the root, sealed in memory, and how it is packaged.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::evidence::{FileIdentity, PatchEvidence, RootEvidence, Tool};
use super::publish::Packaging;
use super::run::{BuildError, Job};
use super::state::Key;
use crate::containerdisk::{Compression, Digest, Image};
use crate::disk::{self, Disk};
use crate::io::{Overlay, ReadAt};
use crate::recipe;
use crate::root::audit::Status;
use crate::root::{self, Audit, Finding, LogReplay, Sealed};

/// A fit root and all that is made of it, but the image.
pub struct Examined {
    /// The disk, open.
    pub disk: Disk,
    /// The disk, sealed in memory.
    pub sealed: Sealed,
    /// What evidence says of it.
    pub root: RootEvidence,
    /// What evidence says of its patch.
    pub patch: PatchEvidence,
    /// How it is packaged.
    pub packaging: Packaging,
    /// Everything that decides the image's bytes.
    pub made_from: Key,
}

impl Job<'_> {
    /// Opens the disk, audits it and seals it in memory, which is quick.
    pub(super) fn examine(&self) -> Result<Examined, BuildError> {
        let compression = self.compression()?;
        let path = self.disk_path()?;
        let disk = disk::open(&path).map_err(|source| BuildError::Disk { path: path.clone(), source })?;
        let in_root = |source| BuildError::Root { path: path.clone(), source };
        let replay = LogReplay::default();
        let sealed = root::seal(&disk, &self.recipe.first_boot(), replay).map_err(in_root)?;
        let patch = PatchEvidence {
            report: sealed.report.clone(),
            sha256: Digest::of(&sealed.patch.to_json(disk.size())?),
        };
        // What is published is what must be fit.
        let view = Overlay::new(&disk, sealed.patch.clone());
        let audit =
            root::audit(&view, &self.recipe.policy(), replay).and_then(Audit::fit).map_err(in_root)?;
        let root = RootEvidence {
            identity: FileIdentity::of(disk.metadata()),
            findings: audit.remarks().cloned().collect(),
            disk: path.clone(),
            facts: sealed.facts.clone(),
        };
        let packaging = self.packaging(compression, &root);
        let made_from = key(&packaging, &root, &patch)?;
        Ok(Examined { disk, sealed, root, patch, packaging, made_from })
    }

    fn disk_path(&self) -> Result<PathBuf, BuildError> {
        let named = self.recipe.root.disk.as_ref().map(|disk| self.recipe.path(disk));
        self.disk.clone().or(named).ok_or(BuildError::NoDisk)
    }

    fn compression(&self) -> Result<Compression, BuildError> {
        let image = &self.recipe.image;
        let level = image.level.map(|level| i32::try_from(level).unwrap_or(i32::MAX));
        Ok(match image.compression {
            recipe::Compression::Zstd => Compression::zstd(level)?,
            recipe::Compression::Gzip => Compression::gzip(level)?,
        })
    }

    fn packaging(&self, compression: Compression, root: &RootEvidence) -> Packaging {
        let mut annotations = BTreeMap::from([
            ("org.opencontainers.image.title".to_owned(), self.recipe.name.clone()),
            ("io.sealroot.virtual-size".to_owned(), root.facts.virtual_size.to_string()),
            ("io.sealroot.recipe".to_owned(), self.recipe.sha256().to_string()),
            ("io.sealroot.pin.windows".to_owned(), self.recipe.media.windows.sha256.to_string()),
            ("io.sealroot.pin.virtio".to_owned(), self.recipe.media.virtio.sha256.to_string()),
        ]);
        // The recipe's own come last: it may say more, and better. It has none of Sealroot's own.
        annotations.extend(self.recipe.image.annotations.clone());
        Packaging {
            compression,
            keep_free_clusters: false,
            image: Image { created: self.created.clone(), env: self.environment(), annotations },
        }
    }
}

impl Job<'_> {
    /// What CDI makes labels of the imported volume of, and KubeVirt defaults of its VMs (its guide on instance
    /// types: "Inferring defaults from a Volume").
    fn environment(&self) -> BTreeMap<String, String> {
        let image = &self.recipe.image;
        let named = [("INSTANCETYPE", &image.instance_type), ("PREFERENCE", &image.preference)];
        let named = named.into_iter().filter_map(|(what, name)| {
            let key = format!("INSTANCETYPE_KUBEVIRT_IO_DEFAULT_{what}");
            name.clone().map(|name| (key, name))
        });
        named.collect()
    }
}

impl RootEvidence {
    /// What the audit remarked, a line each.
    pub(super) fn remarks(&self) -> Vec<String> {
        self.findings.iter().map(Finding::remark).collect()
    }

    /// What was found, in a few words.
    pub(super) fn summary(&self) -> String {
        let windows = &self.facts.windows;
        let edition = windows.edition_id.as_deref().unwrap_or("unknown edition");
        let build = windows.build.as_deref().unwrap_or("unknown build");
        let allowed = match self.findings.iter().filter(|finding| finding.status == Status::Allowed).count() {
            0 => String::new(),
            1 => ", 1 failure allowed".to_owned(),
            n => format!(", {n} failures allowed"),
        };
        format!("{}: {edition} {build}, generalised{allowed}", self.disk.display())
    }
}

/// Everything that decides the image's bytes, and the root's identity: a root counts as the same only if its
/// file looks untouched and a fresh examination agrees.
fn key(packaging: &Packaging, root: &RootEvidence, patch: &PatchEvidence) -> Result<Key, serde_json::Error> {
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
