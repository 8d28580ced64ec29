//! `verify`: what is on the media, against what the recipe expects and its lock.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "support/media.rs"]
mod media;

use std::fs;
use std::path::Path;

use media::{Bench, Image, PRO, demo, tool};
use serde_json::Value;

const NEEDED: &str =
    "[media.virtio.expect]\nversion = \"0.1.271\"\nos = \"w11\"\ndrivers = [\"viostor\", \"NetKVM\"]\n";

fn windows(lines: &str) -> String {
    format!("[media.windows.expect]\n{lines}\n")
}

/// A medium with `Windows 11 Pro N` and an image that is displayed as `Windows 11 Pro`, but has another NAME.
fn like_names(bench: &Bench) {
    let n = [&PRO[..1], &["WINDOWS/EDITIONID=ProfessionalN"], &PRO[2..]].concat();
    let named = [&PRO[..], &["DISPLAYNAME=Windows 11 Pro"]].concat();
    bench.wim(
        "install.wim",
        &[
            Image { name: "Windows 11 Pro N", properties: &n },
            Image { name: "Windows 10 Pro", properties: &named },
        ],
    );
    bench.windows("w.iso", "ANY", &["install.wim"]);
}

#[test]
fn names_are_compared_exactly_and_all_are_listed() {
    let bench = Bench::new();
    like_names(&bench);
    bench.recipe("w.iso", "v.iso", &windows("name = \"Windows 11 Pro\""));
    bench.refused(
        &["verify", "r.toml"],
        3,
        &[
            "media.windows.expect.name: no image is `Windows 11 Pro`",
            "1 Windows 11 Pro N (ProfessionalN)",
            "2 Windows 10 Pro (Professional)",
            "image 2 is displayed as that, but its NAME, which Setup compares, is `Windows 10 Pro`",
        ],
    );
    bench.recipe("w.iso", "v.iso", &windows("name = \"Windows 10 Pro\"\nedition_id = \"Professional\""));
    let (printed, _) = bench.done(&["verify", "r.toml"]);
    assert!(printed.contains("image 2: Windows 10 Pro (Professional, amd64, en-US, 26100.0)"), "{printed}");
    // The edition is another than the name's.
    bench.recipe("w.iso", "v.iso", &windows("name = \"Windows 11 Pro N\"\nedition_id = \"Professional\""));
    bench.refused(
        &["verify", "r.toml"],
        3,
        &["media.windows.expect.edition_id: not `Professional`: image 1, Windows 11 Pro N, has ProfessionalN"],
    );
    // A slip is told from what is not there.
    bench.recipe("w.iso", "v.iso", &windows("edition_id = \"Profesional\""));
    bench.refused(&["verify", "r.toml"], 3, &["did you mean `Professional`?"]);
    // Without a name in `expect`, the one that is installed must be there.
    bench.recipe("w.iso", "v.iso", "[install]\nimage_name = \"Windows 11 Home\"\n");
    bench.refused(&["verify", "r.toml"], 3, &["install.image_name: no image is `Windows 11 Home`"]);
}

#[test]
fn architecture_language_and_build_are_those_of_the_image() {
    let bench = Bench::new();
    let arm = ["WINDOWS/ARCH=12", "WINDOWS/EDITIONID=Professional", "WINDOWS/LANGUAGES/LANGUAGE=en-US"];
    let arm = [&arm[..], &["WINDOWS/VERSION/MAJOR=10", "WINDOWS/VERSION/BUILD=22621"]].concat();
    bench.wim("install.wim", &[Image { name: "Windows 11 Pro", properties: &arm }]);
    bench.windows("w.iso", "ANY", &["install.wim"]);
    let expect = "architecture = \"amd64\"\nlanguage = \"en-GB\"\nwim_build = 22631\nbuild = \"22631.2428\"";
    bench.recipe("w.iso", "v.iso", &(windows(expect) + "[install]\nlocale = \"de-DE\"\n"));
    bench.refused(
        &["verify", "r.toml"],
        3,
        &[
            "media.windows.expect.architecture: not `amd64`: image 1, Windows 11 Pro, has arm64",
            "media.windows.expect.language: not `en-GB`: image 1 has en-US",
            "media.windows.expect.wim_build: not `22631`: image 1, Windows 11 Pro, has 22621",
            "install.locale: not `de-DE`: image 1 has en-US",
            "install.locale: Setup does not speak `de-DE`: it has en-US",
        ],
    );
    // What the release is called is not on the medium: `release` and `build` are no reason to refuse it.
    let expect = "language = \"en-us\"\nwim_build = 22621\nrelease = \"23H2\"\nbuild = \"22631.2428\"";
    bench.recipe("w.iso", "v.iso", &windows(expect));
    bench.done(&["verify", "r.toml"]);
}

#[test]
fn esd_and_split_archives_are_taken() {
    let bench = Bench::new();
    let setup = ["WINDOWS/EDITIONID=WindowsPE", "WINDOWS/INSTALLATIONTYPE=WindowsPE"];
    bench.wim(
        "install.wim",
        &[
            Image { name: "Windows Setup Media", properties: &[] },
            Image { name: "Microsoft Windows PE (x64)", properties: &setup },
            Image { name: "Windows 11 Pro", properties: &PRO },
        ],
    );
    let here = bench.folder.path();
    tool("wimlib-imagex", &["export", "install.wim", "all", "install.esd", "--solid"], here);
    tool("wimlib-imagex", &["split", "install.wim", "install.swm", "1"], here);
    let parts: Vec<String> = fs::read_dir(here)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".swm"))
        .collect();
    assert!(parts.len() > 1, "{parts:?}");
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    // Setup's own images have names, too: only what can be installed counts.
    let expect = windows("name = \"Windows 11 Pro\"\nedition_id = \"Professional\"");
    for (sources, archive) in [(vec!["install.esd"], "install.esd"), (parts.clone(), "install.swm")] {
        bench.windows("w.iso", "ANY", &sources);
        bench.recipe("w.iso", "v.iso", &expect);
        let (printed, _) = bench.done(&["verify", "r.toml", "--json"]);
        let found: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(found["found"]["windows"]["image"]["index"], 3);
        assert_eq!(found["found"]["windows"]["archive"], format!("sources/{archive}"));
    }
    let last = format!("install{}.swm", parts.len());
    let but_last: Vec<&str> = parts.iter().copied().filter(|part| *part != last).collect();
    bench.windows("w.iso", "ANY", &but_last);
    bench.recipe("w.iso", "v.iso", &expect);
    let missing = format!("sources/install.swm: part {} of {} is missing", parts.len(), parts.len());
    bench.refused(
        &["verify", "r.toml"],
        3,
        &["the windows medium matches its pin, and can't be read", &missing],
    );
}

#[test]
fn what_a_medium_is_is_told_by_what_it_holds() {
    let bench = Bench::new();
    bench.wim("install.wim", &[Image { name: "Windows 11 Pro", properties: &PRO }]);
    // The label says the opposite.
    bench.windows("w.iso", "virtio-win-0.1.271", &["install.wim"]);
    bench.recipe("w.iso", "v.iso", &(windows("name = \"Windows 11 Pro\"") + NEEDED));
    bench.done(&["verify", "r.toml"]);
    bench.recipe("v.iso", "w.iso", NEEDED);
    bench.refused(
        &["verify", "r.toml"],
        3,
        &[
            "media.windows.file: this is a driver medium, not a Windows medium",
            "media.virtio.file: this is a Windows medium, not a virtio-win medium",
            "the pin is that of another medium",
        ],
    );
    fs::create_dir(bench.path("other")).unwrap();
    fs::write(bench.path("other/file"), "nothing").unwrap();
    bench.pack_virtio("o.iso", "CCCOMA_X64FRE_EN-US_DV9", &bench.path("other"));
    bench.recipe("o.iso", "v.iso", "");
    bench.refused(&["verify", "r.toml"], 3, &["a disc image without Windows' images and without drivers"]);
}

#[test]
fn drivers_are_those_of_the_windows_and_the_agent_is_there() {
    let bench = Bench::new();
    let expect = |os: &str, drivers: &str| {
        let lines =
            format!("[media.virtio.expect]\nversion = \"0.1.271\"\nos = \"{os}\"\ndrivers = {drivers}\n");
        bench.recipe("w.iso", "v.iso", &lines);
    };
    expect("2k25", "[\"viostor\", \"viostr\"]");
    bench.refused(
        &["verify", "r.toml"],
        3,
        &[
            "`viostor` has no folder viostor/2k25/amd64; for amd64 it has w11",
            "the medium has no driver `viostr`",
            "did you mean `viostor`?",
            "media.virtio.expect.os: the medium has no drivers for 2k25 on amd64",
        ],
    );
    let tree = bench.unpacked("virtio-win.iso", "virtio");
    fs::remove_dir_all(tree.join("guest-agent")).unwrap();
    bench.pack_virtio("v.iso", "virtio-win-0.1.240", &tree);
    expect("w11", "[\"viostor\"]");
    bench.refused(
        &["verify", "r.toml"],
        3,
        &[
            "lacks the guest agent (guest-agent/qemu-ga-x86_64.msi): it has nothing",
            "media.virtio.expect.version: not `0.1.271`: the volume is labelled virtio-win-0.1.240",
        ],
    );
    // The drivers say which release they are of, whatever the label says.
    let tree = bench.unpacked("virtio-win.iso", "virtio");
    bench.pack_virtio("v.iso", "virtio-win-0.1.285", &tree);
    bench.recipe("w.iso", "v.iso", &NEEDED.replace("0.1.271", "0.1.285"));
    bench.refused(
        &["verify", "r.toml"],
        3,
        &["the newest of the drivers is of build 27100, which is not that of 0.1.285"],
    );
    // Without a label there are still the drivers.
    bench.pack_virtio("v.iso", "ANY", &tree);
    bench.recipe("w.iso", "v.iso", NEEDED);
    let (_, said) = bench.done(&["verify", "r.toml"]);
    assert!(said.contains("the volume's label names no release"), "{said}");
}

#[test]
fn drivers_are_held_to_their_catalogs() {
    let bench = Bench::new();
    let refused = |change: &dyn Fn(&Path), parts: &[&str]| {
        let tree = bench.unpacked("virtio-win.iso", "virtio");
        change(&tree.join("viostor/w11/amd64"));
        bench.pack_virtio("v.iso", "virtio-win-0.1.271", &tree);
        bench.recipe("w.iso", "v.iso", NEEDED);
        bench.refused(&["verify", "r.toml"], 3, parts);
    };
    let flip = |file: &Path, at: usize| {
        let mut bytes = fs::read(file).unwrap();
        bytes[at] ^= 1;
        fs::write(file, bytes).unwrap();
    };
    refused(
        &|folder| flip(&folder.join("viostor.sys"), 600),
        &["viostor/w11/amd64/viostor.sys: altered: viostor.cat"],
    );
    refused(&|folder| flip(&folder.join("viostor.inf"), 60), &["viostor/w11/amd64/viostor.inf: "]);
    refused(
        &|folder| fs::remove_file(folder.join("viostor.sys")).unwrap(),
        &["viostor.sys: missing: viostor.inf names it"],
    );
    refused(&|folder| fs::remove_file(folder.join("viostor.cat")).unwrap(), &["viostor.cat: missing"]);
    refused(
        &|folder| {
            let other = folder.join("../../../NetKVM/w11/amd64/netkvm.cat");
            fs::copy(other, folder.join("viostor.cat")).unwrap();
        },
        &["viostor/w11/amd64/viostor.inf: not in the catalog viostor.cat"],
    );
    // The list in the catalog is signed.
    refused(
        &|folder| {
            let length = fs::metadata(folder.join("viostor.cat")).unwrap().len() as usize;
            flip(&folder.join("viostor.cat"), length / 8);
        },
        &["viostor/w11/amd64/viostor.cat: "],
    );
    refused(&|folder| fs::remove_dir_all(folder).unwrap(), &["the medium has no driver `viostor`"]);
    // Only what the recipe needs is looked at.
    let tree = bench.unpacked("virtio-win.iso", "virtio");
    flip(&tree.join("Balloon/w11/amd64/balloon.sys"), 600);
    bench.pack_virtio("v.iso", "virtio-win-0.1.271", &tree);
    bench.recipe("w.iso", "v.iso", NEEDED);
    bench.done(&["verify", "r.toml"]);
}

#[test]
fn certificates_are_judged_by_given_roots_alone() {
    let bench = Bench::new();
    bench.recipe("w.iso", "v.iso", NEEDED);
    let (printed, _) = bench.done(&["verify", "r.toml"]);
    assert_eq!(printed.matches("signed by Sealroot drivers, 20").count(), 2, "{printed}");
    assert_eq!(printed.matches("its certificate is not judged").count(), 2, "{printed}");
    let root = demo("driver-root.pem");
    let (printed, _) = bench.done(&["verify", "r.toml", "--trust-roots", root.to_str().unwrap()]);
    assert_eq!(printed.matches("trusted by Sealroot demo root").count(), 2, "{printed}");
    let req = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        "key.pem",
        "-out",
        "other.pem",
        "-subj",
        "/CN=Other",
    ];
    tool("openssl", &req, bench.folder.path());
    bench.refused(
        &["verify", "r.toml", "--trust-roots", "other.pem"],
        3,
        &["viostor/w11/amd64/viostor.cat: signature: "],
    );
    bench.refused(&["verify", "r.toml", "--trust-roots", "r.toml"], 3, &["--trust-roots r.toml"]);
    bench.refused(&["verify", "r.toml", "--trust-roots", "none.pem"], 1, &["--trust-roots none.pem"]);
}

#[test]
fn versions_that_others_had_trouble_with_are_warned_of() {
    let bench = Bench::new();
    let tree = bench.unpacked("virtio-win.iso", "virtio");
    let folder = tree.join("viostor/w11/amd64");
    let inf = fs::read_to_string(folder.join("viostor.inf")).unwrap().replace("27100", "28500");
    fs::write(folder.join("viostor.inf"), inf).unwrap();
    // Signed anew, by nobody in particular.
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/catalog.py");
    let script = script.to_str().unwrap();
    let req = [
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "k.pem", "-out", "c.pem", "-subj",
        "/CN=Me",
    ];
    let usage = ["-addext", "extendedKeyUsage=codeSigning", "-addext", "basicConstraints=CA:false"];
    tool("openssl", &[&req[..], &usage].concat(), &folder);
    tool("python3", &[script, "list", "list", "viostor.inf", "viostor.sys"], &folder);
    tool("python3", &[script, "sign", "list", "viostor.cat", "--key", "k.pem", "--cert", "c.pem"], &folder);
    bench.pack_virtio("v.iso", "virtio-win-0.1.285", &tree);
    bench.recipe("w.iso", "v.iso", &NEEDED.replace("0.1.271", "0.1.285"));
    let (printed, said) = bench.done(&["verify", "r.toml"]);
    assert!(said.contains("warning: viostor 100.100.104.28500: "), "{said}");
    assert!(said.contains("https://github.com/virtio-win/"), "{said}");
    assert!(printed.contains("signed by Me, at a time that nobody attests"), "{printed}");
}

#[test]
fn the_same_version_in_other_bytes_is_called_that() {
    let bench = Bench::new();
    bench.recipe("w.iso", "v.iso", NEEDED);
    // A pin of the real virtio-win 0.1.271.
    let known = "ebd48258668f7f78e026ed276c28a9d19d83e020ffa080ad69910dc86bbcbcc6";
    let recipe = fs::read_to_string(bench.path("r.toml")).unwrap().replace(&bench.sha256("v.iso"), known);
    fs::write(bench.path("r.toml"), recipe).unwrap();
    bench.refused(
        &["verify", "r.toml"],
        3,
        &[
            "v.iso: same version, different bytes: the pin is that of virtio-win, 0.1.271-1",
            "expected",
            "got",
        ],
    );
}

#[test]
fn media_are_held_to_the_lock() {
    let bench = Bench::new();
    let name = windows("name = \"Windows 11 Pro\"");
    bench.recipe("w.iso", "v.iso", &(name.clone() + NEEDED));
    bench.done(&["pin", "r.toml"]);
    bench.done(&["verify", "r.toml"]);
    let lock = fs::read_to_string(bench.path("r.toml.lock")).unwrap();
    let with = |from: &str, to: &str| {
        assert!(lock.contains(from));
        fs::write(bench.path("r.toml.lock"), lock.replace(from, to)).unwrap();
    };
    with("wim_build = \"26100.4349\"", "wim_build = \"26100.1\"");
    bench.refused(
        &["verify", "r.toml"],
        3,
        &["lock windows.wim_build: locked as 26100.1, found as 26100.4349"],
    );
    with("27100\"\n\"viostor", "27000\"\n\"viostor");
    bench.refused(
        &["verify", "r.toml"],
        3,
        &["lock virtio.drivers: locked as NetKVM/w11/amd64/netkvm.inf 100.100.104.27000"],
    );
    with("sealroot-lock-1", "sealroot-lock-9");
    bench.refused(&["verify", "r.toml"], 3, &["is no lock of sealroot's: it has another format"]);
    with("size = ", "weight = ");
    bench.refused(&["verify", "r.toml"], 3, &["is no lock of sealroot's"]);

    // A pin that was changed by hand: told before anything is hashed, by build as well.
    fs::write(bench.path("r.toml.lock"), &lock).unwrap();
    fs::copy(bench.path("w.iso"), bench.path("w2.iso")).unwrap();
    let mut bytes = fs::read(bench.path("w2.iso")).unwrap();
    bytes.push(0);
    fs::write(bench.path("w2.iso"), bytes).unwrap();
    bench.recipe("w2.iso", "v.iso", &(name + NEEDED));
    let told = [
        "media.windows.sha256: the recipe's lock was made for another pin",
        "`sealroot pin` makes both anew",
    ];
    bench.refused(&["verify", "r.toml"], 3, &told);
    let disk = demo("root.qcow2");
    bench.refused(&["build", "r.toml", "--disk", disk.to_str().unwrap()], 3, &told);
    bench.refused(&["build", "r.toml", "--dry-run", "--disk", disk.to_str().unwrap()], 3, &[]);
    // Without a lock, the pins alone count.
    fs::remove_file(bench.path("r.toml.lock")).unwrap();
    bench.done(&["verify", "r.toml"]);
}
