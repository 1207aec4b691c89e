//! Terms of a field in one segment: lookups, scans of the term dictionary, and the documents in posting lists.
//!
//! The evaluations over timelines and over rows share this module. All terms of timelines are in one field and begin
//! with a prefix for their property; the terms of rows are in one field per column. Both evaluations select terms, and
//! then collect the documents of all selected terms.

use std::ops::Bound;
use std::sync::Arc;

use roaring::RoaringBitmap;
use tantivy::postings::{SegmentPostings, TermInfo};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::termdict::TermStreamer;
use tantivy::{InvertedIndexReader, SegmentReader};
use tideline_condition::text::Close;
use tideline_model::KeyRange;

use crate::close_term::CloseTerm;
use crate::documents::{Bits, ascending, every};

/// Number of terms that are tested between two checks of the stop signal. Testing them takes about a millisecond.
const TERMS_BETWEEN_CHECKS: usize = 4_096;
/// Maximum total length of posting lists, in documents, up to which the documents are collected in a sorted list. The
/// documents of longer lists are collected in an array of bits over the whole segment.
const SORTED_DOCUMENTS_MAX: usize = 4_096;

/// Bounds of terms in the order of the dictionary.
pub(crate) type TermRange<'t> = (Bound<&'t [u8]>, Bound<&'t [u8]>);

/// Terms of a field in a segment.
pub(crate) struct Terms<'a> {
    index: Arc<InvertedIndexReader>,
    max_doc: u32,
    /// Stop signal of scans. Once true, it must stay true.
    is_stopped: &'a dyn Fn() -> bool,
}

impl<'a> Terms<'a> {
    pub(crate) fn open(
        segment: &SegmentReader,
        field: Field,
        is_stopped: &'a dyn Fn() -> bool,
    ) -> tantivy::Result<Self> {
        Ok(Self {
            index: segment.inverted_index(field)?,
            max_doc: segment.max_doc(),
            is_stopped,
        })
    }

    /// Looks up a term; `None` if it is not in the dictionary.
    pub(crate) fn get(&self, term: impl AsRef<[u8]>) -> tantivy::Result<Option<TermInfo>> {
        Ok(self.index.terms().get(term)?)
    }

    /// Looks up several terms; skips terms that are not in the dictionary.
    pub(crate) fn known<T: AsRef<[u8]>>(
        &self,
        terms: impl IntoIterator<Item = T>,
    ) -> tantivy::Result<Vec<TermInfo>> {
        terms
            .into_iter()
            .filter_map(|term| self.get(term).transpose())
            .collect()
    }

    /// Iterates over the terms of a range.
    pub(crate) fn stream(&self, (from, to): TermRange<'_>) -> tantivy::Result<TermStreamer<'_>> {
        let range = self.index.terms().range();
        let range = match from {
            Bound::Included(from) => range.ge(from),
            Bound::Excluded(from) => range.gt(from),
            Bound::Unbounded => range,
        };
        let range = match to {
            Bound::Included(to) => range.le(to),
            Bound::Excluded(to) => range.lt(to),
            Bound::Unbounded => range,
        };
        Ok(range.into_stream()?)
    }

    /// Tests each term of a range, and returns the terms that pass. The result is incomplete if the search is stopped.
    pub(crate) fn in_range(
        &self,
        range: TermRange<'_>,
        passes: impl Fn(&[u8]) -> bool,
    ) -> tantivy::Result<Vec<TermInfo>> {
        let mut stream = self.stream(range)?;
        let mut infos = Vec::new();
        let mut count = 0_usize;
        while let Some((term, info)) = stream.next() {
            count += 1;
            if count.is_multiple_of(TERMS_BETWEEN_CHECKS) && (self.is_stopped)() {
                break;
            }
            if passes(term) {
                infos.push(info.clone());
            }
        }
        Ok(infos)
    }

    /// Returns the terms that begin with `prefix` and pass, like [`in_range`](Self::in_range).
    pub(crate) fn with_prefix(
        &self,
        prefix: &[u8],
        passes: impl Fn(&[u8]) -> bool,
    ) -> tantivy::Result<Vec<TermInfo>> {
        let end = KeyRange::prefix(prefix).end;
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.in_range((Bound::Included(prefix), end), passes)
    }

    /// Returns the terms that consist of `prefix` and a non-empty text that passes and is within the edit distance.
    pub(crate) fn close(
        &self,
        prefix: &[u8],
        close: &Close,
        passes: impl Fn(&str) -> bool,
    ) -> tantivy::Result<Vec<TermInfo>> {
        let mut infos = Vec::new();
        let walk = CloseTerm { close, prefix };
        let mut stream = self.index.terms().search(walk).into_stream()?;
        while let Some((term, info)) = stream.next() {
            let text = &term[prefix.len()..];
            if !text.is_empty() && std::str::from_utf8(text).is_ok_and(&passes) {
                infos.push(info.clone());
            }
        }
        Ok(infos)
    }

    /// Returns all documents in the posting lists of the terms.
    pub(crate) fn documents(&self, infos: &[TermInfo]) -> tantivy::Result<RoaringBitmap> {
        if infos.iter().any(|info| info.doc_freq == self.max_doc) {
            return Ok(every(self.max_doc));
        }
        let listed: usize = infos.iter().map(|info| info.doc_freq as usize).sum();
        if listed <= SORTED_DOCUMENTS_MAX {
            let mut documents = Vec::with_capacity(listed);
            self.each_block(infos, |block| documents.extend_from_slice(block))?;
            documents.sort_unstable();
            documents.dedup();
            return Ok(ascending(documents));
        }
        let mut bits = Bits::new(self.max_doc);
        self.each_block(infos, |block| bits.set(block))?;
        Ok(bits.into_set())
    }

    /// Visits the posting lists of the terms in blocks of documents.
    pub(crate) fn each_block(
        &self,
        infos: &[TermInfo],
        mut visit: impl FnMut(&[u32]),
    ) -> tantivy::Result<()> {
        for info in infos {
            let option = IndexRecordOption::Basic;
            let mut postings = self.index.read_block_postings_from_terminfo(info, option)?;
            while !postings.docs().is_empty() {
                visit(postings.docs());
                postings.advance();
            }
        }
        Ok(())
    }

    /// Returns the posting list of a term with the positions of the term.
    pub(crate) fn positions(&self, info: &TermInfo) -> tantivy::Result<SegmentPostings> {
        let option = IndexRecordOption::WithFreqsAndPositions;
        Ok(self.index.read_postings_from_terminfo(info, option)?)
    }
}
