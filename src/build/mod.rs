//! The stages of a build, what is kept of an earlier one, and the evidence.
//!
//! A build folder is one recipe's, and holds all that it yields:
//!
//! - `install/`, `clone/`: the rendered answers with their credentials, private;
//! - `image/`: the OCI layout;
//! - `evidence.json`: what was built from what;
//! - `state.json`: what a later build needs to know in order to keep what is done and unchanged.
//!
//! [`build`] walks the stages; [`publish`] is the one way from a disk to an image, `package`'s too.

mod answers;
mod evidence;
mod examine;
mod folder;
mod kept;
mod plan;
mod publish;
mod run;
mod state;

pub use answers::AnswersError;
pub use evidence::{EVIDENCE, Evidence};
pub use folder::FolderError;
pub use plan::{Planned, plan};
pub use publish::{Packaging, PublishError, Published, Target, publish};
pub use run::{BuildError, Job, Step, build};
