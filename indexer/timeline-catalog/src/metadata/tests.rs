//! Tests of metadata of metrics: merging, replacement, limits, and the row format.
//!
//! The row format is checked against golden bytes, because rows are stored on disk.

use bytes::Bytes;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_backend::{BackendError, RowChange};

use tideline_key_codec::{named_key, table_rows};

use super::*;
use crate::ChangeLog;
use crate::change::tests::{Journal, catalog, options, save};
use crate::unsaved_rows::tests::assert_added_under_lock;

const SECOND: i64 = 1_000_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_nanos_clamped(second * SECOND)
}

/// Returns an in-memory backend, and a source of ascending stamps.
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

/// Rows are stored on disk: these bytes must remain readable forever.
#[test]
fn golden_row() {
    let known = StoredMetadata::of(&metric("up", MetricKind::Gauge, "Is it up?", "s"));
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
fn a_metric_is_unsaved_only_once_no_flush_can_write_its_old_row() {
    let metadata = MetadataOfMetrics::new(TableId(7));
    let known = StoredMetadata::of(&metric("up", MetricKind::Gauge, "Is it up?", ""));
    let apply = || metadata.apply(vec![("up".into(), known)]);
    assert_added_under_lock(&metadata.remembered, &metadata.unsaved, apply);
}

#[test]
fn what_is_said_is_replayed_and_saved_and_what_is_known_is_not_written_again() {
    let (backend, mut stamp) = backend();
    let journal = Journal::default();
    let kept = catalog(TableId(7));
    let given = [
        metric("b", MetricKind::Counter, "old", ""),
        metric("a", MetricKind::Unknown, "", "bytes"),
        metric("b", MetricKind::Counter, "new", ""),
        metric("", MetricKind::Counter, "no one", ""),
        metric(&"n".repeat(1_025), MetricKind::Counter, "long", ""),
        metric("long", MetricKind::Info, &"ä".repeat(2_000), &"ü".repeat(65)),
    ];
    for (given, left_out) in [(&given[..], 2), (&given[1..3], 0), (&given[5..], 0)] {
        assert_eq!(put(&kept, given, 0, &journal), left_out);
    }
    assert_eq!(journal.entries().len(), 1, "one entry for all that was new");
    let load = |table| Catalog::load(&backend, TableId(table), options()).expect("sound rows");
    for is_saved in [false, true] {
        if is_saved {
            save(&kept, &backend, &mut stamp).expect("written");
        }
        let loaded = load(7);
        if is_saved {
            assert_eq!(loaded.metadata().all(), kept.metadata().all());
        }
        journal.replay(&loaded);
        let loaded = loaded.metadata();
        assert_eq!(loaded.all(), kept.metadata().all());
        assert_eq!(loaded.get("b"), Some(given[2].clone()));
        assert_eq!(loaded.get("a"), Some(given[1].clone()));
        let long = loaded.get("long").expect("known");
        assert_eq!((long.help.len(), long.unit.len()), (2_048, 128));
    }
    let others = catalog(TableId(8));
    put(&others, &given[..1], 0, &journal);
    save(&others, &backend, &mut stamp).expect("written");
    Catalog::remove_all(&backend, TableId(7), &ChangeLog::default(), &mut stamp).expect("written");
    for (table, left) in [(7, 0), (8, 1)] {
        assert_eq!(load(table).metadata().all().len(), left);
    }
}

/// Stores metadata at the given second and returns the number of dropped items.
fn put(catalog: &Arc<Catalog>, given: &[MetricMetadata], second: i64, journal: &Journal) -> usize {
    let left_out = catalog.put_metadata(given, at(second), &journal.commit());
    left_out.expect("committed")
}

#[test]
fn there_is_an_end_to_how_many_are_remembered() {
    let (journal, kept) = (Journal::default(), catalog(TableId(7)));
    let many = (0..METRICS_MAX + 3).map(|at| metric(&format!("m{at}"), MetricKind::Gauge, "", ""));
    let many: Vec<MetricMetadata> = many.collect();
    assert_eq!(put(&kept, &many, 0, &journal), 3);
    assert_eq!(kept.metadata().all().len(), METRICS_MAX);
    assert!(journal.entries().iter().all(|entry| entry.len() < 2 << 20));
    let changed = metric("m0", MetricKind::Counter, "", "");
    assert_eq!(put(&kept, std::slice::from_ref(&changed), 0, &journal), 0);
    assert_eq!(kept.metadata().get("m0"), Some(changed));
}

#[test]
fn senders_that_disagree_cost_a_write_a_minute() {
    let (journal, kept) = (Journal::default(), catalog(TableId(7)));
    let given = |kind: MetricKind, help: &str, unit: &str| [metric("m", kind, help, unit)];
    let put = |metrics: &[MetricMetadata], second: i64| {
        assert_eq!(put(&kept, metrics, second, &journal), 0);
        let known = kept.metadata().get("m").expect("known");
        (known.kind, known.help, known.unit)
    };
    let (one, other) = (
        given(MetricKind::Counter, "One.", "s"),
        given(MetricKind::Counter, "Other.", "s"),
    );
    for second in 0..=150 {
        let (_, first, _) = put(&one, second);
        let (_, second_help, _) = put(&other, second);
        if second == 0 {
            assert_eq!((&*first, &*second_help), ("One.", "Other."));
        }
    }
    // Four writes: both values at 0 s, and one replacement each at 60 s and at 120 s.
    assert_eq!(journal.entries().len(), 4);
}

#[test]
fn nothing_takes_the_place_of_something() {
    let (journal, kept) = (Journal::default(), catalog(TableId(7)));
    let put = |kind: MetricKind, help: &str, unit: &str| {
        put(&kept, &[metric("m", kind, help, unit)], 0, &journal);
        let known = kept.metadata().get("m").expect("known");
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
    let known = kept.metadata();
    assert!(known.knows("m", MetricKind::Unknown, "", "bytes"));
    assert!(!known.knows("m", MetricKind::Gauge, "", ""));
    let replayed = catalog(TableId(7));
    journal.replay(&replayed);
    assert_eq!(replayed.metadata().all(), known.all());
}

#[test]
fn a_damaged_row_is_skipped_reported_and_written_anew() {
    let (backend, mut stamp) = backend();
    let journal = Journal::default();
    let table = TableId(7);
    let given = [
        metric("a", MetricKind::Gauge, "A.", ""),
        metric("b", MetricKind::Gauge, "B.", ""),
    ];
    let kept = catalog(table);
    put(&kept, &given, 0, &journal);
    save(&kept, &backend, &mut stamp).expect("written");
    let (partition, _) = table_rows(space::METADATA, table);
    let damaged = RowChange {
        key: named_key(table, b"a").into(),
        value: Some(Bytes::from_static(b"nothing that was written")),
    };
    backend
        .write(
            partition,
            &[damaged],
            stamp().expect("a stamp"),
            tideline_model::Durability::Synced,
        )
        .expect("written");
    let findings = || {
        let mut findings = Vec::new();
        MetadataOfMetrics::check(&backend, table, &mut |error| findings.push(error.to_string()))
            .expect("read");
        findings
    };
    assert_eq!(findings(), ["the metadata row of metric \"a\" is damaged"]);
    let loaded = Arc::new(Catalog::load(&backend, table, options()).expect("it starts"));
    assert_eq!(loaded.metadata().all(), given[1..]);
    put(&loaded, &given, 0, &journal);
    save(&loaded, &backend, &mut stamp).expect("written");
    assert_eq!(
        (loaded.metadata().all(), findings()),
        (given.to_vec(), Vec::new())
    );
}

#[test]
fn what_could_not_be_written_is_written_by_the_next_save() {
    let (backend, mut stamp) = backend();
    let (journal, kept) = (Journal::default(), catalog(TableId(7)));
    put(&kept, &[metric("a", MetricKind::Gauge, "A.", "")], 0, &journal);
    kept.put_search("mine", "{}", &journal.commit())
        .expect("committed");
    let mut failing = || {
        let reason = "planned".to_owned();
        Err(BackendError::Unknown { reason })
    };
    save(&kept, &backend, &mut failing).expect_err("no stamp");
    save(&kept, &backend, &mut stamp).expect("written");
    let loaded = Catalog::load(&backend, TableId(7), options()).expect("sound rows");
    assert_eq!(loaded.metadata().all(), kept.metadata().all());
    assert_eq!(loaded.searches().all(), kept.searches().all());
}

#[test]
fn there_is_an_end_to_the_bytes_that_are_remembered() {
    let (journal, kept) = (Journal::default(), catalog(TableId(7)));
    let help = "x".repeat(HELP_BYTES_MAX);
    let many = (0..20_000).map(|at| metric(&format!("m{at:0>5}"), MetricKind::Gauge, &help, ""));
    let many: Vec<MetricMetadata> = many.collect();
    let fitting = METADATA_BYTES_MAX / (METRIC_BYTES + 6 + HELP_BYTES_MAX);
    let left_out = put(&kept, &many, 0, &journal);
    assert_eq!(
        (kept.metadata().all().len(), left_out),
        (fitting, 20_000 - fitting)
    );
    // Metadata that is smaller than the replaced metadata still fits.
    let shorter = metric("m00000", MetricKind::Gauge, "short", "");
    assert_eq!(put(&kept, std::slice::from_ref(&shorter), 0, &journal), 0);
    assert_eq!(kept.metadata().get("m00000"), Some(shorter));
    // There is room for one more metric now, but not for two.
    assert_eq!(put(&kept, &many[fitting..fitting + 2], 0, &journal), 1);
    assert_eq!(kept.metadata().all().len(), fitting + 1);
}
