//! Why a connection can't be made, out of the layers of errors that libraries wrap around it.

use std::error::Error;
use std::{fmt, io};

use rustls::CertificateError;

/// What stands between this machine and a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectFailure {
    /// The name has no address.
    NoSuchHost,
    /// Nothing listens there.
    Refused,
    /// No answer within the time allowed.
    TimedOut,
    /// The certificate's authority is not trusted.
    Untrusted,
    /// The certificate is past its end, or before its beginning.
    OutOfDate,
    /// The certificate is for another name.
    WrongName,
    /// A self-signed authority is used as the server's own certificate, which TLS does not allow.
    AuthorityAsServer,
    /// The server does not speak TLS.
    NotTls,
    /// TLS failed in another way, in the library's words.
    Tls(String),
    /// Anything else; the causes say what.
    Other,
}

impl ConnectFailure {
    /// Looks through an error's causes.
    pub(super) fn of(error: &(dyn Error + 'static)) -> Self {
        let mut cause = Some(error);
        let mut found = Self::Other;
        while let Some(error) = cause {
            if let Some(tls) = error.downcast_ref::<rustls::Error>() {
                return Self::of_tls(tls);
            }
            if let Some(io) = error.downcast_ref::<io::Error>() {
                match io.kind() {
                    io::ErrorKind::ConnectionRefused => return Self::Refused,
                    io::ErrorKind::TimedOut => return Self::TimedOut,
                    _ => {}
                }
                // An `io::Error` made from another error shows that one's cause, not the error itself.
                if let Some(inner) = io.get_ref() {
                    match Self::of(inner) {
                        Self::Other => {}
                        known => return known,
                    }
                }
            }
            // The connector's own type is private; its message is not.
            if error.to_string() == "dns error" {
                found = Self::NoSuchHost;
            }
            cause = error.source();
        }
        found
    }

    /// Whether the causes add to what this says: names, dates, or everything.
    pub(super) fn has_more_to_tell(&self) -> bool {
        matches!(self, Self::OutOfDate | Self::WrongName | Self::Other)
    }

    fn of_tls(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(certificate) => match certificate {
                // A bad signature: another authority of the same name, as after a renewal.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::Untrusted,
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => Self::OutOfDate,
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    Self::WrongName
                }
                // webpki's own name for it, which rustls passes on as text only.
                other if format!("{other:?}").contains("CaUsedAsEndEntity") => Self::AuthorityAsServer,
                other => Self::Tls(other.to_string()),
            },
            rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType) => Self::NotTls,
            other => Self::Tls(other.to_string()),
        }
    }
}

impl fmt::Display for ConnectFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchHost => "its name has no address",
            Self::Refused => "connection refused, nothing listens there",
            Self::TimedOut => "no answer",
            Self::Untrusted => "its certificate is not signed by an authority that is trusted here",
            Self::OutOfDate => "its certificate is out of date",
            Self::WrongName => "its certificate is for another name",
            Self::AuthorityAsServer => {
                "its certificate is an authority's own, which TLS does not allow a server"
            }
            Self::NotTls => "it does not speak TLS on that port",
            Self::Tls(why) => return write!(f, "TLS failed: {why}"),
            Self::Other => "the connection failed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_inside_io_errors_are_found() {
        let tls = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let wrapped = io::Error::other(io::Error::other(tls));
        assert_eq!(ConnectFailure::of(&wrapped), ConnectFailure::Untrusted);
        assert_eq!(ConnectFailure::of(&io::Error::other("x")), ConnectFailure::Other);
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(ConnectFailure::of(&io::Error::other(refused)), ConnectFailure::Refused);
    }
}
