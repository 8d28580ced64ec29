//! Certificates, as far as signatures of catalogs need them.

use der::Decode as _;
use der::asn1::ObjectIdentifier;
use serde::Serialize;
use time::OffsetDateTime;
use x509_cert::Certificate as X509;
use x509_cert::ext::pkix::{ExtendedKeyUsage, SubjectKeyIdentifier};
use x509_cert::name::Name;

use super::cms::SignerId;
use super::signature::rfc3339;
use super::trust::Purpose;

/// Who a certificate is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The common name, or all of the name where it has none.
    pub name: String,
    /// The organisation, where it has one.
    pub organization: Option<String>,
    /// The common name of who issued the certificate, or all of that name.
    pub issuer: String,
    /// The first second of its validity.
    #[serde(serialize_with = "rfc3339")]
    pub not_before: OffsetDateTime,
    /// The last one.
    #[serde(serialize_with = "rfc3339")]
    pub not_after: OffsetDateTime,
}

/// A certificate and its bytes.
#[derive(Debug)]
pub(super) struct Certificate<'a> {
    bytes: &'a [u8],
    x509: X509,
    identity: Identity,
}

impl<'a> Certificate<'a> {
    /// `None`: it is no X.509 certificate that can be read.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let x509 = X509::from_der(bytes).ok()?;
        let tbs = x509.tbs_certificate();
        let time = |time: &x509_cert::time::Time| {
            OffsetDateTime::from_unix_timestamp(i64::try_from(time.to_unix_duration().as_secs()).ok()?).ok()
        };
        let organization = tbs.subject().organization().ok().flatten();
        let identity = Identity {
            name: name(tbs.subject()),
            organization: organization.map(|text| printable(&text.value())),
            issuer: name(tbs.issuer()),
            not_before: time(&tbs.validity().not_before)?,
            not_after: time(&tbs.validity().not_after)?,
        };
        Some(Self { bytes, x509, identity })
    }

    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub fn identity(&self) -> Identity {
        self.identity.clone()
    }

    /// Whether a signer means this one.
    pub fn is_of(&self, signer: &SignerId<'_>) -> bool {
        let tbs = self.x509.tbs_certificate();
        match signer {
            SignerId::IssuerAndSerial { issuer, serial } => {
                tbs.serial_number().as_bytes() == *serial
                    && Name::from_der(issuer).is_ok_and(|issuer| issuer == *tbs.issuer())
            }
            SignerId::KeyIdentifier(identifier) => {
                matches!(tbs.get_extension::<SubjectKeyIdentifier>(), Ok(Some((_, own))) if own.0.as_bytes() == *identifier)
            }
        }
    }

    /// Whether its extended key usage names the purpose, or all. One without says nothing, and is for none.
    pub fn is_for(&self, purpose: Purpose) -> bool {
        match self.x509.tbs_certificate().get_extension::<ExtendedKeyUsage>() {
            Ok(Some((_, usage))) => usage.0.iter().any(|id| purpose.identifiers().contains(id)),
            _ => false,
        }
    }

    /// The public key, as its algorithm has it.
    pub fn key(&self) -> &[u8] {
        self.x509.tbs_certificate().subject_public_key_info().subject_public_key.raw_bytes()
    }

    /// The key's algorithm, and the curve if it is one of a curve.
    pub fn key_algorithm(&self) -> (ObjectIdentifier, Option<ObjectIdentifier>) {
        let algorithm = &self.x509.tbs_certificate().subject_public_key_info().algorithm;
        let curve = algorithm.parameters.as_ref().and_then(|any| any.decode_as::<ObjectIdentifier>().ok());
        (algorithm.oid, curve)
    }
}

/// What a name is shown as.
pub(super) fn name(name: &Name) -> String {
    match name.common_name() {
        Ok(Some(text)) => printable(&text.value()),
        _ => printable(&name.to_string()),
    }
}

/// A certificate is anybody's text: what would move the cursor of a terminal is replaced.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
