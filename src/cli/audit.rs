//! `audit`: is a root fit to seal and publish?

use std::path::PathBuf;

use serde::Serialize;

use super::root_args::{SpoolArg, open_disk, warn_about};
use super::{Console, Failure};
use crate::root::{self, RootFacts};

/// Read a root disk offline and say whether it is fit to publish.
///
/// Nothing is written. An unfit root ends in exit code 4, with every reason and its cure.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The root disk: raw, qcow2 or a block device.
    #[arg(long, value_name = "DISK")]
    disk: PathBuf,
    #[command(flatten)]
    spool: SpoolArg,
    /// Print the facts, and what stands against the root, as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    fit: bool,
    refusals: Vec<String>,
    warnings: &'a [String],
    facts: &'a RootFacts,
}

/// Runs the command.
pub fn run(args: Args, console: &Console) -> Result<(), Failure> {
    let disk = open_disk(&args.disk, &args.spool, console)?;
    let in_disk = |failure: Failure| failure.context(args.disk.display());
    let examination = root::examine(&disk).map_err(|e| in_disk(e.into()))?;
    if args.json {
        console.json(&Report {
            fit: examination.refusals.is_empty(),
            refusals: examination.refusals.iter().map(ToString::to_string).collect(),
            warnings: &examination.warnings,
            facts: &examination.facts,
        });
    } else {
        console.result(table(&examination.facts));
    }
    warn_about(&examination, console);
    examination.fit().map_err(|e| in_disk(e.into()))?;
    console.note("fit to seal and publish");
    Ok(())
}

fn table(facts: &RootFacts) -> String {
    let unknown = || "not said".to_owned();
    let windows = &facts.windows;
    let sysprep = &facts.sysprep;
    let rows = [
        ("size", format!("{} bytes", facts.virtual_size)),
        (
            "layout",
            format!(
                "{}, {}-byte sectors, Windows on partition {}",
                facts.partition_scheme, facts.sector_size, facts.partition
            ),
        ),
        ("edition", windows.edition_id.clone().unwrap_or_else(unknown)),
        ("build", windows.build.clone().unwrap_or_else(unknown)),
        ("release", windows.display_version.clone().unwrap_or_else(unknown)),
        ("image state", sysprep.image_state.clone().unwrap_or_else(unknown)),
        ("pointer", facts.pointer.clone().unwrap_or_else(|| "none".into())),
        (
            "answer files",
            if facts.answer_files.is_empty() { "none".into() } else { facts.answer_files.join(", ") },
        ),
    ];
    rows.iter().map(|(name, value)| format!("{name:<13} {value}\n")).collect()
}
