//! What a medium is, by what it holds: never by its label or its file's name.

use super::virtio::DriverMedium;
use super::windows::{MediumError, WindowsMedium};
use crate::io::ReadAt;
use crate::iso::Disc;

/// What a medium holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// Windows, to be installed.
    Windows(Box<WindowsMedium>),
    /// Drivers, as virtio-win's.
    Drivers(Box<DriverMedium>),
    /// Neither.
    Other,
}

impl Contents {
    /// Reads the image in `source`: headers and directories, some ten or hundred KiB.
    pub fn read(source: &dyn ReadAt) -> Result<Self, MediumError> {
        Self::of(&Disc::open(source)?)
    }

    /// The same of a disc that is open.
    pub fn of(disc: &Disc<'_>) -> Result<Self, MediumError> {
        if let Some(windows) = WindowsMedium::read(disc)? {
            return Ok(Self::Windows(Box::new(windows)));
        }
        Ok(match DriverMedium::read(disc)? {
            Some(drivers) => Self::Drivers(Box::new(drivers)),
            None => Self::Other,
        })
    }

    /// Completes "this is ...".
    pub fn what(&self) -> &'static str {
        match self {
            Self::Windows(_) => "a Windows medium",
            Self::Drivers(_) => "a driver medium",
            Self::Other => "a disc image without Windows' images and without drivers",
        }
    }

    /// The versions it holds, as they are known by: builds of its images, or the drivers' release.
    pub fn versions(&self) -> Vec<String> {
        match self {
            Self::Windows(windows) => windows.installable().filter_map(|image| image.build()).collect(),
            Self::Drivers(drivers) => drivers.version.iter().cloned().collect(),
            Self::Other => Vec::new(),
        }
    }
}
