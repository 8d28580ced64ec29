//! Real hives.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::{Editor, Hive, PageCache};
use super::judges::{hivexget, hivexml, hivexregedit, ours, reged};
use super::{edited, real_hive};
use crate::io::ReadAt;

#[test]
fn a_real_system_hive_reads_as_hivex_reads_it() {
    let Some(file) = real_hive("win7sp1-SYSTEM") else { return };
    let (ours, theirs) = (ours(&file), hivexregedit(&file));
    assert_eq!(ours.keys().filter(|(_, name)| name.is_none()).count(), 30_756);
    assert!(ours == theirs);
}

#[test]
fn a_real_system_hive_gets_the_pointer_and_loses_it() {
    let Some(file) = real_hive("win7sp1-SYSTEM") else { return };
    let pointer = "D:\\autounattend.xml";
    let after = edited(&file, |e| e.set_string("Setup", "UnattendFile", pointer)).unwrap();
    assert_eq!(hivexget(&after, "Setup", "UnattendFile"), pointer);
    assert!(reged(&after, "Setup").contains("\"UnattendFile\"=\"D:\\\\autounattend.xml\""));
    let (before_xml, after_xml) = (hivexml(&file), hivexml(&after));
    let start = after_xml.find(r#"<value type="string" key="UnattendFile""#).unwrap();
    let end = start + after_xml[start..].find("</value>").unwrap() + "</value>".len();
    assert!([&after_xml[..start], &after_xml[end..]].concat() == before_xml);

    let longer = edited(&after, |e| e.set_string("Setup", "UnattendFile", &pointer.repeat(20))).unwrap();
    assert_eq!(hivexget(&longer, "Setup", "UnattendFile"), pointer.repeat(20));
    let shorter = edited(&longer, |e| e.set_string("Setup", "UnattendFile", "E:\\a.xml")).unwrap();
    assert_eq!(hivexget(&shorter, "Setup", "UnattendFile"), "E:\\a.xml");
    let removed = edited(&shorter, |e| e.remove("Setup", "UnattendFile").map(|_| ())).unwrap();
    assert!(hivexml(&removed) == before_xml);
}

#[test]
fn a_look_up_reads_little_and_an_edit_changes_little() {
    struct Counting(Vec<u8>, AtomicUsize);
    impl ReadAt for Counting {
        fn size(&self) -> u64 {
            self.0.size()
        }
        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
            self.1.fetch_add(buf.len(), Ordering::Relaxed);
            self.0.read_exact_at(buf, offset)
        }
    }
    let Some(file) = real_hive("win7sp1-SYSTEM") else { return };
    let source = Counting(file.clone(), AtomicUsize::new(0));
    let hive = Hive::open(PageCache::new(&source)).unwrap();
    let key = hive.key("ControlSet001\\Control\\ComputerName\\ComputerName").unwrap().unwrap();
    assert!(key.value("ComputerName").unwrap().unwrap().as_string().unwrap().is_some());
    let read = source.1.load(Ordering::Relaxed);
    assert!(read < 128 << 10, "{read} bytes read");
    let hive = Hive::open(PageCache::new(&file)).unwrap();
    let mut editor = Editor::new(&hive).unwrap();
    editor.set_string("Setup", "UnattendFile", "D:\\autounattend.xml").unwrap();
    let edits = editor.finish().unwrap();
    let bytes: usize = edits.iter().map(|edit| edit.bytes.len()).sum();
    assert!(edits.len() <= 12 && bytes < 512, "{bytes} bytes: {edits:?}");
}
