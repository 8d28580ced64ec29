//! Answer-file templates: XML whose placeholders are filled in the parsed tree, never in the text.
//!
//! - `{{name}}` in a text or in an attribute's value stands for a value. It is replaced in the decoded text and
//!   encoded when the tree is written, so no value can become markup.
//! - `t:if="name"` keeps an element only when the optional value `name` is there.
//! - `t:each="name"` repeats an element for each entry of the list `name`; an entry's values hide outer ones.
//!
//! The prefix `t` (namespace `urn:sealroot:template`) does not reach what is written. An unknown name, a value
//! that no placeholder takes, and a brace pair that is not a placeholder are errors.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;
use zeroize::Zeroizing;

use crate::xml::{Content, Element, XmlError, is_xml_char};

const NAMESPACE: (&str, &str) = ("xmlns:t", "urn:sealroot:template");
const PREFIX: &str = "t:";
const IF: &str = "t:if";
const EACH: &str = "t:each";

/// Why a template can't be filled. Values are named, never shown.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// The template is not well-formed.
    #[error("the template is not well-formed: {0}")]
    Xml(#[from] XmlError),
    /// The template names what does not exist.
    #[error("the template asks for {name:?} in <{element}>, and there is no such value")]
    Unknown {
        /// The element.
        element: String,
        /// The name.
        name: String,
    },
    /// `{{` without its end, or another attribute of the template's own namespace.
    #[error("<{element}> holds a placeholder that is not one")]
    Malformed {
        /// The element.
        element: String,
    },
    /// A value was given and no placeholder takes it.
    #[error("the template has no place for {name:?}")]
    Unused {
        /// The name.
        name: String,
    },
    /// XML 1.0, or Setup, has no way to take this character.
    #[error("{name} holds the character U+{:04X}, which an answer file can't carry; leave it out", u32::from(*character))]
    Forbidden {
        /// The value's name.
        name: String,
        /// The character.
        character: char,
    },
}

/// What the placeholders stand for.
#[derive(Default)]
pub struct Values {
    texts: BTreeMap<&'static str, Option<Zeroizing<String>>>,
    lists: BTreeMap<&'static str, Vec<Values>>,
}

impl Values {
    /// With one more text.
    pub fn text(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.texts.insert(name, Some(Zeroizing::new(value.into())));
        self
    }

    /// With one more text that may be absent.
    pub fn optional(mut self, name: &'static str, value: Option<impl Into<String>>) -> Self {
        self.texts.insert(name, value.map(|value| Zeroizing::new(value.into())));
        self
    }

    /// With one more list.
    pub fn list(mut self, name: &'static str, entries: Vec<Values>) -> Self {
        self.lists.insert(name, entries);
        self
    }
}

/// Fills a parsed template.
pub fn fill(template: &Element, values: &Values) -> Result<Element, TemplateError> {
    let used = RefCell::default();
    let filled = Scope { values, outer: None, used: &used }.element(template)?;
    let used = used.into_inner();
    let mut all = Vec::new();
    names(values, &mut all);
    match all.into_iter().find(|name| !used.contains(name)) {
        Some(name) => Err(TemplateError::Unused { name: name.to_owned() }),
        None => Ok(filled),
    }
}

fn names(values: &Values, into: &mut Vec<&'static str>) {
    into.extend(values.texts.keys());
    for (name, entries) in &values.lists {
        into.push(name);
        entries.iter().for_each(|entry| names(entry, into));
    }
}

/// The values in reach, innermost first.
#[derive(Clone, Copy)]
struct Scope<'a> {
    values: &'a Values,
    outer: Option<&'a Scope<'a>>,
    used: &'a RefCell<BTreeSet<&'static str>>,
}

impl<'a> Scope<'a> {
    fn find<T>(
        &self,
        element: &Element,
        name: &str,
        map: impl Fn(&'a Values) -> &'a BTreeMap<&'static str, T>,
    ) -> Result<&'a T, TemplateError> {
        let mut scope = Some(self);
        while let Some(here) = scope {
            if let Some((name, found)) = map(here.values).get_key_value(name) {
                self.used.borrow_mut().insert(*name);
                return Ok(found);
            }
            scope = here.outer;
        }
        Err(TemplateError::Unknown { element: element.name.clone(), name: name.to_owned() })
    }

    /// The element, filled; its own `t:if` and `t:each` were obeyed by its parent.
    fn element(&self, element: &Element) -> Result<Element, TemplateError> {
        let mut attributes = Vec::new();
        for (name, value) in &element.attributes {
            match name.as_str() {
                IF | EACH => {}
                xmlns if xmlns == NAMESPACE.0 && value == NAMESPACE.1 => {}
                other if other.starts_with(PREFIX) || other == NAMESPACE.0 => return Err(malformed(element)),
                _ => attributes.push((name.clone(), self.text(element, value)?.to_string())),
            }
        }
        let content = match &element.content {
            Content::Text(text) => Content::Text(self.text(element, text)?),
            Content::Elements(inner) => {
                let mut filled = Vec::new();
                for element in inner {
                    self.add(element, &mut filled)?;
                }
                Content::Elements(filled)
            }
        };
        Ok(Element { name: element.name.clone(), attributes, content })
    }

    fn add(&self, element: &Element, into: &mut Vec<Element>) -> Result<(), TemplateError> {
        let directive = |wanted: &str| element.attributes.iter().find(|(name, _)| name == wanted);
        if let Some((_, name)) = directive(IF)
            && self.find(element, name, |values| &values.texts)?.is_none()
        {
            return Ok(());
        }
        let Some((_, name)) = directive(EACH) else {
            into.push(self.element(element)?);
            return Ok(());
        };
        for values in self.find(element, name, |values| &values.lists)? {
            into.push(Scope { values, outer: Some(self), used: self.used }.element(element)?);
        }
        Ok(())
    }

    /// The text, its placeholders replaced. What a value holds is not looked at again.
    fn text(&self, element: &Element, text: &str) -> Result<Zeroizing<String>, TemplateError> {
        let mut filled = Zeroizing::new(String::new());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, after) = after.split_once("}}").ok_or_else(|| malformed(element))?;
            let Some(value) = self.find(element, name, |values| &values.texts)? else {
                return Err(TemplateError::Unknown { element: element.name.clone(), name: name.to_owned() });
            };
            if let Some(character) = value.chars().find(|c| c.is_control() || !is_xml_char(*c)) {
                return Err(TemplateError::Forbidden { name: name.to_owned(), character });
            }
            filled.push_str(before);
            filled.push_str(value);
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

fn malformed(element: &Element) -> TemplateError {
    TemplateError::Malformed { element: element.name.clone() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::xml::{parse, write};

    fn filled(template: &str, values: &Values) -> Result<String, TemplateError> {
        let root = fill(&parse(template)?, values)?;
        let text = String::from_utf8(write(&root).unwrap().to_vec()).unwrap();
        Ok(text.split_once("\r\n").unwrap().1.replace(['\r', '\n', '\t'], ""))
    }

    #[test]
    fn values_enter_as_text_and_can_never_be_markup() {
        let values = Values::default().text("a", "</x><y>{{b}}&amp;").text("b", "\"'");
        let template = "<x xmlns:t='urn:sealroot:template' k='{{b}}'>1{{a}}2{{b}}</x>";
        assert_eq!(
            filled(template, &values).unwrap(),
            "<x k=\"&quot;&apos;\">1&lt;/x&gt;&lt;y&gt;{{b}}&amp;amp;2&quot;&apos;</x>"
        );
    }

    #[test]
    fn parts_are_kept_left_out_and_repeated() {
        let entry = |n: &str| Values::default().text("n", n);
        let values = Values::default()
            .text("n", "outer")
            .text("o", "O")
            .optional("there", Some("yes"))
            .optional("absent", None::<String>)
            .list("list", vec![entry("1"), entry("2")])
            .list("empty", vec![]);
        let template = "<x><a t:if='there'>{{there}}</a><b t:if='absent'>{{absent}}</b>\
                        <c t:each='list' i='{{n}}'>{{n}}{{o}}</c><d t:each='empty'>{{n}}</d><e>{{n}}</e></x>";
        assert_eq!(
            filled(template, &values).unwrap(),
            "<x><a>yes</a><c i=\"1\">1O</c><c i=\"2\">2O</c><e>outer</e></x>"
        );
    }

    #[test]
    fn mistakes_are_errors() {
        let values = || Values::default().text("a", "1").optional("o", None::<String>);
        for template in [
            "<x>{{b}}{{a}}</x>",
            "<x><y t:if='b'>{{a}}</y></x>",
            "<x><y t:each='a'>{{a}}</y></x>",
            "<x>{{o}}{{a}}</x>",
        ] {
            assert!(matches!(filled(template, &values()), Err(TemplateError::Unknown { .. })), "{template}");
        }
        for template in ["<x>{{a</x>", "<x t:when='a'>{{a}}</x>", "<x xmlns:t='urn:other'>{{a}}</x>"] {
            assert!(
                matches!(filled(template, &values()), Err(TemplateError::Malformed { .. })),
                "{template}"
            );
        }
        assert!(matches!(filled("<x>{{a}}</x>", &values()), Err(TemplateError::Unused { .. })));
        assert!(matches!(filled("<x>{{a}}</y>", &values()), Err(TemplateError::Xml(_))));
    }

    #[test]
    fn what_xml_cannot_hold_is_refused_by_the_name_of_the_value() {
        for character in ['\0', '\t', '\n', '\r', '\u{1b}', '\u{7f}', '\u{85}', '\u{fffe}', '\u{ffff}'] {
            let values = Values::default().text("secret", format!("hidden{character}"));
            let error = filled("<x>{{secret}}</x>", &values).unwrap_err();
            assert_eq!(error, TemplateError::Forbidden { name: "secret".into(), character });
            let said = error.to_string();
            assert!(said.contains("secret") && !said.contains("hidden"), "{said}");
        }
    }
}
