//! The volume and the disc images that targets edit are made once, and compiled in.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=volume.sh");
    println!("cargo::rerun-if-changed=volume.py");
    println!("cargo::rerun-if-changed=discs.sh");
    println!("cargo::rerun-if-changed=../fixtures/udf_disc.py");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for (script, made) in [("volume.sh", "volume"), ("discs.sh", "discs")] {
        let status = Command::new("bash").arg(script).arg(out.join(made)).status().expect("bash runs");
        assert!(status.success(), "{script} failed; does it find the tools that tests/run.sh installs?");
    }
}
