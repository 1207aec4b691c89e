//! Properties of the line-protocol decoder that hold for every body.
//!
//! Encoded points decode to the same points, and no input causes a panic or columns of different lengths.

use proptest::prelude::*;
use tideline_ingest_protocols::line_protocol;
use tideline_model::{Identity, Timestamp, Value};

use crate::support::{NumberingResolver, Row, options, rows};

/// Fragments that are concatenated to bodies similar to valid lines.
const PIECES: [&str; 36] = [
    "cpu",
    "mem",
    "m\\,x",
    ",",
    "=",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\r",
    "\t",
    "\"",
    "\\",
    "\\\"",
    "\\ ",
    "host=a",
    "usage=1i",
    "usage=2",
    "time=3",
    "x=t",
    "x=\"s\"",
    "n=5u",
    ".5",
    "-",
    "1e9",
    "1e400",
    "9223372036854775807",
    "#",
    "\0",
    "ä",
    "i",
    "0",
    "12345678",
    "cpu,host=a usage=1i,n=5u 7\n",
    "cpu,host=b usage=1i,n=5u 8\n",
    "mem free=1 9\n",
];

/// Returns a strategy for names that line protocol can represent.
fn name() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        4 => "[a-z0-9_]",
        2 => prop::sample::select(vec![",", "=", " ", "\\", "\"", "ä", "😀", "#", "."]).prop_map(String::from),
    ];
    // The first letter prevents a comment; the last one prevents a trailing backslash.
    (prop::collection::vec(character, 0..8)).prop_map(|middle| format!("a{}z", middle.concat()))
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<f64>()
            .prop_filter("finite", |value| value.is_finite())
            .prop_map(Value::Float),
        (-1_000_000i64..1_000_000, 0u32..9)
            .prop_map(|(n, places)| Value::Float(n as f64 / 10f64.powi(places as i32))),
        any::<i64>().prop_map(Value::Signed),
        (-100i64..100).prop_map(Value::Signed),
        any::<u64>().prop_map(Value::Unsigned),
        any::<bool>().prop_map(Value::Boolean),
        any::<String>().prop_map(|text| Value::String(text.into())),
        "[a\\\\\"\n, =]{0,12}".prop_map(|text| Value::String(text.into())),
    ]
}

/// Returns a strategy for points: measurement, tags, fields with unique names, timestamp.
fn point() -> impl Strategy<Value = Row> {
    let names = |count: std::ops::Range<usize>| prop::collection::btree_set(name(), count);
    let fields = prop::collection::btree_map(name(), value(), 1..6).prop_map(|map| map.into_iter().collect());
    let nanos = Timestamp::MIN.nanos()..=Timestamp::MAX.nanos();
    (name(), names(0..5), fields, nanos).prop_map(|(measurement, keys, fields, nanos)| {
        let tags = keys
            .into_iter()
            .map(|key| (key.clone(), format!("v{key}")))
            .collect();
        let identity = Identity::new(measurement, tags).expect("unique tags");
        Row {
            line: 0,
            identity,
            nanos,
            fields,
        }
    })
}

fn write_point(point: &Row, out: &mut Vec<u8>) {
    let tags = point
        .identity
        .tags()
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    let fields = point.fields.iter().map(|(name, value)| (name.as_str(), value));
    let time = Timestamp::from_nanos(point.nanos).expect("in range");
    line_protocol::write(out, point.identity.measurement(), tags, fields, time).expect("can be written");
}

/// Returns the rows of a body, and the lines and reasons of its rejects.
fn decode(body: &[u8]) -> (Vec<Row>, Vec<(u32, String)>) {
    let mut resolver = NumberingResolver::default();
    let batch = line_protocol::decode(body, options(), &mut resolver);
    let rejects = batch
        .rejects
        .iter()
        .map(|reject| (reject.line, reject.reason.to_string()))
        .collect();
    (rows(&batch, &resolver), rejects)
}

fn body_of_pieces() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..60)
        .prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..tideline_testkit::proptest_config(256) })]

    #[test]
    fn written_points_read_back(points in prop::collection::vec(point(), 1..20), picks in prop::collection::vec(any::<prop::sample::Index>(), 1..60)) {
        // Points repeat. The decoder therefore guesses shapes, and lines of different groups alternate.
        let mut body = Vec::new();
        let mut expected = Vec::new();
        let mut line = 1;
        for pick in picks {
            let point = pick.get(&points);
            let start = body.len();
            write_point(point, &mut body);
            expected.push(Row { line, ..point.clone() });
            line += body[start..].iter().filter(|byte| **byte == b'\n').count() as u32;
        }
        let (rows, rejects) = decode(&body);
        prop_assert_eq!(rejects, vec![]);
        prop_assert_eq!(rows, expected);
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_leave_even_columns(body in prop::collection::vec(any::<u8>(), 0..300)) {
        decode(&body);
    }

    #[test]
    fn bodies_close_to_lines_never_panic_and_leave_even_columns(body in body_of_pieces()) {
        decode(&body);
    }

    #[test]
    fn two_bodies_in_one_are_the_two_of_them(first in body_of_pieces(), second in body_of_pieces()) {
        let mut first = first;
        first.push(b'\n');
        let (mut rows, mut rejects) = decode(&first);
        // An unclosed quote also consumes the second body.
        prop_assume!(rejects.iter().all(|(_, reason)| !reason.contains("unbalanced quotes")));
        let lines = first.iter().filter(|byte| **byte == b'\n').count() as u32;
        let (more_rows, more_rejects) = decode(&second);
        rows.extend(more_rows.into_iter().map(|row| Row { line: row.line + lines, ..row }));
        rejects.extend(more_rejects.into_iter().map(|(line, reason)| (line + lines, reason)));
        let together = [first, second].concat();
        prop_assert_eq!(decode(&together), (rows, rejects));
    }

    #[test]
    fn what_one_line_is_does_not_depend_on_the_lines_before(body in body_of_pieces()) {
        // The fields of the first line of a body are never guessed; those of most later lines are guessed.
        let (rows, _) = decode(&body);
        let text = String::from_utf8(body).expect("made of text");
        let lines: Vec<&str> = text.split('\n').collect();
        for row in rows {
            let rest = lines[row.line as usize - 1..].join("\n");
            let (alone, _) = decode(rest.as_bytes());
            prop_assert_eq!(&alone[0].fields, &row.fields);
            prop_assert_eq!(&alone[0].identity, &row.identity);
            prop_assert_eq!(alone[0].nanos, row.nanos);
        }
    }
}
