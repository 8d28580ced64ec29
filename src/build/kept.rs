//! Whether an answer that an earlier build rendered is still what it rendered.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;
use serde::Deserialize;
use serde::de::IgnoredAny;
use zeroize::Zeroizing;

use super::state::AnswerState;
use crate::kube::{CREDENTIALS_FILE, SECRET_FILE};

/// More than any answer has, in bytes.
const MAX_SIZE: u64 = 1 << 20;

/// What is looked at in the credentials; the password only has to be there.
#[derive(Deserialize)]
struct Credentials {
    hostname: String,
    username: String,
    #[serde(rename = "password")]
    _password: IgnoredAny,
}

/// Says what is wrong with the answer in `folder`. No message repeats what its files hold.
pub(super) fn check(folder: &Path, answer: &AnswerState) -> Result<(), String> {
    let found = folder.symlink_metadata().map_err(|e| format!("it can't be looked at: {e}"))?;
    if !found.is_dir() {
        return Err("it is no folder".into());
    }
    private(&found).map_err(|why| format!("it {why}"))?;
    let secret = read(&folder.join(SECRET_FILE)).map_err(|why| format!("{SECRET_FILE} {why}"))?;
    let no_json = |file| move |_| format!("{file} is not the JSON that was rendered");
    serde_json::from_slice::<serde_json::Map<_, serde_json::Value>>(&secret).map_err(no_json(SECRET_FILE))?;
    let credentials =
        read(&folder.join(CREDENTIALS_FILE)).map_err(|why| format!("{CREDENTIALS_FILE} {why}"))?;
    let credentials: Credentials = serde_json::from_slice(&credentials).map_err(no_json(CREDENTIALS_FILE))?;
    if credentials.hostname != answer.hostname {
        return Err(format!("{CREDENTIALS_FILE} is of another computer than {}", answer.hostname));
    }
    if credentials.username != answer.username {
        return Err(format!("{CREDENTIALS_FILE} is of another account than {}", answer.username));
    }
    Ok(())
}

fn private(found: &Metadata) -> Result<(), String> {
    if found.uid() != geteuid().as_raw() {
        return Err("belongs to another user".into());
    }
    match found.mode() & 0o777 {
        mode if mode & 0o077 == 0 => Ok(()),
        mode => Err(format!("is open to other users (mode {mode:04o})")),
    }
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let found = path.symlink_metadata().map_err(|e| format!("can't be looked at: {e}"))?;
    if !found.is_file() {
        return Err("is no regular file".into());
    }
    private(&found)?;
    if found.len() > MAX_SIZE {
        return Err(format!("has more than {MAX_SIZE} bytes"));
    }
    // Room for all of it: a vector that grows leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_SIZE as usize + 1));
    let read = File::open(path).and_then(|file| file.take(MAX_SIZE).read_to_end(&mut bytes));
    read.map_err(|e| format!("can't be read: {e}"))?;
    Ok(bytes)
}
