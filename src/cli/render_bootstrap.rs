//! `render-bootstrap`: an answer file with credentials of its own.

use std::fs::File;
use std::io::{Read, stdin};
use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, ValueEnum};
use serde::Serialize;
use zeroize::Zeroizing;

use super::{Classify, Console, Exit, Failure};
use crate::answer::{
    Account, AnswerError, CredentialsError, ImageChoice, Install, Locale, Password, System,
    random_computer_name, render_clone, render_install,
};
use crate::io::path_text;
use crate::kube::{BootstrapError, CREDENTIALS_FILE, DnsLabel, SECRET_FILE, SecretName, write_bootstrap};
use crate::windows::{
    AccountName, ComputerName, ImageName, LanguageTag, NameError, PasswordProblem, TimeZone,
};

/// Render an answer file with fresh credentials.
///
/// Makes a new folder (mode 0700) with two files (mode 0600): bootstrap-secret.json, a Kubernetes Secret from
/// which KubeVirt makes the answer CD, and credentials.json with username, password and hostname. Every render
/// differs. No secret is printed.
///
/// The language is en-US and the time zone UTC; a recipe sets others.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// What the answer file is for.
    #[arg(long, value_enum)]
    mode: Mode,
    /// Namespace of the Secret.
    #[arg(long, default_value = "default", value_name = "NAME")]
    namespace: DnsLabel,
    /// Name of the Secret [default: HOSTNAME-bootstrap, in small letters].
    #[arg(long, value_name = "NAME")]
    secret_name: Option<DnsLabel>,
    /// The computer's name [default: KW- and 12 random hex digits].
    #[arg(long, value_name = "NAME")]
    hostname: Option<ComputerName>,
    /// The local administrator's name.
    #[arg(long, default_value = "workspace", value_name = "NAME")]
    username: AccountName,
    /// The exact NAME of the image in the medium's WIM; needed by, and only for, --mode install.
    #[arg(long, value_name = "NAME", required_if_eq("mode", "install"))]
    image_name: Option<ImageName>,
    /// Take the password from FILE, or from standard input for `-`, instead of making one; a newline at its end
    /// is refused.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// The folder to make; it must not exist.
    #[arg(long, value_name = "DIR")]
    output_dir: PathBuf,
    /// Print what was made as JSON, without the password.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// An installation from media.
    Install,
    /// The first boot of a clone.
    Clone,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    #[serde(serialize_with = "path_text")]
    bootstrap_secret: PathBuf,
    #[serde(serialize_with = "path_text")]
    credentials: PathBuf,
    namespace: &'a str,
    secret_name: &'a str,
    hostname: &'a str,
    username: &'a str,
}

/// Runs the command.
pub fn run(args: Args, console: &Console) -> Result<(), Failure> {
    if args.mode == Mode::Clone && args.image_name.is_some() {
        return Err(Failure::new(
            Exit::Usage,
            "--image-name is for --mode install; a clone installs nothing",
        ));
    }
    let computer_name = match args.hostname {
        Some(name) if name.clashes_with(&args.username) => {
            return Err(Failure::new(
                Exit::Usage,
                "--hostname and --username must differ: Windows refuses one name for both",
            ));
        }
        Some(name) => name,
        None => random_computer_name()?,
    };
    let password = match &args.password_file {
        Some(file) => given_password(file, &args.username)
            .map_err(|failure| failure.context(format!("--password-file {}", file.display())))?,
        None => Password::generate(&args.username)?,
    };
    let secret_name = match args.secret_name {
        Some(name) => name,
        None => format!("{computer_name}-bootstrap").to_lowercase().parse().map_err(usage)?,
    };
    let name = SecretName { namespace: args.namespace, name: secret_name };
    let system = System {
        computer_name,
        account: Account { name: args.username, password },
        locale: Locale::of(&"en-US".parse::<LanguageTag>()?),
        time_zone: "UTC".parse::<TimeZone>()?,
    };
    let files = match args.image_name {
        Some(image) => render_install(
            &system,
            &Install { image: ImageChoice::Name(image), product_key: None, driver_folder: "w11".parse()? },
        )?,
        None => render_clone(&system)?,
    };
    console.interrupted()?;
    write_bootstrap(&args.output_dir, &name, &files, &system)?;

    let report = Report {
        bootstrap_secret: args.output_dir.join(SECRET_FILE),
        credentials: args.output_dir.join(CREDENTIALS_FILE),
        namespace: name.namespace.as_str(),
        secret_name: name.name.as_str(),
        hostname: system.computer_name.as_str(),
        username: system.account.name.as_str(),
    };
    if args.json {
        console.json(&report);
    } else {
        console.result(format!(
            "{}: Secret {}/{} for {}\n{}: the password of {}\n",
            report.bootstrap_secret.display(),
            report.namespace,
            report.secret_name,
            report.hostname,
            report.credentials.display(),
            report.username,
        ));
    }
    Ok(())
}

/// A file longer than this is no password file.
const MAX_PASSWORD_FILE: u64 = 4096;

fn given_password(file: &Path, account: &AccountName) -> Result<Password, Failure> {
    let io = |e: std::io::Error| Failure::new(Exit::Failed, format!("it can't be read: {e}"));
    // All of it at once, so that no half of it is left behind in memory by a growing buffer.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_PASSWORD_FILE as usize + 1));
    let read = if file == Path::new("-") {
        stdin().lock().take(MAX_PASSWORD_FILE + 1).read_to_end(&mut bytes)
    } else {
        File::open(file).map_err(io)?.take(MAX_PASSWORD_FILE + 1).read_to_end(&mut bytes)
    }
    .map_err(io)?;
    if read as u64 > MAX_PASSWORD_FILE {
        return Err(Failure::new(
            Exit::Rejected,
            format!("more than {MAX_PASSWORD_FILE} bytes are no password"),
        ));
    }
    let text =
        str::from_utf8(&bytes).map_err(|_| Failure::new(Exit::Rejected, "the password is not UTF-8 text"))?;
    if text.starts_with('\u{feff}') {
        return Err(Failure::new(Exit::Rejected, "it begins with a byte order mark (BOM)")
            .cure("save it as UTF-8 without BOM; nobody types that character"));
    }
    Ok(Password::given(Zeroizing::new(text.to_owned()), account)?)
}

fn usage(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Usage, error.to_string())
}

impl Classify for NameError {
    fn exit(&self) -> Exit {
        Exit::Rejected
    }
}

impl Classify for PasswordProblem {
    fn exit(&self) -> Exit {
        Exit::Rejected
    }
}

impl Classify for CredentialsError {
    fn exit(&self) -> Exit {
        Exit::Failed
    }
}

impl Classify for AnswerError {
    fn exit(&self) -> Exit {
        match self {
            Self::SameName { .. } | Self::Template(_) => Exit::Rejected,
            Self::Write(_) | Self::Changed => Exit::Failed,
        }
    }
}

impl Classify for BootstrapError {
    fn exit(&self) -> Exit {
        match self {
            Self::Path(error) => error.exit(),
            Self::Json(_) => Exit::Failed,
        }
    }
}
