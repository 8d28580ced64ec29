//! A few lines of HTTPS server, for the answers that no real registry gives and for a token server.
#![allow(dead_code)]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::registry::certificates::ServerCertificate;

/// What was asked.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub method: String,
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// What is answered.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new() }
    }
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }
}

/// A server on a free loopback port, until dropped. It remembers every request.
pub struct Https {
    port: u16,
    seen: Arc<Mutex<Vec<Request>>>,
    ended: Arc<AtomicBool>,
}

impl Https {
    pub fn serve(
        tls: &ServerCertificate,
        answer: impl Fn(&Request) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let chain = CertificateDer::pem_file_iter(&tls.certificate).unwrap().map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(&tls.key).unwrap();
        let config =
            Arc::new(ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (seen, ended) = (Arc::<Mutex<Vec<Request>>>::default(), Arc::new(AtomicBool::new(false)));
        let (remember, end, answer) = (Arc::clone(&seen), Arc::clone(&ended), Arc::new(answer));
        thread::spawn(move || {
            for socket in listener.incoming() {
                if end.load(Ordering::SeqCst) {
                    break;
                }
                let (config, remember, answer) =
                    (Arc::clone(&config), Arc::clone(&remember), Arc::clone(&answer));
                thread::spawn(move || {
                    let stream = StreamOwned::new(ServerConnection::new(config).unwrap(), socket.unwrap());
                    let mut stream = BufReader::new(stream);
                    while let Some(request) = read(&mut stream) {
                        remember.lock().unwrap().push(request.clone());
                        let answer = answer(&request);
                        let mut head = format!("HTTP/1.1 {} X\r\n", answer.status);
                        for (name, value) in &answer.headers {
                            let _ = write!(head, "{name}: {value}\r\n");
                        }
                        // The answer to a HEAD names the length it would have.
                        if !answer.headers.iter().any(|(n, _)| *n == "content-length") {
                            let _ = write!(head, "content-length: {}\r\n", answer.body.len());
                        }
                        head.push_str("\r\n");
                        let out = stream.get_mut();
                        let body = if request.method == "HEAD" { &[][..] } else { &answer.body };
                        if out.write_all(head.as_bytes()).and_then(|()| out.write_all(body)).is_err()
                            || out.flush().is_err()
                        {
                            break;
                        }
                        if answer.headers.iter().any(|(n, _)| *n == "connection") {
                            break;
                        }
                    }
                });
            }
        });
        Self { port, seen, ended }
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Https {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = std::net::TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// One request, or nothing when the connection ends.
fn read(stream: &mut impl BufRead) -> Option<Request> {
    let mut line = || {
        let mut line = String::new();
        (stream.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
    };
    let first = line()?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let header = line()?;
        let Some((name, value)) = header.split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut request = Request { method, path, headers, body: Vec::new() };
    if request.header("transfer-encoding").is_some() {
        loop {
            let mut size = String::new();
            stream.read_line(&mut size).ok()?;
            let size = u64::from_str_radix(size.trim(), 16).ok()?;
            stream.take(size).read_to_end(&mut request.body).ok()?;
            stream.read_line(&mut String::new()).ok()?;
            if size == 0 {
                break;
            }
        }
    } else if let Some(size) = request.header("content-length") {
        let size = size.parse().ok()?;
        stream.take(size).read_to_end(&mut request.body).ok()?;
    }
    Some(request)
}
