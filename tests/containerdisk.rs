//! A disk as a containerDisk, judged by those who will read it: QEMU, skopeo, umoci, tar, zstd, gzip, ntfs-3g.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant, UNIX_EPOCH};

use sealroot::containerdisk::{
    Chunk, Compression, Image, Layer, LayerInfo, Layout, LayoutError, LayoutWriter, Qcow2Image, Sink, Tar,
    created_from_epoch, verify,
};
use sealroot::disk;
use sealroot::io::{Interrupted, NewPathError, ReadAt, Silent, Task};
use sealroot::root::keep::{Kept, Shipping};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

const SECTOR: u64 = 512;
/// The NTFS partition, in sectors; an odd number of them is left over past the last cluster.
const NTFS_START: u64 = 104_448;
const NTFS_SECTORS: u64 = 180_229;
const DISK_SIZE: u64 = 160 << 20;

fn run(command: &mut Command) -> Vec<u8> {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {said}{}", String::from_utf8_lossy(&out.stdout));
    out.stdout
}

fn cmd(program: &str, args: &[&str]) -> Vec<u8> {
    run(Command::new(program).args(args))
}

fn s(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs `work` in the volume of `partition`, mounted by ntfs-3g.
fn mounted<T>(partition: &Path, options: &str, work: impl FnOnce(&Path) -> T) -> T {
    struct Unmount(PathBuf, std::process::Child);
    impl Drop for Unmount {
        fn drop(&mut self) {
            let _ = Command::new("fusermount3").args(["-u", s(&self.0)]).status();
            let _ = self.1.wait();
        }
    }
    let point = TempDir::new().unwrap();
    let child = Command::new("ntfs-3g")
        .args(["-o", options, s(partition), s(point.path())])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let guard = Unmount(point.path().into(), child);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !fs::read_to_string("/proc/self/mounts").unwrap().contains(s(point.path())) {
        assert!(Instant::now() < deadline, "ntfs-3g does not mount {}", partition.display());
        std::thread::sleep(Duration::from_millis(20));
    }
    let result = work(point.path());
    drop(guard);
    result
}

/// 1 MiB in which every 4 KiB begin with the mark.
fn marked(mark: &str) -> Vec<u8> {
    let mut block: Vec<u8> = (0u32..4096).map(|i| ((i * i) >> 5) as u8).collect();
    block[..mark.len()].copy_from_slice(mark.as_bytes());
    block.repeat(256)
}

const MARKS: [&str; 5] = ["KEPT-MARK-", "DELETED-MARK-", "PAGE-MARK-", "SWAP-MARK-", "HIBER-MARK-"];

/// Fills the volume, and leaves free clusters, of files that were there, all over it.
fn fill(volume: &Path) {
    fs::create_dir_all(volume.join("Windows/System32/config")).unwrap();
    for i in 0..40u8 {
        fs::write(volume.join(format!("pad{i}")), marked(if i % 2 == 0 { MARKS[0] } else { MARKS[1] }))
            .unwrap();
        // Small files too, so that free and used clusters share 64 KiB.
        for j in 0..8u8 {
            let name = format!("Windows/System32/config/small{i}-{j}");
            fs::write(volume.join(name), &marked(MARKS[usize::from(j % 2)])[..4096 * usize::from(j % 3 + 1)])
                .unwrap();
        }
    }
    for (name, mark) in [("pagefile.sys", MARKS[2]), ("swapfile.sys", MARKS[3]), ("hiberfil.sys", MARKS[4])] {
        let mut file = File::create(volume.join(name)).unwrap();
        let content = marked(mark);
        // Not `hibr`: this one is not hibernated.
        file.write_all(&[0; 4096]).unwrap();
        file.write_all(&content).unwrap();
    }
    for i in 0..40u8 {
        if i % 2 == 1 {
            fs::remove_file(volume.join(format!("pad{i}"))).unwrap();
        }
        for j in (1..8u8).step_by(2) {
            fs::remove_file(volume.join(format!("Windows/System32/config/small{i}-{j}"))).unwrap();
        }
    }
    fs::write(volume.join("Windows/kept.txt"), "kept").unwrap();
    fs::write(volume.join("Windows/zeros.bin"), vec![0; 3 << 20]).unwrap();
}

/// A disk as Windows has it: GPT, ESP, MSR and an NTFS volume in use. Made once, read by every test, whether the
/// tests are threads of one process or processes of their own.
struct Fixture {
    folder: PathBuf,
}

static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    // Statics are never dropped: a fixed place, made again when these tests are built again.
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("containerdisk");
    fs::create_dir_all(&place).unwrap();
    let lock = File::create(place.join("lock")).unwrap();
    lock.lock().unwrap();
    let built = fs::metadata(std::env::current_exe().unwrap()).unwrap().modified().unwrap();
    let folder = place.join(format!("{}", built.duration_since(UNIX_EPOCH).unwrap().as_nanos()));
    if folder.exists() {
        return Fixture { folder };
    }
    for old in fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        fs::remove_dir_all(old).unwrap();
    }
    let making = tempfile::Builder::new().tempdir_in(&place).unwrap();
    make_disk(making.path());
    fs::rename(making.keep(), &folder).unwrap();
    Fixture { folder }
});

fn make_disk(folder: &Path) {
    let ntfs = folder.join("ntfs.img");
    File::create(&ntfs).unwrap().set_len(NTFS_SECTORS * SECTOR).unwrap();
    let start = NTFS_START.to_string();
    cmd("mkntfs", &["-q", "-Q", "-F", "-c", "4096", "-p", &start, "-H", "255", "-S", "63", s(&ntfs)]);
    mounted(&ntfs, "no_detach,silent", fill);
    let raw = folder.join("raw.img");
    File::create(&raw).unwrap().set_len(DISK_SIZE).unwrap();
    let third = format!("3:{NTFS_START}:{}", NTFS_START + NTFS_SECTORS - 1);
    cmd(
        "sgdisk",
        &[
            "-n",
            "1:2048:+33M",
            "-t",
            "1:ef00",
            "-n",
            "2:0:+16M",
            "-t",
            "2:0c01",
            "-n",
            &third,
            "-t",
            "3:0700",
            s(&raw),
        ],
    );
    cmd("mkfs.vfat", &["-F", "32", "--offset", "2048", s(&raw), "33792"]);
    let out = File::options().write(true).open(&raw).unwrap();
    out.write_all_at(&fs::read(&ntfs).unwrap(), NTFS_START * SECTOR).unwrap();
    // Something in a gap between partitions, which belongs to nobody and is shipped all the same.
    out.write_all_at(b"in the gap", (NTFS_START + NTFS_SECTORS + 100) * SECTOR).unwrap();
    drop(out);
    // Holes where there are zeros: dd above wrote them all.
    cmd("fallocate", &["--dig-holes", s(&raw)]);
}

impl Fixture {
    fn raw(&self) -> PathBuf {
        self.folder.join("raw.img")
    }

    fn raw_bytes(&self) -> Vec<u8> {
        fs::read(self.raw()).unwrap()
    }
}

fn workers(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).unwrap()
}

struct Nowhere;
impl Sink for Nowhere {
    fn take(&mut self, _: &Chunk) -> io::Result<()> {
        Ok(())
    }
}

fn layer_of(disk: &Path, compression: Compression, n: usize) -> LayerInfo {
    let disk = disk::open(disk).unwrap();
    let kept = Kept::in_use(&disk, &Silent).unwrap();
    let image = Qcow2Image::new(&kept);
    let tar = Tar::new(&image);
    Layer::new(&tar, compression, workers(n)).write(0, &mut [&mut Nowhere], &Silent).unwrap()
}

/// Packages a disk into the layout `out`.
fn package(disk: &dyn ReadAt, compression: Compression, out: &Path) -> LayerInfo {
    let kept = Kept::in_use(disk, &Silent).unwrap();
    let image = Qcow2Image::new(&kept);
    let tar = Tar::new(&image);
    let mut layout = LayoutWriter::create(out).unwrap();
    let info = Layer::new(&tar, compression, workers(2)).write(0, &mut [&mut layout], &Silent).unwrap();
    let about = Image {
        created: Some(created_from_epoch("1700000000").unwrap()),
        env: [("INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE".into(), "windows.11".into())].into(),
        annotations: [("org.opencontainers.image.version".into(), "26100".into())].into(),
    };
    layout.finish(&about, &info).unwrap();
    info
}

fn blob(layout: &Path, digest: impl ToString) -> PathBuf {
    layout.join("blobs/sha256").join(digest.to_string().strip_prefix("sha256:").unwrap())
}

/// The qcow2 file with everything but zeros, or with what is in use, as a file of its own.
fn write_qcow2(disk: &Path, out: &Path, all: bool) {
    let disk = disk::open(disk).unwrap();
    let kept = if all { Kept::all(&disk, &Silent) } else { Kept::in_use(&disk, &Silent) }.unwrap();
    let mut file = File::create_new(out).unwrap();
    Qcow2Image::new(&kept).write(&mut file, &Silent).unwrap();
    assert_eq!(file.metadata().unwrap().len(), Qcow2Image::new(&kept).size());
}

fn count(haystack: &[u8], mark: &str) -> usize {
    haystack.chunks(512).filter(|sector| sector.starts_with(mark.as_bytes())).count()
}

#[test]
fn one_disk_has_one_digest_however_it_is_kept() {
    let raw = FIXTURE.raw();
    let folder = TempDir::new().unwrap();
    let full = folder.path().join("full.img");
    cmd("cp", &["--sparse=never", s(&raw), s(&full)]);
    let mut disks = vec![raw.clone(), full];
    for (name, options) in [
        ("plain", &["-O", "qcow2"][..]),
        ("zlib", &["-O", "qcow2", "-c"]),
        ("zstd", &["-O", "qcow2", "-c", "-o", "compression_type=zstd,cluster_size=2M"]),
    ] {
        let out = folder.path().join(name);
        run(Command::new("qemu-img").arg("convert").args(options).arg(&raw).arg(&out));
        disks.push(out);
    }
    for compression in [Compression::Zstd(3), Compression::Gzip(1)] {
        let first = layer_of(&raw, compression, 1);
        for disk in &disks {
            assert_eq!(layer_of(disk, compression, 2), first, "{}", disk.display());
        }
        assert_eq!(layer_of(&raw, compression, 7), first);
    }
}

#[test]
fn qemu_reads_the_same_disk() {
    let raw = FIXTURE.raw();
    let folder = TempDir::new().unwrap();
    for (name, all) in [("all.qcow2", true), ("used.qcow2", false)] {
        let out = folder.path().join(name);
        write_qcow2(&raw, &out, all);
        let check = String::from_utf8(cmd("qemu-img", &["check", "--output=json", s(&out)])).unwrap();
        let check: serde_json::Value = serde_json::from_str(&check).unwrap();
        assert!(
            check["check-errors"] == 0 && check.get("leaks").is_none() && check.get("corruptions").is_none()
        );
        let info = String::from_utf8(cmd("qemu-img", &["info", "--output=json", s(&out)])).unwrap();
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        assert_eq!(info["virtual-size"], DISK_SIZE);
        assert!(info.get("backing-filename").is_none());
        let compare =
            Command::new("qemu-img").args(["compare", "-f", "raw", s(&raw), s(&out)]).output().unwrap();
        assert_eq!(
            compare.status.code(),
            Some(i32::from(!all)),
            "only what is all of the disk compares equal"
        );
    }
}

#[test]
fn a_huge_empty_disk_costs_nothing() {
    let folder = TempDir::new().unwrap();
    let (raw, out) = (folder.path().join("raw"), folder.path().join("out.qcow2"));
    let file = File::create(&raw).unwrap();
    file.set_len(3 << 40).unwrap();
    for at in [0, (1 << 40) + 4095, (512 << 20) - 1, (3 << 40) - 512] {
        file.write_all_at(b"x", at).unwrap();
    }
    let begun = Instant::now();
    write_qcow2(&raw, &out, true);
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(out.metadata().unwrap().len() < 2 << 20);
    cmd("qemu-img", &["check", s(&out)]);
    cmd("qemu-img", &["compare", "-f", "raw", s(&raw), s(&out)]);
}

/// Every file of a volume with its hash; those whose content is not shipped with that of as many zeros.
fn listing(volume: &Path, zeroed: &[&str]) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![volume.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(volume).unwrap().to_path_buf();
            if path.is_dir() {
                found.insert(name, "folder".into());
                folders.push(path);
            } else {
                let mut content = fs::read(&path).unwrap();
                if zeroed.iter().any(|file| name == Path::new(file)) {
                    content.fill(0);
                }
                found.insert(name, format!("{} {}", content.len(), hex::encode(Sha256::digest(&content))));
            }
        }
    }
    found
}

#[test]
fn a_trimmed_image_holds_the_same_files_and_nothing_that_was_deleted() {
    let folder = TempDir::new().unwrap();
    let (qcow2, raw) = (folder.path().join("d.qcow2"), folder.path().join("d.raw"));
    write_qcow2(&FIXTURE.raw(), &qcow2, false);
    cmd("qemu-img", &["convert", "-O", "raw", s(&qcow2), s(&raw)]);
    let (source, trimmed) = (FIXTURE.raw_bytes(), fs::read(&raw).unwrap());
    for (mark, stays) in MARKS.iter().zip([true, false, false, false, false]) {
        assert!(count(&source, mark) >= 100, "{mark} is not in the source");
        assert_eq!(count(&trimmed, mark) > 0, stays, "{mark}");
    }
    assert_eq!(count(&trimmed, MARKS[0]), count(&source, MARKS[0]));
    let end = ((NTFS_START + NTFS_SECTORS) * SECTOR) as usize;
    let start = (NTFS_START * SECTOR) as usize;
    let last_cluster = start + (end - start) / 4096 * 4096;
    assert_eq!(trimmed[..start], source[..start], "partition table, ESP, MSR");
    assert_eq!(trimmed[last_cluster..], source[last_cluster..], "boot sector copy, gap, backup GPT");
    assert!(source[last_cluster..end].iter().any(|b| *b != 0), "the boot sector's copy lies there");

    let partition = folder.path().join("p3");
    fs::write(&partition, &trimmed[start..end]).unwrap();
    cmd("ntfsresize", &["-i", "-f", s(&partition)]);
    cmd("ntfsfix", &["-n", s(&partition)]);
    let dropped = ["pagefile.sys", "swapfile.sys", "hiberfil.sys"];
    let original = FIXTURE.folder.join("ntfs.img");
    let expected = mounted(&original, "no_detach,silent,ro", |volume| listing(volume, &dropped));
    assert!(expected.len() > 150);
    assert_eq!(mounted(&partition, "no_detach,silent,ro", |volume| listing(volume, &[])), expected);
}

#[test]
fn what_is_shipped_of_each_partition_is_said() {
    let disk = disk::open(&FIXTURE.raw()).unwrap();
    let kept = Kept::in_use(&disk, &Silent).unwrap();
    let [esp, msr, windows] = kept.volumes() else { panic!("{:?}", kept.volumes()) };
    assert!(matches!(&esp.shipping, Shipping::Whole { why } if why.contains("no NTFS")));
    assert!(matches!(&msr.shipping, Shipping::Whole { .. }));
    assert_eq!(
        (windows.number, windows.start, windows.size),
        (3, NTFS_START * SECTOR, NTFS_SECTORS * SECTOR)
    );
    let Shipping::InUse { left_out, files } = &windows.shipping else { panic!("{windows:?}") };
    assert!(*left_out > 20 << 20);
    assert_eq!(
        files.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["pagefile.sys", "swapfile.sys", "hiberfil.sys"]
    );
    assert!(files.iter().all(|(_, bytes)| *bytes == (1 << 20) + 4096));
}

#[test]
fn nothing_is_left_out_of_a_volume_that_is_not_clean() {
    let folder = TempDir::new().unwrap();
    let (ntfs, raw) = (folder.path().join("ntfs.img"), folder.path().join("raw.img"));
    fs::copy(FIXTURE.folder.join("ntfs.img"), &ntfs).unwrap();
    // It marks the volume for a check, as Windows does after a crash.
    cmd("ntfsfix", &[s(&ntfs)]);
    fs::copy(FIXTURE.raw(), &raw).unwrap();
    let out = File::options().write(true).open(&raw).unwrap();
    out.write_all_at(&fs::read(&ntfs).unwrap(), NTFS_START * SECTOR).unwrap();
    let disk = disk::open(&raw).unwrap();
    let kept = Kept::in_use(&disk, &Silent).unwrap();
    let Shipping::Whole { why } = &kept.volumes()[2].shipping else { panic!("{:?}", kept.volumes()) };
    assert!(why.contains("dirty"), "{why}");
    assert!(kept.clusters() == Kept::all(&disk, &Silent).unwrap().clusters());
    let qcow2 = folder.path().join("d.qcow2");
    write_qcow2(&raw, &qcow2, false);
    cmd("qemu-img", &["compare", "-f", "raw", s(&raw), s(&qcow2)]);
}

/// Name, size, uid, gid, mode, mtime and type of each entry, as Python's tarfile sees them, and the file itself.
fn read_by_python(tar: &Path, out: &Path) -> String {
    let script = "import sys,tarfile,shutil\n\
                  t=tarfile.open(sys.argv[1],'r:')\n\
                  for m in t: print(m.name,m.size,m.uid,m.gid,oct(m.mode),m.mtime,m.type.decode())\n\
                  shutil.copyfileobj(t.extractfile('disk/disk.qcow2'),open(sys.argv[2],'wb'))";
    String::from_utf8(cmd("python3", &["-c", script, s(tar), s(out)])).unwrap()
}

#[test]
fn every_client_reads_the_layout() {
    let disk = disk::open(&FIXTURE.raw()).unwrap();
    for (compression, unpacker) in [
        (Compression::Zstd(3), &["zstd", "-dc"][..]),
        (Compression::Gzip(1), &["gzip", "-dc"]),
        (Compression::None, &["cat"]),
    ] {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        let info = package(&disk, compression, &at("layout"));
        let layer = blob(&at("layout"), info.digest);
        assert_eq!(
            s(&layer).rsplit('/').next().unwrap(),
            hex::encode(Sha256::digest(fs::read(&layer).unwrap()))
        );

        let tar = run(Command::new(unpacker[0]).args(&unpacker[1..]).arg(&layer));
        assert_eq!(info.diff_id.hex(), hex::encode(Sha256::digest(&tar)));
        fs::write(at("tar"), &tar).unwrap();
        let seen = read_by_python(&at("tar"), &at("disk.qcow2"));
        let size = at("disk.qcow2").metadata().unwrap().len();
        assert_eq!(seen, format!("disk 0 107 107 0o755 0 5\ndisk/disk.qcow2 {size} 107 107 0o440 0 0\n"));
        cmd("qemu-img", &["check", s(&at("disk.qcow2"))]);

        let inspected = cmd("skopeo", &["inspect", &format!("oci:{}", s(&at("layout")))]);
        let inspected: serde_json::Value = serde_json::from_slice(&inspected).unwrap();
        assert_eq!(inspected["Architecture"], "amd64");
        assert_eq!(inspected["Os"], "linux");
        assert_eq!(inspected["Created"], "2023-11-14T22:13:20Z");
        assert_eq!(inspected["Layers"], serde_json::json!([info.digest]));
        assert_eq!(inspected["Env"][0], "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE=windows.11");
        let verified = verify(&at("layout"), &Silent).unwrap();
        assert_eq!(inspected["Digest"], verified.manifest.to_string());

        let copy = format!("dir:{}", s(&at("copy")));
        cmd("skopeo", &["copy", "-q", "--preserve-digests", &format!("oci:{}", s(&at("layout"))), &copy]);
        assert!(fs::read(at("copy").join(info.digest.hex())).unwrap() == fs::read(&layer).unwrap());

        assert_eq!((verified.layer, verified.diff_id), (info.digest, info.diff_id));
        assert_eq!((verified.file_size, verified.virtual_size), (size, DISK_SIZE));
        let opened = Layout::open(&at("layout")).unwrap();
        assert_eq!(opened.manifest_descriptor.digest, verified.manifest);
        assert_eq!(opened.layers[0].path, layer);
        assert_eq!(opened.manifest.annotations["org.opencontainers.image.version"], "26100");

        // umoci knows no zstd.
        if compression != Compression::Zstd(3) {
            let image = format!("{}:latest", s(&at("layout")));
            cmd("umoci", &["unpack", "--rootless", "--image", &image, s(&at("bundle"))]);
            let unpacked = fs::read(at("bundle/rootfs/disk/disk.qcow2")).unwrap();
            assert!(unpacked == fs::read(at("disk.qcow2")).unwrap());
        }
    }
}

#[test]
fn cdi_finds_a_first_block_that_is_not_compressed() {
    let folder = TempDir::new().unwrap();
    let layout = folder.path().join("layout");
    let disk = disk::open(&FIXTURE.raw()).unwrap();
    let info = package(&disk, Compression::Zstd(19), &layout);
    let layer = fs::read(blob(&layout, info.digest)).unwrap();
    // Frame header: magic, a content size of four bytes. Block header: last, raw, 64 KiB.
    assert_eq!(layer[..12], [0x28, 0xB5, 0x2F, 0xFD, 0xA0, 0, 0, 1, 0, 0x01, 0x00, 0x08]);
    assert!(layer[12..].starts_with(b"disk/\0"));
    assert!(layer[12 + 1024..].starts_with(b"QFI\xfb"));
    cmd("zstd", &["-t", s(&blob(&layout, info.digest))]);
    // And the next frame begins where that block ends.
    assert_eq!(layer[12 + 65_536..][..4], [0x28, 0xB5, 0x2F, 0xFD]);
    let list = String::from_utf8(cmd("zstd", &["-lv", s(&blob(&layout, info.digest))])).unwrap();
    assert!(list.contains("Skippable"), "{list}");
}

#[test]
fn a_damaged_layout_is_found_out() {
    let folder = TempDir::new().unwrap();
    let layout = folder.path().join("layout");
    let disk = disk::open(&FIXTURE.raw()).unwrap();
    let info = package(&disk, Compression::Zstd(1), &layout);
    let layer = blob(&layout, info.digest);
    let whole = fs::read(&layer).unwrap();
    for at in [0, 20, whole.len() / 2, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        fs::write(&layer, &bytes).unwrap();
        let e = verify(&layout, &Silent).unwrap_err();
        assert!(matches!(&e, LayoutError::Blob { path, .. } if *path == layer), "{e}");
    }
    fs::write(&layer, &whole[..whole.len() - 1]).unwrap();
    assert!(matches!(Layout::open(&layout), Err(LayoutError::Blob { .. })));
    fs::write(&layer, &whole).unwrap();
    let manifest = verify(&layout, &Silent).unwrap().manifest;

    let text = fs::read_to_string(blob(&layout, manifest)).unwrap();
    fs::write(blob(&layout, manifest), text.replace("26100", "26101")).unwrap();
    assert!(matches!(Layout::open(&layout), Err(LayoutError::Blob { .. })));
    fs::write(blob(&layout, manifest), &text).unwrap();

    let index = fs::read_to_string(layout.join("index.json")).unwrap();
    for (from, to) in [
        (manifest.hex(), "../../../../etc/passwd".into()),
        ("\"manifests\":[".into(), "\"manifests\":[],\"x\":[".into()),
        ("image.manifest".into(), "image.index".into()),
        ("{".into(), String::new()),
    ] {
        fs::write(layout.join("index.json"), index.replace(&from, &to)).unwrap();
        assert!(matches!(Layout::open(&layout), Err(LayoutError::Document { .. })), "{from}");
    }
}

#[test]
fn a_layer_with_anything_else_in_it_is_no_containerdisk() {
    let folder = TempDir::new().unwrap();
    let layout = folder.path().join("layout");
    // Built by other tools, with a file too many.
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("disk")).unwrap();
    fs::write(tree.join("disk/disk.qcow2"), b"QFI\xfb, or so it says, and then some more").unwrap();
    fs::write(tree.join("disk/second"), "x").unwrap();
    cmd("umoci", &["init", "--layout", s(&layout)]);
    let image = format!("{}:latest", s(&layout));
    cmd("umoci", &["new", "--image", &image]);
    cmd("umoci", &["insert", "--rootless", "--image", &image, s(&tree.join("disk")), "/disk"]);
    let e = verify(&layout, &Silent).unwrap_err();
    assert!(matches!(e, LayoutError::Content { .. }), "{e}");
}

struct StopAt(u64, std::sync::atomic::AtomicU64);
impl Task for StopAt {
    fn advance(&self, bytes: u64) -> Result<(), Interrupted> {
        let done = self.1.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed) + bytes;
        if done > self.0 { Err(Interrupted) } else { Ok(()) }
    }
}

#[test]
fn a_layout_is_there_whole_or_not_at_all() {
    let folder = TempDir::new().unwrap();
    let layout = folder.path().join("layout");
    let disk = disk::open(&FIXTURE.raw()).unwrap();
    let kept = Kept::in_use(&disk, &Silent).unwrap();
    let image = Qcow2Image::new(&kept);
    let tar = Tar::new(&image);
    let mut writer = LayoutWriter::create(&layout).unwrap();
    let stop = StopAt(9 << 20, 0.into());
    let stopped = Layer::new(&tar, Compression::Zstd(3), workers(2)).write(0, &mut [&mut writer], &stop);
    assert!(stopped.is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "it is being written");
    // Half a layer can't be passed off as a whole one.
    let info = layer_of(&FIXTURE.raw(), Compression::Zstd(3), 2);
    assert!(matches!(writer.finish(&Image::default(), &info), Err(NewPathError::Io { .. })));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing stays behind");

    package(&disk, Compression::Zstd(3), &layout);
    assert!(matches!(LayoutWriter::create(&layout), Err(NewPathError::Exists { .. })));
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["layout"]);
    let blobs = fs::read_dir(layout.join("blobs/sha256")).unwrap().count();
    assert_eq!(blobs, 3, "config, manifest, layer, and no temporary");
}

#[test]
fn a_disk_cut_short_or_changed_is_an_error() {
    let folder = TempDir::new().unwrap();
    let raw = folder.path().join("raw.img");
    fs::copy(FIXTURE.raw(), &raw).unwrap();
    let disk = disk::open(&raw).unwrap();
    let kept = Kept::in_use(&disk, &Silent).unwrap();
    let image = Qcow2Image::new(&kept);
    let tar = Tar::new(&image);
    let file = File::options().write(true).open(&raw).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    file.write_all_at(b"boo", NTFS_START * SECTOR + 600).unwrap();
    let said = |e: &dyn std::error::Error| {
        format!("{e}: {}", e.source().map(ToString::to_string).unwrap_or_default())
    };
    let changed = Layer::new(&tar, Compression::Zstd(1), workers(2)).write(0, &mut [&mut Nowhere], &Silent);
    assert!(said(&changed.unwrap_err()).contains("changed"));
    file.set_len(100 << 20).unwrap();
    let short = Layer::new(&tar, Compression::Zstd(1), workers(2)).write(0, &mut [&mut Nowhere], &Silent);
    let short = said(&short.unwrap_err());
    assert!(short.contains("of the disk at offset"), "{short}");
}
