//! Facts about Windows as code: names, passwords and keys, and the rules they follow.

mod architecture;
mod names;
mod password;

pub use architecture::Architecture;
pub use names::{
    AccountName, ComputerName, DriverFolder, ImageName, InputLocale, LanguageTag, NameError, ProductKey,
    TimeZone,
};
pub use password::{MAX_PASSWORD_UNITS, PasswordProblem, check_password};
