//! Image names: `HOST[:PORT]/REPOSITORY[:TAG][@sha256:HEX]`.
//!
//! The grammar of repository, tag and digest is oci-client's. The host is looked at here: it must be there
//! in so many words, and it may be an IPv6 address, which that grammar doesn't know.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use oci_client::{ParseError, Reference};
use thiserror::Error;

use crate::containerdisk::{Digest, DigestError};

/// Why a text is no image name, or not the kind that is needed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReferenceError {
    /// A URL was given.
    #[error("'{text}' is a URL; an image name has no scheme: {without}")]
    Scheme {
        /// What was given.
        text: String,
        /// The same without the scheme.
        without: String,
    },
    /// There is no registry in it. A default would send a licensed Windows to a public registry.
    #[error(
        "'{text}' names no registry, and none is assumed: a Windows image must not end in a public one; write HOST/{text}"
    )]
    NoHost {
        /// What was given.
        text: String,
    },
    /// Docker Hub's nickname, which only Docker's own tools resolve.
    #[error(
        "'{host}' is a nickname, not a registry's address, and images there are public unless told otherwise; name a private registry"
    )]
    DockerHub {
        /// The host given.
        host: String,
    },
    /// The host or its port can't be one.
    #[error("'{host}' is no host[:port]: {why}")]
    Host {
        /// The host given.
        host: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The part after the host is malformed.
    #[error("'{text}' is no image name: {why}")]
    Name {
        /// What was given.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// A push needs a tag: registries collect what has none.
    #[error("'{text}' has no tag; write {text}:TAG (a registry may delete an image that has none)")]
    NoTag {
        /// What was given.
        text: String,
    },
    /// A push's digest is its result, not its target.
    #[error("'{text}' holds a digest, which a push only finds out; write {without}")]
    DigestTarget {
        /// What was given.
        text: String,
        /// The same without the digest.
        without: String,
    },
}

/// A checked image name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageName {
    host: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl ImageName {
    /// The registry, with its port if one was given; IPv6 addresses in brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The repository within the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag, if one was given.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest, if one was given.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// The tag to push to; a name without one, or with a digest, is refused.
    pub fn push_tag(&self) -> Result<&str, ReferenceError> {
        let without = |tag: &str| format!("{}/{}:{tag}", self.host, self.repository);
        if self.digest.is_some() {
            let without = without(self.tag().unwrap_or("TAG"));
            return Err(ReferenceError::DigestTarget { text: self.to_string(), without });
        }
        self.tag().ok_or_else(|| ReferenceError::NoTag { text: self.to_string() })
    }

    /// `HOST/REPOSITORY@DIGEST`: what consumers pin. Never a tag in it, which CDI refuses beside a digest.
    pub fn pinned(&self, digest: Digest) -> String {
        format!("{}/{}@{digest}", self.host, self.repository)
    }

    /// Whether the host is this machine: 127.0.0.0/8, ::1 or localhost.
    pub fn is_loopback(&self) -> bool {
        is_loopback(split_port(&self.host).0)
    }
}

/// Whether a host, without its port, is this machine.
pub(super) fn is_loopback(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// `host:port` taken apart; brackets stay with the host.
fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    }
}

fn check_host(host: &str) -> Result<(), &'static str> {
    let (name, port) = split_port(host);
    if let Some(port) = port
        && !port.parse::<u16>().is_ok_and(|p| p > 0 && port.bytes().all(|b| b.is_ascii_digit()))
    {
        return Err("a port is a number from 1 to 65535");
    }
    if let Some(v6) = name.strip_prefix('[') {
        return match v6.strip_suffix(']').map(str::parse::<IpAddr>) {
            Some(Ok(IpAddr::V6(_))) => Ok(()),
            _ => Err("brackets hold an IPv6 address"),
        };
    }
    if name.contains(':') {
        return Err("an IPv6 address goes in brackets");
    }
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    if name.len() > 253 || !name.split('.').all(label) {
        return Err("a host name is letters, digits, hyphens and dots");
    }
    Ok(())
}

impl FromStr for ImageName {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let owned = || text.to_owned();
        if let Some((_, without)) = text.split_once("://") {
            return Err(ReferenceError::Scheme { text: owned(), without: without.into() });
        }
        let (host, rest) = match text.split_once('/') {
            // Without a dot, a port or brackets the first part is a folder of a registry that isn't named.
            Some((host, rest)) if host == "localhost" || host.contains(['.', ':', '[']) => (host, rest),
            _ => return Err(ReferenceError::NoHost { text: owned() }),
        };
        check_host(host).map_err(|why| ReferenceError::Host { host: host.into(), why })?;
        if matches!(split_port(&host.to_ascii_lowercase()).0, "docker.io" | "index.docker.io") {
            return Err(ReferenceError::DockerHub { host: host.into() });
        }
        // The placeholder stands for the host, which was checked above.
        let parsed = Reference::try_from(format!("host.invalid/{rest}"))
            .map_err(|e| ReferenceError::Name { text: owned(), why: explain(rest, &e) })?;
        let digest = parsed
            .digest()
            .map(|digest| digest.to_ascii_lowercase().parse())
            .transpose()
            .map_err(|e: DigestError| ReferenceError::Name { text: owned(), why: e.to_string() })?;
        // The crate makes up `latest` where neither tag nor digest is given; a tag is never assumed here.
        let name_and_tag = rest.split_once('@').map_or(rest, |(before, _)| before);
        let tag = parsed.tag().filter(|_| name_and_tag.contains(':'));
        Ok(Self {
            host: host.into(),
            repository: parsed.repository().into(),
            tag: tag.map(str::to_owned),
            digest,
        })
    }
}

/// The likely slip behind a refusal that only says "invalid".
fn explain(rest: &str, error: &ParseError) -> String {
    let (name_and_tag, _) = rest.split_once('@').unwrap_or((rest, ""));
    let repository = name_and_tag.rsplit_once(':').map_or(name_and_tag, |(name, _)| name);
    if repository.is_empty() {
        "it has no repository".into()
    } else if repository.chars().any(|c| c.is_ascii_uppercase()) {
        format!("a repository is lower case: {}", repository.to_ascii_lowercase())
    } else if rest.chars().any(|c| c.is_whitespace() || c.is_control()) {
        "there is a space or a control character in it".into()
    } else if rest.ends_with(':') {
        "the tag is empty".into()
    } else {
        match error {
            ParseError::ReferenceInvalidFormat => {
                "it must be HOST[:PORT]/REPOSITORY[:TAG], with letters, digits and . _ - between slashes"
                    .into()
            }
            other => other.to_string(),
        }
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const HEX: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn refused(text: &str) -> String {
        text.parse::<ImageName>().unwrap_err().to_string()
    }

    #[test]
    fn names_are_taken_apart_and_put_together() {
        for (text, host, repository, tag) in [
            (
                "registry.example.com/private/windows11:25h2",
                "registry.example.com",
                "private/windows11",
                Some("25h2"),
            ),
            ("localhost/a", "localhost", "a", None),
            ("localhost:5000/a:b", "localhost:5000", "a", Some("b")),
            ("[::1]:5000/a/b:latest", "[::1]:5000", "a/b", Some("latest")),
            ("[fd00::1]/a:t", "[fd00::1]", "a", Some("t")),
            ("10.0.0.1:443/a:T_x.1-2", "10.0.0.1:443", "a", Some("T_x.1-2")),
        ] {
            let name: ImageName = text.parse().unwrap();
            assert_eq!((name.host(), name.repository(), name.tag()), (host, repository, tag));
            assert_eq!(name.to_string(), text);
            assert_eq!(name.digest(), None);
        }
        let name: ImageName = format!("h.example/a:t@{HEX}").parse().unwrap();
        let digest = HEX.parse().unwrap();
        assert_eq!((name.tag(), name.digest()), (Some("t"), Some(digest)));
        assert_eq!(name.pinned(digest), format!("h.example/a@{HEX}"));
        let upper = format!("h.example/a@sha256:{}", HEX[7..].to_ascii_uppercase());
        assert_eq!(upper.parse::<ImageName>().unwrap().digest(), Some(digest));
    }

    #[test]
    fn no_registry_is_assumed() {
        for text in ["windows", "windows:11", "library/windows:11", "a/b/c:t"] {
            assert!(refused(text).contains("names no registry"), "{text}");
        }
        for text in ["docker.io/a/b:t", "index.docker.io/a/b:t", "Docker.IO:443/a/b:t"] {
            assert!(refused(text).contains("nickname"), "{text}");
        }
    }

    #[test]
    fn a_refusal_says_the_slip() {
        assert!(refused("https://h.example/a:t").ends_with("h.example/a:t"));
        assert!(refused("h.example/Windows:t").contains("lower case: windows"));
        assert!(refused("h.example/a: t").contains("space"));
        assert!(refused("h.example/a:").contains("tag is empty"));
        assert!(refused("h.example/").contains("no repository"));
        assert!(refused("h.example:0/a:t").contains("65535"));
        assert!(refused("h.example:+80/a:t").contains("65535"));
        assert!(refused("h.example:99999/a:t").contains("65535"));
        assert!(refused("::1/a:t").contains("brackets"));
        assert!(refused("[::1/a:t").contains("brackets"));
        assert!(refused("h_.example/a:t").contains("letters"));
        assert!(refused("user@h.example/a:t").contains("letters"));
        assert!(refused("h.example/../a:t").contains("must be"));
        assert!(refused("h.example/a@sha256:12").contains("must be"));
        assert!(refused(&format!("h.example/a@sha512:{}", "0".repeat(128))).contains("sha256"));
    }

    #[test]
    fn a_push_needs_a_tag_and_takes_no_digest() {
        let push = |text: &str| text.parse::<ImageName>().unwrap().push_tag().map(str::to_owned);
        assert_eq!(push("h.example/a:t").unwrap(), "t");
        assert!(matches!(push("h.example/a"), Err(ReferenceError::NoTag { .. })));
        let error = push(&format!("h.example/a:t@{HEX}")).unwrap_err().to_string();
        assert!(error.ends_with("write h.example/a:t"), "{error}");
        assert!(push(&format!("h.example/a@{HEX}")).unwrap_err().to_string().ends_with("h.example/a:TAG"));
    }

    #[test]
    fn loopback_is_told_from_the_rest() {
        let loopback = |host: &str| format!("{host}/a:t").parse::<ImageName>().unwrap().is_loopback();
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1", "127.8.9.1:5000", "[::1]", "[::1]:5000"] {
            assert!(loopback(host), "{host}");
        }
        for host in
            ["10.0.0.1", "localhost.example.com", "127.0.0.1.example.com", "[::2]", "0.0.0.0", "[fd00::1]:80"]
        {
            assert!(!loopback(host), "{host}");
        }
    }
}
