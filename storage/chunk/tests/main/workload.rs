//! Fixed, seeded workloads for size limits, golden files and benchmarks.
//!
//! The generator is part of this module, so that the workloads never change with a dependency.

use tideline_chunk::{
    ChunkEncoder, ChunkOptions, Delta, DeltaGroup, Effort, Presence, Run, RunColumn, SequenceSpan,
    encode_chunk,
};
use tideline_model::{ColumnData, FieldId, SequenceNumber, TableId, TimelineId};

/// Options of chunks in the cold tier: smallest size, with hourly summaries.
pub(crate) const COLD: ChunkOptions = ChunkOptions {
    effort: Effort::Tight,
    summaries: Some(3_600_000_000_000),
};

/// Seeded random generator (SplitMix64). It is implemented here so that no upgrade of a dependency changes a sample.
#[derive(Debug, Clone)]
pub(crate) struct Seeded(pub(crate) u64);

impl Seeded {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a random number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns an approximately normal number with mean 0 and deviation 1: the sum of twelve uniform numbers, minus 6.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12)
            .map(|_| (self.next() >> 11) as f64 / (1u64 << 53) as f64)
            .sum::<f64>()
            - 6.0
    }

    /// Returns a random walk like that of a TSBS `cpu` field: steps of N(0, 1), clamped to 0..100, rounded.
    pub(crate) fn cpu_walk(&mut self, rows: usize) -> Vec<i64> {
        let mut value = self.below(101) as f64;
        (0..rows)
            .map(|_| {
                value = (value + self.normal()).clamp(0.0, 100.0);
                value.round() as i64
            })
            .collect()
    }
}

/// Returns `rows` points of ten fields at intervals of ten seconds.
fn regular_run(rows: usize, mut values: impl FnMut() -> ColumnData) -> Run {
    let start = 1_767_225_600_000_000_000;
    Run {
        timestamps: (0..rows as i64).map(|row| start + row * 10_000_000_000).collect(),
        columns: (1..=10)
            .map(|field| RunColumn {
                field: FieldId(field),
                presence: Presence::All,
                values: values(),
            })
            .collect(),
    }
}

/// Returns ten fields with random walks of integers, similar to the CPU values of TSBS.
pub(crate) fn cpu_run(seed: u64, rows: usize) -> Run {
    let mut seeded = Seeded(seed);
    regular_run(rows, || ColumnData::Signed(seeded.cpu_walk(rows)))
}

/// Returns ten fields with random walks of doubles with two decimal places, typical of sensors.
pub(crate) fn decimal_run(seed: u64, rows: usize) -> Run {
    let mut seeded = Seeded(seed);
    regular_run(rows, || {
        let mut cents = 2_000 + seeded.below(1_000) as i64;
        let walk = (0..rows).map(|_| {
            cents += (seeded.normal() * 5.0).round() as i64;
            cents as f64 / 100.0
        });
        ColumnData::Float(walk.collect())
    })
}

/// Returns ten fields of sine values, which are not short decimals.
pub(crate) fn sine_run(rows: usize) -> Run {
    let mut phase = 0.0;
    regular_run(rows, || {
        phase += 0.7;
        ColumnData::Float((0..rows).map(|row| (row as f64 / 50.0 + phase).sin()).collect())
    })
}

pub(crate) fn sequences(lowest: u64, highest: u64) -> SequenceSpan {
    SequenceSpan {
        lowest: SequenceNumber(lowest),
        highest: SequenceNumber(highest),
    }
}

pub(crate) fn encoded(run: &Run) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_chunk(run, sequences(7, 4_000), &mut bytes).expect("the run is well formed");
    bytes
}

pub(crate) fn encoded_with(run: &Run, options: &ChunkOptions) -> Vec<u8> {
    let mut bytes = Vec::new();
    ChunkEncoder::default()
        .encode(run, sequences(7, 4_000), options, &mut bytes)
        .expect("the run is well formed");
    bytes
}

pub(crate) fn encoded_delta(delta: &Delta) -> Vec<u8> {
    let mut bytes = Vec::new();
    delta.encode(&mut bytes).expect("the delta is well formed");
    bytes
}

/// Returns `rows` rows of ten small integers. Consecutive rows cycle through `machines` timelines, as in batches of a
/// TSBS loader.
pub(crate) fn cpu_delta(seed: u64, rows: usize, machines: usize) -> Delta {
    let mut seeded = Seeded(seed);
    let timelines = (0..machines)
        .map(|_| {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&seeded.next().to_be_bytes());
            id[8..].copy_from_slice(&seeded.next().to_be_bytes());
            TimelineId(id)
        })
        .collect();
    let mut column = || ColumnData::Signed((0..rows).map(|_| seeded.below(101) as i64).collect());
    let start = 1_767_225_600_000_000_000;
    let group = DeltaGroup {
        measurements: "cpu".into(),
        fields: (0..10).map(|field| format!("usage_{field}").into()).collect(),
        columns: (0..10).map(|_| column()).collect(),
        timelines: (0..rows).map(|row| (row % machines) as u32).collect(),
        timestamps: (0..rows)
            .map(|row| start + (row / machines) as i64 * 10_000_000_000)
            .collect(),
    };
    Delta {
        table: TableId(1),
        request: None,
        new_timelines: Vec::new(),
        timelines,
        groups: vec![group],
        delete: None,
        removed: Vec::new(),
    }
}
