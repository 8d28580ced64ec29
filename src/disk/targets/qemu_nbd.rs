//! qemu-nbd, which speaks iSCSI, as an NBD server on a socket of our own.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use thiserror::Error;

use super::TargetError;
use super::nbd::{NbdAddress, Server};
use crate::io::Task;

/// How long a target may take to be reached: libiscsi tries for a while.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one that has failed may take to end.
const ENDING: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(50);

/// Why there is no server.
#[derive(Debug, Error)]
pub enum QemuNbdError {
    /// Not installed.
    #[error("qemu-nbd is needed for iSCSI and is not there; install the package qemu-utils")]
    Missing,
    /// Installed without iSCSI.
    #[error("this qemu-nbd does not speak iSCSI; install the package qemu-block-extra")]
    NoIscsi,
    /// A password where everybody can read it.
    #[error(
        "the address holds a user or password, which would show in the list of processes; give them in the \
         environment: LIBISCSI_CHAP_USERNAME and LIBISCSI_CHAP_PASSWORD"
    )]
    Secret,
    /// It can't be started.
    #[error("qemu-nbd can't be started")]
    Start(#[source] io::Error),
    /// It ended.
    #[error("qemu-nbd does not open it: {0}")]
    Ended(String),
    /// It does not come up.
    #[error("qemu-nbd has not opened it within {} seconds", PATIENCE.as_secs())]
    Late,
}

/// A running qemu-nbd, ended when dropped.
#[derive(Debug)]
pub struct QemuNbd {
    child: Child,
    folder: tempfile::TempDir,
}

impl QemuNbd {
    /// Opens an `iscsi://` address for writing.
    pub fn open(iscsi: &str, task: &dyn Task) -> Result<Self, TargetError> {
        let host = iscsi.strip_prefix("iscsi://").and_then(|rest| rest.split('/').next());
        if host.is_none_or(|host| host.contains('@')) {
            return Err(QemuNbdError::Secret.into());
        }
        let folder =
            tempfile::Builder::new().prefix("sealroot-nbd-").tempdir().map_err(QemuNbdError::Start)?;
        let child = Command::new("qemu-nbd")
            // No guessing of formats: what is there is a raw disk.
            .args(["--format=raw", "--cache=none", "--discard=unmap", "--shared=1", "--socket"])
            .arg(folder.path().join("socket"))
            .arg(iscsi)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let child = child.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => QemuNbdError::Missing,
            _ => QemuNbdError::Start(error),
        })?;
        let mut server = Self { child, folder };
        server.wait(task)?;
        Ok(server)
    }

    /// Where to connect to.
    pub fn address(&self) -> NbdAddress {
        NbdAddress { server: Server::Unix(self.socket()), export: String::new() }
    }

    /// The connection to it failed so; if that is because it ended, why it did.
    ///
    /// It listens before it opens what it is to serve.
    pub fn explain(mut self, failure: TargetError) -> TargetError {
        let begun = Instant::now();
        while begun.elapsed() < ENDING {
            if let Ok(Some(_)) = self.child.try_wait() {
                return self.why().into();
            }
            std::thread::sleep(TICK);
        }
        failure
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn wait(&mut self, task: &dyn Task) -> Result<(), TargetError> {
        let begun = Instant::now();
        while !self.socket().exists() {
            task.advance(0)?;
            if let Ok(Some(_)) = self.child.try_wait() {
                return Err(self.why().into());
            }
            if begun.elapsed() > PATIENCE {
                return Err(QemuNbdError::Late.into());
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn why(&mut self) -> QemuNbdError {
        let mut said = Vec::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _ = stderr.take(64 << 10).read_to_end(&mut said);
        }
        let said = String::from_utf8_lossy(&said);
        // Three versions' words for a driver that is not there.
        let missing = ["Unknown protocol", "Unknown driver", "A block device must be specified for \"file\""];
        if missing.iter().any(|words| said.contains(words)) {
            return QemuNbdError::NoIscsi;
        }
        let line = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
        QemuNbdError::Ended(line.trim_start_matches("qemu-nbd: ").to_owned())
    }
}

impl Drop for QemuNbd {
    fn drop(&mut self) {
        // It ends by itself when its one client has gone; what it has written is flushed by then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
