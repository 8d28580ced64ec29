//! The disks that other tests start from are what they claim to be, by ntfs-3g's and hivex's word.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Command;

#[path = "support/root_disk.rs"]
mod root_disk;

use root_disk::{RootDisk, SOFTWARE, SYSTEM, Volume};

/// Exit status of `ntfs-3g.probe --readwrite`: 0 may be mounted, 14 hibernated, 15 unclean, 12 no NTFS.
fn probe(disk: &RootDisk) -> i32 {
    let volume = Volume::of(disk.path());
    let probed = Command::new("ntfs-3g.probe").arg("--readwrite").arg(volume.path()).output().unwrap();
    probed.status.code().unwrap()
}

fn image_state(volume: &Volume) -> String {
    volume.hive_value(SOFTWARE, r"Microsoft\Windows\CurrentVersion\Setup\State", "ImageState")
}

fn runs(volume: &Volume, path: &str) -> Vec<u64> {
    let shown = Command::new("ntfscluster").args(["-f", "-F", path]).arg(volume.path()).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let rows = shown.lines().filter_map(|line| {
        let numbers: Option<Vec<u64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        numbers.filter(|row| row.len() == 3).map(|row| row[1])
    });
    rows.collect()
}

#[test]
fn standard_is_generalised_and_clean() {
    let disk = RootDisk::standard();
    assert_eq!(probe(&disk), 0);
    let volume = Volume::of(disk.path());
    assert!(volume.clusters_agree());
    assert_eq!(image_state(&volume), "IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE");
    assert_eq!(volume.hive_value(SYSTEM, "Setup", "CmdLine"), r"oobe\windeploy.exe");
    assert!(!volume.has_hive_value(SYSTEM, "Setup", "UnattendFile"));
    assert!(volume.has("Windows/System32/Sysprep/Sysprep_succeeded.tag"));
    assert!(!volume.has("Windows/Panther/unattend.xml"));
    let paths = volume.list();
    assert!(paths.len() > 400);
    assert!(
        paths.iter().any(|path| path == SYSTEM)
            && paths.iter().any(|path| path == "Windows/Panther/Unattend/")
    );
    assert!(runs(&volume, "Windows/SoftwareDistribution/DataStore/DataStore.edb").len() > 10);
}

#[test]
fn hives_can_lie_in_fragments_that_jump_both_ways() {
    let disk = RootDisk::with_scattered_hives();
    assert_eq!(probe(&disk), 0);
    let runs = runs(&Volume::of(disk.path()), SYSTEM);
    assert!(runs.len() >= 10, "{runs:?}");
    assert!(runs.windows(2).any(|pair| pair[0] < pair[1]) && runs.windows(2).any(|pair| pair[0] > pair[1]));
}

#[test]
fn sectors_can_have_4096_bytes() {
    let disk = RootDisk::with_4096_byte_sectors();
    assert_eq!(probe(&disk), 0);
    let bytes = fs::read(disk.path()).unwrap();
    assert_eq!(&bytes[4096..4104], b"EFI PART");
    let volume = Volume::of(disk.path());
    let boot = fs::read(volume.path()).unwrap();
    assert_eq!(boot[11..13], 4096_u16.to_le_bytes());
    assert_eq!(image_state(&volume), "IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE");
}

#[test]
fn an_installed_root_is_not_generalised() {
    let disk = RootDisk::standard().not_generalised();
    assert_eq!(probe(&disk), 0);
    let volume = Volume::of(disk.path());
    assert_eq!(image_state(&volume), "IMAGE_STATE_COMPLETE");
    assert_eq!(volume.hive_value(SYSTEM, "Setup", "SetupType"), "0");
    assert_eq!(volume.hive_value(SYSTEM, "Setup", "CmdLine"), "");
    assert!(volume.cat("Windows/Setup/State/State.ini").ends_with(b"COMPLETE\r\n"));
    assert!(volume.clusters_agree());
}

#[test]
fn a_pointer_and_answer_file_can_be_there() {
    let disk = RootDisk::standard().with_pointer(r"C:\Windows\Temp\answer.xml").with_cached_answer();
    let volume = Volume::of(disk.path());
    assert_eq!(volume.hive_value(SYSTEM, "Setup", "UnattendFile"), r"C:\Windows\Temp\answer.xml");
    assert_eq!(volume.cat("Windows/Panther/unattend.xml"), root_disk::ANSWER_WITH_PASSWORD.as_bytes());
    assert!(volume.clusters_agree());
}

#[test]
fn unfit_volumes_are_refused_by_ntfs_3g_too() {
    assert_eq!(probe(&RootDisk::standard().hibernated()), 14);
    assert_eq!(probe(&RootDisk::standard().with_log(1, true)), 0);
    assert_eq!(probe(&RootDisk::standard().with_log(1, false)), 15);
    assert_eq!(probe(&RootDisk::standard().with_log(2, false)), 14);
    assert_eq!(probe(&RootDisk::standard().with_bitlocker()), 12);
    let dirty = RootDisk::standard().with_dirty_volume();
    let said = Command::new("ntfsinfo").arg("-m").arg(Volume::of(dirty.path()).path()).output().unwrap();
    assert!(String::from_utf8(said.stderr).unwrap().contains("Volume is scheduled for check"));
}

#[test]
fn a_dirty_hive_has_two_sequence_numbers() {
    let disk = RootDisk::standard().with_dirty_hive(SYSTEM);
    let hive = Volume::of(disk.path()).cat(SYSTEM);
    assert_ne!(hive[4..8], hive[8..12]);
}

#[test]
fn deleted_bytes_are_in_no_file() {
    let marker = b"the password of a deleted answer file";
    let disk = RootDisk::standard().with_deleted_bytes(marker).with_mbr();
    let bytes = fs::read(disk.path()).unwrap();
    assert!(bytes.windows(marker.len()).any(|window| window == marker));
    assert_eq!(probe(&disk), 0);
    assert!(Volume::of(disk.path()).clusters_agree());
    assert_ne!(&bytes[512..520], b"EFI PART");
}
