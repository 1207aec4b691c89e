//! Schema of the index, and the mapping from a timeline to the tokens of its document.
//!
//! A document has one indexed field with all its tokens, and one fast field with the key of the timeline. Nothing is
//! stored, and neither positions nor frequencies are indexed. Tokens are bytes that begin with the table id. The terms
//! of a table are therefore adjacent in the dictionary, and so are the terms of one tag key within a table:
//!
//! ```text
//! table: u32 big-endian ‖ kind: u8 ‖ rest
//!
//! kind              rest                                         meaning
//! 0 table           –                                            the timeline belongs to the table
//! 1 shape           name (measurement) ‖ name (tag key) …        it has this measurement and these tag keys, sorted
//! 2 tag             name (key) ‖ value                           it has this tag with this value
//! 3 attribute keys  name (key) …                                 it has these attributes, sorted
//! 4 attribute       as tag; the value begins with its type       it has this attribute value, alone or in a list
//! 5 word            property: u8 ‖ name (key) ‖ word             this property contains this word
//!
//! name: length: u16 big-endian ‖ bytes
//! ```
//!
//! The timelines of a table have few shapes. Measurements and the presence of keys are therefore found by scanning
//! the shapes, and a timeline needs only one token for them. The number of tokens dominates the cost of building an
//! index.
//!
//! The property of a word is a tag (1) or a text attribute (2). Words are in lower case. A word has a token only if
//! it is not the whole value: a value that is a single lower-case word is found by the token of the value. An attribute
//! with a configured analyzer also has a token for each word that the analyzer returns, with the property 3.
//!
//! Numbers and times are encoded so that their bytes sort like the values. A point is encoded as its number on a
//! space-filling curve around the globe, followed by its latitude and longitude; neighbors on the globe mostly have
//! adjacent numbers. Ranges and areas are therefore ranges of the dictionary. Each value of a list has the tokens of
//! a single value.
//!
//! Names have a length prefix because tags may contain any character, so no separator would be safe. The source has
//! no token, because the source tags determine it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tantivy::TantivyDocument;
use tantivy::schema::{BytesOptions, FAST, Field, Schema};
use tideline_model::{GeoPoint, Ordinal, SearchAnalyzer, TableId, Timestamp};
use tideline_timeline_catalog::{AttributeRef, Entry};

use tideline_condition::Literal;
use tideline_condition::analyzer::analyzed;
use tideline_condition::condition::PATTERN_BYTES_MAX;
use tideline_condition::geo::cell_of;
use tideline_condition::text::{is_word, words};

const KIND_TABLE: u8 = 0;
const KIND_SHAPE: u8 = 1;
const KIND_TAG: u8 = 2;
const KIND_ATTRIBUTE_KEYS: u8 = 3;
const KIND_ATTRIBUTE: u8 = 4;
const KIND_WORD: u8 = 5;

/// Maximum length of a word with a token, in bytes. Longer words cannot be searched for.
const WORD_BYTES_MAX: usize = 2 * PATTERN_BYTES_MAX;

/// Length of table and kind at the start of a token, in bytes.
const HEAD_BYTES: usize = size_of::<TableId>() + 1;

const PROPERTY_TAG: u8 = 1;
const PROPERTY_ATTRIBUTE: u8 = 2;
const PROPERTY_ANALYZED: u8 = 3;

const TYPE_TEXT: u8 = 1;
const TYPE_NUMBER: u8 = 2;
const TYPE_BOOLEAN: u8 = 3;
const TYPE_TIME: u8 = 4;
const TYPE_POINT: u8 = 5;

/// Sign bit of ordered numbers.
const SIGN: u64 = 1 << 63;

/// Analyzers of attributes by their keys.
pub(crate) type Analyzers = BTreeMap<String, SearchAnalyzer>;

/// Name of the fast field with the [`document_key`].
pub(crate) const KEY_FIELD: &str = "key";

/// Fields of the schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields {
    pub(crate) tokens: Field,
    key: Field,
}

/// Returns the schema of the index. An index on disk with a different schema is rebuilt.
pub(crate) fn schema() -> (Schema, Fields) {
    let mut builder = Schema::builder();
    let tokens = builder.add_bytes_field("tokens", BytesOptions::default().set_indexed());
    let key = builder.add_u64_field(KEY_FIELD, FAST);
    (builder.build(), Fields { tokens, key })
}

/// Returns the key of a timeline across tables: `table ‖ ordinal`.
pub(crate) fn document_key(table: TableId, ordinal: Ordinal) -> u64 {
    u64::from(table.0) << 32 | u64::from(ordinal.0)
}

/// Returns the ordinal in a document key.
pub(crate) fn ordinal_of(key: u64) -> u32 {
    key as u32
}

/// Property that has a key and may contain words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyed<'a> {
    Tag(&'a str),
    Attribute(&'a str),
    /// Attribute with the words of its configured analyzer.
    Analyzed(&'a str),
}

/// Builder of documents that reuses one token buffer.
#[derive(Debug)]
pub(crate) struct Documents {
    fields: Fields,
    table: TableId,
    analyzers: Arc<Analyzers>,
    token: Token,
}

impl Documents {
    pub(crate) fn new(fields: Fields, table: TableId, analyzers: Arc<Analyzers>) -> Self {
        let token = Token::table(table);
        Self {
            fields,
            table,
            analyzers,
            token,
        }
    }

    /// Returns the document of a timeline.
    pub(crate) fn document(&mut self, entry: &Entry<'_>) -> TantivyDocument {
        let mut document = TantivyDocument::new();
        document.add_u64(self.fields.key, document_key(self.table, entry.ordinal()));
        self.add(&mut document, KIND_TABLE, |_| {});
        self.add(&mut document, KIND_SHAPE, |token| {
            token.name(entry.measurement());
            entry.tags().for_each(|(key, _)| token.name(key));
        });
        for (key, value) in entry.tags() {
            self.add(&mut document, KIND_TAG, |token| {
                token.value_of(key, &[value.as_bytes()]);
            });
            self.add_words(&mut document, Keyed::Tag(key), value);
        }
        if entry.attributes().next().is_none() {
            return document;
        }
        self.add(&mut document, KIND_ATTRIBUTE_KEYS, |token| {
            entry.attributes().for_each(|(key, _)| token.name(key));
        });
        for (key, value) in entry.attributes() {
            self.add_attribute(&mut document, key, value);
        }
        document
    }

    fn add_attribute(&mut self, document: &mut TantivyDocument, key: &str, value: AttributeRef<'_>) {
        let analyzer = self.analyzers.get(key).copied();
        let mut add = |typed: Typed<'_>| {
            self.add(document, KIND_ATTRIBUTE, |token| token.typed_value_of(key, typed));
            if let Typed::Text(text) = typed {
                self.add_words(document, Keyed::Attribute(key), text);
                if let Some(analyzer) = analyzer.filter(|analyzer| *analyzer != SearchAnalyzer::Words) {
                    self.add_analyzed(document, key, analyzer, text);
                }
            }
        };
        match value {
            AttributeRef::Text(text) => add(Typed::Text(text)),
            AttributeRef::Number(number) => add(Typed::Number(number)),
            AttributeRef::Boolean(boolean) => add(Typed::Boolean(boolean)),
            AttributeRef::Time(time) => add(Typed::Time(time)),
            AttributeRef::Point(point) => add(Typed::Point(point)),
            AttributeRef::Texts(texts) => texts.iter().for_each(|text| add(Typed::Text(text))),
            AttributeRef::Numbers(numbers) => numbers.iter().for_each(|number| add(Typed::Number(number))),
        }
    }

    fn add_words(&mut self, document: &mut TantivyDocument, property: Keyed<'_>, text: &str) {
        if is_word(text) {
            return;
        }
        for word in words(text).filter(|word| word.len() <= WORD_BYTES_MAX) {
            self.add(document, KIND_WORD, |token| token.word_of(property, &word));
        }
    }

    fn add_analyzed(
        &mut self,
        document: &mut TantivyDocument,
        key: &str,
        analyzer: SearchAnalyzer,
        text: &str,
    ) {
        let mut words = analyzed(analyzer, text);
        words.retain(|word| word.word.len() <= WORD_BYTES_MAX);
        words.sort_unstable_by(|one, other| one.word.cmp(&other.word));
        words.dedup_by(|one, other| one.word == other.word);
        for word in words {
            self.add(document, KIND_WORD, |token| {
                token.word_of(Keyed::Analyzed(key), &word.word);
            });
        }
    }

    fn add(&mut self, document: &mut TantivyDocument, kind: u8, rest: impl FnOnce(&mut Token)) {
        self.token.restart(kind);
        rest(&mut self.token);
        document.add_bytes(self.fields.tokens, &self.token.0);
    }
}

/// Single value of an attribute, as input of its token.
#[derive(Debug, Clone, Copy)]
enum Typed<'a> {
    Text(&'a str),
    Number(f64),
    Boolean(bool),
    Time(Timestamp),
    Point(GeoPoint),
}

/// Bytes of a term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) Vec<u8>);

impl Token {
    pub(crate) fn table(table: TableId) -> Self {
        Self::of(table, KIND_TABLE, |_| {})
    }

    /// Returns the prefix of all shapes of a table; [`names_of`] decodes the bytes after it.
    pub(crate) fn shapes(table: TableId) -> Self {
        Self::of(table, KIND_SHAPE, |_| {})
    }

    /// Returns the prefix of the attribute keys of all timelines of a table; [`names_of`] decodes the bytes after it.
    pub(crate) fn attribute_keys(table: TableId) -> Self {
        Self::of(table, KIND_ATTRIBUTE_KEYS, |_| {})
    }

    /// Returns the prefix of all tags of a table.
    pub(crate) fn tags(table: TableId) -> Self {
        Self::of(table, KIND_TAG, |_| {})
    }

    /// Returns the prefix of all attributes of a table.
    pub(crate) fn attributes(table: TableId) -> Self {
        Self::of(table, KIND_ATTRIBUTE, |_| {})
    }

    /// Returns the prefix of all values of a tag.
    pub(crate) fn tag_values(table: TableId, key: &str) -> Self {
        Self::of(table, KIND_TAG, |token| token.value_of(key, &[]))
    }

    /// Returns the token of a literal; `None` for a list, a relative time or an invalid point.
    pub(crate) fn of_literal(table: TableId, key: &str, literal: &Literal) -> Option<Self> {
        let typed = match literal {
            Literal::Text(text) => Typed::Text(text),
            Literal::Boolean(boolean) => Typed::Boolean(*boolean),
            Literal::Time { .. } => Typed::Time(literal.as_time()?),
            Literal::Point(point) => Typed::Point(point.point()?),
            number => Typed::Number(number.as_f64()?),
        };
        Some(Self::of(table, KIND_ATTRIBUTE, |token| {
            token.typed_value_of(key, typed);
        }))
    }

    /// Returns the token of the empty text, which is also the prefix of all texts of an attribute.
    pub(crate) fn attribute_texts(table: TableId, key: &str) -> Self {
        Self::attribute_type(table, key, TYPE_TEXT)
    }

    /// Returns the prefix of all numbers of an attribute; [`ordered`] encodes the bytes after it.
    pub(crate) fn attribute_numbers(table: TableId, key: &str) -> Self {
        Self::attribute_type(table, key, TYPE_NUMBER)
    }

    /// Returns the prefix of all times of an attribute; [`ordered_time`] encodes the bytes after it.
    pub(crate) fn attribute_times(table: TableId, key: &str) -> Self {
        Self::attribute_type(table, key, TYPE_TIME)
    }

    /// Returns the prefix of all points of an attribute; [`point_of`] decodes the bytes after it.
    pub(crate) fn attribute_points(table: TableId, key: &str) -> Self {
        Self::attribute_type(table, key, TYPE_POINT)
    }

    /// Returns the prefix of all words of a property.
    pub(crate) fn words(table: TableId, property: Keyed<'_>) -> Self {
        Self::of(table, KIND_WORD, |token| token.word_of(property, ""))
    }

    fn attribute_type(table: TableId, key: &str, kind: u8) -> Self {
        Self::of(table, KIND_ATTRIBUTE, |token| token.value_of(key, &[&[kind]]))
    }

    fn of(table: TableId, kind: u8, rest: impl FnOnce(&mut Self)) -> Self {
        let mut token = Self(table.0.to_be_bytes().to_vec());
        token.restart(kind);
        rest(&mut token);
        token
    }

    /// Removes all bytes after the table id and appends the kind of a new token.
    fn restart(&mut self, kind: u8) {
        self.0.truncate(size_of::<TableId>());
        self.0.push(kind);
    }

    /// Appends a name. Keys of timelines are shorter than 64 KiB; a longer key can only occur in a condition,
    /// and its token must not equal any stored one.
    fn name(&mut self, name: &str) {
        let length = u16::try_from(name.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(name.as_bytes());
    }

    fn value_of(&mut self, key: &str, value: &[&[u8]]) {
        self.name(key);
        value.iter().for_each(|part| self.0.extend_from_slice(part));
    }

    fn typed_value_of(&mut self, key: &str, value: Typed<'_>) {
        match value {
            Typed::Text(text) => self.value_of(key, &[&[TYPE_TEXT], text.as_bytes()]),
            Typed::Number(number) => self.value_of(key, &[&[TYPE_NUMBER], &ordered(number).to_be_bytes()]),
            Typed::Boolean(boolean) => self.value_of(key, &[&[TYPE_BOOLEAN, u8::from(boolean)]]),
            Typed::Time(time) => {
                self.value_of(key, &[&[TYPE_TIME], &ordered_time(time.nanos()).to_be_bytes()]);
            }
            Typed::Point(point) => {
                // A negative zero is encoded as a positive zero.
                let (latitude, longitude) = (point.latitude() + 0.0, point.longitude() + 0.0);
                let cell = cell_of(point).to_be_bytes();
                let (latitude, longitude) = (latitude.to_be_bytes(), longitude.to_be_bytes());
                self.value_of(key, &[&[TYPE_POINT], &cell, &latitude, &longitude]);
            }
        }
    }

    fn word_of(&mut self, property: Keyed<'_>, word: &str) {
        let (kind, key) = match property {
            Keyed::Tag(key) => (PROPERTY_TAG, key),
            Keyed::Attribute(key) => (PROPERTY_ATTRIBUTE, key),
            Keyed::Analyzed(key) => (PROPERTY_ANALYZED, key),
        };
        self.0.push(kind);
        self.value_of(key, &[word.as_bytes()]);
    }
}

/// Iterates over the names of a shape or of attribute keys, from the bytes after the kind. The first name of a shape
/// is the measurement.
pub(crate) fn names_of(mut rest: &[u8]) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let (name, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        rest = after;
        std::str::from_utf8(name).ok()
    })
}

/// Returns the prefix of all tokens with the same table, kind and first name, and that name; `None` if the token has
/// no name.
pub(crate) fn first_name(token: &[u8]) -> Option<(Token, &str)> {
    let name = names_of(token.get(HEAD_BYTES..)?).next()?;
    let prefix = token.get(..HEAD_BYTES + 2 + name.len())?;
    Some((Token(prefix.to_vec()), name))
}

/// Encodes a finite number as bits that sort like numbers. Both zeros have the same bits.
pub(crate) fn ordered(number: f64) -> u64 {
    let bits = (number + 0.0).to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// Encodes nanoseconds as bits that sort like times.
pub(crate) fn ordered_time(nanos: i64) -> u64 {
    nanos as u64 ^ SIGN
}

/// Decodes the point of an attribute's token, from the bytes after its prefix; `None` if they hold no valid point.
pub(crate) fn point_of(value: &[u8]) -> Option<GeoPoint> {
    let (_, coordinates) = value.split_first_chunk::<8>()?;
    let (latitude, longitude) = coordinates.split_first_chunk::<8>()?;
    GeoPoint::new(
        f64::from_be_bytes(*latitude),
        f64::from_be_bytes(longitude.try_into().ok()?),
    )
}
