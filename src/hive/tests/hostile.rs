//! Bytes that are no hive, or were one.

use proptest::prelude::*;

use super::super::{Editor, Hive, Key, ValueKind};
use super::small_system;

/// All that can be asked of a hive, as far as it goes; the number of calls is bounded, not the depth of a loop.
fn use_it_all(file: &[u8]) {
    let Ok(hive) = Hive::open(file) else { return };
    if let Ok(root) = hive.root() {
        walk(&root, 50, &mut 2000);
    }
    let _ = hive.key("Setup\\Status");
    let Ok(mut editor) = Editor::new(&hive) else { return };
    for (key, name) in
        [("Setup", "CmdLine"), ("Setup\\Status", "Bytes"), ("Empty", "new"), ("Select", "Current")]
    {
        let _ = editor.set_string(key, name, "D:\\autounattend.xml");
        let _ = editor.set(key, name, ValueKind::BINARY, &[1; 20_000]);
        let _ = editor.remove(key, name);
    }
    let _ = editor.finish();
}

fn walk(key: &Key<'_, &[u8]>, depth: u32, calls: &mut u32) {
    let values = key.values().into_iter().flatten().flatten();
    for value in values.take(100) {
        let _ = (value.name(), value.data(), value.as_string(), value.as_u32(), value.as_strings());
    }
    for subkey in key.subkeys().into_iter().flatten().flatten() {
        if depth > 0 && *calls > 0 {
            *calls -= 1;
            walk(&subkey, depth - 1, calls);
        }
    }
}

/// Makes the base block's sum right again, so that what follows it is looked at.
fn sum(file: &mut [u8]) {
    if file.len() < 512 {
        return;
    }
    let sum = file[..508].chunks(4).fold(0, |x, w| x ^ u32::from_le_bytes(w.try_into().unwrap()));
    let sum = match sum {
        0 => 1,
        u32::MAX => u32::MAX - 1,
        sum => sum,
    };
    file[508..512].copy_from_slice(&sum.to_le_bytes());
}

/// What is allocated: bytes with a meaning.
fn meaningful(file: &[u8]) -> usize {
    file.iter().rposition(|b| *b != 0).unwrap_or(0) + 1
}

#[test]
fn every_field_can_be_wrong() {
    let whole = small_system();
    for at in (0..512).chain(4096..meaningful(&whole)).step_by(2) {
        for bad in [[0u8, 0], [0xff, 0xff], [0xff, 0x7f], [0, 0x80], [8, 0], [1, 0], [0x20, 0]] {
            let mut file = whole.clone();
            file[at..at + 2].copy_from_slice(&bad);
            if !(508..512).contains(&at) {
                sum(&mut file);
            }
            use_it_all(&file);
        }
    }
}

#[test]
fn any_length_can_be_missing() {
    let whole = small_system();
    for len in (0..600).chain((600..whole.len()).step_by(61)) {
        use_it_all(&whole[..len]);
    }
}

#[test]
fn cycles_end() {
    let mut file = small_system();
    let hive = Hive::open(&file).unwrap();
    let (root, setup) = (hive.root().unwrap().cell(), hive.key("Setup").unwrap().unwrap().cell());
    // Setup's list of subkeys is the root's.
    let field = |cell: u32, at: usize| 4096 + cell as usize + 4 + at;
    let root_list = file[field(root.offset, 20)..field(root.offset, 32)].to_vec();
    file[field(setup.offset, 20)..field(setup.offset, 32)].copy_from_slice(&root_list);
    let hive = Hive::open(&file).unwrap();
    let deep = hive.key(&"Setup\\".repeat(1000)).unwrap().unwrap();
    assert_eq!(deep.name(), "Setup");
    use_it_all(&file);
}

#[test]
fn an_ri_does_not_nest() {
    let mut file = small_system();
    let hive = Hive::open(&file).unwrap();
    let root = hive.root().unwrap().cell().offset as usize;
    let list = u32::from_le_bytes(file[4096 + root + 32..][..4].try_into().unwrap());
    let at = 4096 + list as usize + 4;
    file[at..at + 4].copy_from_slice(b"ri\x01\0");
    file[at + 4..at + 8].copy_from_slice(&list.to_le_bytes());
    let hive = Hive::open(&file).unwrap();
    let error = hive.key("Setup").unwrap_err().to_string();
    assert!(error.contains(&format!("subkey list at offset {}", 4096 + list)), "{error}");
    use_it_all(&file);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn flipped_bytes_do_no_harm(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12)) {
        let mut file = small_system();
        let end = meaningful(&file);
        for (at, byte) in flips {
            let at = at.index(end);
            file[at] = byte;
        }
        sum(&mut file);
        use_it_all(&file);
    }
}
