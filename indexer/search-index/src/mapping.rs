//! How a timeline becomes a tantivy document: the schema and the tokens.
//!
//! A document has one indexed field that holds all its tokens, and one fast field that says which timeline it
//! is. Nothing is stored, and neither positions nor frequencies are kept. Tokens are bytes, opened by the
//! table, so the terms of one table, and of one tag key in it, lie side by side in the dictionary:
//!
//! ```text
//! table: u32 big-endian ‖ kind: u8 ‖ rest
//!
//! kind              rest                                         says that the timeline
//! 0 table           –                                            belongs to the table
//! 1 measurement     text                                         has this measurement
//! 2 tag key         key                                          has this tag
//! 3 tag             key length: u16 big-endian ‖ key ‖ value     has this tag with this value
//! 4 attribute key   key                                          has this attribute
//! 5 attribute       as tag; the value opens with its type        has this attribute with this value, or a list with it
//! 6 word            property: u8 ‖ as tag key ‖ word             says this word in this property
//! ```
//!
//! A word is of the measurement (property 1), a tag (2) or an attribute that is text (3); it is in small letters. Numbers
//! and times are written so that the order of the bytes is theirs. A place is its number on a curve round the
//! globe, where neighbours mostly lie side by side, then its latitude and longitude. So ranges and areas are ranges of
//! the dictionary. The values of a list have the tokens that they would have alone.
//!
//! The length before a key keeps apart what a separator could not: tags may hold any character. The source has
//! no token, because the source tags say it.

use tantivy::TantivyDocument;
use tantivy::schema::{BytesOptions, FAST, Field, Schema};
use tideline_model::{Ordinal, TableId, Timestamp};
use tideline_timeline_catalog::{AttributeRef, AttributeValue, Entry, GeoPoint};

use crate::condition::PATTERN_BYTES_MAX;
use crate::geo::cell_of;
use crate::text::words;

const KIND_TABLE: u8 = 0;
const KIND_MEASUREMENT: u8 = 1;
const KIND_TAG_KEY: u8 = 2;
const KIND_TAG: u8 = 3;
const KIND_ATTRIBUTE_KEY: u8 = 4;
const KIND_ATTRIBUTE: u8 = 5;
const KIND_WORD: u8 = 6;

/// Longest word that has a token, in bytes: longer ones cannot be asked for.
const WORD_BYTES_MAX: usize = 2 * PATTERN_BYTES_MAX;

const TYPE_TEXT: u8 = 1;
const TYPE_NUMBER: u8 = 2;
const TYPE_BOOLEAN: u8 = 3;
const TYPE_TIME: u8 = 4;
const TYPE_POINT: u8 = 5;

/// The sign of a number in order.
const SIGN: u64 = 1 << 63;

/// Name of the fast field that holds [`document_key`].
pub(crate) const KEY_FIELD: &str = "key";

/// The two fields of the schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields {
    pub(crate) tokens: Field,
    key: Field,
}

/// The schema of the index; another one on disk means that the index is rebuilt.
pub(crate) fn schema() -> (Schema, Fields) {
    let mut builder = Schema::builder();
    let tokens = builder.add_bytes_field("tokens", BytesOptions::default().set_indexed());
    let key = builder.add_u64_field(KEY_FIELD, FAST);
    (builder.build(), Fields { tokens, key })
}

/// Names a timeline across tables: `table ‖ ordinal`.
pub(crate) fn document_key(table: TableId, ordinal: Ordinal) -> u64 {
    u64::from(table.0) << 32 | u64::from(ordinal.0)
}

/// The ordinal in a document key.
pub(crate) fn ordinal_of(key: u64) -> u32 {
    key as u32
}

/// A property that says words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Property<'a> {
    Measurement,
    Tag(&'a str),
    Attribute(&'a str),
}

/// The document of a timeline.
pub(crate) fn document(fields: Fields, table: TableId, entry: &Entry<'_>) -> TantivyDocument {
    let mut document = TantivyDocument::new();
    document.add_u64(fields.key, document_key(table, entry.ordinal()));
    let mut add = |token: Token| document.add_bytes(fields.tokens, &token.0);
    add(Token::table(table));
    add(Token::measurement(table, entry.measurement()));
    add_words(&mut add, table, Property::Measurement, entry.measurement());
    for (key, value) in entry.tags() {
        add(Token::tag_key(table, key));
        add(Token::tag(table, key, value));
        add_words(&mut add, table, Property::Tag(key), value);
    }
    for (key, value) in entry.attributes() {
        add(Token::attribute_key(table, key));
        match value {
            AttributeRef::Text(text) => add_text(&mut add, table, key, text),
            AttributeRef::Number(number) => add(Token::attribute_number(table, key, number)),
            AttributeRef::Boolean(boolean) => add(Token::attribute_boolean(table, key, boolean)),
            AttributeRef::Time(time) => add(Token::attribute_time(table, key, time)),
            AttributeRef::Point(point) => add(Token::attribute_point(table, key, point)),
            AttributeRef::Texts(texts) => {
                texts.iter().for_each(|text| add_text(&mut add, table, key, text));
            }
            AttributeRef::Numbers(numbers) => {
                numbers
                    .iter()
                    .for_each(|number| add(Token::attribute_number(table, key, number)));
            }
        }
    }
    document
}

fn add_text(add: &mut dyn FnMut(Token), table: TableId, key: &str, text: &str) {
    add(Token::attribute_text(table, key, text));
    add_words(add, table, Property::Attribute(key), text);
}

fn add_words(add: &mut dyn FnMut(Token), table: TableId, property: Property<'_>, text: &str) {
    for word in words(text).filter(|word| word.len() <= WORD_BYTES_MAX) {
        add(Token::word(table, property, &word));
    }
}

/// The bytes of a term.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Token(pub(crate) Vec<u8>);

impl Token {
    pub(crate) fn table(table: TableId) -> Self {
        Self::of(table, KIND_TABLE, &[])
    }

    pub(crate) fn measurement(table: TableId, measurement: &str) -> Self {
        Self::of(table, KIND_MEASUREMENT, &[measurement.as_bytes()])
    }

    pub(crate) fn tag_key(table: TableId, key: &str) -> Self {
        Self::of(table, KIND_TAG_KEY, &[key.as_bytes()])
    }

    /// With an empty `value`: what all tokens of the key begin with.
    pub(crate) fn tag(table: TableId, key: &str, value: &str) -> Self {
        Self::of(
            table,
            KIND_TAG,
            &[&key_length(key), key.as_bytes(), value.as_bytes()],
        )
    }

    pub(crate) fn attribute_key(table: TableId, key: &str) -> Self {
        Self::of(table, KIND_ATTRIBUTE_KEY, &[key.as_bytes()])
    }

    /// The token of a value that is asked for; `None` for a list.
    pub(crate) fn of_value(table: TableId, key: &str, value: &AttributeValue) -> Option<Self> {
        Some(match value {
            AttributeValue::Text(text) => Self::attribute_text(table, key, text),
            AttributeValue::Number(number) => Self::attribute_number(table, key, *number),
            AttributeValue::Boolean(boolean) => Self::attribute_boolean(table, key, *boolean),
            AttributeValue::Time(time) => Self::attribute_time(table, key, *time),
            AttributeValue::Point(point) => Self::attribute_point(table, key, *point),
            AttributeValue::Texts(_) | AttributeValue::Numbers(_) => return None,
        })
    }

    fn attribute_boolean(table: TableId, key: &str, boolean: bool) -> Self {
        Self::attribute_of(table, key, TYPE_BOOLEAN, &[u8::from(boolean)])
    }

    fn attribute_time(table: TableId, key: &str, time: Timestamp) -> Self {
        Self::attribute_of(table, key, TYPE_TIME, &ordered_time(time.nanos()).to_be_bytes())
    }

    fn attribute_point(table: TableId, key: &str, point: GeoPoint) -> Self {
        // Both zeros are one number.
        let (latitude, longitude) = (point.latitude() + 0.0, point.longitude() + 0.0);
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&cell_of(point).to_be_bytes());
        bytes[8..16].copy_from_slice(&latitude.to_be_bytes());
        bytes[16..].copy_from_slice(&longitude.to_be_bytes());
        Self::attribute_of(table, key, TYPE_POINT, &bytes)
    }

    /// With an empty `text`: the token of the empty text, and what those of all texts begin with.
    pub(crate) fn attribute_text(table: TableId, key: &str, text: &str) -> Self {
        Self::attribute_of(table, key, TYPE_TEXT, text.as_bytes())
    }

    fn attribute_number(table: TableId, key: &str, number: f64) -> Self {
        Self::attribute_of(table, key, TYPE_NUMBER, &ordered(number).to_be_bytes())
    }

    /// What the tokens of all numbers begin with; [`ordered`] makes the rest.
    pub(crate) fn attribute_numbers(table: TableId, key: &str) -> Self {
        Self::attribute_of(table, key, TYPE_NUMBER, &[])
    }

    /// What the tokens of all times begin with; [`ordered_time`] makes the rest.
    pub(crate) fn attribute_times(table: TableId, key: &str) -> Self {
        Self::attribute_of(table, key, TYPE_TIME, &[])
    }

    /// What the tokens of all places begin with; [`point_of`] reads the rest.
    pub(crate) fn attribute_points(table: TableId, key: &str) -> Self {
        Self::attribute_of(table, key, TYPE_POINT, &[])
    }

    /// With an empty `word`: what all words of the property begin with.
    pub(crate) fn word(table: TableId, property: Property<'_>, word: &str) -> Self {
        let (kind, key) = match property {
            Property::Measurement => (1, ""),
            Property::Tag(key) => (2, key),
            Property::Attribute(key) => (3, key),
        };
        let rest: [&[u8]; 4] = [&[kind], &key_length(key), key.as_bytes(), word.as_bytes()];
        Self::of(table, KIND_WORD, &rest)
    }

    /// What all words of all properties begin with.
    pub(crate) fn words(table: TableId) -> Self {
        Self::of(table, KIND_WORD, &[])
    }

    /// What all words of the property of a token begin with, as [`word`](Self::word) makes it; `None` where the token is
    /// none.
    pub(crate) fn property_of_word(token: &[u8]) -> Option<Self> {
        /// Table, kind and property.
        const HEAD_BYTES: usize = 6;
        let (_, rest) = token.split_at_checked(HEAD_BYTES)?;
        let length = u16::from_be_bytes(*rest.first_chunk::<2>()?);
        let prefix = token.get(..HEAD_BYTES + 2 + usize::from(length))?;
        Some(Self(prefix.to_vec()))
    }

    fn attribute_of(table: TableId, key: &str, kind: u8, value: &[u8]) -> Self {
        Self::of(
            table,
            KIND_ATTRIBUTE,
            &[&key_length(key), key.as_bytes(), &[kind], value],
        )
    }

    fn of(table: TableId, kind: u8, rest: &[&[u8]]) -> Self {
        let mut bytes = Vec::with_capacity(5 + rest.iter().map(|part| part.len()).sum::<usize>());
        bytes.extend_from_slice(&table.0.to_be_bytes());
        bytes.push(kind);
        rest.iter().for_each(|part| bytes.extend_from_slice(part));
        Self(bytes)
    }
}

/// A finite number as bits whose order is that of numbers; both zeros are one.
pub(crate) fn ordered(number: f64) -> u64 {
    let bits = (number + 0.0).to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// Nanoseconds as bits whose order is that of time.
pub(crate) fn ordered_time(nanos: i64) -> u64 {
    nanos as u64 ^ SIGN
}

/// The place of an attribute's token, from what follows its prefix.
pub(crate) fn point_of(value: &[u8]) -> Option<GeoPoint> {
    let (_, coordinates) = value.split_first_chunk::<8>()?;
    let (latitude, longitude) = coordinates.split_first_chunk::<8>()?;
    GeoPoint::new(
        f64::from_be_bytes(*latitude),
        f64::from_be_bytes(longitude.try_into().ok()?),
    )
}

/// Keys of timelines are far below 64 KiB; a longer one can only be asked for, and no token may equal it.
fn key_length(key: &str) -> [u8; 2] {
    u16::try_from(key.len()).unwrap_or(u16::MAX).to_be_bytes()
}
