//! What an upload does when a request of it fails: each way by itself, before a real registry, bytes counted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/hostile.rs"]
mod hostile;
#[path = "support/registry.rs"]
mod registry;

use std::fs;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hostile::{Head, Hostile, Keeping, Location, Manner, Mischief, upstream};
use registry::certificates::{Authority, run};
use registry::{Auth, PASSWORD, Setup, USER, noise};
use sealroot::containerdisk::{Compression, Digest, Image, Layer, LayerInfo, Layout, LayoutWriter};
use sealroot::io::{ReadAt, Silent};
use sealroot::registry::{
    Connection, Credential, Notice, PushLayerError, Registry, RegistryError, UploadOptions,
};

const MIB: usize = 1 << 20;

/// A registry, and a proxy before it.
struct Bench {
    registry: registry::Registry,
    proxy: Hostile,
    notices: Arc<Mutex<Vec<Notice>>>,
    ca: PathBuf,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new(manner: Manner, decide: impl FnMut(&Head) -> Mischief + Send + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(&folder.path().join("tls"));
        let setup = Setup { auth: Auth::Nobody, tls: None, read_only: false };
        let registry = registry::Registry::start_in(tempfile::tempdir().unwrap(), PathBuf::new(), setup);
        let tls = hostile::tls(&authority.server("DNS:localhost,IP:127.0.0.1"));
        let proxy = Hostile::start(&registry.host(), &tls, manner, decide);
        Self { registry, proxy, notices: Arc::default(), ca: authority.certificate(), _folder: folder }
    }

    fn open(&self, chunk_size: Option<usize>, mount_from: Option<&str>) -> Registry {
        let credential = Credential::password(USER.into(), PASSWORD.into()).unwrap();
        let connection = Connection { ca: Some(self.ca.clone()), plain_http: false, credential };
        let told = Arc::clone(&self.notices);
        let options = UploadOptions {
            chunk_size,
            mount_from: mount_from.map(str::to_owned),
            first_pause: Duration::from_millis(2),
            notify: Arc::new(move |notice| told.lock().unwrap().push(notice.clone())),
        };
        let image = format!("{}/a/b:t", self.proxy.host()).parse().unwrap();
        Registry::open_with(image, connection, options).unwrap()
    }

    /// The layer, straight from where it is made.
    fn stream(&self, tar: &dyn ReadAt, chunk_size: Option<usize>) -> Result<LayerInfo, RegistryError> {
        let target = self.open(chunk_size, None);
        // The login is settled before the requests that matter.
        target.hello(&Silent)?;
        let mut layer = Layer::new(&tar, Compression::None, NonZeroUsize::MIN);
        target.push_layer(&mut layer, None, &Silent).map_err(|error| match error {
            PushLayerError::Registry(error) => error,
            PushLayerError::Layer(error) => panic!("{error}"),
        })
    }

    /// The blob as the registry itself has it.
    fn held(&self, digest: Digest) -> Vec<u8> {
        let path = format!("/v2/a/b/blobs/{digest}");
        let (status, _, body) = upstream(&self.registry.host(), "GET", &path, None, &[]).unwrap();
        assert_eq!(status, 200);
        body
    }

    fn notices(&self) -> Vec<Notice> {
        self.notices.lock().unwrap().clone()
    }

    /// `METHOD STATUS` of every request about uploads.
    fn uploads(&self) -> Vec<String> {
        let seen = self.proxy.seen().into_iter().filter(|seen| seen.head.path.contains("/blobs/uploads/"));
        seen.map(|seen| format!("{} {}", seen.head.method, seen.status)).collect()
    }
}

/// Does this to the first PATCH, and lets all else pass.
fn to_the_first_patch(mischief: Mischief) -> impl FnMut(&Head) -> Mischief + Send {
    let mut mischief = Some(mischief);
    move |head| match head.method.as_str() {
        "PATCH" => mischief.take().unwrap_or(Mischief::Pass),
        _ => Mischief::Pass,
    }
}

/// Counts what is read of a disk.
struct Counting {
    bytes: Vec<u8>,
    read: AtomicUsize,
}

impl Counting {
    fn noise(len: usize) -> Self {
        Self { bytes: noise(len), read: AtomicUsize::new(0) }
    }
}

impl ReadAt for Counting {
    fn size(&self) -> u64 {
        self.bytes.size()
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.read.fetch_add(buf.len(), Ordering::SeqCst);
        self.bytes.read_exact_at(buf, offset)
    }
}

#[test]
fn a_streamed_upload_goes_on_at_the_byte_that_the_registry_has() {
    // In the middle of the fifth frame of 4 MiB.
    let cut = 18 * MIB + 12_345;
    let bench = Bench::new(Manner::default(), to_the_first_patch(Mischief::CutRequest(cut)));
    let tar = Counting::noise(24 * MIB);
    let info = bench.stream(&tar, None).unwrap();
    assert!(bench.held(info.digest) == tar.bytes);
    assert_eq!(bench.proxy.patched(), 24 * MIB, "no byte was sent twice");
    assert_eq!(bench.uploads(), ["POST 202", "PATCH 0", "GET 204", "PATCH 202", "PUT 201"]);
    assert!(matches!(&bench.notices()[..], [Notice::Resumed { offset, .. }] if *offset == cut as u64));
    // Frames were in the making when it was cut; the first four are never made again.
    let again = tar.read.load(Ordering::SeqCst) - 24 * MIB;
    assert!((4 * MIB..=16 * MIB).contains(&again), "{again} bytes were read again");
}

#[test]
fn a_streamed_upload_begins_again_where_nothing_was_kept() {
    for keeping in [Keeping::Nothing, Keeping::Real] {
        let manner = Manner { keeping, ..Manner::default() };
        let bench = Bench::new(manner, to_the_first_patch(Mischief::CutRequest(9 * MIB)));
        let tar = noise(12 * MIB);
        let info = bench.stream(&tar, None).unwrap();
        assert!(bench.held(info.digest) == tar);
        assert_eq!(bench.proxy.patched(), 21 * MIB);
        let status = if keeping == Keeping::Real { "GET 400" } else { "GET 404" };
        // docker-registry 2.8 does not know an upload any more whose bytes are not those it has answered for.
        let got = bench.uploads();
        assert!(
            got == ["POST 202", "PATCH 0", status, "POST 202", "PATCH 202", "PUT 201"]
                || (keeping == Keeping::Real && got[2].starts_with("GET 4")),
            "{got:?}"
        );
        assert!(matches!(&bench.notices()[..], [Notice::Restarted { .. }]));
    }
}

#[test]
fn a_token_that_ends_in_mid_stream_is_replaced_and_the_stream_goes_on() {
    let answer = Mischief::Answer { after: 7 * MIB, status: 401, headers: Vec::new() };
    let manner = Manner { tokens: Some((Duration::from_secs(60), 60)), ..Manner::default() };
    let bench = Bench::new(manner, to_the_first_patch(answer));
    let tar = noise(12 * MIB);
    let info = bench.stream(&tar, None).unwrap();
    assert!(bench.held(info.digest) == tar);
    assert_eq!(bench.proxy.patched(), 12 * MIB);
    assert!(matches!(&bench.notices()[..], [Notice::Resumed { offset, .. }] if *offset == 7 * MIB as u64));
}

#[test]
fn tokens_that_end_after_a_second_are_enough_for_chunks() {
    for told in [1, 3600] {
        let manner = Manner { tokens: Some((Duration::from_millis(900), told)), ..Manner::default() };
        let bench = Bench::new(manner, |head| match head.method.as_str() {
            "PATCH" => Mischief::Delay(Duration::from_millis(400)),
            _ => Mischief::Pass,
        });
        let tar = noise(2 * MIB);
        let info = bench.stream(&tar, Some(256 << 10)).unwrap();
        assert!(bench.held(info.digest) == tar);
        let refused = bench.uploads().iter().filter(|seen| *seen == "PATCH 401").count();
        // Told the truth, it is never refused.
        assert!(if told == 1 { refused == 0 } else { refused > 0 }, "{refused}");
    }
}

#[test]
fn what_is_too_large_is_sent_in_chunks_and_smaller_ones() {
    for (largest, status, sizes) in [(4 * MIB, 416, &[4 * MIB][..]), (MIB, 413, &[4 * MIB, MIB])] {
        let manner = Manner { largest: Some((largest, status)), ..Manner::default() };
        let bench = Bench::new(manner, |_| Mischief::Pass);
        let tar = noise(10 * MIB + 5);
        let info = bench.stream(&tar, None).unwrap();
        assert!(bench.held(info.digest) == tar);
        let expected: Vec<_> = sizes.iter().map(|size| Notice::Chunks { size: *size, status }).collect();
        assert_eq!(bench.notices(), expected);
        let seen = bench.proxy.seen();
        let taken: Vec<_> = seen.iter().filter(|s| s.head.method == "PATCH" && s.status == 202).collect();
        assert_eq!(taken.len(), (10 * MIB + 5).div_ceil(largest));
        let mut at = 0;
        for patch in taken {
            let range = format!("{at}-{}", at + patch.body - 1);
            assert_eq!(patch.head.header("content-range"), Some(range.as_str()));
            at += patch.body;
        }
        assert_eq!(at, 10 * MIB + 5);
    }
    // Below that there is no use in trying.
    let manner = Manner { largest: Some((100 << 10, 413)), ..Manner::default() };
    let bench = Bench::new(manner, |_| Mischief::Pass);
    let error = bench.stream(&noise(MIB), None).unwrap_err();
    assert!(matches!(error, RegistryError::Status { status: 413, .. }), "{error}");
}

#[test]
fn a_chunk_that_fails_is_sent_again_and_its_range_is_looked_at() {
    let count = AtomicUsize::new(0);
    let bench = Bench::new(Manner::default(), move |head| match head.method.as_str() {
        "PATCH" => match count.fetch_add(1, Ordering::SeqCst) {
            1 => {
                Mischief::Answer { after: 0, status: 503, headers: vec![("retry-after".into(), "0".into())] }
            }
            3 => Mischief::CutRequest(300_000),
            5 => Mischief::CutAnswer(0),
            7 => Mischief::Range("0-17".into()),
            _ => Mischief::Pass,
        },
        _ => Mischief::Pass,
    });
    let tar = Counting::noise(8 * MIB);
    // Of no size that bytes come in.
    let info = bench.stream(&tar, Some(900_000)).unwrap();
    assert!(bench.held(info.digest) == tar.bytes);
    assert_eq!(bench.proxy.patched(), 8 * MIB, "every byte once");
    assert_eq!(bench.uploads().iter().filter(|seen| seen.starts_with("PATCH")).count(), 10 + 2);
    assert_eq!(tar.read.load(Ordering::SeqCst), 8 * MIB, "nothing was made again");
}

/// A layout with one layer of noise.
fn layout(folder: &Path, len: usize) -> Layout {
    let path = folder.join("layout");
    let mut writer = LayoutWriter::create(&path).unwrap();
    let tar = noise(len);
    let mut layer = Layer::new(&tar, Compression::None, NonZeroUsize::MIN);
    let info = layer.write(0, &mut [&mut writer], &Silent).unwrap();
    writer.finish(&Image::default(), &info).unwrap();
    Layout::open(&path).unwrap()
}

#[test]
fn a_layout_goes_on_where_it_was_too() {
    let folder = tempfile::tempdir().unwrap();
    let layout = layout(folder.path(), 6 * MIB);
    let config = layout.config.descriptor.size as usize;
    let bench = Bench::new(Manner::default(), to_the_first_patch(Mischief::CutRequest(5 * MIB + 1)));
    let pushed = bench.open(None, None).push_layout(&layout, &Silent).unwrap();
    assert_eq!(pushed.blobs_uploaded, 2);
    assert_eq!(bench.proxy.patched(), 6 * MIB + config);
    assert!(bench.held(layout.layers[0].descriptor.digest) == noise(6 * MIB));
}

#[test]
fn without_patch_a_layout_is_sent_whole_and_a_stream_is_not() {
    let manner = Manner { no_patch: true, ..Manner::default() };
    let folder = tempfile::tempdir().unwrap();
    let layout = layout(folder.path(), 3 * MIB);
    let bench = Bench::new(manner.clone(), |_| Mischief::Pass);
    bench.open(None, None).push_layout(&layout, &Silent).unwrap();
    assert!(bench.held(layout.layers[0].descriptor.digest) == noise(3 * MIB));
    assert!(bench.notices().contains(&Notice::Monolithic { status: 405 }));
    // One that breaks is sent again.
    let mut puts = 0;
    let bench = Bench::new(manner.clone(), move |head| {
        puts += usize::from(head.is("PUT", "/uploads/"));
        if head.is("PUT", "/uploads/") && puts == 1 { Mischief::CutRequest(MIB) } else { Mischief::Pass }
    });
    bench.open(None, None).push_layout(&layout, &Silent).unwrap();
    assert!(bench.held(layout.layers[0].descriptor.digest) == noise(3 * MIB));

    let bench = Bench::new(manner, |_| Mischief::Pass);
    let error = bench.stream(&noise(MIB), None).unwrap_err();
    assert!(matches!(error, RegistryError::Status { status: 405, .. }), "{error}");
}

#[test]
fn a_registry_that_keeps_only_the_last_part_gets_it_in_one() {
    let manner = Manner { only_last: true, ..Manner::default() };
    let bench = Bench::new(manner.clone(), to_the_first_patch(Mischief::CutRequest(2 * MIB)));
    let tar = noise(5 * MIB);
    let info = bench.stream(&tar, None).unwrap();
    assert!(bench.held(info.digest) == tar);
    assert_eq!(bench.proxy.patched(), 2 * MIB + 3 * MIB + 5 * MIB);
    // Where parts were asked for, it can't be had.
    let bench = Bench::new(manner, |_| Mischief::Pass);
    let error = bench.stream(&tar, Some(MIB)).unwrap_err().to_string();
    assert!(error.contains("DIGEST_INVALID"), "{error}");
}

#[test]
fn locations_are_followed_to_where_they_may_lead() {
    for location in [Location::Relative, Location::Absolute, Location::CrossHost, Location::Http] {
        let manner = Manner { location, ..Manner::default() };
        let bench = Bench::new(manner, to_the_first_patch(Mischief::CutRequest(MIB)));
        let tar = noise(3 * MIB);
        let outcome = bench.stream(&tar, None);
        match location {
            Location::Http => {
                let error = outcome.unwrap_err().to_string();
                assert!(error.contains("http://127.0.0.1:") && error.contains("not encrypted"), "{error}");
            }
            _ => {
                assert!(bench.held(outcome.unwrap().digest) == tar);
                assert_eq!(bench.proxy.patched(), 3 * MIB);
            }
        }
        assert!(bench.proxy.violations().is_empty(), "{:?}", bench.proxy.violations());
    }
}

#[test]
fn a_blob_of_another_repository_is_taken_over_or_sent() {
    let folder = tempfile::tempdir().unwrap();
    let layout = layout(folder.path(), 2 * MIB);
    let layer = &layout.layers[0].descriptor;
    for tokens in [None, Some((Duration::from_secs(60), 60))] {
        let bench = Bench::new(Manner { tokens, ..Manner::default() }, |_| Mischief::Pass);
        // Nothing is there to be taken over: the upload that was begun instead is used.
        let pushed = bench.open(None, Some("from/there")).push_layout(&layout, &Silent).unwrap();
        assert_eq!((pushed.blobs_uploaded, pushed.blobs_mounted), (2, 0));
        assert!(bench.uploads().iter().filter(|seen| *seen == "POST 202").count() == 2);
        // Now it is.
        let image = format!("{}/c/d:t", bench.proxy.host()).parse().unwrap();
        let credential = Credential::password(USER.into(), PASSWORD.into()).unwrap();
        let connection = Connection { ca: Some(bench.ca.clone()), plain_http: false, credential };
        let options = UploadOptions { mount_from: Some("a/b".into()), ..UploadOptions::default() };
        let before = bench.proxy.patched();
        let target = Registry::open_with(image, connection, options).unwrap();
        let pushed = target.push_layout(&layout, &Silent).unwrap();
        assert_eq!((pushed.blobs_uploaded, pushed.blobs_mounted), (0, 2));
        assert_eq!(bench.proxy.patched(), before);
        assert!(target.mount_blob(layer.digest, layer.size, "a/b", &Silent).unwrap());
        assert!(!target.mount_blob(Digest::of(b"no"), 2, "a/b", &Silent).unwrap());
    }
    // A registry that refuses to: it is sent.
    let bench = Bench::new(Manner::default(), |head| match head.is("POST", "mount=") {
        true => Mischief::Answer { after: 0, status: 403, headers: Vec::new() },
        false => Mischief::Pass,
    });
    let pushed = bench.open(None, Some("from/there")).push_layout(&layout, &Silent).unwrap();
    assert_eq!((pushed.blobs_uploaded, pushed.blobs_mounted), (2, 0));
}

#[test]
fn a_registry_that_is_slow_to_finish_is_waited_for() {
    let bench = Bench::new(Manner::default(), move |head| match head.is("PUT", "/blobs/") {
        true => Mischief::Late(Duration::from_millis(300), 504),
        false => Mischief::Pass,
    });
    // The larger a blob, the longer: two thirds of a second for this.
    let tar = noise(32 * MIB);
    let info = bench.stream(&tar, None).unwrap();
    assert!(bench.held(info.digest) == tar);
    assert_eq!(bench.uploads(), ["POST 202", "PATCH 202", "PUT 504"]);
}

#[test]
fn the_command_says_what_it_does() {
    let folder = tempfile::tempdir().unwrap();
    let layout_path = folder.path().join("layout");
    layout(folder.path(), 5 * MIB);
    let manner = Manner { largest: Some((4 * MIB, 413)), ..Manner::default() };
    let bench = Bench::new(manner, |head| match head.header("content-range") {
        Some(range) if range.starts_with("4194304-") => Mischief::CutRequest(500_000),
        _ => Mischief::Pass,
    });
    let push = |repository: &str, more: &[&str]| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sealroot"))
            .arg("push")
            .arg(&layout_path)
            .arg(format!("{}/{repository}:t", bench.proxy.host()))
            .args(["--username", USER, "--password-stdin", "--retry-pause", "2", "--ca"])
            .arg(&bench.ca)
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It may end before it reads.
        let _ = child.stdin.take().unwrap().write_all(PASSWORD.as_bytes());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() || more.contains(&"1KiB"), "{said}");
        said
    };
    let said = push("a/b", &[]);
    assert!(said.contains("takes no request as large as that (413): uploading 4 MiB at a time"), "{said}");
    assert!(said.contains("broke; the upload goes on at 4 MiB, which the registry has"), "{said}");
    assert!(said.contains("2 blobs uploaded, 0 there already"), "{said}");
    assert!(bench.held(Digest::of(&noise(5 * MIB))) == noise(5 * MIB));
    let said = push("c/d", &["--mount-from", "a/b"]);
    assert!(said.contains("0 blobs uploaded, 2 taken over, 0 there already"), "{said}");
    assert!(push("e/f", &["--chunk-size", "1KiB"]).contains("64KiB to 64MiB"));
}

#[test]
fn ctrl_c_ends_a_push_that_the_registry_keeps_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk.raw");
    fs::write(&disk, noise(MIB)).unwrap();
    let waiting = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&waiting);
    let bench = Bench::new(Manner::default(), move |head| match head.method.as_str() {
        "PATCH" => {
            seen.fetch_add(1, Ordering::SeqCst);
            Mischief::Delay(Duration::from_secs(20))
        }
        _ => Mischief::Pass,
    });
    let mut child = Command::new(env!("CARGO_BIN_EXE_sealroot"))
        .args(["package", "--no-audit", "--username", USER, "--password-stdin", "--disk"])
        .arg(&disk)
        .arg("--push")
        .arg(format!("{}/a/b:t", bench.proxy.host()))
        .arg("--ca")
        .arg(&bench.ca)
        .arg("--output")
        .arg(folder.path().join("image"))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(PASSWORD.as_bytes()).unwrap();
    while waiting.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let asked = Instant::now();
    run(Command::new("kill").arg("-INT").arg(child.id().to_string()));
    let output = child.wait_with_output().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the layout is taken back");
}

#[test]
fn a_blob_that_is_there_after_all_is_not_sent_again() {
    for after in [Mischief::Lie(504), Mischief::CutAnswer(0)] {
        let bench = Bench::new(Manner::default(), move |head| match head.is("PUT", "/blobs/") {
            true => after.clone(),
            false => Mischief::Pass,
        });
        let tar = noise(MIB);
        let info = bench.stream(&tar, None).unwrap();
        assert!(bench.held(info.digest) == tar);
        assert_eq!(bench.uploads().iter().filter(|seen| seen.starts_with("PUT")).count(), 1);
    }
}
