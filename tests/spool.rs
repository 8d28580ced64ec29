//! `--spool`: disks packed by gzip, zstd and pzstd are unpacked once, whole or not at all, and are then as good as
//! the disks they were made of.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/root_disk.rs"]
mod root_disk;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use root_disk::{RootDisk, run};
use sealroot::disk::spool::{SpoolError, unpack};
use sealroot::io::Silent;

fn sealroot(command: &str, disk: &Path, spool: &Path, args: &[&str]) -> Output {
    let mut sealroot = Command::new(env!("CARGO_BIN_EXE_sealroot"));
    sealroot.arg(command).arg("--disk").arg(disk).arg("--spool").arg(spool).args(args).output().unwrap()
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

/// What a command that packs writes to its standard output.
fn packed(program: &str, args: &[&str], disk: &Path) -> Vec<u8> {
    run(Command::new(program).args(args).arg(disk)).stdout
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// A disk, a folder to unpack in, and a name for the packed disk.
struct Place {
    root: RootDisk,
    spool: PathBuf,
    source: PathBuf,
}

impl Place {
    fn new() -> Self {
        let root = RootDisk::standard();
        let spool = root.folder().join("spool");
        fs::create_dir(&spool).unwrap();
        let source = root.folder().join("disk.img.packed");
        Self { root, spool, source }
    }

    fn audit(&self) -> Output {
        sealroot("audit", &self.source, &self.spool, &["--json"])
    }
}

#[test]
fn a_packed_disk_is_the_disk_it_was_made_of() {
    let place = Place::new();
    let raw = place.root.path();
    let content = fs::read(raw).unwrap();
    let audit =
        Command::new(env!("CARGO_BIN_EXE_sealroot")).args(["audit", "--json", "--disk"]).arg(raw).output();
    let expected = done(audit.unwrap()).stdout;
    let qcow2 = place.root.folder().join("root.qcow2");
    run(Command::new("qemu-img").args(["convert", "-O", "qcow2"]).arg(raw).arg(&qcow2));
    // Members that end inside of a block.
    let (first, second) = (place.root.folder().join("first"), place.root.folder().join("second"));
    fs::write(&first, &content[..1_234_567]).unwrap();
    fs::write(&second, &content[1_234_567..]).unwrap();
    let two = |program: &str| {
        let mut bytes = packed(program, &["-c"], &first);
        bytes.extend(packed(program, &["-c"], &second));
        bytes
    };
    let kinds = [
        ("gzip", packed("gzip", &["-c"], raw), true),
        ("gzip -1", packed("gzip", &["-1", "-c"], raw), true),
        ("two members", two("gzip"), true),
        ("zstd", packed("zstd", &["-q", "-c"], raw), true),
        ("zstd --long", packed("zstd", &["-q", "-c", "--long=27"], raw), true),
        ("two frames", two("zstd"), true),
        ("pzstd", packed("pzstd", &["-q", "-c"], raw), true),
        ("qcow2", packed("gzip", &["-c"], &qcow2), false),
    ];
    for (kind, bytes, is_raw) in kinds {
        fs::write(&place.source, bytes).unwrap();
        let output = done(place.audit());
        assert_eq!(String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&expected), "{kind}");
        let [unpacked] = &files(&place.spool)[..] else { panic!("{kind}") };
        assert!(stderr(&output).contains(unpacked.to_str().unwrap()), "{}", stderr(&output));
        let metadata = unpacked.metadata().unwrap();
        assert_eq!(metadata.mode() & 0o7777, 0o444, "{kind}");
        if is_raw {
            assert!(fs::read(unpacked).unwrap() == content, "{kind}");
            // Blocks of 64 KiB that are not all zeros, and what maps them.
            let most = content.chunks(64 << 10).filter(|block| block.iter().any(|byte| *byte != 0)).count();
            assert!(metadata.blocks() <= most as u64 * 128 + 64, "{kind}: {} for {most}", metadata.blocks());
        }
        // Once.
        let output = done(place.audit());
        assert!(stderr(&output).contains("was unpacked before"), "{}", stderr(&output));
        assert_eq!(unpacked.metadata().unwrap().ino(), metadata.ino());
        fs::remove_file(unpacked).unwrap();
    }
    fs::write(&place.source, packed("gzip", &["-c"], raw)).unwrap();
    let sealed = ["sealed", "expected"].map(|name| place.root.folder().join(name));
    let layouts = ["layout", "expected-layout"].map(|name| place.root.folder().join(name));
    for (disk, sealed, layout) in [(&*place.source, &sealed[0], &layouts[0]), (raw, &sealed[1], &layouts[1])]
    {
        let output = ["--output", sealed.to_str().unwrap()];
        done(sealroot("prepare-sealed-root", disk, &place.spool, &output));
        done(sealroot("package", disk, &place.spool, &["--seal", "--output", layout.to_str().unwrap()]));
    }
    assert!(fs::read(&sealed[0]).unwrap() == fs::read(&sealed[1]).unwrap());
    let indexes = layouts.map(|layout| fs::read(layout.join("index.json")).unwrap());
    assert!(indexes[0] == indexes[1]);
    // A disk that is not packed needs no copy.
    assert_eq!(files(&place.spool).len(), 1);
}

#[test]
fn a_changed_source_is_unpacked_anew_and_a_changed_copy_is_not_used() {
    let place = Place::new();
    fs::write(&place.source, packed("gzip", &["-1", "-c"], place.root.path())).unwrap();
    fs::set_permissions(&place.source, fs::Permissions::from_mode(0o640)).unwrap();
    done(place.audit());
    let first = files(&place.spool);
    assert_eq!(
        first[0].metadata().unwrap().mode() & 0o7777,
        0o400,
        "no more than who could read the packed disk"
    );
    // Another time; another inode and the same time; another path.
    let time = |path: &Path| path.metadata().unwrap().modified().unwrap();
    File::options()
        .write(true)
        .open(&place.source)
        .unwrap()
        .set_modified(time(&place.source) + Duration::from_nanos(10_000))
        .unwrap();
    done(place.audit());
    assert_eq!(files(&place.spool).len(), 2);
    let again = place.root.folder().join("again");
    run(Command::new("cp").arg("-p").arg(&place.source).arg(&again));
    fs::rename(&again, &place.source).unwrap();
    done(place.audit());
    assert_eq!(files(&place.spool).len(), 3);
    fs::rename(&place.source, &again).unwrap();
    done(sealroot("audit", &again, &place.spool, &[]));
    assert_eq!(files(&place.spool).len(), 4);
    // Through a link it is the same file.
    symlink(&again, &place.source).unwrap();
    done(place.audit());
    assert_eq!(files(&place.spool).len(), 4);

    for path in &files(&place.spool) {
        fs::remove_file(path).unwrap();
    }
    done(place.audit());
    let [unpacked] = &files(&place.spool)[..] else { panic!() };
    let metadata = unpacked.metadata().unwrap();
    let file = File::open(unpacked).unwrap();
    fs::set_permissions(unpacked, fs::Permissions::from_mode(0o644)).unwrap();
    refused(&place.audit(), 4, &["changed since", "remove it"]);
    // Written to, and made read-only again.
    File::options().write(true).open(unpacked).unwrap().write_all_at(b"x", 1 << 20).unwrap();
    fs::set_permissions(unpacked, metadata.permissions()).unwrap();
    refused(&place.audit(), 4, &["changed since", unpacked.to_str().unwrap()]);
    file.set_modified(metadata.modified().unwrap()).unwrap();
    done(place.audit());
    // Nobody else's is taken.
    if std::os::unix::fs::chown(unpacked, Some(12_345), None).is_ok() {
        refused(&place.audit(), 4, &["somebody else"]);
    }
    fs::remove_file(unpacked).unwrap();
    symlink(place.root.path(), unpacked).unwrap();
    refused(&place.audit(), 4, &["no regular file"]);
}

#[test]
fn damaged_and_cut_data_leave_nothing() {
    let place = Place::new();
    let raw = place.root.path();
    for (format, program) in [("gzip", "gzip"), ("zstd", "zstd")] {
        let whole = packed(program, &["-c"], raw);
        let says = |bytes: &[u8], words: &[&str]| {
            fs::write(&place.source, bytes).unwrap();
            refused(&place.audit(), 4, &[&[format], words].concat());
            assert!(files(&place.spool).is_empty());
        };
        let middle = whole.len() / 2;
        for cut in [5, 12, 1000, middle, whole.len() - 9, whole.len() - 1] {
            says(&whole[..cut], &["ends in the middle", &format!("offset {cut};")]);
        }
        for at in [middle, whole.len() - 6, whole.len() - 2] {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x55;
            fs::write(&place.source, bytes).unwrap();
            let output = place.audit();
            refused(&output, 4, &[format, "offset"]);
            assert!(files(&place.spool).is_empty());
        }
        let after = whole.len();
        for more in
            [&b"x"[..], &[0; 512], b"\x1f\x8b\x08", if format == "gzip" { b"\x28\xb5\x2f\xfd" } else { GZ }]
        {
            let bytes = [&whole, more].concat();
            if format == "gzip" && more.starts_with(b"\x1f") {
                says(&bytes, &["ends in the middle"]);
            } else {
                says(&bytes, &["what follows", &format!("offset {after} ")]);
            }
        }
    }
    // Packed, but no disk: known at its start, or when it is whole.
    let tar = place.root.folder().join("disk.tar");
    run(Command::new("tar").arg("-cf").arg(&tar).arg("-C").arg(place.root.folder()).arg("root.raw"));
    fs::write(&place.source, packed("gzip", &["-1", "-c"], &tar)).unwrap();
    refused(&place.audit(), 4, &["a tar archive"]);
    for (content, word) in [(&b""[..], "empty"), (&[7; 1000], "512-byte sectors")] {
        fs::write(&tar, content).unwrap();
        fs::write(&place.source, packed("gzip", &["-c"], &tar)).unwrap();
        refused(&place.audit(), 4, &[word]);
    }
    assert!(files(&place.spool).is_empty());
    let missing = place.root.folder().join("missing");
    refused(&sealroot("audit", &place.source, &missing, &[]), 1, &["missing does not exist"]);
}

const GZ: &[u8] = b"\x1f\x8b\x08\0";

#[test]
fn any_name_will_do() {
    let place = Place::new();
    let bytes = packed("gzip", &["-1", "-c"], place.root.path());
    let long = "x".repeat(255);
    for name in [
        OsStr::new("a\nb\x1b[2J.gz"),
        OsStr::from_bytes(b"\xff\xfe.gz"),
        long.as_ref(),
        "..gz".as_ref(),
        "-rf".as_ref(),
        "ä/../".trim_end_matches("/../").as_ref(),
    ] {
        let source = place.root.folder().join(name);
        fs::write(&source, &bytes).unwrap();
        done(sealroot("audit", &source, &place.spool, &[]));
        let [unpacked] = &files(&place.spool)[..] else { panic!("{name:?}") };
        let name = unpacked.file_name().unwrap().to_str().unwrap();
        assert!(name.len() <= 102 && name.ends_with(".disk"), "{name:?}");
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)), "{name:?}");
        fs::remove_file(unpacked).unwrap();
        fs::remove_file(source).unwrap();
    }
}

/// A gzip file of so many GiB of zeros, 1 MiB for each.
fn bomb(path: &Path, gib: usize) {
    let zeros = File::open("/dev/zero").unwrap();
    let mut member = Vec::new();
    let mut encoder = flate2::write::GzEncoder::new(&mut member, flate2::Compression::fast());
    std::io::copy(&mut std::io::Read::take(zeros, 1 << 30), &mut encoder).unwrap();
    encoder.finish().unwrap();
    fs::write(path, member.repeat(gib)).unwrap();
}

#[test]
fn a_bomb_costs_next_to_nothing_and_can_be_stopped() {
    let place = Place::new();
    bomb(&place.source, 3);
    let error = unpack(&place.source, &place.spool, 1 << 30, &Silent).unwrap_err();
    assert!(matches!(error, SpoolError::TooLarge { .. }), "{error}");
    assert!(files(&place.spool).is_empty());

    let mut child = Command::new(env!("CARGO_BIN_EXE_sealroot"))
        .args(["audit", "--disk"])
        .arg(&place.source)
        .arg("--spool")
        .arg(&place.spool)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while files(&place.spool).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(1));
    }
    run(Command::new("kill").arg("-INT").arg(child.id().to_string()));
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(files(&place.spool).is_empty());

    refused(&place.audit(), 4, &["no partition table"]);
    let [unpacked] = &files(&place.spool)[..] else { panic!() };
    let metadata = unpacked.metadata().unwrap();
    assert_eq!(metadata.len(), 3 << 30);
    assert!(metadata.blocks() < 64, "{}", metadata.blocks());
}

#[test]
fn two_at_once_agree() {
    let place = Place::new();
    fs::write(&place.source, packed("gzip", &["-1", "-c"], place.root.path())).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| done(place.audit()));
        }
    });
    assert_eq!(files(&place.spool).len(), 1);
}

#[test]
fn a_full_folder_gets_nothing() {
    let place = Place::new();
    let noise = place.root.folder().join("noise");
    run(Command::new("dd")
        .args(["if=/dev/urandom", "bs=1M", "count=12"])
        .arg(format!("of={}", noise.display())));
    fs::write(&place.source, packed("gzip", &["-1", "-c"], &noise)).unwrap();
    let mut mount = Command::new("mount");
    if !mount.args(["-t", "tmpfs", "-o", "size=8m", "none"]).arg(&place.spool).status().unwrap().success() {
        eprintln!("skipped: a tmpfs can't be mounted here");
        return;
    }
    let output = place.audit();
    let left = files(&place.spool);
    run(Command::new("umount").arg(&place.spool));
    refused(&output, 1, &["can't be written", "No space left", place.spool.to_str().unwrap()]);
    assert!(left.is_empty());
}

#[test]
fn without_a_spool_it_is_named_and_in_place_nothing_is_done() {
    let place = Place::new();
    for program in ["gzip", "zstd", "pzstd"] {
        let bytes = packed(program, &["-c"], place.root.path());
        fs::write(&place.source, &bytes).unwrap();
        let plain = |args: &[&str]| {
            Command::new(env!("CARGO_BIN_EXE_sealroot"))
                .args(args)
                .arg("--disk")
                .arg(&place.source)
                .output()
                .unwrap()
        };
        let format = program.trim_start_matches('p');
        refused(
            &plain(&["audit"]),
            4,
            &[&format!("a {format} file"), "--spool DIR", &format!("{format} -d")],
        );
        refused(&plain(&["prepare-sealed-root", "--in-place"]), 4, &["packed", "overwritten", "--output"]);
        refused(&plain(&["prepare-sealed-root", "--undo"]), 4, &["packed"]);
        refused(
            &sealroot("prepare-sealed-root", &place.source, &place.spool, &["--in-place"]),
            2,
            &["--spool"],
        );
        assert!(fs::read(&place.source).unwrap() == bytes);
    }
    let mut unfinished = fs::File::create(&place.source).unwrap();
    unfinished.write_all(b"\x1f\x8b").unwrap();
    // Too short to be anything.
    refused(&place.audit(), 4, &["512-byte sectors"]);
}

#[test]
fn a_build_of_a_packed_disk_makes_the_same_image_and_is_kept() {
    let place = Place::new();
    fs::write(&place.source, packed("gzip", &["-1", "-c"], place.root.path())).unwrap();
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes/demo.toml");
    let build = |disk: &Path, out: &str, args: &[&str]| {
        let mut build = Command::new(env!("CARGO_BIN_EXE_sealroot"));
        build.arg("build").arg(&recipe).arg("--disk").arg(disk).args(args);
        build
            .arg("--spool")
            .arg(&place.spool)
            .arg("--output")
            .arg(place.root.folder().join(out))
            .output()
            .unwrap()
    };
    done(build(&place.source, "packed", &["--dry-run"]));
    let of_packed = done(build(&place.source, "packed", &[]));
    let of_raw = done(build(place.root.path(), "raw", &[]));
    assert!(!of_packed.stdout.is_empty() && of_packed.stdout == of_raw.stdout);
    let again = done(build(&place.source, "packed", &[]));
    assert!(again.stdout == of_packed.stdout);
    let said = stderr(&again);
    assert!(
        said.contains("was unpacked before")
            && said.lines().any(|l| l.starts_with("package") && l.contains("(kept)")),
        "{said}"
    );
    assert_eq!(files(&place.spool).len(), 1);
}
