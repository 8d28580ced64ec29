//! `audit`: is a root fit to publish?

use std::path::PathBuf;

use super::audit_report::AuditReport;
use super::root_args::{ReplayArgs, SpoolArg, one_line, open_disk};
use super::{Console, Failure};
use crate::disk::Disk;
use crate::io::Overlay;
use crate::recipe;
use crate::root::audit::{CHECKS, Severity};
use crate::root::{self, Audit, LogReplay, Policy, RootError};

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
    /// Print the audit, or the table, as JSON.
    #[arg(long)]
    json: bool,
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
    let report = AuditReport::of(&audit);
    if args.json {
        console.json(&report);
    } else {
        report.tell(console);
    }
    report.verdict(path.display(), console)
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
            for path in sealed.report.answer_files_scrubbed.iter().chain(&sealed.report.answer_files_emptied)
            {
                console.note(format!("sealing would remove \\{}", one_line(path)));
            }
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
