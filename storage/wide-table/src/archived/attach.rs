//! Attachment of an archived part that another database wrote. Its rows are read from the files of that database.
//!
//! One edit of the manifest makes the part visible. Before that, writes to the part are refused, and the row buffer is
//! flushed, so no row of the part can exist elsewhere. A crash before the edit leaves stored locations that no part in
//! the manifest uses; the next start frees them.
//!
//! An attached part has no entries in secondary indexes and no documents in search indexes. The caller builds the
//! indexes of the table again before the first part is attached.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use tideline_archive::rows::RowsDescription;
use tideline_backend::{PartRef, RowChange};
use tideline_key_codec::layout::KeyLayout;
use tideline_log::fail_points::around;
use tideline_log::{LogError, Manifest, Refusal};
use tideline_model::{TableId, Tier};

use super::ArchivedFiles;
use super::form::RowForm;
use super::values::rows_of;
use super::write::{Written, unwritable};
use crate::division::{ALL_PARTS, PARTS_MAX};
use crate::error::Result;
use crate::state::{Part, PartDetail, PartKey, put_of};
use crate::store::WideStore;
use crate::tables::{TableRules, Tables};

/// Part of another database to be attached.
#[derive(Debug)]
pub struct PartToAttach<'a> {
    /// Table of this database that gets the part.
    pub table: TableId,
    /// Name or address of the target.
    pub target: &'a str,
    /// Object name of the description.
    pub key: &'a str,
    /// Description of the part.
    pub described: &'a RowsDescription,
}

/// Result of an attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachEnd {
    /// The rows can be read. Holds the number of rows.
    Attached(u64),
    /// Nothing has changed. Holds the reason.
    Refused(String),
}

/// Refuses writes to a part that is being attached, until the value is dropped.
struct Closing<'s> {
    store: &'s WideStore,
    part_key: PartKey,
}

impl<'s> Closing<'s> {
    /// Begins to refuse writes to a part. Returns `None` if the part is already being attached.
    fn begin(store: &'s WideStore, part_key: PartKey) -> Option<Self> {
        let mut is_new = false;
        store.change_state(|state| {
            is_new = state.attaching.insert(part_key);
            state.closings += 1;
        });
        is_new.then_some(Self { store, part_key })
    }
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.store.change_state(|state| {
            state.attaching.remove(&self.part_key);
        });
    }
}

impl WideStore {
    /// Attaches a part. `flush` must write all rows of the row buffer that were committed before the call. The caller
    /// has verified the files, and has compared the columns of the description with those of the table.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`](crate::WideError::NoTable) if the table does not exist, and the errors of `flush`, of the
    /// backend and of the log. After an error, the part may be attached or not.
    pub fn attach_part(
        self: &Arc<Self>,
        part: &PartToAttach<'_>,
        flush: &dyn Fn() -> Result<()>,
    ) -> Result<AttachEnd> {
        let (table, number) = (part.table, part.described.number);
        let refused = |reason: String| Ok(AttachEnd::Refused(reason));
        let rules = self.rules(table)?;
        if let Some(reason) = self.not_attachable(table, number)? {
            return refused(reason);
        }
        let (written, mut detail) = match written_of(part, &rules) {
            Ok(written) => written,
            Err(reason) => return refused(reason),
        };
        let at = PartRef {
            part: self.log.next_part(),
            table,
            tier: Tier::Cold,
        };
        self.put_archived(at, &written)?;
        let Some(_closing) = Closing::begin(self, (table, number)) else {
            self.log.backend().reclaim_part(at)?;
            return refused("another request is attaching the part".to_owned());
        };
        let is_flushed = self.flush_closed(table, number, flush)?;
        let now = self.log.trusted_now().now.nanos();
        self.versions.take_over(detail.newest, now);
        self.versions.record(&mut detail);
        if is_flushed && self.put_attached(Part { at, detail })? {
            self.with_written_parts(table, |numbers| {
                numbers.insert(number);
            })?;
            return Ok(AttachEnd::Attached(described_rows(part.described)));
        }
        self.log.backend().reclaim_part(at)?;
        refused(OCCUPIED.to_owned())
    }

    /// Returns the object name of the description of each archived part of a table.
    ///
    /// # Errors
    ///
    /// The errors of the backend, and [`WideError::Damaged`](crate::WideError::Damaged) if a list cannot be read.
    pub fn archived_descriptions(&self, table: TableId) -> Result<HashSet<String>> {
        let state = self.state();
        let archived = state.parts_of(table, ALL_PARTS).filter(|part| part.is_archived());
        let backend = self.log.backend().as_ref();
        let key = |part: &Part| Ok(self.archived.open(backend, part.at)?.files.description.clone());
        archived.map(key).collect()
    }

    /// Returns the reason why the part cannot be attached to the table, apart from its files; `None` if it can be
    /// attached. Takes time linear in the number of rows that are not flushed yet.
    ///
    /// # Errors
    ///
    /// The errors of [`parts`](Self::parts).
    pub fn not_attachable(&self, table: TableId, number: i32) -> Result<Option<String>> {
        if !self.rules(table)?.keeps(number) {
            return Ok(Some("the table has dropped this part".to_owned()));
        }
        let parts = self.parts(table)?;
        if parts.iter().any(|part| part.number == number) {
            return Ok(Some(OCCUPIED.to_owned()));
        }
        let is_full = parts.len() >= PARTS_MAX;
        Ok(is_full.then(|| format!("the table has {PARTS_MAX} parts already")))
    }

    /// Publishes an attached part. Returns false if the table already has a part with this number.
    fn put_attached(self: &Arc<Self>, part: Part) -> Result<bool> {
        let table = part.at.table;
        let _ending = self.begin_end();
        if self.state().parts.contains_key(&part.key()) {
            return Ok(false);
        }
        let put = put_of(&part);
        let edit = |current: &Arc<Manifest>| match Tables::new(current, &self.tables())
            .keeps(table, part.number())
        {
            true => Ok(self.edit_with_ids(current, vec![put.clone()])),
            false => Err(LogError::Refused(Refusal::TableDropped(table))),
        };
        around("wide_attach", "edit", || {
            self.log.edit(edit, |_| {
                self.change_state(|state| {
                    state.parts.insert(part.key(), part);
                    state.closings += 1;
                    state.count_publication();
                });
            })
        })?;
        Ok(true)
    }
}

/// Reason for refusing a part with the number of a part that already has rows.
const OCCUPIED: &str =
    "the table has rows in this part already; attach it under another name, or drop the part";

fn described_rows(described: &RowsDescription) -> u64 {
    described.files.iter().map(|file| file.rows).sum()
}

/// Returns the data that the engine stores for an attached part, and the content of its manifest row. On error, returns
/// the reason why the description cannot be used.
fn written_of(
    part: &PartToAttach<'_>,
    rules: &TableRules,
) -> std::result::Result<(Written, PartDetail), String> {
    let described = part.described;
    let wide = described.spec.wide.as_deref();
    let wide = wide.ok_or("its settings have no key")?;
    let layout = KeyLayout::new(&wide.key, true).map_err(|error| error.to_string())?;
    let form = RowForm::new(wide, &layout).map_err(|error| error.to_string())?;
    if form.schema.columns() != described.columns {
        return Err("its columns are not those of its settings".to_owned());
    }
    let mut detail: PartDetail = serde_json::from_value(described.detail.clone())
        .map_err(|error| format!("the data of the store about the part cannot be read: {error}"))?;
    detail.table = part.table.0;
    detail.number = Some(described.number);
    // The journal of this database has no change of the part.
    detail.search_end = 0;
    // The database that archived the rows may store the pieces of their streamed values, if the files do not have them.
    // The ids of values are versions, so they are not above the newest version.
    detail.values_elsewhere_to = detail.values_elsewhere_to.max(Some(detail.newest));
    let values = described.values.as_ref();
    detail.set_archived(values.is_some());
    let written = Written {
        files: ArchivedFiles {
            target: part.target.to_owned(),
            description: part.key.to_owned(),
            files: described.files.clone(),
            columns: described.columns.clone(),
            declared: form.declared().to_vec(),
            values: described.value_files().to_vec(),
        },
        groups: groups_of(described, rules)?,
        values: values.map(rows_of).transpose()?.unwrap_or_default(),
    };
    Ok((written, detail))
}

/// Returns the stored locations of the row groups. On error, returns the reason why they are not valid.
fn groups_of(described: &RowsDescription, rules: &TableRules) -> std::result::Result<Vec<RowChange>, String> {
    let mut groups: Vec<RowChange> = Vec::with_capacity(described.groups.len());
    let mut rows = 0;
    for group in &described.groups {
        let last = group.last_key().ok_or("the key of a row group is not valid")?;
        let is_after = groups.last().is_none_or(|before| before.key[..] < last[..]);
        if !is_after || rules.part_of(&last) != Ok(described.number) {
            return Err("the row groups are not in order, or belong to another part".to_owned());
        }
        let location = &group.location;
        let end = location.start.saturating_add(u64::from(location.bytes));
        let file = described.files.get(location.file as usize);
        if file.is_none_or(|file| end > file.bytes) {
            return Err("a row group is outside of its file".to_owned());
        }
        rows += u64::from(location.rows);
        let value = serde_json::to_vec(location).map_err(|error| unwritable(&error).to_string())?;
        groups.push(RowChange {
            key: last.into(),
            value: Some(Bytes::from(value)),
        });
    }
    match rows == described_rows(described) {
        true => Ok(groups),
        false => Err("the row groups are not complete".to_owned()),
    }
}
