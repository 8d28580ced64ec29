//! The two documents that make a layer an image: its configuration and its manifest.
//!
//! Fields come in a fixed order, and nothing is taken from the clock: the same input gives the same digest.
//! Formats: OCI image specification 1.1, config.md and manifest.md.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::digest::Digest;
use super::layer::LayerInfo;

/// The media type of a manifest.
pub const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of an image configuration.
pub const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";

/// What the caller says of the image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// When it was made, in RFC 3339 form; see [`created_from_epoch`]. Left out unless given.
    pub created: Option<String>,
    /// Environment variables: CDI turns some into labels of the PVC, such as the KubeVirt instance type.
    pub env: BTreeMap<String, String>,
    /// Annotations of the manifest.
    pub annotations: BTreeMap<String, String>,
}

/// An image's documents, as they are stored and pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Documents {
    /// The configuration, JSON.
    pub config: Vec<u8>,
    /// What the manifest says of the configuration.
    pub config_descriptor: Descriptor,
    /// The manifest, JSON.
    pub manifest: Vec<u8>,
    /// What an index says of the manifest; its digest is the image's.
    pub manifest_descriptor: Descriptor,
    /// What the manifest says of the layer.
    pub layer_descriptor: Descriptor,
}

/// A reference to a blob (OCI descriptor.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What the blob is.
    pub media_type: String,
    /// Its digest.
    pub digest: Digest,
    /// Its bytes.
    pub size: u64,
    /// What else is said of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl Descriptor {
    pub(super) fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self {
            media_type: media_type.into(),
            digest: Digest::of(bytes),
            size: bytes.len() as u64,
            annotations: BTreeMap::new(),
        }
    }
}

/// An image manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    pub(super) schema_version: u32,
    #[serde(default)]
    pub(super) media_type: String,
    /// The configuration.
    pub config: Descriptor,
    /// The layers: one, in a containerDisk.
    pub layers: Vec<Descriptor>,
    /// What is said of the image.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Config {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created: Option<String>,
    architecture: String,
    os: String,
    #[serde(default)]
    config: RunConfig,
    pub rootfs: RootFs,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RunConfig {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    env: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RootFs {
    #[serde(rename = "type")]
    kind: String,
    pub diff_ids: Vec<Digest>,
}

/// Not a time that an image can have been made at.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is no time: SOURCE_DATE_EPOCH is a number of seconds since 1970")]
pub struct CreatedError {
    text: String,
}

/// The value of the environment variable SOURCE_DATE_EPOCH as [`Image::created`] wants it.
pub fn created_from_epoch(text: &str) -> Result<String, CreatedError> {
    let seconds = text.parse::<u32>().ok().map(i64::from);
    seconds
        .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok()?.format(&Rfc3339).ok())
        .ok_or_else(|| CreatedError { text: text.into() })
}

impl Image {
    /// The documents of an image with this one layer.
    pub fn documents(&self, layer: &LayerInfo) -> Result<Documents, serde_json::Error> {
        let config = serde_json::to_vec(&Config {
            created: self.created.clone(),
            architecture: "amd64".into(),
            os: "linux".into(),
            config: RunConfig {
                env: self.env.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            },
            rootfs: RootFs { kind: "layers".into(), diff_ids: vec![layer.diff_id] },
        })?;
        let config_descriptor = Descriptor::of(CONFIG_TYPE, &config);
        let layer_descriptor = Descriptor {
            media_type: layer.compression.media_type().into(),
            digest: layer.digest,
            size: layer.size,
            annotations: BTreeMap::new(),
        };
        let manifest = serde_json::to_vec(&Manifest {
            schema_version: 2,
            media_type: MANIFEST_TYPE.into(),
            config: config_descriptor.clone(),
            layers: vec![layer_descriptor.clone()],
            annotations: self.annotations.clone(),
        })?;
        let manifest_descriptor = Descriptor::of(MANIFEST_TYPE, &manifest);
        Ok(Documents { config, config_descriptor, manifest, manifest_descriptor, layer_descriptor })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::containerdisk::Compression;

    #[test]
    fn the_documents_never_change() {
        let layer = LayerInfo {
            compression: Compression::Zstd(3),
            digest: Digest::of(b"layer"),
            size: 5,
            diff_id: Digest::of(b"tar"),
            tar_size: 3,
        };
        let image = Image {
            created: Some(created_from_epoch("1700000000").unwrap()),
            env: [("B".into(), "2".into()), ("A".into(), "1".into())].into(),
            annotations: [("org.opencontainers.image.version".into(), "26100".into())].into(),
        };
        let documents = image.documents(&layer).unwrap();
        assert_eq!(
            String::from_utf8(documents.config).unwrap(),
            format!(
                r#"{{"created":"2023-11-14T22:13:20Z","architecture":"amd64","os":"linux","config":{{"Env":["A=1","B=2"]}},"rootfs":{{"type":"layers","diff_ids":["{}"]}}}}"#,
                layer.diff_id
            )
        );
        assert_eq!(
            String::from_utf8(documents.manifest).unwrap(),
            format!(
                r#"{{"schemaVersion":2,"mediaType":"{MANIFEST_TYPE}","config":{{"mediaType":"{CONFIG_TYPE}","digest":"{}","size":{}}},"layers":[{{"mediaType":"application/vnd.oci.image.layer.v1.tar+zstd","digest":"{}","size":5}}],"annotations":{{"org.opencontainers.image.version":"26100"}}}}"#,
                documents.config_descriptor.digest, documents.config_descriptor.size, layer.digest
            )
        );
        let bare = Image::default().documents(&layer).unwrap();
        assert!(!String::from_utf8(bare.config).unwrap().contains("created"));
    }

    #[test]
    fn only_a_number_is_a_time() {
        for bad in ["", "-1", "now", "1e9", "99999999999999999999"] {
            assert!(created_from_epoch(bad).is_err(), "{bad}");
        }
    }
}
