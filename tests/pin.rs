//! `pin` and `recipe new`: hashes of media at hand into a recipe and its lock.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "support/media.rs"]
mod media;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use media::{Bench, tool};
use serde_json::Value;

const UNPINNED: &str = "# Reviewed.\nschema = 1\nname = \"test\" # ours\n\n[media.windows]\nfile = \"w.iso\"\n\
    sha256 = \"TODO\"   # of the publisher\n\n[media.windows.expect]\nname = \"Windows 11 Pro\"\n\n\
    [media.virtio]\nfile = \"v.iso\"\n\n[media.virtio.expect]\nos = \"w11\"\ndrivers = [\"viostor\"]\n\n\
    # The end.\n";

/// What `pin` should make of it.
fn wanted(bench: &Bench) -> String {
    UNPINNED
        .replace("\"TODO\"", &format!("\"{}\"", bench.sha256("w.iso")))
        .replace("\"v.iso\"\n", &format!("\"v.iso\"\nsha256 = \"{}\"\n", bench.sha256("v.iso")))
}

fn names(bench: &Bench) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(bench.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn pins_are_written_and_nothing_else_is_changed() {
    let bench = Bench::new();
    fs::write(bench.path("r.toml"), UNPINNED).unwrap();
    fs::set_permissions(bench.path("r.toml"), fs::Permissions::from_mode(0o640)).unwrap();

    let (printed, _) = bench.done(&["pin", "r.toml", "--dry-run"]);
    assert!(printed.contains("old  TODO\n") && printed.contains("old  none\n"), "{printed}");
    assert!(printed.contains("would be written"), "{printed}");
    assert_eq!(names(&bench), ["r.toml", "v.iso", "w.iso"]);
    assert_eq!(fs::read_to_string(bench.path("r.toml")).unwrap(), UNPINNED);

    let (printed, _) = bench.done(&["pin", "r.toml", "--json"]);
    let report: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(report["written"], true);
    assert_eq!(report["pins"][0]["new"], bench.sha256("w.iso").as_str());
    // The demo's drivers have the version of a release that is known with other bytes.
    let note = report["pins"][1]["note"].as_str().unwrap();
    assert!(note.starts_with("same version, different bytes: 0.1.271 is known as "), "{note}");
    assert_eq!(fs::read_to_string(bench.path("r.toml")).unwrap(), wanted(&bench));
    assert_eq!(fs::metadata(bench.path("r.toml")).unwrap().permissions().mode() & 0o777, 0o640);
    let lock = fs::read_to_string(bench.path("r.toml.lock")).unwrap();
    // What wimlib says of the archive.
    let tree = bench.unpacked("windows.iso", "tree");
    let info = tool("wimlib-imagex", &["info", "sources/install.wim"], &tree);
    let guid =
        info.lines().find_map(|line| line.strip_prefix("GUID:")).unwrap().trim().trim_start_matches("0x");
    let digits = |text: &str| text.chars().filter(char::is_ascii_hexdigit).collect::<String>();
    let locked = lock.lines().find_map(|line| line.strip_prefix("guid = ")).unwrap();
    // wimlib prints the bytes in their order, Windows the first three groups as numbers.
    let turned = |text: &str| {
        let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
        order.map(|byte| text[byte * 2..byte * 2 + 2].to_owned()).concat()
    };
    assert_eq!(turned(&digits(locked)), digits(guid));
    tool("wimlib-imagex", &["info", "sources/install.wim", "--extract-xml=xml"], &tree);
    assert!(lock.contains(&format!("xml_sha256 = \"{}\"", bench.sha256("tree/xml"))), "{lock}");
    fs::remove_dir_all(tree).unwrap();

    // Again: nothing to change, and nothing is touched.
    let before = fs::metadata(bench.path("r.toml.lock")).unwrap().modified().unwrap();
    let (printed, _) = bench.done(&["pin", "r.toml"]);
    assert!(printed.contains("nothing to change") && printed.matches("as before").count() == 2, "{printed}");
    assert_eq!(fs::metadata(bench.path("r.toml.lock")).unwrap().modified().unwrap(), before);
    bench.done(&["verify", "r.toml"]);
}

#[test]
fn a_replaced_medium_of_the_same_version_is_called_that() {
    let bench = Bench::new();
    fs::write(bench.path("r.toml"), UNPINNED).unwrap();
    bench.done(&["pin", "r.toml"]);
    let old = bench.sha256("w.iso");
    let mut bytes = fs::read(bench.path("w.iso")).unwrap();
    // In the padding at its end.
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(bench.path("w.iso"), bytes).unwrap();
    let (printed, _) = bench.done(&["pin", "r.toml"]);
    let told = format!("  old  {old}\n  new  {}\n  same version, different bytes", bench.sha256("w.iso"));
    assert!(printed.contains(&told), "{printed}");
    assert_eq!(fs::read_to_string(bench.path("r.toml")).unwrap(), wanted(&bench));
}

#[test]
fn a_link_to_a_recipe_stays_one() {
    let bench = Bench::new();
    fs::create_dir(bench.path("real")).unwrap();
    fs::write(
        bench.path("real/r.toml"),
        UNPINNED.replace("\"w.iso\"", "\"../w.iso\"").replace("\"v.iso\"", "\"../v.iso\""),
    )
    .unwrap();
    symlink("real/r.toml", bench.path("link.toml")).unwrap();
    bench.done(&["pin", "link.toml", "--media-dir", "."]);
    assert!(fs::symlink_metadata(bench.path("link.toml")).unwrap().is_symlink());
    assert!(fs::read_to_string(bench.path("real/r.toml")).unwrap().contains(&bench.sha256("w.iso")));
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_written() {
    let bench = Bench::new();
    let refused = |recipe: &str, code: i32, parts: &[&str]| {
        fs::write(bench.path("r.toml"), recipe).unwrap();
        bench.refused(&["pin", "r.toml"], code, parts);
        assert_eq!(fs::read_to_string(bench.path("r.toml")).unwrap(), recipe);
        assert!(!bench.path("r.toml.lock").exists());
    };
    refused(
        &UNPINNED.replace("Windows 11 Pro", "Windows 11 Home"),
        3,
        &["nothing is written: correct the recipe first", "no image is `Windows 11 Home`"],
    );
    refused(&UNPINNED.replace("os = ", "oss = "), 3, &["has no key `oss`", "did you mean `os`?"]);
    refused(&UNPINNED.replace("v.iso", "none.iso"), 3, &["none.iso is not there"]);
    refused(&UNPINNED.replace("v.iso", "w.iso"), 3, &["this is a Windows medium, not a virtio-win medium"]);
    refused("schema = ", 3, &["this is no TOML"]);
    refused("", 3, &["r.toml"]);
    // Mixed line ends could not be written back as they are.
    refused(&UNPINNED.replacen('\n', "\r\n", 1), 4, &["write them by hand"]);
    fs::write(bench.path("page.iso"), "<!DOCTYPE html><html>").unwrap();
    refused(&UNPINNED.replace("v.iso", "page.iso"), 3, &["page.iso: this is a web page"]);
    // A file of the lock's name that is no lock.
    fs::write(bench.path("r.toml"), UNPINNED).unwrap();
    fs::write(bench.path("r.toml.lock"), "mine").unwrap();
    bench.refused(&["pin", "r.toml"], 3, &["r.toml.lock is no lock of sealroot's"]);
    assert_eq!(fs::read_to_string(bench.path("r.toml.lock")).unwrap(), "mine");
    bench.refused(&["pin", "none.toml"], 1, &["none.toml"]);
    bench.refused(&["pin", "."], 1, &["a folder"]);
}

#[test]
fn an_included_file_is_not_pinned() {
    let bench = Bench::new();
    fs::write(
        bench.path("base.toml"),
        "[media.windows]\nfile = \"w.iso\"\n[media.virtio]\nfile = \"v.iso\"\n",
    )
    .unwrap();
    fs::write(bench.path("r.toml"), "schema = 1\nname = \"test\"\ninclude = [\"base.toml\"]\n").unwrap();
    bench.done(&["pin", "r.toml"]);
    let text = fs::read_to_string(bench.path("r.toml")).unwrap();
    assert!(text.contains(&bench.sha256("w.iso")) && text.contains(&bench.sha256("v.iso")), "{text}");
    assert!(!fs::read_to_string(bench.path("base.toml")).unwrap().contains("sha256"));
    bench.done(&["verify", "r.toml"]);
}

#[test]
fn a_new_recipe_holds_what_the_media_hold() {
    let bench = Bench::new();
    let media = ["recipe", "new", "--windows", "w.iso", "--virtio", "v.iso"];
    // Without a terminal nothing is asked.
    bench.refused(&media, 2, &["--image is missing, and there is no terminal"]);
    bench.refused(
        &[&media[..], &["--image", "3"]].concat(),
        3,
        &["no image is `3`", "1 Windows 11 Pro", "2 Windows 11 Enterprise"],
    );
    let image = [&media[..], &["--image", "Windows 11 Pro"]].concat();
    bench.refused(&image, 2, &["--name is missing"]);
    bench.refused(&[&image[..], &["--name", "Mine"]].concat(), 3, &["`mine`, say"]);
    let (printed, _) = bench.done(&[&image[..], &["--name", "mine"]].concat());
    assert_eq!(printed, "mine.toml\n");
    assert_eq!(names(&bench), ["mine.toml", "v.iso", "w.iso"]);
    let text = fs::read_to_string(bench.path("mine.toml")).unwrap();
    for part in [
        "file = \"w.iso\"",
        &format!("sha256 = \"{}\"", bench.sha256("v.iso")),
        "edition_id = \"Professional\"",
        "wim_build = 26100\n",
        "version = \"0.1.271\"",
        "os = \"w11\"",
        "drivers = [\"viostor\", \"vioscsi\", \"NetKVM\", \"vioserial\", \"Balloon\"]",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    bench.done(&["verify", "mine.toml"]);
    let disk = media::demo("root.qcow2");
    bench.done(&["build", "mine.toml", "--disk", disk.to_str().unwrap(), "--dry-run"]);
    // What is there is not overwritten.
    bench.refused(&[&image[..], &["--name", "mine"]].concat(), 4, &["mine.toml"]);
    assert_eq!(fs::read_to_string(bench.path("mine.toml")).unwrap(), text);
    bench.refused(
        &["recipe", "new", "--windows", "v.iso", "--virtio", "w.iso", "--name", "x"],
        3,
        &["v.iso is a driver medium, not a Windows medium"],
    );
}

#[test]
fn on_a_terminal_it_asks() {
    let bench = Bench::new();
    // `script` gives the command a terminal and types the answers.
    let command = format!("{} recipe new --windows w.iso --virtio v.iso", env!("CARGO_BIN_EXE_sealroot"));
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .current_dir(bench.folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"2\nasked\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("Which image, by its number?") && said.contains("2 Windows 11 Enterprise"),
        "{said}"
    );
    let text = fs::read_to_string(bench.path("asked.toml")).unwrap();
    assert!(text.contains("name = \"Windows 11 Enterprise\""), "{text}");
}
