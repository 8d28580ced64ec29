//! Small media of every kind, made with wimlib and genisoimage from the demo's.
//!
//! Include it with `#[path = "support/media.rs"] mod media;`.
// Each test file uses its own part of this.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs a tool, which must succeed, and returns what it prints.
pub fn tool(name: &str, args: &[&str], folder: &Path) -> String {
    let output = Command::new(name).args(args).current_dir(folder).output();
    let output = output.unwrap_or_else(|e| panic!("{name} (install it with tests/run.sh): {e}"));
    assert!(output.status.success(), "{name} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// An image of an archive: NAME and what the XML says of it, as `WINDOWS/ARCH=9`.
pub struct Image<'i> {
    pub name: &'i str,
    pub properties: &'i [&'i str],
}

/// What a Windows 11 Pro's XML says.
pub const PRO: [&str; 6] = [
    "WINDOWS/ARCH=9",
    "WINDOWS/EDITIONID=Professional",
    "WINDOWS/LANGUAGES/LANGUAGE=en-US",
    "WINDOWS/LANGUAGES/DEFAULT=en-US",
    "WINDOWS/VERSION/MAJOR=10",
    "WINDOWS/VERSION/BUILD=26100",
];

/// A folder with media and recipes.
pub struct Bench {
    pub folder: tempfile::TempDir,
}

impl Bench {
    /// The demo's media as `w.iso` and `v.iso`.
    pub fn new() -> Self {
        let bench = Self { folder: tempfile::tempdir().unwrap() };
        for (from, to) in [("windows.iso", "w.iso"), ("virtio-win.iso", "v.iso")] {
            fs::copy(demo(from), bench.path(to)).unwrap();
        }
        bench
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn sha256(&self, name: &str) -> String {
        tool("sha256sum", &[name], self.folder.path())[..64].to_owned()
    }

    /// The archive `name` with these images.
    pub fn wim(&self, name: &str, images: &[Image<'_>]) {
        let content = self.path("content");
        fs::create_dir_all(&content).unwrap();
        for (index, image) in (1..).zip(images) {
            // Each image has a file of its own, so that a split archive has something to split.
            fs::write(content.join("file"), image.name.repeat(30_000)).unwrap();
            let verb = if index == 1 { "capture" } else { "append" };
            let into: &[&str] = if index == 1 { &["--compress=none"] } else { &[] };
            let args = [&[verb, "content", name, image.name, "--no-acls"], into].concat();
            tool("wimlib-imagex", &args, self.folder.path());
            let number = index.to_string();
            let mut args = vec!["info", name, &number];
            args.extend(image.properties.iter().flat_map(|property| ["--image-property", property]));
            tool("wimlib-imagex", &args, self.folder.path());
        }
    }

    /// `iso`: a bridge as Microsoft's, with these files of the folder in `sources/` and the demo's other files.
    pub fn windows(&self, iso: &str, label: &str, sources: &[&str]) {
        let tree = self.unpacked("windows.iso", "win");
        fs::remove_file(tree.join("sources/install.wim")).unwrap();
        for file in sources {
            fs::copy(self.path(file), tree.join("sources").join(file)).unwrap();
        }
        self.pack_windows(iso, label, &tree);
    }

    /// Packs a tree as a bridge that hides all but README.TXT from ISO 9660.
    pub fn pack_windows(&self, iso: &str, label: &str, tree: &Path) {
        let mut args = vec!["-quiet", "-udf", "-allow-limited-size", "-iso-level", "3", "-V", label];
        let names: Vec<String> =
            fs::read_dir(tree).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        for name in names.iter().filter(|name| *name != "README.TXT") {
            args.extend(["-hide", name]);
        }
        args.extend(["-o", iso, tree.to_str().unwrap()]);
        tool("genisoimage", &args, self.folder.path());
    }

    /// The files of one of the demo's media, to be changed, in the folder `name`.
    pub fn unpacked(&self, iso: &str, name: &str) -> PathBuf {
        let tree = self.path(name);
        if tree.exists() {
            fs::remove_dir_all(&tree).unwrap();
        }
        let into = format!("-o{name}");
        tool("7zz", &["x", "-y", &into, demo(iso).to_str().unwrap()], self.folder.path());
        tree
    }

    /// Packs a tree as virtio-win's spec does.
    pub fn pack_virtio(&self, iso: &str, label: &str, tree: &Path) {
        let charset = ["-input-charset", "iso8859-1"];
        let args = ["-quiet", "-r", "-iso-level", "4", "-V", label, "-o", iso, tree.to_str().unwrap()];
        tool("genisoimage", &[&charset[..], &args].concat(), self.folder.path());
    }

    /// Writes `r.toml`: both pins, and these lines.
    pub fn recipe(&self, windows: &str, virtio: &str, more: &str) {
        let recipe = format!(
            "schema = 1\nname = \"test\"\n[media.windows]\nfile = \"{windows}\"\nsha256 = \"{}\"\n\
             [media.virtio]\nfile = \"{virtio}\"\nsha256 = \"{}\"\n{more}",
            self.sha256(windows),
            self.sha256(virtio)
        );
        fs::write(self.path("r.toml"), recipe).unwrap();
    }

    pub fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sealroot"));
        command.args(args).current_dir(self.folder.path()).output().unwrap()
    }

    /// What a command that succeeds prints, and what it says beside.
    #[track_caller]
    pub fn done(&self, args: &[&str]) -> (String, String) {
        let output = self.run(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        (String::from_utf8(output.stdout).unwrap(), said)
    }

    /// A command that fails with this code says all of this.
    #[track_caller]
    pub fn refused(&self, args: &[&str], code: i32, parts: &[&str]) {
        let output = self.run(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        for part in parts {
            assert!(said.contains(part), "no {part:?} in:\n{said}");
        }
    }
}

/// A file of the demo.
pub fn demo(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/demo").join(name)
}
