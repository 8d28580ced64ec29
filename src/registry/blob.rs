//! Blobs: are they there, and how they get there. One POST, one streamed PATCH, one PUT, and a look.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, RANGE};
use reqwest::{Body, Response, Url};
use tokio::sync::mpsc;

use super::RegistryError;
use super::feed::{Content, Feed, Item, QUEUE};
use super::http::{FINALISE, Http, SHORT, status_error};
use super::network::Meter;
use crate::containerdisk::Digest;

/// How long an upload may stand still while it is the registry's turn: to take bytes, or to answer.
const STALL: Duration = FINALISE;

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

/// Asks the registry to take a blob over from another of its repositories; whether it did.
pub(super) async fn mount(
    http: &Http,
    digest: Digest,
    expected: u64,
    from: &str,
) -> Result<bool, RegistryError> {
    let doing = format!("taking blob {digest} over from {from}");
    let mut url = http.url("blobs/uploads/")?;
    url.query_pairs_mut().append_pair("mount", &digest.to_string()).append_pair("from", from);
    let post = |client: &reqwest::Client| client.post(url.clone()).header(CONTENT_LENGTH, 0).timeout(SHORT);
    let Ok(response) = http.send(&doing, post).await else { return Ok(false) };
    match response.status().as_u16() {
        201 => Ok(size(http, digest).await? == Some(expected)),
        202 => {
            // An upload was begun instead, which nobody will go on with. What is answered changes nothing.
            let begun = http.location(&doing, &response)?;
            let _ = http.send(&doing, |client| client.delete(begun.clone()).timeout(SHORT)).await;
            Ok(false)
        }
        _ => Ok(false),
    }
}

/// Uploads a blob that is not there, from its start each time. `meter` counts its bytes after `before` others.
pub(super) async fn upload_again(
    http: &Http,
    blob: &Content,
    meter: &Arc<Meter>,
    before: u64,
) -> Result<(), RegistryError> {
    let mut tried = 0;
    loop {
        tried += 1;
        let url = begin(http).await?;
        let (sender, items) = mpsc::channel(QUEUE);
        let content = blob.clone();
        // Ends by itself when the receiving side is gone.
        tokio::task::spawn_blocking(move || content.pour(&sender));
        let error = match stream(http, &url, items, Arc::clone(meter), before).await {
            Ok(sent) => return finish(http, sent).await.map(drop),
            Err(error) => error,
        };
        match http.backoff().pause(tried, None) {
            Some(pause) if http.worth_another_try(&error) => tokio::time::sleep(pause).await,
            _ => return Err(error),
        }
    }
}

/// Uploads what `items` brings, whose digest comes with its end, and returns its size.
pub(super) async fn upload(
    http: &Http,
    items: mpsc::Receiver<Item>,
    meter: Arc<Meter>,
) -> Result<u64, RegistryError> {
    let url = begin(http).await?;
    let sent = stream(http, &url, items, meter, 0).await?;
    finish(http, sent).await
}

/// Content that is with the registry, and where to name it.
struct Sent {
    url: Url,
    digest: Digest,
    /// Bytes.
    size: u64,
}

/// Begins an upload; returns where its content goes.
async fn begin(http: &Http) -> Result<Url, RegistryError> {
    let doing = "beginning an upload";
    let url = http.url("blobs/uploads/")?;
    let post = |client: &reqwest::Client| client.post(url.clone()).header(CONTENT_LENGTH, 0).timeout(SHORT);
    let response = http.send(doing, post).await?;
    match response.status().as_u16() {
        202 => http.location(doing, &response),
        _ => Err(status_error(doing, response).await),
    }
}

/// Sends the content in one request.
async fn stream(
    http: &Http,
    url: &Url,
    items: mpsc::Receiver<Item>,
    meter: Arc<Meter>,
    before: u64,
) -> Result<Sent, RegistryError> {
    let doing = "uploading a blob";
    let (feed, body) = Feed::body(items, meter, before);
    // Whatever the HTTP library makes of a body that ends in an error: the cause is the producer's.
    let response =
        patch(http, doing, url, &feed, body).await.map_err(|e| feed.producer_failure().unwrap_or(e))?;
    if !matches!(response.status().as_u16(), 201 | 202 | 204) {
        return Err(status_error(doing, response).await);
    }
    let Some((digest, size)) = feed.finished() else {
        return Err(http.protocol(doing, "an answer before everything was sent"));
    };
    if let Some(range) = response.headers().get(RANGE) {
        // `0-LAST`, with a unit before it at some registries; an empty upload has no last byte.
        let last = range.to_str().ok().and_then(|text| text.rsplit('-').next()?.parse::<u64>().ok());
        if last != Some(size.saturating_sub(1)) {
            let got = last.map_or_else(|| "an unreadable range".into(), |last| format!("bytes up to {last}"));
            let (what, host) = ("an upload".into(), http.image().host().into());
            return Err(RegistryError::Mismatch { what, host, expected: format!("{size} bytes"), got });
        }
    }
    Ok(Sent { url: http.location(doing, &response)?, digest, size })
}

/// Sends, and watches that it goes on.
async fn patch(
    http: &Http,
    doing: &str,
    url: &Url,
    feed: &Feed,
    body: Body,
) -> Result<Response, RegistryError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    let mut sending = std::pin::pin!(http.send_once(doing, url, headers, body));
    loop {
        match tokio::time::timeout(Duration::from_secs(1), sending.as_mut()).await {
            Ok(response) => return response,
            Err(_) if feed.stalled() > STALL => {
                let host = http.image().host().into();
                return Err(RegistryError::Stalled { doing: doing.into(), host, seconds: STALL.as_secs() });
            }
            Err(_) => {}
        }
    }
}

/// Names the content, waits for it to be in its place, and looks whether all of it is.
async fn finish(http: &Http, sent: Sent) -> Result<u64, RegistryError> {
    let Sent { mut url, digest, size: expected } = sent;
    let doing = format!("finishing blob {digest}");
    url.query_pairs_mut().append_pair("digest", &digest.to_string());
    let put = |client: &reqwest::Client| client.put(url.clone()).header(CONTENT_LENGTH, 0).timeout(FINALISE);
    let failure = match http.send(&doing, put).await {
        Ok(response) if matches!(response.status().as_u16(), 201 | 202 | 204) => None,
        Ok(response) => Some(status_error(&doing, response).await),
        Err(error) => Some(error),
    };
    // A registry that is slow to finish may cut the answer off and finish all the same.
    match (size(http, digest).await, failure) {
        (Ok(Some(size)), _) if size == expected => Ok(size),
        (_, Some(failure)) => Err(failure),
        (Err(error), None) => Err(error),
        (Ok(held), None) => Err(RegistryError::Mismatch {
            what: format!("blob {digest}"),
            host: http.image().host().into(),
            expected: format!("{expected} bytes"),
            got: held.map_or_else(|| "nothing".into(), |size| format!("{size} bytes")),
        }),
    }
}
