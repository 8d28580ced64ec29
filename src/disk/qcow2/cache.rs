//! A small cache, shared by threads, in which nothing is loaded twice at the same time.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

type Slot = Arc<Mutex<Option<Arc<[u8]>>>>;

/// The least recently used entry gives way.
#[derive(Debug)]
pub(super) struct Cache {
    capacity: usize,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    clock: u64,
    slots: HashMap<u64, (u64, Slot)>,
}

impl Cache {
    /// Holds `capacity` entries, at least one.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), entries: Mutex::default() }
    }

    /// What is kept under `key`; the first to ask loads it, and others who ask meanwhile wait for that.
    pub(super) fn get(&self, key: u64, load: impl FnOnce() -> io::Result<Vec<u8>>) -> io::Result<Arc<[u8]>> {
        let slot = self.slot(key);
        // A thread that panicked while loading left the slot empty, which is a right state.
        let mut content = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(content) = &*content {
            return Ok(content.clone());
        }
        let loaded: Arc<[u8]> = load()?.into();
        *content = Some(loaded.clone());
        Ok(loaded)
    }

    fn slot(&self, key: u64) -> Slot {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.clock += 1;
        let now = entries.clock;
        if let Some((used, slot)) = entries.slots.get_mut(&key) {
            *used = now;
            return slot.clone();
        }
        if entries.slots.len() >= self.capacity {
            let oldest = entries.slots.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| *key);
            if let Some(oldest) = oldest {
                entries.slots.remove(&oldest);
            }
        }
        let slot = Slot::default();
        entries.slots.insert(key, (now, slot.clone()));
        slot
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn threads_that_want_the_same_load_it_once() {
        let cache = Cache::new(4);
        let loads = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let load = || {
                        loads.fetch_add(1, Ordering::SeqCst);
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        Ok(vec![7])
                    };
                    assert_eq!(&*cache.get(1, load).unwrap(), [7]);
                });
            }
        });
        assert_eq!(loads.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn the_oldest_gives_way_and_errors_are_not_kept() {
        let cache = Cache::new(2);
        assert!(cache.get(1, || Err(io::ErrorKind::Other.into())).is_err());
        for key in [1, 2, 1, 3] {
            cache.get(key, || Ok(vec![key as u8])).unwrap();
        }
        cache.get(1, || panic!("1 was used after 2")).unwrap();
        let mut reloaded = false;
        cache
            .get(2, || {
                reloaded = true;
                Ok(vec![])
            })
            .unwrap();
        assert!(reloaded);
    }
}
