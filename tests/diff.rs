//! `diff`: what a change made with hivexregedit looks like from outside, in a registry, a layout and a disk.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/published.rs"]
mod published;
#[path = "support/registry.rs"]
mod registry;
#[path = "support/root_disk.rs"]
mod root_disk;

use std::collections::BTreeMap;

use published::{Client, text};
use registry::Registry;
use root_disk::{RootDisk, SOFTWARE, SYSTEM, demo};
use serde_json::Value;

/// `Version` of a driver package: architecture, class, date, and 100.101.104.24000 with its last number first.
const VERSION: &str = "hex(3):ff,ff,09,00,00,00,00,00,7d,e9,36,4d,25,e3,ce,11,bf,c1,08,00,2b,e1,03,18,\
                       00,80,8c,a3,c5,94,c6,01,c0,5d,68,00,65,00,64,00,00,00,00,00,00,00,00,00";

/// A newer one of the demo's root: another build, one driver more, one that no longer starts.
fn newer() -> RootDisk {
    RootDisk::standard()
        .hive_values(SOFTWARE, r"Microsoft\Windows NT\CurrentVersion", &[("UBR", "dword:00001388")])
        .hive_values(SYSTEM, r"ControlSet001\Services\netkvm", &[("Start", "dword:00000004")])
        .hive_values(
            SYSTEM,
            r"ControlSet001\Services\viofs",
            &[("Start", "dword:00000003"), ("Type", "dword:00000001")],
        )
        .hive_values(
            SYSTEM,
            r"DriverDatabase\DriverPackages\netkvm.inf_amd64_0123456789abcdef",
            &[("Version", VERSION), ("Provider", "\"Red Hat, Inc.\"")],
        )
}

fn differences(printed: &str) -> BTreeMap<(String, String), (Value, Value)> {
    let report: Value = serde_json::from_str(printed).unwrap();
    let list = report["differences"].as_array().unwrap();
    assert_eq!(report["same"], list.is_empty());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    list.iter().map(|d| ((text(&d["section"]), text(&d["name"])), (d["a"].clone(), d["b"].clone()))).collect()
}

#[test]
fn two_published_images_are_compared_without_being_pulled() {
    let registry = Registry::start();
    let client = Client::of(&[&registry]);
    let older = client.publish(&demo(), &format!("{}/private/w:1", registry.host()), &["--seal"]);
    let root = newer();
    let newer = format!("{}/private/w:2", registry.host());
    client.publish(root.path(), &newer, &["--no-audit"]);
    let found = differences(&client.ok(&["diff", &older, &newer, "--json"]));
    let of = |section: &str, name: &str| {
        let (a, b) = found
            .get(&(section.into(), name.into()))
            .unwrap_or_else(|| panic!("{section} {name}: {found:?}"));
        (a.as_str(), b.as_str())
    };
    assert_eq!(of("windows", "build"), (Some("26100.4349"), Some("26100.5000")));
    assert_eq!(of("root", "pointer"), (Some("D:\\autounattend.xml"), None));
    assert!(of("service", "netkvm").1.unwrap().starts_with("disabled"));
    assert_eq!(of("service", "viofs"), (None, Some("on demand")));
    assert!(of("audit", "network-driver").1.unwrap().contains("netkvm is disabled"));
    assert!(of("image", "digest").0.unwrap().starts_with("sha256:"));
    assert!(found.contains_key(&("image".into(), "layer size".into())));
    assert!(!found.contains_key(&("size".into(), "disk".into())), "{found:?}");
    assert!(!found.contains_key(&("service".into(), "viostor".into())), "{found:?}");
}

#[test]
fn a_driver_is_known_by_its_version() {
    let client = Client::new();
    let a = newer();
    let b = newer().hive_values(
        SYSTEM,
        r"DriverDatabase\DriverPackages\netkvm.inf_amd64_0123456789abcdef",
        &[("Version", &VERSION.replace("c0,5d,68", "c1,5d,68"))],
    );
    let output = client.sealroot(&["diff", a.path().to_str().unwrap(), b.path().to_str().unwrap()]);
    let told = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines: Vec<_> =
        told.lines().skip(2).map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert!(lines.contains(&"driver netkvm.inf 100.101.104.24000 -> 100.101.104.24001".to_owned()), "{told}");
}

#[test]
fn a_layout_and_its_disk_are_the_same_root() {
    let client = Client::new();
    let root = newer();
    let layout = client.layout(root.path(), "image", &["--no-audit"]);
    let (disk, layout) = (root.path().to_str().unwrap(), layout.to_str().unwrap());
    for args in [&["diff", disk, layout][..], &["diff", disk, layout, "--exit-code"]] {
        let output = client.sealroot(args);
        assert!(output.status.success() && output.stdout.is_empty(), "{}", text(&output.stdout));
        assert!(text(&output.stderr).contains("no differences"));
    }
    let demo = demo();
    let demo = demo.to_str().unwrap();
    let output = client.sealroot(&["diff", layout, demo]);
    assert_eq!(output.status.code(), Some(0));
    let told = text(&output.stdout);
    assert!(told.starts_with(&format!("--- {layout}\n+++ {demo}\n")), "{told}");
    assert!(told.contains("26100.5000 -> 26100.4349\n"), "{told}");
    let output = client.sealroot(&["diff", layout, demo, "--exit-code"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("differ"));
}
