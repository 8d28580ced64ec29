//! An archive is a file from a medium: whatever it holds, there are its images or an error that can be shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealroot::io::ReadAt;
use sealroot::media::wim::{Header, Wim};

fuzz_target!(|bytes: &[u8]| {
    let archive = bytes.to_vec();
    let part: &dyn ReadAt = &archive;
    match Wim::read(part) {
        Ok(wim) => {
            assert_eq!(Header::read(part).ok().as_ref(), Some(&wim.header));
            assert_eq!(wim.images.len(), wim.header.image_count as usize);
            assert!(wim.images.iter().zip(1..).all(|(image, index)| image.index == index));
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
    // One part can't be two.
    if let Ok(wim) = Wim::read_split(&[Some(part), Some(part)]) {
        assert_eq!(wim.header.parts, (1, 1));
    }
});
