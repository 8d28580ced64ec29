//! `media inspect`: what an ISO holds, without mounting it.

use std::path::{Path, PathBuf};
use std::thread;

use serde::Serialize;

use super::media_text;
use super::{Console, Exit, Failure};
use crate::io::{ReadAt, SourceFile, path_text};
use crate::iso::{Disc, Tree, VolumeKind};
use crate::media::{
    self, Content, Contents, DriverMedium, HashError, MediaError, MediumError, Sha256, WindowsMedium,
};

/// Say what ISO files hold, without mounting them.
///
/// Of a Windows medium: every image that can be installed, with its NAME,
/// edition, architecture, languages and build. Of a virtio-win medium: every
/// driver by Windows and architecture with its version, the guest agent and the
/// guest tools. Headers and folders are read, and little else. Exit code 3 when
/// one is no disc image, is truncated or damaged.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The ISO files.
    #[arg(required = true, value_name = "ISO")]
    files: Vec<PathBuf>,
    /// Hash them, too, and name those whose hash is known.
    #[arg(long)]
    sha256: bool,
    /// Print it as JSON: a list, in the order of the files.
    #[arg(long)]
    json: bool,
}

/// One file of `media inspect --json`.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(serialize_with = "path_text")]
    path: PathBuf,
    #[serde(flatten)]
    medium: Option<Medium>,
    /// Why there is nothing to say of it, or why it has no hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What is known of a medium.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Medium {
    /// In bytes.
    pub size: u64,
    /// The file systems on it.
    pub format: VolumeKind,
    /// Which of its trees was read.
    #[serde(serialize_with = "tree_name")]
    pub tree: Tree,
    /// The volume's label.
    pub label: Option<String>,
    /// Of the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Sha256>,
    /// What others call the medium with that hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known_as: Option<String>,
    /// Where that hash is not known, other hashes of the same version.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub same_version: Vec<Sha256>,
    /// What it holds.
    #[serde(flatten)]
    pub contents: Held,
}

/// What a medium holds, as JSON has it.
#[derive(Debug, Serialize)]
#[serde(tag = "contents", rename_all = "lowercase")]
pub enum Held {
    /// Windows, to be installed.
    Windows {
        /// What is on it.
        windows: Box<WindowsMedium>,
    },
    /// Drivers.
    Drivers {
        /// What is on it.
        drivers: Box<DriverMedium>,
    },
    /// Neither.
    Other,
}

/// Runs the command.
pub fn run(args: Args, console: &Console) -> Result<(), Failure> {
    // All are looked at before one is hashed, which takes a while.
    let mut looked: Vec<_> = args.files.iter().map(|path| look(path)).collect();
    if args.sha256 {
        hash(&args.files, &mut looked, console)?;
    }
    let mut failures = Vec::new();
    let mut reports = Vec::new();
    for (path, looked) in args.files.iter().zip(looked) {
        let (medium, failure) = match looked {
            Ok((medium, _)) => (Some(medium), None),
            Err(failure) => (None, Some(failure)),
        };
        let error = failure.as_ref().map(Failure::reason);
        reports.push(Report { path: path.clone(), medium, error });
        failures.extend(failure);
    }
    if args.json {
        console.json(&reports);
    } else {
        let told = reports
            .iter()
            .filter_map(|report| Some(media_text::medium(&report.path, report.medium.as_ref()?)));
        console.result(told.collect::<Vec<_>>().join("\n"));
    }
    Failure::all(&failures).map_or(Ok(()), Err)
}

type Looked = Result<(Medium, SourceFile), Failure>;

/// What is on a medium.
fn look(path: &Path) -> Looked {
    let cure = "name an ISO file, whole, as its publisher has it; sealroot downloads nothing";
    let (file, content) = media::open(path).map_err(|e| match e {
        e @ (MediaError::Missing { .. } | MediaError::NotAFile { .. }) => Failure::from(e).cure(cure),
        e => e.into(),
    })?;
    let reject = |why: String| Failure::new(Exit::Rejected, why).context(path.display()).cure(cure);
    let volume = match content {
        Content::Image(volume) => volume,
        other => return Err(reject(format!("this is {other}"))),
    };
    let size = file.size();
    if let Some(says) = volume.size.filter(|says| *says > size) {
        return Err(reject(format!(
            "truncated: the volume says {says} bytes, the file has {size}; an incomplete download or copy"
        )));
    }
    let in_file = |error: MediumError| Failure::from(error).context(path.display());
    let (tree, contents) = read(&file).map_err(in_file)?;
    file.check_unchanged().map_err(|e| in_file(MediumError::Changed(e)))?;
    let medium = Medium {
        size,
        format: volume.kind,
        tree,
        label: volume.label,
        sha256: None,
        known_as: None,
        same_version: Vec::new(),
        contents: contents.into(),
    };
    Ok((medium, file))
}

fn read(file: &SourceFile) -> Result<(Tree, Contents), MediumError> {
    let disc = Disc::open(file)?;
    Ok((disc.tree(), Contents::of(&disc)?))
}

impl From<Contents> for Held {
    fn from(contents: Contents) -> Self {
        match contents {
            Contents::Windows(windows) => Self::Windows { windows },
            Contents::Drivers(drivers) => Self::Drivers { drivers },
            Contents::Other => Self::Other,
        }
    }
}

/// Hashes those that could be looked at, as many at once as there are cores.
fn hash(paths: &[PathBuf], looked: &mut [Looked], console: &Console) -> Result<(), Failure> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut media: Vec<_> = paths.iter().zip(looked).filter(|(_, looked)| looked.is_ok()).collect();
    for some in media.chunks_mut(cores) {
        let hashed: Vec<_> = thread::scope(|scope| {
            let running: Vec<_> = some
                .iter()
                .filter_map(|(path, looked)| Some((path, &looked.as_ref().ok()?.1)))
                .map(|(path, file)| scope.spawn(|| media::hash(file, path, &media::task_name(path), console)))
                .collect();
            running
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        for ((_, looked), hashed) in some.iter_mut().zip(hashed) {
            match hashed {
                Ok(hashed) => {
                    if let Ok((medium, _)) = looked {
                        medium.hashed(hashed.sha256);
                    }
                }
                Err(HashError::Interrupted(stop)) => return Err(stop.into()),
                Err(error) => **looked = Err(MediaError::Hash(error).into()),
            }
        }
    }
    Ok(())
}

impl Medium {
    fn hashed(&mut self, sha256: Sha256) {
        self.sha256 = Some(sha256);
        self.known_as = media::known(&sha256).map(ToString::to_string);
        if let (Held::Drivers { drivers }, None) = (&self.contents, &self.known_as)
            && let Some(version) = &drivers.version
        {
            self.same_version = media::known_drivers(version).map(|known| known.sha256).collect();
        }
    }
}

fn tree_name<S: serde::Serializer>(tree: &Tree, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match tree {
        Tree::Udf => "udf",
        Tree::RockRidge => "rock-ridge",
        Tree::Joliet => "joliet",
        Tree::Enhanced => "iso9660-1999",
        Tree::Plain => "iso9660",
    })
}
