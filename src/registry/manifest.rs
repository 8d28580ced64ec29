//! The manifest: put under a tag, then read back by digest and by tag.

use reqwest::header::{ACCEPT, CONTENT_TYPE};

use super::RegistryError;
use super::http::{Http, SHORT, status_error};
use crate::containerdisk::Digest;

/// Registries take no larger one.
const MAX_MANIFEST: usize = 4 << 20;

/// Puts a manifest under a tag, and returns its digest when the registry serves it by both.
pub(super) async fn publish(
    http: &Http,
    tag: &str,
    manifest: &[u8],
    media_type: &str,
) -> Result<Digest, RegistryError> {
    let digest = Digest::of(manifest);
    let doing = format!("putting the manifest as '{tag}'");
    let url = http.url(&format!("manifests/{tag}"))?;
    let put = |client: &reqwest::Client| {
        client.put(url.clone()).header(CONTENT_TYPE, media_type).body(manifest.to_vec()).timeout(SHORT)
    };
    let response = http.send(&doing, put).await?;
    if !response.status().is_success() {
        return Err(status_error(&doing, response).await);
    }
    for reference in [digest.to_string().as_str(), tag] {
        let held = Digest::of(&get(http, reference, media_type).await?);
        if held != digest {
            return Err(RegistryError::Mismatch {
                what: format!("manifest '{reference}'"),
                host: http.image().host().into(),
                expected: digest.to_string(),
                got: held.to_string(),
            });
        }
    }
    Ok(digest)
}

/// The digest of whatever a tag leads to. It is asked once: nobody depends on it.
pub(super) async fn led_to(http: &Http, tag: &str) -> Option<Digest> {
    let doing = format!("looking for an earlier '{tag}'");
    let url = http.url(&format!("manifests/{tag}")).ok()?;
    let every = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
                 application/vnd.docker.distribution.manifest.v2+json, \
                 application/vnd.docker.distribution.manifest.list.v2+json";
    let request = |client: &reqwest::Client| client.head(url.clone()).header(ACCEPT, every).timeout(SHORT);
    let response = http.send_once(&doing, request).await.ok()?;
    if !response.status().is_success() {
        return None;
    }
    response.headers().get("docker-content-digest")?.to_str().ok()?.parse().ok()
}

async fn get(http: &Http, reference: &str, media_type: &str) -> Result<Vec<u8>, RegistryError> {
    let doing = format!("reading the manifest '{reference}' back");
    let url = http.url(&format!("manifests/{reference}"))?;
    let request =
        |client: &reqwest::Client| client.get(url.clone()).header(ACCEPT, media_type).timeout(SHORT);
    http.fetch(&doing, MAX_MANIFEST, request).await
}
