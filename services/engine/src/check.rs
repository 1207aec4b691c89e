//! Offline check: reads all data that a backend stores for a database, and reports damage.
//!
//! Search indexes are compared with their checksums. A damaged search index is not a loss of data: the next start
//! builds it again from the catalogs or from the rows. It is reported because it shows that the disk has changed
//! written data.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tideline_backend::{Backend, Health};
use tideline_key_codec::layout::KeyLayout;
use tideline_log::{LogError, ModelTag};
use tideline_model::{Clock, SystemClock, TableId, TimelineId, WideSpec};
use tideline_search_index::check_folder;
use tideline_search_index::rows::shard_folder;
use tideline_series_store::check::{Checked, JournalTimelines, check};
use tideline_timeline_catalog::{Catalog, CatalogError, CatalogOptions, MetadataOfMetrics};
use tideline_wide_table::check::{CheckedRows, JournalChanges, StoredParts, check_index, check_rows};
use tideline_wide_table::{Index, check_large};

use crate::row_search::folder_of;

/// Result of a check.
#[derive(Debug, Clone, Default)]
pub struct CheckReport {
    /// Counts of tables, segments and journal entries.
    pub store: Checked,
    /// Flushed rows of wide tables, without those of the tables of the server.
    pub rows: u64,
    /// Bytes of the flushed rows.
    pub row_bytes: u64,
    /// Number of timelines of all tables after the journal is applied.
    pub timelines: u64,
    /// Findings of damage, one sentence each, with the location.
    pub findings: Vec<String>,
    /// States that are not damage but explain failing reads, one sentence each, with the location.
    pub notes: Vec<String>,
}

/// Reads and verifies all stored data. Takes the time to read and decode all points, and needs memory for one table's
/// catalog.
pub fn check_database(backend: &dyn Backend) -> CheckReport {
    let mut report = CheckReport::default();
    if let Health::ReadOnly { reason } = backend.health() {
        report
            .findings
            .push(format!("something acknowledged is missing: {reason}"));
    }
    let mut journal = JournalChanges::default();
    report.store = check(backend, &mut |entry| check_entry(entry, &mut journal));
    report.findings.append(&mut report.store.findings);
    let parts = StoredParts::read(backend);
    for table in &report.store.tables {
        if let Some(wide) = table.spec.wide.as_deref() {
            let name = table.name.as_str();
            match check_wide(backend, parts.as_ref(), table.id, wide, &journal) {
                Ok(checked) => {
                    if !table.spec.is_system {
                        report.rows += checked.rows;
                        report.row_bytes += checked.bytes;
                    }
                    if checked.not_archived > 0 {
                        report.notes.push(format!(
                            "table {name}: {} streamed values are not here, because the archive from which their rows \
                             were attached does not contain them",
                            checked.not_archived
                        ));
                    }
                    let findings = checked.findings.into_iter();
                    report
                        .findings
                        .extend(findings.map(|finding| format!("table {name}, {finding}")));
                }
                Err(error) => report.findings.push(format!("table {name}: {error}")),
            }
            continue;
        }
        let options = CatalogOptions {
            source_tags: table.spec.source_tags.clone(),
            raw_key_budget: Arc::default(),
            unflushed: Arc::default(),
        };
        let findings = &mut report.findings;
        let mut found =
            |error: CatalogError| findings.push(format!("catalog of table {}: {error}", table.name.as_str()));
        match Catalog::load(backend, table.id, options) {
            Ok(catalog) => {
                report.timelines += timelines(&catalog, report.store.journal_timelines.get(&table.id));
            }
            Err(error) => found(error),
        }
        // `Catalog::load` skips damaged metric metadata, so the metadata is checked separately.
        if let Err(error) = MetadataOfMetrics::check(backend, table.id, &mut found) {
            found(error);
        }
    }
    report
}

/// Compares the files of all search indexes in `index_dir` with their checksums. Returns a sentence for each damaged
/// index. Reads all files of the indexes.
pub fn check_search_indexes(index_dir: &Path, report: &CheckReport) -> Vec<String> {
    let mut findings = Vec::new();
    let mut check = |folder: &Path, of: &str| {
        if let Some(damage) = check_folder(folder) {
            findings.push(format!(
                "search index {of}: {damage}; the next start builds it again"
            ));
        }
    };
    check(index_dir, "of timelines");
    for table in &report.store.tables {
        for index in table.spec.wide.iter().flat_map(|wide| &wide.search_indexes) {
            let of = format!("{:?} of table {}", index.name, table.name);
            let folder = folder_of(index_dir, TableId(index.id));
            for shard in 0..usize::from(index.shards) {
                check(&shard_folder(&folder, shard), &of);
            }
        }
    }
    findings
}

/// Checks the rows and the indexes of a wide table, and checks that the keys of the rows match the key layout.
fn check_wide(
    backend: &dyn Backend,
    parts: Result<&StoredParts, &LogError>,
    table: TableId,
    wide: &WideSpec,
    journal: &JournalChanges,
) -> Result<CheckedRows, String> {
    let parts = parts.map_err(ToString::to_string)?;
    let layout = KeyLayout::new(&wide.key, wide.allow_rising_key).map_err(|error| error.to_string())?;
    let check_key = |key: &[u8]| layout.decode(key).map(drop).map_err(|error| error.to_string());
    let mut checked =
        check_rows(backend, parts, table, journal, &check_key).map_err(|error| error.to_string())?;
    let now = SystemClock.now().nanos();
    let expired = |time: i64| wide.ttl.is_some_and(|ttl| time.saturating_add(ttl.after) <= now);
    for index in Index::all_of(wide)? {
        let entries = check_index(backend, parts, table, &index, journal, &expired);
        let entries = entries.map_err(|error| error.to_string())?;
        let named = |finding| format!("index {}, {finding}", index.name());
        checked.findings.extend(entries.findings.into_iter().map(named));
    }
    let values = check_large(backend, parts, table, journal).map_err(|error| error.to_string())?;
    checked.findings.extend(values.findings);
    checked.not_archived = values.not_archived;
    Ok(checked)
}

/// Checks a journal entry that is not a delta. Adds the rows that it changes to `journal`.
fn check_entry(entry: &Bytes, journal: &mut JournalChanges) -> Result<(), String> {
    match ModelTag::of(entry) {
        Some(ModelTag::CATALOG) => Catalog::check_entry(entry).map_err(|error| error.to_string()),
        Some(ModelTag::WIDE) => journal.add(entry).map_err(|error| error.to_string()),
        Some(model) => Err(format!(
            "its model {model} is unknown to this build; check with the build that wrote it"
        )),
        None => Err("it is too short".to_owned()),
    }
}

/// Counts the timelines of a catalog after the journal is applied: adds the timelines that the journal introduces, each
/// once, and subtracts the timelines that it removes.
fn timelines(catalog: &Catalog, journal: Option<&JournalTimelines>) -> u64 {
    let Some(journal) = journal else {
        return catalog.len();
    };
    let reader = catalog.reader();
    let has = |id: &&TimelineId| reader.by_id(**id).is_some();
    let removed = journal.removed.iter().filter(has).count() as u64;
    let introduced = journal.introduced.iter().filter(|id| !has(id)).count() as u64;
    catalog.len() + introduced - removed
}
