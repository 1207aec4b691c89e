//! Interpretation of the responses to a batch, and the sum of the reports of all its requests.
//!
//! A batch may need several requests, because the server can store some lines and reject others until later. An
//! [`Outcome`] adds up the reports and counts each record once.

use serde_json::Value;

use super::body::Body;

/// Report of one request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    points: u64,
    values: u64,
    rejected: u64,
    /// Rejected lines that the response lists, ascending.
    rejects: Vec<Reject>,
    /// True if some rejected lines may be stored later.
    pub(super) has_later: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Reject {
    line: usize,
    reason: String,
    is_for_now: bool,
}

/// Result of a batch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) points: u64,
    pub(super) values: u64,
    pub(super) rejected: u64,
    /// Positions of rejected records in the batch, with the reasons.
    pub(super) rejects: Vec<(usize, String)>,
    /// Number of rejected records that the responses did not list. All are after the last listed one.
    pub(super) unnamed: u64,
    /// Position of the last listed record in the batch; `None` if the responses listed no record.
    pub(super) last_named: Option<usize>,
}

impl Report {
    /// Parses the response to a request that stored points; `None` if it is not a report.
    pub(super) fn of_success(body: &Value) -> Option<Self> {
        Some(Self {
            points: body.get("points")?.as_u64()?,
            values: body.get("values")?.as_u64()?,
            rejected: body.get("rejected")?.as_u64()?,
            rejects: rejects_of(body),
            has_later: body["retryable"].as_u64().is_some_and(|retryable| retryable > 0),
        })
    }

    /// Parses the response to a request that stored no points.
    pub(super) fn of_refusal(body: &Value) -> Self {
        let rejects = rejects_of(body);
        // The number of rejected lines is only in the message. The listed lines are complete up to a limit.
        let rejected = body["message"].as_str().and_then(count_in);
        Self {
            rejected: rejected.unwrap_or_default().max(rejects.len() as u64),
            rejects,
            has_later: body["retryable"].as_bool().unwrap_or(false),
            ..Self::default()
        }
    }

    /// Returns true if the report lists rejected lines.
    pub(super) fn names_rejects(&self) -> bool {
        !self.rejects.is_empty()
    }
}

impl Outcome {
    /// Adds the report of `body`. Returns a body of the records that may be stored later; `None` if no record is left.
    /// If `is_last` is true, records that may be stored later count as rejected instead.
    pub(super) fn add(&mut self, body: &Body<'_>, report: Report, is_last: bool) -> Option<Body<'static>> {
        // All records after the last listed one are sent again if some of them were rejected. Records that were
        // stored before count once. The number of new values is estimated in proportion, because the server reports
        // only the total.
        let again = body
            .owed
            .map_or(0, |owed| (report.points + report.rejected).saturating_sub(owed));
        let stored = report.points.saturating_sub(again);
        self.points += stored;
        self.values += match report.points {
            0 => 0,
            points => (u128::from(report.values) * u128::from(stored) / u128::from(points)) as u64,
        };
        if report.rejected == 0 {
            return None;
        }
        let line_offsets = body.line_offsets();
        let unnamed = report.rejected.saturating_sub(report.rejects.len() as u64);
        let last_line = report.rejects.last().map_or(0, |reject| reject.line);
        let (later, ended): (Vec<Reject>, Vec<Reject>) = report
            .rejects
            .into_iter()
            .partition(|reject| report.has_later && !is_last && reject.is_for_now);
        self.rejected += ended.len() as u64;
        let origin = |line| line_offsets.origin(line).unwrap_or(usize::MAX);
        let placed = ended
            .into_iter()
            .map(|reject| (origin(reject.line), reject.reason));
        self.rejects.extend(placed);
        if report.has_later && !is_last {
            let lines: Vec<usize> = later.iter().map(|reject| reject.line).collect();
            let after = (unnamed > 0).then_some(last_line);
            return Some(line_offsets.again(&lines, after, lines.len() as u64 + unnamed));
        }
        self.rejected += unnamed;
        self.unnamed += unnamed;
        self.last_named = line_offsets.origin(last_line);
        None
    }
}

fn rejects_of(report: &Value) -> Vec<Reject> {
    let rejects = report.get("rejects").and_then(Value::as_array);
    let read = |reject: &Value| {
        Some(Reject {
            line: usize::try_from(reject.get("line")?.as_u64()?).ok()?,
            reason: reject.get("reason")?.as_str()?.to_owned(),
            is_for_now: reject["retryable"].as_bool().unwrap_or(false),
        })
    };
    rejects.into_iter().flatten().filter_map(read).collect()
}

/// Returns the first number in a text; `None` without a number.
fn count_in(message: &str) -> Option<u64> {
    message
        .split(|c: char| !c.is_ascii_digit())
        .find_map(|digits| digits.parse().ok())
}
