//! ASN.1 elements, one after the other, with their place in the file: what catalogs and signatures are read with.
//!
//! Headers are decoded by the `der` crate, which takes nothing but DER. Nothing here recurses, whatever is nested.

use der::asn1::ObjectIdentifier;
use der::{Decode as _, ErrorKind, Header, Reader as _, SliceReader, Tag, TagNumber};
use time::{Date, Month, OffsetDateTime, Time};

use super::catalog::CatalogError;

/// An element with its bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Element<'a> {
    pub tag: Tag,
    /// What stands behind tag and length.
    pub value: &'a [u8],
    /// All of it.
    pub whole: &'a [u8],
    /// Where it begins, in bytes from the beginning of the file.
    pub at: usize,
    /// The structure it was found in, for errors.
    pub within: &'static str,
}

/// The elements of a structure, in order.
#[derive(Debug, Clone)]
pub(super) struct Elements<'a> {
    rest: &'a [u8],
    at: usize,
    within: &'static str,
}

/// `[number]`, constructed.
pub(super) fn context(number: u32) -> Tag {
    Tag::ContextSpecific { constructed: true, number: TagNumber(number) }
}

/// `[number]`, primitive.
pub(super) fn context_primitive(number: u32) -> Tag {
    Tag::ContextSpecific { constructed: false, number: TagNumber(number) }
}

impl<'a> Elements<'a> {
    /// Those of a whole file.
    pub fn of_file(bytes: &'a [u8], within: &'static str) -> Self {
        Self { rest: bytes, at: 0, within }
    }

    /// The next one, if there is one.
    pub fn next(&mut self) -> Result<Option<Element<'a>>, CatalogError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let mut reader = SliceReader::new(self.rest).map_err(|e| self.error(&e))?;
        let header = Header::decode(&mut reader).map_err(|e| self.error(&e))?;
        let start = usize::try_from(reader.position()).unwrap_or(usize::MAX);
        let length = usize::try_from(header.length()).unwrap_or(usize::MAX);
        let end = start.checked_add(length).filter(|end| *end <= self.rest.len());
        let Some(end) = end else {
            let left = self.rest.len() - start.min(self.rest.len());
            return Err(self.wrong(format!("an element of {length} bytes, where {left} are left")));
        };
        let (whole, rest) = self.rest.split_at(end);
        let element =
            Element { tag: header.tag(), value: &whole[start..], whole, at: self.at, within: self.within };
        self.rest = rest;
        self.at += end;
        Ok(Some(element))
    }

    /// The next one, if it has this tag; otherwise it stays.
    pub fn optional(&mut self, tag: Tag) -> Result<Option<Element<'a>>, CatalogError> {
        let before = self.clone();
        match self.next()? {
            Some(element) if element.tag == tag => Ok(Some(element)),
            _ => {
                *self = before;
                Ok(None)
            }
        }
    }

    /// The next one, which must have this tag.
    pub fn expect(&mut self, tag: Tag) -> Result<Element<'a>, CatalogError> {
        match self.next()? {
            Some(element) if element.tag == tag => Ok(element),
            Some(element) => Err(element.wrong(format!("{}, where {tag} belongs", element.tag))),
            None => Err(self.wrong(format!("the end, where {tag} belongs"))),
        }
    }

    /// The next one, whatever it is.
    pub fn any(&mut self) -> Result<Element<'a>, CatalogError> {
        self.next()?.ok_or_else(|| self.wrong("the end, where an element belongs".to_owned()))
    }

    /// What is left over.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn wrong(&self, found: String) -> CatalogError {
        CatalogError::Structure { within: self.within, at: self.at, found }
    }

    fn error(&self, error: &der::Error) -> CatalogError {
        self.wrong(match error.kind() {
            ErrorKind::IndefiniteLength => "a length that is not told (BER), where DER belongs".to_owned(),
            ErrorKind::Incomplete { .. } => "the end within an element".to_owned(),
            kind => kind.to_string(),
        })
    }
}

impl<'a> Element<'a> {
    /// The elements that it consists of.
    pub fn children(&self, within: &'static str) -> Elements<'a> {
        let at = self.at + (self.whole.len() - self.value.len());
        Elements { rest: self.value, at, within }
    }

    /// An object identifier's value.
    pub fn oid(&self) -> Result<ObjectIdentifier, CatalogError> {
        ObjectIdentifier::from_bytes(self.value)
            .map_err(|_| self.wrong("a malformed object identifier".to_owned()))
    }

    /// `UTCTime` or `GeneralizedTime` (also with fractions of a second, which timestamps may have), in UTC.
    pub fn time(&self) -> Result<OffsetDateTime, CatalogError> {
        parse_time(self.tag, self.value).ok_or_else(|| self.wrong("a malformed time".to_owned()))
    }

    pub fn wrong(&self, found: String) -> CatalogError {
        CatalogError::Structure { within: self.within, at: self.at, found }
    }
}

fn parse_time(tag: Tag, value: &[u8]) -> Option<OffsetDateTime> {
    let text = std::str::from_utf8(value).ok()?.strip_suffix('Z')?;
    let (text, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !text.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match tag {
        // RFC 5280, 4.1.2.5.1: from 1950 to 2049.
        Tag::UtcTime if fraction.is_empty() => {
            let year: i32 = text.get(..2)?.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, text.get(2..)?)
        }
        Tag::GeneralizedTime => (text.get(..4)?.parse().ok()?, text.get(4..)?),
        _ => return None,
    };
    if rest.len() != 10 {
        return None;
    }
    let two = |at: usize| rest.get(at..at + 2)?.parse::<u8>().ok();
    let date = Date::from_calendar_date(year, Month::try_from(two(0)?).ok()?, two(2)?).ok()?;
    Some(OffsetDateTime::new_utc(date, Time::from_hms(two(4)?, two(6)?, two(8)?).ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn times() {
        let unix = |tag, text: &str| parse_time(tag, text.as_bytes()).map(OffsetDateTime::unix_timestamp);
        assert_eq!(unix(Tag::UtcTime, "240702123456Z"), Some(1_719_923_696));
        assert_eq!(unix(Tag::UtcTime, "500101000000Z"), Some(-631_152_000));
        assert_eq!(unix(Tag::GeneralizedTime, "20240702123456Z"), Some(1_719_923_696));
        assert_eq!(unix(Tag::GeneralizedTime, "20240702123456.789Z"), Some(1_719_923_696));
        for wrong in
            ["", "Z", "2407021234Z", "240702123456", "240702123456+0100", "241302123456Z", "24070212345éZ"]
        {
            assert_eq!(unix(Tag::UtcTime, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_no_der_is_told_with_its_place() {
        let error = |bytes: &[u8]| {
            let mut file = Elements::of_file(bytes, "file");
            let outer = file.next().and_then(|outer| outer.unwrap().children("inner").next()).unwrap_err();
            outer.to_string()
        };
        assert!(error(b"\x30\x80\x00\x00").contains("BER"));
        assert!(error(b"\x30\x04\x04\x05ab").contains("offset 2"));
        assert!(error(b"\x30\x01\x04").contains("the end"));
        assert!(error(b"\x30\x84\xff\xff\xff\xff").contains("file"));
        let mut elements = Elements::of_file(b"\x05\x00\x04\x00", "file");
        assert!(elements.optional(Tag::Integer).unwrap().is_none());
        assert!(elements.optional(Tag::Null).unwrap().is_some());
        assert!(elements.expect(Tag::Integer).is_err());
    }
}
