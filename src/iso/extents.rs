//! A file on a disc: pieces of the image, in the file's order.

use std::io;

use super::DiscError;
use crate::io::ReadAt;

/// A piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// In bytes.
    pub length: u64,
    /// Where it begins in the image, in bytes; `None`: nothing was recorded, and it reads as zeros.
    pub at: Option<u64>,
}

/// A file on a disc, read where it lies.
pub struct File<'a> {
    source: &'a dyn ReadAt,
    size: u64,
    /// Every extent and where it begins in the file, in that order, without gaps.
    extents: Vec<(u64, Extent)>,
}

impl<'a> File<'a> {
    /// A file of `size` bytes. `what` names the structure that lists the extents, and `offset` is where it stands.
    pub(super) fn new(
        source: &'a dyn ReadAt,
        size: u64,
        extents: &[Extent],
        what: &'static str,
        offset: u64,
    ) -> Result<Self, DiscError> {
        let mut placed = Vec::with_capacity(extents.len());
        let mut start: u64 = 0;
        for extent in extents {
            // What lies past the file's end is nobody's: recorders round up.
            let length = extent.length.min(size.saturating_sub(start));
            if length == 0 {
                break;
            }
            if let Some(at) = extent.at
                && at.checked_add(length).is_none_or(|end| end > source.size())
            {
                let (what, size) = ("file content", source.size());
                return Err(DiscError::Truncated { what, offset: at, length, size });
            }
            placed.push((start, Extent { length, ..*extent }));
            start += length;
        }
        if let Some(offset) = overlap(&placed) {
            return Err(DiscError::Damaged {
                what: "file content",
                offset,
                why: "two extents of a file overlap",
            });
        }
        if start < size {
            let why = "its extents hold fewer bytes than the file has";
            return Err(DiscError::Damaged { what, offset, why });
        }
        Ok(Self { source, size, extents: placed })
    }
}

/// Where two of the recorded extents share a byte.
fn overlap(placed: &[(u64, Extent)]) -> Option<u64> {
    let mut places: Vec<(u64, u64)> =
        placed.iter().filter_map(|(_, extent)| Some((extent.at?, extent.length))).collect();
    places.sort_unstable();
    places.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0).map(|pair| pair[1].0)
}

impl File<'_> {
    /// Where its first byte lies in the image; 0 where none was recorded.
    pub(super) fn offset(&self) -> u64 {
        self.extents.first().and_then(|(_, extent)| extent.at).unwrap_or(0)
    }
}

impl std::fmt::Debug for File<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "File {{ {} bytes in {} extents }}", self.size, self.extents.len())
    }
}

impl ReadAt for File<'_> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let first = self.extents.partition_point(|(start, extent)| start + extent.length <= offset);
        let (mut rest, mut from) = (buf, offset);
        for (start, extent) in &self.extents[first..] {
            if rest.is_empty() {
                break;
            }
            let within = from - start;
            let length = usize::try_from(extent.length - within).unwrap_or(usize::MAX).min(rest.len());
            let (piece, after) = rest.split_at_mut(length);
            match extent.at {
                Some(at) => self.source.read_exact_at(piece, at + within)?,
                None => piece.fill(0),
            }
            from += length as u64;
            rest = after;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Any part of a file is the same part of its extents, one after the other.
        #[test]
        fn parts_are_parts(
            pieces in proptest::collection::vec((0..25u64, proptest::option::of(0..6u64)), 0..8),
            (from, to) in (0..200u64, 0..200u64),
        ) {
            let image: Vec<u8> = (1..=250).collect();
            // Each in a place of its own: extents that overlap are refused.
            let mut taken = std::collections::BTreeSet::new();
            let extents: Vec<_> = pieces
                .iter()
                .map(|&(length, at)| Extent { length, at: at.filter(|at| taken.insert(*at)).map(|at| at * 30) })
                .collect();
            // An empty extent ends a list, as everywhere here.
            let listed: Vec<_> = extents.iter().take_while(|extent| extent.length > 0).copied().collect();
            let whole: Vec<u8> = listed.iter().flat_map(|extent| match extent.at {
                Some(at) => image[at as usize..(at + extent.length) as usize].to_vec(),
                None => vec![0; extent.length as usize],
            }).collect();
            let file = File::new(&image, whole.len() as u64, &extents, "", 0).unwrap();
            let (from, to) = (from.min(to), from.max(to));
            let mut part = vec![0xee; (to - from) as usize];
            let read = file.read_exact_at(&mut part, from);
            prop_assert_eq!(read.is_ok(), to <= whole.len() as u64);
            if read.is_ok() {
                prop_assert_eq!(&part[..], &whole[from as usize..to as usize]);
            }
        }
    }

    #[test]
    fn extents_that_are_not_there_are_errors() {
        let image = vec![0; 100];
        let extent = |length, at| Extent { length, at: Some(at) };
        let error = |size, extents: &[Extent]| File::new(&image, size, extents, "", 0).unwrap_err();
        assert!(matches!(error(60, &[extent(60, 50)]), DiscError::Truncated { offset: 50, .. }));
        assert!(matches!(error(10, &[extent(u64::MAX, u64::MAX - 1)]), DiscError::Truncated { .. }));
        assert!(matches!(error(10, &[extent(9, 0)]), DiscError::Damaged { .. }));
        assert!(matches!(
            error(20, &[extent(10, 30), extent(10, 21)]),
            DiscError::Damaged { offset: 30, .. }
        ));
        // Only what the file needs must be there.
        assert_eq!(File::new(&image, 50, &[extent(60, 50)], "", 0).unwrap().size(), 50);
    }
}
