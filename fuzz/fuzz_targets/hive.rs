//! Hives and their logs: read, recovered and edited, whatever the bytes are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealroot::hive::{Editor, Hive, Key, ValueKind, recover};
use sealroot::io::ReadAt;

fuzz_target!(|bytes: &[u8]| {
    // The last two bytes say how much of the input is a log file, in units of 512 bytes.
    let Some((bytes, split)) = bytes.split_last_chunk::<2>() else { return };
    let log = (usize::from(u16::from_le_bytes(*split)) * 512).min(bytes.len());
    let (hive, log) = bytes.split_at(bytes.len() - log);
    let mut hive = hive.to_vec();
    repair_sum(&mut hive);
    if let Ok(hive) = Hive::open(hive.as_slice()) {
        if let Ok(root) = hive.root() {
            walk(&root, 40, &mut 2000);
        }
        if let Ok(editor) = Editor::new(&hive) {
            edit(editor);
        }
    }
    let mut log = log.to_vec();
    repair_sum(&mut log);
    if let Ok(recovered) = recover(&hive, &[&log])
        && let Ok(editor) = recovered.into_editor()
    {
        edit(editor);
    }
});

/// Lets the fuzzer past the checksum.
fn repair_sum(file: &mut [u8]) {
    let Some(block) = file.get_mut(..512) else { return };
    let words = block[..508].chunks_exact(4);
    let sum = words.fold(0, |sum, w| sum ^ u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
    let sum = match sum {
        0 => 1,
        u32::MAX => u32::MAX - 1,
        sum => sum,
    };
    block[508..].copy_from_slice(&sum.to_le_bytes());
}

fn walk<R: ReadAt>(key: &Key<'_, R>, depth: u32, calls: &mut u32) {
    for value in key.values().into_iter().flatten().flatten().take(100) {
        let _ = (value.name(), value.data(), value.as_string(), value.as_u32(), value.as_strings());
    }
    for subkey in key.subkeys().into_iter().flatten().flatten() {
        if depth > 0 && *calls > 0 {
            *calls -= 1;
            walk(&subkey, depth - 1, calls);
        }
    }
}

fn edit<R: ReadAt>(mut editor: Editor<R>) {
    for (key, name) in [("", "a"), ("Setup", "CmdLine"), ("Setup\\Status", "Bytes"), ("Empty", "")] {
        let _ = editor.set_string(key, name, "D:\\autounattend.xml");
        let _ = editor.set(key, name, ValueKind::BINARY, &[1; 20_000]);
        let _ = editor.set(key, name, ValueKind::DWORD, &[1; 4]);
        let _ = editor.remove(key, name);
    }
    let _ = editor.finish();
}
