//! What Windows asks of a password.

use thiserror::Error;

use super::AccountName;

/// The longest password Setup takes, in UTF-16 code units.
pub const MAX_PASSWORD_UNITS: usize = 127;

/// Why Windows, or what carries a password there, would not take it. Never holds the password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PasswordProblem {
    /// There is none.
    #[error("the password is empty")]
    Empty,
    /// What `echo` and editors leave behind.
    #[error("the password ends in a newline; write it without one (printf %s instead of echo)")]
    TrailingNewline,
    /// A character that cannot be typed.
    #[error("the password holds a control character")]
    Control,
    /// A blank that an XML reader may take away.
    #[error("the password begins or ends in a blank, which may be lost on the way")]
    OuterBlank,
    /// Longer than Setup takes.
    #[error("the password has {units} UTF-16 units, and Windows Setup takes {MAX_PASSWORD_UNITS}")]
    TooLong {
        /// Its length in UTF-16 code units.
        units: usize,
    },
    /// Fewer than three of the four classes.
    #[error("the password needs three of: a capital letter, a small letter, a digit, another character")]
    TooFewClasses,
    /// The account's name is in it, in whatever case.
    #[error("the password holds the name of its account")]
    HoldsAccountName,
}

/// Checks a password by the rules of Windows' password policy.
///
/// As in Windows, an account name shorter than three characters is not searched for.
pub fn check_password(password: &str, account: &AccountName) -> Result<(), PasswordProblem> {
    if password.is_empty() {
        return Err(PasswordProblem::Empty);
    }
    if password.ends_with(['\n', '\r']) {
        return Err(PasswordProblem::TrailingNewline);
    }
    if password.contains(char::is_control) {
        return Err(PasswordProblem::Control);
    }
    if password.starts_with(char::is_whitespace) || password.ends_with(char::is_whitespace) {
        return Err(PasswordProblem::OuterBlank);
    }
    let units = password.encode_utf16().count();
    if units > MAX_PASSWORD_UNITS {
        return Err(PasswordProblem::TooLong { units });
    }
    if classes(password) < 3 {
        return Err(PasswordProblem::TooFewClasses);
    }
    if account.as_str().len() >= 3 && contains_ignoring_case(password, account.as_str()) {
        return Err(PasswordProblem::HoldsAccountName);
    }
    Ok(())
}

/// How many of the four classes a password has.
///
/// Letters without case count with the other characters; Windows counts them apart, so it may see more classes
/// than this, never fewer. Signs outside ASCII (currency, emoji) count for nothing, as in Windows.
pub(crate) fn classes(password: &str) -> usize {
    let caseless = |c: char| c.is_alphabetic() && !c.is_uppercase() && !c.is_lowercase();
    [
        password.contains(char::is_uppercase),
        password.contains(char::is_lowercase),
        password.contains(|c: char| c.is_ascii_digit()),
        password.contains(|c: char| c.is_ascii_punctuation() || caseless(c)),
    ]
    .into_iter()
    .filter(|present| *present)
    .count()
}

fn contains_ignoring_case(haystack: &str, ascii: &str) -> bool {
    haystack.as_bytes().windows(ascii.len()).any(|part| part.eq_ignore_ascii_case(ascii.as_bytes()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn check(password: &str) -> Result<(), PasswordProblem> {
        check_password(password, &"workspace".parse().unwrap())
    }

    #[test]
    fn what_windows_takes_passes() {
        for password in ["Ab1", "pass Word-", "&<>\"'aB", "Ümlaut1", "aB日", "1日a", "😀Ab1"] {
            assert_eq!(check(password), Ok(()), "{password}");
        }
        assert_eq!(check(&format!("aB1{}", "x".repeat(124))), Ok(()));
    }

    #[test]
    fn what_windows_refuses_is_named() {
        assert_eq!(check(""), Err(PasswordProblem::Empty));
        assert_eq!(check("Secret1!\n"), Err(PasswordProblem::TrailingNewline));
        assert_eq!(check("Secret1!\r\n"), Err(PasswordProblem::TrailingNewline));
        assert_eq!(check("Sec\tret1!"), Err(PasswordProblem::Control));
        assert_eq!(check("Sec\u{9f}ret1!"), Err(PasswordProblem::Control));
        assert_eq!(check(" Secret1!"), Err(PasswordProblem::OuterBlank));
        assert_eq!(check("Secret1!\u{a0}"), Err(PasswordProblem::OuterBlank));
        assert_eq!(check(&"aB1".repeat(43)), Err(PasswordProblem::TooLong { units: 129 }));
        // One character outside the basic plane is two units.
        assert_eq!(check(&format!("aB1{}", "😀".repeat(63))), Err(PasswordProblem::TooLong { units: 129 }));
        for password in ["secret", "Secret", "secret1", "12-34", "a😀1", "aé"] {
            assert_eq!(check(password), Err(PasswordProblem::TooFewClasses), "{password}");
        }
        assert_eq!(check("My-WorkSpace-1"), Err(PasswordProblem::HoldsAccountName));
        assert_eq!(check_password("Ab-1", &"ab".parse().unwrap()), Ok(()));
    }
}
