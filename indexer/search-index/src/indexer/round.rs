//! One round of the indexer: brings the index up to date with the catalogs, commits, and publishes a snapshot.
//!
//! A round opens or recreates the index if necessary, compares it with the catalogs, and commits batches until no
//! difference is left. Positions are committed atomically with the documents.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use roaring::RoaringBitmap;
use tantivy::{TantivyDocument, TantivyError};
use tideline_model::{Ordinal, TableId};
use tideline_timeline_catalog::{Catalog, CatalogReader, Entry};

use super::Indexer;
use super::writer::{self, OpenIndex};
use crate::mapping::{Analyzers, Documents, Token, document_key};
use crate::positions::{self, Difference, Position, Positions};
use crate::search::Snapshot;
use crate::segment::with_attributes;

/// Number of documents that are built under one lock of a catalog. Building them takes about a millisecond.
const GROUP_DOCUMENTS: usize = 500;

/// Part of a commit for one table.
struct Share {
    catalog: Arc<Catalog>,
    /// Timelines without a document.
    new: Vec<Ordinal>,
    /// Timelines with an outdated document.
    edited: Vec<Ordinal>,
    /// Removed timelines with a document.
    gone: Vec<Ordinal>,
    edits: u64,
    edits_settled: u64,
    /// Current analyzers of the table. A table without a position gets a position with these analyzers.
    analyzers: Arc<Analyzers>,
}

impl Indexer {
    /// Brings the index up to date and publishes it to searches.
    pub(super) fn round(&mut self) -> tantivy::Result<()> {
        if !self.folder.join("meta.json").exists() && self.open.is_some() {
            return Err(TantivyError::SystemError(
                "the index folder was deleted".to_owned(),
            ));
        }
        if self.open.is_none() {
            self.open_index()?;
        }
        self.reconcile()?;
        if !self.replacing {
            self.publish();
        }
        while let Some(shares) = self.gather() {
            self.commit(&shares)?;
            if self.shared.control.lock().closed {
                // The index is being closed. The remaining timelines are indexed after the next start.
                return Ok(());
            }
            if !self.replacing {
                self.publish();
            }
        }
        self.replacing = false;
        self.publish();
        Ok(())
    }

    fn open_index(&mut self) -> tantivy::Result<()> {
        let unattended = AssertUnwindSafe(|| OpenIndex::open(&self.folder));
        let sound = if self.remake {
            None
        } else {
            catch_unwind(unattended).ok().and_then(Result::ok)
        };
        let (open, positions) = match sound {
            Some(found) => found,
            None => {
                if self.remake || self.folder.join("meta.json").exists() {
                    tracing::warn!(folder = %self.folder.display(), "recreating the search index");
                    self.shared.control.lock().status.rebuilding = true;
                }
                (OpenIndex::remake(&self.folder)?, Positions::new())
            }
        };
        self.remake = false;
        self.positions = positions;
        self.open = Some(open);
        for attached in self.attached.values_mut() {
            attached.verified = false;
        }
        Ok(())
    }

    /// Compares positions with catalogs, and lists the tables to remove or to reindex from the start.
    fn reconcile(&mut self) -> tantivy::Result<()> {
        if let Some(kept) = self.kept.take() {
            let others = self.positions.keys().filter(|table| !kept.contains(table));
            self.removed.extend(others);
        }
        for (table, attached) in &mut self.attached {
            let position = self.positions.get(table);
            if position.is_some_and(|position| position.analyzers != *attached.catalog.reader().analyzers()) {
                tracing::info!(%table, "reindexing the timelines of a table with other analyzers");
                self.removed.insert(*table);
                continue;
            }
            if attached.verified {
                continue;
            }
            attached.verified = true;
            let (Some(position), Some(open)) = (self.positions.get_mut(table), &self.open) else {
                continue;
            };
            if !position.fits(&attached.catalog.reader()) {
                tracing::warn!(%table, "search index is inconsistent with the catalog; reindexing the table");
                self.removed.insert(*table);
                continue;
            }
            // A timeline may have been removed and added again between the last commit and the start. Its document
            // then has attributes that the catalog does not contain.
            position.outdated = with_attributes(&open.searcher(), open.fields, *table)?;
            let reader = attached.catalog.reader();
            let edited: RoaringBitmap = reader.edits_since(0).map(|ordinal| ordinal.0).collect();
            if position.edits <= attached.edits {
                position.outdated -= edited;
            } else {
                // The catalog lost its newest edits when their timelines were removed, or in a power failure. Later
                // edits reuse the numbers of the lost edits.
                position.edits = attached.edits;
                position.outdated |= edited & &position.indexed;
            }
        }
        // Removed tables are excluded from searches from now on; the next commit deletes their documents.
        self.removed
            .retain(|table| self.positions.remove(table).is_some());
        Ok(())
    }

    /// Collects the content of the next commit. Returns `None` if there is nothing to commit.
    fn gather(&self) -> Option<Vec<Share>> {
        let mut room = usize::try_from(self.options.commit_documents)
            .unwrap_or(usize::MAX)
            .max(1);
        let nothing = Position::default();
        let mut shares = Vec::new();
        for (table, attached) in &self.attached {
            let position = self.positions.get(table).unwrap_or(&nothing);
            let reader = attached.catalog.reader();
            let Difference { new, edited, gone } = position.difference(&reader);
            let mut first = |ordinals: RoaringBitmap| -> Vec<Ordinal> {
                let ordinals: Vec<Ordinal> = ordinals.iter().take(room).map(Ordinal).collect();
                room -= ordinals.len();
                ordinals
            };
            let (gone, new) = (first(gone), first(new));
            let edited = edited & &position.indexed;
            let edited: Vec<Ordinal> = edited.iter().map(Ordinal).collect();
            if !new.is_empty() || !edited.is_empty() || !gone.is_empty() {
                shares.push(Share {
                    catalog: Arc::clone(&attached.catalog),
                    new,
                    edited,
                    gone,
                    edits: reader.edit_counter(),
                    edits_settled: reader.settled_edits(),
                    analyzers: Arc::clone(reader.analyzers()),
                });
            }
        }
        (!shares.is_empty() || !self.removed.is_empty()).then_some(shares)
    }

    /// Writes and commits documents together with their positions.
    fn commit(&mut self, shares: &[Share]) -> tantivy::Result<()> {
        let gone = || TantivyError::SystemError("the index is not open".to_owned());
        let open = self.open.as_mut().ok_or_else(gone)?;
        let fields = open.fields;
        let writer = open.writer(self.options.heap_bytes)?;
        for table in &self.removed {
            writer::delete_token(writer, fields, &Token::table(*table))?;
        }
        let keys: HashSet<u64> = shares.iter().flat_map(Share::outdated_keys).collect();
        if !keys.is_empty() {
            writer::delete_keys(writer, keys)?;
        }
        let mut positions = self.positions.clone();
        for share in shares {
            let table = share.catalog.table();
            let position = positions.entry(table);
            let position = position.or_insert_with(|| Position::new(Arc::clone(&share.analyzers)));
            let mut made = Documents::new(fields, table, Arc::clone(&position.analyzers));
            for ordinals in [&share.gone, &share.edited, &share.new] {
                for group in ordinals.chunks(GROUP_DOCUMENTS) {
                    let reader = share.catalog.reader();
                    let documents = renewed(&reader, group, position, |entry| made.document(entry))
                        .ok_or_else(|| TantivyError::SystemError("a timeline has no id".to_owned()))?;
                    // If the pipeline is full, the next call blocks, which must not happen under the catalog's lock.
                    drop(reader);
                    writer::add(writer, documents)?;
                }
            }
            position.edits = share.edits;
            position.edits_settled = share.edits_settled.min(share.edits);
        }
        let mut commit = writer.prepare_commit()?;
        commit.set_payload(&positions::encode(&positions));
        commit.commit()?;
        open.reload()?;
        self.positions = positions;
        self.removed.clear();
        Ok(())
    }

    /// Publishes the committed state to searches.
    pub(super) fn publish(&self) {
        let Some(open) = &self.open else { return };
        let mut positions = self.positions.clone();
        positions.retain(|table, _| self.attached.contains_key(table));
        let snapshot = Snapshot {
            searcher: open.searcher(),
            fields: open.fields,
            positions,
        };
        *self.shared.snapshot.write() = Some(Arc::new(snapshot));
    }
}

/// Updates the position for a group of timelines and builds their new documents. Returns `None` if the catalog has no
/// id for one of the ordinals.
fn renewed(
    reader: &CatalogReader<'_>,
    group: &[Ordinal],
    position: &mut Position,
    mut document: impl FnMut(&Entry<'_>) -> TantivyDocument,
) -> Option<Vec<TantivyDocument>> {
    let mut documents = Vec::with_capacity(group.len());
    for ordinal in group {
        // The commit deletes the old document even if the timeline was removed or added again in the meantime.
        position.remove(*ordinal, reader.known_id(*ordinal)?);
        if let Some(entry) = reader.entry(*ordinal) {
            documents.push(document(&entry));
            position.add(*ordinal, entry.id());
        }
    }
    Some(documents)
}

impl Share {
    fn outdated_keys(&self) -> impl Iterator<Item = u64> {
        let table: TableId = self.catalog.table();
        let outdated = self.edited.iter().chain(&self.gone);
        outdated.map(move |ordinal| document_key(table, *ordinal))
    }
}
