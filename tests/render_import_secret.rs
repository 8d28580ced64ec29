//! `render-import-secret`: from auth files, one of them made by skopeo against a real registry, to a Secret.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use base64::Engine;
use serde_json::{Value, json};

fn run(config: &Path, registry: &str, output: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sealroot"))
        .args(["render-import-secret", "--docker-config", config.to_str().unwrap(), "--registry", registry])
        .args(["--output", output.to_str().unwrap()])
        .args(more)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn secret(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

fn config(folder: &Path, key: &str, login: &str) -> std::path::PathBuf {
    let auth = base64::engine::general_purpose::STANDARD.encode(login);
    let file = folder.join("config.json");
    fs::write(&file, json!({"auths": {key: {"auth": auth}}}).to_string()).unwrap();
    file
}

#[test]
fn the_default_port_may_be_written_out_or_not() {
    let scratch = tempfile::tempdir().unwrap();
    let cases = [
        ("ghcr.io", "ghcr.io:443", 0),
        ("https://ghcr.io/v1/", "ghcr.io:443", 0),
        ("ghcr.io:443", "ghcr.io", 0),
        ("ghcr.io", "ghcr.io:443/team", 0),
        ("[::1]", "[::1]:443", 0),
        ("ghcr.io", "ghcr.io:5000", 3),
        ("ghcr.io:5000", "ghcr.io", 3),
    ];
    for (n, (key, registry, expected)) in cases.into_iter().enumerate() {
        let config = config(scratch.path(), key, "me:hush");
        let output = run(&config, registry, &scratch.path().join(n.to_string()), &[]);
        assert_eq!(code(&output), expected, "{key} {registry}: {}", said(&output));
    }
}

#[test]
fn what_was_made_is_told_as_json_without_the_login() {
    let scratch = tempfile::tempdir().unwrap();
    let config = config(scratch.path(), "ghcr.io", "robot:hush-hush");
    let file = scratch.path().join("import.json");
    let output = run(&config, "ghcr.io", &file, &["--namespace", "team-a", "--json"]);
    assert_eq!(code(&output), 0, "{}", said(&output));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told, json!({"path": file, "namespace": "team-a", "name": "registry-import"}));
}

#[test]
fn a_login_becomes_an_opaque_secret_for_its_owner_only() {
    let scratch = tempfile::tempdir().unwrap();
    let config = config(scratch.path(), "https://ghcr.io/v1/", "robot$me:p\"<&>':ä😀");
    let file = scratch.path().join("import.json");
    let output = run(&config, "ghcr.io", &file, &["--namespace", "team-a", "--name", "ghcr-import"]);
    assert_eq!(code(&output), 0, "{}", said(&output));
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(
        secret(&file),
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "ghcr-import", "namespace": "team-a"},
            "type": "Opaque",
            "stringData": {"accessKeyId": "robot$me", "secretKey": "p\"<&>':ä😀"},
        })
    );
    assert!(!said(&output).contains("robot") && !said(&output).contains("😀"));

    // What is there stays.
    let before = fs::read(&file).unwrap();
    assert_eq!(code(&run(&config, "ghcr.io", &file, &[])), 4);
    assert_eq!(fs::read(&file).unwrap(), before);
    assert_eq!(code(&run(&config, "ghcr.io", &scratch.path().join("no/where"), &[])), 1);
    assert_eq!(
        code(&run(&scratch.path().join("missing.json"), "ghcr.io", &scratch.path().join("x"), &[])),
        1
    );
}

#[test]
fn what_cannot_be_used_is_refused_with_the_reason_and_writes_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("config.json");
    let output_file = scratch.path().join("import.json");
    let auth = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    for (config, why) in [
        (json!({"auths": {"r.example": {"auth": auth("hidden1:hidden2\n")}}}), "ends in a newline"),
        (json!({"auths": {"r.example": {"auth": auth("hidden1:hid\u{1b}den2")}}}), "control character"),
        (json!({"auths": {"r.example": {"auth": auth("hidden1:")}}}), "is empty"),
        (json!({"auths": {"r.example": {"auth": "hidden!"}}}), "base64"),
        (json!({"auths": {"r.example": {}}}), "no user and password"),
        (json!({"auths": {"other.example": {"auth": auth("a:b")}}}), "other.example"),
        (json!({"auths": {"r.example": {}}, "credsStore": "desktop"}), "skopeo login"),
        (json!({"auths": {}, "credHelpers": {"r.example": "ecr-login"}}), "ecr-login"),
        (
            json!({"auths": {"r.example": {"identitytoken": "hidden", "auth": auth("00000000:")}}}),
            "identity token",
        ),
        (json!({"auths": {"r.example": {"registrytoken": "hidden"}}}), "registry token"),
        (
            json!({"auths": {"r.example": {"auth": auth("a:hidden")}, "https://r.example": {"auth": auth("a:b")}}}),
            "differ",
        ),
        (json!([]), "line 1"),
    ] {
        fs::write(&file, config.to_string()).unwrap();
        let output = run(&file, "r.example", &output_file, &[]);
        assert_eq!(code(&output), 3, "{config}: {}", said(&output));
        assert!(said(&output).contains(why) && said(&output).contains("config.json"), "{}", said(&output));
        assert!(!said(&output).contains("hidden"), "{}", said(&output));
        assert!(!output_file.exists());
    }
    for registry in ["", "https://r.example", "r.example/a:tag"] {
        assert_eq!(code(&run(&file, registry, &output_file, &[])), 2, "{registry}");
    }
    assert_eq!(code(&run(&file, "r.example", &output_file, &["--name", "A"])), 2);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
}

/// Debian's registry on loopback, stopped when the test ends.
struct Registry {
    process: Child,
    address: String,
}

impl Registry {
    fn start(folder: &Path) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let config = folder.join("registry.yml");
        let storage = folder.join("storage");
        fs::write(
            &config,
            format!(
                "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"{address}\"}}\n",
                storage.display()
            ),
        )
        .unwrap();
        let process = Command::new("docker-registry")
            .args(["serve", config.to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("docker-registry is needed");
        let registry = Self { process, address };
        for _ in 0..500 {
            if TcpStream::connect(&registry.address).is_ok() {
                return registry;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("docker-registry does not answer");
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_file_that_skopeo_login_writes_is_read() {
    let scratch = tempfile::tempdir().unwrap();
    let registry = Registry::start(scratch.path());
    let auth_file = scratch.path().join("auth.json");
    let path = format!("{}/org/repo", registry.address);
    for (target, user, password) in
        [(&registry.address, "host-user", "P4ss-host"), (&path, "path-user", "P4ss-path")]
    {
        let mut skopeo = Command::new("skopeo")
            .args(["login", "--tls-verify=false", "--password-stdin", "--username", user, "--authfile"])
            .args([auth_file.to_str().unwrap(), target])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("skopeo is needed");
        skopeo.stdin.take().unwrap().write_all(password.as_bytes()).unwrap();
        assert!(skopeo.wait().unwrap().success());
    }
    for (number, (wanted, user, password)) in [
        (registry.address.clone(), "host-user", "P4ss-host"),
        (format!("{}/other", registry.address), "host-user", "P4ss-host"),
        (path.clone(), "path-user", "P4ss-path"),
        (format!("{path}/deeper"), "path-user", "P4ss-path"),
    ]
    .into_iter()
    .enumerate()
    {
        let file = scratch.path().join(format!("{number}.json"));
        let output = run(&auth_file, &wanted, &file, &[]);
        assert_eq!(code(&output), 0, "{}", said(&output));
        assert_eq!(
            secret(&file)["stringData"],
            json!({"accessKeyId": user, "secretKey": password}),
            "{wanted}"
        );
    }
}
