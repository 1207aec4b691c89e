//! The bytes of a file that were fetched before the decoder asks for them.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::error::Result;
use crate::target::Target;

/// Gaps that are fetched along: a request costs more than as many bytes.
const GAP_SMALL: u64 = 256 << 10;
/// Requests that a fetch is brought down to where the gaps between are not larger than [`GAP_LARGE`].
const REQUESTS_FEW: usize = 2;
const GAP_LARGE: u64 = 4 << 20;

/// Fetched parts of one file.
#[derive(Debug)]
pub(crate) struct Fetched {
    target: Arc<Target>,
    key: String,
    bytes: u64,
    parts: Mutex<Vec<(u64, Bytes)>>,
}

impl Fetched {
    pub(crate) fn new(target: Arc<Target>, key: String, bytes: u64) -> Self {
        Self {
            target,
            key,
            bytes,
            parts: Mutex::default(),
        }
    }

    /// Has these ranges at hand from now on, and lets go of everything else.
    pub(crate) fn fetch(&self, mut ranges: Vec<Range<u64>>) -> Result<()> {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
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
        let ranges = joined(ranges);
        let got = self.target.get_ranges(&self.key, &ranges)?;
        parts.extend(ranges.iter().map(|range| range.start).zip(got));
        Ok(())
    }

    /// Bytes at hand.
    pub(crate) fn bytes_held(&self) -> u64 {
        let parts = self.parts.lock();
        parts.iter().map(|part| part.1.len() as u64).sum()
    }

    fn held(&self, start: u64, length: usize) -> Option<Bytes> {
        let parts = self.parts.lock();
        let wanted = start..start.checked_add(length as u64)?;
        let part = parts
            .iter()
            .find(|part| part.0 <= wanted.start && wanted.end <= end(part))?;
        let at = usize::try_from(start - part.0).ok()?;
        Some(part.1.slice(at..at + length))
    }
}

fn end(part: &(u64, Bytes)) -> u64 {
    part.0 + part.1.len() as u64
}

/// Sorted ranges, joined over small gaps, and over larger ones while there are many.
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
        self.bytes
    }
}

impl ChunkReader for Fetched {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        let length = usize::try_from(self.bytes.saturating_sub(start).min(GAP_SMALL)).unwrap_or(0);
        Ok(Box::new(self.get_bytes(start, length)?.reader()))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        if let Some(held) = self.held(start, length) {
            return Ok(held);
        }
        let range = start..start.saturating_add(length as u64);
        let got = self.target.get_ranges(&self.key, std::slice::from_ref(&range));
        let got = got.map_err(|error| ParquetError::External(Box::new(error)))?;
        Ok(got.into_iter().next().unwrap_or_default())
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
