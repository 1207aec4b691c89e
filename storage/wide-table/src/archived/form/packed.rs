//! Conversion of whole blocks of rows into columns of a file.
//!
//! The values of a column of a block are copied into a column of the file, without building rows. A reader of the file
//! must get the same rows although the file does not hold their stored bytes. If a block stores its rows by columns,
//! this follows from their form:
//!
//! - A row replaces the previous row, and has one version per column, with the time of the row. This is also the form
//!   of a row that is read from a file.
//! - The columns of a row are declared, have values of the declared types, and are in the order of their names, as in a
//!   row that is read from a file.
//! - The stored bytes of a value depend only on the value. Only decimals can have surplus bytes or digits, so they are
//!   checked.
//!
//! Blocks with other rows are converted row by row.

use hashbrown::HashMap;
use smallvec::SmallVec;
use tideline_archive::rows::GroupValues;
use tideline_model::{ColumnType, Timestamp};

use super::{DeclaredColumn, GroupBuilder, KEY, LOGICAL, RowForm, TIME, push_key};
use crate::block::{Block, BlockColumns, ColumnReader, cut};
use crate::codec;
use crate::error::Damage;
use crate::mutation::ColumnName;
use crate::value::{CellValue, decimal, number, tag};

/// Position of each declared column among the columns of a block; `None` if no row of the block has the column.
type Mapping = SmallVec<[Option<usize>; 32]>;

/// Map from the stored name of a declared column to two positions: in the order of the names, and among the declared
/// columns.
#[derive(Debug)]
pub(super) struct StoredNames(HashMap<Vec<u8>, (usize, usize)>);

impl StoredNames {
    /// Creates the map of columns that are sorted by name.
    pub(super) fn new(by_name: &[(ColumnName<'static>, usize)]) -> Self {
        let names = by_name.iter().enumerate().map(|(position, (name, at))| {
            let mut stored = Vec::new();
            codec::encode_name(name, &mut stored);
            (stored, (position, *at))
        });
        Self(names.collect())
    }
}

impl GroupBuilder<'_> {
    /// Adds all rows of a block. Returns false, without adding any, if the rows must be added one by one.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the block or a key is damaged.
    pub(in crate::archived) fn push_block(&mut self, block: &Block<'_>) -> Result<bool, Damage> {
        let pushed = block.by_column(|columns| {
            let Some(mapping) = self.form.mapping_of(&columns)? else {
                return Ok(false);
            };
            self.push_columns(&columns, &mapping)?;
            self.bytes += block.bytes;
            Ok(true)
        })?;
        Ok(pushed.unwrap_or(false))
    }

    fn push_columns(&mut self, columns: &BlockColumns<'_>, mapping: &Mapping) -> Result<(), Damage> {
        let rows = columns.rows();
        let (form, layout) = (self.form, self.layout);
        let (of_keys, others) = self.group.columns.split_at_mut(form.first);
        columns.keys(|key| {
            of_keys[KEY].push_bytes(key);
            let logical = layout.decode(key);
            let logical = logical.map_err(|_| Damage("a key does not fit the settings of the table"))?;
            for (value, column) in logical.iter().zip(&mut of_keys[LOGICAL..]) {
                push_key(column, value);
            }
            Ok(())
        })?;
        columns.times(|time| of_keys[TIME].push_integer(time))?;
        let (declared, last) = others.split_at_mut(mapping.len());
        for (column, found) in declared.iter_mut().zip(mapping) {
            let Some(found) = *found else {
                column.push_levels(std::iter::repeat_n(0, rows));
                continue;
            };
            let count = match columns.presence(found) {
                Some(presence) => column.push_levels(presence.map(i16::from)),
                None => column.push_levels(std::iter::repeat_n(1, rows)),
            };
            append(
                columns.columns()[found].clone(),
                count,
                &mut column.values,
                &mut self.scratch,
            )?;
        }
        for column in last {
            column.push_levels(std::iter::repeat_n(0, rows));
        }
        self.group.rows += rows;
        Ok(())
    }
}

impl RowForm {
    /// Returns the positions of the declared columns in a block; `None` if some of its rows do not have the form of
    /// rows that are read from files.
    fn mapping_of(&self, block: &BlockColumns<'_>) -> Result<Option<Mapping>, Damage> {
        let mut mapping: Mapping = SmallVec::from_elem(None, self.declared.len());
        // Position in the order of names, for each column of the block.
        let mut order: SmallVec<[usize; 32]> = SmallVec::new();
        for (number, column) in block.columns().iter().enumerate() {
            let Some((position, at)) = self.stored_names.0.get(column.name) else {
                return Ok(None);
            };
            let DeclaredColumn { column_type, .. } = self.declared[*at];
            if column.tag != tag_of(column_type) || !is_shortest(column)? {
                return Ok(None);
            }
            mapping[*at] = Some(number);
            order.push(*position);
        }
        let is_sorted = |shape: &Vec<usize>| shape.is_sorted_by(|one, other| order[*one] < order[*other]);
        Ok(block.shapes().iter().all(is_sorted).then_some(mapping))
    }
}

/// Returns the type byte with which a block stores values of a type.
const fn tag_of(column_type: ColumnType) -> u8 {
    match column_type {
        ColumnType::String => tag::STRING,
        ColumnType::I64 => tag::I64,
        ColumnType::U64 => tag::U64,
        ColumnType::F64 => tag::F64,
        ColumnType::Bool => tag::FALSE,
        ColumnType::Binary => tag::BINARY,
        ColumnType::Decimal => tag::DECIMAL,
        ColumnType::Json => tag::JSON,
        ColumnType::Timestamp => tag::TIMESTAMP,
    }
}

/// Returns false if a decimal of the column is not stored in its shortest form.
fn is_shortest(column: &ColumnReader<'_>) -> Result<bool, Damage> {
    if column.tag != tag::DECIMAL {
        return Ok(true);
    }
    let (mut column, mut again) = (column.clone(), Vec::new());
    while !column.numbers.is_empty() {
        let (head, digits) = column.decimal()?;
        again.clear();
        CellValue::Decimal(decimal(head, digits)?).encode(&mut again);
        if again[1..3] != head || again[3..] != *digits {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Appends the next `count` values of a column of a block. `scratch` is reused memory.
fn append(
    mut from: ColumnReader<'_>,
    count: usize,
    to: &mut GroupValues,
    scratch: &mut Scratch,
) -> Result<(), Damage> {
    match to {
        GroupValues::Integers(values) => {
            let is_time = from.tag == tag::TIMESTAMP;
            values.reserve(count);
            for _ in 0..count {
                let value = from.next_number()?.cast_signed();
                if is_time && Timestamp::from_nanos(value).is_err() {
                    return Err(Damage("a timestamp is out of range"));
                }
                values.push(value);
            }
        }
        GroupValues::Floats(values) => {
            let (doubles, _) = cut(&mut from.bytes, 8 * count)?.as_chunks();
            values.extend(
                doubles
                    .iter()
                    .map(|bits| f64::from_bits(u64::from_le_bytes(*bits))),
            );
        }
        GroupValues::Booleans(values) => {
            for of in cut(&mut from.bytes, count)? {
                values.push(match *of {
                    tag::TRUE => true,
                    tag::FALSE => false,
                    _ => return Err(Damage("a boolean of a block is neither true nor false")),
                });
            }
        }
        GroupValues::Bytes(values) if from.tag == tag::DECIMAL => {
            for _ in 0..count {
                let (head, digits) = from.decimal()?;
                scratch.text.clear();
                decimal(head, digits)?.push_text(&mut scratch.text);
                values.push(&scratch.text);
            }
        }
        GroupValues::Bytes(values) => {
            scratch.ends.clear();
            let mut end = 0_usize;
            for _ in 0..count {
                end = end.saturating_add(number(&mut from.numbers)? as usize);
                scratch.ends.push(end);
            }
            let content = cut(&mut from.bytes, end)?;
            if from.tag != tag::BINARY && !is_text(content, &scratch.ends) {
                return Err(Damage("a text is not UTF-8"));
            }
            values.push_joined(content, &scratch.ends);
        }
    }
    Ok(())
}

/// Returns true if `content` consists of UTF-8 texts that end at these positions.
fn is_text(content: &[u8], ends: &[usize]) -> bool {
    let text = std::str::from_utf8(content);
    text.is_ok_and(|text| text.is_ascii() || ends.iter().all(|end| text.is_char_boundary(*end)))
}

/// Memory that is reused for each column.
#[derive(Default)]
pub(super) struct Scratch {
    text: Vec<u8>,
    ends: Vec<usize>,
}
