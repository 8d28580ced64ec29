//! From settings to the files of an answer CD.

use thiserror::Error;
use zeroize::Zeroizing;

use super::credentials::Password;
use super::template::{TemplateError, Values, fill};
use crate::windows::{
    AccountName, ComputerName, DriverFolder, ImageName, InputLocale, LanguageTag, ProductKey, TimeZone,
};
use crate::xml;

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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::xml::{Content, Element};

    fn system(password: &str) -> System {
        let name: AccountName = "workspace".parse().unwrap();
        System {
            computer_name: "KW-1".parse().unwrap(),
            account: Account { password: Password::given(password.to_owned().into(), &name).unwrap(), name },
            locale: Locale::of(&"en-US".parse().unwrap()),
            time_zone: "UTC".parse().unwrap(),
        }
    }

    fn install(image: ImageChoice, key: Option<&str>, folder: &str) -> Install {
        let product_key = key.map(|key| key.parse().unwrap());
        Install { image, product_key, driver_folder: folder.parse().unwrap() }
    }

    /// Every shape that is rendered.
    fn all() -> Vec<AnswerFiles> {
        let system = system("&<>\"'aB1 ä日😀x");
        let by_name = ImageChoice::Name("R&D <11> \"日\"".parse().unwrap());
        let by_index = ImageChoice::Index(2.try_into().unwrap());
        vec![
            render_clone(&system).unwrap(),
            render_install(&system, &install(by_name, None, "w11")).unwrap(),
            render_install(
                &system,
                &install(by_index, Some("VK7JG-NPHTM-C97JM-9MPGT-3V66T"), "abcdefghijklmnop"),
            )
            .unwrap(),
        ]
    }

    fn root(files: &AnswerFiles) -> Element {
        let answer = files.iter().next().unwrap();
        assert_eq!(answer.name, "autounattend.xml");
        xml::parse(&answer.content).unwrap()
    }

    fn elements(of: &Element) -> &[Element] {
        match &of.content {
            Content::Elements(elements) => elements,
            Content::Text(_) => &[],
        }
    }

    fn attribute<'a>(of: &'a Element, name: &str) -> &'a str {
        of.attributes.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// The leaves below an element, by path.
    fn leaves<'a>(of: &'a Element, path: &str, into: &mut Vec<(String, &'a str)>) {
        for element in elements(of) {
            let path =
                if path.is_empty() { element.name.clone() } else { format!("{path}/{}", element.name) };
            match &element.content {
                Content::Text(text) => into.push((path, text)),
                Content::Elements(inner) => {
                    assert!(!inner.is_empty(), "{path} is empty");
                    leaves(element, &path, into);
                }
            }
        }
    }

    fn orders_are_unique(of: &Element) {
        let mut seen = BTreeSet::new();
        for element in elements(of) {
            if let Some(order) = elements(element).iter().find(|inner| inner.name == "Order") {
                let Content::Text(order) = &order.content else { panic!("an Order without a number") };
                let order: u32 = order.parse().unwrap();
                assert!((1..=500).contains(&order) && seen.insert((&element.name, order)), "{element:?}");
            }
            let key = attribute(element, "wcm:keyValue");
            assert!(key.is_empty() || seen.insert((&element.name, key.parse().unwrap())), "{element:?}");
            orders_are_unique(element);
        }
    }

    fn value(files: &AnswerFiles, wanted: &str) -> Option<String> {
        let root = root(files);
        let mut all = Vec::new();
        leaves(&root, "", &mut all);
        all.into_iter().find(|(path, _)| path.ends_with(wanted)).map(|(_, text)| text.to_owned())
    }

    #[test]
    fn the_envelope_and_what_must_be_unique() {
        for files in all() {
            let root = root(&files);
            assert_eq!(root.name, "unattend");
            assert_eq!(
                root.attributes,
                [
                    ("xmlns".into(), "urn:schemas-microsoft-com:unattend".into()),
                    ("xmlns:wcm".into(), "http://schemas.microsoft.com/WMIConfig/2002/State".into())
                ] as [(String, String); 2]
            );
            let mut seen = BTreeSet::new();
            for settings in elements(&root) {
                assert_eq!(settings.name, "settings");
                for component in elements(settings) {
                    assert_eq!(component.name, "component");
                    assert!(seen.insert((attribute(settings, "pass"), attribute(component, "name"))));
                    for (name, value) in [
                        ("processorArchitecture", "amd64"),
                        ("publicKeyToken", "31bf3856ad364e35"),
                        ("language", "neutral"),
                        ("versionScope", "nonSxS"),
                    ] {
                        assert_eq!(attribute(component, name), value);
                    }
                }
            }
            orders_are_unique(&root);
        }
    }

    #[test]
    fn values_stand_where_windows_looks_for_them() {
        let all = all();
        for files in &all {
            assert_eq!(value(files, "/Password/Value").unwrap(), "&<>\"'aB1 ä日😀x");
            assert_eq!(value(files, "/LocalAccount/Name").unwrap(), "workspace");
            assert_eq!(value(files, "/ComputerName").unwrap(), "KW-1");
            assert_eq!(value(files, "/TimeZone").unwrap(), "UTC");
            assert_eq!(value(files, "/PreventDeviceEncryption").unwrap(), "true");
            assert!(value(files, "/AutoLogon/Enabled").is_none());
        }
        let [clone, by_name, by_index] = all.as_slice() else { panic!() };
        assert_eq!(clone.iter().count(), 1);
        assert!(value(clone, "/AcceptEula").is_none(), "a clone has no windowsPE pass");
        assert_eq!(value(by_name, "/MetaData/Key").unwrap(), "/IMAGE/NAME");
        assert_eq!(value(by_name, "/MetaData/Value").unwrap(), "R&D <11> \"日\"");
        assert!(value(by_name, "/ProductKey/Key").is_none());
        assert_eq!(value(by_index, "/MetaData/Key").unwrap(), "/IMAGE/INDEX");
        assert_eq!(value(by_index, "/MetaData/Value").unwrap(), "2");
        assert_eq!(value(by_index, "/ProductKey/Key").unwrap(), "VK7JG-NPHTM-C97JM-9MPGT-3V66T");
        let script = by_name.iter().nth(1).unwrap();
        assert_eq!(script.name, "configure.ps1");
        assert!(script.content.is_ascii() && !script.content.contains("aB1"));
    }

    /// A folder beside the checkout that is not part of the repository.
    fn shared() -> Option<PathBuf> {
        let folder = std::env::var_os("SEALROOT_SHARED")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
        folder.is_dir().then_some(folder)
    }

    #[test]
    fn every_setting_is_one_that_windows_has_in_that_pass() {
        let Some(shared) = shared() else {
            eprintln!("skipped: the shared folder with Microsoft's reference is not here");
            return;
        };
        let table = std::fs::read_to_string(shared.join("data/unattend-settings.tsv")).unwrap();
        let known: BTreeMap<_, _> = table
            .lines()
            .map(|line| line.split('\t').collect::<Vec<_>>())
            .map(|row| ((row[0], row[1]), (row[2], row[3], row[4])))
            .collect();
        let mut checked = 0;
        for files in all() {
            let root = root(&files);
            for settings in elements(&root) {
                let pass = attribute(settings, "pass");
                for component in elements(settings) {
                    let name = attribute(component, "name");
                    let mut all = Vec::new();
                    leaves(component, "", &mut all);
                    for (path, text) in all {
                        let Some((passes, kind, constraints)) = known.get(&(name, path.as_str())) else {
                            panic!("{name} has no {path}")
                        };
                        assert!(passes.split(',').any(|one| one == pass), "{name} {path} in {pass}");
                        match *kind {
                            "boolean" => assert!(text == "true" || text == "false", "{path}: {text}"),
                            "integer" => drop(text.parse::<u32>().unwrap()),
                            "enum" => {
                                let list = constraints.split("values: ").nth(1).unwrap();
                                let list = list.split(';').next().unwrap();
                                assert!(list.split('|').any(|one| one == text), "{path}: {text} in {list}");
                            }
                            _ => {}
                        }
                        let longest =
                            constraints.split("max ").nth(1).and_then(|rest| rest.split(' ').next());
                        let longest = longest.map_or(255, |longest| longest.parse().unwrap());
                        assert!(text.chars().count() <= longest, "{path} has more than {longest}: {text}");
                        checked += 1;
                    }
                }
            }
        }
        assert!(checked > 150, "{checked}");
    }

    #[test]
    fn one_name_for_computer_and_account_is_refused() {
        let mut system = system("Secret-1");
        system.computer_name = "WorkSpace".parse().unwrap();
        assert!(matches!(render_clone(&system), Err(AnswerError::SameName { .. })));
    }

    #[test]
    fn a_password_that_xml_cannot_hold_is_refused_without_being_shown() {
        let Err(error) = render_clone(&system("Secret-1\u{ffff}")) else { panic!("it was rendered") };
        let said = error.to_string();
        assert!(said.contains("password") && said.contains("U+FFFF") && !said.contains("Secret"), "{said}");
    }
}
