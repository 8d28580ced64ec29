//! `prepare-sealed-root --output FILE --compress`: a compressed qcow2, as qemu-img reads it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/root_disk.rs"]
mod root_disk;

use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

use root_disk::{RootDisk, run};
use sealroot::containerdisk::write_compressed;
use sealroot::disk;
use sealroot::io::{ReadAt, Silent};
use sealroot::root::keep::Kept;

fn seal(disk: &Path, args: &[&str]) -> Output {
    let mut sealroot = Command::new(env!("CARGO_BIN_EXE_sealroot"));
    sealroot.args(["prepare-sealed-root", "--disk"]).arg(disk).args(args).output().unwrap()
}

fn done(output: Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// By QEMU: no damage, no leaks, and the same disk as `plain`.
fn judge(compressed: &Path, plain: &Path) {
    let output = run(Command::new("qemu-img").arg("check").arg(compressed));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("No errors were found") && !said.contains("leak"), "{said}");
    run(Command::new("qemu-img").args(["compare"]).arg(compressed).arg(plain));
}

/// And by our own reader.
fn read_alike(a: &Path, b: &Path) {
    let (a, b) = (disk::open(a).unwrap(), disk::open(b).unwrap());
    assert_eq!(a.size(), b.size());
    let mut buffers = [vec![0; 1 << 20], vec![0; 1 << 20]];
    for offset in (0..a.size()).step_by(1 << 20) {
        let length = (a.size() - offset).min(1 << 20) as usize;
        let [left, right] = &mut buffers;
        a.read_exact_at(&mut left[..length], offset).unwrap();
        b.read_exact_at(&mut right[..length], offset).unwrap();
        assert!(left[..length] == right[..length], "at {offset}");
    }
}

/// Not larger than what `qemu-img convert -c` makes, by more than 2%.
fn is_small(compressed: &Path, plain: &Path) {
    let theirs = compressed.with_extension("theirs");
    run(Command::new("qemu-img").args(["convert", "-c", "-O", "qcow2"]).arg(plain).arg(&theirs));
    let size = |path: &Path| path.metadata().unwrap().len();
    let (ours, theirs) = (size(compressed), size(&theirs));
    println!(
        "{}: {ours} bytes; qemu-img convert -c: {theirs}; uncompressed: {}",
        compressed.display(),
        size(plain)
    );
    assert!(ours * 100 <= theirs * 102, "{ours} against {theirs}");
}

#[test]
fn a_compressed_root_is_the_root() {
    let root = RootDisk::standard();
    let path = |name: &str| root.folder().join(name);
    let [plain, compressed, again] = ["plain", "compressed", "again"].map(path);
    done(seal(root.path(), &["--output", plain.to_str().unwrap()]));
    done(seal(root.path(), &["--output", compressed.to_str().unwrap(), "--compress"]));
    done(seal(root.path(), &["--output", again.to_str().unwrap(), "--compress"]));
    judge(&compressed, &plain);
    read_alike(&compressed, &plain);
    is_small(&compressed, &plain);
    assert!(fs::read(&compressed).unwrap() == fs::read(&again).unwrap());
    // It is a disk like any other.
    fs::remove_file(&again).unwrap();
    done(seal(&compressed, &["--output", again.to_str().unwrap()]));
    judge(&again, &plain);
    for args in [["--compress"].as_slice(), &["--compress", "--in-place"], &["--compress", "--patch", "p"]] {
        assert_eq!(seal(root.path(), args).status.code(), Some(2));
    }
}

/// Bytes that can't be compressed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..length / 8 + 1).flat_map(|_| word().to_le_bytes()).take(length).collect()
}

#[test]
fn any_mixture_is_written_as_qemu_reads_it_by_any_number_of_workers() {
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("raw");
    let file = fs::File::create(&raw).unwrap();
    // Over several L2 tables, with a last cluster that is cut short.
    file.set_len((1200 << 20) + 700 * 512).unwrap();
    let words = "the same words again and again ".repeat(40_000);
    let binary = fs::read(env!("CARGO_BIN_EXE_sealroot")).unwrap();
    for at in [0u64, 3, 511, 513, 1023, 1199] {
        let at = at << 20;
        file.write_all_at(&noise(at + 1, 400_000), at).unwrap();
        file.write_all_at(&words.as_bytes()[..200_000], at + 420_000).unwrap();
        file.write_all_at(&binary[..300_000], at + 630_001).unwrap();
    }
    file.write_all_at(&binary[..(64 << 20).min(binary.len())], 100 << 20).unwrap();
    file.write_all_at(b"last", (1200 << 20) + 700 * 512 - 4).unwrap();
    let disk = disk::open(&raw).unwrap();
    let kept = Kept::all(&disk, &Silent).unwrap();
    let mut first = None;
    for workers in [1, 2, 3, 7] {
        let path = folder.path().join(format!("{workers}.qcow2"));
        let out = fs::File::create_new(&path).unwrap();
        write_compressed(&kept, &out, NonZeroUsize::new(workers).unwrap(), &Silent).unwrap();
        let bytes = fs::read(&path).unwrap();
        if first.is_none() {
            judge(&path, &raw);
            read_alike(&path, &raw);
            is_small(&path, &raw);
        }
        assert!(*first.get_or_insert_with(|| bytes.clone()) == bytes, "{workers} workers");
    }
    // Nothing to write, and one byte.
    for content in [&[][..], &[1]] {
        let small = folder.path().join("small");
        let file = fs::File::create(&small).unwrap();
        file.set_len(512 * 3).unwrap();
        file.write_all_at(content, 600).unwrap();
        let disk = disk::open(&small).unwrap();
        let kept = Kept::all(&disk, &Silent).unwrap();
        let path = folder.path().join("small.qcow2");
        let out = fs::File::create(&path).unwrap();
        write_compressed(&kept, &out, NonZeroUsize::MIN, &Silent).unwrap();
        judge(&path, &small);
    }
}

/// What can't be read is no cluster of zeros.
#[test]
fn an_error_while_reading_ends_it() {
    struct Bad(Vec<u8>);
    impl ReadAt for Bad {
        fn size(&self) -> u64 {
            64 << 20
        }
        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
            // The scan reads 1 MiB at a time from here on, the writer too: fail on the second visit.
            if offset == 32 << 20 && std::mem::replace(&mut *VISITED.lock().unwrap(), true) {
                return Err(std::io::Error::other("bad sector"));
            }
            buf.fill(self.0[0]);
            Ok(())
        }
    }
    static VISITED: std::sync::Mutex<bool> = std::sync::Mutex::new(false);
    let bad = Bad(vec![7]);
    let kept = Kept::all(&bad, &Silent).unwrap();
    let out = tempfile::tempfile().unwrap();
    let error = write_compressed(&kept, &out, NonZeroUsize::new(2).unwrap(), &Silent).unwrap_err();
    let why = std::error::Error::source(&error).unwrap().to_string();
    assert!(why.contains("bad sector") && why.contains("offset 33554432"), "{why}");
}
