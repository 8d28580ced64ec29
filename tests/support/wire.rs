//! HTTP/1.1 as bytes: bodies that are read in steps, and one request to a registry without TLS.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Status, headers with names in lower case, body.
pub type Said = (u16, Vec<(String, String)>, Vec<u8>);

/// One request to a registry that speaks plain HTTP.
pub fn upstream(host: &str, method: &str, path: &str, kind: Option<&str>, body: &[u8]) -> io::Result<Said> {
    let mut socket = TcpStream::connect(host)?;
    socket.set_read_timeout(Some(Duration::from_secs(30)))?;
    let manifests = "application/vnd.oci.image.manifest.v1+json";
    let mut text = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAccept: {manifests}\r\nContent-Length: {}\r\n",
        body.len()
    );
    if let Some(kind) = kind {
        text += &format!("Content-Type: {kind}\r\n");
    }
    text += "\r\n";
    socket.write_all(text.as_bytes())?;
    socket.write_all(body)?;
    let mut stream = BufReader::with_capacity(64 << 10, socket);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 || line.trim_end().is_empty() {
            break;
        }
        lines.push(line.trim_end().to_owned());
    }
    let status = lines.first().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("no status"))?;
    let headers: Vec<_> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut content = Vec::new();
    if method != "HEAD" {
        let chunked = headers.iter().any(|(name, _)| name == "transfer-encoding");
        let mut body = if chunked { Body::Chunked } else { Body::All }.reading();
        body.read(&mut stream, usize::MAX)?;
        content = body.bytes;
    }
    Ok((status, headers, content))
}

/// How a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    Chunked,
    Length(usize),
    /// With the connection.
    All,
}

impl Body {
    pub fn reading(self) -> Reading {
        Reading { kind: self, bytes: Vec::new(), left: 0, done: false }
    }
}

/// A body that is read in steps.
pub struct Reading {
    kind: Body,
    pub bytes: Vec<u8>,
    /// Of the present chunk.
    left: usize,
    done: bool,
}

impl Reading {
    /// Reads until there are `limit` bytes; whether that was all of it.
    pub fn read(&mut self, stream: &mut impl BufRead, limit: usize) -> io::Result<bool> {
        while !self.done {
            match self.kind {
                Body::Length(length) if self.bytes.len() == length => self.done = true,
                _ if self.bytes.len() >= limit => return Ok(false),
                Body::Length(length) => {
                    let more = limit.min(length) - self.bytes.len();
                    if stream.take(more as u64).read_to_end(&mut self.bytes)? < more {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Body::All => {
                    stream.take((limit - self.bytes.len()) as u64).read_to_end(&mut self.bytes)?;
                    self.done = self.bytes.len() < limit;
                }
                Body::Chunked => {
                    if self.left == 0 {
                        let mut line = String::new();
                        stream.read_line(&mut line)?;
                        self.left = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
                        if self.left == 0 {
                            stream.read_line(&mut line)?;
                            self.done = true;
                            continue;
                        }
                    }
                    let more = self.left.min(limit - self.bytes.len());
                    if stream.take(more as u64).read_to_end(&mut self.bytes)? < more {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    self.left -= more;
                    if self.left == 0 {
                        stream.read_line(&mut String::new())?;
                    }
                }
            }
        }
        Ok(true)
    }
}
