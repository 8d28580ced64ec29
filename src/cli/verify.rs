//! `verify`: media against their pins, and what is on them against what the recipe expects.

use std::path::PathBuf;

use serde::Serialize;

use super::media_args::{self, HashCacheArg, MediaArgs};
use super::recipe::OverrideArgs;
use super::{Classify, Console, Exit, Failure};
use crate::io::path_text;
use crate::media::driver::{Chain, Proof, SigningTime};
use crate::media::wim::Image;
use crate::media::{self, HashError, MediaError, MediaFacts, PinnedFile, Sha256, VerifiedFile};
use crate::recipe;
use crate::recipe::expect::{self, Differences, Found};
use crate::recipe::lock::Lock;

/// Hash a recipe's media, check them against their pins, and open them.
///
/// What is on them is compared with what the recipe expects, and with its lock
/// (RECIPE.lock) where there is one; the drivers it needs are held to their
/// signed catalogs. Files are read and never changed. Exit code 3 when one is
/// missing, or is not what the recipe pins, or does not hold what it expects.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The recipe.
    recipe: PathBuf,
    #[command(flatten)]
    media: MediaArgs,
    #[command(flatten)]
    hash_cache: HashCacheArg,
    #[command(flatten)]
    overrides: OverrideArgs,
    /// Print what was found as JSON.
    #[arg(long)]
    json: bool,
}

impl Classify for MediaError {
    fn exit(&self) -> Exit {
        match self {
            Self::Missing { .. }
            | Self::NotAFile { .. }
            | Self::Mismatch(_)
            | Self::NotAnImage { .. }
            | Self::NoMedium { .. }
            | Self::Hash(HashError::Changed { .. }) => Exit::Rejected,
            Self::Open { .. } | Self::Hash(HashError::Read { .. }) => Exit::Failed,
            Self::Hash(HashError::Interrupted(_)) => Exit::Interrupted,
        }
    }

    fn cure(&self) -> Option<String> {
        let cure = match self {
            Self::Missing { .. } => {
                "put the file there, or name its folder with --media-dir; sealroot downloads nothing"
            }
            Self::NotAFile { .. } => "name an ISO file in the recipe",
            Self::Mismatch(_) => {
                "get the medium again; change the pin only if its publisher names the hash it has"
            }
            Self::NoMedium { .. } => "name an ISO file in the recipe, or get it again",
            Self::NotAnImage { .. } => "get the medium, and its hash from its publisher",
            Self::Hash(HashError::Changed { .. }) => "wait until it is whole, then verify again",
            Self::Open { .. } | Self::Hash(_) => return None,
        };
        Some(cure.into())
    }
}

/// `verify --json`.
#[derive(Debug, Serialize)]
struct Report {
    media: Vec<MediumReport>,
    /// What is on them, once both match their pins.
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<Found>,
}

/// One medium of `verify --json`.
#[derive(Debug, Serialize)]
struct MediumReport {
    medium: &'static str,
    #[serde(serialize_with = "path_text")]
    path: PathBuf,
    expected: Sha256,
    verified: bool,
    /// Of a file that is not the pinned one.
    #[serde(skip_serializing_if = "Option::is_none")]
    got: Option<Sha256>,
    #[serde(skip_serializing_if = "Option::is_none")]
    facts: Option<MediaFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl MediumReport {
    fn new(medium: &'static str, pinned: &PinnedFile, result: &Result<VerifiedFile, MediaError>) -> Self {
        let got = match result {
            Err(MediaError::Mismatch(mismatch)) => Some(mismatch.got),
            _ => None,
        };
        Self {
            medium,
            path: pinned.path.clone(),
            expected: pinned.sha256,
            verified: result.is_ok(),
            got,
            facts: result.as_ref().ok().map(|verified| verified.facts.clone()),
            error: result.as_ref().err().map(ToString::to_string),
        }
    }
}

/// Runs the command.
pub fn run(args: Args, console: &Console) -> Result<(), Failure> {
    let recipe = recipe::load(&args.recipe, &args.overrides.set)?;
    let pinned = recipe.pinned(args.media.media_dir.as_deref());
    let (cache, roots) = (args.hash_cache.open()?, args.media.roots()?);
    let lock = Lock::read(&args.recipe)?;
    if let Some(lock) = &lock {
        differences(lock.fits(&recipe))?;
    }
    let results = media::verify(&pinned, cache.as_ref(), console)?;
    media_args::save(cache.as_ref(), console);
    let pins = [("windows", &recipe.media.windows.pin_at), ("virtio", &recipe.media.virtio.pin_at)];
    let mut report = Report { media: Vec::new(), found: None };
    let (mut verified, mut failures) = (Vec::new(), Vec::new());
    for (((medium, pin_at), pinned), result) in pins.into_iter().zip(&pinned).zip(results) {
        report.media.push(MediumReport::new(medium, pinned, &result));
        match result {
            Ok(medium) => verified.push(medium),
            Err(error) => {
                let context = format!("{medium} (pinned at {}:{pin_at})", args.recipe.display());
                failures.push(Failure::from(error).context(context));
            }
        }
    }
    if let [windows, virtio] = verified.as_slice() {
        let judge = media_args::judge(roots.as_ref());
        report.found = Some(expect::check(&recipe, windows, virtio, lock.as_ref(), judge)?);
    }
    if args.json {
        console.json(&report);
    } else {
        for (medium, _) in pins {
            let facts = report.media.iter().find(|report| report.medium == medium);
            if let Some(facts) = facts.and_then(|report| report.facts.as_ref()) {
                console.result(line(medium, facts) + &found_on(medium, report.found.as_ref()));
            }
        }
    }
    if let Some(found) = report.found {
        found.warnings.iter().for_each(|warning| console.warn(warning));
        differences(found.differences)?;
    }
    Failure::all(&failures).map_or(Ok(()), Err)
}

fn differences(found: Vec<expect::Difference>) -> Result<(), Failure> {
    if found.is_empty() { Ok(()) } else { Err(Differences(found).into()) }
}

/// What is on a medium, as far as the recipe asks.
fn found_on(medium: &str, found: Option<&Found>) -> String {
    let Some(found) = found else { return String::new() };
    match (medium, &found.windows, &found.drivers) {
        ("windows", Some(windows), _) => windows.image.as_ref().map(image_line).unwrap_or_default(),
        ("virtio", _, Some(drivers)) => {
            let packages = drivers
                .folders
                .iter()
                .flat_map(|folder| folder.packages.iter().map(move |package| (folder, package)));
            packages.map(|(folder, package)| package_line(&folder.path, package)).collect()
        }
        _ => String::new(),
    }
}

fn image_line(image: &Image) -> String {
    let edition = image.edition_id.as_deref().unwrap_or("no edition");
    let architecture = image.architecture.map_or("", |architecture| architecture.name());
    let build = image.build().unwrap_or_default();
    format!(
        "  image {}: {} ({edition}, {architecture}, {}, {build})\n",
        image.index,
        image.name,
        image.languages.join(" ")
    )
}

fn package_line(path: &str, package: &Proof) -> String {
    let version = package.driver_ver.as_ref().map(|ver| ver.version.to_string()).unwrap_or_default();
    let signature = &package.signature;
    let when = match &signature.time {
        SigningTime::Countersigned { time, .. } => time.date().to_string(),
        SigningTime::NotCountersigned { .. } => "at a time that nobody attests".into(),
    };
    let chain = match &signature.chain {
        Chain::NotJudged => "its certificate is not judged".into(),
        Chain::Trusted { root, .. } => format!("trusted by {root}"),
    };
    format!("  {path}/{} {version}, signed by {}, {when}; {chain}\n", package.inf, signature.signer.name)
}

fn line(medium: &str, facts: &MediaFacts) -> String {
    let label = facts.label.as_deref().map(|label| format!(", volume {label}")).unwrap_or_default();
    let cached = facts.hash_cached.as_deref();
    let cached = cached.map(|when| format!(" (not hashed now: of {when}, from the hash cache)"));
    let name = media::known(&facts.sha256).map(|known| format!("\n  known as {known}"));
    format!(
        "{medium}: verified {}\n  {} bytes, {}{label}\n  sha256 {}{}{}\n",
        facts.path.display(),
        facts.size,
        facts.format.name(),
        facts.sha256,
        cached.unwrap_or_default(),
        name.unwrap_or_default()
    )
}
