//! `render-import-secret`: registry credentials for CDI's import.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Serialize;
use zeroize::Zeroizing;

use super::{Classify, Console, Exit, Failure};
use crate::kube::{
    DnsLabel, DockerConfigError, ImportSecretError, RegistryName, SecretName, find_login, write_import_secret,
};

/// Render the Secret that CDI's registry import needs.
///
/// Takes the user and password of one registry from docker's config.json or podman's auth.json and writes an
/// Opaque Secret with accessKeyId and secretKey (as stringData) to a new file, mode 0600. Logins that are kept
/// in a credential store, and identity tokens, can't be used. No secret is printed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The auth file.
    #[arg(long, value_name = "FILE")]
    docker_config: PathBuf,
    /// The registry: HOST, HOST:PORT or HOST/PATH.
    #[arg(long, value_name = "HOST")]
    registry: RegistryName,
    /// Namespace of the Secret.
    #[arg(long, default_value = "default", value_name = "NAME")]
    namespace: DnsLabel,
    /// Name of the Secret.
    #[arg(long, default_value = "registry-import", value_name = "NAME")]
    name: DnsLabel,
    /// The file to make; it must not exist.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Print what was made as JSON, without the login.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    path: &'a Path,
    namespace: &'a str,
    name: &'a str,
}

/// Runs the command.
pub fn run(args: Args, console: &Console) -> Result<(), Failure> {
    let config = read(&args.docker_config)
        .map_err(|e| Failure::new(Exit::Failed, e.to_string()).context(args.docker_config.display()))?;
    let login = find_login(&config, &args.registry)
        .map_err(|e| Failure::from(e).context(args.docker_config.display()))?;
    let name = SecretName { namespace: args.namespace, name: args.name };
    write_import_secret(&args.output, &name, &login)?;
    if args.json {
        let (namespace, name) = (name.namespace.as_str(), name.name.as_str());
        console.json(&Report { path: &args.output, namespace, name });
    } else {
        console.result(format!(
            "{}: Secret {}/{} for {}\n",
            args.output.display(),
            name.namespace,
            name.name,
            args.registry
        ));
    }
    Ok(())
}

/// An auth file holds a line or two a registry; what is longer is something else, and is cut off here.
const MAX_CONFIG: u64 = 4 << 20;

fn read(file: &Path) -> std::io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::new());
    File::open(file)?.take(MAX_CONFIG).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Classify for DockerConfigError {
    fn exit(&self) -> Exit {
        Exit::Rejected
    }

    fn cure(&self) -> Option<String> {
        match self {
            Self::CredentialStore { .. } => Some(
                "make a file that holds the login: skopeo login --authfile FILE HOST, or podman login --authfile"
                    .to_owned(),
            ),
            Self::Token { .. } => Some("log in with a password or an access token instead".to_owned()),
            _ => None,
        }
    }
}

impl Classify for ImportSecretError {
    fn exit(&self) -> Exit {
        match self {
            Self::Path(error) => error.exit(),
            Self::Json(_) | Self::Write(_) => Exit::Failed,
        }
    }
}
