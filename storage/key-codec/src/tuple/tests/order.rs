//! Tests that keys sort in the order of their tuples and decode to the same tuple.

use super::*;

/// Generates a schema and two of its tuples. The tuples are equal in a number of first columns, between 0 and all.
fn pairs() -> impl Strategy<Value = (KeySchema, Vec<OwnedValue>, Vec<OwnedValue>)> {
    (tuples(2), 0..=KEY_COLUMNS_MAX).prop_map(|((schema, mut tuples), shared)| {
        let (mut right, left) = (tuples.swap_remove(1), tuples.swap_remove(0));
        let shared = shared.min(left.len());
        right[..shared].clone_from_slice(&left[..shared]);
        (schema, left, right)
    })
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(2_000))]

    #[test]
    fn keys_sort_as_tuples((schema, left, right) in pairs()) {
        let (left_key, right_key) = (encoded(&schema, &left), encoded(&schema, &right));
        prop_assert_eq!(left_key.cmp(&right_key), cmp_tuples(&schema, &left, &right));
    }

    #[test]
    fn keys_read_back((schema, tuples) in tuples(1)) {
        let key = encoded(&schema, &tuples[0]);
        prop_assert_eq!(schema.decode(&key), Ok(tuples[0].clone()));
    }

    #[test]
    fn a_key_begins_with_the_prefix_of_its_first_values((schema, tuples) in tuples(1), count in 0..=KEY_COLUMNS_MAX) {
        let count = count.min(tuples[0].len());
        let mut prefix = Vec::new();
        schema.encode_prefix(&tuples[0][..count], &mut prefix).expect("valid");
        prop_assert!(encoded(&schema, &tuples[0]).starts_with(&prefix));
    }
}

#[test]
fn a_value_sorts_before_its_extensions() {
    let texts = [
        "", "\0", "\0\0", "\0\u{1}", "\u{1}", "a", "a\0", "a\0b", "a\u{1}", "aa", "ÿ",
    ];
    let key = |order: ColumnOrder, text: &'static str| {
        // The longer the text, the smaller is the second column. If it decided the ascending order, the test would
        // fail.
        let schema = schema_of(&[
            (KeyKind::String, order),
            (KeyKind::Unsigned, ColumnOrder::Ascending),
        ]);
        encoded(&schema, &[text.into(), (u64::MAX - text.len() as u64).into()])
    };
    assert!(texts.map(|text| key(ColumnOrder::Ascending, text)).is_sorted());
    assert!(
        texts
            .map(|text| key(ColumnOrder::Descending, text))
            .is_sorted_by(|left, right| left > right)
    );
}

#[test]
fn decoded_text_without_zeros_is_borrowed() {
    let schema = schema_of(&[
        (KeyKind::String, ColumnOrder::Ascending),
        (KeyKind::Binary, ColumnOrder::Ascending),
    ]);
    let key = encoded(&schema, &["plain".into(), b"\xff\x01".as_slice().into()]);
    let values = schema.decode(&key).expect("valid");
    assert!(matches!(values[0], KeyValue::String(Cow::Borrowed("plain"))));
    assert!(matches!(values[1], KeyValue::Binary(Cow::Borrowed(b"\xff\x01"))));
}
