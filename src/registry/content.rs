//! A blob that can be read as often as it takes: a layout's file, or bytes at hand.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use reqwest::Url;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::blob::{self, Mount};
use super::feed::{CHUNK, Item, QUEUE};
use super::http::Http;
use super::network::Meter;
use super::target::Target;
use super::upload::{Turn, Upload};
use super::{BlobOutcome, Notice, RegistryError};
use crate::containerdisk::{Digest, LayoutError};

/// A blob whose content can be read as often as it takes.
#[derive(Debug, Clone)]
pub(super) struct Content {
    pub(super) digest: Digest,
    /// Bytes.
    pub(super) size: u64,
    pub(super) source: Source,
}

/// Where the content is.
#[derive(Debug, Clone)]
pub(super) enum Source {
    File(PathBuf),
    Bytes(Bytes),
}

impl Content {
    /// Sends the content from byte `from` on into a feed. A file that is not what its name says fails at its
    /// end: it is read from its start, since its digest is of all of it.
    pub(super) fn pour(&self, from: u64, items: &mpsc::Sender<Item>) {
        let last = match &self.source {
            Source::Bytes(bytes) => {
                let had = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
                match had == bytes.len() || items.blocking_send(Item::Data(bytes.slice(had..))).is_ok() {
                    true => Item::End { digest: self.digest },
                    false => return,
                }
            }
            Source::File(path) => match self.pour_file(path, from, items) {
                Ok(Some(end)) => end,
                // Nobody listens any more; the other side knows why.
                Ok(None) => return,
                Err(error) => Item::Failed(error.into()),
            },
        };
        let _ = items.blocking_send(last);
    }

    fn pour_file(
        &self,
        path: &Path,
        from: u64,
        items: &mpsc::Sender<Item>,
    ) -> Result<Option<Item>, LayoutError> {
        let unreadable = |source| LayoutError::Read { path: path.into(), source };
        let mut file = File::open(path).map_err(unreadable)?;
        let (mut hash, mut size) = (Sha256::new(), 0u64);
        loop {
            let mut chunk = Vec::with_capacity(CHUNK);
            let read = file.by_ref().take(CHUNK as u64).read_to_end(&mut chunk).map_err(unreadable)?;
            if read == 0 {
                break;
            }
            let had = from.saturating_sub(size).min(read as u64) as usize;
            size += read as u64;
            hash.update(&chunk);
            let new = Bytes::from(chunk).slice(had..);
            if (!new.is_empty() && items.blocking_send(Item::Data(new)).is_err()) || items.is_closed() {
                return Ok(None);
            }
        }
        let digest = Digest::from_hash(hash);
        if digest != self.digest || size != self.size {
            let (expected, found) = (self.digest.to_string(), digest.to_string());
            return Err(LayoutError::Blob { path: path.into(), expected, found });
        }
        Ok(Some(Item::End { digest }))
    }
}

/// Sends a blob that can be read as often as it takes.
pub(super) async fn send(
    target: &Target,
    content: &Content,
    meter: &Arc<Meter>,
    before: u64,
) -> Result<BlobOutcome, RegistryError> {
    let mut upload = Upload::new(target, Arc::clone(meter), before);
    if let Some(from) = &target.options.mount_from {
        match mount(&target.http, content.digest, content.size, from).await {
            Ok(None) => return Ok(BlobOutcome::Mounted),
            Ok(Some(url)) => upload.begun(url),
            // It is sent, and should that fail, this is told.
            Err(_) => {}
        }
    }
    let mut patch = true;
    loop {
        let turn = match patch {
            true => {
                let at = upload.ready().await?;
                upload.send(pour(content, at)).await?
            }
            false => upload.send_whole(content.digest, content.size, pour(content, 0)).await?,
        };
        match turn {
            Turn::Done(_) => return Ok(BlobOutcome::Uploaded),
            Turn::Again => {}
            Turn::NoPatch(error) if patch => {
                let RegistryError::Status { status, .. } = error else { return Err(error) };
                patch = false;
                target.tell(&Notice::Monolithic { status });
            }
            Turn::NoPatch(error) => return Err(error),
        }
    }
}

/// Has the registry take a blob over from another repository. Nothing is returned where it did, or else where the
/// blob can be sent.
pub(super) async fn mount(
    http: &Http,
    digest: Digest,
    size: u64,
    from: &str,
) -> Result<Option<Url>, RegistryError> {
    http.also_pull(Some(from));
    let mounted = match blob::mount(http, digest, from).await {
        Ok(Mount::Mounted) => blob::check(http, digest, size).await.map(|()| None),
        Ok(Mount::Upload(url)) => Ok(Some(url)),
        Err(error) => Err(error),
    };
    if mounted.is_err() {
        // A token server may refuse the one right together with the other.
        http.also_pull(None);
    }
    mounted
}

/// A feed of the content from byte `from` on.
fn pour(content: &Content, from: u64) -> mpsc::Receiver<Item> {
    let (sender, items) = mpsc::channel(QUEUE);
    let content = content.clone();
    // Ends by itself when the receiving side is gone.
    tokio::task::spawn_blocking(move || content.pour(from, &sender));
    items
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn content(bytes: &'static [u8]) -> Content {
        let bytes = Bytes::from_static(bytes);
        Content { digest: Digest::of(&bytes), size: bytes.len() as u64, source: Source::Bytes(bytes) }
    }

    #[test]
    fn a_file_that_changed_is_found_out_before_its_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "other").unwrap();
        let changed = Content { source: Source::File(file.path().into()), ..content(b"bytes") };
        let (sender, mut items) = mpsc::channel(QUEUE);
        changed.pour(0, &sender);
        assert!(matches!(items.try_recv().unwrap(), Item::Data(_)));
        let Item::Failed(error) = items.try_recv().unwrap() else { unreachable!() };
        assert!(error.to_string().contains(&Digest::of(b"other").to_string()), "{error}");
    }

    #[test]
    fn what_is_there_is_not_sent() {
        for (from, rest) in [(0, "bytes"), (2, "tes"), (5, "")] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), "bytes").unwrap();
            let in_memory = content(b"bytes");
            let in_file = Content { source: Source::File(file.path().into()), ..in_memory.clone() };
            for content in [in_memory, in_file] {
                let (sender, mut items) = mpsc::channel(QUEUE);
                content.pour(from, &sender);
                if !rest.is_empty() {
                    assert!(matches!(items.try_recv().unwrap(), Item::Data(bytes) if bytes == rest));
                }
                assert!(
                    matches!(items.try_recv().unwrap(), Item::End { digest } if digest == content.digest)
                );
            }
        }
    }
}
