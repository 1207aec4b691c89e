//! Newest value of each field of a set of timelines.
//!
//! The engine keeps newest values in memory after their first use. A query of a single tier may have to read chunks.

use tideline_engine::model::{FieldId, Tier, TimeRange, TimelineId};
use tideline_engine::points::{LatestField, LatestRow, Order, ReadCost, ScanReader, Selection};

use crate::budget::{Budget, rows_limit};
use crate::compute::Computed;
use crate::error::{QueryError, Result};
use crate::explain::Plan;
use crate::plan::{Columns, Scope, Selected, TagBuffer, Wanted};
use crate::point_query::Selector;
use crate::querier::{Context, Metered};
use crate::result::{QueryCost, RowSink, Summary, ValueRef};
use crate::rows;
use crate::terms::{Terms, TermsOf};
use crate::token::PageToken;

/// Query for newest values.
#[derive(Debug, Clone)]
pub struct LatestQuery {
    /// Selected timelines.
    pub timelines: Selector,
    /// Names of the wanted fields; empty = all. A name that the table has never had is an error.
    pub fields: Vec<String>,
    /// True if an empty `fields` also selects the fields that accompany samples: start timestamps and
    /// exemplars.
    pub details: bool,
    /// Tier to read; `None` = all. Unsealed points are hot.
    pub tier: Option<Tier>,
    /// Maximum number of timelines of this page; `None` = the row limit of the budget.
    pub limit: Option<u64>,
    /// Token that ended the previous page.
    pub after: Option<PageToken>,
    /// Limits of the query. The limits of points and values do not apply, because most values are held in memory.
    pub budget: Budget,
}

/// Runs a query for newest values: one series per timeline, in order of id.
///
/// The fields of a timeline may have been written at different times. A series has a row for each timestamp at
/// which one of its fields was last written, newest first. Each value is in the row of its timestamp.
///
/// A timeline that was written since the start of the process costs a memory lookup. Any other timeline is read from
/// its newest chunks when it is first requested. For a query of a single tier, the values in memory are used only if
/// all values of the timeline are certain to be in that tier. Otherwise the newest chunks of the tier are read.
pub(crate) fn run(context: &Context<'_>, query: &LatestQuery, sink: &mut dyn RowSink) -> Result<Summary> {
    let Context { table, watch, .. } = context;
    let (timelines, fields) = (&query.timelines, &query.fields);
    let terms = Terms::new(TermsOf::Latest, table, timelines, fields, query.tier).hash();
    if query.after.is_some_and(|after| after.terms != terms) {
        return Err(QueryError::ForeignToken);
    }
    let limit = rows_limit("timelines asked for", watch.budget(), query.limit)?;
    let mut scope = Scope::select(context.engine, table, &query.timelines, watch)?;
    let columns = scope.row_columns(
        table,
        Wanted::of(&query.fields, query.details),
        &Computed::default(),
    )?;
    scope.retain_with_columns(&columns);
    sink.begin(&rows::header(
        context,
        &scope,
        &columns,
        &Computed::default(),
        sink,
    ))?;
    let done = query.after.map_or(0, |after| {
        let all = &scope.timelines;
        all.partition_point(|timeline| timeline.id <= after.id)
    });
    let selected = &scope.timelines[done..];
    let ids: Vec<TimelineId> = selected.iter().map(|timeline| timeline.id).collect();
    let mut newest = Newest::new(context, query.tier, &ids);
    let mut page = Page {
        scope: &scope,
        columns: &columns,
        limit,
        examined: 0,
        kept_values: 0,
        timelines: 0,
        rows: 0,
        last: None,
        is_full: false,
        tags: TagBuffer::default(),
    };
    page.read(context, &mut newest, selected, sink)?;
    context.note_read(&ids[..page.examined]);
    let next = page.last.filter(|_| page.is_full);
    let mut cost = QueryCost::new(&newest.cost(), context.segments, watch.elapsed());
    cost.timelines = page.examined as u64;
    cost.add_kept_values(page.kept_values);
    Ok(Summary {
        rows: page.rows,
        more: page.is_full,
        next: next.map(|id| PageToken::new(id, 0, TimeRange::ALL, terms).to_string()),
        estimated: Vec::new(),
        overflowed: Vec::new(),
        suggestions: Vec::new(),
        cost,
        plan: Plan {
            timelines: ids.len() as u64,
            measurements: scope.measurements.len() as u64,
            no_summaries: Some("newest values are kept in memory".into()),
            is_cold: context.is_cold(),
            ..Plan::default()
        },
    })
}

/// Writer of one page.
struct Page<'a> {
    scope: &'a Scope,
    columns: &'a Columns<FieldId>,
    /// Maximum number of timelines.
    limit: u64,
    /// Timelines examined.
    examined: usize,
    /// Values read from memory.
    kept_values: u64,
    timelines: u64,
    rows: u64,
    /// Last timeline passed to the sink.
    last: Option<TimelineId>,
    /// True if there was a timeline beyond the limit of the page.
    is_full: bool,
    tags: TagBuffer,
}

impl Page<'_> {
    fn read(
        &mut self,
        context: &Context<'_>,
        newest: &mut Newest<'_>,
        selected: &[Selected],
        sink: &mut dyn RowSink,
    ) -> Result<()> {
        let schema = context.table.points().schema();
        let of_each = self.scope.measurements.iter();
        let expected: Vec<Vec<FieldId>> = of_each.map(|name| schema.fields_of(name)).collect();
        for timeline in selected {
            context.watch.check()?;
            let (latest, is_kept) = newest.of(timeline.id, &expected[timeline.measurement as usize])?;
            self.examined += 1;
            self.write(context, timeline, &latest, is_kept, sink)?;
            if self.is_full {
                break;
            }
        }
        Ok(())
    }

    /// Writes a row for each timestamp at which a field was last written, newest first.
    fn write(
        &mut self,
        context: &Context<'_>,
        timeline: &Selected,
        latest: &LatestRow,
        is_kept: bool,
        sink: &mut dyn RowSink,
    ) -> Result<()> {
        let columns = self.columns.of(timeline.measurement);
        let found = columns.sources.iter().map(|field| field_of(latest, *field));
        let found: Vec<Option<&LatestField>> = found.collect();
        let mut times: Vec<i64> = found.iter().flatten().map(|field| field.timestamp).collect();
        if times.is_empty() {
            return Ok(());
        }
        if self.timelines == self.limit {
            self.is_full = true;
            return Ok(());
        }
        if is_kept {
            self.kept_values += times.len() as u64;
        }
        times.sort_unstable_by(|a, b| b.cmp(a));
        times.dedup();
        let (table, measurements) = (context.table, &self.scope.measurements);
        self.tags
            .begin_series(table, measurements, timeline, &columns.positions, sink)?;
        for time in times {
            let values: Vec<Option<ValueRef<'_>>> = found
                .iter()
                .map(|field| field.filter(|field| field.timestamp == time))
                .map(|field| field.map(|field| (&field.value).into()))
                .collect();
            sink.row(time, &values)?;
            self.rows += 1;
        }
        self.timelines += 1;
        self.last = Some(timeline.id);
        Ok(())
    }
}

/// Source of newest values: memory, and the chunks of a tier if only that tier is requested.
struct Newest<'a> {
    context: &'a Context<'a>,
    /// `None` = all tiers, for which memory has all values.
    tier: Option<TierReader<'a>>,
}

/// Reader of the newest values of one tier.
struct TierReader<'a> {
    tier: Tier,
    /// Values after this timestamp are certain to be in the tier; `None` = no value is certain.
    certain_after: Option<i64>,
    /// Reader of the range that begins at the start of the newest segment of the tier, or of all time if the tier has
    /// no segment. In nearly all timelines, all fields have a value in this range.
    newest: ScanReader<'a>,
    /// Earlier time ranges, split at the starts of the older segments, newest first.
    older: Vec<TimeRange>,
    /// Cost of the reads in the earlier ranges.
    older_cost: ReadCost,
    metered: Metered,
}

impl<'a> Newest<'a> {
    fn new(context: &'a Context<'a>, tier: Option<Tier>, ids: &'a [TimelineId]) -> Self {
        let tier = tier.map(|tier| TierReader::new(context, tier, ids));
        Self { context, tier }
    }

    /// Returns the newest value of each field of a timeline. The flag is true if the values are those that the engine
    /// keeps in memory, false if they were read from chunks of the tier. Must be called in order of timeline id.
    fn of(&mut self, id: TimelineId, expected: &[FieldId]) -> Result<(LatestRow, bool)> {
        let Context { engine, table, .. } = self.context;
        let kept = engine.store().latest(table.points(), id, expected)?;
        let Some(reader) = &mut self.tier else {
            return Ok((kept, true));
        };
        let is_certain =
            |field: &LatestField| reader.certain_after.is_some_and(|after| field.timestamp > after);
        if kept.iter().all(is_certain) {
            return Ok((kept, true));
        }
        let expected: Vec<FieldId> = kept.iter().map(|field| field.field).collect();
        Ok((reader.of(self.context, id, expected)?, false))
    }

    fn cost(&self) -> ReadCost {
        let mut cost = ReadCost::default();
        if let Some(reader) = &self.tier {
            cost = reader.newest.cost();
            cost.add(&reader.older_cost);
        }
        cost
    }
}

impl<'a> TierReader<'a> {
    fn new(context: &'a Context<'a>, tier: Tier, ids: &'a [TimelineId]) -> Self {
        let table = context.table.points().id();
        let segments = || context.snapshot.manifest().of_table(table);
        let old = segments().filter(|segment| segment.tier != Tier::Hot);
        let certain_after = match tier {
            Tier::Hot => Some(old.map(|segment| segment.last).max().unwrap_or(i64::MIN)),
            Tier::Cold | Tier::Archive => None,
        };
        let of_tier = segments().filter(|segment| segment.tier == tier);
        let mut begins: Vec<i64> = of_tier.map(|segment| segment.first).collect();
        begins.sort_unstable_by(|a, b| b.cmp(a));
        begins.dedup();
        let newest = TimeRange::new(begins.first().copied().unwrap_or(i64::MIN), i64::MAX);
        begins.push(i64::MIN);
        let older = begins.windows(2).map(|pair| TimeRange::new(pair[1], pair[0]));
        Self {
            tier,
            certain_after,
            newest: reader(context, tier, ids, newest, None),
            older: older.filter(|range| !range.is_empty()).collect(),
            older_cost: ReadCost::default(),
            metered: Metered::default(),
        }
    }

    /// Returns the newest values of a timeline; reads older ranges until all expected fields are found or no
    /// range is left.
    fn of(&mut self, context: &Context<'_>, id: TimelineId, mut expected: Vec<FieldId>) -> Result<LatestRow> {
        let mut row = self.newest.newest(id, &expected)?;
        for range in &self.older {
            expected.retain(|field| field_of(&row, *field).is_none());
            if expected.is_empty() {
                break;
            }
            context.watch.check()?;
            let ids = [id];
            let mut reader = reader(context, self.tier, &ids, *range, Some(&expected));
            row.extend(reader.newest(id, &expected)?);
            row.sort_by_key(|field| field.field);
            self.older_cost.add(&reader.cost());
        }
        let mut cost = self.newest.cost();
        cost.add(&self.older_cost);
        context.meter(&mut self.metered, &cost)?;
        Ok(row)
    }
}

fn reader<'a>(
    context: &'a Context<'_>,
    tier: Tier,
    timelines: &'a [TimelineId],
    range: TimeRange,
    fields: Option<&'a [FieldId]>,
) -> ScanReader<'a> {
    context.snapshot.reader(Selection {
        table: context.table.points().id(),
        timelines,
        range,
        fields,
        order: Order::Descending,
        tier: Some(tier),
    })
}

/// Returns the newest value of a field; rows of newest values are sorted by field.
fn field_of(latest: &LatestRow, field: FieldId) -> Option<&LatestField> {
    let found = latest.binary_search_by_key(&field, |found| found.field);
    found.ok().map(|at| &latest[at])
}
