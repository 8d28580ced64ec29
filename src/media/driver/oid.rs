//! The object identifiers of catalogs and signatures.

use der::asn1::ObjectIdentifier;

const fn oid(text: &str) -> ObjectIdentifier {
    ObjectIdentifier::new_unwrap(text)
}

// RFC 5652.
pub(super) const SIGNED_DATA: ObjectIdentifier = oid("1.2.840.113549.1.7.2");
pub(super) const CONTENT_TYPE: ObjectIdentifier = oid("1.2.840.113549.1.9.3");
pub(super) const MESSAGE_DIGEST: ObjectIdentifier = oid("1.2.840.113549.1.9.4");
pub(super) const SIGNING_TIME: ObjectIdentifier = oid("1.2.840.113549.1.9.5");
pub(super) const COUNTERSIGNATURE: ObjectIdentifier = oid("1.2.840.113549.1.9.6");
// RFC 3161, and where Microsoft puts its tokens.
pub(super) const TST_INFO: ObjectIdentifier = oid("1.2.840.113549.1.9.16.1.4");
pub(super) const TIMESTAMP_TOKEN: ObjectIdentifier = oid("1.3.6.1.4.1.311.3.3.1");

// wincrypt.h, mscat.h, wintrust.h: certificate trust lists, and how catalogs use them.
pub(super) const CTL: ObjectIdentifier = oid("1.3.6.1.4.1.311.10.1");
pub(super) const CATALOG_LIST: ObjectIdentifier = oid("1.3.6.1.4.1.311.12.1.1");
pub(super) const NAME_VALUE: ObjectIdentifier = oid("1.3.6.1.4.1.311.12.2.1");
pub(super) const INDIRECT_DATA: ObjectIdentifier = oid("1.3.6.1.4.1.311.2.1.4");

// RFC 5280, and what Microsoft certifies drivers with: WHQL, attestation, Windows' own parts.
pub(super) const CODE_SIGNING: ObjectIdentifier = oid("1.3.6.1.5.5.7.3.3");
pub(super) const TIME_STAMPING: ObjectIdentifier = oid("1.3.6.1.5.5.7.3.8");
pub(super) const ANY_PURPOSE: ObjectIdentifier = oid("2.5.29.37.0");
pub(super) const WHQL: ObjectIdentifier = oid("1.3.6.1.4.1.311.10.3.5");
pub(super) const ATTESTED: ObjectIdentifier = oid("1.3.6.1.4.1.311.10.3.5.1");
pub(super) const WINDOWS_COMPONENT: ObjectIdentifier = oid("1.3.6.1.4.1.311.10.3.6");

// Hashes, keys, curves.
pub(super) const SHA1: ObjectIdentifier = oid("1.3.14.3.2.26");
pub(super) const SHA256: ObjectIdentifier = oid("2.16.840.1.101.3.4.2.1");
pub(super) const SHA384: ObjectIdentifier = oid("2.16.840.1.101.3.4.2.2");
pub(super) const SHA512: ObjectIdentifier = oid("2.16.840.1.101.3.4.2.3");
pub(super) const RSA: ObjectIdentifier = oid("1.2.840.113549.1.1.1");
pub(super) const EC: ObjectIdentifier = oid("1.2.840.10045.2.1");
pub(super) const P256: ObjectIdentifier = oid("1.2.840.10045.3.1.7");
pub(super) const P384: ObjectIdentifier = oid("1.3.132.0.34");
pub(super) const RSA_PSS: ObjectIdentifier = oid("1.2.840.113549.1.1.10");
