//! Large values: texts, bytes and JSON documents that are stored apart from their rows, in pieces.
//!
//! The row holds a [`LargeValue`], which is a reference to the pieces. The pieces are stored under an id from the range
//! of table ids. The part of the pieces has the same number as the part of the row, so both are dropped together. The
//! life of a value:
//!
//! 1. [`upload`] writes the header of the value, then its pieces, directly into the storage engine. Both are durable
//!    before the journal gets the entry of the row. A row therefore never references pieces that do not exist.
//! 2. [`read`] returns the pieces in order, each compared with its checksum.
//! 3. [`gc`] removes the pieces of values that no version of any column references: overwritten, deleted and
//!    abandoned values. A header holds the key of the row of its value, so the collector reads one row per value.
//!
//! If the row moves to the archive, its streamed values move to separate files of its part (`archived::values`). [`gc`]
//! then removes their pieces, [`read`] returns them from the files, and a restore of the part stores them again.
//!
//! There are two kinds of large values. *Streamed* values arrive in separate requests, and rows show them as
//! references. *Cut* values arrive with their rows: an ordinary write stores them in pieces ([`cut`]), and each read of
//! the row returns them like other values ([`whole`]).
//!
//! An id is used only once, by the upload or the write to which it was assigned. A value that no row references, and
//! that is not being uploaded, therefore stays unreferenced for ever.

pub mod check;
pub mod cut;
pub mod gc;
pub mod read;
pub mod upload;
pub mod whole;

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tideline_backend::{PartRef, Partition};
use tideline_model::{ColumnCompression, KeyRange, TableId};
use tideline_wire::varint;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::block::{pack_lz4, unpack_lz4};
use crate::codec;
use crate::codecs::ZSTD_LEVEL;
use crate::division::{PARTS_MAX, WHOLE};
use crate::error::{Damage, Result, WideError};
use crate::mutation::{ColumnName, Mutation};
use crate::state::{Part, PartKey};
use crate::store::WideStore;
use crate::tables::TableRules;
use crate::value::{CellValue, number, sized};

/// Maximum size of a value, in bytes.
pub const LARGE_BYTES_MAX: u64 = 1 << 30;
/// Size above which an upload stores a value in pieces, in bytes. Smaller values are part of their row.
pub const LARGE_BYTES_MIN: usize = 64 << 10;
/// Size of a piece, in bytes; the last piece of a value can be smaller.
pub const PIECE_BYTES: usize = 256 << 10;

/// Bucket of a part that holds headers and pieces.
const PIECES_BUCKET: u16 = 0;
/// First byte of the key of a header, which is followed by the id of the value.
const HEADER: u8 = 0;
/// First byte of the key of a piece, which is followed by the id of the value and the number of the piece.
const PIECE: u8 = 1;
/// Format of a header.
const HEADER_FORMAT: u8 = 1;
/// Bytes of the checksum in front of a piece.
const CHECKSUM_BYTES: usize = 8;

/// Kind of the content of a large value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LargeKind {
    /// UTF-8 text.
    Text,
    /// Bytes.
    Binary,
    /// JSON text. Only values of ordinary writes have this kind.
    Json,
}

/// Reference to a value that is stored in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LargeValue {
    /// Id of the value, unique in the store and never reused.
    pub(crate) id: u64,
    /// Kind of the content.
    pub kind: LargeKind,
    /// Size in bytes.
    pub bytes: u64,
    /// xxh3 (64 bits) of the content.
    pub checksum: u64,
    /// True if an ordinary write has stored the value, so that reads return it like other values.
    pub is_cut: bool,
    /// True if the pieces have a form byte, so that they can be compressed. Always true for cut values.
    pub(crate) has_forms: bool,
}

impl LargeValue {
    /// Returns the number of pieces.
    pub(crate) fn pieces(&self) -> u32 {
        let pieces = self.bytes.div_ceil(PIECE_BYTES as u64);
        u32::try_from(pieces).unwrap_or(u32::MAX)
    }

    /// Returns true if the reference is to a cut value with this content.
    pub(crate) fn is_the_cut_of(&self, value: &CellValue<'_>) -> bool {
        let content = cut::content_of(value);
        self.is_cut
            && content.is_some_and(|(kind, content)| {
                kind == self.kind && content.len() as u64 == self.bytes && xxh3_64(content) == self.checksum
            })
    }

    /// Returns the stored form.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![match (self.kind, self.is_cut) {
            (LargeKind::Text, false) if self.has_forms => 6,
            (LargeKind::Binary, false) if self.has_forms => 7,
            (LargeKind::Text, false) => 1,
            (LargeKind::Binary, false) => 2,
            (LargeKind::Text, true) => 3,
            (LargeKind::Binary, true) => 4,
            (LargeKind::Json, _) => 5,
        }];
        varint::put(self.id, &mut out);
        varint::put(self.bytes, &mut out);
        out.extend_from_slice(&self.checksum.to_le_bytes());
        out
    }

    /// Decodes the stored form.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the bytes are not the stored form of a reference.
    pub(crate) fn decode(bytes: &[u8]) -> std::result::Result<Self, Damage> {
        let (kind, is_cut, has_forms, mut rest) = match bytes.split_first() {
            Some((1, rest)) => (LargeKind::Text, false, false, rest),
            Some((2, rest)) => (LargeKind::Binary, false, false, rest),
            Some((3, rest)) => (LargeKind::Text, true, true, rest),
            Some((4, rest)) => (LargeKind::Binary, true, true, rest),
            Some((5, rest)) => (LargeKind::Json, true, true, rest),
            Some((6, rest)) => (LargeKind::Text, false, true, rest),
            Some((7, rest)) => (LargeKind::Binary, false, true, rest),
            _ => return Err(Damage("a large value has an unknown kind")),
        };
        let id = number(&mut rest)?;
        let bytes = number(&mut rest)?;
        if bytes > LARGE_BYTES_MAX {
            return Err(Damage("a large value has an impossible size"));
        }
        let checksum = rest
            .try_into()
            .map_err(|_| Damage("the checksum of a large value is cut off"))?;
        Ok(Self {
            id,
            kind,
            bytes,
            checksum: u64::from_le_bytes(checksum),
            is_cut,
            has_forms,
        })
    }
}

/// Returns the large values that the versions of a row reference.
pub(crate) fn named_in<'r>(row: &'r Mutation<'_>) -> impl Iterator<Item = LargeValue> + 'r {
    let versions = row.columns.iter().flat_map(|column| &column.versions);
    versions.filter_map(|version| match &version.value {
        CellValue::Large(large) => Some(*large),
        _ => None,
    })
}

pub(crate) fn header_key(id: u64) -> Bytes {
    [&[HEADER][..], &id.to_be_bytes()].concat().into()
}

pub(crate) fn piece_key(id: u64, piece: u32) -> Bytes {
    [&[PIECE][..], &id.to_be_bytes(), &piece.to_be_bytes()]
        .concat()
        .into()
}

/// Returns the range of the pieces of a value.
fn pieces_of(id: u64) -> KeyRange {
    KeyRange::prefix(&[&[PIECE][..], &id.to_be_bytes()].concat())
}

/// Returns the partition of the headers and pieces of a part.
pub(crate) fn partition(part: PartRef) -> Partition {
    Partition::part(part, PIECES_BUCKET)
}

/// Returns the checksum of a piece. It depends on the id of the value and on the number of the piece, so that exchanged
/// pieces are detected.
fn checksum_of(id: u64, piece: u32, content: &[u8]) -> u64 {
    xxh3_64_with_seed(content, id.wrapping_add(u64::from(piece)))
}

/// Checks a stored piece and returns its content.
pub(crate) fn open_piece(
    value: &LargeValue,
    piece: u32,
    stored: &Bytes,
) -> std::result::Result<Bytes, Damage> {
    let (checksum, content) = stored
        .split_first_chunk::<CHECKSUM_BYTES>()
        .ok_or(Damage("a piece of a large value is cut off"))?;
    let before = u64::from(piece) * PIECE_BYTES as u64;
    let expected = value.bytes.saturating_sub(before).min(PIECE_BYTES as u64);
    let has_size = |content: &[u8]| match content.len() as u64 == expected {
        true => Ok(()),
        false => Err(Damage(
            "a piece of a large value has another size than the value requires",
        )),
    };
    if !value.has_forms {
        has_size(content)?;
    }
    if u64::from_le_bytes(*checksum) != checksum_of(value.id, piece, content) {
        return Err(Damage("a piece of a large value does not match its checksum"));
    }
    if !value.has_forms {
        return Ok(stored.slice(CHECKSUM_BYTES..));
    }
    let content = match content.split_first() {
        Some((&form::PLAIN, _)) => stored.slice(CHECKSUM_BYTES + 1..),
        Some((&form::ZSTD, frame)) => zstd::bulk::decompress(frame, PIECE_BYTES)
            .map_err(|_| Damage("a piece of a large value cannot be decompressed"))?
            .into(),
        Some((&form::LZ4, packed)) => {
            let mut content = vec![0; usize::try_from(expected).unwrap_or_default()];
            unpack_lz4(packed, &mut content)?;
            content.into()
        }
        _ => return Err(Damage("a piece of a large value has an unknown form")),
    };
    has_size(&content)?;
    Ok(content)
}

/// First byte of a piece with a form, after its checksum.
mod form {
    /// The piece is stored as it is.
    pub(super) const PLAIN: u8 = 0;
    /// The piece is a zstd frame.
    pub(super) const ZSTD: u8 = 1;
    /// The piece is a block of LZ4.
    pub(super) const LZ4: u8 = 2;
}

/// Level of zstd for pieces whose column has no separate compression setting. Blocks that are compressed fast use the
/// same level.
const LEVEL: i32 = 1;

/// Returns the stored form of a piece with a form byte: the checksum, the form, and the content, compressed as the
/// column specifies.
fn put_piece(id: u64, piece: u32, content: &[u8], compression: ColumnCompression) -> Vec<u8> {
    let packed = match compression {
        ColumnCompression::None => None,
        ColumnCompression::Auto => zstd::bulk::compress(content, LEVEL).ok(),
        ColumnCompression::Zstd => zstd::bulk::compress(content, ZSTD_LEVEL).ok(),
        ColumnCompression::Lz4 => pack_lz4(content),
    };
    let (form, stored) = match packed.as_deref().filter(|packed| packed.len() < content.len()) {
        Some(packed) if compression == ColumnCompression::Lz4 => (form::LZ4, packed),
        Some(packed) => (form::ZSTD, packed),
        None => (form::PLAIN, content),
    };
    let mut out = Vec::with_capacity(CHECKSUM_BYTES + 1 + stored.len());
    out.resize(CHECKSUM_BYTES, 0);
    out.push(form);
    out.extend_from_slice(stored);
    let checksum = checksum_of(id, piece, &out[CHECKSUM_BYTES..]);
    out[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
    out
}

/// Row and column of a value, as its header stores them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) column: ColumnName<'static>,
    pub(crate) key: Bytes,
}

impl Header {
    fn encode(&self) -> Bytes {
        let mut out = vec![HEADER_FORMAT];
        codec::encode_name(&self.column, &mut out);
        varint::put(self.key.len() as u64, &mut out);
        out.extend_from_slice(&self.key);
        out.into()
    }

    pub(crate) fn decode(bytes: &[u8]) -> std::result::Result<Self, Damage> {
        let mut rest = bytes
            .strip_prefix(&[HEADER_FORMAT])
            .ok_or(Damage("the header of a large value has an unknown format"))?;
        let column = codec::decode_name(&mut rest)?.into_owned();
        let key = Bytes::copy_from_slice(sized(&mut rest)?);
        match rest.is_empty() {
            true => Ok(Self { column, key }),
            false => Err(Damage("bytes follow the header of a large value")),
        }
    }
}

/// Large values that this process uses, and a lock for the writes of pieces.
#[derive(Debug, Default)]
pub(crate) struct LargeUses {
    uses: Mutex<HashMap<u64, Use>>,
    /// Held during each write to a part of pieces, because sorted writes to a bucket must not overlap with other
    /// writes. Also held while such a part is freed, so that no write can follow.
    pub(crate) writes: Mutex<()>,
    /// Held while a part of pieces is created, so that two writers do not create two parts with one number.
    creation: Mutex<()>,
    /// Parts whose values are being restored from the archive. Held while pieces of archived values are removed.
    pub(crate) restoring: Mutex<Vec<PartKey>>,
    /// Cut values that wait for [`writes`](Self::writes). The holder of the lock writes several of them together.
    waiting: Mutex<Vec<Arc<cut::PieceWrite>>>,
}

/// Use of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Number of current uploads and readers.
    Shared(u32),
    /// The pieces are being removed.
    Removed,
}

impl LargeUses {
    /// Returns true if the value is in use.
    fn is_used(&self, id: u64) -> bool {
        self.uses.lock().contains_key(&id)
    }

    /// Adds a reader or an upload of a value. Returns false if its pieces are being removed.
    fn begin(&self, id: u64) -> bool {
        match self.uses.lock().entry(id).or_insert(Use::Shared(0)) {
            Use::Shared(count) => {
                *count += 1;
                true
            }
            Use::Removed => false,
        }
    }

    fn end(&self, id: u64) {
        let mut uses = self.uses.lock();
        match uses.get_mut(&id) {
            Some(Use::Shared(count)) if *count > 1 => *count -= 1,
            _ => drop(uses.remove(&id)),
        }
    }

    /// Marks a value as being removed. Returns false if it is in use.
    fn begin_removal(&self, id: u64) -> bool {
        let mut uses = self.uses.lock();
        let is_free = !uses.contains_key(&id);
        if is_free {
            uses.insert(id, Use::Removed);
        }
        is_free
    }
}

impl WideStore {
    /// Returns the part that holds the pieces of the values of a row; `None` if it does not exist.
    fn large_part(&self, table: TableId, rules: &TableRules, key: &[u8]) -> Result<Option<Part>> {
        let number = rules.part_of(key);
        let number = number.map_err(|reason| WideError::Damaged { table, reason })?;
        Ok(self.large_part_of(rules, number))
    }

    /// Returns the part that holds the pieces of the values of the rows of a part; `None` if it does not exist.
    pub(crate) fn large_part_of(&self, rules: &TableRules, number: i32) -> Option<Part> {
        let space = rules.large_values.filter(|_| rules.keeps(number))?;
        self.state().parts.get(&(space, number)).copied()
    }

    /// Returns the part for the pieces of the values of a row, and creates it if it does not exist.
    pub(crate) fn create_large_part(&self, table: TableId, rules: &TableRules, key: &[u8]) -> Result<Part> {
        if let Some(part) = self.large_part(table, rules, key)? {
            return Ok(part);
        }
        let number = rules.part_of(key);
        let number = number.map_err(|reason| WideError::Damaged { table, reason })?;
        let space = rules.large_values.filter(|_| rules.keeps(number));
        let space = space.ok_or(WideError::LargeGone(table))?;
        let _creation = self.large.creation.lock();
        // Another writer may have published the part since this thread looked for it. A second part with the same
        // number would replace the first one, and the pieces in the first part could no longer be found.
        if let Some(part) = self.large_part(table, rules, key)? {
            return Ok(part);
        }
        if rules.division.is_some() && !self.open_part(table, rules, number)? {
            return Err(WideError::TooLarge {
                what: "the number of parts",
                limit: PARTS_MAX as u64,
                actual: PARTS_MAX as u64 + 1,
            });
        }
        let part = self.new_part(space, rules.division.is_some().then_some(number));
        debug_assert!(rules.division.is_some() || number == WHOLE);
        self.publish(&[part])?;
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_references_and_headers_never_change() {
        let value = LargeValue {
            id: 300,
            kind: LargeKind::Binary,
            bytes: PIECE_BYTES as u64 + 1,
            checksum: 7,
            is_cut: false,
            has_forms: false,
        };
        let encoded = value.encode();
        assert_eq!(encoded, [2, 0xac, 2, 0x81, 0x80, 0x10, 7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(LargeValue::decode(&encoded), Ok(value));
        for cut in 0..encoded.len() {
            assert!(LargeValue::decode(&encoded[..cut]).is_err(), "{cut}");
        }
        for (kind, byte) in [(LargeKind::Text, 3), (LargeKind::Binary, 4), (LargeKind::Json, 5)] {
            let cut = LargeValue {
                kind,
                is_cut: true,
                has_forms: true,
                ..value
            };
            assert_eq!((cut.encode()[0], &cut.encode()[1..]), (byte, &encoded[1..]));
            assert_eq!(LargeValue::decode(&cut.encode()), Ok(cut));
        }
        for (kind, byte) in [(LargeKind::Text, 6), (LargeKind::Binary, 7)] {
            let streamed = LargeValue {
                kind,
                has_forms: true,
                ..value
            };
            assert_eq!(streamed.encode()[0], byte);
            assert_eq!(LargeValue::decode(&streamed.encode()), Ok(streamed));
        }
        assert_eq!(value.pieces(), 2);
        assert_eq!(piece_key(1, 2)[..], [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2]);
        let header = Header {
            column: ColumnName::Declared(3),
            key: Bytes::from_static(b"k"),
        };
        assert_eq!(header.encode()[..], [1, 6, 1, b'k']);
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn a_piece_is_compared_with_its_checksum_place_and_size() {
        let value = LargeValue {
            id: 9,
            kind: LargeKind::Text,
            bytes: PIECE_BYTES as u64 + 3,
            checksum: 0,
            is_cut: false,
            has_forms: false,
        };
        let stored = |id, piece, content: &[u8]| {
            let checksum = checksum_of(id, piece, content).to_le_bytes();
            Bytes::from([&checksum[..], content].concat())
        };
        assert_eq!(
            open_piece(&value, 1, &stored(9, 1, b"abc")),
            Ok(Bytes::from_static(b"abc"))
        );
        assert!(open_piece(&value, 1, &stored(9, 0, b"abc")).is_err());
        assert!(open_piece(&value, 1, &stored(8, 1, b"abc")).is_err());
        assert!(open_piece(&value, 0, &stored(9, 0, b"abc")).is_err());
        let mut damaged = stored(9, 1, b"abc").to_vec();
        damaged[9] ^= 1;
        assert!(open_piece(&value, 1, &damaged.into()).is_err());
        assert!(open_piece(&value, 1, &Bytes::from_static(b"short")).is_err());
    }

    #[test]
    fn a_value_in_use_is_not_removed() {
        let uses = LargeUses::default();
        assert!(uses.begin(1) && uses.begin(1));
        assert!(!uses.begin_removal(1));
        uses.end(1);
        assert!(uses.is_used(1));
        uses.end(1);
        assert!(!uses.is_used(1));
        assert!(uses.begin_removal(1) && !uses.begin(1));
        uses.end(1);
        assert!(uses.begin(1));
    }
}
