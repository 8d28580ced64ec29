//! Where things are said: results on standard output, everything else on standard error.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::{Exit, Failure};
use crate::io::{Interrupted, Progress, Task, is_anything_unfinished};

/// The user's terminal, or what stands in for one.
#[derive(Debug, Clone)]
pub struct Console {
    quiet: bool,
    bars: Option<MultiProgress>,
    stop: Arc<AtomicBool>,
    /// How many tasks run.
    running: Arc<AtomicUsize>,
}

/// For how long nothing has to run, after a first Ctrl-C, before the process is taken to be blocked.
const IDLE: Duration = Duration::from_secs(1);

impl Console {
    /// Bars when standard error is a terminal, plain lines otherwise, nothing when `quiet`.
    ///
    /// From here on the first Ctrl-C asks running tasks to stop and clean up; where nothing runs that could, as
    /// while standard input is waited for, it ends the process a moment later. The second ends it at once.
    pub fn new(quiet: bool) -> Self {
        let bars = (!quiet && std::io::stderr().is_terminal()).then(MultiProgress::new);
        let stop = Arc::new(AtomicBool::new(false));
        let running = Arc::new(AtomicUsize::new(0));
        let console = Self { quiet, bars, stop, running };
        let told = console.clone();
        // Without a handler Ctrl-C still ends the process; only the cleaning up is lost.
        let _ = ctrlc::set_handler(move || {
            if told.stop.swap(true, Ordering::SeqCst) {
                std::process::exit(130);
            }
            // Not here: a second Ctrl-C would not be heard.
            let told = told.clone();
            std::thread::spawn(move || told.end_when_idle());
        });
        console
    }

    /// Ends the process once nothing that would take note of a Ctrl-C, or has to be cleaned up, is there.
    fn end_when_idle(&self) {
        let mut idle_since = Instant::now();
        while idle_since.elapsed() < IDLE {
            std::thread::sleep(Duration::from_millis(50));
            if self.running.load(Ordering::SeqCst) > 0 || is_anything_unfinished() {
                idle_since = Instant::now();
            }
        }
        self.error(&Interrupted.into());
        std::process::exit(130);
    }

    /// A result: standard output, as it stands. A closed pipe ends the process quietly.
    pub fn result(&self, text: impl AsRef<[u8]>) {
        let mut out = std::io::stdout().lock();
        let written = out.write_all(text.as_ref()).and_then(|()| out.flush());
        if let Err(error) = written {
            if error.kind() != ErrorKind::BrokenPipe {
                let message = format!("the result can't be written to standard output: {error}");
                self.error(&Failure::new(Exit::Failed, message));
            }
            std::process::exit(1);
        }
    }

    /// A result as JSON, one document and a newline.
    pub fn json(&self, value: &impl serde::Serialize) {
        match serde_json::to_string_pretty(value) {
            Ok(json) => self.result(format!("{json}\n")),
            Err(e) => self.warn(format!("the report can't be shown as JSON: {e}")),
        }
    }

    /// A message, unless quiet.
    pub fn note(&self, text: impl AsRef<str>) {
        if !self.quiet {
            self.line(text.as_ref());
        }
    }

    /// Something the user should know even when quiet.
    pub fn warn(&self, text: impl AsRef<str>) {
        self.line(&format!("warning: {}", text.as_ref()));
    }

    /// How the command failed.
    pub fn error(&self, failure: &Failure) {
        self.line(&format!("error: {failure}"));
    }

    fn line(&self, text: &str) {
        let text = &harmless(text);
        match &self.bars {
            // Printing between bars must go through them; a hidden one falls back to standard error.
            Some(bars) if bars.println(text).is_ok() => {}
            _ => {
                let _ = writeln!(std::io::stderr(), "{text}");
            }
        }
    }

    /// Whether Ctrl-C was pressed.
    pub fn interrupted(&self) -> Result<(), Interrupted> {
        if self.stop.load(Ordering::SeqCst) { Err(Interrupted) } else { Ok(()) }
    }
}

impl Progress for Console {
    fn task(&self, name: &str, total: u64) -> Box<dyn Task> {
        let bar = self.bars.as_ref().map(|bars| bars.add(bar(name, total)));
        self.running.fetch_add(1, Ordering::SeqCst);
        Box::new(Running {
            console: self.clone(),
            bar,
            name: name.to_owned(),
            total,
            done: AtomicU64::new(0),
            begun: Instant::now(),
            told: AtomicU64::new(0),
        })
    }
}

/// Names and arguments may hold what drives a terminal; a message does not.
fn harmless(text: &str) -> String {
    let replaced =
        |c: char| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(replaced).collect()
}

fn bar(name: &str, total: u64) -> ProgressBar {
    // The template is fixed; were it ever wrong, indicatif's own style would do.
    let style = ProgressStyle::with_template(
        "{msg:<24} {bar:24} {percent:>3}% {bytes:>10}/{total_bytes:<10} {bytes_per_sec:>12} {eta:>4}",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style).with_message(name.to_owned())
}

/// Lines rather than bars: one when a task has run for this long, and again each time as long passes.
const LINE_EVERY: Duration = Duration::from_secs(5);

struct Running {
    console: Console,
    bar: Option<ProgressBar>,
    name: String,
    total: u64,
    done: AtomicU64,
    begun: Instant,
    /// How many lines were printed.
    told: AtomicU64,
}

impl Task for Running {
    fn advance(&self, bytes: u64) -> Result<(), Interrupted> {
        self.console.interrupted()?;
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        } else if !self.console.quiet {
            let due = self.begun.elapsed().as_secs() / LINE_EVERY.as_secs();
            if self.told.fetch_max(due, Ordering::Relaxed) < due {
                let percent = (u128::from(done) * 100).checked_div(u128::from(self.total)).unwrap_or(100);
                self.console.line(&format!("{}: {percent}% of {} MiB", self.name, self.total >> 20));
            }
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.console.running.fetch_sub(1, Ordering::SeqCst);
    }
}
