//! `MetricFamily` messages: they yield the same samples as the text formats, only invalid metrics are rejected, and
//! arbitrary bytes cause no panic.

use proptest::prelude::*;
use tideline_histogram::{Histogram, ResetHint};
use tideline_ingest_protocols::IngestError;
use tideline_ingest_protocols::prometheus::{DecodedSamples, ImportOptions, decode_metric_families};
use tideline_model::Value;
use tideline_wire::protobuf::PutFields;
use tideline_wire::varint;

use crate::support::{DEFAULT_TIME, NumberingResolver, Row, options, rows, shown, words};

const MILLIS: u64 = 1_700_000_000_123;
const COUNTER: u64 = 0;
const GAUGE: u64 = 1;
const SUMMARY: u64 = 2;
const UNTYPED: u64 = 3;
const HISTOGRAM: u64 = 4;
const GAUGE_HISTOGRAM: u64 = 5;

/// Encodes an integer field.
fn integer(field: u32, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_integer(field, value);
    out
}

/// Encodes a double field.
fn double(field: u32, value: f64) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_fixed64(field, value.to_bits());
    out
}

/// Encodes a string or message field.
fn bytes(field: u32, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_bytes(field, payload.as_ref());
    out
}

fn message(fields: &[Vec<u8>]) -> Vec<u8> {
    fields.concat()
}

fn label(field: u32, name: &str, value: &str) -> Vec<u8> {
    bytes(field, message(&[bytes(1, name), bytes(2, value)]))
}

fn time(field: u32, seconds: u64, nanos: u64) -> Vec<u8> {
    bytes(field, message(&[integer(1, seconds), integer(2, nanos)]))
}

fn family(name: &str, help: &str, kind: u64, metrics: &[Vec<u8>]) -> Vec<u8> {
    let mut fields = vec![bytes(1, name), bytes(2, help), integer(3, kind)];
    fields.extend(metrics.iter().map(|metric| bytes(4, metric)));
    let family = message(&fields);
    let mut out = Vec::new();
    varint::put(family.len() as u64, &mut out);
    out.extend(family);
    out
}

fn read_with(body: &[u8], import: &ImportOptions) -> Result<(DecodedSamples, Vec<Row>), IngestError> {
    let mut resolver = NumberingResolver::default();
    let decoded = decode_metric_families(body, import, &options(), &mut resolver)?;
    let rows = rows(&decoded.batch, &resolver);
    Ok((decoded, rows))
}

fn read(body: &[u8]) -> (DecodedSamples, Vec<Row>) {
    read_with(body, &ImportOptions::default()).expect("metric families")
}

fn reasons(decoded: &DecodedSamples) -> Vec<(&str, &str)> {
    let rejects = decoded.batch.rejects.iter();
    rejects.map(|reject| (&*reject.excerpt, words(reject))).collect()
}

fn exemplar(field: u32, value: f64, at: Option<Vec<u8>>) -> Vec<u8> {
    let fields = [
        label(1, "trace_id", "x"),
        double(2, value),
        at.unwrap_or_default(),
    ];
    bytes(field, message(&fields))
}

/// Returns one family of each simple kind.
fn simple() -> Vec<u8> {
    let created = time(3, 1_700_000_000, 500_000_000);
    let counter = message(&[
        label(1, "code", "200"),
        bytes(
            3,
            message(&[
                double(1, 17.0),
                exemplar(2, 0.5, Some(time(3, 5, 7_000_000))),
                created,
            ]),
        ),
        integer(6, MILLIS),
    ]);
    let gauge = |value| message(&[label(1, "job", "own"), bytes(2, double(1, value))]);
    let summary = message(&[bytes(
        4,
        message(&[
            integer(1, 7),
            double(2, 1.5),
            bytes(3, message(&[double(1, 0.5), double(2, 0.1)])),
            bytes(3, message(&[double(1, 1.0), double(2, 0.9)])),
            time(4, 9, 0),
        ]),
    )]);
    [
        family("requests_total", "Requests.", COUNTER, &[counter]),
        family("heat", "", GAUGE, &[gauge(21.5), gauge(f64::NAN)]),
        family("size", "", SUMMARY, &[summary]),
        family("other", "", UNTYPED, &[bytes(5, double(1, -1.0))]),
    ]
    .concat()
}

#[test]
fn simple_metrics_are_the_samples_of_the_text_formats() {
    let (decoded, rows) = read(&simple());
    let default = DEFAULT_TIME;
    assert_eq!(
        shown(&rows),
        [
            "requests_total{code=200} value=17 _start=1700000000500i @1700000000123000000".to_owned(),
            "requests_total{code=200} _exemplar=String(\"{\\\"labels\\\":{\\\"trace_id\\\":\\\"x\\\"},\\\"value\\\":0.5}\") @5007000000".to_owned(),
            format!("heat{{job=own}} value=21.5 @{default}"),
            format!("heat{{job=own}} value=NaN @{default}"),
            format!("size{{quantile=0.5}} value=0.1 _start=9000i @{default}"),
            format!("size{{quantile=1.0}} value=0.9 _start=9000i @{default}"),
            format!("size_sum{{}} value=1.5 _start=9000i @{default}"),
            format!("size_count{{}} value=7 _start=9000i @{default}"),
            format!("other{{}} value=-1 @{default}"),
        ]
    );
    assert_eq!(reasons(&decoded), []);
    assert_eq!((decoded.counts.samples, decoded.counts.exemplars), (8, 1));
    let metadata = decoded.metadata.iter();
    let metadata = metadata.map(|one| (&*one.name, one.kind, &*one.help));
    assert_eq!(
        metadata.collect::<Vec<_>>(),
        [
            ("requests_total", "counter", "Requests."),
            ("heat", "gauge", ""),
            ("size", "summary", ""),
        ],
        "the other family has no metadata"
    );
}

/// Encodes two classic buckets, without the `+Inf` bucket.
fn classic_buckets() -> Vec<u8> {
    message(&[
        bytes(
            3,
            message(&[integer(1, 3), double(2, 0.1), exemplar(3, 0.05, None)]),
        ),
        bytes(3, message(&[double(4, 5.5), double(2, 1.0)])),
    ])
}

/// Encodes one observation of zero, then buckets with 1, 3 and 2 observations, with a gap before the last bucket.
fn native_buckets() -> Vec<u8> {
    let span = |offset: u64, length| bytes(12, message(&[integer(1, offset << 1), integer(2, length)]));
    message(&[
        integer(5, 4),
        double(6, 0.001),
        integer(7, 1),
        span(0, 2),
        span(1, 1),
        bytes(13, [2, 4, 1]),
    ])
}

fn histogram_of(field: u32, fields: &[Vec<u8>]) -> Vec<u8> {
    bytes(field, message(fields))
}

#[test]
fn classic_histograms_are_series_of_their_own() {
    let count_and_sum = message(&[integer(1, 7), double(2, 18.4), time(15, 1, 0)]);
    let metric = histogram_of(7, &[count_and_sum, classic_buckets()]);
    let (decoded, rows) = read(&family("lag", "", HISTOGRAM, &[metric]));
    let at = format!("_start=1000i @{DEFAULT_TIME}");
    assert_eq!(
        shown(&rows),
        [
            format!("lag_bucket{{le=0.1}} value=3 {at}"),
            format!(
                "lag_bucket{{le=0.1}} _exemplar=String(\"{{\\\"labels\\\":{{\\\"trace_id\\\":\\\"x\\\"}},\\\"value\\\":0.05}}\") @{DEFAULT_TIME}"
            ),
            format!("lag_bucket{{le=1.0}} value=5.5 {at}"),
            format!("lag_bucket{{le=+Inf}} value=7 {at}"),
            format!("lag_sum{{}} value=18.4 {at}"),
            format!("lag_count{{}} value=7 {at}"),
        ]
    );
    assert_eq!(decoded.metadata[0].kind, "histogram");
    // A `+Inf` bucket of the message is not added again: the rows are one bucket, the sum and the count.
    let last = bytes(3, message(&[integer(1, 0), double(2, f64::INFINITY)]));
    let (_, rows) = read(&family("lag", "", HISTOGRAM, &[histogram_of(7, &[last])]));
    assert_eq!(rows.len(), 3);
}

/// Returns the histogram of a row.
fn stored(row: &Row) -> Histogram {
    match &row.fields[0] {
        (name, Value::Histogram(bytes)) if name == "histogram" => {
            Histogram::from_bytes(bytes).expect("a histogram")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn native_histograms_of_each_form_are_kept() {
    let head = || message(&[integer(1, 7), double(2, 18.4), time(15, 1, 0)]);
    let with_exemplar = [head(), native_buckets(), exemplar(16, 0.7, Some(time(3, 6, 0)))];
    let whole = histogram_of(7, &with_exemplar);
    let both = histogram_of(7, &[head(), native_buckets(), classic_buckets()]);
    let exact = histogram_of(
        7,
        &[
            message(&[double(4, 7.5), double(2, 18.4), integer(5, 4), double(8, 1.5)]),
            bytes(12, message(&[integer(1, 0), integer(2, 2)])),
            bytes(14, [2.0_f64.to_le_bytes(), 4.0_f64.to_le_bytes()].concat()),
        ],
    );
    // Client libraries send this message before the first observation.
    let empty = histogram_of(
        7,
        &[integer(5, 6), bytes(12, message(&[integer(1, 0), integer(2, 0)]))],
    );
    let body = [
        family("lag", "", HISTOGRAM, &[whole, both, exact.clone(), empty]),
        family("depth", "", GAUGE_HISTOGRAM, &[exact]),
    ];
    let (decoded, rows) = read(&body.concat());
    assert_eq!(reasons(&decoded), []);
    let counts = decoded.counts;
    assert_eq!((counts.histograms, counts.samples, counts.exemplars), (5, 5, 2));
    assert_eq!(stored(&rows[0]).positive_buckets, [1.0, 3.0, 2.0]);
    assert_eq!(stored(&rows[0]).zero_count, 1.0);
    assert_eq!(rows[0].fields[1].1, Value::Signed(1_000));
    assert_eq!(
        (&*rows[1].fields[0].0, rows[1].nanos),
        ("_exemplar", 6_000_000_000)
    );
    assert_eq!(stored(&rows[2]), stored(&rows[0]), "beside its classic buckets");
    assert_eq!(rows[3].identity.measurement(), "lag_bucket");
    let exact = stored(&rows[9]);
    assert_eq!((exact.count, exact.zero_count, exact.schema), (7.5, 1.5, 2));
    assert_eq!(
        (exact.positive_buckets, exact.reset_hint),
        (vec![2.0, 4.0], ResetHint::Unknown)
    );
    assert_eq!((stored(&rows[10]).schema, stored(&rows[10]).count), (3, 0.0));
    assert_eq!(rows[11].identity.measurement(), "depth");
    assert_eq!(stored(&rows[11]).reset_hint, ResetHint::Gauge);
    let kinds = decoded.metadata.iter().map(|one| one.kind);
    assert_eq!(kinds.collect::<Vec<_>>(), ["histogram", "gaugehistogram"]);
}

#[test]
fn what_is_wrong_rejects_itself_alone() {
    let value = |field| bytes(field, double(1, 1.0));
    let twice = message(&[label(1, "a", "1"), label(1, "a", "2"), value(2)]);
    let late = message(&[value(2), integer(6, i64::MAX as u64)]);
    let not_utf_8 = [bytes(1, [0xff]), integer(3, GAUGE), bytes(4, value(2))].concat();
    let miscounted = histogram_of(7, &[integer(1, 99), native_buckets()]);
    let body = [
        family("", "", GAUGE, &[value(2), value(2)]),
        family("kind", "", 6, &[value(2)]),
        family("gauge", "", GAUGE, &[value(3), value(2), twice, late]),
        vec![not_utf_8.len() as u8],
        not_utf_8,
        family("lag", "", HISTOGRAM, &[miscounted]),
        family("last", "", GAUGE, &[value(2)]),
    ];
    let (decoded, rows) = read(&body.concat());
    let names: Vec<&str> = rows.iter().map(|row| row.identity.measurement()).collect();
    assert_eq!(names, ["gauge", "last"]);
    let reasons = reasons(&decoded);
    assert_eq!(
        reasons[..6],
        [
            ("{__name__=\"\"}", "the metric family has no name"),
            ("{__name__=\"kind\"}", "unknown type 6"),
            (
                "{__name__=\"gauge\"}",
                "a metric of type gauge has no value of this type"
            ),
            ("{__name__=\"gauge\", a=\"1\", a=\"2\"}", "duplicate label \"a\""),
            (
                "{__name__=\"gauge\"}",
                "time 9223372036854775807 ms is out of range"
            ),
            (
                "{__name__=\"\u{fffd}\"}",
                "invalid UTF-8 in the name of a metric family"
            ),
        ]
    );
    assert_eq!((reasons.len(), reasons[6].0), (7, "{__name__=\"lag\"}"));
    assert!(reasons[6].1.contains("count"), "{}", reasons[6].1);
}

#[test]
fn a_request_may_say_the_time_and_labels_of_all() {
    let import = ImportOptions {
        millis: Some(7),
        extra_labels: vec![("job".into(), "b".into())],
        extra_samples: vec![("pushed".into(), 3.0)],
    };
    let (_, rows) = read_with(&simple(), &import).expect("metric families");
    let shown = shown(&rows);
    assert_eq!(shown[2], "heat{job=b} value=21.5 @7000000");
    assert_eq!(shown.last().expect("a row"), "pushed{job=b} value=3 @7000000");
}

#[test]
fn a_body_that_is_cut_off_is_refused_as_a_whole() {
    let body = simple();
    let mut ends = vec![0];
    while let Some(length) = body.get(ends[ends.len() - 1]) {
        ends.push(ends[ends.len() - 1] + 1 + usize::from(*length));
    }
    assert_eq!(ends.last(), Some(&body.len()), "each of these families is short");
    for end in 0..body.len() {
        let is_whole = ends.contains(&end);
        let read = read_with(&body[..end], &ImportOptions::default());
        assert_eq!(read.is_ok(), is_whole, "cut at {end}");
    }
    for wrong in [
        &[5, 0x0a][..],
        &[2, 0x22, 9],
        &[7, 0x0a, 1, b'a', 0x22, 2, 0x0a, 9],
        &[2, 0x08, 1],
    ] {
        assert!(read_with(wrong, &ImportOptions::default()).is_err(), "{wrong:?}");
    }
}

#[test]
fn rows_and_keys_stay_within_the_size_of_the_body() {
    // Empty buckets of two bytes each, once without labels and once with a very long label.
    let buckets = [0x1a, 0].repeat(1_000_000);
    let long = label(1, "long", &"x".repeat(60_000));
    for labels in [Vec::new(), long] {
        let metric = [labels, bytes(7, &buckets)].concat();
        let body = family("lag", "", HISTOGRAM, &[metric]);
        let (decoded, rows) = read(&body);
        assert!(rows.len() <= body.len() / 4 + 16, "{}", rows.len());
        assert!(decoded.batch.rejects.len() <= 100_001);
        let last = decoded.batch.rejects.last().expect("not all was read");
        let end = ": the rest was not read";
        assert!(words(last).ends_with(end), "{}", last.reason);
    }
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(512))]

    /// Arbitrary bytes, and valid families with some changed bytes, are decoded or rejected without a panic.
    #[test]
    fn no_bytes_do_harm(
        noise in prop::collection::vec(any::<u8>(), 0..200),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let _ = read_with(&noise, &ImportOptions::default());
        let both = histogram_of(7, &[integer(1, 7), native_buckets(), classic_buckets()]);
        let mut body = [simple(), family("lag", "", HISTOGRAM, &[both])].concat();
        for (at, byte) in &changes {
            let at = at.index(body.len());
            body[at] = *byte;
        }
        let _ = read_with(&body, &ImportOptions::default());
    }
}
