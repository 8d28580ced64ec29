//! Everything in a layout, read again: sizes, digests, and what the layer's tar holds.

use std::fs::File;
use std::path::Path;

use super::digest::Digest;
use super::stored::{Layout, LayoutError, damaged};
use super::whole_layer::{ReadLayerError, read_layer};
use crate::io::Progress;

/// A layout that holds what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// The image's digest.
    pub manifest: Digest,
    /// The layer's digest.
    pub layer: Digest,
    /// The layer's bytes.
    pub layer_size: u64,
    /// The digest of the tar in the layer.
    pub diff_id: Digest,
    /// The bytes of the qcow2 file in the tar.
    pub file_size: u64,
    /// The size of the disk in the qcow2 file, in bytes.
    pub virtual_size: u64,
}

/// Reads the layout at `path` from end to end.
pub fn verify(path: &Path, progress: &dyn Progress) -> Result<Verified, LayoutError> {
    let layout = Layout::open(path)?;
    let ([blob], [diff_id]) = (&layout.layers[..], &layout.diff_ids()?[..]) else {
        let why = format!("{} layers; a containerDisk has one", layout.layers.len());
        return Err(LayoutError::Content { path: path.into(), why });
    };
    let task = progress.task("verifying", blob.descriptor.size);
    let read = |source| LayoutError::Read { path: blob.path.clone(), source };
    let file = File::open(&blob.path).map_err(read)?;
    let whole = read_layer(file, &blob.descriptor.media_type, &*task).map_err(|error| match error {
        ReadLayerError::Read(source) => read(source),
        ReadLayerError::Interrupted(stop) => stop.into(),
    })?;
    // First, since a damaged layer may fail to decode too, and that it is damaged says more.
    if whole.digest != blob.descriptor.digest {
        return Err(damaged(blob, blob.descriptor.digest, whole.digest));
    }
    let content = |why| LayoutError::Content { path: blob.path.clone(), why };
    let tar = whole.tar.map_err(content)?;
    let disk = tar.disk.map_err(content)?;
    if tar.diff_id != *diff_id {
        return Err(damaged(blob, format!("diff id {diff_id}"), tar.diff_id));
    }
    Ok(Verified {
        manifest: layout.manifest_descriptor.digest,
        layer: whole.digest,
        layer_size: blob.descriptor.size,
        diff_id: tar.diff_id,
        file_size: disk.file_size,
        virtual_size: disk.virtual_size,
    })
}
