//! Drivers on a medium: what an INF says, and whether the catalog beside it vouches for the files.

mod asn1;
mod authenticode;
mod catalog;
mod certificate;
mod cms;
mod digest;
mod inf;
mod known_bad;
mod oid;
mod proof;
mod signature;
mod trust;

pub use authenticode::authenticode;
pub use catalog::{Catalog, CatalogError, Member};
pub use certificate::Identity;
pub use digest::{Algorithm, FileDigest, FileDigests};
pub use inf::{
    CatalogName, DriverDate, DriverVer, DriverVerError, DriverVersion, DriverVersionError, Inf, InfError,
    PackageFile,
};
pub use known_bad::{KnownBad, known_bad};
pub use proof::{Failure, FolderFile, MAX_DRIVER_FILE, Proof, ProofError, ProvedFile, Reason, prove};
pub use signature::{Chain, Judge, Signature, SignatureError, SigningTime};
pub use trust::{ChainError, Purpose, TrustRoots, TrustRootsError};
