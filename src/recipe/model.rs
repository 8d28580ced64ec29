//! A recipe's values. Every doc comment here is also what editors show, through the JSON Schema.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

use super::problem::Place;
use super::rules::pattern;
use crate::media::{PinnedFile, Sha256};
use crate::root::audit::{CHECKS, ExpectedWindows, Severity};
use crate::root::{self, Policy};
use crate::windows::{AccountName, ComputerName, ImageName, LanguageTag, TimeZone};

/// A Sealroot recipe: which media are used, and what is made of them.
#[derive(Debug, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Recipe {
    /// The version of this format.
    #[schemars(range(min = 1, max = 1))]
    pub schema: u32,
    /// Files whose tables lie under this recipe's, from its folder: what stands here goes before what stands there,
    /// and a later file before an earlier one. They hold tables alone, no pins, and include nothing themselves.
    #[schemars(default, with = "Vec<String>", length(max = 8))]
    pub include: Vec<Included>,
    /// Names what is made of this recipe: a DNS label.
    #[schemars(regex(pattern = pattern::DNS_LABEL))]
    pub name: String,
    /// The installation media, each pinned by its hash.
    pub media: Media,
    /// What the installation's answer file says.
    #[schemars(default)]
    pub install: Install,
    /// What a clone's answer file says.
    #[schemars(default)]
    pub clone: CloneSettings,
    /// The installed, generalised root disk.
    #[schemars(default)]
    pub root: Root,
    /// What the root is held to before it is published.
    #[schemars(default)]
    pub audit: AuditRules,
    /// The image that is made of the root disk.
    #[schemars(default)]
    pub image: Image,
    /// The recipe's file.
    #[schemars(skip)]
    pub file: PathBuf,
    /// SHA-256 of the file's bytes, without overrides.
    #[schemars(skip)]
    pub file_sha256: Sha256,
}

/// A file that a recipe includes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Included {
    /// Its name, as the recipe has it.
    pub name: PathBuf,
    /// SHA-256 of its bytes.
    pub sha256: Sha256,
}

impl Recipe {
    /// SHA-256 of all that the recipe says, without overrides: of its file; where it includes others, of what
    /// `sha256sum` prints for it and for them, in their order and by the names that the recipe has for them.
    pub fn sha256(&self) -> Sha256 {
        if self.include.is_empty() {
            return self.file_sha256;
        }
        let own = Path::new(self.file.file_name().unwrap_or_default());
        let included = self.include.iter().map(|file| (file.name.as_path(), file.sha256));
        let list = std::iter::once((own, self.file_sha256)).chain(included);
        let list: String = list.map(|(name, sha256)| format!("{sha256}  {}\n", name.display())).collect();
        Sha256::of(list.as_bytes())
    }

    /// A file that the recipe names: names start from the recipe's own folder.
    pub fn path(&self, name: &Path) -> PathBuf {
        super::source::folder(&self.file).join(name)
    }

    /// How a clone of this recipe first boots.
    pub fn first_boot(&self) -> root::FirstBoot {
        match self.root.first_boot {
            FirstBoot::AnswerCd => root::FirstBoot::AnswerCd { drive: self.root.drive_letter },
            FirstBoot::CloudbaseInit => root::FirstBoot::CloudbaseInit,
            FirstBoot::None => root::FirstBoot::Nothing,
        }
    }

    /// What this recipe's root is held to.
    pub fn policy(&self) -> Policy {
        let expect = &self.media.windows.expect;
        Policy {
            first_boot: Some(self.first_boot()),
            expected: ExpectedWindows {
                edition_id: expect.edition_id.clone(),
                build: expect.build.clone(),
                architecture: expect.architecture.map(|architecture| architecture.name().to_owned()),
                language: expect.language.as_ref().map(ToString::to_string),
            },
            allow: self.audit.allow.clone(),
            require: self.audit.require.clone(),
        }
    }

    /// Both media with their pins, Windows first. Where a `media_dir` is given, they are looked for right in it, by the
    /// last part of their names.
    pub fn pinned(&self, media_dir: Option<&Path>) -> [PinnedFile; 2] {
        let medium = |file: &Path, sha256| PinnedFile {
            path: media_dir
                .and_then(|folder| Some(folder.join(file.file_name()?)))
                .unwrap_or_else(|| self.path(file)),
            sha256,
        };
        let Media { windows, virtio } = &self.media;
        [medium(&windows.file, windows.sha256), medium(&virtio.file, virtio.sha256)]
    }
}

/// The installation media, each pinned by its hash.
#[derive(Debug, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Media {
    /// The Windows installation ISO.
    pub windows: Medium<WindowsExpect>,
    /// The virtio-win driver ISO.
    pub virtio: Medium<VirtioExpect>,
}

/// A pinned file.
#[derive(Debug, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "{E}Medium")]
pub struct Medium<E: Default> {
    /// The file, from the recipe's folder; by the last part of its name in `--media-dir`.
    #[schemars(with = "String", length(min = 1))]
    pub file: PathBuf,
    /// SHA-256 of the file, as 64 hexadecimal digits.
    pub sha256: Sha256,
    /// What is on the medium.
    #[schemars(default)]
    pub expect: E,
    /// Where the pin stands.
    #[schemars(skip)]
    pub pin_at: Place,
}

/// What is on a Windows medium.
#[derive(Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct WindowsExpect {
    /// The image's exact NAME in install.wim, which is not always its DISPLAYNAME.
    #[schemars(with = "Option<String>")]
    pub name: Option<ImageName>,
    /// The image's EDITIONID, as `Professional`.
    #[schemars(regex(pattern = pattern::WORD))]
    pub edition_id: Option<String>,
    /// The image's architecture.
    pub architecture: Option<Architecture>,
    /// The image's language, as `en-US`.
    #[schemars(with = "Option<String>", regex(pattern = pattern::LANGUAGE))]
    pub language: Option<LanguageTag>,
    /// BUILD in install.wim. Releases that are enablement packages carry the build they are based on.
    #[schemars(range(min = 6000, max = 99999))]
    pub wim_build: Option<u32>,
    /// The release, as `24H2`; not on the medium, so that the pin alone stands for it.
    #[schemars(regex(pattern = pattern::WORD))]
    pub release: Option<String>,
    /// The release's build, as `26100.1742`; not on the medium, so that the pin alone stands for it.
    #[schemars(regex(pattern = pattern::BUILD))]
    pub build: Option<String>,
}

/// A processor architecture, as Windows calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(rename_all = "lowercase")]
pub enum Architecture {
    /// 64-bit x86.
    Amd64,
}

impl Architecture {
    /// As answer files have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
        }
    }
}

/// What is on a virtio-win medium.
#[derive(Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields, default)]
pub struct VirtioExpect {
    /// The drivers' version, as `0.1.285`.
    #[schemars(regex(pattern = pattern::VIRTIO_VERSION))]
    pub version: Option<String>,
    /// The folder of the recipe's Windows below each driver's.
    pub os: Option<VirtioOs>,
    /// The drivers that must be there for that Windows, by folder.
    #[schemars(inner(regex(pattern = pattern::WORD)))]
    pub drivers: Vec<String>,
}

/// A Windows, as virtio-win names its folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub enum VirtioOs {
    /// Windows 10.
    #[schemars(rename = "w10")]
    Windows10,
    /// Windows 11.
    #[schemars(rename = "w11")]
    Windows11,
    /// Windows Server 2016.
    #[schemars(rename = "2k16")]
    Server2016,
    /// Windows Server 2019.
    #[schemars(rename = "2k19")]
    Server2019,
    /// Windows Server 2022.
    #[schemars(rename = "2k22")]
    Server2022,
    /// Windows Server 2025.
    #[schemars(rename = "2k25")]
    Server2025,
}

impl VirtioOs {
    /// The folder's name.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Windows10 => "w10",
            Self::Windows11 => "w11",
            Self::Server2016 => "2k16",
            Self::Server2019 => "2k19",
            Self::Server2022 => "2k22",
            Self::Server2025 => "2k25",
        }
    }
}

/// The account where a recipe names none.
pub const DEFAULT_USERNAME: &str = "workspace";

/// What the installation's answer file says.
#[derive(Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Install {
    /// The NAME of the image that is installed; `media.windows.expect.name` where it is left out.
    #[schemars(with = "Option<String>")]
    pub image_name: Option<ImageName>,
    /// The computer's name while it is installed; made up where it is left out.
    #[schemars(with = "Option<String>", regex(pattern = pattern::HOSTNAME))]
    pub hostname: Option<ComputerName>,
    /// The local administrator's account.
    #[schemars(with = "Option<String>", regex(pattern = pattern::USERNAME))]
    pub username: Option<AccountName>,
    /// Language and formats, as `en-US`.
    #[schemars(with = "Option<String>", regex(pattern = pattern::LANGUAGE))]
    pub locale: Option<LanguageTag>,
    /// The time zone by its Windows name, as `W. Europe Standard Time`.
    #[schemars(with = "Option<String>")]
    pub time_zone: Option<TimeZone>,
}

/// What a clone's answer file says.
#[derive(Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CloneSettings {
    /// The computer's name; made up where it is left out.
    #[schemars(with = "Option<String>", regex(pattern = pattern::HOSTNAME))]
    pub hostname: Option<ComputerName>,
    /// The local administrator's account.
    #[schemars(with = "Option<String>", regex(pattern = pattern::USERNAME))]
    pub username: Option<AccountName>,
    /// Language and formats, as `en-US`.
    #[schemars(with = "Option<String>", regex(pattern = pattern::LANGUAGE))]
    pub locale: Option<LanguageTag>,
    /// The time zone by its Windows name, as `W. Europe Standard Time`.
    #[schemars(with = "Option<String>")]
    pub time_zone: Option<TimeZone>,
}

/// The installed, generalised root disk.
#[derive(Debug, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields, default)]
pub struct Root {
    /// The disk's file, from the recipe's folder; `--disk` names another.
    #[schemars(with = "Option<String>", length(min = 1))]
    pub disk: Option<PathBuf>,
    /// How a clone first boots.
    pub first_boot: FirstBoot,
    /// The letter of the clone's answer CD.
    #[schemars(with = "String", regex(pattern = pattern::DRIVE_LETTER))]
    pub drive_letter: char,
}

impl Default for Root {
    fn default() -> Self {
        Self { disk: None, first_boot: FirstBoot::AnswerCd, drive_letter: 'D' }
    }
}

/// How a clone first boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(rename_all = "kebab-case")]
pub enum FirstBoot {
    /// The root points at an answer file on a CD that every clone gets; without that CD, Setup fails.
    AnswerCd,
    /// cloudbase-init in the root does the rest; the root points at nothing.
    #[schemars(rename = "cloudbase-init")]
    CloudbaseInit,
    /// The root points at nothing: Setup asks.
    None,
}

/// What the root is held to before it is published. `sealroot audit --list` prints the checks.
#[derive(Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields, default)]
pub struct AuditRules {
    /// Checks that would stop a build, and may fail: by id, as `storage-driver`.
    #[schemars(transform = failing_ids)]
    pub allow: Vec<&'static str>,
    /// Checks that would only warn, and stop a build instead: by id, as `profiles`.
    #[schemars(transform = warning_ids)]
    pub require: Vec<&'static str>,
}

fn failing_ids(schema: &mut Schema) {
    schema.insert("items".into(), ids(Severity::Fail));
}

fn warning_ids(schema: &mut Schema) {
    schema.insert("items".into(), ids(Severity::Warn));
}

fn ids(severity: Severity) -> Value {
    let ids = CHECKS.iter().filter(|check| check.severity == severity).map(|check| check.id);
    json!({ "type": "string", "enum": ids.collect::<Vec<_>>() })
}

/// The image that is made of the root disk.
#[derive(Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields, default)]
pub struct Image {
    /// Where the image belongs, as `registry.example.com/private/windows11`.
    #[schemars(regex(pattern = pattern::REPOSITORY))]
    pub repository: Option<String>,
    /// The tag it gets there.
    #[schemars(regex(pattern = pattern::TAG))]
    pub tag: Option<String>,
    /// How the layer is compressed.
    pub compression: Compression,
    /// How hard: 1 to 19 for zstd, 1 to 9 for gzip.
    #[schemars(range(min = 1, max = 19))]
    pub level: Option<u32>,
    /// The cluster-wide instance type that KubeVirt gives a VM made from the image, as `u1.medium`.
    #[schemars(regex(pattern = pattern::KUBERNETES_NAME))]
    pub instance_type: Option<String>,
    /// The cluster-wide preference that KubeVirt gives a VM made from the image, as `windows.11.virtio`.
    #[schemars(regex(pattern = pattern::KUBERNETES_NAME))]
    pub preference: Option<String>,
    /// Annotations of the image's manifest.
    pub annotations: BTreeMap<String, String>,
}

/// How a layer is compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
#[schemars(rename_all = "lowercase")]
pub enum Compression {
    /// Faster and smaller; KubeVirt and containerd read it.
    #[default]
    Zstd,
    /// For readers that know nothing else.
    Gzip,
}

/// The recipe's JSON Schema.
pub fn schema() -> Schema {
    let settings = SchemaSettings::draft2020_12().with_transform(RecursiveTransform(without_null));
    settings.into_generator().into_root_schema_for::<Recipe>()
}

/// A key that may be left out is no key that may be null: TOML has none.
fn without_null(schema: &mut Schema) {
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(choices)) = schema.get("anyOf")
        && let [Value::Object(choice), null] = choices.as_slice()
        && null.get("type").is_some_and(|kind| kind == "null")
    {
        let choice = choice.clone();
        schema.remove("anyOf");
        schema.ensure_object().extend(choice);
    }
}
