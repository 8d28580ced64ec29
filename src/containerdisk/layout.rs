//! An OCI image layout: a folder that holds one image, made whole or not at all.
//!
//! Format: OCI image specification 1.1, image-layout.md.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::image::{Descriptor, Documents, Image};
use super::layer::{Chunk, LayerInfo, Sink};
use crate::io::{NewDir, NewPathError, Privacy};

/// The file that marks a layout.
pub(super) const MARKER: &str = "oci-layout";
/// The file that names the image.
pub(super) const INDEX: &str = "index.json";
/// The folder of blobs, each under its digest's hex digits.
pub(super) const BLOBS: &str = "blobs/sha256";
/// The layer while its digest is not known.
const UNNAMED: &str = "layer";
/// Some readers can't name an image that has no reference: umoci among them.
const REFERENCE: (&str, &str) = ("org.opencontainers.image.ref.name", "latest");

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Index {
    schema_version: u32,
    #[serde(default)]
    media_type: String,
    pub manifests: Vec<Descriptor>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Marker {
    pub image_layout_version: String,
}

/// A layout in the making; dropped before [`LayoutWriter::finish`], it leaves nothing.
#[derive(Debug)]
pub struct LayoutWriter {
    dir: NewDir,
    path: PathBuf,
    layer: File,
    written: u64,
}

impl LayoutWriter {
    /// Begins the layout that will appear at `path`, which must not exist.
    pub fn create(path: &Path) -> Result<Self, NewPathError> {
        let dir = NewDir::create(path, Privacy::Public)?;
        let blobs = dir.path().join(BLOBS);
        let layer = std::fs::create_dir_all(&blobs)
            .and_then(|()| File::create_new(blobs.join(UNNAMED)))
            .map_err(failed(path))?;
        Ok(Self { dir, path: path.into(), layer, written: 0 })
    }

    /// Names the layer, writes what else belongs to the image, and gives the folder its name.
    pub fn finish(self, image: &Image, layer: &LayerInfo) -> Result<Documents, NewPathError> {
        let Self { dir, path, layer: file, written } = self;
        let failed = failed(&path);
        if written != layer.size {
            let why = format!("the layer has {} bytes, and {written} were written", layer.size);
            return Err(failed(io::Error::other(why)));
        }
        let documents = image.documents(layer).map_err(|e| failed(e.into()))?;
        let blobs = dir.path().join(BLOBS);
        file.sync_all()
            .and_then(|()| std::fs::rename(blobs.join(UNNAMED), blobs.join(layer.digest.hex())))
            .map_err(&failed)?;
        let write = |name: &str, content: &[u8]| dir.write(name, content, Privacy::Public);
        let blob = |of: &Descriptor| format!("{BLOBS}/{}", of.digest.hex());
        write(&blob(&documents.config_descriptor), &documents.config)?;
        write(&blob(&documents.manifest_descriptor), &documents.manifest)?;
        // The folder in between is the one that writing a file does not sync.
        blobs.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all()).map_err(&failed)?;
        let mut manifest = documents.manifest_descriptor.clone();
        manifest.annotations.insert(REFERENCE.0.into(), REFERENCE.1.into());
        let index = Index {
            schema_version: 2,
            media_type: "application/vnd.oci.image.index.v1+json".into(),
            manifests: vec![manifest],
        };
        let marker = Marker { image_layout_version: "1.0.0".into() };
        write(INDEX, &serde_json::to_vec(&index).map_err(|e| failed(e.into()))?)?;
        write(MARKER, &serde_json::to_vec(&marker).map_err(|e| failed(e.into()))?)?;
        dir.finish()?;
        Ok(documents)
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> NewPathError + '_ {
    move |source| NewPathError::Io { path: path.into(), source }
}

impl Sink for LayoutWriter {
    fn take(&mut self, chunk: &Chunk) -> io::Result<()> {
        let had = self.written.checked_sub(chunk.offset()).ok_or_else(|| {
            io::Error::other(format!("bytes {} to {} of the layer are missing", self.written, chunk.offset()))
        })?;
        if let Some(new) = usize::try_from(had).ok().and_then(|had| chunk.as_ref().get(had..)) {
            // Of several places that the layer goes to, this is the one that failed.
            self.layer
                .write_all(new)
                .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", self.path.display())))?;
            self.written += new.len() as u64;
        }
        Ok(())
    }
}
