//! Fetched parts of a file, for the decoder.
//!
//! The bytes are fetched as whole blocks and verified with the block checksums, so the decoder never reads unverified
//! bytes. Recently read blocks are taken from the page cache.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::footers::OpenFile;
use super::pages::Pages;
use crate::error::{ArchiveError, Result};
use crate::target::Target;

/// Maximum gap in bytes between two ranges that one request fetches together with the gap. A second request would cost
/// more than the bytes of the gap.
const GAP_SMALL: u64 = 256 << 10;
/// Intended maximum number of requests per fetch. While there are more, ranges with gaps of up to [`GAP_LARGE`] bytes
/// are merged.
const REQUESTS_FEW: usize = 2;
const GAP_LARGE: u64 = 4 << 20;
/// Maximum number of attempts to fetch a part whose checksum differs. The first difference may be a transmission error.
pub(super) const TRIES: usize = 2;

/// Page cache, and the flag that makes a reader add its fetched blocks to the cache.
#[derive(Debug, Clone)]
pub(crate) struct PageCache {
    pub(crate) pages: Arc<Pages>,
    /// False for compactions, which soon replace the blocks that they read.
    pub(crate) keeps: bool,
}

/// Fetched parts of one file.
#[derive(Debug)]
pub(crate) struct Fetched {
    target: Arc<Target>,
    key: String,
    file: Arc<OpenFile>,
    cache: PageCache,
    parts: Mutex<Vec<(u64, Bytes)>>,
}

impl Fetched {
    pub(crate) fn new(target: Arc<Target>, key: String, file: Arc<OpenFile>, cache: PageCache) -> Self {
        Self {
            target,
            key,
            file,
            cache,
            parts: Mutex::default(),
        }
    }

    /// Adds `content`, the start of the file, up to the first block that is incomplete or whose checksum differs.
    pub(crate) fn take(&self, content: &Bytes) {
        let sums = &self.file.sums;
        let end = sums.end().min(content.len() as u64);
        let mut sound = 0..0;
        for block in sums.blocks(&(0..end)).unwrap_or_default() {
            let range = sums.range(&(block..block + 1));
            let part = content.get(range.start as usize..range.end as usize);
            let Some(part) = part.filter(|part| sums.first_wrong(range.start, part).is_none()) else {
                break;
            };
            sound.end = part.len() + range.start as usize;
            if self.cache.keeps {
                self.cache.pages.put(self.file.content, block, part);
            }
        }
        self.parts.lock().push((0, content.slice(sound)));
    }

    /// Fetches the ranges that are not available, and drops all parts that overlap none of the ranges.
    pub(crate) fn fetch(&self, mut ranges: Vec<Range<u64>>) -> Result<()> {
        ranges.retain(|range| !range.is_empty());
        let mut parts = self.parts.lock();
        parts.retain(|part| {
            ranges
                .iter()
                .any(|range| range.start < end(part) && part.0 < range.end)
        });
        ranges.retain(|range| {
            !parts
                .iter()
                .any(|part| part.0 <= range.start && range.end <= end(part))
        });
        if ranges.is_empty() {
            return Ok(());
        }
        parts.extend(self.load(&ranges)?);
        Ok(())
    }

    /// Returns the number of available bytes.
    pub(crate) fn bytes_held(&self) -> u64 {
        let parts = self.parts.lock();
        parts.iter().map(|part| part.1.len() as u64).sum()
    }

    fn held(&self, start: u64, length: usize) -> Option<Bytes> {
        let parts = self.parts.lock();
        parts.iter().find_map(|part| cut(part, start, length))
    }

    /// Reads the blocks that contain the ranges from the page cache or the target, and returns them as parts. Each
    /// range is contained in one part.
    fn load(&self, ranges: &[Range<u64>]) -> Result<Vec<(u64, Bytes)>> {
        let wanted = self.blocks_of(ranges)?;
        let sums = &self.file.sums;
        let mut found = Vec::with_capacity(wanted.len());
        let mut missing = Vec::new();
        for blocks in &wanted {
            let here = self.cache.pages.get(self.file.content, blocks.clone());
            for (block, _) in blocks.clone().zip(&here).filter(|(_, here)| here.is_none()) {
                missing.push(sums.range(&(block..block + 1)));
            }
            found.push(here);
        }
        let missing = joined(missing);
        let got = self.get_verified(&missing)?;
        let got: Vec<(u64, Bytes)> = missing.iter().map(|range| range.start).zip(got).collect();
        let slice_of = |range: Range<u64>| {
            let length = usize::try_from(range.end - range.start).ok()?;
            got.iter().find_map(|part| cut(part, range.start, length))
        };
        let mut parts = Vec::with_capacity(wanted.len());
        for (blocks, found) in wanted.into_iter().zip(found) {
            let range = sums.range(&blocks);
            let lost = || ArchiveError::format(self.key.clone(), "a block was not fetched");
            let mut content = Vec::new();
            let length = range.end - range.start;
            // A small slice of a large buffer would keep the entire buffer in memory, so it is copied.
            let is_most = got.iter().any(|part| {
                part.0 <= range.start && range.end <= end(part) && part.1.len() as u64 <= 2 * length
            });
            let whole = if is_most { slice_of(range.clone()) } else { None };
            for (block, found) in blocks.zip(found) {
                let bytes = match (&found, &whole) {
                    (Some(bytes), _) => bytes.clone(),
                    (None, _) => {
                        let bytes = slice_of(sums.range(&(block..block + 1))).ok_or_else(lost)?;
                        if self.cache.keeps {
                            self.cache.pages.put(self.file.content, block, &bytes);
                        }
                        bytes
                    }
                };
                if whole.is_none() {
                    content.extend_from_slice(&bytes);
                }
            }
            parts.push((range.start, whole.unwrap_or_else(|| Bytes::from(content))));
        }
        Ok(parts)
    }

    /// Returns the blocks that contain the ranges, as sorted ranges of block numbers. Adjacent and overlapping ranges
    /// are merged.
    fn blocks_of(&self, ranges: &[Range<u64>]) -> Result<Vec<Range<usize>>> {
        let blocks = ranges.iter().map(|range| {
            let blocks = self.file.sums.blocks(range);
            blocks.ok_or_else(|| {
                let Range { start, end } = range;
                let covered = self.file.sums.end();
                let reason = format!("its footer names bytes {start}..{end}, and its rows end at {covered}");
                self.target.damaged(&self.key, reason)
            })
        });
        let mut blocks = blocks.collect::<Result<Vec<_>>>()?;
        blocks.sort_unstable_by_key(|blocks| (blocks.start, blocks.end));
        let mut joined: Vec<Range<usize>> = Vec::with_capacity(blocks.len());
        for next in blocks {
            match joined.last_mut() {
                Some(last) if next.start <= last.end => last.end = last.end.max(next.end),
                _ => joined.push(next),
            }
        }
        Ok(joined)
    }

    /// Fetches ranges of whole blocks and verifies their checksums.
    fn get_verified(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        if ranges.is_empty() {
            return Ok(Vec::new());
        }
        let mut tries = 1;
        loop {
            let got = self.target.get_ranges(&self.key, ranges)?;
            let mut parts = ranges.iter().zip(&got);
            let wrong = parts.find_map(|(range, part)| self.file.sums.first_wrong(range.start, part));
            let Some((range, stored, found)) = wrong else {
                return Ok(got);
            };
            if tries == TRIES {
                let Range { start, end } = range;
                let reason = format!(
                    "the checksum of bytes {start}..{end} is {found:08x} instead of {stored:08x}; \
                     put the file back from a copy"
                );
                return Err(self.target.damaged(&self.key, reason));
            }
            tries += 1;
        }
    }
}

fn end(part: &(u64, Bytes)) -> u64 {
    part.0 + part.1.len() as u64
}

/// Returns a range of a part if the part contains all of it.
fn cut(part: &(u64, Bytes), start: u64, length: usize) -> Option<Bytes> {
    let at = usize::try_from(start.checked_sub(part.0)?).ok()?;
    let last = at.checked_add(length)?;
    (last <= part.1.len()).then(|| part.1.slice(at..last))
}

/// Merges sorted ranges over small gaps, and over larger gaps while there are more than [`REQUESTS_FEW`] ranges.
fn joined(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(GAP_SMALL) => {
                last.end = last.end.max(range.end);
            }
            _ => joined.push(range),
        }
    }
    while joined.len() > REQUESTS_FEW {
        let gap = |at: &usize| joined[at + 1].start - joined[*at].end;
        let Some(at) = (0..joined.len() - 1)
            .min_by_key(gap)
            .filter(|at| gap(at) <= GAP_LARGE)
        else {
            break;
        };
        joined[at].end = joined[at + 1].end;
        joined.remove(at + 1);
    }
    joined
}

impl Length for Fetched {
    fn len(&self) -> u64 {
        self.file.bytes
    }
}

impl ChunkReader for Fetched {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        let covered = self.file.sums.end();
        let length = usize::try_from(covered.saturating_sub(start).min(GAP_SMALL)).unwrap_or(0);
        Ok(Box::new(self.get_bytes(start, length)?.reader()))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        if let Some(held) = self.held(start, length) {
            return Ok(held);
        }
        let range = start..start.saturating_add(length as u64);
        let loaded = self.load(std::slice::from_ref(&range));
        let loaded = loaded.map_err(|error| ParquetError::External(Box::new(error)))?;
        let part = loaded.iter().find_map(|part| cut(part, start, length));
        Ok(part.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_where_a_request_costs_more() {
        let near = joined(vec![0..10, 5..20, 100..200]);
        assert_eq!((near.len(), &near[0]), (1, &(0..200)));
        let far = 10 << 20;
        assert_eq!(joined(vec![0..10, far..far + 1]), [0..10, far..far + 1]);
        let middle = 3 << 20;
        assert_eq!(
            joined(vec![0..10, middle..middle + 1, far..far + 1]),
            [0..middle + 1, far..far + 1]
        );
    }
}
