//! Performs moves: work that reads and writes segments. A move has one or more parts.
//!
//! Each part is one rewrite of the store, which completes or leaves everything unchanged.

use std::ops::ControlFlow;

use tideline_engine::model::{SegmentId, TableId, Tier, Timestamp};
use tideline_engine::moves::{Rewrite, RewriteCause, RewriteCost, Rewritten, Throttle};

use super::Series;
use crate::maintenance::{Mode, Planned, WorkError};
use crate::run::Run;
use crate::throttle::JobCost;

/// Reports the cost of a rewrite to the running job, as the cost of its current part.
struct RunThrottle<'r, 'a>(&'r mut Run<'a>);

impl Throttle for RunThrottle<'_, '_> {
    fn step(&mut self, cost: &RewriteCost) -> ControlFlow<()> {
        self.0.step(&JobCost::from(*cost))
    }
}

impl From<RewriteCost> for JobCost {
    fn from(cost: RewriteCost) -> Self {
        Self {
            timelines: cost.timelines,
            points_read: cost.points_read,
            values_read: cost.values_read,
            bytes_read: cost.bytes_read,
            points_written: cost.points_written,
            values_written: cost.values_written,
            bytes_written: cost.bytes_written,
        }
    }
}

impl Series {
    /// Cuts cold segments, so that their days that are old enough can be archived. Returns a description.
    fn cut(
        &self,
        work: &Planned,
        (table, at): (TableId, i64),
        run: &mut Run<'_>,
    ) -> Result<String, WorkError> {
        let inputs = work.inputs.clone();
        let cut = self.part((table, inputs, Tier::Cold, RewriteCause::Cut(at)), run)?;
        Ok(format!(
            "{} cold segments became {}, so that those before {} can be archived: {}",
            work.inputs.len(),
            cut.outputs.len(),
            Timestamp::from_nanos_clamped(at),
            read_and_written(&cut.cost.into())
        ))
    }

    /// Rewrites all inputs into one segment, or into several if they are cut. Returns a description.
    pub(super) fn rewrite(
        &self,
        work: &Planned,
        table: TableId,
        cause: RewriteCause,
        run: &mut Run<'_>,
    ) -> Result<String, WorkError> {
        let cause = match work.mode {
            Mode::Cut(at) => RewriteCause::Cut(at),
            _ => cause,
        };
        let rewritten = self.part((table, work.inputs.clone(), work.tier, cause), run)?;
        let inputs = work.inputs.len();
        let cost = rewritten.cost;
        if cost == RewriteCost::default() {
            return Ok(format!("{inputs} segments needed no change"));
        }
        let left = match rewritten.outputs.len() {
            _ if cost.points_written == 0 => "nothing".to_owned(),
            0 | 1 => "one".to_owned(),
            several => several.to_string(),
        };
        Ok(format!(
            "{inputs} segments became {left}: {}",
            read_and_written(&cost.into())
        ))
    }

    /// Moves points into files. Points that also stay in the cold tier for a while must be in one cold segment
    /// without deleted points, so they are folded first if necessary. Work of the mode [`Mode::Cut`] only cuts the
    /// segments.
    pub(super) fn archive(
        &self,
        work: &Planned,
        table: TableId,
        run: &mut Run<'_>,
    ) -> Result<String, WorkError> {
        let folded = match work.mode {
            Mode::Copied { folded } => folded,
            Mode::Cut(at) => return self.cut(work, (table, at), run),
            _ => return self.rewrite(work, table, RewriteCause::Archive, run),
        };
        let mut inputs = work.inputs.clone();
        if folded {
            let made = self.part((table, inputs, Tier::Cold, RewriteCause::Fold), run)?;
            match made.outputs.as_slice() {
                [output] => inputs = vec![output.id],
                _ => return Ok("nothing was left to archive".into()),
            }
        }
        self.part((table, inputs, Tier::Archive, RewriteCause::Copy), run)?;
        Ok(format!(
            "{} segments are in files, and stay in the cold tier as one: {}",
            work.inputs.len(),
            read_and_written(&run.cost())
        ))
    }

    /// Replaces cold segments by their files.
    pub(super) fn evict(&self, work: &Planned, table: TableId) -> Result<String, WorkError> {
        let evicted = self.work.evict(table, &work.inputs)?;
        let left = format!(
            "{} segments left the cold tier: {} bytes",
            evicted.segments, evicted.bytes
        );
        Ok(match evicted.stay {
            0 => left,
            stay => format!("{left}; {stay} stay and are archived again, because files are missing"),
        })
    }

    /// Restores archived segments to the cold tier and keeps cold segments there, one rewrite per segment. Segments
    /// that have changed since the plan are skipped.
    pub(super) fn restore(
        &self,
        work: &Planned,
        table: TableId,
        run: &mut Run<'_>,
    ) -> Result<String, WorkError> {
        let Mode::Held(until) = work.mode else {
            return Err(WorkError::Overtaken("the restore has no end time".into()));
        };
        let (mut restored, mut changed) = (0u64, 0u64);
        for input in &work.inputs {
            let part = (table, vec![*input], Tier::Cold, RewriteCause::Restore(until));
            match self.part(part, run) {
                Ok(_) => restored += 1,
                Err(WorkError::Overtaken(_)) => changed += 1,
                Err(error) => return Err(error),
            }
        }
        let until = Timestamp::from_nanos_clamped(until);
        let done = format!(
            "{restored} segments are in the cold tier until {until}: {}",
            read_and_written(&run.cost())
        );
        Ok(match changed {
            0 => done,
            changed => format!("{done}; {changed} had changed; request them again"),
        })
    }

    /// Performs one rewrite of a job.
    fn part(
        &self,
        (table, inputs, tier, cause): (TableId, Vec<SegmentId>, Tier, RewriteCause),
        run: &mut Run<'_>,
    ) -> Result<Rewritten, WorkError> {
        let rewrite = Rewrite {
            table,
            inputs,
            tier,
            cause,
        };
        let rewritten = self.work.rewrite(&rewrite, &mut RunThrottle(run))?;
        run.part_done(&rewritten.cost.into());
        Ok(rewritten)
    }
}

fn read_and_written(cost: &JobCost) -> String {
    format!("{} bytes read, {} written", cost.bytes_read, cost.bytes_written)
}
