//! `pin`: the hashes of media at hand, into their recipe and its lock.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::media_args::{self, MediaArgs};
use super::{Classify, Console, Exit, Failure};
use crate::io::{NewFile, Privacy, ReadAt, SourceFile, path_text};
use crate::media::{self, Sha256, VerifiedFile, known, known_drivers};
use crate::recipe::expect::{self, Differences};
use crate::recipe::lock::{self, Lock, LockError};
use crate::recipe::pin::{PinError, Unpinned};

/// Hash the media at hand, and write their pins into the recipe.
///
/// The recipe is changed in place: the two pins, and nothing else. Beside it, RECIPE.lock is written: what the media
/// hold (image, WIM, driver versions), to which `verify` and `build` hold them. Media that do not hold what the recipe
/// expects are refused, and nothing is written.
///
/// A hash that you compute says that the file is the one you have, not that it is the one its publisher has: compare
/// it with theirs.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The recipe; its pins may be missing, or place-holders.
    recipe: PathBuf,
    #[command(flatten)]
    media: MediaArgs,
    /// Show what would be written, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print old and new pins as JSON.
    #[arg(long)]
    json: bool,
}

impl Classify for PinError {
    fn exit(&self) -> Exit {
        match self {
            Self::Rewritten => Exit::Refused,
            Self::Recipe(_) | Self::Toml(_) | Self::NoTable { .. } => Exit::Rejected,
        }
    }
}

/// What was, or would be, written.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    #[serde(serialize_with = "path_text")]
    recipe: PathBuf,
    #[serde(serialize_with = "path_text")]
    lock: PathBuf,
    /// Whether the files were changed; not by a dry run, and not where they said the same already.
    written: bool,
    pins: Vec<Pin>,
}

/// One medium's pin.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pin {
    key: &'static str,
    #[serde(serialize_with = "path_text")]
    file: PathBuf,
    size: u64,
    old: Option<String>,
    new: Sha256,
    /// What others call the medium with that hash.
    known_as: Option<String>,
    /// Set where the same version is known with other bytes.
    note: Option<String>,
}

/// Runs the command.
pub fn run(args: Args, console: &Console) -> Result<(), Failure> {
    let failed = |what: String| Failure::new(Exit::Failed, what);
    // A link stays one: what it leads to is changed.
    let path = args.recipe.canonicalize().map_err(|e| failed(format!("{}: {e}", args.recipe.display())))?;
    let bytes = read(&path)?;
    let unpinned = Unpinned::new(&args.recipe, bytes)?;
    let recipe = &unpinned.recipe;
    let roots = args.media.roots()?;
    let files = recipe.pinned(args.media.media_dir.as_deref()).map(|pinned| pinned.path);
    let [windows, virtio] = hashed(&files, console)?;
    let found = expect::check(recipe, &windows, &virtio, None, media_args::judge(roots.as_ref()))?;
    found.warnings.iter().for_each(|warning| console.warn(warning));
    if !found.differences.is_empty() {
        let failure = Failure::from(Differences(found.differences));
        return Err(failure.context("nothing is written: correct the recipe first"));
    }
    let pins = [windows.facts.sha256, virtio.facts.sha256];
    let text = unpinned.pinned(&pins)?;
    let lock = Lock::new(&windows.facts, &virtio.facts, &found)
        .ok_or_else(|| failed("the media hold nothing that could be locked".into()))?;
    let lock_path = lock::path(&path);
    let before = earlier_lock(&path, console)?;
    let replaced = before.as_ref().map_or((false, false), |before| before.same_version(&lock));
    let lock_text = lock.to_text().map_err(|e| failed(e.to_string()))?;
    let changed = text != unpinned.text() || before.as_ref() != Some(&lock);
    let report = Report {
        written: changed && !args.dry_run,
        pins: vec![
            pin("media.windows.sha256", &windows, unpinned.old[0].clone(), replaced.0, None),
            pin(
                "media.virtio.sha256",
                &virtio,
                unpinned.old[1].clone(),
                replaced.1,
                found.drivers.and_then(|d| d.version),
            ),
        ],
        recipe: args.recipe.clone(),
        lock: lock_path.clone(),
    };
    if report.written {
        // The lock first: a recipe without its lock would be held to nothing.
        replace(&lock_path, &lock_text)?;
        unchanged(&path, unpinned.text())?;
        if text != unpinned.text() {
            replace(&path, &text)?;
        }
    }
    if args.json {
        console.json(&report);
    } else {
        console.result(shown(&report, changed));
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |e: std::io::Error| Failure::new(Exit::Failed, format!("{}: {e}", path.display()));
    let file = SourceFile::open(path).map_err(failed)?;
    // One that is too large is refused as a recipe, by its reader.
    let mut bytes = vec![0; file.size().min(2 << 20) as usize];
    file.read_exact_at(&mut bytes, 0).map_err(failed)?;
    Ok(bytes)
}

fn hashed(files: &[PathBuf; 2], console: &Console) -> Result<[VerifiedFile; 2], Failure> {
    let mut failures: Vec<Failure> = Vec::new();
    let mut hashed = Vec::new();
    for result in media::open_and_hash(files, console)? {
        match result {
            Ok(file) => hashed.push(file),
            Err(error) => failures.push(error.into()),
        }
    }
    <[VerifiedFile; 2]>::try_from(hashed).map_err(|_| {
        Failure::all(&failures).unwrap_or_else(|| Failure::new(Exit::Failed, "the media were not hashed"))
    })
}

/// The lock that is there; one that can't be used is made anew.
fn earlier_lock(recipe: &Path, console: &Console) -> Result<Option<Lock>, Failure> {
    match Lock::read(recipe) {
        Ok(lock) => Ok(lock),
        // Only what was a lock is replaced.
        Err(LockError::Foreign { path, what }) if !is_lock(&path) => {
            Err(LockError::Foreign { path, what }.into())
        }
        Err(LockError::Foreign { path, what }) => {
            console.warn(format!("{} is made anew: {what}", path.display()));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether a file says that it is a lock, of whatever format.
fn is_lock(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= 1 << 20)
        && fs::read_to_string(path).is_ok_and(|text| text.contains("format = \"sealroot-lock-"))
}

fn pin(
    key: &'static str,
    medium: &VerifiedFile,
    old: Option<String>,
    replaced: bool,
    release: Option<String>,
) -> Pin {
    let new = medium.facts.sha256;
    let others = release.as_deref().into_iter().flat_map(known_drivers).filter(|known| known.sha256 != new);
    let others: Vec<_> = others.map(|known| known.sha256.to_string()).collect();
    let note = if replaced {
        Some("same version, different bytes: it is not the file that was pinned before".to_owned())
    } else if !others.is_empty() && known(&new).is_none() {
        let release = release.unwrap_or_default();
        Some(format!("same version, different bytes: {release} is known as {}", others.join(", ")))
    } else {
        None
    };
    Pin {
        key,
        file: medium.facts.path.clone(),
        size: medium.facts.size,
        old,
        new,
        known_as: known(&new).map(ToString::to_string),
        note,
    }
}

/// The recipe must still be what was read: an editor may have saved it meanwhile.
fn unchanged(path: &Path, text: &str) -> Result<(), Failure> {
    if read(path)? == text.as_bytes() {
        return Ok(());
    }
    let message = format!("{} was changed meanwhile, and is left as it is", path.display());
    Err(Failure::new(Exit::Failed, message).context("run it again"))
}

/// Writes a file in place of what is there, whose mode and owner stay.
fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::new(Exit::Failed, format!("{}: {e}", path.display()));
    let mut file = NewFile::replace(path, Privacy::Public)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    if let Ok(metadata) = fs::metadata(path) {
        file.inherit(&metadata).map_err(failed)?;
    }
    Ok(file.finish()?)
}

fn shown(report: &Report, changed: bool) -> String {
    let mut text = String::new();
    for pin in &report.pins {
        let old = pin.old.as_deref().unwrap_or("none");
        let old: String = old.chars().filter(|c| !c.is_control()).take(70).collect();
        text += &format!("{}: {}, {} bytes\n", pin.key, pin.file.display(), pin.size);
        if old == pin.new.to_string() {
            text += &format!("  as before  {old}\n");
        } else {
            text += &format!("  old  {old}\n  new  {}\n", pin.new);
        }
        if let Some(name) = &pin.known_as {
            text += &format!("  known as {name}\n");
        }
        if let Some(note) = &pin.note {
            text += &format!("  {note}\n");
        }
    }
    let (recipe, lock) = (report.recipe.display(), report.lock.display());
    text + &match (report.written, changed) {
        (true, _) => format!("{recipe} and {lock}: written\n"),
        (false, true) => format!("{recipe} and {lock}: would be written\n"),
        (false, false) => format!("{recipe} and {lock}: nothing to change\n"),
    }
}
