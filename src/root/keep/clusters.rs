//! One bit for every 64 KiB of a disk: small enough to hold for any disk, however fragmented it is.

use std::ops::Range;

/// The unit in which a disk is shipped, in bytes; qcow2's cluster size too.
pub const CLUSTER: u64 = 64 << 10;

/// Which clusters of a disk are shipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clusters {
    words: Vec<u64>,
    len: u64,
}

impl Clusters {
    /// No cluster of a disk of `disk_size` bytes.
    pub(super) fn none_of(disk_size: u64) -> Self {
        let len = disk_size.div_ceil(CLUSTER);
        Self { words: vec![0; len.div_ceil(64) as usize], len }
    }

    /// Ships every cluster that `bytes` touches.
    pub(super) fn ship(&mut self, bytes: Range<u64>) {
        if bytes.is_empty() {
            return;
        }
        let (first, end) = (bytes.start / CLUSTER, bytes.end.div_ceil(CLUSTER).min(self.len));
        let mut at = first;
        while at < end {
            let (word, bit) = ((at / 64) as usize, at % 64);
            let take = (64 - bit).min(end - at);
            self.words[word] |= (u64::MAX >> (64 - take)) << bit;
            at += take;
        }
    }

    /// The number of clusters of the disk; the last may be cut short by the disk's end.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the disk has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether this cluster is shipped.
    pub fn contains(&self, cluster: u64) -> bool {
        cluster < self.len && self.words[(cluster / 64) as usize] >> (cluster % 64) & 1 == 1
    }

    /// How many are shipped.
    pub fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The bits, 64 clusters a word, the first cluster lowest.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The first run of shipped clusters at or after `from`.
    pub fn next_run(&self, from: u64) -> Option<Range<u64>> {
        let start = self.find(from, true)?;
        Some(start..self.find(start, false).unwrap_or(self.len))
    }

    /// The first cluster at or after `from` that is shipped, or is not.
    fn find(&self, from: u64, shipped: bool) -> Option<u64> {
        let mut word = usize::try_from(from / 64).ok()?;
        let mut mask = u64::MAX << (from % 64);
        while let Some(bits) = self.words.get(word) {
            let bits = if shipped { *bits } else { !*bits } & mask;
            if bits != 0 {
                let found = word as u64 * 64 + u64::from(bits.trailing_zeros());
                return (found < self.len).then_some(found);
            }
            (word, mask) = (word + 1, u64::MAX);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_what_was_shipped(
            len in 0u64..300, ranges in prop::collection::vec((0u64..300, 0u64..100), 0..6),
        ) {
            let mut clusters = Clusters::none_of(len * CLUSTER);
            let mut expected = vec![false; len as usize];
            for (start, count) in ranges {
                let end = (start + count).min(len);
                clusters.ship(start * CLUSTER..end * CLUSTER);
                for shipped in expected.iter_mut().take(end as usize).skip(start as usize) {
                    *shipped = true;
                }
            }
            let mut found = vec![false; len as usize];
            let mut at = 0;
            while let Some(run) = clusters.next_run(at) {
                prop_assert!(run.start >= at && run.start < run.end);
                found[run.start as usize..run.end as usize].fill(true);
                at = run.end + 1;
            }
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(clusters.count(), expected.iter().filter(|s| **s).count() as u64);
            prop_assert!(expected.iter().enumerate().all(|(i, s)| clusters.contains(i as u64) == *s));
        }
    }

    #[test]
    fn a_byte_ships_its_cluster() {
        let mut clusters = Clusters::none_of(3 * CLUSTER + 1);
        clusters.ship(CLUSTER - 1..CLUSTER + 1);
        clusters.ship(3 * CLUSTER..3 * CLUSTER + 1);
        clusters.ship(5..5);
        assert_eq!(clusters.len(), 4);
        assert_eq!(clusters.words(), [0b1011]);
    }
}
