//! Tests of refused schemas, tuples and bounds.
//!
//! A refused call returns the matching error and leaves the buffer of the caller unchanged.

use super::*;

const STRING: (KeyKind, ColumnOrder) = (KeyKind::String, ColumnOrder::Ascending);
const SIGNED: (KeyKind, ColumnOrder) = (KeyKind::Signed, ColumnOrder::Descending);

/// Content of the buffer before a refused key.
const BEFORE: &[u8] = b"before";

/// Encodes a tuple that is refused, and checks that the buffer is unchanged.
fn refusal(schema: &KeySchema, values: &[KeyValue<'_>]) -> KeyError {
    let mut out = BEFORE.to_vec();
    let error = schema.encode(values, &mut out).expect_err("refused");
    assert_eq!(out, BEFORE);
    error
}

#[test]
fn a_schema_has_1_to_8_columns() {
    let column = KeyColumn {
        kind: KeyKind::Boolean,
        order: ColumnOrder::Ascending,
    };
    for actual in [0, 9] {
        let error = KeySchema::new(vec![column; actual]).expect_err("refused");
        assert_eq!(error, KeyError::ColumnCount { actual });
        assert_eq!(
            error.to_string(),
            format!("the key has {actual} columns; declare 1 to 8")
        );
    }
    for count in [1, 8] {
        assert_eq!(
            KeySchema::new(vec![column; count]).expect("valid").columns(),
            vec![column; count]
        );
    }
}

#[test]
fn a_tuple_has_one_value_per_column() {
    let schema = schema_of(&[STRING, SIGNED]);
    let values = ["a".into(), 1_i64.into(), true.into()];
    for actual in [0, 1, 3] {
        assert_eq!(
            refusal(&schema, &values[..actual]),
            KeyError::ValueCount { expected: 2, actual }
        );
    }
    let error = schema.prefix_range(&[], &values).expect_err("refused");
    assert_eq!(error, KeyError::PrefixCount { limit: 2, actual: 3 });
}

#[test]
fn a_value_has_the_type_of_its_column() {
    let schema = schema_of(&[STRING, SIGNED]);
    let error = refusal(&schema, &["a".into(), 1_u64.into()]);
    let wrong = KeyError::WrongKind {
        column: 1,
        expected: KeyKind::Signed,
        actual: KeyKind::Unsigned,
    };
    assert_eq!(error, wrong);
    assert_eq!(
        error.to_string(),
        "key column 1 has type i64; the value has type u64"
    );
    let bound = schema.bounds_range(&[], &["a".into()], KeyValue::from(1_u64)..);
    assert_eq!(bound, Err(wrong));
}

#[test]
fn bounds_need_a_column_after_the_prefix() {
    let schema = schema_of(&[STRING, SIGNED]);
    let prefix = ["a".into(), 1_i64.into()];
    let error = schema.bounds_range(&[], &prefix, ..KeyValue::from(2_i64));
    assert_eq!(error, Err(KeyError::BoundsAfterLastColumn { columns: 2 }));
}

#[test]
fn encoded_columns_have_a_limit() {
    let schema = schema_of(&[STRING, SIGNED]);
    // The terminator and the number take ten bytes.
    let longest = "a".repeat(TUPLE_BYTES_MAX - 10);
    let key = encoded(&schema, &[longest.as_str().into(), 1_i64.into()]);
    assert_eq!(key.len(), TUPLE_BYTES_MAX);
    assert!(schema.decode(&key).is_ok());

    let longer = format!("{longest}a");
    let too_long = KeyError::TooLong {
        actual: TUPLE_BYTES_MAX + 1,
    };
    assert_eq!(
        refusal(&schema, &[longer.as_str().into(), 1_i64.into()]),
        too_long
    );
    // The length limit of a bound includes the prefix, but not the bytes before the columns.
    let bounds = |prefix: &str| schema.bounds_range(BEFORE, &[prefix.into()], KeyValue::from(1_i64)..);
    assert!(bounds(&longest).is_ok());
    assert_eq!(bounds(&longer), Err(too_long.clone()));
    assert_eq!(
        too_long.to_string(),
        "the key columns have 8161 encoded bytes, over the limit of 8160; shorten the values"
    );
}
