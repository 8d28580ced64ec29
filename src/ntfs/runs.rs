//! Mapping pairs: which clusters of the volume hold which clusters of a file.

/// Neighbouring clusters of a file that are neighbours on the volume, or a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// The first cluster's number in the file.
    pub file_cluster: u64,
    /// The first cluster's number on the volume; `None` for a hole, which reads as zeros.
    pub volume_cluster: Option<u64>,
    /// How many clusters, at least one.
    pub clusters: u64,
}

impl Run {
    pub(super) fn end(&self) -> u64 {
        self.file_cluster + self.clusters
    }
}

/// Appends the runs of one extent, which must cover `first..end` of the file and lie within the volume.
pub(super) fn decode(
    mut pairs: &[u8],
    first: u64,
    end: u64,
    volume_clusters: u64,
    into: &mut Vec<Run>,
) -> Result<(), &'static str> {
    let mut next = first;
    let mut place: i64 = 0;
    loop {
        let Some((&header, rest)) = pairs.split_first() else {
            return Err("its mapping pairs have no end");
        };
        if header == 0 {
            break;
        }
        let (length_size, offset_size) = (usize::from(header & 15), usize::from(header >> 4));
        if !(1..=8).contains(&length_size) || offset_size > 8 || rest.len() < length_size + offset_size {
            return Err("a mapping pair is out of range");
        }
        let clusters = signed(&rest[..length_size]);
        let delta = signed(&rest[length_size..length_size + offset_size]);
        pairs = &rest[length_size + offset_size..];
        if clusters <= 0 {
            return Err("a run of clusters is empty");
        }
        let clusters = clusters as u64;
        let volume_cluster = if offset_size == 0 {
            None
        } else {
            place = place.checked_add(delta).ok_or("a run of clusters is out of range")?;
            let start = u64::try_from(place).map_err(|_| "a run of clusters lies before the volume")?;
            if start.checked_add(clusters).is_none_or(|end| end > volume_clusters) {
                return Err("a run of clusters lies past the volume's end");
            }
            Some(start)
        };
        let run = Run { file_cluster: next, volume_cluster, clusters };
        next = next
            .checked_add(clusters)
            .filter(|next| *next <= end)
            .ok_or("it has more clusters than it says")?;
        into.push(run);
    }
    if next == end { Ok(()) } else { Err("it has fewer clusters than it says") }
}

/// A little-endian number of up to 8 bytes with a sign; 0 of none.
fn signed(bytes: &[u8]) -> i64 {
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    bytes.iter().rev().fold(if negative { -1 } else { 0 }, |value, byte| value << 8 | i64::from(*byte))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forwards_backwards_and_holes() {
        // 0x30 clusters at 0x60; 0x10 at 0x160; a hole of 5; 2 clusters 0x20 before the last place.
        let pairs = [0x11, 0x30, 0x60, 0x21, 0x10, 0x00, 0x01, 0x01, 0x05, 0x11, 0x02, 0xe0, 0x00];
        let mut runs = Vec::new();
        decode(&pairs, 0, 0x47, 1000, &mut runs).unwrap();
        let places: Vec<_> = runs.iter().map(|r| (r.file_cluster, r.volume_cluster, r.clusters)).collect();
        assert_eq!(
            places,
            [(0, Some(0x60), 0x30), (0x30, Some(0x160), 0x10), (0x40, None, 5), (0x45, Some(0x140), 2)]
        );
        let refused = |pairs: &[u8], end, volume| decode(pairs, 0, end, volume, &mut Vec::new()).unwrap_err();
        assert!(refused(&pairs, 0x46, 1000).contains("more"));
        assert!(refused(&pairs, 0x48, 1000).contains("fewer"));
        assert!(refused(&pairs, 0x47, 0x16f).contains("past"));
        assert!(refused(&pairs[..12], 0x47, 1000).contains("no end"));
        assert!(refused(&[0x11, 0x01, 0x80, 0], 1, 1000).contains("before"));
        assert!(refused(&[0x11, 0x80, 0x01, 0], 1, 1000).contains("empty"));
    }

    proptest! {
        #[test]
        fn any_bytes_stay_within_the_volume(pairs: Vec<u8>, end in 0u64..1 << 40, volume in 0u64..1 << 40) {
            let mut runs = Vec::new();
            if decode(&pairs, 0, end, volume, &mut runs).is_ok() {
                let total: u64 = runs.iter().map(|run| run.clusters).sum();
                prop_assert_eq!(total, end);
                for run in runs {
                    prop_assert!(run.volume_cluster.is_none_or(|start| start + run.clusters <= volume));
                }
            }
        }
    }
}
