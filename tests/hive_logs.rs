//! Hives that were not written out whole: read and sealed with their logs, or refused. Judged by hivex.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/ntfs_volume.rs"]
mod ntfs_volume;
#[path = "support/root_disk.rs"]
mod root_disk;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ntfs_volume::Mounted;
use root_disk::{RootDisk, SOFTWARE, SYSTEM, Volume, run};
use serde_json::Value;

const STATE: &str = r"Microsoft\Windows\CurrentVersion\Setup\State";

fn sealroot(args: &[&str], disk: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sealroot")).args(args).arg("--disk").arg(disk).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn seal(disk: &RootDisk, more: &[&str]) -> (Output, PathBuf) {
    let sealed = disk.folder().join("sealed.qcow2");
    drop(fs::remove_file(&sealed));
    let args = ["prepare-sealed-root", "--json", "--output", sealed.to_str().unwrap()];
    (sealroot(&[&args, more].concat(), disk.path()), sealed)
}

/// The hive as it was, with what `edit` does to it only in its .LOG1: dirty.
fn with_log(disk: RootDisk, hive: &str, edit: impl FnOnce(RootDisk) -> RootDisk) -> RootDisk {
    let old = Volume::of(disk.path()).cat(hive);
    let edited = edit(disk);
    let new = Volume::of(edited.path()).cat(hive);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    fs::write(file("old"), old).unwrap();
    fs::write(file("new"), new).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/dirty_hive.py");
    let files = ["old", "new", "hive", "log"].map(file);
    run(Command::new("python3").arg(script).args(files));
    let (dirty, log) = (fs::read(file("hive")).unwrap(), fs::read(file("log")).unwrap());
    put(edited, &[(hive.to_owned(), dirty), (format!("{hive}.LOG1"), log)])
}

fn put(disk: RootDisk, files: &[(String, Vec<u8>)]) -> RootDisk {
    disk.edit_volume(|volume| {
        let mounted = Mounted::new(volume.path(), "");
        files.iter().for_each(|(path, bytes)| mounted.write(path, bytes));
        mounted.unmount();
    })
}

fn pending(disk: RootDisk) -> RootDisk {
    disk.hive_values(SYSTEM, r"Setup\Pending", &[("InTheLog", "\"yes\"")])
}

#[test]
fn systems_logs_go_into_the_patch() {
    let disk = with_log(RootDisk::standard(), SYSTEM, pending);
    let before = Volume::of(disk.path());
    assert!(!before.has_hive_value(SYSTEM, r"Setup\Pending", "InTheLog"), "it is in the hive already");
    let (done, sealed) = seal(&disk, &[]);
    assert!(done.status.success(), "{}", stderr(&done));
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(report["replayed"], serde_json::json!({ "hive": "SYSTEM", "entries": 1 }));
    assert!(stderr(&done).contains("1 entry of SYSTEM's logs"), "{}", stderr(&done));
    let volume = Volume::of(&sealed);
    assert_eq!(volume.hive_value(SYSTEM, r"Setup\Pending", "InTheLog"), "yes");
    assert_eq!(volume.hive_value(SYSTEM, "Setup", "UnattendFile"), r"D:\autounattend.xml");
    // Clean, and newer than the log's entry, so that Windows does not replay that over it.
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (hive, log) = (volume.cat(SYSTEM), volume.cat(&format!("{SYSTEM}.LOG1")));
    assert_eq!(word(&hive, 4), word(&hive, 8));
    assert!(word(&hive, 4) > word(&log, 512 + 12));
    assert_eq!(log, before.cat(&format!("{SYSTEM}.LOG1")), "the log was changed");
    // The audit says what it read, and has nothing to say of the sealed root.
    let findings = |path: &Path| {
        let output = sealroot(&["audit", "--json"], path);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap().clone();
        findings.into_iter().find(|finding| finding["id"] == "hive-logs").unwrap()
    };
    let found = findings(disk.path());
    assert_eq!(found["status"], "warn");
    assert!(found["saw"].as_str().unwrap().contains("1 entry of SYSTEM's logs"), "{found}");
    assert_eq!(findings(&sealed)["status"], "pass");
}

#[test]
fn softwares_logs_are_read_and_left() {
    // Generalised by the log alone.
    let disk =
        RootDisk::standard().hive_values(SOFTWARE, STATE, &[("ImageState", "\"IMAGE_STATE_COMPLETE\"")]);
    let (refused, _) = seal(&disk, &[]);
    assert_eq!(refused.status.code(), Some(4), "{}", stderr(&refused));
    let disk = with_log(disk, SOFTWARE, |disk| {
        disk.hive_values(SOFTWARE, STATE, &[("ImageState", "\"IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE\"")])
    });
    let (done, sealed) = seal(&disk, &[]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert!(stderr(&done).contains("hive-logs: 1 entry of SOFTWARE's logs"), "{}", stderr(&done));
    let (old, new) = (Volume::of(disk.path()), Volume::of(&sealed));
    assert_eq!(old.cat(SOFTWARE), new.cat(SOFTWARE));
    assert_eq!(old.cat(&format!("{SOFTWARE}.LOG1")), new.cat(&format!("{SOFTWARE}.LOG1")));
}

#[test]
fn a_dirty_hive_is_refused_with_the_reason() {
    for (hive, name) in [(SYSTEM, "SYSTEM"), (SOFTWARE, "SOFTWARE")] {
        let edit = |disk: RootDisk| disk.hive_values(hive, "Pending", &[("InTheLog", "\"yes\"")]);
        let disk = with_log(RootDisk::standard(), hive, edit);
        let (refused, sealed) = seal(&disk, &["--no-replay-logs"]);
        assert_eq!(refused.status.code(), Some(4), "{}", stderr(&refused));
        let said = stderr(&refused);
        assert!(
            said.contains(&format!("the {name} hive is dirty")) && said.contains("not to be replayed"),
            "{said}"
        );
        assert!(!sealed.exists());
        let audit = sealroot(&["audit", "--no-replay-logs"], disk.path());
        assert_eq!(audit.status.code(), Some(3));
        // One bit of the log's page is wrong: its hash tells.
        let log = format!("{hive}.LOG1");
        let mut bytes = Volume::of(disk.path()).cat(&log);
        let last = bytes.len() - 2000;
        bytes[last] ^= 1;
        let disk = put(disk, &[(log.clone(), bytes)]);
        let (refused, _) = seal(&disk, &[]);
        assert_eq!(refused.status.code(), Some(4), "{}", stderr(&refused));
        assert!(stderr(&refused).contains("no log file holds what is missing"), "{}", stderr(&refused));
        // Of another state of the hive.
        let old = put(RootDisk::standard().with_dirty_hive(hive), &[(log, vec![0; 4096])]);
        assert_eq!(seal(&old, &[]).0.status.code(), Some(4));
    }
}

/// A file of the folder of real hives, unpacked.
fn real(name: &str) -> Option<Vec<u8>> {
    let shared = std::env::var_os("SEALROOT_SHARED")
        .map_or(Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let packed = shared.join("hives").join(format!("{name}.xz"));
    if !packed.exists() {
        eprintln!("skipped: {} is not there", packed.display());
        return None;
    }
    Some(run(Command::new("xz").arg("-dc").arg(packed)).stdout)
}

/// How many keys hivex finds below the root.
fn keys(hive: &[u8]) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hive");
    fs::write(&file, hive).unwrap();
    let xml = run(Command::new("hivexml").arg(&file)).stdout;
    xml.windows(6).filter(|word| word == b"<node ").count()
}

#[test]
fn a_real_dirty_hive_has_all_its_keys_when_sealed() {
    let name = |end: &str| format!("win10-1709-dirty-SYSTEM{end}");
    let (Some(hive), Some(log1), Some(log2)) = (real(&name("")), real(&name(".LOG1")), real(&name(".LOG2")))
    else {
        return;
    };
    let file = |end: &str| format!("{SYSTEM}{end}");
    let disk = RootDisk::standard();
    let disk = put(disk, &[(file(""), hive.clone()), (file(".LOG1"), log1), (file(".LOG2"), log2)]);
    let (done, sealed) = seal(&disk, &[]);
    assert!(done.status.success(), "{}", stderr(&done));
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(report["replayed"]["entries"], 24);
    let volume = Volume::of(&sealed);
    assert!(volume.clusters_agree());
    let sealed = volume.cat(SYSTEM);
    assert_eq!((keys(&hive), keys(&sealed)), (33_123, 35_595));
    assert_eq!(volume.hive_value(SYSTEM, "Setup", "UnattendFile"), r"D:\autounattend.xml");
}
