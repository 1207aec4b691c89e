//! Uploads of large values: a stream is split into pieces, which are written.
//!
//! Memory is bounded by the pieces of one write. No row references the value before its row is written. If an upload
//! ends early, its pieces are therefore unreferenced, and [`gc`](super::gc) removes them.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tideline_backend::{RowChange, WRITE_BYTES_MAX};
use tideline_log::fail_points::around;
use tideline_model::{ColumnCompression, KeyRange, TableId};
use xxhash_rust::xxh3::Xxh3;

use super::{
    CHECKSUM_BYTES, Header, LARGE_BYTES_MAX, LargeKind, LargeValue, PIECE_BYTES, checksum_of, header_key,
    partition, piece_key, pieces_of, put_piece,
};
use crate::error::{Result, WideError};
use crate::mutation::ColumnName;
use crate::state::Part;
use crate::store::WideStore;

/// Number of pieces that are written at once. The embedded engine creates a file for each such write: more pieces mean
/// fewer files, and more memory per upload.
const BATCH_PIECES: usize = 15;
/// Maximum number of pieces in one group of changes of a write.
const GROUP_PIECES: usize = WRITE_BYTES_MAX / (PIECE_BYTES + 1_024);
/// Maximum memory of an upload, in bytes: the pieces of a write, and their copy in the storage engine.
pub const UPLOAD_MEMORY_BYTES: u64 = 2 * (BATCH_PIECES as u64 + 1) * PIECE_BYTES as u64;

/// Upload of one value. If it is dropped, [`WideStore::gc_large_values`] removes its pieces later.
pub struct LargeUpload {
    store: Arc<WideStore>,
    table: TableId,
    part: Part,
    header: Header,
    id: u64,
    kind: LargeKind,
    /// Compression of the column. Pieces have a form byte unless it is `Auto`.
    compression: ColumnCompression,
    /// Stored form of the piece that is being filled: space for the checksum, then the content so far.
    piece: Vec<u8>,
    /// Complete pieces that are not written yet.
    waiting: Vec<RowChange>,
    /// Number of complete pieces.
    pieces: u32,
    /// True if the header may be stored.
    has_header: bool,
    bytes: u64,
    hash: Box<Xxh3>,
    text: TextCheck,
}

impl fmt::Debug for LargeUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LargeUpload")
            .field("id", &self.id)
            .field("header", &self.header)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// UTF-8 check of a text that arrives in parts.
#[derive(Debug, Default)]
struct TextCheck {
    /// First bytes of a character whose other bytes have not arrived yet.
    open: Vec<u8>,
}

impl TextCheck {
    /// Checks the next bytes. Returns false if the text so far is not valid UTF-8.
    fn push(&mut self, mut bytes: &[u8]) -> bool {
        while !self.open.is_empty() {
            let Some((next, rest)) = bytes.split_first() else {
                return true;
            };
            self.open.push(*next);
            bytes = rest;
            match std::str::from_utf8(&self.open) {
                Ok(_) => self.open.clear(),
                Err(error) if error.error_len().is_some() => return false,
                Err(_) => {}
            }
        }
        match std::str::from_utf8(bytes) {
            Ok(_) => true,
            Err(error) if error.error_len().is_some() => false,
            Err(error) => {
                self.open.extend_from_slice(&bytes[error.valid_up_to()..]);
                true
            }
        }
    }
}

impl WideStore {
    /// Begins an upload of a value for a column of a row. The settings of the table must have an id for large values.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist, [`WideError::LargeGone`] if the part of the row was dropped,
    /// and the errors of the log.
    pub fn begin_large(
        self: &Arc<Self>,
        table: TableId,
        key: &[u8],
        column: &ColumnName<'_>,
        kind: LargeKind,
    ) -> Result<LargeUpload> {
        let rules = self.rules(table)?;
        rules.check(table)?;
        self.log.check_lease()?;
        let part = self.create_large_part(table, &rules, key)?;
        // The row gets a higher version later, and versions rise even across restarts. The id of a stored value is
        // therefore never assigned again.
        let id = self.next_version() as u64;
        self.large.begin(id);
        Ok(LargeUpload {
            store: Arc::clone(self),
            table,
            part,
            header: Header {
                column: column.clone().into_owned(),
                key: Bytes::copy_from_slice(key),
            },
            id,
            kind,
            compression: rules.codecs.of(column),
            piece: vec![0; CHECKSUM_BYTES],
            waiting: Vec::new(),
            pieces: 0,
            has_header: false,
            bytes: 0,
            hash: Box::new(Xxh3::new()),
            text: TextCheck::default(),
        })
    }
}

impl LargeUpload {
    /// Appends the next bytes of the value.
    ///
    /// # Errors
    ///
    /// [`WideError::TooLarge`] beyond [`LARGE_BYTES_MAX`], [`WideError::NotText`] if a text is not UTF-8,
    /// [`WideError::LargeGone`] if the table or the part of the row was dropped, and the errors of the backend.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        let size = self.bytes + bytes.len() as u64;
        if size > LARGE_BYTES_MAX {
            return Err(WideError::TooLarge {
                what: "the size of a value in bytes",
                limit: LARGE_BYTES_MAX,
                actual: size,
            });
        }
        if self.kind == LargeKind::Text && !self.text.push(bytes) {
            return Err(WideError::NotText);
        }
        self.hash.update(bytes);
        self.bytes = size;
        while !bytes.is_empty() {
            let room = CHECKSUM_BYTES + PIECE_BYTES - self.piece.len();
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            self.piece.extend_from_slice(now);
            bytes = rest;
            if self.piece.len() == CHECKSUM_BYTES + PIECE_BYTES {
                self.end_piece();
                if self.waiting.len() >= BATCH_PIECES {
                    self.write_waiting()?;
                }
            }
        }
        Ok(())
    }

    /// Writes the last pieces. On return, all pieces are durable and the upload holds no buffers. The caller must then
    /// write the value to its row, and call [`kept`](Self::kept), [`abandon`](Self::abandon) or [`hold`](Self::hold).
    ///
    /// # Errors
    ///
    /// The errors of [`write`](Self::write).
    pub fn finish(&mut self) -> Result<LargeValue> {
        if !self.text.open.is_empty() {
            return Err(WideError::NotText);
        }
        if self.piece.len() > CHECKSUM_BYTES {
            self.end_piece();
        }
        self.write_waiting()?;
        self.piece = Vec::new();
        Ok(LargeValue {
            id: self.id,
            kind: self.kind,
            bytes: self.bytes,
            checksum: self.hash.digest(),
            is_cut: false,
            has_forms: !self.compression.is_auto(),
        })
    }

    /// Ends the upload after its row was written.
    pub fn kept(self) {}

    /// Ends the upload, and protects its pieces until the process ends. Used if the outcome of the write of the row is
    /// unknown: the row may reference the value later.
    pub fn hold(self) {
        self.store.large.begin(self.id);
    }

    /// Ends the upload, and removes its pieces, because no row references them. If they cannot be removed now, the
    /// garbage collection removes them later.
    pub fn abandon(self) {
        if self.has_header
            && let Err(error) = self.store.remove_large(self.part, self.id)
        {
            tracing::warn!(%error, "the pieces of an abandoned value could not be removed; they are removed later");
        }
    }

    fn end_piece(&mut self) {
        let mut piece = std::mem::replace(&mut self.piece, Vec::with_capacity(CHECKSUM_BYTES + PIECE_BYTES));
        self.piece.resize(CHECKSUM_BYTES, 0);
        if self.compression.is_auto() {
            let checksum = checksum_of(self.id, self.pieces, &piece[CHECKSUM_BYTES..]);
            piece[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
        } else {
            piece = put_piece(self.id, self.pieces, &piece[CHECKSUM_BYTES..], self.compression);
        }
        self.waiting.push(RowChange {
            key: piece_key(self.id, self.pieces),
            value: Some(piece.into()),
        });
        self.pieces += 1;
    }

    /// Writes the waiting pieces, and before the first of them the header.
    ///
    /// The header is in the same sorted write as the first pieces. The embedded engine does not write a few bytes as a
    /// separate file: they would get into a file together with the count of commits, at the other end of the keys. The
    /// engine would then merge all pieces that follow with this file, and each merge holds a whole file in memory.
    fn write_waiting(&mut self) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return Ok(());
        }
        let headers = match self.has_header {
            true => Vec::new(),
            false => vec![RowChange {
                key: header_key(self.id),
                value: Some(self.header.encode()),
            }],
        };
        let loaded = around("wide", "large_pieces", || {
            self.store.load_pieces(self.table, self.part, headers, &waiting)
        });
        // After other errors, the header may be stored.
        self.has_header |= !matches!(loaded, Err(WideError::LargeGone(_)));
        loaded
    }
}

impl Drop for LargeUpload {
    fn drop(&mut self) {
        self.store.large.end(self.id);
    }
}

impl WideStore {
    /// Writes headers and pieces, each in the order of their keys. They are durable on return.
    ///
    /// # Errors
    ///
    /// [`WideError::LargeGone`] if the table or the part was dropped, and the errors of the log and of the backend.
    pub(crate) fn load_pieces(
        &self,
        table: TableId,
        part: Part,
        headers: Vec<RowChange>,
        pieces: &[RowChange],
    ) -> Result<()> {
        // Held until the end, so that the part is not freed meanwhile.
        let _writes = self.large.writes.lock();
        if !self.keeps_pieces(part) {
            return Err(WideError::LargeGone(table));
        }
        let mut groups = Vec::with_capacity(1 + pieces.len().div_ceil(GROUP_PIECES));
        if !headers.is_empty() {
            groups.push(headers);
        }
        groups.extend(pieces.chunks(GROUP_PIECES).map(<[RowChange]>::to_vec));
        self.log.check_lease()?;
        let stamp = self.log.stamps().next()?;
        let backend = self.log.backend();
        Ok(backend.load_sorted(partition(part.at), &groups, stamp)?)
    }

    /// Returns true if a part of pieces exists and was not dropped. The caller holds the lock of the writes of pieces.
    pub(super) fn keeps_pieces(&self, part: Part) -> bool {
        self.state().parts.get(&part.key()).map(|part| part.at) == Some(part.at)
            && self.tables().keeps(part.at.table, part.number())
    }

    /// Removes the pieces of a value, then its header. An interrupted removal is repeated by the next garbage
    /// collection.
    pub(super) fn remove_large(&self, part: Part, id: u64) -> Result<()> {
        let _writes = self.large.writes.lock();
        let backend = self.log.backend();
        let remove = |range: &KeyRange| -> Result<()> {
            let stamp = self.log.stamps().next()?;
            Ok(backend.remove_rows(partition(part.at), range, stamp)?)
        };
        remove(&pieces_of(id))?;
        remove(&KeyRange::prefix(&header_key(id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_checked_wherever_it_is_cut() {
        let text = "aé–😀z".as_bytes();
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let mut check = TextCheck::default();
                for part in [&text[..first], &text[first..second], &text[second..]] {
                    assert!(check.push(part), "{first} {second}");
                }
                assert!(check.open.is_empty());
            }
        }
        let mut check = TextCheck::default();
        assert!(check.push(b"a\xe2\x80") && !check.push(b"z"));
        assert!(!TextCheck::default().push(b"\xff"));
        let mut check = TextCheck::default();
        assert!(check.push(b"\xf0\x9f") && !check.open.is_empty());
    }
}
