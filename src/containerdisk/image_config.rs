//! An image's configuration as anybody may have written it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::digest::Digest;

/// What an image's configuration says (OCI image specification 1.1, config.md; Docker's is the same here).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// When it was made, in RFC 3339 form.
    #[serde(default)]
    pub created: Option<String>,
    /// `amd64`, for every Windows that is built here.
    #[serde(default)]
    pub architecture: Option<String>,
    /// `linux`: what runs is KubeVirt.
    #[serde(default)]
    pub os: Option<String>,
    /// How it would run.
    #[serde(default)]
    config: Option<RunConfig>,
    /// The tars in its layers.
    #[serde(default)]
    rootfs: RootFs,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RunConfig {
    #[serde(default)]
    env: Option<Vec<String>>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Vec<Digest>,
}

impl ImageConfig {
    /// Reads the configuration's bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Environment variables, each as `NAME=VALUE`: CDI turns some into labels of the PVC.
    pub fn env(&self) -> &[String] {
        self.config.as_ref().and_then(|config| config.env.as_deref()).unwrap_or_default()
    }

    /// Labels, which are the older form of annotations.
    pub fn labels(&self) -> impl Iterator<Item = (&String, &String)> {
        self.config.iter().filter_map(|config| config.labels.as_ref()).flatten()
    }

    /// The digests of the tars in the layers, in the layers' order.
    pub fn diff_ids(&self) -> &[Digest] {
        &self.rootfs.diff_ids
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_others_leave_out_or_null_is_nothing() {
        for text in ["{}", r#"{"config":null,"rootfs":{}}"#, r#"{"config":{"Env":null,"Labels":null}}"#] {
            let config = ImageConfig::parse(text.as_bytes()).unwrap();
            assert!(config.env().is_empty() && config.diff_ids().is_empty() && config.labels().count() == 0);
        }
        let text = r#"{"os":"linux","config":{"Env":["A=1"],"Labels":{"x":"y"},"User":"107"},"history":[]}"#;
        let config = ImageConfig::parse(text.as_bytes()).unwrap();
        assert_eq!((config.env(), config.os.as_deref()), (&["A=1".to_owned()][..], Some("linux")));
    }
}
