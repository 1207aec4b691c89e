//! Timelines: found by conditions, listed by name, described, given attributes.

use std::collections::BTreeMap;

use roaring::RoaringBitmap;
use tideline_model::{Ordinal, TimelineId, Timestamp};
use tideline_search_index::{Condition, FacetRequest, Facets, FindRequest, Seen, SeenLookup};
use tideline_series_store::FieldInfo;
use tideline_timeline_catalog::{AttributeValue, CatalogReader, CountedName, NameSelection};

use crate::engine::Engine;
use crate::error::{EngineError, Result};
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
    pub timelines: Vec<Timeline>,
    /// How many meet the condition, in all.
    pub total: u64,
    /// What to pass to get the next page; `None` after the last.
    pub next: Option<String>,
}

impl Engine {
    /// The timelines that meet a condition: a page in order, and their number.
    pub fn find(&self, table: &Table, request: &FindRequest) -> Result<TimelinePage> {
        let page = self
            .index
            .find(&table.catalog, request, &self.seen_lookup(table))?;
        let timelines = self.describe_all(table, &page.ordinals)?;
        Ok(TimelinePage {
            timelines,
            total: page.total,
            next: page.next,
        })
    }

    /// How many of the timelines that meet a condition have which values.
    pub fn facets(&self, table: &Table, request: &FacetRequest) -> Result<Facets> {
        Ok(self
            .index
            .facets(&table.catalog, request, &self.seen_lookup(table))?)
    }

    /// All timelines that meet a condition, as ordinals.
    pub fn select(&self, table: &Table, condition: &Condition) -> Result<RoaringBitmap> {
        Ok(self
            .index
            .search(&table.catalog, condition, &self.seen_lookup(table))?)
    }

    /// The visible timeline with this id.
    pub fn timeline(&self, table: &Table, id: TimelineId) -> Result<Timeline> {
        let ordinal = self.visible(table, id)?;
        let mut described = self.describe_all(table, &[ordinal])?;
        described
            .pop()
            .ok_or_else(|| EngineError::NoSuchTimeline(id.to_string()))
    }

    /// Sets (`Some`) and removes (`None`) attributes of a timeline; durable and findable on return.
    pub fn set_attributes(
        &self,
        table: &Table,
        id: TimelineId,
        changes: &BTreeMap<String, Option<AttributeValue>>,
    ) -> Result<Timeline> {
        let stamps = self.catalogs.stamps();
        let _timelines_stay = table.activity.writers.read();
        let ordinal = self.visible(table, id)?;
        table
            .catalog
            .set_attributes(self.store.backend().as_ref(), ordinal, changes, &mut || {
                stamps.next()
            })?;
        self.index.notify();
        self.store.wake_watchers();
        self.timeline(table, id)
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

    pub(crate) fn describe_all(&self, table: &Table, ordinals: &[Ordinal]) -> Result<Vec<Timeline>> {
        let mut described: Vec<Timeline> = {
            let reader = table.catalog.reader();
            ordinals
                .iter()
                .filter_map(|ordinal| describe(&reader, *ordinal))
                .collect()
        };
        let ids: Vec<TimelineId> = described.iter().map(|timeline| timeline.id).collect();
        let seen = self.store.seen(&table.points, &ids)?;
        for (timeline, seen) in described.iter_mut().zip(seen) {
            timeline.seen = seen.map(as_seen);
        }
        Ok(described)
    }

    fn seen_lookup<'a>(&'a self, table: &'a Table) -> StoreSeen<'a> {
        StoreSeen { engine: self, table }
    }
}

/// Asks the store when timelines were seen.
struct StoreSeen<'a> {
    engine: &'a Engine,
    table: &'a Table,
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
        attributes: entry.attributes().cloned().unwrap_or_default(),
        seen: None,
    })
}
