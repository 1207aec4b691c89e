//! Tests of key order and of the stored bytes, which never change.
//!
//! The order is checked with random keys, the bytes with golden values.

use proptest::prelude::*;

use super::*;
use tideline_model::Identity;

/// Returns the id of an identity in a table with these source tags.
fn timeline_id_of(identity: &Identity, source_tags: &[String], salt: u32) -> TimelineId {
    let mut bytes = Vec::new();
    identity.encode(&mut bytes);
    timeline_id(identity.source(source_tags), &bytes, salt)
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(256))]

    #[test]
    fn the_order_of_chunk_keys_is_the_order_of_timeline_and_time(
        a in any::<([u8; 16], i64)>(),
        b in any::<([u8; 16], i64)>(),
    ) {
        let left = chunk_key(TimelineId(a.0), a.1);
        let right = chunk_key(TimelineId(b.0), b.1);
        prop_assert_eq!(left.cmp(&right), a.cmp(&b));
        prop_assert_eq!(parse_chunk_key(&left), Some((TimelineId(a.0), a.1)));
    }

    #[test]
    fn named_and_catalog_keys_read_back(table in any::<u32>(), id in any::<[u8; 16]>(), name in any::<Vec<u8>>()) {
        let (table, id) = (TableId(table), TimelineId(id));
        prop_assert_eq!(parse_catalog_key(&catalog_key(table, id)), Some((table, id)));
        let (epoch, number) = (u64::from(table.0), id.low());
        let key = catalog_changes_key(epoch, number);
        prop_assert_eq!(parse_catalog_changes_key(&key), Some((epoch, number)));
        prop_assert!(catalog_changes_from(epoch, number).contains(&key));
        prop_assert!(!catalog_changes_from(epoch, 0).contains(&catalog_changes_key(epoch + 1, number)));
        let named = named_key(table, &name);
        prop_assert_eq!(parse_named_key(&named), Some((table, name.as_slice())));
        prop_assert!(table_rows(space::CATALOG, table).1.contains(&catalog_key(table, id)));
    }

    #[test]
    fn parts_of_the_catalog_rows_are_consecutive(
        table in any::<u32>(),
        first in any::<[u8; 16]>(),
        is_whole in any::<bool>(),
        parts in 1_u8..,
    ) {
        let table = TableId(table);
        let mut range = table_rows(space::CATALOG, table).1;
        if !is_whole {
            range.start = catalog_key(table, TimelineId(first)).to_vec();
        }
        let split = split_catalog_rows(table, &range, parts);
        prop_assert!(split.len() <= usize::from(parts));
        prop_assert_eq!(&split[0].start, &range.start);
        prop_assert_eq!(&split[split.len() - 1].end, &range.end);
        prop_assert!(split.iter().all(|part| !part.is_empty()));
        for pair in split.windows(2) {
            prop_assert_eq!(pair[0].end.as_ref(), Some(&pair[1].start));
        }
        if is_whole {
            prop_assert_eq!(split.len(), usize::from(parts));
        }
    }
}

/// Keys are on disk: these bytes may never change.
#[test]
fn golden_bytes() {
    let tags = vec![
        ("host".to_owned(), "h1".to_owned()),
        ("dc".to_owned(), "x".to_owned()),
    ];
    let identity = Identity::new("cpu".to_owned(), tags).expect("valid");
    let id = timeline_id_of(&identity, &["host".to_owned()], 0);
    assert_eq!(id.to_string(), "346b81a32e7007ec55ee7dbc146c53c4");
    assert_eq!(
        timeline_id_of(&identity, &["absent".to_owned()], 0).low(),
        id.low()
    );
    assert_ne!(timeline_id_of(&identity, &["host".to_owned()], 1), id);
    assert_eq!(
        &chunk_key(id, -1)[16..],
        [0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]
    );
    assert_eq!(&chunk_key(id, 1)[16..], [0x80, 0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn names_of_parts_read_back() {
    let part = PartId::of(0x0102, 0x0304);
    assert_eq!(part_name(part), [1, 2, 0, 0, 0, 0, 3, 4]);
    assert_eq!(parse_part_name(&part_name(part)), Some(part));
    assert_eq!(parse_part_name(b"short"), None);
}

#[test]
fn timelines_of_one_machine_lie_together() {
    let of = |measurement: &str| {
        let tags = vec![("host".to_owned(), "h1".to_owned())];
        let identity = Identity::new(measurement.to_owned(), tags).expect("valid");
        timeline_id_of(&identity, &["host".to_owned()], 0)
    };
    assert_eq!(of("cpu").0[..8], of("mem").0[..8]);
    assert_ne!(of("cpu").low(), of("mem").low());
}

#[test]
fn deletes_of_a_table_are_in_the_order_of_the_journal() {
    let keys = [(1, 5), (1, 300), (2, 0)]
        .map(|(table, sequence)| delete_key(TableId(table), SequenceNumber(sequence)));
    assert!(keys.is_sorted());
    assert_eq!(
        parse_delete_key(&keys[1]),
        Some((TableId(1), SequenceNumber(300)))
    );
    assert_eq!(parse_delete_key(&keys[1][..11]), None);
}

#[test]
fn buckets_follow_the_order_of_ids() {
    let id = |first: u8, second: u8| {
        let mut id = [0x5a; 16];
        (id[0], id[1]) = (first, second);
        TimelineId(id)
    };
    for (bits, buckets) in [
        (0, [0, 0, 0, 0]),
        (1, [0, 0, 1, 1]),
        (4, [0, 7, 8, 15]),
        (12, [0, 0x7ff, 0x800, 0xfff]),
        (16, [0, 0x7ff, 0x800, 0xfff]),
    ] {
        let ids = [id(0, 0), id(0x7f, 0xff), id(0x80, 0), id(0xff, 0xff)];
        assert_eq!(ids.map(|id| chunk_bucket(id, bits)), buckets, "{bits} bits");
    }
    assert!(chunk_bucket(id(0xff, 0xff), BUCKET_BITS_MAX) < LISTS_BUCKET);
}
