//! `media inspect`, on media of every kind, judged by wimlib and by 7-Zip.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use sealroot::io::{ReadAt, SourceFile};
use sealroot::media::Contents;
use serde_json::Value;

/// A folder with media of the kinds that are named.
struct Media(tempfile::TempDir);

impl Media {
    fn new(variants: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/make-windows-media.sh");
        let mut command = Command::new("bash");
        tool(command.arg(script).arg(folder.path()).args(variants));
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn inspect(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sealroot"));
        command.args(["media", "inspect"]).args(args).current_dir(self.0.path()).output().unwrap()
    }

    /// What it prints of a medium that is right.
    #[track_caller]
    fn text(&self, iso: &str) -> String {
        let output = self.inspect(&[iso]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty());
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same as JSON.
    #[track_caller]
    fn json(&self, iso: &str) -> Value {
        let output = self.inspect(&["--json", iso]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let Value::Array(mut media) = serde_json::from_slice(&output.stdout).unwrap() else { panic!() };
        assert_eq!(media.len(), 1);
        media.remove(0)
    }

    /// What it says of a medium that is not.
    #[track_caller]
    fn error(&self, args: &[&str]) -> String {
        let output = self.inspect(args);
        assert_eq!(output.status.code(), Some(3));
        String::from_utf8(output.stderr).unwrap()
    }

    /// A file of an image, taken out by 7-Zip.
    fn taken_out(&self, iso: &str, name: &str) -> PathBuf {
        let into = self.path("out");
        let mut command = Command::new("7zz");
        tool(command.arg("e").arg("-y").arg(format!("-o{}", into.display())).arg(self.path(iso)).arg(name));
        into.join(Path::new(name).file_name().unwrap())
    }
}

/// Runs a tool, which must succeed, and returns what it prints.
fn tool(command: &mut Command) -> Vec<u8> {
    let output =
        command.output().unwrap_or_else(|e| panic!("{command:?} (install it with tests/run.sh): {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// What `wimlib-imagex info` says: of the archive, and of each image; by its names for things.
fn by_wimlib(wim: &Path) -> Vec<BTreeMap<String, String>> {
    let text = String::from_utf8(tool(Command::new("wimlib-imagex").arg("info").arg(wim))).unwrap();
    let mut parts = vec![BTreeMap::new()];
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        if key == "Index" {
            parts.push(BTreeMap::new());
        }
        parts.last_mut().unwrap().insert(key.to_owned(), value.trim().to_owned());
    }
    parts
}

/// Compares what is said of an archive's images with what wimlib says of the same archive.
#[track_caller]
fn as_wimlib_says(install: &Value, wim: &Path) {
    let theirs = by_wimlib(wim);
    let (archive, theirs) = theirs.split_first().unwrap();
    let ours = install["images"].as_array().unwrap();
    assert_eq!(ours.len(), theirs.len());
    assert_eq!(archive["Image Count"], ours.len().to_string());
    assert_eq!(archive["Part Number"], format!("1/{}", install["parts"]));
    assert_eq!(install["solid"], archive["Version"] == "3584");
    // wimlib shows the GUID's bytes as they stand; the first three numbers have their low byte first.
    let digits: Vec<String> = install["guid"].as_str().unwrap().split('-').map(str::to_owned).collect();
    let turned = |digits: &str| -> String {
        (0..digits.len()).step_by(2).rev().map(|at| &digits[at..at + 2]).collect()
    };
    let guid =
        [turned(&digits[0]), turned(&digits[1]), turned(&digits[2]), digits[3].clone(), digits[4].clone()];
    assert_eq!(archive["GUID"], format!("0x{}", guid.concat()));
    for (ours, theirs) in ours.iter().zip(theirs) {
        let same = |ours: &Value, name: &str| {
            let theirs = theirs.get(name).map(String::as_str).unwrap_or_default();
            let ours = match ours {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            assert_eq!(ours, theirs, "{name}");
        };
        same(&ours["index"], "Index");
        same(&ours["name"], "Name");
        same(&ours["description"], "Description");
        same(&ours["displayName"], "Display Name");
        same(&ours["editionId"], "Edition ID");
        same(&ours["installationType"], "Installation Type");
        same(&ours["productType"], "Product Type");
        same(&ours["flags"], "Flags");
        same(&ours["totalBytes"], "Total Bytes");
        same(&ours["defaultLanguage"], "Default Language");
        same(&ours["version"]["build"], "Build");
        same(&ours["version"]["revision"], "Service Pack Build");
        same(&ours["version"]["servicePack"], "Service Pack Level");
        let languages: Vec<_> =
            ours["languages"].as_array().unwrap().iter().map(|l| l.as_str().unwrap()).collect();
        same(&Value::from(languages.join(" ")), "Languages");
        let architecture = match ours["architecture"].as_str() {
            Some("amd64") => "x86_64",
            Some("arm64") => "ARM64",
            Some(other) => other,
            None => "",
        };
        same(&Value::from(architecture), "Architecture");
    }
}

/// All values of a key, as text.
fn all<'v>(images: &'v Value, key: &str) -> Vec<&'v str> {
    images.as_array().unwrap().iter().map(|image| image[key].as_str().unwrap_or_default()).collect()
}

#[test]
fn every_edition_with_its_two_names() {
    let media = Media::new(&["client"]);
    let medium = media.json("client.iso");
    assert_eq!(medium["contents"], "windows");
    assert_eq!((&medium["format"], &medium["tree"]), (&Value::from("udf-bridge"), &Value::from("udf")));
    let install = &medium["windows"]["install"];
    as_wimlib_says(install, &media.path("client/install.wim"));
    as_wimlib_says(install, &media.taken_out("client.iso", "sources/install.wim"));
    let xml =
        tool(Command::new("wimlib-imagex").args(["info", "--xml"]).arg(media.path("client/install.wim")));
    assert_eq!(install["xmlSha256"], sealroot::media::Sha256::of(&xml).to_string());

    let text = media.text("client.iso");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for part in [
        "volume       CCCOMA_X64FRE_EN-US_DV9, UDF and ISO 9660\n",
        "archive      sources/install.wim: 5 images\n",
        "image 3      Windows 10 Pro\n             displayed as Windows 11 Pro\n             Professional, Client, amd64, en-US, 26100.1742, 16 bytes\n",
        "image 5      Windows 11 Enterprise\n             Enterprise, Client,",
        "ei.cfg       Retail\n",
        "boot image   Microsoft Windows Setup (amd64)\n",
        "boots        by UEFI on amd64; with efisys_noprompt.bin\n",
    ] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

#[test]
fn downloaded_esd_with_setup_among_the_images() {
    let media = Media::new(&["esd"]);
    let medium = media.json("esd.iso");
    let install = &medium["windows"]["install"];
    as_wimlib_says(install, &media.path("esd/install.esd"));
    assert_eq!(install["file"], "sources/install.esd");
    let channel = &medium["windows"]["channel"];
    assert_eq!(channel["editionId"], "Professional");
    assert_eq!((&channel["channel"], &channel["volumeLicence"]), (&"Volume".into(), &true.into()));
    let text = media.text("esd.iso");
    assert!(text.contains("5 images, solid\n"), "{text}");
    assert_eq!(text.matches("not to be installed").count(), 3);
    assert!(text.contains("ei.cfg       edition Professional, Volume, volume licence\n"), "{text}");
    // What is Setup is told by what it says, not by its place.
    let file = SourceFile::open(&media.path("esd.iso")).unwrap();
    let Contents::Windows(windows) = Contents::read(&file).unwrap() else { panic!() };
    assert_eq!(windows.installable().map(|image| image.index).collect::<Vec<_>>(), [4, 5]);
}

#[test]
fn split_archives_need_every_part_of_one_set() {
    let media = Media::new(&["swm", "swm-missing", "swm-first", "swm-mixed"]);
    let medium = media.json("swm.iso");
    as_wimlib_says(&medium["windows"]["install"], &media.path("swm/install.swm"));
    let parts = fs::read_dir(media.path("swm")).unwrap().count();
    assert!(parts > 2);
    assert!(media.text("swm.iso").contains(&format!("sources/install.swm: 2 images, in {parts} parts")));
    for (iso, why) in [
        ("swm-missing.iso", format!("sources/install.swm: part 2 of {parts} is missing")),
        ("swm-first.iso", "sources/install.swm: part 1 is missing, though install2.swm is there".into()),
        ("swm-mixed.iso", format!("part 2 of {parts} belongs to another archive: its GUID is ")),
    ] {
        let said = media.error(&[iso]);
        assert!(said.contains(&why) && said.contains(iso), "{said}");
    }
}

#[test]
fn server_core_desktop_experience_languages_and_architectures() {
    let media = Media::new(&["server", "languages", "arm64"]);
    let medium = media.json("server.iso");
    let install = &medium["windows"]["install"];
    as_wimlib_says(install, &media.taken_out("server.iso", "sources/install.wim"));
    assert_eq!(
        all(&install["images"], "installationType"),
        ["Server Core", "Server", "Server Core", "Server"]
    );
    let text = media.text("server.iso");
    assert!(text.contains("displayed as Windows Server 2025 Standard (Desktop Experience)\n"), "{text}");

    let medium = media.json("languages.iso");
    as_wimlib_says(&medium["windows"]["install"], &media.taken_out("languages.iso", "sources/install.wim"));
    let text = media.text("languages.iso");
    assert!(text.contains("x86, en-US, en-GB (default), de-DE,\n"), "{text}");
    assert!(text.contains("Setup        en-GB, de-DE\n"), "{text}");
    assert!(text.contains("boots        not by UEFI; without efisys_noprompt.bin\n"), "{text}");

    let medium = media.json("arm64.iso");
    as_wimlib_says(&medium["windows"]["install"], &media.taken_out("arm64.iso", "sources/install.wim"));
    assert_eq!(medium["windows"]["bootsByUefi"], serde_json::json!(["arm64"]));
}

#[test]
fn the_same_in_every_tree() {
    let media = Media::new(&["joliet", "plain", "rockridge"]);
    for (iso, tree) in [("joliet.iso", "joliet"), ("plain.iso", "iso9660"), ("rockridge.iso", "rock-ridge")] {
        let medium = media.json(iso);
        assert_eq!(medium["tree"], tree);
        let name = if tree == "iso9660" { "SOURCES/INSTALL.WIM" } else { "sources/install.wim" };
        as_wimlib_says(&medium["windows"]["install"], &media.taken_out(iso, name));
    }
}

#[test]
fn a_driver_medium_in_full() {
    let media = Media::new(&["virtio"]);
    let medium = media.json("virtio.iso");
    assert_eq!(medium["contents"], "drivers");
    let drivers = &medium["drivers"];
    assert_eq!((&drivers["version"], &drivers["newestBuild"]), (&"0.1.285".into(), &28500.into()));

    // Every INF that 7-Zip takes out is there, and says the same.
    let out = media.path("all");
    let mut command = Command::new("7zz");
    tool(command.args(["x", "-y"]).arg(format!("-o{}", out.display())).arg(media.path("virtio.iso")));
    let mut ours = BTreeMap::new();
    for key in ["drivers", "setupFolders"] {
        for folder in drivers[key].as_array().unwrap() {
            for (inf, ver) in folder["infs"].as_object().unwrap() {
                let path = format!("{}/{inf}", folder["path"].as_str().unwrap());
                let date: Vec<&str> = ver["date"].as_str().unwrap().split('-').collect();
                let [year, month, day] = date[..] else { panic!() };
                let said = format!("DriverVer={month}/{day}/{year},{}", ver["version"].as_str().unwrap());
                ours.insert(path, said);
            }
        }
    }
    let mut theirs = BTreeMap::new();
    let mut folders = vec![out.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "inf") {
                let text = fs::read_to_string(&path).unwrap();
                let said = text.lines().find(|line| line.starts_with("DriverVer")).unwrap().to_owned();
                theirs.insert(path.strip_prefix(&out).unwrap().to_str().unwrap().to_owned(), said);
            }
        }
    }
    assert!(theirs.len() > 300);
    assert_eq!(ours, theirs);

    let text = media.text("virtio.iso");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for part in [
        "volume       virtio-win-0.1.285, ISO 9660 with Rock Ridge\n",
        "version      0.1.285 by the volume's label, and by the drivers' newest build,\n             28500\n",
        "DriverVer is what data/info.json lists",
        "driver       viostor 100.101.104.28500 of 2025-07-07\n               2k12/amd64 ",
        "driver       vioserial vioser.inf 62.84.104.19500 of 2020-09-30\n",
        "w11/arm64",
        "for Setup    vioscsi.inf 100.101.104.28500",
        "guest agent  qemu-ga-i386.msi, qemu-ga-x86_64.msi\n",
        "guest tools  virtio-win-gt-x64.msi, virtio-win-gt-x86.msi,\n             virtio-win-guest-tools.exe\n",
    ] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

#[test]
fn what_a_disc_is_its_label_does_not_say() {
    let media = Media::new(&["relabelled", "client"]);
    let text = media.text("relabelled.iso");
    assert!(
        text.contains("but the drivers' newest build is\n             27100, which is that of 0.1.271\n"),
        "{text}"
    );
    let folder = media.path("folder");
    fs::create_dir_all(folder.join("w11/x/amd64")).unwrap();
    fs::write(folder.join("w11/x/readme.txt"), "nothing").unwrap();
    for label in ["virtio-win-0.1.285", "CCCOMA_X64FRE_EN-US_DV9"] {
        let mut command = Command::new("genisoimage");
        tool(command.args(["-quiet", "-r", "-V", label, "-o"]).arg(media.path("other.iso")).arg(&folder));
        assert_eq!(media.json("other.iso")["contents"], "other");
        assert!(media.text("other.iso").contains("a disc without Windows' images and without drivers\n"));
    }
    fs::rename(media.path("client.iso"), media.path("virtio-win-0.1.285.iso")).unwrap();
    assert_eq!(media.json("virtio-win-0.1.285.iso")["contents"], "windows");
}

#[test]
fn several_at_once_with_hashes() {
    let media = Media::new(&["arm64", "relabelled"]);
    fs::write(media.path("page.iso"), "<!DOCTYPE html><html>sign in</html>").unwrap();
    let files = ["arm64.iso", "page.iso", "nowhere.iso", "relabelled.iso"];
    let output = media.inspect(&[&["--sha256", "--json"], &files[..]].concat());
    assert_eq!(output.status.code(), Some(3));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sums = tool(Command::new("sha256sum").args([files[0], files[3]]).current_dir(media.0.path()));
    let sums = String::from_utf8(sums).unwrap();
    let sums: Vec<_> = sums.lines().map(|line| &line[..64]).collect();
    assert_eq!((&json[0]["sha256"], &json[3]["sha256"]), (&sums[0].into(), &sums[1].into()));
    // 0.1.285 is a known medium, and this one is not it.
    assert_eq!(json[3]["sameVersion"].as_array().unwrap().len(), 1);
    assert_eq!(json[1]["error"], "page.iso: this is a web page (HTML), not a disc image");
    assert_eq!(json[2]["error"], "nowhere.iso is not there");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("page.iso: this is a web page") && said.contains("nowhere.iso is not there"),
        "{said}"
    );

    let output = media.inspect(&["--sha256", "arm64.iso", "relabelled.iso"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("sha256       {}\n", sums[0])), "{text}");
    assert!(text.contains("\n\nmedium       relabelled.iso\n"), "{text}");
    assert!(text.contains("note         same version, different bytes; the known ones have\n"), "{text}");
}

#[test]
fn a_cut_download_is_told_by_both_sizes() {
    let media = Media::new(&["client"]);
    let whole = fs::metadata(media.path("client.iso")).unwrap().len();
    OpenOptions::new().write(true).open(media.path("client.iso")).unwrap().set_len(700_000).unwrap();
    let said = media.error(&["client.iso"]);
    let says: u64 =
        said.split("the volume says ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(says > 700_000 && says <= whole, "{said}");
    assert!(said.contains("client.iso: truncated: ") && said.contains("the file has 700000"), "{said}");
}

#[test]
fn odd_names_do_nothing_to_a_terminal() {
    let media = Media::new(&["odd"]);
    let medium = media.json("odd.iso");
    let images = &medium["windows"]["install"]["images"];
    assert_eq!(all(images, "name")[0], "A\u{9b}31mB");
    let text = media.text("odd.iso");
    assert!(
        text.contains("image 1      A\u{fffd}31mB\n             displayed as C\u{fffd}D\u{fffd}\n"),
        "{text}"
    );
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
    assert!(text.lines().all(|line| line.chars().count() < 230));
    // So does an error.
    let name = "a\u{1b}[31m.iso";
    fs::write(media.path(name), "text").unwrap();
    assert!(media.error(&[name]).contains("a\u{fffd}[31m.iso: this is text"));
}

/// Counts what is read.
struct Counted<R> {
    source: R,
    bytes: AtomicU64,
    reads: AtomicU64,
}

impl<R> Counted<R> {
    fn new(source: R) -> Self {
        Self { source, bytes: AtomicU64::new(0), reads: AtomicU64::new(0) }
    }
}

impl<R: ReadAt> ReadAt for Counted<R> {
    fn size(&self) -> u64 {
        self.source.size()
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.bytes.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.source.read_exact_at(buf, offset)
    }
}

#[test]
fn less_than_a_mebibyte_is_read() {
    let media = Media::new(&["large", "crowded", "virtio"]);
    assert!(fs::metadata(media.path("large.iso")).unwrap().len() > 4 << 30);
    for (iso, bound) in [("large.iso", 192 << 10), ("crowded.iso", 512 << 10), ("virtio.iso", 1 << 20)] {
        let counted = Counted::new(SourceFile::open(&media.path(iso)).unwrap());
        let contents = Contents::read(&counted).unwrap();
        let (bytes, reads) = (counted.bytes.into_inner(), counted.reads.into_inner());
        println!("{iso}: {bytes} bytes in {reads} reads");
        assert!(bytes < bound, "{iso}: {bytes} bytes in {reads} reads");
        if let Contents::Windows(windows) = contents {
            assert_eq!(windows.install.images.len(), 5);
        }
    }
}

/// A medium some of whose bytes are something else.
struct Damaged<'m> {
    whole: &'m [u8],
    at: u64,
    bytes: &'m [u8],
}

impl ReadAt for Damaged<'_> {
    fn size(&self) -> u64 {
        self.whole.len() as u64
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.whole.read_exact_at(buf, offset)?;
        for (index, byte) in self.bytes.iter().enumerate() {
            let at = (self.at + index as u64).checked_sub(offset).and_then(|at| usize::try_from(at).ok());
            if let Some(there) = at.and_then(|at| buf.get_mut(at)) {
                *there = *byte;
            }
        }
        Ok(())
    }
}

/// Keeps where reads went.
struct Traced<'m> {
    whole: &'m [u8],
    reads: Mutex<Vec<(u64, usize)>>,
}

impl ReadAt for Traced<'_> {
    fn size(&self) -> u64 {
        self.whole.len() as u64
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.reads.lock().unwrap().push((offset, buf.len()));
        self.whole.read_exact_at(buf, offset)
    }
}

/// Whatever stands in any place that is read, there is an answer, or an error that says something.
#[test]
fn damage_anywhere_is_an_answer_or_an_error() {
    let media = Media::new(&["client", "swm", "relabelled", "joliet"]);
    for iso in ["client.iso", "swm.iso", "relabelled.iso", "joliet.iso"] {
        let whole = fs::read(media.path(iso)).unwrap();
        let traced = Traced { whole: &whole, reads: Mutex::new(Vec::new()) };
        Contents::read(&traced).unwrap();
        let (mut seed, mut errors) = (7u32, 0);
        for (offset, length) in traced.reads.into_inner().unwrap() {
            for _ in 0..20 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = offset + u64::from(seed >> 8) % length as u64;
                let bytes = match seed >> 4 & 3 {
                    0 => vec![0xff; 4],
                    1 => vec![0],
                    2 => vec![seed as u8],
                    _ => at.to_le_bytes().to_vec(),
                };
                if let Err(error) = Contents::read(&Damaged { whole: &whole, at, bytes: &bytes }) {
                    assert!(!error.to_string().is_empty());
                    errors += 1;
                }
            }
        }
        assert!(errors > 10, "{iso}: {errors}");
    }
}
