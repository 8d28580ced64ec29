//! An image that was made before: in a registry, or in an OCI layout on this machine.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::flash_target::Asks;
use super::registry_args::RegistryArgs;
use super::{Classify, Console, Exit, Failure};
use crate::containerdisk::{
    Descriptor, Digest, ImageConfig, Layout, LayoutError, Manifest, PublishedDisk, PublishedDiskError,
    SeekTableError,
};
use crate::io::{Progress, ReadAt, SourceFile};
use crate::registry::{BlobStream, ImageName, RegistryError, Remote, RemoteBlob, RemoteImage};

/// An image that can be read.
pub enum ImageSource {
    /// In a registry.
    Registry {
        /// Where.
        remote: Box<Remote>,
        /// What its name led to.
        image: Box<RemoteImage>,
    },
    /// In an OCI layout.
    Layout {
        /// The layout.
        layout: Box<Layout>,
        /// Its configuration.
        config: ImageConfig,
    },
}

impl ImageSource {
    /// Opens what `text` names: a folder that is there is a layout, or a build folder with one in it; all else is
    /// an image's name.
    pub fn open(text: &str, registry: &RegistryArgs, console: &Console) -> Result<Self, Failure> {
        let path = Path::new(text);
        if path.is_dir() {
            return Self::open_layout(path);
        }
        let image: ImageName = text.parse().map_err(|error| {
            let failure = Failure::from(RegistryError::Reference(error));
            match path.exists() {
                true => failure.cure("it is a file: name a layout's folder, or an image in a registry"),
                // What has neither tag nor digest was meant as a folder.
                false if !text.contains([':', '@']) => Failure::new(
                    Exit::Usage,
                    format!("there is no folder {text}, and an image is named HOST/REPOSITORY:TAG or ...@sha256:HEX"),
                ),
                false => failure.cure("there is no folder of that name either"),
            }
        })?;
        let connection = registry.connection(&image)?;
        Self::open_remote(Remote::open(image, connection)?, console)
    }

    /// Resolves an image's name, once: from here on it is its digest.
    pub fn open_remote(remote: Remote, console: &Console) -> Result<Self, Failure> {
        let image = Box::new(remote.resolve(&*console.task("registry", 0))?);
        Ok(Self::Registry { remote: Box::new(remote), image })
    }

    fn open_layout(path: &Path) -> Result<Self, Failure> {
        let layout = Box::new(Layout::open(&layout_in(path)).map_err(RegistryError::from)?);
        let config = layout.image_config().map_err(RegistryError::from)?;
        Ok(Self::Layout { layout, config })
    }

    /// The manifest's digest.
    pub fn digest(&self) -> Digest {
        match self {
            Self::Registry { image, .. } => image.digest,
            Self::Layout { layout, .. } => layout.manifest_descriptor.digest,
        }
    }

    /// The digest of the index that led to the manifest, if one did.
    pub fn index(&self) -> Option<Digest> {
        match self {
            Self::Registry { image, .. } => image.index,
            Self::Layout { .. } => None,
        }
    }

    /// `HOST/REPOSITORY@sha256:...`, for an image in a registry.
    pub fn reference(&self) -> Option<String> {
        match self {
            Self::Registry { remote, image } => Some(remote.image().pinned(image.digest)),
            Self::Layout { .. } => None,
        }
    }

    /// The manifest's media type.
    pub fn media_type(&self) -> &str {
        match self {
            Self::Registry { image, .. } => &image.media_type,
            Self::Layout { layout, .. } => &layout.manifest_descriptor.media_type,
        }
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        match self {
            Self::Registry { image, .. } => &image.manifest,
            Self::Layout { layout, .. } => &layout.manifest,
        }
    }

    /// Bytes of the manifest.
    pub fn manifest_size(&self) -> u64 {
        match self {
            Self::Registry { image, .. } => image.manifest_bytes.len() as u64,
            Self::Layout { layout, .. } => layout.manifest_bytes.len() as u64,
        }
    }

    /// The configuration.
    pub fn config(&self) -> &ImageConfig {
        match self {
            Self::Registry { image, .. } => &image.config,
            Self::Layout { config, .. } => config,
        }
    }

    /// The one layer of a containerDisk.
    pub fn layer(&self) -> Result<&Descriptor, Failure> {
        match self.manifest().layers.as_slice() {
            [layer] => Ok(layer),
            layers => {
                let why = format!("it has {} layers; a containerDisk has one", layers.len());
                Err(Failure::new(Exit::Rejected, why))
            }
        }
    }

    /// A layer, to be read in parts.
    pub fn parts(&self, layer: &Descriptor, console: &Console) -> Result<LayerParts<'_>, Failure> {
        match self {
            Self::Registry { remote, .. } => {
                let blob = remote.blob(layer, console.task("reading parts", layer.size));
                Ok(LayerParts::Remote(Box::new(blob)))
            }
            Self::Layout { layout, .. } => {
                let path = blob_path(layout, layer)?;
                let file = SourceFile::open(&path).map_err(|source| unreadable(&path, source))?;
                Ok(LayerParts::File(Box::new(file)))
            }
        }
    }

    /// A layer, to be read whole.
    pub fn stream(&self, layer: &Descriptor, console: &Console) -> Result<LayerStream<'_>, Failure> {
        match self {
            Self::Registry { remote, .. } => {
                let stop = Box::new(Asks(console.clone()));
                Ok(LayerStream::Remote(Box::new(remote.stream(layer, 0, stop))))
            }
            Self::Layout { layout, .. } => {
                let path = blob_path(layout, layer)?;
                let file = std::fs::File::open(&path).map_err(|source| unreadable(&path, source))?;
                Ok(LayerStream::File(file))
            }
        }
    }
}

/// The layout that a folder is, or that is in a build folder.
pub fn layout_in(folder: &Path) -> PathBuf {
    let inner = folder.join("image");
    if inner.join("oci-layout").exists() { inner } else { folder.to_owned() }
}

fn blob_path(layout: &Layout, layer: &Descriptor) -> Result<PathBuf, Failure> {
    let blob = layout.layers.iter().find(|blob| blob.descriptor == *layer);
    // It was taken from the same manifest.
    blob.map(|blob| blob.path.clone())
        .ok_or_else(|| Failure::new(Exit::Failed, "the layout has no such layer"))
}

fn unreadable(path: &Path, source: io::Error) -> Failure {
    RegistryError::from(LayoutError::Read { path: path.into(), source }).into()
}

/// A layer that is read in parts.
pub enum LayerParts<'s> {
    /// By HTTP ranges.
    Remote(Box<RemoteBlob<'s>>),
    /// A file.
    File(Box<SourceFile>),
}

impl LayerParts<'_> {
    /// Opens the disk in the layer.
    pub fn disk(&self, media_type: &str) -> Result<PublishedDisk<&Self>, Failure> {
        PublishedDisk::open(self, media_type).map_err(|error| self.explain(error))
    }

    /// An error of whoever read through this: the connection's own, if that is what failed.
    pub fn explain(&self, error: impl Into<Failure>) -> Failure {
        match self {
            Self::Remote(blob) => blob.take_failure().map_or_else(|| error.into(), Failure::from),
            Self::File(_) => error.into(),
        }
    }
}

impl ReadAt for LayerParts<'_> {
    fn size(&self) -> u64 {
        match self {
            Self::Remote(blob) => blob.size(),
            Self::File(file) => file.size(),
        }
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Remote(blob) => blob.read_exact_at(buf, offset),
            Self::File(file) => file.read_exact_at(buf, offset),
        }
    }
}

/// A layer that is read whole.
pub enum LayerStream<'s> {
    /// Over HTTP.
    Remote(Box<BlobStream<'s>>),
    /// A file.
    File(std::fs::File),
}

impl LayerStream<'_> {
    /// Why reading failed, where the connection did.
    pub fn take_failure(&mut self) -> Option<RegistryError> {
        match self {
            Self::Remote(stream) => stream.take_failure(),
            Self::File(_) => None,
        }
    }
}

impl Read for LayerStream<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Remote(stream) => stream.read(buf),
            Self::File(file) => file.read(buf),
        }
    }
}

impl Classify for PublishedDiskError {
    fn exit(&self) -> Exit {
        match self {
            Self::SeekTable(SeekTableError::Read(_)) | Self::Tar(_) => Exit::Failed,
            Self::Qcow2(_) => Exit::Refused,
            Self::SeekTable(_) | Self::NoDisk { .. } => Exit::Rejected,
        }
    }

    fn cure(&self) -> Option<String> {
        let Self::SeekTable(SeekTableError::Missing { .. }) = self else { return None };
        let cure = "parts of it can't be read alone: package it with --compression zstd, which writes a seek table; \
                    inspect --verify reads the whole layer, and checks both digests";
        Some(cure.into())
    }
}
