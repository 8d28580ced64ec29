//! Answer files: accounts and passwords, templates, and the files a CD needs beside them.
//!
//! [`render_install`] and [`render_clone`] take settings and give [`AnswerFiles`]; nothing is written to disk here.

mod credentials;
mod render;
mod template;

pub use crate::xml::XmlError;
pub use credentials::{CredentialsError, Password, random_computer_name};
pub use render::{
    Account, AnswerError, AnswerFile, AnswerFiles, ImageChoice, Install, Locale, System, render_clone,
    render_install,
};
pub use template::TemplateError;
