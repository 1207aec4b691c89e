//! Tests that a key range contains exactly the tuples that match the prefix and the bounds from which it was built.
//!
//! Random tuples are compared with prefixes and bounds; single cases cover the limits of the key space.

use std::ops::Bound;

use tideline_model::KeyRange;

use super::*;

/// Bytes that precede the columns of every key.
const BASE: [u8; 4] = [0, 0, 0, 7];

/// Encodes a tuple after `base`.
fn key_after(base: &[u8], schema: &KeySchema, values: &[OwnedValue]) -> Vec<u8> {
    let mut key = base.to_vec();
    schema.encode(values, &mut key).expect("valid");
    key
}

/// Returns a bound: unbounded for form 0, inclusive for form 1, otherwise exclusive.
fn bound(form: u8, value: &OwnedValue) -> Bound<OwnedValue> {
    match form {
        0 => Bound::Unbounded,
        1 => Bound::Included(value.clone()),
        _ => Bound::Excluded(value.clone()),
    }
}

/// Returns true if a value is within the bounds.
fn is_within((lower, upper): &(Bound<OwnedValue>, Bound<OwnedValue>), value: &OwnedValue) -> bool {
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

/// Returns true if the start of the range is after its end. A backend may refuse such a range.
fn is_inverted(range: &KeyRange) -> bool {
    range.end.as_ref().is_some_and(|end| *end < range.start)
}

/// Returns schemas of one column, ascending and descending.
fn single(kind: KeyKind) -> [KeySchema; 2] {
    [ColumnOrder::Ascending, ColumnOrder::Descending].map(|order| schema_of(&[(kind, order)]))
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(500))]

    #[test]
    fn a_prefix_range_holds_the_tuples_with_the_prefix(
        (schema, tuples) in tuples(1..40),
        count in 0..=KEY_COLUMNS_MAX,
        has_base in any::<bool>(),
    ) {
        let base = &BASE[..if has_base { BASE.len() } else { 0 }];
        let prefix = &tuples[0][..count.min(tuples[0].len())];
        let range = schema.prefix_range(base, prefix).expect("valid");
        for tuple in &tuples {
            let is_inside = range.contains(&key_after(base, &schema, tuple));
            prop_assert_eq!(is_inside, tuple.starts_with(prefix), "{:?}", tuple);
        }
    }

    #[test]
    fn a_bounds_range_holds_the_tuples_within_the_bounds(
        (schema, mut tuples) in tuples(3..40),
        count in any::<prop::sample::Index>(),
        forms in (0_u8..3, 0_u8..3),
        has_base in any::<bool>(),
    ) {
        let base = &BASE[..if has_base { BASE.len() } else { 0 }];
        let count = count.index(schema.columns().len());
        let prefix = tuples[0][..count].to_vec();
        // Every second tuple has the prefix; the bounds are values of the second and the third tuple.
        for tuple in tuples.iter_mut().step_by(2) {
            tuple[..count].clone_from_slice(&prefix);
        }
        let bounds = (bound(forms.0, &tuples[1][count]), bound(forms.1, &tuples[2][count]));
        let range = schema.bounds_range(base, &prefix, bounds.clone()).expect("valid");
        prop_assert!(!is_inverted(&range), "{:?}", range);
        for tuple in &tuples {
            let is_inside = range.contains(&key_after(base, &schema, tuple));
            let is_selected = tuple.starts_with(&prefix) && is_within(&bounds, &tuple[count]);
            prop_assert_eq!(is_inside, is_selected, "{:?} within {:?}", tuple, bounds);
        }
    }
}

#[test]
fn bounds_of_a_descending_column_are_those_of_its_values() {
    let [ascending, descending] = single(KeyKind::Signed);
    for schema in [ascending, descending] {
        let bounds = KeyValue::from(3_i64)..KeyValue::from(6_i64);
        let range = schema.bounds_range(&BASE, &[], bounds).expect("valid");
        let selected =
            (0..9_i64).filter(|number| range.contains(&key_after(&BASE, &schema, &[(*number).into()])));
        assert_eq!(selected.collect::<Vec<_>>(), [3, 4, 5]);
    }
}

#[test]
fn no_key_follows_the_largest_value() {
    // The largest value is encoded as eight bytes `ff`; no key sorts after it.
    let largest = KeyValue::from(u64::MAX);
    let [ascending, descending] = single(KeyKind::Unsigned);
    let after_largest = (Bound::Excluded(largest.clone()), Bound::Unbounded);
    let range = ascending.bounds_range(&[], &[], after_largest).expect("valid");
    assert_eq!(range, KeyRange::new([], []));
    let from_largest = ascending.bounds_range(&[], &[], largest..).expect("valid");
    assert_eq!((from_largest.start, from_largest.end), (vec![0xff; 8], None));
    // The smallest value has the last key of a descending column.
    let below_smallest = descending
        .bounds_range(&[], &[], ..KeyValue::from(0_u64))
        .expect("valid");
    assert_eq!(below_smallest, KeyRange::new([], []));
}

#[test]
fn bounds_that_no_value_meets_are_a_range_without_keys() {
    for schema in single(KeyKind::Signed) {
        let (three, five) = (KeyValue::from(3_i64), KeyValue::from(5_i64));
        let inverted = schema
            .bounds_range(&BASE, &[], five..three.clone())
            .expect("valid");
        assert_eq!(inverted, KeyRange::new(BASE, BASE));
        let between = (Bound::Excluded(three.clone()), Bound::Excluded(three.clone()));
        let empty = schema.bounds_range(&BASE, &[], between).expect("valid");
        assert_eq!(empty, KeyRange::new(BASE, BASE));
        let single = schema
            .bounds_range(&BASE, &[], three.clone()..=three.clone())
            .expect("valid");
        assert_eq!(single, schema.prefix_range(&BASE, &[three]).expect("valid"));
    }
}

#[test]
fn missing_bounds_select_the_prefix() {
    let columns = [
        (KeyKind::Boolean, ColumnOrder::Descending),
        (KeyKind::String, ColumnOrder::Ascending),
    ];
    let schema = schema_of(&columns);
    let prefix = [KeyValue::from(true)];
    let all = schema.bounds_range(&BASE, &prefix, ..).expect("valid");
    assert_eq!(all, schema.prefix_range(&BASE, &prefix).expect("valid"));
}
