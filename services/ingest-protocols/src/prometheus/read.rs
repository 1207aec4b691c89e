//! Remote read: `prometheus.ReadRequest`.
//!
//! ```text
//! ReadRequest  { 1: Query*, 2: ResponseType* }
//! Query        { 1: start ms, 2: end ms, 3: LabelMatcher*, 4: ReadHints }
//! LabelMatcher { 1: type, 2: name, 3: value }
//! ```
//!
//! Hints are passed over: they allow an answer to be smaller, and none is needed for it to be right.

use super::wire::{Fields, Malformed, Payload, Read};
use crate::error::IngestError;

/// What is asked for, and in which form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRequest {
    /// The queries, answered in their order.
    pub queries: Vec<ReadQuery>,
    /// The first form among those that the client takes that is known here.
    pub response_type: ReadResponseType,
}

/// One query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadQuery {
    /// First wanted instant, in milliseconds, inclusive.
    pub start: i64,
    /// Last wanted instant, in milliseconds, inclusive.
    pub end: i64,
    /// All have to be met.
    pub matchers: Vec<ReadMatcher>,
}

/// A condition on a label.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadMatcher {
    /// How the value is compared.
    pub kind: ReadMatcherKind,
    /// The label.
    pub name: String,
    /// What its value is compared with.
    pub value: String,
}

/// How a value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadMatcherKind {
    /// `=`
    #[default]
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`
    Regex,
    /// `!~`
    NotRegex,
}

/// The form of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadResponseType {
    /// One message with every sample.
    Samples,
    /// A stream of messages with chunks.
    StreamedXorChunks,
}

/// Reads a request, decompressed.
///
/// # Errors
///
/// [`IngestError::Protobuf`] when the body is not such a message, or names only forms of answers that are not known here.
pub fn decode_read(body: &[u8]) -> Result<ReadRequest, IngestError> {
    read(body).map_err(|Malformed(reason)| IngestError::Protobuf {
        message: "prometheus.ReadRequest",
        reason,
    })
}

fn read(body: &[u8]) -> Read<ReadRequest> {
    let (mut queries, mut forms) = (Vec::new(), Vec::new());
    let mut fields = Fields::new(body);
    while let Some((number, payload)) = fields.next()? {
        match number {
            1 => queries.push(query(payload.bytes()?)?),
            2 => payload.each_varint(|form| forms.push(form))?,
            _ => {}
        }
    }
    let known = |form: &u64| match form {
        0 => Some(ReadResponseType::Samples),
        1 => Some(ReadResponseType::StreamedXorChunks),
        _ => None,
    };
    let response_type = match forms.is_empty() {
        true => Some(ReadResponseType::Samples),
        false => forms.iter().find_map(known),
    };
    Ok(ReadRequest {
        queries,
        response_type: response_type.ok_or(Malformed("none of the accepted response types is known"))?,
    })
}

fn query(message: &[u8]) -> Read<ReadQuery> {
    let mut query = ReadQuery::default();
    let mut fields = Fields::new(message);
    while let Some((number, payload)) = fields.next()? {
        match number {
            1 => query.start = payload.int64()?,
            2 => query.end = payload.int64()?,
            3 => query.matchers.push(matcher(payload.bytes()?)?),
            _ => {}
        }
    }
    Ok(query)
}

fn matcher(message: &[u8]) -> Read<ReadMatcher> {
    let mut matcher = ReadMatcher::default();
    let mut fields = Fields::new(message);
    while let Some((number, payload)) = fields.next()? {
        match number {
            1 => {
                matcher.kind = match payload.varint()? {
                    0 => ReadMatcherKind::Equal,
                    1 => ReadMatcherKind::NotEqual,
                    2 => ReadMatcherKind::Regex,
                    3 => ReadMatcherKind::NotRegex,
                    _ => return Err(Malformed("matcher has an unknown type")),
                }
            }
            2 => matcher.name = text(payload)?,
            3 => matcher.value = text(payload)?,
            _ => {}
        }
    }
    Ok(matcher)
}

fn text(payload: Payload<'_>) -> Read<String> {
    let text = std::str::from_utf8(payload.bytes()?).map_err(|_| Malformed("text is not UTF-8"))?;
    Ok(text.to_owned())
}
