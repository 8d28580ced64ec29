//! Signatures of catalogs, and the countersignatures that tell when they were made.

use der::Tag;
use der::asn1::ObjectIdentifier;
use ring::signature as algorithms;
use serde::Serialize;
use thiserror::Error;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::asn1::Element;
use super::catalog::{Catalog, CatalogError};
use super::certificate::{Certificate, Identity};
use super::cms::{self, SignedData, SignerInfo};
use super::digest::Algorithm;
use super::oid;
use super::trust::{ChainError, Purpose, TrustRoots};

/// What signatures are judged by.
#[derive(Debug, Clone, Copy)]
pub struct Judge<'a> {
    /// The only roots that are trusted; without them chains are not judged.
    pub roots: Option<&'a TrustRoots>,
    /// The time at which the certificates of a signature without countersignature are judged.
    pub now: OffsetDateTime,
}

/// A signature that is right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Signature {
    /// Whose it is. Unless the chain was judged, that is only what the certificate says: anybody can make one.
    pub signer: Identity,
    /// The hash that was signed. SHA-1 is weak.
    pub digest: Algorithm,
    /// When it was made.
    pub time: SigningTime,
    /// Whether the signer's certificate, and that of the countersignature, lead to a trusted root.
    pub chain: Chain,
}

/// When a signature was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum SigningTime {
    /// Somebody else attests it.
    Countersigned {
        /// When.
        #[serde(serialize_with = "rfc3339")]
        time: OffsetDateTime,
        /// Who.
        by: Identity,
    },
    /// Nobody else attests it: the certificates were judged at the present time.
    NotCountersigned {
        /// What the signer says.
        #[serde(serialize_with = "maybe_rfc3339")]
        claimed: Option<OffsetDateTime>,
    },
}

/// Where a chain of certificates leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Chain {
    /// No roots were given: the signature fits the certificate, but whether that is genuine is not known.
    NotJudged,
    /// To one of the given roots.
    Trusted {
        /// The root of the signer.
        root: String,
        /// That of the countersignature, if there is one.
        countersignature_root: Option<String>,
    },
}

/// Why a signature does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SignatureError {
    /// The structure of it is wrong.
    #[error(transparent)]
    Structure(#[from] CatalogError),
    /// Signatures are one each.
    #[error("it has {count} signatures, where one belongs")]
    Signers {
        /// How many there are.
        count: usize,
    },
    /// The signer's certificate did not come along.
    #[error("the signer's certificate is not in it, or cannot be read")]
    NoCertificate,
    /// The signature does not tell what it covers.
    #[error("the signature has no signed attributes with the type and hash of the content")]
    NoAttributes,
    /// The content is not what was signed.
    #[error("the content was altered after {signer} signed it")]
    Altered {
        /// Who signed.
        signer: String,
    },
    /// The signature itself is not right.
    #[error("the signature is not {signer}'s: it does not fit the key of that certificate")]
    Wrong {
        /// Whose it pretends to be.
        signer: String,
    },
    /// An algorithm that Windows does not use for drivers, or that is broken.
    #[error("the signature's algorithm is not supported: {what}")]
    Unsupported {
        /// Which.
        what: String,
    },
    /// Signed with a certificate that is for something else.
    #[error("the certificate of {signer} is not for {purpose}")]
    Purpose {
        /// Who signed.
        signer: String,
        /// What it would have to be for.
        purpose: Purpose,
    },
    /// Signed outside of the certificate's validity.
    #[error(
        "the certificate of {} is valid from {} to {}, and the signature {} {}",
        signer.name, day(&signer.not_before), day(&signer.not_after),
        if *.countersigned { "was made on" } else { "has no countersignature that tells its time; today is" }, day(at)
    )]
    NotValid {
        /// Who signed.
        signer: Box<Identity>,
        /// When, or the present time.
        at: OffsetDateTime,
        /// Whether the time of signing is known.
        countersigned: bool,
    },
    /// The chain leads to no given root.
    #[error("the certificate of {signer} is not trusted: {error}")]
    Untrusted {
        /// Who signed.
        signer: String,
        /// Why.
        error: ChainError,
    },
    /// The countersignature does not hold.
    #[error("countersignature: {0}")]
    Countersignature(Box<SignatureError>),
    /// The countersignature is of something else.
    #[error("the timestamp is of another signature")]
    OtherTimestamp,
    /// The countersignature has no time.
    #[error("it does not tell its time")]
    NoTime,
}

impl Catalog<'_> {
    /// Whether the signature of the catalog is right, whose it is, and when it was made.
    ///
    /// The signer's certificate must have been valid, and for signing code, at the time of the countersignature; that
    /// it has expired since is normal. Without a countersignature it must be valid at the present time.
    ///
    /// # Errors
    /// What does not hold.
    pub fn verify(&self, judge: Judge<'_>) -> Result<Signature, SignatureError> {
        let data = &self.signed;
        let signer = only(&data.signers)?;
        let (certificate, digest) =
            verified(signer, data.content.value, Some(data.content_type), &data.certificates)?;
        let countersignature = countersignature(signer, &data.certificates)
            .map_err(|e| SignatureError::Countersignature(Box::new(e)))?;
        let at = countersignature.as_ref().map_or(judge.now, |found| found.time);
        let countersigned = countersignature.is_some();
        let root =
            judge_certificate(&certificate, &data.certificates, Purpose::Code, at, countersigned, judge)?;
        let (time, countersignature_root) = match countersignature {
            Some(found) => {
                let root = judge_certificate(
                    &found.certificate,
                    &found.certificates,
                    Purpose::Timestamps,
                    at,
                    true,
                    judge,
                )
                .map_err(|e| SignatureError::Countersignature(Box::new(e)))?;
                (SigningTime::Countersigned { time: at, by: found.certificate.identity() }, root)
            }
            None => (SigningTime::NotCountersigned { claimed: claimed_time(signer)? }, None),
        };
        let chain = match root {
            Some(root) => Chain::Trusted { root, countersignature_root },
            None => Chain::NotJudged,
        };
        Ok(Signature { signer: certificate.identity(), digest, time, chain })
    }
}

/// A countersignature that fits.
struct Countersignature<'a> {
    time: OffsetDateTime,
    certificate: Certificate<'a>,
    /// That came along with it.
    certificates: Vec<Element<'a>>,
}

/// The countersignature of a signature, if there is one; an RFC 3161 timestamp is preferred, as Windows does.
fn countersignature<'a>(
    signer: &SignerInfo<'a>,
    certificates: &[Element<'a>],
) -> Result<Option<Countersignature<'a>>, SignatureError> {
    if let Some(token) = signer.unsigned_attributes.one(oid::TIMESTAMP_TOKEN)? {
        return timestamp(token, signer.signature.value).map(Some);
    }
    let Some(value) = signer.unsigned_attributes.one(oid::COUNTERSIGNATURE)? else { return Ok(None) };
    let counter = SignerInfo::parse(value)?;
    // PKCS #9, 5.6: signed is the signature, without tag and length; the certificates are those of the catalog.
    let (certificate, _) = verified(&counter, signer.signature.value, None, certificates)?;
    let time = claimed_time(&counter)?.ok_or(SignatureError::NoTime)?;
    Ok(Some(Countersignature { time, certificate, certificates: certificates.to_vec() }))
}

/// A timestamp token. Source: RFC 3161, 2.4.2.
fn timestamp<'a>(token: Element<'a>, signature: &[u8]) -> Result<Countersignature<'a>, SignatureError> {
    let data = SignedData::parse(token)?;
    let signer = only(&data.signers)?;
    if data.content_type != oid::TST_INFO || data.content.tag != Tag::OctetString {
        return Err(data.content.wrong("no TSTInfo".to_owned()).into());
    }
    let (certificate, _) = verified(signer, data.content.value, Some(data.content_type), &data.certificates)?;
    let mut info = data.content.children("TSTInfo").expect(Tag::Sequence)?.children("TSTInfo");
    info.expect(Tag::Integer)?;
    info.expect(Tag::ObjectIdentifier)?;
    let mut imprint = info.expect(Tag::Sequence)?.children("messageImprint");
    let algorithm = known_hash(cms::algorithm(&mut imprint)?)?;
    if algorithm.of(signature).as_ref() != imprint.expect(Tag::OctetString)?.value {
        return Err(SignatureError::OtherTimestamp);
    }
    info.expect(Tag::Integer)?;
    let time = info.expect(Tag::GeneralizedTime)?.time()?;
    Ok(Countersignature { time, certificate, certificates: data.certificates })
}

fn only<'b, 'a>(signers: &'b [SignerInfo<'a>]) -> Result<&'b SignerInfo<'a>, SignatureError> {
    match signers {
        [one] => Ok(one),
        _ => Err(SignatureError::Signers { count: signers.len() }),
    }
}

/// The certificate of a signer whose signature of `content` is right, and the hash that was signed.
fn verified<'a>(
    signer: &SignerInfo<'a>,
    content: &[u8],
    content_type: Option<ObjectIdentifier>,
    certificates: &[Element<'a>],
) -> Result<(Certificate<'a>, Algorithm), SignatureError> {
    let certificate = certificates
        .iter()
        .filter_map(|certificate| Certificate::parse(certificate.whole))
        .find(|certificate| certificate.is_of(&signer.sid))
        .ok_or(SignatureError::NoCertificate)?;
    let name = || certificate.identity().name;
    let attribute = |kind, tag| match signer.signed_attributes.one(kind) {
        Ok(Some(value)) if value.tag == tag => Ok(value),
        Ok(_) => Err(SignatureError::NoAttributes),
        Err(e) => Err(e.into()),
    };
    let digest = known_hash(signer.digest)?;
    if attribute(oid::MESSAGE_DIGEST, Tag::OctetString)?.value != digest.of(content).as_ref() {
        return Err(SignatureError::Altered { signer: name() });
    }
    // A countersignature need not tell that its content is a signature.
    if let Some(expected) = content_type
        && attribute(oid::CONTENT_TYPE, Tag::ObjectIdentifier)?.oid()? != expected
    {
        return Err(SignatureError::NoAttributes);
    }
    if signer.signature_algorithm == oid::RSA_PSS {
        return Err(SignatureError::Unsupported { what: "RSASSA-PSS".to_owned() });
    }
    let algorithm = key_algorithm(&certificate, digest)?;
    algorithms::UnparsedPublicKey::new(algorithm, certificate.key())
        .verify(&signer.signed_bytes, signer.signature.value)
        .map_err(|_| SignatureError::Wrong { signer: name() })?;
    Ok((certificate, digest))
}

fn known_hash(identifier: ObjectIdentifier) -> Result<Algorithm, SignatureError> {
    cms::hash(identifier).ok_or_else(|| SignatureError::Unsupported { what: format!("hash {identifier}") })
}

fn key_algorithm(
    certificate: &Certificate<'_>,
    digest: Algorithm,
) -> Result<&'static dyn algorithms::VerificationAlgorithm, SignatureError> {
    let (key, curve) = certificate.key_algorithm();
    Ok(match (key, curve, digest) {
        // Only for what was signed long ago: 1024 bits and SHA-1 are no longer safe.
        (oid::RSA, _, Algorithm::Sha1) => &algorithms::RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
        (oid::RSA, _, Algorithm::Sha256) => &algorithms::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
        (oid::RSA, _, Algorithm::Sha384) => &algorithms::RSA_PKCS1_2048_8192_SHA384,
        (oid::RSA, _, Algorithm::Sha512) => &algorithms::RSA_PKCS1_2048_8192_SHA512,
        (oid::EC, Some(oid::P256), Algorithm::Sha256) => &algorithms::ECDSA_P256_SHA256_ASN1,
        (oid::EC, Some(oid::P256), Algorithm::Sha384) => &algorithms::ECDSA_P256_SHA384_ASN1,
        (oid::EC, Some(oid::P384), Algorithm::Sha256) => &algorithms::ECDSA_P384_SHA256_ASN1,
        (oid::EC, Some(oid::P384), Algorithm::Sha384) => &algorithms::ECDSA_P384_SHA384_ASN1,
        _ => {
            return Err(SignatureError::Unsupported { what: format!("a key of type {key}, with {digest}") });
        }
    })
}

/// Whether a certificate was for `purpose` and valid at a time, and the trusted root that it leads to, if roots were
/// given.
fn judge_certificate(
    certificate: &Certificate<'_>,
    certificates: &[Element<'_>],
    purpose: Purpose,
    at: OffsetDateTime,
    countersigned: bool,
    judge: Judge<'_>,
) -> Result<Option<String>, SignatureError> {
    let signer = certificate.identity();
    if !certificate.is_for(purpose) {
        return Err(SignatureError::Purpose { signer: signer.name, purpose });
    }
    if at < signer.not_before || at > signer.not_after {
        return Err(SignatureError::NotValid { signer: Box::new(signer), at, countersigned });
    }
    let Some(roots) = judge.roots else { return Ok(None) };
    let others: Vec<&[u8]> = certificates.iter().map(|certificate| certificate.whole).collect();
    match roots.judge(certificate.bytes(), &others, at, purpose) {
        Ok(root) => Ok(Some(root)),
        Err(error) => Err(SignatureError::Untrusted { signer: signer.name, error }),
    }
}

/// What a signer says about the time.
fn claimed_time(signer: &SignerInfo<'_>) -> Result<Option<OffsetDateTime>, SignatureError> {
    match signer.signed_attributes.one(oid::SIGNING_TIME)? {
        Some(value) => Ok(Some(value.time()?)),
        None => Ok(None),
    }
}

fn day(time: &OffsetDateTime) -> time::Date {
    time.date()
}

pub(super) fn rfc3339<S: serde::Serializer>(time: &OffsetDateTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&time.format(&Rfc3339).map_err(serde::ser::Error::custom)?)
}

fn maybe_rfc3339<S: serde::Serializer>(
    time: &Option<OffsetDateTime>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => rfc3339(time, serializer),
        None => serializer.serialize_none(),
    }
}
