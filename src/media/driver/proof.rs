//! Whether the files of a driver package are those that its catalog vouches for.

use std::collections::BTreeMap;
use std::{fmt, io};

use serde::Serialize;
use thiserror::Error;

use super::authenticode::authenticode;
use super::catalog::{Catalog, CatalogError};
use super::digest::{Algorithm, FileDigest, FileDigests};
use super::inf::{DriverVer, Inf, InfError};
use super::signature::{Judge, Signature, SignatureError};
use crate::io::ReadAt;

/// The largest file of a package that is hashed, in bytes: virtio-win's drivers have under one megabyte.
pub const MAX_DRIVER_FILE: u64 = 64 << 20;

/// A file of a driver's folder.
#[derive(Clone, Copy)]
pub struct FolderFile<'a> {
    /// Its path within the folder, with `/` or `\` between its parts; case does not count.
    pub name: &'a str,
    /// What it holds.
    pub bytes: &'a dyn ReadAt,
}

/// A driver package whose files are all as its catalog has them, and whose catalog is signed rightly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Proof {
    /// The name of the INF.
    pub inf: String,
    /// The date and version that it has.
    pub driver_ver: Option<DriverVer>,
    /// The name of the catalog.
    pub catalog: String,
    /// What the catalog says it is for: `v100_X64_24H2`, say.
    pub os: Option<String>,
    /// The INF and the files it names, each with the hash by which the catalog has it.
    pub files: Vec<ProvedFile>,
    /// Who signed the catalog, and when.
    pub signature: Signature,
}

/// A file that is a member of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProvedFile {
    /// Its name in the folder.
    pub name: String,
    /// Its hash: a PE file's Authenticode hash, any other's hash of all bytes.
    pub digest: FileDigest,
}

/// A driver package that is not proved.
#[derive(Debug, Error)]
pub struct ProofError {
    /// The name of the INF.
    pub inf: String,
    /// At least one.
    pub failures: Vec<Failure>,
}

/// What is wrong with one file of a package.
#[derive(Debug, Error)]
#[error("{file}: {reason}")]
pub struct Failure {
    /// Its name in the folder, or in the INF where the folder does not have it.
    pub file: String,
    /// What is wrong.
    pub reason: Reason,
}

/// Why a file is no part of a proof.
#[derive(Debug, Error)]
pub enum Reason {
    /// The INF names it, and it is not there.
    #[error("missing: {inf} names it")]
    Missing {
        /// The INF.
        inf: String,
    },
    /// The folder has several names that Windows cannot tell apart.
    #[error("there are several files of this name, with upper and lower case mixed")]
    Ambiguous,
    /// The catalog has a file of this name, and another hash.
    #[error("altered: {catalog} has another hash for it")]
    Altered {
        /// The catalog.
        catalog: String,
    },
    /// The catalog has neither its hash nor its name.
    #[error("not in the catalog {catalog}: it was altered, or is of another package")]
    NotMember {
        /// The catalog.
        catalog: String,
    },
    /// The INF names no catalog.
    #[error("it names no catalog (CatalogFile) for {architecture}: nobody vouches for the package")]
    NoCatalog {
        /// The processor.
        architecture: String,
    },
    /// No driver has files of this size.
    #[error("it has {size} bytes; no more than {most} are read")]
    TooLarge {
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        most: u64,
    },
    /// It is no INF.
    #[error(transparent)]
    Inf(#[from] InfError),
    /// It is no catalog.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// Its signature does not hold.
    #[error("signature: {0}")]
    Signature(#[from] SignatureError),
    /// It cannot be read, or its headers contradict each other.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Proof {
    /// Whether the proof rests on SHA-1 somewhere, which Windows 10 and later do not take for new drivers.
    pub fn is_weak(&self) -> bool {
        let by_sha1 = |file: &ProvedFile| file.digest.algorithm() == Algorithm::Sha1;
        self.signature.digest == Algorithm::Sha1 || self.files.iter().any(by_sha1)
    }
}

/// Every INF of a folder, in the order of their names, with the files that it names for a processor (`amd64`, say).
///
/// A package is proved when the INF names a catalog that is there and is rightly signed, and when the INF and every
/// file that it names are there and members of the catalog by hash. Files that no INF names do not matter.
pub fn prove(
    folder: &[FolderFile<'_>],
    architecture: &str,
    judge: Judge<'_>,
) -> Vec<Result<Proof, ProofError>> {
    let folder = Folder::new(folder);
    let infs = folder.files.iter().filter(|(name, _)| name.ends_with(".inf") && !name.contains('/'));
    infs.map(|(name, found)| {
        let shown = found.first().map_or(name.as_str(), |file| file.name).to_owned();
        let mut failures = Vec::new();
        match package(&folder, &shown, architecture, judge, &mut failures) {
            Some(proof) if failures.is_empty() => Ok(proof),
            _ => Err(ProofError { inf: shown, failures }),
        }
    })
    .collect()
}

/// The files by their names in lower case, with `/`.
struct Folder<'a> {
    files: BTreeMap<String, Vec<FolderFile<'a>>>,
}

impl<'a> Folder<'a> {
    fn new(list: &[FolderFile<'a>]) -> Self {
        let mut files: BTreeMap<String, Vec<FolderFile<'a>>> = BTreeMap::new();
        for file in list {
            files.entry(key(file.name)).or_default().push(*file);
        }
        Self { files }
    }

    /// The file, if there is just one of that name and it is no larger than `most` bytes.
    fn get(&self, name: &str, inf: &str, most: u64) -> Result<FolderFile<'a>, Failure> {
        let fail = |reason| Failure { file: name.to_owned(), reason };
        match self.files.get(&key(name)).map(Vec::as_slice) {
            Some([file]) if file.bytes.size() > most => {
                Err(fail(Reason::TooLarge { size: file.bytes.size(), most }))
            }
            Some([file]) => Ok(*file),
            Some([_, ..]) => Err(fail(Reason::Ambiguous)),
            _ => Err(fail(Reason::Missing { inf: inf.to_owned() })),
        }
    }
}

fn key(name: &str) -> String {
    name.replace('\\', "/").to_lowercase()
}

/// The proof, unless something is wrong: then that is added to `failures`.
fn package(
    folder: &Folder<'_>,
    inf_name: &str,
    architecture: &str,
    judge: Judge<'_>,
    failures: &mut Vec<Failure>,
) -> Option<Proof> {
    let mut note = |file: &str, reason: Reason| failures.push(Failure { file: file.to_owned(), reason });
    let inf_file = match folder.get(inf_name, inf_name, Inf::MAX_SIZE) {
        Ok(file) => file,
        Err(failure) => {
            failures.push(failure);
            return None;
        }
    };
    let inf = match whole(inf_file.bytes).map_err(Reason::from).and_then(|bytes| Ok(Inf::parse(&bytes)?)) {
        Ok(inf) => inf,
        Err(reason) => {
            note(inf_name, reason);
            return None;
        }
    };
    let Some(catalog_name) = inf.catalog(architecture) else {
        note(inf_name, Reason::NoCatalog { architecture: architecture.to_owned() });
        return None;
    };
    let catalog_file = match folder.get(catalog_name, inf_name, Catalog::MAX_SIZE) {
        Ok(file) => file,
        Err(failure) => {
            failures.push(failure);
            return None;
        }
    };
    let bytes = match whole(catalog_file.bytes) {
        Ok(bytes) => bytes,
        Err(e) => {
            note(catalog_name, e.into());
            return None;
        }
    };
    let catalog = match Catalog::parse(&bytes) {
        Ok(catalog) => catalog,
        Err(e) => {
            note(catalog_name, e.into());
            return None;
        }
    };
    // All that is wrong is told, not only the first.
    let signature = catalog.verify(judge).map_err(|e| note(catalog_name, e.into())).ok();
    let mut files = Vec::new();
    let named = inf.files_for(architecture).map(|file| (file.path.as_str(), MAX_DRIVER_FILE));
    for (name, most) in std::iter::once((inf_name, Inf::MAX_SIZE)).chain(named) {
        // Windows does not ask a catalog for itself.
        if key(name) == key(catalog_name) {
            continue;
        }
        let proved = folder.get(name, inf_name, most).and_then(|file| {
            member(&catalog, catalog_name, &file)
                .map(|digest| ProvedFile { name: file.name.to_owned(), digest })
                .map_err(|reason| Failure { file: file.name.to_owned(), reason })
        });
        match proved {
            Ok(file) => files.push(file),
            Err(failure) => failures.push(failure),
        }
    }
    Some(Proof {
        inf: inf_name.to_owned(),
        driver_ver: inf.driver_ver,
        catalog: catalog_name.to_owned(),
        os: catalog.os().map(str::to_owned),
        files,
        signature: signature?,
    })
}

/// The hash by which the catalog has a file: SHA-256, or where it has only that, SHA-1.
fn member(catalog: &Catalog<'_>, catalog_name: &str, file: &FolderFile<'_>) -> Result<FileDigest, Reason> {
    let FileDigests { sha256, sha1 } = match authenticode(file.bytes)? {
        Some(digests) => digests,
        None => FileDigests::flat(file.bytes)?,
    };
    if let Some(digest) = [sha256, sha1].into_iter().find(|digest| catalog.has(digest)) {
        return Ok(digest);
    }
    let name = key(file.name);
    let name = name.rsplit('/').next().unwrap_or(&name);
    let catalog_name = catalog_name.to_owned();
    let is_named =
        |member: &super::Member| member.file.as_ref().is_some_and(|file| file.to_lowercase() == name);
    Err(if catalog.members.iter().any(is_named) {
        Reason::Altered { catalog: catalog_name }
    } else {
        Reason::NotMember { catalog: catalog_name }
    })
}

/// All bytes of a file whose size has been checked.
fn whole(file: &dyn ReadAt) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(file.size()).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// One line for each failure.
impl fmt::Display for ProofError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the driver package {} is not proved", self.inf)?;
        self.failures.iter().try_for_each(|failure| write!(f, "\n  {failure}"))
    }
}
