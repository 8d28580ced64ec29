//! `prepare-sealed-root` on a root in every state, judged by hivexget, hivexregedit, reged, ntfscat and qemu-img.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/root_disk.rs"]
mod root_disk;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};

use root_disk::{RootDisk, SOFTWARE, SYSTEM, Volume, run};

const POINTER: &str = r"D:\autounattend.xml";

fn sealroot(args: &[&str], disk: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sealroot"))
        .arg("prepare-sealed-root")
        .arg("--disk")
        .arg(disk)
        .args(args)
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Seals into `sealed.qcow2` beside the disk and gives its path.
fn seal(disk: &RootDisk, args: &[&str]) -> std::path::PathBuf {
    let sealed = disk.folder().join("sealed.qcow2");
    let output = sealroot(&[&["--output", sealed.to_str().unwrap()], args].concat(), disk.path());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("deleted files included"), "{}", stderr(&output));
    sealed
}

fn raw_of(qcow2: &Path) -> Vec<u8> {
    let raw = qcow2.with_extension("raw-copy");
    run(Command::new("qemu-img").args(["convert", "-O", "raw"]).arg(qcow2).arg(&raw));
    fs::read(raw).unwrap()
}

/// Where two equally long byte strings differ: first and last.
fn difference(a: &[u8], b: &[u8]) -> Option<(usize, usize)> {
    assert_eq!(a.len(), b.len());
    let first = a.iter().zip(b).position(|(a, b)| a != b)?;
    Some((first, a.iter().zip(b).rposition(|(a, b)| a != b).unwrap()))
}

#[test]
fn the_pointer_is_set_and_nothing_else_changes() {
    let disk = RootDisk::standard();
    let before = fs::read(disk.path()).unwrap();
    let sealed = seal(&disk, &[]);
    assert_eq!(fs::read(disk.path()).unwrap(), before, "the input was changed");
    run(Command::new("qemu-img").arg("check").arg(&sealed));

    let volume = Volume::of(&sealed);
    assert_eq!(volume.hive_value(SYSTEM, "Setup", "UnattendFile"), POINTER);
    assert!(volume.clusters_agree());
    // Outside the SYSTEM hive's clusters the disk is the same to the byte.
    let old = Volume::of(disk.path());
    let (hive, old_hive) = (volume.cat(SYSTEM), old.cat(SYSTEM));
    assert_eq!(hive.len(), old_hive.len());
    assert_eq!(volume.cat(SOFTWARE), old.cat(SOFTWARE));
    let after = raw_of(&sealed);
    let (first, last) = difference(&before, &after).expect("something must differ");
    assert!(last - first < hive.len(), "the change reaches over {} bytes", last - first);
    let changed = before.iter().zip(&after).filter(|(a, b)| a != b).count();
    let changed_in_hive = old_hive.iter().zip(&hive).filter(|(a, b)| a != b).count();
    assert_eq!(changed, changed_in_hive, "bytes outside the hive changed");
    assert!(changed < 400, "{changed} bytes changed");
}

#[test]
fn other_tools_read_the_same_registry() {
    let disk = RootDisk::standard();
    let sealed = seal(&disk, &["--sysprep-drive", "E"]);
    let scratch = tempfile::tempdir().unwrap();
    let export = |volume: &Volume, name: &str| {
        let hive = scratch.path().join(name);
        fs::write(&hive, volume.cat(SYSTEM)).unwrap();
        let text = run(Command::new("hivexregedit")
            .args(["--export", "--prefix", "HKEY_LOCAL_MACHINE\\SYSTEM"])
            .arg(&hive)
            .arg("\\"))
        .stdout;
        (hive, String::from_utf8(text).unwrap())
    };
    let (_, before) = export(&Volume::of(disk.path()), "before");
    let (hive, after) = export(&Volume::of(&sealed), "after");
    let added: Vec<_> = after.lines().filter(|line| !before.contains(line)).collect();
    assert_eq!(added.len(), 1, "{added:?}");
    assert!(added[0].starts_with("\"UnattendFile\"="), "{added:?}");
    let kept: Vec<_> = after.lines().filter(|line| *line != added[0]).collect();
    assert_eq!(kept, before.lines().collect::<Vec<_>>(), "other values changed");

    let reg = scratch.path().join("out.reg");
    run(Command::new("reged")
        .args(["-x"])
        .arg(&hive)
        .args(["HKEY_LOCAL_MACHINE\\SYSTEM", "\\Setup"])
        .arg(&reg));
    let reg = String::from_utf8_lossy(&fs::read(&reg).unwrap()).into_owned();
    assert!(reg.contains(r#""UnattendFile"="E:\\autounattend.xml""#), "{reg}");
}

#[test]
fn a_pointer_is_replaced_removed_or_found_in_place() {
    let disk = RootDisk::standard().with_pointer(r"C:\Windows\Temp\old-answer-file-with-a-long-name.xml");
    let output = sealroot(&["--patch", disk.folder().join("p").to_str().unwrap(), "--json"], disk.path());
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["previousPointer"], r"C:\Windows\Temp\old-answer-file-with-a-long-name.xml");
    assert_eq!(report["pointer"], POINTER);

    let replaced = seal(&disk, &[]);
    assert_eq!(Volume::of(&replaced).hive_value(SYSTEM, "Setup", "UnattendFile"), POINTER);
    for choice in [["--remove-pointer"].as_slice(), &["--first-boot", "none"]] {
        fs::remove_file(disk.folder().join("sealed.qcow2")).unwrap();
        let removed = seal(&disk, choice);
        assert!(!Volume::of(&removed).has_hive_value(SYSTEM, "Setup", "UnattendFile"));
    }

    // What is right already needs no patch.
    let right = RootDisk::standard().with_pointer(POINTER);
    let patch = right.folder().join("patch.json");
    let output = sealroot(&["--patch", patch.to_str().unwrap(), "--json"], right.path());
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["changedBytes"], 0);
}

#[test]
fn scattered_hives_and_large_sectors_and_mbr_are_sealed() {
    let disks = [
        RootDisk::with_scattered_hives(),
        RootDisk::with_4096_byte_sectors(),
        RootDisk::standard().with_mbr(),
    ];
    for disk in disks {
        let sealed = seal(&disk, &[]);
        let volume = Volume::of(&sealed);
        assert_eq!(volume.hive_value(SYSTEM, "Setup", "UnattendFile"), POINTER);
        let old = Volume::of(disk.path());
        let mut untouched = volume.list();
        untouched.retain(|path| !path.ends_with('/') && path != SYSTEM && path.starts_with("Windows/"));
        assert!(untouched.len() > 20);
        for path in untouched.iter().take(40) {
            assert_eq!(volume.cat(path), old.cat(path), "{path}");
        }
    }
}

#[test]
fn qcow2_and_raw_give_one_patch() {
    let disk = RootDisk::standard();
    let mut patches = Vec::new();
    let qcow2 = disk.folder().join("disk.qcow2");
    let plain = disk.folder().join("plain.qcow2");
    run(Command::new("qemu-img").args(["convert", "-c", "-O", "qcow2"]).arg(disk.path()).arg(&qcow2));
    run(Command::new("qemu-img").args(["convert", "-O", "qcow2"]).arg(disk.path()).arg(&plain));
    for (n, input) in [disk.path(), &qcow2, &plain].into_iter().enumerate() {
        let patch = disk.folder().join(format!("{n}.patch"));
        let output = sealroot(&["--patch", patch.to_str().unwrap()], input);
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(patch.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(stderr(&output).contains("holds the bytes that it replaces"), "{}", stderr(&output));
        patches.push(fs::read(patch).unwrap());
    }
    assert!(!patches[0].is_empty());
    assert!(patches.iter().all(|patch| *patch == patches[0]));

    // The patch's new bytes, laid over the disk by hand, are the sealed disk.
    let saved: serde_json::Value = serde_json::from_slice(&patches[0]).unwrap();
    let copy = disk.folder().join("by-hand.raw");
    fs::copy(disk.path(), &copy).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&copy).unwrap();
    for edit in saved["edits"].as_array().unwrap() {
        let new = hex::decode(edit["new"].as_str().unwrap()).unwrap();
        file.write_all_at(&new, edit["offset"].as_u64().unwrap()).unwrap();
    }
    let sealed = seal(&disk, &[]);
    run(Command::new("qemu-img").args(["compare", "-f", "raw", "-F", "qcow2"]).arg(&copy).arg(&sealed));
}

#[test]
fn unfit_roots_are_refused_by_name_and_with_a_cure() {
    let cases: [(&str, RootDisk, &[&str]); 10] = [
        ("installed", RootDisk::standard().not_generalised(), &["not generalised", "sysprep"]),
        ("dirty volume", RootDisk::standard().with_dirty_volume(), &["dirty", "chkdsk"]),
        ("hibernated", RootDisk::standard().hibernated(), &["hibernat", "powercfg"]),
        ("log in use", RootDisk::standard().with_log(1, false), &["$LogFile", "shut"]),
        ("fast startup", RootDisk::standard().with_log(2, true), &["$LogFile", "shut"]),
        ("BitLocker", RootDisk::standard().with_bitlocker(), &["BitLocker", "manage-bde -off"]),
        (
            "map that misses a hive",
            RootDisk::standard().with_clusters_called_free(SYSTEM),
            &["cluster map contradicts", "chkdsk /f"],
        ),
        ("dirty SYSTEM", RootDisk::standard().with_dirty_hive(SYSTEM), &["SYSTEM hive is dirty"]),
        ("dirty SOFTWARE", RootDisk::standard().with_dirty_hive(SOFTWARE), &["SOFTWARE hive is dirty"]),
        (
            "two reasons at once",
            RootDisk::standard().not_generalised().hibernated(),
            &["not generalised", "hibernat"],
        ),
    ];
    for (name, disk, wanted) in cases {
        let out = disk.folder().join("out.qcow2");
        let output = sealroot(&["--output", out.to_str().unwrap()], disk.path());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(4), "{name}: {said}");
        for word in wanted {
            assert!(said.contains(word), "{name}: no {word:?} in: {said}");
        }
        assert!(!out.exists(), "{name}");
        assert_eq!(fs::read_dir(disk.folder()).unwrap().count(), 1, "{name}: something was left behind");
    }
    // The same log, closed, is accepted.
    seal(&RootDisk::standard().with_log(1, true), &[]);
}

#[test]
fn what_is_no_windows_root_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let refused = |content: &[u8], code: i32, word: &str| {
        fs::write(&path, content).unwrap();
        let output = sealroot(&["--patch", folder.path().join("p").to_str().unwrap()], &path);
        assert_eq!(output.status.code(), Some(code), "{word}: {}", stderr(&output));
        assert!(stderr(&output).contains(word), "no {word:?} in: {}", stderr(&output));
    };
    refused(&[0; 4096], 4, "no partition table");
    refused(b"<!DOCTYPE html><html></html>", 4, "web page");
    refused(b"", 4, "empty");
    let mut vhdx = vec![0; 1 << 20];
    vhdx[..8].copy_from_slice(b"vhdxfile");
    refused(&vhdx, 4, "qemu-img convert");
    let linux = folder.path().join("linux.raw");
    fs::File::create(&linux).unwrap().set_len(64 << 20).unwrap();
    run(Command::new("sgdisk").args(["-n", "1:0:0", "-t", "1:8300"]).arg(&linux));
    let output = sealroot(&["--patch", folder.path().join("p").to_str().unwrap()], &linux);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(stderr(&output).contains("no Windows"), "{}", stderr(&output));
}

#[test]
fn arguments_that_make_no_sense_change_nothing() {
    let disk = RootDisk::standard();
    let out = disk.folder().join("out.qcow2");
    let out = out.to_str().unwrap();
    for args in [
        vec![],
        vec!["--output", out, "--sysprep-drive", "C"],
        vec!["--output", out, "--sysprep-drive", "DD"],
        vec!["--output", out, "--remove-pointer", "--sysprep-drive", "E"],
        vec!["--output", out, "--remove-pointer", "--first-boot", "answer-cd"],
        vec!["--output", out, "--first-boot", "sometimes"],
    ] {
        let output = sealroot(&args, disk.path());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
    }
    fs::write(out, "mine").unwrap();
    let output = sealroot(&["--output", out], disk.path());
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert_eq!(fs::read(out).unwrap(), b"mine");
    let output = sealroot(&["--output", disk.path().to_str().unwrap()], disk.path());
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    let output = sealroot(&["--output", "/nowhere/out.qcow2"], disk.path());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}

#[test]
fn cached_answer_files_are_named() {
    let disk = RootDisk::standard().with_cached_answer();
    let output = sealroot(&["--patch", disk.folder().join("p").to_str().unwrap(), "--json"], disk.path());
    let said = stderr(&output);
    assert!(said.contains(r"\Windows\Panther\unattend.xml"), "{said}");
    assert!(!said.contains("Correct-Horse"));
    assert!(!String::from_utf8_lossy(&output.stdout).contains("Correct-Horse"));
}

#[test]
fn the_output_is_small_and_the_mtime_of_the_input_stays() {
    let disk = RootDisk::standard();
    let before = disk.path().metadata().unwrap();
    let sealed = seal(&disk, &[]);
    let after = disk.path().metadata().unwrap();
    assert_eq!((before.mtime(), before.mtime_nsec()), (after.mtime(), after.mtime_nsec()));
    assert!(sealed.metadata().unwrap().len() < before.len() / 2);
}
