//! Keys, prefixes and bounds in requests, given by the names of the key columns.
//!
//! Requests contain only logical key columns. The layout of the key computes the other stored key columns; their names
//! never occur in requests.

use std::ops::Bound;

use tideline_engine::WideTable;
use tideline_engine::key_codec::layout::{KeyLayout, Ranges};
use tideline_engine::key_codec::tuple::{KeyKind, KeyValue};
use tideline_openapi::row::{KeyBounds, Members, RowIntegers};

use crate::error::{Result, RowsError};
use crate::value;

/// Parses a key. Returns one value per logical column, and `None` for a generated column without a value.
///
/// # Errors
///
/// A message if a column is missing, unknown, or has a value of another type.
pub fn parse_values(
    layout: &KeyLayout,
    key: &Members,
) -> std::result::Result<Vec<Option<KeyValue<'static>>>, String> {
    let mut values = vec![None; layout.logical().len()];
    for (name, json) in key.iter() {
        let number = layout.logical_number(name).map_err(|error| error.to_string())?;
        values[number] = Some(parse_value(name, json, layout.logical()[number].kind)?);
    }
    for (column, value) in layout.logical().iter().zip(&values) {
        if value.is_none() && !column.is_generated {
            return Err(format!(
                "the key has no value of the column {:?}, of type {}",
                column.name, column.kind
            ));
        }
    }
    Ok(values)
}

/// Parses and encodes the whole key of an existing row.
///
/// # Errors
///
/// The errors of [`parse_values`] and of [`KeyLayout::encode`].
pub fn encode(table: &WideTable, key: &Members) -> Result<Vec<u8>> {
    let values = parse_values(table.layout(), key).map_err(RowsError::Invalid)?;
    let complete: Option<Vec<KeyValue<'_>>> = values.into_iter().collect();
    let values = complete.ok_or_else(|| {
        RowsError::Invalid("the key has no value of the generated column; give the id of the row".into())
    })?;
    let mut out = Vec::new();
    table.layout().encode(&values, &mut out)?;
    Ok(out)
}

/// Parses the value of a key column.
pub(crate) fn parse_value(
    name: &str,
    json: &str,
    kind: KeyKind,
) -> std::result::Result<KeyValue<'static>, String> {
    value::parse_key(json, kind).map_err(|found| format!("key column {name:?} has the type {kind}; {found}"))
}

/// Returns the ranges of stored keys that a prefix and bounds select. If neither is given, `everything` must be true.
/// `member` is the name of the request member that sets `everything`; `None` if the request cannot set it.
///
/// # Errors
///
/// [`RowsError::Invalid`] if the values are not valid for the key, or if they select all rows and `everything` is
/// false.
pub fn ranges(
    layout: &KeyLayout,
    prefix: &Members,
    bounds: Option<&KeyBounds>,
    everything: bool,
    member: Option<&str>,
) -> Result<Ranges> {
    let kind_of = |name: &str| Ok::<_, RowsError>(layout.logical()[layout.logical_number(name)?].kind);
    let mut values = Vec::with_capacity(prefix.len());
    for (name, json) in prefix.iter() {
        let value = parse_value(name, json, kind_of(name)?).map_err(RowsError::Invalid)?;
        values.push((name, value));
    }
    let (mut from, mut to) = (Bound::Unbounded, Bound::Unbounded);
    if let Some(bounds) = bounds {
        let kind = kind_of(&bounds.column)?;
        let parse = |json: &str| parse_value(&bounds.column, json, kind).map_err(RowsError::Invalid);
        let none =
            |what: &str, bound: &str| RowsError::Invalid(format!("range: {what} needs the member `{bound}`"));
        from = match (&bounds.from, bounds.from_exclusive) {
            (None, true) => return Err(none("from_exclusive", "from")),
            (None, false) => Bound::Unbounded,
            (Some(json), true) => Bound::Excluded(parse(json.get())?),
            (Some(json), false) => Bound::Included(parse(json.get())?),
        };
        to = match (&bounds.to, bounds.to_inclusive) {
            (None, true) => return Err(none("to_inclusive", "to")),
            (None, false) => Bound::Unbounded,
            (Some(json), true) => Bound::Included(parse(json.get())?),
            (Some(json), false) => Bound::Excluded(parse(json.get())?),
        };
    }
    let is_bounded = !matches!((&from, &to), (Bound::Unbounded, Bound::Unbounded));
    if values.is_empty() && !is_bounded && !everything {
        let first = &layout.logical()[0].name;
        let or_set = member.map_or_else(String::new, |member| format!(", or set `{member}` to true"));
        return Err(RowsError::Invalid(format!(
            "the request has neither a value nor bounds of the first key column {first:?}, so it applies to the \
             whole table; give {first:?} in `prefix` or `range`{or_set}"
        )));
    }
    let bounded = bounds.filter(|_| is_bounded).map(|bounds| bounds.column.as_str());
    let prefix = layout.arrange(values, bounded)?;
    Ok(layout.ranges(&prefix, (from, to))?)
}

/// Appends a key as a JSON object.
pub(crate) fn write(layout: &KeyLayout, values: &[KeyValue<'_>], integers: RowIntegers, out: &mut Vec<u8>) {
    out.push(b'{');
    for (number, (column, value)) in layout.logical().iter().zip(values).enumerate() {
        if number > 0 {
            out.push(b',');
        }
        value::write_text(&column.name, out);
        out.push(b':');
        value::write_plain(&value::cell_of(value), integers, out);
    }
    out.push(b'}');
}
