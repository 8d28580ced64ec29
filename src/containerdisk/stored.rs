//! An OCI image layout read back: what a push needs, and whether every byte is what it should be.

use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use thiserror::Error;

use super::digest::Digest;
use super::image::{Config, Descriptor, MANIFEST_TYPE, Manifest};
use super::image_config::ImageConfig;
use super::layout::{BLOBS, INDEX, Index, MARKER, Marker};
use crate::io::Interrupted;

/// The largest document that is read, in bytes: what registries take as a manifest.
const MAX_DOCUMENT: u64 = 4 << 20;

/// Why a layout can't be used.
#[derive(Debug, Error)]
pub enum LayoutError {
    /// A file of it could not be read.
    #[error("{} could not be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A document of it is not what it should be.
    #[error("{}: {why}", path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A blob is not the one that was written.
    #[error("{} is damaged: expected {expected}, found {found}", path.display())]
    Blob {
        /// The file.
        path: PathBuf,
        /// The digest or size that names it.
        expected: String,
        /// Its own.
        found: String,
    },
    /// The layer does not hold a containerDisk.
    #[error("{} holds no containerDisk: {why}", path.display())]
    Content {
        /// The layer's file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// The user asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// A blob of a layout: what is said of it, and where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// What the manifest says.
    pub descriptor: Descriptor,
    /// The file, which has the size that the descriptor says.
    pub path: PathBuf,
}

/// The image in a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// What the index says of the manifest; its digest is the image's.
    pub manifest_descriptor: Descriptor,
    /// The manifest's bytes, which have that digest.
    pub manifest_bytes: Vec<u8>,
    /// The manifest, read.
    pub manifest: Manifest,
    /// The configuration.
    pub config: Blob,
    /// The layers.
    pub layers: Vec<Blob>,
}

impl Layout {
    /// Opens the layout at `path`: its manifest by digest, its blobs by size. It must hold exactly one image.
    pub fn open(path: &Path) -> Result<Self, LayoutError> {
        let marker: Marker = json(&path.join(MARKER), &document(&path.join(MARKER))?)?;
        if !marker.image_layout_version.starts_with("1.") {
            let why = format!("layout version {:?} is not known here", marker.image_layout_version);
            return Err(LayoutError::Document { path: path.join(MARKER), why });
        }
        let index_path = path.join(INDEX);
        let index: Index = json(&index_path, &document(&index_path)?)?;
        let [manifest_descriptor] = &index.manifests[..] else {
            let why = format!("it names {} images; exactly one is expected", index.manifests.len());
            return Err(LayoutError::Document { path: index_path, why });
        };
        if manifest_descriptor.media_type != MANIFEST_TYPE {
            let why = format!("{:?} is not an image manifest", manifest_descriptor.media_type);
            return Err(LayoutError::Document { path: index_path, why });
        }
        let manifest_blob = blob(path, manifest_descriptor)?;
        let manifest_bytes = checked_document(&manifest_blob)?;
        let manifest: Manifest = json(&manifest_blob.path, &manifest_bytes)?;
        Ok(Self {
            config: blob(path, &manifest.config)?,
            layers: manifest.layers.iter().map(|layer| blob(path, layer)).collect::<Result<_, _>>()?,
            manifest_descriptor: manifest_blob.descriptor,
            manifest_bytes,
            manifest,
        })
    }

    /// The configuration, read; it is checked by its digest.
    pub fn image_config(&self) -> Result<ImageConfig, LayoutError> {
        json(&self.config.path, &checked_document(&self.config)?)
    }

    /// The digests of the tars in the layers, from the configuration, which is checked by its own digest.
    pub(super) fn diff_ids(&self) -> Result<Vec<Digest>, LayoutError> {
        let config: Config = json(&self.config.path, &checked_document(&self.config)?)?;
        Ok(config.rootfs.diff_ids)
    }
}

fn document(path: &Path) -> Result<Vec<u8>, LayoutError> {
    let failed = |source| LayoutError::Read { path: path.into(), source };
    // A FIFO would hang, and a device has no end.
    let metadata = path.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(std::io::Error::other("it is no regular file")));
    }
    let size = metadata.len();
    if size > MAX_DOCUMENT {
        let why = format!("{size} bytes are too many for a document");
        return Err(LayoutError::Document { path: path.into(), why });
    }
    std::fs::read(path).map_err(failed)
}

/// The blob's bytes, if they have its digest.
fn checked_document(blob: &Blob) -> Result<Vec<u8>, LayoutError> {
    let bytes = document(&blob.path)?;
    let found = Digest::of(&bytes);
    if found != blob.descriptor.digest {
        return Err(damaged(blob, blob.descriptor.digest, found));
    }
    Ok(bytes)
}

pub(super) fn damaged(blob: &Blob, expected: impl ToString, found: impl ToString) -> LayoutError {
    LayoutError::Blob { path: blob.path.clone(), expected: expected.to_string(), found: found.to_string() }
}

fn json<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, LayoutError> {
    serde_json::from_slice(bytes).map_err(|e| LayoutError::Document { path: path.into(), why: e.to_string() })
}

/// Finds a blob by its digest and checks its size.
fn blob(layout: &Path, descriptor: &Descriptor) -> Result<Blob, LayoutError> {
    let path = layout.join(BLOBS).join(descriptor.digest.hex());
    let unread = |source| LayoutError::Read { path: path.clone(), source };
    let metadata = path.metadata().map_err(unread)?;
    if !metadata.is_file() {
        return Err(unread(std::io::Error::other("it is no regular file")));
    }
    let size = metadata.len();
    let blob = Blob { descriptor: descriptor.clone(), path };
    if size != descriptor.size {
        return Err(damaged(&blob, format!("{} bytes", descriptor.size), format!("{size} bytes")));
    }
    Ok(blob)
}
