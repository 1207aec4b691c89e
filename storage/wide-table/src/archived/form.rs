//! Form of rows in archive files. The files have a column for each column of the key and for each declared column, so
//! that other tools can read them. Two further columns hold the data that these columns cannot hold.
//!
//! A row is read back from its typed columns if this restores its stored bytes exactly. Otherwise the file also holds
//! the stored bytes. This is the case, for example, for several versions of a column, or for undeclared columns.

mod packed;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value, json};
use smallvec::SmallVec;
use tideline_archive::ArchiveError;
use tideline_archive::rows::{GroupColumn, GroupValues, RowColumn, RowColumnKind, RowGroup, RowSchema};
use tideline_key_codec::layout::KeyLayout;
use tideline_key_codec::tuple::{Decimal, KeyKind, KeyValue};
use tideline_model::{ColumnType, Timestamp, WideSpec};

use crate::codec;
use crate::error::Damage;
use crate::large::{LargeValue, named_in};
use crate::mutation::{Column, ColumnName, Effect, Mutation, Version};
use crate::read::StoredRow;
use crate::value::CellValue;
use packed::{Scratch, StoredNames};

/// Position of the file column with the stored keys.
const KEY: usize = 0;
/// Position of the file column with the times of the rows.
const TIME: usize = 1;
/// Position of the file column with the first logical column of the key.
const LOGICAL: usize = 2;

/// Declared column of the files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeclaredColumn {
    /// Number of the column in stored rows; 0 if rows store it by name.
    number: u32,
    /// Name in the settings of the table.
    name: String,
    /// Type of its values.
    #[serde(rename = "type")]
    column_type: ColumnType,
}

impl DeclaredColumn {
    fn stored_name(&self) -> ColumnName<'static> {
        match self.number {
            0 => ColumnName::Named(self.name.clone().into()),
            number => ColumnName::Declared(number),
        }
    }
}

/// Columns of the files of a part.
#[derive(Debug)]
pub(crate) struct RowForm {
    pub(crate) schema: RowSchema,
    /// Declared columns, in the order of the columns of the files.
    declared: Vec<DeclaredColumn>,
    /// Position of the first declared column among the columns of the files.
    first: usize,
    /// Positions in `declared`, sorted by the name in stored rows.
    by_name: Vec<(ColumnName<'static>, usize)>,
    stored_names: StoredNames,
}

impl RowForm {
    /// Returns the form of the rows of a table.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::Format`] if files cannot have these columns.
    pub(crate) fn new(spec: &WideSpec, layout: &KeyLayout) -> Result<Self, ArchiveError> {
        let declared = spec.columns.iter().filter(|column| !column.is_pattern());
        let declared = declared.map(|column| DeclaredColumn {
            number: column.number,
            name: column.name.clone(),
            column_type: column.column_type,
        });
        let column = |name: &str, kind, required| RowColumn {
            name: name.to_owned(),
            kind,
            required,
        };
        let mut columns = vec![
            column("_key", RowColumnKind::Sorted, true),
            column("_time", RowColumnKind::Time, true),
        ];
        let logical = layout.logical().iter();
        columns.extend(logical.map(|of| column(&of.name, kind_of_key(of.kind), true)));
        let declared: Vec<DeclaredColumn> = declared.collect();
        columns.extend(
            declared
                .iter()
                .map(|of| column(&of.name, kind_of(of.column_type), false)),
        );
        columns.push(column("_columns", RowColumnKind::Json, false));
        columns.push(column("_row", RowColumnKind::Bytes, false));
        Self::of_columns(columns, declared)
    }

    /// Returns the form of files with these columns: stored key, time, columns of the key, declared columns, and two
    /// columns for other data.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::Format`] if the columns do not belong together.
    pub(crate) fn of_columns(
        columns: Vec<RowColumn>,
        declared: Vec<DeclaredColumn>,
    ) -> Result<Self, ArchiveError> {
        let wrong = || ArchiveError::Format {
            what: "the columns of a part".to_owned(),
            reason: "they do not begin with a key and end with a row".to_owned(),
        };
        let first = columns.len().checked_sub(declared.len() + 2);
        let first = first.filter(|first| *first >= LOGICAL).ok_or_else(wrong)?;
        let kinds = |range: std::ops::Range<usize>| columns[range].iter().map(|of| of.kind);
        let expected = declared.iter().map(|of| kind_of(of.column_type));
        let is_right = kinds(0..LOGICAL).eq([RowColumnKind::Sorted, RowColumnKind::Time])
            && kinds(first..columns.len() - 2).eq(expected)
            && kinds(columns.len() - 2..columns.len()).eq([RowColumnKind::Json, RowColumnKind::Bytes])
            && columns[..LOGICAL].iter().all(|of| of.required)
            && columns[first..].iter().all(|of| !of.required);
        if !is_right {
            return Err(wrong());
        }
        let names = declared.iter().enumerate();
        let mut by_name: Vec<_> = names.map(|(at, of)| (of.stored_name(), at)).collect();
        by_name.sort();
        Ok(Self {
            schema: RowSchema::new(columns)?,
            declared,
            first,
            stored_names: StoredNames::new(&by_name),
            by_name,
        })
    }

    /// Returns the declared columns.
    pub(crate) fn declared(&self) -> &[DeclaredColumn] {
        &self.declared
    }

    fn declared_at(&self, name: &ColumnName<'_>) -> Option<usize> {
        let found = self.by_name.binary_search_by(|(other, _)| other.cmp(name));
        found.ok().map(|at| self.by_name[at].1)
    }
}

fn kind_of_key(kind: KeyKind) -> RowColumnKind {
    match kind {
        KeyKind::String | KeyKind::Decimal => RowColumnKind::Text,
        KeyKind::Signed => RowColumnKind::Signed,
        KeyKind::Unsigned => RowColumnKind::Unsigned,
        KeyKind::Binary => RowColumnKind::Bytes,
        KeyKind::Timestamp => RowColumnKind::Time,
        KeyKind::Boolean => RowColumnKind::Boolean,
    }
}

fn kind_of(column_type: ColumnType) -> RowColumnKind {
    match column_type {
        ColumnType::String | ColumnType::Decimal => RowColumnKind::Text,
        ColumnType::Json => RowColumnKind::Json,
        ColumnType::I64 => RowColumnKind::Signed,
        ColumnType::U64 => RowColumnKind::Unsigned,
        ColumnType::F64 => RowColumnKind::Float,
        ColumnType::Bool => RowColumnKind::Boolean,
        ColumnType::Binary => RowColumnKind::Bytes,
        ColumnType::Timestamp => RowColumnKind::Time,
    }
}

/// Converts stored rows to groups.
pub(super) struct GroupBuilder<'f> {
    form: &'f RowForm,
    layout: &'f KeyLayout,
    group: RowGroup,
    bytes: usize,
    /// Values of the added rows whose contents are not in the rows.
    streamed: Vec<LargeValue>,
    /// Buffer for the encoded form of a row as it would be read from the file.
    again: Vec<u8>,
    scratch: Scratch,
}

impl<'f> GroupBuilder<'f> {
    pub(super) fn new(form: &'f RowForm, layout: &'f KeyLayout) -> Self {
        Self {
            group: RowGroup::new(&form.schema),
            form,
            layout,
            bytes: 0,
            streamed: Vec::new(),
            again: Vec::new(),
            scratch: Scratch::default(),
        }
    }

    /// Returns the bytes of the rows that were added since the last call of [`clear`](Self::clear).
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the values of all added rows whose contents are not in the rows: streamed large values.
    pub(super) fn into_streamed(self) -> Vec<LargeValue> {
        self.streamed
    }

    /// Adds a row.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the row or its key is damaged.
    pub(super) fn push(&mut self, row: &StoredRow) -> Result<(), Damage> {
        let columns = row.columns()?;
        self.streamed.extend(named_in(&columns));
        let logical = self.layout.decode(&row.key);
        let logical = logical.map_err(|_| Damage("a key does not fit the settings of the table"))?;
        let form = self.form;
        self.group.columns[KEY].push_bytes(&row.key);
        self.group.columns[TIME].push_integer(columns.time);
        for (value, column) in logical.iter().zip(&mut self.group.columns[LOGICAL..]) {
            push_key(column, value);
        }
        let mut is_whole = columns.effect == Effect::Replace;
        let mut others = Map::new();
        let mut found: SmallVec<[(usize, &Version<'_>); 32]> = SmallVec::new();
        for column in &columns.columns {
            let Some(newest) = column.newest() else {
                is_whole = false;
                continue;
            };
            let fits = |at: &usize| {
                // A large value that is uploaded separately has its pieces outside of the file.
                let is_whole = !matches!(newest.value, CellValue::Large(_));
                is_whole && form.declared[*at].column_type == newest.value.column_type()
            };
            match form.declared_at(&column.name).filter(fits) {
                Some(at) => found.push((at, newest)),
                None => {
                    others.insert(form.name_of(&column.name), json_of(&newest.value));
                    is_whole = false;
                }
            }
        }
        found.sort_unstable_by_key(|(at, _)| *at);
        let mut found = found.into_iter().peekable();
        for at in 0..form.declared.len() {
            let column = &mut self.group.columns[form.first + at];
            match found.next_if(|(declared, _)| *declared == at) {
                Some((_, version)) => push_value(column, &version.value),
                None => column.push_absent(),
            }
        }
        let [.., of_others, of_row] = &mut self.group.columns[..] else {
            return Err(Damage("the columns of an archived part are not complete"));
        };
        match others.is_empty() {
            true => of_others.push_absent(),
            false => of_others.push_bytes(Value::Object(others).to_string().as_bytes()),
        }
        if is_whole {
            // A row that is read from the typed columns has one version per column, with the time of the row. If the
            // encoding of this form equals the stored bytes, the file need not hold them.
            self.again.clear();
            codec::encode(&columns, &mut self.again);
            is_whole = !codec::may_have_versions(row.encoded()) && self.again[..] == row.encoded()[..];
        }
        match is_whole {
            true => of_row.push_absent(),
            false => of_row.push_bytes(row.encoded()),
        }
        self.group.rows += 1;
        self.bytes += row.bytes();
        Ok(())
    }

    /// Returns the rows that were added since the last call of [`clear`](Self::clear).
    pub(super) fn group(&self) -> &RowGroup {
        &self.group
    }

    /// Returns the key of the last row; `None` without rows.
    pub(super) fn last_key(&self) -> Option<Bytes> {
        let GroupValues::Bytes(keys) = &self.group.columns[KEY].values else {
            return None;
        };
        let last = keys.get(keys.len().checked_sub(1)?);
        last.map(Bytes::copy_from_slice)
    }

    /// Removes all rows.
    pub(super) fn clear(&mut self) {
        self.bytes = 0;
        self.group.clear();
    }
}

fn push_key(column: &mut GroupColumn, value: &KeyValue<'_>) {
    match value {
        KeyValue::String(text) => column.push_bytes(text.as_bytes()),
        KeyValue::Signed(number) => column.push_integer(*number),
        KeyValue::Unsigned(number) => column.push_integer(number.cast_signed()),
        KeyValue::Binary(bytes) => column.push_bytes(bytes),
        KeyValue::Timestamp(time) => column.push_integer(time.nanos()),
        KeyValue::Decimal(number) => column.push_bytes(number.to_string().as_bytes()),
        KeyValue::Boolean(value) => column.push_boolean(*value),
    }
}

fn push_value(column: &mut GroupColumn, value: &CellValue<'_>) {
    match value {
        CellValue::String(text) | CellValue::Json(text) => column.push_bytes(text.as_bytes()),
        CellValue::I64(number) => column.push_integer(*number),
        CellValue::U64(number) => column.push_integer(number.cast_signed()),
        CellValue::F64(number) => column.push_float(*number),
        CellValue::Bool(value) => column.push_boolean(*value),
        CellValue::Binary(bytes) => column.push_bytes(bytes),
        CellValue::Decimal(number) => column.push_bytes(number.to_string().as_bytes()),
        CellValue::Timestamp(time) => column.push_integer(time.nanos()),
        CellValue::Large(_) => column.push_absent(),
    }
}

/// Returns a value as JSON for the column `_columns`, which only other tools read.
fn json_of(value: &CellValue<'_>) -> Value {
    match value {
        CellValue::String(text) => Value::String(text.to_string()),
        CellValue::I64(number) => Value::Number((*number).into()),
        CellValue::U64(number) => Value::Number((*number).into()),
        CellValue::F64(number) => {
            Number::from_f64(*number).map_or_else(|| Value::String(number.to_string()), Value::Number)
        }
        CellValue::Bool(value) => Value::Bool(*value),
        CellValue::Binary(bytes) => Value::String(STANDARD.encode(bytes)),
        CellValue::Decimal(number) => Value::String(number.to_string()),
        CellValue::Json(text) => {
            serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_string()))
        }
        CellValue::Timestamp(time) => Value::String(time.to_rfc3339()),
        CellValue::Large(large) => {
            let checksum = format!("{:016x}", large.checksum);
            json!({"large": {"bytes": large.bytes, "xxh3": checksum}})
        }
    }
}

/// Reads the values of a column row by row. A row without a value has no position in the values.
struct Cursor<'g> {
    column: &'g GroupColumn,
    row: usize,
    next: usize,
}

impl<'g> Cursor<'g> {
    fn new(column: &'g GroupColumn) -> Self {
        Self {
            column,
            row: 0,
            next: 0,
        }
    }

    /// Returns the position of the value of the next row; `None` if the row has no value.
    fn advance(&mut self) -> Option<usize> {
        let row = self.row;
        self.row += 1;
        let levels = self.column.levels.as_ref();
        if levels.is_some_and(|levels| levels.get(row) != Some(&1)) {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }

    fn bytes(&mut self) -> Option<&'g [u8]> {
        let at = self.advance()?;
        match &self.column.values {
            GroupValues::Bytes(values) => values.get(at),
            _ => None,
        }
    }

    fn integer(&mut self) -> Option<i64> {
        let at = self.advance()?;
        match &self.column.values {
            GroupValues::Integers(values) => values.get(at).copied(),
            _ => None,
        }
    }

    /// Returns the value of the next row, converted to a declared type; `None` if the row has no value.
    fn value(&mut self, of: ColumnType) -> Result<Option<CellValue<'g>>, Damage> {
        let Some(at) = self.advance() else {
            return Ok(None);
        };
        let wrong = Damage("a value in an archive file is not of the type of its column");
        let text = |bytes: &'g [u8]| std::str::from_utf8(bytes).ok();
        let value = match &self.column.values {
            GroupValues::Bytes(values) => values.get(at).and_then(|bytes| {
                Some(match of {
                    ColumnType::String => CellValue::String(text(bytes)?.into()),
                    ColumnType::Json => CellValue::Json(text(bytes)?.into()),
                    ColumnType::Binary => CellValue::Binary(bytes.into()),
                    ColumnType::Decimal => CellValue::Decimal(Decimal::parse(text(bytes)?)?),
                    _ => return None,
                })
            }),
            GroupValues::Floats(values) => values.get(at).map(|number| CellValue::F64(*number)),
            GroupValues::Booleans(values) => values.get(at).map(|value| CellValue::Bool(*value)),
            GroupValues::Integers(values) => values.get(at).and_then(|number| {
                Some(match of {
                    ColumnType::I64 => CellValue::I64(*number),
                    ColumnType::U64 => CellValue::U64(number.cast_unsigned()),
                    ColumnType::Timestamp => CellValue::Timestamp(Timestamp::from_nanos(*number).ok()?),
                    _ => return None,
                })
            }),
        };
        value.map(Some).ok_or(wrong)
    }
}

impl RowForm {
    /// Returns the name of a column for users: the name in the settings of the table, if there is one.
    fn name_of(&self, name: &ColumnName<'_>) -> String {
        match name {
            ColumnName::Named(name) => name.to_string(),
            // A number without a declaration belongs to a column whose declaration was removed.
            ColumnName::Declared(number) => match self.declared_at(name) {
                Some(at) => self.declared[at].name.clone(),
                None => format!("#{number}"),
            },
        }
    }

    /// Returns the keys and stored rows of a group, in the order of their keys.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the rows of the group do not have this form.
    pub(super) fn rows_of(&self, group: &RowGroup) -> Result<Vec<(Bytes, Bytes)>, Damage> {
        let incomplete = Damage("a row in an archive file is not complete");
        let mut cursors: Vec<Cursor<'_>> = group.columns.iter().map(Cursor::new).collect();
        if cursors.len() != self.schema.columns().len() {
            return Err(incomplete);
        }
        let (mut all, mut ends) = (Vec::new(), Vec::with_capacity(group.rows));
        let last = cursors.len() - 1;
        for _ in 0..group.rows {
            let key = cursors[KEY].bytes().ok_or(incomplete)?;
            let time = cursors[TIME].integer().ok_or(incomplete)?;
            let stored = cursors[last].bytes();
            all.extend_from_slice(key);
            let middle = all.len();
            let mut columns: Vec<Column<'_>> = Vec::with_capacity(self.declared.len());
            for (declared, cursor) in self.declared.iter().zip(&mut cursors[self.first..]) {
                if let Some(value) = cursor.value(declared.column_type)? {
                    columns.push(Column::with(declared.stored_name(), time, value));
                }
            }
            match stored {
                Some(stored) => all.extend_from_slice(stored),
                None => {
                    columns.sort_unstable_by(|one, other| one.name.cmp(&other.name));
                    let row = Mutation {
                        effect: Effect::Replace,
                        time,
                        columns,
                    };
                    codec::encode(&row, &mut all);
                }
            }
            ends.push((middle, all.len()));
        }
        let (all, mut start) = (Bytes::from(all), 0);
        let rows = ends.into_iter().map(|(middle, end)| {
            let from = std::mem::replace(&mut start, end);
            (all.slice(from..middle), all.slice(middle..end))
        });
        Ok(rows.collect())
    }
}
