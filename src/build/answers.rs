//! From a recipe's settings to a rendered answer, kept once it is there.

use std::io::ErrorKind;
use std::path::Path;

use serde::Serialize;
use thiserror::Error;

use super::folder::{Folder, FolderError};
use super::kept;
use super::state::{AnswerState, Key, State};
use crate::answer::{
    Account, AnswerError, CredentialsError, ImageChoice, Install, Locale, Password, System,
    random_computer_name, render_clone, render_install,
};
use crate::kube::{BootstrapError, DnsLabelError, SecretName, write_bootstrap};
use crate::recipe::{DEFAULT_USERNAME, Recipe, VirtioOs};
use crate::windows::{AccountName, ComputerName, ImageName, LanguageTag, NameError, TimeZone};

/// Which of a build's two answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The installation's.
    Install,
    /// A clone's first boot's.
    Clone,
}

impl Mode {
    /// The folder it is rendered into.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Install => "install",
            Self::Clone => "clone",
        }
    }

    /// What an earlier build remembers of it.
    pub fn remembered(self, state: &State) -> &Option<AnswerState> {
        match self {
            Self::Install => &state.install,
            Self::Clone => &state.clone,
        }
    }

    fn remember(self, state: &mut State, answer: AnswerState) {
        match self {
            Self::Install => state.install = Some(answer),
            Self::Clone => state.clone = Some(answer),
        }
    }
}

/// Why an answer was not rendered.
#[derive(Debug, Error)]
pub enum AnswersError {
    /// The recipe has no image name.
    #[error("the recipe names no image to install: set install.image_name or media.windows.expect.name")]
    NoImageName,
    /// The settings have changed since; the credentials may be in use.
    #[error(
        "{folder} was rendered from other settings than the recipe and --set have now, and is not overwritten"
    )]
    OtherSettings {
        /// The answer's folder.
        folder: String,
    },
    /// It is not, or no longer, what a build rendered.
    #[error("{folder} can't be kept: {why}")]
    Unfit {
        /// The answer's folder.
        folder: String,
        /// What is wrong.
        why: String,
    },
    /// A name that Windows would refuse.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A name that Kubernetes would refuse.
    #[error(transparent)]
    Label(#[from] DnsLabelError),
    /// No random numbers.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The answer file can't be made.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// The folder can't be written.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The build's memory can't be written.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The settings can't be fingerprinted.
    #[error("the settings can't be written as JSON")]
    Settings(#[from] serde_json::Error),
}

/// What an earlier build left of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    New,
    /// Its memory alone: somebody took the folder away, or the build was killed.
    Gone,
    /// All of it.
    Kept(AnswerState),
}

/// What an answer is rendered from: the recipe's settings with their defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    mode: Mode,
    hostname: Option<ComputerName>,
    username: AccountName,
    locale: LanguageTag,
    time_zone: TimeZone,
    /// Of an installation only.
    install: Option<Install>,
}

impl Settings {
    /// The recipe's settings for one answer.
    pub fn of(recipe: &Recipe, mode: Mode) -> Result<Self, AnswersError> {
        let (hostname, username, locale, time_zone) = match mode {
            Mode::Install => {
                let install = &recipe.install;
                (&install.hostname, &install.username, &install.locale, &install.time_zone)
            }
            Mode::Clone => {
                let clone = &recipe.clone;
                (&clone.hostname, &clone.username, &clone.locale, &clone.time_zone)
            }
        };
        let install = match mode {
            Mode::Install => Some(Install {
                image: ImageChoice::Name(image_name(recipe)?),
                product_key: None,
                driver_folder: recipe
                    .media
                    .virtio
                    .expect
                    .os
                    .unwrap_or(VirtioOs::Windows11)
                    .folder()
                    .parse()?,
            }),
            Mode::Clone => None,
        };
        Ok(Self {
            mode,
            hostname: hostname.clone(),
            username: username.clone().map_or_else(|| DEFAULT_USERNAME.parse(), Ok)?,
            locale: locale.clone().map_or_else(|| "en-US".parse(), Ok)?,
            time_zone: time_zone.clone().map_or_else(|| "UTC".parse(), Ok)?,
            install,
        })
    }

    fn key(&self) -> Result<Key, serde_json::Error> {
        let image = self.install.as_ref().map(|install| match &install.image {
            ImageChoice::Name(name) => name.to_string(),
            ImageChoice::Index(index) => index.to_string(),
        });
        Key::of(&(
            self.mode,
            self.hostname.as_ref().map(ComputerName::as_str),
            self.username.as_str(),
            self.locale.as_str(),
            self.time_zone.as_str(),
            image,
            self.install.as_ref().map(|install| install.driver_folder.as_str()),
        ))
    }

    /// Looks for the answer in the build folder; refused where it is there, but is not what would be rendered.
    pub fn find(&self, folder: &Path, state: &State) -> Result<Found, AnswersError> {
        let path = folder.join(self.mode.folder());
        let remembered = self.mode.remembered(state);
        if path.symlink_metadata().is_err_and(|e| e.kind() == ErrorKind::NotFound) {
            return Ok(if remembered.is_some() { Found::Gone } else { Found::New });
        }
        let folder = path.display().to_string();
        let Some(answer) = remembered else {
            let why = "no build here remembers having rendered it".into();
            return Err(AnswersError::Unfit { folder, why });
        };
        if answer.made_from != self.key()? {
            return Err(AnswersError::OtherSettings { folder });
        }
        match kept::check(&path, answer) {
            Ok(()) => Ok(Found::Kept(answer.clone())),
            Err(why) => Err(AnswersError::Unfit { folder, why }),
        }
    }

    /// Renders the answer into the build folder, with credentials of its own.
    pub fn render(&self, folder: &Folder, state: &mut State) -> Result<AnswerState, AnswersError> {
        let computer_name = match &self.hostname {
            Some(name) => name.clone(),
            None => random_computer_name()?,
        };
        let name = self.username.clone();
        let password = Password::generate(&name)?;
        let system = System {
            computer_name,
            account: Account { name, password },
            locale: Locale::of(&self.locale),
            time_zone: self.time_zone.clone(),
        };
        let files = match &self.install {
            Some(install) => render_install(&system, install)?,
            None => render_clone(&system)?,
        };
        let answer = AnswerState {
            made_from: self.key()?,
            hostname: system.computer_name.to_string(),
            username: self.username.to_string(),
        };
        // Remembered first: the folder then appears whole, so whether it is there says whether this was done.
        self.mode.remember(state, answer.clone());
        state.save(folder)?;
        let secret = SecretName {
            namespace: "default".parse()?,
            name: format!("{}-bootstrap", answer.hostname).to_lowercase().parse()?,
        };
        write_bootstrap(&folder.join(self.mode.folder()), &secret, &files, &system)?;
        Ok(answer)
    }
}

/// The image the recipe installs, or else the one it expects on the medium.
fn image_name(recipe: &Recipe) -> Result<ImageName, AnswersError> {
    let expected = recipe.media.windows.expect.name.as_ref();
    recipe.install.image_name.as_ref().or(expected).cloned().ok_or(AnswersError::NoImageName)
}
