//! What deleted files left in their records is not published: judged by ntfs-3g and a raw scan.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/ntfs_listing.rs"]
mod ntfs_listing;
#[path = "support/ntfs_volume.rs"]
mod ntfs_volume;
#[path = "support/root_disk.rs"]
mod root_disk;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ntfs_listing::{clusters_agree, holds, listing, use_heavily};
use ntfs_volume::{Mounted, leave_holes, make_volume, path_str, run};
use sealroot::ntfs::Volume;

const SECRET: &str = "Correct-Horse-7-Battery";

fn sealroot(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sealroot")).args(args).output().unwrap()
}

/// The disk as it is published, raw.
fn published(disk: &root_disk::RootDisk, name: &str, args: &[&str]) -> PathBuf {
    let layout = disk.folder().join(name);
    let output =
        ["package", "--seal", "--json", "--disk", path_str(disk.path()), "--output", path_str(&layout)];
    let output = sealroot(&[&output, args].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let layer = layout.join("blobs/sha256").join(&report["layerDigest"].as_str().unwrap()[7..]);
    run("tar", &["--zstd", "-xf", path_str(&layer), "-C", path_str(&layout)]);
    let raw = layout.join("disk.raw");
    let qcow2 = layout.join("disk/disk.qcow2");
    run("qemu-img", &["convert", "-O", "raw", path_str(&qcow2), path_str(&raw)]);
    raw
}

const DELETED_NAME: &str = "Purple-Elephant";
const SHORTENED: &str = "Green-Walrus-In-The-Tail";

#[test]
fn what_deleted_files_left_in_their_records_is_not_published() {
    // File records of 1024 and of 4096 bytes.
    let disks =
        [(root_disk::RootDisk::standard(), 3000), (root_disk::RootDisk::with_4096_byte_sectors(), 200)];
    for (disk, count) in disks {
        let disk = disk.edit_volume(|volume| {
            let mounted = Mounted::new(volume.path(), "");
            for number in 0..300 {
                mounted.write(&format!("Windows/Temp/gone/{number} {DELETED_NAME}"), SECRET.as_bytes());
            }
            let kept = |number| format!("Windows/Temp/kept/{number}");
            (0..50).for_each(|number| mounted.write(&kept(number), SHORTENED.repeat(20).as_bytes()));
            fs::remove_dir_all(mounted.point.join("Windows/Temp/gone")).unwrap();
            for number in 0..50 {
                fs::OpenOptions::new()
                    .write(true)
                    .open(mounted.point.join(kept(number)))
                    .unwrap()
                    .set_len(3)
                    .unwrap();
            }
            mounted.unmount();
        });
        let before = listing(root_disk::Volume::of(disk.path()).path());
        for (name, args) in [("everything", &["--keep-free-clusters"][..]), ("trimmed", &[])] {
            let bytes = fs::read(published(&disk, name, args)).unwrap();
            for marker in [SECRET, DELETED_NAME, SHORTENED] {
                assert_eq!(holds(&bytes, marker), name == "everything", "{name}: {marker}");
            }
        }
        let volume = root_disk::Volume::of(&disk.folder().join("trimmed/disk.raw"));
        clusters_agree(volume.path());
        let (mut expected, mut found) = (before, listing(volume.path()));
        for listing in [&mut expected, &mut found] {
            listing.remove(Path::new(root_disk::SYSTEM)).unwrap();
            listing.remove(Path::new("pagefile.sys"));
        }
        assert!(found == expected);
        let all = listing(volume.path());
        use_heavily(volume.path(), "Windows/Temp", &all, count);
    }
}

#[test]
fn records_in_pieces_smaller_than_themselves_are_cleared_whole() {
    let disk = root_disk::RootDisk::standard();
    // The second partition, of 16 MiB at 37 MiB; its $MFT grows through holes of one cluster.
    let data = make_volume(disk.folder(), 16 << 20, &["-c", "512"]);
    let mounted = Mounted::new(&data, "");
    leave_holes(&mounted, 512 * 3);
    let at = |path: String| mounted.point.join(path);
    ["gone", "kept"].iter().for_each(|folder| fs::create_dir(at((*folder).to_owned())).unwrap());
    let made = (0..4000)
        .take_while(|number| {
            fs::write(at(format!("gone/{number} {DELETED_NAME}")), SECRET).is_ok()
                && fs::write(at(format!("kept/{number}")), "kept").is_ok()
        })
        .count();
    fs::remove_dir_all(at("gone".to_owned())).unwrap();
    mounted.unmount();
    let info = String::from_utf8(run("ntfsinfo", &["-i", "0", path_str(&data)])).unwrap();
    assert!(info.contains("$ATTRIBUTE_LIST"), "$MFT fits into one record after {made} files");
    let before = listing(&data);
    let whole = fs::OpenOptions::new().read(true).write(true).open(disk.path()).unwrap();
    whole.write_all_at(&fs::read(&data).unwrap(), 37 << 20).unwrap();
    assert!(holds(&fs::read(disk.path()).unwrap(), SECRET));

    let bytes = fs::read(published(&disk, "trimmed", &[])).unwrap();
    assert!(!holds(&bytes, SECRET) && !holds(&bytes, DELETED_NAME));
    fs::write(&data, &bytes[37 << 20..53 << 20]).unwrap();
    clusters_agree(&data);
    assert!(listing(&data) == before);
    let mounted = Mounted::new(&data, "");
    (0..made / 2).for_each(|number| mounted.write(&format!("again/{number}"), b"new"));
    mounted.unmount();
    clusters_agree(&data);
    assert_eq!(listing(&data).len(), before.len() + 1 + made / 2);
}

#[test]
fn a_bitmap_that_misses_a_file_leaves_its_record_alone() {
    let disk = root_disk::RootDisk::standard().edit_volume(|volume| {
        let mut bytes = fs::read(volume.path()).unwrap();
        let (record, place) = {
            let volume = Volume::open(bytes.as_slice()).unwrap();
            let record = volume.file("Windows\\explorer.exe").unwrap().unwrap().reference().record;
            (record, volume.mft_bitmap().unwrap().extents()[0].volume_offset.unwrap() + record / 8)
        };
        bytes[place as usize] &= !(1 << (record % 8));
        fs::write(volume.path(), bytes).unwrap();
    });
    let layout = disk.folder().join("image");
    let args =
        ["package", "--seal", "--json", "--disk", path_str(disk.path()), "--output", path_str(&layout)];
    let report: serde_json::Value = serde_json::from_slice(&sealroot(&args).stdout).unwrap();
    let why = report["volumes"][2]["shipping"]["whole"]["why"].as_str().unwrap();
    assert!(why.contains("free, which is in use"), "{why}");
}
