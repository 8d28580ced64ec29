//! Where the media are, and whether their hashes may be remembered.

use std::path::PathBuf;

use super::{Classify, Console, Exit, Failure};
use crate::media::{HashCache, HashCacheError};

/// The media of a recipe.
#[derive(Debug, clap::Args)]
pub struct MediaArgs {
    /// Where the media are, instead of the recipe's own folder.
    #[arg(long, value_name = "DIR")]
    pub media_dir: Option<PathBuf>,
    /// Do not hash a medium again that FILE says was hashed earlier: same inode, size, times, first and last MiB.
    /// For repeated builds; what is not hashed is labelled, in the evidence too. FILE is made where there is none.
    #[arg(long, value_name = "FILE")]
    hash_cache: Option<PathBuf>,
}

impl MediaArgs {
    /// The cache, if one was asked for.
    pub fn cache(&self) -> Result<Option<HashCache>, Failure> {
        Ok(self.hash_cache.as_deref().map(HashCache::open).transpose()?)
    }
}

/// Saves the cache. What was verified stays verified where that fails.
pub fn save(cache: Option<&HashCache>, console: &Console) {
    if let Some(cache) = cache
        && let Err(e) = cache.save()
    {
        console.warn(format!("hashes are not remembered: {}", Failure::from(e)));
    }
}

impl Classify for HashCacheError {
    fn exit(&self) -> Exit {
        match self {
            Self::Read { .. } => Exit::Failed,
            Self::Foreign { .. } | Self::NotOurs { .. } => Exit::Refused,
            Self::Write(e) => e.exit(),
        }
    }

    fn cure(&self) -> Option<String> {
        match self {
            Self::Foreign { .. } => Some("name another file, or one that is not there".into()),
            Self::NotOurs { .. } => {
                Some("whoever can write it decides what a medium's hash is: use a file of your own".into())
            }
            Self::Read { .. } | Self::Write(_) => None,
        }
    }
}
