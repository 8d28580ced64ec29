//! Disc images: every tree of them, read as 7zz and isoinfo read them, and as the folder says that they were made from.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use sealroot::io::{ReadAt, SourceFile};
use sealroot::iso::{Disc, DiscError, Kind, Node, Tree, VolumeKind};
use sealroot::media::Sha256;

/// The images, made once for all tests, whether those are threads of one process or processes of their own.
static DISCS: LazyLock<PathBuf> = LazyLock::new(|| {
    // Statics are never dropped: a fixed place, made again when these tests are built again.
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("discs");
    fs::create_dir_all(&place).unwrap();
    let lock = fs::File::create(place.join("lock")).unwrap();
    lock.lock().unwrap();
    let built = fs::metadata(std::env::current_exe().unwrap()).unwrap().modified().unwrap();
    let made = place.join(format!("{}", built.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos()));
    if made.exists() {
        return made;
    }
    for old in fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        fs::remove_dir_all(old).unwrap();
    }
    let folder = tempfile::Builder::new().tempdir_in(&place).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/make-discs.sh");
    run("bash", &[script.as_os_str().to_str().unwrap(), folder.path().to_str().unwrap()]);
    fs::rename(folder.keep(), &made).unwrap();
    made
});

fn image(name: &str) -> PathBuf {
    DISCS.join(name)
}

/// Runs a tool, which must succeed, and returns what it prints.
fn run(name: &str, args: &[&str]) -> Vec<u8> {
    let output = Command::new(name).args(args).output();
    let output = output.unwrap_or_else(|e| panic!("{name} (install it with tests/run.sh): {e}"));
    assert!(output.status.success(), "{name} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Paths, each with a file's size and hash; directories with neither.
type Listing = BTreeMap<String, Option<(u64, Sha256)>>;

fn listed(disc: &Disc<'_>) -> Result<Listing, DiscError> {
    let mut listing = Listing::new();
    walk(disc, &disc.root(), "", 0, &mut listing)?;
    Ok(listing)
}

fn walk(
    disc: &Disc<'_>,
    at: &Node,
    prefix: &str,
    depth: u32,
    listing: &mut Listing,
) -> Result<(), DiscError> {
    // A damaged image may hold a directory that holds itself.
    if depth > 32 || listing.len() > 20_000 {
        return Ok(());
    }
    for entry in disc.list(at)? {
        let path = format!("{prefix}{}", entry.name);
        match entry.kind {
            Kind::Directory => {
                listing.insert(path.clone(), None);
                walk(disc, &entry.node, &format!("{path}/"), depth + 1, listing)?;
            }
            Kind::File => {
                let file = disc.file(&entry.node)?;
                // No more than any file in the images has: a damaged size may be anything.
                let mut bytes = vec![0; file.size().min(1 << 20) as usize];
                file.read_exact_at(&mut bytes, 0).map_err(|source| DiscError::Read { offset: 0, source })?;
                listing.insert(path, Some((file.size(), Sha256::of(&bytes))));
            }
            kind => panic!("{path} is {kind:?}"),
        }
    }
    Ok(())
}

fn ours(name: &str, tree: Tree) -> Listing {
    let source = SourceFile::open(&image(name)).unwrap();
    let disc = Disc::open(&source).unwrap();
    assert_eq!(disc.tree(), tree, "{name}");
    listed(&disc).unwrap()
}

/// A folder on this machine, as a disc is listed.
fn folder(path: &Path) -> Listing {
    let mut listing = Listing::new();
    let mut folders = vec![path.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let full = entry.unwrap().path();
            let name = full.strip_prefix(path).unwrap().to_str().unwrap().to_owned();
            if full.is_dir() {
                listing.insert(name, None);
                folders.push(full);
            } else {
                let bytes = fs::read(full).unwrap();
                listing.insert(name, Some((bytes.len() as u64, Sha256::of(&bytes))));
            }
        }
    }
    listing
}

/// What 7zz takes out of an image.
fn by_7zz(name: &str) -> Listing {
    let out = tempfile::tempdir().unwrap();
    let into = format!("-o{}", out.path().display());
    run("7zz", &["x", "-y", &into, image(name).to_str().unwrap()]);
    folder(out.path())
}

fn tree() -> Listing {
    folder(&image("tree"))
}

/// The first difference, which reads better than two listings of 170 entries.
#[track_caller]
fn same(name: &str, ours: &Listing, theirs: &Listing) {
    for (path, content) in theirs {
        assert_eq!(ours.get(path), Some(content), "{name}: {path}");
    }
    for path in ours.keys() {
        assert!(theirs.contains_key(path), "{name}: {path} is too much");
    }
}

const UDF: [&str; 11] = [
    "udf-short.iso",
    "udf-long.iso",
    "udf-inline.iso",
    "udf-inline-efe.iso",
    "udf-scattered.iso",
    "udf-scattered-long.iso",
    "udf-holes.iso",
    "udf-holes-long.iso",
    "udf-chained.iso",
    "udf-chained-short.iso",
    "udf-late.iso",
];

#[test]
fn udf_is_what_it_was_made_from() {
    let tree = tree();
    assert!(tree.len() > 170);
    for name in UDF {
        same(name, &ours(name, Tree::Udf), &tree);
    }
}

#[test]
fn udf_is_read_as_7zz_reads_it() {
    // 7zz knows no descriptors that go on in other extents, no holes, and no anchor at the end alone.
    let known = |name: &&&str| !["chained", "holes", "late"].iter().any(|word| name.contains(word));
    for name in UDF.iter().filter(known) {
        same(name, &ours(name, Tree::Udf), &by_7zz(name));
    }
}

#[test]
fn a_bridge_is_read_through_udf_whatever_iso9660_hides() {
    let ours = ours("bridge.iso", Tree::Udf);
    same("bridge.iso", &ours, &by_7zz("bridge.iso"));
    assert!(ours.len() > 170);
    let hidden = run("isoinfo", &["-f", "-i", image("bridge.iso").to_str().unwrap()]);
    assert_eq!(String::from_utf8(hidden).unwrap().trim(), "/README.TXT;1");
    let source = SourceFile::open(&image("bridge.iso")).unwrap();
    let disc = Disc::open(&source).unwrap();
    assert_eq!(disc.volume().kind, VolumeKind::UdfBridge);
    assert_eq!(disc.volume().label.as_deref(), Some("BRIDGE"));
}

#[test]
fn rock_ridge_goes_before_joliet_and_everything_else() {
    let mut tree = tree();
    for name in ["rockridge.iso", "rockridge-joliet.iso", "virtio.iso"] {
        let mut ours = ours(name, Tree::RockRidge);
        // Directories below the eighth level are moved to one that mkisofs makes for them.
        ours.remove("rr_moved");
        same(name, &ours, &tree);
    }
    // isoinfo agrees, and lists no file twice.
    let list = run("isoinfo", &["-R", "-f", "-i", image("rockridge.iso").to_str().unwrap()]);
    let list = String::from_utf8(list).unwrap();
    tree.insert("rr_moved".into(), None);
    let mut theirs: Vec<_> = list.lines().map(|line| line[1..].to_owned()).collect();
    theirs.sort();
    theirs.dedup();
    for path in tree.keys().filter(|path| path.is_ascii() && !path.contains("/h")) {
        assert!(theirs.contains(path), "{path}");
    }
}

#[test]
fn joliet_and_the_enhanced_descriptor_go_before_short_names() {
    same("joliet.iso", &ours("joliet.iso", Tree::Joliet), &by_7zz("joliet.iso"));
    let joliet = ours("joliet.iso", Tree::Joliet);
    assert!(joliet.contains_key("日本語.txt") && joliet.contains_key("Grün.txt"));
    let enhanced = ours("enhanced.iso", Tree::Enhanced);
    same("enhanced.iso", &enhanced, &tree());
}

#[test]
fn short_names_are_read_where_there_are_no_others() {
    let ours = ours("plain.iso", Tree::Plain);
    same("plain.iso", &ours, &by_7zz("plain.iso"));
    assert!(ours.contains_key("SOURCES/INSTALL.WIM"));
}

#[test]
fn paths_are_found_without_case_and_exact_spelling_goes_first() {
    let source = SourceFile::open(&image("rockridge.iso")).unwrap();
    let disc = Disc::open(&source).unwrap();
    let size = |path: &str| disc.find_file(path).unwrap().map(|file| file.size());
    assert_eq!(size("SOURCES/Install.WIM"), Some(70_001));
    assert_eq!(size("/sources//install.wim"), Some(70_001));
    assert_eq!(size("a/b/c/d/e/f/g/h/i/j/DEEP.bin"), Some(5000));
    for path in ["", "/", "sources", "sources/install.wim/x", "sources/none", "no/where"] {
        assert_eq!(size(path), None, "{path}");
    }
    assert_eq!(disc.find_directory("MANY").unwrap().len(), 150);
    assert_eq!(disc.find_directory("setup.exe").unwrap().len(), 0);
}

/// Counts the bytes that are read.
struct Counting<R>(R, AtomicU64);

impl<R: ReadAt> ReadAt for Counting<R> {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.1.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.0.read_exact_at(buf, offset)
    }
}

#[test]
fn a_file_of_several_records_is_one_file() {
    let ours = ours("records.iso", Tree::Plain);
    same("records.iso", &ours, &by_7zz("records.iso"));
    let bytes = fs::read(image("parts.bin")).unwrap();
    assert_eq!(ours["PARTA.BIN"], Some((7097, Sha256::of(&bytes))));
    assert_eq!(ours.len(), 1);
}

#[test]
fn a_file_over_a_gigabyte_is_put_together_from_its_extents() {
    let source = Counting(SourceFile::open(&image("large.iso")).unwrap(), AtomicU64::new(0));
    let disc = Disc::open(&source).unwrap();
    let file = disc.find_file("install.wim").unwrap().unwrap();
    assert_eq!(format!("{file:?}"), "File { 4508876813 bytes in 5 extents }");
    let text = |at: u64| [format!("at {at}").as_bytes(), b"\0"].concat();
    for at in [0, 1_073_739_776, 1_073_741_824, 2_147_479_552, 3_221_225_472, 4_294_965_248, 4_294_967_296] {
        let mut found = vec![0; text(at).len()];
        file.read_exact_at(&mut found, at).unwrap();
        assert_eq!(found, text(at));
    }
    // Across the seam of two extents.
    let mut seam = [0xee; 4096];
    file.read_exact_at(&mut seam, 1_073_739_776 - 16).unwrap();
    assert!(seam.starts_with(&[&[0; 16], text(1_073_739_776).as_slice()].concat()));
    let read = source.1.load(Ordering::Relaxed);
    println!("{read} bytes read");
    assert!(read < 64 << 10, "{read}");
}

#[test]
fn a_cut_image_is_an_error_or_right() {
    for name in ["udf-scattered.iso", "bridge.iso", "rockridge.iso", "plain.iso"] {
        let whole = fs::read(image(name)).unwrap();
        let right = listed(&Disc::open(&whole).unwrap()).unwrap();
        let mut wrong = 0;
        for part in 1..60 {
            let cut = whole[..whole.len() * part / 60].to_vec();
            match Disc::open(&cut).and_then(|disc| listed(&disc)) {
                Ok(listing) => same(name, &listing, &right),
                Err(e) => {
                    wrong += 1;
                    let said = e.to_string();
                    assert!(said.contains("offset") || said.contains("no disc image"), "{said}");
                }
            }
        }
        assert!(wrong > 30, "{name}: {wrong}");
    }
}

#[test]
fn damage_never_panics_and_what_udf_covers_is_noticed() {
    for name in [
        "udf-chained.iso",
        "udf-inline-efe.iso",
        "bridge.iso",
        "rockridge.iso",
        "joliet.iso",
        "enhanced.iso",
        "plain.iso",
    ] {
        let whole = fs::read(image(name)).unwrap();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        for _ in 0..120 {
            let mut damaged = whole.clone();
            for _ in 0..=random(3) {
                let (at, length) = (random(damaged.len()), random(24) + 1);
                let end = (at + length).min(damaged.len());
                damaged[at..end].iter_mut().for_each(|byte| *byte = random(256) as u8);
            }
            // Whatever comes of it: an error, or a listing.
            let _ = Disc::open(&damaged).and_then(|disc| listed(&disc));
        }
    }
    // Every tag is covered by its checksum and CRC: a file entry with one bit changed is refused.
    let whole = fs::read(image("udf-short.iso")).unwrap();
    let tags =
        (257..whole.len() / 2048 - 1).filter(|sector| whole[sector * 2048..][..2] == 261u16.to_le_bytes());
    for sector in tags.take(20) {
        let mut damaged = whole.clone();
        damaged[sector * 2048 + 56] ^= 1;
        let error = Disc::open(&damaged).and_then(|disc| listed(&disc)).unwrap_err();
        let expected = format!("UDF file entry at offset {}: its CRC is wrong", sector * 2048 + 8);
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn damaged_udf_is_no_reason_to_read_iso9660_instead() {
    let mut bridge = fs::read(image("bridge.iso")).unwrap();
    let anchors = [256, bridge.len() / 2048 - 1, bridge.len() / 2048 - 257];
    for sector in anchors {
        bridge[sector * 2048..][..16].fill(0);
    }
    let error = Disc::open(&bridge).unwrap_err();
    assert!(error.to_string().starts_with("UDF anchor at offset 524"), "{error}");
    // One anchor is enough.
    let mut bridge = fs::read(image("bridge.iso")).unwrap();
    bridge[256 * 2048..][..16].fill(0);
    assert!(listed(&Disc::open(&bridge).unwrap()).unwrap().len() > 170);
}

#[test]
fn a_directory_that_holds_itself_is_an_error_with_its_place() {
    // Plain: the record of A leads to the root, which is in sector 23 or so of this image.
    let mut plain = fs::read(image("plain.iso")).unwrap();
    let root = plain[16 * 2048 + 158..][..4].to_vec();
    let start = u32::from_le_bytes(root.clone().try_into().unwrap()) as usize * 2048;
    let name = plain[start..].windows(2).position(|pair| pair == [1, b'A']).unwrap() + start;
    plain[name - 30..name - 26].copy_from_slice(&root);
    let disc = Disc::open(&plain).unwrap();
    let error = disc.find("A/A/A/A").unwrap_err().to_string();
    assert_eq!(error, format!("directory at offset {start}: the directory leads back to itself"));
    // Nothing is looked for in it: that is no error.
    assert_eq!(disc.find_file("SETUP.EXE").unwrap().unwrap().size(), 1);
}
