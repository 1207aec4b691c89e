//! Log entries of the series model: deltas of points, deletes, and marks that skip sequences.
//!
//! Each entry is encoded before it is committed. The committer thread applies it after the append, in journal order.

use std::sync::Arc;

use bytes::Bytes;
use tideline_backend::VALUE_BYTES_MAX;
use tideline_chunk::{DeleteRecord, Delta};
use tideline_log::{LogEntry, LogError, ModelError, Refusal, RequestRecord};
use tideline_model::{Durability, SequenceNumber, TableId};

use crate::error::{Result, StoreError};
use crate::schema::Shape;
use crate::sharding::ShardedDelta;
use crate::shared::Shared;
use crate::store::{Committed, SeriesStore};
use crate::tables::Table;

/// Log entry with points.
struct PointWrite {
    shared: Arc<Shared>,
    table: Arc<Table>,
    delta: Arc<Delta>,
    shapes: Vec<Arc<Shape>>,
    encoded: Bytes,
    durability: Durability,
    /// Timeline generation of the table, read before the timelines were resolved.
    generation: u64,
}

/// Log entry with a delete.
struct Delete {
    shared: Arc<Shared>,
    table: Arc<Table>,
    record: DeleteRecord,
    encoded: Bytes,
}

/// Log entry without points, which only advances the sequence.
struct Mark {
    shared: Arc<Shared>,
    table: TableId,
    encoded: Bytes,
}

impl SeriesStore {
    /// Commits a delta. Blocks until its group commit is acknowledged.
    ///
    /// `shapes` holds the shape of each group of the delta. After `Ok`, every later read returns the points. With
    /// [`Durability::Synced`], they are then on stable storage.
    ///
    /// `generation` is the [`timeline_generation`](Table::timeline_generation) of the table, read before the timelines
    /// of the delta were resolved. If the generation has changed, nothing is written, and the caller must resolve the
    /// timelines again.
    ///
    /// A delta that [fits into](Delta::fits_into) [`VALUE_BYTES_MAX`] is never too large. For other deltas the
    /// encoded size decides; the caller should split them first if they [can be split](Delta::can_split).
    ///
    /// # Errors
    ///
    /// [`StoreError::TimelinesRemoved`] if `generation` is outdated; [`StoreError::BadDelta`] or
    /// [`StoreError::DeltaTooLarge`] if the delta cannot be encoded as one entry; [`StoreError::TableDropped`] or
    /// [`StoreError::TableInDoubt`] if the table was or may have been dropped; the errors of the log. For errors of
    /// the log the outcome is unknown unless the error states otherwise; the same delta may be sent again.
    pub fn commit(
        &self,
        table: &Arc<Table>,
        delta: &Arc<Delta>,
        shapes: Vec<Arc<Shape>>,
        durability: Durability,
        generation: u64,
    ) -> Result<Committed> {
        if table.is_in_doubt() {
            self.log().settle()?;
        }
        let mut encoded = Vec::new();
        delta.encode(&mut encoded).map_err(StoreError::BadDelta)?;
        if encoded.len() > VALUE_BYTES_MAX {
            // The size is checked here, because an oversized entry would also fail the other writes of its group.
            let bytes = encoded.len();
            return Err(StoreError::DeltaTooLarge { bytes });
        }
        let write = PointWrite {
            shared: Arc::clone(self.shared()),
            table: Arc::clone(table),
            delta: Arc::clone(delta),
            shapes,
            encoded: encoded.into(),
            durability,
            generation,
        };
        match self.threads().commit(Box::new(write)) {
            Ok(sequence) => Ok(Committed { sequence }),
            Err(LogError::Refused(Refusal::Outdated)) => Err(StoreError::TimelinesRemoved),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes the points of timelines in a time range, in every tier. With `removes_timelines`, also removes the
    /// timelines.
    ///
    /// After `Ok` the delete is on stable storage, and no later read returns the points. Their bytes are freed when the
    /// segments that hold them are rewritten. Points written afterwards are visible. Repeating the same delete changes
    /// nothing, unless points were written in between.
    ///
    /// # Errors
    ///
    /// [`StoreError::BadDelta`] if the record is not valid; [`StoreError::TableDropped`] or
    /// [`StoreError::TableInDoubt`] if the table was or may have been dropped; the errors of the log.
    pub fn delete(&self, table: &Arc<Table>, record: DeleteRecord) -> Result<Committed> {
        self.commit_delete(table, record, Vec::new())
    }

    /// Removes timelines with their points like [`delete`](Self::delete), and records their identities in the journal,
    /// so that its readers know them although the catalog forgets them. `identities` holds the encoded identity of each
    /// timeline.
    ///
    /// # Errors
    ///
    /// The errors of [`delete`](Self::delete); [`StoreError::BadDelta`] also if the record does not remove timelines or
    /// an identity is missing.
    pub fn remove(
        &self,
        table: &Arc<Table>,
        record: DeleteRecord,
        identities: Vec<Vec<u8>>,
    ) -> Result<Committed> {
        self.commit_delete(table, record, identities)
    }

    fn commit_delete(
        &self,
        table: &Arc<Table>,
        record: DeleteRecord,
        removed: Vec<Vec<u8>>,
    ) -> Result<Committed> {
        if table.is_in_doubt() {
            self.log().settle()?;
        }
        let delta = Delta {
            table: table.id(),
            delete: Some(record.clone()),
            removed,
            ..Delta::default()
        };
        let delete = Delete {
            shared: Arc::clone(self.shared()),
            table: Arc::clone(table),
            record,
            encoded: encode(&delta)?,
        };
        let sequence = self.threads().commit(Box::new(delete))?;
        Ok(Committed { sequence })
    }

    /// Raises the sequences of all later writes to at least `to`. Returns the next sequence.
    pub(crate) fn raise(&self, table: TableId, to: SequenceNumber) -> Result<SequenceNumber> {
        let delta = Delta {
            table,
            ..Delta::default()
        };
        let mark = Mark {
            shared: Arc::clone(self.shared()),
            table,
            encoded: encode(&delta)?,
        };
        Ok(self.threads().raise(to, Box::new(mark))?)
    }
}

fn encode(delta: &Delta) -> Result<Bytes> {
    let mut encoded = Vec::new();
    delta.encode(&mut encoded).map_err(StoreError::BadDelta)?;
    Ok(encoded.into())
}

impl LogEntry for PointWrite {
    fn kind(&self) -> &'static str {
        "write"
    }

    fn table(&self) -> TableId {
        self.table.id()
    }

    fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn request(&self) -> Option<RequestRecord> {
        let request = self.delta.request.as_ref()?;
        Some(RequestRecord {
            key: request.key,
            outcome: request.outcome.clone().into(),
        })
    }

    fn check(&self) -> std::result::Result<(), Refusal> {
        self.shared.check_table(&self.table)?;
        match self.generation == self.table.timeline_generation() {
            true => Ok(()),
            false => Err(Refusal::Outdated),
        }
    }

    fn apply(&self, sequence: SequenceNumber) -> std::result::Result<(), ModelError> {
        let shared = &self.shared;
        let sharded = ShardedDelta::new(&self.delta, &self.shapes);
        let head = Arc::clone(&shared.state.read().active);
        head.apply(&sharded, sequence, shared.settings.head);
        shared.note_stored(&self.delta);
        self.table.latest().apply(&sharded, sequence, true);
        // The directory must record these timelines before the write is acknowledged and before this head is sealed.
        // The seal removes the journal, which carries the identities.
        shared
            .directory
            .made_durable(self.table.id(), &self.delta.new_timelines);
        Ok(())
    }
}

impl LogEntry for Delete {
    fn kind(&self) -> &'static str {
        "delete"
    }

    fn table(&self) -> TableId {
        self.table.id()
    }

    fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    fn durability(&self) -> Durability {
        Durability::Synced
    }

    /// Returns true if the delete removes timelines. Later writes that assume these timelines to exist must then be
    /// refused, so they must not be in the same group commit.
    fn ends_group(&self) -> bool {
        self.record.removes_timelines
    }

    fn check(&self) -> std::result::Result<(), Refusal> {
        self.shared.check_table(&self.table)
    }

    /// Applies the delete to the active head, to the masks of readers, and to the latest values.
    ///
    /// The delete is already in the journal, and a restart would apply it. Therefore all steps are done even if one
    /// fails.
    fn apply(&self, sequence: SequenceNumber) -> std::result::Result<(), ModelError> {
        let Self {
            shared,
            table,
            record,
            encoded,
        } = self;
        let head = Arc::clone(&shared.state.read().active);
        let deleted = head.delete(table.id(), &record.timelines, record.range, sequence);
        shared
            .waiting_rows
            .lock()
            .insert(sequence, (table.id(), encoded.clone()));
        shared.state.write().deletes.add(table.id(), sequence, record);
        table.latest().forget(&record.timelines);
        if record.removes_timelines {
            // The order matters: if the counter was raised first, a writer could read it and still assume that the
            // timelines exist.
            shared.directory.removed(table.id(), &record.timelines);
            table.timelines_removed();
        }
        Ok(deleted?)
    }
}

impl LogEntry for Mark {
    fn kind(&self) -> &'static str {
        "raise"
    }

    fn table(&self) -> TableId {
        self.table
    }

    fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    fn durability(&self) -> Durability {
        Durability::Synced
    }

    fn check(&self) -> std::result::Result<(), Refusal> {
        Ok(())
    }

    fn apply(&self, sequence: SequenceNumber) -> std::result::Result<(), ModelError> {
        let head = Arc::clone(&self.shared.state.read().active);
        head.pass(sequence);
        Ok(())
    }
}
