//! `package`: the same image whatever the way to it, refused where the audit refuses, pushed while it is made.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/ntfs_volume.rs"]
mod ntfs_volume;
#[path = "support/registry.rs"]
mod registry;
#[path = "support/root_disk.rs"]
mod root_disk;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ntfs_volume::Mounted;
use registry::Registry;
use root_disk::{RootDisk, SYSTEM, Volume, run};
use serde_json::Value;

fn sealroot(command: &str, disk: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sealroot"))
        .args([command, "--disk"])
        .arg(disk)
        .args(args)
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn packaged(disk: &Path, output: &Path, args: &[&str]) -> Value {
    let done = sealroot("package", disk, &[&["--json", "--output", output.to_str().unwrap()], args].concat());
    assert!(done.status.success(), "{}", stderr(&done));
    serde_json::from_slice(&done.stdout).unwrap()
}

#[test]
fn one_disk_gives_one_digest_whatever_the_way() {
    let disk = RootDisk::standard();
    let layout = |name: &str| disk.folder().join(name);
    let sealed = packaged(disk.path(), &layout("sealed"), &["--seal"]);

    let patch = layout("patch.json");
    let made = sealroot("prepare-sealed-root", disk.path(), &["--patch", patch.to_str().unwrap()]);
    assert!(made.status.success(), "{}", stderr(&made));
    let patched = packaged(disk.path(), &layout("patched"), &["--patch", patch.to_str().unwrap()]);
    assert_eq!(patched["digest"], sealed["digest"]);

    let standalone = layout("sealed.qcow2");
    let made = sealroot("prepare-sealed-root", disk.path(), &["--output", standalone.to_str().unwrap()]);
    assert!(made.status.success(), "{}", stderr(&made));
    assert_eq!(packaged(&standalone, &layout("standalone"), &[])["digest"], sealed["digest"]);

    let full = layout("full.raw");
    run(Command::new("cp").arg("--sparse=never").arg(disk.path()).arg(&full));
    assert_eq!(packaged(&full, &layout("full"), &["--seal"])["digest"], sealed["digest"]);

    // On one core, in another place, by another clock and umask.
    let one = Command::new("taskset")
        .args(["-c", "0", "sh", "-c", "umask 077; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_sealroot")])
        .args(["package", "--seal", "--disk"])
        .arg(disk.path())
        .arg("--output")
        .arg(layout("one"))
        .current_dir(disk.folder())
        .env("TZ", "Pacific/Auckland")
        .output()
        .unwrap();
    assert!(one.status.success(), "{}", stderr(&one));
    assert_eq!(String::from_utf8_lossy(&one.stdout).trim_end(), sealed["digest"].as_str().unwrap());
}

#[test]
fn what_the_audit_refuses_is_not_packaged_unless_asked_in_as_many_words() {
    let disk = RootDisk::standard().not_generalised();
    let out = disk.folder().join("image");
    let refused = sealroot("package", disk.path(), &["--output", out.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(4), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("not generalised"));
    assert!(!out.exists());
    packaged(disk.path(), &out, &["--no-audit"]);
    let mixed = sealroot("package", disk.path(), &["--seal", "--no-audit", "--output", "x"]);
    assert_eq!(mixed.status.code(), Some(2), "{}", stderr(&mixed));
    let nowhere = sealroot("package", disk.path(), &["--seal"]);
    assert_eq!(nowhere.status.code(), Some(2), "{}", stderr(&nowhere));
}

#[test]
fn what_the_cluster_map_misses_is_not_lost() {
    for path in [SYSTEM, "Windows/System32/config/SOFTWARE"] {
        let disk = RootDisk::standard().with_clusters_called_free(path);
        let out = disk.folder().join("image");
        for args in [&["--seal"][..], &[]] {
            let args = [&["--output", out.to_str().unwrap()], args].concat();
            let refused = sealroot("package", disk.path(), &args);
            let said = stderr(&refused);
            assert_eq!(refused.status.code(), Some(4), "{said}");
            assert!(said.contains("cluster map contradicts its files"), "{said}");
            assert!(!out.exists());
        }
        // Asked not to judge the root, it ships all of that volume.
        let published = packaged(disk.path(), &out, &["--no-audit"]);
        let why = published["volumes"][2]["shipping"]["whole"]["why"].as_str().unwrap();
        assert!(why.contains("calls clusters free that file record"), "{why}");
    }
}

#[test]
fn a_map_that_misses_any_file_is_not_trimmed_by() {
    const LOST: &str = "Windows/System32/config/DEFAULT";
    let disk = RootDisk::standard().file(LOST, &[0x5A; 20_000]).with_clusters_called_free(LOST);
    // The audit reads no more than what it judges; packaging compares all files with the map.
    let audit = sealroot("audit", disk.path(), &[]);
    assert!(audit.status.success(), "{}", stderr(&audit));
    let out = disk.folder().join("image");
    let published = packaged(disk.path(), &out, &["--seal"]);
    let why = published["volumes"][2]["shipping"]["whole"]["why"].as_str().unwrap();
    assert!(why.contains("calls clusters free that file record"), "{why}");
}

#[test]
fn a_page_file_with_another_name_keeps_its_contents() {
    let content = vec![0x5A; 1 << 20];
    let disk = RootDisk::standard().edit_volume(|volume| {
        let mounted = Mounted::new(volume.path(), "");
        mounted.write("swapfile.sys", &content);
        mounted.write("hiberfil.sys", &content);
        fs::hard_link(mounted.point.join("swapfile.sys"), mounted.point.join("mine.bin")).unwrap();
        mounted.unmount();
    });
    let published = packaged(disk.path(), &disk.folder().join("image"), &["--seal"]);
    let files = published["volumes"][2]["shipping"]["inUse"]["files"].as_array().unwrap();
    assert!(files.iter().any(|file| file[0] == "hiberfil.sys"), "{files:?}");
    assert!(files.iter().all(|file| file[0] != "swapfile.sys"), "{files:?}");
}

#[test]
fn a_layout_that_does_not_fit_is_named() {
    let disk = RootDisk::standard();
    let out = disk.folder().join("image");
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_sealroot")])
        .args(["package", "--seal", "--disk"])
        .arg(disk.path())
        .arg("--output")
        .arg(&out)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains(&format!("{}: File too large", out.display())), "{}", stderr(&output));
    assert_eq!(fs::read_dir(disk.folder()).unwrap().count(), 1);
}

#[test]
fn what_is_no_patch_is_not_read_to_its_end() {
    let disk = RootDisk::standard();
    let large = disk.folder().join("large");
    fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
    for patch in [Path::new("/dev/zero"), &large] {
        let args = ["--output", "x", "--patch", patch.to_str().unwrap()];
        let refused = sealroot("package", disk.path(), &args);
        assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
        assert!(stderr(&refused).contains("file"), "{}", stderr(&refused));
    }
}

#[test]
fn a_root_without_a_pointer_is_said_not_to_be_sealed() {
    let disk = RootDisk::standard();
    let package = |name: &str, args: &[&str]| {
        let out = disk.folder().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_sealroot"));
        command.arg("package").arg("--disk").arg(disk.path()).arg("--output").arg(out).args(args);
        let done = command.env("SOURCE_DATE_EPOCH", "").output().unwrap();
        assert!(done.status.success(), "{}", stderr(&done));
        stderr(&done)
    };
    assert!(package("plain", &[]).contains("not sealed"));
    assert!(!package("sealed", &["--seal"]).contains("not sealed"));
}

#[test]
fn a_patch_for_another_disk_is_refused() {
    let disk = RootDisk::standard();
    let patch = disk.folder().join("patch.json");
    let made = sealroot("prepare-sealed-root", disk.path(), &["--patch", patch.to_str().unwrap()]);
    assert!(made.status.success(), "{}", stderr(&made));
    let other = RootDisk::standard().with_pointer(r"C:\x.xml");
    let out = disk.folder().join("image");
    let args = ["--patch", patch.to_str().unwrap(), "--output", out.to_str().unwrap()];
    let refused = sealroot("package", other.path(), &args);
    assert_eq!(refused.status.code(), Some(4), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("differs"), "{}", stderr(&refused));
    fs::write(&patch, "{}").unwrap();
    assert_eq!(sealroot("package", disk.path(), &args).status.code(), Some(3));
    assert!(!out.exists());
}

#[test]
fn it_is_pushed_and_kept_in_one_pass() {
    let disk = RootDisk::standard();
    let registry = Registry::start();
    for (compression, unpack) in [("zstd", "--zstd"), ("gzip", "--gzip")] {
        let out = disk.folder().join(compression);
        let target = format!("{}/golden/root:{compression}", registry.host());
        let mut child = Command::new(env!("CARGO_BIN_EXE_sealroot"))
            .args(["package", "--seal", "--json", "--compression", compression, "--push", &target])
            .args(["--username", registry::USER, "--password-stdin", "--ca"])
            .arg(registry.ca())
            .arg("--disk")
            .arg(disk.path())
            .arg("--output")
            .arg(&out)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(registry::PASSWORD.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{}", stderr(&done));
        let report: Value = serde_json::from_slice(&done.stdout).unwrap();
        let reference = report["reference"].as_str().unwrap();
        assert_eq!(
            reference,
            format!("{}/golden/root@{}", registry.host(), report["digest"].as_str().unwrap())
        );

        let pulled = disk.folder().join(format!("{compression}-pulled"));
        registry.pull(reference, &pulled);
        let layer = &report["layerDigest"].as_str().unwrap()[7..];
        let bytes = fs::read(pulled.join(layer)).unwrap();
        assert_eq!(bytes.len() as u64, report["layerSize"].as_u64().unwrap());
        assert!(bytes == fs::read(out.join("blobs/sha256").join(layer)).unwrap());
        run(Command::new("tar").args([unpack, "-xf"]).arg(pulled.join(layer)).arg("-C").arg(&pulled));
        let volume = Volume::of(&pulled.join("disk/disk.qcow2"));
        assert_eq!(volume.hive_value(SYSTEM, "Setup", "UnattendFile"), r"D:\autounattend.xml");
    }
}

#[test]
fn a_failed_push_leaves_neither_image_nor_layout() {
    let disk = RootDisk::standard();
    let mut registry = Registry::start();
    registry.stop();
    let out = disk.folder().join("image");
    let target = format!("{}/golden/root:v1", registry.host());
    let ca = registry.ca().to_str().unwrap();
    let args = ["--seal", "--output", out.to_str().unwrap(), "--push", &target, "--ca", ca];
    let failed = sealroot("package", disk.path(), &args);
    assert_eq!(failed.status.code(), Some(1), "{}", stderr(&failed));
    assert!(stderr(&failed).contains(&registry.host()), "{}", stderr(&failed));
    assert!(failed.stdout.is_empty(), "no digest of what is not there");
    assert_eq!(fs::read_dir(disk.folder()).unwrap().count(), 1);
}

#[test]
fn options_that_make_no_sense_are_usage_errors() {
    let disk = RootDisk::standard();
    for args in [
        &["--output", "x", "--level", "20"][..],
        &["--output", "x", "--compression", "gzip", "--level", "10"],
        &["--output", "x", "--compression", "none", "--level", "1"],
        &["--output", "x", "--compression", "lzma"],
        &["--output", "x", "--seal", "--patch", "p"],
        &["--push", "no-registry"],
        &[
            "--push",
            "registry.example.com/a@sha256:0000000000000000000000000000000000000000000000000000000000000000",
        ],
        &["--push", "registry.example.com/a"],
        &["--push", "registry.example.com/a:b", "--plain-http"],
    ] {
        let wrong = sealroot("package", disk.path(), args);
        assert_eq!(wrong.status.code(), Some(2), "{args:?}: {}", stderr(&wrong));
    }
}
