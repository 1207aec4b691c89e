//! Statistics and load of a wide table, with keys as JSON objects.
//!
//! The engine identifies rows by stored keys. Requests and responses contain only logical key columns.

use serde_json::value::RawValue;
use tideline_engine::index_growth::{Growing, GrowingKind, GrowthSample, reached};
use tideline_engine::key_codec::layout::KeyLayout;
use tideline_engine::model::{PartPeriod, Timestamp};
use tideline_engine::row_load::{HotRows, TableLoad};
use tideline_engine::row_surveys::{
    ColumnSize, PARTITION_BYTES_WARNED, PartitionSize, RowSurvey, SurveyedRange, TableSurvey,
};
use tideline_engine::rows::ColumnName;
use tideline_engine::{Engine, WideTable};
use tideline_openapi::row::RowIntegers;
use tideline_openapi::row_statistics::{
    HotRowRange, RowColumnSize, RowGrowth, RowGrowthList, RowLoad, RowPartition, RowRange, RowStatistics,
    StoredRows,
};

use crate::value;

/// Recommended maximum number of documents of a search index.
pub(crate) const SEARCH_DOCUMENTS_MAX: u64 = 20_000_000_000;
/// Length of the window of the load, in seconds.
const LOAD_SECONDS: f64 = 60.0;

/// Returns the statistics of a table: the result of the last survey. The request id in the result is empty.
pub fn statistics(engine: &Engine, table: &WideTable) -> RowStatistics {
    let id = table.table().points().id();
    let survey = engine.row_survey(id);
    let every = table.settings().parts.as_ref().map(|parts| parts.every);
    let indexes = |survey: &TableSurvey| {
        let shown = survey.indexes.iter().filter_map(|index| {
            let known = table.indexes().iter().find(|known| known.name() == index.name)?;
            Some(StoredRows {
                index: Some(index.name.clone()),
                ..stored(known.layout(), every, &index.entries)
            })
        });
        shown.collect()
    };
    let groups = |survey: &TableSurvey| {
        let shown = survey.groups.iter().map(|group| StoredRows {
            group: Some(group.name.clone()),
            columns: columns_of(table, &group.rows),
            ..stored(table.layout(), every, &group.rows)
        });
        shown.collect()
    };
    let survey = survey.as_deref();
    RowStatistics {
        surveyed: survey.map(|survey| text(survey.at)),
        took_ms: survey.map_or(0, |survey| survey.took.as_millis() as u64),
        changed: survey.is_some() && engine.next_row_survey(id).is_some(),
        buffered_bytes: engine.buffered_row_bytes(table),
        markers_packed: survey.map_or(0, |survey| survey.markers_packed),
        rows: survey.map(|survey| StoredRows {
            columns: columns_of(table, &survey.rows),
            ..stored(table.layout(), every, &survey.rows)
        }),
        groups: survey.map(groups).unwrap_or_default(),
        indexes: survey.map(indexes).unwrap_or_default(),
        request_id: String::new(),
    }
}

/// Returns the load of a table in the last minute. The request id in the result is empty.
pub fn load(engine: &Engine, table: &WideTable) -> RowLoad {
    let load = engine.row_load(table);
    RowLoad {
        writes_per_second: per_second(load.writes.requests),
        reads_per_second: per_second(load.reads.requests),
        rows_written: load.writes.rows,
        rows_read: load.reads.rows,
        hot_ranges: hot_ranges(table, &load),
        request_id: String::new(),
    }
}

/// Returns the growth of a table and of its indexes. For a search index, the default of `rows_mark` is the recommended
/// maximum number of documents. The request id in the result is empty.
pub fn growth(
    engine: &Engine,
    table: &WideTable,
    rows_mark: Option<u64>,
    bytes_mark: Option<u64>,
) -> RowGrowthList {
    let growth = |growing: &Growing| {
        let rate = growing.rate();
        let last = growing.samples.last();
        let is_search = growing.kind == GrowingKind::Search;
        let rows_mark = rows_mark.or(is_search.then_some(SEARCH_DOCUMENTS_MAX));
        let reached = |mark: Option<u64>, size: fn(&GrowthSample) -> u64, per_day: Option<f64>| {
            let (last, mark) = (last?, mark?);
            let per_day = per_day.unwrap_or_default();
            Some(text(reached(last.at, size(last), per_day, mark)?))
        };
        let tenths = |number: f64| (number * 10.0).round() / 10.0;
        RowGrowth {
            kind: match growing.kind {
                GrowingKind::Table => "table",
                GrowingKind::Secondary => "secondary",
                GrowingKind::Search => "search",
            }
            .to_owned(),
            name: growing.name.clone(),
            rows: last.map(|last| last.rows),
            bytes: last.map(|last| last.bytes),
            since: growing.samples.first().map(|first| text(first.at)),
            samples: growing.samples.len(),
            rows_per_day: rate.map(|rate| tenths(rate.rows)),
            bytes_per_day: rate.map(|rate| tenths(rate.bytes)),
            rows_mark,
            rows_mark_reached: reached(rows_mark, |last| last.rows, rate.map(|rate| rate.rows)),
            bytes_mark,
            bytes_mark_reached: reached(bytes_mark, |last| last.bytes, rate.map(|rate| rate.bytes)),
        }
    };
    RowGrowthList {
        growth: engine.growing(table).iter().map(growth).collect(),
        request_id: String::new(),
    }
}

/// Returns the hot ranges of a load.
pub(crate) fn hot_ranges(table: &WideTable, load: &TableLoad) -> Vec<HotRowRange> {
    let layout = table.layout();
    let hot = |range: &HotRows| HotRowRange {
        from: key_of(layout, &range.first, range.is_partition),
        to: key_of(layout, &range.last, range.is_partition),
        kind: if range.is_partition { "partition" } else { "end" }.to_owned(),
        share_of_writes: rounded(range.share_of_writes),
        share_of_reads: rounded(range.share_of_reads),
    };
    load.hot.iter().map(hot).collect()
}

/// Returns the largest columns of a survey.
pub(crate) fn columns_of(table: &WideTable, survey: &RowSurvey) -> Vec<RowColumnSize> {
    let size = |size: &ColumnSize| RowColumnSize {
        name: match (table.name_of(&size.name), &size.name) {
            (Some(name), _) => name.to_owned(),
            (None, ColumnName::Declared(number)) => format!("#{number}"),
            (None, ColumnName::Named(name)) => name.to_string(),
        },
        bytes: size.bytes,
        share: rounded(size.bytes as f64 / survey.column_bytes.max(1) as f64),
        stored_bytes: size.stored_bytes,
    };
    survey.columns.iter().map(size).collect()
}

fn per_second(requests: u64) -> f64 {
    (requests as f64 / LOAD_SECONDS * 10.0).round() / 10.0
}

fn rounded(share: f64) -> f64 {
    (share * 1_000.0).round() / 1_000.0
}

fn text(nanos: i64) -> String {
    Timestamp::from_nanos_clamped(nanos).to_rfc3339()
}

fn stored(layout: &KeyLayout, every: Option<PartPeriod>, survey: &RowSurvey) -> StoredRows {
    let mean = |bytes: u64, rows: u64| (bytes as f64 * 10.0 / rows.max(1) as f64).round() / 10.0;
    let partition = |size: &PartitionSize| RowPartition {
        partition: key_of(layout, &size.key, true),
        rows: size.rows,
        bytes: size.bytes,
        warning: (size.bytes > PARTITION_BYTES_WARNED).then(|| remedy(layout, size.bytes)),
    };
    let range = |range: &SurveyedRange| RowRange {
        from: key_of(layout, &range.start, false),
        part: every.map(|every| every.part_name(range.part)),
        rows: range.rows,
        single_rows: range.single_rows,
        delete_markers: range.markers,
        marker_ratio: rounded(range.marker_ratio()),
        bytes: range.bytes,
    };
    let all = SurveyedRange {
        rows: survey.rows,
        markers: survey.markers,
        ..SurveyedRange::default()
    };
    StoredRows {
        index: None,
        group: None,
        rows: survey.rows,
        single_rows: survey.single_rows,
        large_rows: survey.large_rows,
        delete_markers: survey.markers,
        marker_ratio: rounded(all.marker_ratio()),
        bytes: survey.bytes,
        stored_bytes: survey.stored_bytes,
        key_bytes_mean: mean(survey.key_bytes, survey.measured_rows),
        key_bytes_max: survey.key_bytes_max,
        columns_median: survey.columns_median,
        columns_max: survey.columns_max,
        columns: Vec::new(),
        partition_count: survey.partition_count,
        partitions: survey.partitions.iter().map(partition).collect(),
        ranges: survey.ranges.iter().map(range).collect(),
    }
}

/// Returns the warning for a partition that is too large.
pub(crate) fn remedy(layout: &KeyLayout, bytes: u64) -> String {
    let size = bytes as f64 / (1_u64 << 30) as f64;
    let partition = layout.partition_columns();
    let names = |numbers: &[usize]| {
        let names = numbers
            .iter()
            .map(|number| layout.logical()[*number].name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let next = (0..layout.logical().len()).find(|number| !partition.contains(number));
    match next {
        Some(next) => format!(
            "the partition has {size:.1} GiB, and a partition should stay below 10 GiB; splice ({}, {}) into the first key \
             column of a new table, and copy the rows with rows/rekey",
            names(partition),
            layout.logical()[next].name
        ),
        None => format!(
            "the partition has {size:.1} GiB, and a partition should stay below 10 GiB; add a key column to a new table, and \
             copy the rows with rows/rekey"
        ),
    }
}

/// Returns a stored key as a JSON object. If `is_partition` is true, the object has only the columns of the partition.
/// Returns an empty object for a key that cannot be decoded.
pub(crate) fn key_of(layout: &KeyLayout, stored: &[u8], is_partition: bool) -> Box<RawValue> {
    let values = layout.decode(stored).unwrap_or_default();
    let mut json = vec![b'{'];
    for (number, (column, found)) in layout.logical().iter().zip(&values).enumerate() {
        if is_partition && !layout.partition_columns().contains(&number) {
            continue;
        }
        if json.len() > 1 {
            json.push(b',');
        }
        value::write_text(&column.name, &mut json);
        json.push(b':');
        value::write_plain(&value::cell_of(found), RowIntegers::Number, &mut json);
    }
    json.push(b'}');
    let json = String::from_utf8(json).unwrap_or_default();
    RawValue::from_string(json).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
mod tests {
    use tideline_engine::key_codec::tuple::KeyValue;
    use tideline_engine::model::WideSpec;

    use super::*;

    #[test]
    fn a_partition_past_the_mark_has_a_warning_with_the_next_key_column() {
        let wide = serde_json::json!({"key": [{"name": "customer", "type": "string"}, {"name": "number", "type": "u64"}]});
        let wide: WideSpec = serde_json::from_value(wide).expect("settings");
        let layout = KeyLayout::new(&wide.key, false).expect("a valid key");
        let mut key = Vec::new();
        let encoded = layout.encode(&[KeyValue::from("acme"), KeyValue::from(7_u64)], &mut key);
        encoded.expect("a valid key");
        let partition = |bytes| PartitionSize {
            key: key.clone(),
            rows: 1,
            bytes,
        };
        let survey = RowSurvey {
            partitions: vec![
                partition(PARTITION_BYTES_WARNED + (1 << 30)),
                partition(PARTITION_BYTES_WARNED),
            ],
            ..RowSurvey::default()
        };
        let [large, small] = &stored(&layout, None, &survey).partitions[..] else {
            panic!("two partitions");
        };
        assert_eq!(large.partition.get(), r#"{"customer":"acme"}"#);
        let warning = large.warning.as_deref().expect("a warning");
        assert!(
            warning.contains("9.0 GiB") && warning.contains("splice (customer, number)"),
            "{warning}"
        );
        assert!(small.warning.is_none());
    }
}
