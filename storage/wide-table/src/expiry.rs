//! Time-to-live: determines the parts of a row that have expired at a given time.
//!
//! Expired data is hidden from every read at once. Its bytes are freed later. A flush drops expired rows among the
//! changed rows that it writes, except in tables with column groups, indexes or search indexes. A job of the scheduler
//! deletes the other expired rows.
//!
//! A row and its index entries have the same time, so they expire together. In a table whose cells expire one by one,
//! an entry has the time of the oldest value in its key, because the entry must vanish when this value expires.

use std::borrow::Cow;

use bytes::Bytes;
use tideline_model::{RowTtl, TtlScope};

use crate::codec;
use crate::error::Damage;
use crate::mutation::Mutation;
use crate::read::StoredRow;

/// Time-to-live of a table, and the time at which its data is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expiry {
    ttl: Option<RowTtl>,
    now: i64,
}

impl Expiry {
    /// Expiry of data that never expires.
    pub(crate) const NEVER: Self = Self { ttl: None, now: 0 };

    pub(crate) fn new(ttl: Option<RowTtl>, now: i64) -> Self {
        Self { ttl, now }
    }

    /// Returns true if whole rows expire.
    pub(crate) fn is_of_rows(&self) -> bool {
        self.ttl.is_some_and(|ttl| ttl.of == TtlScope::Row)
    }

    /// Returns true if the versions of columns expire one by one.
    pub(crate) fn is_of_cells(&self) -> bool {
        self.ttl.is_some_and(|ttl| ttl.of == TtlScope::Cell)
    }

    /// Returns true if data with this time has expired.
    pub(crate) fn has_expired(&self, time: i64) -> bool {
        self.ttl
            .is_some_and(|ttl| time.saturating_add(ttl.after) <= self.now)
    }

    /// Returns the latest time of data that has expired; `None` if data never expires.
    pub(crate) fn newest_expired(&self) -> Option<i64> {
        self.ttl.map(|ttl| self.now.saturating_sub(ttl.after))
    }

    /// Returns an encoded row without its expired parts; `None` if the row has expired.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the row is damaged.
    pub(crate) fn visible(&self, row: Bytes) -> Result<Option<Bytes>, Damage> {
        if self.ttl.is_none() {
            return Ok(Some(row));
        }
        if self.has_expired(codec::time_of(&row)?) {
            return Ok(None);
        }
        // In a uniform row all versions have the time of the row.
        if !self.is_of_cells() || !codec::may_have_versions(&row) {
            return Ok(Some(row));
        }
        let visible = self.visible_row(codec::decode(&row)?);
        Ok(visible.map(|row| {
            let mut out = Vec::new();
            codec::encode(&row, &mut out);
            Bytes::from(out)
        }))
    }

    /// Returns a stored row without its expired parts; `None` if the row has expired.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the row is damaged.
    pub(crate) fn visible_stored(&self, row: StoredRow) -> Result<Option<StoredRow>, Damage> {
        let value = self.visible(row.encoded().clone())?;
        Ok(value.map(|value| StoredRow::new(row.key, value)))
    }

    /// Returns a row without its expired parts; `None` if the row has expired. Copies the row only if its cells can
    /// expire.
    pub(crate) fn visible_of<'r>(&self, row: &'r Mutation<'static>) -> Option<Cow<'r, Mutation<'static>>> {
        if self.is_of_cells() {
            return self.visible_row(row.clone()).map(Cow::Owned);
        }
        (!self.has_expired(row.time)).then_some(Cow::Borrowed(row))
    }

    /// Returns a row without its expired parts; `None` if the row has expired.
    fn visible_row<'r>(&self, mut row: Mutation<'r>) -> Option<Mutation<'r>> {
        if self.has_expired(row.time) {
            return None;
        }
        if self.is_of_cells() {
            for column in &mut row.columns {
                column.versions.retain(|version| !self.has_expired(version.time));
            }
            row.columns.retain(|column| !column.versions.is_empty());
        }
        Some(row)
    }
}
