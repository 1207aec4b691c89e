//! Points and timelines read page by page through the routes of the service, with typed values.
//!
//! Cells are parsed from their raw JSON text, because a JSON parser could round floats and lose types.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use tideline_model::{Timestamp, Value};

use crate::client::{Client, NoResponse, Response};

/// Number of rows per page; small enough that tests read several pages.
const PAGE_ROWS: u64 = 5_000;

/// Fields of a point.
pub type Fields = BTreeMap<String, Value>;

/// One point.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Measurement of the timeline.
    pub measurement: String,
    /// Tags of the timeline.
    pub tags: BTreeMap<String, String>,
    /// Timestamp in nanoseconds since the Unix epoch.
    pub time: i64,
    /// Fields that have a value.
    pub fields: Fields,
}

/// Returns all points of a measurement.
///
/// # Panics
///
/// Panics if a page is refused or no response is received.
pub fn all(client: &Client, table: &str, measurement: &str) -> Vec<Row> {
    let condition = json!({"property": "measurement", "equals": measurement});
    of(client, table, &condition).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns all points of the timelines that match a condition.
///
/// # Errors
///
/// Returns [`NoResponse`] if no response is received.
///
/// # Panics
///
/// Panics if a page is refused.
pub fn of(client: &Client, table: &str, condition: &Json) -> Result<Vec<Row>, NoResponse> {
    let query = json!({"timelines": {"where": condition}});
    rows(client, table, query)
}

/// Returns all points of a measurement, as [`all`] does, or no points if it was never written.
///
/// # Panics
///
/// Panics if a request is refused or no response is received.
pub fn all_if_known(client: &Client, table: &str, measurement: &str) -> Vec<Row> {
    let condition = json!({"property": "measurement", "equals": measurement});
    match search(client, table, &json!({"where": condition, "limit": 1}))["total"].as_u64() {
        Some(0) => Vec::new(),
        _ => all(client, table, measurement),
    }
}

/// Returns the name of the result column of an aggregate function, such as `mean(usage)`.
pub fn column(function: &str, field: &str) -> String {
    format!("{function}({field})")
}

/// Returns all rows of a query for raw points, from all pages.
///
/// # Errors
///
/// Returns [`NoResponse`] if no response is received.
///
/// # Panics
///
/// Panics if a page is refused or invalid.
pub fn rows(client: &Client, table: &str, mut query: Json) -> Result<Vec<Row>, NoResponse> {
    if query.get("limit").is_none() {
        query["limit"] = json!(PAGE_ROWS);
    }
    query["times"] = json!("nanos");
    let path = format!("/v1/tables/{table}/query");
    let headers = [("content-type", "application/json")];
    let mut rows = Vec::new();
    loop {
        let response = client.send("POST", &path, &headers, query.to_string().as_bytes())?;
        let response = response.expect_status(200);
        let mut page = page_of(&response);
        let next = page.next.take();
        rows.extend(rows_of_page(page));
        match next {
            Some(next) => query["page"] = json!(next),
            None => return Ok(rows),
        }
    }
}

/// Page of rows with raw cells: a JSON parser could round a float.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    series: Vec<Series<'a>>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Series<'a> {
    measurement: String,
    tags: BTreeMap<String, String>,
    columns: Vec<String>,
    #[serde(borrow)]
    points: Vec<Vec<&'a RawValue>>,
}

/// Returns the rows of one JSON response; timestamps may be nanoseconds or RFC 3339.
///
/// # Panics
///
/// Panics if the response has no rows in this form.
pub fn rows_of(response: &Response) -> Vec<Row> {
    rows_of_page(page_of(response))
}

fn page_of(response: &Response) -> Page<'_> {
    serde_json::from_slice(&response.body).unwrap_or_else(|error| panic!("no rows ({error}): {response:?}"))
}

fn rows_of_page(page: Page<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for series in page.series {
        assert_eq!(series.columns[0], "time", "the first column is the time");
        for cells in series.points {
            assert_eq!(cells.len(), series.columns.len(), "a cell for each column");
            let named = series.columns.iter().zip(&cells).skip(1);
            rows.push(Row {
                measurement: series.measurement.clone(),
                tags: series.tags.clone(),
                time: instant(cells[0].get()),
                fields: named
                    .filter_map(|(column, cell)| Some((column.clone(), value(cell.get())?)))
                    .collect(),
            });
        }
    }
    rows
}

/// Runs a search for timelines and returns one page.
///
/// # Panics
///
/// Panics if the request is refused or no response is received.
pub fn search(client: &Client, table: &str, query: &Json) -> Json {
    client
        .post_json(&format!("/v1/tables/{table}/timelines/search"), query)
        .expect_status(200)
        .json()
}

/// Returns the sources of all timelines that match a condition, sorted by host, from all pages.
///
/// # Panics
///
/// Panics if a page is refused or no response is received.
pub fn sources(client: &Client, table: &str, condition: &Json) -> Vec<String> {
    let mut query = json!({"where": condition, "sort": [{"tag": "host"}], "limit": 1_000});
    let mut sources = Vec::new();
    loop {
        let page = search(client, table, &query);
        let timelines = page["timelines"].as_array().expect("a page has timelines");
        sources.extend(
            timelines
                .iter()
                .map(|timeline| timeline["source"].as_str().unwrap_or_default().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => query["page"] = json!(next),
            None => return sources,
        }
    }
}

/// Sets and removes attributes of a timeline.
///
/// # Panics
///
/// Panics if the request is refused or no response is received.
pub fn set_attributes(client: &Client, table: &str, id: &str, changes: &Json) -> Response {
    let path = format!("/v1/tables/{table}/timelines/{id}/attributes");
    let headers = [("content-type", "application/json")];
    client
        .send("PATCH", &path, &headers, changes.to_string().as_bytes())
        .unwrap_or_else(|error| panic!("{error}"))
        .expect_status(200)
}

/// Returns the nanoseconds of a timestamp in a response.
///
/// # Panics
///
/// Panics if the cell is not a timestamp.
pub fn instant(cell: &str) -> i64 {
    let text = || Timestamp::parse_rfc3339(cell.trim_matches('"')).map(Timestamp::nanos);
    cell.parse()
        .ok()
        .or_else(text)
        .unwrap_or_else(|| panic!("{cell} is not a timestamp"))
}

/// Parses a cell into a typed value; `None` for `null`. A number with a point or an exponent is a float;
/// any other number is signed, or unsigned if it exceeds `i64`. Non-finite floats arrive as strings and remain
/// strings.
///
/// # Panics
///
/// Panics if the cell is not a value.
pub fn value(cell: &str) -> Option<Value> {
    let number = || {
        let signed = cell.parse().map(Value::Signed);
        let unsigned = || cell.parse().map(Value::Unsigned);
        let float = || cell.parse().map(Value::Float);
        match cell.contains(['.', 'e', 'E']) {
            true => float().ok(),
            false => signed.or_else(|_| unsigned()).ok(),
        }
    };
    Some(match cell.as_bytes()[0] {
        b'n' => return None,
        b't' => Value::Boolean(true),
        b'f' => Value::Boolean(false),
        b'"' => {
            let text: String = serde_json::from_str(cell).expect("the page is JSON");
            Value::String(text.into())
        }
        _ => number().unwrap_or_else(|| panic!("{cell} is not a value")),
    })
}
