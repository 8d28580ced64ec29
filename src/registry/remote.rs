//! A published image, read: its manifest by tag or digest, and its blobs by range.

use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::Response;
use reqwest::header::{ACCEPT, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use serde::Deserialize;

use super::backoff::{self, Backoff};
use super::error::printable;
use super::http::{self, Http, SHORT, status_error};
use super::network::{Meter, Network};
use super::{BlobStream, Connection, ImageName, ReferenceError, RegistryError};
use crate::containerdisk::{Descriptor, Digest, ImageConfig, MANIFEST_TYPE, Manifest};
use crate::io::{ReadAt, Task};

/// What is read as a manifest or configuration.
const MAX_DOCUMENT: u64 = 4 << 20;
/// For a part of a blob: at the most 16 MiB over a slow line.
const PART: Duration = Duration::from_secs(10 * 60);
/// Docker's manifest, which differs from OCI's by its media types alone.
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// The platform of every containerDisk that is made here.
const PLATFORM: (&str, &str) = ("linux", "amd64");

/// One repository of a registry, open for reading. Its methods block, and are not for async code.
#[derive(Debug)]
pub struct Remote {
    http: Http,
    network: Network,
}

/// An image in a registry. Manifest and configuration have the digests that name them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteImage {
    /// The manifest's digest: the image's name.
    pub digest: Digest,
    /// The digest of the index that names the image for this platform, where the name led to one.
    pub index: Option<Digest>,
    /// The manifest's media type.
    pub media_type: String,
    /// The manifest's bytes.
    pub manifest_bytes: Vec<u8>,
    /// The manifest, read.
    pub manifest: Manifest,
    /// The configuration's bytes.
    pub config_bytes: Vec<u8>,
    /// The configuration, read.
    pub config: ImageConfig,
}

/// What an index says of an image.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    digest: Digest,
    #[serde(default)]
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

impl Remote {
    /// Checks the name and the way to connect. Nothing is sent yet.
    pub fn open(image: ImageName, connection: Connection) -> Result<Self, RegistryError> {
        if image.tag().is_none() && image.digest().is_none() {
            return Err(ReferenceError::NoTag { text: image.to_string() }.into());
        }
        Ok(Self {
            http: Http::new(image, connection, Backoff::new(backoff::FIRST))?.for_reading(),
            network: Network::start()?,
        })
    }

    /// The image's name, as it was given.
    pub fn image(&self) -> &ImageName {
        self.http.image()
    }

    pub(super) fn http(&self) -> &Http {
        &self.http
    }

    /// Reads the manifest, and the configuration it names. Each is what its digest says.
    pub fn resolve(&self, task: &dyn Task) -> Result<RemoteImage, RegistryError> {
        self.network.wait(task, &Meter::default(), async {
            self.http.hello().await?;
            resolve(&self.http).await
        })?
    }

    /// A blob, read by range. `task` may stop it.
    pub fn blob(&self, blob: &Descriptor, task: Box<dyn Task>) -> RemoteBlob<'_> {
        RemoteBlob { remote: self, digest: blob.digest, size: blob.size, task, failure: Mutex::default() }
    }

    /// A blob, read from byte `from` to its end. `task` counts the bytes and may stop it.
    ///
    /// A connection that breaks is made again. Nothing is checked against the digest here.
    pub fn stream(&self, blob: &Descriptor, from: u64, task: Box<dyn Task>) -> BlobStream<'_> {
        BlobStream::new(&self.http, &self.network, blob, from, task)
    }
}

async fn resolve(http: &Http) -> Result<RemoteImage, RegistryError> {
    let name = http.image();
    let reference = match (name.digest(), name.tag()) {
        (Some(digest), _) => digest.to_string(),
        (None, tag) => tag.unwrap_or_default().to_owned(),
    };
    let (mut digest, mut media_type, mut bytes) = manifest(http, &reference, name.digest()).await?;
    let mut index = None;
    if matches!(media_type.as_str(), INDEX | DOCKER_INDEX) {
        let chosen = choose(http, &bytes)?;
        index = Some(digest);
        (digest, media_type, bytes) = manifest(http, &chosen.to_string(), Some(chosen)).await?;
    }
    if !matches!(media_type.as_str(), MANIFEST_TYPE | DOCKER_MANIFEST) {
        return Err(no_image(http, format!("its manifest is of type {:?}", printable(&media_type))));
    }
    let manifest: Manifest = serde_json::from_slice(&bytes)
        .map_err(|e| no_image(http, format!("its manifest can't be read: {e}")))?;
    let config_bytes = small_blob(http, &manifest.config).await?;
    let config = ImageConfig::parse(&config_bytes)
        .map_err(|e| no_image(http, format!("its configuration can't be read: {e}")))?;
    Ok(RemoteImage { digest, index, media_type, manifest_bytes: bytes, manifest, config_bytes, config })
}

fn no_image(http: &Http, why: String) -> RegistryError {
    RegistryError::NoImage { name: http.image().to_string(), why }
}

/// A manifest, its digest, and its media type.
async fn manifest(
    http: &Http,
    reference: &str,
    expected: Option<Digest>,
) -> Result<(Digest, String, Vec<u8>), RegistryError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Typed {
        #[serde(default)]
        media_type: Option<String>,
    }
    let doing = format!("reading the manifest '{reference}'");
    let url = http.url(&format!("manifests/{reference}"))?;
    let accept = [MANIFEST_TYPE, DOCKER_MANIFEST, INDEX, DOCKER_INDEX].join(", ");
    let get = |client: &reqwest::Client| client.get(url.clone()).header(ACCEPT, &accept).timeout(SHORT);
    let mut told = None;
    let bytes = again(http, async || {
        let response = http.send(&doing, get).await?;
        if response.status().as_u16() != 200 {
            return Err(status_error(&doing, response).await);
        }
        told = response.headers().get(CONTENT_TYPE).and_then(|t| t.to_str().ok()).map(str::to_owned);
        http::body(&doing, response, MAX_DOCUMENT as usize).await
    })
    .await?;
    let digest = Digest::of(&bytes);
    if let Some(expected) = expected.filter(|expected| *expected != digest) {
        return Err(mismatch(http, format!("manifest '{reference}'"), expected, digest));
    }
    // What the document says of itself is part of what the digest names; a header is not.
    let own = serde_json::from_slice::<Typed>(&bytes).ok().and_then(|typed| typed.media_type);
    let told = told.map(|told| told.split(';').next().unwrap_or_default().trim().to_owned());
    Ok((digest, own.or(told).unwrap_or_default(), bytes))
}

/// The image for this platform, or the only one.
fn choose(http: &Http, index: &[u8]) -> Result<Digest, RegistryError> {
    #[derive(Deserialize)]
    struct Index {
        manifests: Vec<Entry>,
    }
    let Index { manifests } =
        serde_json::from_slice(index).map_err(|e| no_image(http, format!("its index can't be read: {e}")))?;
    let fits = |entry: &&Entry| {
        entry.platform.as_ref().is_some_and(|p| (p.os.as_str(), p.architecture.as_str()) == PLATFORM)
    };
    match (manifests.iter().find(fits), manifests.as_slice()) {
        (Some(entry), _) | (None, [entry]) => Ok(entry.digest),
        (None, several) => {
            let why = format!("it is an index of {} images, none of them for linux/amd64", several.len());
            Err(no_image(http, why))
        }
    }
}

/// A blob that fits in memory, checked against its digest.
async fn small_blob(http: &Http, blob: &Descriptor) -> Result<Vec<u8>, RegistryError> {
    if blob.size > MAX_DOCUMENT {
        return Err(no_image(http, format!("its configuration has {} bytes", blob.size)));
    }
    let doing = format!("reading blob {}", blob.digest);
    let url = http.url(&format!("blobs/{}", blob.digest))?;
    let get = |client: &reqwest::Client| client.get(url.clone()).timeout(SHORT);
    let bytes = http.fetch(&doing, MAX_DOCUMENT as usize, get).await?;
    let found = Digest::of(&bytes);
    if found != blob.digest {
        return Err(mismatch(http, format!("blob {}", blob.digest), blob.digest, found));
    }
    Ok(bytes)
}

pub(super) fn mismatch(
    http: &Http,
    what: String,
    expected: impl ToString,
    got: impl ToString,
) -> RegistryError {
    let host = http.image().host().into();
    RegistryError::Mismatch { what, host, expected: expected.to_string(), got: got.to_string() }
}

/// Does `work` again while an answer breaks off: [`Http::send`] does so for a request and its answer's head.
async fn again<T>(
    http: &Http,
    mut work: impl AsyncFnMut() -> Result<T, RegistryError>,
) -> Result<T, RegistryError> {
    let mut tried = 0;
    loop {
        tried += 1;
        match work().await {
            Ok(done) => return Ok(done),
            Err(error) => pause(http, tried, error).await?,
        }
    }
}

/// Waits after the `tried`-th time (from 1) that an answer broke off; gives any other error back, and this one too
/// when it is time to give up. Answers that say no have been tried again already.
pub(super) async fn pause(http: &Http, tried: u32, error: RegistryError) -> Result<(), RegistryError> {
    match error {
        RegistryError::Broken { .. } | RegistryError::Stalled { .. } => http.wait(tried, error).await,
        error => Err(error),
    }
}

/// A blob of a registry, read by HTTP ranges. Only its size is certain: a part has no digest.
pub struct RemoteBlob<'r> {
    remote: &'r Remote,
    digest: Digest,
    size: u64,
    task: Box<dyn Task>,
    failure: Mutex<Option<RegistryError>>,
}

impl RemoteBlob<'_> {
    /// Why the first read that failed did so: parsers that read through this only know that it did.
    pub fn take_failure(&self) -> Option<RegistryError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ReadAt for RemoteBlob<'_> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= self.size);
        let Some(end) = end else { return Err(io::ErrorKind::UnexpectedEof.into()) };
        if buf.is_empty() {
            return Ok(());
        }
        let Remote { http, network } = self.remote;
        let work = part(http, self.digest, offset..end, self.size);
        let read = network.wait(&*self.task, &Meter::default(), work);
        match read.map_err(RegistryError::from).flatten() {
            Ok(bytes) => {
                buf.copy_from_slice(&bytes);
                let stop = self.task.advance(bytes.len() as u64);
                stop.map_err(|stop| self.failed(stop.into()))
            }
            Err(error) => Err(self.failed(error)),
        }
    }
}

impl RemoteBlob<'_> {
    fn failed(&self, error: RegistryError) -> io::Error {
        let told = io::Error::other(error.to_string());
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        told
    }
}

/// The bytes of a blob in `range`, which is not empty.
async fn part(http: &Http, digest: Digest, range: Range<u64>, size: u64) -> Result<Vec<u8>, RegistryError> {
    let doing = format!("reading bytes {} to {} of blob {digest}", range.start, range.end);
    let url = http.url(&format!("blobs/{digest}"))?;
    let wanted = format!("bytes={}-{}", range.start, range.end - 1);
    let get = |client: &reqwest::Client| client.get(url.clone()).header(RANGE, &wanted).timeout(PART);
    again(http, async || {
        let response = http.send(&doing, get).await?;
        match response.status().as_u16() {
            206 => check_range(http, &doing, &response, &range, size)?,
            // The connection is dropped with the answer: the rest is not read.
            200 => return Err(RegistryError::NoRanges { host: http::host_of(response.url()) }),
            _ => return Err(status_error(&doing, response).await),
        }
        read_part(&doing, response, (range.end - range.start) as usize).await
    })
    .await
}

/// Whether an answer is the part that was asked for.
pub(super) fn check_range(
    http: &Http,
    doing: &str,
    response: &Response,
    range: &Range<u64>,
    size: u64,
) -> Result<(), RegistryError> {
    let told =
        response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let bounds = format!("bytes {}-{}/", range.start, range.end - 1);
    match told.strip_prefix(&bounds) {
        Some(total) if total == "*" || total.parse() == Ok(size) => Ok(()),
        _ => {
            let told = printable(told);
            Err(http.protocol(doing, format!("it serves {told:?}, and {bounds}{size} was asked for")))
        }
    }
}

/// The body of an answer that has so many bytes.
async fn read_part(doing: &str, mut response: Response, len: usize) -> Result<Vec<u8>, RegistryError> {
    let url = response.url().clone();
    let mut bytes = Vec::with_capacity(len);
    while let Some(chunk) = next_chunk(doing, &mut response).await? {
        if bytes.len() + chunk.len() > len {
            let why = format!("more than the {len} bytes that were asked for");
            return Err(RegistryError::Protocol { doing: doing.into(), host: http::host_of(&url), why });
        }
        bytes.extend_from_slice(&chunk);
    }
    if bytes.len() < len {
        let why = format!("{} of {len} bytes", bytes.len());
        return Err(RegistryError::Protocol { doing: doing.into(), host: http::host_of(&url), why });
    }
    Ok(bytes)
}

/// The next bytes of an answer; none at its end. A connection that stands still for a minute is given up.
pub(super) async fn next_chunk(
    doing: &str,
    response: &mut Response,
) -> Result<Option<bytes::Bytes>, RegistryError> {
    let url = response.url().clone();
    match tokio::time::timeout(SHORT, response.chunk()).await {
        Ok(chunk) => chunk.map_err(|e| http::failure(doing, &url, e)),
        Err(_) => Err(RegistryError::Stalled {
            doing: doing.into(),
            host: http::host_of(&url),
            seconds: SHORT.as_secs(),
        }),
    }
}
