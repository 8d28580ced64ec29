//! A registry to push to, and what a push does in order.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

use super::feed::Source;
use super::http::Http;
use super::manifest::digest_of;
use super::network::{Meter, Network};
use super::{BlobSink, Credential, ImageName, LayoutBlob, LayoutImage, RegistryError, blob, manifest};
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
    /// The registry had it.
    Present,
}

/// A finished push: the registry has served the manifest by this digest and by this tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pushed {
    /// `HOST/REPOSITORY@sha256:HEX`.
    pub reference: String,
    /// The manifest's digest.
    pub digest: String,
    /// The tag it can be found under, for now.
    pub tag: String,
    /// Bytes of the manifest and of all blobs it names.
    pub size: u64,
    /// Blobs that were uploaded.
    pub blobs_uploaded: usize,
    /// Blobs that were there already.
    pub blobs_present: usize,
}

/// One repository of a registry, open for pushing.
#[derive(Debug)]
pub struct Registry {
    http: Arc<Http>,
    network: Network,
    tag: String,
}

impl Registry {
    /// Checks the name and the way to connect. Nothing is sent yet.
    pub fn open(image: ImageName, connection: Connection) -> Result<Self, RegistryError> {
        let tag = image.push_tag()?.to_owned();
        let http = Arc::new(Http::new(image, connection)?);
        Ok(Self { http, network: Network::start()?, tag })
    }

    /// Pushes a finished image: the blobs that are not there, then its manifest.
    pub fn push_layout(&self, image: &LayoutImage, progress: &dyn Progress) -> Result<Pushed, RegistryError> {
        let total = image.blobs.iter().map(|blob| blob.size).sum();
        let task = progress.task("push", total);
        let meter = Arc::new(Meter::default());
        let (mut before, mut uploaded) = (0, 0);
        for blob in &image.blobs {
            let source = Source::File(blob.path.clone());
            match self.push(blob, &source, &*task, &meter, before)? {
                BlobOutcome::Uploaded => uploaded += 1,
                BlobOutcome::Present => {}
            }
            before += blob.size;
            meter.reached(before);
        }
        let digest = self.publish(&image.manifest, &image.media_type, &*task)?;
        Ok(Pushed {
            reference: self.http.image().pinned(&digest),
            digest,
            tag: self.tag.clone(),
            size: total + image.manifest.len() as u64,
            blobs_uploaded: uploaded,
            blobs_present: image.blobs.len() - uploaded,
        })
    }

    /// Pushes a small blob out of memory, as an image's configuration.
    pub fn push_bytes(&self, content: Vec<u8>, task: &dyn Task) -> Result<BlobOutcome, RegistryError> {
        let blob = LayoutBlob {
            digest: digest_of(&content),
            size: content.len() as u64,
            path: PathBuf::from("memory"),
        };
        let source = Source::Bytes(Bytes::from(content));
        self.push(&blob, &source, task, &Arc::default(), 0)
    }

    /// Begins a blob whose bytes are not known yet: they are uploaded while they are written to the sink.
    ///
    /// `task` counts the bytes sent and may stop the upload.
    pub fn begin_blob(&self, task: Box<dyn Task>) -> BlobSink<'_> {
        BlobSink::begin(&self.network, Arc::clone(&self.http), task)
    }

    /// Puts a manifest, all of whose blobs are there, under the tag. Returns its digest once the registry
    /// has served it by digest and by tag.
    pub fn publish(
        &self,
        manifest: &[u8],
        media_type: &str,
        task: &dyn Task,
    ) -> Result<String, RegistryError> {
        let work = manifest::publish(&self.http, &self.tag, manifest, media_type);
        self.network.wait(task, &Meter::default(), work)?
    }

    /// The image pushed to.
    pub fn image(&self) -> &ImageName {
        self.http.image()
    }

    fn push(
        &self,
        blob: &LayoutBlob,
        source: &Source,
        task: &dyn Task,
        meter: &Arc<Meter>,
        before: u64,
    ) -> Result<BlobOutcome, RegistryError> {
        let work = async {
            if blob::size(&self.http, &blob.digest).await? == Some(blob.size) {
                return Ok(BlobOutcome::Present);
            }
            blob::upload_again(&self.http, blob, source, meter, before).await?;
            Ok(BlobOutcome::Uploaded)
        };
        self.network.wait(task, meter, work)?
    }
}
