//! Tests of key layouts: random layouts and rows are compared with computations that do not use the code under test.
//!
//! This module holds the generators of layouts and values, and the stored tuple of a row.

mod goldens;
mod names;
mod products;
mod refusals;
mod rows;
mod scans;
mod splits;

use std::borrow::Cow;

use md5::{Digest, Md5};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use tideline_model::wide::{
    Bucket, Generated, HashPrefix, LogicalColumn, Reverse, Splice as SpliceSpec, SplicedColumn,
};
use tideline_model::{ColumnType, KeyColumnSpec, KeyOrder, KeySource};
use xxhash_rust::xxh3::xxh3_64;

use super::*;
use crate::tuple::tests::{OwnedValue, cmp_tuples, schema_of, values};
use crate::tuple::{ColumnOrder, KeyKind, KeySchema, KeyValue};

/// Types of columns that can be stored as text.
const TEXT_TYPES: [ColumnType; 3] = [ColumnType::String, ColumnType::I64, ColumnType::U64];

/// Types of columns that keys can hold.
const KEY_TYPES: [ColumnType; 7] = [
    ColumnType::String,
    ColumnType::I64,
    ColumnType::U64,
    ColumnType::Binary,
    ColumnType::Timestamp,
    ColumnType::Decimal,
    ColumnType::Bool,
];

/// Declares an ascending column.
fn column(name: &str, source: KeySource) -> KeyColumnSpec {
    KeyColumnSpec {
        name: name.to_owned(),
        source,
        order: KeyOrder::Ascending,
    }
}

/// Declares an ascending logical column.
fn plain(name: &str, column_type: ColumnType) -> KeyColumnSpec {
    column(name, KeySource::Type(column_type))
}

fn generated(name: &str) -> KeyColumnSpec {
    column(name, KeySource::Generated(Generated {}))
}

fn hash(name: &str, of: &[&str], hex: u8) -> KeyColumnSpec {
    column(name, KeySource::HashPrefix(HashPrefix { of: owned(of), hex }))
}

fn bucket(name: &str, of: &[&str], count: u16) -> KeyColumnSpec {
    column(name, KeySource::Bucket(Bucket { of: owned(of), count }))
}

fn reverse(name: &str, of: &str, column_type: ColumnType) -> KeyColumnSpec {
    let of = LogicalColumn {
        name: of.to_owned(),
        column_type,
    };
    column(name, KeySource::Reverse(Reverse { of }))
}

fn splice(name: &str, delimiter: char, columns: &[(&str, ColumnType, Option<u8>)]) -> KeyColumnSpec {
    let spliced = |(name, column_type, pad): &(&str, ColumnType, Option<u8>)| SplicedColumn {
        name: (*name).to_owned(),
        column_type: *column_type,
        pad: *pad,
    };
    let columns = columns.iter().map(spliced).collect();
    column(name, KeySource::Splice(SpliceSpec { columns, delimiter }))
}

/// Makes a column descending.
fn descending(mut column: KeyColumnSpec) -> KeyColumnSpec {
    column.order = KeyOrder::Descending;
    column
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Compiles a valid layout. Its first column may rise with time.
#[track_caller]
fn layout_of(columns: &[KeyColumnSpec]) -> KeyLayout {
    KeyLayout::new(columns, true).expect("a valid layout")
}

/// Encodes a row that fits the layout.
#[track_caller]
fn encoded(layout: &KeyLayout, row: &[KeyValue<'_>]) -> Vec<u8> {
    let mut key = Vec::new();
    layout.encode(row, &mut key).expect("a valid row");
    key
}

/// Stored column that holds logical values, in a random layout.
#[derive(Debug, Clone)]
enum Holder {
    Plain(ColumnType),
    Generated,
    Reverse(ColumnType),
    Splice(char, Vec<(ColumnType, u8)>),
}

fn holders() -> impl Strategy<Value = Holder> {
    let delimiters = select(&[',', '!', '\0', '+'][..]);
    prop_oneof![
        4 => select(&KEY_TYPES[..]).prop_map(Holder::Plain),
        1 => Just(Holder::Generated),
        1 => select(&TEXT_TYPES[..]).prop_map(Holder::Reverse),
        3 => (delimiters, vec((select(&TEXT_TYPES[..]), 1_u8..=20), 2..5))
            .prop_map(|(delimiter, parts)| Holder::Splice(delimiter, parts)),
    ]
}

/// Generates declarations of 1 to 4 columns that hold logical values, with or without a bucket and hash prefixes.
fn declarations() -> impl Strategy<Value = Vec<KeyColumnSpec>> {
    let spread = (any::<Index>(), vec(any::<Index>(), 1..3), 1_u8..=8);
    (
        vec((holders(), any::<bool>()), 1..=4),
        prop::option::weighted(0.5, (vec(any::<Index>(), 1..3), 2_u16..6, any::<bool>())),
        vec((spread, any::<bool>()), 0..=2),
    )
        .prop_map(|(holders, bucket, hashes)| declare(&holders, bucket, hashes))
}

type RandomHash = ((Index, Vec<Index>, u8), bool);

fn declare(
    holders: &[(Holder, bool)],
    bucket_of: Option<(Vec<Index>, u16, bool)>,
    hashes: Vec<RandomHash>,
) -> Vec<KeyColumnSpec> {
    let mut columns = Vec::new();
    let mut names: Vec<String> = Vec::new();
    let mut has_generated = false;
    for (number, (holder, is_descending)) in holders.iter().enumerate() {
        let name = format!("c{number}");
        let declared = match holder {
            Holder::Plain(column_type) => plain(&name, *column_type),
            Holder::Generated if has_generated => plain(&name, ColumnType::I64),
            Holder::Generated => {
                has_generated = true;
                generated(&name)
            }
            Holder::Reverse(column_type) => reverse(&format!("reversed_{name}"), &name, *column_type),
            Holder::Splice(delimiter, parts) => {
                let inner: Vec<String> = (0..parts.len()).map(|part| format!("{name}_{part}")).collect();
                let parts: Vec<(&str, ColumnType, Option<u8>)> = inner
                    .iter()
                    .zip(parts)
                    .map(|(name, (column_type, pad))| {
                        let pad = Some(*pad).filter(|_| *column_type != ColumnType::String);
                        (name.as_str(), *column_type, pad)
                    })
                    .collect();
                names.extend(inner.iter().cloned());
                splice(&name, *delimiter, &parts)
            }
        };
        if !matches!(holder, Holder::Splice(..)) {
            names.push(name);
        }
        columns.push(if *is_descending {
            descending(declared)
        } else {
            declared
        });
    }
    let chosen = |of: Vec<Index>| {
        let mut of: Vec<&str> = of.iter().map(|index| index.get(&names).as_str()).collect();
        of.dedup();
        of
    };
    for (number, ((place, of, digits), is_descending)) in hashes.into_iter().enumerate() {
        let declared = hash(&format!("hash_{number}"), &chosen(of), digits);
        let declared = if is_descending {
            descending(declared)
        } else {
            declared
        };
        columns.insert(place.index(columns.len()), declared);
    }
    if let Some((of, count, is_descending)) = bucket_of {
        let declared = bucket("bucket", &chosen(of), count);
        columns.insert(
            0,
            if is_descending {
                descending(declared)
            } else {
                declared
            },
        );
    }
    columns
}

/// Generates declarations and rows of their logical columns.
fn tables(rows: std::ops::Range<usize>) -> impl Strategy<Value = (Vec<KeyColumnSpec>, Vec<Vec<OwnedValue>>)> {
    declarations().prop_flat_map(move |columns| {
        let row: Vec<BoxedStrategy<OwnedValue>> = columns.iter().flat_map(logical_values).collect();
        (Just(columns), vec(row, rows.clone()))
    })
}

/// Returns one generator per logical column of a declared column.
fn logical_values(column: &KeyColumnSpec) -> Vec<BoxedStrategy<OwnedValue>> {
    match &column.source {
        KeySource::Type(column_type) => vec![values(kind(*column_type))],
        KeySource::Generated(_) => vec![values(KeyKind::Signed)],
        KeySource::HashPrefix(_) | KeySource::Bucket(_) => Vec::new(),
        KeySource::Reverse(reverse) => match reverse.of.column_type {
            ColumnType::String => vec![values(KeyKind::String)],
            column_type => vec![numbers(column_type, 20)],
        },
        KeySource::Splice(splice) => {
            let spliced = |part: &SplicedColumn| match part.pad {
                None => spliced_texts().boxed(),
                Some(pad) => numbers(part.column_type, pad),
            };
            splice.columns.iter().map(spliced).collect()
        }
    }
}

/// Generates non-negative numbers of at most `digits` digits; two thirds are below 4.
fn numbers(column_type: ColumnType, digits: u8) -> BoxedStrategy<OwnedValue> {
    let largest = 10_u64
        .checked_pow(digits.into())
        .map_or(u64::MAX, |power| power - 1);
    let numbers = prop_oneof![4 => 0_u64..4, 1 => Just(u64::MAX), 1 => any::<u64>()];
    let value = move |number: u64| match column_type {
        ColumnType::I64 => KeyValue::Signed(number.min(largest).min(i64::MAX as u64) as i64),
        _ => KeyValue::Unsigned(number.min(largest)),
    };
    numbers.prop_map(value).boxed()
}

/// Generates texts whose characters sort after all delimiters of [`holders`].
fn spliced_texts() -> impl Strategy<Value = OwnedValue> {
    let letters = select(&['-', 'a', 'b', 'ÿ', '\u{10ffff}'][..]);
    vec(letters, 0..4).prop_map(|text| KeyValue::String(Cow::Owned(String::from_iter(text))))
}

fn kind(column_type: ColumnType) -> KeyKind {
    KeyKind::of(column_type).expect("a type of keys")
}

/// Returns the schema of the stored tuples of [`stored_tuple`].
fn stored_schema(columns: &[KeyColumnSpec]) -> KeySchema {
    let stored = columns.iter().map(|column| {
        let kind = match &column.source {
            KeySource::Type(column_type) => kind(*column_type),
            KeySource::Generated(_) => KeyKind::Signed,
            KeySource::Bucket(_) => KeyKind::Unsigned,
            KeySource::HashPrefix(_) | KeySource::Reverse(_) | KeySource::Splice(_) => KeyKind::String,
        };
        (kind, column.order.into())
    });
    schema_of(&stored.collect::<Vec<(KeyKind, ColumnOrder)>>())
}

/// Returns the names of the logical columns, in their order.
fn logical_names(columns: &[KeyColumnSpec]) -> Vec<&str> {
    let names = columns.iter().flat_map(|column| match &column.source {
        KeySource::Type(_) | KeySource::Generated(_) => vec![column.name.as_str()],
        KeySource::HashPrefix(_) | KeySource::Bucket(_) => Vec::new(),
        KeySource::Reverse(reverse) => vec![reverse.of.name.as_str()],
        KeySource::Splice(splice) => splice.columns.iter().map(|part| part.name.as_str()).collect(),
    });
    names.collect()
}

/// Returns the values of the stored columns of a row.
fn stored_tuple(columns: &[KeyColumnSpec], row: &[OwnedValue]) -> Vec<OwnedValue> {
    let names = logical_names(columns);
    let value_of = |name: &str| {
        let number = names.iter().position(|other| *other == name).expect("known");
        &row[number]
    };
    let padded = |name: &str, digits: Option<u8>| {
        let width = usize::from(digits.unwrap_or_default());
        format!("{:0>width$}", text(value_of(name)))
    };
    let text_value = |text: String| KeyValue::String(Cow::Owned(text));
    let stored = columns.iter().map(|column| match &column.source {
        KeySource::Type(_) | KeySource::Generated(_) => value_of(&column.name).clone(),
        KeySource::HashPrefix(hash) => {
            let parts: Vec<Vec<u8>> = hash.of.iter().map(|name| hashed_text(value_of(name))).collect();
            let digits = hex(&Md5::digest(parts.join(&b','))[..]);
            text_value(digits[..usize::from(hash.hex)].to_owned())
        }
        KeySource::Bucket(bucket) => {
            let values: Vec<OwnedValue> = bucket.of.iter().map(|name| value_of(name).clone()).collect();
            let ascending = values.iter().map(|value| (value.kind(), ColumnOrder::Ascending));
            let schema = schema_of(&ascending.collect::<Vec<_>>());
            let mut tuple = Vec::new();
            schema.encode(&values, &mut tuple).expect("valid");
            KeyValue::Unsigned(xxh3_64(&tuple) % u64::from(bucket.count))
        }
        KeySource::Reverse(reverse) => {
            let digits = match reverse.of.column_type {
                ColumnType::String => None,
                ColumnType::I64 => Some(19),
                _ => Some(20),
            };
            text_value(padded(&reverse.of.name, digits).chars().rev().collect())
        }
        KeySource::Splice(splice) => {
            let parts = splice.columns.iter().map(|part| padded(&part.name, part.pad));
            text_value(parts.collect::<Vec<_>>().join(&splice.delimiter.to_string()))
        }
    });
    stored.collect()
}

/// Returns the text of a string or integer.
fn text(value: &KeyValue<'_>) -> String {
    match value {
        KeyValue::String(text) => text.to_string(),
        KeyValue::Signed(number) => number.to_string(),
        KeyValue::Unsigned(number) => number.to_string(),
        other => panic!("{other:?} has no text"),
    }
}

/// Returns the bytes that a hash prefix hashes for a value.
fn hashed_text(value: &KeyValue<'_>) -> Vec<u8> {
    match value {
        KeyValue::Binary(bytes) => bytes.to_vec(),
        KeyValue::Timestamp(time) => time.nanos().to_string().into_bytes(),
        KeyValue::Decimal(number) => number.to_string().into_bytes(),
        KeyValue::Boolean(value) => value.to_string().into_bytes(),
        other => text(other).into_bytes(),
    }
}

/// Formats bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
