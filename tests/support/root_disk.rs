//! Root disks in every state a test asks for, and the public tools that judge what became of them.
//!
//! A disk starts as `fixtures/demo/root.qcow2` (or one made by `fixtures/make-root.sh`, once for all
//! tests), is turned into sparse raw in a folder of its own, and is edited there with hivexregedit,
//! ntfscp and ntfsfix: never with the code under test. Include it with
//! `#[path = "support/root_disk.rs"] mod root_disk;`.
// A test file uses the part of this that it needs.
#![allow(dead_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Where the hives are on every Windows volume.
pub const SYSTEM: &str = "Windows/System32/config/SYSTEM";
/// The hive that says which Windows this is, and how far Setup got.
pub const SOFTWARE: &str = "Windows/System32/config/SOFTWARE";

/// An answer file as Setup caches it, with a plain password in it.
pub const ANSWER_WITH_PASSWORD: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<unattend xmlns="urn:schemas-microsoft-com:unattend">
  <settings pass="oobeSystem">
    <component name="Microsoft-Windows-Shell-Setup" processorArchitecture="amd64" publicKeyToken="31bf3856ad364e35" language="neutral" versionScope="nonSxS">
      <UserAccounts><LocalAccounts><LocalAccount wcm:action="add" xmlns:wcm="http://schemas.microsoft.com/WMIConfig/2002/State">
        <Name>builder</Name><Group>Administrators</Group>
        <Password><Value>Correct-Horse-7-Battery</Value><PlainText>true</PlainText></Password>
      </LocalAccount></LocalAccounts></UserAccounts>
    </component>
  </settings>
</unattend>
"#;

/// The qcow2 in the repository from which most disks are made.
pub fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/demo/root.qcow2")
}

/// A raw disk that is gone when this is dropped.
pub struct RootDisk {
    folder: TempDir,
    path: PathBuf,
}

impl RootDisk {
    /// Generalised, clean, nothing to scrub: what a build accepts. GPT, 512-byte sectors.
    pub fn standard() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("root.raw");
        run(Command::new("qemu-img").args(["convert", "-O", "raw"]).arg(demo()).arg(&path));
        Self { folder, path }
    }

    /// As `standard`, the hives in some 25 fragments each that jump forwards and backwards.
    pub fn with_scattered_hives() -> Self {
        Self::made(&["--scatter-hives"])
    }

    /// As `standard`, GPT and file systems for sectors of 4096 bytes.
    pub fn with_4096_byte_sectors() -> Self {
        Self::made(&["--sector-size", "4096"])
    }

    /// A copy of what `make-root.sh` makes of these options.
    pub fn made(options: &[&str]) -> Self {
        let made = made_once(options);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("root.raw");
        run(Command::new("cp").args(["--sparse=always", "--reflink=auto"]).arg(made).arg(&path));
        Self { folder, path }
    }

    /// The raw image.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A folder for whatever goes with the disk.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Installed and in use: Setup is over, sysprep was not run.
    pub fn not_generalised(self) -> Self {
        let setup = r#"Windows\CurrentVersion\Setup\State"#;
        self.hive_values(SYSTEM, "Setup", &[("SetupType", "dword:00000000"), ("CmdLine", "\"\"")])
            .hive_values(
                SOFTWARE,
                &format!(r"Microsoft\{setup}"),
                &[("ImageState", "\"IMAGE_STATE_COMPLETE\"")],
            )
            .file("Windows/Setup/State/State.ini", b"[State]\r\nImageState=IMAGE_STATE_COMPLETE\r\n")
    }

    /// `HKLM\SYSTEM\Setup\UnattendFile` is there already.
    pub fn with_pointer(self, answer_file: &str) -> Self {
        let value = format!("\"{}\"", answer_file.replace('\\', r"\\"));
        self.hive_values(SYSTEM, "Setup", &[("UnattendFile", &value)])
    }

    /// Writes values (`name`, and data as in a .reg file) into a key of a hive; the key is made where it is missing.
    pub fn hive_values(self, hive: &str, key: &str, values: &[(&str, &str)]) -> Self {
        self.hive_keys(hive, &[(key, values)])
    }

    /// As `hive_values`, for several keys.
    pub fn hive_keys(self, hive: &str, keys: &[(&str, &[(&str, &str)])]) -> Self {
        self.change_hive(hive, keys);
        self
    }

    /// As `hive_keys`, of a disk that is used again.
    pub fn change_hive(&self, hive: &str, keys: &[(&str, &[(&str, &str)])]) {
        self.change_volume(|volume| {
            let name = Path::new(hive).file_name().unwrap().to_str().unwrap();
            let file = volume.folder.path().join(name);
            fs::write(&file, volume.cat(hive)).unwrap();
            let mut reg = "Windows Registry Editor Version 5.00\n\n".to_owned();
            for (key, values) in keys {
                // hivexregedit makes no key whose parent is missing.
                let parts: Vec<_> = key.split('\\').collect();
                for depth in 1..=parts.len() {
                    reg += &format!("\n[HKEY_LOCAL_MACHINE\\{name}\\{}]\n", parts[..depth].join("\\"));
                }
                values.iter().for_each(|(name, data)| reg += &format!("\"{name}\"={data}\n"));
                reg += "\n";
            }
            let script = volume.folder.path().join("edit.reg");
            fs::write(&script, reg).unwrap();
            let prefix = format!("HKEY_LOCAL_MACHINE\\{name}");
            run(Command::new("hivexregedit").args(["--merge", "--prefix", &prefix]).arg(&file).arg(&script));
            volume.put(hive, &fs::read(&file).unwrap());
        });
    }

    /// The hive was not written out whole: its two sequence numbers differ, and there is no log.
    pub fn with_dirty_hive(self, hive: &str) -> Self {
        self.edit_volume(|volume| {
            let mut bytes = volume.cat(hive);
            let first = u32::from_le_bytes(bytes[4..8].try_into().unwrap());
            bytes[4..8].copy_from_slice(&(first + 1).to_le_bytes());
            let sum = bytes[..508]
                .chunks(4)
                .fold(0, |sum, word| sum ^ u32::from_le_bytes(word.try_into().unwrap()));
            bytes[508..512].copy_from_slice(&sum.to_le_bytes());
            volume.put(hive, &bytes);
        })
    }

    /// Windows is to check the volume at its next start.
    pub fn with_dirty_volume(self) -> Self {
        self.edit_volume(|volume| {
            run(Command::new("ntfsfix").arg(&volume.path));
        })
    }

    /// Windows sleeps in hiberfil.sys.
    pub fn hibernated(self) -> Self {
        let mut sleeping = vec![0x5A; 64 * 1024];
        sleeping[..4].copy_from_slice(b"hibr");
        self.file("hiberfil.sys", &sleeping)
    }

    /// $Bitmap calls a file's clusters free, as after a disk error.
    pub fn with_clusters_called_free(self, path: &str) -> Self {
        self.edit_volume(|volume| {
            let mut bitmap = volume.cat_inode(6);
            let runs = run(Command::new("ntfscluster").args(["-f", "-F", path]).arg(&volume.path)).stdout;
            let mut cleared = 0;
            // Of the unnamed $DATA: file cluster, volume cluster, length.
            for line in String::from_utf8(runs).unwrap().lines() {
                let numbers: Option<Vec<u64>> = line.split_whitespace().map(|n| n.parse().ok()).collect();
                let Some([_, start, length]) = numbers.as_deref() else { continue };
                for cluster in *start..start + length {
                    bitmap[(cluster / 8) as usize] &= !(1 << (cluster % 8));
                    cleared += 1;
                }
            }
            assert!(cleared > 0, "ntfscluster named no clusters of {path}");
            let file = volume.folder.path().join("bitmap");
            fs::write(&file, bitmap).unwrap();
            run(Command::new("ntfscp").args(["-q", "-f", "-i"]).arg(&volume.path).arg(&file).arg("6"));
        })
    }

    /// $LogFile is as Windows leaves it: cleanly dismounted, or (`clean` false) in use when the power went.
    /// `major` is 1, or 2 after a fast startup's shutdown: then Windows has not let go of the volume.
    pub fn with_log(self, major: u16, clean: bool) -> Self {
        self.edit_volume(|volume| {
            let mut log = volume.cat_inode(2);
            let size = log.len() as u64;
            for page in 0..2 {
                log[page * 4096..][..4096].copy_from_slice(&restart_page(size, major, clean));
            }
            let file = volume.folder.path().join("log");
            fs::write(&file, log).unwrap();
            run(Command::new("ntfscp").args(["-q", "-f", "-i"]).arg(&volume.path).arg(&file).arg("2"));
        })
    }

    /// BitLocker's signature in place of NTFS's.
    pub fn with_bitlocker(self) -> Self {
        let volume = Volume::of(&self.path);
        let disk = OpenOptions::new().write(true).open(&self.path).unwrap();
        disk.write_all_at(b"-FVE-FS-", volume.start + 3).unwrap();
        self
    }

    /// Windows Setup left its answer file, with a password in it.
    pub fn with_cached_answer(self) -> Self {
        self.file("Windows/Panther/unattend.xml", ANSWER_WITH_PASSWORD.as_bytes())
    }

    /// A file of the NTFS volume: replaced, or new in a folder that is there.
    pub fn file(self, path: &str, bytes: &[u8]) -> Self {
        self.edit_volume(|volume| volume.put(path, bytes))
    }

    /// `bytes` are at the start of a cluster that $Bitmap calls free, as a deleted file's are.
    pub fn with_deleted_bytes(self, bytes: &[u8]) -> Self {
        assert!(bytes.len() <= CLUSTER as usize);
        let volume = Volume::of(&self.path);
        let bitmap = volume.cat_inode(6);
        let free = (bitmap.len() / 2..bitmap.len()).find(|at| bitmap[*at] == 0).expect("no free clusters");
        let disk = OpenOptions::new().write(true).open(&self.path).unwrap();
        disk.write_all_at(bytes, volume.start + free as u64 * 8 * CLUSTER).unwrap();
        self
    }

    /// The same partitions in an MBR, the first one active, and no GPT. 512-byte sectors only.
    pub fn with_mbr(self) -> Self {
        let disk = OpenOptions::new().read(true).write(true).open(&self.path).unwrap();
        let sectors = disk.metadata().unwrap().len() / 512;
        let partitions = partitions(&disk);
        let mut mbr = [0; 512];
        for (n, (at, (start, length))) in [(0x80, partitions[0]), (0, partitions[2])].into_iter().enumerate()
        {
            let entry = &mut mbr[446 + n * 16..][..16];
            entry.copy_from_slice(&[at, 0xFE, 0xFF, 0xFF, 0, 0xFE, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0]);
            entry[4] = if n == 0 { 0x0C } else { 0x07 };
            entry[8..12].copy_from_slice(&u32::try_from(start / 512).unwrap().to_le_bytes());
            entry[12..16].copy_from_slice(&u32::try_from(length / 512).unwrap().to_le_bytes());
        }
        mbr[440..444].copy_from_slice(&[0x5E, 0xA1, 0xED, 0x01]);
        mbr[510..].copy_from_slice(&[0x55, 0xAA]);
        disk.write_all_at(&vec![0; 34 * 512], 0).unwrap();
        disk.write_all_at(&vec![0; 33 * 512], (sectors - 33) * 512).unwrap();
        disk.write_all_at(&mbr, 0).unwrap();
        self
    }

    /// Lets `edit` change the NTFS volume, then writes what changed back into the disk.
    pub fn edit_volume(self, edit: impl FnOnce(&Volume)) -> Self {
        self.change_volume(edit);
        self
    }

    fn change_volume(&self, edit: impl FnOnce(&Volume)) {
        let volume = Volume::of(&self.path);
        edit(&volume);
        let from = File::open(&volume.path).unwrap();
        let to = OpenOptions::new().read(true).write(true).open(&self.path).unwrap();
        copy_what_differs(&from, 0, &to, volume.start, from.metadata().unwrap().len());
    }
}

/// Bytes copied at a time.
const CHUNK: usize = 64 * 1024;
/// Cluster size of every volume that `make-root.sh` makes.
const CLUSTER: u64 = 4096;

/// The last partition of a disk (where Windows is), taken out into a file for ntfs-3g's tools.
pub struct Volume {
    folder: TempDir,
    path: PathBuf,
    start: u64,
}

impl Volume {
    /// Takes it out of a raw or a qcow2 disk, by GPT or MBR.
    pub fn of(disk: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("volume.img");
        let raw = folder.path().join("disk.raw");
        let mut magic = [0; 4];
        File::open(disk).unwrap().read_exact_at(&mut magic, 0).unwrap();
        let source = if &magic == b"QFI\xfb" {
            run(Command::new("qemu-img").args(["convert", "-O", "raw"]).arg(disk).arg(&raw));
            File::open(&raw).unwrap()
        } else {
            File::open(disk).unwrap()
        };
        let &(start, length) = partitions(&source).last().unwrap();
        let volume = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        volume.set_len(length).unwrap();
        copy_what_differs(&source, start, &volume, 0, length);
        drop(fs::remove_file(raw));
        Self { folder, path, start }
    }

    /// The file that holds the volume.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes from the start of the disk to the volume.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// A file's bytes, by ntfscat.
    pub fn cat(&self, path: &str) -> Vec<u8> {
        run(Command::new("ntfscat").arg("-f").arg(&self.path).arg(path)).stdout
    }

    /// As `cat`, by number: 2 is $LogFile, 6 $Bitmap.
    pub fn cat_inode(&self, inode: u32) -> Vec<u8> {
        run(Command::new("ntfscat").args(["-f", "-i", &inode.to_string()]).arg(&self.path)).stdout
    }

    /// Every path, by ntfsls: folders end in `/`.
    pub fn list(&self) -> Vec<String> {
        let listed = run(Command::new("ntfsls").args(["-f", "-R", "-F", "-p", "/"]).arg(&self.path));
        let (mut folder, mut paths) = (String::new(), Vec::new());
        for line in String::from_utf8(listed.stdout).unwrap().lines() {
            match line.strip_prefix('/').and_then(|header| header.strip_suffix(':')) {
                Some(header) => folder = header.to_owned(),
                None if ["", "./", "../"].contains(&line) => {}
                None => paths.push(format!("{folder}{line}")),
            }
        }
        paths
    }

    /// Whether a file or folder is there, by ntfsls.
    pub fn has(&self, path: &str) -> bool {
        let found = Command::new("ntfsls").args(["-f", "-p", &format!("/{path}")]).arg(&self.path).output();
        found.expect("ntfsls (package ntfs-3g) is needed").status.success()
    }

    /// A value as text, by hivexget.
    pub fn hive_value(&self, hive: &str, key: &str, value: &str) -> String {
        let found = self.hivexget(hive, key, value);
        assert!(found.status.success(), "hivexget: {}", String::from_utf8_lossy(&found.stderr));
        String::from_utf8(found.stdout).unwrap().trim_end_matches('\n').to_owned()
    }

    /// Whether hivexget finds the value.
    pub fn has_hive_value(&self, hive: &str, key: &str, value: &str) -> bool {
        self.hivexget(hive, key, value).status.success()
    }

    fn hivexget(&self, hive: &str, key: &str, value: &str) -> Output {
        let file = self.folder.path().join("hive");
        fs::write(&file, self.cat(hive)).unwrap();
        let mut command = Command::new("hivexget");
        command.arg(file).args([key, value]).output().expect("hivexget (package libhivex-bin) is needed")
    }

    /// Whether the volume's clusters add up, by ntfsresize.
    pub fn clusters_agree(&self) -> bool {
        let mut command = Command::new("ntfsresize");
        let checked = command.args(["-i", "-f"]).arg(&self.path).output();
        checked.expect("ntfsresize (package ntfs-3g) is needed").status.success()
    }

    pub fn put(&self, path: &str, bytes: &[u8]) {
        let file = self.folder.path().join("content");
        fs::write(&file, bytes).unwrap();
        run(Command::new("ntfscp").args(["-q", "-f"]).arg(&self.path).arg(&file).arg(path));
    }
}

/// Runs a tool that must succeed.
pub fn run(command: &mut Command) -> Output {
    let output =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error} (tests/run.sh installs it)"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    output
}

/// Makes `length` bytes of `to` those of `from`, leaving holes where nothing changes.
fn copy_what_differs(from: &File, from_at: u64, to: &File, to_at: u64, length: u64) {
    let (mut new, mut old) = (vec![0; CHUNK], vec![0; CHUNK]);
    for at in (0..length).step_by(CHUNK) {
        let size = CHUNK.min((length - at) as usize);
        from.read_exact_at(&mut new[..size], from_at + at).unwrap();
        to.read_exact_at(&mut old[..size], to_at + at).unwrap();
        if new[..size] != old[..size] {
            to.write_all_at(&new[..size], to_at + at).unwrap();
        }
    }
}

/// Start and length in bytes of each partition, in the order of the table.
fn partitions(disk: &File) -> Vec<(u64, u64)> {
    let read = |at: u64, length: usize| {
        let mut bytes = vec![0; length];
        disk.read_exact_at(&mut bytes, at).unwrap();
        bytes
    };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    for sector in [512, 4096] {
        if read(sector, 8) == b"EFI PART" {
            let table = read(2 * sector, 128 * 128);
            let used = table.chunks(128).filter(|entry| entry[..16] != [0; 16]);
            let range = |entry: &[u8]| (number(&entry[32..40]), number(&entry[40..48]));
            return used.map(range).map(|(a, b)| (a * sector, (b + 1 - a) * sector)).collect();
        }
    }
    let mbr = read(0, 512);
    let used = mbr[446..510].chunks(16).filter(|entry| entry[4] != 0);
    used.map(|entry| (number(&entry[8..12]) * 512, number(&entry[12..16]) * 512)).collect()
}

/// The disk that `make-root.sh` makes of these options, made once and kept while the scripts stay the same.
fn made_once(options: &[&str]) -> PathBuf {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(kept).unwrap();
    let mut sources: Vec<PathBuf> =
        fs::read_dir(&scripts).unwrap().map(|entry| entry.unwrap().path()).collect();
    sources.retain(|path| path.extension().is_some_and(|end| end == "sh" || end == "py"));
    sources.sort();
    let mut key = DefaultHasher::new();
    options.hash(&mut key);
    sources.iter().for_each(|path| fs::read(path).unwrap().hash(&mut key));
    let disk = kept.join(format!("root-{:016x}.raw", key.finish()));
    let lock = File::create(disk.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    if !disk.exists() {
        run(Command::new("bash").arg(scripts.join("make-root.sh")).arg(&disk).args(options));
    }
    disk
}

/// A restart page of $LogFile, after linux-ntfs's description of it.
fn restart_page(log_size: u64, major: u16, clean: bool) -> [u8; 4096] {
    let mut page = [0; 4096];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"RSTR");
    put(4, &0x1E_u16.to_le_bytes()); // fix-up array: at, and words (one for the sequence, one a sector)
    put(6, &9_u16.to_le_bytes());
    put(16, &4096_u32.to_le_bytes()); // system page, log page
    put(20, &4096_u32.to_le_bytes());
    put(24, &0x30_u16.to_le_bytes()); // restart area
    put(26, &u16::from(major == 1).to_le_bytes()); // versions 1.1 and 2.0
    put(28, &major.to_le_bytes());
    put(0x1E, &1_u16.to_le_bytes());
    let area = 0x30;
    put(area + 8, &1_u16.to_le_bytes()); // clients
    let (free, in_use) = if clean { (0_u16, 0xFFFF_u16) } else { (0xFFFF, 0) };
    put(area + 10, &free.to_le_bytes());
    put(area + 12, &in_use.to_le_bytes());
    put(area + 14, &(if clean { 2_u16 } else { 0 }).to_le_bytes()); // RESTART_VOLUME_IS_CLEAN
    put(area + 16, &(67 - (64 - log_size.leading_zeros())).to_le_bytes()); // bits of a sequence number
    put(area + 20, &(0x40_u16 + 160).to_le_bytes()); // length of the area with its one client
    put(area + 22, &0x40_u16.to_le_bytes());
    put(area + 24, &log_size.to_le_bytes());
    put(area + 36, &0x30_u16.to_le_bytes()); // record header, page data
    put(area + 38, &0x40_u16.to_le_bytes());
    let client = area + 0x40;
    put(client + 16, &[0xFF; 4]); // no client before or after
    put(client + 28, &8_u32.to_le_bytes());
    put(client + 32, &[b'N', 0, b'T', 0, b'F', 0, b'S', 0]);
    for sector in 0..8 {
        let end = sector * 512 + 510;
        let kept = [page[end], page[end + 1]];
        page[0x20 + sector * 2..][..2].copy_from_slice(&kept);
        page[end..end + 2].copy_from_slice(&1_u16.to_le_bytes());
    }
    page
}
