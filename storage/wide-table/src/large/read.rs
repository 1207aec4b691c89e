//! Reads of large values, piece by piece.
//!
//! A reader protects its value from removal. If the row is overwritten after it was read and before the reader is
//! created, the pieces may be missing. The caller then reads the row again.

use std::sync::Arc;

use bytes::Bytes;
use tideline_model::TableId;

use super::{LargeValue, PIECE_BYTES, open_piece, partition, piece_key};
use crate::error::{Damage, Result, WideError};
use crate::state::Part;
use crate::store::WideStore;

/// Reader of one value. Its pieces are not removed while the reader exists, unless the whole part or table is dropped.
#[derive(Debug)]
pub struct LargeReader {
    store: Arc<WideStore>,
    table: TableId,
    part: Part,
    value: LargeValue,
}

impl WideStore {
    /// Begins to read a value that a row references. Returns `None` if the pieces do not exist. The caller must then
    /// read the row again, because the row may have been overwritten. If the row still references the value, the value
    /// is damaged, unless [`is_elsewhere`](Self::is_elsewhere) returns true.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist, and the errors of the backend.
    pub fn read_large(
        self: &Arc<Self>,
        table: TableId,
        key: &[u8],
        value: LargeValue,
    ) -> Result<Option<LargeReader>> {
        let rules = self.rules(table)?;
        let Some(part) = self.large_part(table, &rules, key)? else {
            return Ok(None);
        };
        if !self.large.begin(value.id) {
            return Ok(None);
        }
        let reader = LargeReader {
            store: Arc::clone(self),
            table,
            part,
            value,
        };
        Ok(reader.stored(0)?.is_some().then_some(reader))
    }
}

impl WideStore {
    /// Returns true if this database never had the pieces of a value that a row references, because the row was
    /// attached from the archive of another database.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist, and [`WideError::Damaged`] if the key is damaged.
    pub fn is_elsewhere(&self, table: TableId, key: &[u8], value: &LargeValue) -> Result<bool> {
        let rules = self.rules(table)?;
        let number = rules.part_of(key);
        let number = number.map_err(|reason| WideError::Damaged { table, reason })?;
        Ok(self.state().is_elsewhere(table, &rules, (number, value.id)))
    }
}

impl LargeReader {
    /// Returns the value.
    pub fn value(&self) -> LargeValue {
        self.value
    }

    /// Returns the bytes from `offset` to the end of their piece, or to the end of the value; empty at the end. At most
    /// [`PIECE_BYTES`].
    ///
    /// # Errors
    ///
    /// [`WideError::Damaged`] if a piece is missing or does not match its checksum, [`WideError::LargeGone`] if the
    /// table or the part was dropped, and the errors of the backend.
    pub fn at(&self, offset: u64) -> Result<Bytes> {
        if offset >= self.value.bytes {
            return Ok(Bytes::new());
        }
        let damaged = |reason| WideError::Damaged {
            table: self.table,
            reason,
        };
        let (piece, start) = (offset / PIECE_BYTES as u64, offset % PIECE_BYTES as u64);
        // A value has at most 4,096 pieces.
        let piece = u32::try_from(piece).unwrap_or(u32::MAX);
        let Some(stored) = self.stored(piece)? else {
            let is_kept = self
                .store
                .state()
                .parts
                .get(&self.part.key())
                .is_some_and(|part| part.at == self.part.at);
            return Err(match is_kept {
                true => damaged(Damage("a piece of a large value is missing")),
                false => WideError::LargeGone(self.table),
            });
        };
        let content = open_piece(&self.value, piece, &stored).map_err(damaged)?;
        Ok(content.slice(start as usize..))
    }

    fn stored(&self, piece: u32) -> Result<Option<Bytes>> {
        self.store.log.check_lease()?;
        let backend = self.store.log.backend();
        let piece = backend.get(partition(self.part.at), &piece_key(self.value.id, piece))?;
        // If the lease has ended meanwhile, a newer owner may have freed the piece before it was read.
        self.store.log.check_lease()?;
        Ok(piece)
    }
}

impl Drop for LargeReader {
    fn drop(&mut self) {
        self.store.large.end(self.value.id);
    }
}
