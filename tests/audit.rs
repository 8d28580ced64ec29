//! `audit`: every check of its table meets a root that does not pass it, made so with public tools.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/ntfs_volume.rs"]
mod ntfs_volume;
#[path = "support/root_disk.rs"]
mod root_disk;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ntfs_volume::Mounted;
use root_disk::{ANSWER_WITH_PASSWORD, RootDisk, SOFTWARE, SYSTEM, Volume, run};
use rustix::fs::{XattrFlags, setxattr};
use serde_json::Value;

const SECURITY: &str = "Windows/System32/config/SECURITY";
const CLOUDBASE: &str = "Program Files/Cloudbase Solutions/Cloudbase-Init";
const WINLOGON: &str = r"Microsoft\Windows NT\CurrentVersion\Winlogon";
const SECRET: &str = "Correct-Horse-7-Battery";

fn sealroot(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sealroot")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The report on a disk, its exit code checked against it; nothing secret is in anything that was said.
fn audit(disk: &RootDisk, more: &[&str]) -> Value {
    let output = sealroot(&[&["audit", "--json", "--disk", disk.path().to_str().unwrap()], more].concat());
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert!(!said.contains(SECRET) && !told.contains(SECRET), "a secret was told: {said}{told}");
    let report: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{told}"));
    let code = if report["fit"] == true { 0 } else { 3 };
    assert_eq!(output.status.code(), Some(code), "{told}");
    report
}

/// Status and what was seen, of every finding of that check.
fn findings(report: &Value, id: &str) -> Vec<(String, String)> {
    let all = report["findings"].as_array().unwrap().iter().filter(|finding| finding["id"] == id);
    let word = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
    let found: Vec<_> = all.map(|finding| (word(finding, "status"), word(finding, "saw"))).collect();
    assert!(!found.is_empty(), "no finding of {id} in {report:#}");
    found
}

/// That check says so, and what was seen has this in it.
fn expect(report: &Value, id: &str, status: &str, saw: &str) {
    let found = findings(report, id);
    assert!(
        found.iter().any(|(is, said)| is == status && said.contains(saw)),
        "{id} {status} {saw}: {found:?}"
    );
}

/// Files and folders (which end in `/`) of the Windows volume, made by ntfs-3g.
fn with_files(disk: RootDisk, files: &[(&str, &[u8])]) -> RootDisk {
    disk.edit_volume(|volume| {
        let mounted = Mounted::new(volume.path(), "");
        for (path, bytes) in files {
            match path.strip_suffix('/') {
                Some(folder) => fs::create_dir_all(mounted.point.join(folder)).unwrap(),
                None => mounted.write(path, bytes),
            }
        }
        mounted.unmount();
    })
}

fn without_files(disk: RootDisk, files: &[&str]) -> RootDisk {
    disk.edit_volume(|volume| {
        let mounted = Mounted::new(volume.path(), "");
        files.iter().for_each(|path| fs::remove_file(mounted.point.join(path)).unwrap());
        mounted.unmount();
    })
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// The demo's recipe with these tables in place of its own.
fn recipe(folder: &Path, root: &str, more: &str) -> PathBuf {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes/demo.toml");
    let demo = fs::read_to_string(demo).unwrap();
    let (before, rest) = demo.split_once("[root]").unwrap();
    let (_, image) = rest.split_once("[image]").unwrap();
    let path = folder.join("recipe.toml");
    fs::write(&path, format!("{before}[root]\n{root}\n{more}\n[image]{image}")).unwrap();
    path
}

fn service(name: &str) -> String {
    format!(r"ControlSet001\Services\{name}")
}

#[test]
fn the_list_tells_every_check_and_a_sound_root_passes_them() {
    let list: Value = serde_json::from_slice(&sealroot(&["audit", "--list", "--json"]).stdout).unwrap();
    let ids: Vec<_> = list.as_array().unwrap().iter().map(|check| check["id"].as_str().unwrap()).collect();
    let told = text(&sealroot(&["audit", "--list"]).stdout);
    for check in list.as_array().unwrap() {
        for key in ["id", "severity", "asks", "why", "cure"] {
            let word = check[key].as_str().unwrap();
            assert!(!word.is_empty() && told.contains(word), "{check}");
        }
    }
    let report = audit(&RootDisk::standard(), &[]);
    assert_eq!(report["fit"], true);
    let found: Vec<_> =
        report["findings"].as_array().unwrap().iter().map(|f| f["id"].as_str().unwrap()).collect();
    assert_eq!(found, ids);
    for finding in report["findings"].as_array().unwrap() {
        assert!(["pass", "not-checked"].contains(&finding["status"].as_str().unwrap()), "{finding}");
    }
    // As people read it.
    let output = sealroot(&["audit", "--disk", RootDisk::standard().path().to_str().unwrap()]);
    assert!(output.status.success());
    assert!(ids.iter().all(|id| text(&output.stdout).contains(id)));
}

#[test]
fn drivers_services_and_versions() {
    let disk = RootDisk::standard()
        .hive_keys(
            SYSTEM,
            &[
                (&service("viostor"), &[("Start", "dword:00000003")]),
                (&service("vioscsi"), &[("ImagePath", r#""System32\\drivers\\gone.sys""#)]),
                (&service("netkvm"), &[("ImagePath", r#""\\SystemRoot\\System32\\none.sys""#)]),
                (&service("VirtioSerial"), &[("Start", "dword:00000004")]),
                (&service("QEMU-GA"), &[("Start", "dword:00000003")]),
                (r"ControlSet001\Control\BitLocker", &[("PreventDeviceEncryption", "dword:00000000")]),
                (
                    r"ControlSet001\Control\Session Manager\Environment",
                    &[("PROCESSOR_ARCHITECTURE", "\"ARM64\"")],
                ),
                (r"ControlSet001\Control\MUI\UILanguages\de-DE", &[("Type", "dword:00000091")]),
                ("Setup", &[("SetupType", "dword:00000000"), ("CmdLine", "\"\"")]),
            ],
        )
        .hive_keys(
            SOFTWARE,
            &[
                (
                    r"Microsoft\Windows NT\CurrentVersion",
                    &[("EditionID", "\"EnterpriseEval\""), ("CurrentBuild", "\"22631\"")],
                ),
                (
                    r"Microsoft\Windows NT\CurrentVersion\SoftwareProtectionPlatform",
                    &[("SkipRearm", "dword:00000001")],
                ),
            ],
        )
        .file("Windows/Setup/State/State.ini", b"[State]\r\nImageState=IMAGE_STATE_COMPLETE\r\n");
    let disk = without_files(disk, &["Windows/System32/Sysprep/Sysprep_succeeded.tag"]);
    let folder = tempfile::tempdir().unwrap();
    let recipe = recipe(folder.path(), "first_boot = \"none\"", "");
    let report = audit(&disk, &["--recipe", recipe.to_str().unwrap()]);
    for (id, status, saw) in [
        ("storage-driver", "fail", "viostor does not start at boot (Start is 3)"),
        ("storage-driver", "fail", "gone.sys is missing"),
        ("network-driver", "warn", r"\Windows\System32\none.sys is missing"),
        ("serial-driver", "warn", "VirtioSerial is disabled"),
        ("guest-agent", "warn", "Start is 3"),
        ("device-encryption", "warn", "not set"),
        ("architecture", "fail", "arm64"),
        ("language", "warn", "de-DE"),
        ("edition", "fail", "EnterpriseEval"),
        ("build", "warn", "22631.4349, but 26100.4349"),
        ("evaluation", "warn", "EnterpriseEval"),
        ("rearm", "warn", "SkipRearm is 1"),
        ("sysprep-setup", "warn", "SetupType is 0"),
        ("sysprep-setup", "warn", "CmdLine is empty"),
        ("sysprep-state-ini", "warn", "IMAGE_STATE_COMPLETE"),
        ("sysprep-tag", "warn", "missing"),
        ("first-boot", "pass", "no UnattendFile"),
        ("generalised", "pass", "RESEAL_TO_OOBE"),
    ] {
        expect(&report, id, status, saw);
    }
    // Without a recipe nothing is expected of the edition.
    expect(&audit(&disk, &[]), "edition", "pass", "EnterpriseEval");
    // One sound storage driver will do.
    let one = RootDisk::standard().hive_values(SYSTEM, &service("viostor"), &[("Start", "dword:00000003")]);
    expect(&audit(&one, &[]), "storage-driver", "pass", "vioscsi");
}

#[test]
fn secrets_and_leftovers_are_named_and_never_shown() {
    let cpassword =
        format!("<Groups><User><Properties cpassword=\"{SECRET}\" userName=\"a\"/></User></Groups>");
    let conf =
        format!("[DEFAULT]\r\nusername=Admin\r\ninject_user_password=true\r\nadmin_password={SECRET}\r\n");
    let secret = SECRET.as_bytes();
    let history = "AppData/Roaming/Microsoft/Windows/PowerShell/PSReadLine/ConsoleHost_history.txt";
    let files: &[(&str, &[u8])] = &[
        ("Windows/Panther/unattend.xml", ANSWER_WITH_PASSWORD.as_bytes()),
        ("Windows/Panther/Unattend/unattend-original.xml", b"<unattend/>"),
        ("Answers/mine.xml", ANSWER_WITH_PASSWORD.as_bytes()),
        ("Windows/Setup/Scripts/SetupComplete.cmd", secret),
        (
            "ProgramData/Microsoft/Group Policy/History/{1}/Machine/Preferences/Groups/Groups.xml",
            cpassword.as_bytes(),
        ),
        (&format!("{CLOUDBASE}/log/cloudbase-init.log"), secret),
        (&format!("{CLOUDBASE}/conf/cloudbase-init.conf"), conf.as_bytes()),
        (&format!("Users/builder/{history}"), secret),
        (&format!("Windows/System32/config/systemprofile/{history}"), secret),
        ("Windows.old/", b""),
        ("$WINDOWS.~BT/", b""),
    ];
    let disk = with_files(RootDisk::standard(), files)
        .with_pointer(r"C:\Answers\mine.xml")
        .hive_values(
            SOFTWARE,
            WINLOGON,
            &[("AutoAdminLogon", "\"1\""), ("DefaultPassword", &format!("\"{SECRET}\""))],
        )
        .edit_volume(|volume| {
            let hive = volume.path().with_file_name("SECURITY");
            run(Command::new("python3").arg(fixture("empty_hive.py")).arg(&hive));
            let script = hive.with_extension("hivexsh");
            let path = ["Policy", "Secrets", "DefaultPassword", "CurrVal"];
            let keys: String = path.iter().map(|key| format!("add {key}\ncd {key}\n")).collect();
            fs::write(&script, format!("{keys}setval 1\n@\nhex:3:5a,5a\ncommit\n")).unwrap();
            run(Command::new("hivexsh").arg("-w").arg("-f").arg(&script).arg(&hive));
            let mounted = Mounted::new(volume.path(), "");
            mounted.write(SECURITY, &fs::read(&hive).unwrap());
            mounted.unmount();
        });
    let report = audit(&disk, &[]);
    for (id, status, saw) in [
        ("answer-file-password", "fail", r"\Windows\Panther\unattend.xml"),
        ("answer-file-password", "fail", r"\Answers\mine.xml"),
        ("answer-files", "warn", r"\Windows\Panther\Unattend\unattend-original.xml"),
        ("auto-logon", "fail", "AutoAdminLogon is 1"),
        ("winlogon-password", "fail", "DefaultPassword is set"),
        ("lsa-password", "warn", "DefaultPassword"),
        ("policy-password", "fail", r"Groups\Groups.xml"),
        ("setup-scripts", "warn", r"\Windows\Setup\Scripts\SetupComplete.cmd"),
        ("cloudbase-init-files", "warn", "cloudbase-init.log"),
        ("cloudbase-init-files", "warn", "cloudbase-init.conf sets a password"),
        ("powershell-history", "warn", r"\Users\builder"),
        ("powershell-history", "warn", "systemprofile"),
        ("previous-windows", "warn", r"\Windows.old"),
        ("previous-windows", "warn", r"\$WINDOWS.~BT"),
        ("profiles", "warn", r"\Users\builder"),
        ("pointer-file", "pass", "mine.xml"),
        ("first-boot", "not-checked", "mine.xml"),
    ] {
        expect(&report, id, status, saw);
    }
    // A recipe's audit looks at the root as it will be sealed.
    let folder = tempfile::tempdir().unwrap();
    let recipe = recipe(folder.path(), "first_boot = \"answer-cd\"", "");
    let sealed = audit(&disk, &["--recipe", recipe.to_str().unwrap()]);
    expect(&sealed, "answer-file-password", "pass", "none");
    expect(&sealed, "answer-files", "pass", "none");
    expect(&sealed, "first-boot", "pass", r"D:\autounattend.xml");

    // What an earlier pointer names goes only if it is an answer file that holds a password.
    let out = disk.folder().join("out.qcow2");
    let sealed = |disk: &RootDisk| {
        drop(fs::remove_file(&out));
        let output = sealroot(&[
            "prepare-sealed-root",
            "--disk",
            disk.path().to_str().unwrap(),
            "--output",
            out.to_str().unwrap(),
        ]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        Volume::of(&out)
    };
    let volume = sealed(&disk);
    assert!(!volume.has("Answers/mine.xml") && volume.clusters_agree());
    for other in ["<unattend/>", &format!("<settings><Password>{SECRET}</Password></settings>")] {
        let disk = with_files(RootDisk::standard(), &[("Answers/mine.xml", other.as_bytes())])
            .with_pointer(r"c:\answers\MINE.xml");
        assert_eq!(sealed(&disk).cat("Answers/mine.xml"), other.as_bytes());
    }
}

#[test]
fn partitions_volumes_and_room() {
    let gpt = |edit: &dyn Fn(&fs::File)| {
        let disk = RootDisk::standard();
        edit(&fs::OpenOptions::new().write(true).open(disk.path()).unwrap());
        disk
    };
    let damaged = audit(&gpt(&|file| file.write_all_at(&[0xAA; 16], 512 + 40).unwrap()), &[]);
    expect(&damaged, "partition-table", "warn", "its backup was read");
    let no_esp = RootDisk::standard();
    run(Command::new("sgdisk").args(["-t", "1:0700"]).arg(no_esp.path()));
    expect(&audit(&no_esp, &[]), "boot-partition", "fail", "no EFI system partition");
    let locked = audit(&gpt(&|file| file.write_all_at(b"-FVE-FS-", (1 << 20) + 3).unwrap()), &[]);
    expect(&locked, "other-volumes", "warn", "partition 1 is encrypted with BitLocker");
    let mbr = audit(&RootDisk::standard().with_mbr(), &[]);
    expect(&mbr, "boot-partition", "pass", "active partition");
    let inactive = RootDisk::standard().with_mbr();
    fs::OpenOptions::new().write(true).open(inactive.path()).unwrap().write_all_at(&[0], 446).unwrap();
    expect(&audit(&inactive, &[]), "boot-partition", "fail", "no active partition");

    let full = with_files(RootDisk::standard(), &[("big", &vec![0x5A; 170 << 20])]);
    let report = audit(&full, &[]);
    expect(&report, "free-space", "warn", "MiB are free");
    // By ntfsresize's own count of clusters in use.
    let volume = Volume::of(full.path());
    let counted = text(&run(Command::new("ntfsresize").args(["-i", "-f"]).arg(volume.path())).stdout);
    let used = counted.lines().find_map(|line| line.strip_prefix("Space in use")).unwrap().to_owned();
    let used: f64 = used.trim_start_matches([' ', ':']).split(' ').next().unwrap().parse().unwrap();
    let facts = &report["facts"];
    let ours = facts["volumeSize"].as_u64().unwrap() - facts["volumeFree"].as_u64().unwrap();
    assert!((ours as f64 / 1e6 - used).abs() < 1.5, "{ours} bytes in use, ntfsresize: {used} MB");
    let paged = audit(&RootDisk::standard().file("pagefile.sys", &[1; 9000]), &[]);
    assert_eq!(paged["facts"]["pageFiles"][0]["size"], 9000);
}

#[test]
fn states_in_which_nothing_is_done() {
    let shadow = "System Volume Information/{5ea1ed00-0000-0000-0000-000000000000}{3808876b-c176-4e48-b7ae-04046e6cc752}";
    let shadow: &[(&str, &[u8])] = &[(shadow, b"catalogue")];
    for (id, status, disk, saw) in [
        ("volume-clean", "refused", RootDisk::standard().with_dirty_volume(), "dirty"),
        ("hibernation", "refused", RootDisk::standard().hibernated(), "hiberfil.sys"),
        ("cluster-map", "refused", RootDisk::standard().with_clusters_called_free(SYSTEM), "$Bitmap"),
        ("hive-whole", "refused", RootDisk::standard().with_dirty_hive(SOFTWARE), "SOFTWARE hive is dirty"),
        ("generalised", "refused", RootDisk::standard().not_generalised(), "IMAGE_STATE_COMPLETE"),
        ("shadow-copies", "warn", with_files(RootDisk::standard(), shadow), "shadow copies"),
    ] {
        let report = audit(&disk, &[]);
        expect(&report, id, status, saw);
        assert_eq!(report["fit"], status == "warn", "{id}");
        // A recipe can't allow what is refused; such a root is looked at as it is.
        let folder = tempfile::tempdir().unwrap();
        let recipe = recipe(folder.path(), "first_boot = \"none\"", "");
        expect(&audit(&disk, &["--recipe", recipe.to_str().unwrap()]), id, status, saw);
    }
    let locked = RootDisk::standard().with_bitlocker();
    let output = sealroot(&["audit", "--disk", locked.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("BitLocker") && text(&output.stderr).contains("manage-bde"));
    let pointed = RootDisk::standard().with_pointer(r"C:\Windows\Temp\gone.xml");
    expect(&audit(&pointed, &[]), "pointer-file", "fail", "not there");
}

/// cloudbase-init as its installer leaves it, but for what `files` and the registry change.
fn with_cloudbase_init(conf: &str, start: u32) -> RootDisk {
    let files: &[(&str, &[u8])] = &[
        (&format!("{CLOUDBASE}/bin/OpenStackService.exe"), b"MZ stand-in"),
        (&format!("{CLOUDBASE}/conf/cloudbase-init.conf"), conf.as_bytes()),
        ("Windows/Panther/unattend.xml", CLOUDBASE_ANSWER.as_bytes()),
    ];
    let image = r#""\"C:\\Program Files\\Cloudbase Solutions\\Cloudbase-Init\\bin\\OpenStackService.exe\" cloudbase-init""#;
    with_files(RootDisk::standard(), files).hive_values(
        SYSTEM,
        &service("cloudbase-init"),
        &[("Start", &format!("dword:{start:08x}")), ("ImagePath", image)],
    )
}

const CLOUDBASE_ANSWER: &str = r#"<unattend xmlns="urn:schemas-microsoft-com:unattend"><settings pass="specialize">
<component name="Microsoft-Windows-Deployment"><RunSynchronous><RunSynchronousCommand>
<Path>cmd.exe /c ""C:\Program Files\Cloudbase Solutions\Cloudbase-Init\Python\Scripts\cloudbase-init.exe"</Path>
</RunSynchronousCommand></RunSynchronous></component></settings></unattend>"#;

const NO_CLOUD: &str = "[DEFAULT]\r\nmetadata_services=cloudbaseinit.metadata.services.configdrive.ConfigDriveService,\r\n    \
    cloudbaseinit.metadata.services.nocloudservice.NoCloudConfigDriveService\r\n";

#[test]
fn cloudbase_init_is_held_to_what_it_needs() {
    let checks =
        ["", "-service", "-nocloud", "-unused", "-answers"].map(|end| format!("cloudbase-init{end}"));
    let folder = tempfile::tempdir().unwrap();
    let recipe = recipe(folder.path(), "first_boot = \"cloudbase-init\"", "");
    let as_recipe = ["--recipe", recipe.to_str().unwrap()];
    let ready = with_cloudbase_init(NO_CLOUD, 2);
    let report = audit(&ready, &as_recipe);
    assert_eq!(report["fit"], true, "{report:#}");
    checks.iter().for_each(|id| expect(&report, id, "pass", ""));
    // Its own answer file stays, and no pointer is set; for another first boot it goes.
    let out = ready.folder().join("out.qcow2");
    let seal = |way: &str| {
        drop(fs::remove_file(&out));
        let disk = ready.path().to_str().unwrap();
        let args = ["prepare-sealed-root", "--disk", disk, "--first-boot", way, "--output"];
        let output = sealroot(&[args.as_slice(), &[out.to_str().unwrap()]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        Volume::of(&out)
    };
    let volume = seal("cloudbase-init");
    assert_eq!(volume.cat("Windows/Panther/unattend.xml"), CLOUDBASE_ANSWER.as_bytes());
    assert!(!volume.has_hive_value(SYSTEM, "Setup", "UnattendFile"));
    assert!(!seal("answer-cd").has("Windows/Panther/unattend.xml"));

    let nothing = audit(&RootDisk::standard(), &as_recipe);
    expect(&nothing, "cloudbase-init", "fail", "not installed");
    expect(&nothing, "cloudbase-init-nocloud", "fail", "cloudbase-init.conf is missing");
    expect(&nothing, "cloudbase-init-answers", "fail", "no cached answer file");

    let used = with_cloudbase_init("[DEFAULT]\r\nusername=Admin\r\n", 4).hive_values(
        SOFTWARE,
        r"Cloudbase Solutions\Cloudbase-Init\i-5ea1ed\Plugins",
        &[("UserDataPlugin", "dword:00000001")],
    );
    let with_password = format!("{}<!-- cloudbase-init -->", ANSWER_WITH_PASSWORD);
    let used = used.file("Windows/Panther/unattend.xml", with_password.as_bytes());
    let used = without_files(used, &[&format!("{CLOUDBASE}/bin/OpenStackService.exe")]);
    let report = audit(&used, &as_recipe);
    expect(&report, "cloudbase-init", "fail", "OpenStackService.exe is missing");
    expect(&report, "cloudbase-init-service", "fail", "Start is 4");
    expect(&report, "cloudbase-init-nocloud", "fail", "metadata_services is not set");
    expect(&report, "cloudbase-init-unused", "fail", "ran");
    expect(&report, "cloudbase-init-answers", "fail", "without a password");
    let other = with_cloudbase_init("[DEFAULT]\nmetadata_services=a.b.HttpService\n# nocloudservice.\n", 2);
    expect(&audit(&other, &as_recipe), "cloudbase-init-nocloud", "fail", "does not name it");
}

#[test]
fn a_recipe_allows_and_requires() {
    let disk = with_files(RootDisk::standard(), &[("Users/builder/", b"")]).hive_values(
        SOFTWARE,
        WINLOGON,
        &[("AutoAdminLogon", "\"1\"")],
    );
    let path = disk.path().to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |rules: &str| recipe(folder.path(), "first_boot = \"answer-cd\"", rules);
    let build = |recipe: &Path| {
        let out = folder.path().join("out");
        drop(fs::remove_dir_all(&out));
        let media = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/demo");
        sealroot(&[
            "build",
            recipe.to_str().unwrap(),
            "--disk",
            path,
            "--output",
            out.to_str().unwrap(),
            "--media-dir",
            media.to_str().unwrap(),
        ])
    };
    let package = |recipe: &Path| {
        let out = folder.path().join("image");
        drop(fs::remove_dir_all(&out));
        let args = ["package", "--disk", path, "--seal", "--output", out.to_str().unwrap(), "--recipe"];
        sealroot(&[args.as_slice(), &[recipe.to_str().unwrap()]].concat())
    };
    for (rules, logon, profile, code) in [
        ("", "fail", "warn", 3),
        ("[audit]\nallow = [\"auto-logon\"]", "allowed", "warn", 0),
        ("[audit]\nallow = [\"auto-logon\"]\nrequire = [\"profiles\"]", "allowed", "fail", 3),
        // What can't be checked does not pass.
        ("[audit]\nallow = [\"auto-logon\"]\nrequire = [\"lsa-password\"]", "allowed", "warn", 3),
    ] {
        let recipe = write(rules);
        let report = audit(&disk, &["--recipe", recipe.to_str().unwrap()]);
        expect(&report, "auto-logon", logon, "AutoAdminLogon is 1");
        expect(&report, "profiles", profile, "builder");
        assert_eq!(report["fit"], code == 0);
        for output in [build(&recipe), package(&recipe)] {
            assert_eq!(output.status.code(), Some(code), "{rules}: {}", text(&output.stderr));
            let told = text(&output.stderr);
            let word = if rules.contains("lsa") {
                "lsa-password: it can't be checked: there is no SECURITY hive"
            } else if profile == "fail" {
                r"profiles: \Users\builder"
            } else {
                "auto-logon: AutoAdminLogon is 1"
            };
            assert!(told.contains(word), "{told}");
            assert_eq!(told.contains("not fit to publish"), code == 3, "{told}");
        }
    }
    // What is allowed is in the evidence.
    let built = build(&write("[audit]\nallow = [\"auto-logon\"]"));
    assert!(built.status.success());
    let evidence = fs::read(folder.path().join("out/evidence.json")).unwrap();
    let evidence: Value = serde_json::from_slice(&evidence).unwrap();
    let told = evidence["root"]["findings"].as_array().unwrap();
    assert!(told.iter().any(|finding| finding["id"] == "auto-logon" && finding["status"] == "allowed"));
    // A root that is packaged as it is, without the pointer that the recipe's first boot needs.
    let recipe = write("[audit]\nallow = [\"auto-logon\"]");
    let layout = folder.path().join("unsealed");
    let args = ["package", "--disk", path, "--output", layout.to_str().unwrap(), "--recipe"];
    let unsealed = sealroot(&[args.as_slice(), &[recipe.to_str().unwrap()]].concat());
    assert_eq!(unsealed.status.code(), Some(3));
    assert!(text(&unsealed.stderr).contains("but the first boot needs"), "{}", text(&unsealed.stderr));
    // prepare-sealed-root warns, as its result is not published by itself.
    let out = folder.path().join("sealed.qcow2");
    let sealed = sealroot(&["prepare-sealed-root", "--disk", path, "--output", out.to_str().unwrap()]);
    assert!(sealed.status.success() && text(&sealed.stderr).contains("AutoAdminLogon is 1"));

    for (rules, word) in [
        ("allow = [\"auto-logn\"]", "did you mean `auto-logon`"),
        ("allow = [\"volume-clean\"]", "can't be changed"),
        ("allow = [\"profiles\"]", "stops no build"),
        ("require = [\"auto-logon\"]", "in any case"),
        ("require = [\"everything-there-is\"]", "audit --list"),
    ] {
        let recipe = write(&format!("[audit]\n{rules}"));
        let output = sealroot(&["audit", "--disk", path, "--recipe", recipe.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(3), "{rules}");
        assert!(text(&output.stderr).contains(word), "{rules}: {}", text(&output.stderr));
    }
}

/// Makes the folder `link` of a mounted volume a junction to `target`, as Windows lays one out.
fn junction(mounted: &Mounted, link: &str, target: &str) {
    let name: Vec<u8> = format!(r"\??\{target}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    let printed: Vec<u8> = target.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let lengths = [8 + name.len() + printed.len() + 4, 0, 0, name.len(), name.len() + 2, printed.len()];
    let mut data = 0xA000_0003_u32.to_le_bytes().to_vec();
    lengths.iter().for_each(|length| data.extend((*length as u16).to_le_bytes()));
    for text in [name, printed] {
        data.extend(text);
        data.extend([0, 0]);
    }
    let folder = mounted.point.join(link);
    fs::create_dir_all(&folder).unwrap();
    setxattr(&folder, "system.ntfs_reparse_data", &data, XattrFlags::empty()).unwrap();
}

/// Sets UnattendFile in the disk's SYSTEM hive, whatever is in it.
fn point_at<'d>(disk: &'d RootDisk, pointer: &str) -> &'d RootDisk {
    let bytes: Vec<_> = pointer.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
    let hex: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    disk.change_hive(SYSTEM, &[("Setup", &[("UnattendFile", &format!("hex(1):{}", hex.join(",")))])]);
    disk
}

fn with_junction(disk: RootDisk, link: &str, target: &str) -> RootDisk {
    disk.edit_volume(|volume| {
        let mounted = Mounted::new(volume.path(), "");
        let folder = mounted.point.join(link);
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        junction(&mounted, link, target);
        mounted.unmount();
    })
}

#[test]
fn nothing_hides_behind_a_pointer_or_a_junction() {
    let answer: &[(&str, &[u8])] = &[("ProgramData/ans/setup.xml", ANSWER_WITH_PASSWORD.as_bytes())];
    let base = with_junction(with_files(RootDisk::standard(), answer), "Users/All Users", r"C:\ProgramData");
    let raw = fs::read(base.path()).unwrap();
    for pointer in [
        r"%ProgramData%\ans\setup.xml",
        r"\??\C:\Windows\..\ProgramData\ans\setup.xml",
        r"C:\Users\All Users\ans\setup.xml",
    ] {
        fs::write(base.path(), &raw).unwrap();
        let disk = point_at(&base, pointer);
        expect(&audit(disk, &[]), "answer-file-password", "fail", "setup.xml");
        let out = disk.folder().join("out.qcow2");
        let args = ["prepare-sealed-root", "--disk", disk.path().to_str().unwrap(), "--output"];
        let sealed = sealroot(&[&args[..], &[out.to_str().unwrap()]].concat());
        assert!(sealed.status.success(), "{}", text(&sealed.stderr));
        assert!(!Volume::of(&out).has("ProgramData/ans/setup.xml"), "{pointer}");
        fs::remove_file(&out).unwrap();
    }
    fs::write(base.path(), &raw).unwrap();
    let odd = point_at(&base, "\\\\server\\x.xml\npass    forged   none\u{1b}[2J");
    expect(&audit(odd, &[]), "pointer-file", "fail", "can't be told");
    let output = sealroot(&["audit", "--disk", odd.path().to_str().unwrap()]);
    let told = text(&output.stdout) + &text(&output.stderr);
    assert!(!told.contains('\u{1b}') && !told.contains("\npass    forged"), "{told}");

    let moved = with_files(RootDisk::standard(), &[("Real/unattend.xml", ANSWER_WITH_PASSWORD.as_bytes())]);
    let moved = with_junction(moved, "Windows/Panther", r"C:\Real");
    expect(&audit(&moved, &[]), "answer-file-password", "fail", r"\Real\unattend.xml");
    let away = with_junction(RootDisk::standard(), "Windows/Panther", r"D:\Panther");
    expect(&audit(&away, &[]), "answer-file-password", "fail", r"leads to \??\D:\Panther");
    let users = with_junction(RootDisk::standard(), "Users", r"D:\Users");
    expect(&audit(&users, &[]), "profiles", "warn", r"\Users leads to");
    expect(&audit(&users, &[]), "powershell-history", "warn", r"\Users leads to");
    let inside = with_files(RootDisk::standard(), &[("People/bob/", b"")]);
    expect(&audit(&with_junction(inside, "Users", r"C:\People"), &[]), "profiles", "warn", "bob");

    // Of whatever type, and whatever the driver's start type is where Windows overrides it.
    let binary = RootDisk::standard()
        .hive_values(SOFTWARE, WINLOGON, &[("DefaultPassword", "hex:54,00,4f,00")])
        .hive_keys(
            SYSTEM,
            &[
                (&format!(r"{}\StartOverride", service("viostor")), &[("0", "dword:00000003")]),
                (&format!(r"{}\StartOverride", service("vioscsi")), &[("0", "dword:00000003")]),
            ],
        );
    let report = audit(&binary, &[]);
    expect(&report, "winlogon-password", "fail", "DefaultPassword");
    expect(&report, "storage-driver", "fail", "Start is 3");
    let cut = RootDisk::standard();
    let file = fs::OpenOptions::new().write(true).open(cut.path()).unwrap();
    file.set_len(fs::metadata(cut.path()).unwrap().len() - (512 << 10)).unwrap();
    expect(&audit(&cut, &[]), "partition-table", "warn", "backup");
    // A hive under another name is no answer file, and a file's other names are told.
    let linked = RootDisk::standard().edit_volume(|volume| {
        let mounted = Mounted::new(volume.path(), "");
        let at = |path: &str| mounted.point.join(path);
        fs::hard_link(at(SYSTEM), at("Windows/Panther/unattend.xml")).unwrap();
        mounted.unmount();
    });
    let patch = linked.folder().join("p");
    let args = ["prepare-sealed-root", "--disk", linked.path().to_str().unwrap(), "--patch"];
    let refused = sealroot(&[&args[..], &[patch.to_str().unwrap()]].concat());
    assert_eq!(refused.status.code(), Some(4));
    assert!(text(&refused.stderr).contains("hard link of a registry hive"), "{}", text(&refused.stderr));
    let linked = RootDisk::standard().edit_volume(|volume| {
        let mounted = Mounted::new(volume.path(), "");
        mounted.write("Windows/Panther/unattend.xml", ANSWER_WITH_PASSWORD.as_bytes());
        let at = |path: &str| mounted.point.join(path);
        fs::hard_link(at("Windows/Panther/unattend.xml"), at("Windows/copy.xml")).unwrap();
        mounted.unmount();
    });
    let args = ["prepare-sealed-root", "--json", "--disk", linked.path().to_str().unwrap(), "--patch"];
    let sealed = sealroot(&[&args[..], &[linked.folder().join("p").to_str().unwrap()]].concat());
    assert!(text(&sealed.stderr).contains("copy.xml (a hard link of"), "{}", text(&sealed.stderr));
    let report: Value = serde_json::from_slice(&sealed.stdout).unwrap();
    assert_eq!(
        report["otherNamesRemoved"],
        serde_json::json!([r"copy.xml (a hard link of Windows\Panther\unattend.xml)"])
    );
}
