//! Journal of jobs: past jobs, served schedules, paused kinds and the next job id. The journal survives restarts.
//!
//! Rows are JSON with a `format` number. A job is written when it starts and when it ends, not while it runs. A round
//! is a job kind that usually finds nothing to do; an unrequested round is written only at its end, and only if it
//! found something to do. After a crash, a job that was running is recorded as interrupted, and planned work is planned
//! again. A schedule is *served* when a scheduled time has passed and none of its work is due any more.
//!
//! | row | content |
//! |---|---|
//! | `job-` and the id, 20 digits | a running or past job, or a waiting restore |
//! | `table-` and the number, 10 digits | schedules and pauses of a table |
//! | `store` | the next id, and pauses of the whole store |
//!
//! A row that cannot be read is skipped and logged, because damaged history must not prevent a start.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use hashbrown::HashMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tideline_engine::model::{JobKind, TableId};

use crate::job::{Job, JobState};
use crate::stored_kind::StoredKind;

/// Stored format that this build writes. There is no other format yet.
const FORMAT: u8 = 1;
/// Number of job ids reserved by one edit. A restart skips the unused ones.
const IDS_SET_ASIDE: u64 = 1_000;
/// Maximum length of the stored outcome or error of a job, in characters.
const TEXT_CHARS_MAX: usize = 1_000;
const STORE_ROW: &str = "store";

/// Content of the journal in memory.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Running and past jobs, and waiting restores, by id.
    pub(crate) jobs: BTreeMap<u64, Job>,
    tables: HashMap<TableId, TableState>,
    paused: BTreeSet<StoredKind>,
    next_id: u64,
    /// End of the reserved ids. Smaller ids are not assigned again after a restart.
    set_aside: u64,
}

/// Rows to write and to remove, in one edit.
#[derive(Debug, Default)]
pub(crate) struct Edit {
    pub(crate) put: Vec<(Bytes, Bytes)>,
    pub(crate) remove: Vec<Bytes>,
}

impl Edit {
    /// Creates an edit that writes a row; `None` yields an empty edit.
    pub(crate) fn put(row: Option<(Bytes, Bytes)>) -> Self {
        Self {
            put: row.into_iter().collect(),
            remove: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.put.extend(other.put);
        self.remove.extend(other.remove);
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct TableState {
    /// Trusted timestamp up to which each schedule was served.
    served: BTreeMap<StoredKind, i64>,
    /// Content of `served` in the stored row of the table. A restart reads these timestamps.
    #[serde(skip)]
    stored: BTreeMap<StoredKind, i64>,
    paused: BTreeSet<StoredKind>,
}

#[derive(Serialize, Deserialize)]
struct Row<T> {
    format: u8,
    #[serde(flatten)]
    content: T,
}

#[derive(Serialize, Deserialize)]
struct StoreState {
    next_id: u64,
    paused: BTreeSet<StoredKind>,
}

impl Journal {
    /// Reads the rows of an earlier process. Jobs that had not ended are marked as interrupted. The returned edit
    /// stores these marks.
    pub(crate) fn read(rows: &[(Bytes, Bytes)]) -> (Self, Edit) {
        let mut journal = Self {
            next_id: 1,
            set_aside: 1,
            ..Self::default()
        };
        let mut edit = Edit::default();
        for (name, detail) in rows {
            if let Err(reason) = journal.take(&String::from_utf8_lossy(name), detail) {
                tracing::warn!(?name, reason, "failed to read a job row; it is left out");
            }
        }
        let running = journal.jobs.values_mut().filter(|job| !job.state.is_final());
        for job in running {
            job.state = JobState::Cancelled;
            job.finished = job.started;
            let rest = match job.kind {
                JobKind::SetAttributes | JobKind::AttachArchive => "send the request again to do the rest",
                JobKind::Restore => "restored points and rows stay; request the rest again",
                JobKind::Rekey => "copied rows stay; request the rest again",
                _ => "the same work is planned again",
            };
            job.outcome = Some(format!("interrupted by the end of the process; {rest}"));
            edit.put.push(job_row(job));
        }
        (journal, edit)
    }

    fn take(&mut self, name: &str, detail: &[u8]) -> Result<(), String> {
        if let Some(id) = name.strip_prefix("job-").and_then(|id| id.parse::<u64>().ok()) {
            // The id is not assigned again, even if the job cannot be read.
            self.next_id = self.next_id.max(id.saturating_add(1));
            self.set_aside = self.set_aside.max(self.next_id);
            self.jobs.insert(id, parse(detail)?);
        } else if let Some(id) = name.strip_prefix("table-").and_then(|id| id.parse().ok()) {
            let mut table: TableState = parse(detail)?;
            table.stored.clone_from(&table.served);
            self.tables.insert(TableId(id), table);
        } else if name == STORE_ROW {
            let store: StoreState = parse(detail)?;
            self.next_id = self.next_id.max(store.next_id);
            self.set_aside = self.set_aside.max(self.next_id);
            self.paused = store.paused;
        } else {
            return Err("the name of the row is unknown".into());
        }
        Ok(())
    }

    /// Returns an id that was never used. The caller must then store the row that [`Journal::ids_to_set_aside`]
    /// returns, if it returns one.
    pub(crate) fn next_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// Reserves further ids and returns the row `store` if ids beyond the reserved ones were assigned, otherwise
    /// `None`.
    pub(crate) fn ids_to_set_aside(&mut self) -> Option<(Bytes, Bytes)> {
        if self.next_id <= self.set_aside {
            return None;
        }
        self.set_aside = self.next_id + IDS_SET_ASIDE;
        Some(self.store_row())
    }

    /// Returns the current row `store`.
    pub(crate) fn store_row(&self) -> (Bytes, Bytes) {
        let content = StoreState {
            next_id: self.set_aside,
            paused: self.paused.clone(),
        };
        row(STORE_ROW.into(), content)
    }

    /// Returns the current row of a table. The caller stores it.
    pub(crate) fn table_row(&mut self, table: TableId) -> (Bytes, Bytes) {
        let state = self.tables.entry(table).or_default();
        state.stored.clone_from(&state.served);
        row(table_name(table), &*state)
    }

    /// Records a job that started or ended, or a waiting restore. Removes past jobs until at most `history` jobs are
    /// recorded; jobs that have not ended are always kept. Returns the edit that stores the job and removes the rows of
    /// the removed jobs.
    ///
    /// The kind with the most past jobs loses its oldest one first, so that a hundred folds do not displace the only
    /// migration.
    pub(crate) fn keep(&mut self, mut job: Job, history: usize) -> Edit {
        for text in [&mut job.outcome, &mut job.error].into_iter().flatten() {
            *text = text.chars().take(TEXT_CHARS_MAX).collect();
        }
        let mut edit = Edit::default();
        edit.put.push(job_row(&job));
        self.jobs.insert(job.id, job);
        while self.jobs.len() > history.max(1) {
            let Some(oldest) = self.most_numerous() else { break };
            self.jobs.remove(&oldest);
            edit.remove.push(job_name(oldest));
        }
        edit
    }

    /// Removes a started job that returned to the queue. Returns the edit that removes its row.
    pub(crate) fn forget(&mut self, id: u64) -> Edit {
        self.jobs.remove(&id);
        Edit {
            put: Vec::new(),
            remove: vec![job_name(id)],
        }
    }

    /// Finds the kind with the most past jobs, and returns the id of its oldest one; `None` without past jobs.
    fn most_numerous(&self) -> Option<u64> {
        let past = || self.jobs.values().filter(|job| job.state.is_final());
        let mut counts: BTreeMap<JobKind, usize> = BTreeMap::new();
        past().for_each(|job| *counts.entry(job.kind).or_default() += 1);
        let (kind, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        past().find(|job| job.kind == kind).map(|job| job.id)
    }

    /// Returns the timestamps up to which schedules were served, for the planner.
    pub(crate) fn served(&self) -> HashMap<(TableId, JobKind), i64> {
        let tables = self.tables.iter();
        tables
            .flat_map(|(table, state)| {
                state
                    .served
                    .iter()
                    .map(|(StoredKind(kind), at)| ((*table, *kind), *at))
            })
            .collect()
    }

    /// Records that a schedule was served. Returns the timestamp of this schedule in the stored row of the table;
    /// `None` if the row has none.
    pub(crate) fn serve(&mut self, table: TableId, kind: JobKind, now: i64) -> Option<i64> {
        let state = self.tables.entry(table).or_default();
        state.served.insert(StoredKind(kind), now);
        state.stored.get(&StoredKind(kind)).copied()
    }

    /// Pauses a kind of jobs or resumes it; returns the row to store, `None` if nothing changed.
    pub(crate) fn set_paused(
        &mut self,
        table: Option<TableId>,
        kind: JobKind,
        is_paused: bool,
    ) -> Option<(Bytes, Bytes)> {
        let paused = match table {
            Some(table) => &mut self.tables.entry(table).or_default().paused,
            None => &mut self.paused,
        };
        let changed = if is_paused {
            paused.insert(StoredKind(kind))
        } else {
            paused.remove(&StoredKind(kind))
        };
        changed.then(|| match table {
            Some(table) => self.table_row(table),
            None => self.store_row(),
        })
    }

    /// Returns true if a kind of jobs is paused for a table; `None` = for jobs of the whole store.
    pub(crate) fn is_paused(&self, table: Option<TableId>, kind: JobKind) -> bool {
        match table {
            Some(table) => self
                .tables
                .get(&table)
                .is_some_and(|state| state.paused.contains(&StoredKind(kind))),
            None => self.paused.contains(&StoredKind(kind)),
        }
    }

    /// Returns the number of pauses: paused kinds of the whole store plus paused kinds of each table.
    pub(crate) fn paused_count(&self) -> usize {
        let of_tables: usize = self.tables.values().map(|state| state.paused.len()).sum();
        self.paused.len() + of_tables
    }

    /// Removes tables that do not exist any more. Returns the names of their rows.
    pub(crate) fn retain_tables(&mut self, exists: impl Fn(TableId) -> bool) -> Vec<Bytes> {
        let gone = self.tables.keys().copied().filter(|table| !exists(*table));
        let gone: Vec<TableId> = gone.collect();
        gone.into_iter()
            .map(|table| {
                self.tables.remove(&table);
                Bytes::from(table_name(table))
            })
            .collect()
    }
}

fn job_row(job: &Job) -> (Bytes, Bytes) {
    let name = String::from_utf8_lossy(&job_name(job.id)).into_owned();
    row(name, job)
}

fn job_name(id: u64) -> Bytes {
    format!("job-{id:020}").into()
}

fn table_name(table: TableId) -> String {
    format!("table-{:010}", table.0)
}

fn row(name: String, content: impl Serialize) -> (Bytes, Bytes) {
    let row = Row {
        format: FORMAT,
        content,
    };
    let detail = serde_json::to_vec(&row).expect("plain structures always serialise");
    (name.into(), detail.into())
}

fn parse<T: DeserializeOwned>(detail: &[u8]) -> Result<T, String> {
    let row: Row<serde_json::Value> = serde_json::from_slice(detail).map_err(|error| error.to_string())?;
    if row.format != FORMAT {
        return Err(format!("format {} is not known to this build", row.format));
    }
    serde_json::from_value(row.content).map_err(|error| error.to_string())
}
