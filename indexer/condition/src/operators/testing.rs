//! Sample record for the tests of the operators.

use tideline_model::{GeoPoint, TimelineId, Timestamp};

use crate::condition::Subject;
use crate::domain::Domain;
use crate::json;
use crate::matcher::Matcher;
use crate::record::{Record, ValueRef};

struct Sample;

impl Record for Sample {
    fn any_value(&self, subject: &Subject, mut take: impl FnMut(ValueRef<'_>) -> bool) -> bool {
        let seconds = |seconds: i64| ValueRef::Time(Timestamp::from_nanos_clamped(seconds * 1_000_000_000));
        let text = ValueRef::Text;
        let values = match subject {
            Subject::Measurement => vec![text("cpu")],
            Subject::Source => vec![text("web-1")],
            Subject::Id => vec![ValueRef::Id(TimelineId(*b"0123456789abcdef"))],
            Subject::FirstSeen => vec![seconds(9)],
            Subject::LastSeen => vec![seconds(10)],
            Subject::Any => ["cpu", "web-1", "12", "backup", "ssd", "The backup store"]
                .map(text)
                .to_vec(),
            Subject::Tag(key) => match key.as_str() {
                "host" => vec![text("web-1")],
                "rack" => vec![text("12")],
                _ => vec![],
            },
            Subject::Attribute(key) => match key.as_str() {
                "cores" => vec![ValueRef::Float(8.0)],
                "retired" => vec![ValueRef::Boolean(false)],
                "bought" => vec![seconds(5)],
                "site" => vec![ValueRef::Point(GeoPoint::new(52.5, 13.4).expect("a valid point"))],
                "labels" => vec![text("backup"), text("ssd")],
                "title" => vec![text("The backup store")],
                _ => vec![],
            },
            Subject::Field(name) => match name.as_str() {
                "usage" => vec![ValueRef::Float(90.5)],
                "count" => vec![ValueRef::Signed(7)],
                "state" => vec![text("busy")],
                _ => vec![],
            },
            Subject::Column(name) => match name.as_str() {
                "note" => vec![text("The backup store")],
                "labels" => vec![text("backup"), text("ssd")],
                "items" => vec![ValueRef::Signed(7)],
                "site" => vec![ValueRef::Point(GeoPoint::new(52.5, 13.4).expect("a valid point"))],
                "placed" => vec![ValueRef::Signed(5_000_000_000)],
                "seen" => vec![seconds(5)],
                _ => vec![],
            },
        };
        values.into_iter().any(&mut take)
    }
}

fn domain(json: &str) -> Domain {
    if json.contains("\"column\"") {
        Domain::Rows
    } else if json.contains("\"field\"") {
        Domain::Values
    } else {
        Domain::Timelines
    }
}

/// Returns true if the sample matches a condition in JSON.
pub(super) fn holds(json: &str) -> bool {
    let condition = json::from_str(domain(json), json).expect(json);
    Matcher::new(&condition).expect(json).matches(&Sample)
}

/// Returns the error message with which parsing or compilation rejects a condition in JSON.
pub(super) fn refuses(json: &str) -> String {
    match json::from_str(domain(json), json) {
        Ok(condition) => Matcher::new(&condition).expect_err(json).to_string(),
        Err(error) => error.to_string(),
    }
}
