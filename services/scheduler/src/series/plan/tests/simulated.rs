//! Simulated store of segments without points. Seals and rewrites change the segments as in the real store, and the
//! bytes that they write are counted.

use std::collections::{BTreeMap, HashSet};

use tideline_engine::model::{JobKind, Policy, SegmentId, Tier, TimeRange};
use tideline_engine::moves::manifest::{WriteRank, WriteSpan};
use tideline_engine::moves::window::{Window, choose_tiers, cold_boundary, tiles};

use super::{BASE, SETTINGS, facts, segment, table, trusted};
use crate::maintenance::{Mode, Planned};
use crate::series::plan::facts::{COLD_LEVEL, widened};
use crate::series::plan::{Facts, History, plan};

/// Maximum number of windows that a seal writes, as in the store.
const WINDOWS_PER_SEAL: usize = 24;
/// Number of planning rounds after which no due work may be left.
const ROUNDS_MAX: usize = 200;

pub(super) struct SimulatedStore {
    pub(super) facts: Facts,
    pub(super) history: History,
    /// Encoded bytes of a point in the cold tier, in percent of its bytes in the hot tier.
    pub(super) cold_percent: u64,
    /// Bytes written by seals.
    pub(super) sealed: u64,
    /// Bytes written by rewrites, by kind of job.
    pub(super) rewritten: BTreeMap<JobKind, u64>,
    /// Largest number of segments at the end of a [`settle`](Self::settle).
    pub(super) segments_peak: usize,
    sequence: u64,
    next_id: u64,
}

impl SimulatedStore {
    pub(super) fn new(now: i64, policy: Policy) -> Self {
        Self {
            facts: facts(now, vec![table(policy, Vec::new())]),
            history: History::default(),
            cold_percent: 100,
            sealed: 0,
            rewritten: BTreeMap::new(),
            segments_peak: 0,
            sequence: 0,
            next_id: 1,
        }
    }

    pub(super) fn set_now(&mut self, now: i64) {
        self.facts.clock = trusted(now);
    }

    /// Seals points, given as the bytes of each base window.
    pub(super) fn seal(&mut self, occupied: &BTreeMap<i64, u64>) {
        self.sequence += 10;
        let narrow = occupied.keys().map(|index| Window {
            level: 0,
            index: *index,
        });
        let policy = &self.facts.tables[0].policy;
        let cuts = policy
            .hot_ttl
            .map(|age| cold_boundary(self.facts.now() - age, BASE));
        let narrow: Vec<Window> = narrow.collect();
        let windows = choose_tiers(&narrow, BASE, cuts.as_slice(), WINDOWS_PER_SEAL);
        let cold_to = cuts.unwrap_or(i64::MIN);
        for window in windows {
            let inside = occupied.iter().filter(|(index, _)| {
                window.holds(Window {
                    level: 0,
                    index: **index,
                })
            });
            let inside: Vec<_> = inside.collect();
            let hot_bytes: u64 = inside.iter().map(|(_, bytes)| **bytes).sum();
            let is_cold = window.range(BASE).end <= cold_to;
            let tier = if is_cold { Tier::Cold } else { Tier::Hot };
            let bytes = if is_cold {
                hot_bytes * self.cold_percent / 100
            } else {
                hot_bytes
            };
            let mut sealed = segment(self.next_id, tier, window, self.sequence, bytes);
            let narrow = |index: i64| Window { level: 0, index }.range(BASE);
            sealed.first = narrow(*inside[0].0).start;
            sealed.last = narrow(*inside[inside.len() - 1].0).end - 1;
            self.next_id += 1;
            self.sealed += bytes;
            self.facts.tables[0].segments.push(sealed);
        }
    }

    /// Plans and performs work until no due work is left.
    pub(super) fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let planned = plan(&self.facts, &self.history, &SETTINGS);
            self.check(&planned);
            let now = self.facts.now();
            let due = planned
                .iter()
                .filter(|work| work.is_due(now) && work.kind != JobKind::CleanCatalog);
            let due: Vec<_> = due.cloned().collect();
            if due.is_empty() {
                self.segments_peak = self.segments_peak.max(self.segments().len());
                self.check_ages();
                return;
            }
            // In write order, the output of earlier work may be between the inputs of later work. The later work then
            // waits for a new plan.
            for (at, work) in due.iter().enumerate() {
                assert!(self.apply(work) || at > 0, "work that is refused: {work:?}");
            }
        }
        panic!("work never ends; {} segments", self.segments().len());
    }

    pub(super) fn segments(&self) -> &[super::SegmentFacts] {
        &self.facts.tables[0].segments
    }

    pub(super) fn bytes(&self) -> u64 {
        self.segments().iter().map(|segment| segment.bytes).sum()
    }

    /// Returns the maximum number of segments of a tier whose time ranges contain the same timestamp.
    pub(super) fn stack_max(&self, tier: Tier) -> usize {
        let of_tier = || self.segments().iter().filter(|segment| segment.tier == tier);
        let height = |at: i64| of_tier().filter(|segment| segment.range().contains(at)).count();
        of_tier().map(|segment| height(segment.first)).max().unwrap_or(0)
    }

    /// Checks that no segment is hot for longer than a day beyond `hot_ttl`.
    fn check_ages(&self) {
        let table = &self.facts.tables[0];
        let Some(before) = table.cold_before(&self.facts) else {
            return;
        };
        for segment in self.segments().iter().filter(|segment| segment.tier == Tier::Hot) {
            assert!(
                segment.first >= before,
                "{segment:?} is hot since before {before}"
            );
        }
    }

    /// Checks that no segment is in two units of work.
    fn check(&self, planned: &[Planned]) {
        let mut seen = HashSet::new();
        for input in planned.iter().flat_map(|work| &work.inputs) {
            assert!(seen.insert(*input), "{input:?} is in two plans");
        }
    }

    /// Performs work under the rules of the store. Returns false if the rules refuse it.
    pub(super) fn apply(&mut self, work: &Planned) -> bool {
        let ids: HashSet<SegmentId> = work.inputs.iter().copied().collect();
        let all = &self.facts.tables[0].segments;
        let (inputs, rest): (Vec<_>, Vec<_>) =
            all.iter().cloned().partition(|segment| ids.contains(&segment.id));
        assert_eq!(inputs.len(), ids.len(), "every input is there");
        if work.kind == JobKind::Expire {
            self.facts.tables[0].segments = rest;
            return true;
        }
        let written = inputs
            .iter()
            .map(|input| input.written)
            .reduce(WriteSpan::union)
            .expect("inputs");
        let start = inputs.iter().map(|input| input.first).min().expect("inputs");
        let last = inputs.iter().map(|input| input.last).max().expect("inputs");
        let span = TimeRange::new(start, last + 1);
        if rest
            .iter()
            .any(|other| other.range().overlaps(&span) && other.written.interleaves(&written))
        {
            return false;
        }
        self.facts.tables[0].segments = rest;
        let mut window = inputs
            .iter()
            .map(|input| input.window)
            .max_by_key(|window| window.level)
            .expect("inputs");
        while !inputs.iter().all(|input| window.holds(input.window)) {
            window = window.parent();
        }
        if work.tier == Tier::Cold {
            window = widened(window, COLD_LEVEL);
        }
        if let Mode::Cut(at) = work.mode {
            let inputs: Vec<_> = inputs;
            let range = window.range(BASE);
            let sides = [
                (TimeRange::new(range.start, at), Tier::Cold),
                (TimeRange::new(at, range.end), inputs[0].tier),
            ];
            for (side, tier) in sides {
                for tile in tiles(side, BASE, COLD_LEVEL) {
                    self.cut(&inputs, (tile, tier, written), work.kind);
                }
            }
            return true;
        }
        let of_tier = |input: &super::SegmentFacts| match (input.tier, work.tier) {
            (Tier::Hot, Tier::Cold) => input.bytes * self.cold_percent / 100,
            _ => input.bytes,
        };
        let bytes = inputs.iter().map(of_tier).sum();
        let mut output = segment(self.next_id, work.tier, window, 0, bytes);
        (output.first, output.last, output.written) = (start, last, written);
        self.next_id += 1;
        *self.rewritten.entry(work.kind).or_default() += bytes;
        self.facts.tables[0].segments.push(output);
        true
    }

    /// Creates the output segment for one window of a cut.
    fn cut(
        &mut self,
        inputs: &[super::SegmentFacts],
        (tile, tier, written): (Window, Tier, WriteSpan),
        kind: JobKind,
    ) {
        let range = tile.range(BASE);
        let inside = inputs.iter().filter(|input| input.range().overlaps(&range));
        let inside: Vec<_> = inside.collect();
        let (Some(first), Some(last)) = (
            inside.iter().map(|input| input.first.max(range.start)).min(),
            inside.iter().map(|input| input.last.min(range.end - 1)).max(),
        ) else {
            return;
        };
        let part = |input: &&super::SegmentFacts| {
            let bytes = input.before(range.end).bytes - input.before(range.start).bytes;
            match (input.tier, tier) {
                (Tier::Hot, Tier::Cold) => bytes * self.cold_percent / 100,
                _ => bytes,
            }
        };
        let bytes = inside.iter().map(part).sum();
        let mut output = segment(self.next_id, tier, tile, 0, bytes);
        (output.first, output.last, output.written) = (first, last, written);
        self.next_id += 1;
        *self.rewritten.entry(kind).or_default() += bytes;
        self.facts.tables[0].segments.push(output);
    }

    /// Returns all bytes written, in percent of the size of all segments. Hot segments count with their size in the
    /// cold tier.
    pub(super) fn amplification_percent(&self) -> u64 {
        let cold = |segment: &super::SegmentFacts| match segment.tier {
            Tier::Hot => segment.bytes * self.cold_percent / 100,
            Tier::Cold | Tier::Archive => segment.bytes,
        };
        let kept: u64 = self.segments().iter().map(cold).sum();
        (self.sealed + self.rewritten.values().sum::<u64>()) * 100 / kept.max(1)
    }
}

/// Creates a range of writes.
pub(super) fn written(oldest: u64, newest: u64) -> WriteSpan {
    let rank = |sequence| WriteRank {
        sequence,
        seal: sequence,
    };
    WriteSpan {
        oldest: rank(oldest),
        newest: rank(newest),
    }
}
