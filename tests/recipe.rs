//! `recipe`: everything that is wrong with a recipe, in its place.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const PIN_A: &str = "d141f6030fed50f75e2b03e1eb2e53646c4b21e5386047cb860af5223f102a32";
const PIN_B: &str = "e14cf2b94492c3e925f0070ba7fdfedeb2048c91eea9c5a5afb30232a3976331";

fn sealroot(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sealroot")).args(args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn recipes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes")
}

fn good() -> String {
    format!(
        "schema = 1\nname = \"test\"\n\n[media.windows]\nfile = \"w.iso\"\nsha256 = \"{PIN_A}\"\n\n\
         [media.virtio]\nfile = \"v.iso\"\nsha256 = \"{PIN_B}\"\n"
    )
}

/// A recipe in a folder of its own, and what `recipe validate` says of it.
struct Tried {
    folder: tempfile::TempDir,
    output: Output,
}

impl Tried {
    fn new(text: impl AsRef<[u8]>, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.toml");
        fs::write(&path, text).unwrap();
        let output = sealroot(&[&["recipe", "validate", path.to_str().unwrap()], more].concat());
        Self { folder, output }
    }

    fn code(&self) -> i32 {
        self.output.status.code().unwrap()
    }

    /// What was said, with the folder's name taken out.
    fn said(&self) -> String {
        stderr(&self.output).replace(&format!("{}/", self.folder.path().display()), "")
    }

    #[track_caller]
    fn refused_with(&self, parts: &[&str]) {
        let said = self.said();
        assert_eq!(self.code(), 3, "{said}");
        for part in parts {
            assert!(said.contains(part), "no {part:?} in:\n{said}");
        }
    }
}

#[test]
fn every_recipe_here_is_valid_and_names_its_schema() {
    let mut count = 0;
    for entry in fs::read_dir(recipes()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        count += 1;
        let output = sealroot(&["recipe", "validate", path.to_str().unwrap()]);
        assert!(output.status.success(), "{}", stderr(&output));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("#:schema ./recipe.schema.json\n"), "{}", path.display());
    }
    assert!(count >= 4);
}

#[test]
fn pins_are_those_of_the_table_of_known_media() {
    let shared = std::env::var_os("SEALROOT_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let Ok(known) = fs::read_to_string(shared.join("data/known-media.tsv")) else {
        println!("skipped: no table of known media at {}", shared.display());
        return;
    };
    for name in ["windows-11-pro", "windows-11-enterprise", "windows-server-2022", "windows-server-2025"] {
        let recipe = fs::read_to_string(recipes().join(name).with_extension("toml")).unwrap();
        let recipe: toml::Table = recipe.parse().unwrap();
        for medium in ["windows", "virtio"] {
            let medium = &recipe["media"][medium];
            let (pin, file) = (medium["sha256"].as_str().unwrap(), medium["file"].as_str().unwrap());
            assert!(known.lines().any(|line| line.starts_with(pin) && line.contains(file)), "{name}: {file}");
        }
    }
}

#[test]
fn the_schema_kept_here_is_the_one_that_is_printed() {
    let printed = sealroot(&["recipe", "schema"]);
    assert!(printed.status.success());
    let kept = fs::read(recipes().join("recipe.schema.json")).unwrap();
    assert!(printed.stdout == kept, "run: cargo run -- recipe schema > recipes/recipe.schema.json");
}

/// Tables of the schema, by full name, with the names of their keys.
fn schema_tables(schema: &Value, node: &Value, name: &str, into: &mut Vec<(String, Vec<String>)>) {
    let node = match node.get("$ref").and_then(Value::as_str) {
        Some(reference) => schema.pointer(reference.strip_prefix('#').unwrap()).unwrap(),
        None => node,
    };
    let Some(properties) = node.get("properties").and_then(Value::as_object) else { return };
    assert_eq!(node["additionalProperties"], false, "{name}");
    into.push((name.to_owned(), properties.keys().cloned().collect()));
    for (key, value) in properties {
        let full = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
        schema_tables(schema, value, &full, into);
    }
}

#[test]
fn the_schema_and_the_reader_know_the_same_keys() {
    let schema: Value = serde_json::from_slice(&sealroot(&["recipe", "schema"]).stdout).unwrap();
    let mut tables = Vec::new();
    schema_tables(&schema, &schema, "", &mut tables);
    assert!(tables.len() >= 10, "{tables:?}");
    for (table, keys) in tables {
        let bogus = if table.is_empty() { "qqqqqqqq=1".into() } else { format!("{table}.qqqqqqqq=1") };
        let tried = Tried::new(good(), &["--set", &bogus]);
        let said = tried.said();
        let known = said.split(" knows ").nth(1).unwrap_or_else(|| panic!("{said}"));
        let mut known: Vec<_> = known.trim().split(", ").collect();
        let mut keys: Vec<_> = keys.iter().map(String::as_str).collect();
        known.sort_unstable();
        keys.sort_unstable();
        assert_eq!(known, keys, "[{table}]");
    }
}

#[test]
fn three_slips_are_three_problems_in_their_places() {
    let text = good().replace("file = \"w.iso\"", "flie = \"w.iso\"").replace("name =", "nmae =")
        + "[clone]\nhostnam = \"a\"\n";
    let tried = Tried::new(text, &[]);
    tried.refused_with(&[
        "3 problems",
        "r.toml:2:1: the recipe has no key `nmae`\n  2 | nmae = \"test\"\n    | ^^^^\n  help: did you mean `name`?",
        "r.toml:5:1: [media.windows] has no key `flie`\n  5 | flie = \"w.iso\"\n    | ^^^^\n  help: did you mean `file`?",
        "r.toml:12:1: [clone] has no key `hostnam`\n  12 | hostnam = \"a\"\n     | ^^^^^^^\n  help: did you mean `hostname`?",
    ]);
}

#[test]
fn problems_of_every_kind_are_told_together() {
    let text = format!(
        "schema = 2\n\
         [media.windows]\nfile = \"https://example.com/w.iso\"\nsha256 = \"{PIN_A}\"\nexpect.wim_build = \"26100\"\n\
         [media.virtio]\nsha256 = \"{PIN_A}\"\nexpect.drivers = [\"viostor\", 3]\nexpect.os = \"w1\"\n\
         [install]\nhostname = \"pc\"\nusername = \"PC\"\ntime_zone = \"Europe/Berlin\"\n\
         [root]\nfirst_boot = \"none\"\ndrive_letter = \"D\"\n\
         [image]\ntag = \"x\"\ncompression = \"gzip\"\nlevel = 10\n"
    );
    Tried::new(text, &[]).refused_with(&[
        "r.toml:1:1: `name` is missing",
        "r.toml:1:10: `schema` must be 1",
        "r.toml:3:8: this is an address; sealroot works offline",
        "r.toml:5:20: `media.windows.expect.wim_build` takes an integer, not a string",
        "r.toml:6:1: [media.virtio] lacks `file`",
        "r.toml:8:30: `media.virtio.expect.drivers` takes strings",
        "r.toml:9:13: this is one of `w10`",
        "r.toml:12:12: the computer and its account have the same name",
        "r.toml:13:13: ",
        "r.toml:16:16: a drive letter belongs to",
        "r.toml:18:7: a tag needs a repository",
        "r.toml:20:9: `image.level` must be from 1 to 9",
    ]);
}

#[test]
fn pins_that_prove_nothing_are_refused() {
    for (pin, why) in [
        ("d41d8cd98f00b204e9800998ecf8427e", "MD5"),
        ("da39a3ee5e6b4b0d3255bfef95601890afd80709", "SHA-1"),
        ("0000000000000000000000000000000000000000000000000000000000000000", "place-holder"),
        (&format!("sha256:{PIN_A}"), "without `sha256:` in front"),
        (&PIN_A[1..], "63 characters"),
        ("", "0 characters"),
    ] {
        Tried::new(good().replace(PIN_A, pin), &[]).refused_with(&["r.toml:6:10: ", why, "sha256sum"]);
    }
    assert_eq!(Tried::new(good().replace(PIN_A, &PIN_A.to_uppercase()), &[]).code(), 0);
    Tried::new(good().replace(PIN_A, PIN_B), &[]).refused_with(&["both media have the same pin"]);
}

#[test]
fn names_are_held_to_their_rules() {
    for (setting, parts) in [
        ("name=Windows 11", ["lower-case", "`windows-11`"].as_slice()),
        ("name=-a", &["hyphen"]),
        ("clone.hostname=KW-0123456789ABC", &["computer name"]),
        ("clone.username=Administrator", &["account name"]),
        ("root.drive_letter=C", &["D to Z"]),
        ("image.repository=windows11", &["registry's host"]),
        ("image.repository=private/windows11", &["with a dot, a port, or localhost"]),
        ("image.repository=https://registry.example.com/a", &["https://"]),
        ("image.repository=registry.example.com/a:latest", &["no tag", "tag = \"latest\""]),
        ("image.repository=registry.example.com/A", &["lower-case"]),
        ("image.repository=registry.example.com:0/a", &["no host name"]),
        ("image.level=20", &["from 1 to 19"]),
        ("image.level=fast", &["integer"]),
        ("image.compression=zst", &["did you mean `zstd`"]),
        ("media.windows.expect.build=10.0.26100.1", &["`26100.1`"]),
        ("media.windows.expect.architecture=x64", &["`amd64`"]),
        ("media.windows.file=", &["not empty"]),
        ("media.virtio.expect.version=285", &["three numbers"]),
        ("install=3", &["takes a table"]),
        ("schema.x=3", &["`schema` is no table"]),
    ] {
        let tried = Tried::new(good(), &["--set", setting]);
        tried.refused_with(&[&[format!("--set {setting}: ").as_str()], parts].concat());
    }
    for setting in [
        "image.repository=registry.example.com:5000/private/windows_11.pro",
        "image.repository=localhost/a",
        "image.annotations.\"org.opencontainers.image.source\"=https://example.com/x",
        "media.virtio.expect.drivers=[\"viostor\", \"NetKVM\"]",
        "root.drive_letter=e:",
        "install.hostname=KW-1",
        "image.level=5",
    ] {
        let tried = Tried::new(good(), &["--set", setting]);
        assert_eq!(tried.code(), 0, "{setting}: {}", tried.said());
    }
}

#[test]
fn an_override_sets_neither_a_pin_nor_a_secret() {
    let pin = format!("media.windows.sha256={PIN_B}");
    Tried::new(good(), &["--set", &pin]).refused_with(&["--set media.windows.sha256=", "a pin can't be set"]);
    Tried::new(good(), &["--set", "media.windows.\"sha256\"=x"]).refused_with(&["a pin can't be set"]);
    for key in ["install.password", "clone.Admin_Password", "install.product_key", "image.token"] {
        let tried = Tried::new(good(), &["--set", &format!("{key}=hunter2")]);
        tried.refused_with(&[&format!("--set {key}=...: a secret can't be set")]);
        assert!(!tried.said().contains("hunter2"), "{}", tried.said());
    }
    Tried::new(good(), &["--set", "name=a", "--set", "name=b"]).refused_with(&["an earlier --set"]);
    assert_eq!(Tried::new(good(), &["--set", "name"]).code(), 2);
    // What replaces a wrong value is judged in its stead.
    assert_eq!(Tried::new(good().replace("\"test\"", "7"), &["--set", "name=test"]).code(), 0);
}

#[test]
fn a_secret_in_a_recipe_is_not_repeated() {
    let tried = Tried::new(good() + "[clone]\npassword = \"hunter2\"\n", &[]);
    tried.refused_with(&["r.toml:12:1: [clone] has no key `password`"]);
    assert!(!tried.said().contains("hunter2"), "{}", tried.said());
    let tried = Tried::new(good() + "[clone]\npassword = \"hunter2\n", &["--json"]);
    assert_eq!(tried.code(), 3);
    assert!(!String::from_utf8_lossy(&tried.output.stdout).contains("hunter2"));
}

#[test]
fn what_is_no_toml_is_told_by_line_and_column() {
    Tried::new("schema = 1\nname = \n", &[]).refused_with(&["r.toml:2:8: this is no TOML", "2 | name ="]);
    Tried::new(good() + "[media.virtio]\n", &[])
        .refused_with(&["r.toml:11:8: this is no TOML: duplicate key"]);
    Tried::new(good() + "file = \"x\"\n", &[]).refused_with(&["r.toml:11:1: this is no TOML: duplicate key"]);
}

#[test]
fn every_kind_of_file_gets_a_plain_answer() {
    let dos = format!("\u{feff}{}", good().replace('\n', "\r\n"));
    assert_eq!(Tried::new(&dos, &[]).code(), 0);
    Tried::new(dos.replace("name =", "nam ="), &[]).refused_with(&["r.toml:2:1: ", "2 | nam = \"test\"\n"]);
    Tried::new(b"name = \"a\"\n# \xff\n", &[]).refused_with(&["r.toml:2:3: byte 0xff is no UTF-8"]);
    Tried::new(b"\xff\xfes\0", &[]).refused_with(&["UTF-16", "UTF-8"]);
    Tried::new(vec![b'#'; (1 << 20) + 1], &[]).refused_with(&["larger than 1048576 bytes"]);
    Tried::new("", &[]).refused_with(&["`schema` is missing", "`name` is missing", "[media] is missing"]);
    Tried::new("\u{1b}]0;x\u{7} = 1", &[]).refused_with(&["no TOML"]);
    // A file full of unknown keys ends after the first hundred, and soon.
    let many: String = (0..100_000).map(|n| format!("k{n}=1\n")).collect();
    Tried::new(many, &[]).refused_with(&["100 or more problems"]);
    Tried::new("a.".repeat(500_000) + "a=1", &[]).refused_with(&["no TOML"]);
    Tried::new("a=".to_owned() + &"[".repeat(1_000_000), &[]).refused_with(&["no TOML"]);
}

#[test]
fn all_files_are_checked_and_json_says_which() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("good.toml"), good()).unwrap();
    fs::write(path("bad.toml"), good().replace("name", "nmae")).unwrap();
    let (good, bad, none) = (path("good.toml"), path("bad.toml"), path("none.toml"));

    let output = sealroot(&["recipe", "validate", "--json", &bad, &none, &good]);
    assert_eq!(output.status.code(), Some(3));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json[0]["valid"], false);
    let problem = &json[0]["problems"][0];
    assert_eq!((&problem["line"], &problem["column"]), (&2.into(), &1.into()));
    assert_eq!(problem["key"], "nmae");
    assert_eq!(problem["help"], "did you mean `name`?");
    assert_eq!(problem["text"], "nmae = \"test\"");
    assert!(json[1]["error"].as_str().unwrap().contains("can't be read"));
    assert_eq!(json[2]["valid"], true);

    let output = sealroot(&["recipe", "validate", &good, &bad]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{good}: valid\n"));
    // A file that is not there is a failure to read, not a recipe with problems.
    assert_eq!(sealroot(&["recipe", "validate", &none]).status.code(), Some(1));
}

#[test]
fn sealroots_own_annotations_can_t_be_forged() {
    let forged = good() + "\n[image.annotations]\n\"io.sealroot.pin.windows\" = \"00\"\n";
    Tried::new(forged, &[]).refused_with(&["r.toml:13:1: ", "Sealroot's own"]);
    let set = "image.annotations.\"io.sealroot.pin.windows\"=00";
    Tried::new(good(), &["--set", set]).refused_with(&["--set ", "Sealroot's own"]);
    let unquoted = Tried::new(good(), &["--set", "image.annotations.io.x=1"]);
    unquoted.refused_with(&["not a table", "a key with dots stands in quotes: annotations.\"io.x\""]);
}

#[test]
fn names_that_windows_keeps_are_refused() {
    let clone = |text: &str| format!("{}\n[clone]\n{text}\n", good());
    for name in ["Administrator", "SYSTEM", "guest"] {
        Tried::new(clone(&format!("username = \"{name}\"")), &[]).refused_with(&["keeps that name"]);
    }
    Tried::new(clone("hostname = \"Kw1\"\nusername = \"kW1\""), &[]).refused_with(&["0x8007056b"]);
    Tried::new(clone("hostname = \"WorkSpace\""), &[]).refused_with(&["0x8007056b", "no username is set"]);
    assert_eq!(Tried::new(clone("hostname = \"workspace\"\nusername = \"a\""), &[]).code(), 0);
}

#[test]
fn what_is_absurd_is_told_in_short() {
    let begun = std::time::Instant::now();
    let long = Tried::new(format!("{}{} = 1\n", "x".repeat(900_000), good()), &[]);
    assert_eq!(long.code(), 3);
    assert!(long.said().len() < 5000, "{} bytes", long.said().len());
    let long = Tried::new(format!("{} = 1\n{}", "y".repeat(900_000), good()), &["--json"]);
    assert!(long.code() == 3 && long.output.stdout.len() < 5000, "{} bytes", long.output.stdout.len());
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());

    let dot = Tried::new(good().replace("name = \"test\"", "name = \".\""), &[]);
    dot.refused_with(&["not `.`"]);
    assert!(!dot.said().contains("``"), "{}", dot.said());

    let prose = Tried::new("this is no recipe at all\n".repeat(40), &[]);
    prose.refused_with(&["35 more lines"]);
    assert_eq!(prose.said().matches("this is no TOML").count(), 5, "{}", prose.said());
}

/// `recipe validate` of a recipe that includes files beside it.
fn including(recipe: &str, included: &[(&str, &str)]) -> Tried {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in included {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let path = folder.path().join("r.toml");
    fs::write(&path, recipe).unwrap();
    let output = sealroot(&["recipe", "validate", path.to_str().unwrap(), "--json"]);
    Tried { folder, output }
}

fn with_include(list: &str) -> String {
    good().replacen("\n\n", &format!("\ninclude = {list}\n\n"), 1)
}

#[test]
fn an_included_file_lies_under_the_recipe() {
    let base = "[install]\nusername = \"low\"\nlocale = \"de-DE\"\n[media.windows]\nfile = \"other.iso\"\n[clone]\nlocale = \"de-DE\"\n";
    let later = "[install]\nlocale = \"fr-FR\"\n[media.windows.expect]\nlanguage = \"fr-FR\"\n";
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("base.toml"), base).unwrap();
    fs::write(folder.path().join("later.toml"), later).unwrap();
    let text = with_include("[\"base.toml\", \"later.toml\"]") + "\n[install]\nusername = \"high\"\n";
    let path = folder.path().join("r.toml");
    fs::write(&path, &text).unwrap();
    let recipe = sealroot::recipe::load(&path, &["clone.locale=it-IT".parse().unwrap()]).unwrap();
    assert_eq!(recipe.install.username.as_ref().unwrap().as_str(), "high");
    assert_eq!(recipe.install.locale.as_ref().unwrap().to_string(), "fr-FR");
    assert_eq!(recipe.clone.locale.as_ref().unwrap().to_string(), "it-IT");
    assert_eq!(recipe.media.windows.file, Path::new("w.iso"));
    assert_eq!(recipe.media.windows.expect.language.as_ref().unwrap().to_string(), "fr-FR");

    // The recipe's hash is that of everything it says, and coreutils can tell it.
    let sum = "sha256sum r.toml base.toml later.toml | sha256sum | cut -c1-64";
    let told = Command::new("sh").args(["-c", sum]).current_dir(folder.path()).output().unwrap();
    assert_eq!(recipe.sha256().to_string(), String::from_utf8(told.stdout).unwrap().trim());
    fs::write(folder.path().join("base.toml"), base.replace("low", "other")).unwrap();
    let changed = sealroot::recipe::load(&path, &[]).unwrap();
    assert_ne!(changed.sha256(), recipe.sha256());
    assert_eq!(changed.file_sha256, recipe.file_sha256);
}

#[test]
fn an_included_file_says_nothing_of_pins_and_includes_nothing() {
    let tried = including(
        &with_include("[\"base.toml\"]"),
        &[(
            "base.toml",
            &format!(
                "name = \"x\"\nschema = 1\ninclude = [\"base.toml\"]\n[media.windows]\nsha256 = \"{PIN_B}\"\n"
            ),
        )],
    );
    assert_eq!(tried.code(), 3);
    let verdicts: Value = serde_json::from_slice(&tried.output.stdout).unwrap();
    let problems = verdicts[0]["problems"].as_array().unwrap();
    let base = tried.folder.path().join("base.toml");
    let found: Vec<_> = problems
        .iter()
        .map(|p| {
            assert_eq!(p["file"], base.to_str().unwrap());
            (p["key"].as_str().unwrap(), p["line"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(found, [("name", 1), ("schema", 2), ("include", 3), ("media.windows.sha256", 5)]);

    // Nor can a recipe leave its pin to the file it includes.
    let text = with_include("[\"base.toml\"]").replacen(&format!("sha256 = \"{PIN_A}\"\n"), "", 1);
    let base = format!("[media.windows]\nsha256 = \"{PIN_A}\"\n");
    assert_eq!(including(&text, &[("base.toml", &base)]).code(), 3);
}

#[test]
fn problems_of_an_included_file_are_told_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.toml");
    fs::write(&path, with_include("[\"base.toml\"]") + "\n[clone]\nhostnme = \"a\"\n").unwrap();
    let said = |base: &[u8]| {
        fs::write(folder.path().join("base.toml"), base).unwrap();
        let output = sealroot(&["recipe", "validate", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(3));
        stderr(&output).replace(&format!("{}/", folder.path().display()), "")
    };
    let told = said(b"\n[install]\nhostname = \"KW_1\"\nuser = \"x\"\n");
    for part in [
        "r.toml: 3 problems",
        "base.toml:3:12: ",
        "3 | hostname = \"KW_1\"",
        "base.toml:4:1: ",
        "r.toml:14:1: ",
    ] {
        assert!(told.contains(part), "no {part} in {told}");
    }
    assert!(said(b"[install\n").contains("base.toml:1:"));
    assert!(said(b"a = \"\xff\"\n").contains("base.toml:1:6: byte 0xff is no UTF-8"));
    fs::remove_file(folder.path().join("base.toml")).unwrap();
    let output = sealroot(&["recipe", "validate", path.to_str().unwrap()]);
    let told = stderr(&output);
    assert!(told.contains("base.toml can't be read: No such file"), "{told}");
    assert!(told.contains("r.toml:3:12"), "{told}");
}

#[test]
fn what_is_no_list_of_files_includes_nothing() {
    for list in ["\"base.toml\"", "[1]", "[\"https://example.com/base.toml\"]", "[\"\"]"] {
        let tried = including(&with_include(list), &[("base.toml", "")]);
        assert_eq!(tried.code(), 3, "{list}");
    }
    let nine = format!("[{}]", ["\"base.toml\""; 9].join(", "));
    let tried = including(&with_include(&nine), &[("base.toml", "")]);
    assert!(String::from_utf8_lossy(&tried.output.stdout).contains("at most 8"));
    Tried::new(good(), &["--set", "include=[\"base.toml\"]"])
        .refused_with(&["can't be set from the command line"]);
}
