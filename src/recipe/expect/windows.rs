//! The image that is installed: its name, edition, architecture, language and build.

use serde::Serialize;

use super::{Difference, Recipe, shown};
use crate::media::wim::{Guid, Image};
use crate::media::{Sha256, WindowsMedium};
use crate::recipe::section::nearest;
use crate::windows::LanguageTag;

/// What was found on a Windows medium.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WindowsFound {
    /// The archive with the images.
    pub archive: String,
    /// Its identity.
    pub guid: Guid,
    /// Of its XML.
    pub xml_sha256: Sha256,
    /// The image that the recipe means; none where it names none and there are several.
    pub image: Option<Image>,
}

const NAME: &str = "media.windows.expect.name";
const EDITION: &str = "media.windows.expect.edition_id";

/// Compares the medium with what the recipe expects of it.
pub(super) fn check(
    recipe: &Recipe,
    medium: WindowsMedium,
    differences: &mut Vec<Difference>,
) -> WindowsFound {
    let candidates = named(recipe, &medium, differences);
    // With one candidate everything is said of it; with several, a property that one of them has is there.
    if !candidates.is_empty() {
        properties(recipe, &candidates, differences);
    }
    languages(recipe, &medium, &candidates, differences);
    let image = match candidates.as_slice() {
        [image] => Some((*image).clone()),
        _ => None,
    };
    let install = &medium.install;
    WindowsFound { archive: install.file.clone(), guid: install.guid, xml_sha256: install.xml_sha256, image }
}

/// The images that the recipe may mean: that of the name, or else every one of the edition, or all.
fn named<'m>(
    recipe: &Recipe,
    medium: &'m WindowsMedium,
    differences: &mut Vec<Difference>,
) -> Vec<&'m Image> {
    let expect = &recipe.media.windows.expect;
    let all: Vec<&Image> = medium.installable().collect();
    let (key, wanted) = match (&expect.name, &recipe.install.image_name) {
        (Some(name), _) => (NAME, Some(name)),
        (None, name) => ("install.image_name", name.as_ref()),
    };
    let Some(wanted) = wanted.map(|name| name.as_str()) else {
        let Some(edition) = &expect.edition_id else { return all };
        let found: Vec<_> =
            all.iter().filter(|image| image.edition_id.as_deref() == Some(edition)).copied().collect();
        if found.is_empty() {
            differences.push(missing(EDITION, edition, &all, |image| {
                image.edition_id.as_deref().unwrap_or_default()
            }));
        }
        return found;
    };
    let found: Vec<_> = all.iter().filter(|image| image.name == wanted).copied().collect();
    match found.as_slice() {
        [_] => {}
        [] => differences.push(no_such_name(key, wanted, &all)),
        [_, ..] => {
            let several = format!("{} images have the NAME `{}`", found.len(), shown(wanted));
            differences.push(Difference::new(key, several).help("Setup can't tell them apart by name"));
        }
    }
    found
}

fn no_such_name(key: &'static str, wanted: &str, all: &[&Image]) -> Difference {
    let displayed = all.iter().find(|image| image.display_name.as_deref() == Some(wanted));
    let difference = missing(key, wanted, all, |image| &image.name);
    match displayed {
        // Some media have the NAME of an earlier Windows.
        Some(image) => difference.help(format!(
            "image {} is displayed as that, but its NAME, which Setup compares, is `{}`: write that",
            image.index,
            shown(&image.name)
        )),
        None => difference,
    }
}

/// Lists what is there instead, and suggests the nearest.
fn missing<'i>(
    key: &'static str,
    wanted: &str,
    all: &[&'i Image],
    value: impl Fn(&'i Image) -> &'i str,
) -> Difference {
    let list: Vec<_> = all
        .iter()
        .map(|image| format!("\n    {} {} ({})", image.index, shown(&image.name), edition(image)))
        .collect();
    let message = format!("no image is `{}`; the medium has{}", shown(wanted), list.concat());
    let difference = Difference::new(key, message);
    match nearest(wanted, all.iter().map(|image| value(image))) {
        Some(near) => difference.help(format!("did you mean `{}`?", shown(near))),
        None => difference,
    }
}

fn edition(image: &Image) -> String {
    image.edition_id.as_deref().map(shown).unwrap_or_default()
}

/// Edition, architecture and build. `images` are those that the recipe may mean.
fn properties(recipe: &Recipe, images: &[&Image], differences: &mut Vec<Difference>) {
    let expect = &recipe.media.windows.expect;
    let mut hold = |key, wanted: String, value: &dyn Fn(&Image) -> Option<String>| {
        if !images.iter().any(|image| value(image).as_deref() == Some(&wanted)) {
            let found: Vec<_> =
                images.iter().map(|image| value(image).map_or("nothing".into(), |v| shown(&v))).collect();
            let which = match images {
                [image] => format!("image {}, {}, has", image.index, shown(&image.name)),
                _ => "the images have".into(),
            };
            differences.push(Difference::new(key, format!("not `{wanted}`: {which} {}", found.join(", "))));
        }
    };
    if let Some(edition) = &expect.edition_id {
        hold(EDITION, edition.clone(), &|image| image.edition_id.clone());
    }
    if let Some(architecture) = expect.architecture {
        let key = "media.windows.expect.architecture";
        hold(key, architecture.name().into(), &|image| image.architecture.map(|a| a.name().into()));
    }
    if let Some(build) = expect.wim_build {
        let key = "media.windows.expect.wim_build";
        let of = |image: &Image| image.version.as_ref().map(|version| version.build.to_string());
        hold(key, build.to_string(), &of);
    }
}

/// The languages that the recipe names must be the image's: `en-GB` is not `en-US`.
fn languages(recipe: &Recipe, medium: &WindowsMedium, images: &[&Image], differences: &mut Vec<Difference>) {
    let has = |languages: &[String], wanted: &LanguageTag| {
        languages.iter().any(|language| language.eq_ignore_ascii_case(wanted.as_str()))
    };
    let list = |languages: &[String]| match languages {
        [] => "none".to_owned(),
        languages => languages.iter().map(|language| shown(language)).collect::<Vec<_>>().join(", "),
    };
    let keys = [
        ("media.windows.expect.language", recipe.media.windows.expect.language.as_ref()),
        ("install.locale", recipe.install.locale.as_ref()),
    ];
    for (key, wanted) in keys {
        let Some(wanted) = wanted else { continue };
        if let [image] = images
            && !has(&image.languages, wanted)
        {
            let got = list(&image.languages);
            let message = format!("not `{wanted}`: image {} has {got}", image.index);
            differences.push(Difference::new(key, message));
        } else if !images.is_empty() && !images.iter().any(|image| has(&image.languages, wanted)) {
            differences.push(Difference::new(key, format!("no image has `{wanted}`")));
        }
    }
    // Setup itself speaks this language; where it has no such list, it is not held to one.
    if let Some(locale) = &recipe.install.locale
        && !medium.setup_languages.is_empty()
        && !has(&medium.setup_languages, locale)
    {
        let message = format!("Setup does not speak `{locale}`: it has {}", list(&medium.setup_languages));
        differences.push(Difference::new("install.locale", message));
    }
}
