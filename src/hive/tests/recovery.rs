//! Dirty hives and their logs.

use super::super::{Hive, HiveError, marvin32, recover};
use super::judges::{hivexml, hivexregedit, ours};
use super::{apply, empty_hive, real_hive, real_hives, structure};
use crate::io::ReadAt;

fn logs(files: &[Vec<u8>]) -> Vec<&dyn ReadAt> {
    files.iter().map(|file| file as &dyn ReadAt).collect()
}

fn word(file: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(file[at..at + 4].try_into().unwrap())
}

/// Replays, and returns the hive file with the edits in it and how much was replayed.
fn recovered(hive: &Vec<u8>, files: &[Vec<u8>]) -> Result<(Vec<u8>, u32), HiveError> {
    let recovered = recover(hive, &logs(files))?;
    assert!(!recovered.hive().is_dirty());
    let replayed = recovered.replayed();
    let edits = recovered.into_editor()?.finish()?;
    let after = apply(hive, &edits);
    assert!(!Hive::open(&after).unwrap().is_dirty());
    Ok((after, replayed))
}

fn windows_10_1709() -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let hive = real_hive("win10-1709-dirty-SYSTEM")?;
    let log = |n| real_hive(&format!("win10-1709-dirty-SYSTEM.LOG{n}"));
    Some((hive, vec![log(1)?, log(2)?]))
}

/// How many keys there are, to hivex.
fn keys(hive: &[u8]) -> usize {
    hivexml(hive).matches("<node ").count()
}

#[test]
fn a_real_dirty_hive_gets_the_keys_of_its_logs() {
    let Some((hive, logs)) = windows_10_1709() else { return };
    assert!(Hive::open(hive.as_slice()).unwrap().dirt().unwrap().contains("1622 and 1621"));
    assert_eq!(keys(&hive), 33_123);
    let (after, replayed) = recovered(&hive, &logs).unwrap();
    assert_eq!((keys(&after), replayed), (35_595, 24));
    assert!(ours(&after) == hivexregedit(&after));
    structure::used(&after);
    // Above the last entry, 2130, so that no log is replayed once more.
    assert!(word(&after, 4) > 2130);
    assert_eq!(word(&after, 4), word(&after, 8));
    // Whatever the order in which the logs are given.
    let swapped = [logs[1].clone(), logs[0].clone()];
    assert!(recovered(&hive, &swapped).unwrap().0 == after);
}

#[test]
fn a_recovered_hive_is_edited_in_the_same_edits() {
    let Some((hive, files)) = windows_10_1709() else { return };
    let mut editor = recover(&hive, &logs(&files)).unwrap().into_editor().unwrap();
    editor.set_string("Setup", "UnattendFile", "D:\\autounattend.xml").unwrap();
    let after = apply(&hive, &editor.finish().unwrap());
    assert_eq!(super::judges::hivexget(&after, "Setup", "UnattendFile"), "D:\\autounattend.xml");
    assert_eq!(keys(&after), 35_595);
    structure::used(&after);
}

#[test]
fn synthetic_hives_become_what_windows_made_of_them() {
    for (archive, hive, theirs, replayed) in [
        ("NewDirtyHive1", "NewDirtyHive", "RecoveredHive_Windows10", 4),
        ("OldDirtyHive", "OldDirtyHive", "RecoveredHive_Windows7", 1),
    ] {
        let Some(files) = real_hives(archive) else { return };
        let logs = [files[&format!("{hive}.LOG1")].clone(), files[&format!("{hive}.LOG2")].clone()];
        let (after, count) = recovered(&files[hive], &logs).unwrap();
        assert_eq!(count, replayed, "{archive}");
        assert!(hivexregedit(&after) == hivexregedit(&files[theirs]), "{archive}");
        assert_ne!(hivexml(&after), hivexml(&files[hive]), "{archive}");
    }
}

#[test]
fn a_lost_base_block_comes_from_the_logs() {
    let Some((mut hive, logs)) = windows_10_1709() else { return };
    let whole = recovered(&hive, &logs).unwrap().0;
    hive[508] ^= 1;
    let (after, replayed) = recovered(&hive, &logs).unwrap();
    assert_eq!(replayed, 24);
    assert!(ours(&after) == ours(&whole));
    let Some(mut files) = real_hives("OldDirtyHive") else { return };
    let mut hive = files.remove("OldDirtyHive").unwrap();
    let logs = [files.remove("OldDirtyHive.LOG1").unwrap()];
    let whole = recovered(&hive, &logs).unwrap().0;
    hive[508] ^= 1;
    // The time in the first bin is another one: this log may be of any state.
    assert!(matches!(recovered(&hive, &logs), Err(HiveError::Dirty { .. })));
    hive[4096 + 20..4096 + 28].copy_from_slice(&logs[0][12..20]);
    assert!(ours(&recovered(&hive, &logs).unwrap().0) == ours(&whole));
}

#[test]
fn replay_stops_at_the_first_entry_that_is_not_whole() {
    let Some((hive, logs)) = windows_10_1709() else { return };
    // Entry 2113 of LOG2: its page bytes; nothing after it counts.
    let mut broken = logs.clone();
    broken[1][348_160 + 100] ^= 1;
    assert_eq!(recovered(&hive, &broken).unwrap().1, 4 + 2);
    // LOG1 is missing: LOG2 begins with 2111, after whatever LOG1 held.
    assert_eq!(recovered(&hive, &logs[1..]).unwrap().1, 20);
    // LOG2 is missing or empty.
    assert_eq!(recovered(&hive, &logs[..1]).unwrap().1, 4);
    assert_eq!(recovered(&hive, &[logs[0].clone(), Vec::new()]).unwrap().1, 4);
}

#[test]
fn without_usable_logs_a_dirty_hive_is_refused() {
    let Some((hive, logs)) = windows_10_1709() else { return };
    let mut broken = logs[0].clone();
    broken[512 + 24] ^= 1;
    for logs in [vec![], vec![vec![0; 5000]], vec![hive.clone()], vec![broken]] {
        let error = recovered(&hive, &logs).unwrap_err();
        assert!(matches!(&error, HiveError::Dirty { reason } if reason.contains("no log")), "{error}");
    }
}

#[test]
fn a_clean_hive_ignores_its_logs() {
    let clean = empty_hive(5, 1, 0);
    let (after, replayed) = recovered(&clean, &[vec![1; 4096]]).unwrap();
    assert_eq!(replayed, 0);
    assert!(after == clean);
}

#[test]
fn a_hive_that_its_logs_made_longer_is_read_but_not_edited() {
    let Some((mut hive, files)) = windows_10_1709() else { return };
    hive.truncate(4096 + word(&hive, 40) as usize);
    let recovered = recover(&hive, &logs(&files)).unwrap();
    assert!(recovered.hive().key("Setup").unwrap().is_some());
    let error = recovered.into_editor().unwrap().finish().unwrap_err();
    assert!(
        matches!(error, HiveError::Outgrown { missing } if missing == 12_591_104 - 12_398_592),
        "{error}"
    );
}

#[test]
fn a_log_can_add_no_more_than_it_holds() {
    let mut hive = empty_hive(5, 1, 0);
    let log = hive[..512].to_vec();
    hive[4] = 2;
    // One page, and room for what it does not hold.
    let with_bins = |bins: u32| {
        let mut entry = b"HvLE".to_vec();
        entry.extend([5120, 0, 1, bins, 1, 0, 0, 0, 0, 0, 4096].iter().flat_map(|word| word.to_le_bytes()));
        entry.extend(&hive[4096..]);
        entry.resize(5120, 0);
        let hash = marvin32::hash(&entry[40..]);
        entry[24..32].copy_from_slice(&hash.to_le_bytes());
        let hash = marvin32::hash(&entry[..32]);
        entry[32..40].copy_from_slice(&hash.to_le_bytes());
        [log.clone(), entry].concat()
    };
    assert_eq!(recover(&hive, &[&with_bins(4096)]).unwrap().replayed(), 1);
    let error = recover(&hive, &[&with_bins(1 << 30)]).unwrap_err();
    assert!(error.to_string().contains("1073737728 bytes longer, but have only 5632"), "{error}");
}

#[test]
fn hostile_logs_do_no_harm() {
    let (Some(new), Some(old)) = (real_hives("NewDirtyHive1"), real_hives("OldDirtyHive")) else { return };
    for (files, name) in [(new, "NewDirtyHive"), (old, "OldDirtyHive")] {
        let hive = &files[name];
        let log = &files[&format!("{name}.LOG1")];
        for at in (0..600).chain((600..log.len()).step_by(97)) {
            let mut broken = log.clone();
            broken[at] ^= 0xff;
            if at < 508 {
                let sum = broken[..508].chunks(4).fold(0, |sum, w| sum ^ word(w, 0));
                broken[508..512].copy_from_slice(&sum.to_le_bytes());
            }
            if let Ok(recovered) = recover(hive, &[&broken]) {
                let _ = recovered.into_editor().and_then(|editor| editor.finish());
            }
            let _ = recover(hive, &[&log[..at].to_vec()]);
        }
    }
}
