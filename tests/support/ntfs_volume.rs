//! NTFS volumes in files, made by mkntfs and filled through ntfs-3g.
// A test file uses the part of this that it needs.
#![allow(dead_code)]
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub fn run(program: &str, args: &[&str]) -> Vec<u8> {
    let output = Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {stderr}");
    output.stdout
}

pub fn path_str(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// An empty NTFS volume in a file.
pub fn make_volume(folder: &Path, size: u64, options: &[&str]) -> PathBuf {
    let image = folder.join("volume.img");
    fs::File::create(&image).unwrap().set_len(size).unwrap();
    let mut args = vec!["-q", "-Q", "-F", "-p", "2048", "-H", "255", "-S", "63"];
    args.extend(options);
    args.push(path_str(&image));
    run("mkntfs", &args);
    image
}

/// A volume mounted by ntfs-3g in the foreground, unmounted when dropped.
pub struct Mounted {
    child: Child,
    pub point: PathBuf,
}

impl Mounted {
    pub fn new(image: &Path, options: &str) -> Self {
        let point = image.with_extension("mnt");
        fs::create_dir_all(&point).unwrap();
        let child = Command::new("ntfs-3g")
            .args(["-o", &format!("no_detach,silent,streams_interface=xattr{options}")])
            .args([image, &point])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mounted = Self { child, point };
        let deadline = Instant::now() + Duration::from_secs(20);
        while !fs::read_to_string("/proc/self/mounts").unwrap().contains(path_str(&mounted.point)) {
            assert!(Instant::now() < deadline, "ntfs-3g did not mount");
            std::thread::sleep(Duration::from_millis(20));
        }
        mounted
    }

    pub fn write(&self, path: &str, content: &[u8]) {
        let path = self.point.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn unmount(mut self) {
        // A process that another test starts at this moment may hold the mount until it has become that program.
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let done = Command::new("fusermount3").args(["-u", path_str(&self.point)]).output().unwrap();
            if done.status.success() {
                break;
            }
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(said.contains("busy") && Instant::now() < deadline, "fusermount3: {said}");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.child.wait().unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            let _ = Command::new("fusermount3").args(["-u", "-z", path_str(&self.point)]).status();
            let _ = self.child.wait();
        }
    }
}

/// Bytes that differ everywhere.
pub fn noise(seed: u32, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    })
    .take(length)
    .collect()
}

/// Fills the volume with small files, then empties every second one: free space in many small holes, and
/// no file record that could be used again.
pub fn leave_holes(mounted: &Mounted, hole: usize) {
    let pads = mounted.point.join("pad");
    fs::create_dir_all(&pads).unwrap();
    let mut made = 0;
    while fs::write(pads.join(made.to_string()), vec![0xaa; hole]).is_ok() {
        made += 1;
    }
    for number in (0..made).step_by(2) {
        fs::OpenOptions::new().write(true).open(pads.join(number.to_string())).unwrap().set_len(0).unwrap();
    }
}
