//! Setting and removing values in a small hive.

use super::super::{Editor, Hive, HiveError, PageCache, ValueKind};
use super::judges::{Tree, hivexget, hivexregedit, ours, reged};
use super::{edited, empty_hive, hivexsh, small_system};

const POINTER: &str = "D:\\autounattend.xml";

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn with(tree: &Tree, key: &str, name: &str, kind: u32, data: &[u8]) -> Tree {
    let mut tree = tree.clone();
    tree.insert((key.into(), Some(name.into())), (kind, data.to_vec()));
    tree
}

#[test]
fn a_new_string_is_read_back_by_every_judge() {
    let file = small_system();
    let after = edited(&file, |e| e.set_string("setup", "UnattendFile", POINTER)).unwrap();
    assert_eq!(hivexget(&after, "Setup", "UnattendFile"), POINTER);
    assert!(reged(&after, "Setup").contains("\"UnattendFile\"=\"D:\\\\autounattend.xml\""));
    let expected = with(&hivexregedit(&file), "Setup", "UnattendFile", 1, &utf16("D:\\autounattend.xml\0"));
    assert_eq!(hivexregedit(&after), expected);
    assert_eq!(ours(&after), expected);

    let removed = edited(&after, |e| {
        assert!(e.remove("Setup", "UNATTENDFILE")?);
        assert!(!e.remove("Setup", "UnattendFile")?);
        Ok(())
    })
    .unwrap();
    assert_eq!(hivexregedit(&removed), hivexregedit(&file));
}

#[test]
fn values_take_any_size_in_turn() {
    let file = small_system();
    let mut tree = hivexregedit(&file);
    let mut now = [file.clone(), vec![0; 16 << 20]].concat();
    let long: Vec<u8> = (0..70_000u32).map(|i| (i % 253) as u8).collect();
    for (kind, data) in [
        (ValueKind::SZ, utf16("short\0")),
        (ValueKind::SZ, utf16(&"longer ".repeat(40))),
        (ValueKind::BINARY, long[..16344].to_vec()),
        (ValueKind::BINARY, long[..16345].to_vec()),
        (ValueKind::BINARY, long.clone()),
        (ValueKind::BINARY, long[1..2 * 16344 + 1].to_vec()),
        (ValueKind::DWORD, vec![1, 2, 3, 4]),
        (ValueKind::MULTI_SZ, utf16("a\0b\0\0")),
        (ValueKind::NONE, vec![]),
        (ValueKind::BINARY, vec![9]),
        (ValueKind(0x1234), vec![7; 5]),
        (ValueKind::QWORD, vec![8; 8]),
        (ValueKind::EXPAND_SZ, utf16("%x%\0")),
    ] {
        now = edited(&now, |e| e.set("Setup\\Status", "Bytes", kind, &data)).unwrap();
        tree = with(&tree, "Setup\\Status", "Bytes", kind.0, &data);
        assert!(ours(&now) == tree, "{kind}, {} bytes", data.len());
        assert!(hivexregedit(&now) == tree, "{kind}, {} bytes", data.len());
    }
    let empty = edited(&now, |e| e.remove("Setup\\Status", "Bytes").map(|_| ())).unwrap();
    tree.remove(&("Setup\\Status".into(), Some("Bytes".into())));
    assert_eq!(hivexregedit(&empty), tree);
}

#[test]
fn typed_reads_fit_what_was_written() {
    let file = hivexsh(
        "add K\ncd K\nsetval 5\ns\nstring:text\ne\nexpandstring:%a%\nm\nhex:7:61,00,00,00,62,00,63,00,00,00,00,00\n\
         d\ndword:0x12345678\nb\nhex:5:12,34,56,78",
    );
    let file = edited(&file, |e| {
        e.set("K", "open", ValueKind::SZ, &utf16("no end"))?;
        e.set("K", "odd", ValueKind::SZ, &[b'x', 0, b'y'])?;
        e.set("K", "short", ValueKind::DWORD, &[1])
    })
    .unwrap();
    let hive = Hive::open(PageCache::new(&file)).unwrap();
    let key = hive.key("k").unwrap().unwrap();
    let text = |name| key.value(name).unwrap().unwrap().as_string().unwrap();
    assert_eq!(text("s").as_deref(), Some("text"));
    assert_eq!(text("e").as_deref(), Some("%a%"));
    assert_eq!(text("open").as_deref(), Some("no end"));
    assert_eq!(text("odd").as_deref(), Some("x"));
    assert_eq!(text("d"), None);
    let number = |name| key.value(name).unwrap().unwrap().as_u32().unwrap();
    assert_eq!((number("d"), number("b")), (Some(0x1234_5678), Some(0x1234_5678)));
    assert_eq!((number("short"), number("s")), (None, None));
    let strings = |name| key.value(name).unwrap().unwrap().as_strings().unwrap();
    assert_eq!(strings("m").unwrap(), ["a", "bc"]);
    assert_eq!(strings("s"), None);
    assert!(key.value("absent").unwrap().is_none());
    assert!(hive.key("K\\absent").unwrap().is_none());
    assert_eq!(hive.key("").unwrap().unwrap().name(), "ROOT");
}

#[test]
fn what_is_so_already_is_no_edit() {
    let file = small_system();
    for data in [utf16("x"), vec![1, 2], vec![5; 20_000]] {
        let roomy = [file.clone(), vec![0; 1 << 20]].concat();
        let once = edited(&roomy, |e| e.set("Empty", "V", ValueKind::BINARY, &data)).unwrap();
        let hive = Hive::open(&once).unwrap();
        let mut editor = Editor::new(&hive).unwrap();
        editor.set("empty", "v", ValueKind::BINARY, &data).unwrap();
        assert!(!editor.remove("Empty", "W").unwrap());
        assert!(!editor.remove("Nowhere", "V").unwrap());
        assert!(editor.finish().unwrap().is_empty());
        // Deterministic, too.
        assert!(once == edited(&roomy, |e| e.set("Empty", "V", ValueKind::BINARY, &data)).unwrap());
    }
}

#[test]
fn set_and_removed_in_one_go_leaves_the_tree() {
    let file = small_system();
    let after = edited(&file, |e| {
        e.set_string("Empty", "Ünïcode", "a")?;
        e.set_string("Empty", "Ωmega", "b")?;
        e.set_string("Empty", "", "default")?;
        assert_eq!(
            e.hive().key("Empty")?.unwrap().value("ωMEGA")?.unwrap().as_string()?.as_deref(),
            Some("b")
        );
        Ok(())
    })
    .unwrap();
    let tree = hivexregedit(&after);
    for (name, text) in [("Ünïcode", "a\0"), ("Ωmega", "b\0"), ("", "default\0")] {
        assert_eq!(tree[&("Empty".into(), Some(name.into()))], (1, utf16(text)));
    }
    let gone = edited(&after, |e| {
        for name in ["ünÏcode", "ωmega", ""] {
            assert!(e.remove("Empty", name)?, "{name}");
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(hivexregedit(&gone), hivexregedit(&file));
}

#[test]
fn spare_room_in_a_list_is_used_in_place() {
    let file = edited(&small_system(), |e| {
        e.set("Empty", "a", ValueKind::DWORD, &[1; 4])?;
        e.set("Empty", "b", ValueKind::DWORD, &[2; 4])?;
        e.set("Empty", "c", ValueKind::DWORD, &[3; 4])?;
        e.remove("Empty", "b").map(|_| ())
    })
    .unwrap();
    let list = |file: &[u8]| {
        let hive = Hive::open(file).unwrap();
        hive.key("Empty").unwrap().unwrap().value_list().unwrap().unwrap().offset
    };
    let after = edited(&file, |e| e.set("Empty", "d", ValueKind::DWORD, &[4; 4])).unwrap();
    assert_eq!(list(&file), list(&after));
    let hive = Hive::open(&after).unwrap();
    let names = hive.key("Empty").unwrap().unwrap().values().unwrap().map(|v| v.unwrap().name());
    assert_eq!(names.collect::<Vec<_>>(), ["a", "c", "d"]);
}

#[test]
fn a_tombstone_is_absent_and_can_be_set() {
    let mut file = small_system();
    let hive = Hive::open(&file).unwrap();
    let vk = hive.key("Setup").unwrap().unwrap().value("CmdLine").unwrap().unwrap().cell();
    file[4096 + vk.offset as usize + 4 + 16] |= 2;
    let hive = Hive::open(&file).unwrap();
    let setup = hive.key("Setup").unwrap().unwrap();
    assert!(setup.value("CmdLine").unwrap().is_none());
    assert_eq!(setup.values().unwrap().count(), 2);
    assert!(!Editor::new(&hive).unwrap().remove("Setup", "CmdLine").unwrap());
    // The same bytes as the tombstone has: set all the same.
    let after = edited(&file, |e| e.set_string("Setup", "CmdLine", "oobe\\windeploy.exe")).unwrap();
    assert_eq!(hivexget(&after, "Setup", "CmdLine"), "oobe\\windeploy.exe");
    assert_eq!(ours(&after).len(), ours(&file).len() + 1);
}

#[test]
fn what_cannot_be_edited_is_refused() {
    let mut file = small_system();
    let hive = Hive::open(&file).unwrap();
    let mut editor = Editor::new(&hive).unwrap();
    let error = editor.set_string("Setup\\Nowhere", "x", "y").unwrap_err();
    assert!(matches!(&error, HiveError::NoKey { path } if path == "Setup\\Nowhere"), "{error}");
    let error = editor.set_string("Setup", &"x".repeat(16384), "y").unwrap_err();
    assert!(matches!(error, HiveError::Unstorable { .. }));
    file[4] ^= 1;
    let hive = Hive::open(&file).unwrap();
    assert!(hive.is_dirty());
    assert!(hive.key("Setup").unwrap().is_some());
    assert!(
        matches!(Editor::new(&hive).err(), Some(HiveError::Dirty { reason }) if reason.contains("checksum"))
    );
}

#[test]
fn old_versions_have_no_big_data() {
    let file = empty_hive(3, 20, 0);
    let data = vec![3; 30_000];
    let after = edited(&file, |e| e.set("", "big", ValueKind::BINARY, &data)).unwrap();
    assert_eq!(ours(&after)[&(String::new(), Some("big".into()))], (3, data));
}

#[test]
fn subkey_lists_of_every_kind_are_read() {
    let file = small_system();
    let tree = ours(&file);
    let hive = Hive::open(&file).unwrap();
    let root = 4096 + hive.root().unwrap().cell().offset as usize + 4;
    let list_offset = u32::from_le_bytes(file[root + 28..root + 32].try_into().unwrap());
    let list = 4096 + list_offset as usize + 4;
    let is_lh = file[list..list + 2] == *b"lh";
    assert!(is_lh, "hivex writes lh");
    let mut lf = file.clone();
    lf[list + 1] = b'f';
    let mut li = file.clone();
    li[list + 1] = b'i';
    for n in 0..3 {
        li.copy_within(list + 4 + n * 8..list + 8 + n * 8, list + 4 + n * 4);
    }
    // An ri of two leaves: the list of the root, less its last entry, and an li of that one, in a value's data.
    let leaf = [&b"li\x01\0"[..], &file[list + 4 + 16..list + 8 + 16]].concat();
    let mut ri = edited(&file, |e| {
        e.set("Empty", "leaf", ValueKind::BINARY, &leaf)?;
        e.set("Empty", "root", ValueKind::BINARY, &[0; 12])
    })
    .unwrap();
    let data = |ri: &[u8], name: &str| {
        let hive = Hive::open(ri).unwrap();
        let value = hive.key("Empty").unwrap().unwrap().value(name).unwrap().unwrap();
        let vk = 4096 + value.cell().offset as usize + 4;
        u32::from_le_bytes(ri[vk + 8..vk + 12].try_into().unwrap())
    };
    let (leaf, top) = (data(&ri, "leaf"), data(&ri, "root"));
    let expected = ours(&ri);
    ri[list + 2] = 2;
    let at = 4096 + top as usize + 4;
    ri[at..at + 4].copy_from_slice(b"ri\x02\0");
    ri[at + 4..at + 8].copy_from_slice(&list_offset.to_le_bytes());
    ri[at + 8..at + 12].copy_from_slice(&leaf.to_le_bytes());
    ri[root + 28..root + 32].copy_from_slice(&top.to_le_bytes());
    for file in [lf, li] {
        assert_eq!(ours(&file), tree);
        assert_eq!(hivexregedit(&file), tree);
    }
    let keys = |tree: Tree| tree.into_keys().collect::<Vec<_>>();
    assert_eq!(keys(hivexregedit(&ri)), keys(expected));
    assert_eq!(ours(&ri), hivexregedit(&ri));
    let hive = Hive::open(&ri).unwrap();
    assert!(hive.key("setup\\status").unwrap().is_some());
}
