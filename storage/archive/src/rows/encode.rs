//! Encoding of the columns of a group as Parquet column chunks of one page each.
//!
//! The writer of the `parquet` crate allocates an object for each text, creates a compressor for each column chunk, and
//! builds a dictionary for each column of texts before it compares the sizes. These steps took most of the time for
//! archiving a part. The encoder in this module writes whole columns, with encodings that DuckDB and Arrow support:
//!
//! | values | encoding |
//! |---|---|
//! | few distinct texts or doubles | `RLE_DICTIONARY` |
//! | other texts and bytes | `DELTA_LENGTH_BYTE_ARRAY`: the lengths, then the content without gaps |
//! | sorted bytes | `DELTA_BYTE_ARRAY`: the length of the prefix shared with the previous value, and the rest |
//! | integers and times | `DELTA_BINARY_PACKED` |
//! | other doubles | `BYTE_STREAM_SPLIT` |
//! | booleans | `PLAIN`, one bit each |
//!
//! For columns of integers, times, sorted bytes and dictionary-encoded texts, the footer has the smallest and the
//! largest value, with which other tools skip row groups. For other columns, computing these values would cost more
//! than the encoding.

mod dictionary;
mod packed;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriteSpec, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use zstd::bulk::Compressor;

use super::group::{GroupColumn, GroupValues, JoinedBytes};
use super::schema::RowColumnKind;
use dictionary::Dictionary;

/// Compression level of zstd. With these encodings, higher levels gain little.
const ZSTD: i32 = 1;
/// Maximum length of a text in the statistics of a column, in bytes.
const STATISTICS_BYTES_MAX: usize = 64;

/// Encoded column chunk, and its metadata for the footer. Offsets in the metadata are relative to the start of the
/// chunk.
pub(super) struct EncodedColumn {
    pub(super) bytes: Bytes,
    pub(super) close: ColumnCloseResult,
}

/// Encoder of column chunks with reusable buffers.
pub(super) struct ColumnEncoder {
    compressor: Compressor<'static>,
    /// Page that is being built.
    page: Vec<u8>,
}

/// Encoding of the values of a page, with dictionary and statistics.
struct Values {
    encoding: Encoding,
    /// Encoded dictionary, and its number of values.
    dictionary: Option<(Vec<u8>, u32)>,
    statistics: Option<Statistics>,
}

impl Values {
    const fn new(encoding: Encoding) -> Self {
        Self {
            encoding,
            dictionary: None,
            statistics: None,
        }
    }
}

impl ColumnEncoder {
    pub(super) fn new() -> Self {
        Self {
            compressor: Compressor::new(ZSTD).expect("a context of a supported level is created"),
            page: Vec::new(),
        }
    }

    /// Encodes a column of a group of `rows` rows.
    pub(super) fn encode(
        &mut self,
        column: &GroupColumn,
        kind: RowColumnKind,
        about: ColumnDescPtr,
        rows: usize,
    ) -> Result<EncodedColumn> {
        self.page.clear();
        let mut nulls = 0;
        if let Some(levels) = &column.levels {
            nulls = packed::put_levels(levels, &mut self.page);
        }
        let values = put_values(&column.values, kind, nulls, &mut self.page);
        let mut sink = TrackedWrite::new(Vec::with_capacity(self.page.len() / 2 + 256));
        let mut pages = SerializedPageWriter::new(&mut sink);
        let mut encodings = vec![Encoding::RLE, values.encoding];
        let mut dictionary = None;
        if let Some((content, count)) = &values.dictionary {
            encodings.push(Encoding::PLAIN);
            dictionary = Some(pages.write_page(self.dictionary_page(content, *count)?)?);
        }
        let data = pages.write_page(self.data_page(values.encoding, rows)?)?;
        pages.close()?;
        let bytes = Bytes::from(sink.into_inner()?);
        let total = |size: fn(&PageWriteSpec) -> usize| size(&data) + dictionary.as_ref().map_or(0, size);
        let mut metadata = ColumnChunkMetaData::builder(about)
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD)?))
            .set_encodings(encodings)
            .set_num_values(i64::try_from(rows)?)
            .set_total_compressed_size(i64::try_from(total(|page| page.compressed_size))?)
            .set_total_uncompressed_size(i64::try_from(total(|page| page.uncompressed_size))?)
            .set_data_page_offset(i64::try_from(data.offset)?)
            .set_dictionary_page_offset(dictionary.is_some().then_some(0));
        if let Some(statistics) = values.statistics {
            metadata = metadata.set_statistics(statistics);
        }
        let close = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: rows as u64,
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        Ok(EncodedColumn { bytes, close })
    }

    fn data_page(&mut self, encoding: Encoding, rows: usize) -> Result<CompressedPage> {
        let page = Page::DataPage {
            buf: compressed(&mut self.compressor, &self.page)?,
            num_values: u32::try_from(rows)?,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        Ok(CompressedPage::new(page, self.page.len()))
    }

    fn dictionary_page(&mut self, content: &[u8], count: u32) -> Result<CompressedPage> {
        let page = Page::DictionaryPage {
            buf: compressed(&mut self.compressor, content)?,
            num_values: count,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        Ok(CompressedPage::new(page, content.len()))
    }
}

fn compressed(compressor: &mut Compressor<'static>, content: &[u8]) -> Result<Bytes> {
    let compressed = compressor.compress(content);
    let compressed = compressed.map_err(|error| ParquetError::External(Box::new(error)))?;
    Ok(compressed.into())
}

/// Appends the values of a column.
fn put_values(values: &GroupValues, kind: RowColumnKind, nulls: u64, page: &mut Vec<u8>) -> Values {
    match values {
        GroupValues::Bytes(values) => put_bytes(values, kind, nulls, page),
        GroupValues::Floats(values) => put_floats(values, page),
        GroupValues::Integers(values) => put_integers(values, kind, nulls, page),
        GroupValues::Booleans(values) => {
            packed::put_booleans(values, page);
            Values::new(Encoding::PLAIN)
        }
    }
}

fn put_bytes(values: &JoinedBytes, kind: RowColumnKind, nulls: u64, page: &mut Vec<u8>) -> Values {
    if values.is_empty() {
        return Values::new(Encoding::PLAIN);
    }
    if kind == RowColumnKind::Sorted {
        put_sorted(values, page);
        let bounds = values.get(0).zip(values.get(values.len() - 1));
        return Values {
            statistics: bounds.and_then(|bounds| statistics_of_bytes(bounds, nulls)),
            ..Values::new(Encoding::DELTA_BYTE_ARRAY)
        };
    }
    let Some(dictionary) = Dictionary::of(values.iter()) else {
        packed::put_deltas(values.iter().map(|value| value.len() as i64), page);
        page.extend_from_slice(values.joined());
        return Values::new(Encoding::DELTA_LENGTH_BYTE_ARRAY);
    };
    dictionary.put_indexes(page);
    let mut content = Vec::new();
    for value in &dictionary.values {
        content.extend_from_slice(&(value.len() as u32).to_le_bytes());
        content.extend_from_slice(value);
    }
    let distinct = dictionary.values.iter();
    let bounds = distinct.clone().min().zip(distinct.max());
    Values {
        encoding: Encoding::RLE_DICTIONARY,
        statistics: bounds.and_then(|(least, greatest)| statistics_of_bytes((least, greatest), nulls)),
        dictionary: Some((content, dictionary.values.len() as u32)),
    }
}

fn statistics_of_bytes((least, greatest): (&[u8], &[u8]), nulls: u64) -> Option<Statistics> {
    let bound = |value: &[u8]| Some(ByteArray::from(value.to_vec()));
    let fits = least.len().max(greatest.len()) <= STATISTICS_BYTES_MAX;
    fits.then(|| Statistics::byte_array(bound(least), bound(greatest), None, Some(nulls), false))
}

/// Appends sorted values, each without the prefix that it shares with the previous value.
fn put_sorted(values: &JoinedBytes, page: &mut Vec<u8>) {
    let mut before: &[u8] = &[];
    let (mut shared, mut lengths) = (Vec::with_capacity(values.len()), Vec::with_capacity(values.len()));
    let mut suffixes = Vec::new();
    for value in values.iter() {
        let same = shared_prefix(before, value);
        shared.push(same as i64);
        lengths.push((value.len() - same) as i64);
        suffixes.extend_from_slice(&value[same..]);
        before = value;
    }
    packed::put_deltas(shared.into_iter(), page);
    packed::put_deltas(lengths.into_iter(), page);
    page.extend_from_slice(&suffixes);
}

/// Returns the length of the prefix that two values share.
fn shared_prefix(one: &[u8], other: &[u8]) -> usize {
    let words = std::iter::zip(one.as_chunks::<8>().0, other.as_chunks::<8>().0);
    let equal = 8 * words.take_while(|(one, other)| one == other).count();
    let rest = std::iter::zip(&one[equal..], &other[equal..]);
    equal + rest.take_while(|(one, other)| one == other).count()
}

fn put_floats(values: &[f64], page: &mut Vec<u8>) -> Values {
    if values.is_empty() {
        return Values::new(Encoding::PLAIN);
    }
    let Some(dictionary) = Dictionary::of(values.iter().map(|value| value.to_bits())) else {
        let start = page.len();
        page.resize(start + size_of_val(values), 0);
        let streams = page[start..].chunks_exact_mut(values.len());
        for (stream, byte) in streams.zip(0..) {
            let bytes = values.iter().map(|value| (value.to_bits() >> (8 * byte)) as u8);
            stream.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        }
        return Values::new(Encoding::BYTE_STREAM_SPLIT);
    };
    dictionary.put_indexes(page);
    let content = dictionary.values.iter().flat_map(|bits| bits.to_le_bytes());
    Values {
        dictionary: Some((content.collect(), dictionary.values.len() as u32)),
        ..Values::new(Encoding::RLE_DICTIONARY)
    }
}

fn put_integers(values: &[i64], kind: RowColumnKind, nulls: u64, page: &mut Vec<u8>) -> Values {
    if values.is_empty() {
        return Values::new(Encoding::PLAIN);
    }
    packed::put_deltas(values.iter().copied(), page);
    let bounds = match kind {
        RowColumnKind::Unsigned => {
            let values = values.iter().map(|value| value.cast_unsigned());
            let signed = |value: u64| value.cast_signed();
            values.clone().min().map(signed).zip(values.max().map(signed))
        }
        _ => values.iter().copied().min().zip(values.iter().copied().max()),
    };
    let statistics =
        |(least, greatest)| Statistics::int64(Some(least), Some(greatest), None, Some(nulls), false);
    Values {
        statistics: bounds.map(statistics),
        ..Values::new(Encoding::DELTA_BINARY_PACKED)
    }
}
