//! Fields of a table, their types, and the shapes in which rows combine them.
//!
//! A field *name* has one number per table, and chunks store the number. Types are kept per measurement and field:
//! numeric types can coexist, while text, booleans and histograms exclude all other types.
//!
//! Schema rows are written before the manifest edit that publishes the first chunks with these fields. Until then,
//! the deltas in the journal carry the names.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use tideline_archive::{FieldNames, Fields, ShapeField};
use tideline_backend::{Backend, PageLimit, RowChange, WRITE_ROWS_MAX};
use tideline_key_codec::{named_key, parse_named_key, space, table_rows};
use tideline_log::Stamps;
use tideline_model::{ColumnData, Durability, FieldId, TableId, TypeConflict, ValueKind, ValueType};

use crate::error::{Result, StoreError};

/// Fields of one table.
#[derive(Debug)]
pub struct TableSchema {
    table: TableId,
    state: RwLock<State>,
    /// Held while rows are collected and written, so that a row never overwrites a newer one.
    writing: Mutex<()>,
}

/// Fields and types of a group of rows, independent of their measurements. Shapes are interned, so equal shapes
/// share one allocation.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Number and type of each field, in column order.
    pub fields: Box<[(FieldId, ValueType)]>,
}

/// Field of a measurement, with names for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldInfo {
    /// Measurement of the field.
    pub measurement: String,
    /// Name of the field.
    pub field: String,
    /// All types with which the field was written, in order of first use.
    pub types: Vec<ValueType>,
}

#[derive(Debug, Default)]
struct State {
    numbers: HashMap<Box<str>, FieldId>,
    names: Vec<Box<str>>,
    /// Highest field number in a durable row, plus one; 0 without durable rows.
    saved: u32,
    measurements: HashMap<Box<str>, Measurement>,
    /// Interned shapes with their numbers.
    shapes: HashMap<ShapeKey, (u32, Arc<Shape>)>,
}

/// Row that was written and may not be durable yet.
#[derive(Debug)]
pub(crate) struct WrittenRow {
    measurement: Box<str>,
    /// Highest field number in the row, plus one.
    numbers_end: u32,
    change: RowChange,
}

#[derive(Debug, Default)]
struct Measurement {
    fields: Vec<(FieldId, Vec<ValueType>)>,
    /// Numbers of shapes whose fields are all registered for this measurement.
    shapes: HashSet<u32>,
    unsaved: bool,
}

/// Fields as bytes: `name 0 type name 0 type …`.
type ShapeKey = Box<[u8]>;

/// Stored form of the fields of one measurement.
#[derive(Debug, Serialize, Deserialize)]
struct StoredMeasurement {
    format: u8,
    /// Number, name and type codes of each field.
    fields: Vec<(u32, String, Vec<u8>)>,
}

/// Format of the stored form that this build writes.
const SCHEMA_FORMAT: u8 = 1;

impl TableSchema {
    /// Creates an empty schema for a table.
    pub fn new(table: TableId) -> Self {
        Self {
            table,
            state: RwLock::default(),
            writing: Mutex::default(),
        }
    }

    /// Reads the schema rows of a table.
    ///
    /// # Errors
    ///
    /// [`StoreError::Backend`] if the rows cannot be read; [`StoreError::StoredRow`] if a row is damaged.
    pub fn load(backend: &dyn Backend, table: TableId) -> Result<Self> {
        let mut state = State::default();
        let (partition, mut range) = table_rows(space::SCHEMAS, table);
        loop {
            let limit = PageLimit {
                rows_max: 1_000,
                bytes_max: 4 << 20,
            };
            let page = backend.scan(partition, &range, tideline_backend::Direction::Ascending, limit)?;
            for row in page.rows {
                let damaged = |reason: String| StoreError::StoredRow {
                    what: "schema row",
                    reason,
                };
                let (_, name) = parse_named_key(&row.key).ok_or_else(|| damaged("short key".into()))?;
                let name = std::str::from_utf8(name).map_err(|error| damaged(error.to_string()))?;
                state.take_stored(name, &row.value).map_err(damaged)?;
            }
            match page.next {
                Some(next) => range = next,
                None => {
                    return Ok(Self {
                        table,
                        state: RwLock::new(state),
                        writing: Mutex::default(),
                    });
                }
            }
        }
    }

    /// Returns the highest field number in a durable row, plus one; 0 without durable rows.
    pub(crate) fn saved(&self) -> u32 {
        self.state.read().saved
    }

    /// Reserves all field numbers below `next_field`, so that they are not assigned to new fields.
    pub(crate) fn reserve(&self, next_field: u32) {
        let names = &mut self.state.write().names;
        let length = names.len().max(next_field as usize);
        names.resize(length, Box::default());
    }

    /// Returns the shape of a group of rows of these measurements. Registers unknown fields and types.
    ///
    /// The cost for a known shape is one hash lookup for the shape, two per measurement, and a shared lock.
    ///
    /// # Errors
    ///
    /// [`StoreError::TypeConflict`] if a type cannot share its field with the existing types; nothing is registered
    /// then.
    pub fn shape(
        &self,
        measurements: &[Box<str>],
        fields: &[Box<str>],
        columns: &[ColumnData],
    ) -> Result<Arc<Shape>> {
        let key = shape_key(fields, columns);
        if let Some(shape) = self.state.read().known_shape(&key, measurements) {
            return Ok(shape);
        }
        let mut state = self.state.write();
        for measurement in measurements {
            state.check_types(measurement, fields, columns)?;
        }
        Ok(state.register_shape(key, measurements, fields, columns))
    }

    /// Returns the indexes of the measurements for which [`shape`](Self::shape) would fail, with the conflicts.
    pub fn conflicts(
        &self,
        measurements: &[Box<str>],
        fields: &[Box<str>],
        columns: &[ColumnData],
    ) -> Vec<(usize, TypeConflict)> {
        let state = self.state.read();
        let of = |measurement: &str| state.check_types(measurement, fields, columns).err();
        let conflicts = measurements.iter().enumerate();
        conflicts
            .filter_map(|(index, measurement)| Some((index, of(measurement)?)))
            .collect()
    }

    /// Registers a field of a measurement with its types in order of first use, as stored by another database.
    ///
    /// # Errors
    ///
    /// [`StoreError::TypeConflict`] at the first type that cannot share its field with the existing types. The types
    /// before it stay registered.
    pub fn take_in(&self, measurement: &str, field: &str, types: &[ValueType]) -> Result<()> {
        let mut state = self.state.write();
        for of in types {
            let column = ColumnData::new(*of);
            state.check_types(measurement, &[field.into()], &[column])?;
            let field = state.number(field);
            state.register(measurement, field, *of);
        }
        Ok(())
    }

    /// Returns the number of a field name; `None` if the name was never registered.
    pub fn field(&self, name: &str) -> Option<FieldId> {
        self.state.read().numbers.get(name).copied()
    }

    /// Returns the name of a field number: empty for a reserved number, `None` for an unassigned one.
    pub fn field_name(&self, field: FieldId) -> Option<String> {
        self.state
            .read()
            .names
            .get(field.0 as usize)
            .map(|name| name.to_string())
    }

    /// Returns the numbers of all fields of a measurement, in order of first use; empty for an unknown measurement.
    pub fn fields_of(&self, measurement: &str) -> Vec<FieldId> {
        let state = self.state.read();
        let fields = state
            .measurements
            .get(measurement)
            .map(|known| known.fields.iter());
        fields.into_iter().flatten().map(|(field, _)| *field).collect()
    }

    /// Returns number and value kind of a field of a measurement; `None` if no row of the measurement had it.
    pub fn field_of(&self, measurement: &str, field: &str) -> Option<(FieldId, ValueKind)> {
        let state = self.state.read();
        let kind = state.types(measurement, field)?.first()?.kind();
        Some((*state.numbers.get(field)?, kind))
    }

    /// Calls `visit` with each measurement and its fields in order of first use: name, number and value kind.
    ///
    /// The order of measurements is unspecified. `visit` must be quick, because writers with new fields wait for it,
    /// and must not call other methods of the schema.
    pub fn for_each_measurement(
        &self,
        mut visit: impl FnMut(&str, &mut dyn Iterator<Item = (&str, FieldId, ValueKind)>),
    ) {
        let state = self.state.read();
        for (measurement, known) in &state.measurements {
            visit(measurement, &mut state.named(known));
        }
    }

    /// Calls `visit` for one measurement like [`for_each_measurement`](Self::for_each_measurement). Returns false if
    /// there is no such measurement.
    pub fn for_measurement(
        &self,
        measurement: &str,
        visit: impl FnOnce(&mut dyn Iterator<Item = (&str, FieldId, ValueKind)>),
    ) -> bool {
        let state = self.state.read();
        let known = state.measurements.get(measurement);
        known.map(|known| visit(&mut state.named(known))).is_some()
    }

    /// Returns every field of every measurement, sorted by measurement and name.
    pub fn fields(&self) -> Vec<FieldInfo> {
        let state = self.state.read();
        let mut all: Vec<_> = state
            .measurements
            .iter()
            .flat_map(|(measurement, known)| known.fields.iter().map(move |field| (measurement, field)))
            .map(|(measurement, (field, types))| FieldInfo {
                measurement: measurement.to_string(),
                field: state.names[field.0 as usize].to_string(),
                types: types.clone(),
            })
            .collect();
        all.sort_by(|a, b| (&a.measurement, &a.field).cmp(&(&b.measurement, &b.field)));
        all
    }

    /// Writes and returns the rows of all measurements whose fields or types are not all in a durable row.
    pub(crate) fn write_rows(
        &self,
        backend: &dyn Backend,
        stamps: &Stamps,
        durability: Durability,
    ) -> Result<Vec<WrittenRow>> {
        let _writing = self.writing.lock();
        let changed: Vec<WrittenRow> = {
            let state = self.state.read();
            let unsaved = state.measurements.iter().filter(|(_, known)| known.unsaved);
            let rows = unsaved.map(|(name, known)| WrittenRow {
                measurement: name.clone(),
                numbers_end: known.numbers_end(),
                change: state.row(self.table, name, known),
            });
            rows.collect()
        };
        let (partition, _) = table_rows(space::SCHEMAS, self.table);
        for rows in changed.chunks(WRITE_ROWS_MAX / 4) {
            let changes: Vec<_> = rows.iter().map(|row| row.change.clone()).collect();
            backend.write(partition, &changes, stamps.next()?, durability)?;
        }
        Ok(changed)
    }

    /// Marks written rows as durable. A measurement that has changed since then must be written again.
    pub(crate) fn synced(&self, rows: &[WrittenRow]) {
        let mut state = self.state.write();
        for row in rows {
            state.saved = state.saved.max(row.numbers_end);
            let still = state
                .measurements
                .get(&row.measurement)
                .map(|known| state.row(self.table, &row.measurement, known));
            let unchanged = still.is_some_and(|still| still == row.change);
            if let Some(known) = state.measurements.get_mut(&row.measurement).filter(|_| unchanged) {
                known.unsaved = false;
            }
        }
    }
}

impl Fields for TableSchema {
    fn of_measurement(&self, measurement: &str) -> Vec<ShapeField> {
        let state = self.state.read();
        let known = state.measurements.get(measurement);
        let fields = known.map(|known| known.fields.iter());
        let field = |(id, types): &(FieldId, Vec<ValueType>)| ShapeField {
            id: *id,
            name: state.names[id.0 as usize].to_string(),
            types: types.clone(),
        };
        fields.into_iter().flatten().map(field).collect()
    }

    fn name(&self, field: FieldId) -> Option<String> {
        self.field_name(field)
    }
}

impl FieldNames for TableSchema {
    fn id(&self, name: &str) -> Option<FieldId> {
        self.field(name)
    }
}

impl Measurement {
    /// Returns the highest number of the fields, plus one; 0 without fields.
    fn numbers_end(&self) -> u32 {
        let numbers = self.fields.iter().map(|(field, _)| field.0.saturating_add(1));
        numbers.max().unwrap_or(0)
    }
}

impl State {
    fn take_stored(&mut self, measurement: &str, row: &[u8]) -> std::result::Result<(), String> {
        let stored: StoredMeasurement = serde_json::from_slice(row).map_err(|error| error.to_string())?;
        if stored.format != SCHEMA_FORMAT {
            return Err(format!("format {} is not supported by this build", stored.format));
        }
        let mut fields = Vec::with_capacity(stored.fields.len());
        for (number, name, codes) in stored.fields {
            let known = |code| ValueType::from_code(code).ok_or_else(|| format!("unknown type code {code}"));
            let types = codes
                .into_iter()
                .map(known)
                .collect::<std::result::Result<Vec<_>, _>>()?;
            let at = number as usize;
            if self.names.len() <= at {
                self.names.resize(at + 1, Box::default());
            }
            self.names[at] = name.as_str().into();
            self.saved = self.saved.max(number.saturating_add(1));
            self.numbers.insert(name.into(), FieldId(number));
            fields.push((FieldId(number), types));
        }
        self.measurements.insert(
            measurement.into(),
            Measurement {
                fields,
                ..Measurement::default()
            },
        );
        Ok(())
    }

    /// Returns the shape with this key if it is registered for all these measurements.
    fn known_shape(&self, key: &[u8], measurements: &[Box<str>]) -> Option<Arc<Shape>> {
        let (number, shape) = self.shapes.get(key)?;
        let mut known = measurements
            .iter()
            .map(|measurement| self.measurements.get(measurement));
        let is_known = known.all(|known| known.is_some_and(|known| known.shapes.contains(number)));
        is_known.then(|| Arc::clone(shape))
    }

    /// Registers these fields for the measurements. The caller must have checked the types.
    fn register_shape(
        &mut self,
        key: ShapeKey,
        measurements: &[Box<str>],
        fields: &[Box<str>],
        columns: &[ColumnData],
    ) -> Arc<Shape> {
        let types = columns.iter().map(ColumnData::value_type);
        let numbered: Vec<_> = fields
            .iter()
            .zip(types)
            .map(|(field, of)| (self.number(field), of))
            .collect();
        let next = u32::try_from(self.shapes.len()).expect("shapes are bounded by memory");
        let new = || {
            (
                next,
                Arc::new(Shape {
                    fields: numbered.into(),
                }),
            )
        };
        let (number, shape) = self.shapes.entry(key).or_insert_with(new).clone();
        for measurement in measurements {
            for (field, value_type) in &shape.fields {
                self.register(measurement, *field, *value_type);
            }
            let known = self.measurements.entry(measurement.clone()).or_default();
            known.shapes.insert(number);
        }
        shape
    }

    fn check_types(
        &self,
        measurement: &str,
        fields: &[Box<str>],
        columns: &[ColumnData],
    ) -> std::result::Result<(), TypeConflict> {
        for (field, column) in fields.iter().zip(columns) {
            let input = column.value_type();
            let existing = self
                .types(measurement, field)
                .and_then(|types| types.first().copied());
            if let Some(existing) = existing.filter(|existing| existing.kind() != input.kind()) {
                return Err(TypeConflict {
                    measurement: measurement.into(),
                    field: field.to_string(),
                    input,
                    existing,
                });
            }
        }
        Ok(())
    }

    fn types(&self, measurement: &str, field: &str) -> Option<&[ValueType]> {
        let number = self.numbers.get(field)?;
        let known = self.measurements.get(measurement)?;
        known
            .fields
            .iter()
            .find(|(have, _)| have == number)
            .map(|(_, types)| types.as_slice())
    }

    /// Iterates over the fields of a measurement: name, number and value kind.
    fn named<'s>(&'s self, known: &'s Measurement) -> impl Iterator<Item = (&'s str, FieldId, ValueKind)> {
        known.fields.iter().filter_map(|(field, types)| {
            // All types of one field are of the same kind.
            let kind = types.first()?.kind();
            Some((&*self.names[field.0 as usize], *field, kind))
        })
    }

    /// Returns the number of a field name. Assigns a new one if the name is unknown.
    fn number(&mut self, field: &str) -> FieldId {
        *self.numbers.entry(field.into()).or_insert_with(|| {
            self.names.push(field.into());
            FieldId(u32::try_from(self.names.len() - 1).expect("fields are bounded by memory"))
        })
    }

    fn register(&mut self, measurement: &str, field: FieldId, value_type: ValueType) {
        let known = self.measurements.entry(measurement.into()).or_default();
        match known.fields.iter_mut().find(|(have, _)| *have == field) {
            Some((_, types)) if types.contains(&value_type) => return,
            Some((_, types)) => types.push(value_type),
            None => known.fields.push((field, vec![value_type])),
        }
        known.unsaved = true;
    }

    fn row(&self, table: TableId, measurement: &str, known: &Measurement) -> RowChange {
        let fields = known.fields.iter().map(|(field, types)| {
            let codes = types.iter().map(|value_type| value_type.code()).collect();
            (field.0, self.names[field.0 as usize].to_string(), codes)
        });
        let stored = StoredMeasurement {
            format: SCHEMA_FORMAT,
            fields: fields.collect(),
        };
        let value = serde_json::to_vec(&stored).expect("plain numbers and text always serialise");
        RowChange {
            key: named_key(table, measurement.as_bytes()).into(),
            value: Some(Bytes::from(value)),
        }
    }
}

fn shape_key(fields: &[Box<str>], columns: &[ColumnData]) -> ShapeKey {
    let mut key = Vec::with_capacity(fields.len() * 16);
    for (field, column) in fields.iter().zip(columns) {
        key.extend_from_slice(field.as_bytes());
        key.extend_from_slice(&[0, column.value_type().code()]);
    }
    key.into()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::ThreadId;
    use std::time::Duration;

    use tideline_log::Log;
    use tideline_model::{Clock, ManualClock, Timestamp};

    use super::*;
    use crate::tables::Table;
    use crate::test_store::open;

    type Hook = Box<dyn FnOnce() + Send>;

    /// Clock that runs a hook once, when a given thread reads the time.
    struct HookedClock {
        clock: ManualClock,
        hook: Mutex<Option<(ThreadId, Hook)>>,
    }

    impl std::fmt::Debug for HookedClock {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("HookedClock").finish_non_exhaustive()
        }
    }

    impl Clock for HookedClock {
        fn now(&self) -> Timestamp {
            let current = std::thread::current().id();
            let hook = self.hook.lock().take_if(|(thread, _)| *thread == current);
            if let Some((_, hook)) = hook {
                hook();
            }
            self.clock.now()
        }

        fn monotonic(&self) -> Duration {
            self.clock.monotonic()
        }
    }

    fn add_and_save(table: &Table, log: &Log, field: &str) {
        let schema = table.schema();
        schema
            .take_in("m", field, &[ValueType::Float])
            .expect("a new field");
        let rows = schema.write_rows(log.backend().as_ref(), log.stamps(), Durability::Synced);
        schema.synced(&rows.expect("memory does not fail"));
    }

    #[test]
    fn a_row_never_overwrites_a_row_with_more_fields() {
        let clock = Arc::new(HookedClock {
            clock: ManualClock::new(Timestamp::EPOCH),
            hook: Mutex::new(None),
        });
        let store = open(Arc::clone(&clock) as _);
        let table = store.table("default").expect("the default table");
        let log = Arc::clone(store.log());
        // Between the collection and the write of the first row, a stamp is taken, which reads the time. Another
        // thread then saves a second field.
        let (sender, other) = mpsc::channel();
        let (of_other, log_of_other) = (Arc::clone(&table), Arc::clone(&log));
        let hook: Hook = Box::new(move || {
            let table = Arc::clone(&of_other);
            let other = std::thread::spawn(move || add_and_save(&table, &log_of_other, "second"));
            // With the lock held, the other thread has to wait for this one.
            while !of_other.schema().writing.is_locked() && !other.is_finished() {
                std::thread::yield_now();
            }
            sender.send(other).expect("the test waits");
        });
        *clock.hook.lock() = Some((std::thread::current().id(), hook));
        add_and_save(&table, &log, "first");
        let other = other.recv().expect("the hook has run");
        other.join().expect("the second field is saved");
        let stored = TableSchema::load(log.backend().as_ref(), table.id()).expect("sound rows");
        assert_eq!(stored.fields(), table.schema().fields());
        assert_eq!(stored.fields().len(), 2);
    }
}
