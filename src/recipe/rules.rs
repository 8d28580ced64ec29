//! What a single value must look like. Rules between values are in `read`.

use std::path::PathBuf;
use std::str::FromStr;

use super::section::nearest;
use super::source::is_product_key;
use crate::media::Sha256;
use crate::root::audit::{CHECKS, Check, Severity, by_id};
use crate::windows::NameError;

/// The rules' regular expressions, for editors: the JSON Schema shows them. The code here is what decides.
pub(super) mod pattern {
    /// A DNS label.
    pub const DNS_LABEL: &str = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";
    /// Letters, digits, `.`, `_` and `-`.
    pub const WORD: &str = "^[A-Za-z0-9._-]{1,64}$";
    /// A language, its script and region.
    pub const LANGUAGE: &str = "^[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8})*$";
    /// Windows' build and revision.
    pub const BUILD: &str = "^[0-9]{4,5}\\.[0-9]{1,5}$";
    /// A release of the drivers.
    pub const VIRTIO_VERSION: &str = "^[0-9]+\\.[0-9]+\\.[0-9]+(-[0-9]+)?$";
    /// A computer's name.
    pub const HOSTNAME: &str = "^[A-Za-z]([A-Za-z0-9-]{0,13}[A-Za-z0-9])?$";
    /// A local account's name.
    pub const USERNAME: &str = "^[A-Za-z][A-Za-z0-9_-]{0,19}$";
    /// A letter that a CD can have.
    pub const DRIVE_LETTER: &str = "^[D-Zd-z]:?$";
    /// A registry, and a repository in it.
    pub const REPOSITORY: &str = "^[A-Za-z0-9.:-]+(/[a-z0-9]+([._-]+[a-z0-9]+)*)+$";
    /// A DNS subdomain.
    pub const KUBERNETES_NAME: &str = "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$";
    /// A tag.
    pub const TAG: &str = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$";
}

/// What is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub message: String,
    pub help: Option<String>,
}

impl Fault {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None }
    }

    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// A pin: see [`Sha256`].
pub(super) fn pin(text: &str) -> Result<Sha256, Fault> {
    text.parse::<Sha256>().map_err(|e| {
        Fault::new(e.to_string()).help("`sha256sum FILE` prints a file's; check it against its publisher's")
    })
}

/// The name of a file on this machine.
pub(super) fn file(text: &str) -> Result<PathBuf, Fault> {
    if text.is_empty() {
        return Err(Fault::new("a file's name is not empty"));
    }
    if let Some(c) = text.chars().find(|c| c.is_control()) {
        return Err(Fault::new(format!("a file's name holds no `{}`", c.escape_debug())));
    }
    if text.contains("://") {
        return Err(Fault::new("this is an address; sealroot works offline and fetches nothing")
            .help("download the file, then name it here"));
    }
    if text.ends_with('/') {
        return Err(Fault::new("this names a folder").help("name the file in it"));
    }
    Ok(text.into())
}

/// A lower-case DNS label: it names outputs, and later objects in a cluster.
pub(super) fn dns_label(text: &str) -> Result<String, Fault> {
    let fault = |why: &str| {
        Fault::new(format!("a name is 1 to 63 lower-case letters, digits and inner hyphens: {why}"))
    };
    if text.is_empty() || text.len() > 63 {
        return Err(fault(&format!("this has {} characters", text.chars().count())));
    }
    if let Some(c) = text.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '-')) {
        let lower: String = text
            .to_ascii_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let fault = fault(&format!("not `{}`", c.escape_debug()));
        return Err(match lower.trim_matches('-') {
            "" => fault,
            name => fault.help(format!("`{name}`, say")),
        });
    }
    if text.starts_with('-') || text.ends_with('-') {
        return Err(fault("a hyphen stands first or last"));
    }
    Ok(text.into())
}

/// Letters, digits, `.`, `_`, `-`: editions, releases, folders.
pub(super) fn word(text: &str) -> Result<String, Fault> {
    let ok = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match text.chars().find(|c| !ok(*c)) {
        Some(c) => Err(Fault::new(format!(
            "this takes letters, digits, `.`, `_` and `-`, not `{}`",
            c.escape_debug()
        ))),
        None if text.is_empty() || text.len() > 64 => Err(Fault::new("this takes 1 to 64 characters")),
        None => Ok(text.into()),
    }
}

/// A build as Windows shows it: `26100.1742`.
pub(super) fn build(text: &str) -> Result<String, Fault> {
    let digits = |part: &str, least: usize| {
        part.len() >= least && part.len() <= 5 && part.bytes().all(|b| b.is_ascii_digit())
    };
    let short = text.strip_prefix("10.0.").unwrap_or(text);
    match short.split_once('.') {
        Some((build, revision)) if digits(build, 4) && digits(revision, 1) && short == text => {
            Ok(text.into())
        }
        Some((build, revision)) if digits(build, 4) && digits(revision, 1) => {
            Err(Fault::new("a build is written without the version in front").help(format!("`{short}`")))
        }
        _ => Err(Fault::new("a build is written with its revision").help("as `26100.1742`")),
    }
}

/// A release of virtio-win: `0.1.285`, or `0.1.285-1` as its package is called.
pub(super) fn virtio_version(text: &str) -> Result<String, Fault> {
    let (version, release) = text.split_once('-').unwrap_or((text, "1"));
    let number = |part: &str| !part.is_empty() && part.len() < 6 && part.bytes().all(|b| b.is_ascii_digit());
    if version.split('.').count() == 3 && version.split('.').all(number) && number(release) {
        return Ok(text.into());
    }
    Err(Fault::new("a driver version has three numbers").help("as `0.1.285`"))
}

/// A drive letter; a colon may follow, as Windows writes it.
pub(super) fn drive_letter(text: &str) -> Result<char, Fault> {
    let mut letters = text.strip_suffix(':').unwrap_or(text).chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) if matches!(letter.to_ascii_uppercase(), 'D'..='Z') => {
            Ok(letter.to_ascii_uppercase())
        }
        _ => Err(Fault::new("a drive letter is one of D to Z")
            .help("`D`: the first CD of a machine with one disk")),
    }
}

/// One of a few words.
pub(super) fn one_of<T: Copy>(words: &[(&str, T)]) -> impl Fn(&str) -> Result<T, Fault> {
    move |text| match words.iter().find(|(word, _)| *word == text) {
        Some((_, value)) => Ok(*value),
        None => {
            let quoted: Vec<_> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
            let fault = Fault::new(format!("this is one of {}", quoted.join(", ")));
            Err(match nearest(text, words.iter().map(|(word, _)| *word)) {
                Some(near) => fault.help(format!("did you mean `{near}`?")),
                None => fault,
            })
        }
    }
}

/// The id of a check of the audit, one that weighs `severity`.
pub(super) fn check_id(severity: Severity) -> impl Fn(&str) -> Result<&'static str, Fault> {
    move |text| match by_id(text) {
        Some(check) if check.severity == severity => Ok(check.id),
        Some(Check { severity: Severity::Refuse, .. }) => {
            Err(Fault::new("this check can't be changed: nothing is done with a root that does not pass it")
                .help("leave it out"))
        }
        Some(Check { severity: Severity::Fail, .. }) => {
            Err(Fault::new("this check stops a build in any case").help("leave it out"))
        }
        Some(Check { severity: Severity::Warn, .. }) => {
            Err(Fault::new("this check stops no build, unless it is under `require`").help("leave it out"))
        }
        None => {
            let fault = Fault::new("there is no such check");
            Err(match nearest(text, CHECKS.iter().map(|check| check.id)) {
                Some(near) => fault.help(format!("did you mean `{near}`?")),
                None => fault.help("`sealroot audit --list` prints them all"),
            })
        }
    }
}

/// A registry's host and a repository in it, without a tag or digest.
pub(super) fn repository(text: &str) -> Result<String, Fault> {
    let example = "write it as `registry.example.com/private/windows11`";
    let fault = |message: &str| Err(Fault::new(message).help(example));
    if text.contains("://") {
        return fault("a repository has no `http://` or `https://` in front");
    }
    if text.contains('@') {
        return fault("a repository has no digest: that is what `build` finds out");
    }
    let Some((host, path)) = text.split_once('/') else {
        return fault("a repository begins with its registry's host, and a `/` follows");
    };
    let (name, port) = host.split_once(':').unwrap_or((host, "443"));
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    if !name.split('.').all(label) || port.parse::<u16>().map_or(true, |port| port == 0) {
        return fault("the part before the first `/` is no host name, with a port or without");
    }
    if !host.contains(['.', ':']) && host != "localhost" {
        return fault(
            "the part before the first `/` must be a registry's host: with a dot, a port, or localhost",
        );
    }
    if let Some((_, tag)) = path.split_once(':') {
        return Err(Fault::new("a repository has no tag").help(format!("tag = \"{}\"", tag.escape_debug())));
    }
    if text.len() > 255 || !path.split('/').all(path_component) {
        return fault(
            "a repository's path is lower-case letters and digits, between them `.`, `_`, `__` or hyphens, \
             255 characters in all",
        );
    }
    Ok(text.into())
}

/// `path-component` of the OCI distribution specification's reference grammar.
fn path_component(text: &str) -> bool {
    let is_alnum = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separators = text.split(is_alnum).filter(|separator| !separator.is_empty());
    let good =
        |separator: &str| matches!(separator, "." | "_" | "__") || separator.bytes().all(|b| b == b'-');
    text.starts_with(is_alnum) && text.ends_with(is_alnum) && { separators }.all(good)
}

/// The name of an object in Kubernetes: a DNS subdomain (RFC 1123).
pub(super) fn kubernetes_name(text: &str) -> Result<String, Fault> {
    if text.len() <= 253 && text.split('.').all(|label| dns_label(label).is_ok()) {
        return Ok(text.into());
    }
    Err(Fault::new(
        "a Kubernetes name is lower-case letters, digits, `-` and `.`, and each part between dots begins and ends \
         with a letter or digit",
    ))
}

/// A tag.
pub(super) fn tag(text: &str) -> Result<String, Fault> {
    let first = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let good = text.starts_with(first) && text.chars().all(|c| first(c) || matches!(c, '.' | '-'));
    if good && text.len() <= 128 {
        return Ok(text.into());
    }
    Err(Fault::new(
        "a tag is 1 to 128 letters, digits, `_`, `.` and `-`, and begins with none of the last two",
    ))
}

/// An annotation's key and value.
pub(super) fn annotation(key: &str, value: &str) -> Result<(), Fault> {
    if key.is_empty() || key.len() > 256 || key.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(Fault::new("an annotation's key is 1 to 256 characters without spaces")
            .help("as `org.opencontainers.image.source`"));
    }
    if key.starts_with("io.sealroot.") {
        return Err(Fault::new(
            "annotations that begin with `io.sealroot.` are Sealroot's own, pins among them",
        )
        .help("take a name of your own domain, as `com.example.purpose`"));
    }
    if value.len() > 4096 {
        return Err(Fault::new("an annotation has at most 4096 bytes"));
    }
    if value.split_whitespace().any(is_product_key) {
        return Err(Fault::new("this looks like a product key; annotations are published"));
    }
    Ok(())
}

/// A name that Windows takes: see [`crate::windows`].
pub(super) fn windows_name<T: FromStr<Err = NameError>>(text: &str) -> Result<T, Fault> {
    text.parse().map_err(|e: NameError| Fault::new(e.to_string()))
}
