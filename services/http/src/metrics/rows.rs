//! Metrics of the rows of wide tables: row buffer, changes, flush lag, use of indexes.
//!
//! Metrics with the label `table` have one value per wide table that was written since the start, for the first 200 tables.

use std::fmt;
use std::sync::Arc;

use tideline_engine::Engine;
use tideline_engine::fan_outs::TableFanOuts;
use tideline_engine::indexes::IndexUse;
use tideline_engine::large::LargeProgress;
use tideline_engine::model::TableId;
use tideline_engine::model::time::NANOS_PER_SECOND;
use tideline_engine::row_limits::RowLimitCounts;
use tideline_engine::row_search::{SearchBacklog, SearchStatus};
use tideline_engine::row_surveys::TableSurvey;
use tideline_engine::rows::{DictionaryStats, WideStats, WideTableStats};

use super::figures::Figures;
use super::{LABELS_MAX, labelled_tables};

const LABEL: &str = "table";

pub(super) fn put(figures: &mut Figures<'_>, engine: &Engine, stats: &WideStats) -> fmt::Result {
    figures.gauge(
        "row_buffer_bytes",
        "Bytes of the row buffer: rows that are in the journal and not yet flushed",
        (stats.active_bytes + stats.frozen_bytes) as f64,
    )?;
    figures.gauge(
        "row_buffer_budget_bytes",
        "Bytes of the row buffer at which it is flushed; writers wait at three times this value",
        stats.budget_bytes as f64,
    )?;
    put_dictionaries(figures, &stats.dictionaries)?;
    let tables = labelled_tables(engine);
    let named: Vec<(&str, &WideTableStats)> = tables
        .iter()
        .filter_map(|table| Some((table.name().as_str(), stats.tables.get(&table.points().id())?)))
        .collect();
    let values = |value: fn(&WideTableStats) -> f64| -> Vec<(&str, f64)> {
        named.iter().map(|(name, stats)| (*name, value(stats))).collect()
    };
    figures.counters(
        "row_changes",
        "Committed changes of rows and deletions of ranges",
        (LABEL, &values(|stats| stats.changes as f64)),
    )?;
    let limited = tables.iter().filter(|table| {
        let spec = table.spec();
        spec.wide.as_ref().is_some_and(|wide| !wide.limits.is_empty())
    });
    let limited: Vec<(&str, RowLimitCounts)> = limited
        .map(|table| (table.name().as_str(), engine.row_limit_counts(table)))
        .collect();
    let of_limits = |value: fn(&RowLimitCounts) -> f64| -> Vec<(&str, f64)> {
        limited
            .iter()
            .map(|(name, counts)| (*name, value(counts)))
            .collect()
    };
    figures.counters(
        "row_limit_refusals",
        "Reads and writes of rows that were refused because a limit of the table was used up",
        (LABEL, &of_limits(|counts| counts.refusals as f64)),
    )?;
    figures.counters(
        "row_limit_wait_seconds",
        "Time that reads of rows have waited for the limits of the table",
        (LABEL, &of_limits(|counts| counts.waited.as_secs_f64())),
    )?;
    figures.gauges(
        "row_buffered_rows",
        "Changed rows in the row buffer",
        (LABEL, &values(|stats| stats.buffered_rows as f64)),
    )?;
    figures.gauges(
        "row_buffered_bytes",
        "Bytes of the table in the row buffer",
        (LABEL, &values(|stats| stats.buffered_bytes as f64)),
    )?;
    figures.gauges(
        "row_flush_lag_seconds",
        "Time since the oldest change in the row buffer; 0 if everything is flushed",
        (
            LABEL,
            &values(|stats| stats.flush_lag.unwrap_or_default().as_secs_f64()),
        ),
    )?;
    put_indexes(figures, engine)?;
    put_parts(figures, engine)?;
    put_large_values(figures, engine)?;
    put_surveys(figures, engine)?;
    put_fan_outs(figures, engine)?;
    put_search_indexes(figures, engine)
}

/// Writes the figures of the dictionaries of compressed columns.
fn put_dictionaries(figures: &mut Figures<'_>, dictionaries: &DictionaryStats) -> fmt::Result {
    figures.gauge(
        "row_dictionary_bytes",
        "Bytes of the dictionaries of compressed columns in memory, and of the values from which new ones are made",
        dictionaries.bytes as f64,
    )?;
    figures.gauge(
        "row_dictionary_budget_bytes",
        "Maximum of tideline_row_dictionary_bytes",
        dictionaries.budget_bytes as f64,
    )?;
    figures.counter(
        "row_dictionaries_made",
        "Dictionaries of compressed columns that were made",
        dictionaries.made as f64,
    )?;
    figures.counter(
        "row_dictionaries_replaced",
        "Dictionaries that replaced another one, because the values of the column have changed",
        dictionaries.replaced as f64,
    )?;
    figures.counter(
        "row_dictionary_refusals",
        "Dictionaries that were not used or made because the budget was used up",
        dictionaries.refusals as f64,
    )
}

/// Writes the figures of the job that writes messages to inboxes.
fn put_fan_outs(figures: &mut Figures<'_>, engine: &Engine) -> fmt::Result {
    let (mut tables, now) = (engine.fan_outs(), engine.now().nanos());
    tables.truncate(LABELS_MAX);
    let values = |value: &dyn Fn(&TableFanOuts) -> f64| -> Vec<(&str, f64)> {
        tables
            .iter()
            .map(|table| (table.name.as_str(), value(table)))
            .collect()
    };
    figures.gauges(
        "feed_fan_out_lag_seconds",
        "Age of the oldest message that is not in the inboxes of all members yet; 0 if none waits. Inboxes show it nevertheless",
        (LABEL, &values(&|table| table.lag(now) as f64 / NANOS_PER_SECOND as f64)),
    )?;
    figures.gauges(
        "feed_fan_out_waiting_feeds",
        "Feeds with messages that are not in the inboxes of all members yet",
        (LABEL, &values(&|table| table.feeds as f64)),
    )?;
    figures.counter(
        "feed_fan_out_entries",
        "Inbox entries that the job fan_out has written",
        engine.fan_out_entries() as f64,
    )?;
    figures.gauges(
        "feed_interrupted_joins",
        "Known joins whose request was interrupted before the inbox had all entries. The job fan_out completes them. Inboxes show the messages nevertheless",
        (LABEL, &values(&|table| table.joins as f64)),
    )?;
    figures.counter(
        "feed_interrupted_joins_ended",
        "Interrupted joins that were completed, or whose member has left",
        engine.ended_joins() as f64,
    )
}

/// Function that returns one of the figures of a survey.
type SurveyFigure = fn(&TableSurvey) -> f64;

/// Writes the figures of the last survey of each table.
fn put_surveys(figures: &mut Figures<'_>, engine: &Engine) -> fmt::Result {
    let tables = labelled_tables(engine);
    let found = tables.iter().filter_map(|table| {
        let survey = engine.row_survey(table.points().id())?;
        Some((table.name().as_str(), survey))
    });
    let found: Vec<(&str, Arc<TableSurvey>)> = found.collect();
    let families: [(&str, &str, SurveyFigure); 5] = [
        ("row_stored_rows", "Rows by the last survey", |survey| {
            survey.rows.rows as f64
        }),
        (
            "row_stored_bytes",
            "Bytes of the rows after packing by the last survey",
            |survey| survey.stored_bytes() as f64,
        ),
        (
            "row_delete_markers",
            "Delete markers by the last survey",
            |survey| survey.rows.markers as f64,
        ),
        (
            "row_largest_partition_bytes",
            "Bytes of the largest partition by the last survey",
            |survey| {
                survey
                    .rows
                    .partitions
                    .first()
                    .map_or(0.0, |size| size.bytes as f64)
            },
        ),
        (
            "row_columns_max",
            "Columns of the widest row by the last survey",
            |survey| survey.rows.columns_max as f64,
        ),
    ];
    for (name, help, figure) in families {
        let values: Vec<(&str, f64)> = found
            .iter()
            .map(|(table, survey)| (*table, figure(survey)))
            .collect();
        figures.gauges(name, help, (LABEL, &values))?;
    }
    let packed = found
        .iter()
        .map(|(table, survey)| (*table, survey.markers_packed as f64));
    figures.counters(
        "row_delete_markers_packed",
        "Delete markers that packing has removed",
        (LABEL, &packed.collect::<Vec<_>>()),
    )
}

/// Writes the number of parts of the divided tables.
fn put_parts(figures: &mut Figures<'_>, engine: &Engine) -> fmt::Result {
    let tables = labelled_tables(engine);
    let counted: Vec<(&str, f64)> = tables
        .iter()
        .filter_map(|table| Some((table.name().as_str(), engine.part_count(table)? as f64)))
        .collect();
    figures.gauges(
        "row_parts",
        "Stored parts of wide tables that are divided by time",
        (LABEL, &counted),
    )
}

/// Writes the number and size of the large values, as counted by the last job `remove_expired`.
fn put_large_values(figures: &mut Figures<'_>, engine: &Engine) -> fmt::Result {
    let tables = labelled_tables(engine);
    let counted = engine.large_values();
    let values = |value: fn(&LargeProgress) -> u64| -> Vec<(&str, f64)> {
        let counted = counted.iter().filter_map(|(id, counts)| {
            let table = tables.iter().find(|table| table.points().id() == *id)?;
            Some((table.name().as_str(), value(counts) as f64))
        });
        counted.collect()
    };
    figures.gauges(
        "row_large_values",
        "Values stored in pieces that rows name, as the last job remove_expired has counted them",
        (LABEL, &values(|counts| counts.values)),
    )?;
    figures.gauges(
        "row_large_value_bytes",
        "Bytes of the values stored in pieces, as the last job remove_expired has counted them",
        (LABEL, &values(|counts| counts.bytes)),
    )?;
    figures.gauges(
        "row_large_values_removed",
        "Values stored in pieces that the last job remove_expired has removed, because no row named them",
        (LABEL, &values(|counts| counts.removed)),
    )
}

/// Function that returns one of the figures of a search index.
type SearchFigure = fn(&(SearchStatus, SearchBacklog)) -> f64;

/// Writes the state of the search indexes over rows.
fn put_search_indexes(figures: &mut Figures<'_>, engine: &Engine) -> fmt::Result {
    let mut found = Vec::new();
    for table in labelled_tables(engine) {
        let spec = table.spec();
        let indexes = spec.wide.iter().flat_map(|wide| &wide.search_indexes);
        found.extend(indexes.filter_map(|index| {
            let status = engine.search_index_status(TableId(index.id))?;
            Some((table.name().to_string(), index.name.clone(), status))
        }));
    }
    // While an index is rebuilt, two indexes have the same name. Only the first, which serves searches, is reported.
    found.dedup_by(|later, first| (&later.0, &later.1) == (&first.0, &first.1));
    let families: [(&str, &str, SearchFigure); 4] = [
        ("row_search_documents", "Rows in a search index", |(status, _)| {
            status.documents as f64
        }),
        (
            "row_search_ready",
            "1 if a search index is complete, 0 while it is built",
            |(status, _)| f64::from(u8::from(status.is_built())),
        ),
        (
            "row_search_waiting",
            "Changes of rows that searches do not find yet",
            |(_, backlog)| backlog.changes as f64,
        ),
        (
            "row_search_lag_seconds",
            "Time since the oldest change that searches do not find yet; 0 without changes",
            |(_, backlog)| backlog.age.unwrap_or_default().as_secs_f64(),
        ),
    ];
    for (name, help, figure) in families {
        let value = |(table, index, status): &(String, String, (SearchStatus, SearchBacklog))| {
            (table.clone(), index.clone(), figure(status))
        };
        let values: Vec<_> = found.iter().map(value).collect();
        figures.index_gauges(name, help, &values)?;
    }
    Ok(())
}

/// Function that returns one of the usage counters of an index.
type IndexNumber = fn(&IndexUse) -> u64;

/// Writes the use of the secondary indexes.
fn put_indexes(figures: &mut Figures<'_>, engine: &Engine) -> fmt::Result {
    let mut used = Vec::new();
    for table in labelled_tables(engine) {
        let spec = table.spec();
        let indexes = spec.wide.iter().flat_map(|wide| &wide.indexes);
        used.extend(indexes.map(|index| {
            let number = engine.index_use(TableId(index.id));
            (table.name().to_string(), index.name.clone(), number)
        }));
    }
    let families: [(&str, &str, IndexNumber); 3] = [
        ("index_scans", "Scans of a secondary index", |used| used.scans),
        (
            "index_entries_read",
            "Entries of a secondary index that scans have read",
            |used| used.entries_read,
        ),
        (
            "index_entries_written",
            "Entries of a secondary index that writes and builds have written or removed",
            |used| used.entries_written,
        ),
    ];
    for (name, help, number) in families {
        let value = |(table, index, used): &(String, String, IndexUse)| {
            (table.clone(), index.clone(), number(used) as f64)
        };
        let values: Vec<_> = used.iter().map(value).collect();
        figures.index_counters(name, help, &values)?;
    }
    Ok(())
}
