//! How every command that talks to a registry is told who asks and whom to trust.

use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use zeroize::Zeroizing;

use super::{Classify, Exit, Failure};
use crate::containerdisk::LayoutError;
use crate::registry::{
    AuthFiles, CaError, ConnectFailure, Connection, Credential, CredentialError, ImageName, RegistryError,
};

/// More than any password; what is longer is refused further on.
const MAX_PASSWORD: usize = 64 << 10;
const HEADING: &str = "Registry";

/// Who asks, and whom to trust: flattened into every command that talks to a registry.
#[derive(Debug, clap::Args)]
pub struct RegistryArgs {
    #[command(flatten)]
    trust: TrustArgs,
    /// Log in as this user, with the password from standard input. Otherwise
    /// the login comes from the file REGISTRY_AUTH_FILE names, or else from
    /// docker's config.json (credential helpers included) or podman's auth.json.
    #[arg(long, value_name = "NAME", requires = "password_stdin", help_heading = HEADING)]
    username: Option<String>,
    /// Read the password from standard input, one newline at its end left out.
    #[arg(long, requires = "username", help_heading = HEADING)]
    password_stdin: bool,
}

/// Whom to trust: for a command whose logins come from the login files alone.
#[derive(Debug, clap::Args)]
pub struct TrustArgs {
    /// PEM file with authorities to trust beside the system's.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    ca: Option<PathBuf>,
    /// Plain HTTP, to a registry on this machine only.
    #[arg(long, help_heading = HEADING)]
    plain_http: bool,
}

impl TrustArgs {
    /// How to connect to the registry of `image`; reads the login files or a helper.
    pub fn connection(&self, image: &ImageName) -> Result<Connection, Failure> {
        Ok(self.connection_as(AuthFiles::from_environment().find(image)?))
    }

    fn connection_as(&self, credential: Credential) -> Connection {
        Connection { ca: self.ca.clone(), plain_http: self.plain_http, credential }
    }
}

impl RegistryArgs {
    /// How to connect to the registry of `image`; reads standard input, the login files or a helper.
    pub fn connection(&self, image: &ImageName) -> Result<Connection, Failure> {
        match &self.username {
            Some(user) => {
                let credential = Credential::password(user.clone(), password_from_stdin()?)?;
                Ok(self.trust.connection_as(credential))
            }
            None => self.trust.connection(image),
        }
    }
}

fn password_from_stdin() -> Result<String, Failure> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Err(Failure::new(
            Exit::Usage,
            "--password-stdin reads a pipe or file, and this is a terminal",
        )
        .cure("pipe the password in, so that it is not shown: sealroot ... --password-stdin < FILE"));
    }
    // Room for all of it: a vector that grows leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(2 * MAX_PASSWORD));
    stdin.lock().take(MAX_PASSWORD as u64).read_to_end(&mut bytes).map_err(|e| {
        Failure::new(Exit::Failed, format!("the password can't be read from standard input: {e}"))
    })?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| Failure::new(Exit::Rejected, "the password on standard input is not UTF-8"))?;
    if text.starts_with('\u{feff}') {
        return Err(Failure::new(
            Exit::Rejected,
            "the password on standard input begins with a byte order mark (BOM)",
        )
        .cure("save it as UTF-8 without BOM"));
    }
    let text = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
    Ok(text.to_owned())
}

impl Classify for CredentialError {
    fn exit(&self) -> Exit {
        match self {
            Self::User { .. } | Self::Password { .. } | Self::Malformed { .. } => Exit::Rejected,
            Self::Read { .. } | Self::Helper { .. } => Exit::Failed,
        }
    }
}

impl Classify for RegistryError {
    fn exit(&self) -> Exit {
        match self {
            Self::Reference(_) | Self::PlainHttp { .. } => Exit::Usage,
            Self::NoImage { .. } => Exit::Rejected,
            Self::Ca(CaError::Empty { .. } | CaError::Bad { .. }) => Exit::Rejected,
            Self::Layout(LayoutError::Interrupted(error)) => error.exit(),
            Self::Layout(LayoutError::Read { .. }) => Exit::Failed,
            Self::Layout(_) => Exit::Rejected,
            Self::Credential(error) => error.exit(),
            Self::Interrupted(error) => error.exit(),
            _ => Exit::Failed,
        }
    }

    fn cure(&self) -> Option<String> {
        let cure = match self {
            Self::Connect { failure, host, .. } => return cure_connection(failure, host),
            Self::PlainHttp { .. } => "leave --plain-http out; for a registry behind a tunnel name localhost",
            Self::NoCredentials { .. } => {
                "log in with podman or docker, or give --username NAME --password-stdin"
            }
            Self::CredentialsRefused { .. } => {
                "look at user and password; a token may have expired: log in again"
            }
            Self::NotAllowed { .. } => "ask the registry's owner for that right",
            Self::NoRanges { .. } => "read the whole layer instead: sealroot inspect --verify",
            Self::Layout(LayoutError::Blob { .. }) => "package the disk again",
            Self::Broken { .. } | Self::Stalled { .. } | Self::Early { .. } => {
                "try again: blobs that are there already are not sent again"
            }
            // Go's HTTP server says so, and most registries are made of it.
            Self::Status { status: 400, message, .. }
                if message.text.contains("HTTP request to an HTTPS server") =>
            {
                "the registry speaks TLS there: leave --plain-http out"
            }
            Self::Status { status, .. } => return cure_status(*status),
            _ => return None,
        };
        Some(cure.into())
    }
}

fn cure_connection(failure: &ConnectFailure, host: &str) -> Option<String> {
    let cure = match failure {
        ConnectFailure::Untrusted => {
            "if it has an authority of its own, give that certificate with --ca FILE"
        }
        ConnectFailure::OutOfDate => {
            "look at this machine's clock; else the registry needs a new certificate"
        }
        ConnectFailure::WrongName => "use a name the certificate is for, or have one made for this name",
        ConnectFailure::AuthorityAsServer => {
            "have a server certificate made that this authority signs, and give the authority's with --ca FILE"
        }
        ConnectFailure::NotTls => {
            "look at the port; plain HTTP is only for a registry on this machine, with --plain-http"
        }
        ConnectFailure::NoSuchHost => return Some(format!("look at the spelling of {host}, and at the DNS")),
        ConnectFailure::Refused => "look at the port, and whether the registry is running",
        ConnectFailure::TimedOut => "look at the port and at firewalls on the way; proxies are not used",
        ConnectFailure::Tls(_) | ConnectFailure::Other => return None,
    };
    Some(cure.into())
}

fn cure_status(status: u16) -> Option<String> {
    let cure = match status {
        403 => "this login may not do that: ask the registry's owner for the right to",
        404 => "look at the repository's name and the tag; some registries want the project made first",
        405 | 501 => {
            "the registry takes no uploads there, or only whole ones: it may be set to read-only; what is packaged into \
             a layout first can be pushed whole"
        }
        413 | 416 => "the registry, or a proxy before it, limits the size of a request: raise its limit",
        429 => "the registry limits how often one may ask: wait, then try again",
        500..=599 => "the registry is in trouble; try again later, or look at its log",
        _ => return None,
    };
    Some(cure.into())
}
