//! Catalogs (`.cat`): the hashes that somebody vouches for, as a signed certificate trust list.
//!
//! ```text
//! CertificateTrustList ::= SEQUENCE {
//!     version            INTEGER DEFAULT 0,
//!     subjectUsage       SEQUENCE OF OBJECT IDENTIFIER,     -- szOID_CATALOG_LIST
//!     listIdentifier     OCTET STRING OPTIONAL,
//!     sequenceNumber     INTEGER OPTIONAL,
//!     thisUpdate         Time,
//!     nextUpdate         Time OPTIONAL,
//!     subjectAlgorithm   AlgorithmIdentifier,
//!     trustedSubjects    SEQUENCE OF SEQUENCE { OCTET STRING, SET OF Attribute } OPTIONAL,
//!     extensions         [0] EXPLICIT SEQUENCE OF Extension OPTIONAL }
//! ```
//! A subject is a member. Its attribute SpcIndirectData has the hash; its name for itself (the hash as hexadecimal
//! digits in UTF-16, or the hash's bytes) is only what Windows looks it up by. Sources: wincrypt.h, mscat.h, and
//! "Windows Authenticode Portable Executable Signature Format" for SpcIndirectData.

use std::collections::BTreeSet;

use der::Tag;
use thiserror::Error;
use time::OffsetDateTime;

use super::asn1::{Element, Elements, context};
use super::cms::{self, SignedData};
use super::digest::{Algorithm, FileDigest};
use super::oid;

/// Windows' own catalogs have up to some 30,000.
const MAX_MEMBERS: usize = 100_000;
/// Of the catalog: drivers' have under ten, and one for each hardware ID.
const MAX_ATTRIBUTES: usize = 10_000;

/// A catalog, taken apart; whether its signature is right is told by [`Catalog::verify`].
#[derive(Debug)]
pub struct Catalog<'a> {
    /// When it was made, as its maker says.
    pub made: OffsetDateTime,
    /// In the order of the catalog.
    pub members: Vec<Member>,
    /// Named texts of the catalog as a whole: `OS`, `HWID1` and so on.
    pub attributes: Vec<(String, String)>,
    digests: BTreeSet<FileDigest>,
    pub(super) signed: SignedData<'a>,
}

/// A file that the catalog vouches for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its hash: of a PE file the Authenticode hash, of any other file that of all its bytes.
    pub digest: FileDigest,
    /// Its name, where the catalog has it. Nothing depends on it.
    pub file: Option<String>,
}

/// Why a file is no catalog. Offsets are in bytes from its beginning.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CatalogError {
    /// Larger than any driver's.
    #[error("the catalog has {size} bytes; more than {} are not read", Catalog::MAX_SIZE)]
    TooLarge {
        /// Its size in bytes.
        size: u64,
    },
    /// Something else than what belongs there.
    #[error("{within}, offset {at}: {found}")]
    Structure {
        /// The structure.
        within: &'static str,
        /// Where, in bytes.
        at: usize,
        /// What was found, and what belongs there.
        found: String,
    },
    /// Signed data, but of another kind: a signature beside a file, say.
    #[error("what is signed is of type {found}, no certificate trust list: this is no catalog")]
    OtherContent {
        /// The object identifier.
        found: String,
    },
    /// A certificate trust list of another use.
    #[error("the certificate trust list is not for catalogs")]
    OtherUse,
}

impl<'a> Catalog<'a> {
    /// The most bytes that a catalog may have: drivers' have some ten kilobytes, Windows' largest a few megabytes.
    pub const MAX_SIZE: u64 = 16 << 20;

    /// Takes a catalog apart.
    ///
    /// # Errors
    /// What is no catalog is told with its place.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, CatalogError> {
        let size = bytes.len() as u64;
        if size > Self::MAX_SIZE {
            return Err(CatalogError::TooLarge { size });
        }
        let mut file = Elements::of_file(bytes, "catalog");
        let signed = SignedData::parse(file.expect(Tag::Sequence)?)?;
        // Padding is harmless, anything else has been attached by somebody.
        if file.rest().iter().any(|byte| *byte != 0) {
            return Err(file.any().map_or_else(|e| e, |e| e.wrong("bytes behind the end".to_owned())));
        }
        if signed.content_type != oid::CTL {
            return Err(CatalogError::OtherContent { found: signed.content_type.to_string() });
        }
        let list = match signed.content.tag {
            // As CMS has it since PKCS#7 became an RFC of its own; Windows writes the list itself.
            Tag::OctetString => signed.content.children("signed content").expect(Tag::Sequence)?,
            _ => signed.content,
        };
        let mut parts = list.children("certificate trust list");
        parts.optional(Tag::Integer)?;
        let mut uses = parts.expect(Tag::Sequence)?.children("subjectUsage");
        if uses.expect(Tag::ObjectIdentifier)?.oid()? != oid::CATALOG_LIST {
            return Err(CatalogError::OtherUse);
        }
        parts.optional(Tag::OctetString)?;
        parts.optional(Tag::Integer)?;
        let made = parts.any()?.time()?;
        for tag in [Tag::UtcTime, Tag::GeneralizedTime] {
            parts.optional(tag)?;
        }
        cms::algorithm(&mut parts)?;
        let members = parts.optional(Tag::Sequence)?.map(members).transpose()?.unwrap_or_default();
        let attributes = parts.optional(context(0))?.map(attributes).transpose()?.unwrap_or_default();
        let digests = members.iter().map(|member| member.digest).collect();
        Ok(Self { made, members, attributes, digests, signed })
    }

    /// Whether a file of that hash is a member.
    pub fn has(&self, digest: &FileDigest) -> bool {
        self.digests.contains(digest)
    }

    /// The Windows releases that the catalog is for, `v100_X64_24H2` say, as one text.
    pub fn os(&self) -> Option<&str> {
        self.attribute("OS")
    }

    /// A named text of the catalog, by its name in any case.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, text)| text.as_str())
    }
}

/// The members that carry a hash of a known kind; one without vouches for nothing.
fn members(list: Element<'_>) -> Result<Vec<Member>, CatalogError> {
    let mut members = Vec::new();
    let mut list = list.children("members");
    while let Some(subject) = list.next()? {
        if members.len() == MAX_MEMBERS {
            return Err(subject.wrong(format!("more than {MAX_MEMBERS} members")));
        }
        let mut parts = subject.children("member");
        parts.expect(Tag::OctetString)?;
        let Some(set) = parts.optional(Tag::Set)? else { continue };
        let mut set = set.children("attributes of a member");
        let (mut digest, mut file) = (None, None);
        while let Some(attribute) = set.next()? {
            let mut parts = attribute.children("attribute of a member");
            let kind = parts.expect(Tag::ObjectIdentifier)?.oid()?;
            let mut values = parts.expect(Tag::Set)?.children("attribute of a member");
            match kind {
                oid::INDIRECT_DATA => digest = indirect_data(values.expect(Tag::Sequence)?)?,
                oid::NAME_VALUE => {
                    let (name, text) = name_value(values.expect(Tag::Sequence)?)?;
                    if name.eq_ignore_ascii_case("File") {
                        file = Some(text);
                    }
                }
                _ => {}
            }
        }
        if let Some(digest) = digest {
            members.push(Member { digest, file });
        }
    }
    Ok(members)
}

/// `SpcIndirectData ::= SEQUENCE { data, messageDigest SEQUENCE { AlgorithmIdentifier, OCTET STRING } }`
fn indirect_data(data: Element<'_>) -> Result<Option<FileDigest>, CatalogError> {
    let mut parts = data.children("SpcIndirectData");
    parts.expect(Tag::Sequence)?;
    let mut info = parts.expect(Tag::Sequence)?.children("messageDigest");
    let algorithm = cms::hash(cms::algorithm(&mut info)?);
    let value = info.expect(Tag::OctetString)?;
    match (algorithm, FileDigest::from_bytes(value.value)) {
        (Some(algorithm), Some(digest)) if digest.algorithm() == algorithm => Ok(Some(digest)),
        (Some(Algorithm::Sha1 | Algorithm::Sha256), _) => {
            Err(value.wrong(format!("{} bytes, which is not the length of the hash", value.value.len())))
        }
        // Longer hashes and MD5 are not used by Windows for this.
        _ => Ok(None),
    }
}

/// The catalog's own named texts: extensions with a `CatNameValue` in an OCTET STRING.
fn attributes(outer: Element<'_>) -> Result<Vec<(String, String)>, CatalogError> {
    let mut attributes = Vec::new();
    let mut list = outer.children("extensions").expect(Tag::Sequence)?.children("extensions");
    while let Some(extension) = list.next()? {
        if attributes.len() == MAX_ATTRIBUTES {
            return Err(extension.wrong(format!("more than {MAX_ATTRIBUTES} attributes")));
        }
        let mut parts = extension.children("extension");
        if parts.expect(Tag::ObjectIdentifier)?.oid()? != oid::NAME_VALUE {
            continue;
        }
        parts.optional(Tag::Boolean)?;
        let value = parts.expect(Tag::OctetString)?;
        attributes.push(name_value(value.children("extension").expect(Tag::Sequence)?)?);
    }
    Ok(attributes)
}

/// `CatNameValue ::= SEQUENCE { BMPString, INTEGER flags, OCTET STRING }`: the text is UTF-16LE, with a zero behind.
fn name_value(pair: Element<'_>) -> Result<(String, String), CatalogError> {
    let mut parts = pair.children("CatNameValue");
    let name = parts.expect(Tag::BmpString)?.value;
    parts.expect(Tag::Integer)?;
    let text = parts.expect(Tag::OctetString)?.value;
    Ok((utf16(name, u16::from_be_bytes), utf16(text, u16::from_le_bytes)))
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
    String::from_utf16_lossy(&units).trim_end_matches('\0').to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    /// SignedData of that type around a content, signed by nobody.
    fn unsigned(content_type: &[u8], content: &[u8]) -> Vec<u8> {
        let tlv = |tag: u8, parts: &[&[u8]]| {
            let value = parts.concat();
            [&[tag, 0x82][..], &(value.len() as u16).to_be_bytes(), &value].concat()
        };
        // DER wants the shortest length: none of these has under 256 bytes.
        let padded = [content, &[0x04, 0x82, 1, 0], &[0; 256]].concat();
        let kind = [&[6, content_type.len() as u8], content_type].concat();
        let encapsulated = tlv(0x30, &[&kind, &tlv(0xa0, &[&padded])]);
        let data = tlv(0x30, &[&[2, 1, 1, 0x31, 0], &encapsulated, &[0x31, 0]]);
        tlv(0x30, &[b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02", &tlv(0xa0, &[&data])])
    }

    const LIST: &[u8] = b"\x2b\x06\x01\x04\x01\x82\x37\x0a\x01";

    #[test]
    fn other_content_is_told() {
        let error = Catalog::parse(&unsigned(b"\x2a\x03", b"")).unwrap_err();
        assert_eq!(error, CatalogError::OtherContent { found: "1.2.3".to_owned() });
        // A list, but of certificates: its use is another one.
        let list = b"\x30\x05\x30\x03\x06\x01\x2a";
        assert_eq!(Catalog::parse(&unsigned(LIST, list)).unwrap_err(), CatalogError::OtherUse);
        let error = Catalog::parse(&unsigned(LIST, b"\x30\x00")).unwrap_err();
        assert!(matches!(error, CatalogError::Structure { within: "certificate trust list", .. }), "{error}");
    }

    proptest! {
        #[test]
        fn arbitrary_lists(content in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Catalog::parse(&content);
            let _ = Catalog::parse(&unsigned(LIST, &content));
            let list = [&[0x30, content.len() as u8 & 0x7f], content.as_slice()].concat();
            let _ = Catalog::parse(&unsigned(LIST, &list));
        }
    }
}
