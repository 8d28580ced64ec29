//! NTFS read offline: volume state, extents, free clusters.
