//! Copies the visible points of a table into another one, with identities and attributes of their timelines.
//!
//! Timelines are read in id order, in groups; each group is read from one snapshot. The points are written as by any
//! other write request. Repeating a copy is safe, because each point replaces its earlier copy.

use std::ops::ControlFlow;

use hashbrown::HashMap;
use roaring::RoaringBitmap;
use tideline_chunk::Run;
use tideline_model::{ColumnData, Identity, Ordinal, PointBatch, PointGroup, TimeRange, TimelineId};
use tideline_series_store::{Order, Selection};
use tideline_timeline_catalog::AttributeChanges;

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::tables::Table;
use crate::write::WriteOptions;

/// Number of timelines read from one snapshot. A snapshot keeps dropped segments alive until it is released.
const TIMELINES_AT_ONCE: usize = 1_000;
/// Number of buffered rows at which the buffer is written to the target table; far below the limit of a write.
const ROWS_AT_ONCE: usize = 8_192;

/// Progress of a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PointsCopied {
    /// Timelines of the source table, including timelines without points in the range.
    pub timelines: u64,
    /// Timelines of the groups completed so far.
    pub seen: u64,
    /// Points written to the target table.
    pub points: u64,
    /// Field values of the points written to the target table.
    pub values: u64,
    /// Points that the target table refused.
    pub refused: u64,
    /// Reason of the first refusal.
    pub first_refusal: Option<String>,
}

/// Timeline to copy.
struct Copied {
    id: TimelineId,
    identity: Identity,
    attributes: AttributeChanges,
}

impl Engine {
    /// Copies the points of a range into another table.
    ///
    /// `watch` is called after every write and after every group of 1,000 timelines. When it returns false, the copy
    /// ends; `seen` is then below `timelines`, unless all timelines were copied.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::Invalid`] if both tables are the same, or the error of reading or writing points.
    /// Points copied before stay.
    pub fn copy_points(
        &self,
        from: &Table,
        into: &Table,
        range: TimeRange,
        watch: &mut dyn FnMut(&PointsCopied) -> bool,
    ) -> Result<PointsCopied> {
        if from.points.id() == into.points.id() {
            return Err(EngineError::Invalid(
                "a table cannot be copied into itself".into(),
            ));
        }
        let mut ids: Vec<TimelineId> = {
            let reader = from.catalog.reader();
            let visible = reader.visible().iter();
            visible.map(|ordinal| reader.id(Ordinal(ordinal))).collect()
        };
        ids.sort_unstable();
        let mut progress = PointsCopied {
            timelines: ids.len() as u64,
            ..PointsCopied::default()
        };
        let mut some = ids.chunks(TIMELINES_AT_ONCE);
        let mut is_wanted = true;
        while let Some(ids) = some.next().filter(|_| is_wanted) {
            is_wanted = self.copy_some(from, into, ids, range, &mut progress, watch)?;
        }
        Ok(progress)
    }

    fn copy_some(
        &self,
        from: &Table,
        into: &Table,
        ids: &[TimelineId],
        range: TimeRange,
        progress: &mut PointsCopied,
        watch: &mut dyn FnMut(&PointsCopied) -> bool,
    ) -> Result<bool> {
        let snapshot = self.store.snapshot();
        let mut reader = snapshot.reader(Selection {
            table: from.points.id(),
            timelines: ids,
            range,
            fields: None,
            order: Order::Ascending,
            tier: None,
        });
        let mut copy = Copy {
            engine: self,
            from,
            into,
            batch: PointBatch::default(),
            rows: 0,
            progress,
            watch,
            is_wanted: true,
        };
        let mut described: Vec<(Ordinal, AttributeChanges)> = Vec::new();
        for copied in known(from, ids)? {
            let (mut ordinal, mut failure) = (None, None);
            reader.timeline(copied.id, &mut |run| {
                let added = copy.add(&copied, &mut ordinal, run);
                failure = added.err();
                Ok(match failure.is_none() && copy.is_wanted {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                })
            })?;
            if let Some(error) = failure {
                return Err(error);
            }
            described.extend(ordinal.map(|ordinal| (ordinal, copied.attributes)));
            if !copy.is_wanted {
                break;
            }
        }
        let is_all = copy.is_wanted;
        copy.flush()?;
        let is_wanted = copy.is_wanted;
        self.describe_copies(into, described)?;
        progress.seen += if is_all { ids.len() as u64 } else { 0 };
        Ok(is_wanted && watch(progress))
    }

    /// Sets the attributes of timelines. Timelines with equal attributes are changed together.
    fn describe_copies(&self, into: &Table, described: Vec<(Ordinal, AttributeChanges)>) -> Result<()> {
        let mut alike: Vec<(AttributeChanges, RoaringBitmap)> = Vec::new();
        for (ordinal, attributes) in described.into_iter().filter(|(_, have)| !have.is_empty()) {
            match alike.iter_mut().find(|(have, _)| *have == attributes) {
                Some((_, ordinals)) => {
                    ordinals.insert(ordinal.0);
                }
                None => alike.push((attributes, RoaringBitmap::from_iter([ordinal.0]))),
            }
        }
        for (attributes, ordinals) in alike {
            self.set_attributes_of(into, &ordinals, &attributes, &mut |_| true)?;
        }
        Ok(())
    }
}

/// Returns identity and attributes of timelines. Removed timelines are omitted.
fn known(table: &Table, ids: &[TimelineId]) -> Result<Vec<Copied>> {
    let reader = table.catalog.reader();
    let mut known = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(entry) = reader.by_id(*id).and_then(|ordinal| reader.entry(ordinal)) else {
            continue;
        };
        let tags = entry
            .tags()
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let identity = Identity::new(entry.measurement().to_owned(), tags.collect());
        let identity = identity.map_err(|error| EngineError::Invalid(error.to_string()))?;
        let attributes = entry.owned_attributes().into_iter();
        known.push(Copied {
            id: *id,
            identity,
            attributes: attributes.map(|(key, value)| (key, Some(value))).collect(),
        });
    }
    Ok(known)
}

/// Buffer of rows for the target table.
struct Copy<'a> {
    engine: &'a Engine,
    from: &'a Table,
    into: &'a Table,
    batch: PointBatch,
    rows: usize,
    progress: &'a mut PointsCopied,
    watch: &'a mut dyn FnMut(&PointsCopied) -> bool,
    is_wanted: bool,
}

impl Copy<'_> {
    /// Adds a run of a timeline. The first run with rows registers the timeline in the target table.
    fn add(&mut self, copied: &Copied, ordinal: &mut Option<Ordinal>, run: &Run) -> Result<()> {
        if run.rows() == 0 {
            return Ok(());
        }
        let at = match *ordinal {
            Some(at) => at,
            None => self.into.catalog.register(&copied.identity, None)?.ordinal,
        };
        *ordinal = Some(at);
        for rows in alike(run) {
            self.add_shape(copied, at, run, &rows)?;
        }
        if self.rows >= ROWS_AT_ONCE {
            self.flush()?;
        }
        Ok(())
    }

    /// Adds rows that have the same fields.
    fn add_shape(&mut self, copied: &Copied, at: Ordinal, run: &Run, rows: &[usize]) -> Result<()> {
        let Some(first) = rows.first() else { return Ok(()) };
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for column in run
            .columns
            .iter()
            .filter(|column| column.presence.contains(*first))
        {
            let name = self.from.points.schema().field_name(column.field);
            let name =
                name.ok_or_else(|| EngineError::Invalid("a point has a field without a name".into()))?;
            fields.push(name.into_boxed_str());
            columns.push(
                column
                    .values
                    .pick(rows.iter().map(|row| column.presence.rank(*row))),
            );
        }
        if fields.is_empty() {
            return Ok(());
        }
        let line = self.rows as u32;
        let measurement = copied.identity.measurement();
        let is_same = |group: &&mut PointGroup| {
            let types =
                |columns: &[ColumnData]| columns.iter().map(ColumnData::value_type).collect::<Vec<_>>();
            group.measurements.are(measurement)
                && group.fields == fields
                && types(&group.columns) == types(&columns)
        };
        // Consecutive timelines mostly have the same shape.
        let known = self.batch.groups.iter_mut().rev().find(is_same);
        let group = match known {
            Some(group) => {
                for (column, more) in group.columns.iter_mut().zip(&columns) {
                    column.append(more);
                }
                group
            }
            None => {
                self.batch.groups.push(PointGroup {
                    measurements: measurement.into(),
                    fields,
                    columns,
                    timelines: Vec::new(),
                    timestamps: Vec::new(),
                    lines: Vec::new(),
                });
                self.batch.groups.last_mut().expect("it was just pushed")
            }
        };
        group.timelines.extend(rows.iter().map(|_| at));
        group
            .timestamps
            .extend(rows.iter().map(|row| run.timestamps[*row]));
        group.lines.extend(line + 1..=line + rows.len() as u32);
        self.rows += rows.len();
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.rows = 0;
        let batch = std::mem::take(&mut self.batch);
        if batch.groups.is_empty() {
            return Ok(());
        }
        let written = self.engine.write(self.into, batch, &WriteOptions::default())?;
        self.progress.points += written.points;
        self.progress.values += written.values;
        self.progress.refused += written.rejected;
        let first = written.rejects.into_iter().next();
        if let (None, Some(first)) = (&self.progress.first_refusal, first) {
            self.progress.first_refusal = Some(first.reason.to_string());
        }
        self.is_wanted = (self.watch)(self.progress);
        Ok(())
    }
}

/// Groups the rows of a run by the set of columns in which they have a value; rows are ascending within a group.
fn alike(run: &Run) -> Vec<Vec<usize>> {
    let mut pattern = vec![0u32; run.rows()];
    let mut patterns = 1;
    for column in &run.columns {
        if column.presence.count(run.rows()) == run.rows() {
            continue;
        }
        let mut next: HashMap<(u32, bool), u32> = HashMap::new();
        for (row, known) in pattern.iter_mut().enumerate() {
            let count = next.len() as u32;
            *known = *next
                .entry((*known, column.presence.contains(row)))
                .or_insert(count);
        }
        patterns = next.len();
    }
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); patterns];
    for (row, pattern) in pattern.into_iter().enumerate() {
        rows[pattern as usize].push(row);
    }
    rows
}
