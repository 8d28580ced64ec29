//! Reading an OCI image layout that holds one image.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use oci_client::manifest::{OCI_IMAGE_MEDIA_TYPE, OciImageIndex, OciImageManifest};
use thiserror::Error;

use super::manifest::{MAX_MANIFEST, digest_of};

/// One blob of a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutBlob {
    /// `sha256:` and 64 hex digits.
    pub digest: String,
    /// Bytes.
    pub size: u64,
    /// The file that holds it.
    pub path: PathBuf,
}

/// One image of a layout: its manifest as it stands, and where its blobs are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutImage {
    /// The manifest's bytes.
    pub manifest: Vec<u8>,
    /// The manifest's media type.
    pub media_type: String,
    /// Layers in order, then the configuration.
    pub blobs: Vec<LayoutBlob>,
}

/// Why a folder can't be pushed.
#[derive(Debug, Error)]
pub enum LayoutError {
    /// A file of the layout can't be read.
    #[error("{} can't be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of the layout does not hold what it should.
    #[error("{}: {why}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A blob's content is not what its name says.
    #[error("{} is damaged: it is {got}, and should be {expected}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The digest it should have.
        expected: String,
        /// The digest it has.
        got: String,
    },
}

impl LayoutImage {
    /// Opens the layout in `folder`: one image, all of its blobs there and of the size the manifest says.
    /// Their content is checked while it is read.
    pub fn open(folder: &Path) -> Result<Self, LayoutError> {
        let path = folder.join("index.json");
        let malformed = |path: &Path, why: String| LayoutError::Malformed { path: path.into(), why };
        let index: OciImageIndex = serde_json::from_slice(&read(&path)?)
            .map_err(|e| malformed(&path, format!("this is no image index: {e}")))?;
        let [entry] = index.manifests.as_slice() else {
            return Err(malformed(&path, format!("{} images, and it must be one", index.manifests.len())));
        };
        if entry.media_type != OCI_IMAGE_MEDIA_TYPE {
            return Err(malformed(&path, format!("its entry is a {}, not an image", entry.media_type)));
        }
        let file = blob(folder, &path, &entry.digest, entry.size)?;
        let manifest = read(&file.path)?;
        let got = digest_of(&manifest);
        if got != file.digest {
            return Err(LayoutError::Damaged { path: file.path, expected: file.digest, got });
        }
        let parsed: OciImageManifest = serde_json::from_slice(&manifest)
            .map_err(|e| malformed(&file.path, format!("this is no image manifest: {e}")))?;
        let mut blobs: Vec<LayoutBlob> = Vec::new();
        for descriptor in parsed.layers.iter().chain([&parsed.config]) {
            let found = blob(folder, &file.path, &descriptor.digest, descriptor.size)?;
            if !blobs.contains(&found) {
                blobs.push(found);
            }
        }
        Ok(Self { manifest, media_type: entry.media_type.clone(), blobs })
    }
}

/// A descriptor's file; `named_in` is where the descriptor stands.
fn blob(folder: &Path, named_in: &Path, digest: &str, size: i64) -> Result<LayoutBlob, LayoutError> {
    let malformed = |path: &Path, why: String| LayoutError::Malformed { path: path.into(), why };
    let hex = digest
        .strip_prefix("sha256:")
        .filter(|hex| hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));
    let hex = hex.ok_or_else(|| malformed(named_in, format!("'{digest}' is no sha256 digest")))?;
    let size = u64::try_from(size).map_err(|_| malformed(named_in, format!("{digest} has size {size}")))?;
    let path = folder.join("blobs/sha256").join(hex);
    let metadata = path.metadata().map_err(|source| LayoutError::Read { path: path.clone(), source })?;
    if metadata.len() != size || !metadata.is_file() {
        return Err(malformed(&path, format!("{} bytes, and it should be a file of {size}", metadata.len())));
    }
    Ok(LayoutBlob { digest: digest.into(), size, path })
}

fn read(path: &Path) -> Result<Vec<u8>, LayoutError> {
    let unreadable = |source| LayoutError::Read { path: path.into(), source };
    let mut content = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    if file.take(MAX_MANIFEST as u64 + 1).read_to_end(&mut content).map_err(unreadable)? > MAX_MANIFEST {
        return Err(LayoutError::Malformed { path: path.into(), why: "more than 4 MiB".into() });
    }
    Ok(content)
}
