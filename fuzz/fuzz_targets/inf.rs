//! An INF is a file from a medium: whatever it holds, there is a driver package or an error that can be shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealroot::media::driver::Inf;

fuzz_target!(|bytes: &[u8]| {
    match Inf::parse(bytes) {
        Ok(inf) => {
            let _ = inf.catalog("amd64");
            assert!(inf.files_for("amd64").count() <= inf.files.len());
            for file in &inf.files {
                assert!(!file.path.is_empty() && !file.path.starts_with('\\'));
            }
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
});
