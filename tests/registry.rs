//! `push`: against Debian's docker-registry over TLS, with skopeo as the judge of what arrived.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/registry.rs"]
mod registry;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use registry::certificates::{Authority, run};
use registry::{Auth, PASSWORD, Registry, Setup, USER};

/// A layout made by umoci, with one layer that holds `mib` MiB of noise.
fn layout(folder: &Path, mib: usize) -> PathBuf {
    let layout = folder.join("layout");
    let name = format!("{}:t", layout.display());
    let noise = folder.join("noise");
    run(Command::new("dd")
        .args(["if=/dev/urandom", "bs=1M"])
        .arg(format!("count={mib}"))
        .arg(format!("of={}", noise.display())));
    run(Command::new("umoci").arg("init").arg("--layout").arg(&layout));
    run(Command::new("umoci").args(["new", "--image", &name]));
    run(Command::new("umoci")
        .args(["insert", "--rootless", "--image", &name])
        .arg(&noise)
        .arg("/disk/disk.qcow2"));
    run(Command::new("umoci").args(["gc", "--layout"]).arg(&layout));
    layout
}

/// The command, with no login of the machine it runs on.
fn sealroot(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealroot"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", home);
    command
}

fn with_input(command: &mut Command, input: &str) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It may end before it reads.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Every file of a folder's blobs, sorted.
fn blobs(layout: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(layout.join("blobs/sha256"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn what_is_pushed_is_what_skopeo_pulls() {
    let folder = tempfile::tempdir().unwrap();
    let layout = layout(folder.path(), 20);
    let registry = Registry::start();
    let target = format!("{}/private/windows11:25h2", registry.host());
    let push = |more: &[&str]| {
        let mut command = sealroot(folder.path());
        command.arg("push").arg(&layout).arg(&target).arg("--ca").arg(registry.ca());
        command.args(["--username", USER, "--password-stdin"]).args(more);
        with_input(&mut command, &format!("{PASSWORD}\n"))
    };
    let first = push(&[]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let reference = text(&first.stdout);
    let pinned = reference.strip_suffix('\n').unwrap();
    let (repository, digest) = pinned.split_once('@').unwrap();
    assert_eq!(repository, format!("{}/private/windows11", registry.host()));
    assert_eq!(digest.len(), 71);
    assert!(text(&first.stderr).contains("2 blobs uploaded, 0 there already"));

    for (reference, into) in [(pinned, "by-digest"), (target.as_str(), "by-tag")] {
        let into = folder.path().join(into);
        registry.pull(reference, &into);
        for blob in blobs(&layout) {
            let theirs = match blob == digest[7..] {
                true => into.join("manifest.json"),
                false => into.join(&blob),
            };
            let ours = layout.join("blobs/sha256").join(&blob);
            assert!(fs::read(theirs).unwrap() == fs::read(ours).unwrap(), "{blob} differs");
        }
    }

    let second = push(&["--json"]);
    assert!(second.status.success(), "{}", text(&second.stderr));
    let report: serde_json::Value = serde_json::from_slice(&second.stdout).unwrap();
    assert_eq!(report["reference"], pinned);
    assert_eq!(report["digest"], digest);
    assert_eq!(report["tag"], "25h2");
    assert_eq!((&report["blobsUploaded"], &report["blobsPresent"]), (&0.into(), &2.into()));
    let size: u64 =
        blobs(&layout).iter().map(|b| fs::metadata(layout.join("blobs/sha256").join(b)).unwrap().len()).sum();
    assert_eq!(report["size"], size);
}

/// A push of a small layout that must fail: exit code and standard error.
struct Failing {
    folder: tempfile::TempDir,
    layout: PathBuf,
}

impl Failing {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout(folder.path(), 1);
        Self { folder, layout }
    }

    fn push(&self, target: &str, change: impl FnOnce(&mut Command)) -> (Option<i32>, String) {
        let mut command = sealroot(self.folder.path());
        command.arg("push").arg(&self.layout).arg(target);
        change(&mut command);
        let output = with_input(&mut command, &format!("{PASSWORD}\n"));
        assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
        (output.status.code(), text(&output.stderr))
    }
}

/// Exit code, and words the message must hold.
#[track_caller]
fn says(got: (Option<i32>, String), code: i32, words: &[&str]) {
    for word in words {
        assert!(got.1.contains(word), "'{word}' is not in: {}", got.1);
    }
    assert_eq!(got.0, Some(code), "{}", got.1);
    assert!(!got.1.contains(PASSWORD));
}

const LOGIN: [&str; 3] = ["--username", USER, "--password-stdin"];

#[test]
fn only_a_trusted_certificate_for_the_right_name_will_do() {
    let failing = Failing::new();
    let scratch = failing.folder.path();
    let own = Authority::new(&scratch.join("own"));
    let other = Authority::new(&scratch.join("other"));
    let start = |tls| {
        let setup = Setup { auth: Auth::Password, tls: Some(tls), read_only: false };
        Registry::start_in(tempfile::tempdir().unwrap(), own.certificate(), setup)
    };
    let target = |registry: &Registry| format!("{}/a:t", registry.host());
    let trusting = |ca: PathBuf| {
        move |c: &mut Command| {
            c.args(LOGIN).arg("--ca").arg(ca);
        }
    };

    let good = start(own.server("DNS:localhost,IP:127.0.0.1"));
    says(
        failing.push(&target(&good), |c| {
            c.args(LOGIN);
        }),
        1,
        &["not signed by an authority", "--ca FILE"],
    );
    says(failing.push(&target(&good), trusting(other.certificate())), 1, &["not signed by an authority"]);
    says(
        failing.push(&target(&good), |c| {
            c.args(LOGIN).arg("--plain-http");
        }),
        1,
        &["400", "HTTPS server", "leave --plain-http out"],
    );

    // Many authorities in one file, text between them: all are trusted.
    let bundle = scratch.join("bundle.pem");
    let pem = |authority: &Authority| fs::read_to_string(authority.certificate()).unwrap();
    fs::write(&bundle, format!("# theirs\n{}\n# ours\n{}", pem(&other), pem(&own))).unwrap();
    let mut command = sealroot(scratch);
    command.arg("push").arg(&failing.layout).arg(target(&good)).args(LOGIN).arg("--ca").arg(&bundle);
    // A machine without system roots has nothing here.
    command.env("SSL_CERT_FILE", scratch.join("none")).env("SSL_CERT_DIR", scratch.join("none"));
    let output = with_input(&mut command, PASSWORD);
    assert!(output.status.success(), "{}", text(&output.stderr));
    says(
        failing.push(&target(&good), |c| {
            c.args(LOGIN)
                .env("SSL_CERT_FILE", scratch.join("none"))
                .env("SSL_CERT_DIR", scratch.join("none"));
        }),
        1,
        &["no system CA certificates", "--ca FILE"],
    );

    for (content, code) in [("", 3), ("garbage", 3)] {
        let bad = scratch.join("bad-ca.pem");
        fs::write(&bad, content).unwrap();
        says(failing.push(&target(&good), trusting(bad)), code, &["bad-ca.pem", "no certificate"]);
    }
    says(
        failing.push(&target(&good), trusting(scratch.join("absent.pem"))),
        1,
        &["absent.pem", "No such file"],
    );

    let expired = start(own.expired("IP:127.0.0.1"));
    says(failing.push(&target(&expired), trusting(own.certificate())), 1, &["out of date", "clock"]);
    let elsewhere = start(own.server("DNS:registry.example.com"));
    says(
        failing.push(&target(&elsewhere), trusting(own.certificate())),
        1,
        &["for another name", "127.0.0.1"],
    );
    let careless = start(own.as_server());
    says(
        failing.push(&target(&careless), trusting(own.certificate())),
        1,
        &["an authority's own", "have a server"],
    );
}

#[test]
fn plain_http_is_for_this_machine_and_must_be_asked_for() {
    let failing = Failing::new();
    let setup = Setup { auth: Auth::Password, tls: None, read_only: false };
    let registry = Registry::start_in(tempfile::tempdir().unwrap(), PathBuf::new(), setup);
    let target = format!("{}/a:t", registry.host());
    says(
        failing.push(&target, |c| {
            c.args(LOGIN);
        }),
        1,
        &["does not speak TLS", "--plain-http"],
    );
    for elsewhere in ["registry.example.com/a:t", "10.0.0.1:5000/a:t"] {
        says(
            failing.push(elsewhere, |c| {
                c.args(LOGIN).arg("--plain-http");
            }),
            2,
            &["this machine only"],
        );
    }
    let mut command = sealroot(failing.folder.path());
    command.arg("push").arg(&failing.layout).arg(&target).args(LOGIN).arg("--plain-http");
    // No system roots are needed where no certificate is looked at.
    command.env("SSL_CERT_FILE", "/nonexistent").env("SSL_CERT_DIR", "/nonexistent");
    let output = with_input(&mut command, PASSWORD);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with(&format!("{}/a@sha256:", registry.host())));
}

#[test]
fn a_registry_that_is_not_there_is_told_from_one_that_says_no() {
    let failing = Failing::new();
    let mut registry = Registry::start();
    let target = format!("{}/a:t", registry.host());
    let ca = registry.ca().to_owned();
    let trusting = |c: &mut Command| {
        c.arg("--ca").arg(&ca);
    };

    says(failing.push(&target, trusting), 1, &["asks for credentials", "docker"]);
    let wrong = |c: &mut Command| {
        c.arg("--ca").arg(&ca).args(["--username", "nobody", "--password-stdin"]);
    };
    says(failing.push(&target, wrong), 1, &["refuses the credentials of 'nobody'"]);
    says(failing.push("registry.invalid/a:t", trusting), 1, &["no address", "registry.invalid"]);
    registry.stop();
    says(failing.push(&target, trusting), 1, &["connection refused", "running"]);

    let setup = Setup { auth: Auth::Nobody, tls: None, read_only: true };
    let read_only = Registry::start_in(tempfile::tempdir().unwrap(), PathBuf::new(), setup);
    let target = format!("{}/a:t", read_only.host());
    says(
        failing.push(&target, |c| {
            c.arg("--plain-http");
        }),
        1,
        &["405", "read-only"],
    );
}

#[test]
fn a_target_or_layout_that_will_not_do_is_refused_before_anything_is_sent() {
    let failing = Failing::new();
    let nothing = |_: &mut Command| {};
    says(failing.push("private/windows:11", nothing), 2, &["names no registry"]);
    says(failing.push("docker.io/me/windows:11", nothing), 2, &["nickname"]);
    says(failing.push("h.example/a", nothing), 2, &["no tag"]);
    says(failing.push(&format!("h.example/a:t@sha256:{}", "0".repeat(64)), nothing), 2, &["holds a digest"]);
    says(
        failing.push("h.example/a:t", |c| {
            c.args(["--username", "u"]);
        }),
        2,
        &["--password-stdin"],
    );
    says(
        failing.push("h.example/a:t", |c| {
            c.args(["--password-stdin"]);
        }),
        2,
        &["--username"],
    );

    let blob = |name: &str| failing.layout.join("blobs/sha256").join(name);
    let largest =
        blobs(&failing.layout).into_iter().max_by_key(|b| fs::metadata(blob(b)).unwrap().len()).unwrap();
    let registry = Registry::start();
    let target = format!("{}/a:t", registry.host());
    let trusting = |c: &mut Command| {
        c.arg("--ca").arg(registry.ca()).args(LOGIN);
    };
    let mut content = fs::read(blob(&largest)).unwrap();
    content[100] ^= 1;
    fs::write(blob(&largest), &content).unwrap();
    says(failing.push(&target, trusting), 3, &["is damaged", &largest]);
    content.pop();
    fs::write(blob(&largest), &content).unwrap();
    says(failing.push(&target, trusting), 3, &[&largest, "is damaged"]);
    fs::remove_file(blob(&largest)).unwrap();
    says(failing.push(&target, trusting), 1, &[&largest, "No such file"]);
    fs::write(failing.layout.join("index.json"), "{}").unwrap();
    says(failing.push(&target, trusting), 3, &["index.json"]);
    assert!(!registry.storage().join("docker/registry/v2/repositories/a/_manifests").exists());
}

#[test]
fn logins_are_found_where_docker_and_podman_keep_them() {
    let failing = Failing::new();
    let home = failing.folder.path();
    let registry = Registry::start();
    let host = registry.host();
    let target = format!("{host}/private/a:t");
    let base64 = |text: &str| {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(text)
    };
    let login = |auths: &str| {
        format!(r#"{{"auths": {{"{auths}": {{"auth": "{}"}}}}}}"#, base64(&format!("{USER}:{PASSWORD}")))
    };
    let write = |path: PathBuf, content: &str| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    };
    let push = |change: &dyn Fn(&mut Command)| {
        let mut command = sealroot(home);
        command.arg("push").arg(&failing.layout).arg(&target).arg("--ca").arg(registry.ca());
        change(&mut command);
        let output = with_input(&mut command, "");
        (output.status.code(), text(&output.stderr))
    };

    // podman, by folder.
    let podman = write(home.join("run/containers/auth.json"), &login(&format!("{host}/private")));
    says(
        push(&|c| {
            c.env("XDG_RUNTIME_DIR", home.join("run"));
        }),
        0,
        &[],
    );
    says(
        push(&|c| {
            c.env("REGISTRY_AUTH_FILE", &podman);
        }),
        0,
        &[],
    );
    says(
        push(&|c| {
            c.env("REGISTRY_AUTH_FILE", "/nonexistent/a.json");
        }),
        1,
        &["/nonexistent/a.json"],
    );
    says(push(&|_| {}), 1, &["asks for credentials"]);

    // docker, at home, then where DOCKER_CONFIG says.
    let config = write(home.join(".docker/config.json"), &login(&host));
    says(push(&|_| {}), 0, &[]);
    fs::write(&config, r#"{"auths": ["#).unwrap();
    says(push(&|_| {}), 3, &[".docker/config.json", "not a login file"]);
    let elsewhere = home.join("elsewhere");
    let config = write(elsewhere.join("config.json"), &login(&format!("https://{host}/v2/")));
    let there = |c: &mut Command| {
        c.env("DOCKER_CONFIG", &elsewhere);
    };
    says(push(&there), 0, &[]);

    // Credential helpers: a script on the PATH, as credHelpers and as credsStore.
    let helper = home.join("bin/docker-credential-test");
    let script = |body: &str| {
        use std::os::unix::fs::PermissionsExt;
        write(helper.clone(), &format!("#!/bin/sh\nread server\n{body}\n"));
        fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let with_helper = |c: &mut Command| {
        let path = std::env::var("PATH").unwrap();
        c.env("DOCKER_CONFIG", &elsewhere).env("PATH", format!("{}:{path}", home.join("bin").display()));
    };
    script(&format!(
        r#"[ "$1 $server" = "get {host}" ] && echo '{{"Username":"{USER}","Secret":"{PASSWORD}"}}'"#
    ));
    fs::write(&config, format!(r#"{{"credHelpers": {{"{host}": "test"}}}}"#)).unwrap();
    says(push(&with_helper), 0, &[]);
    fs::write(&config, format!(r#"{{"auths": {{"{host}": {{}}}}, "credsStore": "test"}}"#)).unwrap();
    says(push(&with_helper), 0, &[]);
    says(push(&there), 1, &["helper", "can't be run"]);
    script(&format!("echo {PASSWORD}; echo {PASSWORD} >&2; exit 1"));
    says(push(&with_helper), 1, &["docker-credential-test", &host]);
    script("echo 'credentials not found in native keychain'; exit 1");
    says(push(&with_helper), 1, &["asks for credentials"]);
    script("echo nonsense");
    says(push(&with_helper), 1, &["Username and Secret"]);
    script(r#"echo '{"Username":"<token>","Secret":"s3cret-token"}'"#);
    says(push(&with_helper), 1, &["identity token", "basic"]);
}

#[test]
fn a_password_that_cannot_be_sent_is_refused() {
    let failing = Failing::new();
    for (password, word) in
        [("", "empty"), ("two\nlines", "newline"), (&"x".repeat(10_000), "longer"), ("\n\n", "newline")]
    {
        let mut command = sealroot(failing.folder.path());
        command.arg("push").arg(&failing.layout).arg("h.example/a:t").args(LOGIN);
        let output = with_input(&mut command, password);
        assert_eq!(output.status.code(), Some(3));
        assert!(text(&output.stderr).contains(word), "{}", text(&output.stderr));
    }
}
