//! Which keys of a table are busy: points written and timelines read in the last minute, by the start of the key.
//!
//! A key begins with the hash of its machine, so machines spread evenly and a range of keys that takes far more than
//! its share is one machine, or a few, that do. Counting costs one small histogram a write or query: its timelines are
//! sorted into 256 bins by their first byte, and added under one short lock. Machines are only counted one by one
//! inside a bin that was hot in a slot before.

use std::time::Duration;

use hashbrown::HashSet;
use parking_lot::Mutex;
use tideline_model::{Ordinal, TimelineId};
use tideline_timeline_catalog::CatalogReader;

use crate::engine::Engine;
use crate::tables::Table;

/// Ranges of keys that are counted apart: one for each first byte.
const BINS: usize = 256;
/// The width of a slot.
const SLOT_SECONDS: u64 = 5;
/// Slots that are kept: a minute.
const SLOTS: u64 = 60 / SLOT_SECONDS;
/// How many times its fair share a range takes when it is called hot.
const HOT_SHARES: f64 = 4.0;
/// The share that is hot however few machines there are.
const HOT_SHARE: f64 = 0.5;
/// Points or timelines in a minute below which nothing is called hot.
const BUSY_MIN: u64 = 1_000;
/// Machines that are counted one by one in a hot bin.
const MACHINES_TRACKED: usize = 8;
/// Machines that a report names for each range.
const MACHINES_NAMED: usize = 3;
/// Machines above which their number changes nothing.
const MACHINES_COUNTED: usize = BINS;
/// Timelines that are looked at under one lock of the catalog.
const LOOK_GROUP: usize = 8_192;

/// A range of keys that takes more than four times its fair share of the last minute's writes or reads.
#[derive(Debug, Clone, PartialEq)]
pub struct HotRange {
    /// Its first prefix, four hexadecimal digits.
    pub from: String,
    /// Its last prefix.
    pub to: String,
    /// Its share of the points written, 0 to 1.
    pub share_of_writes: f64,
    /// Its share of the timelines read, 0 to 1.
    pub share_of_reads: f64,
    /// The busiest machines in it, the busiest first, as far as they are known: they are counted from the moment on
    /// that the range is hot. A machine without a name is shown by its measurement.
    pub sources: Vec<String>,
}

impl Engine {
    /// The ranges of keys that were far busier than others in the last minute, in order; none where load is even or
    /// low.
    ///
    /// The fair share is that of one machine, or of one range where there are more machines than ranges.
    pub fn hot_ranges(&self, table: &Table) -> Vec<HotRange> {
        let machines = count_machines(table);
        let bins = table.activity.heat.bins(self.clock.monotonic());
        let fair = 1.0 / machines.clamp(1, BINS) as f64;
        let limit = (HOT_SHARES * fair).min(HOT_SHARE);
        let hot = |bin: &&Bin| bin.share_of_writes > limit || bin.share_of_reads > limit;
        let hot: Vec<&Bin> = bins.iter().filter(hot).collect();
        let runs = hot.chunk_by(|a, b| a.number + 1 == b.number);
        runs.map(|run| range(run, &table.catalog.reader())).collect()
    }

    /// Counts timelines that a query reads, for [`hot_ranges`](Self::hot_ranges): once a query, with all of them.
    pub fn note_read(&self, table: &Table, ids: &[TimelineId]) {
        let counted = ids.iter().map(|id| (*id, 1));
        table
            .activity
            .heat
            .note(self.clock.monotonic(), Kind::Read, counted);
    }
}

/// Puts neighbouring bins together.
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

/// How many machines a table has, up to the number that matters.
fn count_machines(table: &Table) -> usize {
    let visible = table.catalog.reader().visible().clone();
    let mut machines = HashSet::new();
    let mut rest = visible.iter().map(Ordinal);
    loop {
        let group: Vec<Ordinal> = rest.by_ref().take(LOOK_GROUP).collect();
        if group.is_empty() || machines.len() >= MACHINES_COUNTED {
            return machines.len();
        }
        let reader = table.catalog.reader();
        machines.extend(group.into_iter().map(|ordinal| machine_of(reader.id(ordinal))));
    }
}

/// The half of an id that is the hash of the machine.
pub(crate) fn machine_of(id: TimelineId) -> [u8; 8] {
    let mut machine = [0; 8];
    machine.copy_from_slice(&id.0[..8]);
    machine
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Points written.
    Write,
    /// Timelines read.
    Read,
}

/// The last minute of one table.
#[derive(Debug, Default)]
pub(crate) struct Heat {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// At most [`SLOTS`], by number.
    slots: Vec<Slot>,
    /// The busiest machines of each bin that is hot, or was so in the last minute.
    tracked: Vec<(u8, Machines)>,
}

#[derive(Debug)]
struct Slot {
    /// Monotonic time in units of its width.
    number: u64,
    writes: Box<[u32; BINS]>,
    reads: Box<[u32; BINS]>,
}

/// One bin of the last minute.
#[derive(Debug, Clone)]
struct Bin {
    number: usize,
    share_of_writes: f64,
    share_of_reads: f64,
    machines: Vec<(u64, TimelineId)>,
}

impl Heat {
    /// Counts timelines with their weights. `now` is monotonic.
    pub(crate) fn note(
        &self,
        now: Duration,
        kind: Kind,
        timelines: impl Iterator<Item = (TimelineId, u32)> + Clone,
    ) {
        let mut counted = [0u32; BINS];
        for (id, weight) in timelines.clone() {
            let bin = &mut counted[usize::from(id.0[0])];
            *bin = bin.saturating_add(weight);
        }
        let mut state = self.state.lock();
        state.turn(now.as_secs() / SLOT_SECONDS);
        if let Some(slot) = state.slots.last_mut() {
            let bins = match kind {
                Kind::Write => &mut slot.writes,
                Kind::Read => &mut slot.reads,
            };
            for (bin, counted) in bins.iter_mut().zip(counted) {
                *bin = bin.saturating_add(counted);
            }
        }
        state.track(timelines);
    }

    fn bins(&self, now: Duration) -> Vec<Bin> {
        let mut state = self.state.lock();
        state.turn(now.as_secs() / SLOT_SECONDS);
        let mut bins = state.shares();
        for (bin, machines) in &state.tracked {
            bins[usize::from(*bin)].machines = machines.counted.clone();
        }
        bins
    }
}

impl State {
    /// Begins the slot of this moment where it has not begun: forgets old ones and looks which bins are hot.
    fn turn(&mut self, number: u64) {
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

    /// Counts the machines of hot bins.
    fn track(&mut self, timelines: impl Iterator<Item = (TimelineId, u32)>) {
        const UNTRACKED: usize = usize::MAX;
        if self.tracked.is_empty() {
            return;
        }
        let mut place = [UNTRACKED; BINS];
        for (at, (bin, _)) in self.tracked.iter().enumerate() {
            place[usize::from(*bin)] = at;
        }
        for (id, weight) in timelines {
            let at = place[usize::from(id.0[0])];
            if at != UNTRACKED {
                self.tracked[at].1.add(id, u64::from(weight));
            }
        }
    }

    /// The share of every bin.
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

/// Parts of the whole; all nothing where the whole is too little to speak of.
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

/// The busiest machines among many: what the heaviest weigh is off by at most what is lost to others
/// (Misra and Gries 1982).
#[derive(Debug, Clone, Default)]
struct Machines {
    /// A timeline of each stands for it.
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

    /// Makes what is past count less.
    fn age(&mut self) {
        self.counted.iter_mut().for_each(|(count, _)| *count /= 2);
        self.counted.retain(|(count, _)| *count > 0);
    }
}
