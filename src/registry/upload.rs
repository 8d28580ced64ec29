//! One blob on its way: a PATCH or many, then the PUT that names it, and a look whether it is there.
//!
//! What fails is taken up where the registry has it; where it has nothing, or what it has can't be relied on, from
//! zero. Whoever makes the bytes is then asked to begin again at that byte. Tries are counted, and counted anew
//! once the registry has more than it ever had.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use reqwest::{Client, Response, StatusCode, Url};
use tokio::sync::mpsc;

use super::blob;
use super::feed::{Feed, Item};
use super::http::{FINALISE, Http, SendOnceError, status_error};
use super::network::Meter;
use super::options::MIN_CHUNK;
use super::target::Target;
use super::{Notice, RegistryError};
use crate::containerdisk::Digest;

/// How long an upload may stand still while it is the registry's turn: to take bytes, or to answer.
const STALL: Duration = FINALISE;
/// A failure after so many more bytes than ever before is a new one.
const PROGRESS: u64 = 64 << 10;
/// So many new tokens in a row, without progress between, are no accident.
const MAX_RENEWALS: u32 = 2;
/// A registry that copies a blob to its place at least so fast is waited for, in bytes a second...
const FINISHING: u64 = 50_000_000;
/// ...but no longer than this.
const LONGEST_FINISH: Duration = Duration::from_secs(180);
/// The longest pause between two looks whether it has.
const LOOK: Duration = Duration::from_secs(10);
/// Codes of the distribution specification that say that an upload is of no use any more.
const NO_UPLOAD: [&str; 4] = ["BLOB_UPLOAD_UNKNOWN", "BLOB_UPLOAD_INVALID", "DIGEST_INVALID", "SIZE_INVALID"];
const OCTETS: &str = "application/octet-stream";

/// How a turn at sending a blob ended.
pub(super) enum Turn {
    /// The registry holds it, with so many bytes.
    Done(u64),
    /// It failed; [`Upload::ready`] says where to go on.
    Again,
    /// The registry knows no PATCH.
    NoPatch(RegistryError),
}

/// Why sending stopped.
enum Halt {
    /// It is not yet known whether it can go on.
    Failed(RegistryError),
    /// It can go on, at another byte than the one that comes next.
    Elsewhere,
    /// No PATCH here.
    NoPatch(RegistryError),
    /// It would end so again.
    Final(RegistryError),
}

impl From<RegistryError> for Halt {
    fn from(error: RegistryError) -> Self {
        Self::Failed(error)
    }
}

/// An upload that the registry knows of.
struct Session {
    url: Url,
    /// Bytes the registry has.
    at: u64,
    /// Bytes it may have at most: what was sent.
    sent: u64,
    /// Requests that brought bytes, whole or not.
    pieces: u32,
}

/// What helps against a failure.
enum Cure {
    /// To wait, and to go on where the registry has it.
    Wait,
    /// A new token, which is there.
    Token,
    /// Smaller requests.
    Smaller(u16),
    /// To begin anew.
    Anew,
}

/// A blob on its way.
pub(super) struct Upload<'t> {
    target: &'t Target,
    meter: Arc<Meter>,
    /// Bytes of other blobs that the meter counts before this one's.
    before: u64,
    session: Option<Session>,
    /// The most bytes that the registry had so far.
    best: u64,
    tried: u32,
    renewals: u32,
    /// A token has ended, and there is a new one.
    renewed: bool,
    /// What the registry put together was wrong: it gets the blob in one session without a break, or not.
    unbroken: bool,
}

impl<'t> Upload<'t> {
    pub(super) fn new(target: &'t Target, meter: Arc<Meter>, before: u64) -> Self {
        Self {
            target,
            meter,
            before,
            session: None,
            best: 0,
            tried: 0,
            renewals: 0,
            renewed: false,
            unbroken: false,
        }
    }

    /// The byte at which to begin, or to go on.
    pub(super) async fn ready(&mut self) -> Result<u64, RegistryError> {
        if let Some(session) = &self.session {
            return Ok(session.at);
        }
        self.begun(blob::begin(&self.target.http).await?);
        Ok(0)
    }

    /// The registry has begun an upload by itself, here.
    pub(super) fn begun(&mut self, url: Url) {
        self.session = Some(Session { url, at: 0, sent: 0, pieces: 0 });
    }

    /// Sends what `items` brings, which is the blob from the byte on that [`Upload::ready`] said.
    pub(super) async fn send(&mut self, items: mpsc::Receiver<Item>) -> Result<Turn, RegistryError> {
        let sent = match self.target.chunk() {
            None => self.stream(items).await,
            Some(_) => self.chunks(items).await,
        };
        let outcome = match sent {
            Ok((digest, size)) => self.finish(digest, size).await.map(|()| size),
            Err(halt) => Err(halt),
        };
        match outcome {
            Ok(size) => Ok(Turn::Done(size)),
            Err(Halt::Elsewhere) => Ok(Turn::Again),
            Err(Halt::NoPatch(error)) => Ok(Turn::NoPatch(error)),
            Err(Halt::Final(error)) => Err(error),
            Err(Halt::Failed(error)) => self.recover(error).await.map(|()| Turn::Again),
        }
    }

    fn session(&mut self) -> Result<&mut Session, Halt> {
        self.session.as_mut().ok_or(Halt::Elsewhere)
    }

    /// In one request. Returns digest and size.
    async fn stream(&mut self, mut items: mpsc::Receiver<Item>) -> Result<(Digest, u64), Halt> {
        const DOING: &str = "uploading a blob";
        let http = &self.target.http;
        // Nothing is begun before there is something to send, and no request is made for nothing.
        let first = match next(&mut items).await? {
            Next::Bytes(bytes) => bytes,
            Next::End(digest) => return Ok((digest, self.session()?.at)),
        };
        let (meter, before) = (Arc::clone(&self.meter), self.before);
        let session = self.session()?;
        let at = session.at;
        session.pieces += 1;
        let (feed, body) = Feed::body(first, items, meter, before + at);
        let url = session.url.clone();
        let request = |client: &Client| client.patch(url.clone()).header(CONTENT_TYPE, OCTETS).body(body);
        let outcome = watched(http, DOING, &feed, http.send_once(DOING, request)).await;
        session.sent = at + feed.sent();
        // An answer may come before the end, and the connection still hold the body.
        feed.close();
        // Whatever the HTTP library makes of a body that ends in an error: the cause is the producer's.
        if let Some(error) = feed.producer_failure() {
            return Err(error.into());
        }
        let response = match outcome {
            Ok(response) => response,
            Err(SendOnceError::Failed(error)) => return Err(error.into()),
            Err(SendOnceError::TokenEnded(refusal)) => {
                self.renewed = true;
                return Err(refusal.into());
            }
        };
        let expected = session.sent;
        let end = feed.finished();
        self.taken(DOING, response, end.is_some().then_some(expected)).await?;
        end.ok_or(Halt::Elsewhere).map(|(digest, _)| (digest, expected))
    }

    /// In requests of a size. Returns digest and size.
    async fn chunks(&mut self, mut items: mpsc::Receiver<Item>) -> Result<(Digest, u64), Halt> {
        let mut end = None;
        // What is to be sent, and what came with it and belongs to the next.
        let (mut rest, mut over) = (Bytes::new(), Bytes::new());
        loop {
            // It may have become smaller.
            let size = self.target.chunk().unwrap_or(MIN_CHUNK);
            if rest.is_empty() {
                // Even empty, it holds on to what it was part of.
                drop(std::mem::take(&mut rest));
                let mut filled = Vec::with_capacity(size);
                loop {
                    let fits = over.len().min(size - filled.len());
                    filled.extend_from_slice(&over.split_to(fits));
                    if filled.len() == size || end.is_some() {
                        break;
                    }
                    match next(&mut items).await? {
                        Next::Bytes(bytes) => over = bytes,
                        Next::End(digest) => end = Some(digest),
                    }
                }
                rest = filled.into();
            }
            let at = self.session()?.at;
            let piece = rest.slice(..rest.len().min(size));
            match end {
                Some(digest) if piece.is_empty() => return Ok((digest, at)),
                _ => {}
            }
            match self.chunk(piece).await {
                Ok(()) => {}
                Err(Halt::Failed(error)) => self.recover(error).await?,
                Err(halt) => return Err(halt),
            }
            // What the registry has is passed over; if it has something else, it has to be made again.
            let now = self.session()?.at;
            match now.checked_sub(at).and_then(|more| usize::try_from(more).ok()) {
                Some(more) if more <= rest.len() => rest.advance(more),
                _ => return Err(Halt::Elsewhere),
            }
        }
    }

    /// The next bytes, in a request of their own.
    async fn chunk(&mut self, piece: Bytes) -> Result<(), Halt> {
        const DOING: &str = "uploading a part of a blob";
        let http = &self.target.http;
        let session = self.session()?;
        session.pieces += 1;
        session.sent = session.at + piece.len() as u64;
        let range = format!("{}-{}", session.at, session.sent.saturating_sub(1));
        let (url, sent) = (session.url.clone(), session.sent);
        let patch = |client: &Client| {
            let request = client.patch(url.clone()).header(CONTENT_TYPE, OCTETS).timeout(STALL);
            request.header(CONTENT_RANGE, &range).body(piece.clone())
        };
        let response = http.authorized(DOING, patch).await?;
        self.taken(DOING, response, Some(sent)).await?;
        self.meter.reached(self.before + sent);
        Ok(())
    }

    /// The answer to a PATCH: were all bytes taken, `expected` in all? Nothing is expected where the answer came
    /// before the end.
    async fn taken(&mut self, doing: &str, response: Response, expected: Option<u64>) -> Result<(), Halt> {
        let http = &self.target.http;
        let status = response.status();
        if matches!(status, StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED) {
            return Err(Halt::NoPatch(status_error(doing, response).await));
        }
        if !matches!(status.as_u16(), 201 | 202 | 204) {
            return Err(status_error(doing, response).await.into());
        }
        let session = self.session()?;
        session.url = blob::next(http, doing, &response, &session.url)?;
        let host = || http.image().host().to_owned();
        let Some(expected) = expected else {
            return Err(RegistryError::Early { doing: doing.into(), host: host() }.into());
        };
        if let Some(last) = blob::last_byte(response.headers())
            && last != Some(expected.saturating_sub(1))
        {
            let got = last.map_or_else(|| "an unreadable range".into(), |last| format!("bytes up to {last}"));
            let expected = format!("{expected} bytes");
            return Err(
                RegistryError::Mismatch { what: "an upload".into(), host: host(), expected, got }.into()
            );
        }
        session.at = expected;
        self.progress(expected);
        Ok(())
    }

    /// Names the content, and sees it there.
    async fn finish(&mut self, digest: Digest, size: u64) -> Result<(), Halt> {
        let http = &self.target.http;
        loop {
            let session = self.session()?;
            let (url, pieces) = (session.url.clone(), session.pieces);
            let named = blob::put(http, &url, digest).await;
            // A registry that is slow to finish may cut the answer off and finish all the same.
            let error = match (blob::check(http, digest, size).await, named) {
                (Ok(()), _) => return Ok(()),
                (Err(RegistryError::Mismatch { .. }), Err(error))
                    if is_undecided(&error) && self.comes_late(digest, size).await =>
                {
                    return Ok(());
                }
                (Err(_), Err(error)) => error,
                // Some registries keep only the last of several parts.
                (Err(error @ RegistryError::Mismatch { .. }), Ok(())) if pieces > 1 => error,
                (Err(error), Ok(())) => return Err(Halt::Final(error)),
            };
            self.recover(error).await?;
            match &self.session {
                Some(session) if session.at == size => {}
                _ => {
                    // While it was waited for, it may have got there.
                    return blob::check(http, digest, size).await.map_err(|_| Halt::Elsewhere);
                }
            }
        }
    }

    /// Whether a blob gets to its place after all, while a registry may still be at it: the larger, the longer.
    async fn comes_late(&self, digest: Digest, size: u64) -> bool {
        let end =
            Instant::now() + Duration::from_secs_f64(size as f64 / FINISHING as f64).min(LONGEST_FINISH);
        let mut pause = self.target.options.first_pause.max(Duration::from_millis(1));
        while Instant::now() + pause < end {
            tokio::time::sleep(pause).await;
            match blob::check(&self.target.http, digest, size).await {
                Ok(()) => return true,
                Err(RegistryError::Mismatch { .. }) => pause = (pause * 2).min(LOOK),
                Err(_) => break,
            }
        }
        false
    }

    fn progress(&mut self, bytes: u64) {
        if bytes >= self.best.saturating_add(PROGRESS) {
            (self.best, self.tried, self.renewals) = (bytes, 0, 0);
        }
    }

    fn cure(&self, error: &RegistryError) -> Option<Cure> {
        match error {
            _ if self.renewed => Some(Cure::Token),
            RegistryError::Status { status: status @ (413 | 416), .. } => Some(Cure::Smaller(*status)),
            RegistryError::Status { status: 404, .. } => Some(Cure::Anew),
            RegistryError::Status { message, .. } if NO_UPLOAD.iter().any(|code| message.is(code)) => {
                Some(Cure::Anew)
            }
            // Elsewhere an address is its own permission, and this one has ended.
            RegistryError::Status { status: 401 | 403, host, .. }
                if host != self.target.http.image().host() =>
            {
                Some(Cure::Anew)
            }
            RegistryError::Mismatch { .. } => Some(Cure::Wait),
            error if self.target.http.worth_another_try(error) => Some(Cure::Wait),
            _ => None,
        }
    }

    /// After a failure: waits, asks how far the registry is, and leaves the session so that it can go on, or none.
    /// Where nothing helps, or nothing helped often enough, the error is given back.
    async fn recover(&mut self, error: RegistryError) -> Result<(), RegistryError> {
        let Some(cure) = self.cure(&error) else { return Err(error) };
        let why = error.to_string();
        let spoiled = match &error {
            RegistryError::Status { message, .. } => message.is("DIGEST_INVALID"),
            RegistryError::Mismatch { what, .. } => what.starts_with("blob"),
            _ => false,
        };
        // A registry that put it together wrongly is not asked to do so again.
        self.unbroken |= spoiled;
        let before = self.session.as_ref().map(|session| session.at);
        match cure {
            Cure::Token => {
                self.renewed = false;
                self.renewals += 1;
                if self.renewals > MAX_RENEWALS {
                    return Err(error);
                }
            }
            Cure::Smaller(status) => {
                self.look().await?;
                let now = self.session.as_ref().map(|session| session.at);
                // 416 may also mean that it has other bytes than was thought.
                let misplaced =
                    status == 416 && self.target.chunk().is_some() && now.is_some() && now != before;
                match self.target.smaller() {
                    _ if misplaced => self.pause(error).await?,
                    Some(size) => self.target.tell(&Notice::Chunks { size, status }),
                    None => return Err(error),
                }
                return Ok(());
            }
            Cure::Wait => {
                self.pause(error).await?;
                if spoiled {
                    self.session = None;
                }
            }
            Cure::Anew => {
                self.pause(error).await?;
                self.session = None;
            }
        }
        self.look().await?;
        self.target.tell(&match &self.session {
            Some(session) => Notice::Resumed { offset: session.at, why },
            None => Notice::Restarted { why },
        });
        Ok(())
    }

    async fn pause(&mut self, error: RegistryError) -> Result<(), RegistryError> {
        self.tried = self.tried.saturating_add(1);
        self.target.http.wait(self.tried, error).await
    }

    /// Asks how far the registry is. What makes no sense is as good as nothing.
    async fn look(&mut self) -> Result<(), RegistryError> {
        let Some(mut session) = self.session.take() else { return Ok(()) };
        if self.unbroken {
            return Ok(());
        }
        match blob::offset(&self.target.http, &session.url).await? {
            Some((at, url)) if at <= session.sent => {
                (session.at, session.sent, session.url) = (at, at, url);
                self.session = Some(session);
                self.progress(at);
            }
            _ => {}
        }
        Ok(())
    }

    /// Sends what `items` brings, which is all of the blob, in the request that names it: for registries that know
    /// no PATCH.
    pub(super) async fn send_whole(
        &mut self,
        digest: Digest,
        size: u64,
        mut items: mpsc::Receiver<Item>,
    ) -> Result<Turn, RegistryError> {
        let doing = format!("uploading blob {digest} in one request");
        let http = &self.target.http;
        self.ready().await?;
        let Some(session) = self.session.take() else { return Ok(Turn::Again) };
        let first = match next(&mut items).await? {
            Next::Bytes(bytes) => bytes,
            Next::End(_) => Bytes::new(),
        };
        let (feed, body) = Feed::body(first, items, Arc::clone(&self.meter), self.before);
        let put = |client: &Client| {
            let request = client.put(blob::named(&session.url, digest)).body(body);
            request.header(CONTENT_TYPE, OCTETS).header(CONTENT_LENGTH, size)
        };
        let outcome = watched(http, &doing, &feed, http.send_once(&doing, put)).await;
        feed.close();
        if let Some(error) = feed.producer_failure() {
            return Err(error);
        }
        let error = match outcome {
            Ok(response) if matches!(response.status().as_u16(), 201 | 202 | 204) => None,
            Ok(response) => Some(status_error(&doing, response).await),
            Err(SendOnceError::Failed(error)) => Some(error),
            Err(SendOnceError::TokenEnded(refusal)) => {
                self.renewed = true;
                Some(refusal)
            }
        };
        match (blob::check(http, digest, size).await, error) {
            (Ok(()), _) => Ok(Turn::Done(size)),
            (Err(error), None) => Err(error),
            (Err(_), Some(error)) => self.recover(error).await.map(|()| Turn::Again),
        }
    }
}

/// Whether a request that ended so may still be worked on.
fn is_undecided(error: &RegistryError) -> bool {
    match error {
        RegistryError::Broken { .. } | RegistryError::Stalled { .. } => true,
        RegistryError::Status { status, .. } => matches!(status, 408 | 502 | 504),
        _ => false,
    }
}

enum Next {
    Bytes(Bytes),
    End(Digest),
}

async fn next(items: &mut mpsc::Receiver<Item>) -> Result<Next, RegistryError> {
    match items.recv().await {
        Some(Item::Data(bytes)) => Ok(Next::Bytes(bytes)),
        Some(Item::End { digest }) => Ok(Next::End(digest)),
        Some(Item::Failed(error)) => Err(error),
        None => Err(RegistryError::Abandoned),
    }
}

/// Waits for an answer, as long as the upload moves.
async fn watched(
    http: &Http,
    doing: &str,
    feed: &Feed,
    sending: impl Future<Output = Result<Response, SendOnceError>>,
) -> Result<Response, SendOnceError> {
    let mut sending = std::pin::pin!(sending);
    loop {
        match tokio::time::timeout(Duration::from_secs(1), sending.as_mut()).await {
            Ok(response) => return response,
            Err(_) if feed.stalled() > STALL => {
                let (host, seconds) = (http.image().host().into(), STALL.as_secs());
                return Err(RegistryError::Stalled { doing: doing.into(), host, seconds }.into());
            }
            Err(_) => {}
        }
    }
}
