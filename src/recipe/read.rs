//! A recipe's tables, and the rules between their values.

use std::path::Path;

use toml::de::DeTable;

use super::include::{self, Include};
use super::model::*;
use super::overrides::Override;
use super::problem::{Place, Problem, Problems};
use super::rules::{self, Fault, one_of};
use super::section::{At, Context, Section};
use super::source::{Source, names_secret};
use super::tree::{self, Conflict, Origin};
use crate::media::Sha256;
use crate::root::audit::Severity;
use crate::windows::{AccountName, ComputerName, ImageName};

/// The largest schema number known.
const SCHEMA: u32 = 1;

/// Reads the recipe in `source`, with what it includes under it and `overrides` over it.
pub(super) fn recipe(
    source: Source<'_>,
    includes: &[Include],
    overrides: &[Override],
) -> Result<Recipe, Problems> {
    let path = source.path;
    let mut items = parse(path, &source, 0)?;
    let mut sources = vec![source];
    let mut faults = Vec::new();
    // The last one lies uppermost.
    for include in includes.iter().rev() {
        let bytes = match &include.bytes {
            Ok(bytes) => bytes,
            Err(e) => {
                let fault = Fault::new(format!("{} can't be read: {e}", include.path.display()))
                    .help("an included file's name starts from the recipe's folder");
                faults.push((include.at.clone(), "include", fault));
                continue;
            }
        };
        let shown = include.path.display().to_string();
        let source = Source::new(&include.path, Some(shown), bytes)
            .map_err(|problems| Problems::new(path, problems.problems))?;
        let mut under = parse(path, &source, sources.len())?;
        sources.push(source);
        faults.extend(include::hold_to_tables(&mut under));
        tree::lay_under(&mut items, under);
    }
    let context = Context::new(&sources, overrides);
    for (at, key, fault) in faults {
        context.note(&at, key, fault);
    }
    for (index, text) in overrides.iter().enumerate() {
        if let Err(fault) = lay_over(&mut items, index, text) {
            context.note(&Origin::Set(index), &text.key, fault);
        }
    }
    let recipe = read(&context, Section::root(&context, items), &sources[0], includes);
    context.finish(path, recipe)
}

/// The tree of a file, which is that of the recipe at `path` or one that it includes.
fn parse(path: &Path, source: &Source<'_>, file: usize) -> Result<tree::Items, Problems> {
    let (table, errors) = DeTable::parse_recoverable(source.text);
    if errors.is_empty() {
        return Ok(tree::from_text(table.get_ref(), file));
    }
    // What the text means is only known once it is TOML.
    Err(Problems::new(path, syntax_problems(source, &errors)))
}

/// The most syntax errors that are told: a file with more is no TOML at all.
const MOST_SYNTAX: usize = 5;

/// The first error of each line: what follows it there is mostly its echo. How many more lines are wrong is said
/// at the last one that is shown.
fn syntax_problems(source: &Source<'_>, errors: &[toml::de::Error]) -> Vec<Problem> {
    let mut problems: Vec<Problem> = Vec::new();
    let mut last = None;
    let mut more = 0;
    for error in errors.iter().take(MOST_ERRORS) {
        let span = error.span().unwrap_or(0..0);
        let place = source.place(span.start);
        if problems.iter().any(|earlier| earlier.place.same_line(&place)) {
            continue;
        }
        if problems.len() == MOST_SYNTAX {
            // Errors come in the order of the text.
            if !last.as_ref().is_some_and(|last: &Place| last.same_line(&place)) {
                more += 1;
            }
            last = Some(place);
            continue;
        }
        problems.push(Problem {
            place,
            key: String::new(),
            message: format!("this is no TOML: {}", error.message()),
            help: None,
            excerpt: Some(source.excerpt(&span)),
        });
    }
    if more > 0
        && let Some(shown) = problems.last_mut()
    {
        let least = if errors.len() > MOST_ERRORS { "at least " } else { "" };
        let s = if more == 1 { "" } else { "s" };
        shown.help = Some(format!("{least}{more} more line{s} can't be read; is this a recipe at all?"));
    }
    problems
}

/// The most syntax errors that are looked at: finding an error's line takes a look at all before it.
const MOST_ERRORS: usize = 1000;

fn lay_over(items: &mut tree::Items, index: usize, text: &Override) -> Result<(), Fault> {
    let path = tree::split_key(&text.key)
        .ok_or_else(|| Fault::new("this is no key").help("write it with dots, as install.hostname"))?;
    if path.last().is_some_and(|name| name == "sha256") {
        return Err(Fault::new("a pin can't be set from the command line: it would prove nothing")
            .help("write it into the recipe, where it is reviewed"));
    }
    if path.first().is_some_and(|name| name == "include") {
        return Err(Fault::new("what a recipe includes can't be set from the command line")
            .help("write it into the recipe"));
    }
    if path.iter().any(|name| names_secret(name)) {
        return Err(Fault::new(
            "a secret can't be set from the command line: every user of the machine can read that",
        )
        .help("secrets are made anew, or come from files"));
    }
    tree::lay(items, &path, index, text).map_err(|conflict| match conflict {
        Conflict::NoTable(depth) => Fault::new(format!("`{}` is no table", path[..depth].join("."))),
        Conflict::Twice => Fault::new("an earlier --set has set this key already"),
    })
}

fn read(
    context: &Context<'_>,
    mut top: Section<'_>,
    source: &Source<'_>,
    includes: &[Include],
) -> Option<Recipe> {
    let schema = top.required_integer("schema", SCHEMA..=SCHEMA);
    let name = top.required("name", rules::dns_label);
    if let Some(at) = top.longer_than("include", include::MOST) {
        let fault = Fault::new(format!("a recipe includes at most {} files", include::MOST));
        top.note(&at, "include", fault);
    }
    top.list("include", rules::file);
    let included = includes.iter().filter_map(|include| {
        let bytes = include.bytes.as_ref().ok()?;
        Some(Included { name: include.name.clone(), sha256: Sha256::of(bytes) })
    });
    let media = top.required_table("media").and_then(|section| media(context, section));
    let install = install(top.table("install"), media.as_ref());
    let clone = clone(top.table("clone"));
    let root = root(top.table("root"));
    let audit = audit(top.table("audit"));
    let image = image(top.table("image"));
    top.finish();
    Some(Recipe {
        schema: schema?.value,
        include: included.collect(),
        name: name?.value,
        media: media?,
        install,
        clone,
        root,
        audit,
        image,
        file: source.path.into(),
        file_sha256: Sha256::of(source.bytes),
    })
}

/// The value alone, for keys that no other rule looks at.
fn plain<T>(read: Option<At<T>>) -> Option<T> {
    read.map(|at| at.value)
}

fn media(context: &Context<'_>, mut section: Section<'_>) -> Option<Media> {
    let windows = section.required_table("windows").and_then(|s| medium(context, s, windows_expect));
    let virtio = section.required_table("virtio").and_then(|s| medium(context, s, virtio_expect));
    if let (Some(windows), Some(virtio)) = (&windows, &virtio)
        && windows.value.sha256 == virtio.value.sha256
    {
        let fault = Fault::new("both media have the same pin, so one of the two is wrong");
        context.note(&virtio.at, "media.virtio.sha256", fault);
    }
    section.finish();
    Some(Media { windows: windows?.value, virtio: virtio?.value })
}

/// One medium, and where its pin stands.
fn medium<E: Default>(
    context: &Context<'_>,
    mut section: Section<'_>,
    expect: impl Fn(Section<'_>) -> E,
) -> Option<At<Medium<E>>> {
    let file = section.required("file", rules::file);
    let sha256 = section.required("sha256", rules::pin);
    let expect = expect(section.table("expect"));
    section.finish();
    let At { value: sha256, at } = sha256?;
    let medium = Medium { file: file?.value, sha256, expect, pin_at: context.place(&at) };
    Some(At { value: medium, at })
}

fn windows_expect(mut section: Section<'_>) -> WindowsExpect {
    let expect = WindowsExpect {
        name: plain(section.text("name", rules::windows_name)),
        edition_id: plain(section.text("edition_id", rules::word)),
        architecture: plain(section.text("architecture", one_of(&[("amd64", Architecture::Amd64)]))),
        language: plain(section.text("language", rules::windows_name)),
        wim_build: plain(section.integer("wim_build", 6000..=99_999)),
        release: plain(section.text("release", rules::word)),
        build: plain(section.text("build", rules::build)),
    };
    section.finish();
    expect
}

fn virtio_expect(mut section: Section<'_>) -> VirtioExpect {
    let systems = [
        ("w10", VirtioOs::Windows10),
        ("w11", VirtioOs::Windows11),
        ("2k16", VirtioOs::Server2016),
        ("2k19", VirtioOs::Server2019),
        ("2k22", VirtioOs::Server2022),
        ("2k25", VirtioOs::Server2025),
    ];
    let expect = VirtioExpect {
        version: plain(section.text("version", rules::virtio_version)),
        os: plain(section.text("os", one_of(&systems))),
        drivers: section.list("drivers", rules::word),
    };
    section.finish();
    expect
}

fn install(mut section: Section<'_>, media: Option<&Media>) -> Install {
    let image_name = section.text("image_name", rules::windows_name::<ImageName>);
    if let (Some(wanted), Some(media)) = (&image_name, media)
        && let Some(there) = &media.windows.expect.name
        && wanted.value != *there
    {
        let fault = Fault::new(format!("the medium is expected to hold `{there}`, not this"))
            .help("leave image_name out: media.windows.expect.name is the default");
        section.note(&wanted.at, "image_name", fault);
    }
    let (hostname, username) = names(&mut section);
    let install = Install {
        image_name: plain(image_name),
        hostname,
        username,
        locale: plain(section.text("locale", rules::windows_name)),
        time_zone: plain(section.text("time_zone", rules::windows_name)),
    };
    section.finish();
    install
}

fn clone(mut section: Section<'_>) -> CloneSettings {
    let (hostname, username) = names(&mut section);
    let clone = CloneSettings {
        hostname,
        username,
        locale: plain(section.text("locale", rules::windows_name)),
        time_zone: plain(section.text("time_zone", rules::windows_name)),
    };
    section.finish();
    clone
}

/// A computer and its account.
fn names(section: &mut Section<'_>) -> (Option<ComputerName>, Option<AccountName>) {
    let hostname = section.text("hostname", rules::windows_name::<ComputerName>);
    let username = section.text("username", rules::windows_name::<AccountName>);
    let clash = || Fault::new("the computer and its account have the same name: Setup fails with 0x8007056b");
    match (&hostname, &username) {
        (Some(hostname), Some(username)) if hostname.value.clashes_with(&username.value) => {
            section.note(&username.at, "username", clash());
        }
        (Some(hostname), None) if hostname.value.as_str().eq_ignore_ascii_case(DEFAULT_USERNAME) => {
            let fault = clash().help(format!("the account is `{DEFAULT_USERNAME}` where no username is set"));
            section.note(&hostname.at, "hostname", fault);
        }
        _ => {}
    }
    (plain(hostname), plain(username))
}

fn root(mut section: Section<'_>) -> Root {
    let ways = [
        ("answer-cd", FirstBoot::AnswerCd),
        ("cloudbase-init", FirstBoot::CloudbaseInit),
        ("none", FirstBoot::None),
    ];
    let default = Root::default();
    let disk = plain(section.text("disk", rules::file));
    let first_boot = plain(section.text("first_boot", one_of(&ways))).unwrap_or(default.first_boot);
    let drive_letter = section.text("drive_letter", rules::drive_letter);
    if let Some(letter) = &drive_letter
        && first_boot != FirstBoot::AnswerCd
    {
        let fault =
            Fault::new("a drive letter belongs to first_boot = \"answer-cd\" alone").help("leave it out");
        section.note(&letter.at, "drive_letter", fault);
    }
    section.finish();
    Root { disk, first_boot, drive_letter: plain(drive_letter).unwrap_or(default.drive_letter) }
}

fn audit(mut section: Section<'_>) -> AuditRules {
    let rules = AuditRules {
        allow: section.list("allow", rules::check_id(Severity::Fail)),
        require: section.list("require", rules::check_id(Severity::Warn)),
    };
    section.finish();
    rules
}

fn image(mut section: Section<'_>) -> Image {
    let kinds = [("zstd", Compression::Zstd), ("gzip", Compression::Gzip)];
    let repository = plain(section.text("repository", rules::repository));
    let tag = section.text("tag", rules::tag);
    if let Some(tag) = &tag
        && repository.is_none()
    {
        section.note(
            &tag.at,
            "tag",
            Fault::new("a tag needs a repository to stand in").help("add `repository`"),
        );
    }
    let compression = plain(section.text("compression", one_of(&kinds))).unwrap_or_default();
    let hardest = match compression {
        Compression::Zstd => 19,
        Compression::Gzip => 9,
    };
    let level = plain(section.integer("level", 1..=hardest));
    let instance_type = plain(section.text("instance_type", rules::kubernetes_name));
    let preference = plain(section.text("preference", rules::kubernetes_name));
    let annotations = section.pairs("annotations", rules::annotation).into_iter().collect();
    section.finish();
    Image { repository, tag: plain(tag), compression, level, instance_type, preference, annotations }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::super::parse;
    use super::*;

    /// Whatever it is given, reading ends with a recipe or with problems that can be shown.
    fn survives(bytes: &[u8], overrides: &[Override]) {
        if let Err(problems) = parse(Path::new("r.toml"), bytes, overrides, &|_| Ok(bytes.to_vec())) {
            assert!(!problems.problems.is_empty());
            assert!(!problems.to_string().contains(|c: char| c.is_control() && c != '\n'));
            serde_json::to_string(&problems).unwrap();
        }
    }

    /// Lines as recipes have them, right and wrong.
    fn line() -> impl Strategy<Value = String> {
        let key = "(schema|include|name|media|windows|virtio|file|sha256|expect|image|annotations|level|a|\"\u{e9}\")";
        let value =
            "([0-9]{1,30}|\"[a-z\u{e9}\u{1f600}]{0,5}\"|\\[1,[2]\\]|\\{a=1\\}|true|1979-05-27|1e5|\"|'')";
        let regex = |text: String| proptest::string::string_regex(&text).unwrap();
        prop_oneof![
            regex(format!("{key}(\\.{key}){{0,3}} = {value}")),
            regex(format!("\\[{key}(\\.{key}){{0,2}}\\]")),
            regex(format!("\\[\\[{key}\\]\\]")),
            "\\PC{0,20}",
        ]
    }

    proptest! {
        #[test]
        fn arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            survives(&bytes, &[]);
        }

        #[test]
        fn arbitrary_lines(
            lines in proptest::collection::vec(line(), 0..12),
            sets in proptest::collection::vec(("[a-z.\"]{1,12}", "\\PC{0,8}"), 0..4),
            real in proptest::collection::vec(
                ("(name|schema|media|media.virtio.expect.drivers|image.level|image.annotations.a|install)", "\\PC{0,8}"),
                0..3,
            ),
        ) {
            let sets: Vec<Override> =
                sets.iter().chain(&real).filter_map(|(key, value)| format!("{key}={value}").parse().ok()).collect();
            survives(lines.join("\n").as_bytes(), &sets);
        }

        #[test]
        fn arbitrary_strings_as_every_value(text in "\\PC{0,40}") {
            let text = text.replace(['\'', '\n', '\r'], "");
            let recipe = ["name", "media.windows.file", "media.windows.sha256", "media.windows.expect.build",
                "media.virtio.expect.version", "install.hostname", "clone.locale", "root.drive_letter",
                "image.repository", "image.tag"].map(|key| format!("{key} = '{text}'"));
            survives(recipe.join("\n").as_bytes(), &[]);
        }
    }
}
