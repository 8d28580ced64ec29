//! Sealroot turns operator-owned Windows media into a private, digest-pinned golden image.
//!
//! The way through, and the module that does each step:
//!
//! | step | what happens | module |
//! |---|---|---|
//! | recipe | one TOML file says what is pinned and what is wanted | [`recipe`] |
//! | verify | every medium is hashed against its pin | [`media`] |
//! | answer | answer files, with credentials made for this one render | [`answer`] |
//! | audit, seal | the root is read offline; sealing yields a small patch | [`root`] |
//! | package | one pass: disk, qcow2, tar, frames, SHA-256 | [`containerdisk`] |
//! | push | upload, verify, and only then a digest | `registry` |
//! | render | what the cluster needs | [`kube`] |
//!
//! Below them lie the formats: bytes ([`io`]), disks and partitions ([`disk`]), [`ntfs`], registry [`hive`]s, disc
//! images ([`iso`]), [`xml`].
//! A module uses only those above it in the list below; `tests/module_order.rs` holds that.
//! Stages return typed results; only `cli` prints.

pub mod io;
pub mod windows;
pub mod xml;

pub mod disk;
pub mod ntfs;

pub mod hive;

pub mod iso;

pub mod media;

pub mod answer;

pub mod root;

pub mod containerdisk;

#[cfg(feature = "registry")]
pub mod registry;

pub mod kube;

pub mod recipe;

#[cfg(feature = "cli")]
pub mod build;

#[cfg(feature = "cli")]
pub mod cli;
