//! What can go wrong between here and a registry.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use super::{CaError, ConnectFailure, CredentialError, ReferenceError};
use crate::containerdisk::LayoutError;
use crate::io::Interrupted;

/// Why a push, or a step of it, failed.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// The image name won't do.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// A CA file, or the system's roots, won't do.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// Credentials can't be had or used.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The layout to push won't do.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The user asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// This machine can't do network operations at all.
    #[error("the network can't be set up")]
    Setup {
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Plain HTTP was asked for to another machine.
    #[error("plain HTTP is for registries on this machine only, and {host} is not on it")]
    PlainHttp {
        /// The registry.
        host: String,
    },
    /// No connection.
    #[error("{host} can't be reached: {failure}")]
    Connect {
        /// The host, with its port if it is not the usual one.
        host: String,
        /// Why, as far as it is known.
        failure: ConnectFailure,
        /// The HTTP library's account, where it says more.
        source: Option<reqwest::Error>,
    },
    /// The connection ended or stalled in the middle.
    #[error("{doing}: the connection to {host} broke")]
    Broken {
        /// What was being done.
        doing: String,
        /// The host.
        host: String,
        /// The HTTP library's account.
        source: reqwest::Error,
    },
    /// The registry took what was sent, or stopped taking it, and then said nothing.
    #[error("{doing}: {host} has not answered for {seconds} seconds")]
    Stalled {
        /// What was being done.
        doing: String,
        /// The host.
        host: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// An answer that says no.
    #[error("{doing}: {host} answered {status}{message}")]
    Status {
        /// What was being done.
        doing: String,
        /// The host.
        host: String,
        /// The HTTP status.
        status: u16,
        /// What the answer's body says.
        message: ServerMessage,
        /// How long it asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// An answer that says yes, before the end of what is sent.
    #[error("{doing}: {host} answered before everything was sent")]
    Early {
        /// What was being done.
        doing: String,
        /// The host.
        host: String,
    },
    /// The registry wants to know who pushes, and no credentials are known for it.
    #[error("{host} asks for credentials, and there are none for it")]
    NoCredentials {
        /// The registry.
        host: String,
    },
    /// The registry, or its token server, does not accept the credentials.
    #[error("{host} refuses the credentials of {who}")]
    CredentialsRefused {
        /// The registry or token server.
        host: String,
        /// The user's name, or what kind of token it is.
        who: String,
    },
    /// The credentials are right, but not for this.
    #[error("{who} may not {what} {repository} on {host}")]
    NotAllowed {
        /// `read` or `push to`.
        what: &'static str,
        /// The user's name, or what kind of token it is.
        who: String,
        /// The registry.
        host: String,
        /// The repository.
        repository: String,
    },
    /// The registry asks for an authentication that is not spoken here, or asks in a way that is not safe.
    #[error("{host} asks for authentication that can't be given: {why}")]
    Challenge {
        /// The registry.
        host: String,
        /// What is wrong with it.
        why: String,
    },
    /// The answer does not follow the protocol, or would send data where it must not go.
    #[error("{doing}: {host} answered wrongly: {why}")]
    Protocol {
        /// What was being done.
        doing: String,
        /// The registry.
        host: String,
        /// What is wrong.
        why: String,
    },
    /// The registry answers a request for a part of a blob with the whole of it.
    #[error("{host} does not serve parts of a blob: asked for a range, it answered with the whole")]
    NoRanges {
        /// The host that answered, which may be the registry's storage.
        host: String,
    },
    /// What a name leads to is not an image that can be read here.
    #[error("{name} is no image for this: {why}")]
    NoImage {
        /// The image's name.
        name: String,
        /// What it is.
        why: String,
    },
    /// What the registry holds is not what was sent, or what its name says.
    #[error("{what} on {host}: {got} is there, and not {expected}")]
    Mismatch {
        /// The thing compared.
        what: String,
        /// The registry.
        host: String,
        /// What was sent.
        expected: String,
        /// What the registry says it holds.
        got: String,
    },
    /// The producer of a streamed blob ended without finishing it.
    #[error("the upload was given up, because what it sends was not finished")]
    Abandoned,
}

impl RegistryError {
    /// Whether the same request may well succeed a little later.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Broken { .. } | Self::Stalled { .. } | Self::Early { .. } => true,
            Self::Connect { failure, .. } => matches!(
                failure,
                ConnectFailure::NoSuchHost
                    | ConnectFailure::Refused
                    | ConnectFailure::TimedOut
                    | ConnectFailure::Other
            ),
            Self::Status { status, .. } => is_transient(*status),
            _ => false,
        }
    }

    /// How long the registry asked to be left alone.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// Statuses that speak of the moment, not of the request.
pub(super) fn is_transient(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

/// The reason a registry gives in an answer's body: its own words, shortened and made printable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerMessage {
    /// The first error's code, as `DENIED`; empty when the body is not of the specification's form.
    pub code: String,
    /// The text.
    pub text: String,
}

impl ServerMessage {
    /// In place of one that holds a secret.
    pub(super) fn withheld() -> Self {
        Self { code: String::new(), text: "(not shown: it repeats the login)".into() }
    }

    /// Whether this is the error's code, or in a body that came only in part may have been.
    pub(super) fn is(&self, code: &str) -> bool {
        self.code == code || (self.code.is_empty() && self.text.contains(code))
    }

    /// Reads `{"errors": [{"code", "message"}]}`, or takes the first line of anything else.
    pub(super) fn of(body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Body {
            errors: Vec<One>,
        }
        #[derive(Deserialize)]
        struct One {
            #[serde(default)]
            code: String,
            #[serde(default)]
            message: String,
        }
        if let Ok(Body { errors }) = serde_json::from_slice(body) {
            return errors.into_iter().next().map_or_else(Self::default, |one| Self {
                code: printable(&one.code),
                text: printable(&one.message),
            });
        }
        let text = String::from_utf8_lossy(body);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        Self { code: String::new(), text: printable(line) }
    }
}

/// At most 200 characters, none of which drives a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

impl fmt::Display for ServerMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code.as_str(), self.text.as_str()) {
            ("", "") => Ok(()),
            ("", text) => write!(f, ": {text}"),
            (code, "") => write!(f, ": {code}"),
            (code, text) => write!(f, ": {text} ({code})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_words_are_tamed() {
        let said = |body: &str| ServerMessage::of(body.as_bytes()).to_string();
        assert_eq!(said(r#"{"errors":[{"code":"DENIED","message":"no"}]}"#), ": no (DENIED)");
        assert_eq!(said(r#"{"errors":[]}"#), "");
        assert_eq!(said(""), "");
        assert_eq!(
            said("\n  Client sent an HTTP request\x1b[31m\nmore"),
            ": Client sent an HTTP request[31m"
        );
        assert!(said(&"x".repeat(10_000)).len() < 210);
        assert_eq!(ServerMessage::of(&[0xff, 0x00]).to_string(), ": \u{fffd}");
    }
}
