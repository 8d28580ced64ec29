//! A UDF image with any bytes of it changed, and its tags mended or not: its directories and the ends of its files.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealroot_fuzz::discs;

fuzz_target!(|input: &[u8]| {
    discs::look_around(&discs::edited(discs::UDF, input, discs::mend_tags));
});
