//! A published image, read as it comes: its manifest, then a blob from its start to its end.

use std::io::{self, Read};
use std::time::Duration;

use bytes::Bytes;
use reqwest::Response;
use reqwest::header::{ACCEPT, CONTENT_RANGE, RANGE};

use super::backoff::{self, Backoff};
use super::http::{self, Http, SHORT, status_error};
use super::network::{Meter, Network};
use super::{Connection, ImageName, ReferenceError, RegistryError};
use crate::containerdisk::{Descriptor, Digest, MANIFEST_TYPE, Manifest};
use crate::io::Task;

/// Registries take no larger one.
const MAX_MANIFEST: usize = 4 << 20;
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Nothing came for so long: the connection is made again.
const STALL: Duration = Duration::from_secs(60);

/// An image in a registry, open for reading. Its methods block, and are not for async code.
#[derive(Debug)]
pub struct Pull {
    http: Http,
    network: Network,
}

impl Pull {
    /// Checks the name, which has a tag or a digest, and the way to connect. Nothing is sent yet.
    pub fn open(image: ImageName, connection: Connection) -> Result<Self, RegistryError> {
        if image.tag().is_none() && image.digest().is_none() {
            return Err(ReferenceError::NoTag { text: image.to_string() }.into());
        }
        Ok(Self {
            http: Http::new(image, connection, Backoff::new(backoff::FIRST))?,
            network: Network::start()?,
        })
    }

    /// The manifest and its digest, which is the one in the name where that has one.
    pub fn manifest(&self, task: &dyn Task) -> Result<(Digest, Manifest), RegistryError> {
        let work = async {
            self.http.hello().await?;
            manifest(&self.http).await
        };
        self.network.wait(task, &Meter::default(), work)?
    }

    /// A blob as a stream; `task` counts its bytes and may stop it. The digest is for the reader to check.
    pub fn blob(&self, blob: &Descriptor, task: Box<dyn Task>) -> BlobReader<'_> {
        let (digest, size) = (blob.digest, blob.size);
        let (response, failure) = (None, None);
        BlobReader {
            pull: self,
            digest,
            size,
            at: 0,
            held: Bytes::new(),
            skip: 0,
            tried: 0,
            response,
            task,
            failure,
        }
    }
}

async fn manifest(http: &Http) -> Result<(Digest, Manifest), RegistryError> {
    let name = http.image();
    let reference = match (name.digest(), name.tag()) {
        (Some(digest), _) => digest.to_string(),
        (None, tag) => tag.unwrap_or_default().into(),
    };
    let doing = format!("reading the manifest '{reference}'");
    let url = http.url(&format!("manifests/{reference}"))?;
    let accept = format!("{MANIFEST_TYPE}, {DOCKER_MANIFEST}");
    let get = |client: &reqwest::Client| client.get(url.clone()).header(ACCEPT, &accept).timeout(SHORT);
    let response = http.send(&doing, get).await?;
    if response.status().as_u16() != 200 {
        return Err(status_error(&doing, response).await);
    }
    let bytes = http::body(&doing, response, MAX_MANIFEST).await?;
    let digest = Digest::of(&bytes);
    if let Some(expected) = name.digest().filter(|expected| *expected != digest) {
        return Err(RegistryError::Mismatch {
            what: format!("manifest '{reference}'"),
            host: name.host().into(),
            expected: expected.to_string(),
            got: digest.to_string(),
        });
    }
    let manifest = serde_json::from_slice(&bytes)
        .map_err(|e| http.protocol(&doing, format!("that is no image manifest: {e}")))?;
    Ok((digest, manifest))
}

/// A blob as it comes. A connection that breaks is made again, from the byte that is missing.
pub struct BlobReader<'p> {
    pull: &'p Pull,
    digest: Digest,
    size: u64,
    /// The next byte to be asked for.
    at: u64,
    held: Bytes,
    /// Bytes to pass over: a server without ranges begins at the start again.
    skip: u64,
    /// Tries since the last byte came.
    tried: u32,
    response: Option<Response>,
    task: Box<dyn Task>,
    failure: Option<RegistryError>,
}

impl BlobReader<'_> {
    /// Why reading failed, if it did.
    pub fn failure(self) -> Option<RegistryError> {
        self.failure
    }

    fn next(&mut self) -> Result<(), RegistryError> {
        let doing = format!("reading blob {}", self.digest);
        let Pull { http, network } = self.pull;
        while self.held.is_empty() && self.at < self.size {
            let (open, at) = (self.response.take(), self.at);
            let (digest, size) = (self.digest, self.size);
            let work = async {
                let (mut response, skip) = match open {
                    Some(response) => (response, None),
                    None => {
                        let (response, skip) = ask(http, &doing, digest, at, size).await?;
                        (response, Some(skip))
                    }
                };
                let chunk = next_chunk(&doing, &mut response).await?;
                Ok((response, skip, chunk))
            };
            let error = match network.wait(&*self.task, &Meter::default(), work)? {
                Ok((response, skip, chunk)) => {
                    self.skip = skip.unwrap_or(self.skip);
                    match chunk {
                        Some(chunk) => {
                            self.response = Some(response);
                            self.take(chunk)?;
                            continue;
                        }
                        None => http.protocol(&doing, format!("it ends after {at} of {size} bytes")),
                    }
                }
                Err(error) => error,
            };
            self.tried += 1;
            match Backoff::new(backoff::FIRST).pause(self.tried, None) {
                Some(pause) if error.is_transient() || matches!(error, RegistryError::Protocol { .. }) => {
                    let sleep = async { tokio::time::sleep(pause).await };
                    network.wait(&*self.task, &Meter::default(), sleep)?;
                }
                _ => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&mut self, mut chunk: Bytes) -> Result<(), RegistryError> {
        let passed = self.skip.min(chunk.len() as u64);
        let _ = chunk.split_to(passed as usize);
        self.skip -= passed;
        if chunk.is_empty() {
            return Ok(());
        }
        // What is more than its size does not belong to it.
        chunk.truncate((self.size - self.at).min(chunk.len() as u64) as usize);
        self.tried = 0;
        self.at += chunk.len() as u64;
        self.task.advance(chunk.len() as u64)?;
        self.held = chunk;
        Ok(())
    }
}

/// A blob from byte `at`, and how many bytes come before that one.
async fn ask(
    http: &Http,
    doing: &str,
    digest: Digest,
    at: u64,
    size: u64,
) -> Result<(Response, u64), RegistryError> {
    let url = http.url(&format!("blobs/{digest}"))?;
    let range = format!("bytes={at}-");
    let get = |client: &reqwest::Client| match at {
        0 => client.get(url.clone()),
        _ => client.get(url.clone()).header(RANGE, &range),
    };
    let response = http.send(doing, get).await?;
    match response.status().as_u16() {
        200 => Ok((response, at)),
        206 if at > 0 => {
            let told = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
            let wanted = format!("bytes {at}-{}/", size - 1);
            match told.is_some_and(|told| told.starts_with(&wanted)) {
                true => Ok((response, 0)),
                false => Err(http.protocol(doing, "it serves other bytes than were asked for")),
            }
        }
        _ => Err(status_error(doing, response).await),
    }
}

async fn next_chunk(doing: &str, response: &mut Response) -> Result<Option<Bytes>, RegistryError> {
    let url = response.url().clone();
    match tokio::time::timeout(STALL, response.chunk()).await {
        Ok(chunk) => chunk.map_err(|e| http::failure(doing, &url, e)),
        Err(_) => {
            let (doing, host) = (doing.into(), http::host_of(&url));
            Err(RegistryError::Stalled { doing, host, seconds: STALL.as_secs() })
        }
    }
}

impl Read for BlobReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Err(error) = self.next() {
            let told = io::Error::other(error.to_string());
            self.failure.get_or_insert(error);
            return Err(told);
        }
        let taken = self.held.split_to(buf.len().min(self.held.len()));
        buf[..taken.len()].copy_from_slice(&taken);
        Ok(taken.len())
    }
}
