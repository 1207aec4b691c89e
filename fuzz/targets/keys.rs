//! Fuzz target: arbitrary bytes as keys of every kind. Parsing returns `None` or parts that encode to the same bytes.
//! The byte order of two keys is the order of their parts. The target `tuple_key` covers tuples of typed columns.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tideline_key_codec::{
    BUCKET_BITS_MAX, LISTS_BUCKET, catalog_key, chunk_bucket, chunk_key, chunks_between, chunks_of,
    delete_key, from_ordered_i64, named_key, ordered_i64, parse_catalog_key, parse_chunk_key,
    parse_delete_key, parse_named_key, parse_part_name, part_name, space, table_rows,
};
use tideline_model::{TimeRange, TimelineId};

fn one(key: &[u8]) {
    if let Some((id, start)) = parse_chunk_key(key) {
        assert_eq!(chunk_key(id, start), key);
        assert_eq!(from_ordered_i64(ordered_i64(start)), start);
        assert!(chunks_between(id, id).contains(key));
        let before = chunks_of(id, TimeRange::new(i64::MIN, start));
        let all = chunks_of(id, TimeRange::new(start, i64::MAX));
        assert_eq!(
            (before.contains(key), all.contains(key)),
            (false, start < i64::MAX)
        );
    }
    if let Some((table, id)) = parse_catalog_key(key) {
        assert_eq!(catalog_key(table, id), key);
        assert!(table_rows(space::CATALOG, table).1.contains(key));
    }
    if let Some((table, sequence)) = parse_delete_key(key) {
        assert_eq!(delete_key(table, sequence), key);
        assert!(table_rows(space::DELETES, table).1.contains(key));
    }
    if let Some((table, name)) = parse_named_key(key) {
        assert_eq!(named_key(table, name), key);
        assert!(table_rows(space::SEARCHES, table).1.contains(key));
    }
    if let Some(part) = parse_part_name(key) {
        assert_eq!(part_name(part), key);
    }
}

/// Checks the order of two keys of one kind.
fn order<'k, T: Ord>(one: &'k [u8], other: &'k [u8], parse: impl Fn(&'k [u8]) -> Option<T>) {
    if let (Some(parts), Some(others)) = (parse(one), parse(other)) {
        assert_eq!(parts.cmp(&others), one.cmp(other));
    }
}

/// Checks that buckets are in the order of ids, and that the bucket of lists is the last one.
fn buckets(one: TimelineId, other: TimelineId) {
    let (low, high) = (one.min(other), one.max(other));
    for bits in 0..=BUCKET_BITS_MAX {
        let buckets = [chunk_bucket(low, bits), chunk_bucket(high, bits), LISTS_BUCKET];
        assert!(buckets[0] <= buckets[1] && buckets[1] < buckets[2]);
    }
}

fuzz_target!(|keys: (&[u8], &[u8])| {
    let (first, second) = keys;
    one(first);
    one(second);
    order(first, second, parse_chunk_key);
    order(first, second, parse_catalog_key);
    order(first, second, parse_delete_key);
    order(first, second, parse_named_key);
    order(first, second, parse_part_name);
    if let (Some((first, _)), Some((second, _))) = (parse_chunk_key(first), parse_chunk_key(second)) {
        buckets(first, second);
    }
});
