//! A catalog is a file from a medium, and roots are a file of the operator's. The input is both, one after the other.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealroot::media::driver::{Catalog, Chain, Judge, TrustRoots};
use time::OffsetDateTime;

fuzz_target!(|bytes: &[u8]| {
    let roots_at = bytes.windows(10).position(|part| part == b"-----BEGIN").unwrap_or(bytes.len());
    let (bytes, roots) = bytes.split_at(roots_at);
    let roots = TrustRoots::from_pem(roots).ok();
    let catalog = match Catalog::parse(bytes) {
        Ok(catalog) => catalog,
        Err(e) => return assert!(!e.to_string().is_empty()),
    };
    assert!(catalog.members.iter().all(|member| catalog.has(&member.digest)));
    for roots in [None, roots.as_ref()] {
        match catalog.verify(Judge { roots, now: OffsetDateTime::UNIX_EPOCH }) {
            Ok(signature) => assert_eq!(signature.chain == Chain::NotJudged, roots.is_none()),
            Err(e) => assert!(!e.to_string().is_empty()),
        }
    }
});
