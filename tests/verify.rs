//! `verify`: media against their pins, and what a wrong file is.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Runs a tool, which must succeed, and returns what it prints.
fn tool(name: &str, args: &[&str], folder: &Path) -> String {
    let output = Command::new(name).args(args).current_dir(folder).output();
    let output = output.unwrap_or_else(|e| panic!("{name} (install it with tests/run.sh): {e}"));
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A folder with the demo's media and a recipe that pins them, by what sha256sum says.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/demo");
        for (from, to) in [("windows.iso", "w.iso"), ("virtio-win.iso", "v.iso")] {
            fs::copy(demo.join(from), path.join(to)).unwrap();
        }
        let bench = Self { folder };
        bench.pin("w.iso", "v.iso");
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn sha256(&self, name: &str) -> String {
        tool("sha256sum", &[name], self.folder.path())[..64].to_owned()
    }

    /// Writes the recipe: files as named, pins of what they hold now.
    fn pin(&self, windows: &str, virtio: &str) {
        let recipe = format!(
            "schema = 1\nname = \"test\"\n[media.windows]\nfile = \"{windows}\"\nsha256 = \"{}\"\n\
             [media.virtio]\nfile = \"{virtio}\"\nsha256 = \"{}\"\n",
            self.sha256(windows),
            self.sha256(virtio)
        );
        fs::write(self.path("r.toml"), recipe).unwrap();
    }

    fn verify(&self, more: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_sealroot"))
            .args(["verify", "r.toml"])
            .args(more)
            .current_dir(self.folder.path())
            .output()
            .unwrap()
    }

    #[track_caller]
    fn refused(&self, more: &[&str], code: i32, parts: &[&str]) {
        let output = self.verify(more);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        for part in parts {
            assert!(said.contains(part), "no {part:?} in:\n{said}");
        }
    }
}

#[test]
fn media_that_match_are_verified() {
    let bench = Bench::new();
    let output = bench.verify(&[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("windows: verified"), "{said}");
    assert!(said.contains("virtio: verified"), "{said}");

    let output = bench.verify(&["--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (index, name, format, label) in
        [(0, "w.iso", "udf-bridge", "CCCOMA_X64FRE_EN-US_DV9"), (1, "v.iso", "iso9660", "virtio-win-0.1.271")]
    {
        let facts = &json["media"][index]["facts"];
        assert_eq!(json["media"][index]["verified"], true);
        assert_eq!(facts["label"], label);
        assert_eq!(facts["format"], format);
        assert_eq!(facts["size"], fs::metadata(bench.path(name)).unwrap().len());
        let openssl = tool("openssl", &["dgst", "-sha256", "-r", name], bench.folder.path());
        assert_eq!(facts["sha256"], openssl[..64]);
    }
}

#[test]
fn a_wrong_hash_shows_size_expected_and_got_of_every_medium() {
    let bench = Bench::new();
    let pins = [bench.sha256("w.iso"), bench.sha256("v.iso")];
    let mut gots = Vec::new();
    for name in ["w.iso", "v.iso"] {
        let mut bytes = fs::read(bench.path(name)).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(bench.path(name), bytes).unwrap();
        gots.push(bench.sha256(name));
    }
    let size = format!("size      {} bytes", fs::metadata(bench.path("v.iso")).unwrap().len());
    bench.refused(
        &[],
        3,
        &[
            "windows (pinned at r.toml:5:10)",
            &format!("expected  {}\n  got       {}", pins[0], gots[0]),
            "virtio (pinned at r.toml:8:10)",
            &format!("expected  {}\n  got       {}", pins[1], gots[1]),
            &size,
            "not the pinned one (volume label virtio-win-0.1.271)",
        ],
    );
    let json: Value = serde_json::from_slice(&bench.verify(&["--json"]).stdout).unwrap();
    assert_eq!(json["media"][0]["verified"], false);
    assert_eq!(json["media"][0]["got"], gots[0].as_str());
    assert_eq!(json["media"][1]["expected"], pins[1].as_str());
    // Nothing was deleted, renamed or changed.
    assert_eq!([bench.sha256("w.iso"), bench.sha256("v.iso")].as_slice(), gots);
}

#[test]
fn a_wrong_file_is_named_as_what_it_is() {
    let bench = Bench::new();
    let image = fs::read(bench.path("w.iso")).unwrap();
    let truncated = format!(
        "truncated: the volume says {} bytes, the file has 300000; an incomplete download",
        image.len()
    );
    let cases: [(Vec<u8>, &str); 7] = [
        (image[..300_000].to_vec(), &truncated),
        (b"<!DOCTYPE html>\n<title>Sign in</title>".to_vec(), "a web page (HTML)"),
        (b"404 not found\n".to_vec(), "text, not a disc image"),
        (Vec::new(), "this is empty"),
        (image[..20_000].to_vec(), "only 20000 bytes, too short"),
        (vec![0; 100_000], "nothing but zeros"),
        (b"PK\x03\x04".repeat(20_000), "a zip file"),
    ];
    for (bytes, why) in cases {
        fs::write(bench.path("w.iso"), bytes).unwrap();
        bench.refused(&[], 3, &["windows (pinned", why, "expected", "got"]);
    }
    // Pinning a web page does not make a medium of it.
    fs::write(bench.path("w.iso"), "<html>").unwrap();
    bench.pin("w.iso", "v.iso");
    bench.refused(&[], 3, &["matches its pin, but it is a web page"]);
}

#[test]
fn a_cut_udf_image_is_told_from_a_whole_one() {
    let bench = Bench::new();
    // Without its ISO 9660 descriptors, only UDF says how large the volume is.
    let mut image = fs::read(bench.path("w.iso")).unwrap();
    for sector in 16..19 {
        if &image[sector * 2048 + 1..sector * 2048 + 6] == b"CD001" {
            image[sector * 2048..][..2048].fill(0);
            image[sector * 2048 + 1..][..5].copy_from_slice(b"BOOT2");
        }
    }
    fs::write(bench.path("w.iso"), &image).unwrap();
    bench.pin("w.iso", "v.iso");
    let json: Value = serde_json::from_slice(&bench.verify(&["--json"]).stdout).unwrap();
    assert_eq!(json["media"][0]["facts"]["format"], "udf");
    assert_eq!(json["media"][0]["facts"]["label"], "CCCOMA_X64FRE_EN-US_DV9");
    fs::write(bench.path("w.iso"), &image[..600_000]).unwrap();
    bench.refused(&[], 3, &["truncated: the volume says", "the file has 600000"]);
}

#[test]
fn what_is_no_file_is_said_to_be_none() {
    let bench = Bench::new();
    fs::create_dir(bench.path("tree")).unwrap();
    bench.refused(&["--set", "media.windows.file=tree"], 3, &["is no medium: this is a folder"]);
    tool("mkfifo", &["pipe"], bench.folder.path());
    bench.refused(&["--set", "media.windows.file=pipe"], 3, &["is no medium: this is a special file"]);
    bench.refused(
        &["--media-dir", "elsewhere"],
        3,
        &["elsewhere/w.iso is not there", "elsewhere/v.iso is not there", "--media-dir"],
    );
    // Root may read everything, so that this shows something for other users only.
    let denied = fs::Permissions::from_mode(0o000);
    fs::set_permissions(bench.path("w.iso"), denied).unwrap();
    if fs::File::open(bench.path("w.iso")).is_err() {
        bench.refused(&[], 1, &["w.iso can't be opened: Permission denied"]);
    }
}

#[test]
fn a_folder_of_media_stands_in_for_the_recipes_own() {
    let bench = Bench::new();
    fs::create_dir(bench.path("media")).unwrap();
    fs::rename(bench.path("w.iso"), bench.path("media/w.iso")).unwrap();
    fs::copy(bench.path("v.iso"), bench.path("media/v.iso")).unwrap();
    bench.refused(&[], 3, &["w.iso is not there"]);
    assert!(bench.verify(&["--media-dir", "media"]).status.success());
    // Names start from the recipe's folder, wherever the command is run.
    let recipe = bench.path("r.toml");
    let output = Command::new(env!("CARGO_BIN_EXE_sealroot")).arg("verify").arg(recipe).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains("virtio (pinned"), "{said}");
}

#[test]
fn a_bad_recipe_is_rejected_before_anything_is_hashed() {
    let bench = Bench::new();
    let pin = format!("media.windows.sha256={}", bench.sha256("v.iso"));
    bench.refused(&["--set", &pin], 3, &["a pin can't be set"]);
    fs::remove_file(bench.path("r.toml")).unwrap();
    bench.refused(&[], 1, &["the recipe r.toml can't be read"]);
}

#[test]
fn ctrl_c_ends_it() {
    let bench = Bench::new();
    // Sparse, so that hashing takes long and the disk stays free.
    fs::File::create(bench.path("huge")).unwrap().set_len(64 << 30).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_sealroot"))
        .args(["verify", "r.toml", "--set", "media.windows.file=huge"])
        .current_dir(bench.folder.path())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    tool("kill", &["-INT", &child.id().to_string()], bench.folder.path());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"));
    assert!(bench.path("huge").exists());
}

#[test]
fn hashes_are_remembered_only_when_asked_and_labelled() {
    let bench = Bench::new();
    let cached = |more: &[&str]| {
        let output = bench.verify(&[&["--json"], more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        [0, 1].map(|index| json["media"][index]["facts"]["hashCached"].as_str().map(str::to_owned))
    };
    let cache = ["--hash-cache", "cache.json"];
    assert_eq!(cached(&[]), [None, None]);
    assert!(!bench.path("cache.json").exists());
    assert_eq!(cached(&cache), [None, None]);
    assert_eq!(fs::metadata(bench.path("cache.json")).unwrap().permissions().mode() & 0o777, 0o600);
    let [windows, virtio] = cached(&cache);
    assert!(windows.unwrap().starts_with("20") && virtio.is_some());
    let said = String::from_utf8(bench.verify(&cache).stdout).unwrap();
    assert_eq!(said.matches("not hashed now: of 20").count(), 2, "{said}");
    // Never the default.
    assert_eq!(cached(&[]), [None, None]);

    // A file written to in its middle, with its time put back, is hashed again, and found out.
    let file = fs::OpenOptions::new().write(true).open(bench.path("w.iso")).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"x", 400_000).unwrap();
    file.set_modified(modified).unwrap();
    bench.refused(&cache, 3, &["w.iso: a disc image, but not the pinned one"]);

    // A cache that others can write is no cache.
    fs::set_permissions(bench.path("cache.json"), fs::Permissions::from_mode(0o666)).unwrap();
    bench.refused(&cache, 4, &["cache.json can be written by other users", "use a file of your own"]);
    fs::remove_file(bench.path("cache.json")).unwrap();
    bench.refused(&["--hash-cache", "r.toml"], 4, &["r.toml is no hash cache of sealroot's"]);
    bench.refused(&["--hash-cache", "."], 4, &["is no file"]);
}

#[test]
fn a_hash_that_can_t_be_remembered_spoils_nothing() {
    let bench = Bench::new();
    let output = bench.verify(&["--hash-cache", "no/such/folder/cache.json"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("hashes are not remembered"));
}
