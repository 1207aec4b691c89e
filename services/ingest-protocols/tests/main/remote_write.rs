//! Remote write: both versions decode to the same result, an invalid series is rejected alone, and arbitrary bytes
//! cause no panic.

use proptest::prelude::*;
use tideline_fleet::remote_write::{Exemplar, Histogram, Metadata, Sample, Series, WriteRequest};
use tideline_ingest_protocols::IngestError;
use tideline_ingest_protocols::prometheus::{DecodedSamples, decode_write, decode_write_v2};
use tideline_model::Value;
use tideline_wire::varint;

use crate::native_histograms::integer_histogram;
use crate::support::{NumberingResolver, Row, options, rows, words};

pub(crate) const STALE: u64 = 0x7ff0_0000_0000_0002;
pub(crate) const MILLIS: i64 = 1_700_000_000_123;

pub(crate) fn labels(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

fn series(pairs: &[(&str, &str)], samples: &[(f64, i64)]) -> Series {
    let sample = |&(value, millis): &(f64, i64)| Sample {
        value,
        millis,
        start: 0,
    };
    Series {
        labels: labels(pairs),
        samples: samples.iter().map(sample).collect(),
        ..Series::default()
    }
}

pub(crate) fn request(series: Vec<Series>) -> WriteRequest {
    WriteRequest {
        series,
        metadata: Vec::new(),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

pub(crate) const BOTH: [Version; 2] = [Version::V1, Version::V2];

pub(crate) fn read(version: Version, body: &[u8]) -> Result<(DecodedSamples, Vec<Row>), IngestError> {
    let mut resolver = NumberingResolver::default();
    let decoded = match version {
        Version::V1 => decode_write(body, &options(), &mut resolver),
        Version::V2 => decode_write_v2(body, &options(), &mut resolver, &|_, _, _, _| false),
    }?;
    let rows = rows(&decoded.batch, &resolver);
    Ok((decoded, rows))
}

pub(crate) fn sent(version: Version, request: &WriteRequest) -> (DecodedSamples, Vec<Row>) {
    let body = match version {
        Version::V1 => request.to_v1(),
        Version::V2 => request.to_v2(),
    };
    read(version, &body).expect("a message")
}

pub(crate) fn reasons(decoded: &DecodedSamples) -> Vec<(u32, &str)> {
    let rejects = decoded.batch.rejects.iter();
    rejects.map(|reject| (reject.line, words(reject))).collect()
}

#[test]
fn a_series_is_a_timeline_and_its_values_keep_their_bits() {
    let values = [
        1.5,
        -0.0,
        f64::INFINITY,
        f64::from_bits(STALE),
        f64::from_bits(0x7ff8_0000_dead_beef),
    ];
    let samples: Vec<(f64, i64)> = values
        .iter()
        .zip(0..)
        .map(|(value, at)| (*value, MILLIS + at))
        .collect();
    let up = series(
        &[("__name__", "up"), ("job", "node"), ("path", "C:\\\n")],
        &samples,
    );
    for version in BOTH {
        let (decoded, rows) = sent(version, &request(vec![up.clone()]));
        assert_eq!(decoded.counts.samples, 5);
        assert_eq!(decoded.batch.groups.len(), 1);
        for (row, (value, millis)) in rows.iter().zip(&samples) {
            assert_eq!(row.identity.measurement(), "up");
            assert_eq!(row.identity.tag("path"), Some("C:\\\n"));
            assert_eq!(row.nanos, millis * 1_000_000);
            assert_eq!(
                row.fields,
                [("value".to_owned(), Value::Float(*value))],
                "{version:?}"
            );
        }
    }
}

#[test]
fn both_versions_name_a_series_by_the_same_key() {
    let request = request(vec![series(
        &[("__name__", "up"), ("job", "node")],
        &[(1.0, MILLIS)],
    )]);
    let mut resolver = NumberingResolver::default();
    decode_write(&request.to_v1(), &options(), &mut resolver).expect("a message");
    decode_write_v2(&request.to_v2(), &options(), &mut resolver, &|_, _, _, _| false).expect("a message");
    assert_eq!(resolver.keys(), 1);
}

#[test]
fn labels_shared_with_the_series_before_are_those_of_each() {
    let all = [
        vec![("__name__", "a"), ("device", "x"), ("job", "node"), ("zone", "1")],
        vec![("__name__", "b"), ("device", "x"), ("job", "node"), ("zone", "1")],
        vec![("__name__", "b"), ("device", "x"), ("job", "node"), ("zone", "1")],
        vec![("__name__", "a"), ("zone", "1")],
        vec![("__name__", "a"), ("x", "1"), ("x", "2"), ("zone", "1")],
        vec![("__name__", "a"), ("job", "node"), ("zone", "1")],
        vec![("zone", "1"), ("__name__", "a"), ("job", "node")],
        vec![("__name__", "c"), ("job", "node")],
    ];
    let all = request(all.iter().map(|pairs| series(pairs, &[(1.0, MILLIS)])).collect());
    assert_eq!(sent(Version::V2, &all).1, sent(Version::V1, &all).1);
    assert_eq!(
        reasons(&sent(Version::V2, &all).0),
        [(5, "duplicate label \"x\"")]
    );
}

#[test]
fn labels_may_come_in_any_order_and_among_samples() {
    let one = series(&[("job", "node"), ("__name__", "up")], &[(1.0, MILLIS)]).labels;
    let mut message = vec![0x12, 11, 0x10];
    varint::put(MILLIS as u64, &mut message);
    message.extend([0x0a, 11, 0x0a, 3]);
    message.extend(b"job\x12\x04node");
    message.extend([0x0a, 14, 0x0a, 8]);
    message.extend(b"__name__\x12\x02up");
    message[1] = message.len() as u8 - 2 - 13 - 16;
    let mut body = vec![0x0a, message.len() as u8];
    body.extend(message);
    let (_, rows) = read(Version::V1, &body).expect("a message");
    let sorted = request(vec![Series {
        labels: one,
        samples: vec![Sample {
            value: 0.0,
            millis: MILLIS,
            start: 0,
        }],
        ..Series::default()
    }]);
    assert_eq!(rows, sent(Version::V1, &sorted).1);
}

#[test]
fn a_wrong_series_rejects_itself_alone_and_what_was_stored_is_counted() {
    let good = |name: &str| series(&[("__name__", name)], &[(1.0, MILLIS), (2.0, MILLIS + 1)]);
    let mut with_exemplar = good("d");
    with_exemplar.exemplars.push(Exemplar {
        labels: labels(&[("trace_id", "abc")]),
        value: 0.25,
        millis: 0,
    });
    for version in BOTH {
        let (decoded, rows) = sent(
            version,
            &request(vec![
                good("a"),
                series(&[("job", "x")], &[(1.0, MILLIS)]),
                series(&[("__name__", "b"), ("x", "1"), ("x", "2")], &[(1.0, MILLIS)]),
                series(&[("__name__", "c"), ("x", "")], &[(1.0, MILLIS)]),
                series(&[("__name__", "c")], &[(1.0, i64::MAX)]),
                with_exemplar.clone(),
            ]),
        );
        assert_eq!(
            reasons(&decoded),
            [
                (3, "the metric has no name (label \"__name__\")"),
                (4, "duplicate label \"x\""),
                (5, "label \"x\" has an empty value"),
                (6, "time 9223372036854775807 ms is out of range"),
            ]
        );
        assert_eq!(decoded.batch.rejects[0].excerpt, "{job=\"x\"}");
        assert_eq!((decoded.counts.samples, decoded.counts.exemplars), (4, 1));
        let exemplar = rows
            .iter()
            .find(|row| row.fields[0].0 == "_exemplar")
            .expect("an exemplar");
        let text = r#"{"labels":{"trace_id":"abc"},"value":0.25}"#;
        assert_eq!(exemplar.fields[0].1, Value::String(text.into()));
        assert_eq!(
            exemplar.nanos,
            (MILLIS + 1) * 1_000_000,
            "without a timestamp it gets that of its sample"
        );
        // The counts can be corrected for rows of the batch that are rejected later.
        let stored = decoded.stored([1, exemplar.line]);
        assert_eq!((stored.samples, stored.exemplars), (3, 0));
    }
}

#[test]
fn what_refers_to_no_symbol_is_refused_by_series() {
    let good = series(&[("__name__", "a")], &[(1.0, MILLIS)]);
    let mut body = request(vec![good]).to_v2();
    let sample = [0x12, 2, 0x10, 1];
    for refs in [&[1, 2, 1][..], &[1, 99]] {
        let mut message = vec![0x0a, refs.len() as u8];
        message.extend(refs);
        message.extend(sample);
        body.extend([0x2a, message.len() as u8]);
        body.extend(message);
    }
    // Metadata with an invalid unit reference, and a series without samples.
    body.extend([0x2a, 12, 0x0a, 2, 1, 2, 0x12, 2, 0x10, 1, 0x2a, 2, 0x20, 99]);
    body.extend([0x2a, 4, 0x0a, 2, 1, 2]);
    let (decoded, rows) = read(Version::V2, &body).expect("a message");
    assert_eq!(rows.len(), 1);
    assert_eq!(
        reasons(&decoded),
        [
            (2, "labels_refs has 3 entries, which is not a multiple of two"),
            (3, "labels_refs 99 is outside of the table of 3 symbols"),
            (4, "unit_ref 99 is outside of the table of 3 symbols"),
            (5, "a series must have at least one sample or histogram"),
        ]
    );
    let symbols_without_the_empty_one = [0x22, 1, b'a'];
    assert!(read(Version::V2, &symbols_without_the_empty_one).is_err());
}

#[test]
fn start_times_and_metadata_come_with_a_series() {
    let mut counter = series(&[("__name__", "requests_total")], &[]);
    counter.samples.push(Sample {
        value: 7.0,
        millis: MILLIS,
        start: MILLIS - 1_000,
    });
    counter.metadata = Some(Metadata {
        kind: 1,
        help: "Requests.".into(),
        unit: "requests".into(),
        ..Metadata::default()
    });
    let mut bucket = series(&[("__name__", "latency_bucket"), ("le", "1")], &[(3.0, MILLIS)]);
    bucket.metadata = Some(Metadata {
        kind: 3,
        ..Metadata::default()
    });
    let request_v2 = request(vec![counter, bucket.clone(), bucket]);
    let asked = std::cell::Cell::new(0);
    let is_known = |name: &str, kind: &str, help: &str, unit: &str| {
        asked.set(asked.get() + 1);
        (name, kind, help, unit) == ("latency", "histogram", "", "")
    };
    let mut resolver = NumberingResolver::default();
    let new = decode_write_v2(&request_v2.to_v2(), &options(), &mut resolver, &is_known).expect("a message");
    assert_eq!(
        (new.metadata.len(), asked.get()),
        (1, 2),
        "known metadata is checked once and skipped"
    );
    let (decoded, rows) = sent(Version::V2, &request_v2);
    assert_eq!(
        rows[0].fields,
        [
            ("value".to_owned(), Value::Float(7.0)),
            ("_start".to_owned(), Value::Signed(MILLIS - 1_000)),
        ]
    );
    let metadata: Vec<(&str, &str, &str, &str)> = decoded
        .metadata
        .iter()
        .map(|one| (&*one.name, one.kind, &*one.help, &*one.unit))
        .collect();
    assert_eq!(
        metadata,
        [
            ("requests_total", "counter", "Requests.", "requests"),
            ("latency", "histogram", "", "")
        ]
    );
    let alone = WriteRequest {
        series: Vec::new(),
        metadata: vec![Metadata {
            kind: 2,
            name: "up".into(),
            help: "Whether it is.".into(),
            unit: String::new(),
        }],
    };
    let (decoded, rows) = sent(Version::V1, &alone);
    assert!(rows.is_empty());
    assert_eq!(
        (decoded.metadata[0].kind, &*decoded.metadata[0].name),
        ("gauge", "up")
    );
}

#[test]
fn empty_metadata_is_no_description() {
    let mut first = series(&[("__name__", "up"), ("job", "a")], &[(1.0, MILLIS)]);
    first.metadata = Some(Metadata {
        kind: 2,
        help: "Whether it is.".into(),
        ..Metadata::default()
    });
    let mut second = series(&[("__name__", "up"), ("job", "b")], &[(1.0, MILLIS)]);
    second.metadata = Some(Metadata::default());
    let mut other = series(&[("__name__", "down")], &[(1.0, MILLIS)]);
    other.metadata = Some(Metadata::default());
    let (decoded, rows) = sent(Version::V2, &request(vec![first, second, other]));
    assert_eq!(rows.len(), 3);
    let metadata: Vec<(&str, &str, &str)> = decoded
        .metadata
        .iter()
        .map(|one| (&*one.name, one.kind, &*one.help))
        .collect();
    assert_eq!(metadata, [("up", "gauge", "Whether it is.")]);
}

#[test]
fn hundreds_of_names_in_turn_are_one_group() {
    let name = |at: usize| format!("metric_{}", at % 300);
    let all = (0..3_000).map(|at| {
        series(
            &[("__name__", &name(at)), ("i", &at.to_string())],
            &[(at as f64, MILLIS)],
        )
    });
    for version in BOTH {
        let (decoded, rows) = sent(version, &request(all.clone().collect()));
        let [group] = &*decoded.batch.groups else {
            panic!("one shape: {}", decoded.batch.groups.len());
        };
        assert_eq!(group.measurements.names().len(), 300);
        assert!(
            rows.iter()
                .enumerate()
                .all(|(at, row)| row.identity.measurement() == name(at))
        );
    }
}

#[test]
fn a_body_that_is_cut_off_names_no_series() {
    let request = request(vec![
        series(&[("__name__", "a")], &[(1.0, MILLIS)]),
        series(&[("__name__", "b")], &[(1.0, MILLIS)]),
    ]);
    for version in BOTH {
        let body = match version {
            Version::V1 => request.to_v1(),
            Version::V2 => request.to_v2(),
        };
        for end in 1..body.len() {
            let mut resolver = NumberingResolver::default();
            let decoded = match version {
                Version::V1 => decode_write(&body[..end], &options(), &mut resolver),
                Version::V2 => decode_write_v2(&body[..end], &options(), &mut resolver, &|_, _, _, _| false),
            };
            let names = decoded.map_or(0, |decoded| decoded.batch.rows());
            assert!(names < 2, "{version:?} cut at {end}");
            if names == 0 {
                assert!(resolver.identities.is_empty(), "{version:?} cut at {end}");
            }
        }
    }
}

#[test]
fn a_series_that_is_no_message_is_refused_with_its_request() {
    for field in [1, 3, 4, 5] {
        let body = [field << 3, 1];
        let wrong = |version| read(version, &body).is_err();
        assert_eq!(wrong(Version::V1), matches!(field, 1 | 3));
        assert_eq!(wrong(Version::V2), matches!(field, 4 | 5));
    }
}

#[test]
fn rows_stay_within_the_size_of_the_body() {
    // A million samples of two bytes each, and 200,000 series that refer to one long label.
    let mut message = vec![0x0a, 12, 0x0a, 8];
    message.extend(b"__name__\x12\x00");
    message[1] = 12;
    message.extend([0x12, 0].repeat(1_000_000));
    let mut body = vec![0x0a];
    varint::put(message.len() as u64, &mut body);
    body.extend(message);
    let (decoded, _) = read(Version::V1, &body).expect("a message");
    assert_eq!(decoded.batch.rows(), 0, "the series has no name");
    let mut message = vec![0x0a, 13, 0x0a, 8];
    message.extend(b"__name__\x12\x01m");
    message.extend([0x12, 0].repeat(1_000_000));
    let mut body = vec![0x0a];
    varint::put(message.len() as u64, &mut body);
    body.extend(message);
    let (decoded, _) = read(Version::V1, &body).expect("a message");
    assert!(
        decoded.batch.rows() <= body.len() / 8 + 16,
        "{}",
        decoded.batch.rows()
    );
    assert!(decoded.batch.rejects.len() <= 100_001);
    let mut body = vec![0x22, 0, 0x22, 8];
    body.extend(b"__name__\x22");
    varint::put(60_000_000, &mut body);
    body.resize(body.len() + 60_000_000, b'x');
    body.extend([0x2a, 8, 0x0a, 2, 1, 2, 0x12, 2, 0x10, 1].repeat(200_000));
    let (decoded, _) = read(Version::V2, &body).expect("a message");
    assert_eq!(decoded.batch.rows(), 0);
    assert!(words(&decoded.batch.rejects[0]).starts_with("label too large"));
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(512))]

    /// Arbitrary bytes, and a valid request with some changed bytes, are decoded or rejected without a panic.
    #[test]
    fn no_bytes_do_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut one = series(&[("__name__", "a"), ("b", "c")], &[(1.0, MILLIS)]);
        one.histograms.push(Histogram { custom_values: vec![1.0], ..integer_histogram() });
        one.exemplars.push(Exemplar { labels: labels(&[("t", "u")]), value: 1.0, millis: 5 });
        one.metadata = Some(Metadata { kind: 1, help: "h".into(), ..Metadata::default() });
        let request = WriteRequest {
            series: vec![one.clone(), one],
            metadata: vec![Metadata { kind: 2, name: "a".into(), ..Metadata::default() }],
        };
        for (version, mut body) in [(Version::V1, request.to_v1()), (Version::V2, request.to_v2())] {
            let _ = read(version, &bytes);
            for (at, byte) in &changes {
                let at = at.index(body.len());
                body[at] = *byte;
            }
            let _ = read(version, &body);
        }
    }
}
