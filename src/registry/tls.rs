//! Whom to trust: the system's roots, and the authorities of a `--ca` file beside them.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use reqwest::Certificate;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;

/// A bundle of every public root is a quarter of this.
const MAX_CA_FILE: u64 = 1 << 20;

/// Why certificates can't be used.
#[derive(Debug, Error)]
pub enum CaError {
    /// The file can't be read.
    #[error("the CA file {} can't be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file holds no certificate.
    #[error("{} holds no certificate: it must be PEM, with one or more BEGIN CERTIFICATE blocks", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A block of the file is no certificate.
    #[error("{}, certificate {number}: {why}", path.display())]
    Bad {
        /// The file.
        path: PathBuf,
        /// Which block, from 1.
        number: usize,
        /// What is wrong with it.
        why: String,
    },
    /// Neither the system nor a file names an authority.
    #[error(
        "this machine has no system CA certificates: install them, or give the registry's authority with --ca FILE"
    )]
    NoRoots {
        /// What the TLS library says.
        source: reqwest::Error,
    },
}

/// The certificates of a PEM file; every one is looked at, so that a bad one is named and not skipped.
pub(super) fn read_ca(path: &Path) -> Result<Vec<Certificate>, CaError> {
    let unreadable = |source| CaError::Read { path: path.into(), source };
    let mut pem = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    let read = file.take(MAX_CA_FILE + 1).read_to_end(&mut pem).map_err(unreadable)?;
    if read as u64 > MAX_CA_FILE {
        return Err(unreadable(io::Error::new(io::ErrorKind::FileTooLarge, "more than 1 MiB")));
    }
    let mut roots = RootCertStore::empty();
    let mut certificates = Vec::new();
    for (index, block) in CertificateDer::pem_slice_iter(&pem).enumerate() {
        let bad = |why: String| CaError::Bad { path: path.into(), number: index + 1, why };
        let der = block.map_err(|e| bad(e.to_string()))?;
        roots.add(der.clone()).map_err(|e| bad(e.to_string()))?;
        certificates.push(Certificate::from_der(&der).map_err(|e| bad(e.to_string()))?);
    }
    if certificates.is_empty() { Err(CaError::Empty { path: path.into() }) } else { Ok(certificates) }
}

/// Chooses the TLS library's cryptography; a second call changes nothing.
pub(super) fn install_provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_useless_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let said = |content: &str| {
            std::fs::write(&path, content).unwrap();
            read_ca(&path).unwrap_err().to_string()
        };
        for nothing in ["", "garbage\n", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
            let error = said(nothing);
            assert!(error.contains("ca.pem") && error.contains("no certificate"), "{error}");
        }
        for bad in ["AAAA", "!!!!"] {
            let error = said(&format!("-----BEGIN CERTIFICATE-----\n{bad}\n-----END CERTIFICATE-----\n"));
            assert!(error.contains("ca.pem, certificate 1"), "{error}");
        }
        let error = said("-----BEGIN CERTIFICATE-----\nAAAA\n");
        assert!(error.contains("ca.pem"), "{error}");
        let error = said(&"x".repeat(2 << 20));
        assert!(error.contains("ca.pem"), "{error}");
        assert!(read_ca(&folder.path().join("none")).unwrap_err().to_string().contains("none"));
    }
}
