//! Advice on a wide table: its key, columns and indexes, based on their declarations and on their use.
//!
//! The advice is based on the settings, on the last survey, on the load of the last minute, and on the use of columns
//! and indexes since the start of the server. For a small table, the advice is withheld unless it is requested.

use std::time::Duration;

use tideline_engine::key_codec::tuple::KeyKind;
use tideline_engine::model::time::format_duration;
use tideline_engine::model::{ColumnType, TableId, Timestamp};
use tideline_engine::row_load::TableLoad;
use tideline_engine::row_surveys::{MARKER_RATIO_MAX, PARTITION_BYTES_WARNED, SurveyedRange, TableSurvey};
use tideline_engine::{Engine, WideTable};
use tideline_openapi::row_advice::{Advice, AdviceCode, TableAdvice};
use tideline_openapi::row_statistics::RowColumnSize;

use crate::statistics::{SEARCH_DOCUMENTS_MAX, columns_of, hot_ranges, key_of, remedy};

/// A table is small if it has fewer requests per second and fewer bytes than these limits.
const SMALL_REQUESTS: f64 = 1_000.0;
const SMALL_BYTES: u64 = 10_000_000_000;
/// Number of partitions below which more partitions are advised.
const PARTITIONS_ADVISED: u64 = 16;
/// Mean length of keys, in bytes, above which shorter keys are advised.
const KEY_BYTES_ADVISED: f64 = 1_024.0;
/// Number of buckets above which fewer buckets are advised.
const BUCKETS_ADVISED: u16 = 64;
/// Number of columns of the widest row above which fewer columns are advised.
const COLUMNS_ADVISED: u64 = 10_000;
/// Minimum number of delete markers of a table or index for advice on delete markers.
const MARKERS_MIN: u64 = 1_000;
/// Minimum uptime after which an index without reads counts as unused.
const UNUSED_AFTER: Duration = Duration::from_secs(3_600);
/// Minimum number of index entries read for the advice to cover more columns. Each of these entries may have cost a
/// read of its row.
const FETCHED_ENTRIES: u64 = 100_000;
/// Minimum number of reads and updates for advice that is based on the use of columns.
const USES_MIN: u64 = 1_000;
/// Minimum share of a large column in the bytes of all columns.
const LARGE_SHARE: f64 = 0.1;
/// Minimum total share of large, seldom used columns in the bytes of all columns for the advice to store them in a
/// column group.
const APART_SHARE: f64 = 0.5;
/// Maximum share of the reads, and of the updates, that use a seldom used column.
const SELDOM_SHARE: f64 = 0.1;
/// Minimum share of the reads that need a column group for the group to count as always read.
const ALWAYS_SHARE: f64 = 0.8;
/// Minimum number of searches after which a column that none of them used counts as unused.
const SEARCHES_MIN: u64 = 1_000;
/// Number of documents of a search index above which advice is given: four fifths of the recommended maximum.
const DOCUMENTS_WARNED: u64 = SEARCH_DOCUMENTS_MAX / 5 * 4;
/// Parts of names that suggest an amount of money.
const MONEY: [&str; 22] = [
    "price", "amount", "total", "cost", "balance", "fee", "salary", "tax", "payment", "paid", "revenue",
    "money", "discount", "refund", "charge", "credit", "debit", "usd", "eur", "cny", "cents", "budget",
];

/// Returns advice on a table. Advice on a small table is included only if `includes_small` is true. The request id in
/// the result is empty.
pub fn advice(engine: &Engine, table: &WideTable, includes_small: bool) -> TableAdvice {
    let survey = engine.row_survey(table.table().points().id());
    let survey = survey.as_deref();
    let load = engine.row_load(table);
    let stored = survey.map_or(0, TableSurvey::stored_bytes);
    let bytes = stored + engine.buffered_row_bytes(table);
    let requests_per_second = load.requests_per_second();
    let is_small = requests_per_second < SMALL_REQUESTS && bytes < SMALL_BYTES;
    let mut all = Vec::new();
    advise_key(table, survey, &load, &mut all);
    advise_rows(table, survey, &mut all);
    advise_groups(engine, table, survey, &mut all);
    advise_indexes(engine, table, &mut all);
    all.sort_by(|one, other| (one.code, &one.subject).cmp(&(other.code, &other.subject)));
    let withheld = match is_small && !includes_small {
        true => std::mem::take(&mut all).len() as u64,
        false => 0,
    };
    TableAdvice {
        is_small,
        requests_per_second: (requests_per_second * 10.0).round() / 10.0,
        bytes,
        surveyed: survey.map(|survey| Timestamp::from_nanos_clamped(survey.at).to_rfc3339()),
        withheld,
        advice: all,
        request_id: String::new(),
    }
}

fn advise(all: &mut Vec<Advice>, code: AdviceCode, subject: Option<&str>, measured: String, advice: String) {
    all.push(Advice {
        code,
        subject: subject.map(str::to_owned),
        measured,
        advice,
    });
}

/// Adds advice on the key, its partitions and their load.
fn advise_key(table: &WideTable, survey: Option<&TableSurvey>, load: &TableLoad, all: &mut Vec<Advice>) {
    let layout = table.layout();
    if load.are_keys_rising || table.settings().allow_rising_key {
        let measured = match load.are_keys_rising {
            true => "in the last minute, nearly every write had a higher key than those before".to_owned(),
            false => "the setting allow_rising_key is on".to_owned(),
        };
        let advice = "begin the key with a column that spreads writes, a hash_prefix or a bucket, and copy the rows into the \
                      new table with rows/rekey; allow_rising_key is for small loads"
            .to_owned();
        advise(all, AdviceCode::RisingKey, None, measured, advice);
    }
    for range in hot_ranges(table, load)
        .iter()
        .filter(|range| range.kind == "partition")
    {
        let measured = format!(
            "{:.0} % of the rows written and {:.0} % of the rows read in the last minute",
            range.share_of_writes * 100.0,
            range.share_of_reads * 100.0
        );
        let advice = "spread the partition: splice a further column into the first key column, or begin the key with a \
                      bucket; for reads, cache the rows in the client"
            .to_owned();
        advise(
            all,
            AdviceCode::HotPartition,
            Some(range.from.get()),
            measured,
            advice,
        );
    }
    if let Some(buckets) = layout.buckets().filter(|buckets| *buckets > BUCKETS_ADVISED) {
        advise(
            all,
            AdviceCode::ManyBuckets,
            None,
            format!("the key has {buckets} buckets, and each ordered scan reads all of them"),
            format!("{BUCKETS_ADVISED} or fewer buckets spread load as well"),
        );
    }
    let boolean = match layout.partition_columns() {
        [only] => Some(&layout.logical()[*only]).filter(|column| column.kind == KeyKind::Boolean),
        _ => None,
    };
    let few = survey.map(|survey| survey.rows.partition_count);
    let few = few.filter(|count| (1..PARTITIONS_ADVISED).contains(count));
    if let Some(column) = boolean {
        advise(
            all,
            AdviceCode::FewPartitions,
            Some(&column.name),
            format!(
                "the partition column {:?} is a bool, so all rows belong to two partitions",
                column.name
            ),
            "begin the key with a column of more values".to_owned(),
        );
    } else if let Some(count) = few {
        advise(
            all,
            AdviceCode::FewPartitions,
            None,
            format!("all rows belong to {count} partitions"),
            "rows of a partition are stored together: begin the key with a column of more values, or splice a further \
             column into the first one"
                .to_owned(),
        );
    }
    let Some(survey) = survey else { return };
    for partition in survey
        .rows
        .partitions
        .iter()
        .filter(|size| size.bytes > PARTITION_BYTES_WARNED)
    {
        let name = key_of(layout, &partition.key, true);
        advise(
            all,
            AdviceCode::LargePartition,
            Some(name.get()),
            format!("{} rows with {} bytes", partition.rows, partition.bytes),
            remedy(layout, partition.bytes),
        );
    }
    let key_bytes = survey.rows.key_bytes as f64 / survey.rows.measured_rows.max(1) as f64;
    if key_bytes > KEY_BYTES_ADVISED {
        advise(
            all,
            AdviceCode::LongKeys,
            None,
            format!("keys have {key_bytes:.0} bytes on average"),
            "replace long texts in the key by their hash; each comparison reads the key".to_owned(),
        );
    }
}

/// Adds advice on columns and stored rows.
fn advise_rows(table: &WideTable, survey: Option<&TableSurvey>, all: &mut Vec<Advice>) {
    let wide = table.settings();
    for column in wide
        .columns
        .iter()
        .filter(|column| column.column_type == ColumnType::F64)
    {
        let words: Vec<String> = words_of(&column.name);
        if words.iter().any(|word| MONEY.contains(&word.as_str())) {
            advise(
                all,
                AdviceCode::FloatMoney,
                Some(&column.name),
                format!("the column {:?} has the type f64", column.name),
                "declare amounts of money as decimal, which is exact, or as i64 in the smallest unit; a new column is needed, \
                 because the type of a column is fixed"
                    .to_owned(),
            );
        }
    }
    let layout = table.layout();
    let time = layout
        .logical()
        .iter()
        .find(|column| column.kind == KeyKind::Timestamp);
    if let (Some(ttl), None, Some(time)) = (wide.ttl, &wide.parts, time) {
        advise(
            all,
            AdviceCode::TtlWithoutParts,
            Some(&time.name),
            format!(
                "rows expire after {}, and are removed one by one",
                format_duration(ttl.after)
            ),
            format!(
                "divide a new table by {:?} into parts with `keep`: a part is dropped in one step, without reading its rows",
                time.name
            ),
        );
    }
    let Some(survey) = survey else { return };
    if survey.rows.columns_max > COLUMNS_ADVISED {
        advise(
            all,
            AdviceCode::WideRows,
            None,
            format!("the widest row has about {} columns", survey.rows.columns_max),
            "each write of a row rewrites it at the next flush: make a row of each column, with the name as a key column, or \
             read the columns in pages"
                .to_owned(),
        );
    }
    let rows = [("", &survey.rows)].into_iter();
    let indexes = survey
        .indexes
        .iter()
        .map(|index| (index.name.as_str(), &index.entries));
    for (name, stored) in rows.chain(indexes) {
        let all_rows = SurveyedRange {
            rows: stored.rows,
            markers: stored.markers,
            ..SurveyedRange::default()
        };
        if stored.markers >= MARKERS_MIN && all_rows.marker_ratio() > MARKER_RATIO_MAX {
            advise(
                all,
                AdviceCode::DeleteMarkers,
                Some(name).filter(|name| !name.is_empty()),
                format!(
                    "{} of {} entries that reads go through are delete markers",
                    stored.markers,
                    stored.rows + stored.markers
                ),
                "prefer ttl or parts to deletes, and delete ranges with rows/delete; the job survey_rows packs such ranges"
                    .to_owned(),
            );
        }
    }
}

/// Adds advice on column groups, based on the sizes of columns and on their use since the start of the server.
fn advise_groups(engine: &Engine, table: &WideTable, survey: Option<&TableSurvey>, all: &mut Vec<Advice>) {
    let used = engine.column_use(table);
    if used.reads + used.updates < USES_MIN {
        return;
    }
    let share = |count: u64, of: u64| count as f64 / of.max(1) as f64;
    for group in &table.settings().groups {
        let named = used.columns.iter().filter(|(name, _)| group.holds(name));
        let reads = named.map(|(_, of)| of.reads).max().unwrap_or(0) + used.whole_reads;
        if used.reads >= USES_MIN && share(reads, used.reads) >= ALWAYS_SHARE {
            advise(
                all,
                AdviceCode::GroupAlwaysRead,
                Some(&group.name),
                format!("{reads} of {} reads need the group", used.reads),
                "name the columns that requests need; if they need the group, store its columns with the rows of a new table"
                    .to_owned(),
            );
        }
    }
    let columns = survey.map_or_else(Vec::new, |survey| columns_of(table, &survey.rows));
    let is_seldom = |name: &str| {
        let of = used.of(name);
        share(of.reads, used.reads) <= SELDOM_SHARE && share(of.updates, used.updates) <= SELDOM_SHARE
    };
    let apart: Vec<&RowColumnSize> = columns
        .iter()
        .filter(|column| column.share >= LARGE_SHARE && is_seldom(&column.name))
        .collect();
    let bytes: f64 = apart.iter().map(|column| column.share).sum();
    if bytes < APART_SHARE {
        return;
    }
    let names: Vec<&str> = apart.iter().map(|column| column.name.as_str()).collect();
    let groups = serde_json::json!([{"name": "large", "columns": names}]);
    advise(
        all,
        AdviceCode::ColumnGroup,
        Some(&names.join(", ")),
        format!(
            "{:.0} % of the bytes of rows, used by at most {:.0} % of {} reads and of {} updates",
            bytes * 100.0,
            SELDOM_SHARE * 100.0,
            used.reads,
            used.updates
        ),
        format!(
            "store the columns apart: create a table with `\"groups\": {groups}`, and copy the rows with rows/rekey; updates of other \
             columns then do not write them"
        ),
    );
}

/// Splits a column name into words: at characters that are not letters, and before capital letters.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for character in name.chars() {
        if !character.is_alphabetic() || (character.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        was_lower = character.is_lowercase();
        if let Some(last) = words.last_mut().filter(|_| character.is_alphabetic()) {
            last.extend(character.to_lowercase());
        }
    }
    words.iter_mut().for_each(|word| {
        if let Some(one) = word.strip_suffix('s').filter(|one| MONEY.contains(one)) {
            *word = one.to_owned();
        }
    });
    words
}

/// Adds advice on the indexes.
fn advise_indexes(engine: &Engine, table: &WideTable, all: &mut Vec<Advice>) {
    let uptime = engine.clock().monotonic();
    let since = format_duration(i64::try_from(uptime.as_secs()).unwrap_or_default() * 1_000_000_000);
    for index in table.indexes().iter().filter(|index| index.is_ready()) {
        let used = engine.index_use(index.id());
        if used.scans == 0 && uptime >= UNUSED_AFTER && used.entries_written > 0 {
            advise(
                all,
                AdviceCode::UnusedIndex,
                Some(index.name()),
                format!(
                    "no scan, and {} entries written, in {since} since the start of the server",
                    used.entries_written
                ),
                "drop the index, if no rare query needs it: each write of a row also writes its entries"
                    .to_owned(),
            );
        }
        let spec = table
            .settings()
            .indexes
            .iter()
            .find(|spec| spec.id == index.id().0);
        let covers_nothing = spec.is_some_and(|spec| {
            matches!(&spec.covers, tideline_engine::model::IndexCover::Columns(names) if names.is_empty())
        });
        if covers_nothing && used.entries_read >= FETCHED_ENTRIES {
            advise(
                all,
                AdviceCode::IndexCoversNothing,
                Some(index.name()),
                format!(
                    "{} entries were read, and each can cost a read of its row",
                    used.entries_read
                ),
                "create an index that covers the columns that the queries return".to_owned(),
            );
        }
    }
    for spec in &table.settings().search_indexes {
        let id = TableId(spec.id);
        let Some(used) = engine.search_use(id) else {
            continue;
        };
        for column in &spec.columns {
            let name = &column.column;
            if used.searches < SEARCHES_MIN || used.columns.contains_key(name) {
                continue;
            }
            let subject = format!("{}/{name}", spec.name);
            let found = all.iter().any(|advice| advice.subject.as_ref() == Some(&subject));
            if !found {
                advise(
                    all,
                    AdviceCode::UnsearchedColumn,
                    Some(&subject),
                    format!(
                        "none of {} searches and counts used the column {name:?}",
                        used.searches
                    ),
                    "replace the index by one without the column: each indexed column costs time and space"
                        .to_owned(),
                );
            }
        }
        let documents = engine
            .search_index_status(id)
            .map_or(0, |(status, _)| status.documents);
        if documents > DOCUMENTS_WARNED {
            advise(
                all,
                AdviceCode::LargeSearchIndex,
                Some(&spec.name),
                format!("the index has {documents} documents"),
                format!(
                    "a search index should stay below {SEARCH_DOCUMENTS_MAX} documents: plan to divide the table by time or by \
                     partition, each with an index of its own; rows/growth forecasts the date"
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_into_words() {
        let is_money = |name: &str| words_of(name).iter().any(|word| MONEY.contains(&word.as_str()));
        for name in ["price", "unit_price", "totalAmount", "Fees", "tax-2026", "usd"] {
            assert!(is_money(name), "{name}");
        }
        for name in ["temperature", "totality", "coffee", "pricey", "x"] {
            assert!(!is_money(name), "{name}");
        }
    }
}
