//! Busy keys of a table: points written and timelines read in the last minute, by the start of the key.
//!
//! A key begins with the hash of its machine, so machines are spread evenly over the keys. A key range with far more
//! than its fair share is therefore caused by one or a few machines. Counting costs one small histogram per write or
//! query: timelines are sorted into 256 bins by the first byte of their id, and the bins are added under one short
//! lock. Single machines are counted only in a busy bin. A bin is busy if it exceeded four times the share of one bin
//! when the current slot of 5 s began.

use std::time::Duration;

use hashbrown::HashSet;
use parking_lot::Mutex;
use tideline_model::{Ordinal, TimelineId};
use tideline_timeline_catalog::CatalogReader;

use crate::engine::Engine;
use crate::tables::Table;

/// Number of key ranges that are counted separately: one for each first byte.
const BINS: usize = 256;
/// Width of a slot.
const SLOT_SECONDS: u64 = 5;
/// Number of slots kept: one minute.
const SLOTS: u64 = 60 / SLOT_SECONDS;
/// Multiple of the fair share above which a range is hot.
const HOT_SHARES: f64 = 4.0;
/// Share above which a range is hot, however few machines there are.
const HOT_SHARE: f64 = 0.5;
/// Minimum number of points written to a table, or of timelines read from it, in the last minute. With fewer points,
/// all shares of writes count as 0; with fewer timelines, all shares of reads count as 0.
const BUSY_MIN: u64 = 1_000;
/// Maximum number of machines counted one by one in a busy bin.
const MACHINES_TRACKED: usize = 8;
/// Maximum number of machines named per range in a report.
const MACHINES_NAMED: usize = 3;
/// Number of machines above which the fair share does not change any more.
const MACHINES_COUNTED: usize = BINS;
/// Number of timelines read under one lock of the catalog.
const LOOKUP_BATCH: usize = 8_192;

/// Key range with more than four times its fair share, or more than half, of the writes or reads of the last minute.
#[derive(Debug, Clone, PartialEq)]
pub struct HotRange {
    /// First key prefix, four hexadecimal digits.
    pub from: String,
    /// Last key prefix, inclusive, four hexadecimal digits.
    pub to: String,
    /// Share of the points written, 0 to 1.
    pub share_of_writes: f64,
    /// Share of the timelines read, 0 to 1.
    pub share_of_reads: f64,
    /// Busiest machines of the range, busiest first, at most 3. Machines are counted only while their bin is busy, so
    /// the list may be incomplete. A machine without a name is represented by its measurement.
    pub sources: Vec<String>,
}

impl Engine {
    /// Returns the key ranges that were far busier than others in the last minute, in key order. The list is empty if
    /// the load is even or low.
    ///
    /// The fair share is the share of one machine under even load, or the share of one range if there are more machines
    /// than ranges.
    pub fn hot_ranges(&self, table: &Table) -> Vec<HotRange> {
        let machines = count_machines(table);
        let bins = table.activity.hot_ranges.bins(self.clock.monotonic());
        let fair = 1.0 / machines.clamp(1, BINS) as f64;
        let limit = (HOT_SHARES * fair).min(HOT_SHARE);
        let hot = |bin: &&Bin| bin.share_of_writes > limit || bin.share_of_reads > limit;
        let hot: Vec<&Bin> = bins.iter().filter(hot).collect();
        let runs = hot.chunk_by(|a, b| a.number + 1 == b.number);
        runs.map(|run| range(run, &table.catalog.reader())).collect()
    }

    /// Counts the timelines that a query reads, for [`hot_ranges`](Self::hot_ranges). Called once per query with all
    /// its timelines.
    pub fn note_read(&self, table: &Table, ids: &[TimelineId]) {
        let counted = ids.iter().map(|id| (*id, 1));
        table
            .activity
            .hot_ranges
            .note(self.clock.monotonic(), AccessKind::Read, counted);
    }
}

/// Merges adjacent bins into one range.
fn range(run: &[&Bin], reader: &CatalogReader<'_>) -> HotRange {
    let (first, last) = (run.first(), run.last());
    let number = |bin: Option<&&Bin>| bin.map_or(0, |bin| bin.number);
    let mut machines: Vec<(u64, TimelineId)> = run.iter().flat_map(|bin| bin.machines.clone()).collect();
    machines.sort_unstable_by(|a, b| b.cmp(a));
    let name = |(_, id): &(u64, TimelineId)| {
        let entry = reader.by_id(*id).and_then(|ordinal| reader.entry(ordinal))?;
        Some(entry.source().unwrap_or(entry.measurement()).to_owned())
    };
    HotRange {
        from: format!("{:02x}00", number(first)),
        to: format!("{:02x}ff", number(last)),
        share_of_writes: run.iter().map(|bin| bin.share_of_writes).sum(),
        share_of_reads: run.iter().map(|bin| bin.share_of_reads).sum(),
        sources: machines.iter().filter_map(name).take(MACHINES_NAMED).collect(),
    }
}

/// Counts the machines of a table. Stops after the group of timelines that reaches [`MACHINES_COUNTED`].
fn count_machines(table: &Table) -> usize {
    let visible = table.catalog.reader().visible().clone();
    let mut machines = HashSet::new();
    let mut rest = visible.iter().map(Ordinal);
    loop {
        let group: Vec<Ordinal> = rest.by_ref().take(LOOKUP_BATCH).collect();
        if group.is_empty() || machines.len() >= MACHINES_COUNTED {
            return machines.len();
        }
        let reader = table.catalog.reader();
        machines.extend(group.into_iter().map(|ordinal| machine_of(reader.id(ordinal))));
    }
}

/// Returns the half of an id that is the hash of the machine.
pub(crate) fn machine_of(id: TimelineId) -> [u8; 8] {
    let mut machine = [0; 8];
    machine.copy_from_slice(&id.0[..8]);
    machine
}

/// Kind of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessKind {
    /// Points written.
    Write,
    /// Timelines read.
    Read,
}

/// Load of one table in the last minute.
#[derive(Debug, Default)]
pub(crate) struct HotRanges {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// At most [`SLOTS`] slots, in ascending order.
    slots: Vec<Slot>,
    /// Busiest machines of each busy bin.
    tracked: Vec<(u8, Machines)>,
}

#[derive(Debug)]
struct Slot {
    /// Monotonic time in units of the slot width.
    number: u64,
    writes: Box<[u32; BINS]>,
    reads: Box<[u32; BINS]>,
}

/// Load of one bin in the last minute.
#[derive(Debug, Clone)]
struct Bin {
    number: usize,
    share_of_writes: f64,
    share_of_reads: f64,
    machines: Vec<(u64, TimelineId)>,
}

impl HotRanges {
    /// Counts timelines with their weights. `now` is monotonic.
    pub(crate) fn note(
        &self,
        now: Duration,
        kind: AccessKind,
        timelines: impl Iterator<Item = (TimelineId, u32)> + Clone,
    ) {
        let mut counted = [0u32; BINS];
        for (id, weight) in timelines.clone() {
            let bin = &mut counted[usize::from(id.0[0])];
            *bin = bin.saturating_add(weight);
        }
        let mut state = self.state.lock();
        state.advance(now.as_secs() / SLOT_SECONDS);
        if let Some(slot) = state.slots.last_mut() {
            let bins = match kind {
                AccessKind::Write => &mut slot.writes,
                AccessKind::Read => &mut slot.reads,
            };
            for (bin, counted) in bins.iter_mut().zip(counted) {
                *bin = bin.saturating_add(counted);
            }
        }
        state.track(timelines);
    }

    fn bins(&self, now: Duration) -> Vec<Bin> {
        let mut state = self.state.lock();
        state.advance(now.as_secs() / SLOT_SECONDS);
        let mut bins = state.shares();
        for (bin, machines) in &state.tracked {
            bins[usize::from(*bin)].machines = machines.counted.clone();
        }
        bins
    }
}

impl State {
    /// Starts the slot with this number unless it has started: drops old slots and determines the busy bins.
    fn advance(&mut self, number: u64) {
        if self.slots.last().is_some_and(|slot| slot.number >= number) {
            return;
        }
        self.slots.retain(|slot| slot.number + SLOTS > number);
        self.slots.push(Slot {
            number,
            writes: Box::new([0; BINS]),
            reads: Box::new([0; BINS]),
        });
        let limit = HOT_SHARES / BINS as f64;
        let bins = self.shares();
        let is_hot = |bin: &&Bin| bin.share_of_writes > limit || bin.share_of_reads > limit;
        let hot: Vec<u8> = bins.iter().filter(is_hot).map(|bin| bin.number as u8).collect();
        self.tracked.retain(|(bin, _)| hot.contains(bin));
        self.tracked.iter_mut().for_each(|(_, machines)| machines.age());
        for bin in hot {
            if !self.tracked.iter().any(|(tracked, _)| *tracked == bin) {
                self.tracked.push((bin, Machines::default()));
            }
        }
    }

    /// Adds the weights of timelines to the machines of the busy bins.
    fn track(&mut self, timelines: impl Iterator<Item = (TimelineId, u32)>) {
        const UNTRACKED: usize = usize::MAX;
        if self.tracked.is_empty() {
            return;
        }
        let mut tracker = [UNTRACKED; BINS];
        for (at, (bin, _)) in self.tracked.iter().enumerate() {
            tracker[usize::from(*bin)] = at;
        }
        for (id, weight) in timelines {
            let at = tracker[usize::from(id.0[0])];
            if at != UNTRACKED {
                self.tracked[at].1.add(id, u64::from(weight));
            }
        }
    }

    /// Computes the shares of all bins.
    fn shares(&self) -> Vec<Bin> {
        let total_of = |bins: &dyn Fn(&Slot) -> &[u32; BINS]| -> Vec<u64> {
            let mut totals = vec![0u64; BINS];
            for slot in &self.slots {
                let counts = bins(slot).iter();
                totals
                    .iter_mut()
                    .zip(counts)
                    .for_each(|(total, count)| *total += u64::from(*count));
            }
            totals
        };
        let writes = as_shares(&total_of(&|slot| &slot.writes));
        let reads = as_shares(&total_of(&|slot| &slot.reads));
        let bins = writes.into_iter().zip(reads).enumerate();
        bins.map(|(number, (share_of_writes, share_of_reads))| Bin {
            number,
            share_of_writes,
            share_of_reads,
            machines: Vec::new(),
        })
        .collect()
    }
}

/// Converts totals to shares of their sum. All shares are zero if the sum is below [`BUSY_MIN`].
fn as_shares(totals: &[u64]) -> Vec<f64> {
    let whole: u64 = totals.iter().sum();
    let share = |total: &u64| {
        if whole < BUSY_MIN {
            0.0
        } else {
            *total as f64 / whole as f64
        }
    };
    totals.iter().map(share).collect()
}

/// Heavy hitters among machines (Misra and Gries 1982). A count is never too high. Apart from aging, it is too low by
/// at most the total weight subtracted for other machines.
#[derive(Debug, Clone, Default)]
struct Machines {
    /// Weight of each machine, with one of its timelines as representative.
    counted: Vec<(u64, TimelineId)>,
}

impl Machines {
    fn add(&mut self, id: TimelineId, weight: u64) {
        let known = self
            .counted
            .iter_mut()
            .find(|(_, known)| machine_of(*known) == machine_of(id));
        if let Some((count, _)) = known {
            *count += weight;
        } else if self.counted.len() < MACHINES_TRACKED {
            self.counted.push((weight, id));
        } else {
            let least = self.counted.iter().map(|(count, _)| *count).min().unwrap_or(0);
            let lost = least.min(weight);
            self.counted.iter_mut().for_each(|(count, _)| *count -= lost);
            self.counted.retain(|(count, _)| *count > 0);
            if weight > lost {
                self.counted.push((weight - lost, id));
            }
        }
    }

    /// Halves all counts, so that older load counts less.
    fn age(&mut self) {
        self.counted.iter_mut().for_each(|(count, _)| *count /= 2);
        self.counted.retain(|(count, _)| *count > 0);
    }
}
