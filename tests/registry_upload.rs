//! Uploads that begin before their end is known, and uploads that are cut, stopped and taken up again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/registry.rs"]
mod registry;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use registry::certificates::run;
use registry::{PASSWORD, Registry, USER, noise};
use sealroot::containerdisk::{Compression, Image, Layer, LayerError, LayoutWriter};
use sealroot::io::{Interrupted, ReadAt, Silent, Task};
use sealroot::registry::{Connection, Credential, Finish, RegistryError};

const MIB: usize = 1 << 20;

fn open(registry: &Registry) -> sealroot::registry::Registry {
    let image = format!("{}/private/windows:t", registry.host()).parse().unwrap();
    let credential = Credential::password(USER.into(), PASSWORD.into()).unwrap();
    let connection = Connection { ca: Some(registry.ca().into()), plain_http: false, credential };
    sealroot::registry::Registry::open(image, connection).unwrap()
}

fn one() -> NonZeroUsize {
    NonZeroUsize::MIN
}

/// The digests of the blobs a registry holds.
fn stored(registry: &Registry) -> Vec<String> {
    let blobs = registry.storage().join("docker/registry/v2/blobs/sha256");
    let Ok(folders) = fs::read_dir(blobs) else { return Vec::new() };
    folders
        .flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap())
        .map(|blob| blob.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// Bytes of uploads that are not finished.
fn arrived(registry: &Registry, repository: &str) -> u64 {
    let uploads =
        registry.storage().join("docker/registry/v2/repositories").join(repository).join("_uploads");
    let Ok(uploads) = fs::read_dir(uploads) else { return 0 };
    uploads.filter_map(|u| fs::metadata(u.ok()?.path().join("data")).ok()).map(|data| data.len()).sum()
}

#[track_caller]
fn within(limit: Duration, what: &str, mut ready: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !ready() {
        assert!(begun.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(name: &str, pid: u32) {
    run(Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()));
}

#[test]
fn a_layer_is_uploaded_while_it_is_made() {
    let registry = Registry::start();
    let target = open(&registry);
    let tar = noise(21 * MIB + 12_345);
    let mut sink = target.begin_blob(Box::new(Silent));
    let mut layer = Layer::new(&tar, Compression::Zstd(1), one());
    let info = layer.write(0, &mut [&mut sink], &Silent).unwrap();
    // Most of it is there before its digest is known.
    within(Duration::from_secs(30), "the bytes arrive", || {
        arrived(&registry, "private/windows") > info.size - 2 * MIB as u64
    });
    assert_eq!(sink.finish(info.digest).unwrap(), Finish::Done(info.size));
    let documents = Image::default().documents(&info).unwrap();
    target.push_bytes(documents.config, &Silent).unwrap();
    let media_type = documents.manifest_descriptor.media_type;
    let digest = target.publish(&documents.manifest, &media_type, &Silent).unwrap();
    assert_eq!(digest, documents.manifest_descriptor.digest);

    let folder = tempfile::tempdir().unwrap();
    registry.pull(&target.image().pinned(digest), folder.path());
    let layer = fs::read(folder.path().join(info.digest.hex())).unwrap();
    assert!(zstd::decode_all(&layer[..]).unwrap() == tar);
    assert!(fs::read(folder.path().join("manifest.json")).unwrap() == documents.manifest);
}

#[test]
fn a_manifest_without_its_blobs_gets_no_digest() {
    let registry = Registry::start();
    let target = open(&registry);
    let tar = noise(1000);
    let info = Layer::new(&tar, Compression::None, one()).write(0, &mut [], &Silent).unwrap();
    let documents = Image::default().documents(&info).unwrap();
    let media_type = &documents.manifest_descriptor.media_type;
    let error = target.publish(&documents.manifest, media_type, &Silent).unwrap_err();
    assert!(matches!(error, RegistryError::Status { status: 400 | 404, .. }), "{error}");
}

/// Counts what was read, and fails or waits where it is told to.
struct Counting {
    bytes: Vec<u8>,
    read: AtomicU64,
    bad: Option<u64>,
}

impl ReadAt for Counting {
    fn size(&self) -> u64 {
        self.bytes.size()
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        if self.bad.is_some_and(|bad| offset + buf.len() as u64 > bad) {
            return Err(std::io::Error::other("bad sector"));
        }
        self.read.fetch_max(offset + buf.len() as u64, Ordering::SeqCst);
        self.bytes.read_exact_at(buf, offset)
    }
}

#[test]
fn a_registry_that_takes_nothing_makes_the_layer_wait() {
    let registry = Registry::start();
    let target = open(&registry);
    let tar = Counting { bytes: noise(96 * MIB), read: AtomicU64::new(0), bad: None };
    let mut sink = target.begin_blob(Box::new(Silent));
    within(Duration::from_secs(30), "the upload begins", || {
        registry.storage().join("docker/registry/v2/repositories/private/windows/_uploads").exists()
    });
    signal("STOP", registry.pid());
    std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            let info = Layer::new(&tar, Compression::None, one()).write(0, &mut [&mut sink], &Silent);
            (sink, info.unwrap())
        });
        let mut before = u64::MAX;
        within(Duration::from_secs(60), "the layer waits", || {
            std::thread::sleep(Duration::from_secs(1));
            let read = tar.read.load(Ordering::SeqCst);
            std::mem::replace(&mut before, read) == read && read > 0
        });
        assert!(before < 64 * MIB as u64, "{before} bytes were read");
        signal("CONT", registry.pid());
        let (mut sink, info) = made.join().unwrap();
        assert_eq!(sink.finish(info.digest).unwrap(), Finish::Done(96 * MIB as u64));
        assert_eq!(stored(&registry), [info.digest.hex()]);
    });
}

#[test]
fn a_layer_that_fails_leaves_nothing_in_the_registry() {
    let registry = Registry::start();
    let target = open(&registry);
    let tar = Counting { bytes: noise(20 * MIB), read: AtomicU64::new(0), bad: Some(15 * MIB as u64) };
    let mut sink = target.begin_blob(Box::new(Silent));
    let failed = Layer::new(&tar, Compression::None, one()).write(0, &mut [&mut sink], &Silent);
    assert!(matches!(failed, Err(LayerError::Read { .. })));
    assert!(sink.resume().unwrap().is_none());
    drop(sink);
    // The registry is as it was, and takes the same blob a moment later.
    assert!(stored(&registry).is_empty());
    let mut sink = target.begin_blob(Box::new(Silent));
    let info = Layer::new(&tar.bytes, Compression::None, one()).write(0, &mut [&mut sink], &Silent).unwrap();
    sink.finish(info.digest).unwrap();
    assert_eq!(stored(&registry), [info.digest.hex()]);
}

#[test]
fn a_registry_that_dies_ends_the_layer_and_says_so() {
    let mut registry = Registry::start();
    let target = open(&registry);
    let tar = noise(64 * MIB);
    let mut sink = target.begin_blob(Box::new(Silent));
    let failed = std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            let slow = Slow(Duration::from_millis(50));
            Layer::new(&tar, Compression::None, one()).write(0, &mut [&mut sink], &slow)
        });
        within(Duration::from_secs(30), "bytes arrive", || arrived(&registry, "private/windows") > 0);
        registry.stop();
        made.join().unwrap()
    });
    assert!(matches!(failed, Err(LayerError::Sink { sink: 0, .. })), "{failed:?}");
    let error = sink.resume().expect_err("the upload failed first");
    assert!(matches!(error, RegistryError::Broken { .. } | RegistryError::Connect { .. }), "{error:?}");
}

/// Takes its time over every frame.
struct Slow(Duration);
impl Task for Slow {
    fn advance(&self, _: u64) -> Result<(), Interrupted> {
        std::thread::sleep(self.0);
        Ok(())
    }
}

/// Stops when a flag is set.
struct Stoppable(Arc<AtomicBool>);
impl Task for Stoppable {
    fn advance(&self, _: u64) -> Result<(), Interrupted> {
        if self.0.load(Ordering::SeqCst) { Err(Interrupted) } else { Ok(()) }
    }
}

#[test]
fn a_stalled_upload_stops_within_a_second() {
    let registry = Registry::start();
    let target = open(&registry);
    let tar = noise(96 * MIB);
    let stop = Arc::new(AtomicBool::new(false));
    let mut sink = target.begin_blob(Box::new(Stoppable(Arc::clone(&stop))));
    std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            let failed = Layer::new(&tar, Compression::None, one()).write(0, &mut [&mut sink], &Silent);
            (failed, Instant::now())
        });
        within(Duration::from_secs(30), "bytes arrive", || arrived(&registry, "private/windows") > 0);
        signal("STOP", registry.pid());
        std::thread::sleep(Duration::from_millis(500));
        let asked = Instant::now();
        stop.store(true, Ordering::SeqCst);
        let (failed, ended) = made.join().unwrap();
        assert!(failed.is_err());
        assert!(ended - asked < Duration::from_secs(1), "{:?}", ended - asked);
    });
    assert!(matches!(sink.resume(), Err(RegistryError::Interrupted(_))));
    drop(sink);
    // Letting go of a stuck connection takes no time either.
    let asked = Instant::now();
    drop(target);
    assert!(asked.elapsed() < Duration::from_secs(1));
    signal("CONT", registry.pid());
}

/// A layout with one layer of noise, made by the library.
fn layout(folder: &Path, len: usize) -> PathBuf {
    let path = folder.join("layout");
    let mut writer = LayoutWriter::create(&path).unwrap();
    let tar = noise(len);
    let info = Layer::new(&tar, Compression::None, one()).write(0, &mut [&mut writer], &Silent).unwrap();
    writer.finish(&Image::default(), &info).unwrap();
    path
}

/// Starts `push` and gives it the password.
fn push(layout: &Path, target: &str, more: &[&str]) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sealroot"))
        .arg("push")
        .arg(layout)
        .args([target, "--username", USER, "--password-stdin"])
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(PASSWORD.as_bytes()).unwrap();
    child
}

#[test]
fn a_push_outlives_a_restart_of_the_registry_but_not_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let layout = layout(folder.path(), 200 * MIB);
    let mut registry = Registry::start();
    let ca = registry.ca().display().to_string();
    let target = format!("{}/a:t", registry.host());

    let gone = push(&layout, &target, &["--ca", &ca]);
    within(Duration::from_secs(60), "bytes arrive", || arrived(&registry, "a") > 0);
    registry.stop();
    let output = gone.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("can't be reached") && said.contains("refused"), "{said}");
    assert!(output.stdout.is_empty());

    fs::remove_dir_all(registry.storage()).unwrap();
    registry.restart();
    let again = push(&layout, &target, &["--ca", &ca]);
    within(Duration::from_secs(60), "bytes arrive", || arrived(&registry, "a") > 0);
    registry.restart();
    let output = again.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8(output.stderr).unwrap());
    let reference = String::from_utf8(output.stdout).unwrap();
    let pulled = folder.path().join("pulled");
    registry.pull(reference.trim_end(), &pulled);
    for blob in fs::read_dir(&pulled).unwrap().map(|b| b.unwrap()) {
        let ours = layout.join("blobs/sha256").join(blob.file_name());
        assert!(!ours.exists() || fs::read(ours).unwrap() == fs::read(blob.path()).unwrap());
    }
}

#[test]
fn ctrl_c_ends_a_push_that_hangs_and_the_password_is_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let layout = layout(folder.path(), MIB);
    // Accepts, and never says a word.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("{}/a:t", listener.local_addr().unwrap());
    let mut child = push(&layout, &target, &["--plain-http", "--json"]);
    let (mut connection, _) = listener.accept().unwrap();
    let mut seen = [0; 12];
    connection.read_exact(&mut seen).unwrap();
    assert_eq!(&seen, b"GET /v2/ HTT");
    for file in ["cmdline", "environ"] {
        let shown = fs::read(format!("/proc/{}/{file}", child.id())).unwrap();
        assert!(!shown.windows(PASSWORD.len()).any(|w| w == PASSWORD.as_bytes()), "{file}");
    }
    let asked = Instant::now();
    signal("INT", child.id());
    within(Duration::from_secs(1), "the push ends", || child.try_wait().unwrap().is_some());
    assert!(asked.elapsed() < Duration::from_secs(1));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8([output.stderr, output.stdout].concat()).unwrap();
    assert!(said.contains("interrupted") && !said.contains(PASSWORD), "{said}");
}
