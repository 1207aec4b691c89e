//! Tests of scan ranges: they contain exactly the selected rows, and a merge of all buckets is sorted.
//!
//! Random layouts and rows are compared with a filter of all rows.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;

use tideline_model::Timestamp;

use super::*;
use crate::tuple::tests::cmp_values;

type OwnedBounds = (Bound<OwnedValue>, Bound<OwnedValue>);

const ALL: OwnedBounds = (Bound::Unbounded, Bound::Unbounded);

/// Returns true if a value is within the bounds.
fn is_within((lower, upper): &OwnedBounds, value: &OwnedValue) -> bool {
    let after_lower = match lower {
        Bound::Unbounded => true,
        Bound::Included(lower) => cmp_values(lower, value).is_le(),
        Bound::Excluded(lower) => cmp_values(lower, value).is_lt(),
    };
    let before_upper = match upper {
        Bound::Unbounded => true,
        Bound::Included(upper) => cmp_values(value, upper).is_le(),
        Bound::Excluded(upper) => cmp_values(value, upper).is_lt(),
    };
    after_lower && before_upper
}

/// Returns a bound: unbounded for form 0, inclusive for form 1, otherwise exclusive.
fn bound(form: u8, value: &OwnedValue) -> Bound<OwnedValue> {
    match form {
        0 => Bound::Unbounded,
        1 => Bound::Included(value.clone()),
        _ => Bound::Excluded(value.clone()),
    }
}

/// Merges the keys of all ranges by their merge keys, forward or backward, as a scan of buckets does.
fn merged<'k>(
    layout: &KeyLayout,
    ranges: &Ranges,
    keys: &'k BTreeSet<Vec<u8>>,
    forward: bool,
) -> Vec<&'k Vec<u8>> {
    let mut streams: Vec<Vec<&Vec<u8>>> = Vec::new();
    for range in &ranges.ranges {
        let mut stream: Vec<&Vec<u8>> = keys.iter().filter(|key| range.contains(key)).collect();
        // The next key is popped from the end.
        if forward {
            stream.reverse();
        }
        streams.push(stream);
    }
    let mut merged = Vec::new();
    loop {
        let heads = streams.iter().enumerate().filter_map(|(number, stream)| {
            let key = stream.last()?;
            Some((layout.merge_key(key), number))
        });
        let next = if forward { heads.min() } else { heads.max() };
        let Some((_, number)) = next else {
            return merged;
        };
        merged.extend(streams[number].pop());
    }
}

/// Compares two rows by their logical columns, where each column has the order of its stored column.
fn cmp_rows(layout: &KeyLayout, left: &[OwnedValue], right: &[OwnedValue]) -> Ordering {
    let columns = layout
        .logical()
        .iter()
        .map(|column| (column.kind, layout.stored()[column.stored].order()));
    // A schema has at most 8 columns, and a layout may have more logical columns. So each column is compared alone.
    let mut orders = columns
        .zip(left.iter().zip(right))
        .map(|(column, (left, right))| {
            let schema = schema_of(&[column]);
            cmp_tuples(&schema, std::slice::from_ref(left), std::slice::from_ref(right))
        });
    orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Returns true if a scan must be refused. The reason is that values or bounds follow a hash prefix whose columns are
/// not all fixed, or that the bounds apply to a reversed column.
fn is_refused(columns: &[KeyColumnSpec], fixed: usize, is_bounded: bool) -> bool {
    let names = logical_names(columns);
    let restricted = fixed + usize::from(is_bounded);
    let mut next = 0;
    for column in columns {
        if next >= restricted {
            return false;
        }
        match &column.source {
            KeySource::HashPrefix(hash) => {
                if !hash.of.iter().all(|name| names[..fixed].contains(&name.as_str())) {
                    return true;
                }
            }
            KeySource::Bucket(_) => {}
            KeySource::Reverse(_) if next >= fixed => return true,
            KeySource::Splice(splice) => next += splice.columns.len(),
            _ => next += 1,
        }
    }
    false
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(2_000))]

    #[test]
    fn ranges_hold_exactly_the_selected_rows(
        (columns, mut rows) in tables(3..30),
        fixed in any::<Index>(),
        forms in (0_u8..3, 0_u8..3),
        any_value in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let layout = layout_of(&columns);
        let fixed = fixed.index(layout.logical().len() + 1);
        let prefix = rows[0][..fixed].to_vec();
        for row in rows.iter_mut().step_by(2) {
            row[..fixed].clone_from_slice(&prefix);
        }
        let bounds = match layout.logical().get(fixed) {
            None => ALL,
            // Some bounds are values that the column cannot hold.
            Some(column) if any_value => {
                let values = [sample(column.kind, seed), sample(column.kind, seed.rotate_left(20))];
                (bound(forms.0, &values[0]), bound(forms.1, &values[1]))
            }
            Some(_) => (bound(forms.0, &rows[1][fixed]), bound(forms.1, &rows[2][fixed])),
        };
        let pins_one = matches!(&bounds, (Bound::Included(lower), Bound::Included(upper)) if lower == upper);
        let is_bounded = bounds != ALL;
        let scan = layout.ranges(&prefix, bounds.clone());
        if is_refused(&columns, fixed + usize::from(pins_one), is_bounded && !pins_one) {
            let error = scan.expect_err("refused");
            prop_assert!(
                matches!(error, LayoutError::BehindHash { .. } | LayoutError::ReversedRange { .. }),
                "{}", error
            );
            return Ok(());
        }
        let scan = scan.expect("accepted");
        let mut selected = Vec::new();
        for row in &rows {
            let is_selected = row.starts_with(&prefix)
                && row.get(fixed).is_none_or(|value| is_within(&bounds, value));
            let key = encoded(&layout, row);
            prop_assert_eq!(scan.contains(&key), is_selected, "{:?} within {:?}", row, bounds);
            for (column, value) in layout.logical().iter().zip(row) {
                let KeyValue::Timestamp(time) = value else { continue };
                let stored = layout.time_column(&column.name).expect("a timestamp");
                prop_assert_eq!(layout.time_at(&key, stored), Ok(*time));
                for range in scan.ranges.iter().filter(|range| range.contains(&key)) {
                    let times = layout.times_in(range, stored);
                    prop_assert!(times.contains(&time.nanos()), "{:?} of {:?} is not in {:?}", time, row, times);
                }
            }
            if is_selected {
                selected.push((key, row));
            }
        }
        for range in &scan.ranges {
            prop_assert!(range.end.as_ref().is_none_or(|end| *end > range.start), "{:?}", range);
        }
        if scan.is_ordered {
            selected.sort_by(|(left, _), (right, _)| layout.merge_key(left).cmp(layout.merge_key(right)));
            prop_assert!(selected.is_sorted_by(|(_, left), (_, right)| cmp_rows(&layout, left, right).is_le()));
        }
    }

    #[test]
    fn merged_buckets_are_one_sorted_table((columns, rows) in tables(1..60)) {
        let layout = layout_of(&columns);
        let keys: BTreeSet<Vec<u8>> = rows.iter().map(|row| encoded(&layout, row)).collect();
        let scan = layout.ranges(&[], ALL).expect("all rows");
        prop_assert_eq!(scan.ranges.len(), layout.buckets().map_or(1, usize::from));

        let after_bucket = usize::from(layout.buckets().is_some());
        let schema = stored_schema(&columns);
        let sorted_columns = schema.columns()[after_bucket..].to_vec();
        let schema = KeySchema::new(sorted_columns).expect("valid");
        let mut table: Vec<(Vec<OwnedValue>, Vec<u8>)> = rows
            .iter()
            .map(|row| (stored_tuple(&columns, row).split_off(after_bucket), encoded(&layout, row)))
            .collect();
        table.sort_by(|(left, _), (right, _)| cmp_tuples(&schema, left, right));
        table.dedup();
        let sorted: Vec<&Vec<u8>> = table.iter().map(|(_, key)| key).collect();
        let backward: Vec<&Vec<u8>> = sorted.iter().rev().copied().collect();
        prop_assert_eq!(merged(&layout, &scan, &keys, true), sorted);
        prop_assert_eq!(merged(&layout, &scan, &keys, false), backward);
    }
}

#[test]
fn the_times_of_a_range_are_those_of_its_bounds() {
    let time = |nanos: i64| KeyValue::from(Timestamp::from_nanos_clamped(nanos));
    let by_host = |at: KeyColumnSpec| layout_of(&[plain("host", ColumnType::String), at]);
    let ascending = by_host(plain("at", ColumnType::Timestamp));
    let descending = by_host(descending(plain("at", ColumnType::Timestamp)));
    let buckets = layout_of(&[
        bucket("spread", &["host"], 2),
        plain("at", ColumnType::Timestamp),
        plain("host", ColumnType::String),
    ]);
    let all = i64::MIN..=i64::MAX;
    for (layout, prefix) in [
        (&ascending, vec!["web-\u{ff}".into()]),
        (&descending, vec!["web-1".into()]),
        (&buckets, vec![]),
    ] {
        let column = layout.time_column("at").expect("a timestamp");
        let times = |bounds: OwnedBounds| {
            let scan = layout.ranges(&prefix, bounds).expect("valid bounds");
            let times = scan.ranges.iter().map(|range| layout.times_in(range, column));
            times.collect::<Vec<_>>()
        };
        let bounded = (Bound::Included(time(1_000)), Bound::Excluded(time(2_000)));
        for found in times(bounded) {
            assert!(
                (999..=1_000).contains(found.start()) && (1_999..=2_000).contains(found.end()),
                "{found:?}"
            );
        }
        for found in times((Bound::Included(time(1_000)), Bound::Unbounded)) {
            assert!((999..=1_000).contains(found.start()), "{found:?}");
            assert!(*found.end() >= Timestamp::MAX.nanos());
        }
        for found in times((Bound::Unbounded, Bound::Included(time(-5)))) {
            assert!((-5..=-4).contains(found.end()), "{found:?}");
            assert!(*found.start() <= Timestamp::MIN.nanos());
        }
        assert!(times(ALL).iter().all(|found| *found == all));
    }
    // In a range over several hosts, the timestamps are not bounded.
    let scan = ascending.ranges(&[], (Bound::Included("a".into()), Bound::Included("b".into())));
    let range = &scan.expect("valid bounds").ranges[0];
    assert_eq!(ascending.times_in(range, 1), all);
}

/// Returns a value of a type, derived from a seed. Texts may have characters that spliced columns refuse.
fn sample(kind: KeyKind, seed: u64) -> OwnedValue {
    let small = seed % 4;
    let number = if seed & 16 == 0 { small } else { seed };
    let letters = ['\0', ',', '-', 'a', 'ÿ'];
    let text: String = (0..small)
        .map(|place| letters[(seed >> (8 * place + 5)) as usize % letters.len()])
        .collect();
    match kind {
        KeyKind::String => KeyValue::String(Cow::Owned(text)),
        KeyKind::Signed if seed & 32 == 0 => KeyValue::Signed(number as i64),
        KeyKind::Signed => KeyValue::Signed((number as i64).wrapping_neg()),
        KeyKind::Unsigned => KeyValue::Unsigned(number),
        KeyKind::Binary => KeyValue::Binary(Cow::Owned(text.into_bytes())),
        KeyKind::Timestamp => {
            KeyValue::Timestamp(tideline_model::Timestamp::from_nanos_clamped(number as i64))
        }
        KeyKind::Decimal => KeyValue::Decimal(crate::tuple::Decimal::from(number as i64)),
        KeyKind::Boolean => KeyValue::Boolean(seed & 1 == 0),
    }
}

#[test]
fn a_range_after_a_prefix_returns_the_rows_of_that_prefix_only() {
    // Rows of one group and a range of users: the range applies to the users of the group, not to the whole key.
    let layout = layout_of(&[plain("gid", ColumnType::String), plain("uid", ColumnType::I64)]);
    let bounds = (Bound::Included(2_i64.into()), Bound::Excluded(4_i64.into()));
    let scan = layout.ranges(&["g2".into()], bounds).expect("accepted");
    let mut selected = Vec::new();
    for gid in ["g1", "g2", "g3"] {
        for uid in 1..6_i64 {
            if scan.contains(&encoded(&layout, &[gid.into(), uid.into()])) {
                selected.push((gid, uid));
            }
        }
    }
    assert_eq!(selected, [("g2", 2), ("g2", 3)]);
    assert!(scan.is_ordered);
}

#[test]
fn a_bucket_whose_columns_are_fixed_is_scanned_alone() {
    let layout = layout_of(&[
        bucket("b", &["card"], 16),
        plain("card", ColumnType::String),
        plain("time", ColumnType::Timestamp),
    ]);
    let alone = layout.ranges(&["c1".into()], ALL).expect("accepted");
    assert_eq!(alone.ranges.len(), 1);
    let key = encoded(&layout, &["c1".into(), tideline_model::Timestamp::EPOCH.into()]);
    assert!(alone.contains(&key));
    // Bounds that select one value act as an equality.
    let value = KeyValue::from("c1");
    let one = (Bound::Included(value.clone()), Bound::Included(value));
    assert_eq!(layout.ranges(&[], one), Ok(alone));
    let from = layout.ranges(&[], (Bound::Included("c1".into()), Bound::Unbounded));
    assert_eq!(from.expect("accepted").ranges.len(), 16);
}

#[test]
fn the_last_bucket_of_256_has_no_end() {
    let layout = layout_of(&[bucket("b", &["n"], 256), plain("n", ColumnType::U64)]);
    let scan = layout.ranges(&[], ALL).expect("accepted");
    assert_eq!(scan.ranges.len(), 256);
    assert_eq!(scan.ranges[7], tideline_model::KeyRange::new([7], [8]));
    assert_eq!(scan.ranges[255].end, None);
}

#[test]
fn bounds_that_no_value_meets_give_no_ranges() {
    let layout = layout_of(&[bucket("b", &["n"], 4), plain("n", ColumnType::I64)]);
    for bounds in [
        (Bound::Included(5_i64.into()), Bound::Included(3_i64.into())),
        (Bound::Excluded(5_i64.into()), Bound::Excluded(5_i64.into())),
    ] {
        assert_eq!(layout.ranges(&[], bounds).expect("accepted").ranges, []);
    }
}

#[test]
fn bounds_of_a_padded_number_may_have_more_digits_or_be_negative() {
    let columns = [
        ("seller", ColumnType::String, None),
        ("no", ColumnType::I64, Some(2)),
    ];
    let layout = layout_of(&[splice("s", ',', &columns)]);
    let selected = |bounds: OwnedBounds| {
        let scan = layout.ranges(&["x".into()], bounds).expect("accepted");
        let rows = (0..100_i64).filter(|no| scan.contains(&encoded(&layout, &["x".into(), (*no).into()])));
        rows.collect::<Vec<i64>>()
    };
    let (negative, long) = (KeyValue::from(-1_i64), KeyValue::from(100_i64));
    assert_eq!(
        selected((Bound::Unbounded, Bound::Excluded(3_i64.into()))),
        [0, 1, 2]
    );
    assert_eq!(
        selected((Bound::Included(97_i64.into()), Bound::Unbounded)),
        [97, 98, 99]
    );
    assert_eq!(
        selected((Bound::Excluded(negative.clone()), Bound::Included(long.clone()))).len(),
        100
    );
    assert_eq!(selected((Bound::Excluded(long.clone()), Bound::Unbounded)), []);
    assert_eq!(
        selected((Bound::Unbounded, Bound::Included(negative.clone()))),
        []
    );
    assert_eq!(
        selected((Bound::Included(long.clone()), Bound::Included(long.clone()))),
        []
    );
    // As a value of the prefix, the same number is an error.
    let error = layout.ranges(&["x".into(), long], ALL).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "key column `no` holds numbers of at most 2 digits; 100 has more"
    );
}

#[test]
fn a_scan_behind_a_hash_is_refused() {
    let layout = layout_of(&[
        hash("h", &["order", "shop"], 4),
        plain("order", ColumnType::U64),
        plain("shop", ColumnType::U64),
        plain("time", ColumnType::Timestamp),
    ]);
    let refusal = |prefix: &[KeyValue<'_>], bounds: OwnedBounds| {
        layout.ranges(prefix, bounds).expect_err("refused").to_string()
    };
    assert_eq!(
        refusal(&[], (Bound::Included(1_u64.into()), Bound::Unbounded)),
        "key column `order` cannot restrict the scan: rows are stored by `h`, a hash that needs the value of `order`; \
         give all hashed columns by equality, or create a secondary index on `order`, or use a table whose key begins \
         with a bucket instead of the hash prefix"
    );
    let behind = |missing: &str| LayoutError::BehindHash {
        column: "order".to_owned(),
        hash: "h".to_owned(),
        missing: missing.to_owned(),
    };
    assert_eq!(layout.ranges(&[1_u64.into()], ALL), Err(behind("shop")));
    let all = layout.ranges(&[], ALL).expect("accepted");
    assert_eq!(
        (all.ranges.as_slice(), all.is_ordered),
        (&[tideline_model::KeyRange::ALL][..], false)
    );
    let fixed = layout
        .ranges(&[1_u64.into(), 2_u64.into()], ALL)
        .expect("accepted");
    assert!(fixed.is_ordered);
}

#[test]
fn a_range_of_a_reversed_column_is_refused() {
    let layout = layout_of(&[
        reverse("r", "device", ColumnType::String),
        plain("time", ColumnType::Timestamp),
    ]);
    let error = layout
        .ranges(&[], (Bound::Included("a".into()), Bound::Unbounded))
        .expect_err("refused");
    assert_eq!(
        error.to_string(),
        "key column `device` is stored reversed, so a range of its values is not a range of the table; give one \
         value, or create a secondary index on `device`"
    );
    assert!(layout.ranges(&["a".into()], ALL).expect("accepted").is_ordered);
    assert!(!layout.ranges(&[], ALL).expect("accepted").is_ordered);
}

#[test]
fn prefixes_and_bounds_fit_the_columns() {
    let layout = layout_of(&[plain("a", ColumnType::String), plain("b", ColumnType::I64)]);
    let refusal = |prefix: &[KeyValue<'_>], bounds: OwnedBounds| {
        layout.ranges(prefix, bounds).expect_err("refused").to_string()
    };
    assert_eq!(
        refusal(&["x".into(), 1_i64.into(), 2_i64.into()], ALL),
        "the key prefix has 3 values, the table has 2 key columns; omit the others"
    );
    let from_1 = (Bound::Included(1_i64.into()), Bound::Unbounded);
    assert_eq!(
        refusal(&["x".into(), 1_i64.into()], from_1.clone()),
        "bounds apply to the column after the key prefix, and the prefix holds all 2 key columns"
    );
    assert_eq!(
        refusal(&[], from_1),
        "key column `a` has type string; the value has type i64"
    );
    let long = "a".repeat(8_160);
    assert_eq!(
        refusal(&[long.as_str().into()], ALL),
        "the key has 8162 encoded bytes, over the limit of 8160; shorten the values"
    );
}

#[test]
fn a_hash_of_columns_before_it_keeps_the_order() {
    let layout = layout_of(&[
        plain("shop", ColumnType::String),
        hash("h", &["shop"], 4),
        plain("order", ColumnType::U64),
    ]);
    assert!(layout.ranges(&[], ALL).expect("accepted").is_ordered);
    let from_1 = (Bound::Included(1_u64.into()), Bound::Unbounded);
    assert!(layout.ranges(&["s".into()], from_1).expect("accepted").is_ordered);
}
