//! Values of ordinary writes that are stored in pieces.
//!
//! Before the entry of the rows is written, the values above 64 KiB are stored under fresh ids, with their headers, in
//! as few synced writes as possible. Each value is in one write, which the storage engine applies as a whole, so no
//! piece is ever stored without its header. The rows then hold references instead of the values.
//!
//! Each piece is compressed if this makes it smaller, because the blocks of a part would also compress the value. The
//! compression of the column applies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tideline_backend::{RowChange, WRITE_BYTES_MAX, WRITE_ROWS_MAX};
use tideline_log::fail_points::around;
use tideline_model::{ColumnCompression, Durability, TableId};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Header, LARGE_BYTES_MIN, LargeKind, LargeUses, LargeValue, PIECE_BYTES, header_key, partition, piece_key,
    put_piece,
};
use crate::error::{Result, WideError};
use crate::mutation::ColumnName;
use crate::state::Part;
use crate::store::WideStore;
use crate::value::CellValue;
use crate::write::COLUMN_BYTES_MAX;

/// Value of a row that is to be stored in pieces.
#[derive(Debug)]
pub struct ValueToCut<'v> {
    /// Stored key of the row.
    pub key: &'v [u8],
    /// Stored name of the column.
    pub column: &'v ColumnName<'static>,
    /// The value.
    pub value: &'v CellValue<'static>,
}

impl ValueToCut<'_> {
    /// Returns true if values like this one are stored in pieces: texts, bytes and JSON documents above 64 KiB that a
    /// column can hold.
    pub fn is_cut(value: &CellValue<'_>) -> bool {
        content_of(value)
            .is_some_and(|(_, content)| content.len() > LARGE_BYTES_MIN && content.len() <= COLUMN_BYTES_MAX)
    }
}

/// Stored value whose row is not written yet. Protects the pieces from removal until it is dropped.
#[derive(Debug)]
pub struct CutValue {
    store: Arc<WideStore>,
    part: Part,
    value: LargeValue,
}

impl CutValue {
    /// Returns the reference for the row.
    pub fn value(&self) -> LargeValue {
        self.value
    }

    /// Protects the pieces until the process ends. Used if the outcome of the write of the row is unknown: the row may
    /// reference the value later.
    pub fn hold(self) {
        self.store.large.begin(self.value.id);
    }
}

impl Drop for CutValue {
    fn drop(&mut self) {
        self.store.large.end(self.value.id);
    }
}

impl WideStore {
    /// Stores values in pieces, durably. Returns one element for each element of `values`. An element is `None` if the
    /// value is of a type that is not stored in pieces, or if the part of its row cannot be written; in the second
    /// case, the write of the row reports the reason. The settings of the table must have an id for large values.
    /// After the rows are written, the caller drops or [holds](CutValue::hold) each value, or passes it to
    /// [`abandon_cut`](Self::abandon_cut).
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist, [`WideError::LargeGone`] if the table or a part was dropped
    /// meanwhile, and the errors of the log and of the backend.
    pub fn cut_values(
        self: &Arc<Self>,
        table: TableId,
        values: &[ValueToCut<'_>],
    ) -> Result<Vec<Option<CutValue>>> {
        let rules = self.rules(table)?;
        rules.check(table)?;
        self.log.check_lease()?;
        let mut cut = Vec::with_capacity(values.len());
        let mut batch = Batch::default();
        for value in values {
            let Some((kind, content)) = content_of(value.value) else {
                cut.push(None);
                continue;
            };
            let part = match self.create_large_part(table, &rules, value.key) {
                Ok(part) => part,
                Err(WideError::LargeGone(_) | WideError::TooLarge { .. }) => {
                    cut.push(None);
                    continue;
                }
                Err(error) => return Err(error),
            };
            // This id is never assigned again; see `begin_large`.
            let id = self.next_version() as u64;
            self.large.begin(id);
            cut.push(Some(CutValue {
                store: Arc::clone(self),
                part,
                value: LargeValue {
                    id,
                    kind,
                    bytes: content.len() as u64,
                    checksum: xxh3_64(content),
                    is_cut: true,
                    has_forms: true,
                },
            }));
            let header = Header {
                column: value.column.clone(),
                key: Bytes::copy_from_slice(value.key),
            };
            let changes = changes_of(id, &header, content, rules.codecs.of(value.column));
            if !batch.has_room(part, &changes) {
                self.write_cut(table, &mut batch)?;
            }
            batch.add(part, changes);
        }
        self.write_cut(table, &mut batch)?;
        Ok(cut)
    }

    /// Writes the values of a batch, and empties it. The caller that gets the lock also writes the batches of waiting
    /// callers, as many as fit into one write, so that concurrent writes share a sync.
    fn write_cut(&self, table: TableId, batch: &mut Batch) -> Result<()> {
        let Batch {
            part: Some(part),
            changes,
            bytes,
        } = std::mem::take(batch)
        else {
            return Ok(());
        };
        let own = Arc::new(PieceWrite {
            part,
            changes,
            bytes,
            is_written: AtomicBool::new(false),
        });
        self.large.waiting.lock().push(Arc::clone(&own));
        let _writes = self.large.writes.lock();
        if own.is_written.load(Ordering::Acquire) {
            return Ok(());
        }
        let together = self.large.taken(&own);
        if !self.keeps_pieces(part) {
            return Err(WideError::LargeGone(table));
        }
        let changes: Vec<RowChange> = together.iter().flat_map(|one| one.changes.clone()).collect();
        self.log.check_lease()?;
        let stamp = self.log.stamps().next()?;
        around("wide", "cut_values", || {
            let backend = self.log.backend();
            backend.write(partition(part.at), &changes, stamp, Durability::Synced)
        })?;
        // After an error, each of the other callers writes its values again. This repetition changes nothing.
        for one in &together {
            one.is_written.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Removes the pieces of values whose rows were not written, so that no row references them. If they cannot be
    /// removed now, garbage collection removes them later.
    pub fn abandon_cut(&self, values: &[CutValue]) {
        for value in values {
            if let Err(error) = self.remove_large(value.part, value.value.id) {
                tracing::warn!(%error, "the pieces of an abandoned value could not be removed; they are removed later");
                return;
            }
        }
    }
}

/// Batch of one caller that waits for the lock of the writes of pieces.
#[derive(Debug)]
pub(super) struct PieceWrite {
    part: Part,
    changes: Vec<RowChange>,
    bytes: usize,
    /// True if the holder of the lock has written the batch.
    is_written: AtomicBool,
}

impl LargeUses {
    /// Removes a batch from the waiting batches, together with others of the same part that fit into the same write.
    fn taken(&self, own: &Arc<PieceWrite>) -> Vec<Arc<PieceWrite>> {
        let (mut rows, mut bytes) = (own.changes.len(), own.bytes);
        let mut taken = vec![Arc::clone(own)];
        self.waiting.lock().retain(|other| {
            if Arc::ptr_eq(own, other) {
                return false;
            }
            let fits = other.part.at == own.part.at
                && rows + other.changes.len() <= WRITE_ROWS_MAX
                && bytes + other.bytes <= WRITE_BYTES_MAX;
            if fits {
                rows += other.changes.len();
                bytes += other.bytes;
                taken.push(Arc::clone(other));
            }
            !fits
        });
        taken
    }
}

/// Changes of one write.
#[derive(Default)]
struct Batch {
    part: Option<Part>,
    changes: Vec<RowChange>,
    bytes: usize,
}

impl Batch {
    fn has_room(&self, part: Part, changes: &[RowChange]) -> bool {
        let is_same = self.part.is_none_or(|own| own.at == part.at);
        is_same
            && self.changes.len() + changes.len() <= WRITE_ROWS_MAX
            && self.bytes + bytes_of(changes) <= WRITE_BYTES_MAX
    }

    fn add(&mut self, part: Part, changes: Vec<RowChange>) {
        self.part = Some(part);
        self.bytes += bytes_of(&changes);
        self.changes.extend(changes);
    }
}

fn bytes_of(changes: &[RowChange]) -> usize {
    let of = |change: &RowChange| change.key.len() + change.value.as_ref().map_or(0, Bytes::len);
    changes.iter().map(of).sum()
}

/// Returns the header and the pieces of a value.
fn changes_of(id: u64, header: &Header, content: &[u8], compression: ColumnCompression) -> Vec<RowChange> {
    let header = RowChange {
        key: header_key(id),
        value: Some(header.encode()),
    };
    let pieces = (0_u32..)
        .zip(content.chunks(PIECE_BYTES))
        .map(|(piece, content)| RowChange {
            key: piece_key(id, piece),
            value: Some(put_piece(id, piece, content, compression).into()),
        });
    std::iter::once(header).chain(pieces).collect()
}

/// Returns the content of a value that can be stored in pieces, and its kind; `None` for other types.
pub(super) fn content_of<'v>(value: &'v CellValue<'_>) -> Option<(LargeKind, &'v [u8])> {
    match value {
        CellValue::String(text) => Some((LargeKind::Text, text.as_bytes())),
        CellValue::Binary(bytes) => Some((LargeKind::Binary, bytes)),
        CellValue::Json(text) => Some((LargeKind::Json, text.as_bytes())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::large::{CHECKSUM_BYTES, form, open_piece};

    #[test]
    fn the_stored_form_of_a_piece_never_changes() {
        let header = Header {
            column: ColumnName::Declared(3),
            key: Bytes::from_static(b"k"),
        };
        let text = "ab".repeat(PIECE_BYTES / 2) + "c";
        let changes = changes_of(9, &header, text.as_bytes(), ColumnCompression::Auto);
        let value = LargeValue {
            id: 9,
            kind: LargeKind::Text,
            bytes: text.len() as u64,
            checksum: 0,
            is_cut: true,
            has_forms: true,
        };
        assert_eq!(changes.len(), 3);
        assert_eq!(changes[0].value.as_deref(), Some(&header.encode()[..]));
        let stored: Vec<Bytes> = changes[1..]
            .iter()
            .map(|change| change.value.clone().expect("a piece"))
            .collect();
        assert!(stored[0].len() < 1_000 && stored[0][CHECKSUM_BYTES] == form::ZSTD);
        // Checksum, form, content.
        assert_eq!(
            stored[1][..],
            [
                &xxhash_rust::xxh3::xxh3_64_with_seed(&[0, b'c'], 10).to_le_bytes()[..],
                &[0, b'c']
            ]
            .concat()
        );
        let read: Vec<u8> = (0..)
            .zip(&stored)
            .flat_map(|(piece, stored)| open_piece(&value, piece, stored).expect("an intact piece"))
            .collect();
        assert!(read == text.as_bytes());
        for (compression, form) in [
            (ColumnCompression::None, form::PLAIN),
            (ColumnCompression::Lz4, form::LZ4),
            (ColumnCompression::Zstd, form::ZSTD),
        ] {
            let changes = changes_of(9, &header, text.as_bytes(), compression);
            let stored = changes[1].value.clone().expect("a piece");
            assert_eq!(stored[CHECKSUM_BYTES], form, "{compression:?}");
            let read = open_piece(&value, 0, &stored).expect("an intact piece");
            assert!(read[..] == text.as_bytes()[..PIECE_BYTES], "{compression:?}");
            let mut damaged = stored.to_vec();
            damaged[CHECKSUM_BYTES + 5] ^= 1;
            assert!(open_piece(&value, 0, &damaged.into()).is_err(), "{compression:?}");
        }
        for at in [0, CHECKSUM_BYTES, CHECKSUM_BYTES + 5] {
            let mut damaged = stored[0].to_vec();
            damaged[at] ^= 1;
            assert!(open_piece(&value, 0, &damaged.into()).is_err(), "{at}");
        }
    }
}
