//! A thread that drives network operations, so that everybody else can wait for them and stop waiting.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::RegistryError;
use crate::io::{Interrupted, Task};

/// How often a wait looks whether it should go on.
const TICK: Duration = Duration::from_millis(200);

/// The thread, ended on drop with whatever is still running on it.
#[derive(Debug)]
pub(super) struct Network {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Network {
    pub(super) fn start() -> Result<Self, RegistryError> {
        let setup = |e: std::io::Error| RegistryError::Setup { source: e.into() };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(setup)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            let _ = runtime.block_on(stopped);
            // A name lookup can't be cancelled; it must not be waited for either.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("network".into()).spawn(run).map_err(setup)?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Where to spawn what shall run by itself.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Waits for `work`, telling `task` what `meter` counted, until it is done or the task says stop.
    pub(super) fn wait<T>(
        &self,
        task: &dyn Task,
        meter: &Meter,
        work: impl Future<Output = T>,
    ) -> Result<T, Interrupted> {
        let mut work = pin!(work);
        loop {
            let turn = self.handle.block_on(async { tokio::time::timeout(TICK, work.as_mut()).await });
            task.advance(meter.news())?;
            if let Ok(done) = turn {
                return Ok(done);
            }
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Counts bytes on one thread for a progress bar on another. What is sent a second time is not counted.
#[derive(Debug, Default)]
pub(super) struct Meter {
    sent: AtomicU64,
    told: AtomicU64,
}

impl Meter {
    /// So many bytes are through in all.
    pub(super) fn reached(&self, bytes: u64) {
        self.sent.fetch_max(bytes, Ordering::Relaxed);
    }

    /// How many are through since this was last asked.
    fn news(&self) -> u64 {
        let sent = self.sent.load(Ordering::Relaxed);
        sent - self.told.swap(sent, Ordering::Relaxed)
    }
}
