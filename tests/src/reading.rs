//! Points and timelines as the routes of the service give them, page by page, every value with its type.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use tideline_model::{Timestamp, Value};

use crate::client::{Client, NoAnswer, Response};

/// Rows of a page: small enough that tests meet several.
const PAGE_ROWS: u64 = 5_000;

/// The fields of a point.
pub type Fields = BTreeMap<String, Value>;

/// One point.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The timeline's measurement.
    pub measurement: String,
    /// The timeline's tags.
    pub tags: BTreeMap<String, String>,
    /// Nanoseconds since the epoch.
    pub time: i64,
    /// Its fields that have a value.
    pub fields: Fields,
}

/// All points of a measurement.
///
/// # Panics
///
/// When a page is refused.
pub fn all(client: &Client, table: &str, measurement: &str) -> Vec<Row> {
    let condition = json!({"property": "measurement", "equals": measurement});
    of(client, table, &condition).unwrap_or_else(|error| panic!("{error}"))
}

/// All points of the timelines that meet a condition; an error only when no answer comes.
///
/// # Panics
///
/// When a page is refused.
pub fn of(client: &Client, table: &str, condition: &Json) -> Result<Vec<Row>, NoAnswer> {
    let question = json!({"timelines": {"where": condition}});
    rows(client, table, question)
}

/// The same as [`all`], and nothing where the measurement was never written.
///
/// # Panics
///
/// When a page is refused.
pub fn all_if_known(client: &Client, table: &str, measurement: &str) -> Vec<Row> {
    let condition = json!({"property": "measurement", "equals": measurement});
    match search(client, table, &json!({"where": condition, "limit": 1}))["total"].as_u64() {
        Some(0) => Vec::new(),
        _ => all(client, table, measurement),
    }
}

/// The name of the column that holds a function of a field.
pub fn column(function: &str, field: &str) -> String {
    format!("{function}({field})")
}

/// All rows of a query for raw points, over as many pages as it takes.
///
/// # Panics
///
/// When a page is refused, or is no answer.
pub fn rows(client: &Client, table: &str, mut question: Json) -> Result<Vec<Row>, NoAnswer> {
    if question.get("limit").is_none() {
        question["limit"] = json!(PAGE_ROWS);
    }
    question["times"] = json!("nanos");
    let path = format!("/v1/tables/{table}/query");
    let headers = [("content-type", "application/json")];
    let mut rows = Vec::new();
    loop {
        let answer = client.send("POST", &path, &headers, question.to_string().as_bytes())?;
        let page = answer.expect_status(200).json();
        rows.extend(rows_of(&page));
        match page["next"].as_str() {
            Some(next) => question["page"] = json!(next),
            None => return Ok(rows),
        }
    }
}

/// The rows of one JSON answer.
///
/// # Panics
///
/// When it is none.
pub fn rows_of(page: &Json) -> Vec<Row> {
    let mut rows = Vec::new();
    for series in page["series"].as_array().expect("an answer has series") {
        let columns = texts(&series["columns"]);
        let tags: BTreeMap<String, String> = series["tags"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect();
        for row in series["points"].as_array().expect("a series has points") {
            let cells = row.as_array().expect("a row is an array");
            assert_eq!(cells.len(), columns.len(), "a cell for each column: {series}");
            rows.push(Row {
                measurement: series["measurement"].as_str().unwrap_or_default().to_owned(),
                tags: tags.clone(),
                time: instant(&cells[0]),
                fields: columns[1..]
                    .iter()
                    .zip(&cells[1..])
                    .filter_map(|(column, cell)| Some((column.clone(), value(cell)?)))
                    .collect(),
            });
        }
    }
    rows
}

/// A search for timelines.
///
/// # Panics
///
/// When it is refused.
pub fn search(client: &Client, table: &str, question: &Json) -> Json {
    client
        .post_json(&format!("/v1/tables/{table}/timelines/search"), question)
        .expect_status(200)
        .json()
}

/// The sources of all timelines that meet a condition, by host, over as many pages as it takes.
///
/// # Panics
///
/// When a page is refused.
pub fn sources(client: &Client, table: &str, condition: &Json) -> Vec<String> {
    let mut question = json!({"where": condition, "sort": [{"tag": "host"}], "limit": 1_000});
    let mut sources = Vec::new();
    loop {
        let page = search(client, table, &question);
        let timelines = page["timelines"].as_array().expect("a page has timelines");
        sources.extend(
            timelines
                .iter()
                .map(|timeline| timeline["source"].as_str().unwrap_or_default().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => question["page"] = json!(next),
            None => return sources,
        }
    }
}

/// Sets and removes attributes of a timeline.
///
/// # Panics
///
/// When it is refused.
pub fn set_attributes(client: &Client, table: &str, id: &str, changes: &Json) -> Response {
    let path = format!("/v1/tables/{table}/timelines/{id}/attributes");
    let headers = [("content-type", "application/json")];
    client
        .send("PATCH", &path, &headers, changes.to_string().as_bytes())
        .unwrap_or_else(|error| panic!("{error}"))
        .expect_status(200)
}

/// An instant of an answer, in nanoseconds.
///
/// # Panics
///
/// When it is none.
pub fn instant(cell: &Json) -> i64 {
    cell.as_i64()
        .or_else(|| Some(Timestamp::parse_rfc3339(cell.as_str()?)?.nanos()))
        .unwrap_or_else(|| panic!("{cell} is no instant"))
}

/// A value of an answer with its type; `None` where there is none. A number with a fraction or an exponent is a
/// float, a whole one is signed, and beyond that unsigned; floats that JSON cannot hold are texts.
pub fn value(cell: &Json) -> Option<Value> {
    Some(match cell {
        Json::Null => return None,
        Json::Bool(value) => Value::Boolean(*value),
        Json::String(text) => Value::String(text.as_str().into()),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => Value::Signed(value),
            (None, Some(value)) => Value::Unsigned(value),
            (None, None) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::Array(_) | Json::Object(_) => panic!("{cell} is no value"),
    })
}

fn texts(array: &Json) -> Vec<String> {
    array
        .as_array()
        .into_iter()
        .flatten()
        .map(|text| text.as_str().unwrap_or_default().to_owned())
        .collect()
}
