//! The volume that the target "ntfs" edits is made once, and compiled in.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=volume.sh");
    println!("cargo::rerun-if-changed=volume.py");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("volume");
    let made = Command::new("bash").arg("volume.sh").arg(&out).status().expect("bash runs");
    assert!(made.success(), "volume.sh failed; does it find mkntfs, wimlib-imagex, ntfsinfo and FUSE?");
}
