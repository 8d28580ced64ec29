//! Images that are published already: the binary with a login for the registries of a test, and what it packages.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::registry::certificates::run;
use super::registry::{PASSWORD, Registry, USER};

/// A folder with a login file for some hosts, and the authorities that their certificates are from.
pub struct Client {
    folder: tempfile::TempDir,
}

impl Client {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// One that can log in to these.
    pub fn of(registries: &[&Registry]) -> Self {
        let client = Self::new();
        let logins: Vec<_> = registries.iter().map(|r| (r.host(), PASSWORD)).collect();
        client.log_in(&logins.iter().map(|(host, password)| (host.as_str(), *password)).collect::<Vec<_>>());
        client.trust(&registries.iter().map(|r| r.ca()).collect::<Vec<_>>());
        client
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes docker's login file: host and password of each.
    pub fn log_in(&self, logins: &[(&str, &str)]) {
        let auths: serde_json::Map<_, _> = logins
            .iter()
            .map(|(host, password)| {
                let auth = STANDARD.encode(format!("{USER}:{password}"));
                ((*host).to_owned(), serde_json::json!({ "auth": auth }))
            })
            .collect();
        fs::create_dir_all(self.folder().join(".docker")).unwrap();
        let file = self.folder().join(".docker/config.json");
        fs::write(file, serde_json::json!({ "auths": auths }).to_string()).unwrap();
    }

    /// Writes the authorities' certificates into one file.
    pub fn trust(&self, authorities: &[&Path]) {
        let all: String = authorities.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        fs::write(self.ca(), all).unwrap();
        fs::create_dir_all(self.folder().join("certificates")).unwrap();
        fs::copy(self.ca(), self.folder().join("certificates/ca.crt")).unwrap();
    }

    pub fn ca(&self) -> PathBuf {
        self.folder().join("ca.pem")
    }

    /// The binary, with no login of the machine it runs on.
    pub fn sealroot(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sealroot"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.folder());
        command.args(args).output().unwrap()
    }

    /// As [`Client::sealroot`] with `--ca`; it must succeed. Returns standard output.
    pub fn ok(&self, args: &[&str]) -> String {
        let ca = self.ca();
        let output = self.sealroot(&[args, &["--ca", ca.to_str().unwrap()]].concat());
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// As [`Client::ok`], but it must fail with this exit code and these words. Returns standard output.
    #[track_caller]
    pub fn fails(&self, args: &[&str], code: i32, words: &[&str]) -> String {
        let ca = self.ca();
        let output = self.sealroot(&[args, &["--ca", ca.to_str().unwrap()]].concat());
        let said = text(&output.stderr);
        for word in words {
            assert!(said.contains(word), "'{word}' is not in: {said}");
        }
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(!said.contains(PASSWORD));
        text(&output.stdout)
    }

    /// Packages a disk and pushes it to `target`; returns its reference by digest.
    pub fn publish(&self, disk: &Path, target: &str, more: &[&str]) -> String {
        let args = [&["package", "--disk", disk.to_str().unwrap(), "--push", target], more].concat();
        self.ok(&args).trim_end().to_owned()
    }

    /// Packages a disk into a layout of that name.
    pub fn layout(&self, disk: &Path, name: &str, more: &[&str]) -> PathBuf {
        let layout = self.folder().join(name);
        let args = ["package", "--disk", disk.to_str().unwrap(), "--output", layout.to_str().unwrap()];
        let output = self.sealroot(&[&args, more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        layout
    }

    /// What skopeo, an independent client, says of an image.
    pub fn skopeo_inspect(&self, reference: &str, more: &[&str]) -> serde_json::Value {
        let out = run(Command::new("skopeo")
            .args(["inspect", "--creds", &format!("{USER}:{PASSWORD}"), "--cert-dir"])
            .arg(self.folder().join("certificates"))
            .args(more)
            .arg(format!("docker://{reference}")));
        serde_json::from_slice(&out).unwrap()
    }

    /// Has skopeo copy a layout into a registry.
    pub fn skopeo_push(&self, layout: &Path, target: &str, more: &[&str]) {
        run(Command::new("skopeo")
            .args(["copy", "--quiet", "--dest-creds", &format!("{USER}:{PASSWORD}"), "--dest-cert-dir"])
            .arg(self.folder().join("certificates"))
            .args(more)
            .arg(format!("oci:{}", layout.display()))
            .arg(format!("docker://{target}")));
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The value of a row `NAME VALUE` of what was printed.
pub fn row<'t>(printed: &'t str, name: &str) -> &'t str {
    let found = printed.lines().find_map(|line| line.strip_prefix(&format!("{name:<12} ")));
    found.unwrap_or_else(|| panic!("no {name} in {printed}"))
}
