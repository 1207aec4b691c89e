//! History jobs for work that was in no plan, such as seals by size and age.

use tideline_engine::model::{JobKind, TableModel};

use crate::job::{Job, JobProgress, JobState};
use crate::journal::Edit;
use crate::maintenance::Unplanned;
use crate::runner::{Shared, State};

impl Shared {
    /// Adds unplanned work that ended since the last call to the history. The rows of these jobs are written when the
    /// runner plans next, or at the stop.
    pub(crate) fn note_unplanned(&self) {
        let mut state = self.state.lock();
        // Seals of the store that end during a seal job, or while a request waits for a seal, belong to that job. Seals
        // are the only unplanned work of series tables.
        let running = state.running.as_ref().map(|running| running.entry.work.kind);
        let are_seals_of_a_job = running == Some(JobKind::Seal) || state.seals_awaited > 0;
        for maintenance in self.models.all() {
            if are_seals_of_a_job && maintenance.model() == TableModel::Series {
                continue;
            }
            for ended in maintenance.take_unplanned() {
                let edit = state.list_past(&mut ended.into_job(), self.settings.history);
                state.unwritten.add(edit);
            }
        }
    }
}

impl State {
    /// Assigns a number to a job that has ended and records it. Returns the rows to store and to remove.
    pub(crate) fn list_past(&mut self, job: &mut Job, history: usize) -> Edit {
        job.id = self.journal.next_id();
        job.done.seconds_left = None;
        self.totals.ended(job);
        let mut edit = Edit::put(self.journal.ids_to_set_aside());
        edit.add(self.journal.keep(job.clone(), history));
        edit
    }
}

impl Unplanned {
    /// Converts the work to a past job, without a number yet.
    pub(crate) fn into_job(self) -> Job {
        let lasting = i64::try_from(self.lasting.as_nanos()).unwrap_or(i64::MAX);
        let (from, to) = self.span.unzip();
        Job {
            id: 0,
            kind: self.kind,
            table: self.table,
            into: None,
            state: JobState::Done,
            by_hand: false,
            reason: self.reason.to_owned(),
            created: self.started,
            due: Some(self.started),
            started: Some(self.started),
            finished: Some(self.started.saturating_add(lasting)),
            from,
            to,
            tier: self.tier,
            total: self.amount,
            done: JobProgress::of(&self.cost, self.amount.bytes, self.lasting),
            outcome: Some(self.outcome),
            error: None,
        }
    }
}
