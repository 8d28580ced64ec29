//! The stages of a build, what is kept of an earlier one, and the evidence.

mod publish;

pub use publish::{Packaging, PublishError, Published, Target, publish};
