//! Processor architectures, by the names and numbers that Windows has for them.

use std::fmt;

use serde::{Serialize, Serializer};

/// A processor architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// 32-bit x86.
    X86,
    /// 32-bit ARM.
    Arm,
    /// 64-bit x86.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Architecture {
    /// By the number that WIM archives have (`PROCESSOR_ARCHITECTURE_*` of the Windows SDK).
    pub fn of_wim(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::X86,
            5 => Self::Arm,
            9 => Self::Amd64,
            12 => Self::Arm64,
            _ => return None,
        })
    }

    /// As answer files have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86",
            Self::Arm => "arm",
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Architecture {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
