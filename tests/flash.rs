//! `flash`: what lands on a file, a block device or an NBD export is the disk in the image, by qemu-img and cmp; and
//! nothing is overwritten that should not be.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/loop_device.rs"]
mod loop_device;
#[path = "support/nbd_server.rs"]
mod nbd_server;
#[path = "support/root_disk.rs"]
mod root_disk;

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use loop_device::LoopDevice;
use nbd_server::{Export, QemuNbd};
use root_disk::{RootDisk, demo, run};
use serde_json::Value;

const MIB: u64 = 1 << 20;
const SMALL: u64 = 24 * MIB;

fn sealroot() -> Command {
    Command::new(env!("CARGO_BIN_EXE_sealroot"))
}

fn flash(source: &Path, to: &str, more: &[&str]) -> Output {
    sealroot().arg("flash").arg(source).args(["--to", to]).args(more).output().unwrap()
}

fn flash_disk(disk: &Path, to: &str, more: &[&str]) -> Output {
    sealroot().args(["flash", "--disk"]).arg(disk).args(["--to", to]).args(more).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn ok(output: &Output) {
    assert!(output.status.success(), "{}", said(output));
}

/// It ended so, and said so.
fn refused(output: &Output, code: i32, words: &[&str]) {
    assert_eq!(output.status.code(), Some(code), "{}", said(output));
    for word in words {
        assert!(said(output).contains(word), "{word:?} is not in: {}", said(output));
    }
}

/// An image, and its disk as `tar` and `qemu-img` have it.
struct Image {
    folder: tempfile::TempDir,
}

impl Image {
    /// Of the demo root, sealed.
    fn of_demo(compression: &str) -> Self {
        Self::of(&demo(), &["--seal", "--compression", compression])
    }

    /// Of a small disk with a GPT, data, and holes.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("small.raw");
        let file = File::create(&disk).unwrap();
        file.set_len(SMALL).unwrap();
        run(Command::new("sgdisk").args(["-n", "1:2048:0"]).arg(&disk));
        for at in (MIB..6 * MIB).chain(14 * MIB..16 * MIB).step_by(4096) {
            file.write_all_at(&[(at >> 12) as u8 | 1; 4096], at).unwrap();
        }
        Self::of(&disk, &["--no-audit", "--compression", "none"])
    }

    fn of(disk: &Path, how: &[&str]) -> Self {
        let image = Self { folder: tempfile::tempdir().unwrap() };
        let package = ["package", "--output"];
        ok(&sealroot().args(package).arg(image.layout()).args(how).arg("--disk").arg(disk).output().unwrap());
        run(Command::new("tar").arg("-xf").arg(image.layer()).arg("-C").arg(image.folder.path()));
        run(Command::new("qemu-img")
            .args(["convert", "-O", "raw"])
            .arg(image.path("disk/disk.qcow2"))
            .arg(image.raw()));
        image
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn to(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().into()
    }

    fn layout(&self) -> PathBuf {
        self.path("image")
    }

    fn raw(&self) -> PathBuf {
        self.path("expected.raw")
    }

    fn size(&self) -> u64 {
        self.raw().metadata().unwrap().len()
    }

    fn layer(&self) -> PathBuf {
        let blobs = fs::read_dir(self.layout().join("blobs/sha256")).unwrap();
        blobs.map(|entry| entry.unwrap().path()).max_by_key(|path| path.metadata().unwrap().len()).unwrap()
    }

    /// A file that is full of what is no zero.
    fn dirty(&self, name: &str, size: u64) -> PathBuf {
        let path = self.path(name);
        let file = File::create(&path).unwrap();
        for at in (0..size).step_by(MIB as usize) {
            file.write_all_at(&vec![0xA5; MIB.min(size - at) as usize], at).unwrap();
        }
        path
    }

    fn is_on(&self, target: &str) {
        let size = self.size().to_string();
        run(Command::new("cmp").args(["-n", &size]).arg(self.raw()).arg(target));
    }

    fn leftovers(&self) -> Vec<String> {
        let names = fs::read_dir(self.folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(".sealroot")).collect()
    }
}

#[test]
fn a_layout_becomes_the_disk_that_other_tools_take_out_of_it() {
    for compression in ["zstd", "gzip", "none"] {
        let image = Image::of_demo(compression);
        let done = flash(&image.layout(), &image.to("out.raw"), &["--json"]);
        ok(&done);
        run(Command::new("cmp").arg(image.raw()).arg(image.path("out.raw")));
        let compare = ["compare", "-f", "qcow2", "-F", "raw"];
        run(Command::new("qemu-img")
            .args(compare)
            .arg(image.path("disk/disk.qcow2"))
            .arg(image.path("out.raw")));
        let report: Value = serde_json::from_slice(&done.stdout).unwrap();
        let (size, written) = (report["size"].as_u64().unwrap(), report["written"].as_u64().unwrap());
        assert_eq!((size, &report["verified"]), (image.size(), &Value::Bool(true)));
        assert_eq!(report["skipped"].as_u64().unwrap(), size - written);
        let index: Value =
            serde_json::from_slice(&fs::read(image.layout().join("index.json")).unwrap()).unwrap();
        assert_eq!(report["digest"], index["manifests"][0]["digest"]);
        // Holes are holes.
        let blocks = image.path("out.raw").metadata().unwrap().blocks() * 512;
        assert!(blocks <= written + MIB, "{blocks} bytes on the disk for {written}");

        let again = flash(&image.layout(), &image.to("out.raw"), &[]);
        refused(&again, 4, &["exists already", "--force"]);
        ok(&flash(&image.layout(), &image.to("out.raw"), &["--force", "--holes", "zero", "--no-verify"]));
        run(Command::new("cmp").arg(image.raw()).arg(image.path("out.raw")));
        assert!(image.path("out.raw").metadata().unwrap().blocks() * 512 >= size);
        assert_eq!(image.leftovers(), [""; 0]);
    }
}

#[test]
fn a_disk_is_written_as_its_image_would_hold_it() {
    let image = Image::of_demo("zstd");
    ok(&flash_disk(&demo(), &image.to("out.raw"), &["--seal"]));
    run(Command::new("cmp").arg(image.raw()).arg(image.path("out.raw")));
    // Unfit is refused, as by package; and so is a disk onto itself.
    let unfit = RootDisk::standard().not_generalised();
    refused(&flash_disk(unfit.path(), &image.to("unfit.raw"), &[]), 4, &["not generalised"]);
    assert!(!image.path("unfit.raw").exists());
    ok(&flash_disk(unfit.path(), &image.to("unfit.raw"), &["--no-audit", "--keep-free-clusters"]));
    run(Command::new("cmp").arg(unfit.path()).arg(image.path("unfit.raw")));
    let own = image.to("unfit.raw");
    refused(&flash_disk(Path::new(&own), &own, &["--force"]), 2, &["both"]);
}

#[test]
fn what_is_no_image_is_named() {
    let image = Image::new();
    for (source, words) in [("nonsense", "no folder"), ("host/a:t", "names no registry")] {
        refused(&flash(Path::new(source), &image.to("x"), &[]), 2, &[words]);
    }
    for (to, words) in [("ftp://x/y", "is not known"), ("nbd://h:0/x", "HOST"), ("nbds://h/x", "TLS")] {
        refused(&flash(&image.layout(), to, &[]), 2, &[words]);
    }
    refused(&flash(&image.layout(), image.folder.path().to_str().unwrap(), &[]), 4, &["a folder"]);
    refused(&flash(&image.layout(), "/dev/null", &[]), 4, &["special file"]);
    refused(&flash(&image.layout(), &image.to("missing/x"), &[]), 1, &["does not exist"]);
}

#[test]
fn a_damaged_layer_leaves_nothing_that_starts() {
    let image = Image::new();
    let layer = OpenOptions::new().read(true).write(true).open(image.layer()).unwrap();
    // In the disk's data, which no format checks.
    let at = layer.metadata().unwrap().len() - MIB;
    let mut byte = [0];
    layer.read_exact_at(&mut byte, at).unwrap();
    layer.write_all_at(&[!byte[0]], at).unwrap();
    refused(&flash(&image.layout(), &image.to("out.raw"), &[]), 3, &["damaged", "expected sha256:"]);
    assert!(!image.path("out.raw").exists());
    assert_eq!(image.leftovers(), [""; 0]);
    let served = image.dirty("served", image.size());
    let server = QemuNbd::start(&served, &[]);
    let failed = flash(&image.layout(), &server.uri(), &["--force"]);
    refused(&failed, 3, &["damaged", "not usable now"]);
    drop(server);
    let mut start = vec![1; MIB as usize];
    File::open(&served).unwrap().read_exact_at(&mut start, 0).unwrap();
    assert!(start.iter().all(|byte| *byte == 0), "a half-written disk has a partition table");
}

#[test]
fn a_foreign_qcow2_is_refused_by_what_is_in_the_way() {
    let image = Image::new();
    let folder = image.path("foreign");
    fs::create_dir_all(folder.join("disk")).unwrap();
    run(Command::new("qemu-img")
        .args(["convert", "-c", "-O", "qcow2"])
        .arg(image.raw())
        .arg(folder.join("disk/disk.qcow2")));
    let layout = image.path("other");
    let name = format!("{}:t", layout.display());
    run(Command::new("umoci").arg("init").arg("--layout").arg(&layout));
    run(Command::new("umoci").args(["new", "--image", &name]));
    let insert = ["insert", "--rootless", "--image", &name];
    run(Command::new("umoci").args(insert).arg(folder.join("disk")).arg("/disk"));
    refused(&flash(&layout, &image.to("x.raw"), &[]), 3, &["one pass", "--disk"]);
    assert!(!image.path("x.raw").exists());
    // A raw disk in an image is taken as it is.
    fs::remove_dir_all(&layout).unwrap();
    run(Command::new("umoci").arg("init").arg("--layout").arg(&layout));
    run(Command::new("umoci").args(["new", "--image", &name]));
    run(Command::new("umoci").args(insert).arg(image.raw()).arg("/disk/disk.img"));
    ok(&flash(&layout, &image.to("x.raw"), &[]));
    run(Command::new("cmp").arg(image.raw()).arg(image.path("x.raw")));
}

#[test]
fn a_block_device_keeps_nothing_of_what_it_held() {
    let image = Image::new();
    let size = image.size() + 64 * MIB;
    let Some(device) = LoopDevice::of(&image.dirty("lun", size), &[]) else { return };
    refused(&flash(&image.layout(), device.path(), &[]), 4, &["it holds data", "--force"]);
    for holes in ["punch", "zero"] {
        image.dirty("lun", size);
        ok(&flash(&image.layout(), device.path(), &["--force", "--holes", holes]));
        image.is_on(device.path());
    }
    refused(&flash(&image.layout(), device.path(), &[]), 4, &["a partition table (GPT)"]);
    // Called blank, it is looked at whether it is.
    image.dirty("lun", size);
    let lie = flash(&image.layout(), device.path(), &["--force", "--holes", "skip"]);
    refused(&lie, 4, &["said to be blank", "without --holes skip"]);
    File::create(image.path("lun")).unwrap().set_len(size).unwrap();
    let told = flash(&image.layout(), device.path(), &["--holes", "skip"]);
    ok(&told);
    image.is_on(device.path());
    assert!(said(&told).contains("sgdisk -e"), "{}", said(&told));
    let blocks = image.path("lun").metadata().unwrap().blocks() * 512;
    assert!(blocks < SMALL, "{blocks} bytes of a disk that is nearly empty");
    // The backup table at its end, by sgdisk.
    ok(&flash(&image.layout(), device.path(), &["--force", "--grow-gpt"]));
    let checked = run(Command::new("sgdisk").arg("-v").arg(device.path()));
    let checked = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.contains("No problems found"), "{checked}");
    let table = run(Command::new("sgdisk").args(["-p", device.path()]));
    let last = format!("last usable sector is {}", size / 512 - 34);
    assert!(String::from_utf8_lossy(&table.stdout).contains(&last), "{last}");
}

#[test]
fn a_device_that_is_in_use_is_refused_by_name() {
    let image = Image::new();
    let Some(device) = LoopDevice::of(&image.dirty("lun", image.size()), &[]) else { return };
    let path = device.path();
    let force = |words: &[&str]| refused(&flash(&image.layout(), path, &["--force"]), 4, words);
    run(Command::new("mkfs.ext4").args(["-q", "-F", path]));
    refused(&flash(&image.layout(), path, &[]), 4, &["an ext file system"]);
    let point = image.path("a point");
    fs::create_dir(&point).unwrap();
    run(Command::new("mount").arg(path).arg(&point));
    force(&["is mounted at", "a point", "umount"]);
    run(Command::new("umount").arg(&point));
    // Mounted where we can't see it: the kernel knows.
    let mut elsewhere = Command::new("unshare")
        .args(["--mount", "sh", "-c", "mount \"$0\" \"$1\" && echo there && read -r _", path])
        .arg(&point)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    elsewhere.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    force(&["the kernel says it is busy"]);
    drop(elsewhere.stdin.take());
    elsewhere.wait().unwrap();
    // A partition of it is.
    run(Command::new("addpart").args([path, "1", "2048", "16384"]));
    let sys = Path::new("/sys/class/block").join(format!("{}p1/dev", path.trim_start_matches("/dev/")));
    let number = fs::read_to_string(sys).unwrap();
    let partition = image.path("partition");
    let (major, minor) = number.trim_end().split_once(':').unwrap();
    run(Command::new("mknod").arg(&partition).args(["b", major, minor]));
    let whole = flash(&image.layout(), partition.to_str().unwrap(), &[]);
    refused(&whole, 4, &["it is a partition"]);
    run(Command::new("mkfs.ext4").arg("-q").arg(&partition));
    run(Command::new("mount").arg(&partition).arg(&point));
    force(&["p1 is mounted at"]);
    run(Command::new("umount").arg(&point));
    run(Command::new("delpart").args([path, "1"]));
    run(Command::new("mkswap").args(["-q", path]));
    run(Command::new("swapon").arg(path));
    force(&["is swap space"]);
    run(Command::new("swapoff").arg(path));
    // Behind another loop device; and a file behind one, which is not replaced either.
    let second = LoopDevice::of(Path::new(path), &[]).unwrap();
    force(&["is behind"]);
    drop(second);
    refused(&flash(&image.layout(), &image.to("lun"), &["--force"]), 4, &["is behind"]);
    // Open in QEMU.
    let server = QemuNbd::start(Path::new(path), &[]);
    force(&["QEMU"]);
    drop(server);
    ok(&flash(&image.layout(), path, &["--force"]));
    image.is_on(path);
}

#[test]
fn a_device_too_small_or_of_other_sectors_is_refused() {
    let image = Image::new();
    let short = image.path("short");
    File::create(&short).unwrap().set_len(image.size() - MIB).unwrap();
    let Some(device) = LoopDevice::of(&short, &[]) else { return };
    let size = image.size().to_string();
    refused(&flash(&image.layout(), device.path(), &["--force"]), 4, &["too small", &size]);
    let large = image.path("large");
    File::create(&large).unwrap().set_len(image.size() + MIB).unwrap();
    let device = LoopDevice::of(&large, &["--sector-size", "4096"]).unwrap();
    refused(&flash(&image.layout(), device.path(), &[]), 4, &["4096", "512"]);
    assert_eq!(large.metadata().unwrap().blocks(), 0, "something was written");
}

#[test]
fn an_nbd_export_becomes_the_disk() {
    let image = Image::new();
    let served = image.dirty("served", image.size());
    let server = QemuNbd::start(&served, &["--discard=unmap"]);
    refused(&flash(&image.layout(), &server.uri(), &[]), 4, &["it holds data"]);
    for holes in ["punch", "zero"] {
        ok(&flash(&image.layout(), &server.uri(), &["--force", "--holes", holes]));
        let raw = image.raw();
        let compare = ["compare", "-f", "raw", "-F", "raw"];
        run(Command::new("qemu-img").args(compare).arg(&raw).arg(server.uri()));
    }
    drop(server);
    image.is_on(served.to_str().unwrap());
    // By TCP, with a name, from a disk, and as qcow2 on the other side.
    let qcow2 = image.path("served.qcow2");
    let size = image.size().to_string();
    run(Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&qcow2).arg(&size));
    let server = QemuNbd::tcp(&qcow2, "a lun", &["-f", "qcow2"]);
    ok(&flash_disk(&image.raw(), &server.uri(), &["--no-audit"]));
    drop(server);
    run(Command::new("qemu-img")
        .args(["compare", "-f", "qcow2"])
        .arg(&qcow2)
        .arg(image.path("disk/disk.qcow2")));
    let server = QemuNbd::start(&served, &["--read-only"]);
    refused(&flash(&image.layout(), &server.uri(), &["--force"]), 4, &["read-only"]);
    drop(server);
    let server = QemuNbd::tcp(&served, "lun", &["-f", "raw"]);
    let other = server.uri().replace("lun", "other");
    refused(&flash(&image.layout(), &other, &["--force"]), 1, &["no export of that name"]);
    let gone = server.uri();
    drop(server);
    refused(&flash(&image.layout(), &gone, &["--force"]), 1, &["can't be reached"]);
    File::create(&served).unwrap().set_len(MIB).unwrap();
    let server = QemuNbd::start(&served, &[]);
    refused(&flash(&image.layout(), &server.uri(), &[]), 4, &["too small"]);
}

#[test]
fn hostile_nbd_servers_end_in_one_clear_error() {
    let image = Image::new();
    let size = image.size();
    let good = || Export::new(size);
    for (name, export, code, words) in [
        ("no NBD", good().greeting(b"HTTP/1.1 400 Bad Request\r\n\r\n"), 1, "no NBD server"),
        ("oldstyle", good().greeting(b"NBDMAGIC\x00\x00\x42\x02\x81\x86\x12\x53"), 1, "oldstyle"),
        ("closes at once", good().greeting(b"NBDM"), 1, "closed the connection"),
        ("wrong reply magic", good().reply_magic(0), 1, "without its magic"),
        ("huge reply", good().info_length(u32::MAX), 1, "longer than any"),
        ("short info", good().info_length(2), 1, "protocol"),
        ("mad block sizes", good().block_sizes(3, 100), 1, "block sizes"),
        ("wrong answer magic", good().answer_magic(7), 1, "without its magic"),
        ("wrong cookie", good().cookie_xor(1 << 40), 1, "was not sent"),
        ("write error", good().fail(1, 28), 1, "no space left"),
        ("odd error", good().fail(1, 4242), 1, "error 4242"),
        ("flush error", good().fail(3, 5), 1, "could not flush"),
        ("zero error", good().fail(6, 95), 1, "could not zero"),
        ("read error", good().fail(0, 5), 1, "could not read"),
        ("closes after some", good().close_after(6), 1, "closed the connection"),
        ("keeps nothing", good().forgetful(), 1, "others are read back"),
    ] {
        let server = export.serve();
        let begun = Instant::now();
        let done = flash(&image.layout(), &server.uri(), &[]);
        assert_eq!(done.status.code(), Some(code), "{name}: {}", said(&done));
        assert!(said(&done).contains(words), "{name}: {}", said(&done));
        assert!(!said(&done).contains("panicked"), "{name}: {}", said(&done));
        assert!(begun.elapsed() < Duration::from_secs(30), "{name}");
    }
    // Without zeroes, without flush, in small blocks: still the disk.
    let server = good().flags(1).block_sizes(512, 4096).serve();
    ok(&flash(&image.layout(), &server.uri(), &[]));
    let expected = fs::read(image.raw()).unwrap();
    assert!(server.content() == expected, "other bytes arrived");
}

/// Waits for `there` to be so.
fn wait_for(child: &mut Child, mut there: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !there() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it does not begin");
        assert!(child.try_wait().unwrap().is_none(), "it ended too soon");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_stop_in_the_middle_leaves_nothing() {
    let image = Image::new();
    let disk = image.dirty("disk.raw", 512 * MIB);
    for (signal, code) in [("INT", Some(130)), ("TERM", Some(130)), ("KILL", None)] {
        let mut child = sealroot()
            .args(["flash", "--no-audit", "--disk"])
            .arg(&disk)
            .arg("--to")
            .arg(image.path("out.raw"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let grown = || {
            let unfinished = image.leftovers();
            unfinished
                .first()
                .is_some_and(|name| image.path(name).metadata().is_ok_and(|m| m.blocks() > 1 << 15))
        };
        wait_for(&mut child, grown);
        run(Command::new("kill").args(["-s", signal, &child.id().to_string()]));
        assert_eq!(child.wait().unwrap().code(), code, "{signal}");
        assert!(!image.path("out.raw").exists(), "{signal}");
        match code {
            Some(_) => assert_eq!(image.leftovers(), [""; 0], "{signal}"),
            // Nobody could take it away; it does not have the name that was asked for.
            None => assert_eq!(image.leftovers().len(), 1),
        }
    }
}

#[test]
fn a_stop_while_a_server_is_silent_is_heard() {
    let image = Image::new();
    let server = Export::new(image.size()).silent_after(4).serve();
    let mut child = sealroot()
        .arg("flash")
        .arg(image.layout())
        .args(["--to", &server.uri()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(&mut child, || server.requests() >= 4);
    run(Command::new("kill").args(["-s", "INT", &child.id().to_string()]));
    let begun = Instant::now();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_full_disk_is_named_and_leaves_nothing() {
    let image = Image::new();
    let point = image.path("small");
    fs::create_dir(&point).unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(&point).output().unwrap();
    if !mounted.status.success() {
        println!("skipped: nothing can be mounted here: {}", said(&mounted));
        return;
    }
    let done = flash(&image.layout(), point.join("out.raw").to_str().unwrap(), &[]);
    let left = fs::read_dir(&point).unwrap().count();
    run(Command::new("umount").arg(&point));
    refused(&done, 1, &["No space left", "make room"]);
    assert_eq!(left, 0);
}

#[test]
fn iscsi_says_what_is_missing_and_takes_no_password() {
    let image = Image::new();
    let none = sealroot()
        .arg("flash")
        .arg(image.layout())
        .args(["--to", "iscsi://127.0.0.1:1/iqn.x/0"])
        .env("PATH", "")
        .output();
    refused(&none.unwrap(), 1, &["qemu-nbd", "qemu-utils"]);
    refused(&flash(&image.layout(), "iscsi://u%p@127.0.0.1/iqn.x/0", &[]), 2, &["LIBISCSI_CHAP_PASSWORD"]);
    // With qemu-block-extra: nobody listens. Without: that package.
    let done = flash(&image.layout(), "iscsi://127.0.0.1:1/iqn.2026-01.example:x/0", &[]);
    assert_eq!(done.status.code(), Some(1), "{}", said(&done));
    let said = said(&done);
    assert!(said.contains("qemu-block-extra") || said.contains("iscsi_service failed"), "{said}");
}

#[test]
fn options_of_a_disk_are_refused_with_an_image() {
    let image = Image::of_demo("zstd");
    let to = image.path("never.raw");
    for option in [
        &["--seal"][..],
        &["--first-boot", "none"],
        &["--sysprep-drive", "E"],
        &["--keep-free-clusters"],
        &["--no-audit"],
        &["--no-replay-logs"],
        &["--spool", "."],
    ] {
        let flashed = flash(&image.layout(), to.to_str().unwrap(), option);
        // Those that need --seal may say that first.
        assert_eq!(flashed.status.code(), Some(2), "{option:?}: {}", said(&flashed));
        assert!(!to.exists(), "{option:?}");
    }
    let flashed = flash(&image.layout(), to.to_str().unwrap(), &["--seal"]);
    refused(&flashed, 2, &["--seal is for --disk: an image is written as it is"]);
}

#[test]
fn what_may_not_be_meant_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("disk.qcow2");
    let flashed = flash_disk(&demo(), to.to_str().unwrap(), &[]);
    ok(&flashed);
    for words in ["this root is not sealed", "a raw disk is written, though", "named as a qcow2 disk"] {
        assert!(said(&flashed).contains(words), "{}", said(&flashed));
    }
    let sealed = flash_disk(&demo(), folder.path().join("sealed.raw").to_str().unwrap(), &["--seal"]);
    ok(&sealed);
    assert!(!said(&sealed).contains("warning"), "{}", said(&sealed));
    // A build folder's layout is found in it.
    let image = Image::of_demo("zstd");
    fs::create_dir(folder.path().join("build")).unwrap();
    fs::rename(image.layout(), folder.path().join("build/image")).unwrap();
    let out = folder.path().join("from-build.raw");
    ok(&flash(&folder.path().join("build"), out.to_str().unwrap(), &[]));
    assert!(out.exists());
}

/// A layout with this layer, as skopeo would take it: whatever is in the layer.
fn layout_of(folder: &Path, layer: &[u8]) -> PathBuf {
    let layout = folder.join("layout");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let put = |bytes: &[u8]| {
        let hash = sealroot::media::Sha256::of(bytes).to_string();
        fs::write(blobs.join(&hash), bytes).unwrap();
        format!("\"digest\": \"sha256:{hash}\", \"size\": {}", bytes.len())
    };
    let tar = put(layer);
    let diff = sealroot::media::Sha256::of(layer);
    let config = put(
        format!(r#"{{"architecture": "amd64", "os": "linux", "rootfs": {{"type": "layers", "diff_ids": ["sha256:{diff}"]}}}}"#)
            .as_bytes(),
    );
    let oci = "application/vnd.oci.image";
    let manifest = put(
        format!(
            r#"{{"schemaVersion": 2, "mediaType": "{oci}.manifest.v1+json", "config": {{"mediaType": "{oci}.config.v1+json", {config}}},
            "layers": [{{"mediaType": "{oci}.layer.v1.tar", {tar}}}]}}"#
        )
        .as_bytes(),
    );
    let index = format!(
        r#"{{"schemaVersion": 2, "manifests": [{{"mediaType": "{oci}.manifest.v1+json", {manifest}}}]}}"#
    );
    fs::write(layout.join("index.json"), index).unwrap();
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#).unwrap();
    layout
}

fn header(name: &str, kind: tar::EntryType, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_path(name).unwrap();
    header.set_entry_type(kind);
    header.set_mode(0o440);
    header.set_size(size);
    header.set_cksum();
    header
}

/// Neither the audit nor flash takes a layer of that tar, and both say why.
#[track_caller]
fn not_a_disk(tar: &[u8], words: &str) {
    let folder = tempfile::tempdir().unwrap();
    let layout = layout_of(folder.path(), tar);
    let to = folder.path().join("out.raw");
    refused(&flash(&layout, to.to_str().unwrap(), &[]), 3, &[words]);
    assert!(!to.exists());
}

#[test]
fn a_layer_with_another_disk_than_it_seems_to_have_is_refused() {
    let plain = |name: &str, content: &[u8]| {
        let header = header(name, tar::EntryType::Regular, content.len() as u64);
        [header.as_bytes().as_slice(), content, &vec![0; content.len().next_multiple_of(512) - content.len()]]
            .concat()
    };
    let end = [0; 1024];
    // The last of two goes for tar and containerd, the first for others.
    let two = [plain("disk/disk.img", &[1; 8192]), plain("disk/disk.img", &[2; 8192]), end.to_vec()].concat();
    not_a_disk(&two, "several files in its disk/");
    let folder = tempfile::tempdir().unwrap();
    let layout = layout_of(folder.path(), &two);
    let audited = sealroot().args(["inspect", "--audit"]).arg(&layout).output().unwrap();
    refused(&audited, 3, &["disk/disk.img and disk/disk.img are both in its disk/"]);
    let mut link = header("disk/disk.img", tar::EntryType::Symlink, 0);
    link.set_link_name("/etc/passwd").unwrap();
    link.set_cksum();
    not_a_disk(
        &[plain("disk/disk.img", &[1; 8192]), link.as_bytes().to_vec(), end.to_vec()].concat(),
        "several files",
    );
    not_a_disk(&[link.as_bytes().as_slice(), &end].concat(), "no plain one");
    // A sparse file's bytes are not those of the file.
    let pax = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n";
    let pax_header = header("disk/pax", tar::EntryType::XHeader, pax.len() as u64);
    let extension = [pax_header.as_bytes().as_slice(), pax, &vec![0; 512 - pax.len()]].concat();
    not_a_disk(
        &[extension, plain("disk/disk.img", &[1; 8192]), end.to_vec()].concat(),
        "no plain one (sparse, or a link)",
    );
    // Nor is another format the disk.
    not_a_disk(
        &[plain("disk/disk.img", &[b"KDMV".as_slice(), &[0; 70_000]].concat()), end.to_vec()].concat(),
        "a VMDK image",
    );
}

#[test]
fn sizes_that_a_header_makes_up_cost_nothing() {
    let huge = header("disk/disk.img", tar::EntryType::Regular, 1 << 62);
    not_a_disk(&[huge.as_bytes().as_slice(), &[0; 1024]].concat(), "larger than any disk");
    // A long name of 40 MB, which would be kept in memory.
    let name = header("././@LongLink", tar::EntryType::GNULongName, 40_000_000);
    not_a_disk(
        &[name.as_bytes().as_slice(), &vec![b'a'; 40_000_256]].concat(),
        "headers are larger than those of any image",
    );
}

#[test]
fn special_files_in_a_layout_neither_hang_nor_end_the_memory() {
    for (name, target) in [("oci-layout", None), ("index.json", Some("/dev/zero"))] {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout_of(folder.path(), &[0; 1024]);
        fs::remove_file(layout.join(name)).unwrap();
        match target {
            Some(target) => std::os::unix::fs::symlink(target, layout.join(name)).unwrap(),
            None => drop(run(Command::new("mkfifo").arg(layout.join(name)))),
        }
        let to = folder.path().join("out.raw");
        refused(&flash(&layout, to.to_str().unwrap(), &[]), 1, &[name, "it is no regular file"]);
        let looked = sealroot().arg("inspect").arg(&layout).output().unwrap();
        refused(&looked, 1, &["it is no regular file"]);
    }
    // A blob of no bytes that leads to a device without end.
    let folder = tempfile::tempdir().unwrap();
    let layout = layout_of(folder.path(), b"");
    let blob = layout.join("blobs/sha256").join(sealroot::media::Sha256::of(b"").to_string());
    fs::remove_file(&blob).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &blob).unwrap();
    let looked = sealroot().args(["inspect", "--verify"]).arg(&layout).output().unwrap();
    refused(&looked, 1, &["it is no regular file"]);
}

#[test]
fn a_loop_device_over_the_disk_is_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("in.raw");
    run(Command::new("qemu-img").args(["convert", "-O", "raw"]).arg(demo()).arg(&disk));
    let before = fs::read(&disk).unwrap();
    let Some(device) = LoopDevice::of(&disk, &["--partscan"]) else { return };
    refused(
        &flash_disk(&disk, device.path(), &["--force"]),
        2,
        &["is a loop device over", "which is what is read"],
    );
    // The same by a partition of it, where the system makes nodes for those.
    let partition = format!("{}p1", device.path());
    if Path::new(&partition).exists() {
        refused(&flash_disk(&disk, &partition, &["--force"]), 2, &["is a loop device over"]);
    }
    assert!(fs::read(&disk).unwrap() == before);
}

#[test]
fn a_device_that_is_not_there_is_not_made_as_a_file() {
    let image = Image::new();
    let slip = "/dev/sealroot-no-such-disk";
    refused(&flash(&image.layout(), slip, &[]), 1, &[slip, "No such file"]);
    assert!(!Path::new(slip).exists());
}

#[test]
fn a_file_that_is_replaced_keeps_its_mode_and_a_disk_without_end_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let image = Image::new();
    let to = image.path("private.raw");
    fs::write(&to, "old").unwrap();
    fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
    ok(&flash(&image.layout(), to.to_str().unwrap(), &["--force"]));
    assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);

    let folder = tempfile::tempdir().unwrap();
    let endless = folder.path().join("endless.qcow2");
    run(Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2", "-o", "cluster_size=2M"])
        .arg(&endless)
        .arg("1P"));
    let to = folder.path().join("out.raw");
    refused(
        &flash_disk(&endless, to.to_str().unwrap(), &["--no-audit"]),
        4,
        &["larger than any that is written"],
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
