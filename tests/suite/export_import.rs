//! Export and import: a store that is exported and written into an empty server must be the same store, with
//! equal timelines, types, timestamps and values. Formats are NDJSON, line protocol and Parquet.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};
use tideline_tests::server::{DataFolder, binary};
use tideline_tests::{Client, Launch, Server, seed};

/// Number of random points. Some have the same timeline and timestamp, so fewer are stored.
const POINTS: usize = 3_000;

/// Small pseudo-random generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    fn of<'t, T: ?Sized>(&mut self, all: &[&'t T]) -> &'t T {
        all[self.below(all.len())]
    }
}

/// Returns a random text with characters that formats must escape.
fn odd_text(random: &mut Random) -> String {
    let parts = [
        "a",
        " ",
        ",",
        "=",
        "\"",
        "\\",
        "\\\\",
        "ü",
        "日",
        "\u{1f600}",
        "#",
        "\n",
        "\r\n",
        "\t",
        "'",
        "{",
        "1i",
        "",
    ];
    (0..random.below(7)).map(|_| random.of(&parts)).collect()
}

/// Returns a float in its JSON form, often one that encoders get wrong.
fn float(random: &mut Random, has_specials: bool) -> Value {
    let plain = [
        "0.0",
        "-0.0",
        "1.5",
        "5e-324",
        "-1.7976931348623157e308",
        "0.1",
        "1e21",
        "123456789.125",
        "3.0",
    ];
    let specials = ["NaN", "Inf", "-Inf"];
    match has_specials && random.below(3) == 0 {
        true => json!({"float": random.of(&specials)}),
        false => json!({"float": random.of(&plain)}),
    }
}

/// Returns points of all types. Names have no line ends; NaN and infinities occur only if `has_specials`, for
/// formats that can hold them.
fn points(random: &mut Random, has_specials: bool) -> Vec<Value> {
    let measurements = [
        "cpu",
        "with space",
        "with,comma=and \"quote\"",
        "日本",
        "back\\slash",
    ];
    let times = [
        0,
        -1,
        1,
        1_700_000_000_123_456_789,
        -4_000_000_000_000_000_000,
        -9_000_000_000_000_000_000_i64,
    ];
    let tag_values = ["a", "x y", "k=v", "a,b", "q\"q", "tail\\x", "ü"];
    let mut points = Vec::new();
    for _ in 0..POINTS {
        let mut tags = Map::new();
        for key in ["host", "odd key", "k=1,2"] {
            if random.below(3) > 0 {
                tags.insert(key.into(), random.of(&tag_values).into());
            }
        }
        let mut fields = Map::new();
        let all: [(&str, Value); 6] = [
            ("f", float(random, has_specials)),
            (
                "i n",
                json!({"signed": random.of(&["0", "-9223372036854775808", "9223372036854775807", "42"])}),
            ),
            (
                "u=",
                json!({"unsigned": random.of(&["0", "18446744073709551615", "7"])}),
            ),
            ("b,", json!(random.below(2) == 0)),
            ("s\"", json!(odd_text(random))),
            // Field that is written with two numeric types.
            (
                "mixed",
                match random.below(2) {
                    0 => json!({"signed": "3"}),
                    _ => json!({"float": "3.0"}),
                },
            ),
        ];
        for (name, value) in all {
            if random.below(2) == 0 {
                fields.insert(name.into(), value);
            }
        }
        if fields.is_empty() {
            fields.insert("b,".into(), json!(true));
        }
        let time = times[random.below(times.len())] + random.below(50) as i64 * 1_000_000_007;
        points.push(
            json!({"measurement": random.of(&measurements), "tags": tags, "time": time, "fields": fields}),
        );
    }
    // Exemplars and start timestamps of Prometheus: an export must contain them.
    let exemplar = "{\"labels\":{},\"value\":1}";
    for (at, fields) in [json!({"value": 1.5, "_start": 7}), json!({"_exemplar": exemplar})]
        .into_iter()
        .enumerate()
    {
        let time = times[0] + at as i64;
        points.push(json!({"measurement": "hits", "tags": {"job": "web"}, "time": time, "fields": fields}));
    }
    points
}

/// Removes the field with two types: a Parquet column has one type.
fn one_type_a_field(point: &mut Value) {
    let fields = point["fields"].as_object_mut().expect("fields");
    fields.remove("mixed");
    if fields.is_empty() {
        fields.insert("b,".into(), json!(true));
    }
}

fn start(folder: &DataFolder) -> (Server, Client) {
    let server = folder.start(&Launch::default());
    let client = server.client();
    (server, client)
}

/// Runs the command line against a server; returns true on success, and its output.
fn run(client: &Client, line: &[&str]) -> (bool, String) {
    let mut command = Command::new(binary());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDELINE_") {
            command.env_remove(name);
        }
    }
    let ended = command
        .args(line)
        .args(["--server", &format!("http://{}", client.address())])
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let said = [ended.stdout, ended.stderr].concat();
    (
        ended.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

/// All data of a store that is visible to readers.
#[derive(Debug, PartialEq)]
struct Seen {
    timelines: BTreeSet<String>,
    fields: Value,
    /// Fields of each point as the server returns them, by timeline and timestamp.
    points: BTreeMap<String, BTreeMap<String, String>>,
}

fn snapshot(client: &Client) -> Seen {
    let search = json!({"limit": 10_000});
    let found = client
        .post_json("/v1/tables/default/timelines/search", &search)
        .expect_status(200)
        .json();
    let name = |one: &Value| json!([one["measurement"], one["tags"]]).to_string();
    let timelines = found["timelines"]
        .as_array()
        .expect("a list")
        .iter()
        .map(name)
        .collect();
    let mut points: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut query = json!({"times": "nanos", "range": {}, "limit": 1_000, "sample_details": true});
    loop {
        let page = client
            .post_json("/v1/tables/default/query", &query)
            .expect_status(200)
            .json();
        for series in page["series"].as_array().expect("a list") {
            let columns = series["columns"].as_array().expect("a list");
            for row in series["points"].as_array().expect("a list") {
                let place = format!("{} {}", name(series), row[0]);
                let fields = points.entry(place).or_default();
                for (column, value) in columns.iter().zip(row.as_array().expect("a row")).skip(1) {
                    if !value.is_null() {
                        fields.insert(column.to_string(), value.to_string());
                    }
                }
            }
        }
        match &page["next"] {
            Value::String(_) => query["page"] = page["next"].clone(),
            _ => break,
        }
    }
    let fields = client.get("/v1/tables/default/fields?sample_details=true");
    let fields = fields.expect_status(200).json();
    Seen {
        timelines,
        fields: fields["fields"].clone(),
        points,
    }
}

/// Sorts the types of each field: their order is not part of the stored data.
fn sorted_types(mut seen: Seen) -> Seen {
    for field in seen.fields.as_array_mut().into_iter().flatten() {
        let types = field["types"].as_array_mut().expect("a list");
        types.sort_by_key(Value::to_string);
    }
    seen
}

#[test]
fn an_exported_store_written_again_is_the_same_store() {
    let mut random = Random(seed("export_import") | 1);
    for (format, has_specials) in [("ndjson", true), ("lp", false), ("parquet", true)] {
        let mut points = points(&mut random, has_specials);
        if format == "parquet" {
            points.iter_mut().for_each(one_type_a_field);
        }
        let body: String = points.iter().map(|point| format!("{point}\n")).collect();
        let (first_folder, second_folder) = (DataFolder::new(), DataFolder::new());
        let (first, client) = start(&first_folder);
        let file = first_folder.beside("all.ndjson");
        std::fs::write(&file, body).expect("a file");
        let (is_well, said) = run(
            &client,
            &["write", &file.display().to_string(), "--parallel", "1"],
        );
        assert!(is_well, "{format}: {said}");
        // Seals the points, so that the export reads segments.
        client.post_json("/v1/jobs", &json!({"kind": "seal"}));
        let seen = snapshot(&client);
        let places: BTreeSet<String> = points
            .iter()
            .map(|point| json!([point["measurement"], point["tags"], point["time"]]).to_string())
            .collect();
        assert_eq!(seen.points.len(), places.len(), "{format}: all points stored");
        let exported = first_folder.beside(&format!("all.{format}.export"));
        let exported = exported.display().to_string();
        let (is_well, said) = run(&client, &["export", "--format", format, "--out", &exported]);
        assert!(is_well, "{format}: {said}");

        let (second, copy) = start(&second_folder);
        let (is_well, said) = run(
            &copy,
            &["write", &exported, "--format", format, "--batch-bytes", "16KiB"],
        );
        assert!(is_well, "{format}: {said}");
        let (seen, copied) = (sorted_types(seen), sorted_types(snapshot(&copy)));
        assert_eq!(copied.timelines, seen.timelines, "{format}");
        assert_eq!(copied.fields, seen.fields, "{format}");
        for (place, fields) in &seen.points {
            assert_eq!(copied.points.get(place), Some(fields), "{format}: {place}");
        }
        assert_eq!(copied.points.len(), seen.points.len(), "{format}");
        assert!(first.terminate().status.success() && second.terminate().status.success());
    }
}
