//! The one path to a registry: authorize, send, try again, and say what went wrong.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use reqwest::header::{AUTHORIZATION, LOCATION};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url, redirect};

use super::auth::Auth;
use super::backoff::{Backoff, retry_after};
use super::connect_failure::ConnectFailure;
use super::error::{is_transient, printable};
use super::reference::is_loopback;
use super::{CaError, Connection, ImageName, RegistryError, Secret, ServerMessage, tls};

/// For requests that move no blob: answer and body within this.
pub(super) const SHORT: Duration = Duration::from_secs(60);
/// Registries that copy a blob to its place while the client waits take minutes for a large one.
pub(super) const FINALISE: Duration = Duration::from_secs(15 * 60);
const CONNECT: Duration = Duration::from_secs(20);
/// What was sent and not acknowledged for so long means that the other side is gone.
/// A registry may stop reading for a while when its storage is slow.
const UNACKNOWLEDGED: Duration = Duration::from_secs(180);
/// How often an idle connection is probed, so that nothing on the way forgets it.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Of an error's body; the rest is not read.
const MAX_ERROR_BODY: usize = 64 << 10;
/// How long the rest of an error's body is waited for.
const ERROR_BODY_TIME: Duration = Duration::from_secs(10);
const MAX_REDIRECTS: usize = 5;

/// Why a request that is sent only once has no answer.
#[derive(Debug)]
pub(super) enum SendOnceError {
    /// The registry no longer takes the token; the next request has a new one. Holds the refusal.
    TokenEnded(RegistryError),
    /// Anything else.
    Failed(RegistryError),
}

impl From<RegistryError> for SendOnceError {
    fn from(error: RegistryError) -> Self {
        Self::Failed(error)
    }
}

/// A connection to one repository.
#[derive(Debug)]
pub(super) struct Http {
    client: Client,
    /// For requests of tokens: it follows no redirect.
    tokens: Client,
    image: ImageName,
    /// `https://HOST/v2/REPOSITORY/`.
    base: Url,
    auth: Auth,
    backoff: Backoff,
    /// Until the registry has answered once, no connection means a wrong name or port, not a bad moment.
    answered: AtomicBool,
}

impl Http {
    pub(super) fn new(
        image: ImageName,
        connection: Connection,
        backoff: Backoff,
    ) -> Result<Self, RegistryError> {
        let Connection { ca, plain_http, credential } = connection;
        if plain_http && !image.is_loopback() {
            return Err(RegistryError::PlainHttp { host: image.host().into() });
        }
        tls::install_provider();
        let own = match &ca {
            Some(path) => tls::read_ca(path)?,
            None => Vec::new(),
        };
        let builder = || {
            Client::builder()
                .user_agent(concat!("sealroot/", env!("CARGO_PKG_VERSION")))
                // One upload fills a connection; HTTP/2 would only put its flow control in the way.
                .http1_only()
                .connect_timeout(CONNECT)
                .tcp_user_timeout(UNACKNOWLEDGED)
                .tcp_keepalive(KEEPALIVE)
                .referer(false)
                .no_proxy()
                .redirect(redirect_policy(plain_http))
        };
        let build = |builder: reqwest::ClientBuilder| {
            let builder = match plain_http {
                // No certificate will be looked at, so a machine without system roots will do.
                true => builder.tls_certs_only(own.clone()),
                false => builder.https_only(true).tls_certs_merge(own.clone()),
            };
            // All else in the builder is fixed: what can fail is loading the system's roots.
            builder.build().map_err(|source| CaError::NoRoots { source })
        };
        let client = build(builder())?;
        // A login is in the request for a token, be it in its body: it goes to that server, and no further.
        let tokens = build(builder().redirect(redirect::Policy::none()))?;
        let scheme = if plain_http { "http" } else { "https" };
        let base = format!("{scheme}://{}/v2/{}/", image.host(), image.repository());
        let base = Url::parse(&base).map_err(|e| RegistryError::Setup { source: e.into() })?;
        let auth = Auth::new(credential, image.clone(), plain_http);
        Ok(Self { client, tokens, image, base, auth, backoff, answered: AtomicBool::new(false) })
    }

    /// For one who only reads: the right to push is not asked for.
    pub(super) fn for_reading(mut self) -> Self {
        self.auth.only_reads();
        self
    }

    pub(super) fn image(&self) -> &ImageName {
        &self.image
    }

    /// Asks whether there is a registry at all. Answers to the requests that follow may have no body, and so
    /// no reason; this one's has.
    pub(super) async fn hello(&self) -> Result<(), RegistryError> {
        const DOING: &str = "asking for the registry";
        let url = self.base.join("/v2/").map_err(|e| RegistryError::Setup { source: e.into() })?;
        let response = self.send(DOING, |client| client.get(url.clone()).timeout(SHORT)).await?;
        match response.status().as_u16() {
            200 => Ok(()),
            404 => Err(self.protocol(DOING, "there is no registry under its /v2/")),
            _ => Err(status_error(DOING, response).await),
        }
    }

    /// An address within the repository.
    pub(super) fn url(&self, below: &str) -> Result<Url, RegistryError> {
        self.base.join(below).map_err(|e| RegistryError::Setup { source: e.into() })
    }

    /// Sends a request that may be sent again: after a challenge once, after a passing failure a few times.
    ///
    /// Any answer that is not a passing failure is returned, whatever its status.
    pub(super) async fn send(
        &self,
        doing: &str,
        request: impl Fn(&Client) -> RequestBuilder,
    ) -> Result<Response, RegistryError> {
        let mut tried = 0;
        loop {
            tried += 1;
            let error = match self.authorized(doing, &request).await {
                Ok(response) if !is_transient(response.status().as_u16()) => return Ok(response),
                Ok(response) => status_error(doing, response).await,
                Err(error) => error,
            };
            self.pause(tried, error).await?;
        }
    }

    /// As [`Http::send`], and reads the answer's body, up to `limit` bytes: all of it or another try.
    pub(super) async fn fetch(
        &self,
        doing: &str,
        limit: usize,
        request: impl Fn(&Client) -> RequestBuilder,
    ) -> Result<Vec<u8>, RegistryError> {
        let mut tried = 0;
        loop {
            tried += 1;
            let response = self.send(doing, &request).await?;
            if response.status() != StatusCode::OK {
                return Err(status_error(doing, response).await);
            }
            match body(doing, response, limit).await {
                Ok(body) => return Ok(body),
                Err(error) => self.pause(tried, error).await?,
            }
        }
    }

    async fn pause(&self, tried: u32, error: RegistryError) -> Result<(), RegistryError> {
        match self.worth_another_try(&error) {
            true => self.wait(tried, error).await,
            false => Err(error),
        }
    }

    /// Waits after the `tried`-th try failed (from 1), or gives the error back when it is time to give up.
    pub(super) async fn wait(&self, tried: u32, error: RegistryError) -> Result<(), RegistryError> {
        match self.backoff.pause(tried, error.retry_after()) {
            Some(pause) => {
                tokio::time::sleep(pause).await;
                Ok(())
            }
            None => Err(error),
        }
    }

    /// Sends a request whose body can be had only once, with a token that has most of its life before it.
    /// After a 401 there is a new one for the next request.
    pub(super) async fn send_once(
        &self,
        doing: &str,
        request: impl FnOnce(&Client) -> RequestBuilder,
    ) -> Result<Response, SendOnceError> {
        self.auth.freshen(&self.tokens).await?;
        let response = self.one(doing, request(&self.client)).await?;
        if response.status() == StatusCode::UNAUTHORIZED && self.is_own(response.url()) {
            let refusal = self.auth.refusal(response.headers());
            if matches!(refusal, RegistryError::NotAllowed { .. }) {
                return Err(refusal.into());
            }
            self.auth.answer(&self.tokens, response.headers()).await?;
            return Err(SendOnceError::TokenEnded(refusal));
        }
        Ok(response)
    }

    /// Asks for tokens that may pull from this repository of the registry as well, or no longer.
    pub(super) fn also_pull(&self, repository: Option<&str>) {
        self.auth.also_pull(repository);
    }

    /// Whether a failure may pass: never a first one to connect.
    pub(super) fn worth_another_try(&self, error: &RegistryError) -> bool {
        let first_contact =
            matches!(error, RegistryError::Connect { .. }) && !self.answered.load(Ordering::Relaxed);
        error.is_transient() && !first_contact
    }

    /// Sends a request once, and after a challenge once more. Any answer is returned, whatever its status.
    pub(super) async fn authorized(
        &self,
        doing: &str,
        request: impl Fn(&Client) -> RequestBuilder,
    ) -> Result<Response, RegistryError> {
        let response = self.one(doing, request(&self.client)).await?;
        if response.status() != StatusCode::UNAUTHORIZED || !self.is_own(response.url()) {
            return Ok(response);
        }
        self.auth.answer(&self.tokens, response.headers()).await?;
        let response = self.one(doing, request(&self.client)).await?;
        if response.status() == StatusCode::UNAUTHORIZED && self.is_own(response.url()) {
            return Err(self.auth.refusal(response.headers()));
        }
        Ok(response)
    }

    async fn one(&self, doing: &str, request: RequestBuilder) -> Result<Response, RegistryError> {
        let mut request = request.build().map_err(|e| failure(doing, &self.base, e))?;
        let url = request.url().clone();
        let mut sent = None;
        if self.is_own(&url)
            && let Some(header) = self.auth.header(&self.tokens).await?
        {
            sent = header.to_str().ok().map(Sent::header);
            request.headers_mut().insert(AUTHORIZATION, header);
        }
        let mut response = self.client.execute(request).await.map_err(|e| failure(doing, &url, e))?;
        if let Some(sent) = sent {
            response.extensions_mut().insert(sent);
        }
        self.answered.store(true, Ordering::Relaxed);
        Ok(response)
    }

    /// Whether an address is the registry's own: credentials go nowhere else.
    fn is_own(&self, url: &Url) -> bool {
        url.origin() == self.base.origin()
    }

    /// Where an answer says to go on, relative to what was asked.
    pub(super) fn location(&self, doing: &str, response: &Response) -> Result<Url, RegistryError> {
        let text = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let text = text.ok_or_else(|| self.protocol(doing, "no Location to go on at"))?;
        let url = response.url().join(text).map_err(|_| self.protocol(doing, "its Location is no URL"))?;
        let allowed = match self.base.scheme() {
            // On this machine only, by the user's own wish.
            "http" => url.scheme() == "https" || self.is_own(&url),
            _ => url.scheme() == "https",
        };
        if allowed {
            return Ok(url);
        }
        let why = format!(
            "its Location leads to {}://{}, which is not encrypted (a registry behind a proxy must be told so)",
            url.scheme(),
            host_of(&url)
        );
        Err(self.protocol(doing, why))
    }

    pub(super) fn protocol(&self, doing: &str, why: impl Into<String>) -> RegistryError {
        RegistryError::Protocol { doing: doing.into(), host: self.image.host().into(), why: why.into() }
    }
}

/// Storage often lies behind a redirect. Credentials are dropped on the way to another origin by the HTTP
/// library; here it is held that the way stays encrypted.
fn redirect_policy(plain_http: bool) -> redirect::Policy {
    redirect::Policy::custom(move |attempt| {
        if attempt.previous().len() > MAX_REDIRECTS {
            return attempt.error("too many redirects");
        }
        let encrypted = attempt.url().scheme() == "https";
        let own_machine = plain_http && attempt.url().host_str().is_some_and(is_loopback);
        if encrypted || own_machine {
            return attempt.follow();
        }
        let to = host_of(attempt.url());
        attempt.error(format!("redirected to {to} without encryption"))
    })
}

/// A URL's host, with its port if it is not the scheme's own.
pub(super) fn host_of(url: &Url) -> String {
    let host = printable(url.host_str().unwrap_or_default());
    url.port().map_or(host.clone(), |port| format!("{host}:{port}"))
}

/// An error of the HTTP library as one of ours; the URL, which may hold an upload's secret state, is left out.
pub(super) fn failure(doing: &str, url: &Url, error: reqwest::Error) -> RegistryError {
    let (host, source) = (host_of(url), error.without_url());
    if source.is_connect() {
        let failure = match ConnectFailure::of(&source) {
            ConnectFailure::Other if source.is_timeout() => ConnectFailure::TimedOut,
            failure => failure,
        };
        let source = failure.has_more_to_tell().then_some(source);
        return RegistryError::Connect { host, failure, source };
    }
    RegistryError::Broken { doing: doing.into(), host, source }
}

/// An answer's body, up to `limit` bytes; more is an error.
pub(super) async fn body(doing: &str, response: Response, limit: usize) -> Result<Vec<u8>, RegistryError> {
    let (url, mut response) = (response.url().clone(), response);
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|e| failure(doing, &url, e))? {
        if body.len() + chunk.len() > limit {
            let why = format!("more than {limit} bytes");
            return Err(RegistryError::Protocol { doing: doing.into(), host: host_of(&url), why });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// An unwelcome answer as an error, with the reason its body gives.
pub(super) async fn status_error(doing: &str, mut response: Response) -> RegistryError {
    let retry_after = retry_after(response.headers(), SystemTime::now());
    let body = error_body(&mut response, ERROR_BODY_TIME).await;
    let repeated = response.extensions().get::<Sent>().is_some_and(|sent| sent.is_in(&body));
    RegistryError::Status {
        doing: doing.into(),
        host: host_of(response.url()),
        status: response.status().as_u16(),
        message: if repeated { ServerMessage::withheld() } else { ServerMessage::of(&body) },
        retry_after,
    }
}

/// The secret in a request, so that an answer that repeats it is not shown.
#[derive(Clone)]
pub(super) struct Sent(Vec<Secret>);

impl Sent {
    /// What an Authorization header holds: after the scheme, and for Basic the password in it.
    pub(super) fn header(value: &str) -> Self {
        let value = value.split_once(' ').map_or(value, |(_, value)| value);
        let plain = BASE64.decode(value).ok().and_then(|plain| String::from_utf8(plain).ok());
        let password = plain.and_then(|plain| Some(plain.split_once(':')?.1.to_owned()));
        Self([Some(value.to_owned()), password].into_iter().flatten().map(Secret::new).collect())
    }

    /// A token, as it is.
    pub(super) fn token(token: &Secret) -> Self {
        Self(vec![token.clone()])
    }

    fn is_in(&self, body: &[u8]) -> bool {
        let contains = |secret: &Secret| {
            let secret = secret.expose().as_bytes();
            !secret.is_empty() && body.windows(secret.len()).any(|part| part == secret)
        };
        self.0.iter().any(contains)
    }
}

/// What comes of an error's body within `time`: the status is the news, and less of a body only adds less to it.
async fn error_body(response: &mut Response, time: Duration) -> Vec<u8> {
    let mut body = Vec::new();
    let read = async {
        while body.len() < MAX_ERROR_BODY
            && let Ok(Some(chunk)) = response.chunk().await
        {
            body.extend_from_slice(&chunk);
        }
    };
    // Too late is as good as broken off.
    let _ = tokio::time::timeout(time, read).await;
    body.truncate(MAX_ERROR_BODY);
    body
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// What is read of an answer that sends `first` at once and then a byte now and then.
    fn read_of(first: &[u8], time: Duration) -> Vec<u8> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let first = first.to_vec();
        let server = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let _ = connection.read(&mut [0; 4096]);
            connection.write_all(b"HTTP/1.1 403 No\r\nContent-Length: 10000000\r\n\r\n").unwrap();
            while connection.write_all(&first).is_ok() && connection.write_all(b".").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        tls::install_provider();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let body = runtime.block_on(async {
            let client = Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
            let mut response = client.get(url).send().await.unwrap();
            error_body(&mut response, time).await
        });
        drop(runtime);
        server.join().unwrap();
        body
    }

    #[test]
    fn an_error_that_trickles_is_not_waited_for() {
        let begun = std::time::Instant::now();
        let body = read_of(b"no", Duration::from_millis(400));
        assert!(body.starts_with(b"no."), "{body:?}");
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn an_error_without_end_is_cut_off() {
        assert_eq!(read_of(&[b'x'; 20_000], Duration::from_secs(60)).len(), MAX_ERROR_BODY);
    }
}
