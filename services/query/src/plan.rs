//! Planning: resolves the timelines, fields and columns of a query before a point is read.
//!
//! Unknown fields and timeline ids, functions that do not support the type of a field, and too many timelines are
//! refused here.

use hashbrown::HashMap;
use tideline_engine::catalog::Entry;
use tideline_engine::model::{FieldId, Ordinal, TimelineId, ValueKind, ValueType};
use tideline_engine::{EXEMPLAR_FIELD, Engine, EngineError, START_FIELD, Table, is_sample_detail};

use crate::budget::{Watch, within};
use crate::compute::{Computed, no_such_field};
use crate::error::{QueryError, Result};
use crate::function::Function;
use crate::point_query::Selector;
use crate::result::{RowSink, Series};

/// Maximum number of timelines visited under one lock of the catalog. The visit takes less than a
/// millisecond.
pub(crate) const LOCKED_GROUP: usize = 2_048;

/// Timelines of a query, in order of id.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) timelines: Vec<Selected>,
    /// Measurements of these timelines.
    pub(crate) measurements: Vec<Box<str>>,
}

/// Selected timeline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Selected {
    pub(crate) id: TimelineId,
    pub(crate) ordinal: Ordinal,
    /// Index in [`Scope::measurements`].
    pub(crate) measurement: u32,
}

/// Columns of the series of one measurement.
#[derive(Debug, Clone)]
pub(crate) struct MeasurementColumns<C> {
    /// Positions among the columns of the result, ascending.
    pub(crate) positions: Vec<usize>,
    /// Source of each column.
    pub(crate) sources: Vec<C>,
}

/// Source of an aggregate column: a function applied to a field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AggregateSource {
    pub(crate) function: Function,
    pub(crate) field: FieldId,
    /// Kind of the values of the column.
    pub(crate) kind: ValueKind,
}

/// Columns of a result, and for each measurement of the scope the columns of its series.
#[derive(Debug)]
pub(crate) struct Columns<C> {
    pub(crate) names: Vec<String>,
    pub(crate) by_measurement: Vec<MeasurementColumns<C>>,
}

/// Fields that a query requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'q> {
    /// Names; empty = all fields.
    fields: &'q [String],
    /// True if an empty `fields` includes the start timestamps and exemplars of samples.
    details: bool,
}

impl<'q> Wanted<'q> {
    pub(crate) fn of(fields: &'q [String], details: bool) -> Self {
        Self { fields, details }
    }

    /// Requests exactly these fields; `fields` must not be empty.
    pub(crate) fn named(fields: &'q [String]) -> Self {
        Self::of(fields, true)
    }

    /// Returns true if every stored field of the measurements is requested.
    pub(crate) fn is_everything(self, table: &Table, measurements: &[Box<str>]) -> bool {
        self.fields.is_empty() && self.hidden(table, measurements).is_empty()
    }

    /// Returns the fields that are hidden because they were not requested, each with the index of its measurement.
    fn hidden(self, table: &Table, measurements: &[Box<str>]) -> Vec<(usize, FieldId)> {
        if self.details || !self.fields.is_empty() {
            return Vec::new();
        }
        let schema = table.points().schema();
        let details = [START_FIELD, EXEMPLAR_FIELD].into_iter();
        let details = details.filter(|name| schema.field(name).is_some());
        let hidden = details.flat_map(|name| {
            let of_each = measurements.iter().enumerate();
            of_each.filter_map(move |(position, measurement)| {
                let (field, kind) = schema.field_of(measurement, name)?;
                is_sample_detail(name, kind).then_some((position, field))
            })
        });
        hidden.collect()
    }
}

impl Scope {
    /// Returns the ids of the timelines, ascending.
    pub(crate) fn ids(&self) -> Vec<TimelineId> {
        self.timelines.iter().map(|timeline| timeline.id).collect()
    }

    /// Selects the timelines. Returns an error if the engine refuses the condition, an id is unknown, the budget or the
    /// memory account is exceeded, or the watch stops the query.
    pub(crate) fn select(engine: &Engine, table: &Table, selector: &Selector, watch: &Watch) -> Result<Self> {
        let limit = |count: u64| within("timelines selected", watch.budget().timelines_max, count);
        let ordinals: Vec<Ordinal> = match selector {
            Selector::Condition(condition) => {
                let found = engine.select(table, condition, &|| watch.check().is_err());
                // If the watch stopped the search, the error of the watch is returned.
                watch.check()?;
                let found = found?;
                limit(found.len())?;
                found.iter().map(Ordinal).collect()
            }
            Selector::Ids(ids) => {
                limit(ids.len() as u64)?;
                let reader = table.reader();
                let known = |id: &TimelineId| {
                    reader
                        .by_id(*id)
                        .ok_or_else(|| EngineError::NoSuchTimeline(id.to_string()))
                };
                ids.iter().map(known).collect::<std::result::Result<_, _>>()?
            }
        };
        // The timelines, and the lists of ids derived from them, are held for the whole query.
        let bytes = size_of::<Selected>() + size_of::<Ordinal>() + 2 * size_of::<TimelineId>();
        watch.hold_limited_elsewhere(0, (ordinals.len() * bytes) as u64)?;
        let mut scope = Self {
            timelines: Vec::with_capacity(ordinals.len()),
            measurements: Vec::new(),
        };
        let mut known: HashMap<Box<str>, u32> = HashMap::new();
        for_each_entry(table, &ordinals, |_, entry| {
            let name = entry.measurement();
            let measurement = known.get(name).copied().unwrap_or_else(|| {
                let next = scope.measurements.len() as u32;
                scope.measurements.push(name.into());
                known.insert(name.into(), next);
                next
            });
            scope.timelines.push(Selected {
                id: entry.id(),
                ordinal: entry.ordinal(),
                measurement,
            });
        });
        scope.timelines.sort_unstable_by_key(|timeline| timeline.id);
        scope.timelines.dedup_by_key(|timeline| timeline.id);
        watch.note_selected(scope.timelines.len() as u64);
        watch.check()?;
        Ok(scope)
    }

    /// Removes the timelines of measurements without a column.
    pub(crate) fn retain_with_columns<C>(&mut self, columns: &Columns<C>) {
        self.timelines
            .retain(|timeline| !columns.of(timeline.measurement).positions.is_empty());
    }

    /// Returns the keys of all tags of the timelines, sorted.
    pub(crate) fn tag_keys(&self, table: &Table) -> Vec<String> {
        let ordinals: Vec<Ordinal> = self.timelines.iter().map(|timeline| timeline.ordinal).collect();
        let mut keys: Vec<String> = Vec::new();
        for_each_entry(table, &ordinals, |_, entry| {
            for (key, _) in entry.tags() {
                if let Err(at) = keys.binary_search_by(|have| have.as_str().cmp(key)) {
                    keys.insert(at, key.to_owned());
                }
            }
        });
        keys
    }

    /// Returns the columns of raw rows: the requested fields in their order. By default, these are all stored fields
    /// that are not hidden, in order of their first use, and then the computed fields. Returns an error if a requested
    /// field is unknown.
    pub(crate) fn row_columns(
        &self,
        table: &Table,
        wanted: Wanted<'_>,
        computed: &Computed,
    ) -> Result<Columns<FieldId>> {
        let schema = table.points().schema();
        let hidden = wanted.hidden(table, &self.measurements);
        let is_hidden = |measurement: usize, field: FieldId| hidden.contains(&(measurement, field));
        let wanted = wanted_fields(table, wanted.fields, computed)?;
        let all = self.measurements.iter().map(|name| schema.fields_of(name));
        let of_each: Vec<Vec<FieldId>> = all.collect();
        let columns: Vec<FieldId> = match wanted {
            Some(wanted) => wanted,
            None => {
                let fields = of_each.iter().enumerate();
                let fields = fields.flat_map(|(of, fields)| fields.iter().map(move |field| (of, *field)));
                let shown = fields.filter(|(of, field)| !is_hidden(*of, *field));
                let mut all: Vec<FieldId> = shown.map(|(_, field)| field).collect();
                all.sort_unstable();
                all.dedup();
                all.extend(computed.ids());
                all
            }
        };
        let by_measurement = of_each.iter().enumerate().map(|(measurement, fields)| {
            let has = |(_, field): &(usize, &FieldId)| {
                let made_of = computed.inputs(field);
                !is_hidden(measurement, **field) && made_of.iter().any(|field| fields.contains(field))
            };
            let (positions, sources) = columns.iter().enumerate().filter(has).unzip();
            MeasurementColumns { positions, sources }
        });
        Ok(Columns {
            by_measurement: by_measurement.collect(),
            names: columns
                .iter()
                .map(|field| match computed.name(*field) {
                    Some(name) => name.to_owned(),
                    None => schema.field_name(*field).unwrap_or_default(),
                })
                .collect(),
        })
    }

    /// Returns the columns of an aggregate: every function of every field, field by field. If no fields are requested,
    /// functions that do not support a field are omitted.
    ///
    /// Returns an error if a requested field is unknown or has, in any of the measurements, a type that a function does
    /// not support.
    pub(crate) fn aggregate_columns(
        &self,
        table: &Table,
        wanted: Wanted<'_>,
        functions: &[Function],
        computed: &Computed,
    ) -> Result<Columns<AggregateSource>> {
        let rows = self.row_columns(table, wanted, computed)?;
        let fields = wanted.fields;
        let mut types = self.types(table);
        for measurement in 0..self.measurements.len() {
            types.extend(
                computed
                    .ids()
                    .map(|id| ((measurement, id), vec![ValueType::Float])),
            );
        }
        let mut columns = Columns::none(self.measurements.len());
        for (at, name) in rows.names.iter().enumerate() {
            for function in functions {
                let column = columns.names.len();
                let mut is_used = !fields.is_empty();
                for (measurement, of) in rows.by_measurement.iter().enumerate() {
                    let Ok(position) = of.positions.binary_search(&at) else {
                        continue;
                    };
                    let stored = types.get(&(measurement, of.sources[position]));
                    // All types of one field of a measurement are of one kind.
                    let kind = stored.and_then(|types| types.first());
                    let kind = kind.map_or(ValueKind::Number, |value_type| value_type.kind());
                    let unsuited = stored.and_then(|types| types.iter().find(|t| !function.suits(t.kind())));
                    match unsuited {
                        Some(value_type) if !fields.is_empty() => {
                            return Err(QueryError::WrongType {
                                function: *function,
                                measurement: self.measurements[measurement].to_string(),
                                field: name.clone(),
                                value_type: *value_type,
                            });
                        }
                        Some(_) => {}
                        None => {
                            is_used = true;
                            let of_measurement = &mut columns.by_measurement[measurement];
                            of_measurement.positions.push(column);
                            of_measurement.sources.push(AggregateSource {
                                function: *function,
                                field: of.sources[position],
                                kind: function.gives(kind),
                            });
                        }
                    }
                }
                if is_used {
                    columns.names.push(format!("{function}({name})"));
                }
            }
        }
        Ok(columns)
    }

    /// Returns each field of each measurement in the scope, with the kind of its values.
    pub(crate) fn kinds(&self, table: &Table) -> Vec<(FieldId, ValueKind)> {
        let types = self.types(table).into_iter();
        types
            .filter_map(|((_, field), types)| Some((field, types.first()?.kind())))
            .collect()
    }

    /// Returns the types of every field of the measurements of the scope, by index of the measurement and field.
    pub(crate) fn types(&self, table: &Table) -> HashMap<(usize, FieldId), Vec<ValueType>> {
        let names = self.measurements.iter().enumerate();
        let positions: HashMap<&str, usize> =
            names.map(|(position, name)| (name.as_ref(), position)).collect();
        let schema = table.points().schema();
        let fields = schema.fields().into_iter();
        fields
            .filter_map(|field| {
                let measurement = *positions.get(field.measurement.as_str())?;
                Some(((measurement, schema.field(&field.field)?), field.types))
            })
            .collect()
    }
}

impl<C> Columns<C> {
    /// Returns an empty list of columns for each of the measurements.
    pub(crate) fn none(measurements: usize) -> Self {
        let none = || MeasurementColumns {
            positions: Vec::new(),
            sources: Vec::new(),
        };
        Self {
            names: Vec::new(),
            by_measurement: std::iter::repeat_with(none).take(measurements).collect(),
        }
    }

    /// Returns the columns of a measurement.
    pub(crate) fn of(&self, measurement: u32) -> &MeasurementColumns<C> {
        &self.by_measurement[measurement as usize]
    }
}

/// Returns the ids of the requested fields, without duplicates; `None` = all.
fn wanted_fields(table: &Table, names: &[String], computed: &Computed) -> Result<Option<Vec<FieldId>>> {
    if names.is_empty() {
        return Ok(None);
    }
    let mut wanted = Vec::with_capacity(names.len());
    for name in names {
        let stored = || table.field(name);
        let field = computed.field(name).or_else(stored);
        let field = field.ok_or_else(|| no_such_field(name, table))?;
        if !wanted.contains(&field) {
            wanted.push(field);
        }
    }
    Ok(Some(wanted))
}

/// Visits catalog entries in the order of `ordinals`, each with its index in `ordinals`. Skips timelines that were
/// removed since their selection.
pub(crate) fn for_each_entry(table: &Table, ordinals: &[Ordinal], mut visit: impl FnMut(usize, &Entry<'_>)) {
    for start in (0..ordinals.len()).step_by(LOCKED_GROUP) {
        let reader = table.reader();
        for (at, ordinal) in ordinals.iter().enumerate().skip(start).take(LOCKED_GROUP) {
            if let Some(entry) = reader.entry(*ordinal) {
                visit(at, &entry);
            }
        }
    }
}

/// Reusable buffer for the tags of one timeline.
#[derive(Debug, Default)]
pub(crate) struct TagBuffer {
    tags: Vec<(String, String)>,
    used: usize,
}

impl TagBuffer {
    /// Replaces the content by the tags of a timeline.
    pub(crate) fn fill(&mut self, table: &Table, timeline: &Selected) {
        let reader = table.reader();
        self.used = 0;
        for (key, value) in reader.entry(timeline.ordinal).iter().flat_map(Entry::tags) {
            if self.used == self.tags.len() {
                self.tags.push(Default::default());
            }
            let (kept_key, kept_value) = &mut self.tags[self.used];
            kept_key.clear();
            kept_key.push_str(key);
            kept_value.clear();
            kept_value.push_str(value);
            self.used += 1;
        }
    }

    /// Returns the tags, sorted by key.
    pub(crate) fn tags(&self) -> &[(String, String)] {
        &self.tags[..self.used]
    }

    /// Starts the series of a timeline in the sink.
    pub(crate) fn begin_series(
        &mut self,
        table: &Table,
        measurements: &[Box<str>],
        timeline: &Selected,
        columns: &[usize],
        sink: &mut dyn RowSink,
    ) -> Result<()> {
        self.fill(table, timeline);
        Ok(sink.series(&Series {
            id: Some(timeline.id),
            measurement: &measurements[timeline.measurement as usize],
            tags: self.tags(),
            columns,
        })?)
    }
}
