//! Benchmarks of the embedded backend: journal append and recovery, loads, opens.
//!
//! `cargo bench -p tideline-backend-fjall` prints one line per measurement. `TMPDIR` selects the disk to measure.

use std::time::Instant;

use bytes::Bytes;
use tideline_backend::{
    Backend, Direction, JournalEntry, KeyRange, PageLimit, Partition, Row, RowChange, SegmentRef, Shard,
    Space, Stamp,
};
use tideline_backend_fjall::{FjallBackend, FjallOptions};
use tideline_model::{Durability, GroupId, SegmentId, SequenceNumber, Tier};

const SHARD: Shard = Shard(0);
const DELTA_BYTES: usize = 64 << 10;
const DELTAS: u64 = 6_000;
const GROUPS: u64 = 200;

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || FjallBackend::open(folder.path(), FjallOptions::default()).expect("open");
    let first_boot = Instant::now();
    let backend = open();
    println!("first boot {:?}", first_boot.elapsed());
    let epoch = backend.take(SHARD).expect("take").epoch;

    let delta = Bytes::from((0..DELTA_BYTES).map(|n| (n * n / 7) as u8).collect::<Vec<_>>());
    let entry = |sequence| JournalEntry {
        sequence: SequenceNumber(sequence),
        value: delta.clone(),
    };
    let mebibytes = ((DELTAS * DELTA_BYTES as u64) >> 20) as f64;
    let appends = Instant::now();
    for sequence in 1..=DELTAS {
        backend
            .append(SHARD, epoch, &[entry(sequence)], Durability::Buffered)
            .expect("append");
    }
    backend.sync_journal(SHARD, epoch).expect("sync");
    println!(
        "append, buffered: {:.0} MiB/s",
        mebibytes / appends.elapsed().as_secs_f64()
    );
    let synced = Instant::now();
    for sequence in DELTAS + 1..=DELTAS + 200 {
        backend
            .append(SHARD, epoch, &[entry(sequence)], Durability::Synced)
            .expect("append");
    }
    println!("append of 64 KiB, synced: {:?} each", synced.elapsed() / 200);

    let row = RowChange {
        key: Bytes::from_static(b"key"),
        value: Some(Bytes::from_static(b"value")),
    };
    let writes = Instant::now();
    for n in 0..200 {
        backend
            .write(
                Partition::space(Space(1), 0),
                std::slice::from_ref(&row),
                Stamp(n),
                Durability::Synced,
            )
            .expect("write");
    }
    println!("write of a row: {:?} each", writes.elapsed() / 200);

    let loads = Instant::now();
    for group in 1..=GROUPS {
        let segment = SegmentRef {
            segment: SegmentId(group),
            group: GroupId(group),
            tier: Tier::Hot,
        };
        let mut rows = (0..200_u32).map(|n| {
            Ok(Row {
                key: Bytes::copy_from_slice(&n.to_be_bytes()),
                value: delta.slice(..2_000),
            })
        });
        backend.load(segment, 0, &mut rows).expect("load");
    }
    println!(
        "load of 200 chunks into a new group: {:?} each",
        loads.elapsed() / GROUPS as u32
    );
    backend.close().expect("close");

    let opens = Instant::now();
    let backend = open();
    println!(
        "open with {GROUPS} groups and {mebibytes} MiB of journal: {:?}",
        opens.elapsed()
    );
    let replays = Instant::now();
    let mut seen = 0;
    backend
        .replay(SHARD, epoch, SequenceNumber(0), &mut |_, _| {
            seen += 1;
            Ok(())
        })
        .expect("replay");
    assert_eq!(seen, DELTAS + 200);
    println!("replay: {:.0} MiB/s", mebibytes / replays.elapsed().as_secs_f64());
    let limit = PageLimit {
        rows_max: usize::MAX,
        bytes_max: usize::MAX,
    };
    let scans = Instant::now();
    for group in 1..=GROUPS {
        let segment = SegmentRef {
            segment: SegmentId(group),
            group: GroupId(group),
            tier: Tier::Hot,
        };
        let page = backend.scan(
            Partition::segment(segment, 0),
            &KeyRange::ALL,
            Direction::Ascending,
            limit,
        );
        assert_eq!(page.expect("scan").rows.len(), 200);
    }
    println!("scan of 200 chunks: {:?} each", scans.elapsed() / GROUPS as u32);
    let forgets = Instant::now();
    backend
        .forget(SHARD, epoch, SequenceNumber(u64::MAX))
        .expect("forget");
    println!("forget: {:?}", forgets.elapsed());
    let closes = Instant::now();
    backend.close().expect("close");
    println!("close: {:?}", closes.elapsed());
    let opens = Instant::now();
    let backend = open();
    println!("open with {GROUPS} groups and no journal: {:?}", opens.elapsed());
    backend.close().expect("close");
}
