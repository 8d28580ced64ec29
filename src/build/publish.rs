//! A disk into an image: packaged once, into a layout, a registry, or both at the same time.

use std::num::NonZeroUsize;
use std::path::Path;
use std::thread::available_parallelism;

use serde::Serialize;
use thiserror::Error;

use crate::containerdisk::{
    Compression, Digest, Documents, Image, Layer, LayerError, LayerInfo, LayoutWriter, MANIFEST_TYPE,
    Qcow2Image, Sink, Tar,
};
use crate::io::{NewPathError, Overlay, Progress, ReadAt};
use crate::registry::{PushLayerError, Registry, RegistryError};
use crate::root::keep::{KeepError, Kept, KeptVolume};

/// What is shipped of a disk, and how.
#[derive(Debug, Clone)]
pub struct Packaging {
    /// The layer's compression.
    pub compression: Compression,
    /// Ship what NTFS calls free as well.
    pub keep_free_clusters: bool,
    /// What the image says of itself.
    pub image: Image,
}

/// Where the image goes; at least one of the two.
#[derive(Debug, Clone, Copy)]
pub struct Target<'t> {
    /// A new OCI layout.
    pub layout: Option<&'t Path>,
    /// A registry.
    pub registry: Option<&'t Registry>,
}

/// An image, as it was published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Published {
    /// `HOST/REPOSITORY@sha256:...`, once a registry has served it by that digest.
    pub reference: Option<String>,
    /// The manifest's digest: the image's name.
    pub digest: Digest,
    /// The layer's digest.
    pub layer_digest: Digest,
    /// The layer's bytes.
    pub layer_size: u64,
    /// The digest of the tar in the layer.
    pub diff_id: Digest,
    /// Bytes of the disk as the guest sees it.
    pub virtual_size: u64,
    /// What was shipped of each partition.
    pub volumes: Vec<KeptVolume>,
}

/// Why an image could not be published.
#[derive(Debug, Error)]
pub enum PublishError {
    /// What is to be shipped can't be told.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// The layer can't be made.
    #[error(transparent)]
    Layer(LayerError),
    /// The image's documents can't be written; they hold nothing but text.
    #[error("the image's configuration or manifest can't be written as JSON")]
    Document(#[from] serde_json::Error),
    /// The layout can't be written.
    #[error(transparent)]
    Layout(#[from] NewPathError),
    /// The registry did not take it.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// Packages `disk` in one pass, and publishes it to every target at once.
///
/// What its patch writes is shipped, or nothing is.
pub fn publish<R: ReadAt>(
    disk: &Overlay<R>,
    packaging: &Packaging,
    target: Target<'_>,
    progress: &dyn Progress,
) -> Result<Published, PublishError> {
    // Names that are taken and registries that can't be reached cost nothing yet.
    let mut layout = target.layout.map(LayoutWriter::create).transpose()?;
    if let Some(registry) = target.registry {
        registry.hello(progress)?;
    }
    let kept =
        if packaging.keep_free_clusters { Kept::all(disk, progress) } else { Kept::in_use(disk, progress) }?;
    kept.check_shipped(disk.patch())?;
    let qcow2 = Qcow2Image::new(&kept);
    let tar = Tar::new(&qcow2);
    let workers = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let mut layer = Layer::new(&tar, packaging.compression, workers);
    let info = make(&mut layer, layout.as_mut(), target.registry, packaging, tar.size(), progress)?;
    let documents = packaging.image.documents(&info)?;
    if let Some(layout) = layout {
        layout.finish(&packaging.image, &info)?;
    }
    let reference = match target.registry {
        Some(registry) => Some(push_documents(registry, &documents, progress)?),
        None => None,
    };
    Ok(Published {
        reference,
        digest: documents.manifest_descriptor.digest,
        layer_digest: info.digest,
        layer_size: info.size,
        diff_id: info.diff_id,
        virtual_size: disk.size(),
        volumes: kept.volumes().to_vec(),
    })
}

/// The layer, into every target in one pass.
fn make(
    layer: &mut Layer<'_>,
    layout: Option<&mut LayoutWriter>,
    registry: Option<&Registry>,
    packaging: &Packaging,
    tar_size: u64,
    progress: &dyn Progress,
) -> Result<LayerInfo, PublishError> {
    let name = if registry.is_some() { "packaging and pushing" } else { "packaging" };
    let mut layout = layout.map(|layout| layout as &mut dyn Sink);
    let Some(registry) = registry else {
        let sinks = layout.as_mut_slice();
        return layer.write(0, sinks, &*progress.task(name, tar_size)).map_err(PublishError::Layer);
    };
    // Only what is not compressed has a size that is known before.
    registry.expect_layer(tar_size, packaging.compression == Compression::None);
    registry.push_layer(layer, layout, &*progress.task(name, tar_size)).map_err(|error| match error {
        PushLayerError::Layer(error) => PublishError::Layer(error),
        PushLayerError::Registry(error) => error.into(),
    })
}

/// The configuration, then the manifest that names both blobs.
fn push_documents(
    registry: &Registry,
    documents: &Documents,
    progress: &dyn Progress,
) -> Result<String, RegistryError> {
    let task = progress.task("publishing", 0);
    registry.push_bytes(documents.config.clone(), &*task)?;
    let digest = registry.publish(&documents.manifest, MANIFEST_TYPE, &*task)?;
    Ok(registry.image().pinned(digest))
}
