//! Random aggregates over random rows must equal a naive model: a scan of all rows, grouped and aggregated in memory.
//!
//! The same rows are aggregated by a scan of all rows, of a prefix and of a range, by listed keys, and through a search
//! index. Between the requests, rows are written and deleted, cells expire, and the row buffer is flushed.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tideline_engine::backend::memory::Character;
use tideline_openapi::row::RowIntegers;
use tideline_openapi::row_aggregate::{AggregateEnd, AggregateRows};
use tideline_results::ResultFormat;
use tideline_results::columnar::ColumnarForm;
use tideline_rows::RowsError;
use tideline_rows::aggregate::{AggregateWriter, Aggregation};
use tideline_testkit::{Random, rounds, seeds};

use crate::database::{Database, OpenBackend, SECOND, fjall, memory};

/// Time-to-live of the cells, in seconds.
const TTL: i64 = 1_000;
const STATES: [&str; 4] = ["open", "paid", "Über", ""];
const TOTALS: [&str; 6] = [
    "5.32",
    "-1",
    "0",
    "100.5",
    "0.001",
    "123456789012345678901234567890.1",
];
const SIZES: [f64; 5] = [-1.5, 0.0, 2.25, 1e9, 0.1];
const DAYS: [&str; 5] = [
    "2026-03-28T22:59:59Z",
    "2026-03-28T23:00:00Z",
    "2026-03-29T21:59:59.999999999Z",
    "2026-03-29T22:00:00Z",
    "1969-12-31T23:59:59Z",
];

fn orders(open_backend: OpenBackend) -> Database {
    Database::new(
        open_backend,
        &json!({
            "key": [
                {"name": "bucket", "bucket": {"of": ["customer"], "count": 2}},
                {"name": "customer", "type": "string"},
                {"name": "number", "type": "i64", "order": "desc"},
            ],
            "columns": [
                {"name": "state", "type": "string", "number": 1},
                {"name": "total", "type": "decimal", "number": 2},
                {"name": "items", "type": "i64", "number": 3},
                {"name": "parts", "type": "u64", "number": 4},
                {"name": "size", "type": "f64", "number": 5},
                {"name": "gift", "type": "bool", "number": 6},
                {"name": "placed", "type": "timestamp", "number": 7},
                {"name": "raw", "type": "binary", "number": 8},
                {"name": "doc", "type": "json", "number": 9},
            ],
            "version_guard": null,
            "ttl": {"after": TTL * SECOND, "of": "cell"},
        }),
    )
}

const COLUMNS: [&str; 9] = [
    "state", "total", "items", "parts", "size", "gift", "placed", "raw", "doc",
];

fn value(random: &mut Random, column: &str) -> Value {
    match column {
        "state" => json!(random.of(&STATES)),
        "total" => json!(random.of(&TOTALS)),
        "items" => json!(random.of(&[i64::MIN / 64, -2, 0, 7, i64::MAX / 64])),
        "parts" => json!(random.of(&[0, 1, u64::MAX / 64])),
        "size" => match random.below(8) {
            0 => json!("NaN"),
            _ => json!(random.of(&SIZES)),
        },
        "gift" => json!(random.is(50)),
        "placed" => json!(random.of(&DAYS)),
        "raw" => json!(random.of(&["AAE=", "/w==", ""])),
        _ => json!([1, {"a": random.below(3)}]),
    }
}

fn write(database: &Database, random: &mut Random) {
    let mut rows: Vec<Value> = Vec::new();
    for _ in 0..1 + random.below(12) {
        let key =
            json!({"customer": random.of(&["acme", "bolt", "cid"]), "number": random.below(40) as i64 - 10});
        if rows.iter().any(|row| row["key"] == key) {
            continue;
        }
        let op = random.of(&["put", "update", "update", "delete"]);
        let mut row = json!({"op": op, "key": key});
        if op != "delete" {
            let columns = COLUMNS.iter().filter(|_| random.is(60)).collect::<Vec<_>>();
            let columns = columns
                .into_iter()
                .map(|column| ((*column).to_owned(), value(random, column)));
            row["columns"] = Value::Object(columns.collect::<Map<_, _>>());
        }
        rows.push(row);
    }
    database.write(&json!(rows));
}

/// Aggregates rows. Returns the groups and the summary.
fn aggregate(
    database: &Database,
    request: &Value,
    format: ResultFormat,
) -> Result<(Vec<u8>, AggregateEnd), RowsError> {
    let request: AggregateRows = serde_json::from_value(request.clone()).expect("a request");
    let (engine, table) = (database.engine(), database.table());
    let aggregation = Aggregation::new(engine, &table, &request)?;
    let (shape, groups) = aggregation.run(engine, &table, &|| false)?;
    let mut out = Vec::new();
    AggregateWriter::new(&shape, &groups, format, RowIntegers::Number)?.write(&mut out, &[])?;
    Ok((out, groups.end.clone()))
}

fn groups(database: &Database, request: &Value) -> (Vec<Value>, AggregateEnd) {
    let (json, end) = aggregate(database, request, ResultFormat::Json).expect("a valid request");
    let text = format!("[{}]", String::from_utf8(json).expect("text"));
    (serde_json::from_str(&text).expect("JSON"), end)
}

/// Converts a decimal to the exact number of the model, an integer number of thousandths.
fn thousandths(text: &str) -> i128 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: i128 = format!("{whole}{fraction:0<3}").parse().expect("digits");
    digits
}

fn shown(thousandths: i128) -> String {
    let sign = if thousandths < 0 { "-" } else { "" };
    let text = format!(
        "{sign}{}.{:03}",
        thousandths.unsigned_abs() / 1000,
        thousandths.unsigned_abs() % 1000
    );
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns the value of a column of a row as JSON; `Null` if the row has no value.
fn of_row(row: &Value, column: &str) -> Value {
    match &row["columns"][column] {
        Value::Null => row["key"][column].clone(),
        value => value.clone(),
    }
}

/// Returns the start of the window that contains `time`, for a group key of a request.
fn window_start(time: &str, key: &Value) -> Value {
    json!(match (key["zone"].as_str(), key["window"].as_str()) {
        (Some("Europe/Berlin"), _) => match time {
            "2026-03-28T22:59:59Z" => "2026-03-27T23:00:00Z",
            // Both times are in the same window, which is a day of 23 hours.
            "2026-03-28T23:00:00Z" | "2026-03-29T21:59:59.999999999Z" => "2026-03-28T23:00:00Z",
            "2026-03-29T22:00:00Z" => "2026-03-29T22:00:00Z",
            _ => "1969-12-31T23:00:00Z",
        },
        (_, Some("1mo")) => match time {
            "1969-12-31T23:59:59Z" => "1969-12-01T00:00:00Z",
            _ => "2026-03-01T00:00:00Z",
        },
        _ => match time {
            "1969-12-31T23:59:59Z" => "1969-12-31T23:00:00Z",
            "2026-03-28T22:59:59Z" => "2026-03-28T22:00:00Z",
            "2026-03-29T21:59:59.999999999Z" => "2026-03-29T21:00:00Z",
            time => time,
        },
    })
}

/// Compares two values of one column in the order of results; `Null` comes last.
fn compare(one: &Value, other: &Value, column: &str) -> std::cmp::Ordering {
    use std::cmp::Ordering;
    match (one, other) {
        (Value::Null, Value::Null) => Ordering::Equal,
        (Value::Null, _) => Ordering::Greater,
        (_, Value::Null) => Ordering::Less,
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (one, other) => match column {
            "total" => {
                let of = |value: &Value| thousandths(value.as_str().expect("a decimal"));
                of(one).cmp(&of(other))
            }
            "items" | "parts" | "number" => one
                .as_i64()
                .map(i128::from)
                .or_else(|| one.as_u64().map(i128::from))
                .cmp(
                    &other
                        .as_i64()
                        .map(i128::from)
                        .or_else(|| other.as_u64().map(i128::from)),
                ),
            // NaN is given as text, and comes last.
            "size" => match (one.as_f64(), other.as_f64()) {
                (Some(one), Some(other)) => one.partial_cmp(&other).expect("numbers"),
                (one, other) => one.is_none().cmp(&other.is_none()),
            },
            "raw" => {
                let order = ["", "AAE=", "/w=="];
                let of = |value: &Value| order.iter().position(|known| value == known);
                of(one).cmp(&of(other))
            }
            _ => one.as_str().cmp(&other.as_str()),
        },
    }
}

/// Computes a function naively. `values` are the values of a column in the order of the keys of their rows.
fn naive(function: &Value, column: &str, values: &[Value]) -> Value {
    let mut sorted: Vec<Value> = values.to_vec();
    sorted.sort_by(|one, other| compare(one, other, column));
    let doubles: Vec<f64> = values
        .iter()
        .map(|value| match value {
            Value::String(text) => text.parse().expect("a number"),
            value => value.as_f64().expect("a number"),
        })
        .collect();
    if let Some(percent) = function["percentile"].as_f64() {
        let mut numbers: Vec<f64> = doubles.into_iter().filter(|number| !number.is_nan()).collect();
        numbers.sort_by(f64::total_cmp);
        if numbers.is_empty() {
            return Value::Null;
        }
        let at = (numbers.len() - 1) as f64 * percent / 100.0;
        let (low, high) = (numbers[at.floor() as usize], numbers[at.ceil() as usize]);
        let share = at - at.floor();
        return json!(if low == high {
            low
        } else {
            low * (1.0 - share) + high * share
        });
    }
    let function = function.as_str().expect("a word");
    if values.is_empty() {
        return match function {
            "count" | "count_distinct" => json!(0),
            _ => Value::Null,
        };
    }
    let numbers: Vec<&Value> = sorted
        .iter()
        .filter(|value| **value != "NaN" || column != "size")
        .collect();
    let (lowest, highest) = match (numbers.first(), numbers.last()) {
        (Some(low), Some(high)) => ((*low).clone(), (*high).clone()),
        _ => (json!("NaN"), json!("NaN")),
    };
    let integers = || -> Vec<i128> {
        let of = |value: &Value| {
            value
                .as_i64()
                .map_or_else(|| value.as_u64().expect("an integer").into(), i128::from)
        };
        values.iter().map(of).collect()
    };
    let double = |number: f64| match number.is_nan() {
        true => json!("NaN"),
        false => json!(number),
    };
    match function {
        "count" => json!(values.len()),
        "count_distinct" => {
            let mut distinct = sorted.clone();
            distinct.dedup();
            json!(distinct.len())
        }
        "min" => lowest,
        "max" => highest,
        "first" => values[0].clone(),
        "last" => values[values.len() - 1].clone(),
        "mode" => {
            let counts = sorted.chunk_by(|one, other| one == other);
            let most = counts.fold(&sorted[..0], |most, run| match run.len() > most.len() {
                true => run,
                false => most,
            });
            most[0].clone()
        }
        "sum" => match column {
            "total" => {
                let texts = values.iter().map(|value| value.as_str().expect("a decimal"));
                json!(shown(texts.map(thousandths).sum()))
            }
            "size" => double(doubles.iter().sum()),
            _ => {
                let sum: i128 = integers().iter().sum();
                i64::try_from(sum)
                    .map_or_else(|_| json!(u64::try_from(sum).expect("it fits")), |sum| json!(sum))
            }
        },
        "spread" => match column {
            "total" => json!(shown(
                thousandths(highest.as_str().expect("a decimal"))
                    - thousandths(lowest.as_str().expect("a decimal"))
            )),
            "size" => match (lowest.as_f64(), highest.as_f64()) {
                (Some(low), Some(high)) => json!(high - low),
                _ => json!("NaN"),
            },
            _ => {
                let integers = integers();
                let spread = integers.iter().max().expect("values") - integers.iter().min().expect("values");
                json!(u64::try_from(spread).expect("it fits"))
            }
        },
        "mean" => double(doubles.iter().sum::<f64>() / doubles.len() as f64),
        _ => {
            let mean = doubles.iter().sum::<f64>() / doubles.len() as f64;
            let squares: f64 = doubles.iter().map(|number| (number - mean).powi(2)).sum();
            double((squares / doubles.len() as f64).sqrt())
        }
    }
}

/// Returns true if two results are equal. Doubles may differ by rounding errors.
fn is_same(one: &Value, other: &Value, scale: f64) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(a), Some(b)) if one.is_f64() || other.is_f64() => (a - b).abs() <= 1e-9 * scale.max(a.abs()),
        _ => one == other,
    }
}

fn metrics(random: &mut Random) -> Vec<Value> {
    let mut metrics = Vec::new();
    for column in [
        "state", "total", "items", "parts", "size", "gift", "placed", "raw", "number", "customer",
    ] {
        if random.is(60) {
            continue;
        }
        let mut functions = vec![
            json!("count"),
            json!("count_distinct"),
            json!("min"),
            json!("max"),
        ];
        functions.extend([json!("mode"), json!("first"), json!("last")]);
        if ["total", "items", "parts", "size", "number"].contains(&column) {
            functions.extend(["sum", "mean", "stddev", "spread"].map(Value::from));
            functions.extend([
                json!({"percentile": 0}),
                json!({"percentile": 37.5}),
                json!({"percentile": 100}),
            ]);
        }
        functions.retain(|_| random.is(50));
        if !functions.is_empty() {
            metrics.push(json!({"column": column, "functions": functions}));
        }
    }
    metrics
}

fn keys(random: &mut Random) -> Vec<Value> {
    let all = [
        json!({"column": "state"}),
        json!({"column": "total"}),
        json!({"column": "gift"}),
        json!({"column": "size"}),
        json!({"column": "raw"}),
        json!({"column": "customer"}),
        json!({"column": "placed"}),
        json!({"column": "placed", "window": "1h"}),
        json!({"column": "placed", "window": "1d", "zone": "Europe/Berlin"}),
        json!({"column": "placed", "window": "1mo"}),
    ];
    let mut keys: Vec<Value> = Vec::new();
    for _ in 0..random.below(3) {
        let key = random.of(&all.each_ref()).clone();
        if keys.iter().all(|known| known["column"] != key["column"]) {
            keys.push(key);
        }
    }
    keys
}

fn filter(random: &mut Random) -> Option<Value> {
    match random.below(4) {
        0 => Some(json!({"column": "state", "equals": random.of(&STATES)})),
        1 => Some(json!({"not": {"column": "items", "gt": 0}})),
        2 => Some(json!({"or": [{"column": "gift", "exists": false}, {"column": "number", "lt": 5}]})),
        _ => None,
    }
}

/// Compares the groups in a result with the groups that the model computes from the rows.
fn check_groups(context: &str, request: &Value, rows: &[Value], found: &[Value]) {
    let list = |name: &str| request[name].as_array().cloned().unwrap_or_default();
    let (by, metrics) = (list("by"), list("metrics"));
    let mut expected: BTreeMap<Vec<String>, (Vec<Value>, Vec<&Value>)> = BTreeMap::new();
    if by.is_empty() {
        expected.insert(Vec::new(), (Vec::new(), Vec::new()));
    }
    for row in rows {
        let key: Vec<Value> = by
            .iter()
            .map(|key| match of_row(row, key["column"].as_str().expect("a name")) {
                Value::String(time) if key["window"].is_string() => window_start(&time, key),
                value => value,
            })
            .collect();
        let texts = key.iter().map(Value::to_string).collect();
        expected
            .entry(texts)
            .or_insert_with(|| (key, Vec::new()))
            .1
            .push(row);
    }
    assert_eq!(found.len(), expected.len(), "{context}: {request}\n{found:?}");
    let column_of = |key: &Value| key["column"].as_str().expect("a name").to_owned();
    let in_order = found.is_sorted_by(|one, other| {
        let of = |key: &Value| {
            let column = column_of(key);
            compare(&one["key"][&column], &other["key"][&column], &column)
        };
        by.iter()
            .map(of)
            .fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
            .is_lt()
    });
    assert!(in_order || found.len() < 2, "{context}: {request}\n{found:?}");
    for group in found {
        let texts: Vec<String> = by
            .iter()
            .map(|key| group["key"][column_of(key)].to_string())
            .collect();
        let (_, rows) = expected
            .get(&texts)
            .unwrap_or_else(|| panic!("{context}: {request}: no group {texts:?}"));
        assert_eq!(
            group["rows"],
            json!(rows.len()),
            "{context}: {request}: {texts:?}"
        );
        for metric in &metrics {
            let column = column_of(metric);
            let mut rows: Vec<&&Value> = rows.iter().collect();
            // Sorts the rows by bucket, customer, and number descending, like their stored keys. The bucket follows
            // from the customer.
            rows.sort_by_key(|row| {
                let customer = row["key"]["customer"].as_str().expect("a name").to_owned();
                (
                    bucket(&customer),
                    customer,
                    -row["key"]["number"].as_i64().expect("a number"),
                )
            });
            let values: Vec<Value> = rows
                .iter()
                .map(|row| of_row(row, &column))
                .filter(|value| !value.is_null())
                .collect();
            for function in metric["functions"].as_array().expect("a list") {
                let name = match function["percentile"].as_f64() {
                    Some(percent) => format!("percentile_{percent}"),
                    None => function.as_str().expect("a word").to_owned(),
                };
                let found = &group["metrics"][&column][&name];
                let numeric =
                    ["sum", "mean", "stddev", "spread"].contains(&name.as_str()) || name.starts_with("perc");
                let is_number = ["total", "items", "parts", "size", "number"].contains(&column.as_str());
                if numeric && !is_number {
                    continue;
                }
                let naive = match is_number || !numeric {
                    true => naive_of(function, &column, &values),
                    false => continue,
                };
                let scale = values
                    .iter()
                    .filter_map(number)
                    .fold(0.0_f64, |most, value| most.max(value.abs()));
                assert!(
                    is_same(found, &naive, scale),
                    "{context}: {request}\n{column} {name} of {texts:?}: {found} instead of {naive}\n{values:?}"
                );
            }
        }
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => text.parse().ok().filter(|number: &f64| !number.is_nan()),
        value => value.as_f64(),
    }
}

/// Computes a function naively. Values that are not numbers are not converted to numbers.
fn naive_of(function: &Value, column: &str, values: &[Value]) -> Value {
    let is_number = ["total", "items", "parts", "size", "number"].contains(&column);
    if is_number {
        return naive(function, column, values);
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(|one, other| compare(one, other, column));
    let function = function.as_str().expect("a word");
    match (function, values.is_empty()) {
        ("count", _) => json!(values.len()),
        ("count_distinct", _) => {
            sorted.dedup();
            json!(sorted.len())
        }
        (_, true) => Value::Null,
        ("min", _) => sorted[0].clone(),
        ("max", _) => sorted[sorted.len() - 1].clone(),
        ("first", _) => values[0].clone(),
        ("last", _) => values[values.len() - 1].clone(),
        _ => {
            let counts = sorted.chunk_by(|one, other| one == other);
            let most = counts.fold(&sorted[..0], |most, run| match run.len() > most.len() {
                true => run,
                false => most,
            });
            most[0].clone()
        }
    }
}

thread_local! {
    static BUCKETS: std::cell::RefCell<BTreeMap<String, usize>> = const { std::cell::RefCell::new(BTreeMap::new()) };
}

/// Returns the position of a customer in the order of stored keys.
fn bucket(customer: &str) -> usize {
    BUCKETS.with_borrow(|known| known.get(customer).copied().unwrap_or_default())
}

/// Determines the order of all customers from their stored keys, which begin with the bucket.
fn learn_buckets(database: &Database) {
    let table = database.table();
    let mut keys: Vec<(Vec<u8>, String)> = Vec::new();
    for customer in ["acme", "bolt", "cid"] {
        let request: tideline_openapi::row::GetRows =
            serde_json::from_value(json!({"keys": [{"customer": customer, "number": 0}]}))
                .expect("a request");
        let stored = tideline_rows::read::keys_of(&table, &request)
            .expect("a key")
            .remove(0);
        keys.push((stored, customer.to_owned()));
    }
    keys.sort();
    let places = keys
        .into_iter()
        .enumerate()
        .map(|(place, (_, customer))| (customer, place));
    BUCKETS.with_borrow_mut(|known| *known = places.collect());
}

fn check(database: &Database, random: &mut Random) {
    database.settle();
    for _ in 0..12 {
        let filter = filter(random);
        let mut request = json!({"by": keys(random), "metrics": metrics(random)});
        if let Some(filter) = &filter {
            request["where"] = filter.clone();
        }
        let rows = database.naive(filter.as_ref());
        let run = |context: &str, members: Value, rows: &[Value]| {
            let mut request = request.clone();
            for (name, value) in members.as_object().expect("an object") {
                request[name] = value.clone();
            }
            let (found, end) = groups(database, &request);
            assert_eq!(end.rows, rows.len() as u64, "{context}: {request}");
            assert_eq!((end.other_types, end.estimated.len()), (0, 0));
            check_groups(context, &request, rows, &found);
        };
        run("scan", json!({"allow_scan": true}), &rows);
        run("search", json!({"search": {}}), &rows);
        let of_acme: Vec<Value> = rows
            .iter()
            .filter(|row| row["key"]["customer"] == "acme")
            .cloned()
            .collect();
        run("prefix", json!({"prefix": {"customer": "acme"}}), &of_acme);
        let (from, to) = (random.below(20) as i64 - 5, random.below(20) as i64);
        let in_range = |row: &&Value| {
            let number = row["key"]["number"].as_i64().expect("a number");
            (from..to).contains(&number)
        };
        let some: Vec<Value> = of_acme.iter().filter(in_range).cloned().collect();
        let bounds = json!({"column": "number", "from": from, "to": to});
        run(
            "range",
            json!({"prefix": {"customer": "acme"}, "range": bounds}),
            &some,
        );
        let mut listed: Vec<Value> = rows.iter().step_by(2).map(|row| row["key"].clone()).collect();
        let chosen: Vec<Value> = rows.iter().step_by(2).cloned().collect();
        listed.extend(listed.first().cloned());
        listed.push(json!({"customer": "unknown", "number": 1}));
        run("keys", json!({"keys": listed}), &chosen);
    }
}

fn run(open_backend: OpenBackend, seed: u64, steps: usize) {
    let mut random = Random::new(seed);
    let mut database = orders(open_backend);
    learn_buckets(&database);
    database.create_index(
        &json!([
            {"column": "state", "as": "keyword"}, {"column": "items", "as": "number"},
            {"column": "gift", "as": "bool"}, {"column": "number", "as": "number"},
        ]),
        false,
    );
    for step in 0..steps {
        match random.below(6) {
            0 => database.engine().seal().expect("it is flushed"),
            1 => database.clock.advance(TTL * SECOND / 4),
            _ => write(&database, &mut random),
        }
        if step % 8 == 7 {
            check(&database, &mut random);
        }
    }
    database.close();
}

#[test]
fn random_aggregates_equal_a_naive_model() {
    for seed in seeds("random_aggregates_equal_a_naive_model", 3) {
        run(
            memory(Character::Embedded),
            seed,
            rounds("TIDELINE_SEARCH_STEPS", 64, 400),
        );
    }
}

#[test]
fn random_aggregates_equal_a_naive_model_on_fjall() {
    let folder = tempfile::tempdir().expect("a folder");
    for seed in seeds("random_aggregates_equal_a_naive_model_on_fjall", 1) {
        let data = folder.path().join(seed.to_string());
        run(
            Box::new(move || fjall(&data)),
            seed,
            rounds("TIDELINE_SEARCH_STEPS", 64, 400),
        );
    }
}

#[test]
fn sums_stay_exact_or_are_refused_and_percentiles_say_that_they_are_estimates() {
    let database = orders(memory(Character::Embedded));
    let put = |number: i64, columns: Value| {
        database.write(
            &json!([{"op": "put", "key": {"customer": "acme", "number": number}, "columns": columns}]),
        );
    };
    put(1, json!({"items": i64::MAX, "total": "0.00000000000000000001"}));
    put(2, json!({"items": -1, "total": "99999999999999999"}));
    let request = |metric: Value| json!({"allow_scan": true, "metrics": [metric]});
    let (found, _) = groups(
        &database,
        &request(json!({"column": "items", "functions": ["sum"]})),
    );
    assert_eq!(found[0]["metrics"]["items"]["sum"], json!(i64::MAX - 1));
    let total = request(json!({"column": "total", "functions": ["sum", "mean"]}));
    let (found, _) = groups(&database, &total);
    let sum = &found[0]["metrics"]["total"]["sum"];
    assert_eq!(sum, "99999999999999999.00000000000000000001");
    put(
        3,
        json!({"items": 2, "total": "170141183460469231731687303715884105727"}),
    );
    let refused = |request: &Value| {
        let error = aggregate(&database, request, ResultFormat::Json).expect_err("it is refused");
        error.to_string()
    };
    let sums = request(json!({"column": "items", "functions": ["sum"]}));
    assert!(refused(&sums).contains("sum(items) of a group does not fit its type"));
    assert!(refused(&total).contains("sum(total) of a group does not fit its type"));
    // The mean of the integers does not need a sum that fits their type.
    let (found, _) = groups(
        &database,
        &request(json!({"column": "items", "functions": ["mean"]})),
    );
    assert!(
        found[0]["metrics"]["items"]["mean"]
            .as_f64()
            .is_some_and(|mean| mean > 3e18)
    );

    for chunk in (0..5_000_i64).collect::<Vec<_>>().chunks(500) {
        let rows = chunk.iter().map(|number| {
            json!({"op": "put", "key": {"customer": "many", "number": number}, "columns": {"size": number}})
        });
        database.write(&Value::Array(rows.collect()));
    }
    let median = json!({"prefix": {"customer": "many"}, "metrics": [{"column": "size", "functions": [{"percentile": 50}]}]});
    let (found, end) = groups(&database, &median);
    assert_eq!(end.estimated, ["percentile_50(size)"]);
    let median = found[0]["metrics"]["size"]["percentile_50"]
        .as_f64()
        .expect("a number");
    assert!((median - 2_499.5).abs() <= 2_499.5 / 256.0, "{median}");
}

#[test]
fn tables_of_groups_have_typed_columns() {
    let database = orders(memory(Character::Embedded));
    database.write(&json!([
        {"op": "put", "key": {"customer": "acme", "number": 1}, "columns": {"state": "paid", "total": "5.30", "items": 2}},
        {"op": "put", "key": {"customer": "acme", "number": 2}, "columns": {"state": "paid", "total": "0.05"}},
        {"op": "put", "key": {"customer": "bolt", "number": 1}, "columns": {"total": "1"}},
    ]));
    let request = json!({"allow_scan": true, "by": [{"column": "state"}], "metrics": [
        {"column": "total", "functions": ["sum"]}, {"column": "items", "functions": ["max", "mean"]}]});
    let text = |format| {
        let (bytes, _) = aggregate(&database, &request, format).expect("a valid request");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    assert_eq!(
        text(ResultFormat::Csv),
        "state,rows,sum(total),max(items),mean(items)\r\npaid,2,5.35,2,2.0\r\n,1,1,,\r\n"
    );
    assert_eq!(text(ResultFormat::Ndjson).lines().count(), 2);
    for form in [ColumnarForm::ArrowStream, ColumnarForm::Parquet] {
        assert!(text(ResultFormat::Columnar(form)).contains("sum(total)"));
    }
}

#[test]
fn requests_that_make_no_sense_are_refused_with_the_reason() {
    let database = orders(memory(Character::Embedded));
    let metric = |column: &str, functions: Value| json!({"allow_scan": true, "metrics": [{"column": column, "functions": functions}]});
    let by = |key: Value| json!({"allow_scan": true, "by": [key]});
    for (request, said) in [
        (json!({}), "allow_scan"),
        (json!({"keys": [], "allow_scan": true}), "exclude each other"),
        (json!({"keys": [], "search": {}}), "exclude each other"),
        (
            json!({"search": {}, "prefix": {"customer": "a"}}),
            "exclude each other",
        ),
        (json!({"search": {}}), "has no search index"),
        (
            metric("missing", json!(["count"])),
            "neither declared nor part of the key",
        ),
        (
            metric("bucket", json!(["count"])),
            "name the columns from which it is computed: customer",
        ),
        (
            metric("state", json!(["sum"])),
            "has the type string, which has no sum",
        ),
        (
            metric("placed", json!([{"percentile": 5}])),
            "has the type timestamp, which has no percentile_5",
        ),
        (
            metric("doc", json!(["min"])),
            "has the type json, which has no min",
        ),
        (
            metric("items", json!([{"percentile": 101}])),
            "0 to 100 are possible",
        ),
        (metric("items", json!([])), "has no functions"),
        (
            metric("items", json!(["sum", "sum"])),
            "has the function sum twice",
        ),
        (
            metric("items", json!(vec!["sum"; 17])),
            "number of functions of a column of 17",
        ),
        (by(json!({"column": "doc"})), "has the type json"),
        (
            by(json!({"column": "items", "window": "1d"})),
            "only columns of timestamps have windows",
        ),
        (by(json!({"column": "placed", "zone": "UTC"})), "require a window"),
        (
            by(json!({"column": "placed", "window": "1d", "zone": "Mars"})),
            "not a valid time zone",
        ),
        (
            json!({"allow_scan": true, "by": vec![json!({"column": "state"}); 2]}),
            "listed twice",
        ),
        (
            json!({"allow_scan": true, "by": vec![json!({"column": "state"}); 9]}),
            "number of keys in by of 9",
        ),
    ] {
        let error = aggregate(&database, &request, ResultFormat::Json).expect_err("it is refused");
        assert!(error.to_string().contains(said), "{request}: {error}");
    }
}

#[test]
fn too_many_groups_are_refused() {
    let database = orders(memory(Character::Embedded));
    for chunk in (0..100_001_i64).collect::<Vec<_>>().chunks(5_000) {
        let rows = chunk.iter().map(|number| {
            json!({"op": "put", "key": {"customer": "many", "number": number}, "columns": {"items": number}})
        });
        database.write(&Value::Array(rows.collect()));
    }
    let request = json!({"allow_scan": true, "by": [{"column": "items"}]});
    let error = aggregate(&database, &request, ResultFormat::Json).expect_err("it is refused");
    assert!(error.to_string().contains("more than 100000 groups"), "{error}");
    let request = json!({"prefix": {"customer": "many"}, "range": {"column": "number", "from": 1}, "by": [{"column": "items"}]});
    assert_eq!(groups(&database, &request).0.len(), 100_000);
}

#[test]
fn an_aggregation_stops_when_its_client_leaves() {
    let database = orders(memory(Character::Embedded));
    database.create_index(&json!([{"column": "items", "as": "number"}]), false);
    for chunk in (0..1_000_i64).collect::<Vec<_>>().chunks(500) {
        let rows = chunk.iter().map(|number| {
            json!({"op": "put", "key": {"customer": "acme", "number": number}, "columns": {"items": 1}})
        });
        database.write(&Value::Array(rows.collect()));
    }
    database.settle();
    let keys: Vec<Value> = (0..500)
        .map(|number| json!({"customer": "acme", "number": number}))
        .collect();
    for request in [
        json!({"allow_scan": true}),
        json!({"search": {}}),
        json!({"keys": keys}),
    ] {
        let (engine, table) = (database.engine(), database.table());
        let parsed: AggregateRows = serde_json::from_value(request.clone()).expect("a request");
        let aggregation = Aggregation::new(engine, &table, &parsed).expect("a valid request");
        let calls = std::cell::Cell::new(0_u32);
        let is_stopped = || {
            calls.set(calls.get() + 1);
            calls.get() > 100
        };
        let stopped = aggregation.run(engine, &table, &is_stopped);
        assert!(matches!(stopped, Err(RowsError::Cancelled)), "{request}");
        assert!(
            calls.get() < 1_000,
            "{request}: it stops soon, after {} checks",
            calls.get()
        );
    }
}
