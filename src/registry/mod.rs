//! Registries: credentials, authentication, upload and verification.
//!
//! [`Registry::open`] takes an [`ImageName`], a [`Credential`] and how to connect. Then either
//! [`Registry::push_layout`] sends a finished OCI layout, or [`Registry::push_layer`] uploads a layer while it is
//! made, and [`Registry::publish`] puts the manifest. A digest is returned only when the registry has served the
//! manifest by it.
//!
//! An upload that fails goes on where the registry has it, or begins again (`upload`). A layer is made again from
//! the frame that holds the byte that is wanted, so that nothing has to be kept for that.
//!
//! The protocol is the OCI distribution specification, version 1.1. All of it goes through one path
//! (`http`): TLS is always verified, credentials are sent to the registry's own origin and to the token
//! server it names, never elsewhere and never over plain HTTP to another machine. Proxy variables of the
//! environment are not read.

mod auth;
mod backoff;
mod blob;
mod blob_stream;
mod connect_failure;
mod content;
mod credentials;
mod error;
mod feed;
mod http;
mod layer;
mod limits;
mod manifest;
mod network;
mod options;
mod promote;
mod push;
mod reference;
mod remote;
mod secret;
mod sink;
mod target;
mod tls;
mod upload;

pub use blob_stream::BlobStream;
pub use connect_failure::ConnectFailure;
pub use credentials::{AuthFiles, Credential, CredentialError};
pub use error::{RegistryError, ServerMessage};
pub use layer::PushLayerError;
pub use limits::Limit;
pub use options::{MAX_CHUNK, MIN_CHUNK, Notice, UploadOptions};
pub use promote::Promoted;
pub use push::{BlobOutcome, Connection, Pushed, Registry};
pub use reference::{ImageName, ReferenceError};
pub use remote::{Remote, RemoteBlob, RemoteImage};
pub use secret::Secret;
pub use sink::{BlobSink, Finish};
pub use tls::CaError;
