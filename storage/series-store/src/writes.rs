//! What the series model writes to the log: deltas of points, deletes, and marks that pass over sequences.

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

/// Points on their way through the log.
struct PointWrite {
    shared: Arc<Shared>,
    table: Arc<Table>,
    delta: Arc<Delta>,
    shapes: Vec<Arc<Shape>>,
    encoded: Bytes,
    durability: Durability,
    /// The table's generation of timelines from before they were named.
    generation: u64,
}

/// A delete on its way through the log.
struct Delete {
    shared: Arc<Shared>,
    table: Arc<Table>,
    record: DeleteRecord,
    encoded: Bytes,
}

/// An entry without points.
struct Mark {
    shared: Arc<Shared>,
    table: TableId,
    encoded: Bytes,
}

impl SeriesStore {
    /// Commits a delta and waits for its acknowledgement.
    ///
    /// `shapes` holds the table's shape of each group of the delta. After `Ok` with [`Durability::Synced`] the
    /// points are on stable storage, and every later read sees them. After an error the outcome is unknown
    /// unless the error says otherwise; the same delta may be sent again. Blocks for a group commit.
    ///
    /// `generation` is the table's [`timeline_generation`](Table::timeline_generation) from before the delta's
    /// timelines were named: where it has moved on, nothing is written, and the caller names the timelines of its delta
    /// anew after [`StoreError::TimelinesRemoved`].
    ///
    /// A delta that [fits into](Delta::fits_into) [`VALUE_BYTES_MAX`] is never too large. Of any other one the encoding
    /// decides, so a caller splits it first where it [can](Delta::can_split).
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
            // Noticed here, since the writes that it would be appended with would fail too.
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

    /// Deletes the points of timelines in a range, in every tier; with `removes_timelines` the timelines too.
    ///
    /// After `Ok` it is on stable storage, and no later read sees them. Their bytes go when the segments that hold
    /// them are rewritten. A point written afterwards is visible; the same delete again harms nothing.
    pub fn delete(&self, table: &Arc<Table>, record: DeleteRecord) -> Result<Committed> {
        if table.is_in_doubt() {
            self.log().settle()?;
        }
        let delta = Delta {
            table: table.id(),
            delete: Some(record.clone()),
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

    /// Has all writes from now on behind a sequence; the next one.
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
        // Before the answer, and before this head can be sealed: its journal is what carries the identities.
        shared
            .directory
            .announced(self.table.id(), &self.delta.new_timelines);
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

    /// Writes after it that take removed timelines for known are to be refused.
    fn ends_group(&self) -> bool {
        self.record.removes_timelines
    }

    fn check(&self) -> std::result::Result<(), Refusal> {
        self.shared.check_table(&self.table)
    }

    /// Applies it to the active head, to what readers mask, to the latest values.
    ///
    /// It is in the journal: whatever fails here, a restart would find it, so it is applied to the end.
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
            // In this order: with the counter raised first, a writer could read it and still take them for known.
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
