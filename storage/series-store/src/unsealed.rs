//! Counts of unsealed points, for previews of policies and for query estimates.
//!
//! Counts exclude overwritten and deleted points: they equal the counts of one seal of all heads.

use std::collections::BTreeSet;
use std::sync::Arc;

use tideline_chunk::Run;
use tideline_model::{SequenceNumber, TableId, TimeRange, TimelineId};
use tideline_runtime::background;

use crate::deletes::{TableDeletes, apply};
use crate::error::Result;
use crate::head::table::TableHead;
use crate::merge::{Part, Priority, merge, slice};
use crate::scan::Snapshot;
use crate::seal::merged;
use crate::shared::{Shared, State};
use crate::survey::Survey;

/// Maximum number of timelines that an estimate reads. For more timelines it uses a sample.
const SAMPLED_MAX: usize = 1_000;

/// Counts of unsealed points without overwritten and deleted ones, as one seal of all heads would write them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unsealed {
    /// Number of timelines with at least one unsealed point.
    pub timelines: u64,
    /// Number of points.
    pub points: u64,
    /// Field values.
    pub values: u64,
    /// Timestamps of the oldest and the newest point; `None` without points.
    pub span: Option<(i64, i64)>,
}

/// Estimate of the unsealed points that a query reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnsealedEstimate {
    /// Number of heads, active or frozen, whose points of the table overlap the range in time.
    pub heads: u64,
    /// Number of points, extrapolated if only a sample of the timelines is read.
    pub points: u64,
    /// Memory of these points in bytes, derived from the average size of a point in these heads.
    pub bytes: u64,
    /// Timestamps of the oldest and the newest sampled point in the range; `None` if no such point was found.
    pub span: Option<(i64, i64)>,
}

impl Unsealed {
    /// Adds the rows of a run before a timestamp.
    fn add(&mut self, run: &Run, before: i64) {
        let rows = run.timestamps.partition_point(|at| *at < before);
        if rows == 0 {
            return;
        }
        self.timelines += 1;
        self.points += rows as u64;
        self.values += match rows == run.rows() {
            true => run.values() as u64,
            false => slice(run, 0..rows).values() as u64,
        };
        self.span = united(self.span, (run.timestamps[0], run.timestamps[rows - 1]));
    }
}

fn united(all: Option<(i64, i64)>, span: (i64, i64)) -> Option<(i64, i64)> {
    Some(all.map_or(span, |all| (all.0.min(span.0), all.1.max(span.1))))
}

/// Heads of a table, oldest first, each with the first sequence of deletes that may still have to be applied to it.
struct TableHeads<'a> {
    heads: Vec<(Arc<TableHead>, SequenceNumber)>,
    deletes: Option<&'a TableDeletes>,
}

impl<'a> TableHeads<'a> {
    /// Returns those heads of a state in which the time span of the table overlaps a time range.
    fn of(state: &'a State, table: TableId, range: TimeRange) -> Self {
        let frozen = state.frozen.iter().map(|head| (head, head.end()));
        // The committer removes deleted points from the active head directly.
        let all = frozen.chain([(&state.active, SequenceNumber(u64::MAX))]);
        let is_in = |head: &TableHead| {
            let span = head.span();
            span.is_some_and(|(first, last)| first < range.end && last >= range.start)
        };
        let of_table = all.filter_map(|(head, deletes_from)| Some((head.table(table)?, deletes_from)));
        Self {
            heads: of_table.filter(|(head, _)| is_in(head)).collect(),
            deletes: state.deletes.of(table),
        }
    }

    /// Returns every timeline that was written to these heads, in id order.
    fn timelines(&self) -> Vec<TimelineId> {
        match self.heads.as_slice() {
            [(head, _)] => head.timelines(),
            heads => {
                let all: BTreeSet<TimelineId> = heads.iter().flat_map(|(head, _)| head.timelines()).collect();
                all.into_iter().collect()
            }
        }
    }

    /// Returns the points of a timeline in all heads as a seal would write them; `None` without points.
    fn run(&self, id: TimelineId) -> Result<Option<Run>> {
        let masks = self.deletes.map_or(&[][..], |deletes| deletes.masks(id));
        let mut runs = Vec::with_capacity(self.heads.len());
        for (head, deletes_from) in &self.heads {
            let Some(fragments) = head.fragments(id) else {
                continue;
            };
            let (mut run, _) = merged(id, &fragments)?;
            if run.rows() > 0 && apply(&mut run, masks, *deletes_from) {
                runs.push(run);
            }
        }
        if runs.len() < 2 {
            return Ok(runs.pop());
        }
        let parts: Vec<Part<'_>> = (0u64..)
            .zip(&runs)
            .map(|(order, run)| Part {
                run,
                priority: Priority::All(order),
            })
            .collect();
        Ok(Some(merge(&parts)))
    }
}

impl Shared {
    /// Returns the survey. For each timestamp that `before` returns, also returns the counts of the unsealed points of
    /// a table before this timestamp. If heads have points that are old enough, reads all timelines of these heads, one
    /// after another. Uses the memory of one timeline, and takes as long as a seal without the encoding.
    pub(crate) fn survey_unsealed<const COUNT: usize>(
        &self,
        table: TableId,
        before: impl FnOnce(&Survey) -> [i64; COUNT],
    ) -> Result<(Survey, [Unsealed; COUNT])> {
        let state = self.state.read().clone();
        let survey = self.survey_of(&state);
        let before = before(&survey);
        let mut counts = [Unsealed::default(); COUNT];
        let end = before.iter().copied().max().unwrap_or(i64::MIN);
        let heads = TableHeads::of(&state, table, TimeRange::new(i64::MIN, end));
        if !heads.heads.is_empty() {
            for id in heads.timelines() {
                if let Some(run) = heads.run(id)? {
                    let pairs = counts.iter_mut().zip(before);
                    pairs.for_each(|(count, before)| count.add(&run, before));
                }
                background::yield_core();
            }
        }
        Ok((survey, counts))
    }
}

impl Snapshot {
    /// Estimates the unsealed points of timelines in a time range. The number of points is exact for up to 1,000
    /// timelines; for more, an evenly spaced sample of 500 to 1,000 timelines is read.
    ///
    /// # Errors
    ///
    /// [`StoreError::Chunk`](crate::StoreError::Chunk) if a block of a head is damaged.
    pub fn unsealed(
        &self,
        table: TableId,
        timelines: &[TimelineId],
        range: TimeRange,
    ) -> Result<UnsealedEstimate> {
        let heads = TableHeads::of(self.state(), table, range);
        let mut estimate = UnsealedEstimate {
            heads: heads.heads.len() as u64,
            ..UnsealedEstimate::default()
        };
        if timelines.is_empty() || heads.heads.is_empty() {
            return Ok(estimate);
        }
        let step = timelines.len().div_ceil(SAMPLED_MAX);
        let (mut looked_at, mut points) = (0u64, 0u64);
        for id in timelines.iter().step_by(step) {
            looked_at += 1;
            let Some(run) = heads.run(*id)? else { continue };
            let start = run.timestamps.partition_point(|at| *at < range.start);
            let end = run.timestamps.partition_point(|at| *at < range.end);
            if start < end {
                points += (end - start) as u64;
                estimate.span = united(estimate.span, (run.timestamps[start], run.timestamps[end - 1]));
            }
        }
        let scaled = |count: u64, to: u64, of: u64| {
            let scaled = u128::from(count) * u128::from(to) / u128::from(of.max(1));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        estimate.points = scaled(points, timelines.len() as u64, looked_at);
        let held =
            |count: fn(&TableHead) -> u64| heads.heads.iter().map(|(head, _)| count(head)).sum::<u64>();
        let bytes = held(|head| head.bytes() as u64);
        estimate.bytes = scaled(estimate.points, bytes, held(TableHead::points)).min(bytes);
        Ok(estimate)
    }
}
