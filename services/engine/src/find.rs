//! Timelines: search by conditions, lists of names, descriptions, attributes, saved searches, metric metadata.
//!
//! The index evaluates conditions; the store provides the times when each timeline was first and last seen.

use std::borrow::Cow;
use std::collections::BTreeMap;

use roaring::RoaringBitmap;
use tideline_access::tenant::part_of;
use tideline_condition::{Condition, Matcher, Subject};
use tideline_model::{Ordinal, TimelineId, Timestamp};
use tideline_search_index::{FacetRequest, Facets, FindRequest, Highlight, Seen, SeenLookup, SortBy};
use tideline_series_store::FieldInfo;
use tideline_timeline_catalog::searches::bytes_of;
use tideline_timeline_catalog::{
    AttributeChanges, AttributeValue, CatalogReader, CountedKey, CountedName, Entry, MetricMetadata,
    NameSelection,
};

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::suggest::{Suggestion, suggestions};
use crate::tables::Table;

/// Description of a timeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// Id of the timeline.
    pub id: TimelineId,
    /// Measurement of the timeline.
    pub measurement: String,
    /// Machine that the timeline belongs to; `None` without a source tag.
    pub source: Option<String>,
    /// Tags, sorted by key.
    pub tags: Vec<(String, String)>,
    /// Attributes set by users.
    pub attributes: BTreeMap<String, AttributeValue>,
    /// Times of the oldest and newest visible point; `None` if there are no such points or the times were not read.
    pub seen: Option<Seen>,
}

/// Page of timelines.
#[derive(Debug, Clone, PartialEq)]
pub struct TimelinePage {
    /// Timelines in the requested order.
    pub found: Vec<FoundTimeline>,
    /// Number of all timelines that match the condition.
    pub total: u64,
    /// Number of all hits; at most `total`, because collapsed timelines form one hit.
    pub hits_total: u64,
    /// Names in the request that the table does not have.
    pub suggestions: Vec<Suggestion>,
    /// Token of the next page; `None` after the last page.
    pub next: Option<String>,
}

/// Timeline of a page.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundTimeline {
    /// The timeline.
    pub timeline: Timeline,
    /// Number of timelines in this hit, including this one; more than 1 only if timelines are collapsed.
    pub timelines: u64,
    /// Matching parts of the texts of the timeline.
    pub highlights: Vec<Highlight>,
}

/// Timeline counts by value.
#[derive(Debug, Clone, PartialEq)]
pub struct FacetCounts {
    /// The counts.
    pub facets: Facets,
    /// Names in the request that the table does not have.
    pub suggestions: Vec<Suggestion>,
}

/// Callback that stops a search: returns true if the client has disconnected or the time limit is reached. After the
/// first true, it always returns true.
pub type Stop<'a> = &'a dyn Fn() -> bool;

/// Callback that never stops a search.
pub const NEVER: Stop<'static> = &|| false;

/// Suffixes that the names of the series of a metric may have.
const SERIES_OF_METRICS: [&str; 9] = [
    "", "_total", "_bucket", "_sum", "_count", "_created", "_info", "_gsum", "_gcount",
];

impl Engine {
    /// Finds the timelines that match a condition. Returns one page in order, with the total numbers.
    ///
    /// # Errors
    ///
    /// Returns a search error if the request is invalid, exceeds a limit or `stop` returned true. Returns a store
    /// error if spans of timelines cannot be read.
    pub fn find(&self, table: &Table, request: &FindRequest, stop: Stop<'_>) -> Result<TimelinePage> {
        let narrowed = match table.narrowed_silently(&request.condition) {
            Cow::Borrowed(_) => Cow::Borrowed(request),
            Cow::Owned(condition) => Cow::Owned(FindRequest {
                condition,
                ..request.clone()
            }),
        };
        let page = self
            .index
            .find(&table.catalog, &narrowed, &self.seen_lookup(table, stop))?;
        let ordinals: Vec<Ordinal> = page.hits.iter().map(|hit| hit.ordinal).collect();
        let described = self.describe_all(table, &ordinals)?;
        // Timelines removed since the search are omitted.
        let found = page
            .hits
            .into_iter()
            .zip(described)
            .filter_map(|(hit, timeline)| {
                Some(FoundTimeline {
                    timeline: timeline?,
                    timelines: hit.timelines,
                    highlights: hit.highlights,
                })
            });
        let sorted_by = request.sort.iter().filter_map(|sort| match &sort.by {
            SortBy::Subject(subject) => Some(subject.clone()),
            SortBy::Distance { key, .. } => Some(Subject::Attribute(key.clone())),
            SortBy::Relevance => None,
        });
        let collapsed_by = request.collapse.iter().cloned().map(Subject::Tag);
        let others: Vec<Subject> = sorted_by.chain(collapsed_by).collect();
        Ok(TimelinePage {
            found: found.collect(),
            total: page.total,
            hits_total: page.hits_total,
            suggestions: suggestions(table, &request.condition, &others),
            next: page.next,
        })
    }

    /// Counts, by value, the timelines that match a condition.
    ///
    /// # Errors
    ///
    /// Returns a search error if the request is invalid, exceeds a limit or `stop` returned true.
    pub fn facets(&self, table: &Table, request: &FacetRequest, stop: Stop<'_>) -> Result<FacetCounts> {
        let narrowed = match table.narrowed(&request.condition) {
            Cow::Borrowed(_) => Cow::Borrowed(request),
            Cow::Owned(condition) => Cow::Owned(FacetRequest {
                condition,
                ..request.clone()
            }),
        };
        let facets = self
            .index
            .facets(&table.catalog, &narrowed, &self.seen_lookup(table, stop))?;
        let suggestions = suggestions(table, &request.condition, &request.by);
        Ok(FacetCounts { facets, suggestions })
    }

    /// Returns the ordinals of all timelines that match a condition.
    ///
    /// # Errors
    ///
    /// Returns a search error if the condition is invalid, exceeds a limit or `stop` returned true.
    pub fn select(&self, table: &Table, condition: &Condition, stop: Stop<'_>) -> Result<RoaringBitmap> {
        let condition = table.narrowed(condition);
        Ok(self
            .index
            .search(&table.catalog, &condition, &self.seen_lookup(table, stop))?)
    }

    /// Checks a condition and compiles its patterns, as each search does.
    ///
    /// # Errors
    ///
    /// Returns a search error if the condition is invalid, exceeds a limit or `stop` returned true.
    pub fn compile(&self, table: &Table, condition: &Condition, stop: Stop<'_>) -> Result<Matcher> {
        let lookup = self.seen_lookup(table, stop);
        let condition = table.narrowed(condition);
        Ok(self.index.compile(&table.catalog, &condition, &lookup)?)
    }

    /// Returns the visible timeline with an id.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::NoSuchTimeline`] if the id is unknown, or a store error if its span cannot be read.
    pub fn timeline(&self, table: &Table, id: TimelineId) -> Result<Timeline> {
        let ordinal = self.visible(table, id)?;
        let mut described = self.describe_all(table, &[ordinal])?;
        described
            .pop()
            .flatten()
            .ok_or_else(|| EngineError::NoSuchTimeline(id.to_string()))
    }

    /// Sets (`Some`) and removes (`None`) attributes of a timeline. The changes are durable and searchable on return.
    ///
    /// # Errors
    ///
    /// - [`EngineError::NoSuchTimeline`] for an unknown id.
    /// - [`EngineError::Forbidden`] if the principal is restricted by one of the attributes.
    /// - A catalog error if a value is not allowed or the commit fails.
    /// - A store error if the table was dropped or the span of the timeline cannot be read.
    pub fn set_attributes(
        &self,
        table: &Table,
        id: TimelineId,
        changes: &AttributeChanges,
    ) -> Result<Timeline> {
        table.check_changes(changes)?;
        let _timelines_stay = self.keep_timelines(table)?;
        let ordinal = self.visible(table, id)?;
        let commit = |entry| self.commit_change(entry);
        let edited = table.catalog.set_attributes(ordinal, changes, &commit);
        edited.map_err(|error| table.shown_error(error))?;
        self.index.notify();
        self.timeline(table, id)
    }

    /// Saves a search under a name, replacing an existing one. The search is durable on return. Its text is not
    /// interpreted.
    ///
    /// # Errors
    ///
    /// Returns a catalog error if name or text is not allowed, there are too many searches or the commit fails, a
    /// store error if the table was dropped, and [`EngineError::SearchesFull`] if all saved searches of the server, or
    /// of the tenant of this handle, would have more bytes than allowed.
    pub fn save_search(&self, table: &Table, name: &str, text: &str) -> Result<()> {
        let _table_stays = self.keep_timelines(table)?;
        self.check_search_bytes(table, name, text)?;
        let commit = |entry| self.commit_change(entry);
        Ok(table.catalog.put_search(name, text, &commit)?)
    }

    /// Checks the bytes of all saved searches before one more is saved. Concurrent requests can exceed the limit by their
    /// own searches.
    fn check_search_bytes(&self, table: &Table, name: &str, text: &str) -> Result<()> {
        let replaced = table.searches().get(name).map_or(0, |text| bytes_of(name, &text));
        let added = bytes_of(name, text).saturating_sub(replaced);
        if added == 0 {
            return Ok(());
        }
        let total = |is_counted: &dyn Fn(&str) -> bool| {
            let tables = self.known_tables();
            let counted = tables.iter().filter(|table| is_counted(table.name().as_str()));
            added + counted.map(|table| table.searches().bytes()).sum::<u64>()
        };
        let full =
            |owner: String, limit: u64, actual: u64| Err(EngineError::SearchesFull { owner, limit, actual });
        let limit = self.settings.tables.saved_search_bytes_max;
        let tenant = self.tenant();
        if let Some(tenant) = tenant {
            let record = tenant.record();
            let (limit, actual) = (part_of(limit), total(&|table| record.has_table(table)));
            if actual > limit {
                return full(format!("the tenant {}", record.name), limit, actual);
            }
        }
        let actual = total(&|_| true);
        if actual <= limit {
            return Ok(());
        }
        // The bytes of the whole server are not shown to a tenant, because they include those of other tenants.
        let shown = match tenant {
            Some(_) => limit.saturating_add(added),
            None => actual,
        };
        full("the server".to_owned(), limit, shown)
    }

    /// Deletes a saved search. Returns true if it existed.
    ///
    /// # Errors
    ///
    /// Returns an error if the table was dropped or the commit fails.
    pub fn delete_search(&self, table: &Table, name: &str) -> Result<bool> {
        let _table_stays = self.keep_timelines(table)?;
        let commit = |entry| self.commit_change(entry);
        Ok(table.catalog.delete_search(name, &commit)?)
    }

    /// Stores type, help and unit of metrics. The metadata is durable on return. Returns the number of metrics omitted
    /// because of limits or invalid names, or because a restricted handle has no series of them.
    ///
    /// Known metadata costs no write. A sender with contradictory metadata causes at most one write per metric and
    /// minute.
    ///
    /// # Errors
    ///
    /// Returns an error if the table was dropped or the commit fails. Some of the metadata may be stored then.
    pub fn put_metadata(&self, table: &Table, metrics: &[MetricMetadata]) -> Result<usize> {
        let _table_stays = self.keep_timelines(table)?;
        let commit = |entry| self.commit_change(entry);
        if table.restriction.is_none() {
            return Ok(table.catalog.put_metadata(metrics, self.now(), &commit)?);
        }
        let visible: Vec<MetricMetadata> = {
            let reader = table.reader();
            let visible = metrics.iter().filter(|metric| has_series(&reader, &metric.name));
            visible.cloned().collect()
        };
        let omitted = table.catalog.put_metadata(&visible, self.now(), &commit)?;
        Ok(metrics.len() - visible.len() + omitted)
    }

    /// Returns the known type, help and unit of all metrics, sorted by name. For a table that is restricted to some
    /// timelines, omits the metrics without visible series.
    pub fn metadata(&self, table: &Table) -> Vec<MetricMetadata> {
        let mut all = table.catalog.metadata().all();
        if table.restriction.is_some() {
            let reader = table.reader();
            all.retain(|metric| has_series(&reader, &metric.name));
        }
        all
    }

    /// Returns the selected measurements in byte order, with the number of timelines of each.
    pub fn measurements(&self, table: &Table, selection: &NameSelection<'_>) -> Vec<CountedName> {
        table.reader().measurements(selection)
    }

    /// Returns the selected tag keys in byte order, with the number of timelines of each.
    pub fn tag_keys(&self, table: &Table, selection: &NameSelection<'_>) -> Vec<CountedName> {
        table.reader().tag_keys(selection)
    }

    /// Returns the selected values of a tag in byte order, with the number of timelines of each.
    pub fn tag_values(&self, table: &Table, key: &str, selection: &NameSelection<'_>) -> Vec<CountedName> {
        table.reader().tag_values(key, selection)
    }

    /// Returns the attribute keys with the types of their values.
    pub fn attribute_keys(&self, table: &Table) -> Vec<CountedKey> {
        table.reader().attribute_keys()
    }

    /// Returns the fields of every measurement of visible timelines with their types.
    pub fn fields(&self, table: &Table) -> Vec<FieldInfo> {
        table.fields()
    }

    pub(crate) fn visible(&self, table: &Table, id: TimelineId) -> Result<Ordinal> {
        let visible = table.reader().by_id(id);
        visible.ok_or_else(|| EngineError::NoSuchTimeline(id.to_string()))
    }

    /// Describes timelines; `None` in place of each one that is not visible.
    pub(crate) fn describe_all(&self, table: &Table, ordinals: &[Ordinal]) -> Result<Vec<Option<Timeline>>> {
        let mut described: Vec<Option<Timeline>> = {
            let reader = table.reader();
            ordinals
                .iter()
                .map(|ordinal| describe(&reader, *ordinal))
                .collect()
        };
        let ids: Vec<TimelineId> = described.iter().flatten().map(|timeline| timeline.id).collect();
        let seen = self.store.seen(&table.points, &ids)?;
        for (timeline, seen) in described.iter_mut().flatten().zip(seen) {
            timeline.seen = seen.map(as_seen);
        }
        Ok(described)
    }

    fn seen_lookup<'a>(&'a self, table: &'a Table, stop: Stop<'a>) -> StoreSeen<'a> {
        StoreSeen {
            engine: self,
            table,
            stop,
        }
    }
}

/// Look-up of timeline spans in the store. If it fails, the error is logged, and the timelines count as timelines
/// without points.
struct StoreSeen<'a> {
    engine: &'a Engine,
    table: &'a Table,
    stop: Stop<'a>,
}

impl SeenLookup for StoreSeen<'_> {
    fn seen(&self, ordinals: &[Ordinal]) -> Vec<Option<Seen>> {
        let ids: Vec<TimelineId> = {
            let reader = self.table.catalog.reader();
            ordinals.iter().map(|ordinal| reader.id(*ordinal)).collect()
        };
        match self.engine.store.seen(&self.table.points, &ids) {
            Ok(seen) => seen.into_iter().map(|seen| seen.map(as_seen)).collect(),
            Err(error) => {
                tracing::warn!(%error, "failed to read the time spans of timelines");
                vec![None; ids.len()]
            }
        }
    }

    fn is_stopped(&self) -> bool {
        (self.stop)()
    }
}

fn as_seen(seen: tideline_series_store::Seen) -> Seen {
    let instant = Timestamp::from_nanos_clamped;
    Seen {
        first: instant(seen.first),
        last: instant(seen.last),
    }
}

impl Table {
    /// Describes a timeline without its span; `None` if it was removed meanwhile.
    pub(crate) fn describe(&self, ordinal: Ordinal) -> Option<Timeline> {
        describe(&self.reader(), ordinal)
    }
}

/// Returns true if a visible timeline can be a series of the metric.
pub(crate) fn has_series(reader: &CatalogReader<'_>, metric: &str) -> bool {
    let mut series = SERIES_OF_METRICS.iter();
    series.any(|suffix| reader.has_measurement(&format!("{metric}{suffix}")))
}

/// Describes a timeline without its span; `None` if `reader` does not show it.
pub(crate) fn describe(reader: &CatalogReader<'_>, ordinal: Ordinal) -> Option<Timeline> {
    reader.entry(ordinal).map(|entry| described(&entry))
}

/// Describes an entry of the catalog without its span.
pub(crate) fn described(entry: &Entry<'_>) -> Timeline {
    Timeline {
        id: entry.id(),
        measurement: entry.measurement().to_owned(),
        source: entry.source().map(str::to_owned),
        tags: entry
            .tags()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        attributes: entry.owned_attributes(),
        seen: None,
    }
}
