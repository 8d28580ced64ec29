//! Names that Windows Setup takes, each a type that can only hold a good one.
//!
//! Rules: Microsoft's unattend reference and the SAM's limits. Where Windows allows more than a command line or
//! a DNS name does, the narrower rule holds, so that one name works everywhere.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Why a text can't be the name it was given as.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{value:?} is not {kind}: {why}")]
pub struct NameError {
    value: String,
    kind: &'static str,
    why: &'static str,
}

/// A name with a rule: a text type, and a function that says what is wrong with a text.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $rule:path) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name(String);

        impl $name {
            /// The name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                match $rule(text) {
                    None => Ok(Self(text.to_owned())),
                    Some(why) => Err(NameError { value: text.to_owned(), kind: $kind, why }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// A computer's name: 1 to 15 letters, digits and inner hyphens, a letter first.
    ///
    /// 15 is the NetBIOS limit. A longer name is refused, never cut: two cut names could be the same.
    ComputerName, "a computer name", computer_name
}

name! {
    /// A local account's name: 1 to 20 letters, digits, `_` and `-`, a letter first, none that Windows keeps.
    ///
    /// 20 is the SAM's limit.
    AccountName, "an account name", account_name
}

name! {
    /// The NAME of an image in a WIM, exactly as it stands there (`Windows 11 Pro`).
    ImageName, "an image name", image_name
}

name! {
    /// A time zone as Windows names it (`UTC`, `W. Europe Standard Time`); at most 256 characters.
    TimeZone, "a Windows time zone", time_zone
}

name! {
    /// A language or locale tag (`en-US`, `sr-Latn-RS`, `es-ES_tradnl`).
    LanguageTag, "a language tag", language_tag
}

name! {
    /// Keyboards: language tags or `LCID:layout` pairs, joined by `;` (`0409:00000409;de-DE`).
    InputLocale, "an input locale", input_locale
}

name! {
    /// The folder that the driver medium keeps for one Windows version (`w11`, `2k22`).
    DriverFolder, "a driver folder", driver_folder
}

impl ComputerName {
    /// Whether an account has the same name: Windows tells neither case nor kind apart, and Setup fails with
    /// 0x8007056b.
    pub fn clashes_with(&self, account: &AccountName) -> bool {
        self.0.eq_ignore_ascii_case(&account.0)
    }
}

impl From<LanguageTag> for InputLocale {
    fn from(tag: LanguageTag) -> Self {
        Self(tag.0)
    }
}

/// A product key, five groups of five. `Debug` does not show it: a volume key is worth money.
#[derive(Clone, PartialEq, Eq)]
pub struct ProductKey(String);

impl ProductKey {
    /// The key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ProductKey {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let mut groups = 0;
        let good = text.split('-').all(|group| {
            groups += 1;
            group.len() == 5 && group.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
        });
        if good && groups == 5 {
            return Ok(Self(text.to_owned()));
        }
        // What was given may be a key with a slip in it, so it is not repeated.
        Err(NameError {
            value: "the text given".to_owned(),
            kind: "a product key",
            why: "a key is five groups of five capital letters and digits, joined by hyphens",
        })
    }
}

impl fmt::Debug for ProductKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProductKey(..)")
    }
}

/// Accounts that every Windows has or keeps for itself, in lower case.
const RESERVED: [&str; 9] = [
    "administrator",
    "guest",
    "defaultaccount",
    "wdagutilityaccount",
    "wsiaccount",
    "system",
    "network service",
    "local service",
    "none",
];

fn computer_name(name: &str) -> Option<&'static str> {
    if name.is_empty() || name.len() > 15 {
        return Some("it must have 1 to 15 characters, and is never cut to fit");
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Some("it must begin with a letter from A to Z");
    }
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Some("only the letters A to Z, digits and hyphens are allowed");
    }
    name.ends_with('-').then_some("it must not end in a hyphen")
}

fn account_name(name: &str) -> Option<&'static str> {
    if name.is_empty() || name.len() > 20 {
        return Some("it must have 1 to 20 characters");
    }
    if RESERVED.contains(&name.to_ascii_lowercase().as_str()) {
        return Some("Windows keeps that name for itself");
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Some("it must begin with a letter from A to Z");
    }
    let good = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    (!good).then_some("only the letters A to Z, digits, underscores and hyphens are allowed")
}

fn image_name(name: &str) -> Option<&'static str> {
    if name.trim().is_empty() {
        return Some("it must not be empty");
    }
    name.contains(char::is_control).then_some("it must not hold control characters")
}

fn time_zone(name: &str) -> Option<&'static str> {
    if name.trim().is_empty() || name.chars().count() > 256 {
        return Some("it must have 1 to 256 characters");
    }
    if name.contains('/') {
        return Some(
            "that looks like an IANA zone; Windows has names of its own (`tzutil /l` lists them), such as UTC",
        );
    }
    name.contains(char::is_control).then_some("it must not hold control characters")
}

fn language_tag(tag: &str) -> Option<&'static str> {
    let mut parts = tag.split(['-', '_']);
    let language = parts.next().unwrap_or_default();
    let good = (2..=3).contains(&language.len())
        && language.bytes().all(|b| b.is_ascii_alphabetic())
        && parts.all(|part| (1..=8).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric()));
    (!good).then_some("a tag looks like en-US: a language, then parts joined by hyphens")
}

fn input_locale(list: &str) -> Option<&'static str> {
    let good = list.split(';').all(|one| match one.split_once(':') {
        Some((lcid, layout)) => {
            lcid.len() == 4
                && lcid.bytes().all(|b| b.is_ascii_hexdigit())
                && !layout.is_empty()
                // A layout is 8 hex digits; an input method is two GUIDs in braces.
                && layout.bytes().all(|b| b.is_ascii_hexdigit() || matches!(b, b'{' | b'}' | b'-'))
        }
        None => language_tag(one).is_none(),
    });
    (!good).then_some("it is a language tag or LCID:layout, such as 0409:00000409, several joined by `;`")
}

fn driver_folder(name: &str) -> Option<&'static str> {
    let good = (1..=16).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.');
    (!good || name.starts_with('.')).then_some("it is a folder such as w11: letters, digits and dots")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn good<T: FromStr<Err = NameError>>(texts: &[&str]) {
        for text in texts {
            assert!(text.parse::<T>().is_ok(), "{text:?}");
        }
    }

    fn bad<T: FromStr<Err = NameError>>(texts: &[&str]) {
        for text in texts {
            assert!(text.parse::<T>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn computer_names() {
        good::<ComputerName>(&["a", "KW-0123456789AB", "Desk1", "a-b"]);
        bad::<ComputerName>(&[
            "",
            "KW-0123456789ABC",
            "1desk",
            "-a",
            "a-",
            "a_b",
            "a.b",
            "büro",
            "a b",
            "a&b",
        ]);
        bad::<ComputerName>(&["a\n", "*", "123", "\u{ff21}bc"]);
        let name: ComputerName = "Build".parse().unwrap();
        assert!(name.clashes_with(&"bUILD".parse().unwrap()));
        assert!(!name.clashes_with(&"builder".parse().unwrap()));
    }

    #[test]
    fn account_names() {
        good::<AccountName>(&["workspace", "a", "A_b-1", "abcdefghijklmnopqrst"]);
        bad::<AccountName>(&["", "abcdefghijklmnopqrstu", "1a", "_a", "a.b", "a b", "jörg", "a<b", "a\0"]);
        bad::<AccountName>(&["ADMINISTRATOR", "guest", "None", "System", "defaultaccount", "WsiAccount"]);
        bad::<AccountName>(&["WDAGUtilityAccount", "Network Service", "local service"]);
    }

    #[test]
    fn other_names() {
        good::<ImageName>(&["Windows 11 Pro", "R&D <\"'> Ausführung 日本"]);
        bad::<ImageName>(&["", " ", "a\tb", "a\u{85}"]);
        good::<TimeZone>(&["UTC", "W. Europe Standard Time"]);
        bad::<TimeZone>(&["", "Europe/Berlin", "U\nC"]);
        good::<LanguageTag>(&["en-US", "sr-Latn-RS", "es-ES_tradnl", "de"]);
        bad::<LanguageTag>(&["", "english", "e", "en-", "en US", "en-US;de"]);
        good::<InputLocale>(&["en-US", "0409:00000409", "0409:00000409;de-DE"]);
        good::<InputLocale>(&[
            "0411:{03B5835F-F03C-411B-9CE2-AA23E1171E36}{A76C93D9-5523-4E90-AAFA-4DB112F9AC76}",
        ]);
        bad::<InputLocale>(&["", ";", "409:00000409", "0409:", "0409:x", "en-US;"]);
        good::<DriverFolder>(&["w11", "2k22", "w8.1"]);
        bad::<DriverFolder>(&["", "..", "a b", "a\\b", "w11&del"]);
    }

    #[test]
    fn a_product_key_is_never_shown() {
        let key: ProductKey = "VK7JG-NPHTM-C97JM-9MPGT-3V66T".parse().unwrap();
        assert_eq!(format!("{key:?}"), "ProductKey(..)");
        for slip in ["", "VK7JG", "VK7JG-NPHTM-C97JM-9MPGT-3V66", "vk7jg-NPHTM-C97JM-9MPGT-3V66T"] {
            let error = slip.parse::<ProductKey>().unwrap_err().to_string();
            assert!(slip.is_empty() || !error.contains(slip), "{error}");
        }
    }
}
