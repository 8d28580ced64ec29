//! `inspect`: published images, read without pulling them. Judged by skopeo, and by the audit of the disk itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/https.rs"]
mod https;
#[path = "support/published.rs"]
mod published;
#[path = "support/registry.rs"]
mod registry;
#[path = "support/root_disk.rs"]
mod root_disk;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use https::{Answer, Https, Request};
use published::{Client, row, text};
use registry::Registry;
use registry::certificates::{Authority, run};
use root_disk::{RootDisk, demo};
use serde_json::Value;

/// Bytes that don't compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..len.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(len).collect()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn layer_of(layout: &Path) -> PathBuf {
    let blobs = fs::read_dir(layout.join("blobs/sha256")).unwrap().map(|entry| entry.unwrap().path());
    blobs.max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

#[test]
fn an_image_is_told_as_skopeo_tells_it() {
    let registry = Registry::start();
    let client = Client::of(&[&registry]);
    let layout = client.layout(&demo(), "image", &["--seal"]);
    let name = format!("{}:latest", layout.display());
    run(Command::new("umoci").args(["config", "--image", &name]).args([
        "--config.env",
        "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE=windows.11",
        "--manifest.annotation",
        "org.opencontainers.image.title=Windows 11",
        "--created",
        "2026-01-02T03:04:05Z",
    ]));
    run(Command::new("umoci").args(["gc", "--layout"]).arg(&layout));
    let by_tag = format!("{}/private/windows11:25h2", registry.host());
    client.skopeo_push(&layout, &by_tag, &["--preserve-digests"]);
    let theirs = client.skopeo_inspect(&by_tag, &[]);
    let digest = theirs["Digest"].as_str().unwrap();

    let told = client.ok(&["inspect", &by_tag]);
    let by_digest = format!("{}/private/windows11@{digest}", registry.host());
    assert_eq!(row(&told, "reference"), by_digest);
    assert_eq!(row(&told, "digest"), digest);
    assert_eq!(row(&told, "created"), "2026-01-02T03:04:05Z");
    assert_eq!(row(&told, "platform"), "linux/amd64");
    assert_eq!(row(&told, "annotation"), "org.opencontainers.image.title=Windows 11");
    assert!(told.contains("env          INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE=windows.11\n"), "{told}");
    assert!(row(&told, "seek table").ends_with(" frames"), "{told}");
    assert!(row(&told, "disk").starts_with("257949696 bytes, of which "), "{told}");

    let ours = json(&client.ok(&["inspect", &by_digest, "--json"]));
    let raw = client.skopeo_inspect(&by_digest, &["--raw"]);
    let layer = &ours["layers"][0];
    assert_eq!(layer["digest"], theirs["Layers"][0]);
    assert_eq!(
        (&layer["mediaType"], &layer["size"]),
        (&raw["layers"][0]["mediaType"], &raw["layers"][0]["size"])
    );
    assert_eq!(layer["diffId"], client.skopeo_inspect(&by_tag, &["--config"])["rootfs"]["diff_ids"][0]);
    assert_eq!((&ours["annotations"], &ours["config"]), (&raw["annotations"], &raw["config"]));
    assert_eq!(ours["env"], theirs["Env"]);
    // The layout says the same of itself, by whatever way it is read.
    let mut local = json(&client.ok(&["inspect", layout.to_str().unwrap(), "--json"]));
    local["reference"] = ours["reference"].clone();
    assert_eq!(local, ours);

    client.fails(&["inspect", &format!("{}/private/windows11", registry.host())], 2, &["has no tag"]);
    client.fails(&["inspect", &format!("{by_tag}x")], 1, &["answered 404"]);
    client.fails(
        &["inspect", "no-such-folder"],
        2,
        &["there is no folder no-such-folder", "HOST/REPOSITORY:TAG"],
    );
}

#[test]
fn a_published_disk_is_audited_without_being_pulled() {
    let registry = Registry::start();
    let client = Client::of(&[&registry]);
    // As in a real root, what is looked at is little of the whole: the rest is 400 MiB that don't compress.
    let root = RootDisk::made(&["--mib", "1024"]).with_cached_answer().edit_volume(|volume| {
        let noise = noise(50 << 20);
        (0..8).for_each(|n| volume.put(&format!("filler{n}.bin"), &noise[n * 4096..]));
    });
    let sealed = client.folder().join("sealed.qcow2");
    client.sealroot(&[
        "prepare-sealed-root",
        "--disk",
        root.path().to_str().unwrap(),
        "--output",
        sealed.to_str().unwrap(),
    ]);
    let reference = client.publish(root.path(), &format!("{}/private/w:1", registry.host()), &["--seal"]);

    let said = registry.log().len();
    let remote = json(&client.ok(&["inspect", &reference, "--audit", "--json"]));
    let local =
        json(&text(&client.sealroot(&["audit", "--disk", sealed.to_str().unwrap(), "--json"]).stdout));
    // Of what is not shipped, free space is all that the facts tell.
    assert_eq!(remote["audit"]["findings"], local["findings"]);
    assert_eq!(remote["audit"]["facts"], local["facts"]);
    // A few frames of 4 MiB, however large the rest is.
    let (bytes, layer) =
        (remote["fetched"]["bytes"].as_u64().unwrap(), remote["layers"][0]["size"].as_u64().unwrap());
    assert!(layer > 390 << 20 && bytes * 10 < layer, "{bytes} of {layer}");
    assert_eq!(remote["fetched"]["partsVerifiedByDigest"], false);
    // The registry's own account: of the layer, only ranges were asked for, and no more was sent than is told.
    let log = registry.log()[said..].to_owned();
    let digest = remote["layers"][0]["digest"].as_str().unwrap();
    let answers: Vec<_> =
        log.lines().filter(|l| l.contains("response completed") && l.contains(digest)).collect();
    assert!(!answers.is_empty(), "{log}");
    let sent: u64 = answers
        .iter()
        .map(|line| {
            assert!(line.contains("http.response.status=206"), "{line}");
            line.split("http.response.written=")
                .nth(1)
                .unwrap()
                .split(' ')
                .next()
                .unwrap()
                .parse::<u64>()
                .unwrap()
        })
        .sum();
    assert_eq!(sent, bytes);

    let told = client.ok(&["inspect", &reference, "--audit"]);
    assert!(row(&told, "fetched").contains("not verified by digest"), "{told}");
    assert!(told.contains("pass    generalised"), "{told}");
}

#[test]
fn an_unfit_image_is_told_and_ends_in_3() {
    let client = Client::new();
    let root = RootDisk::standard().not_generalised().with_cached_answer();
    let layout = client.layout(root.path(), "image", &["--no-audit"]);
    let output = client.sealroot(&["inspect", layout.to_str().unwrap(), "--audit"]);
    assert_eq!(output.status.code(), Some(3));
    let (told, said) = (text(&output.stdout), text(&output.stderr));
    assert!(told.contains("refuse  generalised") && told.contains("fail    answer-file-password"), "{told}");
    assert!(said.contains("not fit to publish: generalised, answer-file-password"), "{said}");
}

#[test]
fn a_recipe_holds_the_image_to_its_rules() {
    let client = Client::new();
    let layout = client.layout(&demo(), "image", &[]);
    let recipe = concat!(env!("CARGO_MANIFEST_DIR"), "/recipes/demo.toml");
    let output = client.sealroot(&["inspect", layout.to_str().unwrap(), "--audit", "--recipe", recipe]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("fail    first-boot"), "{}", text(&output.stdout));
    let sealed = client.layout(&demo(), "sealed", &["--seal"]);
    let output = client.sealroot(&["inspect", sealed.to_str().unwrap(), "--audit", "--recipe", recipe]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_layer_without_a_seek_table_is_told_with_the_cure() {
    let client = Client::new();
    let gzip = client.layout(&demo(), "gzip", &["--compression", "gzip"]);
    let output = client.sealroot(&["inspect", gzip.to_str().unwrap(), "--audit"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("gzip has none") && said.contains("--compression zstd") && said.contains("--verify"),
        "{said}"
    );
    let told = client.sealroot(&["inspect", gzip.to_str().unwrap(), "--verify"]);
    assert!(told.status.success(), "{}", text(&told.stderr));
    assert!(row(&text(&told.stdout), "seek table").starts_with("none: "));

    // A tar that is not compressed needs no table.
    let plain = client.layout(&demo(), "plain", &["--compression", "none"]);
    let told = client.sealroot(&["inspect", plain.to_str().unwrap(), "--audit", "--verify"]);
    assert!(told.status.success(), "{}", text(&told.stderr));
    let told = client.sealroot(&["inspect", plain.to_str().unwrap()]);
    assert!(row(&text(&told.stdout), "seek table").contains("not compressed"));
}

#[test]
fn a_whole_layer_is_verified_however_it_is_compressed_and_by_whom() {
    let registry = Registry::start();
    let client = Client::of(&[&registry]);
    let at = |name: &str| format!("{}/private/{name}:1", registry.host());
    for (name, more) in [
        ("zstd", &["--compression", "zstd"]),
        ("gzip", &["--compression", "gzip"]),
        ("none", &["--compression", "none"]),
    ] {
        client.publish(&demo(), &at(name), more);
        let told = client.ok(&["inspect", &at(name), "--verify"]);
        let diff_id = client.skopeo_inspect(&at(name), &["--config"])["rootfs"]["diff_ids"][0].clone();
        assert!(row(&told, "verified").contains(diff_id.as_str().unwrap()), "{told}");
    }
    // Another's zstd: one frame, no seek table.
    let plain = client.layout(&demo(), "plain", &["--compression", "none"]);
    client.skopeo_push(
        &plain,
        &at("skopeo"),
        &["--dest-compress-format", "zstd", "--dest-compress-level", "1"],
    );
    let told = client.ok(&["inspect", &at("skopeo"), "--verify"]);
    if row(&told, "layer").contains("zstd") {
        assert!(row(&told, "seek table").contains("made without one"), "{told}");
    }
    // Not a containerDisk: both digests are right all the same.
    let other = client.folder().join("other");
    let name = format!("{}:t", other.display());
    run(Command::new("umoci").arg("init").arg("--layout").arg(&other));
    run(Command::new("umoci").args(["new", "--image", &name]));
    // umoci changes the times of what it inserts.
    let copy = client.folder().join("x");
    fs::copy(demo(), &copy).unwrap();
    run(Command::new("umoci").args(["insert", "--rootless", "--image", &name]).arg(copy).arg("/etc/x"));
    client.skopeo_push(&other, &at("other"), &[]);
    let told = client.ok(&["inspect", &at("other"), "--verify"]);
    assert!(row(&told, "remark").contains("unexpected entry"), "{told}");
}

#[test]
fn damage_is_found() {
    let registry = Registry::start();
    let client = Client::of(&[&registry]);
    let target = format!("{}/private/w:1", registry.host());
    client.publish(&demo(), &target, &[]);
    let told = client.ok(&["inspect", &target]);
    let digest = row(&told, "layer").split(',').next().unwrap().to_owned();
    let hex = digest.strip_prefix("sha256:").unwrap();
    let blob = registry.storage().join(format!("docker/registry/v2/blobs/sha256/{}/{hex}/data", &hex[..2]));
    let file = fs::OpenOptions::new().read(true).write(true).open(blob).unwrap();
    let at = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    client.fails(&["inspect", &target, "--verify"], 3, &["the layer is damaged", &digest]);

    let layout = client.layout(&demo(), "image", &[]);
    let layer = layer_of(&layout);
    let file = fs::OpenOptions::new().write(true).open(layer).unwrap();
    file.write_all_at(&[0xA5; 16], 200_000).unwrap();
    let output = client.sealroot(&["inspect", layout.to_str().unwrap(), "--verify"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("the layer is damaged"), "{}", text(&output.stderr));
}

/// A registry of one image, whose answers about the layer a test chooses.
struct Fake {
    client: Client,
    authority: Authority,
    layout: PathBuf,
    layer: String,
}

const LOGIN: &str = "Basic cHVzaGVyOnMzY3JldC1wYXNz";

impl Fake {
    fn new() -> Self {
        let client = Client::new();
        let authority = Authority::new(&client.folder().join("tls"));
        let layout = client.layout(&demo(), "image", &["--seal"]);
        let layer = layer_of(&layout).file_name().unwrap().to_str().unwrap().to_owned();
        client.trust(&[&authority.certificate()]);
        Self { client, authority, layout, layer }
    }

    /// Serves everything but what `answer` answers.
    fn serve(&self, answer: impl Fn(&Request, &[u8]) -> Option<Answer> + Send + Sync + 'static) -> Https {
        let (layout, layer) = (self.layout.clone(), self.layer.clone());
        let bytes = fs::read(layer_of(&layout)).unwrap();
        let server = Https::serve(&self.authority.server("IP:127.0.0.1"), move |request| {
            if request.header("authorization") != Some(LOGIN) {
                return Answer::new(401).header("www-authenticate", "Basic realm=\"x\"");
            }
            let last = request.path.rsplit('/').next().unwrap();
            let index = json(&fs::read_to_string(layout.join("index.json")).unwrap());
            let manifest = index["manifests"][0]["digest"].as_str().unwrap()[7..].to_owned();
            match last.strip_prefix("sha256:").unwrap_or(last) {
                "" => Answer::new(200),
                hex if hex == layer => answer(request, &bytes).unwrap_or_else(|| part(request, &bytes)),
                "tag" => manifest_answer(&layout, &manifest),
                hex if hex == manifest => manifest_answer(&layout, &manifest),
                hex => match fs::read(layout.join("blobs/sha256").join(hex)) {
                    Ok(blob) => Answer::new(200).body(blob),
                    Err(_) => Answer::new(404),
                },
            }
        });
        self.client.log_in(&[(&server.host(), registry::PASSWORD)]);
        server
    }
}

fn manifest_answer(layout: &Path, hex: &str) -> Answer {
    let bytes = fs::read(layout.join("blobs/sha256").join(hex)).unwrap();
    Answer::new(200).header("content-type", "application/vnd.oci.image.manifest.v1+json").body(bytes)
}

/// The range that is asked for, or all.
fn part(request: &Request, bytes: &[u8]) -> Answer {
    let Some(range) = request.header("range") else { return Answer::new(200).body(bytes) };
    let (from, to) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    let from: usize = from.parse().unwrap();
    let to = if to.is_empty() { bytes.len() - 1 } else { to.parse().unwrap() };
    Answer::new(206)
        .header("content-range", format!("bytes {from}-{to}/{}", bytes.len()))
        .body(&bytes[from..=to])
}

#[test]
fn a_range_that_fails_is_asked_for_again() {
    let fake = Fake::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = fake.serve(move |request, bytes| {
        request.header("range")?;
        match count.fetch_add(1, Ordering::SeqCst) {
            1 => Some(Answer::new(503)),
            2 => Some(Answer::new(429).header("retry-after", "1")),
            // Cut off in the middle.
            3 => {
                let mut whole = part(request, bytes);
                let len = whole.body.len();
                whole.body.truncate(len / 2);
                Some(whole.header("content-length", len.to_string()).header("connection", "close"))
            }
            _ => None,
        }
    });
    let told = fake.client.ok(&["inspect", &format!("{}/a:tag", server.host()), "--audit"]);
    assert!(told.contains("pass    generalised"), "{told}");
    assert!(asked.load(Ordering::SeqCst) > 5);
}

#[test]
fn what_does_not_serve_ranges_is_not_read_whole() {
    let fake = Fake::new();
    let server = fake.serve(|_, bytes| Some(Answer::new(200).body(bytes)));
    let name = format!("{}/a:tag", server.host());
    fake.client.fails(&["inspect", &name, "--audit"], 1, &["does not serve parts of a blob", "--verify"]);
    // All else can be told.
    let told = fake.client.ok(&["inspect", &name, "--verify"]);
    assert!(row(&told, "seek table").contains("does not serve parts"), "{told}");
    assert!(row(&told, "verified").contains(&fake.layer), "{told}");
}

#[test]
fn a_wrong_range_is_refused() {
    let fake = Fake::new();
    let server = fake.serve(|request, bytes| {
        let mut answer = part(request, bytes);
        answer.headers[0].1 = format!("bytes 0-{}/{}", answer.body.len() - 1, bytes.len());
        Some(answer)
    });
    let name = format!("{}/a:tag", server.host());
    fake.client.fails(&["inspect", &name, "--audit"], 1, &["answered wrongly", "was asked for"]);
}

#[test]
fn storage_elsewhere_is_followed_without_the_login() {
    let fake = Fake::new();
    let bytes = fs::read(layer_of(&fake.layout)).unwrap();
    let storage = Https::serve(&fake.authority.server("IP:127.0.0.1"), move |request| part(request, &bytes));
    let to = storage.host();
    let server = fake.serve(move |_, _| {
        Some(Answer::new(307).header("location", format!("https://{to}/signed?secret=1")))
    });
    let name = format!("{}/a:tag", server.host());
    let told = fake.client.ok(&["inspect", &name, "--audit", "--verify"]);
    assert!(told.contains("pass    generalised") && row(&told, "verified").contains(&fake.layer), "{told}");
    let seen = storage.seen();
    assert!(seen.len() > 3);
    for request in seen {
        assert_eq!(request.header("authorization"), None);
    }
}

#[test]
fn a_broken_download_goes_on_where_it_was() {
    let fake = Fake::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = fake.serve(move |request, bytes| {
        let n = count.fetch_add(1, Ordering::SeqCst);
        // The look at the table and the disk comes after.
        (n < 3).then(|| {
            let mut answer = if n == 1 { Answer::new(200).body(bytes) } else { part(request, bytes) };
            let len = answer.body.len();
            answer.body.truncate(len / 2);
            answer.header("content-length", len.to_string()).header("connection", "close")
        })
    });
    let told = fake.client.ok(&["inspect", &format!("{}/a:tag", server.host()), "--verify"]);
    assert!(row(&told, "verified").contains(&fake.layer), "{told}");
    assert!(server.seen().iter().any(|r| r.header("range").is_some_and(|range| range.ends_with('-'))));
}

#[test]
fn the_right_to_push_is_not_asked_for() {
    let fake = Fake::new();
    let (layout, layer) = (fake.layout.clone(), fake.layer.clone());
    let tokens = Https::serve(&fake.authority.server("IP:127.0.0.1"), |request| {
        assert_eq!(request.header("authorization"), Some(LOGIN));
        match request.path.contains("scope=repository%3Aa%3Apull&") {
            true => Answer::new(200).body(r#"{"token":"reads","expires_in":300}"#),
            false => Answer::new(403),
        }
    });
    let realm = tokens.host();
    let server = Https::serve(&fake.authority.server("IP:127.0.0.1"), move |request| {
        if request.header("authorization") != Some("Bearer reads") {
            let challenge = format!("Bearer realm=\"https://{realm}/token\",service=\"s\"");
            return Answer::new(401).header("www-authenticate", challenge);
        }
        let last = request.path.rsplit('/').next().unwrap();
        let index = json(&fs::read_to_string(layout.join("index.json")).unwrap());
        match last.strip_prefix("sha256:") {
            None if last.is_empty() => Answer::new(200),
            None => manifest_answer(&layout, &index["manifests"][0]["digest"].as_str().unwrap()[7..]),
            Some(hex) => part(request, &fs::read(layout.join("blobs/sha256").join(hex)).unwrap()),
        }
    });
    fake.client.log_in(&[(&server.host(), registry::PASSWORD)]);
    let told = fake.client.ok(&["inspect", &format!("{}/a:tag", server.host()), "--audit"]);
    assert!(row(&told, "layer").contains(&layer), "{told}");
}

#[test]
fn what_is_not_what_its_digest_says_is_refused() {
    let fake = Fake::new();
    let server = fake.serve(|_, _| None);
    let told = fake.client.ok(&["inspect", &format!("{}/a:tag", server.host())]);
    let (reference, digest) = (row(&told, "reference"), row(&told, "digest"));
    fake.client.ok(&["inspect", reference]);
    let manifest = fake.layout.join("blobs/sha256").join(&digest[7..]);
    let changed =
        fs::read_to_string(&manifest).unwrap().replace("\"schemaVersion\":2", "\"schemaVersion\": 2");
    fs::write(&manifest, changed).unwrap();
    fake.client.fails(&["inspect", reference], 1, &["and not sha256:", "manifest"]);
}

#[test]
fn an_index_leads_to_the_image_for_this_platform() {
    let fake = Fake::new();
    let index = json(&fs::read_to_string(fake.layout.join("index.json")).unwrap());
    let mut ours = index["manifests"][0].clone();
    ours["platform"] = serde_json::json!({"os": "linux", "architecture": "amd64"});
    let mut other = ours.clone();
    other["digest"] = format!("sha256:{}", "0".repeat(64)).into();
    other["platform"]["architecture"] = "arm64".into();
    let body = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [other, ours],
    })
    .to_string();
    let digest = ours["digest"].as_str().unwrap()[7..].to_owned();
    let layout = fake.layout.clone();
    let server = Https::serve(&fake.authority.server("IP:127.0.0.1"), move |request| {
        let last = request.path.rsplit('/').next().unwrap();
        match last.strip_prefix("sha256:").unwrap_or(last) {
            "" => Answer::new(200),
            "tag" => Answer::new(200).body(body.clone()),
            hex if hex == digest => manifest_answer(&layout, hex),
            hex => part(request, &fs::read(layout.join("blobs/sha256").join(hex)).unwrap()),
        }
    });
    let name = format!("{}/a:tag", server.host());
    let told = fake.client.ok(&["inspect", &name, "--audit"]);
    assert_eq!(row(&told, "digest"), ours["digest"].as_str().unwrap());
    assert!(row(&told, "index").contains("linux/amd64"), "{told}");
    let target = format!("{}/b:tag", server.host());
    fake.client.fails(&["promote", &name, &target], 3, &["an index of images", "name one of them"]);
}
