//! Requests about series tables: restore of archived points, preview of a policy.

use tideline_engine::model::{Policy, TimeRange};

use super::plan::{Boundaries, Facts, History, Preview, TableFacts, UnsealedBefore, preview, restore};
use crate::job::Job;
use crate::runner::State;
use crate::scheduler::{Scheduler, SchedulerError};

impl Scheduler {
    /// Restores archived points of a range to the cold tier. Policies leave the points there until a trusted timestamp
    /// in nanoseconds. Returns the job, which runs before planned work; `None` if no archived or cold segment with
    /// visible points overlaps the range.
    ///
    /// Whole segments are restored. Restored segments stay if the job is cancelled or fails; a repeated request
    /// restores the remaining ones.
    ///
    /// # Errors
    ///
    /// Returns [`SchedulerError::NoSuchTable`] if there is no series table of this name.
    pub fn restore(&self, table: &str, range: TimeRange, until: i64) -> Result<Option<Job>, SchedulerError> {
        let shared = self.shared();
        shared.refresh();
        let facts = shared.models.series().work.facts();
        let table = find_table(&facts, table)?;
        let Some(work) = restore::restore(&facts, table, range, until) else {
            return Ok(None);
        };
        let (job, edit) = {
            let mut state = shared.state.lock();
            let State { queue, journal, .. } = &mut *state;
            let job = queue.add(work, table.state().named(), facts.now(), journal);
            let mut edit = journal.keep(job.clone(), shared.settings.history);
            edit.put.extend(journal.ids_to_set_aside());
            (job, edit)
        };
        shared.write(edit);
        shared.wake_up();
        Ok(Some(job))
    }

    /// Previews the effect of the policy of a table now, or the effect of setting `policy` now.
    ///
    /// # Errors
    ///
    /// Returns [`SchedulerError::NoSuchTable`] if there is no series table of this name, and
    /// [`SchedulerError::Unsealed`] if unsealed points cannot be counted.
    pub fn preview(&self, table: &str, policy: Option<Policy>) -> Result<Preview, SchedulerError> {
        let shared = self.shared();
        let series = shared.models.series();
        let id = find_table(&series.work.facts(), table)?.id;
        let of_table = |facts: &Facts| facts.tables.iter().position(|table| table.id == id);
        let boundaries = |facts: &Facts| match of_table(facts) {
            Some(at) => Boundaries::of(facts, &facts.tables[at], policy.as_ref()).all(),
            None => [i64::MIN; 4],
        };
        let (facts, unsealed) = series.work.facts_and_unsealed(id, &boundaries)?;
        let table = find_table(&facts, table)?;
        let history = History {
            served: shared.state.lock().journal.served(),
            deletes_since: series.deletes_since(&facts),
        };
        Ok(preview(
            &facts,
            table,
            policy,
            &UnsealedBefore::new(unsealed),
            &history,
            &shared.plan_settings(),
        ))
    }
}

fn find_table<'a>(facts: &'a Facts, name: &str) -> Result<&'a TableFacts, SchedulerError> {
    let found = facts.tables.iter().find(|table| table.name == name);
    found.ok_or_else(|| SchedulerError::NoSuchTable(name.to_owned()))
}
