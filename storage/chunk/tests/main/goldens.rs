//! Bytes written by earlier versions can still be read, and the current encoder still produces the same bytes.
//!
//! `tests/golden/NAME-vN.bin` has format version `N` and is never changed or removed. For a new version, add rows to
//! [`CHUNKS`] and [`DELTAS`] and run once
//!
//! ```text
//! TIDELINE_WRITE_GOLDENS=1 cargo test -p tideline-chunk goldens
//! ```
//!
//! This writes the missing files. In the rows of older versions, set `current` to false and keep the content.

use std::path::PathBuf;

use tideline_chunk::{
    Bitmap, Chunk, ChunkOptions, DeleteRecord, Delta, DeltaGroup, Effort, NewTimeline, Presence,
    RequestRecord, Run, RunColumn,
};
use tideline_model::{ColumnData, FieldId, Measurements, Ordinal, TableId, TimeRange, TimelineId};

use crate::summaries::check_bytes;
use crate::workload::{COLD, cpu_delta, cpu_run, decimal_run, encoded_delta, encoded_with, sequences};

struct Golden<T> {
    name: &'static str,
    content: fn() -> T,
    /// True if the current encoder writes this version.
    current: bool,
}

/// Options of chunks of version 1.
const HOT: ChunkOptions = ChunkOptions {
    effort: Effort::Fast,
    summaries: None,
};

const CHUNKS: [Golden<(Run, ChunkOptions)>; 8] = [
    Golden {
        name: "chunk-cpu-v1",
        content: || (cpu_run(1, 300), HOT),
        current: true,
    },
    Golden {
        name: "chunk-decimals-v1",
        content: || (decimal_run(1, 200), HOT),
        current: true,
    },
    Golden {
        name: "chunk-every-type-v1",
        content: || (every_type(150), HOT),
        current: true,
    },
    Golden {
        name: "chunk-one-row-v1",
        content: || (cpu_run(2, 1), HOT),
        current: true,
    },
    Golden {
        name: "chunk-histograms-v1",
        content: || (histograms(60), HOT),
        current: true,
    },
    Golden {
        name: "chunk-cpu-v2",
        content: || (cpu_run(1, 2_500), COLD),
        current: true,
    },
    Golden {
        name: "chunk-decimals-v2",
        content: || (decimal_run(1, 720), COLD),
        current: true,
    },
    Golden {
        name: "chunk-every-type-v2",
        content: || {
            let minutes = ChunkOptions {
                summaries: Some(60_000_000_000),
                ..COLD
            };
            (every_type(600), minutes)
        },
        current: true,
    },
];

const DELTAS: [Golden<Delta>; 6] = [
    Golden {
        name: "delta-cpu-v1",
        content: || cpu_delta(1, 300, 40),
        current: true,
    },
    Golden {
        name: "delta-every-section-v1",
        content: every_section,
        current: true,
    },
    Golden {
        name: "delta-empty-v1",
        content: || Delta {
            table: TableId(u32::MAX),
            ..Delta::default()
        },
        current: true,
    },
    Golden {
        name: "delta-delete-v1",
        content: deleted,
        current: true,
    },
    Golden {
        name: "delta-removed-v1",
        content: || Delta {
            removed: [&b"cpu of machine1"[..], b"", b"cpu of machine2"]
                .map(<[u8]>::to_vec)
                .to_vec(),
            ..deleted()
        },
        current: true,
    },
    Golden {
        name: "delta-mixed-v1",
        content: mixed,
        current: true,
    },
];

/// Returns two columns of native histograms: one with few distinct values, and one in which all values differ (up to
/// 256 rows). The bytes of the histograms are arbitrary.
fn histograms(rows: usize) -> Run {
    let column = |field, distinct: usize| {
        let bytes: Vec<_> = (0..rows)
            .map(|row| vec![(row % distinct) as u8; row % 3 + 1])
            .collect();
        RunColumn {
            field: FieldId(field),
            presence: Presence::All,
            values: ColumnData::Histogram(bytes.iter().map(Vec::as_slice).collect()),
        }
    };
    Run {
        timestamps: (0..rows as i64).map(|row| row * 15_000_000_000).collect(),
        columns: vec![column(1, 6), column(2, rows)],
    }
}

/// Returns a delta with two groups that each contain several measurements, and a group with a single measurement.
fn mixed() -> Delta {
    let names = |names: &[&str]| names.iter().map(|name| (*name).into()).collect::<Vec<Box<str>>>();
    let value = DeltaGroup {
        measurements: Measurements::of_rows(names(&["up", "größe", "up_total"]), vec![0, 1, 2, 1]),
        fields: vec!["value".into()],
        columns: vec![ColumnData::Float(vec![1.0, 2.5, f64::NAN, -0.0])],
        timelines: vec![0, 1, 2, 1],
        timestamps: vec![1_000_000_000, 1_000_000_000, 1_000_000_000, 2_000_000_000],
    };
    let text = DeltaGroup {
        measurements: "up".into(),
        fields: vec!["_exemplar".into()],
        columns: vec![ColumnData::String(["{}"].into_iter().collect())],
        timelines: vec![0],
        timestamps: vec![7],
    };
    let histogram = DeltaGroup {
        measurements: Measurements::of_rows(names(&["a", "b"]), vec![1, 0]),
        fields: vec!["histogram".into()],
        columns: vec![ColumnData::Histogram([&b"one"[..], b"two"].into_iter().collect())],
        timelines: vec![2, 1],
        timestamps: vec![5, 5],
    };
    Delta {
        table: TableId(9),
        timelines: [*b"machine1up------", *b"machine2size----", *b"machine2uptotal-"]
            .map(TimelineId)
            .to_vec(),
        groups: vec![value, text, histogram],
        ..Delta::default()
    }
}

/// Returns a run of `rows` rows (at least 150) with irregular timestamps. The columns cover all types except
/// histograms, several forms of each codec, and presence as bits and as flips.
fn every_type(rows: usize) -> Run {
    let column = |field, values| RunColumn {
        field: FieldId(field),
        presence: Presence::All,
        values,
    };
    let odd: Bitmap = (0..rows).map(|row| row % 2 == 1).collect();
    let gap: Bitmap = (0..rows).map(|row| !(40..90).contains(&row)).collect();
    let mut floats: Vec<f64> = (0..rows).map(|row| (row % 40) as f64 / 10.0).collect();
    floats[7] = f64::from_bits(0x7ff8_0000_0000_beef);
    floats[8] = -0.0;
    floats[140] = f64::NEG_INFINITY;
    let unrelated = |row: usize| (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Run {
        timestamps: (0..rows as i64)
            .map(|row| -5_000_000_000 + row * 1_000_000_000 + row % 7 * 1_000_000)
            .collect(),
        columns: vec![
            column(0, ColumnData::Float(floats)),
            RunColumn {
                presence: Presence::Some(odd),
                ..column(
                    5,
                    ColumnData::Float((0..rows / 2).map(|n| f64::from_bits(unrelated(n))).collect()),
                )
            },
            column(6, ColumnData::Signed(vec![-42; rows])),
            column(6, ColumnData::Unsigned((0..rows).map(unrelated).collect())),
            column(
                7,
                ColumnData::Signed((0..rows as i64).map(|row| row * row - 9).collect()),
            ),
            column(
                8,
                ColumnData::Boolean((0..rows).map(|row| row % 3 == 0).collect()),
            ),
            RunColumn {
                presence: Presence::Some(gap),
                ..column(
                    9,
                    ColumnData::String((0..rows - 50).map(|n| ["up", "down", ""][n % 3]).collect()),
                )
            },
            column(
                u32::MAX,
                ColumnData::String(
                    (0..rows)
                        .map(|row| format!("größe {row}"))
                        .collect::<Vec<_>>()
                        .iter()
                        .map(String::as_str)
                        .collect(),
                ),
            ),
        ],
    }
}

/// Returns a delta with a request record, new timelines, timelines that share a machine, two groups of one measurement
/// each, and extreme values.
fn every_section() -> Delta {
    let timelines: Vec<TimelineId> = [*b"machine1cpu-----", *b"machine1memory--", *b"machine2cpu-----"]
        .map(TimelineId)
        .to_vec();
    let new = |index: usize, identity: &[u8]| NewTimeline {
        id: timelines[index],
        ordinal: Ordinal(100 + index as u32),
        identity: identity.to_vec(),
    };
    Delta {
        table: TableId(3),
        request: Some(RequestRecord {
            key: *b"idempotency key.",
            outcome: b"{\"stored\":4}".to_vec(),
        }),
        new_timelines: vec![new(1, b"memory of machine 1"), new(2, b"cpu of machine 2")],
        groups: vec![
            DeltaGroup {
                measurements: "cpu".into(),
                fields: vec!["usage".into(), "state".into(), "up".into()],
                columns: vec![
                    ColumnData::Float(vec![12.5, f64::NAN, 0.1]),
                    ColumnData::String(["ok", "", "ok"].into_iter().collect()),
                    ColumnData::Boolean(vec![true, false, true]),
                ],
                timelines: vec![0, 2, 0],
                timestamps: vec![1_000_000_000, 1_000_000_001, 1_000_000_000],
            },
            DeltaGroup {
                measurements: "memory".into(),
                fields: vec!["free".into(), "change".into()],
                columns: vec![
                    ColumnData::Unsigned(vec![u64::MAX, 0]),
                    ColumnData::Signed(vec![i64::MIN, i64::MAX]),
                ],
                timelines: vec![1, 1],
                timestamps: vec![i64::MAX - 1, i64::MIN + 2],
            },
        ],
        timelines,
        delete: None,
        removed: Vec::new(),
    }
}

/// Returns a delta with only a delete; two of its timelines share a machine.
fn deleted() -> Delta {
    let timelines = [*b"machine1cpu-----", *b"machine1memory--", *b"machine2cpu-----"];
    Delta {
        table: TableId(3),
        delete: Some(DeleteRecord {
            timelines: timelines.map(TimelineId).to_vec(),
            range: TimeRange::new(i64::MIN, 1_767_225_600_000_000_000),
            removes_timelines: true,
        }),
        ..Delta::default()
    }
}

/// Returns the stored bytes of a golden. Writes the file first if it is missing, the encoder writes this version, and
/// `TIDELINE_WRITE_GOLDENS` is set.
fn stored<T>(golden: &Golden<T>, encode: impl Fn(&T) -> Vec<u8>) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let path = folder.join(golden.name).with_extension("bin");
    if golden.current && !path.exists() && std::env::var_os("TIDELINE_WRITE_GOLDENS").is_some() {
        std::fs::write(&path, encode(&(golden.content)())).expect("the folder can be written");
    }
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn goldens_of_chunks_still_open() {
    for golden in &CHUNKS {
        let bytes = stored(golden, |(run, options)| encoded_with(run, options));
        let (run, options) = (golden.content)();
        let chunk = Chunk::open(&bytes).expect(golden.name);
        assert_eq!(chunk.sequences(), sequences(7, 4_000), "{}", golden.name);
        assert_eq!(chunk.to_run().as_ref(), Ok(&run), "{}", golden.name);
        if let Some(width) = options.summaries {
            assert!(check_bytes(&bytes, &run, width), "{}", golden.name);
        }
        if golden.current {
            assert!(
                encoded_with(&run, &options) == bytes,
                "{} is written differently",
                golden.name
            );
        }
    }
}

#[test]
fn goldens_of_deltas_still_open() {
    for golden in &DELTAS {
        let bytes = stored(golden, encoded_delta);
        let content = (golden.content)();
        assert_eq!(Delta::decode(&bytes).as_ref(), Ok(&content), "{}", golden.name);
        if golden.current {
            assert!(
                encoded_delta(&content) == bytes,
                "{} is written differently",
                golden.name
            );
        }
    }
}
