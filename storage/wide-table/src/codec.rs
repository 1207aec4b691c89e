//! Stored form of mutations and rows. `FORMAT.md` describes the bytes.
//!
//! Most rows are written by a single write, so each column has one version and all versions have the same time. These
//! *uniform* rows store the time once, and a name and a value per column. Other rows store a time for each version.

use std::borrow::Cow;

use bytes::Bytes;
use smallvec::SmallVec;
use tideline_wire::varint::{self, unzigzag, zigzag};

use crate::error::Damage;
use crate::mutation::{Column, ColumnName, Effect, Mutation, Version};
use crate::value::{CellValue, number};

/// Format version, in the low four bits of the first byte.
const FORMAT: u8 = 1;
const FORMAT_MASK: u8 = 0x0f;
/// Position of the two bits of the effect in the first byte.
const EFFECT_SHIFT: u8 = 4;
const EFFECT_MASK: u8 = 0x30;
/// Bit of the first byte: every column has exactly one version, with the time of the mutation, and clears nothing.
const UNIFORM: u8 = 0x40;

/// First byte of the head of a large row, see [`crate::fragments`].
pub(crate) const HEAD: u8 = 0x80 | FORMAT;

/// Flag in the byte after a column name: existing versions of the column are removed.
const CLEARS: u8 = 1;

/// Appends the stored form of a mutation.
pub(crate) fn encode(mutation: &Mutation<'_>, out: &mut Vec<u8>) {
    encode_columns(mutation.effect, mutation.time, &mutation.columns, out);
}

/// Appends the stored form of a mutation with these columns.
pub(crate) fn encode_columns(effect: Effect, time: i64, columns: &[Column<'_>], out: &mut Vec<u8>) {
    let is_uniform = columns.iter().all(|column| {
        let one = column.versions.len() == 1 && column.versions[0].time == time;
        one && !column.clears
    });
    let effect = match effect {
        Effect::Replace => 0,
        Effect::Update => 1,
        Effect::Delete => 2,
    };
    out.push(FORMAT | effect << EFFECT_SHIFT | if is_uniform { UNIFORM } else { 0 });
    out.extend_from_slice(&time.to_le_bytes());
    varint::put(columns.len() as u64, out);
    for column in columns {
        if is_uniform {
            encode_name(&column.name, out);
            column.versions[0].value.encode(out);
        } else {
            encode_versions(time, column, out);
        }
    }
}

/// Appends a column of a row that is not uniform.
fn encode_versions(time: i64, column: &Column<'_>, out: &mut Vec<u8>) {
    encode_name(&column.name, out);
    out.push(if column.clears { CLEARS } else { 0 });
    varint::put(column.versions.len() as u64, out);
    for version in &column.versions {
        varint::put(zigzag(version.time.wrapping_sub(time)), out);
        version.value.encode(out);
    }
}

/// Returns the size in bytes of a column with its versions in a row that is not uniform.
pub(crate) fn column_bytes(time: i64, column: &Column<'_>) -> usize {
    let mut out = Vec::new();
    encode_versions(time, column, &mut out);
    out.len()
}

/// Appends the stored form of a column name.
pub(crate) fn encode_name(name: &ColumnName<'_>, out: &mut Vec<u8>) {
    match name {
        ColumnName::Declared(number) => varint::put(u64::from(*number) << 1, out),
        ColumnName::Named(name) => {
            varint::put((name.len() as u64) << 1 | 1, out);
            out.extend_from_slice(name.as_bytes());
        }
    }
}

/// Decodes a mutation. Bytes after the mutation are an error.
///
/// # Errors
///
/// [`Damage`] if the bytes are not the stored form of a mutation.
pub(crate) fn decode(bytes: &[u8]) -> Result<Mutation<'_>, Damage> {
    let (&first, rest) = bytes.split_first().ok_or(Damage("a row is empty"))?;
    if first & FORMAT_MASK != FORMAT || first == HEAD {
        return Err(Damage("a row has a format that this build does not know"));
    }
    let effect = match (first & EFFECT_MASK) >> EFFECT_SHIFT {
        0 => Effect::Replace,
        1 => Effect::Update,
        2 => Effect::Delete,
        _ => return Err(Damage("a row has an unknown effect")),
    };
    let (time, mut rest) = rest
        .split_first_chunk()
        .ok_or(Damage("the time of a row is cut off"))?;
    let time = i64::from_le_bytes(*time);
    let count = number(&mut rest)?;
    // Each column takes at least one byte, which bounds the allocation.
    let count = usize::try_from(count).ok().filter(|count| *count <= rest.len());
    let count = count.ok_or(Damage("a row has more columns than bytes"))?;
    let mut columns: Vec<Column<'_>> = Vec::with_capacity(count);
    for _ in 0..count {
        let column = decode_column(&mut rest, time, first & UNIFORM != 0)?;
        if columns.last().is_some_and(|last| last.name >= column.name) {
            return Err(Damage("the columns of a row are not sorted"));
        }
        columns.push(column);
    }
    if !rest.is_empty() {
        return Err(Damage("bytes follow a row"));
    }
    Ok(Mutation {
        effect,
        time,
        columns,
    })
}

/// Decodes the name of a column and removes it from `rest`.
pub(crate) fn decode_name<'a>(rest: &mut &'a [u8]) -> Result<ColumnName<'a>, Damage> {
    let tag = number(rest)?;
    match tag & 1 {
        0 => {
            let number = u32::try_from(tag >> 1).map_err(|_| Damage("a column number is too large"))?;
            Ok(ColumnName::Declared(number))
        }
        _ => {
            let length = usize::try_from(tag >> 1).map_err(|_| Damage("a column name is too long"))?;
            let (name, after) = rest
                .split_at_checked(length)
                .ok_or(Damage("a column name is cut off"))?;
            *rest = after;
            let name = std::str::from_utf8(name).map_err(|_| Damage("a column name is not UTF-8"))?;
            Ok(ColumnName::Named(Cow::Borrowed(name)))
        }
    }
}

fn decode_column<'a>(rest: &mut &'a [u8], base: i64, is_uniform: bool) -> Result<Column<'a>, Damage> {
    let name = decode_name(rest)?;
    if is_uniform {
        return Ok(Column::with(name, base, CellValue::decode(rest)?));
    }
    let (&flags, after) = rest.split_first().ok_or(Damage("a column is cut off"))?;
    *rest = after;
    let mut versions: SmallVec<[Version<'a>; 1]> = SmallVec::new();
    for _ in 0..counted(rest)? {
        let time = base.wrapping_add(unzigzag(number(rest)?));
        if versions.last().is_some_and(|newer| newer.time <= time) {
            return Err(Damage("the versions of a column are not sorted"));
        }
        let value = CellValue::decode(rest)?;
        versions.push(Version { time, value });
    }
    Ok(Column {
        name,
        clears: flags & CLEARS != 0,
        versions,
    })
}

/// Decodes the count at the front of `bytes` and removes its bytes. Each counted item takes at least one byte, so a
/// count above the number of remaining bytes is refused.
fn counted(bytes: &mut &[u8]) -> Result<usize, Damage> {
    let count = number(bytes)?;
    let count = usize::try_from(count).ok().filter(|count| *count <= bytes.len());
    count.ok_or(Damage("a count exceeds the remaining bytes"))
}

/// Returns the number of columns of an encoded mutation, without decoding them.
///
/// # Errors
///
/// [`Damage`] if the bytes are cut off.
pub(crate) fn column_count(bytes: &[u8]) -> Result<u64, Damage> {
    let mut rest = bytes.get(9..).ok_or(Damage("the time of a row is cut off"))?;
    number(&mut rest)
}

/// Returns true if a stored value is the head of a large row.
pub(crate) fn is_head(bytes: &[u8]) -> bool {
    bytes.first() == Some(&HEAD)
}

/// Returns true if a stored value is the marker of a deleted row.
pub(crate) fn is_delete(bytes: &[u8]) -> bool {
    effect_of(bytes) == Ok(Effect::Delete)
}

/// Returns a mutation in its encoded form.
pub(crate) fn encoded(mutation: &Mutation<'_>) -> Bytes {
    let mut out = Vec::new();
    encode(mutation, &mut out);
    out.into()
}

/// Returns the marker of a deleted row, which hides a packed row of the same key.
pub(crate) fn deleted_marker() -> Bytes {
    encoded(&Mutation {
        effect: Effect::Delete,
        time: 0,
        columns: Vec::new(),
    })
}

/// Returns true if an encoded mutation is a uniform row: it replaces the row, and every column has one version, with
/// the time of the row.
pub(crate) fn is_uniform_row(bytes: &[u8]) -> bool {
    bytes.first() == Some(&(FORMAT | UNIFORM))
}

/// Appends the part of a uniform row before its columns. The columns follow, each as its encoded name and its value.
pub(crate) fn begin_uniform_row(time: i64, columns: usize, out: &mut Vec<u8>) {
    out.push(FORMAT | UNIFORM);
    out.extend_from_slice(&time.to_le_bytes());
    varint::put(columns as u64, out);
}

/// Function that takes a value of a mutation; see [`walk`].
pub(crate) type TakeValue<'t, 'm> = dyn FnMut(&'m [u8], u8, &mut &'m [u8]) -> Result<(), Damage> + 't;

/// Goes through the values of an encoded mutation in their order. `take` receives the encoded name of the column, the
/// type byte of the value, and the bytes after the type byte. It removes the payload from the front of these bytes.
///
/// # Errors
///
/// [`Damage`] if the bytes are not the stored form of a mutation, and the errors of `take`.
pub(crate) fn walk<'m>(bytes: &'m [u8], take: &mut TakeValue<'_, 'm>) -> Result<(), Damage> {
    let first = bytes.first().ok_or(Damage("a row is empty"))?;
    let is_uniform = first & UNIFORM != 0;
    let mut rest = bytes.get(9..).ok_or(Damage("the time of a row is cut off"))?;
    for _ in 0..number(&mut rest)? {
        let before = rest;
        skip_name(&mut rest)?;
        let name = &before[..before.len() - rest.len()];
        let mut versions = 1;
        if !is_uniform {
            rest = rest.get(1..).ok_or(Damage("a column is cut off"))?;
            versions = counted(&mut rest)?;
        }
        for _ in 0..versions {
            if !is_uniform {
                number(&mut rest)?;
            }
            let (&of, after) = rest.split_first().ok_or(Damage("a value is cut off"))?;
            rest = after;
            take(name, of, &mut rest)?;
        }
    }
    match rest.is_empty() {
        true => Ok(()),
        false => Err(Damage("bytes follow a row")),
    }
}

/// Removes the encoded name of a column from the front of `rest`.
///
/// # Errors
///
/// [`Damage`] if the name is cut off.
pub(crate) fn skip_name(rest: &mut &[u8]) -> Result<(), Damage> {
    let tag = number(rest)?;
    if tag & 1 == 1 {
        let length = usize::try_from(tag >> 1).unwrap_or(usize::MAX);
        let (_, after) = rest
            .split_at_checked(length)
            .ok_or(Damage("a column name is cut off"))?;
        *rest = after;
    }
    Ok(())
}

/// Returns the effect of an encoded mutation, without decoding its columns.
pub(crate) fn effect_of(bytes: &[u8]) -> Result<Effect, Damage> {
    match bytes.first().map(|first| (first & EFFECT_MASK) >> EFFECT_SHIFT) {
        Some(0) => Ok(Effect::Replace),
        Some(1) => Ok(Effect::Update),
        Some(2) => Ok(Effect::Delete),
        _ => Err(Damage("a row is empty or has an unknown effect")),
    }
}

/// Returns the time of an encoded mutation, without decoding its columns.
pub(crate) fn time_of(bytes: &[u8]) -> Result<i64, Damage> {
    let time = bytes.get(1..).and_then(<[u8]>::first_chunk);
    let time = time.ok_or(Damage("the time of a row is cut off"))?;
    Ok(i64::from_le_bytes(*time))
}

/// Returns true if a column of an encoded mutation may have several versions, that is, if the mutation is not uniform.
pub(crate) fn may_have_versions(bytes: &[u8]) -> bool {
    bytes.first().is_none_or(|first| first & UNIFORM == 0)
}

/// Returns a copy of an encoded mutation with another effect.
pub(crate) fn with_effect(bytes: &[u8], effect: Effect) -> Result<Vec<u8>, Damage> {
    let mut mutation = decode(bytes)?;
    mutation.effect = effect;
    let mut out = Vec::with_capacity(bytes.len());
    encode(&mutation, &mut out);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use tideline_key_codec::tuple::Decimal;
    use tideline_model::Timestamp;

    use super::*;

    fn values() -> impl Strategy<Value = CellValue<'static>> {
        prop_oneof![
            ".{0,8}".prop_map(|text: String| CellValue::String(text.into())),
            any::<i64>().prop_map(CellValue::I64),
            any::<u64>().prop_map(CellValue::U64),
            any::<f64>()
                .prop_filter("NaN is not equal to itself", |number| !number.is_nan())
                .prop_map(CellValue::F64),
            any::<bool>().prop_map(CellValue::Bool),
            proptest::collection::vec(any::<u8>(), 0..8)
                .prop_map(|bytes: Vec<u8>| CellValue::Binary(bytes.into())),
            (any::<i128>(), 0..=38u8)
                .prop_map(|(mantissa, scale)| Decimal::new(mantissa, scale).expect("a valid scale"))
                .prop_map(CellValue::Decimal),
            Just(CellValue::Json("{\"a\":1}".into())),
            (0..1_i64 << 60).prop_map(|nanos| CellValue::Timestamp(Timestamp::from_nanos_clamped(nanos))),
        ]
    }

    fn names() -> impl Strategy<Value = ColumnName<'static>> {
        prop_oneof![
            (1..5u32).prop_map(ColumnName::Declared),
            "[a-d]".prop_map(|name: String| ColumnName::Named(name.into())),
        ]
    }

    fn columns() -> impl Strategy<Value = Vec<Column<'static>>> {
        let versions = proptest::collection::btree_map(0..6_i64, values(), 0..4);
        let column = (any::<bool>(), versions);
        proptest::collection::btree_map(names(), column, 0..5).prop_map(|columns| {
            let column =
                |(name, (clears, versions)): (_, (bool, BTreeMap<i64, CellValue<'static>>))| Column {
                    name,
                    clears,
                    versions: versions
                        .into_iter()
                        .rev()
                        .map(|(time, value)| Version { time, value })
                        .collect(),
                };
            columns.into_iter().map(column).collect()
        })
    }

    /// Generates random mutations with few columns and times, so that they often change the same versions.
    fn mutations() -> impl Strategy<Value = Mutation<'static>> {
        let effects = prop_oneof![Just(Effect::Replace), Just(Effect::Update), Just(Effect::Delete)];
        (effects, 0..8_i64, columns()).prop_map(|(effect, time, columns)| Mutation {
            effect,
            time,
            columns: match effect {
                Effect::Delete => Vec::new(),
                _ => columns,
            },
        })
    }

    proptest! {
        #![proptest_config(tideline_testkit::proptest_config(256))]

        #[test]
        fn every_mutation_is_decoded_as_it_was(mutation in mutations()) {
            let mut bytes = Vec::new();
            encode(&mutation, &mut bytes);
            prop_assert_eq!(effect_of(&bytes), Ok(mutation.effect));
            prop_assert_eq!(decode(&bytes).map(Mutation::into_owned), Ok(mutation));
        }

        #[test]
        fn damaged_bytes_never_panic(mutation in mutations(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = Vec::new();
            encode(&mutation, &mut bytes);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = decode(&bytes);
            let _ = decode(&bytes[..at]);
        }

        /// The state of a row does not depend on the grouping of its mutations: the buffer merges some of them, and the
        /// flush merges the others.
        #[test]
        fn merging_is_associative(one in mutations(), two in mutations(), three in mutations(), versions in 1..4usize) {
            let base = one.on_nothing(versions);
            let base = base.unwrap_or_else(|| Mutation::delete(0));
            let left = base.clone().then(two.clone(), versions).then(three.clone(), versions);
            let right = base.then(two.then(three, versions), versions);
            prop_assert_eq!(left.columns, right.columns);
            prop_assert_eq!(left.effect, right.effect);
        }

        #[test]
        fn the_last_mutations_may_be_applied_again(one in mutations(), two in mutations(), three in mutations()) {
            let base = one.on_nothing(2).unwrap_or_else(|| Mutation::delete(0));
            let once = base.then(two.clone(), 2).then(three.clone(), 2);
            let again = once.clone().then(two, 2).then(three, 2);
            prop_assert_eq!(once.columns, again.columns);
        }
    }

    #[test]
    fn a_row_written_at_once_stores_its_time_once() {
        let columns = (1..=10)
            .map(|number| Column::with(ColumnName::Declared(number), 5, CellValue::I64(i64::from(number))))
            .collect();
        let mutation = Mutation {
            effect: Effect::Replace,
            time: 5,
            columns,
        };
        let mut bytes = Vec::new();
        encode(&mutation, &mut bytes);
        assert_eq!(bytes.len(), 1 + 8 + 1 + 10 * 3);
    }
}
