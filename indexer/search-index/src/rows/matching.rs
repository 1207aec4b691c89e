//! Visits the stored keys of all rows that match a condition.
//!
//! The keys of a segment are visited in key order, so the caller reads neighboring rows one after the other. Only one
//! segment is in memory at a time: a set of matching documents, and a number per matching document.

use tantivy::TantivyError;
use tideline_condition::Node;

use super::schema::KEY;
use super::{RowIndex, RowsShown};

/// Number of keys that are decoded in one pass over the dictionary.
const KEYS_AT_ONCE: usize = 4_096;

impl RowIndex {
    /// Passes the stored key of each row that matches a condition to `take`, as of the last commit. Ends early if
    /// `take` returns false or `is_stopped` returns true.
    ///
    /// # Errors
    ///
    /// An error of reading the index, which must then be built again.
    pub fn each_key(
        &self,
        root: &Node,
        shown: RowsShown<'_>,
        is_stopped: &dyn Fn() -> bool,
        take: &mut dyn FnMut(&[u8]) -> bool,
    ) -> super::Result<()> {
        let searchers = self.searchers(shown.shards);
        for found in self.each_segment(&searchers, root, shown, is_stopped) {
            let (reader, found) = found?;
            if found.is_empty() {
                continue;
            }
            let keys = reader.fast_fields().bytes(KEY).map_err(super::RowIndexError)?;
            let keys = keys.ok_or_else(|| TantivyError::SystemError("no column of keys".to_owned()))?;
            let numbers = found.iter().filter_map(|document| keys.ords().first(document));
            let mut numbers: Vec<u64> = numbers.collect();
            numbers.sort_unstable();
            for some in numbers.chunks(KEYS_AT_ONCE) {
                let mut decoded: Vec<Vec<u8>> = Vec::with_capacity(some.len());
                let dictionary = keys.dictionary();
                let read = dictionary.sorted_ords_to_term_cb(some, |key| decoded.push(key.to_vec()));
                read.map_err(TantivyError::from)?;
                for key in &decoded {
                    if is_stopped() || !take(key) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}
