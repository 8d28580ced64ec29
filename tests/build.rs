//! `build`: the demo from recipe to digest, what a second run keeps, and what stops it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/registry.rs"]
mod registry;
#[path = "support/root_disk.rs"]
mod root_disk;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use registry::Registry;
use root_disk::{RootDisk, SYSTEM, Volume, run};
use serde_json::Value;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn demo() -> PathBuf {
    repository().join("recipes/demo.toml")
}

fn command(recipe: &Path, output: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealroot"));
    command.arg("build").arg(recipe).arg("--output").arg(output).env_remove("SOURCE_DATE_EPOCH");
    command
}

fn build(recipe: &Path, output: &Path, more: &[&str]) -> Output {
    command(recipe, output).args(more).output().unwrap()
}

fn built(recipe: &Path, output: &Path, more: &[&str]) -> String {
    let done = build(recipe, output, more);
    assert!(done.status.success(), "{}", stderr(&done));
    String::from_utf8(done.stdout).unwrap().trim_end().to_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A copy of the demo's recipe in a folder of its own, its paths made absolute and `change`d.
fn recipe_in(folder: &Path, change: impl Fn(String) -> String) -> PathBuf {
    let fixtures = repository().join("fixtures");
    let text = fs::read_to_string(demo()).unwrap().replace("../fixtures", fixtures.to_str().unwrap());
    let path = folder.join("recipe.toml");
    fs::write(&path, change(text)).unwrap();
    path
}

/// Takes the root disk out of a layout, by skopeo, zstd and tar.
fn unpack(layout: &Path, into: &Path) -> PathBuf {
    let copy = into.join("copy");
    run(Command::new("skopeo")
        .args(["copy", "--quiet"])
        .arg(format!("oci:{}", layout.display()))
        .arg(format!("dir:{}", copy.display())));
    let manifest = json(&copy.join("manifest.json"));
    let digest =
        manifest["layers"][0]["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap().to_owned();
    run(Command::new("tar").args(["--zstd", "-xf"]).arg(copy.join(digest)).arg("-C").arg(into));
    into.join("disk/disk.qcow2")
}

#[test]
fn the_demo_becomes_a_sealed_image() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let printed = built(&demo(), &out, &[]);
    assert_eq!(names(&out), ["clone", "evidence.json", "image", "install", "state.json"]);

    // The digest is the manifest's, by skopeo.
    let inspected =
        run(Command::new("skopeo").arg("inspect").arg(format!("oci:{}", out.join("image").display())));
    let inspected: Value = serde_json::from_slice(&inspected.stdout).unwrap();
    assert_eq!(inspected["Digest"], printed.as_str());
    assert_eq!(inspected["Os"], "linux");
    assert_eq!(inspected["Architecture"], "amd64");

    // README promises this very digest.
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    assert!(readme.contains(&format!("\n    {printed}\n")), "{printed} is not what README.md shows");

    // The disk in it is the demo's, sealed.
    let disk = unpack(&out.join("image"), folder.path());
    run(Command::new("qemu-img").arg("check").arg(&disk));
    let volume = Volume::of(&disk);
    assert_eq!(volume.hive_value(SYSTEM, "Setup", "UnattendFile"), r"D:\autounattend.xml");
    assert!(volume.clusters_agree());
    let before = Volume::of(&root_disk::demo());
    let mut files = before.list();
    files.retain(|path| !path.ends_with('/') && path != SYSTEM && path != "pagefile.sys");
    assert!(files.len() > 100);
    assert_eq!(volume.list(), before.list());
    for path in files.iter().filter(|path| path.starts_with("Windows/System32") || path.starts_with("Users"))
    {
        assert_eq!(volume.cat(path), before.cat(path), "{path}");
    }
}

#[test]
fn the_image_says_what_it_was_made_from_and_for() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let kinds = "[image]\ninstance_type = \"u1.medium\"\npreference = \"windows.11.virtio\"\n";
    let recipe = recipe_in(folder.path(), |text| text.replace("[image]\n", kinds));
    built(&recipe, &out, &[]);
    let layout = format!("oci:{}", out.join("image").display());
    let inspect = |what: &str| -> Value {
        serde_json::from_slice(&run(Command::new("skopeo").args(["inspect", what, &layout])).stdout).unwrap()
    };
    let sum = |path: &Path| {
        let found = run(Command::new("sha256sum").arg(path));
        String::from_utf8(found.stdout).unwrap()[..64].to_owned()
    };
    let annotations = &inspect("--raw")["annotations"];
    assert_eq!(annotations["io.sealroot.recipe"], sum(&recipe).as_str());
    assert_eq!(
        annotations["io.sealroot.pin.windows"],
        sum(&repository().join("fixtures/demo/windows.iso")).as_str()
    );
    assert_eq!(annotations["io.sealroot.virtual-size"], "257949696");
    assert_eq!(annotations["org.opencontainers.image.title"], "demo");
    assert!(annotations["org.opencontainers.image.created"].is_null());
    let env = [
        "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.medium",
        "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE=windows.11.virtio",
    ];
    assert_eq!(inspect("--config")["config"]["Env"], serde_json::json!(env));
}

#[test]
fn evidence_tells_everything_but_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let done = build(&demo(), &out, &["--json"]);
    assert!(done.status.success(), "{}", stderr(&done));
    let evidence = json(&out.join("evidence.json"));
    assert_eq!(serde_json::from_slice::<Value>(&done.stdout).unwrap(), evidence);
    let sum = |path: &str| {
        let found = run(Command::new("sha256sum").arg(repository().join(path)));
        String::from_utf8(found.stdout).unwrap()[..64].to_owned()
    };
    assert_eq!(evidence["media"]["windows"]["sha256"], sum("fixtures/demo/windows.iso").as_str());
    assert_eq!(evidence["media"]["virtio"]["sha256"], sum("fixtures/demo/virtio-win.iso").as_str());
    assert_eq!(evidence["recipe"]["sha256"], sum("recipes/demo.toml").as_str());
    assert_eq!(evidence["tool"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(evidence["root"]["windows"]["editionId"], "Professional");
    assert_eq!(evidence["root"]["sysprep"]["imageState"], "IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE");
    assert_eq!(evidence["patch"]["pointer"], r"D:\autounattend.xml");
    assert!(evidence["patch"]["changedBytes"].as_u64().unwrap() < 1000);
    assert!(evidence["finished"].as_str() >= evidence["started"].as_str());
    let layer = evidence["image"]["layerDigest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    assert!(out.join("image/blobs/sha256").join(layer).exists());

    let said = format!("{evidence}{}{}", stderr(&done), fs::read_to_string(out.join("state.json")).unwrap());
    for mode in ["install", "clone"] {
        let folder = out.join(mode);
        assert_eq!(folder.metadata().unwrap().mode() & 0o777, 0o700);
        let credentials = json(&folder.join("credentials.json"));
        assert_eq!(evidence[mode]["hostname"], credentials["hostname"]);
        let password = credentials["password"].as_str().unwrap();
        assert!(password.len() >= 24);
        assert!(!said.contains(password), "the password of {mode} is told");
        // And it is nowhere in the image.
        for blob in fs::read_dir(out.join("image/blobs/sha256")).unwrap() {
            let bytes = fs::read(blob.unwrap().path()).unwrap();
            assert!(!bytes.windows(password.len()).any(|part| part == password.as_bytes()));
        }
    }
}

#[test]
fn a_second_run_keeps_what_is_unchanged_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let disk = RootDisk::standard();
    let with_disk = ["--disk", disk.path().to_str().unwrap()];
    let first = built(&demo(), &out, &with_disk);
    let credentials = fs::read(out.join("clone/credentials.json")).unwrap();
    let layer_inode = |out: &Path| {
        let digest =
            json(&out.join("evidence.json"))["image"]["layerDigest"].as_str().unwrap()[7..].to_owned();
        out.join("image/blobs/sha256").join(digest).metadata().unwrap().ino()
    };
    let inode = layer_inode(&out);

    let second = build(&demo(), &out, &with_disk);
    let said = stderr(&second);
    assert!(second.status.success(), "{said}");
    assert_eq!(said.matches("(kept)").count(), 3, "{said}");
    assert_eq!(said.matches("matches its pin\n").count(), 2, "media are hashed again: {said}");
    assert_eq!(fs::read(out.join("clone/credentials.json")).unwrap(), credentials);
    assert_eq!(layer_inode(&out), inode);
    let evidence = json(&out.join("evidence.json"));
    assert_eq!(evidence["image"]["kept"], true);
    assert_eq!(evidence["image"]["volumes"].as_array().unwrap().len(), 3);

    // Touched, it is packaged again; the bytes are the same, and so is the digest.
    run(Command::new("touch").arg(disk.path()));
    let third = build(&demo(), &out, &with_disk);
    assert!(!stderr(&third).contains("package  ") || stderr(&third).matches("(kept)").count() == 2);
    assert_eq!(String::from_utf8_lossy(&third.stdout).trim_end(), first);
    assert_ne!(layer_inode(&out), inode);

    // Damaged, it is not kept.
    let digest = json(&out.join("evidence.json"))["image"]["layerDigest"].as_str().unwrap()[7..].to_owned();
    let blob = out.join("image/blobs/sha256").join(digest);
    let mut bytes = fs::read(&blob).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&blob, bytes).unwrap();
    let fourth = build(&demo(), &out, &with_disk);
    assert_eq!(stderr(&fourth).matches("(kept)").count(), 2, "{}", stderr(&fourth));
    assert_eq!(String::from_utf8_lossy(&fourth.stdout).trim_end(), first);

    // A medium that changes meanwhile is never overlooked.
    let media = folder.path().join("media");
    fs::create_dir(&media).unwrap();
    let recipe = recipe_in(folder.path(), |text| {
        text.replace(&format!("{}/demo/", repository().join("fixtures").display()), "")
    });
    for iso in ["windows.iso", "virtio-win.iso"] {
        fs::copy(repository().join("fixtures/demo").join(iso), media.join(iso)).unwrap();
    }
    let args = [&with_disk[..], &["--media-dir", media.to_str().unwrap()]].concat();
    let other = folder.path().join("other");
    built(&recipe, &other, &args);
    let iso = media.join("virtio-win.iso");
    let mut bytes = fs::read(&iso).unwrap();
    bytes[400_000] ^= 1;
    fs::write(&iso, bytes).unwrap();
    let refused = build(&recipe, &other, &args);
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("expected"), "{}", stderr(&refused));
}

#[test]
fn evidence_says_which_hashes_are_of_an_earlier_build() {
    let folder = tempfile::tempdir().unwrap();
    let (out, cache) = (folder.path().join("out"), folder.path().join("cache.json"));
    let media = |more: &[&str]| {
        built(&demo(), &out, more);
        let media = &json(&out.join("evidence.json"))["media"];
        ["windows", "virtio"].map(|medium| media[medium]["hashCached"].is_string())
    };
    let asked = ["--hash-cache", cache.to_str().unwrap()];
    assert_eq!(media(&[]), [false, false]);
    assert_eq!(media(&asked), [false, false]);
    assert_eq!(media(&asked), [true, true]);
    let told = stderr(&build(&demo(), &out, &asked));
    assert_eq!(told.matches("not hashed now").count(), 2, "{told}");
    assert_eq!(media(&[]), [false, false]);
}

#[test]
fn answers_are_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    built(&demo(), &out, &[]);
    let before = fs::read(out.join("clone/credentials.json")).unwrap();
    let changed = build(&demo(), &out, &["--set", "clone.username=somebody"]);
    assert_eq!(changed.status.code(), Some(4), "{}", stderr(&changed));
    assert!(stderr(&changed).contains("other settings"), "{}", stderr(&changed));
    assert_eq!(fs::read(out.join("clone/credentials.json")).unwrap(), before);
    fs::remove_dir_all(out.join("clone")).unwrap();
    built(&demo(), &out, &["--set", "clone.username=somebody"]);
    assert_eq!(json(&out.join("clone/credentials.json"))["username"], "somebody");
}

#[test]
fn an_output_that_is_not_its_own_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
    built(&demo(), &ours, &[]);
    let evidence = fs::read(ours.join("evidence.json")).unwrap();
    let recipe = recipe_in(folder.path(), |text| text.replace("name = \"demo\"", "name = \"other\""));
    for more in [&[][..], &["--dry-run"]] {
        let refused = build(&recipe, &ours, more);
        assert_eq!(refused.status.code(), Some(4), "{}", stderr(&refused));
        assert!(stderr(&refused).contains("demo") && stderr(&refused).contains("other"));
    }
    assert_eq!(fs::read(ours.join("evidence.json")).unwrap(), evidence);
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join("thesis.doc"), "important").unwrap();
    let refused = build(&demo(), &theirs, &[]);
    assert_eq!(refused.status.code(), Some(4), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("thesis.doc"));
    assert_eq!(names(&theirs), ["thesis.doc"]);
}

#[test]
fn unfit_roots_and_bad_recipes_stop_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    for (disk, word) in [
        (RootDisk::standard().not_generalised(), "not generalised"),
        (RootDisk::standard().hibernated(), "hibernat"),
    ] {
        let refused = build(&demo(), &out, &["--disk", disk.path().to_str().unwrap()]);
        assert_eq!(refused.status.code(), Some(4), "{}", stderr(&refused));
        assert!(stderr(&refused).contains(word), "{}", stderr(&refused));
        assert!(!out.join("image").exists() && !out.join("evidence.json").exists());
    }
    let broken = recipe_in(folder.path(), |text| text.replace("sha256 = \"a", "sha256 = \"b"));
    let refused = build(&broken, &folder.path().join("new"), &[]);
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
    let broken = recipe_in(folder.path(), |text| text.replace("username", "usrname"));
    let refused = build(&broken, &folder.path().join("newer"), &[]);
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
    assert!(!folder.path().join("newer").exists());
    assert_eq!(build(&folder.path().join("nowhere.toml"), &out, &[]).status.code(), Some(1));
}

#[test]
fn a_dry_run_tells_and_does_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let planned = build(&demo(), &out, &["--dry-run"]);
    let said = String::from_utf8_lossy(&planned.stdout).into_owned();
    assert!(planned.status.success(), "{}", stderr(&planned));
    for word in ["verify", "render", "change", "package into"] {
        assert!(said.contains(word), "no {word} in {said}");
    }
    assert!(!out.exists());
    built(&demo(), &out, &[]);
    let again = build(&demo(), &out, &["--dry-run", "--json"]);
    let stages: Value = serde_json::from_slice(&again.stdout).unwrap();
    let kept = stages.as_array().unwrap().iter().filter(|s| s["what"].as_str().unwrap().starts_with("keep"));
    assert_eq!(kept.count(), 3);

    let recipe = recipe_in(folder.path(), |text| text.replace("virtio-win.iso", "gone.iso"));
    let missing = build(&recipe, &folder.path().join("new"), &["--dry-run", "--disk", "/nowhere/disk"]);
    let said = String::from_utf8_lossy(&missing.stdout).into_owned();
    assert_eq!(missing.status.code(), Some(3), "{said}");
    assert!(
        said.contains("missing: ") && said.contains("gone.iso") && said.contains("/nowhere/disk"),
        "{said}"
    );
    assert!(!folder.path().join("new").exists());
}

#[test]
fn it_can_be_pushed_and_pulled() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let registry = Registry::start();
    let target = format!("{}/private/windows11:v1", registry.host());
    let push = || {
        let mut child = command(&demo(), &out)
            .args(["--push", &target, "--ca"])
            .arg(registry.ca())
            .args(["--username", registry::USER, "--password-stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), registry::PASSWORD.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let pushed = push();
    assert!(pushed.status.success(), "{}", stderr(&pushed));
    let reference = String::from_utf8(pushed.stdout).unwrap().trim_end().to_owned();
    let (name, digest) = reference.split_once('@').unwrap();
    assert_eq!(name, format!("{}/private/windows11", registry.host()), "no tag belongs there");
    let evidence = json(&out.join("evidence.json"));
    assert_eq!(evidence["image"]["manifestDigest"], digest);
    assert_eq!(evidence["pushed"]["reference"], reference.as_str());
    assert_eq!(evidence["pushed"]["tag"], "v1");
    let pulled = folder.path().join("pulled");
    registry.pull(&reference, &pulled);
    let layer = evidence["image"]["layerDigest"].as_str().unwrap()[7..].to_owned();
    let ours = fs::read(out.join("image/blobs/sha256").join(&layer)).unwrap();
    assert!(fs::read(pulled.join(&layer)).unwrap() == ours);
    let again = push();
    assert!(again.status.success(), "{}", stderr(&again));
    assert!(stderr(&again).contains("tag v1 (blobs there already)\n"), "{}", stderr(&again));
    // What was published stays known, be the image kept or made again.
    let published = json(&out.join("evidence.json"))["pushed"].clone();
    assert_eq!(built(&demo(), &out, &[]), digest);
    assert_eq!(json(&out.join("evidence.json"))["pushed"], published);
    fs::remove_dir_all(out.join("image")).unwrap();
    assert_eq!(built(&demo(), &out, &[]), digest);
    assert_eq!(json(&out.join("evidence.json"))["pushed"], published);
}

#[test]
fn the_same_input_gives_the_same_digest() {
    let folder = tempfile::tempdir().unwrap();
    let digests: Vec<_> = ["a", "b"].map(|name| built(&demo(), &folder.path().join(name), &[])).into();
    assert_eq!(digests[0], digests[1]);
    // Made from a full raw copy of the disk, it is the same image.
    let raw = folder.path().join("full.raw");
    run(Command::new("qemu-img").args(["convert", "-O", "raw", "-S", "0"]).arg(root_disk::demo()).arg(&raw));
    let full = built(&demo(), &folder.path().join("c"), &["--disk", raw.to_str().unwrap()]);
    assert_eq!(full, digests[0]);
}

#[test]
fn killed_at_any_time_it_can_be_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let expected = built(&demo(), &folder.path().join("whole"), &[]);
    for n in 0..16u64 {
        let out = folder.path().join(format!("out{n}"));
        let mut child = command(&demo(), &out).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(n * 12));
        // Half by Ctrl-C, half by kill -9.
        let signal = if n % 2 == 0 { "-INT" } else { "-KILL" };
        let _ = Command::new("kill").arg(signal).arg(child.id().to_string()).output();
        let status = child.wait().unwrap();
        if signal == "-INT" && !status.success() {
            assert!(matches!(status.code(), Some(130) | None), "{status}");
            if status.code() == Some(130) {
                let left = if out.exists() { names(&out) } else { Vec::new() };
                assert!(!left.iter().any(|name| name.starts_with('.')), "{left:?}");
            }
        }
        assert_eq!(built(&demo(), &out, &[]), expected);
        assert_eq!(names(&out), ["clone", "evidence.json", "image", "install", "state.json"]);
    }
}

#[test]
fn two_builds_in_one_folder_do_not_meet() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let running: Vec<_> = (0..4)
        .map(|_| command(&demo(), &out).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
        .collect();
    let mut done = 0;
    for child in running {
        let output = child.wait_with_output().unwrap();
        match output.status.code() {
            Some(0) => done += 1,
            Some(4) => assert!(stderr(&output).contains("another build"), "{}", stderr(&output)),
            _ => panic!("{}", stderr(&output)),
        }
    }
    assert!(done >= 1);
    built(&demo(), &out, &[]);
}

#[test]
fn without_room_or_rights_nothing_is_half_made() {
    let folder = tempfile::tempdir().unwrap();
    // A file system too small for the image.
    let small = folder.path().join("small");
    fs::create_dir(&small).unwrap();
    if Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=300k", "none"])
        .arg(&small)
        .status()
        .unwrap()
        .success()
    {
        let out = small.join("out");
        let full = build(&demo(), &out, &[]);
        let left = names(&out);
        run(Command::new("umount").arg(&small));
        assert_eq!(full.status.code(), Some(1), "{}", stderr(&full));
        assert!(stderr(&full).contains("No space left"), "{}", stderr(&full));
        assert!(!left.iter().any(|name| name == "image" || name.starts_with('.')), "{left:?}");
    } else {
        eprintln!("skipped: a tmpfs can't be mounted here");
    }
    let denied = build(&demo(), Path::new("/proc/out"), &[]);
    assert_eq!(denied.status.code(), Some(1), "{}", stderr(&denied));
    let disk = folder.path().join("unreadable");
    fs::write(&disk, "x").unwrap();
    fs::set_permissions(&disk, fs::Permissions::from_mode(0o000)).unwrap();
}

#[test]
fn only_its_own_leftovers_are_cleared_away() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    built(&demo(), &out, &[]);
    for kept in ["notes.retired", "image2.retired", ".sealroot-notes-of-mine", "-.retired"] {
        fs::write(out.join(kept), "mine").unwrap();
    }
    let odd = OsStr::from_bytes(b".sealroot-\xff\xfe.retired");
    fs::write(out.join(odd), "mine").unwrap();
    fs::create_dir(out.join(".sealroot-image")).unwrap();
    fs::write(out.join(".sealroot-a1B2c3"), "half").unwrap();
    fs::rename(out.join("image"), out.join("image.retired")).unwrap();
    let again = build(&demo(), &out, &[]);
    assert!(again.status.success(), "{}", stderr(&again));
    assert_eq!(stderr(&again).matches("(kept)").count(), 3, "{}", stderr(&again));
    for kept in ["notes.retired", "image2.retired", ".sealroot-notes-of-mine", "-.retired"] {
        assert_eq!(fs::read_to_string(out.join(kept)).unwrap(), "mine");
    }
    assert!(out.join(odd).exists());
    assert!(!out.join(".sealroot-image").exists() && !out.join(".sealroot-a1B2c3").exists());
    assert!(!out.join("image.retired").exists() && out.join("image").is_dir());
}

/// Runs a build that must not take long, and gives its exit code and what it said.
fn refused(output: &Path) -> (Option<i32>, String) {
    let mut limited = Command::new("timeout");
    limited
        .arg("30")
        .arg(env!("CARGO_BIN_EXE_sealroot"))
        .arg("build")
        .arg(demo())
        .arg("--output")
        .arg(output);
    let done = limited.output().unwrap();
    (done.status.code(), stderr(&done))
}

#[test]
fn an_output_that_is_no_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    fs::write(&file, "mine").unwrap();
    symlink("/nowhere/at/all", &link).unwrap();
    for (output, why) in
        [(file.clone(), "is a file"), (link, "not there"), (file.join("out"), "part of its path")]
    {
        let (code, said) = refused(&output);
        assert!(code == Some(4) && said.contains(why) && !said.contains("os error"), "{code:?} {said}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    let out = folder.path().join("out");
    built(&demo(), &out, &[]);
    for name in ["image", "image.retired"] {
        let (own, aside) = (out.join(name), folder.path().join("aside"));
        let _ = fs::rename(&own, &aside);
        fs::write(&own, "mine").unwrap();
        let (code, said) = refused(&out);
        assert!(code == Some(4) && said.contains("is no folder") && said.contains(name), "{code:?} {said}");
        assert_eq!(fs::read_to_string(&own).unwrap(), "mine");
        fs::remove_file(&own).unwrap();
        let _ = fs::rename(&aside, &own);
    }
}

#[test]
fn a_state_that_is_no_file_neither_hangs_nor_fills_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.json");
    run(Command::new("mkfifo").arg(&state));
    let (code, said) = refused(folder.path());
    assert!(code == Some(4) && said.contains("no regular file"), "{code:?} {said}");
    fs::remove_file(&state).unwrap();
    symlink("/dev/zero", &state).unwrap();
    let (code, said) = refused(folder.path());
    assert!(code == Some(4) && said.contains("no regular file"), "{code:?} {said}");
    fs::remove_file(&state).unwrap();
    fs::File::create(&state).unwrap().set_len(1 << 40).unwrap();
    let (code, said) = refused(folder.path());
    assert!(code == Some(4) && said.contains("more than"), "{code:?} {said}");
}

#[test]
fn paths_that_are_no_utf8_fail_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join(OsStr::from_bytes(b"odd-\xff"));
    fs::create_dir(&odd).unwrap();
    let recipe = recipe_in(&odd, |text| {
        text.replace(&format!("{}/demo/", repository().join("fixtures").display()), "")
    });
    for file in ["windows.iso", "virtio-win.iso", "root.qcow2"] {
        fs::copy(repository().join("fixtures/demo").join(file), odd.join(file)).unwrap();
    }
    let out = odd.join("out");
    for kept in [0, 3] {
        let done = command(&recipe, &out).arg("--json").arg("--media-dir").arg(&odd).output().unwrap();
        assert!(done.status.success(), "{}", stderr(&done));
        assert_eq!(stderr(&done).matches("(kept)").count(), kept, "{}", stderr(&done));
    }
    assert!(json(&out.join("evidence.json"))["root"]["disk"].as_str().unwrap().contains("odd-\u{fffd}"));
    for more in [&["recipe", "validate", "--json"][..], &["verify", "--json"]] {
        let done = Command::new(env!("CARGO_BIN_EXE_sealroot")).args(more).arg(&recipe).output().unwrap();
        assert!(done.status.success(), "{}", stderr(&done));
        assert!(String::from_utf8(done.stdout).unwrap().contains("odd-\u{fffd}"));
    }
}

#[test]
fn an_answer_that_is_not_what_was_rendered_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    built(&demo(), &out, &[]);
    let (install, aside) = (out.join("install"), folder.path().join("aside"));
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    type Harm<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let credentials = install.join("credentials.json");
    let harms: [Harm<'_>; 9] = [
        ("credentials.json can't be looked at", Box::new(|| fs::remove_file(&credentials).unwrap())),
        ("credentials.json is not the JSON", Box::new(|| fs::write(&credentials, "{").unwrap())),
        ("bootstrap-secret.json is not the JSON", {
            Box::new(|| fs::write(install.join("bootstrap-secret.json"), "half").unwrap())
        }),
        ("of another computer", {
            Box::new(|| {
                fs::write(&credentials, r#"{"hostname":"X","username":"workspace","password":"p"}"#).unwrap();
            })
        }),
        ("credentials.json is no regular file", {
            Box::new(|| {
                fs::remove_file(&credentials).unwrap();
                symlink(aside.join("credentials.json"), &credentials).unwrap();
            })
        }),
        ("mode 0640", Box::new(|| mode(&credentials, 0o640))),
        ("mode 0755", Box::new(|| mode(&install, 0o755))),
        ("it is no folder", {
            Box::new(|| {
                fs::remove_dir_all(&install).unwrap();
                symlink(&aside, &install).unwrap();
            })
        }),
        ("it is no folder", {
            Box::new(|| {
                let _ = fs::remove_dir_all(&install);
                fs::write(&install, "").unwrap();
            })
        }),
    ];
    run(Command::new("cp").arg("-a").arg(&install).arg(&aside));
    for (why, harm) in harms {
        harm();
        let (code, said) = refused(&out);
        assert!(code == Some(4) && said.contains(why) && said.contains("/install"), "{why}: {code:?} {said}");
        let planned = build(&demo(), &out, &["--dry-run"]);
        assert_eq!(planned.status.code(), Some(4), "{}", stderr(&planned));
        run(Command::new("rm").arg("-rf").arg(&install));
        run(Command::new("cp").arg("-a").arg(&aside).arg(&install));
    }
    built(&demo(), &out, &[]);
    fs::remove_dir_all(&install).unwrap();
    let anew = build(&demo(), &out, &[]);
    assert!(
        anew.status.success() && stderr(&anew).contains("the earlier one is gone\n"),
        "{}",
        stderr(&anew)
    );
}

#[test]
fn what_can_be_known_is_known_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let nameless = |text: String| text.replace("name = \"Windows 11 Pro\"\n", "");
    let diskless = |text: String| text.replace("disk = ", "# disk = ");
    let medialess = |text: String| text.replace("virtio-win.iso", "gone.iso");
    let unfit = RootDisk::standard().not_generalised();
    let unfit = ["--disk", unfit.path().to_str().unwrap()];
    let cases: [(PathBuf, &[&str], i32, &str); 5] = [
        (recipe_in(&folder_in(&folder, "a"), nameless), &[], 3, "image_name"),
        (recipe_in(&folder_in(&folder, "b"), diskless), &[], 3, "root.disk"),
        (recipe_in(&folder_in(&folder, "c"), medialess), &[], 3, "gone.iso is not there"),
        (demo(), &["--disk", "/nowhere/disk"], 1, "/nowhere/disk"),
        (demo(), &unfit, 4, "not generalised"),
    ];
    for (recipe, more, code, why) in cases {
        let refused = build(&recipe, &out, more);
        assert_eq!(refused.status.code(), Some(code), "{}", stderr(&refused));
        assert!(stderr(&refused).contains(why), "{}", stderr(&refused));
        assert!(!stderr(&refused).contains("matches its pin") && !out.exists(), "{why}");
    }
}

fn folder_in(folder: &tempfile::TempDir, name: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::create_dir(&path).unwrap();
    path
}

#[test]
fn a_dry_run_tells_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let disk = RootDisk::standard().not_generalised();
    let unfit = build(&demo(), &out, &["--dry-run", "--disk", disk.path().to_str().unwrap()]);
    let said = String::from_utf8_lossy(&unfit.stdout).into_owned();
    assert_eq!(unfit.status.code(), Some(4), "{said}");
    for word in ["audit    refused: ", "not generalised", "sysprep", "package  pending"] {
        assert!(said.contains(word), "no {word} in {said}");
    }
    let missing = build(&demo(), &out, &["--dry-run", "--media-dir", "/nowhere"]);
    let said = String::from_utf8_lossy(&missing.stdout).into_owned();
    assert_eq!(missing.status.code(), Some(3), "{said}");
    assert!(said.contains("is not there\n") && said.contains("--media-dir"), "{said}");
    assert!(!said.contains("os error"), "{said}");
}

#[test]
fn a_root_that_is_another_windows_than_expected_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    // The medium has that edition as well, so the media pass.
    let name = "media.windows.expect.name=Windows 11 Enterprise";
    let edition = ["--set", "media.windows.expect.edition_id=Enterprise", "--set", name];
    let refused = build(&demo(), &out, &edition);
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("\"Professional\", but \"Enterprise\" is expected"),
        "{}",
        stderr(&refused)
    );
    let other = ["--set", "media.windows.expect.build=19045.1", "--set", "audit.allow=[\"edition\"]"];
    let done = build(&demo(), &out, &[&edition[..], &other].concat());
    let said = stderr(&done);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("warning: edition: ") && said.contains("\"Enterprise\" is expected"), "{said}");
    assert!(said.contains("warning: build: ") && said.contains("19045.1 is expected"), "{said}");
    let evidence = json(&out.join("evidence.json"));
    assert_eq!(evidence["root"]["findings"].as_array().unwrap().len(), 2);
    assert_eq!(evidence["media"]["found"]["windows"]["image"]["editionId"], "Enterprise");
    assert_eq!(evidence["media"]["found"]["drivers"]["folders"].as_array().unwrap().len(), 5);
    // An update changes the second number; that is no other Windows.
    let out = folder.path().join("second");
    let done = build(&demo(), &out, &["--set", "media.windows.expect.build=26100.1"]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert!(!stderr(&done).contains("warning: "), "{}", stderr(&done));
    // What is not on the medium stops a build before the root is looked at.
    let refused = build(&demo(), &out, &["--set", "media.windows.expect.wim_build=22621"]);
    assert_eq!(refused.status.code(), Some(3));
    let told = "media.windows.expect.wim_build: not `22621`: image 1, Windows 11 Pro, has 26100";
    assert!(stderr(&refused).contains(told), "{}", stderr(&refused));
}

#[test]
fn where_to_push_can_be_the_recipes_to_say() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let none = build(&demo(), &out, &["--dry-run", "--push"]);
    assert_eq!(none.status.code(), Some(3), "{}", stderr(&none));
    assert!(stderr(&none).contains("no image.repository"), "{}", stderr(&none));
    let named = "[image]\nrepository = \"registry.example.com/private/w11\"\n";
    let recipe = recipe_in(folder.path(), |text| text.replace("[image]\n", named));
    let untagged = build(&recipe, &out, &["--dry-run", "--push"]);
    assert_eq!(untagged.status.code(), Some(3), "{}", stderr(&untagged));
    assert!(stderr(&untagged).contains("no image.tag"), "{}", stderr(&untagged));
    let tagged = build(&recipe, &out, &["--dry-run", "--set", "image.tag=v7", "--push"]);
    let said = String::from_utf8_lossy(&tagged.stdout).into_owned();
    assert!(tagged.status.success() && said.contains("to registry.example.com/private/w11:v7"), "{said}");
    let other = build(&recipe, &out, &["--dry-run", "--push", "registry.example.com/else/w11:v1"]);
    let said = stderr(&other);
    assert!(other.status.success() && said.contains("warning: "), "{said}");
    assert!(said.contains("registry.example.com/else/w11") && said.contains("example.com/private/w11"));
}

#[test]
fn a_build_folder_is_no_layout_but_its_image_is() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    built(&demo(), &out, &[]);
    let mut push = Command::new(env!("CARGO_BIN_EXE_sealroot"));
    let refused = push.arg("push").arg(&out).arg("localhost:1/a:b").arg("--plain-http").output().unwrap();
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("/out/image\n"), "{}", stderr(&refused));
}
