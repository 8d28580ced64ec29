//! `render-bootstrap`: a folder with a Secret and credentials, read back by other tools.
#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

fn sealroot(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealroot"));
    command.arg("render-bootstrap").args(args);
    command
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// What Python's parser reads in an answer file.
fn read_by_python(answer: &[u8]) -> Value {
    const SCRIPT: &str = r#"
import json, sys, xml.etree.ElementTree as tree
root = tree.fromstring(sys.stdin.buffer.read())
ns = '{urn:schemas-microsoft-com:unattend}'
path = lambda names: './/' + '/'.join(ns + name for name in names.split('/'))
print(json.dumps({
    'password': root.find(path('LocalAccount/Password/Value')).text,
    'username': root.find(path('LocalAccount/Name')).text,
    'hostname': root.find(path('ComputerName')).text,
    'image': getattr(root.find(path('MetaData/Value')), 'text', None),
    'passes': [settings.get('pass') for settings in root],
}))
"#;
    let mut python = Command::new("python3")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is needed");
    python.stdin.take().unwrap().write_all(answer).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn xmllint(answer: &[u8]) {
    let mut lint = Command::new("xmllint")
        .args(["--noout", "--nonet", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("xmllint is needed (libxml2-utils)");
    lint.stdin.take().unwrap().write_all(answer).unwrap();
    assert!(lint.wait().unwrap().success());
}

fn answer(folder: &Path) -> Vec<u8> {
    let secret = json(&folder.join("bootstrap-secret.json"));
    secret["stringData"]["autounattend.xml"].as_str().unwrap().as_bytes().to_vec()
}

/// All that was said on both outputs.
fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// Runs with the password on standard input.
fn with_password(args: &[&str], password: &[u8]) -> Output {
    let mut command = sealroot(args);
    command.args(["--password-file", "-"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Wrong arguments end it before it reads.
    let _ = child.stdin.take().unwrap().write_all(password);
    child.wait_with_output().unwrap()
}

#[test]
fn both_modes_give_files_that_other_tools_read() {
    let scratch = tempfile::tempdir().unwrap();
    for (mode_name, image, json_asked) in [("install", Some("Windows 11 Pro"), true), ("clone", None, false)]
    {
        let folder = scratch.path().join(mode_name);
        let mut command = sealroot(&["--mode", mode_name, "--output-dir", folder.to_str().unwrap()]);
        command.args(image.iter().flat_map(|name| ["--image-name", name]));
        command.args(json_asked.then_some("--json"));
        let output = command.output().unwrap();
        assert_eq!(code(&output), 0, "{}", said(&output));

        assert_eq!(names(&folder), ["bootstrap-secret.json", "credentials.json"]);
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(mode(&folder.join("bootstrap-secret.json")), 0o600);
        assert_eq!(mode(&folder.join("credentials.json")), 0o600);

        let credentials = json(&folder.join("credentials.json"));
        assert_eq!(
            credentials.as_object().unwrap().keys().collect::<Vec<_>>(),
            ["username", "password", "hostname"]
        );
        let password = credentials["password"].as_str().unwrap();
        let hostname = credentials["hostname"].as_str().unwrap();
        assert_eq!(credentials["username"], "workspace");
        assert!(hostname.len() == 15 && hostname.starts_with("KW-"));
        assert!(password.len() >= 24 && !password.contains(|c| "&<>\"'".contains(c)));
        assert!(!said(&output).contains(password));
        if json_asked {
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(report["hostname"], hostname);
            assert_eq!(report["bootstrapSecret"], folder.join("bootstrap-secret.json").to_str().unwrap());
        }

        let secret = json(&folder.join("bootstrap-secret.json"));
        assert_eq!(secret["apiVersion"], "v1");
        assert_eq!(secret["kind"], "Secret");
        assert_eq!(secret["type"], "Opaque");
        assert_eq!(secret["metadata"]["namespace"], "default");
        assert_eq!(secret["metadata"]["name"], format!("{}-bootstrap", hostname.to_lowercase()));
        let files: Vec<_> = secret["stringData"].as_object().unwrap().keys().collect();
        let answer = answer(&folder);
        assert!(answer.is_ascii());
        assert!(answer.starts_with(b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\r\n"));
        let line_ends = answer.iter().filter(|b| **b == b'\n').count();
        assert_eq!(answer.windows(2).filter(|pair| pair == b"\r\n").count(), line_ends);
        assert_eq!(secret.to_string().matches(password).count(), 1, "it stands where it is needed, once");
        xmllint(&answer);
        let read = read_by_python(&answer);
        assert_eq!(read["password"], password);
        assert_eq!(read["username"], "workspace");
        assert_eq!(read["hostname"], hostname);
        assert_eq!(read["image"].as_str(), image);
        if mode_name == "install" {
            assert_eq!(files, ["autounattend.xml", "configure.ps1"]);
            assert_eq!(
                secret["stringData"]["configure.ps1"],
                include_str!("../answer-templates/configure.ps1")
            );
            assert_eq!(
                read["passes"],
                serde_json::json!(["windowsPE", "offlineServicing", "specialize", "oobeSystem"])
            );
        } else {
            assert_eq!(files, ["autounattend.xml"]);
            assert_eq!(read["passes"], serde_json::json!(["specialize", "oobeSystem"]));
        }
    }
}

#[test]
fn names_are_taken_as_given() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("out");
    let output = sealroot(&["--mode", "clone", "--output-dir", folder.to_str().unwrap()])
        .args([
            "--namespace",
            "team-a",
            "--secret-name",
            "desk-1-sysprep",
            "--hostname",
            "Desk-1",
            "--username",
            "Op_1",
        ])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", said(&output));
    let secret = json(&folder.join("bootstrap-secret.json"));
    assert_eq!(secret["metadata"], serde_json::json!({"name": "desk-1-sysprep", "namespace": "team-a"}));
    let read = read_by_python(&answer(&folder));
    assert_eq!((&read["hostname"], &read["username"]), (&"Desk-1".into(), &"Op_1".into()));
}

#[test]
fn whatever_a_password_or_an_image_name_is_made_of_comes_back_or_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let good = [
        "&<>\"'aB1",
        "</Value><x a=\"1\">B1",
        "]]>aB1&amp;&#65;",
        "{{password}}A1",
        "<!--Ab1-->",
        "<![CDATA[Ab1]]>",
        "Größe-Ärger",
        "日本語パスaB1",
        "😀Emoji🔑1",
        "A b  c1",
        "\\\"$(rm)`%PATH%`aB1",
        "e\u{301}A1\u{2028}x\u{200d}",
        "\u{fffd}Aa1",
    ];
    for (number, text) in good.iter().enumerate() {
        let folder = scratch.path().join(number.to_string());
        let args = ["--mode", "install", "--image-name", text, "--output-dir", folder.to_str().unwrap()];
        let output = with_password(&args, text.as_bytes());
        assert_eq!(code(&output), 0, "{text:?}: {}", said(&output));
        assert!(!said(&output).contains(text), "{text:?}");
        let answer = answer(&folder);
        assert!(answer.is_ascii());
        xmllint(&answer);
        let read = read_by_python(&answer);
        assert_eq!(read["password"].as_str(), Some(*text));
        assert_eq!(read["image"].as_str(), Some(*text));
        assert_eq!(json(&folder.join("credentials.json"))["password"].as_str(), Some(*text));
    }
    let count = names(scratch.path()).len();
    let bad: [(&[u8], &str); 12] = [
        (b"", "empty"),
        (b"Hidden-1\n", "newline"),
        (b"Hidden-1\r\n", "newline"),
        (b"Hidd\0en-1", "control"),
        (b"Hidd\ten-1", "control"),
        (b"Hidd\x1ben-1", "control"),
        ("Hidd\u{85}en-1".as_bytes(), "control"),
        ("Hidden-1\u{ffff}".as_bytes(), "U+FFFF"),
        (b"Hidden-1\xff", "UTF-8"),
        (b" Hidden-1", "blank"),
        (b"hiddenhidden", "three of"),
        (b"Hidden-WORKSPACE-1", "account"),
    ];
    let folder = scratch.path().join("refused");
    for (password, why) in bad {
        let output = with_password(&["--mode", "clone", "--output-dir", folder.to_str().unwrap()], password);
        assert_eq!(code(&output), 3, "{}", said(&output));
        assert!(said(&output).contains(why), "{why}: {}", said(&output));
        assert!(!said(&output).to_lowercase().contains("hidd"), "{}", said(&output));
    }
    let long = format!("Hidden-1{}", "x".repeat(5000));
    let output =
        with_password(&["--mode", "clone", "--output-dir", folder.to_str().unwrap()], long.as_bytes());
    assert_eq!(code(&output), 3);
    assert_eq!(names(scratch.path()).len(), count, "nothing is written");
}

#[test]
fn a_password_file_is_read_as_it_stands() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("password");
    let folder = scratch.path().join("out");
    fs::write(&file, "From-a-file-1").unwrap();
    let args = [
        "--mode",
        "clone",
        "--output-dir",
        folder.to_str().unwrap(),
        "--password-file",
        file.to_str().unwrap(),
    ];
    let output = sealroot(&args).output().unwrap();
    assert_eq!(code(&output), 0, "{}", said(&output));
    assert_eq!(json(&folder.join("credentials.json"))["password"], "From-a-file-1");
    fs::remove_file(&file).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    let output = sealroot(&args).output().unwrap();
    assert_eq!(code(&output), 1);
    assert!(said(&output).contains(file.to_str().unwrap()));
    assert!(names(scratch.path()).is_empty());
}

#[test]
fn wrong_usage_is_told_and_writes_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("out");
    let wrong: [&[&str]; 22] = [
        &["--mode", "install"],
        &["--mode", "install", "--image-name", ""],
        &["--mode", "install", "--image-name", "a\tb"],
        &["--mode", "clone", "--image-name", "Windows 11 Pro"],
        &["--mode", "both"],
        &[],
        &["--mode", "clone", "--hostname", "a-name-too-long-1"],
        &["--mode", "clone", "--hostname", "1a"],
        &["--mode", "clone", "--hostname", "a-"],
        &["--mode", "clone", "--hostname", "a&b"],
        &["--mode", "clone", "--hostname", "büro"],
        &["--mode", "clone", "--hostname", "a\nb"],
        &["--mode", "clone", "--hostname", "Same", "--username", "same"],
        &["--mode", "clone", "--username", "Administrator"],
        &["--mode", "clone", "--username", "a<b"],
        &["--mode", "clone", "--username", "jörg"],
        &["--mode", "clone", "--username", ""],
        &["--mode", "clone", "--username", "abcdefghijklmnopqrstu"],
        &["--mode", "clone", "--namespace", "Team"],
        &["--mode", "clone", "--secret-name", "a.b"],
        &["--mode", "clone", "--secret-name", "-a"],
        &["--mode", "clone", "--password", "Hidden-1"],
    ];
    for args in wrong {
        let output = sealroot(args).args(["--output-dir", folder.to_str().unwrap()]).output().unwrap();
        assert_eq!(code(&output), 2, "{args:?}: {}", said(&output));
    }
    assert!(names(scratch.path()).is_empty());
}

#[test]
fn what_is_there_stays_and_what_cannot_be_written_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("out");
    let run = |folder: &Path| {
        sealroot(&["--mode", "clone", "--output-dir", folder.to_str().unwrap()]).output().unwrap()
    };
    assert_eq!(code(&run(&folder)), 0);
    let before = fs::read(folder.join("credentials.json")).unwrap();
    assert_eq!(code(&run(&folder)), 4);
    assert_eq!(fs::read(folder.join("credentials.json")).unwrap(), before);
    let file = scratch.path().join("file");
    fs::write(&file, "mine").unwrap();
    let link = scratch.path().join("link");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    assert_eq!(code(&run(&file)), 4);
    assert_eq!(code(&run(&link)), 4);
    assert_eq!(code(&run(&file.join("below"))), 1);
    assert_eq!(code(&run(&scratch.path().join("missing/out"))), 1);
    // A place where not even root may write.
    assert_eq!(code(&run(Path::new("/proc/sealroot-out"))), 1);
    assert_eq!(names(scratch.path()), ["file", "link", "out"]);
}

#[test]
fn the_umask_changes_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    for umask in ["000", "077"] {
        let folder = scratch.path().join(umask);
        let script = format!(
            "umask {umask}; exec {} render-bootstrap --mode clone --output-dir {}",
            env!("CARGO_BIN_EXE_sealroot"),
            folder.display()
        );
        assert!(Command::new("sh").args(["-c", &script]).output().unwrap().status.success());
        assert_eq!((mode(&folder), mode(&folder.join("credentials.json"))), (0o700, 0o600), "umask {umask}");
    }
}

#[test]
fn two_hundred_renders_share_nothing_secret() {
    let scratch = tempfile::tempdir().unwrap();
    let mut hostnames = BTreeSet::new();
    let mut pieces = BTreeSet::new();
    for number in 0..200 {
        let folder = scratch.path().join(number.to_string());
        let output =
            sealroot(&["--mode", "clone", "--output-dir", folder.to_str().unwrap()]).output().unwrap();
        assert_eq!(code(&output), 0);
        let credentials = json(&folder.join("credentials.json"));
        let password = credentials["password"].as_str().unwrap();
        assert!(!said(&output).contains(password));
        for class in
            [char::is_uppercase, char::is_lowercase, char::is_numeric, |c: char| c.is_ascii_punctuation()]
        {
            assert!(password.contains(class), "{password}");
        }
        assert!(!password.contains(|c| "0Oo1lI|&<>\"'`".contains(c)), "{password}");
        assert!(hostnames.insert(credentials["hostname"].to_string()));
        for piece in password.as_bytes().windows(8) {
            assert!(pieces.insert(piece.to_vec()), "two passwords share eight characters");
        }
    }
}

#[test]
fn killed_at_any_time_it_leaves_nothing_half_written() {
    let scratch = tempfile::tempdir().unwrap();
    let mut whole = 0;
    // Later and later, until it is sometimes done before the kill.
    for number in 0..1000u32 {
        if whole == 5 {
            break;
        }
        let folder = scratch.path().join(number.to_string());
        let mut child = sealroot(&["--mode", "clone", "--output-dir", folder.to_str().unwrap()])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(200) * number);
        let _ = child.kill();
        child.wait().unwrap();
        if folder.exists() {
            assert_eq!(names(&folder), ["bootstrap-secret.json", "credentials.json"]);
            xmllint(&answer(&folder));
            assert!(json(&folder.join("credentials.json"))["password"].is_string());
            whole += 1;
        }
    }
    // What a kill leaves is under a name of its own, closed to others.
    for name in names(scratch.path()).iter().filter(|name| name.starts_with('.')) {
        assert_eq!(mode(&scratch.path().join(name)), 0o700);
    }
    assert_eq!(whole, 5);
}

#[test]
fn interrupted_it_writes_nothing_and_shows_the_password_to_nobody() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("out");
    let mut child =
        sealroot(&["--mode", "clone", "--output-dir", folder.to_str().unwrap(), "--password-file", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"Hidden-").unwrap();
    let process = format!("/proc/{}", child.id());
    // Until SIGINT (2) has a handler, it would end the process itself.
    let handled = || {
        let status = fs::read_to_string(format!("{process}/status")).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & 0b10 != 0
    };
    for _ in 0..500 {
        if handled() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    for file in ["cmdline", "environ"] {
        assert!(!String::from_utf8_lossy(&fs::read(format!("{process}/{file}")).unwrap()).contains("Hidden"));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    std::thread::sleep(Duration::from_millis(100));
    stdin.write_all(b"1").unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 130, "{}", said(&output));
    assert!(!said(&output).contains("Hidden"));
    assert!(names(scratch.path()).is_empty());
}

/// Ends a `render-bootstrap` that waits for its password with one SIGTERM.
fn terminated(mut command: Command) -> (Option<i32>, Duration, String) {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let begun = std::time::Instant::now();
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    while child.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let took = begun.elapsed();
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), took, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn one_signal_ends_what_waits_for_a_password() {
    let scratch = tempfile::tempdir().unwrap();
    let fifo = scratch.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let out = scratch.path().join("out");
    for file in [fifo.to_str().unwrap(), "-"] {
        let mut command = sealroot(&["--mode", "clone", "--password-file", file, "--output-dir"]);
        command.arg(&out).stdin(Stdio::piped());
        let (code, took, said) = terminated(command);
        assert_eq!(code, Some(130), "{file}: {said}");
        assert!(took < Duration::from_secs(3), "{file}: {took:?}");
        assert!(said.contains("interrupted"), "{said}");
        assert_eq!(names(scratch.path()), ["fifo"]);
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_password() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("password");
    fs::write(&file, "\u{feff}Correct-Horse-7-Battery").unwrap();
    let mut command = sealroot(&["--mode", "clone", "--password-file", file.to_str().unwrap()]);
    let output = command.arg("--output-dir").arg(scratch.path().join("out")).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("byte order mark") && !said.contains("Correct-Horse"), "{said}");
}

#[test]
fn files_of_secrets_are_their_owners_whatever_the_umask() {
    for umask in ["000", "022", "277", "777"] {
        let scratch = tempfile::tempdir().unwrap();
        let out = scratch.path().join("out");
        let output = Command::new("sh")
            .args(["-c", "umask $1; shift; exec \"$@\"", "sh", umask, env!("CARGO_BIN_EXE_sealroot")])
            .args(["render-bootstrap", "--mode", "clone", "--output-dir"])
            .arg(&out)
            .output()
            .unwrap();
        assert!(output.status.success(), "{umask}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(mode(&out), 0o700, "{umask}");
        for name in names(&out) {
            assert_eq!(mode(&out.join(name)), 0o600, "{umask}");
        }
    }
}

#[test]
fn a_full_standard_output_is_an_error_and_messages_drive_no_terminal() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealroot"));
    let output = command.arg("man").stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("error: the result can't be written to standard output"), "{said}");

    let output = Command::new(env!("CARGO_BIN_EXE_sealroot"))
        .args(["audit", "--disk", "/nowhere/\u{1b}[31mred\u{9b}1m"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("\u{fffd}[31mred\u{fffd}1m"), "{said:?}");
    assert!(!said.contains(['\u{1b}', '\u{9b}']), "{said:?}");
}
