//! Mutations of rows: the unit of writes and of storage.
//!
//! A [`Mutation`] replaces a row, updates some of its columns, or deletes it. A stored row is a mutation with
//! [`Effect::Replace`]. All mutations are absolute: before a mutation is journaled, each increment is replaced by its
//! result. A removal of one version is replaced by a change that clears the column and adds the remaining versions. The
//! state of a row is the result of applying its mutations in the order of the journal. Applying the last mutations
//! again changes nothing, so a replay after an interrupted flush is safe.
//!
//! Versions of a column are ordered by their time, regardless of the order of the writes. A deletion removes everything
//! that was journaled before it, whatever the times of the versions are.

use std::borrow::Cow;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::codec;
use crate::error::Damage;
use crate::value::CellValue;

/// Name of a column: the number of a declared column, or the text name of an undeclared one. Declared columns sort
/// first, by number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ColumnName<'a> {
    /// Number of a declared column.
    Declared(u32),
    /// Name of a column that was not declared when it was written.
    Named(Cow<'a, str>),
}

impl ColumnName<'_> {
    /// Returns the same name with borrowed text.
    pub fn borrowed(&self) -> ColumnName<'_> {
        match self {
            Self::Declared(number) => ColumnName::Declared(*number),
            Self::Named(name) => ColumnName::Named(Cow::Borrowed(name)),
        }
    }

    /// Returns the name with owned text.
    pub fn into_owned(self) -> ColumnName<'static> {
        match self {
            Self::Declared(number) => ColumnName::Declared(number),
            Self::Named(name) => ColumnName::Named(Cow::Owned(name.into_owned())),
        }
    }
}

/// One version of a column.
#[derive(Debug, Clone, PartialEq)]
pub struct Version<'a> {
    /// Time of the version, in nanoseconds since 1970-01-01T00:00:00Z.
    pub time: i64,
    /// The value.
    pub value: CellValue<'a>,
}

/// Change of a column: adds versions, and optionally removes all existing versions first.
#[derive(Debug, Clone, PartialEq)]
pub struct Column<'a> {
    /// Name of the column.
    pub name: ColumnName<'a>,
    /// True if all existing versions are removed first.
    pub clears: bool,
    /// Versions to add, newest first, with distinct times.
    pub versions: SmallVec<[Version<'a>; 1]>,
}

impl<'a> Column<'a> {
    /// Returns a column with one version.
    pub fn with(name: ColumnName<'a>, time: i64, value: CellValue<'a>) -> Self {
        Self {
            name,
            clears: false,
            versions: SmallVec::from_buf([Version { time, value }]),
        }
    }

    /// Returns a change that removes all versions of a column.
    pub fn cleared(name: ColumnName<'a>) -> Self {
        Self {
            name,
            clears: true,
            versions: SmallVec::new(),
        }
    }

    /// Returns the newest version; `None` if the column has none.
    pub fn newest(&self) -> Option<&Version<'a>> {
        self.versions.first()
    }

    /// Returns the column with owned names and values.
    pub fn into_owned(self) -> Column<'static> {
        let version = |version: Version<'_>| Version {
            time: version.time,
            value: version.value.into_owned(),
        };
        Column {
            name: self.name.into_owned(),
            clears: self.clears,
            versions: self.versions.into_iter().map(version).collect(),
        }
    }

    /// Returns the column with a shorter lifetime. The compiler cannot shorten the lifetime itself, because the list of
    /// versions is invariant.
    pub(crate) fn shortened<'s>(self) -> Column<'s>
    where
        'a: 's,
    {
        let mut versions: SmallVec<[Version<'s>; 1]> = SmallVec::with_capacity(self.versions.len());
        for version in self.versions {
            versions.push(version);
        }
        Column {
            name: self.name,
            clears: self.clears,
            versions,
        }
    }

    /// Applies a newer change of the same column.
    fn apply(&mut self, newer: Self, versions_max: usize) {
        if newer.clears {
            *self = newer;
            return;
        }
        for version in newer.versions {
            match self.versions.binary_search_by(|old| version.time.cmp(&old.time)) {
                Ok(at) => self.versions[at] = version,
                Err(at) => self.versions.insert(at, version),
            }
        }
        self.versions.truncate(versions_max);
    }
}

/// Effect of a mutation on the row as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The row has exactly the columns of the mutation.
    Replace,
    /// The columns of the mutation are changed; other columns stay unchanged. A missing row is created.
    Update,
    /// The row is removed.
    Delete,
}

/// Change of one row.
#[derive(Debug, Clone, PartialEq)]
pub struct Mutation<'a> {
    /// Effect on the row.
    pub effect: Effect,
    /// Time of the write, or the time of its newest version if that is later, in nanoseconds since
    /// 1970-01-01T00:00:00Z. The age of a row is measured from this time. It is raised to the floor of the table, see
    /// [`WideStore::raise_times`](crate::WideStore::raise_times).
    pub time: i64,
    /// Changed columns, sorted by name, without duplicates. Always empty for [`Effect::Delete`]. Can be empty for the
    /// other effects, because a row may consist of its key alone.
    pub columns: Vec<Column<'a>>,
}

impl<'a> Mutation<'a> {
    /// Returns a mutation that removes the row.
    pub const fn delete(time: i64) -> Self {
        Self {
            effect: Effect::Delete,
            time,
            columns: Vec::new(),
        }
    }

    /// Returns the stored form of the mutation, which [`StoredRow::with_columns`](crate::StoredRow::with_columns)
    /// reads.
    pub fn encoded(&self) -> Bytes {
        codec::encoded(self)
    }

    /// Reads the stored form of a mutation, as an entry of the journal holds it.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the bytes are not a mutation.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Damage> {
        codec::decode(bytes)
    }

    /// Returns the mutation with owned names and values.
    pub fn into_owned(self) -> Mutation<'static> {
        Mutation {
            effect: self.effect,
            time: self.time,
            columns: self.columns.into_iter().map(Column::into_owned).collect(),
        }
    }

    /// Returns a column; `None` if the mutation does not contain it.
    pub fn column(&self, name: &ColumnName<'_>) -> Option<&Column<'a>> {
        column_of(&self.columns, name)
    }

    /// Applies a newer mutation of the same row, keeping the newest `versions_max` versions of each column. Takes time
    /// linear in the number of columns of both mutations.
    #[must_use]
    pub fn then(self, newer: Self, versions_max: usize) -> Self {
        if newer.effect != Effect::Update {
            return newer.normalized(versions_max);
        }
        // Updating a deleted row recreates it, with the time of the update, as if the delete was already flushed.
        let (effect, time) = match self.effect {
            Effect::Delete => (Effect::Replace, newer.time),
            effect => (effect, self.time.max(newer.time)),
        };
        let mut columns = Vec::with_capacity(self.columns.len() + newer.columns.len());
        let mut changes = newer.columns.into_iter().peekable();
        for mut column in self.columns {
            while let Some(added) = changes.next_if(|change| change.name < column.name) {
                columns.push(added);
            }
            if let Some(change) = changes.next_if(|change| change.name == column.name) {
                column.apply(change, versions_max);
            }
            columns.push(column);
        }
        columns.extend(changes);
        let merged = Self {
            effect,
            time,
            columns,
        };
        merged.normalized(versions_max)
    }

    /// Truncates the versions of each column. If the effect is [`Effect::Replace`], also resets the `clears` flags and
    /// drops columns without versions: a row that is replaced has no older versions.
    fn normalized(mut self, versions_max: usize) -> Self {
        for column in &mut self.columns {
            column.versions.truncate(versions_max);
        }
        if self.effect == Effect::Replace {
            for column in &mut self.columns {
                column.clears = false;
            }
            self.columns.retain(|column| !column.versions.is_empty());
        }
        self
    }

    /// Applies the mutation to a missing row. Returns the resulting row; `None` if the mutation is a deletion.
    #[must_use]
    pub fn on_nothing(self, versions_max: usize) -> Option<Self> {
        if self.effect == Effect::Delete {
            return None;
        }
        let replaced = Self {
            effect: Effect::Replace,
            ..self
        };
        Some(replaced.normalized(versions_max))
    }
}

/// Returns a column of a list that is sorted by name; `None` if the list does not contain it.
pub(crate) fn column_of<'c, 'a>(columns: &'c [Column<'a>], name: &ColumnName<'_>) -> Option<&'c Column<'a>> {
    let found = columns.binary_search_by(|column| compare(&column.name, name));
    found.ok().map(|at| &columns[at])
}

fn compare(one: &ColumnName<'_>, other: &ColumnName<'_>) -> std::cmp::Ordering {
    match (one, other) {
        (ColumnName::Declared(one), ColumnName::Declared(other)) => one.cmp(other),
        (ColumnName::Declared(_), ColumnName::Named(_)) => std::cmp::Ordering::Less,
        (ColumnName::Named(_), ColumnName::Declared(_)) => std::cmp::Ordering::Greater,
        (ColumnName::Named(one), ColumnName::Named(other)) => one.as_ref().cmp(other.as_ref()),
    }
}
