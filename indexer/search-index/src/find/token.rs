//! The page token: hexadecimal digits of `version ‖ terms ‖ values ‖ id ‖ checksum`.
//!
//! `terms` is a hash of table, condition, sort keys and collapse tag; limit and highlighting may change from page to
//! page. A value is its kind (1 byte) and its bytes; texts have a length prefix. The checksum detects accidental
//! changes. Forgery need not be prevented, because a forged token only selects a position in the order.

use std::fmt::{self, Write};

use tideline_condition::Domain;
use tideline_condition::stable::stable_bytes;
use tideline_model::{TableId, TimelineId};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::FindRequest;
use super::order::{Directed, Key, SortValue};
use crate::{Result, SearchError};

const VERSION: u8 = 1;

/// Returns a hash of table, condition, sort keys and collapse tag.
pub(super) fn terms(table: TableId, request: &FindRequest) -> u64 {
    let mut hash = HashWriter(Xxh3Default::new());
    hash.0
        .update(&stable_bytes(&request.condition, Domain::Timelines));
    write!(hash, "{table:?} {:?}", request.sort).expect("hashing cannot fail");
    if let Some(tag) = &request.collapse {
        write!(hash, " {tag:?}").expect("hashing cannot fail");
    }
    hash.0.digest()
}

/// Writer that hashes formatted text.
struct HashWriter(Xxh3Default);

impl Write for HashWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

/// Encodes the token of the page that follows `last`.
pub(super) fn encode(last: &Key, terms: u64) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&terms.to_le_bytes());
    for Directed(value, _) in &last.values {
        bytes.push(value.rank());
        match value {
            SortValue::Missing => {}
            SortValue::Boolean(value) => bytes.push(u8::from(*value)),
            SortValue::Number(value) => bytes.extend_from_slice(&value.to_le_bytes()),
            SortValue::Time(value) => bytes.extend_from_slice(&value.to_le_bytes()),
            SortValue::Id(value) => bytes.extend_from_slice(&value.0),
            SortValue::Point(latitude, longitude) => {
                bytes.extend_from_slice(&latitude.to_le_bytes());
                bytes.extend_from_slice(&longitude.to_le_bytes());
            }
            SortValue::Text(value) => {
                bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
                bytes.extend_from_slice(value.as_bytes());
            }
        }
    }
    bytes.extend_from_slice(&last.id.0);
    let checksum = xxh3_64(&bytes) as u32;
    bytes.extend_from_slice(&checksum.to_le_bytes());
    let mut token = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(token, "{byte:02x}").expect("writing to a string cannot fail");
    }
    token
}

/// Decodes a token and checks that it was issued for a request with the same `terms`.
pub(super) fn decode(token: &str, request: &FindRequest, terms: u64) -> Result<Key> {
    let bytes = from_hex(token).ok_or(SearchError::DamagedToken)?;
    let (content, checksum) = bytes.split_last_chunk::<4>().ok_or(SearchError::DamagedToken)?;
    if (xxh3_64(content) as u32).to_le_bytes() != *checksum {
        return Err(SearchError::DamagedToken);
    }
    let Some((&VERSION, content)) = content.split_first() else {
        return Err(SearchError::DamagedToken);
    };
    let mut parts = Parts(content);
    let theirs = parts.number().ok_or(SearchError::DamagedToken)?;
    if theirs != terms {
        return Err(SearchError::ForeignToken);
    }
    let values = request
        .sort
        .iter()
        .map(|sort| Some(Directed(parts.value()?, sort.order)));
    let values: Option<Vec<Directed>> = values.collect();
    let id = parts.array().map(TimelineId);
    match (values, id, parts.0) {
        (Some(values), Some(id), []) => Ok(Key { values, id }),
        _ => Err(SearchError::DamagedToken),
    }
}

fn from_hex(token: &str) -> Option<Vec<u8>> {
    if !token.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = token.as_bytes().chunks_exact(2);
    pairs
        .map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8))
        .collect()
}

/// Decoder that takes the parts of a token off the front.
struct Parts<'a>(&'a [u8]);

impl Parts<'_> {
    fn value(&mut self) -> Option<SortValue<String>> {
        let [kind] = self.array()?;
        Some(match kind {
            0 => SortValue::Missing,
            1 => SortValue::Boolean(self.array::<1>()? == [1]),
            2 => SortValue::Number(f64::from_le_bytes(self.array()?)),
            3 => SortValue::Time(i64::from_le_bytes(self.array()?)),
            4 => SortValue::Id(TimelineId(self.array()?)),
            5 => {
                let length = usize::try_from(self.number()?).ok()?;
                let (text, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                SortValue::Text(std::str::from_utf8(text).ok()?.to_owned())
            }
            6 => SortValue::Point(
                f64::from_le_bytes(self.array()?),
                f64::from_le_bytes(self.array()?),
            ),
            _ => return None,
        })
    }

    fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }
}
