//! Names and passwords made for one render, from the system's random source.

use std::fmt;

use rand::TryRng;
use rand::rngs::{SysError, SysRng};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::windows::{AccountName, ComputerName, NameError, PasswordProblem, check_password};

/// Why no credentials could be made.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// The system's random source gave nothing.
    #[error("the system's random source can't be read")]
    Random(#[source] SysError),
    /// A name that was made breaks the rules.
    #[error("the name made is not usable")]
    Name(#[from] NameError),
}

/// How long a generated password is.
const LENGTH: usize = 24;

/// 63 characters that no one takes for another (no `0Oo`, no `1lI|`), none of which XML or a shell's quotes would
/// have to escape: 24 x log2(63) = 143 bits.
const ALPHABET: &[u8; 63] = b"ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnpqrstuvwxyz23456789#*+-=?@";

/// A password. `Debug` does not show it, and its memory is wiped.
pub struct Password(Zeroizing<String>);

impl Password {
    /// A new one: 24 characters, each class of Windows' policy among them, the account's name not.
    pub fn generate(account: &AccountName) -> Result<Self, CredentialsError> {
        loop {
            let password = random_text()?;
            // Redrawing the whole keeps all good passwords equally likely; nine in ten are good.
            if has_all_classes(&password) && check_password(&password, account).is_ok() {
                return Ok(Self(password));
            }
        }
    }

    /// One that was given, held to Windows' rules.
    pub fn given(text: Zeroizing<String>, account: &AccountName) -> Result<Self, PasswordProblem> {
        check_password(&text, account)?;
        Ok(Self(text))
    }

    /// The password itself, for where it has to be written.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// A computer name of its own for each render: `KW-` and 12 random hex digits.
pub fn random_computer_name() -> Result<ComputerName, CredentialsError> {
    let mut bytes = [0; 6];
    SysRng.try_fill_bytes(&mut bytes).map_err(CredentialsError::Random)?;
    Ok(format!("KW-{}", hex::encode_upper(bytes)).parse()?)
}

fn random_text() -> Result<Zeroizing<String>, CredentialsError> {
    let mut text = Zeroizing::new(String::with_capacity(LENGTH));
    let mut bytes = Zeroizing::new([0; 2 * LENGTH]);
    while text.len() < LENGTH {
        SysRng.try_fill_bytes(bytes.as_mut_slice()).map_err(CredentialsError::Random)?;
        for byte in bytes.iter() {
            // Six bits, drawn again when they are past the alphabet: a remainder would favour its beginning.
            if text.len() < LENGTH
                && let Some(character) = ALPHABET.get(usize::from(byte & 0x3f))
            {
                text.push(char::from(*character));
            }
        }
    }
    Ok(text)
}

fn has_all_classes(password: &str) -> bool {
    let has = |class: fn(&u8) -> bool| password.as_bytes().iter().any(class);
    has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_punctuation)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn generated_passwords_hold_the_rules_and_never_repeat() {
        let account = "workspace".parse().unwrap();
        let mut seen = BTreeSet::new();
        for _ in 0..2000 {
            let password = Password::generate(&account).unwrap();
            let text = password.expose();
            assert!(text.len() >= 24 && has_all_classes(text), "{text}");
            assert!(!text.contains(|c| "0Oo1lI|&<>\"' `".contains(c)), "{text}");
            assert!(seen.insert(text.to_owned()));
            assert!(!format!("{password:?}").contains(text));
        }
    }

    #[test]
    fn no_character_is_favoured() {
        let mut counts = [0u32; 128];
        let mut total = 0u32;
        while total < 200_000 {
            for byte in random_text().unwrap().bytes() {
                counts[usize::from(byte)] += 1;
                total += 1;
            }
        }
        let expected = f64::from(total) / ALPHABET.len() as f64;
        let chi: f64 =
            ALPHABET.iter().map(|c| (f64::from(counts[usize::from(*c)]) - expected).powi(2) / expected).sum();
        assert_eq!(ALPHABET.iter().collect::<BTreeSet<_>>().len(), 63);
        // 62 degrees of freedom: a fair draw stays under 130 but once in a million runs; a remainder of 256 by
        // 63 gives thousands.
        assert!(chi < 130.0, "{chi}");
    }

    #[test]
    fn a_short_account_name_that_is_often_hit_still_ends() {
        let account: AccountName = "aBc".parse().unwrap();
        for _ in 0..200 {
            let password = Password::generate(&account).unwrap();
            assert!(!password.expose().to_ascii_lowercase().contains("abc"));
        }
    }

    #[test]
    fn computer_names_are_valid_and_differ() {
        let names: BTreeSet<_> = (0..500).map(|_| random_computer_name().unwrap().to_string()).collect();
        assert_eq!(names.len(), 500);
        assert!(names.iter().all(|name| name.len() == 15 && name.starts_with("KW-")));
    }
}
