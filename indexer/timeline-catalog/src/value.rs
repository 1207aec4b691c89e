//! Encoding of attribute values on disk and in memory, as specified in `FORMAT.md`.
//!
//! Rows and packed attributes in memory share this encoding. Lists stay encoded in memory and are decoded by iterators.
//! The kind bytes are stored, so they must not change.

use tideline_model::{GeoPoint, Timestamp};
use tideline_wire::varint;

use crate::attributes::{AttributeType, AttributeValue};

const KIND_TEXT: u8 = 1;
const KIND_NUMBER: u8 = 2;
const KIND_BOOLEAN: u8 = 3;
const KIND_TIME: u8 = 4;
const KIND_POINT: u8 = 5;
const KIND_TEXTS: u8 = 6;
const KIND_NUMBERS: u8 = 7;

/// A borrowed attribute value in the catalog's memory.
#[derive(Debug, Clone, Copy)]
pub enum AttributeRef<'a> {
    /// Borrowed [`AttributeValue::Text`].
    Text(&'a str),
    /// Copy of an [`AttributeValue::Number`].
    Number(f64),
    /// Copy of an [`AttributeValue::Boolean`].
    Boolean(bool),
    /// Copy of an [`AttributeValue::Time`].
    Time(Timestamp),
    /// Copy of an [`AttributeValue::Point`].
    Point(GeoPoint),
    /// Borrowed [`AttributeValue::Texts`].
    Texts(TextList<'a>),
    /// Borrowed [`AttributeValue::Numbers`].
    Numbers(NumberList<'a>),
}

/// Encoded list of texts.
#[derive(Debug, Clone, Copy)]
pub struct TextList<'a>(&'a [u8]);

/// Encoded list of doubles.
#[derive(Debug, Clone, Copy)]
pub struct NumberList<'a>(&'a [u8]);

impl<'a> TextList<'a> {
    /// Iterates over the texts in order.
    pub fn iter(self) -> impl Iterator<Item = &'a str> + Clone {
        let mut parts = Parts { rest: self.0 };
        std::iter::from_fn(move || parts.text())
    }
}

impl<'a> NumberList<'a> {
    /// Iterates over the numbers in order.
    pub fn iter(self) -> impl Iterator<Item = f64> + Clone + use<'a> {
        let mut parts = Parts { rest: self.0 };
        std::iter::from_fn(move || parts.double())
    }
}

impl AttributeRef<'_> {
    /// Returns an owned copy.
    pub fn to_value(self) -> AttributeValue {
        match self {
            Self::Text(text) => AttributeValue::Text(text.to_owned()),
            Self::Number(number) => AttributeValue::Number(number),
            Self::Boolean(boolean) => AttributeValue::Boolean(boolean),
            Self::Time(time) => AttributeValue::Time(time),
            Self::Point(point) => AttributeValue::Point(point),
            Self::Texts(texts) => AttributeValue::Texts(texts.iter().map(str::to_owned).collect()),
            Self::Numbers(numbers) => AttributeValue::Numbers(numbers.iter().collect()),
        }
    }

    /// Returns the encoded value. The bytes are equal if and only if the values are equal; a negative zero is encoded
    /// as a positive zero.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_value(&mut bytes, &self.to_value());
        bytes
    }

    /// Returns the type of the value.
    pub fn kind(self) -> AttributeType {
        match self {
            Self::Text(_) => AttributeType::Text,
            Self::Number(_) => AttributeType::Number,
            Self::Boolean(_) => AttributeType::Boolean,
            Self::Time(_) => AttributeType::Time,
            Self::Point(_) => AttributeType::Point,
            Self::Texts(_) => AttributeType::Texts,
            Self::Numbers(_) => AttributeType::Numbers,
        }
    }
}

/// Returns true if rows of version 1 may hold a value of this type.
pub(crate) fn is_of_version_1(kind: AttributeType) -> bool {
    matches!(
        kind,
        AttributeType::Text | AttributeType::Number | AttributeType::Boolean
    )
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    varint::put(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

/// Appends a double. A negative zero is written as a positive zero.
fn put_double(out: &mut Vec<u8>, number: f64) {
    out.extend_from_slice(&(number + 0.0).to_le_bytes());
}

/// Appends the kind byte and the encoded value.
pub(crate) fn put_value(out: &mut Vec<u8>, value: &AttributeValue) {
    match value {
        AttributeValue::Text(text) => {
            out.push(KIND_TEXT);
            put_text(out, text);
        }
        AttributeValue::Number(number) => {
            out.push(KIND_NUMBER);
            put_double(out, *number);
        }
        AttributeValue::Boolean(boolean) => out.extend_from_slice(&[KIND_BOOLEAN, u8::from(*boolean)]),
        AttributeValue::Time(time) => {
            out.push(KIND_TIME);
            out.extend_from_slice(&time.nanos().to_le_bytes());
        }
        AttributeValue::Point(point) => {
            out.push(KIND_POINT);
            put_double(out, point.latitude());
            put_double(out, point.longitude());
        }
        AttributeValue::Texts(texts) => {
            let mut list = Vec::new();
            texts.iter().for_each(|text| put_text(&mut list, text));
            out.push(KIND_TEXTS);
            varint::put(list.len() as u64, out);
            out.extend_from_slice(&list);
        }
        AttributeValue::Numbers(numbers) => {
            out.push(KIND_NUMBERS);
            varint::put(numbers.len() as u64 * 8, out);
            numbers.iter().for_each(|number| put_double(out, *number));
        }
    }
}

/// Decoder that takes parts off the front of its input. Methods return `None` if the bytes are malformed.
#[derive(Debug, Clone)]
pub(crate) struct Parts<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Parts<'a> {
    /// Takes a kind byte and the value after it.
    pub(crate) fn value(&mut self) -> Option<AttributeRef<'a>> {
        match *self.bytes(1)? {
            [KIND_TEXT] => self.text().map(AttributeRef::Text),
            [KIND_NUMBER] => self.double().map(AttributeRef::Number),
            [KIND_BOOLEAN] => match self.bytes(1)? {
                [flag @ 0..=1] => Some(AttributeRef::Boolean(*flag == 1)),
                _ => None,
            },
            [KIND_TIME] => {
                let nanos = i64::from_le_bytes(self.bytes(8)?.try_into().ok()?);
                Timestamp::from_nanos(nanos).ok().map(AttributeRef::Time)
            }
            [KIND_POINT] => {
                let (latitude, longitude) = (self.double()?, self.double()?);
                GeoPoint::new(latitude, longitude).map(AttributeRef::Point)
            }
            [KIND_TEXTS] => self.text_list().map(AttributeRef::Texts),
            [KIND_NUMBERS] => {
                let list = self.list()?;
                (list.len() % 8 == 0).then_some(AttributeRef::Numbers(NumberList(list)))
            }
            _ => None,
        }
    }

    fn text_list(&mut self) -> Option<TextList<'a>> {
        let list = self.list()?;
        let mut parts = Parts { rest: list };
        while !parts.rest.is_empty() {
            parts.text()?;
        }
        Some(TextList(list))
    }

    /// Takes the bytes of a non-empty list.
    fn list(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.bytes(length).filter(|list| !list.is_empty())
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok()?;
        std::str::from_utf8(self.bytes(length)?).ok()
    }

    fn double(&mut self) -> Option<f64> {
        let bytes = self.bytes(8)?.try_into().ok()?;
        Some(f64::from_le_bytes(bytes))
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        varint::take(&mut self.rest).ok()
    }
}
