//! Segments of a block: the contents of columns with a separate compression setting.
//!
//! A segment holds the texts, bytes or JSON documents of one column of the block, one after the other in row order. Its
//! head is in the header of the block, with the codec of the segment and a checksum of the stored bytes. Because each
//! segment has its own codec, contents that are stored as they are take no compression time, and other contents can be
//! compressed more strongly than the rest of the block.

use std::sync::Arc;

use tideline_model::ColumnCompression;
use tideline_wire::varint;
use zstd::zstd_safe::DCtx;

use super::columns::cut;
use super::{BODY_BYTES_MAX, CHECKSUM_BYTES, checksum};
use crate::blocks::BlockError;
use crate::dictionaries::Dictionary;
use crate::error::Damage;
use crate::value::number;

/// Size below which a segment is not compressed, in bytes.
const PACKED_BYTES_MIN: usize = 64;

/// Codec of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentCodec {
    /// Contents as they are.
    Plain,
    /// Block of LZ4, without its size.
    Lz4,
    /// Frame of zstd.
    Zstd,
}

/// Compressed contents of a column.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) codec: SegmentCodec,
    /// Number of the dictionary in the part; 0: none.
    pub(crate) dictionary: u32,
    pub(crate) bytes: Vec<u8>,
}

/// Compresses the contents of a column that has the compression `zstd`. The arguments are the encoded name of the
/// column and the contents. Returns `None` if the contents would not become smaller.
pub(crate) type PackZstd<'z> = dyn FnMut(&[u8], &[u8]) -> Result<Option<Packed>, BlockError> + 'z;

/// Head of a segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentHead {
    codec: SegmentCodec,
    pub(super) dictionary: u32,
    /// Bytes of the contents.
    raw: usize,
    /// Bytes as they are stored.
    pub(super) stored: usize,
    checksum: [u8; CHECKSUM_BYTES],
}

/// Compresses the contents of a column as `compression` specifies, and appends the head and the stored bytes.
pub(super) fn push(
    (compression, name): (ColumnCompression, &[u8]),
    contents: &[u8],
    heads: &mut Vec<u8>,
    out: &mut Vec<u8>,
    zstd: &mut PackZstd<'_>,
) -> Result<(), BlockError> {
    let is_small = contents.len() < PACKED_BYTES_MIN;
    let packed = match compression {
        _ if is_small => None,
        ColumnCompression::Auto | ColumnCompression::None => None,
        ColumnCompression::Lz4 => pack_lz4(contents).map(|bytes| Packed {
            codec: SegmentCodec::Lz4,
            dictionary: 0,
            bytes,
        }),
        ColumnCompression::Zstd => zstd(name, contents)?,
    };
    let (codec, dictionary, stored) = match &packed {
        Some(packed) => (packed.codec, packed.dictionary, &packed.bytes[..]),
        None => (SegmentCodec::Plain, 0, contents),
    };
    heads.push(match codec {
        SegmentCodec::Plain => 0,
        SegmentCodec::Lz4 => 1,
        SegmentCodec::Zstd => 2,
    });
    varint::put(u64::from(dictionary), heads);
    varint::put(contents.len() as u64, heads);
    varint::put(stored.len() as u64, heads);
    heads.extend_from_slice(&checksum(stored));
    out.extend_from_slice(stored);
    Ok(())
}

/// Returns bytes compressed with LZ4; `None` if they would not become smaller.
pub(crate) fn pack_lz4(bytes: &[u8]) -> Option<Vec<u8>> {
    let packed = lz4_flex::block::compress(bytes);
    (packed.len() < bytes.len()).then_some(packed)
}

/// Decompresses bytes of LZ4 into `out`, whose length is the size of the content.
///
/// # Errors
///
/// [`Damage`] if the bytes are damaged or have another size.
pub(crate) fn unpack_lz4(packed: &[u8], out: &mut [u8]) -> Result<(), Damage> {
    match lz4_flex::block::decompress_into(packed, out) {
        Ok(size) if size == out.len() => Ok(()),
        _ => Err(Damage("bytes of LZ4 cannot be decompressed")),
    }
}

impl SegmentHead {
    /// Decodes a head at the front of `rest`, and removes its bytes.
    pub(super) fn take(rest: &mut &[u8]) -> Result<Self, Damage> {
        let codec = match cut(rest, 1)?[0] {
            0 => SegmentCodec::Plain,
            1 => SegmentCodec::Lz4,
            2 => SegmentCodec::Zstd,
            _ => return Err(Damage("a segment of a block has an unknown codec")),
        };
        let dictionary = u32::try_from(number(rest)?);
        let dictionary = dictionary.map_err(|_| Damage("the number of a dictionary is too large"))?;
        let mut size = || -> Result<usize, Damage> {
            let size = usize::try_from(number(rest)?).ok();
            size.filter(|size| *size <= BODY_BYTES_MAX)
                .ok_or(Damage("a size of a segment is too large"))
        };
        let (raw, stored) = (size()?, size()?);
        let checksum = cut(rest, CHECKSUM_BYTES)?;
        Ok(Self {
            codec,
            dictionary,
            raw,
            stored,
            checksum: checksum
                .try_into()
                .map_err(|_| Damage("the checksum of a segment is cut off"))?,
        })
    }

    /// Decompresses the stored bytes of the segment into `out`, which is empty. A segment that is stored as it is
    /// leaves `out` empty.
    pub(super) fn unpack(
        &self,
        stored: &[u8],
        dictionary: Option<&Arc<Dictionary>>,
        context: &mut DCtx<'static>,
        out: &mut Vec<u8>,
    ) -> Result<(), Damage> {
        if checksum(stored) != self.checksum {
            return Err(Damage("the checksum of a segment is wrong"));
        }
        match (self.codec, dictionary) {
            (SegmentCodec::Plain, _) => match self.raw == self.stored {
                true => Ok(()),
                false => Err(Damage("a segment has another size than its header records")),
            },
            (SegmentCodec::Lz4, _) => {
                out.resize(self.raw, 0);
                unpack_lz4(stored, out)
            }
            (SegmentCodec::Zstd, dictionary) => {
                out.reserve(self.raw);
                let size = match dictionary {
                    Some(dictionary) => {
                        context.decompress_using_ddict(out, stored, dictionary.decoder.as_ddict())
                    }
                    None if self.dictionary > 0 => return Err(Damage("a dictionary of a block is missing")),
                    None => context.decompress(out, stored),
                };
                match size {
                    Ok(size) if size == self.raw => Ok(()),
                    _ => Err(Damage("a segment of a block cannot be decompressed")),
                }
            }
        }
    }

    /// Returns true if the segment is stored as it is.
    pub(super) fn is_plain(&self) -> bool {
        self.codec == SegmentCodec::Plain
    }
}
