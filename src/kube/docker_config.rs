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

/// As the tools' JSON readers do, `null` is taken for absent everywhere.
#[derive(Deserialize)]
struct Config {
    auths: Option<Auths>,
    #[serde(rename = "credsStore")]
    creds_store: Option<String>,
    #[serde(rename = "credHelpers")]
    cred_helpers: Option<BTreeMap<String, Option<String>>>,
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
        Ok(Self(Zeroizing::new(Option::deserialize(deserializer)?.unwrap_or_default())))
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
                while let Some((key, entry)) = map.next_entry::<_, Option<_>>()? {
                    entries.push((key, entry.unwrap_or_default()));
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
    let mut wanted = normal(&registry.0);
    refuse_stores(&config, &wanted)?;
    let auths = config.auths.as_ref().map(|auths| auths.0.as_slice()).unwrap_or_default();
    // A login for the same registry, its port written out or not, is as good as one by the very name.
    let other = other_port_form(&wanted);
    if !auths.iter().any(|(key, _)| key_depth(key, &wanted).is_some())
        && auths.iter().any(|(key, _)| key_depth(key, &other).is_some())
    {
        refuse_stores(&config, &other)?;
        wanted = other;
    }
    let best = auths.iter().filter_map(|(key, _)| key_depth(key, &wanted)).max();
    let mut found: Option<(&str, RegistryLogin)> = None;
    let mut empty = None;
    for (key, entry) in auths.iter().filter(|(key, _)| best.is_some() && key_depth(key, &wanted) == best) {
        let login = match entry.login(key) {
            Err(error @ DockerConfigError::Empty { .. }) => {
                empty = Some(error);
                continue;
            }
            other => other?,
        };
        match &found {
            Some((first, earlier)) if earlier.user != login.user || earlier.password != login.password => {
                return Err(DockerConfigError::Ambiguous { first: (*first).to_owned(), second: key.clone() });
            }
            Some(_) => {}
            None => found = Some((key, login)),
        }
    }
    found.map(|(_, login)| login).ok_or_else(|| {
        empty.unwrap_or_else(|| DockerConfigError::Missing {
            registry: registry.clone(),
            // A key with an `@` may hold a password, as URLs can.
            known: auths.iter().map(|(key, _)| key.clone()).filter(|key| !key.contains('@')).collect(),
        })
    })
}

/// Where a store is set, its login is the one in use; one that also stands in the file may be an old one.
fn refuse_stores(config: &Config, wanted: &str) -> Result<(), DockerConfigError> {
    let store = |store: &Option<String>| store.clone().filter(|store| !store.is_empty());
    let helpers = config.cred_helpers.iter().flatten();
    let helper =
        helpers.filter(|(key, _)| key_depth(key, wanted).is_some()).find_map(|(_, name)| store(name));
    let found = helper.map(|name| ("credHelpers", name));
    match found.or_else(|| store(&config.creds_store).map(|name| ("credsStore", name))) {
        Some((setting, store)) => Err(DockerConfigError::CredentialStore { setting, store }),
        None => Ok(()),
    }
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

/// With port 443, HTTPS' own, where it has none; without it where it has that.
fn other_port_form(name: &str) -> String {
    let (host, path) = name.split_at(name.find('/').unwrap_or(name.len()));
    match host.strip_suffix(":443") {
        Some(host) => format!("{host}{path}"),
        None if host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']')) => name.to_owned(),
        None => format!("{host}:443{path}"),
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    fn find(config: &str, registry: &str) -> Result<(String, String), DockerConfigError> {
        let login = find_login(config.as_bytes(), &registry.parse().unwrap())?;
        Ok((login.user.to_string(), login.password.to_string()))
    }

    fn auth(text: &str) -> String {
        STANDARD.encode(text)
    }

    fn entry(key: &str, login: &str) -> String {
        format!(r#""{key}": {{"auth": "{}"}}"#, auth(login))
    }

    fn auths(entries: &[String]) -> String {
        format!(r#"{{"auths": {{{}}}}}"#, entries.join(","))
    }

    #[test]
    fn registries() {
        for good in ["ghcr.io", "localhost:5000", "quay.io/org/repo", "[::1]:5000", "127.0.0.1", "a_b.c/d"] {
            assert!(good.parse::<RegistryName>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "https://ghcr.io",
            "ghcr.io/",
            "/a",
            "a//b",
            "a:b",
            "a:",
            ":5",
            "a b",
            "u@h",
            "a:70000",
            "a/b:tag",
        ] {
            assert!(bad.parse::<RegistryName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn every_way_to_write_the_key() {
        for key in [
            "ghcr.io",
            "https://ghcr.io",
            "https://ghcr.io/",
            "https://ghcr.io/v1/",
            "https://ghcr.io/v2/",
            "https://ghcr.io/v2",
            "GHCR.io",
            "ghcr.io:443",
        ] {
            let config = auths(&[entry("example.com", "x:y"), entry(key, "me:p:w")]);
            assert_eq!(find(&config, "ghcr.io").unwrap(), ("me".into(), "p:w".into()), "{key}");
        }
        for key in
            ["ghcr.io.example.com", "xghcr.io", "ghcr.io:8443", "https://ghcr.io/v3/", "ghcr.io/org", ""]
        {
            let found = find(&auths(&[entry(key, "me:pw")]), "ghcr.io");
            assert!(matches!(found, Err(DockerConfigError::Missing { .. })), "{key}");
        }
        let hub = auths(&[entry("https://index.docker.io/v1/", "me:pw")]);
        assert!(find(&hub, "docker.io").is_ok());
        let port = auths(&[entry("localhost:5000", "me:pw"), entry("localhost", "x:y")]);
        assert_eq!(find(&port, "localhost:5000").unwrap().0, "me");
    }

    #[test]
    fn the_longest_path_wins() {
        let config = auths(&[
            entry("quay.io", "host:1"),
            entry("quay.io/org", "org:2"),
            entry("quay.io/org/r", "r:3"),
        ]);
        for (registry, user) in [
            ("quay.io", "host"),
            ("quay.io/other", "host"),
            ("quay.io/organisation", "host"),
            ("quay.io/org", "org"),
            ("quay.io/org/other", "org"),
            ("quay.io/org/r/x", "r"),
        ] {
            assert_eq!(find(&config, registry).unwrap().0, user, "{registry}");
        }
    }

    #[test]
    fn user_and_password_may_stand_in_their_own_fields() {
        let plain =
            r#"{"auths": {"h": {"username": "me", "password": "pw", "auth": null}}, "credHelpers": null}"#;
        assert_eq!(find(plain, "h").unwrap(), ("me".into(), "pw".into()));
        let same = format!(
            r#"{{"auths": {{"h": {{"username": "me", "password": "pw", "auth": "{}"}}}}}}"#,
            auth("me:pw")
        );
        assert!(find(&same, "h").is_ok());
        let other = same.replace("\"pw\"", "\"old\"");
        assert!(matches!(find(&other, "h"), Err(DockerConfigError::Ambiguous { .. })));
    }

    #[test]
    fn two_logins_for_one_registry() {
        let same = auths(&[entry("h", "me:pw"), entry("https://h/v1/", "me:pw")]);
        assert!(find(&same, "h").is_ok());
        for second in ["https://h", "h"] {
            let differ = auths(&[entry("h", "me:hidden1"), entry(second, "me:hidden2")]);
            let error = find(&differ, "h").unwrap_err();
            assert!(matches!(error, DockerConfigError::Ambiguous { .. }));
            assert!(!error.to_string().contains("hidden"));
        }
        let left_over = auths(&[r#""h": {}"#.into(), entry("https://h", "me:pw")]);
        assert!(find(&left_over, "h").is_ok());
    }

    #[test]
    fn what_holds_no_password_is_refused_with_the_reason() {
        let login = entry("h", "me:pw");
        let store = format!(r#"{{"auths": {{{login}}}, "credsStore": "desktop"}}"#);
        let said = find(&store, "h").unwrap_err().to_string();
        assert!(said.contains("credsStore") && said.contains("desktop"), "{said}");
        let helper = format!(r#"{{"auths": {{{login}}}, "credHelpers": {{"h": "ecr-login"}}}}"#);
        assert!(find(&helper, "h").unwrap_err().to_string().contains("ecr-login"));
        let other =
            format!(r#"{{"auths": {{{login}}}, "credHelpers": {{"else": "ecr"}}, "credsStore": ""}}"#);
        assert!(find(&other, "h").is_ok());
        for (field, what) in [("identitytoken", "an identity token"), ("registrytoken", "a registry token")] {
            let token =
                format!(r#"{{"auths": {{"h": {{"{field}": "hidden", "auth": "{}"}}}}}}"#, auth("me:"));
            let said = find(&token, "h").unwrap_err().to_string();
            assert!(said.contains(what) && !said.contains("hidden"), "{said}");
        }
        assert!(matches!(find(r#"{"auths": {"h": {}}}"#, "h"), Err(DockerConfigError::Empty { .. })));
        assert!(matches!(find("{}", "h"), Err(DockerConfigError::Missing { .. })));
    }

    #[test]
    fn values_that_cdi_would_pass_on_broken_are_refused() {
        for (login, problem) in [
            ("me:hidden\n", "ends in a newline"),
            ("me:hidden\r\n", "ends in a newline"),
            ("me\n:hidden", "ends in a newline"),
            ("me:hid\0den", "control"),
            ("me:hid\tden", "control"),
            (":hidden", "empty"),
            ("hidden:", "empty"),
        ] {
            let error = find(&auths(&[entry("h", login)]), "h").unwrap_err().to_string();
            assert!(error.contains(problem) && !error.contains("hid"), "{error}");
        }
        for bad in ["!hidden", "aGlkZGVu", "aGlk", "/w=="] {
            let error = find(&format!(r#"{{"auths": {{"h": {{"auth": "{bad}"}}}}}}"#), "h").unwrap_err();
            assert_eq!(error, DockerConfigError::BadAuth { key: "h".into() });
        }
    }

    #[test]
    fn malformed_files_say_where_and_nothing_else() {
        let error = find("{\n \"auths\": {\"h\": {\"auth\": hidden}}}", "h").unwrap_err();
        assert!(matches!(error, DockerConfigError::Malformed { line: 2, .. }));
        assert!(!error.to_string().contains("hidden"));
        for text in ["", "[]", r#"{"auths": []}"#, r#"{"auths": {"h": "hidden"}}"#] {
            assert!(matches!(find(text, "h"), Err(DockerConfigError::Malformed { .. })), "{text}");
        }
        let url = auths(&[entry("https://me:hidden@h", "a:b")]);
        assert!(!find(&url, "h").unwrap_err().to_string().contains("hidden"));
    }

    proptest! {
        #[test]
        fn every_login_comes_back(user in "[^:\\pC]{1,20}", password in "\\PC{1,40}") {
            let config = auths(&[entry("h", &format!("{user}:{password}"))]);
            prop_assert_eq!(find(&config, "h").unwrap(), (user, password));
        }
    }
}
