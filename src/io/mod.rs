//! Bytes and nothing else: reading at an offset, a patch or a draft over what is read or written in place, new
//! files, progress.

mod draft;
mod file;
pub mod journal;
mod new_path;
mod overlay;
mod patch;
mod path_text;
mod progress;
mod read_at;
mod write_at;

pub use draft::{Change, Draft, Pages};
pub use file::SourceFile;
pub use new_path::{
    NewDir, NewFile, NewPathError, Privacy, UNFINISHED, is_anything_unfinished, replace_file,
};
pub use overlay::Overlay;
pub use patch::{Edit, Patch, PatchError};
pub use path_text::path_text;
pub use progress::{Interrupted, Progress, Silent, Task};
pub use read_at::{Cursor, ReadAt, Window};
pub use write_at::WriteAt;
