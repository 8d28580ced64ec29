//! `push`: against Debian's docker-registry over TLS, with skopeo as the judge of what arrived.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/registry.rs"]
mod registry;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use registry::certificates::run;
use registry::{PASSWORD, Registry, USER};

/// A layout made by umoci, with one layer that holds `mib` MiB of noise.
fn layout(folder: &Path, mib: usize) -> PathBuf {
    let layout = folder.join("layout");
    let name = format!("{}:t", layout.display());
    let noise = folder.join("noise");
    run(Command::new("dd").args(["if=/dev/urandom", "bs=1M"]).arg(format!("count={mib}")).arg(format!("of={}", noise.display())));
    run(Command::new("umoci").arg("init").arg("--layout").arg(&layout));
    run(Command::new("umoci").args(["new", "--image", &name]));
    run(Command::new("umoci").args(["insert", "--rootless", "--image", &name]).arg(&noise).arg("/disk/disk.qcow2"));
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
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
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
    assert_eq!((&report["blobs_uploaded"], &report["blobs_present"]), (&0.into(), &2.into()));
    let size: u64 =
        blobs(&layout).iter().map(|b| fs::metadata(layout.join("blobs/sha256").join(b)).unwrap().len()).sum();
    assert_eq!(report["size"], size);
}
