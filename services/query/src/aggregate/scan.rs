//! Parallel scan of an aggregate.
//!
//! Distributes the timelines of a batch of groups over the workers and merges the results in order of id. The number of
//! workers therefore changes a result only by the rounding of floats.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use tideline_engine::model::TimelineId;
use tideline_engine::points::{Grid, Part};
use tideline_engine::points::{Order, ReadCost, Selection};

use super::no_summaries;
use crate::accumulate::Accumulator;
use crate::compute::Stages;
use crate::cutter::{AccumulatorIndices, Cutter, GroupState};
use crate::error::Result;
use crate::groups::Groups;
use crate::plan::{AggregateSource, Columns, Scope};
use crate::point_query::PointQuery;
use crate::querier::{Context, Metered};
use crate::window::Windows;

/// Minimum number of timelines per share: waking a worker costs as much as reading a few timelines.
const SHARE_TIMELINES_MIN: usize = 8;

/// Timeline of a scan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) id: TimelineId,
    pub(super) measurement: u32,
    /// Index of its group, counted from the first group of the batch.
    group: u32,
}

/// Returns the timelines of a batch of groups, in order of id.
pub(super) fn members(scope: &Scope, groups: &Groups, batch: &Range<usize>) -> Vec<Member> {
    let all = scope.timelines.iter().zip(&groups.of);
    all.filter_map(|(timeline, group)| {
        let group = group.filter(|group| batch.contains(&(*group as usize)))?;
        Some(Member {
            id: timeline.id,
            measurement: timeline.measurement,
            group: group - batch.start as u32,
        })
    })
    .collect()
}

/// Result of a worker or of a whole scan: the state of each group of the batch (`None` for a group without values), and
/// the read cost.
pub(super) type Gathered = (Vec<Option<GroupState>>, ReadCost);

/// State shared by the workers of a scan.
pub(super) struct AggregateScan<'a> {
    pub(super) context: &'a Context<'a>,
    query: &'a PointQuery,
    /// Filter and computed fields applied to the points; each worker has its own copy.
    stages: &'a Stages,
    pub(super) windows: Windows,
    /// The same windows as a grid; `None` if summaries cannot replace points.
    grid: Option<Grid>,
    pub(super) columns: &'a Columns<AggregateSource>,
    by_field: &'a [AccumulatorIndices],
    /// Bytes of cells that are charged to the memory account.
    cells_bytes: AtomicU64,
}

impl<'a> AggregateScan<'a> {
    /// Prepares a scan of columns in windows. Summaries replace points if every column supports summaries and there is
    /// no filter.
    pub(super) fn new(
        context: &'a Context<'a>,
        query: &'a PointQuery,
        windows: Windows,
        stages: &'a Stages,
        columns: &'a Columns<AggregateSource>,
        by_field: &'a [AccumulatorIndices],
    ) -> Self {
        let takes_summaries = no_summaries(stages, columns).is_none();
        Self {
            context,
            query,
            stages,
            grid: takes_summaries.then(|| windows.grid()),
            windows,
            columns,
            by_field,
            cells_bytes: AtomicU64::new(0),
        }
    }

    /// Releases the memory charged for the returned states. The caller must not use the states any more.
    pub(super) fn release(&self) {
        self.context.watch.release();
        let bytes = self.cells_bytes.swap(0, Ordering::Relaxed);
        // Releasing memory cannot fail.
        let _ = self.context.watch.hold_limited_elsewhere(bytes, 0);
    }

    /// Reads the members and merges the shares in order of id.
    pub(super) fn run(&self, batch: &Range<usize>, members: &[Member]) -> Result<Gathered> {
        let threads = self.context.pool.current_num_threads();
        let shares = (members.len() / SHARE_TIMELINES_MIN).clamp(1, threads);
        if shares == 1 {
            return self.share(batch.len(), members);
        }
        let parts: Vec<&[Member]> = members.chunks(members.len().div_ceil(shares)).collect();
        let gathered: Vec<Gathered> = self.context.pool.install(|| {
            let parts = parts.into_par_iter();
            parts
                .map(|part| self.share(batch.len(), part))
                .collect::<Result<_>>()
        })?;
        let mut gathered = gathered.into_iter();
        let (mut states, mut cost) = gathered.next().unwrap_or_default();
        for (others, read) in gathered {
            cost.add(&read);
            for (state, other) in states.iter_mut().zip(others) {
                match (state.as_mut(), other) {
                    (Some(state), Some(other)) => {
                        let pairs = state.iter_mut().zip(other);
                        pairs.for_each(|(accumulator, other)| accumulator.merge(other));
                    }
                    (None, Some(other)) => *state = Some(other),
                    (_, None) => {}
                }
            }
        }
        Ok((states, cost))
    }

    /// Reads the share of one worker.
    fn share(&self, groups: usize, members: &[Member]) -> Result<Gathered> {
        let Context {
            table,
            snapshot,
            watch,
            ..
        } = self.context;
        let ids: Vec<TimelineId> = members.iter().map(|member| member.id).collect();
        let fields = self
            .stages
            .reads(self.by_field.iter().flat_map(AccumulatorIndices::fields));
        let mut stages = self.stages.clone();
        let mut reader = snapshot.reader(Selection {
            table: table.points().id(),
            timelines: &ids,
            range: self.query.range,
            fields: Some(&fields),
            order: Order::Ascending,
            tier: self.query.tier,
        });
        reader = reader.with_zone_filter(self.stages.zone_filter());
        let mut states: Vec<Option<GroupState>> = Vec::new();
        states.resize_with(groups, || None);
        let mut cutter = Cutter::new(self.windows.clone());
        let mut metered = Metered::default();
        for member in members {
            watch.check()?;
            let indices = &self.by_field[member.measurement as usize];
            let state = &mut states[member.group as usize];
            let mut failure = None;
            let mut summaries = 0;
            let mut take = |part: Part<'_>| {
                let taken = match part {
                    Part::Run(run) => watch.charge(run).and_then(|()| {
                        let Some(run) = stages.apply(run) else {
                            return Ok(());
                        };
                        let state = self.of_group(state, member.measurement)?;
                        let before = held(state);
                        cutter.take(run, indices, state);
                        watch.hold(before, held(state))
                    }),
                    Part::Summaries(field, of_field) => {
                        self.of_group(state, member.measurement).map(|state| {
                            summaries += cutter.take_summaries(field, of_field, indices, state);
                        })
                    }
                };
                Ok(match taken {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        failure = Some(error);
                        ControlFlow::Break(())
                    }
                })
            };
            let before = reader.cost().total().summaries;
            match self.grid {
                Some(grid) => reader.timeline_summarized(member.id, grid, &mut take)?,
                None => reader.timeline(member.id, &mut |run| take(Part::Run(run)))?,
            }
            if let Some(error) = failure {
                return Err(error);
            }
            state.iter_mut().flatten().for_each(Accumulator::end_timeline);
            let cost = reader.cost();
            watch.add(cost.total().summaries - before, summaries)?;
            self.context.meter(&mut metered, &cost)?;
        }
        Ok((states, reader.cost()))
    }

    /// Returns the state of a group; creates it for the first value. Returns an error if the memory account has too
    /// little free memory for its cells.
    fn of_group<'s>(
        &self,
        state: &'s mut Option<GroupState>,
        measurement: u32,
    ) -> Result<&'s mut GroupState> {
        if state.is_none() {
            let sources = &self.columns.of(measurement).sources;
            let bytes = |source: &AggregateSource| Accumulator::cells_bytes(source.function, &self.windows);
            let bytes = sources.iter().map(bytes).sum();
            self.cells_bytes.fetch_add(bytes, Ordering::Relaxed);
            self.context.watch.hold_limited_elsewhere(0, bytes)?;
        }
        Ok(state.get_or_insert_with(|| self.empty(measurement)))
    }

    fn empty(&self, measurement: u32) -> GroupState {
        // The caller has checked the number of windows against the cell limit.
        let sources = self.columns.of(measurement).sources.iter();
        sources
            .map(|source| Accumulator::new(source.function, &self.windows))
            .collect()
    }
}

/// Returns the bytes that a group holds in addition to its cells.
fn held(state: &GroupState) -> u64 {
    state.iter().map(Accumulator::held).sum()
}
