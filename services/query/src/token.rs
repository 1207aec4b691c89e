//! Page tokens: the end position of a page, opaque to clients.
//!
//! A hash of the terms binds a token to its query, so that reuse for another query is detected. A checksum detects
//! damage.

use std::fmt;

use tideline_engine::model::{TimeRange, TimelineId};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{QueryError, Result};

/// Position after the last row of a page, and a hash of the terms of its query.
///
/// ```text
///  0    16 timeline id of the last row
///  16    8 time of the last row; 0 for newest values
///  24   16 start and end of the range of the query
///  40    8 hash of the terms of the query
///  48    8 xxh3-64 of bytes 0..48
/// ```
///
/// Numbers are little-endian; the text form is the bytes in hexadecimal. The range is stored because a relative one
/// (`now-1h`) would move from page to page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageToken {
    pub(crate) id: TimelineId,
    pub(crate) time: i64,
    range: TimeRange,
    pub(crate) terms: u64,
}

const BODY_BYTES: usize = 48;
const BYTES: usize = BODY_BYTES + 8;

impl PageToken {
    pub(crate) fn new(id: TimelineId, time: i64, range: TimeRange, terms: u64) -> Self {
        Self {
            id,
            time,
            range,
            terms,
        }
    }

    /// Returns the range of the query that the token continues.
    pub fn range(&self) -> TimeRange {
        self.range
    }

    /// Parses the text form of a token.
    ///
    /// # Errors
    ///
    /// [`QueryError::DamagedToken`] if the length, a digit or the checksum is wrong.
    pub fn parse(text: &str) -> Result<Self> {
        let bytes = from_hex(text).ok_or(QueryError::DamagedToken)?;
        let number = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            eight
        };
        if number(BODY_BYTES) != checksum(&bytes[..BODY_BYTES]) {
            return Err(QueryError::DamagedToken);
        }
        let mut id = [0; 16];
        id.copy_from_slice(&bytes[..16]);
        Ok(Self {
            id: TimelineId(id),
            time: i64::from_le_bytes(number(16)),
            range: TimeRange::new(i64::from_le_bytes(number(24)), i64::from_le_bytes(number(32))),
            terms: u64::from_le_bytes(number(40)),
        })
    }
}

impl fmt::Display for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [0; BYTES];
        bytes[..16].copy_from_slice(&self.id.0);
        bytes[16..24].copy_from_slice(&self.time.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.range.start.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.range.end.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.terms.to_le_bytes());
        let sum = checksum(&bytes[..BODY_BYTES]);
        bytes[BODY_BYTES..].copy_from_slice(&sum);
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn checksum(body: &[u8]) -> [u8; 8] {
    xxh3_64(body).to_le_bytes()
}

fn from_hex(text: &str) -> Option<[u8; BYTES]> {
    let text = text.as_bytes();
    if text.len() != 2 * BYTES {
        return None;
    }
    let mut bytes = [0; BYTES];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_and_no_digit_of_it_may_change() {
        let token = PageToken::new(TimelineId(*b"0123456789abcdef"), -5, TimeRange::new(-9, 7), 42);
        let text = token.to_string();
        assert_eq!(PageToken::parse(&text).ok(), Some(token));
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(changed).expect("digits");
            assert!(
                matches!(PageToken::parse(&changed), Err(QueryError::DamagedToken)),
                "{at}"
            );
        }
        for wrong in ["", "00", "é", &text[1..]] {
            assert!(PageToken::parse(wrong).is_err());
        }
    }
}
