//! Telling how far a long task has come, and asking it to stop.

use thiserror::Error;

/// The user asked to stop; whatever was being written is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Where long tasks report. Implementations draw bars; the library only tells.
pub trait Progress: Send + Sync {
    /// A task over `total` bytes begins; it ends when the returned value is dropped.
    fn task(&self, name: &str, total: u64) -> Box<dyn Task>;
}

/// One running task.
pub trait Task: Send + Sync {
    /// `bytes` more are done. An error asks the task to stop now.
    fn advance(&self, bytes: u64) -> Result<(), Interrupted>;
}

/// Reports to nobody and never stops anything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn task(&self, _: &str, _: u64) -> Box<dyn Task> {
        Box::new(Silent)
    }
}

impl Task for Silent {
    fn advance(&self, _: u64) -> Result<(), Interrupted> {
        Ok(())
    }
}
