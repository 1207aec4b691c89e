//! Pages of the columns of one row.
//!
//! Reading a page of a large row reads only the fragments that can hold its columns. Declared columns are few, so a
//! page contains all requested ones. Undeclared columns are paged in the order of their names.

use bytes::Bytes;
use tideline_backend::PartRef;
use tideline_model::TableId;

use crate::codec;
use crate::cold;
use crate::error::{Damage, Result, WideError};
use crate::fragments::{Head, join};
use crate::groups;
use crate::mutation::{Column, ColumnName, Effect, Mutation};
use crate::read::{StoredRow, resolve};
use crate::state::{Part, State, buffered};
use crate::store::WideStore;
use crate::tables::TableRules;

/// Columns of a row to read.
#[derive(Debug, Clone, Copy)]
pub struct ColumnSpan<'a> {
    /// Numbers of the declared columns to return.
    pub declared: &'a [u32],
    /// Lower bound of the names of undeclared columns, inclusive.
    pub from: &'a str,
    /// Upper bound of the names of undeclared columns, exclusive; `None` = unbounded.
    pub to: Option<&'a str>,
    /// Maximum number of undeclared columns; at least 1.
    pub limit: usize,
}

impl ColumnSpan<'_> {
    fn contains(&self, name: &ColumnName<'_>) -> bool {
        match name {
            ColumnName::Declared(number) => self.declared.contains(number),
            ColumnName::Named(name) => {
                name.as_ref() >= self.from && self.to.is_none_or(|to| name.as_ref() < to)
            }
        }
    }

    /// Returns true if a fragment with the columns from `first` to before `end` can contain columns of the span. An
    /// `end` of `None` is unbounded.
    fn overlaps(&self, first: &ColumnName<'_>, end: Option<&ColumnName<'_>>) -> bool {
        let is_before_end = |name: &ColumnName<'_>| end.is_none_or(|end| name < end);
        let has_declared = self.declared.iter().any(|number| {
            let name = ColumnName::Declared(*number);
            *first <= name && is_before_end(&name)
        });
        let starts_before = match (first, self.to) {
            (ColumnName::Named(first), Some(to)) => first.as_ref() < to,
            _ => true,
        };
        has_declared || starts_before && end.is_none_or(|end| *end > ColumnName::Named(self.from.into()))
    }
}

/// Page of the columns of a row.
#[derive(Debug)]
pub struct ColumnPage {
    /// Row with the columns of the span: declared columns by number, then undeclared columns by name.
    pub row: StoredRow,
    /// True if the row has more undeclared columns of the span after the last returned column.
    pub has_more: bool,
}

impl WideStore {
    /// Returns the columns of a row in a span; `None` if the row does not exist. Reads only the fragments with these
    /// columns, and the changes of the row that are not flushed yet.
    ///
    /// # Errors
    ///
    /// The errors of [`row`](Self::row).
    pub fn columns(&self, table: TableId, key: &[u8], span: &ColumnSpan<'_>) -> Result<Option<ColumnPage>> {
        let damaged = |reason| WideError::Damaged { table, reason };
        let rules = self.rules(table)?;
        let expiry = self.expiry(&rules);
        let number = rules.part_of(key).map_err(damaged)?;
        self.log.check_lease()?;
        if !self.visible_parts(&rules).contains(&number) {
            return Ok(None);
        }
        loop {
            let state = self.state();
            let found = buffered(&state.buffers(table), key);
            let changes = narrowed(&found.mutations, span).map_err(damaged)?;
            let part = state.parts.get(&(table, number)).filter(|_| found.needs_part);
            let base = match part {
                // Each changed column can remove one column of the part from the page. One more column is therefore
                // read for each changed column.
                Some(part) => {
                    let removed = changes.iter().map(|change| change.columns.len()).sum::<usize>();
                    // Any number of columns may have expired, so all of them are read.
                    let count = match expiry.is_of_cells() {
                        true => usize::MAX,
                        false => span.limit + removed + 1,
                    };
                    self.part_columns(part, key, span, count)?
                        .map(|main| self.with_group_columns((&state, &rules), part, (key, main), span, count))
                        .transpose()?
                }
                None => None,
            };
            if found.needs_part && self.must_read_again(&state) {
                continue;
            }
            self.log.check_lease()?;
            let changes: Vec<Bytes> = changes.iter().map(codec::encoded).collect();
            let value = resolve(base.as_ref(), &changes, rules.versions_max).map_err(damaged)?;
            let value = match value {
                Some(value) => expiry.visible(value).map_err(damaged)?,
                None => None,
            };
            return value
                .map(|value| page(key, &value, span))
                .transpose()
                .map_err(damaged);
        }
    }

    /// Returns an encoded row of a part, which contains at least the declared columns and the first `count` undeclared
    /// columns of the span. Returns `None` if the part does not have the row.
    fn part_columns(
        &self,
        part: &Part,
        key: &[u8],
        span: &ColumnSpan<'_>,
        count: usize,
    ) -> Result<Option<Bytes>> {
        let damaged = |reason| WideError::Damaged {
            table: part.at.table,
            reason,
        };
        let mut last = None;
        while let Some(value) = self.stored_raw(part, key)? {
            let Some(head) = Head::decode(&value).map_err(damaged)? else {
                cold::count(part, || key.len() + value.len());
                return Ok(Some(value));
            };
            if last.as_ref() == Some(&value) {
                return Err(damaged(Damage("a fragment of a row is missing")));
            }
            if let Some(row) = self.some_fragments(part.at, key, &head, span, count)? {
                cold::count(part, || key.len() + row.len());
                return Ok(Some(row));
            }
            // The row was rewritten meanwhile.
            last = Some(value);
        }
        Ok(None)
    }

    /// Returns a row of a part with the columns of its groups in the span. `main` is its main share.
    fn with_group_columns(
        &self,
        (state, rules): (&State, &TableRules),
        part: &Part,
        (key, main): (&[u8], Bytes),
        span: &ColumnSpan<'_>,
        count: usize,
    ) -> Result<Bytes> {
        let mut of_groups = Vec::new();
        for (_, of_group) in state.group_parts(rules, part, rules.groups.in_span(span)) {
            of_groups.extend(self.part_columns(of_group, key, span, count)?);
        }
        let joined = groups::join(main, &of_groups);
        joined.map_err(|reason| WideError::Damaged {
            table: part.at.table,
            reason,
        })
    }

    /// Joins the fragments that can contain columns of the span, until `count` undeclared columns of the span are read.
    /// Returns `None` if a fragment no longer exists.
    fn some_fragments(
        &self,
        part: PartRef,
        key: &[u8],
        head: &Head,
        span: &ColumnSpan<'_>,
        count: usize,
    ) -> Result<Option<Bytes>> {
        let damaged = |reason| WideError::Damaged {
            table: part.table,
            reason,
        };
        let (mut fragments, mut named) = (Vec::new(), 0);
        for number in head.holding(|first, end| span.overlaps(first, end)) {
            let Some(read) = self.read_fragments(part, key, head, &[number])? else {
                return Ok(None);
            };
            for fragment in read {
                let is_counted = |column: &&Column<'_>| {
                    matches!(column.name, ColumnName::Named(_)) && span.contains(&column.name)
                };
                let columns = codec::decode(&fragment).map_err(damaged)?.columns;
                named += columns.iter().filter(is_counted).count();
                drop(columns);
                fragments.push(fragment);
            }
            if named >= count {
                break;
            }
        }
        join(head, &fragments).map(Some).map_err(damaged)
    }
}

/// Returns the changes of a row, restricted to the columns of the span.
fn narrowed<'m>(
    mutations: &'m [Bytes],
    span: &ColumnSpan<'_>,
) -> std::result::Result<Vec<Mutation<'m>>, Damage> {
    let narrow = |bytes: &'m Bytes| {
        let mut mutation = codec::decode(bytes)?;
        mutation.columns.retain(|column| span.contains(&column.name));
        Ok(mutation)
    };
    mutations.iter().map(narrow).collect()
}

/// Restricts a row to the columns of the span and to the limit of undeclared columns.
fn page(key: &[u8], value: &Bytes, span: &ColumnSpan<'_>) -> std::result::Result<ColumnPage, Damage> {
    let row = codec::decode(value)?;
    let mut left = span.limit;
    let mut has_more = false;
    let mut columns = row.columns;
    columns.retain(|column| {
        if !span.contains(&column.name) {
            return false;
        }
        if matches!(column.name, ColumnName::Declared(_)) {
            return true;
        }
        let fits = left > 0;
        has_more |= !fits;
        left = left.saturating_sub(1);
        fits
    });
    let row = Mutation {
        effect: Effect::Replace,
        time: row.time,
        columns,
    };
    Ok(ColumnPage {
        row: StoredRow::new(Bytes::copy_from_slice(key), codec::encoded(&row)),
        has_more,
    })
}
