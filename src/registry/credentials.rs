//! Who pushes: given by hand, or found where docker and podman keep their logins.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use docker_credential::{CredentialRetrievalError, DockerCredential};
use serde::Deserialize;
use serde::de::IgnoredAny;
use thiserror::Error;
use zeroize::Zeroizing;

use super::{ImageName, Secret};

/// An `Authorization` header longer than this is cut off or refused by common servers (8 KiB in all headers).
const MAX_HEADER: usize = 7 << 10;
/// No login file is anywhere near as large.
const MAX_AUTH_FILE: u64 = 4 << 20;

/// What a registry is told about who pushes.
#[derive(Debug, Clone)]
pub enum Credential {
    /// Nothing is known; public registries may still accept reads.
    Anonymous,
    /// A name and its password, or an access token in its place.
    Password {
        /// The name.
        user: String,
        /// The password.
        password: Secret,
    },
    /// A token that a token server turns into access tokens (OAuth2 refresh token).
    IdentityToken(Secret),
}

/// Why credentials can't be had or used.
#[derive(Debug, Error)]
pub enum CredentialError {
    /// The name can't be sent.
    #[error("the user name won't do: {why}")]
    User {
        /// What is wrong with it.
        why: &'static str,
    },
    /// The password or token can't be sent. It is not shown.
    #[error("the password won't do: {why}")]
    Password {
        /// What is wrong with it.
        why: &'static str,
    },
    /// A login file can't be read.
    #[error("the login file {} can't be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A login file is not in docker's format.
    #[error("{} is not a login file as docker and podman write them: {why}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, for the host asked about.
        why: &'static str,
    },
    /// A credential helper failed. Its output is not shown: it may hold the secret.
    #[error("the credential helper that {} names for {host} failed: {why}", path.display())]
    Helper {
        /// The file that names it.
        path: PathBuf,
        /// The registry asked about.
        host: String,
        /// How it failed.
        why: String,
    },
}

impl Credential {
    /// A name and password given by hand, checked for what a header can carry.
    pub fn password(user: String, password: String) -> Result<Self, CredentialError> {
        let password = Secret::new(password);
        let (user_is, password_is) =
            (|why| CredentialError::User { why }, |why| CredentialError::Password { why });
        if user.is_empty() {
            return Err(user_is("it is empty"));
        }
        if user.contains(':') {
            return Err(user_is("it holds a colon, which basic authentication does not allow"));
        }
        if user.chars().any(char::is_control) {
            return Err(user_is("it holds a control character"));
        }
        if password.expose().is_empty() {
            return Err(password_is("it is empty"));
        }
        if password.expose().chars().any(char::is_control) {
            return Err(password_is("it holds a newline or another control character"));
        }
        // Base64 makes four characters of three.
        if (user.len() + password.expose().len() + 1) * 4 / 3 > MAX_HEADER {
            return Err(password_is("it is longer than a request header allows (about 5 KiB)"));
        }
        Ok(Self::Password { user, password })
    }

    fn identity_token(token: String) -> Result<Self, CredentialError> {
        let token = Secret::new(token);
        if token.expose().is_empty() || token.expose().chars().any(char::is_control) {
            return Err(CredentialError::Password {
                why: "the identity token is empty or holds a control character",
            });
        }
        Ok(Self::IdentityToken(token))
    }

    /// How messages name it.
    pub(super) fn who(&self) -> String {
        match self {
            Self::Anonymous => "nobody in particular".into(),
            Self::Password { user, .. } => format!("'{user}'"),
            Self::IdentityToken(_) => "the identity token".into(),
        }
    }
}

/// Where logins are kept, in the order they are asked.
#[derive(Debug, Clone)]
pub struct AuthFiles {
    /// The one file to ask, which must exist, as `REGISTRY_AUTH_FILE` names it.
    only: Option<PathBuf>,
    /// Otherwise the first of these that knows the registry.
    files: Vec<PathBuf>,
}

impl AuthFiles {
    /// `REGISTRY_AUTH_FILE` alone if it is set. Otherwise docker's `config.json` in `DOCKER_CONFIG` or
    /// `~/.docker`, then podman's `auth.json` in `$XDG_RUNTIME_DIR/containers` and `~/.config/containers`.
    pub fn from_environment() -> Self {
        Self::from(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    /// This file alone, which must exist.
    pub fn only(path: PathBuf) -> Self {
        Self { only: Some(path), files: Vec::new() }
    }

    fn from(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let folder = |name| variable(name).map(PathBuf::from);
        let home = folder("HOME");
        let at_home = |below: &str| home.as_ref().map(|home| home.join(below));
        let files = [
            folder("DOCKER_CONFIG").or_else(|| at_home(".docker")).map(|d| d.join("config.json")),
            folder("XDG_RUNTIME_DIR").map(|d| d.join("containers/auth.json")),
            folder("XDG_CONFIG_HOME").or_else(|| at_home(".config")).map(|d| d.join("containers/auth.json")),
        ];
        match folder("REGISTRY_AUTH_FILE") {
            Some(only) => Self::only(only),
            None => Self { only: None, files: files.into_iter().flatten().collect() },
        }
    }

    /// The login for an image's registry; [`Credential::Anonymous`] when no file has one.
    pub fn find(&self, image: &ImageName) -> Result<Credential, CredentialError> {
        let (must_exist, files) = match &self.only {
            Some(only) => (true, std::slice::from_ref(only)),
            None => (false, self.files.as_slice()),
        };
        for path in files {
            let content = match read(path) {
                Ok(content) => content,
                Err(e) if e.kind() == io::ErrorKind::NotFound && !must_exist => continue,
                Err(source) => return Err(CredentialError::Read { path: path.clone(), source }),
            };
            if let Some(credential) = look_up(path, &content, image)? {
                return Ok(credential);
            }
        }
        Ok(Credential::Anonymous)
    }
}

fn read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut content = Zeroizing::new(Vec::new());
    if File::open(path)?.take(MAX_AUTH_FILE + 1).read_to_end(&mut content)? as u64 > MAX_AUTH_FILE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than 4 MiB"));
    }
    Ok(content)
}

/// The key to ask for: podman logs in to `host/folder` too, and the longest that is there wins.
fn key(content: &[u8], image: &ImageName) -> Option<String> {
    #[derive(Deserialize)]
    struct Keys {
        #[serde(default)]
        auths: std::collections::BTreeMap<String, IgnoredAny>,
    }
    let Keys { auths } = serde_json::from_slice(content).ok()?;
    let mut key = format!("{}/{}", image.host(), image.repository());
    while !auths.contains_key(&key) {
        match key.rsplit_once('/') {
            Some((shorter, _)) => key.truncate(shorter.len()),
            None => break,
        }
    }
    Some(key)
}

/// How often a credential helper that can't be talked to is asked once more.
const HELPER_TRIES: u32 = 8;

fn look_up(path: &Path, content: &[u8], image: &ImageName) -> Result<Option<Credential>, CredentialError> {
    use CredentialRetrievalError as E;
    let malformed = |why| CredentialError::Malformed { path: path.into(), why };
    let helper = |why: String| CredentialError::Helper { path: path.into(), host: image.host().into(), why };
    let key = key(content, image).ok_or_else(|| malformed("it is not JSON of that form"))?;
    let ask = || docker_credential::get_credential_from_reader(content, &key);
    let mut found = ask();
    for _ in 0..HELPER_TRIES {
        // One that ends before it was told the host has said nothing yet: whether it has is a race.
        if !matches!(found, Err(E::HelperCommunicationError)) {
            break;
        }
        found = ask();
    }
    match found {
        Ok(DockerCredential::UsernamePassword(user, password)) => {
            Credential::password(user, password).map(Some)
        }
        Ok(DockerCredential::IdentityToken(token)) => Credential::identity_token(token).map(Some),
        Err(E::NoCredentialConfigured | E::ConfigNotFound) => Ok(None),
        Err(E::ConfigReadError) => Err(malformed("it is not JSON of that form")),
        Err(E::CredentialDecodingError) => Err(malformed("'auth' is not base64 of user:password")),
        Err(E::CredentialMismatchError) => Err(malformed("'auth' differs from 'username' and 'password'")),
        Err(E::HelperCommunicationError) => {
            Err(helper("it can't be run; is docker-credential-NAME on the PATH?".into()))
        }
        Err(E::MalformedHelperResponse) => Err(helper("it did not answer with Username and Secret".into())),
        // The protocol's words for "no login here", on either stream.
        Err(E::HelperFailure { stdout, stderr, .. })
            if stdout.contains("credentials not found") || stderr.contains("credentials not found") =>
        {
            Ok(None)
        }
        Err(E::HelperFailure { helper: name, .. }) => {
            Err(helper(format!("{name} reports an error; 'echo {} | {name} get' shows it", image.host())))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use base64::Engine;

    fn image() -> ImageName {
        "registry.example.com:5000/private/windows:11".parse().unwrap()
    }

    fn find(content: &str) -> Result<Credential, CredentialError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, content).unwrap();
        AuthFiles { only: None, files: vec![folder.path().join("absent"), path] }.find(&image())
    }

    fn user(found: Result<Credential, CredentialError>) -> String {
        match found.unwrap() {
            Credential::Password { user, password } => format!("{user}/{}", password.expose()),
            other => panic!("{other:?}"),
        }
    }

    fn auth(login: &str) -> String {
        base64::engine::general_purpose::STANDARD.encode(login)
    }

    #[test]
    fn logins_are_found_by_host_and_by_folder() {
        let host = "registry.example.com:5000";
        let one = format!(r#"{{"auths": {{"{host}": {{"auth": "{}"}}}}}}"#, auth("u:p:with:colons"));
        assert_eq!(user(find(&one)), "u/p:with:colons");
        let url = format!(r#"{{"auths": {{"https://{host}/v2/": {{"auth": "{}"}}}}}}"#, auth("u:p"));
        assert_eq!(user(find(&url)), "u/p");
        let many = format!(
            r#"{{"auths": {{"{host}": {{"auth": "{}"}}, "{host}/private": {{"auth": "{}"}}, "{host}/other": {{}}}}}}"#,
            auth("outer:p"),
            auth("inner:p")
        );
        assert_eq!(user(find(&many)), "inner/p");
        let token = format!(r#"{{"auths": {{"{host}": {{"auth": "", "identitytoken": "t0ken"}}}}}}"#);
        assert!(matches!(find(&token).unwrap(), Credential::IdentityToken(t) if t.expose() == "t0ken"));
        for none in ["{}", r#"{"auths": {}}"#, r#"{"auths": {"other.example.com": {"auth": "YTpi"}}}"#] {
            assert!(matches!(find(none).unwrap(), Credential::Anonymous), "{none}");
        }
    }

    #[test]
    fn a_broken_file_is_named_and_its_secrets_are_not() {
        let host = "registry.example.com:5000";
        for bad in
            ["", "[]", "{", r#"{"auths": 1}"#, &format!(r#"{{"auths": {{"{host}": {{"auth": "&&"}}}}}}"#)]
        {
            let error = find(bad).unwrap_err().to_string();
            assert!(error.contains("config.json"), "{bad}: {error}");
        }
        let newline = format!(r#"{{"auths": {{"{host}": {{"auth": "{}"}}}}}}"#, auth("u:hush\n"));
        let error = find(&newline).unwrap_err();
        assert!(!format!("{error:?} {error}").contains("hush"));
        let only = AuthFiles::only("/nonexistent/auth.json".into());
        assert!(matches!(only.find(&image()), Err(CredentialError::Read { .. })));
    }

    #[test]
    fn files_are_asked_in_order() {
        let all = AuthFiles::from(|name| Some(format!("/{name}").into()));
        assert_eq!(all.only, Some("/REGISTRY_AUTH_FILE".into()));
        let home = AuthFiles::from(|name| (name == "HOME").then(|| "/home/u".into()));
        assert_eq!(home.only, None);
        assert_eq!(
            home.files,
            [
                PathBuf::from("/home/u/.docker/config.json"),
                PathBuf::from("/home/u/.config/containers/auth.json")
            ]
        );
        assert!(AuthFiles::from(|_| None).files.is_empty());
    }

    #[test]
    fn what_a_header_cannot_carry_is_refused_unseen() {
        let refused = |user: &str, password: &str| {
            let error = Credential::password(user.into(), password.into()).unwrap_err();
            let all = format!("{error} {error:?}");
            assert!(password.is_empty() || !all.contains(password), "{all}");
            all
        };
        assert!(refused("u", "hush\n").contains("newline"));
        assert!(refused("u", "hu\0sh").contains("control"));
        assert!(refused("u", "").contains("empty"));
        assert!(refused("u", &"hush".repeat(2000)).contains("longer"));
        assert!(refused("u:v", "hush").contains("colon"));
        assert!(refused("", "hush").contains("empty"));
        let good = Credential::password("u".into(), "pässwörd with spaces".into()).unwrap();
        assert_eq!(format!("{good:?}"), r#"Password { user: "u", password: Secret(..) }"#);
    }
}
