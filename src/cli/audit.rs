//! `audit`: is a root fit to publish?

use std::path::PathBuf;

use serde::Serialize;

use super::root_args::{ReplayArgs, SpoolArg, open_disk, tell_scrubbed};
use super::{Console, Exit, Failure};
use crate::disk::Disk;
use crate::io::Overlay;
use crate::recipe;
use crate::root::audit::{CHECKS, Severity, Status};
use crate::root::{self, Audit, Finding, LogReplay, Policy, RootError, RootFacts};

/// Read a root disk offline and say whether it is fit to publish.
///
/// Nothing is written. Every check says what it saw; where something is wrong, also why it matters and what to do.
/// With a recipe, the root is looked at as `build` would seal it, and held to what the recipe expects and allows.
/// A root that is not fit ends in exit code 3; one whose Windows can't be read at all in 4.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The root disk: raw, qcow2 or a block device.
    #[arg(long, value_name = "DISK", required_unless_present = "list")]
    disk: Option<PathBuf>,
    #[command(flatten)]
    spool: SpoolArg,
    /// Hold the root to this recipe, sealed as it says.
    #[arg(long, value_name = "RECIPE")]
    recipe: Option<PathBuf>,
    #[command(flatten)]
    replay: ReplayArgs,
    /// Print the table of checks: what each asks, why, and what to do.
    #[arg(long, conflicts_with_all = ["disk", "recipe", "spool", "no_replay_logs"])]
    list: bool,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    fit: bool,
    facts: &'a RootFacts,
    findings: &'a [Finding],
}

/// Runs the command.
pub fn run(args: Args, console: &Console) -> Result<(), Failure> {
    let Some(path) = args.disk else {
        list(args.json, console);
        return Ok(());
    };
    let recipe = args.recipe.map(|recipe| recipe::load(&recipe, &[])).transpose()?;
    let disk = open_disk(&path, &args.spool, console)?;
    let in_disk = |error| Failure::from(error).context(path.display());
    let replay = args.replay.replay();
    let audit = match recipe {
        None => root::audit(&disk, &Policy::default(), replay),
        Some(recipe) => audit_sealed(&disk, &recipe.policy(), replay, console),
    }
    .map_err(in_disk)?;
    let fit = !audit.findings.iter().any(Finding::stops);
    if args.json {
        console.json(&Report { fit, facts: &audit.facts, findings: &audit.findings });
    } else {
        console.result(facts(&audit.facts));
        audit.findings.iter().for_each(|finding| console.result(line(finding)));
    }
    if fit {
        console.note("fit to publish");
        return Ok(());
    }
    // The whole story is told already.
    let mut failed: Vec<_> =
        audit.findings.iter().filter(|finding| finding.stops()).map(|finding| finding.check.id).collect();
    failed.dedup();
    let message = format!("{}: the root is not fit to publish: {}", path.display(), failed.join(", "));
    Err(Failure::new(Exit::Rejected, message))
}

/// Audits the root as sealing leaves it; as it is, where it can't be sealed.
fn audit_sealed(
    disk: &Disk,
    policy: &Policy,
    replay: LogReplay,
    console: &Console,
) -> Result<Audit, RootError> {
    let Some(first_boot) = &policy.first_boot else { return root::audit(disk, policy, replay) };
    match root::seal(disk, first_boot, replay) {
        Ok(sealed) => {
            tell_scrubbed(&sealed.report, console);
            root::audit(&Overlay::new(disk, sealed.patch), policy, replay)
        }
        Err(RootError::Refused { .. }) => root::audit(disk, policy, replay),
        Err(error) => Err(error),
    }
}

fn list(json: bool, console: &Console) {
    if json {
        console.json(&CHECKS);
        return;
    }
    for check in CHECKS {
        let weight = match check.severity {
            Severity::Refuse => "refuse",
            Severity::Fail => "fail",
            Severity::Warn => "warn",
        };
        console.result(format!(
            "{weight:<7} {}\n        asks: {}\n        why:  {}\n        cure: {}\n",
            check.id, check.asks, check.why, check.cure
        ));
    }
}

fn facts(facts: &RootFacts) -> String {
    let page_files: Vec<_> =
        facts.page_files.iter().map(|file| format!("{} {} MiB", file.name, file.size >> 20)).collect();
    let not_shipped = match page_files.as_slice() {
        [] => format!("{} MiB free", facts.volume_free >> 20),
        files => format!("{} MiB free, {}", facts.volume_free >> 20, files.join(", ")),
    };
    let rows = [
        ("size", format!("{} bytes", facts.virtual_size)),
        ("pointer", facts.pointer.clone().unwrap_or_else(|| "none".into())),
        ("not shipped", not_shipped),
    ];
    rows.iter().map(|(name, value)| format!("{name:<12} {value}\n")).collect()
}

/// A finding: one line where all is well, else with why it matters and what to do.
fn line(finding: &Finding) -> String {
    let status = match finding.status {
        Status::Pass => "pass",
        Status::Warn => "warn",
        Status::Fail => "fail",
        Status::Refused => "refuse",
        Status::Allowed => "allowed",
        Status::NotChecked => "-",
    };
    let line = format!("{status:<7} {:<22} {}\n", finding.check.id, finding.saw);
    if !finding.is_remark() {
        return line;
    }
    let indent = " ".repeat(31);
    format!("{line}{indent}why: {}\n{indent}cure: {}\n", finding.check.why, finding.cure())
}
