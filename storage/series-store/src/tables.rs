//! Tables of the running store: settings, schema and latest values.
//!
//! A handle caches the manifest row of the table. The cached row is updated after each edit of the row.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::RwLock;
use tideline_model::{PartsArchive, Policy, Schedule, TableId, TableName, TableSpec};

use crate::latest::TableLatest;
use crate::manifest::{Adopted, TableRow};
use crate::schema::TableSchema;

/// Table of the store. Handles are shared. The handle of a dropped table stays valid, but writes to it are refused.
#[derive(Debug)]
pub struct Table {
    id: TableId,
    name: TableName,
    created: i64,
    spec: RwLock<Arc<TableSpec>>,
    policy_changed: AtomicI64,
    adopted: RwLock<Vec<Adopted>>,
    timeline_generation: AtomicU64,
    is_in_doubt: AtomicBool,
    loaded_bytes: AtomicU64,
    schema: TableSchema,
    latest: TableLatest,
}

impl Table {
    pub(crate) fn new(row: &TableRow, schema: TableSchema) -> Self {
        Self {
            id: row.id,
            name: row.name.clone(),
            created: row.created,
            spec: RwLock::new(Arc::new(row.spec.clone())),
            policy_changed: AtomicI64::new(row.policy_changed),
            adopted: RwLock::new(row.adopted.clone()),
            timeline_generation: AtomicU64::new(0),
            is_in_doubt: AtomicBool::new(false),
            loaded_bytes: AtomicU64::new(0),
            schema,
            latest: TableLatest::default(),
        }
    }

    /// Returns the id of the table.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Returns the name of the table.
    pub fn name(&self) -> &TableName {
        &self.name
    }

    /// Returns the creation time in nanoseconds since the epoch.
    pub fn created(&self) -> i64 {
        self.created
    }

    /// Returns the current settings.
    pub fn spec(&self) -> Arc<TableSpec> {
        Arc::clone(&self.spec.read())
    }

    /// Returns the time of the last change of the policy, or of the archive settings of the parts of a wide table, in
    /// nanoseconds since the epoch.
    pub fn policy_changed(&self) -> i64 {
        self.policy_changed.load(Ordering::Relaxed)
    }

    /// Returns the number of timeline removals since the start. A write that resolved its timelines at a different
    /// count must resolve them again.
    pub fn timeline_generation(&self) -> u64 {
        self.timeline_generation.load(Ordering::SeqCst)
    }

    /// Returns true if an edit that drops the table has an unknown outcome.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.is_in_doubt.load(Ordering::Acquire)
    }

    pub(crate) fn set_in_doubt(&self, is_in_doubt: bool) {
        self.is_in_doubt.store(is_in_doubt, Ordering::Release);
    }

    /// Returns the bytes of segments that seals and rewrites have written since the start.
    pub fn loaded_bytes(&self) -> u64 {
        self.loaded_bytes.load(Ordering::Relaxed)
    }

    /// Counts bytes of a written segment.
    pub(crate) fn loaded(&self, bytes: u64) {
        self.loaded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Records a removal of timelines.
    pub(crate) fn timelines_removed(&self) {
        self.timeline_generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the fields of the table.
    pub fn schema(&self) -> &TableSchema {
        &self.schema
    }

    /// Returns the latest values of the timelines.
    pub(crate) fn latest(&self) -> &TableLatest {
        &self.latest
    }

    pub(crate) fn set_spec(&self, row: &TableRow) {
        self.policy_changed.store(row.policy_changed, Ordering::Relaxed);
        *self.spec.write() = Arc::new(row.spec.clone());
    }

    /// Returns the manifest row for a spec that is set at time `now`, without adopted objects and counts. The time is
    /// stored only if the policy, or the archive or a schedule of the parts of a wide table, changes.
    pub(crate) fn row(&self, spec: TableSpec, now: i64) -> TableRow {
        fn ages(spec: &TableSpec) -> (&Policy, Option<&PartsArchive>, [Option<&Schedule>; 2]) {
            let parts = spec.wide.as_ref().and_then(|wide| wide.parts.as_ref());
            let schedules = [
                parts.map(|parts| &parts.migrate),
                parts.map(|parts| &parts.expire),
            ];
            (
                &spec.policy,
                parts.and_then(|parts| parts.archive.as_ref()),
                schedules,
            )
        }
        let policy_changed = match ages(&spec) == ages(&self.spec()) {
            true => self.policy_changed(),
            false => now,
        };
        TableRow::new(self.id, self.name.clone(), spec, self.created, policy_changed)
    }

    /// Returns the archive objects that other databases wrote for the table and that this database has adopted.
    pub fn adopted(&self) -> Vec<Adopted> {
        self.adopted.read().clone()
    }

    pub(crate) fn set_adopted(&self, adopted: Vec<Adopted>) {
        *self.adopted.write() = adopted;
    }
}
