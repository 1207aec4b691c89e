//! Selection of columns and versions, and rows as JSON.
//!
//! A row is appended to a buffer as JSON, column by column, without building a tree of values. Values have the forms
//! that writes accept.

use std::fmt;
use std::sync::Arc;

use hashbrown::HashSet;
use tideline_engine::large::{LargeKind, LargeValue};
use tideline_engine::model::{ColumnType, TimeRange, Timestamp};
use tideline_engine::rows::{
    COLUMN_BYTES_MAX, CellValue, GroupSet, Mutation, ROW_BYTES_MAX, RowDigest, Version,
};
use tideline_engine::{Engine, WideTable};
use tideline_openapi::condition::TimeSpan;
use tideline_openapi::row::RowIntegers;

use crate::condition::RowMatcher;
use crate::error::{Result, RowsError};
use crate::large::{href, write_large};
use crate::read::NeededColumns;
use crate::{key, transaction, value};

/// Maximum number of names and prefixes in a request.
const NAMES_MAX: usize = 10_000;

/// Form in which a read returns its rows.
pub trait RowEncoder {
    /// Returns true if rows are returned with their revisions.
    fn has_revisions(&self) -> bool {
        false
    }

    /// Appends a row as JSON. `revision` is given if [`has_revisions`](Self::has_revisions) returns true.
    ///
    /// # Errors
    ///
    /// [`RowsError::Damaged`] if the stored key is damaged.
    fn write_row(
        &self,
        table: &WideTable,
        key: &[u8],
        row: &Mutation<'_>,
        revision: Option<RowDigest>,
        out: &mut Vec<u8>,
    ) -> Result<()>;
}

/// Columns and versions that a request returns, and the form of integers.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Returned columns; `None` = all.
    columns: Option<Columns>,
    /// Returned versions; `None` for only the newest value, without its version.
    versions: Option<Versions>,
    integers: RowIntegers,
    /// True if rows are returned with their revisions.
    has_revisions: bool,
    /// Large values that are returned like other values; `None` if all large values are returned as references.
    inline: Option<InlineValues>,
    /// Encoding of the selection for page tokens.
    terms: Vec<u8>,
}

/// Maximum size of a large value that is returned like other values, in bytes.
pub const INLINE_BYTES_MAX: u64 = COLUMN_BYTES_MAX as u64;

/// Large values that a read returns like other values.
#[derive(Clone)]
struct InlineValues {
    engine: Arc<Engine>,
    /// Maximum size of such a value, in bytes.
    bytes_max: u64,
}

impl fmt::Debug for InlineValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InlineValues").field(&self.bytes_max).finish()
    }
}

impl InlineValues {
    /// Appends the content of a large value in the form of its type. Appends nothing and returns false if the value is
    /// too large, or if it was overwritten in the meantime. `left` is the number of bytes of large values that the row
    /// can still return.
    fn write(
        &self,
        table: &WideTable,
        key: &[u8],
        (large, declared): (LargeValue, Option<ColumnType>),
        left: &mut u64,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        if large.bytes > self.bytes_max.min(*left) {
            return Ok(false);
        }
        let Some(content) = self.engine.read_large(table, key, large)? else {
            return Ok(false);
        };
        *left -= large.bytes;
        let value = match large.kind {
            LargeKind::Binary => CellValue::Binary(content.into()),
            LargeKind::Text | LargeKind::Json => {
                let text = String::from_utf8(content).map_err(|error| RowsError::Damaged {
                    table: table.table().name().to_string(),
                    reason: format!("a large text is not UTF-8: {error}"),
                })?;
                match large.kind {
                    LargeKind::Json => CellValue::Json(text.into()),
                    _ => CellValue::String(text.into()),
                }
            }
        };
        value::write_value(&value, declared, RowIntegers::Number, out);
        Ok(true)
    }
}

#[derive(Debug, Clone, Default)]
struct Columns {
    names: HashSet<String>,
    /// Names in the order of the request.
    listed: Vec<String>,
    prefixes: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
struct Versions {
    count: usize,
    range: TimeRange,
}

impl Selection {
    /// Creates a selection. `columns` are names, or prefixes that end with `*`; `None` for all columns.
    ///
    /// # Errors
    ///
    /// [`RowsError::Invalid`] if `versions` is 0, and [`RowsError::OverLimit`] for too many names.
    pub fn new(
        columns: Option<&[String]>,
        versions: Option<u32>,
        range: Option<TimeSpan>,
        integers: RowIntegers,
        now: Timestamp,
    ) -> Result<Self> {
        if versions == Some(0) {
            return Err(RowsError::Invalid("versions is 0; it must be at least 1".into()));
        }
        let mut terms = Vec::new();
        if let Some(names) = columns {
            if names.len() > NAMES_MAX {
                return Err(RowsError::over(
                    "number of columns",
                    NAMES_MAX as u64,
                    names.len() as u64,
                ));
            }
            terms.push(1);
            for name in names {
                terms.extend_from_slice(&(name.len() as u64).to_le_bytes());
                terms.extend_from_slice(name.as_bytes());
            }
        }
        let columns = columns.map(|names| {
            let mut columns = Columns::default();
            for name in names {
                match name.strip_suffix('*') {
                    Some(prefix) => columns.prefixes.push(prefix.to_owned()),
                    None => {
                        columns.names.insert(name.clone());
                        columns.listed.push(name.clone());
                    }
                }
            }
            columns
        });
        let has_versions = versions.is_some() || range.is_some();
        if has_versions {
            // Relative times are encoded without resolving them. In the request of the next page, they are resolved to
            // later times, and the token must still match.
            terms.push(2);
            terms.extend_from_slice(&versions.unwrap_or(0).to_le_bytes());
            terms.extend_from_slice(&serde_json::to_vec(&range).unwrap_or_default());
        }
        let count = versions.map_or(usize::MAX, |count| count as usize);
        let range = range.unwrap_or_default();
        let range = TimeRange {
            start: range.start.map_or(i64::MIN, |start| start.resolve(now).nanos()),
            end: range.end.map_or(i64::MAX, |end| end.resolve(now).nanos()),
        };
        Ok(Self {
            columns,
            versions: has_versions.then_some(Versions { count, range }),
            integers,
            has_revisions: false,
            inline: None,
            terms,
        })
    }

    /// Returns the selection with large values of up to `bytes_max` bytes returned like other values. A row returns at
    /// most [`ROW_BYTES_MAX`] bytes of such values. Further large values, and large values in lists of versions, are
    /// returned as objects.
    ///
    /// # Errors
    ///
    /// [`RowsError::OverLimit`] above [`INLINE_BYTES_MAX`].
    pub fn with_inline(self, engine: &Arc<Engine>, bytes_max: Option<u64>) -> Result<Self> {
        let inline = match bytes_max {
            None => None,
            Some(bytes_max) if bytes_max > INLINE_BYTES_MAX => {
                return Err(RowsError::over("inline_bytes", INLINE_BYTES_MAX, bytes_max));
            }
            Some(bytes_max) => Some(InlineValues {
                engine: Arc::clone(engine),
                bytes_max,
            }),
        };
        Ok(Self { inline, ..self })
    }

    /// Returns the selection with or without the revisions of rows.
    #[must_use]
    pub fn with_revisions(self, has_revisions: bool) -> Self {
        Self {
            has_revisions,
            ..self
        }
    }

    /// Returns the selection of all columns with their newest values.
    pub fn all(integers: RowIntegers) -> Self {
        Self {
            integers,
            ..Self::default()
        }
    }

    /// Returns a selection without columns, for reads that need only the number of rows.
    pub fn of_nothing() -> Self {
        Self {
            columns: Some(Columns::default()),
            ..Self::default()
        }
    }

    /// Returns the columns of rows that the selection needs.
    pub(crate) fn needed(&self) -> NeededColumns<'_> {
        match &self.columns {
            _ if self.versions.is_some() || self.has_revisions => NeededColumns::Stored,
            Some(columns) if columns.prefixes.is_empty() => NeededColumns::Named(&columns.listed),
            _ => NeededColumns::All,
        }
    }

    /// Records a read with this selection and a condition in the statistics of column use.
    pub(crate) fn note(&self, engine: &Engine, table: &WideTable, matcher: Option<&RowMatcher>) {
        let tested = matcher.map_or_else(Vec::new, RowMatcher::columns);
        let columns = self
            .columns
            .as_ref()
            .filter(|columns| columns.prefixes.is_empty());
        let columns = columns.map(|columns| columns.listed.iter().chain(&tested).map(String::as_str));
        engine.note_column_reads(table, columns);
    }

    /// Returns the column groups that the selection needs.
    pub(crate) fn groups(&self, table: &WideTable) -> GroupSet {
        let Some(columns) = self.columns.as_ref().filter(|_| !self.has_revisions) else {
            return GroupSet::ALL;
        };
        // A group can store columns with a prefix if the prefix begins with the pattern of the group, or the pattern
        // with the prefix.
        let meets = |column: &str, prefix: &String| match column.strip_suffix('*') {
            Some(start) => start.starts_with(prefix.as_str()) || prefix.starts_with(start),
            None => column.starts_with(prefix.as_str()),
        };
        table.groups_where(|group| {
            columns.listed.iter().any(|name| group.holds(name))
                || group
                    .columns
                    .iter()
                    .any(|column| columns.prefixes.iter().any(|prefix| meets(column, prefix)))
        })
    }

    /// Returns the bytes that identify the selection in page tokens.
    pub(crate) fn terms(&self) -> &[u8] {
        &self.terms
    }

    /// Returns true if a column of this name is selected.
    pub(crate) fn has(&self, name: &str) -> bool {
        let Some(columns) = &self.columns else {
            return true;
        };
        columns.names.contains(name)
            || columns
                .prefixes
                .iter()
                .any(|prefix| name.starts_with(prefix.as_str()))
    }
}

impl RowEncoder for Selection {
    fn has_revisions(&self) -> bool {
        self.has_revisions
    }

    /// Appends a row as `{"key": {…}, "columns": {…}}`, followed by `revision` if it is given.
    fn write_row(
        &self,
        table: &WideTable,
        key: &[u8],
        row: &Mutation<'_>,
        revision: Option<RowDigest>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        out.extend_from_slice(b"{\"key\":");
        let start = out.len();
        write_key(table, key, self.integers, out)?;
        let key_text = start..out.len();
        out.extend_from_slice(b",\"columns\":{");
        let (mut is_first, mut left) = (true, ROW_BYTES_MAX as u64);
        for column in &row.columns {
            // If the declaration of a column was removed from the settings, the column has no name.
            let declaration = table.declaration_of(&column.name);
            let Some((name, declared)) = declaration.filter(|(name, _)| self.has(name)) else {
                continue;
            };
            let versions = self.versions.map(|Versions { count, range }| {
                let in_range = |version: &&Version<'_>| range.contains(version.time);
                let versions = column.versions.iter().filter(in_range).take(count);
                versions.collect::<Vec<_>>()
            });
            let newest = match &versions {
                None => column.newest(),
                Some(versions) => versions.first().copied(),
            };
            let Some(newest) = newest else { continue };
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
            value::write_text(name, out);
            out.push(b':');
            let Some(versions) = versions else {
                if let CellValue::Large(large) = &newest.value {
                    let wanted = (*large, declared);
                    if let Some(inline) = &self.inline
                        && inline.write(table, key, wanted, &mut left, out)?
                    {
                        continue;
                    }
                    let href = href(table.table().name().as_str(), &out[key_text.clone()], name);
                    write_large(large, Some(&href), out);
                    continue;
                }
                value::write_value(&newest.value, declared, self.integers, out);
                continue;
            };
            for (number, version) in versions.iter().enumerate() {
                out.push(if number == 0 { b'[' } else { b',' });
                value::write_typed(&version.value, Some(version.time), self.integers, out);
            }
            out.push(b']');
        }
        out.push(b'}');
        if let Some(revision) = revision {
            out.extend_from_slice(b",\"revision\":");
            value::write_text(&transaction::encode(revision), out);
        }
        out.push(b'}');
        Ok(())
    }
}

/// Appends the leading key columns of a bound of stored keys as a JSON object.
pub fn write_bound(table: &WideTable, bound: &[u8], integers: RowIntegers, out: &mut Vec<u8>) {
    let values = table.layout().decode_leading(bound);
    key::write(table.layout(), &values, integers, out);
}

/// Appends a stored key as a JSON object.
pub(crate) fn write_key(
    table: &WideTable,
    stored: &[u8],
    integers: RowIntegers,
    out: &mut Vec<u8>,
) -> Result<()> {
    let values = table
        .layout()
        .decode(stored)
        .map_err(|error| RowsError::Damaged {
            table: table.table().name().to_string(),
            reason: error.to_string(),
        })?;
    key::write(table.layout(), &values, integers, out);
    Ok(())
}
