//! `prepare-sealed-root --in-place` and `--undo`, killed by strace before each call in turn that changes anything, and
//! killed again while the next run ends what the first began: as qemu-img reads it, the disk is always the old one or
//! the new one, or the next run makes it so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/root_disk.rs"]
mod root_disk;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use root_disk::{RootDisk, run};

/// All that is used of what writes, syncs and names. What is made by open(2) is seen by the first write to it.
const CALLS: [&str; 9] =
    ["pwrite64", "write", "fsync", "fdatasync", "ftruncate", "renameat2", "rename", "unlink", "unlinkat"];

/// Where the mark of a whole change is in a journal.
const MARK: usize = 56;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No journal: the old disk.
    Old,
    /// Whoever comes next puts the old bytes back.
    Half,
    /// The new disk, and how to undo it.
    New,
}

/// A disk that is killed over and over, and what it may be.
struct Victim {
    disk: PathBuf,
    old: PathBuf,
    new: PathBuf,
}

impl Victim {
    fn made_of(disk: &Path) -> Self {
        let with = |suffix: &str| PathBuf::from(format!("{}{suffix}", disk.display()));
        let (old, new) = (with(".old"), with(".new"));
        copy(disk, &old);
        copy(disk, &new);
        let victim = Self { disk: new.clone(), old: old.clone(), new: new.clone() };
        assert!(victim.seal("--in-place").success());
        fs::remove_file(victim.journal()).unwrap();
        assert!(!same(&old, &new));
        Self { disk: disk.into(), old, new }
    }

    fn journal(&self) -> PathBuf {
        PathBuf::from(format!("{}.sealroot-undo", self.disk.display()))
    }

    fn seal(&self, how: &str) -> ExitStatus {
        let mut sealroot = Command::new(env!("CARGO_BIN_EXE_sealroot"));
        sealroot.args(["-q", "prepare-sealed-root", how, "--disk"]).arg(&self.disk).output().unwrap().status
    }

    /// Runs it until the `nth` such call of a thread; whether it was killed there, and did not end before.
    fn killed(&self, how: &str, call: &str, nth: usize) -> bool {
        let status = Command::new("strace")
            .args(["-f", "-qq", "-o", "/dev/null", "-e"])
            .arg(format!("trace={call}"))
            .arg("-e")
            .arg(format!("inject={call}:signal=KILL:when={nth}"))
            .arg(env!("CARGO_BIN_EXE_sealroot"))
            .args(["-q", "prepare-sealed-root", how, "--disk"])
            .arg(&self.disk)
            .output()
            .expect("strace is needed")
            .status;
        // strace ends as the program did.
        let killed = status.signal() == Some(9) || status.code() == Some(128 + 9);
        assert!(killed || status.success(), "{how}: {call} {nth}: {status}");
        killed
    }

    /// What there is after a kill, and that it is so.
    fn state(&self, what: &str) -> State {
        let state = match fs::read(self.journal()) {
            Err(_) => State::Old,
            Ok(journal) if journal[MARK..][..32] == [0; 32] => State::Half,
            Ok(_) => State::New,
        };
        match state {
            State::Old => assert!(same(&self.disk, &self.old), "{what}"),
            State::Half => {}
            State::New => assert!(same(&self.disk, &self.new), "{what}"),
        }
        state
    }

    /// Lets the next run end what was begun: the same again, or what takes it back.
    fn end(&self, state: State, how: &str, what: &str) {
        let ended = self.seal(how).success();
        if how == "--undo" {
            // Where nothing was begun, there is nothing to undo.
            assert_eq!(ended, state != State::Old, "{what}");
            assert!(same(&self.disk, &self.old), "{what}");
            assert!(!self.journal().exists(), "{what}");
        } else {
            assert!(ended, "{what}");
            assert!(same(&self.disk, &self.new), "{what}");
        }
    }

    /// As before all.
    fn reset(&self) {
        if self.journal().exists() {
            assert!(self.seal("--undo").success());
            assert!(same(&self.disk, &self.old));
        }
    }
}

fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").args(["--sparse=always", "--reflink=auto"]).arg(from).arg(to));
}

fn same(a: &Path, b: &Path) -> bool {
    Command::new("qemu-img").arg("compare").arg(a).arg(b).output().unwrap().status.success()
}

fn victims() -> (RootDisk, [Victim; 2]) {
    let root = RootDisk::standard().with_cached_answer();
    let qcow2 = root.folder().join("disk.qcow2");
    run(Command::new("qemu-img").args(["convert", "-O", "qcow2"]).arg(root.path()).arg(&qcow2));
    let victims = [Victim::made_of(root.path()), Victim::made_of(&qcow2)];
    (root, victims)
}

#[test]
fn killed_at_any_call_the_next_run_ends_what_was_begun() {
    let (_root, victims) = victims();
    for victim in victims {
        let mut states = Vec::new();
        for how in ["--in-place", "--undo"] {
            for call in CALLS {
                for nth in 1.. {
                    if how == "--undo" {
                        assert!(victim.seal("--in-place").success());
                    }
                    if !victim.killed(how, call, nth) {
                        victim.reset();
                        assert!(same(&victim.disk, &victim.old));
                        break;
                    }
                    let what = format!("{}: {how} killed at {call} {nth}", victim.disk.display());
                    let state = victim.state(&what);
                    states.push(state);
                    let next = ["--in-place", "--undo"][nth % 2];
                    victim.end(state, next, &what);
                    victim.reset();
                }
            }
        }
        let count = |state| states.iter().filter(|found| **found == state).count();
        let counts = [State::Old, State::Half, State::New].map(count);
        println!("{}: old, half, new: {counts:?}", victim.disk.display());
        assert!(counts.iter().all(|count| *count > 1), "{counts:?}");
    }
}

#[test]
fn killed_while_recovering_the_run_after_that_ends_it() {
    let (_root, victims) = victims();
    // The calls taken in turn by the two, for the time it takes.
    for (first, victim) in (1..).zip(victims) {
        // The journal is there, and half of the writes are done: more than the first, less than the last.
        let writes = (1..).take_while(|nth| {
            let killed = victim.killed("--in-place", "pwrite64", *nth);
            victim.reset();
            killed
        });
        let middle = writes.count() / 2 + 1;
        let half = || {
            assert!(victim.killed("--in-place", "pwrite64", middle));
            assert_eq!(victim.state("middle"), State::Half);
        };
        half();
        assert!(!same(&victim.disk, &victim.old) && !same(&victim.disk, &victim.new));
        victim.reset();

        let mut kills = 0;
        for how in ["--in-place", "--undo"] {
            for call in CALLS {
                for nth in (first..).step_by(2) {
                    half();
                    if !victim.killed(how, call, nth) {
                        victim.reset();
                        break;
                    }
                    kills += 1;
                    let what =
                        format!("{}: {how}, recovering, killed at {call} {nth}", victim.disk.display());
                    let state = victim.state(&what);
                    // Whichever comes next; each second one killed for a third time.
                    let next = ["--undo", "--in-place"][nth / 2 % 2];
                    let again = nth / 4 % 2 == 0 && state == State::Half && victim.killed(next, "fsync", 1);
                    let state = if again { victim.state(&what) } else { state };
                    victim.end(state, next, &what);
                    victim.reset();
                }
            }
        }
        println!("{}: killed {kills} times while recovering", victim.disk.display());
        assert!(kills > 20, "{kills}");
    }
}
