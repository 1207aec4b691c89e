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
//! 5 attribute       as tag; the value opens with its type        has this attribute with this value
//! ```
//!
//! The length before a key keeps apart what a separator could not: tags may hold any character. The source has
//! no token, because the source tags say it.

use tantivy::TantivyDocument;
use tantivy::schema::{BytesOptions, FAST, Field, Schema};
use tideline_model::{Ordinal, TableId};
use tideline_timeline_catalog::{AttributeValue, Entry};

const KIND_TABLE: u8 = 0;
const KIND_MEASUREMENT: u8 = 1;
const KIND_TAG_KEY: u8 = 2;
const KIND_TAG: u8 = 3;
const KIND_ATTRIBUTE_KEY: u8 = 4;
const KIND_ATTRIBUTE: u8 = 5;

const TYPE_TEXT: u8 = 1;
const TYPE_NUMBER: u8 = 2;
const TYPE_BOOLEAN: u8 = 3;

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

/// The document of a timeline.
pub(crate) fn document(fields: Fields, table: TableId, entry: &Entry<'_>) -> TantivyDocument {
    let mut document = TantivyDocument::new();
    document.add_u64(fields.key, document_key(table, entry.ordinal()));
    let mut add = |token: Token| document.add_bytes(fields.tokens, &token.0);
    add(Token::table(table));
    add(Token::measurement(table, entry.measurement()));
    for (key, value) in entry.tags() {
        add(Token::tag_key(table, key));
        add(Token::tag(table, key, value));
    }
    for (key, value) in entry.attributes().into_iter().flatten() {
        add(Token::attribute_key(table, key));
        add(Token::attribute(table, key, value));
    }
    document
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

    pub(crate) fn attribute(table: TableId, key: &str, value: &AttributeValue) -> Self {
        match value {
            AttributeValue::Text(text) => Self::attribute_text(table, key, text),
            AttributeValue::Number(number) => {
                // Both zeros are one number.
                let bits = if *number == 0.0 { 0 } else { number.to_bits() };
                Self::attribute_of(table, key, TYPE_NUMBER, &bits.to_be_bytes())
            }
            AttributeValue::Boolean(boolean) => {
                Self::attribute_of(table, key, TYPE_BOOLEAN, &[u8::from(*boolean)])
            }
        }
    }

    /// With an empty `text`: the token of the empty text, and what those of all texts begin with.
    pub(crate) fn attribute_text(table: TableId, key: &str, text: &str) -> Self {
        Self::attribute_of(table, key, TYPE_TEXT, text.as_bytes())
    }

    /// What the tokens of all numbers begin with; [`number_of`] reads the rest.
    pub(crate) fn attribute_numbers(table: TableId, key: &str) -> Self {
        Self::attribute_of(table, key, TYPE_NUMBER, &[])
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

/// The number of an attribute's token, from what follows its prefix.
pub(crate) fn number_of(value: &[u8]) -> Option<f64> {
    let bits = value.try_into().ok()?;
    Some(f64::from_bits(u64::from_be_bytes(bits)))
}

/// Keys of timelines are far below 64 KiB; a longer one can only be asked for, and no token may equal it.
fn key_length(key: &str) -> [u8; 2] {
    u16::try_from(key.len()).unwrap_or(u16::MAX).to_be_bytes()
}
