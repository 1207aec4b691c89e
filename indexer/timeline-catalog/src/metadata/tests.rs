//! What is said of metrics: what stays, what gives way, what is left out, and the bytes of a row.

use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};

use super::*;

const SECOND: i64 = 1_000_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_nanos_clamped(second * SECOND)
}

/// A disk, and stamps in their order.
fn backend() -> (MemoryBackend, impl FnMut() -> tideline_backend::Result<Stamp>) {
    let mut stamps = 0;
    let stamp = move || {
        stamps += 1;
        Ok(Stamp(stamps))
    };
    (MemoryBackend::open(&MemoryDisk::new(Character::Embedded)), stamp)
}

fn metric(name: &str, kind: MetricKind, help: &str, unit: &str) -> MetricMetadata {
    MetricMetadata {
        name: name.into(),
        kind,
        help: help.into(),
        unit: unit.into(),
    }
}

/// Rows are on disk: these bytes must open for ever.
#[test]
fn golden_row() {
    let known = Known::of(&metric("up", MetricKind::Gauge, "Is it up?", "s"));
    let row = encode("up", &known);
    let golden = [&[1, 2, 1][..], b"sIs it up?", &[135, 35, 87, 125]].concat();
    assert_eq!(row, golden);
    assert_eq!(decode("up", &golden), Some(known));
    assert_eq!(decode("down", &golden), None, "a row belongs to its name");
    for at in 0..golden.len() * 8 {
        let mut flipped = golden.clone();
        flipped[at / 8] ^= 1 << (at % 8);
        assert_eq!(decode("up", &flipped), None, "bit {at}");
    }
}

#[test]
fn kinds_are_read_as_they_are_written() {
    for (at, kind) in MetricKind::ALL.into_iter().enumerate() {
        assert_eq!((MetricKind::parse(kind.name()), kind as usize), (Some(kind), at));
    }
    assert_eq!(MetricKind::parse("untyped"), Some(MetricKind::Unknown));
    assert_eq!(MetricKind::parse("thing"), None);
}

#[test]
fn what_is_said_is_durable_and_what_is_known_is_not_written_again() {
    let disk = MemoryDisk::new(Character::Embedded);
    let backend = MemoryBackend::open(&disk);
    let mut writes = 0;
    let mut stamp = || {
        writes += 1;
        Ok(Stamp(writes))
    };
    let kept = MetadataOfMetrics::new(TableId(7));
    let said = [
        metric("b", MetricKind::Counter, "old", ""),
        metric("a", MetricKind::Unknown, "", "bytes"),
        metric("b", MetricKind::Counter, "new", ""),
        metric("", MetricKind::Counter, "nobody", ""),
        metric(&"n".repeat(1_025), MetricKind::Counter, "long", ""),
        metric("long", MetricKind::Info, &"ä".repeat(2_000), &"ü".repeat(65)),
    ];
    assert_eq!(kept.put(&backend, &said, at(0), &mut stamp).expect("written"), 2);
    assert_eq!(
        kept.put(&backend, &said[1..3], at(0), &mut stamp)
            .expect("written"),
        0
    );
    assert_eq!(
        kept.put(&backend, &said[5..], at(0), &mut stamp)
            .expect("written"),
        0
    );
    let loaded = MetadataOfMetrics::new(TableId(7));
    loaded.load(&backend).expect("sound rows");
    assert_eq!(loaded.all(), kept.all());
    assert_eq!(loaded.get("b"), Some(said[2].clone()));
    assert_eq!(loaded.get("a"), Some(said[1].clone()));
    let long = loaded.get("long").expect("known");
    assert_eq!((long.help.len(), long.unit.len()), (2_048, 128));
    let others = MetadataOfMetrics::new(TableId(8));
    others
        .put(&backend, &said[..1], at(0), &mut stamp)
        .expect("written");
    MetadataOfMetrics::remove_all(&backend, TableId(7), &mut stamp).expect("written");
    for (table, left) in [(7, 0), (8, 1)] {
        let loaded = MetadataOfMetrics::new(TableId(table));
        loaded.load(&backend).expect("sound rows");
        assert_eq!(loaded.all().len(), left);
    }
    // One write for all that was new, one for the other table, one to remove.
    assert_eq!(writes, 3);
}

#[test]
fn there_is_an_end_to_how_many_are_remembered() {
    let (backend, mut stamp) = backend();
    let kept = MetadataOfMetrics::new(TableId(7));
    let many = (0..METRICS_MAX + 3).map(|at| metric(&format!("m{at}"), MetricKind::Gauge, "", ""));
    let many: Vec<MetricMetadata> = many.collect();
    assert_eq!(kept.put(&backend, &many, at(0), &mut stamp).expect("written"), 3);
    assert_eq!(kept.all().len(), METRICS_MAX);
    let changed = metric("m0", MetricKind::Counter, "", "");
    assert_eq!(
        kept.put(&backend, std::slice::from_ref(&changed), at(0), &mut stamp)
            .expect("written"),
        0
    );
    assert_eq!(kept.get("m0"), Some(changed));
}

#[test]
fn senders_that_disagree_cost_a_write_a_minute() {
    let (backend, mut stamp) = backend();
    let mut writes = 0;
    let mut stamp = || {
        writes += 1;
        stamp()
    };
    let kept = MetadataOfMetrics::new(TableId(7));
    let said = |kind: MetricKind, help: &str, unit: &str| [metric("m", kind, help, unit)];
    let mut put = |metrics: &[MetricMetadata], second: i64| {
        let left_out = kept.put(&backend, metrics, at(second), &mut stamp);
        assert_eq!(left_out.expect("written"), 0);
        let known = kept.get("m").expect("known");
        (known.kind, known.help, known.unit)
    };
    let (one, other) = (
        said(MetricKind::Counter, "One.", "s"),
        said(MetricKind::Counter, "Other.", "s"),
    );
    for second in 0..=150 {
        let (_, first, _) = put(&one, second);
        let (_, second_help, _) = put(&other, second);
        if second == 0 {
            assert_eq!((&*first, &*second_help), ("One.", "Other."));
        }
    }
    // One at first, and at 0 s, 60 s and 120 s what the other has said.
    assert_eq!(writes, 4);
}

#[test]
fn nothing_takes_the_place_of_something() {
    let (backend, mut stamp) = backend();
    let kept = MetadataOfMetrics::new(TableId(7));
    let mut put = |kind: MetricKind, help: &str, unit: &str| {
        let said = [metric("m", kind, help, unit)];
        kept.put(&backend, &said, at(0), &mut stamp).expect("written");
        let known = kept.get("m").expect("known");
        (known.kind, known.help, known.unit)
    };
    put(MetricKind::Unknown, "Bytes.", "");
    assert_eq!(
        put(MetricKind::Counter, "", ""),
        (MetricKind::Counter, "Bytes.".into(), String::new())
    );
    let whole = (MetricKind::Counter, "Bytes.".into(), "bytes".into());
    assert_eq!(put(MetricKind::Unknown, "", "bytes"), whole);
    assert_eq!(put(MetricKind::Unknown, "", ""), whole);
    assert!(kept.knows("m", MetricKind::Unknown, "", "bytes"));
    assert!(!kept.knows("m", MetricKind::Gauge, "", ""));
    let loaded = MetadataOfMetrics::new(TableId(7));
    loaded.load(&backend).expect("sound rows");
    assert_eq!(loaded.all(), kept.all());
}

#[test]
fn a_damaged_row_is_passed_over_told_and_written_anew() {
    let (backend, mut stamp) = backend();
    let table = TableId(7);
    let said = [
        metric("a", MetricKind::Gauge, "A.", ""),
        metric("b", MetricKind::Gauge, "B.", ""),
    ];
    let kept = MetadataOfMetrics::new(table);
    kept.put(&backend, &said, at(0), &mut stamp).expect("written");
    let (partition, _) = table_rows(space::METADATA, table);
    let damaged = RowChange {
        key: named_key(table, b"a").into(),
        value: Some(Bytes::from_static(b"nothing that was written")),
    };
    backend
        .write(partition, &[damaged], stamp().expect("a stamp"))
        .expect("written");
    let findings = || {
        let mut findings = Vec::new();
        MetadataOfMetrics::check(&backend, table, &mut |error| findings.push(error.to_string()))
            .expect("read");
        findings
    };
    assert_eq!(findings(), ["the row of the metadata of metric \"a\" is damaged"]);
    let loaded = MetadataOfMetrics::new(table);
    loaded.load(&backend).expect("it starts");
    assert_eq!(loaded.all(), said[1..]);
    loaded.put(&backend, &said, at(0), &mut stamp).expect("written");
    assert_eq!((loaded.all(), findings()), (said.to_vec(), Vec::new()));
}

#[test]
fn there_is_an_end_to_the_bytes_that_are_remembered() {
    let (backend, mut stamp) = backend();
    let kept = MetadataOfMetrics::new(TableId(7));
    let help = "x".repeat(HELP_BYTES_MAX);
    let many = (0..20_000).map(|at| metric(&format!("m{at:0>5}"), MetricKind::Gauge, &help, ""));
    let many: Vec<MetricMetadata> = many.collect();
    let fitting = METADATA_BYTES_MAX / (METRIC_BYTES + 6 + HELP_BYTES_MAX);
    let left_out = kept.put(&backend, &many, at(0), &mut stamp).expect("written");
    assert_eq!((kept.all().len(), left_out), (fitting, 20_000 - fitting));
    // What takes less room than what it replaces has a place still.
    let shorter = metric("m00000", MetricKind::Gauge, "short", "");
    let left_out = kept.put(&backend, std::slice::from_ref(&shorter), at(0), &mut stamp);
    assert_eq!(
        (left_out.expect("written"), kept.get("m00000")),
        (0, Some(shorter))
    );
    // There is room for another one now, and not for two.
    let left_out = kept.put(&backend, &many[fitting..fitting + 2], at(0), &mut stamp);
    assert_eq!((left_out.expect("written"), kept.all().len()), (1, fitting + 1));
}
