//! Metrics of each table: written points, timelines, bytes in each tier. Tables are in the order of their
//! creation, so that the set of tables with separate values stays the same.

use std::collections::HashMap;
use std::fmt;

use tideline_engine::model::Tier;
use tideline_engine::stored_data::TableData;

use super::figures::Figures;
use super::{bounded, first};

const LABEL: &str = "table";

pub(super) fn put(figures: &mut Figures<'_>, mut stored: Vec<TableData>) -> fmt::Result {
    stored.sort_by_key(|table| table.id);
    // The internal table with the users of a feed table is reported under the name of the feed table.
    let mut tables: Vec<TableData> = Vec::with_capacity(stored.len());
    let mut places = HashMap::new();
    for table in stored {
        let place = *places.entry(table.table.clone()).or_insert(tables.len());
        match tables.get_mut(place) {
            Some(known) => known.add(&table),
            None => tables.push(table),
        }
    }
    let written = tables
        .iter()
        .map(|table| (table.table.as_str(), table.written as f64));
    let values = |value: &dyn Fn(&TableData) -> u64| {
        bounded(
            tables
                .iter()
                .map(|table| (table.table.as_str(), value(table) as f64)),
        )
    };
    figures.counters(
        "table_points",
        "Points, rows and messages written to the table, and deletes of rows",
        (LABEL, &first(written)),
    )?;
    figures.gauges(
        "table_timelines",
        "Timelines of the table",
        (LABEL, &values(&|table| table.data.timelines)),
    )?;
    for (tier, name, help) in [
        (
            Tier::Hot,
            "table_hot_bytes",
            "Bytes of the table in the hot tier; absent until the first survey of its rows",
        ),
        (
            Tier::Cold,
            "table_cold_bytes",
            "Bytes of the table in the cold tier",
        ),
        (
            Tier::Archive,
            "table_archive_bytes",
            "Bytes of the table in the archive",
        ),
    ] {
        let mut bytes = values(&|table| table.data.tier_bytes[tier as usize]);
        if tier == Tier::Hot {
            // Without their stored rows, the bytes would be far too low.
            bytes.retain(|(name, _)| {
                !tables
                    .iter()
                    .any(|table| table.table.as_str() == *name && !table.is_surveyed)
            });
        }
        figures.gauges(name, help, (LABEL, &bytes))?;
    }
    Ok(())
}
