//! A registry to push to, and what a push does in order.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use super::backoff::Backoff;
use super::content::{self, Content, Source};
use super::http::Http;
use super::limits::Limit;
use super::network::{Meter, Network};
use super::target::Target;
use super::{BlobSink, Credential, ImageName, Notice, RegistryError, UploadOptions, blob, manifest};
use crate::containerdisk::{Digest, Layout};
use crate::io::{Progress, Task};

/// How to connect.
#[derive(Debug)]
pub struct Connection {
    /// A PEM file with authorities to trust beside the system's.
    pub ca: Option<PathBuf>,
    /// HTTP without TLS: to this machine's own addresses only.
    pub plain_http: bool,
    /// Who pushes.
    pub credential: Credential,
}

/// Whether a blob had to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobOutcome {
    /// It was uploaded.
    Uploaded,
    /// The registry had it in another repository.
    Mounted,
    /// The repository had it.
    Present,
}

/// A finished push: the registry has served the manifest by this digest and by this tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pushed {
    /// `HOST/REPOSITORY@sha256:HEX`.
    pub reference: String,
    /// The manifest's digest.
    pub digest: Digest,
    /// The tag it can be found under, for now.
    pub tag: String,
    /// Bytes of the manifest and of all blobs it names.
    pub size: u64,
    /// Blobs that were uploaded.
    pub blobs_uploaded: usize,
    /// Blobs that were taken over from another repository.
    pub blobs_mounted: usize,
    /// Blobs that were there already.
    pub blobs_present: usize,
}

/// One repository of a registry, open for pushing. Its methods block, and are not for async code.
#[derive(Debug)]
pub struct Registry {
    target: Arc<Target>,
    network: Network,
    tag: String,
}

impl Registry {
    /// Checks the name and the way to connect. Nothing is sent yet.
    pub fn open(image: ImageName, connection: Connection) -> Result<Self, RegistryError> {
        Self::open_with(image, connection, UploadOptions::default())
    }

    /// As [`Registry::open`], and says how blobs are to be sent.
    pub fn open_with(
        image: ImageName,
        connection: Connection,
        options: UploadOptions,
    ) -> Result<Self, RegistryError> {
        let tag = image.push_tag()?.to_owned();
        if let Some(from) = &options.mount_from {
            // Of the same form as the image's own.
            format!("{}/{from}:t", image.host()).parse::<ImageName>()?;
        }
        let http = Http::new(image, connection, Backoff::new(options.first_pause))?;
        Ok(Self { target: Arc::new(Target::new(http, options)), network: Network::start()?, tag })
    }

    /// Pushes a finished image: the blobs that are not there, then its manifest.
    pub fn push_layout(&self, layout: &Layout, progress: &dyn Progress) -> Result<Pushed, RegistryError> {
        let blobs: Vec<_> = layout.layers.iter().chain([&layout.config]).collect();
        let total = blobs.iter().map(|blob| blob.descriptor.size).sum();
        let task = progress.task("push", total);
        let meter = Arc::new(Meter::default());
        self.network.wait(&*task, &meter, self.http().hello())??;
        for layer in &layout.layers {
            self.expect_layer(layer.descriptor.size, true);
        }
        let (mut before, mut uploaded, mut mounted) = (0, 0, 0);
        for blob in &blobs {
            let (digest, size) = (blob.descriptor.digest, blob.descriptor.size);
            let content = Content { digest, size, source: Source::File(blob.path.clone()) };
            match self.push(&content, &*task, &meter, before)? {
                BlobOutcome::Uploaded => uploaded += 1,
                BlobOutcome::Mounted => mounted += 1,
                BlobOutcome::Present => {}
            }
            before += size;
            meter.reached(before);
        }
        let digest = self.publish(&layout.manifest_bytes, &layout.manifest_descriptor.media_type, &*task)?;
        Ok(Pushed {
            reference: self.image().pinned(digest),
            digest,
            tag: self.tag.clone(),
            size: total + layout.manifest_descriptor.size,
            blobs_uploaded: uploaded,
            blobs_mounted: mounted,
            blobs_present: blobs.len() - uploaded - mounted,
        })
    }

    /// Asks whether the registry is there and takes the login, before anything is made for it.
    pub fn hello(&self, progress: &dyn Progress) -> Result<(), RegistryError> {
        self.network.wait(&*progress.task("registry", 0), &Meter::default(), self.http().hello())?
    }

    /// Tells, before anything is sent, if a layer may be more than this registry is known to take. `exact` is whether
    /// `size` is its own: otherwise it is that of what is yet to be compressed.
    pub fn expect_layer(&self, size: u64, exact: bool) {
        if let Some(limit) = Limit::of(self.image().host()).filter(|limit| limit.may_refuse(size)) {
            self.target.tell(&Notice::Limit { limit, size, exact });
        }
    }

    /// Has the registry take a blob over from another of its repositories, `from`. False where it does not; the blob
    /// then has to be sent. Nothing is asked of the registry where the blob is there already.
    pub fn mount_blob(
        &self,
        digest: Digest,
        size: u64,
        from: &str,
        task: &dyn Task,
    ) -> Result<bool, RegistryError> {
        let work = async {
            if blob::size(self.http(), digest).await? == Some(size) {
                return Ok(true);
            }
            match content::mount(self.http(), digest, size, from).await {
                Ok(None) => Ok(true),
                Ok(Some(url)) => {
                    blob::cancel(self.http(), &url).await;
                    Ok(false)
                }
                Err(_) => Ok(false),
            }
        };
        self.network.wait(task, &Meter::default(), work)?
    }

    /// Whether the repository holds a blob, with that size.
    pub(super) fn has_blob(&self, digest: Digest, size: u64, task: &dyn Task) -> Result<bool, RegistryError> {
        let work = async { Ok(blob::size(self.http(), digest).await? == Some(size)) };
        self.network.wait(task, &Meter::default(), work)?
    }

    /// Pushes a small blob out of memory, as an image's configuration.
    pub fn push_bytes(&self, content: Vec<u8>, task: &dyn Task) -> Result<BlobOutcome, RegistryError> {
        let (digest, size) = (Digest::of(&content), content.len() as u64);
        let content = Content { digest, size, source: Source::Bytes(content.into()) };
        self.push(&content, task, &Arc::default(), 0)
    }

    /// Begins a blob that is uploaded while it is made. `task` counts the bytes sent and may stop the upload.
    /// [`Registry::push_layer`] does all of it for a layer.
    pub fn begin_blob<'a>(&'a self, task: Box<dyn Task + 'a>) -> BlobSink<'a> {
        BlobSink::begin(&self.network, Arc::clone(&self.target), task)
    }

    /// Puts a manifest, all of whose blobs are there, under the tag. Returns its digest once the registry
    /// has served it by digest and by tag.
    pub fn publish(
        &self,
        manifest: &[u8],
        media_type: &str,
        task: &dyn Task,
    ) -> Result<Digest, RegistryError> {
        let work = async {
            let before = manifest::led_to(self.http(), &self.tag).await;
            let digest = manifest::publish(self.http(), &self.tag, manifest, media_type).await?;
            if let Some(from) = before.filter(|before| *before != digest) {
                self.target.tell(&Notice::TagMoves { tag: self.tag.clone(), from });
            }
            Ok(digest)
        };
        self.network.wait(task, &Meter::default(), work)?
    }

    /// The image pushed to.
    pub fn image(&self) -> &ImageName {
        self.http().image()
    }

    fn http(&self) -> &Http {
        &self.target.http
    }

    fn push(
        &self,
        blob: &Content,
        task: &dyn Task,
        meter: &Arc<Meter>,
        before: u64,
    ) -> Result<BlobOutcome, RegistryError> {
        let work = async {
            if blob::size(self.http(), blob.digest).await? == Some(blob.size) {
                return Ok(BlobOutcome::Present);
            }
            content::send(&self.target, blob, meter, before).await
        };
        self.network.wait(task, meter, work)?
    }
}
