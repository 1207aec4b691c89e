//! Stored form of a timeline, as specified in `FORMAT.md`.
//!
//! Encodes and decodes rows. A row carries a version and a checksum that is bound to its timeline id, so that a
//! damaged row or a row under a wrong key is detected.

use tideline_model::{Ordinal, TimelineId};
use tideline_wire::varint;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::attributes::Attributes;
use crate::value::{Parts, is_of_version_1, put_text, put_value};
use crate::{CatalogError, Result};

/// Version of rows whose attributes are only texts, numbers and booleans. Older builds can read them.
const VERSION_1: u8 = 1;
/// Version of rows with attributes of any type.
const VERSION_2: u8 = 2;
/// Length of the checksum at the end of a row, in bytes.
const CHECKSUM_BYTES: usize = 4;
/// Maximum edit counter of a row; a row with a higher one is damaged. No table reaches this value. The limit ensures
/// that later edits cannot overflow the counter.
const EDIT_MAX: u64 = u64::MAX >> 1;

/// Row with a borrowed measurement and borrowed tags; the attributes are owned.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row<'a> {
    pub(crate) ordinal: Ordinal,
    /// Edit counter of the table when the attributes last changed; 0 = never.
    pub(crate) edit: u64,
    pub(crate) measurement: &'a str,
    /// Tags, sorted by key.
    pub(crate) tags: Vec<(&'a str, &'a str)>,
    pub(crate) attributes: Attributes,
}

impl<'a> Row<'a> {
    /// Returns the bytes to store for the timeline `id`.
    pub(crate) fn encode(&self, id: TimelineId) -> Vec<u8> {
        let is_plain = self
            .attributes
            .values()
            .all(|value| is_of_version_1(value.kind()));
        let mut out = vec![if is_plain { VERSION_1 } else { VERSION_2 }];
        varint::put(u64::from(self.ordinal.0), &mut out);
        varint::put(self.edit, &mut out);
        put_text(&mut out, self.measurement);
        varint::put(self.tags.len() as u64, &mut out);
        for (key, value) in &self.tags {
            put_text(&mut out, key);
            put_text(&mut out, value);
        }
        varint::put(self.attributes.len() as u64, &mut out);
        for (key, value) in &self.attributes {
            put_text(&mut out, key);
            put_value(&mut out, value);
        }
        let checksum = checksum(id, &out);
        out.extend_from_slice(&checksum);
        out
    }

    /// Decodes the bytes stored for `id`. Returns an error if the checksum is wrong or the content is malformed.
    pub(crate) fn decode(id: TimelineId, bytes: &'a [u8]) -> Result<Self> {
        let damaged = |reason| CatalogError::DamagedRow { id, reason };
        let (content, stored) = bytes
            .split_last_chunk::<CHECKSUM_BYTES>()
            .ok_or(damaged("too short"))?;
        if checksum(id, content) != *stored {
            return Err(damaged("wrong checksum"));
        }
        match content.first() {
            Some(version @ &(VERSION_1 | VERSION_2)) => {
                let mut parts = Parts { rest: &content[1..] };
                let row = read(&mut parts, *version).ok_or(damaged("malformed"))?;
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

/// Takes a row off the front of the input; `None` if the bytes are malformed.
fn read<'a>(parts: &mut Parts<'a>, version: u8) -> Option<Row<'a>> {
    let ordinal = Ordinal(u32::try_from(parts.number()?).ok()?);
    let edit = parts.number().filter(|edit| *edit <= EDIT_MAX)?;
    let measurement = parts.text()?;
    let tag_count = parts.number()?;
    let mut tags: Vec<(&str, &str)> = Vec::new();
    for _ in 0..tag_count {
        let (key, value) = (parts.text()?, parts.text()?);
        let in_order = tags.last().is_none_or(|(before, _)| *before < key);
        if key.is_empty() || value.is_empty() || !in_order {
            return None;
        }
        tags.push((key, value));
    }
    let attribute_count = parts.number()?;
    let mut attributes = Attributes::new();
    for _ in 0..attribute_count {
        let (key, value) = (parts.text()?, parts.value()?);
        if version == VERSION_1 && !is_of_version_1(value.kind()) {
            return None;
        }
        attributes.insert(key.to_owned(), value.to_value());
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use tideline_model::{GeoPoint, Timestamp};

    use super::*;
    use crate::attributes::AttributeValue;

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

    /// Rows are stored on disk: these bytes must remain readable forever.
    #[test]
    fn golden_row() {
        let mut golden: Vec<u8> = vec![1, 0xac, 0x02, 7, 3];
        golden.extend_from_slice(b"cpu\x02\x02dc\x01x\x04host\x02\xc3\xa4\x03");
        golden.extend_from_slice(b"\x05owner\x01\x03ops\x04rack\x02\0\0\0\0\0\0\xf8\xbf\x05spare\x03\x01");
        golden.extend_from_slice(&[167, 187, 199, 79]);
        assert_eq!(sample().encode(ID), golden);
        assert_eq!(Row::decode(ID, &golden).expect("golden"), sample());
    }

    fn typed() -> Row<'static> {
        Row {
            attributes: Attributes::from([
                (
                    "at".to_owned(),
                    AttributeValue::Point(GeoPoint::new(52.5, -0.25).expect("a valid point")),
                ),
                (
                    "born".to_owned(),
                    AttributeValue::Time(Timestamp::from_nanos_clamped(-2)),
                ),
                (
                    "labels".to_owned(),
                    AttributeValue::Texts(vec!["a".to_owned(), String::new()]),
                ),
                ("on".to_owned(), AttributeValue::Boolean(false)),
                ("ports".to_owned(), AttributeValue::Numbers(vec![1.0, 0.0])),
            ]),
            ..sample()
        }
    }

    /// Golden bytes of a row with every type that version 2 added.
    #[test]
    fn golden_row_of_version_2() {
        let mut golden: Vec<u8> = vec![2, 0xac, 0x02, 7, 3];
        golden.extend_from_slice(b"cpu\x02\x02dc\x01x\x04host\x02\xc3\xa4\x05");
        golden.extend_from_slice(b"\x02at\x05\0\0\0\0\0\x40\x4a\x40\0\0\0\0\0\0\xd0\xbf");
        golden.extend_from_slice(b"\x04born\x04\xfe\xff\xff\xff\xff\xff\xff\xff");
        golden.extend_from_slice(b"\x06labels\x06\x03\x01a\0\x02on\x03\0");
        golden.extend_from_slice(b"\x05ports\x07\x10\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\0\0");
        golden.extend_from_slice(&[183, 95, 56, 240]);
        assert_eq!(typed().encode(ID), golden);
        assert_eq!(Row::decode(ID, &golden).expect("golden"), typed());
        golden[0] = VERSION_1;
        let content = golden.len() - CHECKSUM_BYTES;
        let sum = checksum(ID, &golden[..content]);
        golden[content..].copy_from_slice(&sum);
        assert!(
            Row::decode(ID, &golden).is_err(),
            "version 1 never had these types"
        );
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_seen() {
        for row in [sample(), typed()] {
            changes_are_seen(&row.encode(ID));
        }
    }

    fn changes_are_seen(bytes: &[u8]) {
        for at in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[at / 8] ^= 1 << (at % 8);
            assert!(Row::decode(ID, &flipped).is_err(), "bit {at}");
        }
        for length in 0..bytes.len() {
            assert!(Row::decode(ID, &bytes[..length]).is_err(), "cut at {length}");
        }
        assert!(
            Row::decode(TimelineId::MAX, bytes).is_err(),
            "a row belongs to its key"
        );
    }

    proptest! {
        #![proptest_config(tideline_testkit::proptest_config(256))]

        #[test]
        fn rows_read_back(
            ordinal in any::<u32>(),
            edit in 0..=EDIT_MAX,
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
        fn any_content_behind_a_right_checksum_is_read_or_refused(
            mut content in any::<Vec<u8>>(),
            version in VERSION_1..=VERSION_2,
        ) {
            content.insert(0, version);
            let sum = checksum(ID, &content);
            content.extend_from_slice(&sum);
            if let Ok(row) = Row::decode(ID, &content) {
                let again = row.encode(ID);
                prop_assert_eq!(Row::decode(ID, &again).expect("what was written"), row);
            }
        }
    }
}
