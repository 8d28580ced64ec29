//! A disk read through a patch: the sealed view, without a second copy.

use std::io;
use std::ops::Range;

use super::{Patch, ReadAt};

/// `base` with `patch` over it; the base is never written.
#[derive(Debug)]
pub struct Overlay<R> {
    base: R,
    patch: Patch,
}

impl<R: ReadAt> Overlay<R> {
    /// Reads `base` through `patch`.
    pub fn new(base: R, patch: Patch) -> Self {
        Self { base, patch }
    }

    /// What is laid over the base.
    pub fn patch(&self) -> &Patch {
        &self.patch
    }
}

impl<R: ReadAt> ReadAt for Overlay<R> {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.base.read_exact_at(buf, offset)?;
        let end = offset + buf.len() as u64;
        for edit in self.patch.edits_in(offset, end) {
            let (from, to) = (edit.offset.max(offset), edit.end().min(end));
            let new = &edit.new[(from - edit.offset) as usize..(to - edit.offset) as usize];
            buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(new);
        }
        Ok(())
    }

    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        let data = self.base.next_data(from)?;
        let edit = self.patch.edits_in(from, self.size()).next().map(|e| e.offset.max(from)..e.end());
        Ok(match (data, edit) {
            (Some(data), Some(edit)) if edit.start < data.start => Some(edit),
            (Some(data), _) => Some(data),
            (None, edit) => edit,
        })
    }

    fn check_unchanged(&self) -> io::Result<()> {
        self.base.check_unchanged()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn reads_equal_a_patched_copy(
            base in prop::collection::vec(any::<u8>(), 1..200),
            edits in prop::collection::vec((0usize..200, prop::collection::vec(any::<u8>(), 1..20)), 0..10),
            from in 0usize..200, len in 0usize..200,
        ) {
            let mut copy = base.clone();
            let mut patch = Patch::new();
            for (offset, new) in edits {
                let Some(end) = (offset + new.len() <= base.len()).then_some(offset + new.len()) else { continue };
                if patch.replace(&base, offset as u64, &new).is_ok() {
                    let trimmed: Vec<_> = patch.edits_in(offset as u64, end as u64).cloned().collect();
                    for edit in trimmed {
                        copy[edit.offset as usize..edit.end() as usize].copy_from_slice(&edit.new);
                    }
                }
            }
            let from = from.min(base.len());
            let len = len.min(base.len() - from);
            let mut buf = vec![0; len];
            Overlay::new(&base, patch).read_exact_at(&mut buf, from as u64).unwrap();
            prop_assert_eq!(&buf, &copy[from..from + len]);
        }
    }

    /// Three bytes of nothing but hole.
    struct Hole;
    impl ReadAt for Hole {
        fn size(&self) -> u64 {
            3
        }
        fn read_exact_at(&self, buf: &mut [u8], _: u64) -> io::Result<()> {
            buf.fill(0);
            Ok(())
        }
        fn next_data(&self, _: u64) -> io::Result<Option<Range<u64>>> {
            Ok(None)
        }
    }

    #[test]
    fn an_edit_in_a_hole_is_data() {
        let mut patch = Patch::new();
        patch.replace(&Hole, 1, b"x").unwrap();
        let overlay = Overlay::new(Hole, patch);
        assert_eq!(overlay.next_data(0).unwrap(), Some(1..2));
        assert_eq!(overlay.next_data(2).unwrap(), None);
    }
}
