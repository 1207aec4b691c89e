//! Tests of tuple keys: keys have the order of tuples, decode to the same tuple, and never change their bytes.
//!
//! This module holds the generators of schemas and values, and comparisons that do not use the code under test.

mod bytes;
mod damage;
mod decimals;
mod order;
mod ranges;
mod refusals;

use std::borrow::Cow;
use std::cmp::Ordering;

use proptest::collection::vec;
use proptest::prelude::*;
use tideline_model::Timestamp;

use super::*;

/// Value that owns its text or bytes.
pub(crate) type OwnedValue = KeyValue<'static>;

/// Builds a schema from types and orders.
pub(crate) fn schema_of(columns: &[(KeyKind, ColumnOrder)]) -> KeySchema {
    let column = |&(kind, order): &(KeyKind, ColumnOrder)| KeyColumn { kind, order };
    let columns: Vec<KeyColumn> = columns.iter().map(column).collect();
    KeySchema::new(columns).expect("1 to 8 columns")
}

/// Encodes a tuple that fits the schema.
fn encoded(schema: &KeySchema, values: &[KeyValue<'_>]) -> Vec<u8> {
    let mut key = Vec::new();
    schema
        .encode(values, &mut key)
        .expect("the values have the types of the columns");
    key
}

/// Generates schemas of 1 to 8 columns of any type and order.
fn schemas() -> impl Strategy<Value = KeySchema> {
    let order = prop_oneof![Just(ColumnOrder::Ascending), Just(ColumnOrder::Descending)];
    vec(
        (prop::sample::select(&KeyKind::ALL[..]), order),
        1..=KEY_COLUMNS_MAX,
    )
    .prop_map(|columns| schema_of(&columns))
}

/// Generates a schema and `count` tuples of it.
fn tuples(
    count: impl Into<prop::collection::SizeRange>,
) -> impl Strategy<Value = (KeySchema, Vec<Vec<OwnedValue>>)> {
    let count = count.into();
    schemas().prop_flat_map(move |schema| {
        let columns: Vec<_> = schema
            .columns()
            .iter()
            .map(|column| values(column.kind))
            .collect();
        (Just(schema), vec(columns, count.clone()))
    })
}

/// Generates values of one type. Most values come from few candidates, so that columns of different tuples are often
/// equal. Some values need escapes, or are the limits of the type.
pub(crate) fn values(kind: KeyKind) -> BoxedStrategy<OwnedValue> {
    match kind {
        KeyKind::String => texts()
            .prop_map(|text| KeyValue::String(Cow::Owned(text)))
            .boxed(),
        KeyKind::Signed => integers().prop_map(KeyValue::Signed).boxed(),
        KeyKind::Unsigned => integers()
            .prop_map(|number| KeyValue::Unsigned(number as u64))
            .boxed(),
        KeyKind::Binary => binaries()
            .prop_map(|bytes| KeyValue::Binary(Cow::Owned(bytes)))
            .boxed(),
        KeyKind::Timestamp => integers()
            .prop_map(|nanos| KeyValue::Timestamp(Timestamp::from_nanos_clamped(nanos)))
            .boxed(),
        KeyKind::Decimal => decimals().prop_map(KeyValue::Decimal).boxed(),
        KeyKind::Boolean => any::<bool>().prop_map(KeyValue::Boolean).boxed(),
    }
}

fn texts() -> impl Strategy<Value = String> {
    let letters = prop::sample::select(&['\0', '\u{1}', 'a', 'ÿ', '\u{10ffff}'][..]);
    prop_oneof![
        4 => vec(letters, 0..4).prop_map(String::from_iter),
        1 => any::<String>(),
    ]
}

fn binaries() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => vec(prop::sample::select(&[0, 1, 2, 0xfe, 0xff][..]), 0..4),
        1 => vec(any::<u8>(), 0..40),
    ]
}

fn integers() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => -2_i64..3,
        1 => prop::sample::select(&[i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX][..]),
        1 => any::<i64>(),
    ]
}

fn decimals() -> impl Strategy<Value = Decimal> {
    let mantissa = prop_oneof![
        4 => -20_i128..21,
        1 => prop::sample::select(&[i128::MIN, i128::MIN + 1, i128::MAX - 1, i128::MAX][..]),
        1 => any::<i128>(),
        // A few digits followed by zeros.
        1 => (-999_i128..1_000, 0_u32..36).prop_map(|(digits, zeros)| digits * 10_i128.pow(zeros)),
    ];
    let scale = prop_oneof![2 => 0_u8..3, 1 => 0..=DECIMAL_SCALE_MAX];
    (mantissa, scale)
        .prop_map(|(mantissa, scale)| Decimal::new(mantissa, scale).expect("the scale is in range"))
}

/// Compares two values of one type. Decimals are compared by their digits, without the code under test.
pub(crate) fn cmp_values(left: &KeyValue<'_>, right: &KeyValue<'_>) -> Ordering {
    match (left, right) {
        (KeyValue::String(left), KeyValue::String(right)) => left.cmp(right),
        (KeyValue::Signed(left), KeyValue::Signed(right)) => left.cmp(right),
        (KeyValue::Unsigned(left), KeyValue::Unsigned(right)) => left.cmp(right),
        (KeyValue::Binary(left), KeyValue::Binary(right)) => left.cmp(right),
        (KeyValue::Timestamp(left), KeyValue::Timestamp(right)) => left.cmp(right),
        (KeyValue::Decimal(left), KeyValue::Decimal(right)) => decimals::cmp_digits(*left, *right),
        (KeyValue::Boolean(left), KeyValue::Boolean(right)) => left.cmp(right),
        _ => panic!("{left:?} and {right:?} are of different types"),
    }
}

/// Compares two tuples column by column, in the order of each column.
pub(crate) fn cmp_tuples(schema: &KeySchema, left: &[OwnedValue], right: &[OwnedValue]) -> Ordering {
    let pairs = schema.columns().iter().zip(left.iter().zip(right));
    let mut orders = pairs.map(|(column, (left, right))| match column.order {
        ColumnOrder::Ascending => cmp_values(left, right),
        ColumnOrder::Descending => cmp_values(right, left),
    });
    orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}
