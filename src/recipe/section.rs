//! Reads one table of a recipe, key by key. What is wrong is noted and reading goes on, so that one run shows
//! everything.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::path::Path;

use super::overrides::Override;
use super::problem::{Place, Problem, Problems};
use super::rules::Fault;
use super::source::Source;
use super::tree::{self, Item, Items, Node, Origin, Value};

/// What is being read, and what was found wrong with it so far.
pub(super) struct Context<'a> {
    /// The recipe, then what it includes.
    sources: &'a [Source<'a>],
    overrides: &'a [Override],
    problems: RefCell<Vec<Problem>>,
}

impl<'a> Context<'a> {
    pub fn new(sources: &'a [Source<'a>], overrides: &'a [Override]) -> Self {
        Self { sources, overrides, problems: RefCell::default() }
    }

    pub fn place(&self, at: &Origin) -> Place {
        match at {
            Origin::Text { file, span } => match self.sources.get(*file) {
                Some(source) => source.place(span.start),
                None => Place::File { file: None, line: 1, column: 1 },
            },
            Origin::Set(index) => {
                Place::Set { set: self.overrides.get(*index).map(ToString::to_string).unwrap_or_default() }
            }
        }
    }

    /// Notes a problem with the value or key at `at`.
    pub fn note(&self, at: &Origin, key: &str, fault: Fault) {
        if self.full() {
            return;
        }
        let excerpt = match at {
            Origin::Text { file, span } => self.sources.get(*file).map(|source| source.excerpt(span)),
            Origin::Set(_) => None,
        };
        let problem = Problem {
            place: self.place(at),
            key: shortened(key.into()),
            message: shortened(fault.message),
            help: fault.help,
            excerpt,
        };
        self.problems.borrow_mut().push(problem);
    }

    /// Whether so much is wrong that no more is noted.
    fn full(&self) -> bool {
        self.problems.borrow().len() >= Problems::MOST
    }

    /// The recipe of that file, if nothing was noted.
    pub fn finish<T>(self, path: &Path, value: Option<T>) -> Result<T, Problems> {
        let problems = self.problems.into_inner();
        match value {
            Some(value) if problems.is_empty() => Ok(value),
            _ => Err(Problems::new(path, problems)),
        }
    }
}

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct At<T> {
    pub value: T,
    pub at: Origin,
}

/// One table. What is left in it at [`Section::finish`] has a name that no key has.
pub(super) struct Section<'a> {
    context: &'a Context<'a>,
    /// The table's full name, with a dot at its end; empty for the recipe itself.
    prefix: String,
    at: Origin,
    items: Items,
    known: Vec<&'static str>,
    /// Keys and tables that must be there and are not.
    missing: Vec<(&'static str, Fault)>,
}

impl<'a> Section<'a> {
    pub fn root(context: &'a Context<'a>, items: Items) -> Self {
        Self {
            context,
            prefix: String::new(),
            at: Origin::Text { file: 0, span: 0..0 },
            items,
            known: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// A key's full name.
    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn take(&mut self, key: &'static str) -> Option<Node> {
        self.known.push(key);
        self.items.remove(key).map(|item| item.node)
    }

    /// Notes a problem with one of this table's values.
    pub fn note(&self, at: &Origin, key: &str, fault: Fault) {
        self.context.note(at, &self.full(key), fault);
    }

    fn wrong_type(&self, at: &Origin, key: &str, wanted: &str, got: &str) {
        self.note(at, key, Fault::new(format!("`{}` takes {wanted}, not {got}", self.full(key))));
    }

    /// A string that `rule` accepts.
    pub fn text<T>(&mut self, key: &'static str, rule: impl Fn(&str) -> Result<T, Fault>) -> Option<At<T>> {
        let Node { at, value } = self.take(key)?;
        let (Value::String(text) | Value::Raw(text)) = &value else {
            self.wrong_type(&at, key, "a string, in quotes", value.kind());
            return None;
        };
        match rule(text) {
            Ok(value) => Some(At { value, at }),
            Err(fault) => {
                self.note(&at, key, fault);
                None
            }
        }
    }

    /// As [`Section::text`], for a key that must be there.
    pub fn required<T>(
        &mut self,
        key: &'static str,
        rule: impl Fn(&str) -> Result<T, Fault>,
    ) -> Option<At<T>> {
        if !self.items.contains_key(key) {
            self.missing(key);
        }
        self.text(key, rule)
    }

    /// An integer of `range`.
    pub fn integer(&mut self, key: &'static str, range: RangeInclusive<u32>) -> Option<At<u32>> {
        let Node { at, value } = self.take(key)?;
        let number = match &value {
            Value::Integer(number) => *number,
            Value::Raw(text) => match text.trim().parse() {
                Ok(number) => Some(number),
                Err(_) => {
                    self.wrong_type(&at, key, "an integer", "this");
                    return None;
                }
            },
            other => {
                self.wrong_type(&at, key, "an integer", other.kind());
                return None;
            }
        };
        match number.and_then(|number| u32::try_from(number).ok()).filter(|number| range.contains(number)) {
            Some(value) => Some(At { value, at }),
            None => {
                let (least, most) = (range.start(), range.end());
                let wanted =
                    if least == most { least.to_string() } else { format!("from {least} to {most}") };
                self.note(&at, key, Fault::new(format!("`{}` must be {wanted}", self.full(key))));
                None
            }
        }
    }

    /// As [`Section::integer`], for a key that must be there.
    pub fn required_integer(&mut self, key: &'static str, range: RangeInclusive<u32>) -> Option<At<u32>> {
        if !self.items.contains_key(key) {
            self.missing(key);
        }
        self.integer(key, range)
    }

    /// An array of strings, each of which `rule` accepts; empty where the key is not there.
    pub fn list<T>(&mut self, key: &'static str, rule: impl Fn(&str) -> Result<T, Fault>) -> Vec<T> {
        let Some(Node { at, value }) = self.take(key) else { return Vec::new() };
        let nodes = match (value, &at) {
            (Value::Array(nodes), _) => nodes,
            (Value::Raw(text), Origin::Set(index)) => match tree::array(&text, *index) {
                Some(nodes) => nodes,
                None => {
                    self.wrong_type(&at, key, "an array of strings, as [\"a\", \"b\"]", "this");
                    return Vec::new();
                }
            },
            (other, _) => {
                self.wrong_type(&at, key, "an array of strings, as [\"a\", \"b\"]", other.kind());
                return Vec::new();
            }
        };
        let mut values = Vec::new();
        for Node { at, value } in nodes {
            match &value {
                Value::String(text) => match rule(text) {
                    Ok(value) => values.push(value),
                    Err(fault) => self.note(&at, key, fault),
                },
                other => self.wrong_type(&at, key, "strings, in quotes", other.kind()),
            }
        }
        values
    }

    /// Where an array stands that has more than `most` values.
    pub fn longer_than(&self, key: &str, most: usize) -> Option<Origin> {
        match &self.items.get(key)?.node {
            Node { at, value: Value::Array(nodes) } if nodes.len() > most => Some(at.clone()),
            _ => None,
        }
    }

    /// The keys and strings of a table whose keys are the user's own.
    pub fn pairs(
        &mut self,
        key: &'static str,
        rule: impl Fn(&str, &str) -> Result<(), Fault>,
    ) -> Vec<(String, String)> {
        let Some(Node { at, value }) = self.take(key) else { return Vec::new() };
        let Value::Table(items) = value else {
            self.wrong_type(&at, key, "a table", value.kind());
            return Vec::new();
        };
        let mut pairs = Vec::new();
        for (name, Item { key_at, node }) in items {
            let full = format!("{key}.{name}");
            match node.value {
                Value::String(text) | Value::Raw(text) => match rule(&name, &text) {
                    Ok(()) => pairs.push((name, text)),
                    Err(fault) => self.note(&key_at, &full, fault),
                },
                Value::Table(inner) => {
                    let meant = dotted(&name, &inner);
                    let fault = Fault::new(format!("`{}` takes a string, not a table", self.full(&full)))
                        .help(format!("a key with dots stands in quotes: {key}.\"{}\"", brief(&meant)));
                    self.note(&node.at, &full, fault);
                }
                other => self.wrong_type(&node.at, &full, "a string, in quotes", other.kind()),
            }
        }
        pairs
    }

    /// The table of that name; an empty one where it is not there.
    pub fn table(&mut self, key: &'static str) -> Section<'a> {
        let node = self.take(key);
        let (at, items) = match node {
            Some(Node { at, value: Value::Table(items) }) => (at, items),
            Some(Node { at, value }) => {
                self.wrong_type(&at, key, "a table", value.kind());
                (at, Items::new())
            }
            None => (self.at.clone(), Items::new()),
        };
        let prefix = format!("{}{key}.", self.prefix);
        Section { context: self.context, prefix, at, items, known: Vec::new(), missing: Vec::new() }
    }

    /// As [`Section::table`], for one that must be there; `None` where it is not, and noted.
    pub fn required_table(&mut self, key: &'static str) -> Option<Section<'a>> {
        let there = match self.items.get(key) {
            Some(item) => matches!(item.node.value, Value::Table(_)),
            None => {
                self.known.push(key);
                let fault = Fault::new(format!("the table [{}] is missing", self.full(key)));
                self.missing.push((key, fault));
                return None;
            }
        };
        // A value of another type is noted by `table`; what the table lacks would be noise.
        let table = self.table(key);
        there.then_some(table)
    }

    fn missing(&mut self, key: &'static str) {
        let message = match self.prefix.strip_suffix('.') {
            Some(table) => format!("[{table}] lacks `{key}`"),
            None => format!("`{key}` is missing at the top of the recipe"),
        };
        self.missing.push((key, Fault::new(message)));
    }

    /// Notes every key that was not asked for, and every one that was missed.
    pub fn finish(self) {
        let mut misspelt = Vec::new();
        for (key, item) in self.items.iter().take_while(|_| !self.context.full()) {
            let table = match self.prefix.strip_suffix('.') {
                Some(table) => format!("[{table}]"),
                None => "the recipe".into(),
            };
            let near = nearest(key, self.known.iter().copied());
            let help = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("{table} knows {}", self.known.join(", ")),
            };
            misspelt.extend(near);
            let fault = Fault::new(format!("{table} has no key `{}`", brief(key))).help(help);
            self.note(&item.key_at, key, fault);
        }
        // A key that is only misspelt is one problem, not two.
        for (key, fault) in &self.missing {
            if !misspelt.contains(key) {
                self.note(&self.at, key, fault.clone());
            }
        }
    }
}

/// The dotted key that was taken apart into tables, as far as there is one.
fn dotted(name: &str, mut items: &Items) -> String {
    let mut full = name.to_owned();
    while let Some((name, item)) = items.first_key_value() {
        full = format!("{full}.{name}");
        let Value::Table(inner) = &item.node.value else { break };
        items = inner;
    }
    full
}

/// A key as messages show it.
fn brief(key: &str) -> String {
    let shown: String = key.chars().take(MOST_KEY).collect();
    let more = if shown.len() < key.len() { "..." } else { "" };
    format!("{}{more}", shown.escape_debug())
}

/// Characters of a key that are shown; none that a recipe knows is as long.
const MOST_KEY: usize = 64;

/// A message may repeat what stands in the recipe, whatever its length.
fn shortened(message: String) -> String {
    match message.char_indices().nth(300) {
        Some((at, _)) => format!("{}...", &message[..at]),
        None => message,
    }
}

/// The candidate that `word` may be a slip of: at most a third of its characters differ.
pub(super) fn nearest<'c>(word: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    // A longer one is no slip, and comparing takes its length squared.
    if word.chars().nth(MOST_KEY).is_some() {
        return None;
    }
    let word = word.to_lowercase();
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| distance * 3 <= candidate.len().max(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
