//! A blob read from its start to its end, over as many connections as it takes.

use std::io::{self, Read};
use std::time::Duration;

use bytes::{Buf, Bytes};
use reqwest::header::RANGE;
use reqwest::{Client, Response};

use super::RegistryError;
use super::http::{Http, status_error};
use super::network::{Meter, Network};
use super::remote::{check_range, mismatch, next_chunk, pause};
use crate::containerdisk::{Descriptor, Digest};
use crate::io::Task;

/// How long the head of an answer is waited for: some storage is slow to begin.
const HEAD: Duration = Duration::from_secs(180);

/// A connection that brought so many bytes did its work; one that broke sooner counts as failed.
const PROGRESS: u64 = 64 << 10;

/// A blob as it comes.
///
/// A connection that breaks is made again from the byte that is wanted next. That there are as many bytes as the
/// descriptor says is checked; the digest is left to who reads them.
pub struct BlobStream<'r> {
    http: &'r Http,
    network: &'r Network,
    digest: Digest,
    size: u64,
    /// The next byte.
    at: u64,
    task: Box<dyn Task>,
    response: Option<Response>,
    /// Bytes of the answer that come before `at`.
    skip: u64,
    /// How many connections in turn broke with little to show.
    broken: u32,
    /// The byte the present connection began at.
    began: u64,
    /// What [`Read`] has not handed on yet.
    rest: Bytes,
    failure: Option<RegistryError>,
}

impl<'r> BlobStream<'r> {
    pub(super) fn new(
        http: &'r Http,
        network: &'r Network,
        blob: &Descriptor,
        from: u64,
        task: Box<dyn Task>,
    ) -> Self {
        Self {
            http,
            network,
            digest: blob.digest,
            size: blob.size,
            at: from,
            task,
            response: None,
            skip: 0,
            broken: 0,
            began: from,
            rest: Bytes::new(),
            failure: None,
        }
    }

    /// The next bytes; none at the end.
    pub fn piece(&mut self) -> Result<Option<Bytes>, RegistryError> {
        while self.at < self.size {
            let Some(mut piece) = self.receive()? else {
                return Err(self.wrong_size(format!("{} bytes", self.at)));
            };
            let skip = self.skip.min(piece.len() as u64);
            self.skip -= skip;
            piece.advance(skip as usize);
            if piece.len() as u64 > self.size - self.at {
                return Err(self.wrong_size("more".into()));
            }
            if !piece.is_empty() {
                self.at += piece.len() as u64;
                self.task.advance(piece.len() as u64)?;
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    /// Why reading failed: readers only know that it did.
    pub fn take_failure(&mut self) -> Option<RegistryError> {
        self.failure.take()
    }

    /// What comes next over the present connection, or over a new one.
    fn receive(&mut self) -> Result<Option<Bytes>, RegistryError> {
        let doing = format!("reading blob {}", self.digest);
        let (http, network) = (self.http, self.network);
        let (response, skip) = (&mut self.response, &mut self.skip);
        let (broken, began) = (&mut self.broken, &mut self.began);
        let (digest, at, size) = (self.digest, self.at, self.size);
        let work = async {
            loop {
                let received = async {
                    if response.is_none() {
                        let (opened, before) = open(http, &doing, digest, at..size).await?;
                        (*response, *skip, *began) = (Some(opened), before, at);
                    }
                    match response {
                        Some(response) => next_chunk(&doing, response).await,
                        None => Ok(None),
                    }
                };
                match received.await {
                    Ok(chunk) => return Ok(chunk),
                    Err(error) => {
                        let worked = response.take().is_some() && at - *began >= PROGRESS;
                        *broken = if worked { 1 } else { *broken + 1 };
                        pause(http, *broken, error).await?;
                    }
                }
            }
        };
        network.wait(&*self.task, &Meter::default(), work)?
    }

    fn wrong_size(&self, got: String) -> RegistryError {
        mismatch(self.http, format!("blob {}", self.digest), format!("{} bytes", self.size), got)
    }
}

/// The blob's bytes in `range`, and how many more the answer begins with: one without ranges serves all of it.
async fn open(
    http: &Http,
    doing: &str,
    digest: Digest,
    range: std::ops::Range<u64>,
) -> Result<(Response, u64), RegistryError> {
    let url = http.url(&format!("blobs/{digest}"))?;
    let get = |client: &Client| match range.start {
        0 => client.get(url.clone()),
        from => client.get(url.clone()).header(RANGE, format!("bytes={from}-")),
    };
    let Ok(response) = tokio::time::timeout(HEAD, http.send(doing, get)).await else {
        let (host, seconds) = (http.image().host().into(), HEAD.as_secs());
        return Err(RegistryError::Stalled { doing: doing.into(), host, seconds });
    };
    let response = response?;
    match response.status().as_u16() {
        200 => Ok((response, range.start)),
        206 if range.start > 0 => {
            check_range(http, doing, &response, &range, range.end)?;
            Ok((response, 0))
        }
        _ => Err(status_error(doing, response).await),
    }
}

impl Read for BlobStream<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            match self.piece() {
                Ok(piece) => self.rest = piece.unwrap_or_default(),
                Err(error) => {
                    let told = io::Error::other(error.to_string());
                    self.failure.get_or_insert(error);
                    return Err(told);
                }
            }
        }
        let len = buf.len().min(self.rest.len());
        self.rest.copy_to_slice(&mut buf[..len]);
        Ok(len)
    }
}
