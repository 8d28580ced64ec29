//! Random edits against a map.

use proptest::prelude::*;

use super::super::{Editor, Hive, ValueKind};
use super::judges::{hivexregedit, ours};
use super::{apply, small_system, structure};

#[derive(Debug, Clone)]
enum Step {
    Set {
        key: usize,
        name: usize,
        kind: u32,
        data: Vec<u8>,
    },
    Remove {
        key: usize,
        name: usize,
    },
    /// Applies what was done so far, and begins anew on the result.
    Commit,
}

const KEYS: [&str; 3] = ["Setup", "Setup\\Status", "Empty"];
const NAMES: [&str; 7] = ["", "a", "Bytes", "CmdLine", "ünï", "Ω", "a long name of many characters"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![4 => 0usize..5, 8 => 5usize..200, 1 => 200usize..5000, 1 => 16_000usize..40_000];
    let set = (0..KEYS.len(), 0..NAMES.len(), 0u32..12, len, any::<u8>()).prop_map(
        |(key, name, kind, len, byte)| Step::Set {
            key,
            name,
            kind,
            data: (0..len).map(|i| byte.wrapping_add(i as u8)).collect(),
        },
    );
    let remove = (0..KEYS.len(), 0..NAMES.len()).prop_map(|(key, name)| Step::Remove { key, name });
    prop::collection::vec(prop_oneof![6 => set, 4 => remove, 1 => Just(Step::Commit)], 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn a_hive_holds_what_a_map_holds(mut steps in steps()) {
        let small = [small_system(), vec![0xcc; 2 << 20]].concat();
        let mut file = small.clone();
        let mut model = ours(&file);
        steps.push(Step::Commit);
        let mut steps = steps.into_iter().peekable();
        while steps.peek().is_some() {
            let hive = Hive::open(&file).unwrap();
            let mut editor = Editor::new(&hive).unwrap();
            for step in steps.by_ref() {
                match step {
                    Step::Set { key, name, kind, data } => {
                        editor.set(KEYS[key], NAMES[name], ValueKind(kind), &data).unwrap();
                        model.insert((KEYS[key].into(), Some(NAMES[name].into())), (kind, data));
                    }
                    Step::Remove { key, name } => {
                        let was = model.remove(&(KEYS[key].into(), Some(NAMES[name].into()))).is_some();
                        prop_assert_eq!(editor.remove(KEYS[key], NAMES[name]).unwrap(), was);
                    }
                    Step::Commit => break,
                }
            }
            let edits = editor.finish().unwrap();
            let after = apply(&file, &edits);
            structure::check_edit(&file, &after, &edits);
            file = after;
            prop_assert!(ours(&file) == model);
        }
        prop_assert!(hivexregedit(&file) == model);
        let free: Vec<_> = structure::cells(&file).into_iter().collect();
        for pair in free.windows(2) {
            let joined = pair[0].1 > 0 && pair[1].1 > 0 && pair[0].0 + pair[0].1 as u32 == pair[1].0;
            prop_assert!(!joined, "free neighbours at {:#x}", pair[0].0);
        }
    }
}
