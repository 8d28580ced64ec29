//! Archives made by hand: what wimlib makes is read in `tests/media_inspect.rs`.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

/// An archive with a header and nothing but this XML.
fn archive(xml: &str) -> Vec<u8> {
    let mut text = vec![0xff, 0xfe];
    text.extend(xml.encode_utf16().flat_map(u16::to_le_bytes));
    let mut bytes = vec![0; 208];
    bytes[..8].copy_from_slice(b"MSWIM\0\0\0");
    bytes[8..12].copy_from_slice(&208u32.to_le_bytes());
    bytes[12..16].copy_from_slice(&0x10d00u32.to_le_bytes());
    bytes[24..40].copy_from_slice(&(1..=16).collect::<Vec<u8>>());
    bytes[40..44].copy_from_slice(&[1, 0, 1, 0]);
    let images = xml.matches("<IMAGE").count() as u32;
    bytes[44..48].copy_from_slice(&images.to_le_bytes());
    bytes[72..80].copy_from_slice(&(text.len() as u64 | 2 << 56).to_le_bytes());
    bytes[80..88].copy_from_slice(&208u64.to_le_bytes());
    bytes[88..96].copy_from_slice(&(text.len() as u64).to_le_bytes());
    bytes.extend(text);
    bytes
}

const PRO: &str = "<WIM><TOTALBYTES>1</TOTALBYTES><IMAGE INDEX=\"1\"><NAME>Windows 10 Pro</NAME>\
    <DISPLAYNAME>Windows 11 Pro</DISPLAYNAME><WINDOWS><ARCH>9</ARCH><EDITIONID>Professional</EDITIONID>\
    <LANGUAGES><LANGUAGE>en-US</LANGUAGE><LANGUAGE>de-DE</LANGUAGE><DEFAULT>en-US</DEFAULT></LANGUAGES>\
    <VERSION><MAJOR>10</MAJOR><BUILD>26100</BUILD><SPBUILD>1742</SPBUILD></VERSION></WINDOWS></IMAGE></WIM>";

fn error(bytes: Vec<u8>) -> String {
    Wim::read(&bytes).unwrap_err().to_string()
}

#[test]
fn an_image_is_what_the_xml_says() {
    let wim = Wim::read(&archive(PRO)).unwrap();
    let image = &wim.images[0];
    assert_eq!(image.name, "Windows 10 Pro");
    assert_eq!(image.display_name.as_deref(), Some("Windows 11 Pro"));
    assert_eq!(image.architecture.unwrap().name(), "amd64");
    assert_eq!(image.languages, ["en-US", "de-DE"]);
    assert_eq!(image.build().as_deref(), Some("26100.1742"));
    assert!(image.is_installable());
    assert_eq!(wim.header.guid.to_string(), "04030201-0605-0807-090a-0b0c0d0e0f10");
    // What is missing is missing; it is no reason to refuse the rest.
    let bare = Wim::read(&archive("<WIM><IMAGE INDEX='1'/></WIM>")).unwrap();
    assert!(!bare.images[0].is_installable());
    assert_eq!(bare.images[0].build(), None);
}

#[test]
fn what_can_t_be_is_an_error_with_its_place() {
    let with = |at: usize, bytes: &[u8]| {
        let mut archive = archive(PRO);
        archive[at..at + bytes.len()].copy_from_slice(bytes);
        archive
    };
    assert!(error(vec![0; 300]).contains("does not begin with MSWIM"));
    assert!(error(archive(PRO)[..100].to_vec()).contains("does not begin with MSWIM"));
    for (at, bytes, why) in [
        (8, [0xd1].as_slice(), "offset 8: its length"),
        (12, &[1], "offset 12: its version"),
        (40, &[0, 0], "offset 40: its part number"),
        (40, &[2, 0], "offset 40: its part number"),
        (79, &[0x06], "offset 79: the XML is flagged"),
        (79, &[0x0a], "offset 79: the XML is flagged"),
        (79, &[0x12], "offset 79: the XML is flagged"),
        (88, &[0], "offset 88: the XML's two lengths differ"),
        (80, &[100], "offset 80: the XML lies in the header"),
        (80, &[0xff; 8], "offset 80: the XML lies past the end"),
        (80, &[7, 0], "offset 80: the XML lies in the header"),
        (44, &[2], "offset 208: it describes 1 images, the header counts 2"),
        (208, &[0], "offset 208: it does not begin as UTF-16LE"),
    ] {
        let said = error(with(at, bytes));
        assert!(said.contains(why), "{said}");
    }
    let mut huge = with(72, &[0, 0, 0, 1, 0]);
    huge[88..96].copy_from_slice(&(1u64 << 24).to_le_bytes());
    assert!(error(huge).contains("offset 72: the XML is larger"));
    for (xml, why) in [
        ("<!DOCTYPE WIM [<!ENTITY a 'b'>]><WIM>&a;</WIM>", "a document type has no place"),
        ("<WIN/>", "its root is not WIM"),
        ("<WIM><IMAGE/></WIM>", "an image has no index"),
        ("<WIM><IMAGE INDEX='2'/></WIM>", "not counted from 1"),
        ("<WIM><IMAGE INDEX='1'/><IMAGE INDEX='1'/></WIM>", "not counted from 1"),
        ("<WIM><IMAGE INDEX='1'>", "ends too early"),
    ] {
        let said = error(archive(xml));
        assert!(said.contains(why), "{said}");
    }
    let many = format!("<WIM>{}</WIM>", "<IMAGE INDEX='1'/>".repeat(300));
    assert!(error(archive(&many)).contains("more than 256 images"));
}

#[test]
fn a_split_archive_needs_all_its_parts() {
    let part = |number: u8, total: u8, guid: u8| {
        let mut bytes = archive(PRO);
        bytes[24] = guid;
        bytes[40..44].copy_from_slice(&[number, 0, total, 0]);
        bytes
    };
    let read = |parts: &[Option<Vec<u8>>]| {
        let parts: Vec<_> = parts.iter().map(|part| part.as_ref().map(|part| part as &dyn ReadAt)).collect();
        let wim = Wim::read_split(&parts);
        wim.map(|wim| wim.images.len()).map_err(|e| e.to_string())
    };
    let some = |number, total, guid| Some(part(number, total, guid));
    assert_eq!(read(&[some(1, 2, 7), some(2, 2, 7)]), Ok(1));
    // More than there should be is nobody's.
    assert_eq!(read(&[some(1, 2, 7), some(2, 2, 7), some(3, 3, 8)]), Ok(1));
    for (parts, why) in [
        (vec![some(1, 2, 7)], "part 2 of 2 is missing"),
        (vec![some(1, 4, 7), None, some(3, 4, 7)], "parts 2, 4 of 4 are missing"),
        (vec![some(1, 2, 7), some(2, 2, 8)], "part 2 of 2 belongs to another archive: its GUID is 04030208-"),
        (vec![some(2, 2, 7), some(1, 2, 7)], "what should be part 1 of 2 says that it is part 2 of 2"),
        (vec![some(1, 2, 7), some(2, 3, 7)], "what should be part 2 of 2 says that it is part 2 of 3"),
        (vec![some(1, 2, 7), Some(vec![0; 300])], "it does not begin with MSWIM"),
        (vec![None, some(2, 2, 7)], "part 1 is missing"),
        (vec![some(1, 65, 7)], "it says that it has 65 parts; 64 are read"),
    ] {
        let said = read(&parts).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
    assert!(error(part(1, 2, 7)).contains("part 1 of 2 of a split archive"));
}

#[test]
fn as_much_xml_as_is_read_takes_no_time() {
    // Each of nearly 4 MiB, as UTF-16.
    let elements = format!("<WIM>{}</WIM>", "<a/>".repeat(500_000));
    let attributes: String = (0..180_000).map(|n| format!(" a{n:06x}=''")).collect();
    let deep = format!("<WIM>{}", "<a>".repeat(600_000));
    let begun = std::time::Instant::now();
    for xml in [elements, format!("<WIM{attributes}/>"), deep] {
        let _ = Wim::read(&archive(&xml));
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}

proptest! {
    #[test]
    fn every_name_comes_back(name in "\\PC{1,40}") {
        prop_assume!(!name.trim().is_empty() && name.chars().all(crate::xml::is_xml_char));
        let escaped = quick_xml::escape::escape(&name);
        let xml = format!("<WIM><IMAGE INDEX='1'><NAME>{escaped}</NAME><DISPLAYNAME>{escaped}</DISPLAYNAME></IMAGE></WIM>");
        let wim = Wim::read(&archive(&xml)).unwrap();
        prop_assert_eq!(&wim.images[0].name, &name);
        prop_assert_eq!(wim.images[0].display_name.as_ref(), Some(&name));
    }

    #[test]
    fn any_damage_is_an_error_or_an_archive(
        edits in proptest::collection::vec((0..1500usize, any::<u8>()), 1..8),
        length in 0..1500usize,
    ) {
        let mut bytes = archive(PRO);
        for (at, byte) in edits {
            if let Some(there) = bytes.get_mut(at) {
                *there = byte;
            }
        }
        bytes.truncate(length.max(100));
        let _ = Wim::read(&bytes);
    }
}
