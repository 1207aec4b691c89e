//! Compilation of key declarations: checks them, and replaces names by numbers.
//!
//! Logical columns are collected first, because a hash may refer to columns that are declared after it.

use std::collections::HashSet;

use tideline_model::wide::{self, LogicalColumn, SplicedColumn};
use tideline_model::{ColumnType, KeyColumnSpec, KeyOrder, KeySource};

use super::columns::{Form, Splice};
use super::{
    BUCKETS_MAX, BUCKETS_MIN, COLUMN_NAME_BYTES_MAX, HASH_DIGITS_MAX, KeyLayout, LayoutError,
    LogicalKeyColumn, PAD_DIGITS_MAX, SPLICE_COLUMNS_MAX, SPLICE_COLUMNS_MIN, StoredKeyColumn,
};
use crate::tuple::{KEY_COLUMNS_MAX, KeyKind};

impl KeyLayout {
    /// Checks and compiles the key columns of a table. `allow_rising_key` accepts a first column that rises with time.
    ///
    /// # Errors
    ///
    /// - [`LayoutError::ColumnCount`] unless 1 to [`KEY_COLUMNS_MAX`] columns are declared;
    /// - [`LayoutError::InvalidName`] and [`LayoutError::DuplicateName`] for names of logical and computed columns;
    /// - [`LayoutError::TypeNotInKeys`] for the types `f64` and `json`;
    /// - [`LayoutError::SecondGenerated`] if more than one column is generated;
    /// - [`LayoutError::RisingKey`] if the first stored column is a timestamp or generated and `allow_rising_key` is
    ///   false;
    /// - [`LayoutError::NothingHashed`], [`LayoutError::UnknownHashed`], [`LayoutError::HashedTwice`],
    ///   [`LayoutError::HashDigits`], [`LayoutError::BucketCount`], [`LayoutError::BucketNotFirst`] and
    ///   [`LayoutError::HashLast`] for hash prefixes and buckets;
    /// - [`LayoutError::ReverseType`], [`LayoutError::SpliceCount`], [`LayoutError::SpliceType`],
    ///   [`LayoutError::PadMissing`], [`LayoutError::PadDigits`], [`LayoutError::PadOfString`],
    ///   [`LayoutError::DelimiterNotAscii`] and [`LayoutError::DelimiterNotBelowDigits`] for reversed and spliced
    ///   columns.
    pub fn new(columns: &[KeyColumnSpec], allow_rising_key: bool) -> Result<Self, LayoutError> {
        if !(1..=KEY_COLUMNS_MAX).contains(&columns.len()) {
            return Err(LayoutError::ColumnCount {
                actual: columns.len(),
            });
        }
        check_names(columns, is_valid_name)?;
        let layout = Self::compiled(columns)?;
        layout.check_not_rising(allow_rising_key)?;
        Ok(layout)
    }

    /// Compiles the key of a secondary index: the columns of the index, followed by all columns of the primary key that
    /// are not among them, so that every row has its own entry. The key of a local index begins with the stored columns
    /// that determine the partition of the row. A generated column is an `i64` column here.
    ///
    /// Unlike in a primary key, a column can have any name that is not empty. `allow_rising_key` accepts a first column
    /// that rises with time.
    ///
    /// # Errors
    ///
    /// - [`LayoutError::ColumnCount`] unless the index has 1 to [`KEY_COLUMNS_MAX`] columns;
    /// - [`LayoutError::DuplicateName`] if two columns of the index have the same name, or if a local index names a
    ///   column of the partition;
    /// - [`LayoutError::RisingKey`] as for [`Self::new`], and if a global index begins with the generated column of the
    ///   primary key;
    /// - the errors of [`Self::new`] for types, hashes, reversed and spliced columns.
    pub fn of_index(
        primary: &[KeyColumnSpec],
        index: &[KeyColumnSpec],
        is_local: bool,
        allow_rising_key: bool,
    ) -> Result<Self, LayoutError> {
        if !(1..=KEY_COLUMNS_MAX).contains(&index.len()) {
            return Err(LayoutError::ColumnCount { actual: index.len() });
        }
        let mut columns = Vec::new();
        if is_local {
            for column in primary {
                columns.push(without_generation(column.clone()));
                if !matches!(column.source, KeySource::HashPrefix(_) | KeySource::Bucket(_)) {
                    break;
                }
            }
        }
        columns.extend_from_slice(index);
        let known: HashSet<String> = logical_columns(&columns)?
            .into_iter()
            .map(|column| column.name)
            .collect();
        for column in logical_columns(primary)? {
            if !known.contains(&column.name) {
                columns.push(KeyColumnSpec {
                    name: column.name,
                    source: KeySource::Type(column.kind.column_type()),
                    order: KeyOrder::Ascending,
                });
            }
        }
        check_names(&columns, |name| !name.is_empty())?;
        let layout = Self::compiled(&columns)?;
        layout.check_not_rising(allow_rising_key)?;
        let is_generated = |name: &str| {
            let mut generated = primary.iter();
            generated.any(|column| column.name == name && matches!(column.source, KeySource::Generated(_)))
        };
        match columns.first() {
            Some(KeyColumnSpec {
                name,
                source: KeySource::Type(_),
                ..
            }) if !is_local && !allow_rising_key && is_generated(name) => {
                Err(LayoutError::RisingKey { column: name.clone() })
            }
            _ => Ok(layout),
        }
    }

    /// Compiles columns whose names were checked.
    fn compiled(columns: &[KeyColumnSpec]) -> Result<Self, LayoutError> {
        let logical = logical_columns(columns)?;
        check_generated(&logical)?;
        let mut stored = Vec::with_capacity(columns.len());
        let mut next_logical = 0;
        for (position, column) in (1..).zip(columns) {
            let form = compile(column, position, &logical, next_logical)?;
            next_logical += match &form {
                Form::HashPrefix { .. } | Form::Bucket { .. } => 0,
                Form::Value { .. } | Form::Reverse { .. } => 1,
                Form::Splice { splice, .. } => splice.pads.len(),
            };
            stored.push(StoredKeyColumn {
                name: column.name.clone(),
                order: column.order.into(),
                form,
            });
        }
        let layout = Self {
            partition: partition_columns(&stored),
            logical: logical.into(),
            stored: stored.into(),
        };
        match layout.stored.last().filter(|last| last.hashed().is_some()) {
            Some(last) => Err(LayoutError::HashLast {
                column: last.name.clone(),
            }),
            None => Ok(layout),
        }
    }

    /// Refuses a first stored column that rises with time, unless it is allowed.
    fn check_not_rising(&self, allow_rising_key: bool) -> Result<(), LayoutError> {
        if let Some(StoredKeyColumn {
            form: Form::Value { logical, kind },
            name,
            ..
        }) = self.stored.first()
            && (*kind == KeyKind::Timestamp || self.logical[*logical].is_generated)
            && !allow_rising_key
        {
            return Err(LayoutError::RisingKey { column: name.clone() });
        }
        Ok(())
    }
}

/// Returns the numbers of the logical columns that determine the partition, as documented at
/// [`KeyLayout::partition_columns`].
fn partition_columns(stored: &[StoredKeyColumn]) -> Box<[usize]> {
    let mut columns = Vec::new();
    for column in stored {
        match &column.form {
            Form::HashPrefix { of, .. } | Form::Bucket { of, .. } => {
                columns.extend_from_slice(of);
                continue;
            }
            Form::Value { logical, .. } | Form::Reverse { logical, .. } => columns.push(*logical),
            Form::Splice { first, splice } => columns.extend(*first..first + splice.pads.len()),
        }
        break;
    }
    columns.sort_unstable();
    columns.dedup();
    columns.into()
}

/// Returns a generated column as an ordinary `i64` column whose values the writer provides; other columns are
/// unchanged.
fn without_generation(mut column: KeyColumnSpec) -> KeyColumnSpec {
    if matches!(column.source, KeySource::Generated(_)) {
        column.source = KeySource::Type(ColumnType::I64);
    }
    column
}

fn check_names(columns: &[KeyColumnSpec], is_valid: impl Fn(&str) -> bool) -> Result<(), LayoutError> {
    let mut seen = HashSet::new();
    for column in columns {
        let inner: Vec<&str> = match &column.source {
            KeySource::Reverse(reverse) => vec![&reverse.of.name],
            KeySource::Splice(splice) => splice.columns.iter().map(|part| part.name.as_str()).collect(),
            _ => Vec::new(),
        };
        for name in [column.name.as_str()].into_iter().chain(inner) {
            if !is_valid(name) {
                return Err(LayoutError::InvalidName {
                    name: name.to_owned(),
                });
            }
            if !seen.insert(name) {
                return Err(LayoutError::DuplicateName {
                    name: name.to_owned(),
                });
            }
        }
    }
    Ok(())
}

/// Returns true if the name matches `[A-Za-z_][A-Za-z0-9_]{0,254}`.
fn is_valid_name(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.len() <= COLUMN_NAME_BYTES_MAX
        && name.bytes().all(is_word)
        && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// Collects the logical columns of all stored columns.
fn logical_columns(columns: &[KeyColumnSpec]) -> Result<Vec<LogicalKeyColumn>, LayoutError> {
    let mut logical = Vec::new();
    for (stored, column) in columns.iter().enumerate() {
        let mut push = |name: &str, kind, is_generated| {
            logical.push(LogicalKeyColumn {
                name: name.to_owned(),
                kind,
                is_generated,
                stored,
            });
        };
        match &column.source {
            KeySource::Type(column_type) => {
                let kind = KeyKind::of(*column_type).ok_or_else(|| LayoutError::TypeNotInKeys {
                    column: column.name.clone(),
                    actual: *column_type,
                })?;
                push(&column.name, kind, false);
            }
            KeySource::Generated(_) => push(&column.name, KeyKind::Signed, true),
            KeySource::HashPrefix(_) | KeySource::Bucket(_) => {}
            KeySource::Reverse(reverse) => push(&reverse.of.name, reversed_kind(&reverse.of)?, false),
            KeySource::Splice(splice) => {
                for part in &splice.columns {
                    push(&part.name, spliced_kind(part)?, false);
                }
            }
        }
    }
    Ok(logical)
}

fn check_generated(logical: &[LogicalKeyColumn]) -> Result<(), LayoutError> {
    let mut generated = logical.iter().filter(|column| column.is_generated);
    match (generated.next(), generated.next()) {
        (Some(first), Some(second)) => Err(LayoutError::SecondGenerated {
            first: first.name.clone(),
            second: second.name.clone(),
        }),
        _ => Ok(()),
    }
}

/// Compiles the column at `position`, counted from 1. `next_logical` is the number of the first logical column
/// that no stored column before `position` holds.
fn compile(
    column: &KeyColumnSpec,
    position: usize,
    logical: &[LogicalKeyColumn],
    next_logical: usize,
) -> Result<Form, LayoutError> {
    let name = || column.name.clone();
    Ok(match &column.source {
        KeySource::Type(_) | KeySource::Generated(_) => Form::Value {
            logical: next_logical,
            kind: logical[next_logical].kind,
        },
        KeySource::HashPrefix(hash) => {
            if !(1..=HASH_DIGITS_MAX).contains(&hash.hex) {
                return Err(LayoutError::HashDigits {
                    column: name(),
                    actual: hash.hex,
                });
            }
            Form::HashPrefix {
                of: hashed(&column.name, &hash.of, logical)?,
                digits: hash.hex,
            }
        }
        KeySource::Bucket(bucket) => {
            if position != 1 {
                return Err(LayoutError::BucketNotFirst {
                    column: name(),
                    position,
                });
            }
            if !(BUCKETS_MIN..=BUCKETS_MAX).contains(&bucket.count) {
                return Err(LayoutError::BucketCount {
                    column: name(),
                    actual: bucket.count,
                });
            }
            Form::Bucket {
                of: hashed(&column.name, &bucket.of, logical)?,
                count: bucket.count,
            }
        }
        KeySource::Reverse(_) => Form::Reverse {
            logical: next_logical,
            digits: match logical[next_logical].kind {
                KeyKind::Signed => Some(i64::MAX.ilog10() as u8 + 1),
                KeyKind::Unsigned => Some(u64::MAX.ilog10() as u8 + 1),
                _ => None,
            },
        },
        KeySource::Splice(splice) => Form::Splice {
            first: next_logical,
            splice: compile_splice(&column.name, splice)?,
        },
    })
}

/// Returns the numbers of the columns that a hash prefix or bucket hashes.
fn hashed(column: &str, of: &[String], logical: &[LogicalKeyColumn]) -> Result<Box<[usize]>, LayoutError> {
    if of.is_empty() {
        return Err(LayoutError::NothingHashed {
            column: column.to_owned(),
        });
    }
    let mut numbers = Vec::with_capacity(of.len());
    for name in of {
        let number = logical.iter().position(|logical| logical.name == *name);
        let number = number.ok_or_else(|| LayoutError::UnknownHashed {
            column: column.to_owned(),
            of: name.clone(),
            known: names_text(logical),
        })?;
        if numbers.contains(&number) {
            return Err(LayoutError::HashedTwice {
                column: column.to_owned(),
                of: name.clone(),
            });
        }
        numbers.push(number);
    }
    Ok(numbers.into())
}

/// Returns the names of logical columns for a message; `no logical columns` for an empty list.
pub(super) fn names_text(logical: &[LogicalKeyColumn]) -> String {
    let names: Vec<String> = logical
        .iter()
        .map(|column| format!("`{}`", column.name))
        .collect();
    match names.is_empty() {
        true => "no logical columns".to_owned(),
        false => names.join(", "),
    }
}

fn compile_splice(column: &str, splice: &wide::Splice) -> Result<Splice, LayoutError> {
    let actual = splice.columns.len();
    if !(SPLICE_COLUMNS_MIN..=SPLICE_COLUMNS_MAX).contains(&actual) {
        return Err(LayoutError::SpliceCount {
            column: column.to_owned(),
            actual,
        });
    }
    let pads = splice.columns.iter().map(pad).collect::<Result<Box<[_]>, _>>()?;
    let actual = splice.delimiter;
    if !actual.is_ascii() {
        return Err(LayoutError::DelimiterNotAscii {
            column: column.to_owned(),
            actual,
        });
    }
    if actual >= '0' && pads.iter().any(Option::is_some) {
        return Err(LayoutError::DelimiterNotBelowDigits {
            column: column.to_owned(),
            actual,
        });
    }
    Ok(Splice {
        delimiter: actual,
        pads,
    })
}

/// Checks the width of a spliced column. Returns the number of digits of an integer; `None` for a string.
fn pad(part: &SplicedColumn) -> Result<Option<u8>, LayoutError> {
    let column = || part.name.clone();
    match (part.column_type, part.pad) {
        (ColumnType::String, None) => Ok(None),
        (ColumnType::String, Some(_)) => Err(LayoutError::PadOfString { column: column() }),
        (_, None) => Err(LayoutError::PadMissing { column: column() }),
        (_, Some(digits)) if (1..=PAD_DIGITS_MAX).contains(&digits) => Ok(Some(digits)),
        (_, Some(actual)) => Err(LayoutError::PadDigits {
            column: column(),
            actual,
        }),
    }
}

fn reversed_kind(column: &LogicalColumn) -> Result<KeyKind, LayoutError> {
    text_kind(column.column_type).ok_or_else(|| LayoutError::ReverseType {
        column: column.name.clone(),
        actual: column.column_type,
    })
}

fn spliced_kind(column: &SplicedColumn) -> Result<KeyKind, LayoutError> {
    text_kind(column.column_type).ok_or_else(|| LayoutError::SpliceType {
        column: column.name.clone(),
        actual: column.column_type,
    })
}

/// Returns the key type of `string`, `i64` and `u64`, whose values can be stored as text; `None` for other types.
fn text_kind(column_type: ColumnType) -> Option<KeyKind> {
    match column_type {
        ColumnType::String | ColumnType::I64 | ColumnType::U64 => KeyKind::of(column_type),
        _ => None,
    }
}
