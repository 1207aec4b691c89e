//! Reads of large values, piece by piece.
//!
//! A reader protects its value from removal. If the row is overwritten after it was read and before the reader is
//! created, the pieces may be missing. The caller then reads the row again. A piece that is not in the storage engine
//! is read from the archive, if its row is there. The part may move to the archive, or be restored, during a read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tideline_model::TableId;

use super::{LargeValue, PIECE_BYTES, open_piece, partition, piece_key};
use crate::archived::PieceGroup;
use crate::error::{Damage, Result, WideError};
use crate::store::WideStore;

/// Reader of one value. Its pieces are not removed while the reader exists, unless the whole part or table is dropped.
#[derive(Debug)]
pub struct LargeReader {
    store: Arc<WideStore>,
    table: TableId,
    /// Number of the part of the row.
    number: i32,
    value: LargeValue,
    /// True if the reader protects the pieces in the storage engine. False while they are being removed. They are then
    /// read from the archive.
    is_held: AtomicBool,
    /// Group of pieces that was read last from the archive.
    group: Mutex<Option<Arc<PieceGroup>>>,
}

impl WideStore {
    /// Begins to read a value that a row references. Returns `None` if the pieces do not exist. The caller must then
    /// read the row again, because the row may have been overwritten. If the row still references the value, the value
    /// is damaged, unless [`is_elsewhere`](Self::is_elsewhere) returns true.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist, [`WideError::Archive`] if a file of the archive cannot be
    /// read, and the errors of the backend.
    pub fn read_large(
        self: &Arc<Self>,
        table: TableId,
        key: &[u8],
        value: LargeValue,
    ) -> Result<Option<LargeReader>> {
        let rules = self.rules(table)?;
        let number = rules.part_of(key);
        let number = number.map_err(|reason| WideError::Damaged { table, reason })?;
        if !rules.keeps(number) {
            return Ok(None);
        }
        let reader = LargeReader {
            store: Arc::clone(self),
            table,
            number,
            value,
            is_held: AtomicBool::new(self.large.begin(value.id)),
            group: Mutex::default(),
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
    /// table or the part was dropped, [`WideError::Archive`] if a file of the archive cannot be read, and the errors of
    /// the backend.
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
            return Err(match self.is_kept() {
                true => damaged(Damage("a piece of a large value is missing")),
                false => WideError::LargeGone(self.table),
            });
        };
        let content = open_piece(&self.value, piece, &stored).map_err(damaged)?;
        Ok(content.slice(start as usize..))
    }

    /// Returns true if neither the table nor the part was dropped.
    fn is_kept(&self) -> bool {
        let rules = self.store.rules(self.table);
        rules.is_ok_and(|rules| {
            let is_archived = self.store.has_archived_values(self.table, self.number);
            let is_stored = self.store.large_part_of(&rules, self.number).is_some();
            is_stored || (is_archived && rules.keeps(self.number))
        })
    }

    fn stored(&self, piece: u32) -> Result<Option<Bytes>> {
        self.store.log.check_lease()?;
        let mut found = self.in_engine(piece)?;
        if found.is_none() {
            let part = (self.table, self.number);
            found = self
                .store
                .archived_piece(part, (self.value.id, piece), &self.group)?;
        }
        if found.is_none() {
            // The part may have been restored since the first look.
            found = self.in_engine(piece)?;
        }
        // If the lease has ended meanwhile, a newer owner may have freed the piece before it was read.
        self.store.log.check_lease()?;
        Ok(found)
    }

    /// Protects the pieces in the storage engine, unless they are being removed. Returns true if they are protected.
    /// The caller must not hold the lock of `group`.
    fn hold(&self) -> bool {
        if self.is_held.load(Ordering::Acquire) {
            return true;
        }
        // Only one of several threads may begin the use.
        let _group = self.group.lock();
        if !self.is_held.load(Ordering::Acquire) {
            let is_held = self.store.large.begin(self.value.id);
            self.is_held.store(is_held, Ordering::Release);
        }
        self.is_held.load(Ordering::Acquire)
    }

    /// Returns a piece that is in the storage engine. The caller must not hold the lock of `group`.
    fn in_engine(&self, piece: u32) -> Result<Option<Bytes>> {
        let rules = match self.store.rules(self.table) {
            Err(WideError::NoTable(_)) => return Ok(None),
            rules => rules?,
        };
        let part = self.store.large_part_of(&rules, self.number);
        let Some(part) = part.filter(|_| self.hold()) else {
            return Ok(None);
        };
        let backend = self.store.log.backend();
        Ok(backend.get(partition(part.at), &piece_key(self.value.id, piece))?)
    }
}

impl Drop for LargeReader {
    fn drop(&mut self) {
        if *self.is_held.get_mut() {
            self.store.large.end(self.value.id);
        }
    }
}
