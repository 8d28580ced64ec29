//! Where the media are, whether their hashes may be remembered, and by what their drivers' signatures are judged.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use time::OffsetDateTime;

use super::{Classify, Console, Exit, Failure};
use crate::iso::DiscError;
use crate::media::driver::{Judge, TrustRoots, TrustRootsError};
use crate::media::wim::WimError;
use crate::media::{HashCache, HashCacheError, MediumError};
use crate::recipe::expect::{Differences, UnreadMedium};
use crate::recipe::lock::LockError;

/// The media of a recipe.
#[derive(Debug, clap::Args)]
pub struct MediaArgs {
    /// Where the media are, instead of the recipe's own folder.
    #[arg(long, value_name = "DIR")]
    pub media_dir: Option<PathBuf>,
    /// Judge the certificates that drivers are signed with by the roots in FILE (PEM), and by no others. Without it,
    /// files are held to their signed catalogs all the same, and who signed those is reported, not judged.
    #[arg(long, value_name = "FILE")]
    trust_roots: Option<PathBuf>,
}

/// A cache of hashes, for commands that may take an earlier one.
#[derive(Debug, clap::Args)]
pub struct HashCacheArg {
    /// Do not hash a medium again that FILE says was hashed earlier: same inode, size, times, first and last MiB.
    /// For repeated builds; what is not hashed is labelled, in the evidence too. FILE is made where there is none.
    #[arg(long, value_name = "FILE")]
    hash_cache: Option<PathBuf>,
}

impl HashCacheArg {
    /// The cache, if one was asked for.
    pub fn open(&self) -> Result<Option<HashCache>, Failure> {
        Ok(self.hash_cache.as_deref().map(HashCache::open).transpose()?)
    }
}

/// The most bytes of a file of roots.
const MAX_ROOTS: u64 = 4 << 20;

impl MediaArgs {
    /// The roots that were given.
    pub fn roots(&self) -> Result<Option<TrustRoots>, Failure> {
        let Some(path) = &self.trust_roots else { return Ok(None) };
        let context = |failure: Failure| failure.context(format!("--trust-roots {}", path.display()));
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MAX_ROOTS).read_to_end(&mut bytes))
            .map_err(|e| context(Failure::new(Exit::Failed, e.to_string())))?;
        TrustRoots::from_pem(&bytes).map(Some).map_err(|e| context(e.into()))
    }
}

/// Judges by those roots, if any, and by the time now.
pub fn judge(roots: Option<&TrustRoots>) -> Judge<'_> {
    Judge { roots, now: OffsetDateTime::now_utc() }
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

impl Classify for TrustRootsError {
    fn exit(&self) -> Exit {
        Exit::Rejected
    }

    fn cure(&self) -> Option<String> {
        Some("give the root certificates as PEM, one after the other".into())
    }
}

impl Classify for Differences {
    fn exit(&self) -> Exit {
        Exit::Rejected
    }
}

impl Classify for MediumError {
    fn exit(&self) -> Exit {
        match self {
            Self::Disc(DiscError::Read { .. }) | Self::Wim { source: WimError::Read { .. }, .. } => {
                Exit::Failed
            }
            Self::Disc(_) | Self::Wim { .. } | Self::Changed(_) => Exit::Rejected,
        }
    }
}

impl Classify for UnreadMedium {
    fn exit(&self) -> Exit {
        self.source.exit()
    }

    fn cure(&self) -> Option<String> {
        Some(
            "get the medium again from its publisher, with its hash; the pin is that of a damaged file"
                .into(),
        )
    }
}

impl Classify for LockError {
    fn exit(&self) -> Exit {
        match self {
            Self::Read { .. } => Exit::Failed,
            Self::Foreign { .. } => Exit::Rejected,
        }
    }

    fn cure(&self) -> Option<String> {
        Some("`sealroot pin` makes it anew; to do without a lock, remove it".into())
    }
}
