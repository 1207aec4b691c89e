//! Corner cases of line protocol, one test per rule.
//!
//! Each test compares values, timestamps or the exact reject text.

use tideline_ingest_protocols::{DecodeOptions, line_protocol};
use tideline_model::{PointBatch, Precision, Value};

use crate::support::{DEFAULT_TIME, NumberingResolver, Row, options, rows, words};

fn decode_with(body: &[u8], options: DecodeOptions) -> (Vec<Row>, PointBatch, usize) {
    let mut resolver = NumberingResolver::default();
    let batch = line_protocol::decode(body, options, &mut resolver);
    (rows(&batch, &resolver), batch, resolver.identities.len())
}

/// Decodes a body that has no rejects.
fn accepted(body: &str) -> Vec<Row> {
    let (rows, batch, _) = decode_with(body.as_bytes(), options());
    assert_eq!(batch.rejects, [], "{body:?}");
    rows
}

/// Returns the only reject of a body without rows. Checks that no timeline was registered.
fn rejected(body: &[u8]) -> String {
    let (rows, batch, identities) = decode_with(body, options());
    assert_eq!(rows, [], "{body:?}");
    assert_eq!(batch.rejects.len(), 1, "{body:?}: {:?}", batch.rejects);
    assert_eq!(identities, 0, "{body:?} registered a timeline");
    batch.rejects[0].reason.to_string()
}

fn only_value(body: &str) -> Value {
    let rows = accepted(body);
    assert_eq!((rows.len(), rows[0].fields.len()), (1, 1), "{body:?}");
    rows[0].fields[0].1.clone()
}

#[test]
fn lines_may_end_and_begin_in_many_ways() {
    let body = "\u{feff}a f=1 1\r\n\r\n\n  # a comment\twith a tab\r\n\tb f=2 2   \n \t \n  c   f=3   3\r\nd f=4 \ne f=5\r";
    let rows = accepted(body);
    let seen: Vec<_> = rows
        .iter()
        .map(|row| (row.identity.measurement(), row.line, row.nanos))
        .collect();
    let expected = [
        ("a", 1, 1),
        ("b", 5, 2),
        ("c", 7, 3),
        ("d", 8, DEFAULT_TIME),
        ("e", 9, DEFAULT_TIME),
    ];
    assert_eq!(seen, expected);
    assert_eq!(accepted(""), []);
    assert_eq!(accepted("\u{feff}"), []);
}

#[test]
fn numbers_and_booleans_that_are_read() {
    for (text, value) in [
        ("5i", Value::Signed(5)),
        ("-9223372036854775808i", Value::Signed(i64::MIN)),
        ("18446744073709551615u", Value::Unsigned(u64::MAX)),
        (".5", Value::Float(0.5)),
        ("5.", Value::Float(5.0)),
        ("-0", Value::Float(-0.0)),
        ("1e-400", Value::Float(0.0)),
        ("T", Value::Boolean(true)),
        ("False", Value::Boolean(false)),
        (r#""a\nb\"\\,= c""#, Value::String(r#"a\nb"\,= c"#.into())),
        ("\"two\nlines\"", Value::String("two\nlines".into())),
    ] {
        // The fields of the first line are parsed one by one; the fields of the second line are guessed.
        let rows = accepted(&format!("m f={text} 1\nm f={text} 2\n"));
        assert_eq!(rows.len(), 2);
        assert!(
            rows.iter().all(|row| row.fields[0].1 == value),
            "{text}: {rows:?}"
        );
    }
}

#[test]
fn values_that_are_refused_say_why() {
    for (text, reason) in [
        ("+5", "invalid field value \"+5\" in field \"f\""),
        ("0x10", "invalid number \"0x10\" in field \"f\""),
        ("1_000", "invalid number \"1_000\" in field \"f\""),
        ("NaN", "invalid field value \"NaN\" in field \"f\""),
        ("-Inf", "invalid number \"-Inf\" in field \"f\""),
        ("1e400", "invalid number \"1e400\" in field \"f\""),
        (
            "9223372036854775808i",
            "invalid integer \"9223372036854775808i\" in field \"f\"",
        ),
        ("1.5i", "invalid integer \"1.5i\" in field \"f\""),
        ("-1u", "invalid unsigned \"-1u\" in field \"f\""),
        ("tRUE", "invalid boolean \"tRUE\" in field \"f\""),
        ("'x'", "invalid field value \"'x'\" in field \"f\""),
        ("", "missing field value of field \"f\""),
        ("\"open", "unbalanced quotes"),
        ("\"a\"b", "unexpected character \"b\" after field \"f\""),
        ("1,", "missing field key"),
        ("1,g", "invalid field format \"g\""),
        ("1 1.5", "bad timestamp \"1.5\""),
        ("1 1e3", "bad timestamp \"1e3\""),
        ("1 1 1", "bad timestamp: unexpected text after it"),
        (
            "1 9223372036854775807",
            "time outside range 1677-09-21T00:12:43Z to 2262-04-11T23:47:16Z \"9223372036854775807\"",
        ),
        (
            "1 -9223372036854775807",
            "time outside range 1677-09-21T00:12:43Z to 2262-04-11T23:47:16Z \"-9223372036854775807\"",
        ),
    ] {
        assert_eq!(rejected(format!("m f={text}").as_bytes()), reason, "{text}");
    }
}

#[test]
fn keys_that_are_refused_say_why() {
    for (body, reason) in [
        (&b"m"[..], "missing fields"),
        (b"m,host=a", "missing fields"),
        (b"m ", "missing fields"),
        (b",a=b f=1", "missing measurement"),
        (b"m, f=1", "missing tag key"),
        (b"m,a= f=1", "missing tag value"),
        (b"m,a=1,a=2 f=1", "duplicate tags: \"a\""),
        (
            b"m,time=1 f=1",
            "invalid tag key: input tag \"time\" on measurement \"m\" is invalid",
        ),
        (
            b"m time=1",
            "invalid field name: input field \"time\" on measurement \"m\" is invalid",
        ),
        (b"m\0 f=1", "control character in measurement near \"\\0\""),
        (b"m\tf=1 g=1", "control character in measurement near \"\\tf=1\""),
        (b"m f\x01=1", "invalid field format \"f\""),
        (b"m,a=\xff f=1", "invalid UTF-8 in tag value \"\u{fffd}\""),
        (b"m\xff f=1", "invalid UTF-8 in name \"m\u{fffd}\""),
        (b"m f\xff=1", "invalid UTF-8 in name \"f\u{fffd}\""),
        (b"m f=\"\xff\"", "invalid UTF-8 in string \"\u{fffd}\""),
        (b"# \x07", "control character in comment"),
    ] {
        assert_eq!(rejected(body), reason, "{:?}", String::from_utf8_lossy(body));
    }
}

#[test]
fn the_last_of_two_fields_wins_and_time_is_left_out_and_counted() {
    let mut resolver = NumberingResolver::default();
    let body = b"m a=1,b=2i,a=3i 1\nm a=4i,b=5i 2\nm time=9,a=6i,b=7i 3\nm a=8i,b=9i,a=1i 4";
    let decoded = line_protocol::decode_counted(body, options(), &mut resolver);
    assert_eq!(decoded.time_fields_dropped, 1);
    assert_eq!(decoded.batch.groups.len(), 1);
    let signed = |a: i64, b: i64| {
        vec![
            ("a".to_owned(), Value::Signed(a)),
            ("b".to_owned(), Value::Signed(b)),
        ]
    };
    let fields: Vec<_> = rows(&decoded.batch, &resolver)
        .into_iter()
        .map(|row| row.fields)
        .collect();
    assert_eq!(fields, [signed(3, 2), signed(4, 5), signed(6, 7), signed(1, 9)]);
}

#[test]
fn shapes_part_by_type_and_by_the_set_of_fields() {
    let body = "cpu,h=a v=5i 1\nmem,h=a v=1,w=t 2\ncpu,h=a v=5.0 3\ncpu,h=b v=6i 4\nmem,h=b v=2,w=f 5\ncpu,h=b v=1i,w=1i 6\n\
                cpu,h=a v=7i 7\nc\\pu,h=a v=8i 8\ncpu v=9i 9\ncpus v=9i 10";
    let (rows, batch, _) = decode_with(body.as_bytes(), options());
    assert_eq!(batch.rejects, []);
    let shapes: Vec<_> = batch
        .groups
        .iter()
        .map(|group| {
            (
                group.measurements.of(0),
                group.columns[0].value_type().name(),
                group.columns.len(),
                group.rows(),
            )
        })
        .collect();
    let expected = [
        ("cpu", "integer", 1, 4),
        ("mem", "float", 2, 2),
        ("cpu", "float", 1, 1),
        ("cpu", "integer", 2, 1),
        ("c\\pu", "integer", 1, 1),
        ("cpus", "integer", 1, 1),
    ];
    assert_eq!(shapes, expected);
    assert_eq!(
        rows.iter().map(|row| row.nanos).collect::<Vec<_>>(),
        (1..=10).collect::<Vec<_>>()
    );
}

#[test]
fn a_line_rejected_midway_leaves_no_trace() {
    let body = "m,h=a i=1i,f=1.5,s=\"x\" 1\n\
                m,h=b i=2i,f=2.5,s=\"y\" nonsense\n\
                m,h=c i=3i,f=3.5,s=\"z\n\
                and\" bad\n\
                m,h=d i=4i,f=4.5,s=4 4\n\
                m,h=e i=5i,f=oops,s=\"5\" 5\n\
                m,h=f,h=f i=6i,f=6.5,s=\"6\" 6\n\
                m,h=g i=7i,f=7.5,s=\"7\" 7\n";
    let (rows, batch, identities) = decode_with(body.as_bytes(), options());
    let seen: Vec<_> = rows
        .iter()
        .map(|row| (row.identity.tag("h").expect("h").to_owned(), row.line))
        .collect();
    assert_eq!(seen, [("a".into(), 1), ("d".into(), 5), ("g".into(), 8)]);
    assert_eq!(identities, 3);
    let rejects: Vec<_> = batch
        .rejects
        .iter()
        .map(|reject| (reject.line, words(reject)))
        .collect();
    let expected = [
        (2, "bad timestamp \"nonsense\""),
        (3, "bad timestamp \"bad\""),
        (6, "invalid field value \"oops\" in field \"f\""),
        (7, "duplicate tags: \"h\""),
    ];
    assert_eq!(rejects, expected);
    assert_eq!(batch.rejects[1].excerpt, "m,h=c i=3i,f=3.5,s=\"z\nand\" bad");
}

#[test]
fn times_follow_the_precision() {
    let with = |precision| DecodeOptions {
        precision,
        ..options()
    };
    let (rows, _, _) = decode_with(b"m f=1 7\nm f=1 -7\nm f=1", with(Precision::Minute));
    let nanos: Vec<_> = rows.iter().map(|row| row.nanos).collect();
    assert_eq!(
        nanos,
        [420_000_000_000, -420_000_000_000, 0],
        "the default time is truncated to the minute"
    );
    let (_, batch, _) = decode_with(b"m f=1 9223372037", with(Precision::Second));
    assert_eq!(batch.rejects.len(), 1);
}

#[test]
fn limits_reject_the_line_and_name_limit_and_actual() {
    let mut small = options();
    small.limits.line_bytes = 100;
    small.limits.fields = 3;
    small.limits.string_bytes = 10;
    small.limits.shapes = 2;
    let good = "m f=1i 1\n";
    for (line, reason) in [
        (
            format!("m f=1i{}1", " ".repeat(100)),
            "line too large: limit 100, actual 107",
        ),
        ("m a=1,b=1,c=1,d=1".into(), "too many fields: limit 3"),
        (
            "m s=\"12345678901\"".into(),
            "string value too large: limit 10, actual 11",
        ),
        (
            format!("m,t={} f=1i", "x".repeat(70_000)),
            "series key too large: limit 65536, actual 70004",
        ),
        (
            "n a=1\no a=1".into(),
            "too many different shapes in one request (limit 2)",
        ),
        (
            format!("m {}=1", "x".repeat(5_000)),
            "name too large: limit 4096, actual 5000",
        ),
    ] {
        let (rows, batch, _) = decode_with(format!("{good}{line}\n{good}").as_bytes(), small);
        assert_eq!(batch.rejects.len(), 1, "{reason}");
        assert_eq!(words(&batch.rejects[0]), reason);
        assert!(batch.rejects[0].excerpt.len() <= 120);
        assert!(rows.len() >= 2, "{reason}: the valid lines are kept");
    }
}

#[test]
fn a_body_of_rubbish_is_left_off_and_says_so() {
    let mut few = options();
    few.limits.rejects = 3;
    let (rows, batch, _) = decode_with(b"a f=1\nx\nx\nx\nb f=1\nx\nx", few);
    assert_eq!(rows.len(), 1);
    let last = batch.rejects.last().expect("rejects");
    assert_eq!((batch.rejects.len(), last.line), (4, 5));
    assert_eq!(
        words(last),
        "too many rejects (limit 3): 3 more from here on were not read"
    );
}

#[test]
fn an_open_quote_swallows_the_rest_and_is_told_once() {
    assert_eq!(rejected(b"m f=\"open\nn f=1\no f=2\n"), "unbalanced quotes");
    assert_eq!(only_value("m f=\"\""), Value::String("".into()));
}
