//! Hives without room.

use super::super::{Editor, Hive, HiveError, ValueKind};
use super::judges::{hivexregedit, ours};
use super::structure::cells;
use super::{edited, empty_hive};
use crate::io::ReadAt;

/// A hive of one bin with no free cell of `needed` bytes, and `slack` bytes after the bin.
fn full(slack: usize) -> Vec<u8> {
    let mut file = empty_hive(5, 1, slack);
    let bins_only = file[..8192].to_vec();
    let mut filled = edited(&bins_only, |e| e.set("", "fill", ValueKind::BINARY, &[1; 3700])).unwrap();
    for n in 0.. {
        match edited(&filled, |e| e.set("", &format!("{n}"), ValueKind::BINARY, &[2; 4])) {
            Ok(more) => filled = more,
            Err(_) => break,
        }
    }
    file[..8192].copy_from_slice(&filled);
    file
}

#[test]
fn a_full_hive_grows_into_its_slack() {
    let file = full(12_288);
    let data = vec![7; 5000];
    let after = edited(&file, |e| e.set("", "new", ValueKind::BINARY, &data)).unwrap();
    let mut tree = hivexregedit(&file);
    tree.insert((String::new(), Some("new".into())), (3, data));
    assert_eq!(hivexregedit(&after), tree);
    assert_eq!(ours(&after), tree);
    assert_eq!(&after[40..44], &12_288u32.to_le_bytes());
    // The rest of the slack stays as it was.
    assert_eq!(&after[4096 + 12_288..], &file[4096 + 12_288..]);
}

#[test]
fn without_slack_the_missing_bytes_are_named() {
    for (slack, missing) in [(0, 8192), (4096, 4096), (8191, 1)] {
        let file = full(slack);
        let hive = Hive::open(&file).unwrap();
        let mut editor = Editor::new(&hive).unwrap();
        let error = editor.set("", "new", ValueKind::BINARY, &[7; 5000]).unwrap_err();
        let HiveError::NoRoom { needed, largest_free, missing: found } = error else { panic!("{error}") };
        assert_eq!((needed, found), (5008, missing));
        let free = cells(&file).into_values().max().unwrap();
        assert_eq!(i64::from(largest_free), i64::from(free).max(0));
        // The failed edit left nothing behind.
        assert!(editor.finish().unwrap().is_empty());
    }
}

#[test]
fn an_edit_that_fails_half_way_is_undone() {
    // The first segment fits a new bin of five pages; then there is no room for the second.
    let file = full(5 * 4096);
    let hive = Hive::open(&file).unwrap();
    let edits = |fail: bool| {
        let mut editor = Editor::new(&hive).unwrap();
        editor.remove("", "0").unwrap();
        if fail {
            let error = editor.set("", "0", ValueKind::BINARY, &[9; 30_000]).unwrap_err();
            assert!(matches!(error, HiveError::NoRoom { needed: 13_664, .. }), "{error}");
        }
        editor.set("", "1", ValueKind::BINARY, &[3; 100]).unwrap();
        editor.finish().unwrap()
    };
    assert_eq!(edits(true), edits(false));
}

#[test]
fn the_best_fit_is_taken_and_neighbours_are_joined() {
    fn set<R: ReadAt>(editor: &mut Editor<R>, name: &str, len: usize) -> Result<(), HiveError> {
        editor.set("", name, ValueKind::BINARY, &vec![1; len])
    }
    let file = edited(&empty_hive(5, 1, 0), |e| {
        for (name, len) in [("a", 100), ("b", 60), ("c", 100), ("d", 36), ("e", 100)] {
            set(e, name, len)?;
        }
        e.remove("", "b")?;
        e.remove("", "d").map(|_| ())
    })
    .unwrap();
    let free = |file: &[u8]| cells(file).into_iter().filter(|(_, size)| *size > 0).collect::<Vec<_>>();
    // Data and vk of b and of d were neighbours, and are one free cell each now; d's is the smaller.
    let gaps = free(&file);
    assert_eq!(gaps.len(), 3);
    assert!(gaps[0].1 >= 64 + 32 && gaps[1].1 == 40 + 32, "{gaps:?}");
    let after = edited(&file, |e| set(e, "f", 36)).unwrap();
    let data = cells(&after)[&gaps[1].0];
    assert_eq!(data, -40);
    assert_eq!(free(&after)[0], gaps[0]);
    let empty =
        edited(&after, |e| ["a", "c", "e", "f"].iter().try_for_each(|name| e.remove("", name).map(|_| ())))
            .unwrap();
    assert_eq!(free(&empty).len(), 1, "{:?}", cells(&empty));
}
