//! What the cluster reads: Secrets and other manifests.

mod bootstrap;
mod dns_label;
mod docker_config;
mod import_secret;
mod secret;

pub use bootstrap::{BootstrapError, CREDENTIALS_FILE, SECRET_FILE, write_bootstrap};
pub use dns_label::{DnsLabel, DnsLabelError};
pub use docker_config::{DockerConfigError, RegistryLogin, RegistryName, RegistryNameError, find_login};
pub use import_secret::{ImportSecretError, write_import_secret};
pub use secret::{Secret, SecretName};
