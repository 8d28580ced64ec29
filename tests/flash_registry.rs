//! `flash` out of a registry: by tag and digest, through connections that break, and through redirects.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/https.rs"]
mod https;
#[path = "support/registry.rs"]
mod registry;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use https::{Answer, Https};
use registry::certificates::{Authority, run};
use registry::{Auth, PASSWORD, Registry, Setup, USER};
use serde_json::Value;

const MIB: usize = 1 << 20;

fn sealroot(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealroot"));
    command.env("REGISTRY_AUTH_FILE", folder.join("auth.json"));
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn log_in(folder: &Path, host: &str) {
    let login = STANDARD.encode(format!("{USER}:{PASSWORD}"));
    fs::write(folder.join("auth.json"), format!(r#"{{"auths":{{"{host}":{{"auth":"{login}"}}}}}}"#)).unwrap();
}

/// A disk that does not compress, and a layout of it.
fn image(folder: &Path) {
    let mut state = 1u64;
    let mut disk = vec![0; 12 * MIB];
    for byte in &mut disk[2 * MIB..10 * MIB] {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *byte = (state >> 56) as u8;
    }
    fs::write(folder.join("disk.raw"), disk).unwrap();
    fs::write(folder.join("auth.json"), "{}").unwrap();
    run(sealroot(folder)
        .args(["package", "--no-audit", "--disk"])
        .arg(folder.join("disk.raw"))
        .arg("--output")
        .arg(folder.join("image")));
}

fn same(folder: &Path) {
    run(Command::new("cmp").arg(folder.join("disk.raw")).arg(folder.join("out.raw")));
}

#[test]
fn an_image_of_a_registry_becomes_the_disk() {
    let registry = Registry::start();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    image(folder);
    log_in(folder, &registry.host());
    let name = format!("{}/private/a:t", registry.host());
    let pushed =
        run(sealroot(folder).arg("push").arg(folder.join("image")).arg(&name).arg("--ca").arg(registry.ca()));
    let pinned = String::from_utf8(pushed).unwrap().trim_end().to_owned();
    for source in [&name, &pinned] {
        let mut flash = sealroot(folder);
        flash
            .args(["flash", "--json", "--force", source, "--ca"])
            .arg(registry.ca())
            .arg("--to")
            .arg(folder.join("out.raw"));
        let report: Value = serde_json::from_slice(&run(&mut flash)).unwrap();
        assert_eq!(report["source"], pinned);
        assert!(pinned.ends_with(report["digest"].as_str().unwrap()));
        same(folder);
    }
    for (source, words) in [
        (format!("{}/private/a:other", registry.host()), "answered 404"),
        (format!("{}/private/a@sha256:{}", registry.host(), "0".repeat(64)), "answered 404"),
        (format!("{}/private/a", registry.host()), "no tag"),
    ] {
        let mut flash = sealroot(folder);
        flash.args(["flash", &source, "--ca"]).arg(registry.ca()).arg("--to").arg(folder.join("new.raw"));
        let failed = flash.output().unwrap();
        assert!(said(&failed).contains(words), "{}", said(&failed));
        assert!(!folder.join("new.raw").exists());
    }
}

/// Passes connections on, and cuts each after so many bytes to the client.
fn cutting(registry: &str, limit: usize) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let (registry, cuts) = (registry.to_owned(), Arc::<AtomicUsize>::default());
    let counted = Arc::clone(&cuts);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(&registry).unwrap());
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let counted = Arc::clone(&counted);
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || {
                let (mut buf, mut left) = (vec![0; 64 << 10], limit);
                while let Ok(read @ 1..) = server.read(&mut buf) {
                    let pass = read.min(left);
                    if client.write_all(&buf[..pass]).is_err() {
                        break;
                    }
                    left -= pass;
                    if left == 0 {
                        counted.fetch_add(1, Ordering::SeqCst);
                        break;
                    }
                }
                let _ = client.shutdown(Shutdown::Both);
                let _ = server.shutdown(Shutdown::Both);
            });
        }
    });
    (host, cuts)
}

#[test]
fn a_connection_that_breaks_again_and_again_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { auth: Auth::Nobody, tls: None, read_only: false };
    let registry = Registry::start_in(tempfile::tempdir().unwrap(), "/none".into(), setup);
    let folder = folder.path();
    image(folder);
    let push = ["push", "--plain-http"];
    let name = format!("{}/private/a:t", registry.host());
    run(sealroot(folder).args(push).arg(folder.join("image")).arg(&name));
    let (host, cuts) = cutting(&registry.host(), MIB + 12_345);
    let mut flash = sealroot(folder);
    flash.args(["flash", "--plain-http", &format!("{host}/private/a:t"), "--to"]).arg(folder.join("out.raw"));
    run(&mut flash);
    same(folder);
    assert!(cuts.load(Ordering::SeqCst) >= 6, "{cuts:?}");
    // So soon that nothing of the blob ever comes: given up, with nothing left.
    let (host, _) = cutting(&registry.host(), 900);
    let mut flash = sealroot(folder);
    flash
        .args(["flash", "--plain-http", &format!("{host}/private/a:t"), "--to"])
        .arg(folder.join("none.raw"));
    let failed = flash.output().unwrap();
    assert_eq!(failed.status.code(), Some(1), "{}", said(&failed));
    assert!(!folder.join("none.raw").exists());
}

#[test]
fn a_redirect_gets_no_credentials_and_wrong_bytes_fail() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    image(folder);
    let authority = Authority::new(&folder.join("tls"));
    let tls = authority.server("IP:127.0.0.1");
    let blobs = folder.join("image/blobs/sha256");
    let stored = blobs.clone();
    let storage = Https::serve(&tls, move |request| {
        let (kind, name) = request.path.trim_start_matches('/').split_once('/').unwrap();
        let mut body = fs::read(stored.join(name)).unwrap();
        // The layer, not the configuration.
        if let Some(last) = body.len().checked_sub(5000) {
            body[last] ^= u8::from(kind == "bad");
        }
        Answer::new(200).body(body)
    });
    let to = storage.host();
    let index: Value = serde_json::from_slice(&fs::read(folder.join("image/index.json")).unwrap()).unwrap();
    let manifest = index["manifests"][0]["digest"].as_str().unwrap().replace("sha256:", "");
    let front = Https::serve(&tls, move |request| {
        if request.header("authorization").is_none() {
            return Answer::new(401).header("www-authenticate", "Basic realm=\"x\"");
        }
        let last = request.path.rsplit('/').next().unwrap();
        match request.path.split('/').nth_back(1) {
            Some("manifests") => Answer::new(200).body(fs::read(blobs.join(&manifest)).unwrap()),
            Some("blobs") => {
                let kind = if request.path.contains("/bad/") { "bad" } else { "good" };
                let there = format!("https://{to}/{kind}/{}", last.replace("sha256:", ""));
                Answer::new(307).header("location", there)
            }
            _ => Answer::new(200),
        }
    });
    log_in(folder, &front.host());
    let flash = |repository: &str, to: &str| {
        let mut flash = sealroot(folder);
        flash.arg("flash").arg(format!("{}/{repository}/a:t", front.host())).arg("--to").arg(folder.join(to));
        flash.arg("--ca").arg(authority.certificate()).output().unwrap()
    };
    let done = flash("good", "out.raw");
    assert!(done.status.success(), "{}", said(&done));
    same(folder);
    assert!(!storage.seen().is_empty());
    assert!(storage.seen().iter().all(|request| request.header("authorization").is_none()));
    let failed = flash("bad", "bad.raw");
    assert_eq!(failed.status.code(), Some(3), "{}", said(&failed));
    assert!(said(&failed).contains("damaged"), "{}", said(&failed));
    assert!(!folder.join("bad.raw").exists());
}
