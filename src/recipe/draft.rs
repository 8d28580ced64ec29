//! A new recipe's text, from what its media hold.

use toml_edit::{Array, Value};

use super::{DEFAULT_USERNAME, VirtioOs};
use crate::media::wim::Image;
use crate::media::{DriverMedium, Sha256};

/// The drivers that a KubeVirt machine needs: both kinds of disks, network, the agent's channel, memory.
const DRIVERS: [&str; 5] = ["viostor", "vioscsi", "NetKVM", "vioserial", "Balloon"];

/// What a new recipe is made of.
#[derive(Debug)]
pub struct Draft<'d> {
    /// The recipe's name.
    pub name: &'d str,
    /// The Windows medium, as the recipe names it.
    pub windows: (&'d str, Sha256),
    /// The driver medium, as the recipe names it.
    pub virtio: (&'d str, Sha256),
    /// The image to be installed.
    pub image: &'d Image,
    /// What is on the driver medium.
    pub drivers: &'d DriverMedium,
}

/// The folder of drivers for an image, by its kind and build. `None`: virtio-win has none for it.
pub fn driver_folder(image: &Image) -> Option<VirtioOs> {
    let build = image.version.as_ref()?.build;
    let server = image.installation_type.as_deref().is_some_and(|kind| kind.starts_with("Server"));
    Some(match (server, build) {
        (false, 10_240..22_000) => VirtioOs::Windows10,
        (false, 22_000..) => VirtioOs::Windows11,
        (true, 14_393..17_763) => VirtioOs::Server2016,
        (true, 17_763..20_348) => VirtioOs::Server2019,
        (true, 20_348..26_100) => VirtioOs::Server2022,
        (true, 26_100..) => VirtioOs::Server2025,
        _ => return None,
    })
}

impl Draft<'_> {
    /// The recipe's text, whose values are read from the media. Whether it is valid is its reader's to say.
    pub fn to_text(&self) -> String {
        let mut text = Text(String::from("schema = 1\n"));
        text.line("name", self.name);
        text.header("media.windows");
        text.line("file", self.windows.0);
        text.0 += "# Of the file at hand: compare it with its publisher's.\n";
        text.line("sha256", self.windows.1.to_string());
        text.header("media.windows.expect");
        text.0 += "# As the medium has it.\n";
        text.line("name", &self.image.name);
        text.optional("edition_id", self.image.edition_id.as_deref());
        text.optional("architecture", self.image.architecture.map(|architecture| architecture.name()));
        let language =
            self.image.default_language.as_deref().or(self.image.languages.first().map(String::as_str));
        text.optional("language", language);
        if let Some(version) = &self.image.version {
            text.line("wim_build", i64::from(version.build));
        }
        text.0 +=
            "# What the release is called is not on the medium: release = \"24H2\", build = \"26100.1742\"\n";

        text.header("media.virtio");
        text.line("file", self.virtio.0);
        text.line("sha256", self.virtio.1.to_string());
        text.header("media.virtio.expect");
        text.optional("version", self.drivers.version.as_deref());
        if let Some(os) = driver_folder(self.image) {
            text.line("os", os.folder());
            let there =
                DRIVERS.iter().filter(|driver| self.drivers.folder(driver, os.folder(), "amd64").is_some());
            text.line("drivers", Value::Array(there.copied().collect::<Array>()));
        }
        for section in ["install", "clone"] {
            text.header(section);
            text.line("username", DEFAULT_USERNAME);
            text.optional("locale", language);
            text.line("time_zone", "UTC");
        }
        text.header("root");
        text.0 += "# The disk is named with --disk, or here: disk = \"root.qcow2\"\n";
        text.line("first_boot", "answer-cd");
        text.line("drive_letter", "D");
        text.header("image");
        text.line("compression", "zstd");
        text.0 += "# Where the image belongs: repository = \"registry.example.com/private/windows\"\n";
        text.0
    }
}

/// Lines of TOML; values are quoted by its writer.
struct Text(String);

impl Text {
    fn header(&mut self, table: &str) {
        self.0 += &format!("\n[{table}]\n");
    }

    fn line(&mut self, key: &str, value: impl Into<Value>) {
        self.0 += &format!("{key} = {}\n", value.into());
    }

    fn optional(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.line(key, value);
        }
    }
}
