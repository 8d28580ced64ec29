//! The bootstrap folder: an answer CD as a Secret, and the credentials beside it.

use std::path::Path;

use serde::Serialize;
use thiserror::Error;

use super::secret::{Secret, SecretName, json};
use crate::answer::{AnswerFiles, System};
use crate::io::{NewDir, NewPathError, Privacy};

/// The Secret's file in the folder. Each of its values becomes a file on the CD that KubeVirt makes of it.
pub const SECRET_FILE: &str = "bootstrap-secret.json";
/// The credentials' file in the folder. They are in no Secret but the answer file's own.
pub const CREDENTIALS_FILE: &str = "credentials.json";

/// Why there is no bootstrap folder.
#[derive(Debug, Error)]
pub enum BootstrapError {
    /// The folder can't be made.
    #[error(transparent)]
    Path(#[from] NewPathError),
    /// JSON can't be made; it says nothing of the values.
    #[error("the bootstrap files can't be written as JSON")]
    Json(#[source] serde_json::Error),
}

#[derive(Serialize)]
struct Credentials<'a> {
    username: &'a str,
    password: &'a str,
    hostname: &'a str,
}

/// Writes a new folder, 0700, with both files, 0600. It appears whole or not at all.
pub fn write_bootstrap(
    folder: &Path,
    name: &SecretName,
    files: &AnswerFiles,
    system: &System,
) -> Result<(), BootstrapError> {
    let secret = Secret::opaque(name, files.iter().map(|file| (file.name, file.content.as_str())));
    let credentials = Credentials {
        username: system.account.name.as_str(),
        password: system.account.password.expose(),
        hostname: system.computer_name.as_str(),
    };
    let secret = json(&secret).map_err(BootstrapError::Json)?;
    let credentials = json(&credentials).map_err(BootstrapError::Json)?;
    let new = NewDir::create(folder, Privacy::Secret)?;
    new.write(SECRET_FILE, &secret, Privacy::Secret)?;
    new.write(CREDENTIALS_FILE, &credentials, Privacy::Secret)?;
    Ok(new.finish()?)
}
