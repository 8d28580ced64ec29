//! Who has a block device, as Linux tells: mounts, swap, device mapper, RAID, loop devices.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

/// A device or one of its partitions.
struct Node {
    name: String,
    number: String,
    sys: PathBuf,
}

/// Whether the device at `path` is a partition of another.
pub(super) fn is_partition(path: &Path) -> bool {
    sys_of(path).is_some_and(|sys| sys.join("partition").exists())
}

/// The logical sector size of the device at `path`, in bytes.
pub(super) fn sector_size(path: &Path) -> Option<u32> {
    number_in(&sys_of(path)?.join("queue/logical_block_size"))
}

/// Who has the device at `path`, or a partition of it, in words; empty where nobody is known to.
pub(super) fn of(path: &Path) -> Vec<String> {
    let Some(sys) = sys_of(path) else { return Vec::new() };
    let nodes: Vec<_> = std::iter::once(sys.clone()).chain(partitions(&sys)).filter_map(node).collect();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let mut by = Vec::new();
    for node in &nodes {
        let device = Path::new("/dev").join(&node.name);
        let named = |text: &str| Path::new(text).canonicalize().is_ok_and(|path| path == device);
        for line in mounts.lines() {
            if let Some((number, point, source)) = mount(line)
                && (number == node.number || source.starts_with('/') && named(source))
            {
                by.push(format!("{} is mounted at {}", device.display(), unescaped(point)));
            }
        }
        if swaps.lines().skip(1).any(|line| line.split_whitespace().next().is_some_and(named)) {
            by.push(format!("{} is swap space", device.display()));
        }
        for holder in names(&node.sys.join("holders")) {
            let mapped = fs::read_to_string(format!("/sys/block/{holder}/dm/name")).unwrap_or_default();
            let mapped = if mapped.is_empty() { String::new() } else { format!(" ({})", mapped.trim_end()) };
            by.push(format!("{} is part of {holder}{mapped}", device.display()));
        }
        if let Some(looped) = crate::disk::lock::loop_device(&device) {
            by.push(format!("{} is behind {}", device.display(), looped.display()));
        }
    }
    by
}

fn sys_of(path: &Path) -> Option<PathBuf> {
    let number = path.metadata().ok()?.rdev();
    Path::new(&format!("/sys/dev/block/{}:{}", major(number), minor(number))).canonicalize().ok()
}

fn partitions(sys: &Path) -> Vec<PathBuf> {
    let below = names(sys).into_iter().map(|name| sys.join(name));
    below.filter(|path| path.join("partition").exists()).collect()
}

fn node(sys: PathBuf) -> Option<Node> {
    let number = fs::read_to_string(sys.join("dev")).ok()?.trim_end().to_owned();
    // A slash in a device's name is an exclamation mark here.
    let name = sys.file_name()?.to_str()?.replace('!', "/");
    Some(Node { name, number, sys })
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn number_in(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim_end().parse().ok()
}

/// Device number, mount point and source of a line of mountinfo (proc(5)).
fn mount(line: &str) -> Option<(&str, &str, &str)> {
    let mut fields = line.split(' ');
    let (number, point) = (fields.nth(2)?, fields.nth(1)?);
    let source = line.split_once(" - ")?.1.split(' ').nth(1)?;
    Some((number, point, source))
}

/// Mountinfo writes spaces and the like in octal.
fn unescaped(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_taken_apart() {
        let line = "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        assert_eq!(mount(line), Some(("98:0", "/mnt\\0402", "/dev/root")));
        assert_eq!(unescaped("/mnt\\0402"), "/mnt 2");
        assert_eq!(mount("nonsense"), None);
    }
}
