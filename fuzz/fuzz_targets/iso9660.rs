//! An ISO 9660 image with any bytes of it changed: whichever of its trees is read, its directories and files.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealroot_fuzz::discs;

fuzz_target!(|input: &[u8]| {
    discs::look_around(&discs::edited(discs::ISO9660, input, |_| {}));
});
