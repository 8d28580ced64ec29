//! `promote`: from one docker-registry over TLS to another, and within one; skopeo judges what arrived.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/hostile.rs"]
mod hostile;
#[path = "support/published.rs"]
mod published;
#[path = "support/registry.rs"]
mod registry;
#[path = "support/root_disk.rs"]
mod root_disk;

use std::fs;
use std::path::Path;

use hostile::{Hostile, Keeping, Manner, Mischief};
use published::{Client, text};
use registry::certificates::Authority;
use registry::{Auth, PASSWORD, Registry, Setup};
use root_disk::{RootDisk, demo};

/// Whether skopeo finds an image there.
fn is_there(client: &Client, reference: &str) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client.skopeo_inspect(reference, &[]))).is_ok()
}

fn same_folder(a: &Path, b: &Path) {
    let names = |folder: &Path| {
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(a), names(b));
    for name in names(a) {
        assert!(fs::read(a.join(&name)).unwrap() == fs::read(b.join(&name)).unwrap(), "{name:?} differs");
    }
}

#[test]
fn from_one_registry_to_another_every_byte_is_the_same() {
    let (from, to) = (Registry::start(), Registry::start());
    let client = Client::of(&[&from, &to]);
    let source = client.publish(&demo(), &format!("{}/build/w:7", from.host()), &["--seal"]);
    let digest = source.split_once('@').unwrap().1;
    let target = format!("{}/golden/windows11:25h2", to.host());

    let told =
        client.ok(&["promote", &format!("{}/build/w:7", from.host()), &target, "--require-audit", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let reference = format!("{}/golden/windows11@{digest}", to.host());
    assert_eq!((&told["reference"], &told["tag"]), (&reference.as_str().into(), &"25h2".into()));
    assert_eq!(
        (&told["blobsCopied"], &told["blobsMounted"], &told["blobsPresent"]),
        (&2.into(), &0.into(), &0.into())
    );
    assert_eq!(client.skopeo_inspect(&target, &[])["Digest"], digest);
    let (a, b) = (client.folder().join("a"), client.folder().join("b"));
    from.pull(&source, &a);
    to.pull(&reference, &b);
    same_folder(&a, &b);

    // Again: nothing is left to be copied, and the result is the same.
    assert_eq!(client.ok(&["promote", &source, &target]), format!("{reference}\n"));
}

#[test]
fn within_a_registry_blobs_are_taken_over_and_tags_are_only_names() {
    let registry = Registry::start();
    let client = Client::of(&[&registry]);
    let source = client.publish(&demo(), &format!("{}/build/w:7", registry.host()), &[]);
    let digest = source.split_once('@').unwrap().1;
    let said = registry.log().len();
    let told = client.ok(&["promote", &source, &format!("{}/golden/w:1", registry.host()), "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["blobsMounted"], &told["bytesCopied"]), (&2.into(), &0.into()));
    assert_eq!(client.skopeo_inspect(&format!("{}/golden/w:1", registry.host()), &[])["Digest"], digest);
    let log = registry.log();
    assert!(log[said..].contains("mount=sha256") && !log[said..].contains("http.request.method=PATCH"));

    // A tag more in the same repository.
    let told = client.ok(&["promote", &source, &format!("{}/build/w:latest", registry.host())]);
    assert_eq!(told, format!("{source}\n"));
    assert_eq!(client.skopeo_inspect(&format!("{}/build/w:latest", registry.host()), &[])["Digest"], digest);
}

#[test]
fn an_unfit_image_is_not_copied() {
    let registry = Registry::start();
    let client = Client::of(&[&registry]);
    let root = RootDisk::standard().with_cached_answer();
    let source = client.publish(root.path(), &format!("{}/build/w:7", registry.host()), &["--no-audit"]);
    let target = format!("{}/golden/w:1", registry.host());
    client.fails(&["promote", &source, &target, "--require-audit"], 3, &["answer-file-password", "not fit"]);
    assert!(!is_there(&client, &target));
    // Without the audit it is the operator's own business.
    client.ok(&["promote", &source, &target]);
    assert!(is_there(&client, &target));
}

#[test]
fn each_registry_is_logged_in_to_with_its_own_login() {
    let (from, to) = (Registry::start(), Registry::start());
    let client = Client::of(&[&from, &to]);
    let source = client.publish(&demo(), &format!("{}/build/w:7", from.host()), &[]);
    let target = format!("{}/golden/w:1", to.host());
    client.log_in(&[(&from.host(), PASSWORD)]);
    client.fails(&["promote", &source, &target], 1, &[&to.host(), "asks for credentials"]);
    client.log_in(&[(&from.host(), PASSWORD), (&to.host(), "wrong-pass")]);
    client.fails(&["promote", &source, &target], 1, &[&to.host(), "refuses the credentials"]);
    client.log_in(&[(&to.host(), PASSWORD)]);
    client.fails(&["promote", &source, &target], 1, &[&from.host(), "asks for credentials"]);
    client.log_in(&[(&from.host(), PASSWORD), (&to.host(), PASSWORD)]);
    client.ok(&["promote", &source, &target]);
}

#[test]
fn what_a_damaged_source_holds_never_gets_a_name() {
    let (from, to) = (Registry::start(), Registry::start());
    let client = Client::of(&[&from, &to]);
    let source = client.publish(&demo(), &format!("{}/build/w:7", from.host()), &[]);
    let told = client.ok(&["inspect", &source]);
    let digest = published::row(&told, "layer").split(',').next().unwrap().to_owned();
    let blob = from.storage().join(format!(
        "docker/registry/v2/blobs/sha256/{}/{}/data",
        &digest[7..9],
        &digest[7..]
    ));
    let mut bytes = fs::read(&blob).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&blob, bytes).unwrap();
    let target = format!("{}/golden/w:1", to.host());
    client.fails(&["promote", &source, &target], 1, &[&digest, "and not sha256:"]);
    assert!(!is_there(&client, &target));
    assert!(!to.log().contains("http.request.method=PUT"), "{}", to.log());
}

/// The upload goes on where the target has it, and the source is read again from there.
#[test]
fn an_upload_that_is_cut_goes_on() {
    let from = Registry::start();
    let client = Client::of(&[&from]);
    let noise: Vec<u8> = (0..20u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let root = RootDisk::standard().file("filler.bin", &noise);
    let none = ["--compression", "none"];
    let source = client.publish(root.path(), &format!("{}/build/w:7", from.host()), &none);
    let digest = source.split_once('@').unwrap().1;
    let authority = Authority::new(&client.folder().join("tls"));
    client.trust(&[from.ca(), &authority.certificate()]);
    for keeping in [Keeping::All, Keeping::Nothing] {
        let setup = Setup { auth: Auth::Nobody, tls: None, read_only: false };
        let to = Registry::start_in(tempfile::tempdir().unwrap(), authority.certificate(), setup);
        let mut patches = 0;
        let tls = hostile::tls(&authority.server("DNS:localhost,IP:127.0.0.1"));
        let manner = Manner { keeping, ..Manner::default() };
        let proxy = Hostile::start(&to.host(), &tls, manner, move |head| {
            patches += usize::from(head.is("PATCH", "/uploads/"));
            match patches {
                1 if head.is("PATCH", "/uploads/") => Mischief::CutRequest(9 << 20),
                _ => Mischief::Pass,
            }
        });
        client.log_in(&[(&from.host(), PASSWORD), (&proxy.host(), PASSWORD)]);
        let target = format!("{}/golden/w:1", proxy.host());
        let told = client.ok(&["promote", &source, &target, "--retry-pause", "2"]);
        assert_eq!(told, format!("{}/golden/w@{digest}\n", proxy.host()));
        assert_eq!(client.skopeo_inspect(&target, &[])["Digest"], digest);
        assert!(proxy.seen().len() > 5 && proxy.violations().is_empty(), "{:?}", proxy.violations());
    }
}

#[test]
fn names_are_checked_before_anything_is_asked() {
    let client = Client::new();
    for (source, target, word) in [
        ("registry.invalid/a", "registry.invalid/b:1", "has no tag"),
        ("registry.invalid/a:1", "registry.invalid/b", "has no tag"),
        ("a:1", "registry.invalid/b:1", "names no registry"),
    ] {
        let output = client.sealroot(&["promote", source, target]);
        assert_eq!(output.status.code(), Some(2), "{source} {target}");
        assert!(text(&output.stderr).contains(word), "{}", text(&output.stderr));
    }
}

#[test]
fn a_tag_that_moves_is_told_of() {
    let registry = Registry::start();
    let client = Client::of(&[&registry]);
    let first = client.publish(&demo(), &format!("{}/build/w:1", registry.host()), &["--seal"]);
    let second = client.publish(&demo(), &format!("{}/build/w:2", registry.host()), &[]);
    let told = |args: &[&str]| {
        let (ca, packages) = (client.ca(), args[0] == "package");
        let trust: &[&str] = if packages { &[] } else { &["--ca", ca.to_str().unwrap()] };
        let output = client.sealroot(&[args, trust].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let digest = |reference: &str| reference.split_once('@').unwrap().1.to_owned();
    let target = format!("{}/golden/w:1", registry.host());
    assert!(!told(&["promote", &first, &target]).contains("led to"));
    assert!(!told(&["promote", &first, &target]).contains("led to"));
    let moved = told(&["promote", &second, &target]);
    assert!(moved.contains(&format!("the tag 1 led to {} until now", digest(&first))), "{moved}");
    assert_eq!(client.skopeo_inspect(&target, &[])["Digest"], digest(&second));
    // The same of a push.
    let layout = client.folder().join("layout");
    let layout = layout.to_str().unwrap();
    told(&["package", "--disk", demo().to_str().unwrap(), "--seal", "--output", layout]);
    let moved = told(&["push", layout, &target]);
    assert!(moved.contains(&format!("the tag 1 led to {} until now", digest(&second))), "{moved}");
}
