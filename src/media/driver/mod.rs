//! Drivers on a medium: what an INF says, and whether the catalog beside it vouches for the files.

mod inf;

pub use inf::{
    CatalogName, DriverDate, DriverVer, DriverVersion, DriverVersionError, Inf, InfError, PackageFile,
};
