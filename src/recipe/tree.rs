//! A recipe's text and its overrides as one tree, in which every value knows where it came from.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::overrides::Override;

/// Where a key or value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// Bytes of the text of the recipe, file 0, or of an included file.
    Text { file: usize, span: Range<usize> },
    /// The override of that index.
    Set(usize),
}

/// A value and where it stands.
#[derive(Debug)]
pub(super) struct Node {
    pub at: Origin,
    pub value: Value,
}

/// A key of a table.
#[derive(Debug)]
pub(super) struct Item {
    pub key_at: Origin,
    pub node: Node,
}

/// The keys of a table.
pub(super) type Items = BTreeMap<String, Item>;

/// What stands in a recipe.
#[derive(Debug)]
pub(super) enum Value {
    String(String),
    /// `None`: more than 64 bits.
    Integer(Option<i64>),
    Array(Vec<Node>),
    Table(Items),
    /// An override's text: it is read as whatever its key takes.
    Raw(String),
    /// Of a type that no key takes, by name.
    Other(&'static str),
}

impl Value {
    /// As messages name it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::String(_) | Self::Raw(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Array(_) => "an array",
            Self::Table(_) => "a table",
            Self::Other(kind) => kind,
        }
    }
}

/// The tree of a parsed text, which is that of the file of that index.
pub(super) fn from_text(table: &DeTable<'_>, file: usize) -> Items {
    items(table, &|span| Origin::Text { file, span })
}

/// Lays `items` under the tree: a key that is there stays, and tables are joined key by key.
pub(super) fn lay_under(tree: &mut Items, items: Items) {
    for (name, item) in items {
        match (tree.entry(name), item) {
            (Entry::Vacant(place), item) => {
                place.insert(item);
            }
            (Entry::Occupied(mut there), Item { node: Node { value: Value::Table(under), .. }, .. }) => {
                if let Value::Table(over) = &mut there.get_mut().node.value {
                    lay_under(over, under);
                }
            }
            (Entry::Occupied(_), _) => {}
        }
    }
}

/// `origin` makes a place of a span: an override's own spans mean nothing to the recipe.
fn items(table: &DeTable<'_>, origin: &dyn Fn(Range<usize>) -> Origin) -> Items {
    let entries = table.iter().map(|(key, value)| {
        let node = Node { at: origin(value.span()), value: convert(value.get_ref(), origin) };
        (key.get_ref().to_string(), Item { key_at: origin(key.span()), node })
    });
    entries.collect()
}

fn convert(value: &DeValue<'_>, origin: &dyn Fn(Range<usize>) -> Origin) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(number) => Value::Integer(i64::from_str_radix(number.as_str(), number.radix()).ok()),
        DeValue::Float(_) => Value::Other("a float"),
        DeValue::Boolean(_) => Value::Other("a boolean"),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Table(table) => Value::Table(items(table, origin)),
        DeValue::Array(array) => Value::Array(
            array
                .iter()
                .map(|node| Node { at: origin(node.span()), value: convert(node.get_ref(), origin) })
                .collect(),
        ),
    }
}

/// The array that an override's text holds, written as in TOML.
pub(super) fn array(text: &str, index: usize) -> Option<Vec<Node>> {
    match convert(DeValue::parse(text).ok()?.get_ref(), &|_| Origin::Set(index)) {
        Value::Array(nodes) => Some(nodes),
        _ => None,
    }
}

/// Splits a dotted key as TOML does, quotes included.
pub(super) fn split_key(key: &str) -> Option<Vec<String>> {
    if key.contains(['\n', '\r', '#', '=']) {
        return None;
    }
    let line = format!("{key} = 0");
    let mut table = DeTable::parse(&line).ok()?.into_inner();
    let mut path = Vec::new();
    loop {
        let (name, value) = std::mem::take(&mut table).into_iter().next()?;
        path.push(name.into_inner().into_owned());
        match value.into_inner() {
            DeValue::Table(inner) => table = inner,
            _ => return Some(path),
        }
    }
}

/// Why an override can't be laid over the tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Conflict {
    /// A part of the key, of this many names, is no table.
    NoTable(usize),
    /// An earlier override set the same key.
    Twice,
}

/// Lays an override over the tree; tables on the way are made.
pub(super) fn lay(
    mut items: &mut Items,
    path: &[String],
    index: usize,
    text: &Override,
) -> Result<(), Conflict> {
    let Some((last, tables)) = path.split_last() else { return Ok(()) };
    for (depth, name) in tables.iter().enumerate() {
        let item = items.entry(name.clone()).or_insert_with(|| Item {
            key_at: Origin::Set(index),
            node: Node { at: Origin::Set(index), value: Value::Table(Items::new()) },
        });
        let Value::Table(inner) = &mut item.node.value else { return Err(Conflict::NoTable(depth + 1)) };
        items = inner;
    }
    if items.get(last).is_some_and(|item| matches!(item.node.at, Origin::Set(_))) {
        return Err(Conflict::Twice);
    }
    let node = Node { at: Origin::Set(index), value: Value::Raw(text.value.clone()) };
    items.insert(last.clone(), Item { key_at: Origin::Set(index), node });
    Ok(())
}
