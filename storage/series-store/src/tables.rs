//! A table as the running store sees it: settings, schema, latest values.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::RwLock;
use tideline_model::{TableId, TableName, TableSpec};

use crate::latest::TableLatest;
use crate::manifest::{Adopted, TableRow};
use crate::schema::TableSchema;

/// One table. Handles are shared; a dropped table's handle stays valid and its writes are refused.
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

    /// Its number.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Its name.
    pub fn name(&self) -> &TableName {
        &self.name
    }

    /// When it was made, nanoseconds since the epoch.
    pub fn created(&self) -> i64 {
        self.created
    }

    /// What a user has set, as of now.
    pub fn spec(&self) -> Arc<TableSpec> {
        Arc::clone(&self.spec.read())
    }

    /// When its policy was last changed, nanoseconds since the epoch.
    pub fn policy_changed(&self) -> i64 {
        self.policy_changed.load(Ordering::Relaxed)
    }

    /// Counts removals of timelines: a write that took timelines for known at another count has to look again.
    pub fn timeline_generation(&self) -> u64 {
        self.timeline_generation.load(Ordering::SeqCst)
    }

    /// Whether it may have been dropped: an edit that drops it has an open outcome.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.is_in_doubt.load(Ordering::Acquire)
    }

    pub(crate) fn set_in_doubt(&self, is_in_doubt: bool) {
        self.is_in_doubt.store(is_in_doubt, Ordering::Release);
    }

    /// Bytes that seals and rewrites have loaded since the start.
    pub fn loaded_bytes(&self) -> u64 {
        self.loaded_bytes.load(Ordering::Relaxed)
    }

    /// A load has written this much.
    pub(crate) fn loaded(&self, bytes: u64) {
        self.loaded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Timelines were removed.
    pub(crate) fn timelines_removed(&self) {
        self.timeline_generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Its fields.
    pub fn schema(&self) -> &TableSchema {
        &self.schema
    }

    /// Its timelines' latest values.
    pub(crate) fn latest(&self) -> &TableLatest {
        &self.latest
    }

    pub(crate) fn set_spec(&self, row: &TableRow) {
        self.policy_changed.store(row.policy_changed, Ordering::Relaxed);
        *self.spec.write() = Arc::new(row.spec.clone());
    }

    /// The table's row with another spec, set at `now`.
    pub(crate) fn row(&self, spec: TableSpec, now: i64) -> TableRow {
        let policy_changed = if spec.policy == self.spec().policy {
            self.policy_changed()
        } else {
            now
        };
        TableRow::new(self.id, self.name.clone(), spec, self.created, policy_changed)
            .with_adopted(self.adopted())
    }

    /// What other databases had written of it and is this one's now.
    pub fn adopted(&self) -> Vec<Adopted> {
        self.adopted.read().clone()
    }

    pub(crate) fn set_adopted(&self, adopted: Vec<Adopted>) {
        *self.adopted.write() = adopted;
    }
}
