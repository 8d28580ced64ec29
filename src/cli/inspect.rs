//! `inspect`: what a published image is, without pulling it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::audit_report::AuditReport;
use super::image_source::{ImageSource, LayerParts};
use super::registry_args::RegistryArgs;
use super::root_args::{ReplayArgs, one_line};
use super::{Console, Exit, Failure};
use crate::containerdisk::{
    Descriptor, Digest, PublishedDisk, PublishedDiskError, ReadLayerError, SeekTableError, read_layer,
};
use crate::io::{Progress, ReadAt};
use crate::recipe::{self, Recipe};
use crate::root::{self, Policy};

/// Say what a published image is, without pulling it.
///
/// Manifest and configuration are read and checked against their digests; of the layer, the seek table and the disk's
/// header. An image that is named by its tag is told with the digest that the tag led to.
/// An image that does not pass --audit or --verify ends in exit code 3.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// HOST[:PORT]/REPOSITORY:TAG or HOST[:PORT]/REPOSITORY@sha256:HEX, or the folder of an OCI layout or of a build.
    #[arg(value_name = "REF|LAYOUT")]
    image: String,
    /// Audit the disk in the image, as `audit` does: only the parts of the layer that are needed are fetched.
    #[arg(long)]
    audit: bool,
    /// With --audit: hold the root to this recipe.
    #[arg(long, value_name = "RECIPE", requires = "audit")]
    recipe: Option<PathBuf>,
    #[command(flatten)]
    replay: ReplayArgs,
    /// Read the whole layer, and check its digest and that of the tar in it.
    #[arg(long)]
    verify: bool,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    registry: RegistryArgs,
}

/// Instead of a seek table's frames.
const NOT_NEEDED: &str = "not needed: the tar is not compressed";

/// What an image is.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    reference: Option<String>,
    digest: Digest,
    index: Option<Digest>,
    media_type: &'a str,
    manifest_size: u64,
    annotations: &'a BTreeMap<String, String>,
    config: &'a Descriptor,
    created: Option<&'a str>,
    os: Option<&'a str>,
    architecture: Option<&'a str>,
    env: &'a [String],
    labels: BTreeMap<&'a String, &'a String>,
    layers: Vec<LayerReport<'a>>,
    /// Bytes of the manifest and of all blobs.
    size: u64,
    disk: Option<DiskReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<Vec<Verified>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    audit: Option<AuditReport<'a>>,
    /// What was read of the layer for `disk` and `audit`.
    fetched: Option<Fetched>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LayerReport<'a> {
    #[serde(flatten)]
    descriptor: &'a Descriptor,
    diff_id: Option<Digest>,
    /// How many frames the seek table lists.
    seek_table_frames: Option<usize>,
    /// Why it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    seek_table_remark: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DiskReport {
    virtual_size: u64,
    file_size: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Verified {
    layer: Digest,
    diff_id: Digest,
    tar: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    remark: Option<String>,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
struct Fetched {
    bytes: u64,
    layer_size: u64,
    /// Parts have no digests of their own.
    parts_verified_by_digest: bool,
}

/// Runs the command.
pub fn run(args: Args, console: &Console) -> Result<(), Failure> {
    let recipe = args.recipe.map(|recipe| recipe::load(&recipe, &[])).transpose()?;
    let policy = recipe.as_ref().map(Recipe::policy).unwrap_or_default();
    let source = ImageSource::open(&args.image, &args.registry, console)?;
    let verified = if args.verify { Some(verify(&source, console)?) } else { None };
    let mut report = describe(&source);
    report.verified = verified;
    let mut audited = None;
    match (args.audit, source.manifest().layers.as_slice()) {
        (true, _) => {
            let found = audit(&source, &policy, &args.replay, console)?;
            report.layers[0].seek_table_frames = found.frames;
            report.layers[0].seek_table_remark = found.frames.is_none().then(|| NOT_NEEDED.into());
            (report.disk, report.fetched) = (Some(found.disk), Some(found.fetched));
            audited = Some(found.audit);
        }
        (false, [layer]) => look(&source, layer, &mut report, console)?,
        (false, _) => {}
    }
    report.audit = audited.as_ref().map(AuditReport::of);
    if args.json {
        console.json(&report);
    } else {
        tell(&report, console);
    }
    match &report.audit {
        Some(audit) => audit.verdict(&args.image, console),
        None => Ok(()),
    }
}

fn describe(source: &ImageSource) -> Report<'_> {
    let (manifest, config) = (source.manifest(), source.config());
    let mut diff_ids = config.diff_ids().iter().copied();
    let layers = manifest.layers.iter().map(|descriptor| LayerReport {
        descriptor,
        diff_id: diff_ids.next(),
        seek_table_frames: None,
        seek_table_remark: None,
    });
    let blobs = manifest.layers.iter().chain([&manifest.config]);
    Report {
        reference: source.reference(),
        digest: source.digest(),
        index: source.index(),
        media_type: source.media_type(),
        manifest_size: source.manifest_size(),
        annotations: &manifest.annotations,
        config: &manifest.config,
        created: config.created.as_deref(),
        os: config.os.as_deref(),
        architecture: config.architecture.as_deref(),
        env: config.env(),
        labels: config.labels().collect(),
        layers: layers.collect(),
        size: blobs.fold(source.manifest_size(), |sum, blob| sum.saturating_add(blob.size)),
        disk: None,
        verified: None,
        audit: None,
        fetched: None,
    }
}

/// Looks at the layer's end and at the disk's header; what can't be read of them is no failure here.
fn look(
    source: &ImageSource,
    layer: &Descriptor,
    report: &mut Report<'_>,
    console: &Console,
) -> Result<(), Failure> {
    let parts = source.parts(layer, console)?;
    let media_type = &layer.media_type;
    let remark = match PublishedDisk::open(&parts, media_type) {
        Ok(disk) => {
            report.layers[0].seek_table_frames = disk.frames();
            report.disk = Some(DiskReport { virtual_size: disk.size(), file_size: disk.file_size() });
            report.fetched = Some(fetched(&disk, layer));
            disk.frames().is_none().then(|| NOT_NEEDED.into())
        }
        Err(PublishedDiskError::SeekTable(SeekTableError::Missing { why })) => Some(format!("none: {why}")),
        Err(error) => Some(format!("not read: {}", parts.explain(error).reason())),
    };
    console.interrupted()?;
    report.layers[0].seek_table_remark = remark;
    Ok(())
}

fn fetched(disk: &PublishedDisk<&LayerParts<'_>>, layer: &Descriptor) -> Fetched {
    Fetched { bytes: disk.fetched(), layer_size: layer.size, parts_verified_by_digest: false }
}

/// An audit of the disk in an image, and what it took.
pub struct Audited {
    /// What was found.
    pub audit: root::Audit,
    disk: DiskReport,
    frames: Option<usize>,
    fetched: Fetched,
}

impl Audited {
    /// What was fetched for it, in a line.
    pub fn cost(&self) -> String {
        self.fetched.tell()
    }
}

/// Audits the disk in an image through its layer's seek table.
pub fn audit(
    source: &ImageSource,
    policy: &Policy,
    replay: &ReplayArgs,
    console: &Console,
) -> Result<Audited, Failure> {
    let layer = source.layer()?;
    let parts = source.parts(layer, console)?;
    let disk = parts.disk(&layer.media_type)?;
    let audit = root::audit(&disk, policy, replay.replay()).map_err(|error| parts.explain(error))?;
    Ok(Audited {
        audit,
        disk: DiskReport { virtual_size: disk.size(), file_size: disk.file_size() },
        frames: disk.frames(),
        fetched: fetched(&disk, layer),
    })
}

/// Reads every layer whole.
fn verify(source: &ImageSource, console: &Console) -> Result<Vec<Verified>, Failure> {
    let (layers, diff_ids) = (&source.manifest().layers, source.config().diff_ids());
    if layers.len() != diff_ids.len() {
        let why = format!("{} layers, and the configuration names {}", layers.len(), diff_ids.len());
        return Err(Failure::new(Exit::Rejected, why));
    }
    layers
        .iter()
        .zip(diff_ids)
        .map(|(layer, diff_id)| verify_layer(source, layer, *diff_id, console))
        .collect()
}

fn verify_layer(
    source: &ImageSource,
    layer: &Descriptor,
    diff_id: Digest,
    console: &Console,
) -> Result<Verified, Failure> {
    let mut stream = source.stream(layer, console)?;
    let whole = read_layer(&mut stream, &layer.media_type, &*console.task("verifying", layer.size));
    let whole = match whole {
        Ok(whole) => whole,
        Err(ReadLayerError::Interrupted(stop)) => return Err(stop.into()),
        Err(ReadLayerError::Read(error)) => {
            return Err(match stream.take_failure() {
                Some(failure) => failure.into(),
                None => Failure::new(Exit::Failed, format!("layer {} can't be read: {error}", layer.digest)),
            });
        }
    };
    let rejected = |why: String| Failure::new(Exit::Rejected, why);
    if (whole.digest, whole.size) != (layer.digest, layer.size) {
        let (digest, size) = (layer.digest, layer.size);
        return Err(rejected(format!(
            "the layer is damaged: {} of {} bytes is there, and not {digest} of {size} bytes",
            whole.digest, whole.size
        )));
    }
    let tar = whole.tar.map_err(|why| rejected(format!("layer {}: {why}", layer.digest)))?;
    if tar.diff_id != diff_id {
        return Err(rejected(format!(
            "the tar in layer {} is {}, and not {diff_id}, as the configuration says",
            layer.digest, tar.diff_id
        )));
    }
    let remark = tar.disk.err();
    let tar = if remark.is_none() { "containerDisk" } else { "other" };
    Ok(Verified { layer: whole.digest, diff_id, tar, remark })
}

fn tell(report: &Report<'_>, console: &Console) {
    let mut rows: Vec<(&str, String)> = Vec::new();
    rows.extend(report.reference.clone().map(|reference| ("reference", reference)));
    rows.push(("digest", report.digest.to_string()));
    rows.extend(report.index.map(|index| ("index", format!("{index}, of which this is linux/amd64"))));
    rows.push(("manifest", format!("{}, {} bytes", report.media_type, report.manifest_size)));
    rows.push(("config", format!("{}, {} bytes", report.config.digest, report.config.size)));
    rows.extend(report.created.map(|created| ("created", created.to_owned())));
    let known = |text: Option<&str>| text.unwrap_or("?").to_owned();
    rows.push(("platform", format!("{}/{}", known(report.os), known(report.architecture))));
    rows.extend(report.env.iter().map(|variable| ("env", variable.clone())));
    rows.extend(report.labels.iter().map(|(name, value)| ("label", format!("{name}={value}"))));
    rows.extend(report.annotations.iter().map(|(name, value)| ("annotation", format!("{name}={value}"))));
    for layer in &report.layers {
        let Descriptor { digest, size, media_type, .. } = layer.descriptor;
        rows.push(("layer", format!("{digest}, {size} bytes, {media_type}")));
        rows.extend(layer.diff_id.map(|diff_id| ("tar", diff_id.to_string())));
        let frames = layer.seek_table_frames.map(|frames| format!("{frames} frames"));
        rows.extend(frames.or(layer.seek_table_remark.clone()).map(|told| ("seek table", told)));
    }
    if let Some(disk) = &report.disk {
        rows.push(("disk", format!("{} bytes, of which {} are kept", disk.virtual_size, disk.file_size)));
    }
    rows.push(("in all", format!("{} bytes", report.size)));
    for verified in report.verified.iter().flatten() {
        rows.push(("verified", format!("{} and the tar in it, {}", verified.layer, verified.diff_id)));
        rows.extend(verified.remark.iter().map(|why| ("remark", format!("no disk as packaged here: {why}"))));
    }
    rows.extend(report.fetched.filter(|_| report.audit.is_some()).map(|fetched| ("fetched", fetched.tell())));
    console.result(
        rows.iter().map(|(name, value)| format!("{name:<12} {}\n", one_line(value))).collect::<String>(),
    );
    if let Some(audit) = &report.audit {
        audit.tell(console);
    }
}

impl Fetched {
    fn tell(self) -> String {
        let (read, size) = (self.bytes, self.layer_size);
        // Of a small layer, parts are read more than once.
        let share = match read < size {
            true => format!(" ({:.2}%)", read as f64 * 100.0 / size as f64),
            false => String::new(),
        };
        format!("{read} bytes in parts of a layer of {size}{share}, which are not verified by digest")
    }
}
