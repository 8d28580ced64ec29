//! A loop device over a file, until dropped.

use std::path::Path;
use std::process::Command;

pub struct LoopDevice {
    path: String,
}

impl LoopDevice {
    /// Nothing, and a word about it, where none can be made: that takes root.
    pub fn of(file: &Path, options: &[&str]) -> Option<Self> {
        let made =
            Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output().unwrap();
        if made.status.success() {
            return Some(Self { path: String::from_utf8(made.stdout).unwrap().trim_end().to_owned() });
        }
        println!("skipped: no loop device can be made here: {}", String::from_utf8_lossy(&made.stderr));
        None
    }

    pub fn path(&self) -> &str {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.path]).status();
    }
}
