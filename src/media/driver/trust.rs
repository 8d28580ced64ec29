//! Which roots are trusted, and whether a certificate leads to one of them.
//!
//! Paths are built by the `rustls-webpki` crate, which knows nothing of web servers here: it is asked for the
//! purposes below. Certificates that are themselves signed with SHA-1 lead to no root.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use der::asn1::ObjectIdentifier;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use thiserror::Error;
use time::OffsetDateTime;
use webpki::{EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeId, KeyPurposeIdIter, ring};

use super::certificate::Certificate;
use super::oid;

/// What certificates may be signed with.
const ALGORITHMS: &[&dyn rustls_pki_types::SignatureVerificationAlgorithm] = &[
    ring::RSA_PKCS1_2048_8192_SHA256,
    ring::RSA_PKCS1_2048_8192_SHA384,
    ring::RSA_PKCS1_2048_8192_SHA512,
    ring::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
    ring::RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
    ring::RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
    ring::ECDSA_P256_SHA256,
    ring::ECDSA_P256_SHA384,
    ring::ECDSA_P384_SHA256,
    ring::ECDSA_P384_SHA384,
];

/// What a certificate is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Signing drivers.
    Code,
    /// Attesting the time.
    Timestamps,
}

/// The roots that are trusted: only those given, never the machine's.
#[derive(Debug, Clone)]
pub struct TrustRoots {
    certificates: Vec<CertificateDer<'static>>,
}

/// Why a file holds no roots.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TrustRootsError {
    /// No certificate in it.
    #[error(
        "there is no certificate (-----BEGIN CERTIFICATE-----) in it; DER is made PEM by `openssl x509 -inform DER`"
    )]
    None,
    /// One that has no end, or is no Base64.
    #[error("certificate {number} is damaged: {what}")]
    Damaged {
        /// Which, counted from 1.
        number: usize,
        /// What is wrong.
        what: &'static str,
    },
}

/// Why a certificate leads to no given root.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChainError {
    /// None of the roots issued it, nor a certificate that came along.
    #[error("it leads to none of the given roots")]
    UnknownIssuer,
    /// One on the way was not valid.
    #[error("a certificate on the way to the root was not valid at the time of signing")]
    NotValid,
    /// One on the way is for something else.
    #[error("a certificate on the way to the root is for another purpose")]
    Purpose,
    /// Another rule of RFC 5280 is broken.
    #[error("{0}")]
    Other(String),
}

impl Purpose {
    /// The extended key usages that are for it.
    pub(super) fn identifiers(self) -> &'static [ObjectIdentifier] {
        match self {
            Self::Code => {
                &[oid::CODE_SIGNING, oid::WHQL, oid::ATTESTED, oid::WINDOWS_COMPONENT, oid::ANY_PURPOSE]
            }
            Self::Timestamps => &[oid::TIME_STAMPING, oid::ANY_PURPOSE],
        }
    }
}

/// Completes "is for".
impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Code => "signing code",
            Self::Timestamps => "attesting the time",
        })
    }
}

/// On the way to the root a certificate that names purposes must name this one; one that names none is for all.
impl ExtendedKeyUsageValidator for Purpose {
    fn validate(&self, usages: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        let mut none = true;
        for usage in usages {
            let usage = usage?;
            none = false;
            if self.identifiers().iter().any(|id| KeyPurposeId::new(id.as_bytes()) == usage) {
                return Ok(());
            }
        }
        if none { Ok(()) } else { Err(webpki::Error::EmptyEkuExtension) }
    }
}

impl TrustRoots {
    /// The certificates of a PEM file; text around them is skipped.
    ///
    /// # Errors
    /// There is none, or one is damaged.
    pub fn from_pem(bytes: &[u8]) -> Result<Self, TrustRootsError> {
        const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
        const END: &str = "-----END CERTIFICATE-----";
        let text = String::from_utf8_lossy(bytes);
        let mut certificates = Vec::new();
        for part in text.split(BEGIN).skip(1) {
            let number = certificates.len() + 1;
            let damaged = |what| TrustRootsError::Damaged { number, what };
            let (body, _) = part.split_once(END).ok_or_else(|| damaged("it has no end"))?;
            let body: String = body.split_ascii_whitespace().collect();
            let der = BASE64.decode(body).map_err(|_| damaged("it is no Base64"))?;
            let der = CertificateDer::from(der);
            if Certificate::parse(&der).is_none() || webpki::anchor_from_trusted_cert(&der).is_err() {
                return Err(damaged("it is no X.509 certificate"));
            }
            certificates.push(der);
        }
        if certificates.is_empty() { Err(TrustRootsError::None) } else { Ok(Self { certificates }) }
    }

    /// The name of the root that `certificate` leads to, by way of `others`.
    pub(super) fn judge(
        &self,
        certificate: &[u8],
        others: &[&[u8]],
        at: OffsetDateTime,
        purpose: Purpose,
    ) -> Result<String, ChainError> {
        let other = |e: webpki::Error| ChainError::Other(e.to_string());
        let anchors: Vec<TrustAnchor<'_>> =
            self.certificates.iter().filter_map(|root| webpki::anchor_from_trusted_cert(root).ok()).collect();
        let certificate = CertificateDer::from(certificate);
        let leaf = EndEntityCert::try_from(&certificate).map_err(other)?;
        let others: Vec<CertificateDer<'_>> =
            others.iter().map(|other| CertificateDer::from(*other)).collect();
        let seconds = u64::try_from(at.unix_timestamp()).unwrap_or(0);
        let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let path = leaf.verify_for_usage(ALGORITHMS, &anchors, &others, time, purpose, None, None);
        let path = path.map_err(|e| match e {
            webpki::Error::UnknownIssuer => ChainError::UnknownIssuer,
            webpki::Error::CertExpired { .. } | webpki::Error::CertNotValidYet { .. } => ChainError::NotValid,
            webpki::Error::EmptyEkuExtension => ChainError::Purpose,
            e => other(e),
        })?;
        // All certificates have been seen to be anchors, so that the positions are the same.
        let at = anchors.iter().position(|anchor| anchor == path.anchor());
        let root = at.and_then(|at| Certificate::parse(self.certificates.get(at)?));
        root.map(|root| root.identity().name).ok_or(ChainError::UnknownIssuer)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_holds_no_roots_is_refused() {
        let error = |text: &str| TrustRoots::from_pem(text.as_bytes()).unwrap_err();
        assert_eq!(error(""), TrustRootsError::None);
        assert_eq!(error("-----BEGIN PRIVATE KEY-----"), TrustRootsError::None);
        let begin = "-----BEGIN CERTIFICATE-----\n";
        let end = "-----END CERTIFICATE-----\n";
        assert_eq!(error(begin), TrustRootsError::Damaged { number: 1, what: "it has no end" });
        assert_eq!(
            error(&format!("{begin}!{end}")),
            TrustRootsError::Damaged { number: 1, what: "it is no Base64" }
        );
        assert_eq!(
            error(&format!("{begin}AAAA\n{end}")),
            TrustRootsError::Damaged { number: 1, what: "it is no X.509 certificate" }
        );
    }
}
