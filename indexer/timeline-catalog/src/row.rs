//! The stored form of a timeline, as `FORMAT.md` draws it.

use tideline_model::{Ordinal, TimelineId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::attributes::{AttributeValue, Attributes};
use crate::{CatalogError, Result};

/// The layout that is written.
const VERSION: u8 = 1;
/// Bytes of the checksum at the end.
const CHECKSUM_BYTES: usize = 4;

const KIND_TEXT: u8 = 1;
const KIND_NUMBER: u8 = 2;
const KIND_BOOLEAN: u8 = 3;

/// What a row says, its texts borrowed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row<'a> {
    pub(crate) ordinal: Ordinal,
    /// The table's edit counter when the attributes last changed; 0 = never.
    pub(crate) edit: u64,
    pub(crate) measurement: &'a str,
    /// Sorted by key.
    pub(crate) tags: Vec<(&'a str, &'a str)>,
    pub(crate) attributes: Attributes,
}

impl<'a> Row<'a> {
    /// The bytes to store for the timeline `id`.
    pub(crate) fn encode(&self, id: TimelineId) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_number(&mut out, u64::from(self.ordinal.0));
        put_number(&mut out, self.edit);
        put_text(&mut out, self.measurement);
        put_number(&mut out, self.tags.len() as u64);
        for (key, value) in &self.tags {
            put_text(&mut out, key);
            put_text(&mut out, value);
        }
        put_number(&mut out, self.attributes.len() as u64);
        for (key, value) in &self.attributes {
            put_text(&mut out, key);
            match value {
                AttributeValue::Text(text) => {
                    out.push(KIND_TEXT);
                    put_text(&mut out, text);
                }
                AttributeValue::Number(number) => {
                    out.push(KIND_NUMBER);
                    out.extend_from_slice(&number.to_le_bytes());
                }
                AttributeValue::Boolean(boolean) => {
                    out.push(KIND_BOOLEAN);
                    out.push(u8::from(*boolean));
                }
            }
        }
        let checksum = checksum(id, &out);
        out.extend_from_slice(&checksum);
        out
    }

    /// Reads the bytes stored for `id`; anything but what `encode` wrote is an error.
    pub(crate) fn decode(id: TimelineId, bytes: &'a [u8]) -> Result<Self> {
        let damaged = |reason| CatalogError::DamagedRow { id, reason };
        let (content, stored) = bytes
            .split_last_chunk::<CHECKSUM_BYTES>()
            .ok_or(damaged("too short"))?;
        if checksum(id, content) != *stored {
            return Err(damaged("wrong checksum"));
        }
        match content.first() {
            Some(&VERSION) => {
                let mut parts = Parts { rest: &content[1..] };
                let row = parts.row().ok_or(damaged("malformed"))?;
                if parts.rest.is_empty() {
                    Ok(row)
                } else {
                    Err(damaged("runs on"))
                }
            }
            _ => Err(damaged("unknown version")),
        }
    }
}

fn checksum(id: TimelineId, content: &[u8]) -> [u8; CHECKSUM_BYTES] {
    (xxh3_64_with_seed(content, id.low()) as u32).to_le_bytes()
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Takes the parts of a row off the front; `None` when they are not there.
struct Parts<'a> {
    rest: &'a [u8],
}

impl<'a> Parts<'a> {
    fn row(&mut self) -> Option<Row<'a>> {
        let ordinal = Ordinal(u32::try_from(self.number()?).ok()?);
        let edit = self.number()?;
        let measurement = self.text()?;
        let tag_count = self.number()?;
        let mut tags: Vec<(&str, &str)> = Vec::new();
        for _ in 0..tag_count {
            let (key, value) = (self.text()?, self.text()?);
            let in_order = tags.last().is_none_or(|(before, _)| *before < key);
            if key.is_empty() || value.is_empty() || !in_order {
                return None;
            }
            tags.push((key, value));
        }
        let attribute_count = self.number()?;
        let mut attributes = Attributes::new();
        for _ in 0..attribute_count {
            let key = self.text()?;
            attributes.insert(key.to_owned(), self.attribute()?);
        }
        let complete = !measurement.is_empty() && attributes.len() as u64 == attribute_count;
        complete.then_some(Row {
            ordinal,
            edit,
            measurement,
            tags,
            attributes,
        })
    }

    fn attribute(&mut self) -> Option<AttributeValue> {
        match self.bytes(1)? {
            [KIND_TEXT] => Some(AttributeValue::Text(self.text()?.to_owned())),
            [KIND_NUMBER] => {
                let bits = self.bytes(8)?.try_into().ok()?;
                Some(AttributeValue::Number(f64::from_le_bytes(bits)))
            }
            [KIND_BOOLEAN] => match self.bytes(1)? {
                [flag @ 0..=1] => Some(AttributeValue::Boolean(*flag == 1)),
                _ => None,
            },
            _ => None,
        }
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok()?;
        std::str::from_utf8(self.bytes(length)?).ok()
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = *self.bytes(1)? else { return None };
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                return None;
            }
            number |= part << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: TimelineId = TimelineId(*b"0123456789abcdef");

    fn sample() -> Row<'static> {
        Row {
            ordinal: Ordinal(300),
            edit: 7,
            measurement: "cpu",
            tags: vec![("dc", "x"), ("host", "ä")],
            attributes: Attributes::from([
                ("owner".to_owned(), AttributeValue::Text("ops".to_owned())),
                ("rack".to_owned(), AttributeValue::Number(-1.5)),
                ("spare".to_owned(), AttributeValue::Boolean(true)),
            ]),
        }
    }

    /// Rows are on disk: these bytes must open for ever.
    #[test]
    fn golden_row() {
        let mut golden: Vec<u8> = vec![1, 0xac, 0x02, 7, 3];
        golden.extend_from_slice(b"cpu\x02\x02dc\x01x\x04host\x02\xc3\xa4\x03");
        golden.extend_from_slice(b"\x05owner\x01\x03ops\x04rack\x02\0\0\0\0\0\0\xf8\xbf\x05spare\x03\x01");
        golden.extend_from_slice(&[167, 187, 199, 79]);
        assert_eq!(sample().encode(ID), golden);
        assert_eq!(Row::decode(ID, &golden).expect("golden"), sample());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_seen() {
        let bytes = sample().encode(ID);
        for at in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            assert!(Row::decode(ID, &flipped).is_err(), "bit {at}");
        }
        for length in 0..bytes.len() {
            assert!(Row::decode(ID, &bytes[..length]).is_err(), "cut at {length}");
        }
        assert!(
            Row::decode(TimelineId::MAX, &bytes).is_err(),
            "a row belongs to its key"
        );
    }

    proptest! {
        #[test]
        fn rows_read_back(
            ordinal in any::<u32>(),
            edit in any::<u64>(),
            measurement in ".{1,20}",
            tags in prop::collection::btree_map(".{1,9}", ".{1,200}", 0..12),
            texts in prop::collection::btree_map(".{1,9}", ".{0,9}", 0..4),
        ) {
            let tags = tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            let attributes = texts.iter().map(|(key, text)| (key.clone(), AttributeValue::Text(text.clone())));
            let row = Row {
                ordinal: Ordinal(ordinal),
                edit,
                measurement: &measurement,
                tags,
                attributes: attributes.collect(),
            };
            let bytes = row.encode(ID);
            prop_assert_eq!(Row::decode(ID, &bytes).expect("what was written"), row);
        }

        #[test]
        fn any_content_behind_a_right_checksum_is_read_or_refused(mut content in any::<Vec<u8>>()) {
            content.insert(0, VERSION);
            let sum = checksum(ID, &content);
            content.extend_from_slice(&sum);
            if let Ok(row) = Row::decode(ID, &content) {
                let again = row.encode(ID);
                prop_assert_eq!(Row::decode(ID, &again).expect("what was written"), row);
            }
        }
    }
}
