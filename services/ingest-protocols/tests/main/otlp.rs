//! OTLP metrics: rows of each type of data point, labels of resources and scopes, rejects, and limits.
//!
//! The tests also check that both encodings of a request decode to the same result, and that no bytes cause a panic.

use proptest::prelude::*;
use tideline_fleet::otlp::{
    Attributes, Data, Exemplar, Metric, Number, Point, Request, Resource, Scope, Value, texts,
};
use tideline_histogram::Histogram;
use tideline_ingest_protocols::IngestError;
use tideline_ingest_protocols::prometheus::{
    DecodedSamples, DeltaTemporality, OtlpEncoding, OtlpSettings, TranslationStrategy, decode_otlp,
};
use tideline_model::Value as Stored;
use tideline_wire::protobuf::PutFields;

use crate::remote_write::STALE;
use crate::support::{NumberingResolver, Row, options, rows, shown, words};

const MILLIS: u64 = 1_700_000_000_123;
const TIME: u64 = MILLIS * 1_000_000 + 456;
const START: u64 = TIME - 60_000_000_000;

fn read(
    body: &[u8],
    encoding: OtlpEncoding,
    settings: &OtlpSettings,
) -> Result<(DecodedSamples, Vec<Row>), IngestError> {
    let mut resolver = NumberingResolver::default();
    let is_known = |_: &str, _: &str, _: &str, _: &str| false;
    let decoded = decode_otlp(body, encoding, settings, &options(), &mut resolver, &is_known)?;
    let rows = rows(&decoded.batch, &resolver);
    Ok((decoded, rows))
}

/// Decodes both encodings of a request, and checks that the results are equal.
fn sent_with(settings: &OtlpSettings, request: &Request) -> (DecodedSamples, Vec<Row>) {
    let binary = read(&request.to_protobuf(), OtlpEncoding::Protobuf, settings).expect("a message");
    let json = read(request.to_json().as_bytes(), OtlpEncoding::Json, settings).expect("JSON");
    assert_eq!(format!("{:?}", binary.1), format!("{:?}", json.1));
    assert_eq!(binary.0.batch.rejects, json.0.batch.rejects);
    assert_eq!(binary.0.metadata, json.0.metadata);
    assert_eq!(rejected(&binary.0), rejected(&json.0));
    binary
}

fn sent(request: &Request) -> (DecodedSamples, Vec<Row>) {
    sent_with(&OtlpSettings::default(), request)
}

/// Returns the number of rejected data points.
fn rejected(decoded: &DecodedSamples) -> u64 {
    decoded.rejected_points(decoded.batch.rejects.iter().map(|reject| reject.line))
}

fn reasons(decoded: &DecodedSamples) -> Vec<&str> {
    decoded.batch.rejects.iter().map(words).collect()
}

fn number(value: f64) -> Point {
    Point {
        time: TIME,
        value: Some(Number::Double(value)),
        ..Point::default()
    }
}

fn gauge(name: &str, points: Vec<Point>) -> Metric {
    Metric {
        name: name.into(),
        data: Data::Gauge(points),
        ..Metric::default()
    }
}

fn counter(name: &str, points: Vec<Point>) -> Metric {
    Metric {
        name: name.into(),
        data: Data::Sum {
            points,
            temporality: 2,
            is_monotonic: true,
        },
        ..Metric::default()
    }
}

fn histogram(points: Vec<Point>) -> Metric {
    Metric {
        name: "latency".into(),
        unit: "s".into(),
        data: Data::Histogram {
            points,
            temporality: 2,
        },
        ..Metric::default()
    }
}

fn exponential(points: Vec<Point>) -> Metric {
    Metric {
        name: "latency".into(),
        data: Data::Exponential {
            points,
            temporality: 2,
        },
        ..Metric::default()
    }
}

fn with(attributes: &[(&str, &str)], point: Point) -> Point {
    Point {
        attributes: texts(attributes),
        ..point
    }
}

fn of_resource(attributes: Attributes, metrics: Vec<Metric>) -> Request {
    Request {
        resources: vec![Resource {
            attributes,
            scopes: vec![Scope {
                metrics,
                ..Scope::default()
            }],
        }],
    }
}

/// Returns the names and labels of rows, without fields and times.
fn series(rows: &[Row]) -> Vec<String> {
    let names = shown(rows).into_iter();
    names
        .map(|row| row.split(' ').next().unwrap_or_default().to_owned())
        .collect()
}

fn histogram_of(row: &Row) -> Histogram {
    match &row.fields[0] {
        (name, Stored::Histogram(bytes)) if name == "histogram" => {
            Histogram::from_bytes(bytes).expect("a stored histogram")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn number_points_are_samples() {
    let request = Request {
        resources: vec![Resource {
            attributes: texts(&[("service.name", "shop"), ("service.instance.id", "i-1")]),
            scopes: vec![Scope {
                metrics: vec![
                    gauge("temp", vec![with(&[("room", "a")], number(1.5))]),
                    counter(
                        "http.requests",
                        vec![Point {
                            start: START,
                            value: Some(Number::Int(i64::MAX)),
                            ..number(0.0)
                        }],
                    ),
                    Metric {
                        data: Data::Sum {
                            points: vec![number(-2.0)],
                            temporality: 2,
                            is_monotonic: false,
                        },
                        ..gauge("queue.length", Vec::new())
                    },
                ],
                ..Scope::default()
            }],
        }],
    };
    let (decoded, rows) = sent(&request);
    assert_eq!(
        shown(&rows),
        [
            "temp{instance=i-1,job=shop,room=a} value=1.5 @1700000000123000000",
            "http_requests_total{instance=i-1,job=shop} value=9223372036854776000 _start=1699999940123i \
             @1700000000123000000",
            "queue_length{instance=i-1,job=shop} value=-2 @1700000000123000000",
        ]
    );
    assert_eq!((decoded.points, rejected(&decoded)), (3, 0));
    let kinds: Vec<(&str, &str)> = decoded
        .metadata
        .iter()
        .map(|metadata| (&*metadata.name, metadata.kind))
        .collect();
    assert_eq!(
        kinds,
        [
            ("temp", "gauge"),
            ("http_requests_total", "counter"),
            ("queue_length", "gauge")
        ]
    );
}

#[test]
fn metadata_has_type_help_and_unit() {
    let metric = Metric {
        description: "Bytes sent.".into(),
        unit: "By/s".into(),
        ..gauge("net.out", vec![number(1.0)])
    };
    let (decoded, rows) = sent(&Request::of(metric));
    assert_eq!(series(&rows), ["net_out_bytes_per_second{}"]);
    let metadata = &decoded.metadata[0];
    assert_eq!(
        (&*metadata.name, metadata.kind, &*metadata.help, &*metadata.unit),
        (
            "net_out_bytes_per_second",
            "gauge",
            "Bytes sent.",
            "bytes_per_second"
        )
    );
}

#[test]
fn values_keep_their_bits_and_missing_ones_are_stale() {
    let stale = Point {
        flags: 1,
        value: None,
        ..number(0.0)
    };
    let (_, rows) = sent(&Request::of(gauge(
        "a",
        vec![stale, number(-0.0), number(f64::NEG_INFINITY)],
    )));
    let bits: Vec<u64> = rows
        .iter()
        .map(|row| match row.fields[0].1 {
            Stored::Float(value) => value.to_bits(),
            ref other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(bits, [STALE, (-0.0_f64).to_bits(), f64::NEG_INFINITY.to_bits()]);
}

#[test]
fn a_histogram_has_classic_series_with_cumulative_counts() {
    let point = Point {
        attributes: texts(&[("path", "/")]),
        start: START,
        time: TIME,
        count: 10,
        sum: Some(3.5),
        counts: vec![1, 2, 3, 4],
        bounds: vec![0.005, 1.0, 1e21],
        exemplars: vec![
            Exemplar {
                value: Some(Number::Double(0.5)),
                time: TIME - 5_000_000,
                trace_id: vec![0xab; 16],
                span_id: vec![0xcd; 8],
                attributes: texts(&[("user", "u")]),
            },
            Exemplar {
                value: Some(Number::Int(2)),
                ..Exemplar::default()
            },
        ],
        ..Point::default()
    };
    let (decoded, rows) = sent(&Request::of(histogram(vec![point.clone()])));
    let shown = shown(&rows);
    assert_eq!(
        shown[..6],
        [
            "latency_seconds_bucket{le=0.005,path=/} value=1 _start=1699999940123i @1700000000123000000",
            "latency_seconds_bucket{le=1,path=/} value=3 _start=1699999940123i @1700000000123000000",
            "latency_seconds_bucket{le=1000000000000000000000,path=/} value=6 _start=1699999940123i \
             @1700000000123000000",
            "latency_seconds_bucket{le=+Inf,path=/} value=10 _start=1699999940123i @1700000000123000000",
            "latency_seconds_count{path=/} value=10 _start=1699999940123i @1700000000123000000",
            "latency_seconds_sum{path=/} value=3.5 _start=1699999940123i @1700000000123000000",
        ]
    );
    assert!(
        shown[6].starts_with("latency_seconds_bucket{le=1,path=/} _exemplar="),
        "{}",
        shown[6]
    );
    assert!(shown[6].contains("abababababababababababababababab") && shown[6].contains("cdcdcdcdcdcdcdcd"));
    assert!(
        shown[6].contains("user") && shown[6].ends_with("@1700000000118000000"),
        "{}",
        shown[6]
    );
    assert!(shown[7].starts_with("latency_seconds_bucket{le=1000000000000000000000,path=/} _exemplar="));
    assert!(shown[7].ends_with("@1700000000123000000"));
    assert_eq!((decoded.points, decoded.counts.exemplars), (1, 2));
    assert!(
        rows[..6].iter().all(|row| row.line == 1),
        "all rows of a point have its line"
    );
    let metadata = &decoded.metadata[0];
    assert_eq!((&*metadata.name, metadata.kind), ("latency_seconds", "histogram"));

    let bare = Point {
        sum: None,
        counts: Vec::new(),
        bounds: Vec::new(),
        exemplars: Vec::new(),
        ..point.clone()
    };
    let (_, rows) = sent(&Request::of(histogram(vec![bare])));
    assert_eq!(
        series(&rows),
        [
            "latency_seconds_bucket{le=+Inf,path=/}",
            "latency_seconds_count{path=/}"
        ]
    );

    let stale = Point { flags: 1, ..point };
    let (_, rows) = sent(&Request::of(histogram(vec![stale])));
    let is_stale = |row: &Row| matches!(row.fields[0].1, Stored::Float(value) if value.to_bits() == STALE);
    assert!(rows[..6].iter().all(is_stale), "{rows:?}");
}

#[test]
fn a_histogram_can_be_native_with_custom_buckets() {
    let settings = OtlpSettings {
        convert_histograms_to_nhcb: true,
        ..OtlpSettings::default()
    };
    let point = Point {
        start: START,
        time: TIME,
        count: 7,
        sum: Some(3.5),
        counts: vec![0, 3, 0, 4],
        bounds: vec![1.0, 2.0, 5.0],
        ..Point::default()
    };
    let wrong = Point {
        count: 8,
        ..point.clone()
    };
    let (decoded, rows) = sent_with(&settings, &Request::of(histogram(vec![point, wrong])));
    assert_eq!(series(&rows), ["latency_seconds{}"]);
    let stored = histogram_of(&rows[0]);
    assert_eq!((stored.schema, stored.count, stored.sum), (-53, 7.0, 3.5));
    assert_eq!(stored.custom_values, [1.0, 2.0, 5.0]);
    assert_eq!(stored.positive_buckets, [3.0, 0.0, 4.0]);
    assert_eq!(rejected(&decoded), 1);
    assert!(
        reasons(&decoded)[0].contains("Count field is 8"),
        "{:?}",
        reasons(&decoded)
    );
}

#[test]
fn an_exponential_histogram_is_native() {
    let point = Point {
        time: TIME,
        count: 13,
        sum: Some(10.0),
        scale: 9,
        zero_count: 1,
        zero_threshold: 0.25,
        positive: Some((1, vec![4, 3, 2, 1])),
        negative: Some((-2, vec![2])),
        exemplars: vec![Exemplar {
            value: Some(Number::Double(1.0)),
            ..Exemplar::default()
        }],
        ..Point::default()
    };
    let fine = Point {
        scale: -5,
        ..point.clone()
    };
    let default_threshold = Point {
        zero_threshold: 0.0,
        scale: 0,
        ..point.clone()
    };
    let stale = Point {
        flags: 1,
        ..point.clone()
    };
    let (decoded, rows) = sent(&Request::of(exponential(vec![
        point,
        fine,
        default_threshold,
        stale,
    ])));
    let stored = histogram_of(&rows[0]);
    assert_eq!(
        (stored.schema, stored.zero_threshold, stored.zero_count),
        (8, 0.25, 1.0)
    );
    assert_eq!(stored.positive_buckets, [4.0, 5.0, 1.0]);
    assert_eq!(
        (stored.positive_spans[0].offset, stored.negative_spans[0].offset),
        (1, 0)
    );
    assert_eq!(rows[1].fields[0].0, "_exemplar");
    assert_eq!(histogram_of(&rows[2]).zero_threshold, 1e-128);
    assert_eq!(histogram_of(&rows[4]).sum.to_bits(), STALE);
    assert_eq!(rejected(&decoded), 1);
    assert!(
        reasons(&decoded)[0].contains("must be at least -4, actual -5"),
        "{:?}",
        reasons(&decoded)
    );
}

#[test]
fn a_summary_has_a_series_per_quantile() {
    let metric = Metric {
        data: Data::Summary(vec![Point {
            attributes: texts(&[("path", "/"), ("quantile", "mine")]),
            time: TIME,
            count: 4,
            sum: Some(9.0),
            quantiles: vec![(0.5, 2.0), (0.99, 5.0)],
            ..Point::default()
        }]),
        ..gauge("rpc", Vec::new())
    };
    let (decoded, rows) = sent(&Request::of(metric));
    let shown: Vec<String> = shown(&rows)
        .into_iter()
        .map(|row| row.replace(" @1700000000123000000", ""))
        .collect();
    assert_eq!(
        shown,
        [
            "rpc{path=/,quantile=0.5} value=2",
            "rpc{path=/,quantile=0.99} value=5",
            "rpc_sum{path=/} value=9",
            "rpc_count{path=/} value=4",
        ]
    );
    assert_eq!(decoded.metadata[0].kind, "summary");
}

#[test]
fn delta_temporality_is_refused_unless_it_is_stored_on_request() {
    let delta = |data: Data| Metric {
        data,
        ..gauge("events", Vec::new())
    };
    let bucketed = Point {
        time: TIME,
        count: 1,
        positive: Some((0, vec![1])),
        ..Point::default()
    };
    let metrics = vec![
        delta(Data::Sum {
            points: vec![number(1.0), with(&[("a", "b")], number(2.0))],
            temporality: 1,
            is_monotonic: true,
        }),
        delta(Data::Exponential {
            points: vec![bucketed],
            temporality: 1,
        }),
        delta(Data::Sum {
            points: vec![number(1.0)],
            temporality: 0,
            is_monotonic: true,
        }),
        gauge("kept", vec![number(1.0)]),
    ];
    let request = of_resource(Vec::new(), metrics);
    let (decoded, rows) = sent(&request);
    assert_eq!(series(&rows), ["kept{}"]);
    assert_eq!((decoded.points, rejected(&decoded)), (5, 4));
    assert!(
        reasons(&decoded)[0].contains("cumulative"),
        "{:?}",
        reasons(&decoded)
    );

    let settings = OtlpSettings {
        delta_temporality: DeltaTemporality::Store,
        ..OtlpSettings::default()
    };
    let (decoded, rows) = sent_with(&settings, &request);
    assert_eq!(
        series(&rows),
        ["events_total{}", "events_total{a=b}", "events{}", "kept{}"]
    );
    assert_eq!(
        histogram_of(&rows[2]).reset_hint,
        tideline_histogram::ResetHint::Gauge
    );
    assert_eq!((rejected(&decoded), decoded.metadata[0].kind), (1, "unknown"));
}

#[test]
fn strategies_translate_names_and_labels() {
    let request = of_resource(
        Vec::new(),
        vec![Metric {
            unit: "ms".into(),
            ..counter("http.time", vec![with(&[("http.method", "GET")], number(1.0))])
        }],
    );
    for (strategy, expected) in [
        (
            TranslationStrategy::UnderscoreEscapingWithSuffixes,
            "http_time_milliseconds_total{http_method=GET}",
        ),
        (
            TranslationStrategy::UnderscoreEscapingWithoutSuffixes,
            "http_time{http_method=GET}",
        ),
        (
            TranslationStrategy::NoUtf8EscapingWithSuffixes,
            "http.time_milliseconds_total{http.method=GET}",
        ),
        (TranslationStrategy::NoTranslation, "http.time{http.method=GET}"),
    ] {
        let settings = OtlpSettings {
            translation_strategy: strategy,
            ..OtlpSettings::default()
        };
        let (_, rows) = sent_with(&settings, &request);
        assert_eq!(series(&rows), [expected]);
        assert_eq!(strategy.to_string().parse(), Ok(strategy));
    }
}

#[test]
fn labels_that_collide_follow_the_rules_of_prometheus() {
    let resource = texts(&[
        ("service.namespace", "ns"),
        ("service.name", "shop"),
        ("service.instance.id", "i-1"),
        ("env", "prod"),
        ("k8s.pod", "p"),
    ]);
    let settings = OtlpSettings {
        promote_resource_attributes: vec!["env".into(), "k8s.pod".into()],
        ..OtlpSettings::default()
    };
    for (attributes, expected) in [
        // Attributes with the same label are joined in the order of their names.
        (
            &[("a.b", "2"), ("a-b", "1"), ("a_b", "3")][..],
            "m{a_b=1;2;3,env=prod,instance=i-1,job=ns/shop,k8s_pod=p}",
        ),
        // An attribute replaces a promoted resource attribute, unless the value of the attribute is empty.
        (
            &[("env", "test")],
            "m{env=test,instance=i-1,job=ns/shop,k8s_pod=p}",
        ),
        (&[("env", "")], "m{env=prod,instance=i-1,job=ns/shop,k8s_pod=p}"),
        // The labels that identify the resource replace an attribute with the same label.
        (
            &[("job", "mine")],
            "m{env=prod,instance=i-1,job=ns/shop,k8s_pod=p}",
        ),
        // The metric name cannot be replaced, and attributes with empty values are dropped.
        (
            &[("__name__", "n"), ("x", ""), ("y", "1")],
            "m{env=prod,instance=i-1,job=ns/shop,k8s_pod=p,y=1}",
        ),
    ] {
        let metric = gauge("m", vec![with(attributes, number(1.0))]);
        let (_, rows) = sent_with(&settings, &of_resource(resource.clone(), vec![metric]));
        assert_eq!(series(&rows)[0], expected, "{attributes:?}");
    }
}

#[test]
fn resource_attributes_become_labels_by_setting() {
    let resource = vec![
        ("service.name".to_owned(), Value::from("shop")),
        ("host.name".to_owned(), Value::from("h")),
        ("cpus".to_owned(), Value::Int(4)),
        (
            "tags".to_owned(),
            Value::List(vec!["a".into(), Value::Bool(true)]),
        ),
    ];
    let request = of_resource(resource, vec![gauge("m", vec![number(1.0)])]);
    let read = |settings: OtlpSettings| series(&sent_with(&settings, &request).1);
    assert_eq!(
        read(OtlpSettings::default()),
        [
            "m{job=shop}",
            "target_info{cpus=4,host_name=h,job=shop,tags=[\"a\",true]}"
        ]
    );
    assert_eq!(
        read(OtlpSettings {
            promote_resource_attributes: vec!["cpus".into(), "absent".into()],
            ..OtlpSettings::default()
        })[0],
        "m{cpus=4,job=shop}"
    );
    assert_eq!(
        read(OtlpSettings {
            promote_all_resource_attributes: true,
            ignore_resource_attributes: vec!["tags".into()],
            keep_identifying_resource_attributes: true,
            ..OtlpSettings::default()
        }),
        [
            "m{cpus=4,host_name=h,job=shop,service_name=shop}",
            "target_info{cpus=4,host_name=h,job=shop,service_name=shop,tags=[\"a\",true]}"
        ]
    );
}

#[test]
fn scope_metadata_becomes_labels_by_setting() {
    let mut request = of_resource(
        texts(&[("service.name", "shop")]),
        vec![gauge("m", vec![number(1.0)])],
    );
    let scope = &mut request.resources[0].scopes[0];
    (scope.name, scope.version) = ("lib".into(), "1.2".into());
    scope.attributes = texts(&[("lang.kind", "rust")]);
    assert_eq!(series(&sent(&request).1), ["m{job=shop}"]);
    let settings = OtlpSettings {
        promote_scope_metadata: true,
        ..OtlpSettings::default()
    };
    assert_eq!(
        series(&sent_with(&settings, &request).1),
        ["m{job=shop,otel_scope_lang_kind=rust,otel_scope_name=lib,otel_scope_version=1.2}"]
    );
}

#[test]
fn target_info_covers_the_times_of_a_resource() {
    let at = |seconds: u64| Point {
        time: TIME + seconds * 1_000_000_000,
        ..number(1.0)
    };
    let resource = texts(&[("service.name", "shop"), ("version", "2")]);
    let one = of_resource(resource.clone(), vec![gauge("m", vec![at(0), at(400)])]);
    let mut request = one.clone();
    // An equal resource with the same times yields the same samples, which are stored once.
    request.resources.extend(one.resources);
    let (decoded, rows) = sent(&request);
    let times: Vec<i64> = rows
        .iter()
        .filter(|row| row.identity.measurement() == "target_info")
        .map(|row| row.nanos / 1_000_000 - MILLIS.cast_signed())
        .collect();
    assert_eq!(times, [0, 150_000, 300_000, 400_000]);
    assert_eq!((decoded.points, rejected(&decoded)), (4, 0));
    assert!(
        decoded
            .metadata
            .iter()
            .any(|metadata| metadata.name == "target_info")
    );

    // `target_info` is written only for a resource with a `job` or `instance` and at least one other attribute.
    for attributes in [texts(&[("version", "2")]), texts(&[("service.name", "shop")])] {
        let (_, rows) = sent(&of_resource(attributes, vec![gauge("m", vec![at(0)])]));
        assert_eq!(rows.len(), 1);
    }
    // Points from 1970 do not lead to a sample for each interval since then.
    let old = Point {
        time: 1_000_000,
        ..number(1.0)
    };
    let (_, rows) = sent(&of_resource(resource, vec![gauge("m", vec![old, at(0)])]));
    assert!(rows.len() <= 2 + 1_025, "{}", rows.len());
}

#[test]
fn a_bad_point_rejects_only_itself() {
    let timeless = Point {
        time: 0,
        ..number(1.0)
    };
    let valueless = Point {
        value: None,
        ..number(1.0)
    };
    let many: Vec<(String, Value)> = (0..2_000)
        .map(|number| (format!("a{number}"), Value::from("v")))
        .collect();
    let crowded = Point {
        attributes: many,
        ..number(1.0)
    };
    let nested = (0..30).fold(Value::from("x"), |value, _| Value::List(vec![value]));
    let deep = Point {
        attributes: vec![("deep".into(), nested)],
        ..number(1.0)
    };
    let metric = gauge(
        "m",
        vec![
            timeless,
            number(1.0),
            valueless,
            crowded,
            deep,
            with(&[("time", "now")], number(1.0)),
            with(&[("", "nameless")], number(1.0)),
            with(&[("ok", "yes")], number(2.0)),
        ],
    );
    let (decoded, rows) = sent(&Request::of(metric));
    assert_eq!(series(&rows), ["m{}", "m{ok=yes}"]);
    assert_eq!((decoded.points, rejected(&decoded)), (8, 6));
    let reasons = reasons(&decoded);
    for (reason, expected) in reasons.iter().zip([
        "has no time",
        "has no value",
        "too many attributes",
        "nested more than 16 levels",
        "label named \"time\"",
        "an attribute has no name",
    ]) {
        assert!(reason.contains(expected), "{reasons:?}");
    }
}

#[test]
fn inconsistent_buckets_are_rejected() {
    let base = Point {
        time: TIME,
        count: 3,
        counts: vec![1, 2],
        bounds: vec![1.0],
        ..Point::default()
    };
    let with_bounds = |bounds: &[f64], counts: &[u64]| Point {
        bounds: bounds.to_vec(),
        counts: counts.to_vec(),
        ..base.clone()
    };
    for (point, is_valid) in [
        (base.clone(), true),
        (with_bounds(&[1.0, f64::INFINITY], &[1, 2, 0]), true),
        (with_bounds(&[1.0, f64::INFINITY], &[1, 2]), true),
        (with_bounds(&[1.0, 2.0], &[1, 2]), false),
        (with_bounds(&[2.0, 1.0], &[1, 1, 1]), false),
        (with_bounds(&[f64::NAN], &[1, 2]), false),
        (with_bounds(&[], &[3]), true),
        (with_bounds(&[1.0], &[]), true),
        // The counts must not exceed the count of the point, unless the point has no recorded value.
        (with_bounds(&[1.0], &[1, 3]), false),
        (with_bounds(&[1.0], &[1, u64::MAX]), false),
        (with_bounds(&[1.0, f64::INFINITY], &[1, 2, 1]), false),
        (with_bounds(&[1.0], &[1, 1]), true),
        (
            Point {
                flags: 1,
                ..with_bounds(&[1.0], &[1, 3])
            },
            true,
        ),
    ] {
        let (decoded, rows) = sent(&Request::of(histogram(vec![point.clone()])));
        assert_eq!(rejected(&decoded) == 0, is_valid, "{point:?}");
        assert_eq!(rows.is_empty(), !is_valid, "{point:?}");
    }
}

#[test]
fn fields_may_have_any_order() {
    // The fields are in an unusual order: points before temporality, resource after scopes, name after data.
    let mut point = Vec::new();
    point.put_bytes(7, b"\x12\x03\x0a\x01v\x0a\x01k");
    point.put_fixed64(6, 5);
    point.put_fixed64(3, TIME);
    let mut sum = Vec::new();
    sum.put_bytes(1, &point);
    sum.put_uint(3, 1);
    sum.put_uint(2, 2);
    let mut metric = Vec::new();
    metric.put_bytes(7, &sum);
    metric.put_text(1, "m");
    let mut scope = Vec::new();
    scope.put_bytes(2, &metric);
    let mut resource = Vec::new();
    resource.put_bytes(2, &scope);
    resource.put_bytes(1, b"\x0a\x17\x0a\x0cservice.name\x12\x07\x0a\x05shop1");
    let mut body = Vec::new();
    body.put_bytes(1, &resource);
    let (_, rows) = read(&body, OtlpEncoding::Protobuf, &OtlpSettings::default()).expect("a message");
    assert_eq!(series(&rows), ["m_total{job=shop1,k=v}"]);
}

#[test]
fn a_broken_body_is_an_error() {
    let request = Request::of(gauge("m", vec![with(&[("a", "b")], number(1.0))]));
    let body = request.to_protobuf();
    for end in 1..body.len() {
        let read = read(&body[..end], OtlpEncoding::Protobuf, &OtlpSettings::default());
        assert!(read.is_err(), "{end}");
    }
    let json = request.to_json();
    for end in 0..json.len() {
        let read = read(
            &json.as_bytes()[..end],
            OtlpEncoding::Json,
            &OtlpSettings::default(),
        );
        assert!(matches!(read, Err(IngestError::Json { .. })), "{end}");
    }
    let empty = read(b"", OtlpEncoding::Protobuf, &OtlpSettings::default()).expect("an empty request");
    assert_eq!((empty.0.points, empty.1.len()), (0, 0));
}

#[test]
fn small_bodies_do_not_become_large() {
    let points = |count: usize, point: &[u8]| {
        let mut data = Vec::new();
        (0..count).for_each(|_| data.put_bytes(1, point));
        let mut metric = Vec::new();
        metric.put_text(1, "m");
        metric.put_bytes(5, &data);
        let mut scope = Vec::new();
        scope.put_bytes(2, &metric);
        let mut resource = Vec::new();
        resource.put_bytes(2, &scope);
        let mut body = Vec::new();
        body.put_bytes(1, &resource);
        body
    };
    // Empty points, and points with only a time and a flag.
    let mut small = Vec::new();
    small.put_fixed64(3, TIME);
    small.put_uint(8, 1);
    for (count, point) in [(1_000_000, &b""[..]), (1_000_000, &small)] {
        let body = points(count, point);
        let (decoded, _) = read(&body, OtlpEncoding::Protobuf, &OtlpSettings::default()).expect("a message");
        assert!(decoded.batch.rows() <= body.len() / 8 + 16);
        assert!(decoded.batch.rejects.len() <= 100_001);
        let stored = decoded.batch.rows() as u64;
        assert_eq!(
            (decoded.points, rejected(&decoded)),
            (1_000_000, 1_000_000 - stored)
        );
    }
    // Long attributes of a resource, which are added to the key of each point.
    let mut request = Request::of(gauge("m", vec![number(1.0)]));
    request.resources[0].attributes = (0..12)
        .map(|number| (format!("a{number}"), Value::Text("x".repeat(4_000))))
        .collect();
    let settings = OtlpSettings {
        promote_all_resource_attributes: true,
        ..OtlpSettings::default()
    };
    request.resources[0].scopes[0].metrics[0].data = Data::Gauge(vec![number(1.0); 100_000]);
    let (decoded, rows) = read(&request.to_protobuf(), OtlpEncoding::Protobuf, &settings).expect("a message");
    assert!(rows.len() < 30_000, "{}", rows.len());
    assert_eq!(rejected(&decoded), 100_000 - rows.len() as u64);
    // A histogram with a million empty buckets is small. A histogram with a million nonempty buckets is rejected.
    for (count, is_rejected) in [(0, false), (1, true)] {
        let point = Point {
            time: TIME,
            count: 1_000_000 * count,
            positive: Some((i32::MIN, vec![count; 1_000_000])),
            ..Point::default()
        };
        let (decoded, _) = sent(&Request::of(exponential(vec![point])));
        assert_eq!(rejected(&decoded) == 1, is_rejected);
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => "[a-zé\"\\\\<\n]{0,8}".prop_map(Value::Text),
        1 => any::<bool>().prop_map(Value::Bool),
        1 => any::<i64>().prop_map(Value::Int),
        1 => any::<f64>().prop_map(Value::Double),
        1 => prop::collection::vec(any::<u8>(), 0..6).prop_map(Value::Bytes),
        1 => Just(Value::Empty),
    ];
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::List),
            prop::collection::vec(("[ab]{1,2}", inner), 0..3).prop_map(Value::Map),
        ]
    })
}

fn attributes() -> impl Strategy<Value = Attributes> {
    let name = prop_oneof![
        3 => "[a-c._1]{1,3}",
        1 => prop::sample::select(vec!["job", "le", "service.name", "quantile", "__name__", "é"])
            .prop_map(str::to_owned),
    ];
    prop::collection::vec((name, value()), 0..4)
}

fn any_number() -> impl Strategy<Value = Option<Number>> {
    prop_oneof![
        any::<f64>().prop_map(|value| Some(Number::Double(value))),
        any::<i64>().prop_map(|value| Some(Number::Int(value))),
        Just(None),
    ]
}

fn exemplar() -> impl Strategy<Value = Exemplar> {
    let id = |length: usize| prop_oneof![Just(Vec::new()), prop::collection::vec(any::<u8>(), length)];
    (attributes(), any::<u32>(), any_number(), id(8), id(16)).prop_map(
        |(attributes, time, value, span_id, trace_id)| Exemplar {
            attributes,
            time: u64::from(time) * 1_000_000,
            value,
            span_id,
            trace_id,
        },
    )
}

fn point() -> impl Strategy<Value = Point> {
    let buckets = || (-300..300, prop::collection::vec(0..5_u64, 0..6));
    let common = (
        attributes(),
        any::<u32>(),
        any::<u32>(),
        0..3_u64,
        prop::collection::vec(exemplar(), 0..3),
        any_number(),
    );
    let bucketed = (
        0..20_u64,
        prop::option::of(any::<f64>()),
        prop::collection::vec(0..5_u64, 0..4),
        prop::collection::vec(-5.0..5.0_f64, 0..3),
        (-6..12, 0..3_u64, prop_oneof![Just(0.0), any::<f64>()]),
        (prop::option::of(buckets()), prop::option::of(buckets())),
        prop::collection::vec((0.0..1.0_f64, any::<f64>()), 0..3),
    );
    (common, bucketed).prop_map(
        |(
            (attributes, start, time, flags, exemplars, value),
            (count, sum, counts, mut bounds, zero, (positive, negative), quantiles),
        )| {
            bounds.sort_by(f64::total_cmp);
            Point {
                attributes,
                start: u64::from(start) * 1_000_000,
                time: u64::from(time) * 1_000_000,
                flags,
                exemplars,
                value,
                count,
                sum,
                counts,
                bounds,
                scale: zero.0,
                zero_count: zero.1,
                zero_threshold: zero.2,
                positive,
                negative,
                quantiles,
            }
        },
    )
}

fn metric() -> impl Strategy<Value = Metric> {
    let unit = prop::sample::select(vec!["", "1", "s", "By/s", "{x}", "%"]);
    let points = prop::collection::vec(point(), 0..4);
    (
        "[a-c.é]{0,4}",
        "[a-z]{0,3}",
        unit,
        points,
        0..5,
        0..3_u64,
        any::<bool>(),
    )
        .prop_map(
            |(name, description, unit, points, kind, temporality, is_monotonic)| Metric {
                name,
                description,
                unit: unit.to_owned(),
                data: match kind {
                    0 => Data::Gauge(points),
                    1 => Data::Sum {
                        points,
                        temporality,
                        is_monotonic,
                    },
                    2 => Data::Histogram { points, temporality },
                    3 => Data::Exponential { points, temporality },
                    _ => Data::Summary(points),
                },
            },
        )
}

fn any_request() -> impl Strategy<Value = Request> {
    let scope = (attributes(), "[a-z]{0,2}", prop::collection::vec(metric(), 0..4)).prop_map(
        |(attributes, name, metrics)| Scope {
            name,
            attributes,
            metrics,
            ..Scope::default()
        },
    );
    let resource = (attributes(), prop::collection::vec(scope, 0..3))
        .prop_map(|(attributes, scopes)| Resource { attributes, scopes });
    prop::collection::vec(resource, 0..3).prop_map(|resources| Request { resources })
}

fn any_settings() -> impl Strategy<Value = OtlpSettings> {
    let strategies = prop::sample::select(vec![
        TranslationStrategy::UnderscoreEscapingWithSuffixes,
        TranslationStrategy::UnderscoreEscapingWithoutSuffixes,
        TranslationStrategy::NoUtf8EscapingWithSuffixes,
        TranslationStrategy::NoTranslation,
    ]);
    (strategies, any::<[bool; 7]>()).prop_map(|(translation_strategy, on)| OtlpSettings {
        translation_strategy,
        promote_all_resource_attributes: on[0],
        keep_identifying_resource_attributes: on[1],
        promote_scope_metadata: on[2],
        convert_histograms_to_nhcb: on[3],
        label_name_underscore_sanitization: on[4],
        label_name_preserve_multiple_underscores: on[5],
        delta_temporality: if on[6] {
            DeltaTemporality::Store
        } else {
            DeltaTemporality::Refuse
        },
        ..OtlpSettings::default()
    })
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(512))]

    /// Both encodings of a random request decode to the same rows, rejects and metadata, and every data point is stored
    /// or rejected.
    #[test]
    fn both_encodings_give_the_same_samples(request in any_request(), settings in any_settings()) {
        let (decoded, rows) = sent_with(&settings, &request);
        let mut stored: Vec<u32> = rows
            .iter()
            .filter(|row| row.fields[0].0 != "_exemplar" && row.identity.measurement() != "target_info")
            .map(|row| row.line)
            .collect();
        stored.dedup();
        prop_assert!(stored.len() as u64 + rejected(&decoded) >= decoded.points);
    }

    /// Arbitrary bytes, and a valid request with some changed bytes, are decoded or rejected without a panic.
    #[test]
    fn no_bytes_do_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        request in any_request(),
        settings in any_settings(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        for (encoding, mut body) in [
            (OtlpEncoding::Protobuf, request.to_protobuf()),
            (OtlpEncoding::Json, request.to_json().into_bytes()),
        ] {
            let _ = read(&bytes, encoding, &settings);
            for (at, byte) in &changes {
                if !body.is_empty() {
                    let at = at.index(body.len());
                    body[at] = *byte;
                }
            }
            let _ = read(&body, encoding, &settings);
        }
    }
}
