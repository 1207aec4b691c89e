//! Decoder of remote read requests: `prometheus.ReadRequest`.
//!
//! ```text
//! ReadRequest  { 1: Query*, 2: ResponseType* }
//! Query        { 1: start ms, 2: end ms, 3: LabelMatcher*, 4: ReadHints }
//! LabelMatcher { 1: type, 2: name, 3: value }
//! ```
//!
//! Hints are ignored: they only permit a smaller response and do not affect its correctness.

use super::wire::{Fields, Malformed, Payload, Read};
use crate::error::IngestError;

/// Remote read request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRequest {
    /// Queries; the results are returned in the same order.
    pub queries: Vec<ReadQuery>,
    /// First supported type in the client's list of accepted response types; `Samples` if the list is empty.
    pub response_type: ReadResponseType,
}

/// Query of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadQuery {
    /// Start of the time range in milliseconds, inclusive.
    pub start: i64,
    /// End of the time range in milliseconds, inclusive.
    pub end: i64,
    /// Label matchers; a series must match all of them.
    pub matchers: Vec<ReadMatcher>,
}

/// Label matcher.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadMatcher {
    /// Comparison operator.
    pub kind: ReadMatcherKind,
    /// Label name.
    pub name: String,
    /// Value or pattern to compare with.
    pub value: String,
}

/// Comparison operator of a label matcher.
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

/// Format of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadResponseType {
    /// One message with all samples.
    Samples,
    /// Stream of messages with XOR chunks.
    StreamedXorChunks,
}

/// Decodes a decompressed request.
///
/// # Errors
///
/// Returns [`IngestError::Protobuf`] if the body is not a valid message or accepts only unsupported response types.
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
        response_type: response_type.ok_or(Malformed("none of the accepted response types is supported"))?,
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
