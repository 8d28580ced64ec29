//! `prepare-sealed-root --in-place` and `--undo`: whenever they are stopped, the disk is the old one or the new
//! one, as qemu-img sees it; and a disk that somebody else has is left alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/root_disk.rs"]
mod root_disk;

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use root_disk::{RootDisk, SYSTEM, Volume, run};
use sealroot::disk::{InPlaceDisk, InPlaceError, qcow2::NotInPlace};
use sealroot::io::Patch;

/// Where the mark of a whole change is in a journal.
const MARK: u64 = 56;

fn sealroot(command: &str, disk: &Path, args: &[&str]) -> Output {
    let mut sealroot = Command::new(env!("CARGO_BIN_EXE_sealroot"));
    sealroot.arg(command).arg("--disk").arg(disk).args(args).output().unwrap()
}

fn seal(disk: &Path, args: &[&str]) -> Output {
    sealroot("prepare-sealed-root", disk, args)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn done(output: Output) -> Output {
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

#[track_caller]
fn refused(output: &Output, code: i32, words: &[&str]) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
}

fn with_suffix(disk: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", disk.display()))
}

fn journal(disk: &Path) -> PathBuf {
    with_suffix(disk, ".sealroot-undo")
}

/// As if the run that wrote the journal had been stopped before its end.
fn take_mark_away(journal: &Path) {
    OpenOptions::new().write(true).open(journal).unwrap().write_all_at(&[0; 32], MARK).unwrap();
}

/// A raw disk and a plain qcow2 of it, and the sealed disk that `--output` makes.
struct Disks {
    root: RootDisk,
    qcow2: PathBuf,
    sealed: PathBuf,
}

impl Disks {
    fn new() -> Self {
        let root = RootDisk::standard();
        let qcow2 = root.folder().join("disk.qcow2");
        run(Command::new("qemu-img").args(["convert", "-O", "qcow2"]).arg(root.path()).arg(&qcow2));
        let sealed = root.folder().join("sealed.qcow2");
        done(seal(root.path(), &["--output", sealed.to_str().unwrap()]));
        Self { root, qcow2, sealed }
    }

    fn both(&self) -> [&Path; 2] {
        [self.root.path(), &self.qcow2]
    }
}

/// Whether two images hold the same disk, by qemu-img.
fn same(a: &Path, b: &Path) -> bool {
    let output = Command::new("qemu-img").arg("compare").arg(a).arg(b).output().unwrap();
    match output.status.code() {
        Some(0) => true,
        Some(1) => false,
        _ => panic!("{}", stderr(&output)),
    }
}

#[test]
fn what_is_done_in_place_is_what_output_makes_and_can_be_undone() {
    let disks = Disks::new();
    for disk in disks.both() {
        let before = fs::read(disk).unwrap();
        let output = done(seal(disk, &["--in-place", "--json"]));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["inPlace"], true);
        assert_eq!(report["undoJournal"], journal(disk).to_str().unwrap());
        assert_eq!(report["pointer"], r"D:\autounattend.xml");
        assert!(report["changedBytes"].as_u64().unwrap() > 0);
        assert_eq!(journal(disk).metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(same(disk, &disks.sealed));
        assert_eq!(Volume::of(disk).hive_value(SYSTEM, "Setup", "UnattendFile"), r"D:\autounattend.xml");
        done(sealroot("audit", disk, &[]));

        // What is done is not done again; another change waits for the first to be undone or kept.
        let output = done(seal(disk, &["--in-place", "--json"]));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["changedBytes"], 0);
        refused(&seal(disk, &["--in-place", "--sysprep-drive", "E"]), 4, &["undone", "--undo"]);
        assert!(same(disk, &disks.sealed));

        done(seal(disk, &["--undo"]));
        assert!(fs::read(disk).unwrap() == before);
        assert!(!journal(disk).exists());
        refused(&seal(disk, &["--undo"]), 4, &["no undo journal"]);
    }
    run(Command::new("qemu-img").arg("check").arg(&disks.qcow2));
}

#[test]
fn killed_at_any_time_the_disk_is_the_old_one_or_the_new_one() {
    let disks = Disks::new();
    let mut random = 0x5EA1_u64;
    for disk in disks.both() {
        let old = with_suffix(disk, ".old");
        run(Command::new("cp").arg("--sparse=always").arg(disk).arg(&old));
        let (mut unmade, mut rolled_back, mut kept) = (0, 0, 0);
        for round in 0..30 {
            let mut child = Command::new(env!("CARGO_BIN_EXE_sealroot"))
                .args(["prepare-sealed-root", "--in-place", "--disk"])
                .arg(disk)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let chance = random >> 33;
            if round % 5 == 0 {
                std::thread::sleep(Duration::from_micros(chance % 60_000));
            } else {
                // The short while in which things are written.
                let begun = Instant::now();
                let unfinished = with_suffix(disk, ".sealroot-undo.new");
                while !unfinished.exists() && !journal(disk).exists() && child.try_wait().unwrap().is_none() {
                    assert!(begun.elapsed() < Duration::from_secs(60));
                }
                std::thread::sleep(Duration::from_micros(chance % 4_000));
            }
            child.kill().unwrap();
            child.wait().unwrap();

            let half = fs::read(journal(disk)).is_ok_and(|journal| journal[MARK as usize..][..32] == [0; 32]);
            if half {
                refused(&sealroot("audit", disk, &[]), 4, &["half-way", "--undo"]);
                let patch = with_suffix(disk, ".patch");
                let output = done(seal(disk, &["--patch", patch.to_str().unwrap()]));
                assert!(stderr(&output).contains("old bytes were put back"), "{}", stderr(&output));
                fs::remove_file(patch).unwrap();
                assert!(!journal(disk).exists());
                assert!(same(disk, &old));
                rolled_back += 1;
            } else if journal(disk).exists() {
                assert!(same(disk, &disks.sealed));
                done(seal(disk, &["--undo"]));
                kept += 1;
            } else {
                unmade += 1;
            }
            assert!(fs::read(disk).unwrap() == fs::read(&old).unwrap(), "round {round}");
        }
        println!("{}: untouched {unmade}, rolled back {rolled_back}, whole {kept}", disk.display());
        assert!(unmade < 30, "none of the runs got as far as the disk");
    }
}

#[test]
fn a_journal_is_obeyed_only_where_it_belongs() {
    let disks = Disks::new();
    for disk in disks.both() {
        let before = fs::read(disk).unwrap();
        done(seal(disk, &["--in-place"]));
        let sealed = fs::read(disk).unwrap();
        let kept = fs::read(journal(disk)).unwrap();
        let at = before.iter().zip(&sealed).position(|(a, b)| a != b).unwrap() as u64;
        let file = OpenOptions::new().write(true).open(disk).unwrap();
        let unlike = before[at as usize] ^ sealed[at as usize] ^ 0xFF;
        let foreign = [if unlike == sealed[at as usize] { !unlike } else { unlike }];

        // Written to since.
        file.write_all_at(&foreign, at).unwrap();
        refused(&seal(disk, &["--undo"]), 4, &["changed since"]);
        // Half-written, and then another disk under the same name.
        take_mark_away(&journal(disk));
        refused(&seal(disk, &["--undo"]), 4, &["another disk"]);
        refused(&seal(disk, &["--in-place"]), 4, &["another disk"]);
        let mut now = sealed.clone();
        now[at as usize] = foreign[0];
        assert!(fs::read(disk).unwrap() == now);

        // Nobody else reads a half-written disk.
        file.write_all_at(&before[at as usize..][..1], at).unwrap();
        let layout = with_suffix(disk, ".layout");
        refused(&sealroot("audit", disk, &[]), 4, &["--undo"]);
        refused(&sealroot("package", disk, &["--output", layout.to_str().unwrap()]), 4, &["--undo"]);
        assert!(!layout.exists());
        let build = Command::new(env!("CARGO_BIN_EXE_sealroot"))
            .arg("build")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes/demo.toml"))
            .args(["--disk", disk.to_str().unwrap(), "--output", layout.to_str().unwrap()])
            .output();
        refused(&build.unwrap(), 4, &["half-way", "--undo"]);
        done(seal(disk, &["--undo"]));
        assert!(fs::read(disk).unwrap() == before);
        assert!(!journal(disk).exists());

        // Damaged; and one that others may have put there.
        let mut damaged = kept.clone();
        damaged[200] ^= 1;
        fs::write(journal(disk), &damaged).unwrap();
        fs::set_permissions(journal(disk), fs::Permissions::from_mode(0o600)).unwrap();
        refused(&seal(disk, &["--undo"]), 4, &["damaged"]);
        fs::set_permissions(journal(disk), fs::Permissions::from_mode(0o666)).unwrap();
        refused(&seal(disk, &["--in-place"]), 1, &["only the disk's owner"]);
        fs::remove_file(journal(disk)).unwrap();

        // Killed while it was written.
        let unfinished = with_suffix(disk, ".sealroot-undo.new");
        fs::write(&unfinished, &kept[..kept.len() / 2]).unwrap();
        done(sealroot("audit", disk, &[]));
        let output = done(seal(disk, &["--in-place"]));
        assert!(stderr(&output).contains("unfinished journal"), "{}", stderr(&output));
        assert!(!unfinished.exists());
        done(seal(disk, &["--undo"]));
        assert!(fs::read(disk).unwrap() == before);
    }
}

#[test]
fn a_qcow2_that_would_need_more_than_overwriting_is_refused() {
    let disks = Disks::new();
    let image = disks.root.folder().join("image.qcow2");
    let fresh = |options: &[&str]| {
        let mut convert = Command::new("qemu-img");
        run(convert.args(["convert", "-O", "qcow2"]).args(options).arg(disks.root.path()).arg(&image));
    };
    let unchanged = |words: &[&str]| {
        let before = fs::read(&image).unwrap();
        refused(&seal(&image, &["--in-place"]), 4, words);
        assert!(fs::read(&image).unwrap() == before);
        assert!(!journal(&image).exists());
    };
    fresh(&["-c"]);
    unchanged(&["compressed", "--output"]);
    fresh(&[]);
    run(Command::new("qemu-img").args(["snapshot", "-c", "first"]).arg(&image));
    unchanged(&["snapshot"]);
    fresh(&[]);
    run(Command::new("qemu-img").args(["bitmap", "--add"]).arg(&image).arg("backup"));
    unchanged(&["bitmap", "--output"]);

    // Every width of reference counts is read; a count of 2 is refused.
    for width in [1_u32, 2, 4, 8, 16, 32, 64] {
        fresh(&["-o", &format!("refcount_bits={width}")]);
        done(seal(&image, &["--in-place"]));
        assert!(same(&image, &disks.sealed));
        run(Command::new("qemu-img").arg("check").arg(&image));
        done(seal(&image, &["--undo"]));
        if width < 2 {
            continue;
        }
        let file = OpenOptions::new().read(true).write(true).open(&image).unwrap();
        let number = |at: u64| {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, at).unwrap();
            u64::from_be_bytes(bytes)
        };
        let block = number(number(48));
        let mut counts = vec![0; 64 << 10];
        file.read_exact_at(&mut counts, block).unwrap();
        for byte in &mut counts {
            *byte <<= 1;
        }
        file.write_all_at(&counts, block).unwrap();
        unchanged(&["reference count", "--output"]);
    }
    // Old images, and other cluster sizes.
    for options in ["compat=0.10", "cluster_size=512", "cluster_size=2M"] {
        fresh(&["-o", options]);
        done(seal(&image, &["--in-place"]));
        assert!(same(&image, &disks.sealed));
        run(Command::new("qemu-img").arg("check").arg(&image));
        fs::remove_file(journal(&image)).unwrap();
    }

    // Where nothing is allocated, and where a zero cluster is.
    let empty = disks.root.folder().join("empty.qcow2");
    run(Command::new("qemu-img").args(["create", "-f", "qcow2"]).arg(&empty).arg("8M"));
    run(Command::new("qemu-io").args(["-c", "write -P 7 0 1M", "-c", "write -z 64k 64k"]).arg(&empty));
    let disk = InPlaceDisk::open(&empty).unwrap();
    let check = |offset: u64, length: usize| {
        let mut patch = Patch::new();
        patch.replace(&disk, offset, &vec![9; length]).unwrap();
        disk.check(&patch)
    };
    check(0, 64 << 10).unwrap();
    check(128 << 10, 300_000).unwrap();
    for (offset, length) in [(65_530, 7), (4 << 20, 1)] {
        let refusal = check(offset, length).unwrap_err();
        assert!(matches!(refusal, InPlaceError::Qcow2(NotInPlace::Cluster { .. })), "{refusal}");
    }
}

/// Ends when dropped.
struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// qemu-io with the disk open, once it says so.
fn held_by_qemu_io(disk: &Path, format: &str, options: &[&str]) -> Holder {
    let mut child = Command::new("qemu-io")
        .args(["-f", format])
        .args(options)
        .arg(disk)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("qemu-io (package qemu-utils) is needed");
    child.stdin.as_mut().unwrap().write_all(b"length\n").unwrap();
    let mut answer = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut answer).unwrap();
    assert!(!answer.is_empty(), "qemu-io could not open the disk");
    Holder(child)
}

#[test]
fn a_disk_in_use_is_left_alone() {
    let disks = Disks::new();
    for (disk, format) in disks.both().into_iter().zip(["raw", "qcow2"]) {
        let before = fs::read(disk).unwrap();
        for options in [[].as_slice(), &["-r"]] {
            let holder = held_by_qemu_io(disk, format, options);
            refused(&seal(disk, &["--in-place"]), 4, &["in use by QEMU", disk.to_str().unwrap()]);
            drop(holder);
        }
        // qemu-nbd makes its socket when it has opened the disk.
        let socket = with_suffix(disk, ".socket");
        let mut nbd = Command::new("qemu-nbd");
        let nbd = nbd.args(["-t", "-f", format, "-k"]).arg(&socket).arg(disk).spawn();
        let holder = Holder(nbd.expect("qemu-nbd (package qemu-utils) is needed"));
        let begun = Instant::now();
        while !socket.exists() {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(10));
        }
        refused(&seal(disk, &["--in-place"]), 4, &["in use by QEMU"]);
        refused(&seal(disk, &["--undo"]), 4, &["in use by QEMU"]);
        drop(holder);

        let file = File::open(disk).unwrap();
        file.lock().unwrap();
        refused(&seal(disk, &["--in-place"]), 4, &["another program"]);
        drop(file);

        // The other way round, and two of us at once.
        let ours = InPlaceDisk::open(disk).unwrap();
        let output = Command::new("qemu-io").args(["-f", format, "-c", "length"]).arg(disk).output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
        assert!(said.contains("Failed to lock byte 100") || said.contains("Failed to get"), "{said}");
        refused(&seal(disk, &["--in-place"]), 4, &["another program"]);
        drop(ours);

        assert!(fs::read(disk).unwrap() == before);
        assert!(!journal(disk).exists());
        done(seal(disk, &["--in-place"]));
    }
}

#[test]
fn a_file_that_is_not_to_be_written_is_not() {
    let disks = Disks::new();
    let disk = disks.root.path();
    let before = fs::read(disk).unwrap();
    fs::set_permissions(disk, fs::Permissions::from_mode(0o444)).unwrap();
    refused(&seal(disk, &["--in-place"]), 4, &["read-only", "chmod"]);
    fs::set_permissions(disk, fs::Permissions::from_mode(0o644)).unwrap();
    let second = disks.root.folder().join("second");
    fs::hard_link(disk, &second).unwrap();
    refused(&seal(disk, &["--in-place"]), 4, &["2 names", "--output"]);
    fs::remove_file(&second).unwrap();
    refused(&seal(Path::new("/nowhere/disk"), &["--in-place"]), 1, &["/nowhere/disk"]);
    assert!(fs::read(disk).unwrap() == before);

    // Through a link, the journal is beside the file itself.
    std::os::unix::fs::symlink(disk, &second).unwrap();
    done(seal(&second, &["--in-place"]));
    assert!(journal(disk).exists() && !journal(&second).exists());
    take_mark_away(&journal(disk));
    refused(&sealroot("audit", &second, &[]), 4, &["--undo"]);
    done(seal(disk, &["--undo"]));
    assert!(fs::read(disk).unwrap() == before);

    for args in [
        ["--in-place", "--undo"].as_slice(),
        &["--in-place", "--patch", "p"],
        &["--undo", "--output", "o"],
        &["--undo", "--first-boot", "none"],
        &["--undo", "--sysprep-drive", "E"],
        &["--undo", "--remove-pointer"],
    ] {
        refused(&seal(disk, args), 2, &[]);
    }
}

/// Neither the file nor its folder can be written to: by permissions, and by how it is mounted.
#[test]
fn a_read_only_disk_is_read() {
    let disks = Disks::new();
    let folder = disks.root.folder().join("read-only");
    fs::create_dir(&folder).unwrap();
    let out = disks.root.folder().join("out");
    for (disk, name) in disks.both().into_iter().zip(["raw", "qcow2"]) {
        let copy = folder.join(name);
        run(Command::new("cp").arg("--sparse=always").arg(disk).arg(&copy));
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o444)).unwrap();
        let reads = || {
            done(sealroot("audit", &copy, &[]));
            done(seal(&copy, &["--output", out.to_str().unwrap()]));
            assert!(same(&out, &disks.sealed));
            fs::remove_file(&out).unwrap();
            done(sealroot("package", &copy, &["--seal", "--output", out.to_str().unwrap()]));
            fs::remove_dir_all(&out).unwrap();
        };
        reads();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o644)).unwrap();
        let mount = |args: &[&str]| Command::new("mount").args(args).arg(&folder).status().unwrap().success();
        if !mount(&["--bind", folder.to_str().unwrap()]) {
            eprintln!("skipped: nothing can be mounted here");
            continue;
        }
        let read_only = mount(&["-o", "remount,bind,ro"]);
        let on_it = seal(&copy, &["--in-place"]);
        reads();
        run(Command::new("umount").arg(&folder));
        assert!(read_only);
        refused(&on_it, 1, &["opened for writing", "Read-only file system"]);
    }
}

#[test]
fn a_block_device_and_the_file_behind_one_are_left_alone() {
    let disks = Disks::new();
    let disk = disks.root.path();
    let before = fs::read(disk).unwrap();
    let output = Command::new("losetup").args(["-f", "--show"]).arg(disk).output().unwrap();
    if !output.status.success() {
        eprintln!("skipped: no loop device can be made here");
        return;
    }
    let device = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let on_device = seal(Path::new(&device), &["--in-place"]);
    let behind = seal(disk, &["--in-place"]);
    // It is read like any other disk.
    let [sealed, compressed, layout, layout_of_file] =
        ["a", "b", "c", "d"].map(|name| disks.root.folder().join(name).to_str().unwrap().to_owned());
    let read = [
        sealroot("audit", Path::new(&device), &["--json"]),
        seal(Path::new(&device), &["--output", &sealed]),
        seal(Path::new(&device), &["--output", &compressed, "--compress"]),
        sealroot("package", Path::new(&device), &["--seal", "--output", &layout]),
    ];
    run(Command::new("losetup").args(["-d", &device]));
    for output in read {
        done(output);
    }
    assert!(same(Path::new(&sealed), &disks.sealed) && same(Path::new(&compressed), &disks.sealed));
    done(sealroot("package", disk, &["--seal", "--output", &layout_of_file]));
    let index = |layout: &str| fs::read(Path::new(layout).join("index.json")).unwrap();
    assert!(index(&layout) == index(&layout_of_file));
    refused(&on_device, 4, &["block devices", "--output"]);
    refused(&behind, 4, &["in use as", &device]);
    assert!(fs::read(disk).unwrap() == before);
}

#[test]
fn a_full_file_system_changes_nothing() {
    let disks = Disks::new();
    let small = disks.root.folder().join("small");
    fs::create_dir(&small).unwrap();
    let mut mount = Command::new("mount");
    if !mount.args(["-t", "tmpfs", "-o", "size=256m", "none"]).arg(&small).status().unwrap().success() {
        eprintln!("skipped: a tmpfs can't be mounted here");
        return;
    }
    let disk = small.join("disk.qcow2");
    let copied = fs::copy(&disks.qcow2, &disk).is_ok();
    // Whatever room is left.
    let mut filler = File::create(small.join("filler")).unwrap();
    while filler.write_all(&[1; 4096]).is_ok() {}
    drop(filler);
    let output = seal(&disk, &["--in-place"]);
    let after = fs::read(&disk).unwrap();
    let left = fs::read_dir(&small).unwrap().count();
    run(Command::new("umount").arg(&small));
    assert!(copied, "the tmpfs is too small for the disk");
    refused(&output, 1, &["undo journal can't be written", "No space left", "not changed"]);
    assert!(after == fs::read(&disks.qcow2).unwrap());
    assert_eq!(left, 2);
}
