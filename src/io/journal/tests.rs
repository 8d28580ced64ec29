//! A machine that stops at any step: by a kill (what was issued is there) or by a power cut (what was not synced
//! may be there, or half, or not).
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use super::*;
use crate::io::{Edit, ReadAt};

type Write = (usize, Vec<u8>);

#[derive(Clone, Default)]
struct Bytes {
    durable: Vec<u8>,
    pending: Vec<Write>,
}

impl Bytes {
    fn now(&self) -> Vec<u8> {
        self.pending.iter().fold(self.durable.clone(), |mut content, (at, bytes)| {
            content.resize(content.len().max(at + bytes.len()), 0);
            content[*at..at + bytes.len()].copy_from_slice(bytes);
            content
        })
    }
    fn sync(&mut self) {
        self.durable = self.now();
        self.pending.clear();
    }
}

#[derive(Clone, Copy)]
enum NameChange {
    Link(Name, usize),
    Unlink(Name),
}

#[derive(Clone, Default)]
struct Machine {
    disk: Bytes,
    files: Vec<Bytes>,
    names: BTreeMap<Name, usize>,
    pending_names: Vec<Vec<NameChange>>,
    steps: usize,
    /// The step at which it stops, half-way.
    stop_at: Option<usize>,
    /// The step that fails; those after it do not.
    fail_at: Option<usize>,
}

impl Machine {
    fn names_now(&self) -> BTreeMap<Name, usize> {
        let mut names = self.names.clone();
        for change in self.pending_names.iter().flatten() {
            match change {
                NameChange::Link(name, file) => drop(names.insert(*name, *file)),
                NameChange::Unlink(name) => drop(names.remove(name)),
            }
        }
        names
    }

    /// Counts a step; whether it is to be done whole (1), by half (2), or not at all (error).
    fn step(&mut self) -> io::Result<bool> {
        let step = self.steps;
        self.steps += 1;
        if self.fail_at == Some(step) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        match self.stop_at {
            Some(stop) if step > stop => Err(io::Error::other("stopped")),
            Some(stop) => Ok(step < stop),
            None => Ok(true),
        }
    }

    fn write(bytes: &mut Bytes, content: &[u8], at: u64, whole: bool) -> io::Result<()> {
        let length = if whole { content.len() } else { content.len() / 2 };
        bytes.pending.push((at as usize, content[..length].to_vec()));
        if whole { Ok(()) } else { Err(io::Error::other("stopped")) }
    }

    /// What is found at the next start. `power` decides what of each unsynced write is there.
    fn restarted(&self, power: Option<&mut Random>) -> Self {
        let mut after = self.clone();
        (after.stop_at, after.fail_at, after.steps) = (None, None, 0);
        if let Some(random) = power {
            for bytes in after.files.iter_mut().chain([&mut after.disk]) {
                bytes.pending.retain_mut(|(_, write)| match random.below(3) {
                    0 => false,
                    1 => true,
                    _ => {
                        write.truncate(write.len() / 2);
                        true
                    }
                });
            }
            // Names change in order, each whole.
            let kept = random.below(after.pending_names.len() + 1);
            after.pending_names.truncate(kept);
        }
        after.disk.sync();
        after.files.iter_mut().for_each(Bytes::sync);
        after.names = after.names_now();
        after.pending_names.clear();
        after
    }
}

/// xorshift: the same cases every time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Machine>>);

impl Shared {
    fn new(machine: Machine) -> Self {
        Self(Arc::new(Mutex::new(machine)))
    }
    fn get(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap()
    }
    fn disk(&self) -> Vec<u8> {
        self.get().disk.now()
    }
}

impl ReadAt for Shared {
    fn size(&self) -> u64 {
        self.get().disk.durable.len() as u64
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk().read_exact_at(buf, offset)
    }
}

impl WriteAt for Shared {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut machine = self.get();
        let whole = machine.step()?;
        Machine::write(&mut machine.disk, bytes, offset, whole)
    }
    fn sync(&self) -> io::Result<()> {
        let mut machine = self.get();
        if machine.step()? {
            machine.disk.sync();
            return Ok(());
        }
        Err(io::Error::other("stopped"))
    }
}

impl Store for Shared {
    fn read(&self, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let machine = self.get();
        Ok(machine.names_now().get(&Name::Journal).map(|file| {
            let mut content = machine.files[*file].now();
            content.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
            content
        }))
    }
    fn create(&self) -> io::Result<()> {
        let mut machine = self.get();
        if machine.names_now().contains_key(&Name::Unfinished) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if !machine.step()? {
            return Err(io::Error::other("stopped"));
        }
        let file = machine.files.len();
        machine.files.push(Bytes::default());
        machine.pending_names.push(vec![NameChange::Link(Name::Unfinished, file)]);
        Ok(())
    }
    fn write_at(&self, name: Name, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut machine = self.get();
        let file = *machine.names_now().get(&name).ok_or(io::ErrorKind::NotFound)?;
        let whole = machine.step()?;
        Machine::write(&mut machine.files[file], bytes, offset, whole)
    }
    fn sync(&self, name: Name) -> io::Result<()> {
        let mut machine = self.get();
        let file = *machine.names_now().get(&name).ok_or(io::ErrorKind::NotFound)?;
        if machine.step()? {
            machine.files[file].sync();
            return Ok(());
        }
        Err(io::Error::other("stopped"))
    }
    fn publish(&self) -> io::Result<()> {
        let mut machine = self.get();
        let file = *machine.names_now().get(&Name::Unfinished).ok_or(io::ErrorKind::NotFound)?;
        if !machine.step()? {
            return Err(io::Error::other("stopped"));
        }
        let rename = vec![NameChange::Link(Name::Journal, file), NameChange::Unlink(Name::Unfinished)];
        machine.pending_names.push(rename);
        Ok(())
    }
    fn remove(&self, name: Name) -> io::Result<bool> {
        let mut machine = self.get();
        if !machine.names_now().contains_key(&name) {
            return Ok(false);
        }
        if !machine.step()? {
            return Err(io::Error::other("stopped"));
        }
        machine.pending_names.push(vec![NameChange::Unlink(name)]);
        Ok(true)
    }
    fn sync_folder(&self) -> io::Result<()> {
        let mut machine = self.get();
        if !machine.step()? {
            return Err(io::Error::other("stopped"));
        }
        machine.names = machine.names_now();
        machine.pending_names.clear();
        Ok(())
    }
}

fn old() -> Vec<u8> {
    (0..4096_u32).map(|n| (n * 7 % 251) as u8).collect()
}

fn patch() -> Patch {
    let mut patch = Patch::new();
    for (offset, length) in [(3, 1), (512, 700), (2000, 48), (4000, 96)] {
        let old = old()[offset..offset + length].to_vec();
        let new = old.iter().map(|byte| byte ^ 0x5A).collect();
        patch.insert(Edit { offset: offset as u64, old, new }).unwrap();
    }
    patch
}

fn new() -> Vec<u8> {
    let mut disk = old();
    for edit in patch().edits() {
        disk[edit.offset as usize..edit.end() as usize].copy_from_slice(&edit.new);
    }
    disk
}

fn untouched() -> Machine {
    Machine { disk: Bytes { durable: old(), pending: Vec::new() }, ..Machine::default() }
}

fn changed() -> Machine {
    let shared = Shared::new(untouched());
    apply(&shared, &shared, &patch()).unwrap();
    assert_eq!(shared.disk(), new());
    shared.get().restarted(None)
}

type Act = fn(&Shared) -> Result<(), JournalError>;

fn acts() -> [(Machine, Act); 2] {
    [(untouched(), |shared| apply(shared, shared, &patch())), (changed(), |shared| undo(shared, shared))]
}

/// Runs to each step in turn, and gives what is left of it to `then`.
fn stopped_everywhere(start: &Machine, act: impl Fn(&Shared), mut then: impl FnMut(Machine)) -> usize {
    for stop in 0.. {
        let shared = Shared::new(Machine { stop_at: Some(stop), steps: 0, ..start.clone() });
        act(&shared);
        let steps = shared.get().steps;
        if steps <= stop {
            return stop;
        }
        then(shared.get().clone());
    }
    unreachable!()
}

fn check_recovered(machine: &Machine) {
    let shared = Shared::new(machine.clone());
    recover(&shared, &shared).unwrap();
    let disk = shared.disk();
    match state(&shared).unwrap() {
        State::Absent => assert!(disk == old() || disk == new()),
        State::Committed => {
            assert!(disk == new());
            undo(&shared, &shared).unwrap();
            assert!(shared.disk() == old());
        }
        State::Uncommitted => panic!("recovery left it so"),
    }
    assert!(!shared.get().names_now().contains_key(&Name::Unfinished));
}

#[test]
fn stopped_at_any_step_the_disk_is_the_old_one_or_the_new_one() {
    let mut random = Random(0x5EA1);
    let (mut points, mut cases) = (0, 0);
    for (start, act) in acts() {
        points += stopped_everywhere(
            &start,
            |shared| drop(act(shared)),
            |stopped| {
                let mut ends = vec![stopped.restarted(None)];
                ends.extend((0..20).map(|_| stopped.restarted(Some(&mut random))));
                for end in ends {
                    check_recovered(&end);
                    // Recovery is stopped too, everywhere.
                    let again = |shared: &Shared| drop(recover(shared, shared));
                    stopped_everywhere(&end, again, |stopped| {
                        check_recovered(&stopped.restarted(None));
                        check_recovered(&stopped.restarted(Some(&mut random)));
                        cases += 2;
                    });
                    cases += 1;
                }
            },
        );
    }
    assert!(points > 20 && cases > 3000, "{points} points, {cases} cases");
    println!("{points} points, {cases} cases");
}

#[test]
fn a_step_that_fails_leaves_the_old_disk_or_says_so() {
    for (start, act) in acts() {
        for fail in 0.. {
            let shared = Shared::new(Machine { fail_at: Some(fail), steps: 0, ..start.clone() });
            let result = act(&shared);
            if shared.get().steps <= fail {
                result.unwrap();
                break;
            }
            match result {
                Err(JournalError::Journal { .. } | JournalError::PutBack { .. }) => {
                    assert_eq!(shared.disk(), old());
                    assert!(shared.get().names_now().is_empty());
                }
                Err(JournalError::Broken { .. }) => {}
                other => panic!("step {fail}: {other:?}"),
            }
            check_recovered(&shared.get().restarted(None));
        }
    }
}

#[test]
fn a_journal_is_not_believed_of_another_disk() {
    let half = |change: fn(&mut Machine)| {
        // Stopped after the first write to the disk.
        let shared = Shared::new(Machine { stop_at: Some(6), ..untouched() });
        apply(&shared, &shared, &patch()).unwrap_err();
        let mut machine = shared.get().restarted(None);
        assert_ne!(machine.disk.durable, old());
        assert_ne!(machine.disk.durable, new());
        change(&mut machine);
        let before = machine.disk.durable.clone();
        let shared = Shared::new(machine);
        let error = recover(&shared, &shared).unwrap_err();
        assert_eq!(shared.disk(), before);
        error
    };
    let foreign = half(|machine| machine.disk.durable[600] ^= 0x80);
    assert!(matches!(foreign, JournalError::OtherDisk { offset: 600 }), "{foreign}");
    let longer = half(|machine| machine.disk.durable.push(0));
    assert!(matches!(longer, JournalError::Patch(PatchError::Size { .. })), "{longer}");
    for at in [0, 20, 30, record::HEADER + 50] {
        let mut machine = changed();
        machine.files[0].durable[at] ^= 1;
        let shared = Shared::new(machine);
        let error = recover(&shared, &shared).and_then(|_| undo(&shared, &shared)).unwrap_err();
        assert!(matches!(error, JournalError::Damaged { .. }), "{at}: {error}");
        assert_eq!(shared.disk(), new());
    }
    // Written to since: no undo.
    let mut machine = changed();
    machine.disk.durable[2010] ^= 1;
    let shared = Shared::new(machine);
    let error = undo(&shared, &shared).unwrap_err();
    assert!(matches!(error, JournalError::ChangedSince { offset: 2000 }), "{error}");
    // A second change while the first can be undone, and an undo of nothing.
    let shared = Shared::new(changed());
    assert!(matches!(apply(&shared, &shared, &patch()), Err(JournalError::Exists)));
    let shared = Shared::new(untouched());
    assert!(matches!(undo(&shared, &shared), Err(JournalError::NoJournal)));
}
