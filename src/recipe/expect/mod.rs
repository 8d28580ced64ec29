//! What a recipe expects of its media, against what is on them.
//!
//! A pin says that a medium is the one that was meant, not that the right one was meant. So every medium is opened
//! once it is verified: the image and its language, the driver folders and what vouches for them.

mod drivers;
mod windows;

use std::fmt;

use serde::Serialize;
use thiserror::Error;

pub use drivers::{DriversFound, ProvedFolder};
pub use windows::WindowsFound;

use super::Recipe;
use super::lock::Lock;
use crate::io::ReadAt;
use crate::media::driver::Judge;
use crate::media::{Contents, MediumError, VerifiedFile};

/// What was found on both media. It can be trusted as far as `differences` is empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Found {
    /// On the Windows medium; nothing where it is none.
    pub windows: Option<WindowsFound>,
    /// On the driver medium; nothing where it is none.
    pub drivers: Option<DriversFound>,
    /// Whatever is not as the recipe expects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
    /// What does not stand in the way, and should be known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// One thing that is not as the recipe expects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The key whose value does not hold, as `media.windows.expect.name`.
    pub key: &'static str,
    /// What is there instead.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
}

impl Difference {
    fn new(key: &'static str, message: impl Into<String>) -> Self {
        Self { key, message: message.into(), help: None }
    }

    fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.message)?;
        self.help.as_ref().map_or(Ok(()), |help| write!(f, "\n  help: {help}"))
    }
}

/// A medium that can't be read, though it is the one that is pinned.
#[derive(Debug, Error)]
#[error("the {medium} medium matches its pin, and can't be read: {source}")]
pub struct UnreadMedium {
    /// `windows` or `virtio`.
    pub medium: &'static str,
    /// Why.
    pub source: MediumError,
}

/// Everything that is not as the recipe expects; never empty.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the media are not what the recipe expects\n\n{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n"))]
pub struct Differences(pub Vec<Difference>);

/// Compares both verified media with what the recipe expects, and with its lock where there is one.
pub fn check(
    recipe: &Recipe,
    windows: &VerifiedFile,
    virtio: &VerifiedFile,
    lock: Option<&Lock>,
    judge: Judge<'_>,
) -> Result<Found, UnreadMedium> {
    let mut found = look(recipe, &windows.file, &virtio.file, judge)?;
    for (medium, verified) in [("windows", windows), ("virtio", virtio)] {
        // What was read is what was hashed.
        let changed = |source| UnreadMedium { medium, source: MediumError::Changed(source) };
        verified.file.check_unchanged().map_err(changed)?;
    }
    if found.differences.is_empty()
        && let Some(lock) = lock
        && let Some(now) = Lock::new(&windows.facts, &virtio.facts, &found)
    {
        found.differences = lock.differences(&now);
    }
    Ok(found)
}

fn look(
    recipe: &Recipe,
    windows: &dyn ReadAt,
    virtio: &dyn ReadAt,
    judge: Judge<'_>,
) -> Result<Found, UnreadMedium> {
    let mut found = Found { windows: None, drivers: None, differences: Vec::new(), warnings: Vec::new() };
    let in_medium = |medium| move |source| UnreadMedium { medium, source };
    match Contents::read(windows).map_err(in_medium("windows"))? {
        Contents::Windows(medium) => {
            found.windows = Some(windows::check(recipe, *medium, &mut found.differences));
        }
        other => found.differences.push(wrong_kind("media.windows.file", "a Windows medium", &other)),
    }
    match Contents::read(virtio).map_err(in_medium("virtio"))? {
        Contents::Drivers(medium) => {
            let drivers = drivers::check(recipe, virtio, *medium, judge, &mut found);
            found.drivers = Some(drivers.map_err(in_medium("virtio"))?);
        }
        other => found.differences.push(wrong_kind("media.virtio.file", "a virtio-win medium", &other)),
    }
    Ok(found)
}

fn wrong_kind(key: &'static str, wanted: &str, got: &Contents) -> Difference {
    Difference::new(key, format!("this is {}, not {wanted}", got.what()))
        .help("the pin is that of another medium: name the right file, and pin that")
}

/// Texts of a medium, for people: what a terminal acts on is taken out, and there is an end.
fn shown(text: &str) -> String {
    let clean = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().take(120).map(clean).collect()
}
