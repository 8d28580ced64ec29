//! `nbd://HOST[:PORT]/EXPORT` and `nbd+unix:///EXPORT?socket=PATH` (NBD's doc/uri.md).

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::str::FromStr;

use super::NbdError;

/// The port that NBD servers listen on (IANA).
const PORT: u16 = 10809;
/// Names longer than this are refused by the protocol.
const MAX_EXPORT: usize = 4096;

/// Where an export is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NbdAddress {
    /// How to connect.
    pub server: Server,
    /// The export's name; empty for the server's default.
    pub export: String,
}

/// How to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// By TCP: a host, an IPv6 address without its brackets, and a port.
    Tcp(String, u16),
    /// By a socket in the file system.
    Unix(PathBuf),
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Server::Tcp(..) => write!(f, "nbd://{}/{}", self.server, self.export),
            Server::Unix(_) => write!(f, "nbd+unix:///{}?socket={}", self.export, self.server),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl FromStr for NbdAddress {
    type Err = NbdError;

    fn from_str(text: &str) -> Result<Self, NbdError> {
        let wrong = |why: &str| NbdError::Address { why: why.into() };
        if text.starts_with("nbds") {
            return Err(wrong("NBD over TLS is not spoken here; use a tunnel, or a socket of qemu-nbd's"));
        }
        let (server, rest) = if let Some(rest) = text.strip_prefix("nbd+unix://") {
            let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
            let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket="));
            let socket =
                socket.filter(|s| !s.is_empty()).ok_or_else(|| wrong("it names no socket: ?socket=PATH"))?;
            let socket = decoded(socket).ok_or_else(|| wrong("a % is followed by two hex digits"))?;
            (Server::Unix(PathBuf::from(OsString::from_vec(socket))), path)
        } else if let Some(rest) = text.strip_prefix("nbd://") {
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            if path.contains('?') {
                return Err(wrong("nbd:// takes no ?parameters"));
            }
            (tcp(host).ok_or_else(|| wrong("it is nbd://HOST[:PORT]/EXPORT"))?, path)
        } else {
            return Err(wrong("it begins with neither nbd:// nor nbd+unix://"));
        };
        let export = rest.strip_prefix('/').unwrap_or(rest);
        let export = decoded(export).and_then(|bytes| String::from_utf8(bytes).ok());
        let export = export.ok_or_else(|| wrong("the export's name is not UTF-8 with % escapes"))?;
        if export.len() > MAX_EXPORT {
            return Err(wrong("the export's name is longer than 4096 bytes"));
        }
        Ok(Self { server, export })
    }
}

fn tcp(text: &str) -> Option<Server> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok().filter(|port| *port > 0)?),
        _ => (text, PORT),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let ok = bare.is_some() || !host.is_empty() && !host.contains([':', '[', ']', '@']);
    ok.then(|| Server::Tcp(bare.unwrap_or(host).into(), port))
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, left @ ..] = rest {
        rest = left;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let mut byte = [0];
        hex::decode_to_slice(rest.get(..2)?, &mut byte).ok()?;
        bytes.push(byte[0]);
        rest = &rest[2..];
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let tcp = |host: &str, port, export: &str| NbdAddress {
            server: Server::Tcp(host.into(), port),
            export: export.into(),
        };
        for (text, expected) in [
            ("nbd://san.example", tcp("san.example", 10809, "")),
            ("nbd://san.example:99/a%20b/c", tcp("san.example", 99, "a b/c")),
            ("nbd://[fd00::1]:99/x", tcp("fd00::1", 99, "x")),
            ("nbd://[fd00::1]/x", tcp("fd00::1", 10809, "x")),
        ] {
            assert_eq!(text.parse::<NbdAddress>().unwrap(), expected, "{text}");
        }
        let unix: NbdAddress = "nbd+unix:///x?socket=/run/a%3Fb".parse().unwrap();
        assert_eq!(unix, NbdAddress { server: Server::Unix("/run/a?b".into()), export: "x".into() });
        for bad in [
            "nbd://",
            "nbd:///x",
            "nbd://h:0/x",
            "nbd://h:/x",
            "nbd://a:b:1/x",
            "nbd://user@h/x",
            "nbd://h/%f",
            "nbd://h/%ff",
            "nbds://h/x",
            "nbd+unix:///x",
            "nbd+unix:///x?socket=",
        ] {
            assert!(bad.parse::<NbdAddress>().is_err(), "{bad}");
        }
    }
}
