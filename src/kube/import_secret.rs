//! The Secret that CDI's registry import reads.

use std::io::Write;
use std::path::Path;

use thiserror::Error;

use super::docker_config::RegistryLogin;
use super::secret::{Secret, SecretName, json};
use crate::io::{NewFile, NewPathError, Privacy};

/// Why there is no import Secret.
#[derive(Debug, Error)]
pub enum ImportSecretError {
    /// The file can't be made.
    #[error(transparent)]
    Path(#[from] NewPathError),
    /// JSON can't be made; it says nothing of the values.
    #[error("the Secret can't be written as JSON")]
    Json(#[source] serde_json::Error),
    /// The file can't be filled.
    #[error("the Secret can't be written")]
    Write(#[source] std::io::Error),
}

/// Writes a new file, 0600: an Opaque Secret with `accessKeyId` and `secretKey` in `stringData`.
///
/// CDI reads these two keys, and no `.dockerconfigjson`.
pub fn write_import_secret(
    file: &Path,
    name: &SecretName,
    login: &RegistryLogin,
) -> Result<(), ImportSecretError> {
    let secret =
        Secret::opaque(name, [("accessKeyId", login.user.as_str()), ("secretKey", login.password.as_str())]);
    let secret = json(&secret).map_err(ImportSecretError::Json)?;
    let mut new = NewFile::create(file, Privacy::Secret)?;
    new.write_all(&secret).map_err(ImportSecretError::Write)?;
    Ok(new.finish()?)
}
