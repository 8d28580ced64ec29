//! XML as a small tree: elements that hold elements or text, as answer files and WIM archives have it.
//!
//! Written files are ASCII bytes with numeric references, CRLF line ends, and the declaration first: Setup and
//! the tools around it have stumbled over anything else.

use std::fmt;
use std::io;

use quick_xml::events::attributes::Attribute;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};
use quick_xml::{Reader, Writer, XmlVersion, escape};
use thiserror::Error;
use zeroize::Zeroizing;

/// Nothing that is read here nests deeper than this.
const MAX_DEPTH: usize = 64;

/// An element. `Debug` shows its name only: the text may be a password.
#[derive(Clone, PartialEq)]
pub struct Element {
    /// The name, with its prefix.
    pub name: String,
    /// Attributes in their order, values decoded.
    pub attributes: Vec<(String, String)>,
    /// What is in it.
    pub content: Content,
}

/// What is in an element.
#[derive(Clone, PartialEq)]
pub enum Content {
    /// Elements, or nothing.
    Elements(Vec<Element>),
    /// Text, decoded; never blank.
    Text(Zeroizing<String>),
}

impl Element {
    /// The first element of that name in it.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children(name).next()
    }

    /// Every element of that name in it, in their order.
    pub fn children<'e, 'n>(&'e self, name: &'n str) -> impl Iterator<Item = &'e Self> + use<'e, 'n> {
        let inner = match &self.content {
            Content::Elements(elements) => elements.as_slice(),
            Content::Text(_) => &[],
        };
        inner.iter().filter(move |element| element.name == name)
    }

    /// Its text; `None` where it holds elements, or nothing.
    pub fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) => Some(text),
            Content::Elements(_) => None,
        }
    }

    /// The value of its attribute of that name.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

impl fmt::Debug for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}>", self.name)
    }
}

/// Where and why a text is not such a tree.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct XmlError {
    /// From 1.
    pub line: usize,
    /// From 1, in bytes.
    pub column: usize,
    /// What is wrong; never holds text of the file.
    pub problem: String,
}

/// Reads a document. Comments, blank text and the declaration are left out; a document type is refused.
pub fn parse(text: &str) -> Result<Element, XmlError> {
    let mut reader = Reader::from_str(text);
    let mut open: Vec<Open> = Vec::new();
    let mut root = None;
    loop {
        let at = reader.buffer_position();
        let event = reader.read_event().map_err(|e| error(text, reader.error_position(), problem(e)))?;
        let done = match event {
            Event::Eof => break,
            Event::Start(start) => {
                if open.len() == MAX_DEPTH {
                    return Err(error(text, at, format!("nested deeper than {MAX_DEPTH} elements")));
                }
                open.push(Open::new(&start).map_err(|problem| error(text, at, problem))?);
                None
            }
            Event::Empty(start) => Some(Open::new(&start).map_err(|problem| error(text, at, problem))?),
            Event::End(_) => open.pop(),
            Event::Text(part) => {
                add_text(&mut open, &part.xml10_content()).map(|()| None).map_err(at_offset(text, at))?
            }
            Event::CData(part) => {
                add_text(&mut open, &part.xml10_content()).map(|()| None).map_err(at_offset(text, at))?
            }
            Event::GeneralRef(reference) => {
                let value = match reference.resolve_char_ref() {
                    Ok(Some(c)) if is_xml_char(c) => c.to_string(),
                    Ok(None) if let Some(known) = escape::resolve_predefined_entity(&reference) => {
                        known.to_owned()
                    }
                    _ => return Err(error(text, at, "a reference to what XML does not know".to_owned())),
                };
                add_text(&mut open, &value).map(|()| None).map_err(at_offset(text, at))?
            }
            Event::Comment(_) | Event::Decl(_) => None,
            Event::PI(_) => {
                return Err(error(text, at, "a processing instruction has no place here".to_owned()));
            }
            Event::DocType(_) => return Err(error(text, at, "a document type has no place here".to_owned())),
        };
        let Some(done) = done else { continue };
        let element = done.close().map_err(at_offset(text, at))?;
        match open.last_mut() {
            Some(parent) => parent.elements.push(element),
            None if root.is_none() => root = Some(element),
            None => return Err(error(text, at, "a second root element".to_owned())),
        }
    }
    match root {
        Some(root) if open.is_empty() => Ok(root),
        _ => Err(error(text, text.len() as u64, "the document ends too early".to_owned())),
    }
}

/// An element whose end is still to come.
struct Open {
    name: String,
    attributes: Vec<(String, String)>,
    elements: Vec<Element>,
    text: Zeroizing<String>,
}

impl Open {
    fn new(start: &BytesStart<'_>) -> Result<Self, String> {
        let attributes = start
            .attributes()
            .map(|attribute| {
                let attribute = attribute.map_err(|e| e.to_string())?;
                let value = attribute.normalized_value(XmlVersion::Explicit1_0).map_err(problem)?;
                Ok((name(attribute.key.as_ref())?, value.into_owned()))
            })
            .collect::<Result<_, String>>()?;
        Ok(Self {
            name: name(start.name().as_ref())?,
            attributes,
            elements: Vec::new(),
            text: Zeroizing::default(),
        })
    }

    fn close(self) -> Result<Element, String> {
        let content = if is_blank(&self.text) {
            Content::Elements(self.elements)
        } else if self.elements.is_empty() {
            Content::Text(self.text)
        } else {
            return Err(format!("<{}> holds text and elements, which belong apart", self.name));
        };
        Ok(Element { name: self.name, attributes: self.attributes, content })
    }
}

fn name(name: &str) -> Result<String, String> {
    let good = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.:".contains(&b));
    if good {
        Ok(name.to_owned())
    } else {
        Err("a name that is not made of ASCII letters and digits".to_owned())
    }
}

fn add_text(open: &mut [Open], text: &str) -> Result<(), String> {
    match open.last_mut() {
        Some(element) => element.text.push_str(text),
        None if is_blank(text) => {}
        None => return Err("text outside of the root element".to_owned()),
    }
    Ok(())
}

fn is_blank(text: &str) -> bool {
    text.bytes().all(|b| b" \t\r\n".contains(&b))
}

fn at_offset(text: &str, at: u64) -> impl FnOnce(String) -> XmlError + '_ {
    move |problem| error(text, at, problem)
}

fn error(text: &str, at: u64, problem: String) -> XmlError {
    let at = usize::try_from(at).unwrap_or(usize::MAX).min(text.len());
    let before = &text.as_bytes()[..at];
    let line_start = before.iter().rposition(|b| *b == b'\n').map_or(0, |newline| newline + 1);
    let line = 1 + before.iter().filter(|b| **b == b'\n').count();
    XmlError { line, column: 1 + at - line_start, problem }
}

fn problem(error: quick_xml::Error) -> String {
    error.to_string()
}

/// Whether XML 1.0 lets a document hold this character at all, even as a reference (production 2, Char).
pub fn is_xml_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// Writes a document: declaration, elements indented by tabs, ASCII, CRLF.
pub fn write(root: &Element) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut unicode = Zeroizing::new(Vec::new());
    let mut writer = Writer::new_with_indent(&mut *unicode, b'\t', 1);
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("utf-8"), None)))?;
    write_element(&mut writer, root)?;
    unicode.push(b'\n');
    let text = str::from_utf8(&unicode).map_err(io::Error::other)?;
    let mut ascii = Zeroizing::new(Vec::with_capacity(2 * text.len()));
    for c in text.chars() {
        match c {
            // Values hold no line ends, so these are the writer's own.
            '\n' => ascii.extend_from_slice(b"\r\n"),
            '\0'..='\x7f' => ascii.push(c as u8),
            // Names are ASCII, so this is text or an attribute's value, where a reference may stand.
            _ => ascii.extend_from_slice(format!("&#x{:X};", u32::from(c)).as_bytes()),
        }
    }
    Ok(ascii)
}

fn write_element<W: io::Write>(writer: &mut Writer<W>, element: &Element) -> io::Result<()> {
    let attributes =
        element.attributes.iter().map(|(name, value)| Attribute::from((name.as_str(), value.as_str())));
    let start = BytesStart::new(element.name.as_str()).with_attributes(attributes);
    match &element.content {
        Content::Elements(elements) if elements.is_empty() => return writer.write_event(Event::Empty(start)),
        Content::Elements(elements) => {
            writer.write_event(Event::Start(start))?;
            for inner in elements {
                write_element(writer, inner)?;
            }
        }
        Content::Text(text) => {
            writer.write_event(Event::Start(start))?;
            writer.write_event(Event::Text(BytesText::new(text)))?;
        }
    }
    writer.write_event(Event::End(BytesEnd::new(element.name.as_str())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn leaf(attribute: &str, text: &str) -> Element {
        let content =
            if is_blank(text) { Content::Elements(vec![]) } else { Content::Text(text.to_owned().into()) };
        Element { name: "a:leaf".into(), attributes: vec![("b:c".into(), attribute.into())], content }
    }

    #[test]
    fn what_is_written_is_ascii_with_crlf_after_the_declaration() {
        let inner = vec![leaf("<&>\"'", "<&>\"' ä 日 😀"), leaf("", "")];
        let root = Element { name: "root".into(), attributes: vec![], content: Content::Elements(inner) };
        let bytes = write(&root).unwrap();
        let text = str::from_utf8(&bytes).unwrap();
        assert_eq!(
            text,
            "<?xml version=\"1.0\" encoding=\"utf-8\"?>\r\n<root>\r\n\
             \t<a:leaf b:c=\"&lt;&amp;&gt;&quot;&apos;\">&lt;&amp;&gt;&quot;&apos; &#xE4; &#x65E5; &#x1F600;</a:leaf>\r\n\
             \t<a:leaf b:c=\"\"/>\r\n</root>\r\n"
        );
        assert!(parse(text).unwrap() == root);
    }

    #[test]
    fn broken_documents_are_errors_with_a_place() {
        for (text, line, column) in [
            ("", 1, 1),
            ("<a>", 1, 4),
            ("<a>\n<b></a>", 2, 4),
            ("<a/><b/>", 1, 5),
            ("<a/>x", 1, 5),
            ("<a>\n  <b x='1' x='2'/></a>", 2, 3),
            ("<a>&nope;</a>", 1, 4),
            ("<a>&#0;</a>", 1, 4),
            ("<a>&#xFFFF;</a>", 1, 4),
            ("<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", 1, 1),
            ("<a>text<b/></a>", 1, 12),
            ("<?go?><a/>", 1, 1),
            ("<\u{e4}/>", 1, 1),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
        }
        for text in ["<a b></a>", "<a", "<a>&", "<a><!-- </a>", "<a b='&c;'/>", "<a></b>", "</a>"] {
            assert!(parse(text).is_err(), "{text}");
        }
        let deep = "<a>".repeat(100_000);
        assert!(parse(&deep).unwrap_err().problem.contains("deeper"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[<>/&;#x!?a-c'\"= \\n\\[\\]-]{0,60}|\\PC{0,60}") {
            let _ = parse(&text);
        }

        #[test]
        fn every_value_comes_back(
            attribute in proptest::collection::vec(any::<char>(), 0..30),
            text in proptest::collection::vec(any::<char>(), 0..30),
        ) {
            let keep = |chars: Vec<char>| -> String {
                chars.into_iter().filter(|c| is_xml_char(*c) && !c.is_control()).collect()
            };
            let element = leaf(&keep(attribute), &keep(text));
            let bytes = write(&element).unwrap();
            prop_assert!(bytes.is_ascii());
            prop_assert!(parse(str::from_utf8(&bytes).unwrap()).unwrap() == element);
        }
    }
}
