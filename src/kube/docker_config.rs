//! One registry's user and password from a container auth file: docker's `config.json`, podman's `auth.json`.
//!
//! Keys as they are in use: `host`, `https://host`, `https://host/v1/` (docker), `host/path` (podman: the longest
//! path that the registry's begins with wins). <https://github.com/containers/image/blob/main/docs/containers-auth.json.5.md>

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use thiserror::Error;
use zeroize::Zeroizing;

/// A registry, `HOST[:PORT][/PATH]`, without scheme, tag or digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryName(String);

/// Why a text does not name a registry.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{value:?} is not a registry: write HOST, HOST:PORT or HOST/PATH, without https:// and without a tag"
)]
pub struct RegistryNameError {
    value: String,
}

impl FromStr for RegistryName {
    type Err = RegistryNameError;

    fn from_str(text: &str) -> Result<Self, RegistryNameError> {
        let mut parts = text.split('/');
        let host = parts.next().unwrap_or_default();
        let (name, port) = match host.rsplit_once(':') {
            // An IPv6 address holds colons within its brackets.
            Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
            _ => (host, None),
        };
        let good_name = match name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
            }
        };
        let good_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
        let good_path = parts.all(|part| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
        });
        if good_name && good_port && good_path {
            Ok(Self(text.to_owned()))
        } else {
            Err(RegistryNameError { value: text.to_owned() })
        }
    }
}

impl fmt::Display for RegistryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A user and a password. `Debug` is not implemented: it would show them.
pub struct RegistryLogin {
    /// The user's name.
    pub user: Zeroizing<String>,
    /// The password or access token.
    pub password: Zeroizing<String>,
}

/// Why an auth file gives no login. Names keys, never what they hold.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DockerConfigError {
    /// Not JSON of that shape.
    #[error("this is no container auth file: line {line}, column {column} is not the JSON expected there")]
    Malformed {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
    /// The password is elsewhere.
    #[error(
        "{setting} names the credential store {store:?}: the login is kept there and not in this file, so it can't \
         be put into a Secret"
    )]
    CredentialStore {
        /// The setting that says so.
        setting: &'static str,
        /// The store.
        store: String,
    },
    /// No key fits.
    #[error("no login for {registry}; the file has logins for: {}", list(known))]
    Missing {
        /// What was looked for.
        registry: RegistryName,
        /// The keys there are.
        known: Vec<String>,
    },
    /// A key fits, and holds no user and password.
    #[error("the login {key:?} holds no user and password")]
    Empty {
        /// The key.
        key: String,
    },
    /// A token in place of a password.
    #[error("the login {key:?} is {what}, which CDI can't use: its import sends a user and a password")]
    Token {
        /// The key.
        key: String,
        /// The kind of token.
        what: &'static str,
    },
    /// `auth` is not base64 of `user:password`.
    #[error("the login {key:?} has an \"auth\" that is not base64 of user:password")]
    BadAuth {
        /// The key.
        key: String,
    },
    /// Two logins, and nothing says which one.
    #[error("the logins {first:?} and {second:?} are for the same registry and differ; remove one")]
    Ambiguous {
        /// A key.
        first: String,
        /// Another, or the same again.
        second: String,
    },
    /// CDI passes such a value on as it stands, and the registry refuses it (containerized-data-importer#2804).
    #[error("the {what} of the login {key:?} {problem}; log in again without it")]
    BadValue {
        /// The key.
        key: String,
        /// `user` or `password`.
        what: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
}

fn list(keys: &[String]) -> String {
    if keys.is_empty() { "none".to_owned() } else { keys.join(", ") }
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    auths: Auths,
    #[serde(default, rename = "credsStore")]
    creds_store: Option<String>,
    #[serde(default, rename = "credHelpers")]
    cred_helpers: BTreeMap<String, String>,
}

/// All entries in their order, a repeated key too: a map would keep the last and hide the other.
#[derive(Default)]
struct Auths(Vec<(String, Entry)>);

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Zeroed,
    username: Zeroed,
    password: Zeroed,
    identitytoken: Zeroed,
    registrytoken: Zeroed,
}

#[derive(Default)]
struct Zeroed(Zeroizing<String>);

impl<'de> Deserialize<'de> for Zeroed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Zeroizing::new(String::deserialize(deserializer)?)))
    }
}

impl<'de> Deserialize<'de> for Auths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Auths;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of logins")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Auths, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Auths(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Finds the login for `registry` in the text of an auth file.
pub fn find_login(config: &[u8], registry: &RegistryName) -> Result<RegistryLogin, DockerConfigError> {
    let config: Config = serde_json::from_slice(config)
        .map_err(|e| DockerConfigError::Malformed { line: e.line(), column: e.column() })?;
    let wanted = normal(&registry.0);
    let helper = config.cred_helpers.iter().find(|(key, _)| key_depth(key, &wanted).is_some());
    let store = config.creds_store.filter(|store| !store.is_empty());
    if let Some((setting, store)) =
        helper.map(|(_, store)| ("credHelpers", store.clone())).or(store.map(|store| ("credsStore", store)))
    {
        return Err(DockerConfigError::CredentialStore { setting, store });
    }
    let best = config.auths.0.iter().filter_map(|(key, _)| key_depth(key, &wanted)).max();
    let mut found: Option<(&str, RegistryLogin)> = None;
    for (key, entry) in &config.auths.0 {
        if best.is_none() || key_depth(key, &wanted) != best {
            continue;
        }
        let login = entry.login(key)?;
        match &found {
            Some((first, earlier)) if earlier.user != login.user || earlier.password != login.password => {
                return Err(DockerConfigError::Ambiguous { first: (*first).to_owned(), second: key.clone() });
            }
            Some(_) => {}
            None => found = Some((key, login)),
        }
    }
    found.map(|(_, login)| login).ok_or_else(|| DockerConfigError::Missing {
        registry: registry.clone(),
        known: config.auths.0.into_iter().map(|(key, _)| key).collect(),
    })
}

/// Lower-case host, path as it stands; Docker Hub's three names as one.
fn normal(name: &str) -> String {
    let (host, path) = match name.split_once('/') {
        Some((host, path)) => (host, Some(path)),
        None => (name, None),
    };
    let host = host.to_ascii_lowercase();
    let host = match host.as_str() {
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        other => other,
    };
    path.map_or_else(|| host.to_owned(), |path| format!("{host}/{path}"))
}

/// How many parts of `wanted` a key names, if it names that registry at all.
fn key_depth(key: &str, wanted: &str) -> Option<usize> {
    let key = match key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")) {
        // With a scheme it is docker's server address: only the API's own path may follow.
        Some(address) => {
            let (host, path) = address.split_once('/').unwrap_or((address, ""));
            if !matches!(path, "" | "v1" | "v1/" | "v2" | "v2/") {
                return None;
            }
            normal(host)
        }
        None => normal(key.trim_end_matches('/')),
    };
    let rest = wanted.strip_prefix(&key)?;
    (!key.is_empty() && (rest.is_empty() || rest.starts_with('/'))).then(|| key.split('/').count())
}

impl Entry {
    fn login(&self, key: &str) -> Result<RegistryLogin, DockerConfigError> {
        let key = || key.to_owned();
        for (token, what) in
            [(&self.identitytoken, "an identity token"), (&self.registrytoken, "a registry token")]
        {
            if !token.0.is_empty() {
                return Err(DockerConfigError::Token { key: key(), what });
            }
        }
        let inline = (!self.auth.0.is_empty())
            .then(|| decode_auth(&self.auth.0).ok_or_else(|| DockerConfigError::BadAuth { key: key() }))
            .transpose()?;
        let plain = (!self.username.0.is_empty() || !self.password.0.is_empty())
            .then(|| RegistryLogin { user: self.username.0.clone(), password: self.password.0.clone() });
        let login = match (inline, plain) {
            (Some(a), Some(b)) if a.user != b.user || a.password != b.password => {
                return Err(DockerConfigError::Ambiguous { first: key(), second: key() });
            }
            (Some(login), _) | (None, Some(login)) => login,
            (None, None) => return Err(DockerConfigError::Empty { key: key() }),
        };
        for (what, value) in [("user", &login.user), ("password", &login.password)] {
            let problem = if value.is_empty() {
                "is empty"
            } else if value.ends_with(['\n', '\r']) {
                "ends in a newline"
            } else if value.contains(char::is_control) {
                "holds a control character"
            } else {
                continue;
            };
            return Err(DockerConfigError::BadValue { key: key(), what, problem });
        }
        Ok(login)
    }
}

fn decode_auth(auth: &str) -> Option<RegistryLogin> {
    let bytes = Zeroizing::new(STANDARD.decode(auth).ok()?);
    let (user, password) = str::from_utf8(&bytes).ok()?.split_once(':')?;
    Some(RegistryLogin { user: user.to_owned().into(), password: password.to_owned().into() })
}
