//! Doing moves: work that reads and writes segments, in one part or in several.

use tideline_model::{SegmentId, TableId, Tier, Timestamp};
use tideline_series_store::{Rewrite, RewriteCause, RewriteCost, Rewritten};

use crate::pace::JobPace;
use crate::plan::{Manner, Planned};
use crate::runner::Shared;
use crate::work::WorkError;

impl Shared {
    /// Cold segments are cut, so that those of their days that are old enough can be archived; what came of it.
    fn cut(
        &self,
        work: &Planned,
        (table, at): (TableId, i64),
        pace: &mut JobPace<'_>,
    ) -> Result<String, WorkError> {
        let inputs = work.inputs.clone();
        let cut = self.part(work, (table, inputs, Tier::Cold, RewriteCause::Cut(at)), pace)?;
        Ok(format!(
            "{} cold segments became {}, so that those before {} can be archived: {}",
            work.inputs.len(),
            cut.outputs.len(),
            Timestamp::from_nanos_clamped(at),
            read_and_written(&cut.cost)
        ))
    }

    /// All inputs become one segment, or several where they are cut; what came of it.
    pub(crate) fn rewrite(
        &self,
        work: &Planned,
        table: TableId,
        cause: RewriteCause,
        pace: &mut JobPace<'_>,
    ) -> Result<String, WorkError> {
        let cause = match work.manner {
            Manner::Cut(at) => RewriteCause::Cut(at),
            _ => cause,
        };
        let rewritten = self.part(work, (table, work.inputs.clone(), work.tier, cause), pace)?;
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
            read_and_written(&cost)
        ))
    }

    /// Points become files; where they stay in the cold tier for a while, they are one segment there before.
    pub(crate) fn archive(
        &self,
        work: &Planned,
        table: TableId,
        pace: &mut JobPace<'_>,
    ) -> Result<String, WorkError> {
        let folded = match work.manner {
            Manner::Copied { folded } => folded,
            Manner::Cut(at) => return self.cut(work, (table, at), pace),
            _ => return self.rewrite(work, table, RewriteCause::Archive, pace),
        };
        let mut inputs = work.inputs.clone();
        if folded {
            let made = self.part(work, (table, inputs, Tier::Cold, RewriteCause::Fold), pace)?;
            match made.outputs.as_slice() {
                [output] => inputs = vec![output.id],
                _ => return Ok("nothing was left to archive".into()),
            }
        }
        self.part(work, (table, inputs, Tier::Archive, RewriteCause::Copy), pace)?;
        Ok(format!(
            "{} segments are in files, and stay in the cold tier as one: {}",
            work.inputs.len(),
            read_and_written(&self.control.current().1)
        ))
    }

    /// Files take the place of cold segments.
    pub(crate) fn evict(&self, work: &Planned, table: TableId) -> Result<String, WorkError> {
        let evicted = self.work.evict(table, &work.inputs)?;
        let left = format!(
            "{} segments left the cold tier: {} bytes",
            evicted.segments, evicted.bytes
        );
        Ok(match evicted.stay {
            0 => left,
            stay => format!("{left}; {stay} stay, since files of theirs are missing, and are archived again"),
        })
    }

    /// Archived segments come back into the cold tier, one by one. What changed meanwhile is left out.
    pub(crate) fn restore(
        &self,
        work: &Planned,
        table: TableId,
        pace: &mut JobPace<'_>,
    ) -> Result<String, WorkError> {
        let Manner::Held(until) = work.manner else {
            return Err(WorkError::Overtaken("nobody said for how long".into()));
        };
        let (mut restored, mut changed) = (0u64, 0u64);
        for input in &work.inputs {
            let part = (table, vec![*input], Tier::Cold, RewriteCause::Restore(until));
            match self.part(work, part, pace) {
                Ok(_) => restored += 1,
                Err(WorkError::Overtaken(_)) => changed += 1,
                Err(error) => return Err(error),
            }
        }
        let until = Timestamp::from_nanos_clamped(until);
        let done = format!(
            "{restored} segments are in the cold tier until {until}: {}",
            read_and_written(&self.control.current().1)
        );
        Ok(match changed {
            0 => done,
            changed => format!("{done}; {changed} had changed: ask again for what is not there"),
        })
    }

    /// One rewrite of a job.
    fn part(
        &self,
        work: &Planned,
        (table, inputs, tier, cause): (TableId, Vec<SegmentId>, Tier, RewriteCause),
        pace: &mut JobPace<'_>,
    ) -> Result<Rewritten, WorkError> {
        let rewrite = Rewrite {
            table,
            inputs,
            tier,
            cause,
        };
        let rewritten = self.work.rewrite(&rewrite, pace)?;
        pace.part_done(&rewritten.cost);
        self.state.lock().totals.moved(work.kind, &rewritten.cost);
        Ok(rewritten)
    }
}

fn read_and_written(cost: &RewriteCost) -> String {
    format!("{} bytes read, {} written", cost.bytes_read, cost.bytes_written)
}
