//! CMS (PKCS#7) SignedData: what catalogs, and the timestamps in them, are wrapped in.
//!
//! The bytes that are signed are kept as they are in the file. The `cms` crate, which decodes and encodes them
//! anew, gives up on all of a catalog for one odd certificate in it, and its release for today's `der` is not out.
//! Source: RFC 5652, and for content that is no OCTET STRING, RFC 2315.

use der::Tag;
use der::asn1::ObjectIdentifier;

use super::asn1::{Element, Elements, context, context_primitive};
use super::catalog::CatalogError;
use super::digest::Algorithm;
use super::oid;

/// Catalogs have three to ten.
const MAX_CERTIFICATES: usize = 64;
/// Catalogs have one.
const MAX_SIGNERS: usize = 8;
/// Attributes of a signer: about five.
const MAX_ATTRIBUTES: usize = 64;

/// What is signed, by whom, and the certificates that came along.
#[derive(Debug)]
pub(super) struct SignedData<'a> {
    pub content_type: ObjectIdentifier,
    /// The structure that is signed; its value (without tag and length) is what the signature covers.
    pub content: Element<'a>,
    pub certificates: Vec<Element<'a>>,
    pub signers: Vec<SignerInfo<'a>>,
}

/// One signature.
#[derive(Debug)]
pub(super) struct SignerInfo<'a> {
    pub sid: SignerId<'a>,
    pub digest: ObjectIdentifier,
    /// As in the file, but for its tag.
    pub signed_attributes: Attributes<'a>,
    /// The signed attributes as they are signed: `SET OF`.
    pub signed_bytes: Vec<u8>,
    pub signature_algorithm: ObjectIdentifier,
    pub signature: Element<'a>,
    pub unsigned_attributes: Attributes<'a>,
}

/// Which certificate the signer has.
#[derive(Debug)]
pub(super) enum SignerId<'a> {
    /// The bytes of both, as encoded.
    IssuerAndSerial { issuer: &'a [u8], serial: &'a [u8] },
    /// The value of its extension.
    KeyIdentifier(&'a [u8]),
}

/// A `SET OF Attribute`.
#[derive(Debug, Default)]
pub(super) struct Attributes<'a>(Vec<(ObjectIdentifier, Element<'a>)>);

impl<'a> SignedData<'a> {
    /// A `ContentInfo` with it.
    pub fn parse(outer: Element<'a>) -> Result<Self, CatalogError> {
        let mut info = outer.children("ContentInfo");
        let kind = info.expect(Tag::ObjectIdentifier)?;
        if kind.oid()? != oid::SIGNED_DATA {
            return Err(kind.wrong(format!("content of type {}, where SignedData belongs", kind.oid()?)));
        }
        let data = info.expect(context(0))?.children("ContentInfo").expect(Tag::Sequence)?;
        let mut data = data.children("SignedData");
        data.expect(Tag::Integer)?;
        data.expect(Tag::Set)?;
        let mut encapsulated = data.expect(Tag::Sequence)?.children("SignedData content");
        let content_type = encapsulated.expect(Tag::ObjectIdentifier)?.oid()?;
        let content = encapsulated.expect(context(0))?.children("SignedData content").any()?;
        let mut certificates = Vec::new();
        if let Some(set) = data.optional(context(0))? {
            let mut set = set.children("certificates");
            while let Some(certificate) = set.next()? {
                if certificates.len() == MAX_CERTIFICATES {
                    return Err(certificate.wrong(format!("more than {MAX_CERTIFICATES} certificates")));
                }
                certificates.push(certificate);
            }
        }
        data.optional(context(1))?;
        let mut set = data.expect(Tag::Set)?.children("signerInfos");
        let mut signers = Vec::new();
        while let Some(signer) = set.next()? {
            if signers.len() == MAX_SIGNERS {
                return Err(signer.wrong(format!("more than {MAX_SIGNERS} signers")));
            }
            signers.push(SignerInfo::parse(signer)?);
        }
        Ok(Self { content_type, content, certificates, signers })
    }
}

impl<'a> SignerInfo<'a> {
    pub fn parse(signer: Element<'a>) -> Result<Self, CatalogError> {
        let mut parts = signer.children("SignerInfo");
        parts.expect(Tag::Integer)?;
        let sid = match parts.optional(context_primitive(0))? {
            Some(identifier) => SignerId::KeyIdentifier(identifier.value),
            None => {
                let mut pair = parts.expect(Tag::Sequence)?.children("issuerAndSerialNumber");
                SignerId::IssuerAndSerial {
                    issuer: pair.expect(Tag::Sequence)?.whole,
                    serial: pair.expect(Tag::Integer)?.value,
                }
            }
        };
        let digest = algorithm(&mut parts)?;
        let signed = parts.optional(context(0))?;
        let signature_algorithm = algorithm(&mut parts)?;
        let signature = parts.expect(Tag::OctetString)?;
        let unsigned = parts.optional(context(1))?;
        // RFC 5652, 5.4: signed is not the [0] that stands in the file, but the SET that it replaces.
        let signed_bytes = signed.map_or(Vec::new(), |signed| {
            let mut bytes = signed.whole.to_vec();
            bytes[0] = 0x31;
            bytes
        });
        Ok(Self {
            sid,
            digest,
            signed_attributes: signed.map(Attributes::parse).transpose()?.unwrap_or_default(),
            signed_bytes,
            signature_algorithm,
            signature,
            unsigned_attributes: unsigned.map(Attributes::parse).transpose()?.unwrap_or_default(),
        })
    }
}

impl<'a> Attributes<'a> {
    fn parse(set: Element<'a>) -> Result<Self, CatalogError> {
        let mut attributes = Vec::new();
        let mut set = set.children("attributes of the signer");
        while let Some(attribute) = set.next()? {
            if attributes.len() == MAX_ATTRIBUTES {
                return Err(attribute.wrong(format!("more than {MAX_ATTRIBUTES} attributes")));
            }
            let mut parts = attribute.children("attribute of the signer");
            let kind = parts.expect(Tag::ObjectIdentifier)?.oid()?;
            attributes.push((kind, parts.expect(Tag::Set)?));
        }
        Ok(Self(attributes))
    }

    /// The only value of the only attribute of that kind.
    pub fn one(&self, kind: ObjectIdentifier) -> Result<Option<Element<'a>>, CatalogError> {
        let mut found = self.0.iter().filter(|(other, _)| *other == kind);
        let Some((_, set)) = found.next() else { return Ok(None) };
        if let Some((_, other)) = found.next() {
            return Err(other.wrong(format!("a second attribute {kind}")));
        }
        let mut values = set.children("attribute of the signer");
        let value = values.any()?;
        if values.rest().is_empty() {
            Ok(Some(value))
        } else {
            Err(set.wrong(format!("several values of {kind}")))
        }
    }
}

/// The identifier of an `AlgorithmIdentifier`; its parameters are of no use here.
pub(super) fn algorithm(parts: &mut Elements<'_>) -> Result<ObjectIdentifier, CatalogError> {
    parts.expect(Tag::Sequence)?.children("AlgorithmIdentifier").expect(Tag::ObjectIdentifier)?.oid()
}

/// A hash, if it is one that is known here.
pub(super) fn hash(identifier: ObjectIdentifier) -> Option<Algorithm> {
    match identifier {
        oid::SHA1 => Some(Algorithm::Sha1),
        oid::SHA256 => Some(Algorithm::Sha256),
        oid::SHA384 => Some(Algorithm::Sha384),
        oid::SHA512 => Some(Algorithm::Sha512),
        _ => None,
    }
}
