//! `diff`: what two images or disks differ in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;

use super::image_source::ImageSource;
use super::registry_args::RegistryArgs;
use super::root_args::{ReplayArgs, one_line};
use super::{Console, Exit, Failure};
use crate::disk;
use crate::io::ReadAt;
use crate::root::{self, Audit, Inventory, Policy, RootError};

/// Say what two images differ in: Windows, drivers, services, findings of the audit, sizes.
///
/// Published images are not pulled: only the parts of their layers that are needed are fetched. What is the same is
/// not told. Ends in exit code 0 whether they differ or not, unless --exit-code is given.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// An image in a registry, the folder of an OCI layout or of a build, or a root disk.
    #[arg(value_name = "A")]
    a: String,
    /// What it is compared with.
    #[arg(value_name = "B")]
    b: String,
    /// End in exit code 3 if they differ.
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    replay: ReplayArgs,
    /// Print the differences as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    registry: RegistryArgs,
}

/// What is known of one side: each fact's value, by the section and name it is told under.
type Facts = BTreeMap<(&'static str, String), String>;

#[derive(Serialize)]
struct Report<'a> {
    a: &'a str,
    b: &'a str,
    same: bool,
    differences: Vec<Difference>,
}

/// A fact that differs; `None` where a side does not have it.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Difference {
    section: &'static str,
    name: String,
    a: Option<String>,
    b: Option<String>,
}

/// Runs the command.
pub fn run(args: Args, console: &Console) -> Result<(), Failure> {
    let a = facts(&args.a, &args, console)?;
    let b = facts(&args.b, &args, console)?;
    let differences = differences(&a, &b);
    let same = differences.is_empty();
    if args.json {
        console.json(&Report { a: &args.a, b: &args.b, same, differences });
    } else if same {
        console.note(
            "no differences, by what was read: of an image's layer, parts that are not verified by digest",
        );
    } else {
        console.result(format!("--- {}\n+++ {}\n", args.a, args.b));
        console.result(differences.iter().map(Difference::line).collect::<String>());
    }
    if args.exit_code && !same {
        return Err(Failure::new(Exit::Rejected, format!("{} and {} differ", args.a, args.b)));
    }
    Ok(())
}

fn facts(name: &str, args: &Args, console: &Console) -> Result<Facts, Failure> {
    let mut facts = Facts::new();
    let path = Path::new(name);
    if path.exists() && !path.is_dir() {
        let disk = disk::open(path).map_err(|error| Failure::from(error).context(name))?;
        look(&disk, &args.replay, &mut facts).map_err(|error| Failure::from(error).context(name))?;
        return Ok(facts);
    }
    let source = ImageSource::open(name, &args.registry, console)?;
    let layer = source.layer().map_err(|error| error.context(name))?;
    let mut put = |fact: &str, value: String| facts.insert(("image", fact.into()), value);
    put("digest", source.digest().to_string());
    put("layer", layer.digest.to_string());
    put("layer type", layer.media_type.clone());
    put("layer size", layer.size.to_string());
    let parts = source.parts(layer, console)?;
    let disk = parts.disk(&layer.media_type).map_err(|error| error.context(name))?;
    put("kept bytes", disk.file_size().to_string());
    let config = source.config();
    for variable in config.env() {
        let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
        facts.insert(("env", name.into()), value.into());
    }
    for (name, value) in &source.manifest().annotations {
        facts.insert(("annotation", name.clone()), value.clone());
    }
    look(&disk, &args.replay, &mut facts).map_err(|error| parts.explain(error).context(name))?;
    Ok(facts)
}

/// What the root on a disk is.
fn look(disk: &dyn ReadAt, replay: &ReplayArgs, facts: &mut Facts) -> Result<(), RootError> {
    let audit = root::audit(disk, &Policy::default(), replay.replay())?;
    let inventory = root::inventory(disk, replay.replay())?;
    root_facts(&audit, facts);
    installed(&inventory, facts);
    Ok(())
}

fn root_facts(audit: &Audit, facts: &mut Facts) {
    let root = &audit.facts;
    let mut put = |section, name: &str, value: Option<String>| {
        facts.extend(value.map(|value| ((section, name.to_owned()), value)));
    };
    put("windows", "edition", root.windows.edition_id.clone());
    put("windows", "build", root.windows.build.clone());
    put("windows", "release", root.windows.display_version.clone());
    put("windows", "installation", root.windows.installation_type.clone());
    put("windows", "architecture", root.windows.architecture.clone());
    put("windows", "languages", Some(root.windows.languages.join(", ")));
    put("root", "pointer", root.pointer.clone());
    put("root", "image state", root.sysprep.image_state.clone());
    put("root", "answer files", Some(root.answer_files.join(", ")));
    put("size", "disk", Some(root.virtual_size.to_string()));
    put("size", "volume", Some(root.volume_size.to_string()));
    put("size", "volume in use", Some(root.volume_size.saturating_sub(root.volume_free).to_string()));
    for finding in &audit.findings {
        let status = finding.status.word();
        // A check may have seen several things.
        let all = facts.entry(("audit", finding.check.id.into())).or_default();
        let and = if all.is_empty() { "" } else { "; " };
        *all += &format!("{and}{status}: {}", finding.saw);
    }
}

fn installed(inventory: &Inventory, facts: &mut Facts) {
    for service in &inventory.services {
        let start = match service.start {
            Some(0) => "starts at boot".into(),
            Some(1) => "started by the kernel".into(),
            Some(2) => "starts by itself".into(),
            Some(3) => "on demand".into(),
            Some(4) => "disabled".into(),
            Some(other) => format!("Start {other}"),
            None => "no Start".into(),
        };
        let image = service.image_path.as_ref().map(|path| format!(", {path}")).unwrap_or_default();
        // Windows tells them apart whatever their case.
        facts.insert(("service", service.name.to_lowercase()), format!("{start}{image}"));
    }
    // A package may be there in several versions.
    let mut packages: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for package in &inventory.driver_packages {
        let version = package.version.as_deref().unwrap_or("no version");
        let provider = package.provider.as_deref().filter(|_| package.is_added());
        let told = provider.map_or(version.to_owned(), |provider| format!("{version}, {provider}"));
        packages.entry(("driver", package.inf().to_lowercase())).or_default().insert(told);
    }
    for (key, versions) in packages {
        facts.insert(key, versions.into_iter().collect::<Vec<_>>().join("; "));
    }
}

fn differences(a: &Facts, b: &Facts) -> Vec<Difference> {
    /// In this order; by name within each.
    const SECTIONS: [&str; 9] =
        ["image", "env", "annotation", "size", "windows", "root", "driver", "service", "audit"];
    let has = |facts: &Facts, section| facts.keys().any(|(of, _)| *of == section);
    // A disk in a file has no image's facts, and an older Windows no list of drivers: nothing to compare.
    let comparable = |section| match section {
        "env" | "annotation" => has(a, "image") && has(b, "image"),
        section => has(a, section) && has(b, section),
    };
    let mut found = Vec::new();
    for section in SECTIONS.into_iter().filter(|section| comparable(section)) {
        let keys: BTreeSet<_> = a.keys().chain(b.keys()).filter(|(of, _)| *of == section).collect();
        for key in keys {
            let (a, b) = (a.get(key), b.get(key));
            if a != b {
                found.push(Difference { section, name: key.1.clone(), a: a.cloned(), b: b.cloned() });
            }
        }
    }
    found
}

impl Difference {
    fn line(&self) -> String {
        let change = match (&self.a, &self.b) {
            (Some(a), Some(b)) => match (a.parse::<i128>(), b.parse::<i128>()) {
                (Ok(from), Ok(to)) if matches!(self.section, "image" | "size") => {
                    format!("{a} -> {b} ({:+})", to - from)
                }
                _ => format!("{a} -> {b}"),
            },
            (Some(a), None) => format!("- {a}"),
            (None, Some(b)) => format!("+ {b}"),
            (None, None) => String::new(),
        };
        let line = format!("{:<10} {:<24} {change}", self.section, self.name);
        one_line(&line) + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(facts: &[(&'static str, &str, &str)]) -> Facts {
        facts.iter().map(|(section, name, value)| ((*section, (*name).into()), (*value).into())).collect()
    }

    #[test]
    fn what_one_side_lacks_is_a_difference_but_not_a_whole_section() {
        let a = side(&[
            ("service", "viostor", "starts at boot"),
            ("size", "disk", "10"),
            ("image", "digest", "x"),
        ]);
        let b = side(&[("service", "netkvm", "on demand"), ("size", "disk", "30"), ("driver", "x.inf", "1")]);
        let lines: Vec<_> = differences(&a, &b).iter().map(Difference::line).collect();
        let expected =
            ["size disk 10 -> 30 (+20)", "service netkvm + on demand", "service viostor - starts at boot"];
        assert_eq!(lines.len(), expected.len(), "{lines:?}");
        for (line, expected) in lines.iter().zip(expected) {
            assert_eq!(line.split_whitespace().collect::<Vec<_>>().join(" "), expected);
        }
        assert!(differences(&a, &a).is_empty());
    }
}
