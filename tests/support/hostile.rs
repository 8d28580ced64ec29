//! A proxy between a client and a real registry that does what bad networks, other proxies and careless registries
//! do. TLS on the client's side, plain HTTP on loopback to the registry, which stays the judge of what arrives.
//!
//! The client sees uploads of the proxy's own; it can so decide what is kept of one that is cut.
#![allow(dead_code)]

#[path = "wire.rs"]
mod wire;

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

pub use self::wire::upstream;
use self::wire::{Body, Reading};
use super::registry::certificates::ServerCertificate;
use super::registry::{PASSWORD, USER};

/// What is done with one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mischief {
    /// Nothing.
    Pass,
    /// The answer comes later.
    Delay(Duration),
    /// The connection ends after so many bytes of the request's body.
    CutRequest(usize),
    /// The registry does as asked; of its answer so many bytes come through.
    CutAnswer(usize),
    /// After so many bytes of the body this answer, and the registry is not asked.
    Answer { after: usize, status: u16, headers: Vec<(String, String)> },
    /// The registry does as asked, and this is said.
    Lie(u16),
    /// This is said at once, and the registry does as asked later.
    Late(Duration, u16),
    /// The registry does as asked, and its `Range` is this.
    Range(String),
}

/// What becomes of the bytes of a PATCH that did not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// They count.
    All,
    /// Neither they nor the upload are there any more.
    Nothing,
    /// The registry's own way: its connection is cut as well.
    Real,
}

/// How an upload's address is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    Relative,
    Absolute,
    /// The same proxy under another name: another host for the client.
    CrossHost,
    /// Without TLS.
    Http,
}

/// How the proxy is throughout.
#[derive(Debug, Clone)]
pub struct Manner {
    pub keeping: Keeping,
    pub location: Location,
    /// Tokens that live so long, and what is said of that in seconds; nothing asks for a password each time.
    pub tokens: Option<(Duration, u64)>,
    /// The largest body of a PATCH, and the status for larger ones.
    pub largest: Option<(usize, u16)>,
    /// Of an upload in several parts only the last is kept.
    pub only_last: bool,
    /// PATCH is not known.
    pub no_patch: bool,
    /// Whether the rest of a body is read after an early answer, so that the answer is not lost with the
    /// connection; careful servers do.
    pub linger: bool,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            keeping: Keeping::All,
            location: Location::Relative,
            tokens: None,
            largest: None,
            only_last: false,
            no_patch: false,
            linger: true,
        }
    }
}

/// A request, without its body.
#[derive(Debug, Clone)]
pub struct Head {
    pub method: String,
    pub path: String,
    /// Names in lower case.
    headers: Vec<(String, String)>,
}

impl Head {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
    pub fn is(&self, method: &str, part: &str) -> bool {
        self.method == method && self.path.contains(part)
    }
}

/// A request that came, and what it was answered; 0 where the connection was cut.
#[derive(Debug, Clone)]
pub struct Seen {
    pub head: Head,
    /// Bytes of the body that were read.
    pub body: usize,
    pub status: u16,
}

struct Session {
    /// Path and query at the registry.
    upstream: String,
    repository: String,
    bytes: u64,
}

type Decide = Box<dyn FnMut(&Head) -> Mischief + Send>;

struct Shared {
    upstream: String,
    port: u16,
    /// Where nobody must ever come.
    clear_port: u16,
    manner: Manner,
    decide: Mutex<Decide>,
    sessions: Mutex<HashMap<usize, Session>>,
    count: AtomicUsize,
    tokens: Mutex<HashMap<String, Instant>>,
    seen: Mutex<Vec<Seen>>,
    /// What a client must not do: credentials to the other host, anything in the clear.
    violations: Mutex<Vec<String>>,
    ended: AtomicBool,
}

/// The proxy, until dropped.
pub struct Hostile {
    shared: Arc<Shared>,
}

/// The proxy's key, made once for many.
pub fn tls(certificate: &ServerCertificate) -> Arc<ServerConfig> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let chain =
        CertificateDer::pem_file_iter(&certificate.certificate).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(&certificate.key).unwrap();
    Arc::new(ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap())
}

impl Hostile {
    /// Before the registry `upstream`, which speaks plain HTTP and lets everybody in. The certificate must be for
    /// 127.0.0.1 and localhost.
    pub fn start(
        upstream: &str,
        tls: &Arc<ServerConfig>,
        manner: Manner,
        decide: impl FnMut(&Head) -> Mischief + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let clear = TcpListener::bind("127.0.0.1:0").unwrap();
        let shared = Arc::new(Shared {
            upstream: upstream.into(),
            port: listener.local_addr().unwrap().port(),
            clear_port: clear.local_addr().unwrap().port(),
            manner,
            decide: Mutex::new(Box::new(decide)),
            sessions: Mutex::default(),
            count: AtomicUsize::new(0),
            tokens: Mutex::default(),
            seen: Mutex::default(),
            violations: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let (watch, serve, tls) = (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(tls));
        thread::spawn(move || {
            for _ in clear.incoming().take_while(|_| !watch.ended.load(Ordering::SeqCst)) {
                watch.violation("a connection without TLS");
            }
        });
        thread::spawn(move || {
            for socket in listener.incoming().take_while(|_| !serve.ended.load(Ordering::SeqCst)) {
                let (serve, tls) = (Arc::clone(&serve), Arc::clone(&tls));
                // How a connection ends is the client's matter.
                thread::spawn(move || serve.connection(socket?, tls));
            }
        });
        Self { shared }
    }

    /// `127.0.0.1:PORT`.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.shared.port)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    pub fn violations(&self) -> Vec<String> {
        self.shared.violations.lock().unwrap().clone()
    }

    /// Bytes of blobs that came in PATCHes.
    pub fn patched(&self) -> usize {
        self.seen().iter().filter(|seen| seen.head.method == "PATCH").map(|seen| seen.body).sum()
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        for port in [self.shared.port, self.shared.clear_port] {
            let _ = TcpStream::connect(("127.0.0.1", port));
        }
    }
}

/// An answer on its way to the client.
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new() }
    }
    fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.set(name, value.into());
        self
    }
    fn set(&mut self, name: &str, value: String) {
        self.headers.retain(|(n, _)| n != name);
        self.headers.push((name.into(), value));
    }
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
    fn error(status: u16, code: &str) -> Self {
        let body = format!(r#"{{"errors":[{{"code":"{code}","message":"so says the proxy"}}]}}"#);
        Self { body: body.into_bytes(), ..Self::new(status) }
    }
}

type Stream = BufReader<StreamOwned<ServerConnection, TcpStream>>;

impl Shared {
    fn violation(&self, what: &str) {
        if !self.ended.load(Ordering::SeqCst) {
            self.violations.lock().unwrap().push(what.into());
        }
    }

    fn connection(&self, socket: TcpStream, tls: Arc<ServerConfig>) -> io::Result<()> {
        socket.set_read_timeout(Some(Duration::from_secs(30)))?;
        socket.set_nodelay(true)?;
        let tls = ServerConnection::new(tls).map_err(io::Error::other)?;
        let mut stream = BufReader::with_capacity(64 << 10, StreamOwned::new(tls, socket));
        while let Some(head) = head(&mut stream)? {
            if !self.request(&mut stream, head)? {
                // As a cable that was pulled: no goodbye.
                break;
            }
        }
        Ok(())
    }

    /// One request; false ends the connection.
    fn request(&self, stream: &mut Stream, head: Head) -> io::Result<bool> {
        let mut body = body_of(&head);
        if head.path.starts_with("/token") {
            body.read(stream, usize::MAX)?;
            return self.reply(stream, &head, &self.token(&head), usize::MAX).map(|()| true);
        }
        if let Some(refusal) = self.unknown(&head) {
            let whole = body.read(stream, 256 << 10)?;
            self.remember(&head, body.bytes.len(), refusal.status);
            self.reply(stream, &head, &refusal, usize::MAX)?;
            self.linger(stream, &mut body);
            return Ok(whole);
        }
        let mut mischief = (self.decide.lock().unwrap())(&head);
        if head.method == "PATCH" && self.manner.no_patch {
            mischief = Mischief::Answer { after: 0, status: 405, headers: Vec::new() };
        }
        if let (Some((largest, status)), "PATCH") = (self.manner.largest, head.method.as_str())
            && !matches!(mischief, Mischief::CutRequest(_) | Mischief::Answer { .. })
            && !body.read(stream, largest)?
        {
            // What was too large never reaches the registry.
            self.remember(&head, body.bytes.len(), status);
            self.reply(stream, &head, &Answer::error(status, "TOO_LARGE"), usize::MAX)?;
            self.linger(stream, &mut body);
            return Ok(false);
        }
        match mischief {
            Mischief::CutRequest(after) => {
                if !body.read(stream, after)? && head.method == "PATCH" {
                    self.keep(&head, &body.bytes);
                }
                self.remember(&head, body.bytes.len(), 0);
                Ok(false)
            }
            Mischief::Answer { after, status, headers } => {
                let whole = body.read(stream, after)?;
                if !whole && after > 0 && head.method == "PATCH" {
                    self.keep(&head, &body.bytes);
                }
                self.remember(&head, body.bytes.len(), status);
                let mut answer = Answer::error(status, "PROXY");
                answer.headers = headers;
                if status == 401 {
                    answer.set("www-authenticate", self.challenge());
                }
                self.reply(stream, &head, &answer, usize::MAX)?;
                self.linger(stream, &mut body);
                Ok(whole)
            }
            Mischief::Late(time, status) => {
                body.read(stream, usize::MAX)?;
                self.remember(&head, body.bytes.len(), status);
                self.reply(stream, &head, &Answer::error(status, "PROXY"), usize::MAX)?;
                // The client is on other connections meanwhile.
                stream.get_mut().conn.send_close_notify();
                stream.get_mut().flush()?;
                thread::sleep(time);
                self.ask(&head, &body.bytes)?;
                Ok(false)
            }
            Mischief::Pass
            | Mischief::Delay(_)
            | Mischief::CutAnswer(_)
            | Mischief::Lie(_)
            | Mischief::Range(_) => {
                body.read(stream, usize::MAX)?;
                let mut answer = self.ask(&head, &body.bytes)?;
                let mut through = usize::MAX;
                match mischief {
                    Mischief::Delay(time) => thread::sleep(time),
                    Mischief::CutAnswer(bytes) => through = bytes,
                    Mischief::Lie(status) => answer = Answer::error(status, "PROXY"),
                    Mischief::Range(range) if answer.header("range").is_some() => answer.set("range", range),
                    _ => {}
                }
                self.remember(&head, body.bytes.len(), if through < usize::MAX { 0 } else { answer.status });
                self.reply(stream, &head, &answer, through)?;
                Ok(through == usize::MAX)
            }
        }
    }

    /// What still comes is thrown away, for a moment.
    fn linger(&self, stream: &mut Stream, body: &mut Reading) {
        let begun = Instant::now();
        let mut limit = body.bytes.len();
        while self.manner.linger && begun.elapsed() < Duration::from_secs(1) {
            limit += 256 << 10;
            if body.read(stream, limit).unwrap_or(true) {
                break;
            }
        }
    }

    fn remember(&self, head: &Head, body: usize, status: u16) {
        self.seen.lock().unwrap().push(Seen { head: head.clone(), body, status });
    }

    fn challenge(&self) -> String {
        match self.manner.tokens {
            None => "Basic realm=\"test\"".into(),
            Some(_) => {
                format!("Bearer realm=\"https://127.0.0.1:{}/token\",service=\"test\"", self.port)
            }
        }
    }

    /// A 401 for a request without the right credentials. The other host wants none, and must get none.
    fn unknown(&self, head: &Head) -> Option<Answer> {
        let given = head.header("authorization");
        if head.header("host").is_some_and(|host| host.starts_with("localhost")) {
            if given.is_some() {
                self.violation("credentials for another host");
            }
            return None;
        }
        let known = match (given, self.manner.tokens) {
            (Some(given), None) => given == basic(),
            (Some(given), Some(_)) => {
                let tokens = self.tokens.lock().unwrap();
                let until = given.strip_prefix("Bearer ").and_then(|token| tokens.get(token));
                until.is_some_and(|until| *until > Instant::now())
            }
            (None, _) => false,
        };
        (!known).then(|| Answer::error(401, "UNAUTHORIZED").with("www-authenticate", self.challenge()))
    }

    fn token(&self, head: &Head) -> Answer {
        let Some((life, told)) = self.manner.tokens else { return Answer::new(404) };
        if head.header("authorization") != Some(&basic()) {
            return Answer::new(401);
        }
        let token = format!("t{}", self.count.fetch_add(1, Ordering::SeqCst));
        self.tokens.lock().unwrap().insert(token.clone(), Instant::now() + life);
        let body = format!(r#"{{"token":"{token}","expires_in":{told}}}"#);
        Answer { body: body.into_bytes(), ..Answer::new(200) }
    }

    /// What becomes of a PATCH that was cut.
    fn keep(&self, head: &Head, bytes: &[u8]) {
        let Some(id) = session_of(&head.path) else { return };
        match self.manner.keeping {
            Keeping::All if bytes.is_empty() => {}
            Keeping::All => {
                let _ = self.ask(head, bytes);
            }
            Keeping::Nothing => {
                self.sessions.lock().unwrap().remove(&id);
            }
            Keeping::Real => {
                let sessions = self.sessions.lock().unwrap();
                let Some(session) = sessions.get(&id) else { return };
                let Ok(mut socket) = TcpStream::connect(&self.upstream) else { return };
                let length = bytes.len() + 1000;
                let text = format!(
                    "PATCH {} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n",
                    session.upstream
                );
                let _ = socket.write_all(text.as_bytes()).and_then(|()| socket.write_all(bytes));
            }
        }
    }

    /// Has the registry answer, and writes its uploads' addresses as the proxy's own.
    fn ask(&self, head: &Head, body: &[u8]) -> io::Result<Answer> {
        let Some(id) = session_of(&head.path) else {
            let mut answer = self.forward(&head.method, &head.path, head.header("content-type"), body)?;
            if head.method == "POST" && answer.status == 202 {
                let upstream = address(&answer).unwrap_or_default();
                let repository = head.path.split("/blobs/").next().unwrap_or_default().to_owned();
                let id = self.count.fetch_add(1, Ordering::SeqCst);
                let session = Session { upstream, repository: repository.clone(), bytes: 0 };
                self.sessions.lock().unwrap().insert(id, session);
                answer.set("location", self.location(&repository, id));
            }
            return Ok(answer);
        };
        let mut sessions = self.sessions.lock().unwrap();
        let Some(session) = sessions.get_mut(&id) else {
            return Ok(Answer::error(404, "BLOB_UPLOAD_UNKNOWN"));
        };
        if self.manner.only_last && head.method == "PATCH" && session.bytes > 0 {
            let path = format!("{}/blobs/uploads/", session.repository);
            let fresh = self.forward("POST", &path, None, &[])?;
            session.upstream = address(&fresh).unwrap_or_default();
        }
        let mut path = session.upstream.clone();
        if let Some((_, digest)) = head.path.split_once("digest=") {
            path += if path.contains('?') { "&digest=" } else { "?digest=" };
            path += digest;
        }
        let mut answer = self.forward(&head.method, &path, head.header("content-type"), body)?;
        if let Some(address) = address(&answer)
            && matches!(head.method.as_str(), "PATCH" | "GET")
        {
            session.upstream = address;
            answer.set("location", self.location(&session.repository, id));
        }
        if head.method == "PATCH" && answer.status == 202 {
            session.bytes += body.len() as u64;
            if self.manner.only_last {
                answer.set("range", format!("0-{}", session.bytes.saturating_sub(1)));
            }
        }
        Ok(answer)
    }

    fn location(&self, repository: &str, id: usize) -> String {
        let path = format!("{repository}/blobs/uploads/x{id}?state=s");
        match self.manner.location {
            Location::Relative => path,
            Location::Absolute => format!("https://127.0.0.1:{}{path}", self.port),
            Location::CrossHost => format!("https://localhost:{}{path}", self.port),
            Location::Http => format!("http://127.0.0.1:{}{path}", self.clear_port),
        }
    }

    fn forward(&self, method: &str, path: &str, kind: Option<&str>, body: &[u8]) -> io::Result<Answer> {
        upstream(&self.upstream, method, path, kind, body).map(|(status, headers, body)| Answer {
            status,
            headers,
            body,
        })
    }

    fn reply(&self, stream: &mut Stream, head: &Head, answer: &Answer, through: usize) -> io::Result<()> {
        let mut text = format!("HTTP/1.1 {} X\r\n", answer.status).into_bytes();
        let length = answer.body.len().to_string();
        let length =
            ("content-length".to_owned(), answer.header("content-length").unwrap_or(&length).to_owned());
        for (name, value) in answer.headers.iter().filter(|(n, _)| n != "content-length").chain([&length]) {
            let passed = [
                "location",
                "range",
                "content-type",
                "content-length",
                "docker-content-digest",
                "www-authenticate",
                "retry-after",
            ];
            if passed.contains(&name.as_str()) {
                write!(text, "{name}: {value}\r\n")?;
            }
        }
        text.extend_from_slice(b"\r\n");
        if head.method != "HEAD" {
            text.extend_from_slice(&answer.body);
        }
        text.truncate(through);
        let out = stream.get_mut();
        out.write_all(&text)?;
        out.flush()
    }
}

fn basic() -> String {
    format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")))
}

/// The proxy's number in `/v2/.../blobs/uploads/xN?...`.
fn session_of(path: &str) -> Option<usize> {
    let (_, rest) = path.split_once("/blobs/uploads/x")?;
    rest.split('?').next()?.parse().ok()
}

/// Path and query of an answer's Location.
fn address(answer: &Answer) -> Option<String> {
    let location = answer.header("location")?;
    match location.split_once("://") {
        Some((_, rest)) => Some(rest[rest.find('/')?..].to_owned()),
        None => Some(location.to_owned()),
    }
}

fn head(stream: &mut Stream) -> io::Result<Option<Head>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ');
    let (method, path) =
        (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Ok(Some(Head { method, path, headers }))
}

fn body_of(head: &Head) -> Reading {
    match head.header("transfer-encoding") {
        Some(_) => Body::Chunked,
        None => Body::Length(head.header("content-length").and_then(|v| v.parse().ok()).unwrap_or(0)),
    }
    .reading()
}
