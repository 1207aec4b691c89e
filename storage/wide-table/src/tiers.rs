//! Indexes that cover only some of the tiers, while parts move between the tiers.
//!
//! The tier of the part of a row determines which indexes have an entry of the row. A part moves to a tier with other
//! indexes in four steps:
//!
//! 1. *Clear*: a flush removes entries that are left from an earlier stay in this tier.
//! 2. *Mark*: the manifest row of the part records the new tier. From now on, also after a restart, writes maintain the
//!    indexes of both tiers. The committer refuses writes that were decided before.
//! 3. *Build*: the entries of the rows of the part are written, as in the build of an index. Reads do not see them yet.
//! 4. *Publish*: one edit replaces the part by its copy in the new tier, removes the mark, and removes the parts of the
//!    indexes that do not cover this tier. Readers therefore find a row through the indexes of one tier, never of both.
//!
//! A move that is interrupted after the mark continues with the build, which starts from the beginning. If an index is
//! created after the mark, the job of this index builds its entries, and writes maintain them for both tiers.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use tideline_log::fail_points::around;
use tideline_log::{LogError, LogThreads, Manifest};
use tideline_model::{KeyRange, TableId, Tier, TierScope};

use crate::division::{ALL_PARTS, PartNumbers, PartSelection, RECORD};
use crate::error::{Result, WideError};
use crate::index::Index;
use crate::moves::{MoveEnd, MoveProgress};
use crate::state::{Part, PartDetail, PartKey, State, removal_of};
use crate::store::WideStore;
use crate::tables::TableRules;

impl WideStore {
    /// Moves a part of a table into the hot or the cold tier, with the columns of its groups and the entries of its
    /// rows in secondary indexes. Builds the entries of indexes that cover only the new tier, and drops the entries of
    /// indexes that do not cover it. `build_documents` must add the documents of the part to search indexes that cover
    /// only the new tier. Reads and writes continue during the move. Calls `proceed` after every few megabytes, with
    /// the work so far.
    ///
    /// # Errors
    ///
    /// The errors of the backend and of the log, and [`WideError::NotIndexable`] for a row that an index of the new
    /// tier cannot hold. After an error, some parts may have moved; a repeated move continues with the others.
    pub fn move_table_part(
        self: &Arc<Self>,
        threads: &LogThreads,
        (table, number): PartKey,
        tier: Tier,
        build_documents: &mut BuildDocuments<'_>,
        proceed: &mut dyn FnMut(&MoveProgress) -> ControlFlow<()>,
    ) -> Result<MoveEnd> {
        let mut done = MoveProgress::default();
        match self.prepare_tier(threads, (table, number), tier, &mut done, proceed)? {
            Prepared::End(end) => return Ok(end),
            Prepared::Searches(searches) => {
                for search in searches {
                    if let Some(end) = build_documents(search, &mut || proceed(&done))? {
                        return Ok(end);
                    }
                }
            }
        }
        let mut end = MoveEnd::Gone;
        let rules = match self.rules(table) {
            Err(WideError::NoTable(_)) => return Ok(end),
            rules => rules?,
        };
        let moved = rules.indexes.iter().filter(|index| index.tier().has(tier));
        let moved = moved.map(|index| index.id()).chain(rules.groups.ids());
        for table in moved.chain([table]) {
            let mut step = |work: &MoveProgress| proceed(&done.plus(work));
            let moved = self.move_part((table, number), tier, &mut step)?;
            match moved {
                MoveEnd::Moved(work) => {
                    done = done.plus(&work);
                    end = MoveEnd::Moved(done);
                }
                MoveEnd::Gone => {}
                MoveEnd::Stopped | MoveEnd::Busy | MoveEnd::Unready => return Ok(moved),
            }
        }
        Ok(end)
    }

    /// Performs the steps before the publication: builds the entries that the rows of a part need in another tier.
    fn prepare_tier(
        self: &Arc<Self>,
        threads: &LogThreads,
        (table, number): PartKey,
        tier: Tier,
        done: &mut MoveProgress,
        proceed: &mut dyn FnMut(&MoveProgress) -> ControlFlow<()>,
    ) -> Result<Prepared> {
        let nothing = Prepared::Searches(Vec::new());
        let Some(part) = self.state().parts.get(&(table, number)).copied() else {
            return Ok(nothing);
        };
        let gained = self.gained(&part, tier)?;
        // A part in the archive must be restored before it can move. Until then, only its entries in indexes of all
        // tiers move.
        if part.is_archived() || part.detail.tier == tier || gained.is_empty() {
            return Ok(nothing);
        }
        if part.detail.moves_to != Some(tier) {
            // Entries whose check has passed are applied first, so that the removal of old entries includes them.
            self.settle_writes(threads, table)?;
            for index in gained.indexes {
                self.clear_entries(threads, (index, number))?;
            }
            let is_marked = self.change_detail(table, number, &|detail| {
                let is_there = detail.tier == part.detail.tier;
                if is_there {
                    detail.set_moving(tier);
                }
                is_there
            })?;
            if !is_marked {
                return Ok(Prepared::End(MoveEnd::Gone));
            }
        }
        self.settle_writes(threads, table)?;
        // These are the indexes that exist after the mark. The job of a later index builds its entries.
        let gained = self.gained(&part, tier)?;
        for index in gained.indexes {
            let is_stopped = self.build_part(threads, (table, number), index, done, proceed)?;
            if is_stopped {
                return Ok(Prepared::End(MoveEnd::Stopped));
            }
        }
        Ok(Prepared::Searches(gained.searches))
    }

    /// Builds the entries of the rows of a part. Returns true if the caller stopped the work.
    fn build_part(
        self: &Arc<Self>,
        threads: &LogThreads,
        (table, number): PartKey,
        index: TableId,
        done: &mut MoveProgress,
        proceed: &mut dyn FnMut(&MoveProgress) -> ControlFlow<()>,
    ) -> Result<bool> {
        let numbers: PartNumbers = number..=number;
        let mut next = Some(Bytes::new());
        while let Some(from) = next {
            let step = around("wide_move", "build", || {
                self.build_parts(threads, table, (index, &numbers), &from)
            });
            let step = match step {
                // The index was dropped.
                Err(WideError::NoTable(_)) => return Ok(false),
                step => step?,
            };
            done.values += step.rows;
            done.bytes += step.bytes_read;
            next = step.next;
            if proceed(done).is_break() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes all entries of an index in a part that the index does not cover: stored entries, and entries in the row
    /// buffer.
    fn clear_entries(self: &Arc<Self>, threads: &LogThreads, (index, number): PartKey) -> Result<()> {
        self.flush_closed(index, number, &|| Ok(threads.flush()?))?;
        self.drop_index_part((index, number))
    }

    /// Removes a part of an index. No reader reads its entries.
    fn drop_index_part(self: &Arc<Self>, part_key: PartKey) -> Result<()> {
        let _ending = self.begin_end();
        let Some(part) = self.state().parts.get(&part_key).copied() else {
            return Ok(());
        };
        let edit =
            |current: &Arc<Manifest>| Ok::<_, LogError>(self.edit_with_ids(current, vec![removal_of(&part)]));
        self.log.edit(edit, |_| self.replace_parts(&[part], &[]))?;
        Ok(())
    }

    /// Returns the indexes that cover `tier`, but not the tier of the part.
    fn gained(&self, part: &Part, tier: Tier) -> Result<Gained> {
        match self.rules(part.at.table) {
            Err(WideError::NoTable(_)) => Ok(Gained::default()),
            rules => Ok(Gained::new(rules?.as_ref(), part.detail.tier, tier)),
        }
    }

    /// Returns false if a part cannot be published with this detail, because an index of its new tier lacks the
    /// entries. The caller must ensure that no build of an index begins at the same time.
    pub(crate) fn is_prepared(&self, part: &Part, detail: &PartDetail) -> bool {
        let tables = self.tables();
        let rules = tables.get(part.at.table);
        let is_needed =
            rules.is_some_and(|rules| !Gained::new(rules, part.detail.tier, detail.tier).is_empty());
        !is_needed || part.detail.moves_to == Some(detail.tier)
    }

    /// Returns the parts of the indexes that do not cover the new tier of a part of their table.
    pub(crate) fn lost_parts(&self, state: &State, part: &Part, tier: Tier) -> Vec<Part> {
        let tables = self.tables();
        let indexes = tables
            .get(part.at.table)
            .into_iter()
            .flat_map(|rules| &rules.indexes);
        let lost = indexes.filter(|index| !index.tier().has(tier));
        let part_keys = lost.map(|index| (index.id(), part.number()));
        part_keys
            .filter_map(|part_key| state.parts.get(&part_key).copied())
            .collect()
    }

    /// Returns the tier in which a new part is stored. For a part of an index, this is the tier of the part of its
    /// rows, or the tier to which that part is about to move if the index covers only the latter. Other parts are
    /// stored in the hot tier.
    pub(crate) fn first_tier(&self, (id, number): PartKey) -> Tier {
        let rules = self.rules(id).ok();
        let Some(entries) = rules.as_ref().and_then(|rules| rules.entries.as_ref()) else {
            return Tier::Hot;
        };
        let state = self.state();
        let part = state.parts.get(&(entries.table, number));
        let tier = part.map_or(Tier::Hot, |part| match part.detail.moves_to {
            Some(next) if !entries.index.tier().has(part.detail.tier) => next,
            _ => part.detail.tier,
        });
        tier.kept_in()
    }

    /// Returns true if a search index with this scope has the document of a row. This is the case if it covers the tier
    /// of the part of the row, or the tier to which the part is about to move.
    ///
    /// # Errors
    ///
    /// The errors of [`tier_of`](Self::tier_of).
    pub fn maintains_document(&self, table: TableId, key: &[u8], scope: TierScope) -> Result<bool> {
        if scope.is_all() {
            return Ok(true);
        }
        let number = self.rules(table)?.part_of(key);
        let number = number.map_err(|reason| WideError::Damaged { table, reason })?;
        Ok(self.state().maintains(table, number, scope))
    }

    /// Returns the numbers of the stored parts of a table whose rows have no documents in a search index with this
    /// scope.
    pub fn parts_without_documents(&self, table: TableId, scope: TierScope) -> BTreeSet<i32> {
        let state = self.state();
        let numbers = state.parts_of(table, ALL_PARTS).map(Part::number);
        let without = numbers.filter(|number| *number != RECORD && !state.maintains(table, *number, scope));
        without.collect()
    }

    /// Returns the numbers of the parts of a table that are in the cold tier or in the archive.
    pub fn cold_parts(&self, table: TableId) -> BTreeSet<i32> {
        let state = self.state();
        let parts = state.parts_of(table, ALL_PARTS);
        parts
            .filter(|part| TierScope::Cold.has(part.detail.tier))
            .map(Part::number)
            .collect()
    }

    /// Returns the tier of the part of a row, which need not exist. Rows that were never flushed are in the hot tier.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist, and [`WideError::Damaged`] if the key is damaged.
    pub fn tier_of(&self, table: TableId, key: &[u8]) -> Result<Tier> {
        let number = self.rules(table)?.part_of(key);
        let number = number.map_err(|reason| WideError::Damaged { table, reason })?;
        Ok(self.state().tier_of(table, number))
    }

    /// Returns an error if a read of an index concerns parts for which the index has no entries.
    ///
    /// # Errors
    ///
    /// [`WideError::TierNotCovered`].
    pub(crate) fn check_covered(
        &self,
        state: &State,
        rules: &TableRules,
        numbers: &PartNumbers,
        tier: TierScope,
    ) -> Result<()> {
        let Some(entries) = rules.entries.as_ref().filter(|of| !of.index.tier().is_all()) else {
            return Ok(());
        };
        let (table, covered) = (entries.table, entries.index.tier());
        let is_missing = |stored: Tier| tier.has(stored) && !covered.has(stored);
        let mut parts = state.parts_of(table, numbers.clone());
        let stored = parts.find(|part| part.number() != RECORD && is_missing(part.detail.tier));
        let missing = match stored {
            Some(part) => Some(part.detail.tier),
            None if is_missing(Tier::Hot) && self.has_unstored_part(state, table, numbers)? => {
                Some(Tier::Hot)
            }
            None => None,
        };
        match missing {
            None => Ok(()),
            Some(missing) => Err(WideError::TierNotCovered {
                index: entries.index.name().to_owned(),
                covered: covered.name(),
                missing: missing.name(),
            }),
        }
    }

    /// Returns an error if a read of ranges of an index concerns parts for which the index has no entries.
    ///
    /// # Errors
    ///
    /// [`WideError::TierNotCovered`], and [`WideError::NoTable`] if the index does not exist.
    pub fn check_index_covers(
        &self,
        index: &Index,
        parts: &PartSelection,
        ranges: &[KeyRange],
    ) -> Result<()> {
        let rules = self.rules(index.id())?;
        let visible = self.visible_parts(&rules);
        let state = self.state();
        for range in ranges {
            let numbers = rules.kept_parts(range, &parts.numbers);
            let numbers = *visible.start().max(numbers.start())..=*numbers.end();
            self.check_covered(&state, &rules, &numbers, parts.tier)?;
        }
        Ok(())
    }

    /// Returns true if rows were written to one of these parts, and the part is not stored yet.
    fn has_unstored_part(&self, state: &State, table: TableId, numbers: &PartNumbers) -> Result<bool> {
        if numbers.is_empty() {
            return Ok(false);
        }
        self.with_written_parts(table, |written| {
            let mut written = written.range(numbers.clone());
            written.any(|number| !state.parts.contains_key(&(table, *number)))
        })
    }
}

/// Function that adds the documents of a part to a search index before the part is moved. The function calls its
/// argument while it works, and stops if the argument returns `Break`. It returns the result of the move if the move
/// must not continue.
pub type BuildDocuments<'b> =
    dyn FnMut(TableId, &mut dyn FnMut() -> ControlFlow<()>) -> Result<Option<MoveEnd>> + 'b;

/// Result of the steps before the publication of a move.
enum Prepared {
    /// The move must not continue.
    End(MoveEnd),
    /// The entries are complete. These search indexes still need the documents of the part.
    Searches(Vec<TableId>),
}

/// Indexes for which a part needs entries, and search indexes for which it needs documents, when the part moves.
#[derive(Debug, Default)]
struct Gained {
    indexes: Vec<TableId>,
    searches: Vec<TableId>,
}

impl Gained {
    /// Returns the indexes that cover the tier `to`, but not the tier `from`.
    fn new(rules: &TableRules, from: Tier, to: Tier) -> Self {
        let is_gained = |scope: TierScope| scope.has(to) && !scope.has(from);
        let indexes = rules.indexes.iter().filter(|index| is_gained(index.tier()));
        let searches = rules.searches.iter().zip(&rules.search_tiers);
        Self {
            indexes: indexes.map(|index| index.id()).collect(),
            searches: searches
                .filter(|(_, scope)| is_gained(**scope))
                .map(|(id, _)| *id)
                .collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.indexes.is_empty() && self.searches.is_empty()
    }
}
