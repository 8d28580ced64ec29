//! The XML of an archive whose header is right: any text, or bytes that are none.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealroot::media::wim::Wim;

/// Bytes of a header.
const HEADER: usize = 208;

fuzz_target!(|input: &[u8]| {
    let Some((kind, text)) = input.split_last() else { return };
    // Text as such changes more easily than its UTF-16; as it stands, it may be no UTF-16 at all.
    let xml = if kind & 1 == 0 {
        let units = String::from_utf8_lossy(text).encode_utf16().flat_map(u16::to_le_bytes).collect();
        [b"\xff\xfe".to_vec(), units].concat()
    } else {
        text.to_vec()
    };
    let images = String::from_utf8_lossy(text).matches("<IMAGE").count() as u32;
    let mut archive = vec![0; HEADER];
    let mut put = |at: usize, bytes: &[u8]| archive[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"MSWIM\0\0\0");
    put(8, &(HEADER as u32).to_le_bytes());
    put(12, &0x10d00u32.to_le_bytes());
    put(40, &[1, 0, 1, 0]);
    put(44, &images.to_le_bytes());
    put(72, &(xml.len() as u64).to_le_bytes());
    put(80, &(HEADER as u64).to_le_bytes());
    put(88, &(xml.len() as u64).to_le_bytes());
    archive.extend(xml);
    match Wim::read(&archive) {
        Ok(wim) => {
            assert_eq!(wim.images.len(), images as usize);
            for (image, index) in wim.images.iter().zip(1..) {
                assert_eq!(image.index, index);
                assert!(!image.is_installable() || image.edition_id.is_some());
                assert_eq!(image.build().is_some(), image.version.is_some());
            }
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
});
