//! Next single row above the position of a flush.
//!
//! A flush merges the single rows of a span into the block of the span. Most spans have no single rows. The flush
//! therefore finds the first single row above its position, once. As long as spans end below this row, they have no
//! single rows, so the flush does not scan them, and does not search the previous block, where such a scan begins.
//!
//! A flush goes through the keys in order. It writes and removes single rows only below its position, and no other
//! thread changes the part meanwhile. The row that was found is therefore the next one until the position is above it.

use bytes::Bytes;
use tideline_backend::{Capabilities, Medium, PageLimit, Partition};
use tideline_model::KeyRange;

use super::TableFlush;
use crate::error::Result;
use crate::read::ROWS_BUCKET;

/// Maximum number of spans without a search after searches that saved nothing.
const PAUSE_MAX: u32 = 63;

const ONE: PageLimit = PageLimit {
    rows_max: 1,
    bytes_max: 1,
};

/// First single row above the position of a flush.
#[derive(Debug)]
pub(super) struct NextSingle {
    /// False if the flush must not search. The search can pass many deleted rows. A cluster refuses such a read.
    is_searched: bool,
    /// Position of the flush: no changed row below this key is left.
    position: Vec<u8>,
    found: Found,
    /// Number of spans until the next search.
    paused: u32,
    /// Number of spans without a search after the last search; 0 if the last search saved a scan.
    pause: u32,
}

/// Result of a search. It is the next single row only if it is not below the position.
#[derive(Debug)]
enum Found {
    /// There was no search yet.
    Unknown,
    Row(Bytes),
    /// No single row is left.
    End,
}

impl NextSingle {
    pub(super) fn new(backend: &Capabilities) -> Self {
        Self {
            is_searched: backend.medium == Medium::Folder,
            position: Vec::new(),
            found: Found::Unknown,
            paused: 0,
            pause: 0,
        }
    }

    /// Moves the position up to `end`. `None` is the end of all keys, where no span follows.
    pub(super) fn pass(&mut self, end: Option<Vec<u8>>) {
        if let Some(end) = end.filter(|end| *end > self.position) {
            self.position = end;
        }
    }

    /// Returns true if the next single row is not known.
    fn is_unknown(&self) -> bool {
        match &self.found {
            Found::Unknown => true,
            Found::Row(key) => key[..] < self.position[..],
            Found::End => false,
        }
    }

    /// Returns true if the next single row is below `end`.
    fn is_below(&self, end: Option<&[u8]>) -> bool {
        match &self.found {
            Found::Row(key) => end.is_none_or(|end| key[..] < *end),
            Found::Unknown | Found::End => false,
        }
    }

    /// Returns the range from the position to `end`.
    fn range_to(&self, end: Option<&[u8]>) -> KeyRange {
        KeyRange {
            start: self.position.clone(),
            end: end.map(<[u8]>::to_vec),
        }
    }
}

impl TableFlush<'_> {
    /// Returns false if no single row is stored from the position of the flush up to `end`. May also return true in
    /// this case.
    pub(super) fn may_have_singles(&mut self, end: Option<&[u8]>) -> Result<bool> {
        // All rows that this flush has put but not written yet are below the position.
        if self.store.singles.has_none(self.part.at.part) {
            return Ok(false);
        }
        if !self.next_single.is_searched {
            return Ok(true);
        }
        let is_unknown = self.next_single.is_unknown();
        if is_unknown {
            if self.next_single.paused > 0 {
                self.next_single.paused -= 1;
                return Ok(true);
            }
            // A scan would also read up to the row after it.
            let partition = Partition::part(self.part.at, ROWS_BUCKET);
            let backend = self.store.log.backend();
            let found = backend.first(partition, &self.next_single.position)?;
            self.next_single.found = found.map_or(Found::End, |row| Found::Row(row.key));
        }
        let next = &mut self.next_single;
        let is_below = next.is_below(end);
        if !is_below {
            next.pause = 0;
        } else if is_unknown {
            // The search has found a row of this span, or one between this span and the last one. If most spans have
            // such rows, searches are only one more read.
            next.pause = (2 * next.pause + 1).min(PAUSE_MAX);
            next.paused = next.pause;
        }
        Ok(is_below)
    }

    /// Returns true if no single row is stored from the position of the flush up to `end`.
    pub(super) fn has_no_singles(&self, end: Option<&[u8]>) -> Result<bool> {
        let range = self.next_single.range_to(end);
        Ok(self.singles(&range, ONE)?.rows.is_empty())
    }
}
