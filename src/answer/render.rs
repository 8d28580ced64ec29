//! From settings to the files of an answer CD.

use thiserror::Error;
use zeroize::Zeroizing;

use super::credentials::Password;
use super::template::{TemplateError, Values, fill};
use super::xml;
use crate::windows::{
    AccountName, ComputerName, DriverFolder, ImageName, InputLocale, LanguageTag, ProductKey, TimeZone,
};

const INSTALL: &str = include_str!("../../answer-templates/install.xml");
const CLONE: &str = include_str!("../../answer-templates/clone.xml");
const CONFIGURE: &str = include_str!("../../answer-templates/configure.ps1");

/// Drive letters the driver medium may have in Setup. X: is Windows PE itself.
const WINPE_LETTERS: std::ops::RangeInclusive<char> = 'D'..='J';
/// What Setup itself needs: the disk, on whichever VirtIO bus, and the network card.
const WINPE_DRIVERS: [&str; 3] = ["viostor", "vioscsi", "NetKVM"];

/// Why no answer file was made.
#[derive(Debug, Error)]
pub enum AnswerError {
    /// Windows would refuse the name in the middle of Setup.
    #[error("the computer and an account are both named {name}; Windows refuses that: name one differently")]
    SameName {
        /// The name.
        name: ComputerName,
    },
    /// The template can't be filled with these values.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// Writing to memory failed.
    #[error("the answer file can't be written as XML")]
    Write(#[source] std::io::Error),
    /// What was written does not read back as what was meant.
    #[error("the answer file does not read back as it was meant; this is a bug in sealroot")]
    Changed,
}

/// Languages and formats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locale {
    /// The display language; it must be on the medium.
    pub ui_language: LanguageTag,
    /// The language of programs that know no Unicode.
    pub system_locale: LanguageTag,
    /// Formats of dates, numbers, money.
    pub user_locale: LanguageTag,
    /// Keyboards.
    pub input_locale: InputLocale,
}

impl Locale {
    /// All four of one language.
    pub fn of(tag: &LanguageTag) -> Self {
        Self {
            ui_language: tag.clone(),
            system_locale: tag.clone(),
            user_locale: tag.clone(),
            input_locale: tag.clone().into(),
        }
    }
}

/// A local administrator.
#[derive(Debug)]
pub struct Account {
    /// Its name.
    pub name: AccountName,
    /// Its password.
    pub password: Password,
}

/// What an installation and a clone both set.
#[derive(Debug)]
pub struct System {
    /// The computer's name.
    pub computer_name: ComputerName,
    /// The one local administrator.
    pub account: Account,
    /// Languages and formats.
    pub locale: Locale,
    /// The time zone.
    pub time_zone: TimeZone,
}

/// Which image of the WIM is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageChoice {
    /// By its exact NAME.
    Name(ImageName),
    /// By its index, from 1.
    Index(std::num::NonZeroU32),
}

/// What only an installation sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Install {
    /// The image.
    pub image: ImageChoice,
    /// The key Setup is given; evaluation and single-edition volume media need none.
    pub product_key: Option<ProductKey>,
    /// The driver medium's folder for this Windows.
    pub driver_folder: DriverFolder,
}

/// One file of an answer CD.
pub struct AnswerFile {
    /// Its name in the CD's root.
    pub name: &'static str,
    /// Its text, ASCII; the answer file holds the password.
    pub content: Zeroizing<String>,
}

/// The files of an answer CD, the answer file first.
pub struct AnswerFiles(Vec<AnswerFile>);

impl AnswerFiles {
    /// The name of the answer file: one of the two that Setup looks for, and that KubeVirt asks for.
    pub const ANSWER_FILE: &str = "autounattend.xml";

    /// Every file.
    pub fn iter(&self) -> impl Iterator<Item = &AnswerFile> {
        self.0.iter()
    }
}

/// Renders the answer CD of an installation.
pub fn render_install(system: &System, install: &Install) -> Result<AnswerFiles, AnswerError> {
    let (key, image) = match &install.image {
        ImageChoice::Name(name) => ("/IMAGE/NAME", name.to_string()),
        ImageChoice::Index(index) => ("/IMAGE/INDEX", index.to_string()),
    };
    let folder = &install.driver_folder;
    let values = values(system)
        .text("image-key", key)
        .text("image", image)
        .optional("product-key", install.product_key.as_ref().map(ProductKey::as_str))
        .text("driver-folder", folder.as_str())
        .text("find-drivers-command", find_drivers_command(folder))
        .text("configure-command", configure_command(folder))
        .list("winpe-drivers", winpe_drivers(folder));
    let configure = AnswerFile { name: "configure.ps1", content: Zeroizing::new(CONFIGURE.to_owned()) };
    Ok(AnswerFiles(vec![answer_file(system, INSTALL, &values)?, configure]))
}

/// Renders the answer CD of a clone's first boot.
pub fn render_clone(system: &System) -> Result<AnswerFiles, AnswerError> {
    Ok(AnswerFiles(vec![answer_file(system, CLONE, &values(system))?]))
}

fn values(system: &System) -> Values {
    let locale = &system.locale;
    Values::default()
        .text("hostname", system.computer_name.as_str())
        .text("username", system.account.name.as_str())
        .text("password", system.account.password.expose())
        .text("time-zone", system.time_zone.as_str())
        .text("ui-language", locale.ui_language.as_str())
        .text("system-locale", locale.system_locale.as_str())
        .text("user-locale", locale.user_locale.as_str())
        .text("input-locale", locale.input_locale.as_str())
}

/// Every driver by every letter, each with a key of its own.
fn winpe_drivers(folder: &DriverFolder) -> Vec<Values> {
    WINPE_LETTERS
        .flat_map(|letter| WINPE_DRIVERS.map(move |driver| format!("{letter}:\\{driver}\\{folder}\\amd64")))
        .zip(1..)
        .map(|(path, number)| Values::default().text("path", path).text("number", number.to_string()))
        .collect()
}

/// Names the driver medium V:, for the offlineServicing pass, and loads the disk's driver before Setup looks for
/// disks: commands run before Setup loads the drivers of its own list.
fn find_drivers_command(folder: &DriverFolder) -> String {
    let inf = format!("%d:\\viostor\\{folder}\\amd64\\viostor.inf");
    format!(
        "cmd /c for %d in (C D E F G H I J K) do if exist {inf} if not exist V:\\ (subst V: %d:\\ & drvload {inf})"
    )
}

/// Runs the script from the answer CD, whatever its letter, and ends with its exit code; without the script, in 3.
fn configure_command(folder: &DriverFolder) -> String {
    format!(
        "cmd /c \"(for %d in (D E F G H I J K) do if exist %d:\\configure.ps1 \
         (powershell -NoProfile -ExecutionPolicy Bypass -File %d:\\configure.ps1 -DriverFolder {folder} & exit)) \
         & exit 3\""
    )
}

fn answer_file(system: &System, template: &str, values: &Values) -> Result<AnswerFile, AnswerError> {
    if system.computer_name.clashes_with(&system.account.name) {
        return Err(AnswerError::SameName { name: system.computer_name.clone() });
    }
    let meant = fill(&xml::parse(template).map_err(TemplateError::from)?, values)?;
    let bytes = xml::write(&meant).map_err(AnswerError::Write)?;
    let text = str::from_utf8(&bytes).map_err(|_| AnswerError::Changed)?;
    if xml::parse(text).ok().as_ref() != Some(&meant) {
        return Err(AnswerError::Changed);
    }
    Ok(AnswerFile { name: AnswerFiles::ANSWER_FILE, content: Zeroizing::new(text.to_owned()) })
}
