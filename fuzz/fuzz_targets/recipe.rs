//! A recipe is a file from anywhere: whatever it holds, there is a recipe or a list of problems that can be shown.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use sealroot::recipe;

fuzz_target!(|input: (&[u8], Vec<(String, String)>, &[u8])| {
    let (bytes, overrides, included) = input;
    let overrides: Vec<_> =
        overrides.iter().filter_map(|(key, value)| format!("{key}={value}").parse().ok()).collect();
    if let Err(problems) = recipe::parse(Path::new("fuzz.toml"), bytes, &overrides, &|_| Ok(included.to_vec())) {
        assert!(!problems.problems.is_empty());
        let _ = problems.to_string();
    }
});
