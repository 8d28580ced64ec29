//! Paths in what is written for machines.

use std::path::Path;

use serde::Serializer;

/// For `serialize_with`: a path as text. Bytes that are no UTF-8 become U+FFFD, where serde's own way would fail
/// after all the work.
pub fn path_text<S: Serializer>(path: impl AsRef<Path>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.as_ref().to_string_lossy())
}
