//! Single requests about blobs: is one there, begin an upload, how far is it, name what was sent.

use reqwest::header::{CONTENT_LENGTH, HeaderMap, LOCATION, RANGE};
use reqwest::{Client, Response, Url};

use super::RegistryError;
use super::http::{FINALISE, Http, SHORT, status_error};
use crate::containerdisk::Digest;

/// The size of a blob the registry holds, or nothing.
pub(super) async fn size(http: &Http, digest: Digest) -> Result<Option<u64>, RegistryError> {
    let doing = format!("looking for blob {digest}");
    let url = http.url(&format!("blobs/{digest}"))?;
    let response = http.send(&doing, |client| client.head(url.clone()).timeout(SHORT)).await?;
    match response.status().as_u16() {
        200 => {
            let length = response.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok());
            let length = length.and_then(|text| text.parse().ok());
            length.map(Some).ok_or_else(|| http.protocol(&doing, "the blob is there, but not its size"))
        }
        404 => Ok(None),
        _ => Err(status_error(&doing, response).await),
    }
}

/// Begins an upload; returns where its content goes.
pub(super) async fn begin(http: &Http) -> Result<Url, RegistryError> {
    let doing = "beginning an upload";
    let url = http.url("blobs/uploads/")?;
    let post = |client: &Client| client.post(url.clone()).header(CONTENT_LENGTH, 0).timeout(SHORT);
    let response = http.send(doing, post).await?;
    match response.status().as_u16() {
        202 => http.location(doing, &response),
        _ => Err(status_error(doing, response).await),
    }
}

/// What came of asking for a blob out of another repository.
pub(super) enum Mount {
    /// It is here now, unless the registry is wrong.
    Mounted,
    /// It has to be sent, here.
    Upload(Url),
}

/// Asks the registry to take a blob over from another of its repositories.
pub(super) async fn mount(http: &Http, digest: Digest, from: &str) -> Result<Mount, RegistryError> {
    let doing = format!("taking blob {digest} over from {from}");
    let mut url = http.url("blobs/uploads/")?;
    url.query_pairs_mut().append_pair("mount", &digest.to_string()).append_pair("from", from);
    let post = |client: &Client| client.post(url.clone()).header(CONTENT_LENGTH, 0).timeout(SHORT);
    let response = http.send(&doing, post).await?;
    match response.status().as_u16() {
        201 => Ok(Mount::Mounted),
        202 => Ok(Mount::Upload(http.location(&doing, &response)?)),
        _ => Err(status_error(&doing, response).await),
    }
}

/// Gives an upload up, so that the registry need not keep it. What it answers changes nothing.
pub(super) async fn cancel(http: &Http, url: &Url) {
    let _ = http.authorized("giving an upload up", |client| client.delete(url.clone()).timeout(SHORT)).await;
}

/// How many bytes of an upload the registry has, and where to send the next; nothing where it has none, or
/// can't tell, or no longer knows of the upload.
pub(super) async fn offset(http: &Http, url: &Url) -> Result<Option<(u64, Url)>, RegistryError> {
    let doing = "asking how far an upload is";
    let response = http.send(doing, |client| client.get(url.clone()).timeout(SHORT)).await?;
    if !response.status().is_success() {
        return Ok(None);
    }
    // No bytes and one byte look the same: `0-0`. One byte is soon sent again.
    let bytes = last_byte(response.headers()).flatten().filter(|last| *last > 0);
    let next = next(http, doing, &response, url)?;
    Ok(bytes.and_then(|last| last.checked_add(1)).map(|bytes| (bytes, next)))
}

/// Where an upload goes on: where the answer says, or where it was.
pub(super) fn next(
    http: &Http,
    doing: &str,
    response: &Response,
    before: &Url,
) -> Result<Url, RegistryError> {
    match response.headers().contains_key(LOCATION) {
        true => http.location(doing, response),
        false => Ok(before.clone()),
    }
}

/// The last byte that `Range` names: `0-LAST`, with a unit before it at some registries. The outer nothing: there
/// is no such header; the inner: it can't be read.
pub(super) fn last_byte(headers: &HeaderMap) -> Option<Option<u64>> {
    let range = headers.get(RANGE)?.to_str().ok();
    Some(range.and_then(|text| text.rsplit(['=', ' ']).next()?.strip_prefix("0-")?.parse().ok()))
}

/// Names the content, and waits for it to be in its place.
pub(super) async fn put(http: &Http, url: &Url, digest: Digest) -> Result<(), RegistryError> {
    let doing = format!("finishing blob {digest}");
    let url = named(url, digest);
    let put = |client: &Client| client.put(url.clone()).header(CONTENT_LENGTH, 0).timeout(FINALISE);
    let response = http.authorized(&doing, put).await?;
    match response.status().as_u16() {
        201 | 202 | 204 => Ok(()),
        _ => Err(status_error(&doing, response).await),
    }
}

/// The address that gives what was sent its name.
pub(super) fn named(url: &Url, digest: Digest) -> Url {
    let mut url = url.clone();
    url.query_pairs_mut().append_pair("digest", &digest.to_string());
    url
}

/// Looks whether all of a blob is there.
pub(super) async fn check(http: &Http, digest: Digest, expected: u64) -> Result<(), RegistryError> {
    let held = size(http, digest).await?;
    if held == Some(expected) {
        return Ok(());
    }
    Err(RegistryError::Mismatch {
        what: format!("blob {digest}"),
        host: http.image().host().into(),
        expected: format!("{expected} bytes"),
        got: held.map_or_else(|| "nothing".into(), |size| format!("{size} bytes")),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ranges_are_read_in_both_spellings() {
        let last = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, text.parse().unwrap());
            last_byte(&headers)
        };
        assert_eq!(last_byte(&HeaderMap::new()), None);
        assert_eq!(last("0-99"), Some(Some(99)));
        assert_eq!(last("bytes=0-0"), Some(Some(0)));
        assert_eq!(last("0-100-3"), Some(None));
        for bad in ["", "5-9", "0-", "0--1", "0-99999999999999999999", "all"] {
            assert_eq!(last(bad), Some(None), "{bad}");
        }
    }
}
