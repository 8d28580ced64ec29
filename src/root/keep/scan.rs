//! The zero scan: what is not all zeros, by reading it.

use std::io;
use std::ops::Range;

use super::clusters::{CLUSTER, Clusters};
use crate::io::ReadAt;

/// Read at once, in bytes: a whole number of clusters, large enough that the calls don't count.
const AT_ONCE: u64 = 16 * CLUSTER;
static ZEROS: [u8; CLUSTER as usize] = [0; CLUSTER as usize];

/// Ships each cluster with a byte inside `region` that is not zero. Holes are not read.
///
/// `done` is told how far it came, in bytes from the region's start that are now behind it.
pub(super) fn scan<E: From<io::Error>>(
    disk: &dyn ReadAt,
    region: Range<u64>,
    clusters: &mut Clusters,
    done: &mut dyn FnMut(u64) -> Result<(), E>,
) -> Result<(), E> {
    let mut buf = vec![0; AT_ONCE as usize];
    let mut at = region.start;
    while at < region.end {
        let next = disk.next_data(at)?;
        let Some(data) = next.filter(|data| data.start < region.end) else {
            break;
        };
        let skipped = data.start.max(at);
        done(skipped - at)?;
        at = skipped;
        // A source that names an empty range must not stop the clock.
        let end = data.end.min(region.end).max(at + 1);
        while at < end {
            // Up to a cluster boundary, so that a piece below is never in two clusters.
            let stop = ((at / CLUSTER * CLUSTER) + AT_ONCE).min(end);
            let piece = &mut buf[..(stop - at) as usize];
            disk.read_exact_at(piece, at)?;
            ship_non_zero(piece, at, clusters);
            done(stop - at)?;
            at = stop;
        }
    }
    done(region.end.saturating_sub(at))
}

fn ship_non_zero(mut bytes: &[u8], mut at: u64, clusters: &mut Clusters) {
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(((CLUSTER - at % CLUSTER) as usize).min(bytes.len()));
        if piece != &ZEROS[..piece.len()] {
            clusters.ship(at..at + 1);
        }
        at += piece.len() as u64;
        bytes = rest;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn scanned(disk: &dyn ReadAt, region: Range<u64>) -> (Clusters, u64) {
        let mut clusters = Clusters::none_of(disk.size());
        let mut told = 0;
        scan(disk, region, &mut clusters, &mut |n| -> io::Result<()> {
            told += n;
            Ok(())
        })
        .unwrap();
        (clusters, told)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn finds_every_byte(
            bytes in prop::collection::vec(0u64..40 * CLUSTER + 77, 0..8), start in 0u64..90_000, cut in 0u64..90_000,
        ) {
            let size = 40 * CLUSTER + 77;
            let mut disk = vec![0u8; size as usize];
            for at in &bytes {
                disk[*at as usize] = 1;
            }
            let region = start..size - cut;
            let (clusters, told) = scanned(&disk, region.clone());
            prop_assert_eq!(told, region.end - region.start);
            for cluster in 0..clusters.len() {
                let expected = bytes.iter().any(|at| region.contains(at) && at / CLUSTER == cluster);
                prop_assert_eq!(clusters.contains(cluster), expected, "cluster {}", cluster);
            }
        }
    }
}
