//! Timelines: found by conditions, listed by name, described, given attributes.

use std::collections::BTreeMap;

use roaring::RoaringBitmap;
use tideline_condition::{Condition, Matcher, Subject};
use tideline_model::{Ordinal, TimelineId, Timestamp};
use tideline_search_index::{FacetRequest, Facets, FindRequest, Highlight, Seen, SeenLookup, SortBy};
use tideline_series_store::FieldInfo;
use tideline_timeline_catalog::{
    AttributeChanges, AttributeValue, CatalogReader, CountedKey, CountedName, MetricMetadata, NameSelection,
};

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::suggest::{Suggestion, suggestions};
use crate::tables::Table;

/// A timeline, described.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// Its id.
    pub id: TimelineId,
    /// Its measurement.
    pub measurement: String,
    /// The machine that it belongs to.
    pub source: Option<String>,
    /// Its tags, sorted by key.
    pub tags: Vec<(String, String)>,
    /// What people have added.
    pub attributes: BTreeMap<String, AttributeValue>,
    /// Oldest and newest point.
    pub seen: Option<Seen>,
}

/// A page of timelines.
#[derive(Debug, Clone, PartialEq)]
pub struct TimelinePage {
    /// In the order asked for.
    pub found: Vec<FoundTimeline>,
    /// How many meet the condition, in all.
    pub total: u64,
    /// How many hits there are in all: fewer where timelines are collapsed.
    pub hits_total: u64,
    /// Names that were asked for and that the table does not have.
    pub suggestions: Vec<Suggestion>,
    /// What to pass to get the next page; `None` after the last.
    pub next: Option<String>,
}

/// A timeline of a page.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundTimeline {
    /// The timeline.
    pub timeline: Timeline,
    /// How many it stands for, itself among them: more than one where timelines are collapsed.
    pub timelines: u64,
    /// Which of its texts matched.
    pub highlights: Vec<Highlight>,
}

/// Counts by value.
#[derive(Debug, Clone, PartialEq)]
pub struct FacetCounts {
    /// The counts.
    pub facets: Facets,
    /// Names that were asked for and that the table does not have.
    pub suggestions: Vec<Suggestion>,
}

/// Whether a search should end: its client has left, or its time is over. Once true, it stays true.
pub type Stop<'a> = &'a dyn Fn() -> bool;

/// For searches that go on to their end.
pub const NEVER: Stop<'static> = &|| false;

impl Engine {
    /// The timelines that meet a condition: a page in order, and their number.
    pub fn find(&self, table: &Table, request: &FindRequest, stop: Stop<'_>) -> Result<TimelinePage> {
        let page = self
            .index
            .find(&table.catalog, request, &self.seen_lookup(table, stop))?;
        let ordinals: Vec<Ordinal> = page.hits.iter().map(|hit| hit.ordinal).collect();
        let described = self.describe_all(table, &ordinals)?;
        // One that has gone meanwhile is left out.
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
            suggestions: suggestions(&table.catalog, &request.condition, &others),
            next: page.next,
        })
    }

    /// How many of the timelines that meet a condition have which values.
    pub fn facets(&self, table: &Table, request: &FacetRequest, stop: Stop<'_>) -> Result<FacetCounts> {
        let facets = self
            .index
            .facets(&table.catalog, request, &self.seen_lookup(table, stop))?;
        let suggestions = suggestions(&table.catalog, &request.condition, &request.by);
        Ok(FacetCounts { facets, suggestions })
    }

    /// All timelines that meet a condition, as ordinals.
    pub fn select(&self, table: &Table, condition: &Condition, stop: Stop<'_>) -> Result<RoaringBitmap> {
        Ok(self
            .index
            .search(&table.catalog, condition, &self.seen_lookup(table, stop))?)
    }

    /// Checks a condition and compiles its patterns, as each search does.
    pub fn compile(&self, table: &Table, condition: &Condition, stop: Stop<'_>) -> Result<Matcher> {
        Ok(self.index.compile(condition, &self.seen_lookup(table, stop))?)
    }

    /// The visible timeline with this id.
    pub fn timeline(&self, table: &Table, id: TimelineId) -> Result<Timeline> {
        let ordinal = self.visible(table, id)?;
        let mut described = self.describe_all(table, &[ordinal])?;
        described
            .pop()
            .flatten()
            .ok_or_else(|| EngineError::NoSuchTimeline(id.to_string()))
    }

    /// Sets (`Some`) and removes (`None`) attributes of a timeline; durable and findable on return.
    pub fn set_attributes(
        &self,
        table: &Table,
        id: TimelineId,
        changes: &AttributeChanges,
    ) -> Result<Timeline> {
        let _timelines_stay = self.keep_timelines(table)?;
        let ordinal = self.visible(table, id)?;
        let commit = |entry| self.commit_change(entry);
        table.catalog.set_attributes(ordinal, changes, &commit)?;
        self.index.notify();
        self.timeline(table, id)
    }

    /// Saves a search under a name, in the place of one that has it; durable on return. Its text is the caller's to read.
    pub fn save_search(&self, table: &Table, name: &str, text: &str) -> Result<()> {
        let _table_stays = self.keep_timelines(table)?;
        let commit = |entry| self.commit_change(entry);
        Ok(table.catalog.put_search(name, text, &commit)?)
    }

    /// Deletes a saved search; whether there was one.
    pub fn delete_search(&self, table: &Table, name: &str) -> Result<bool> {
        let _table_stays = self.keep_timelines(table)?;
        let commit = |entry| self.commit_change(entry);
        Ok(table.catalog.delete_search(name, &commit)?)
    }

    /// Remembers type, help and unit of metrics; durable on return. How many were left out because there are too many, or
    /// for their names. What is known already costs no write, nor does what a sender contradicts over and over.
    pub fn put_metadata(&self, table: &Table, metrics: &[MetricMetadata]) -> Result<usize> {
        let _table_stays = self.keep_timelines(table)?;
        let commit = |entry| self.commit_change(entry);
        Ok(table.catalog.put_metadata(metrics, self.now(), &commit)?)
    }

    /// Type, help and unit of all metrics that something is known of, by name.
    pub fn metadata(&self, table: &Table) -> Vec<MetricMetadata> {
        table.catalog.metadata().all()
    }

    /// Measurements with how many timelines each has, by name.
    pub fn measurements(&self, table: &Table, selection: &NameSelection<'_>) -> Vec<CountedName> {
        table.catalog.reader().measurements(selection)
    }

    /// Tag keys with how many timelines bear each, by name.
    pub fn tag_keys(&self, table: &Table, selection: &NameSelection<'_>) -> Vec<CountedName> {
        table.catalog.reader().tag_keys(selection)
    }

    /// Values of a tag with how many timelines bear each, by value.
    pub fn tag_values(&self, table: &Table, key: &str, selection: &NameSelection<'_>) -> Vec<CountedName> {
        table.catalog.reader().tag_values(key, selection)
    }

    /// Attribute keys with the types of their values, by key.
    pub fn attribute_keys(&self, table: &Table) -> Vec<CountedKey> {
        table.catalog.reader().attribute_keys()
    }

    /// Fields of every measurement with their types.
    pub fn fields(&self, table: &Table) -> Vec<FieldInfo> {
        table.points.schema().fields()
    }

    pub(crate) fn visible(&self, table: &Table, id: TimelineId) -> Result<Ordinal> {
        let reader = table.catalog.reader();
        let visible = reader
            .by_id(id)
            .filter(|ordinal| reader.visible().contains(ordinal.0));
        visible.ok_or_else(|| EngineError::NoSuchTimeline(id.to_string()))
    }

    /// The description of each timeline that is visible.
    pub(crate) fn describe_all(&self, table: &Table, ordinals: &[Ordinal]) -> Result<Vec<Option<Timeline>>> {
        let mut described: Vec<Option<Timeline>> = {
            let reader = table.catalog.reader();
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

/// Asks the store when timelines were seen.
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
                tracing::warn!(%error, "the spans of timelines could not be read");
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
    /// A timeline without its span; `None` where it was removed meanwhile.
    pub(crate) fn describe(&self, ordinal: Ordinal) -> Option<Timeline> {
        describe(&self.catalog.reader(), ordinal)
    }
}

fn describe(reader: &CatalogReader<'_>, ordinal: Ordinal) -> Option<Timeline> {
    let entry = reader.entry(ordinal)?;
    Some(Timeline {
        id: entry.id(),
        measurement: entry.measurement().to_owned(),
        source: entry.source().map(str::to_owned),
        tags: entry
            .tags()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        attributes: entry.owned_attributes(),
        seen: None,
    })
}
