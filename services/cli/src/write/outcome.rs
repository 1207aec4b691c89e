//! What answers to a batch mean, and what they come to in the end.

use serde_json::Value;

use super::body::Body;

/// What the server says of one request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    points: u64,
    values: u64,
    rejected: u64,
    /// In the order of lines; not more than the server names.
    rejects: Vec<Reject>,
    /// Whether some of what was rejected may be stored later.
    pub(super) has_later: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Reject {
    line: usize,
    reason: String,
    is_for_now: bool,
}

/// How a batch ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) points: u64,
    pub(super) values: u64,
    pub(super) rejected: u64,
    /// Where records begin in the batch, and what was wrong with them.
    pub(super) rejects: Vec<(usize, String)>,
    /// Rejected ones that the server did not name, all behind the last one that it named.
    pub(super) unnamed: u64,
    /// Where that one begins in the batch.
    pub(super) last_named: Option<usize>,
}

impl Report {
    /// Of an answer that points were stored.
    pub(super) fn of_success(body: &Value) -> Option<Self> {
        Some(Self {
            points: body.get("points")?.as_u64()?,
            values: body.get("values")?.as_u64()?,
            rejected: body.get("rejected")?.as_u64()?,
            rejects: rejects_of(body),
            has_later: body["retryable"].as_u64().is_some_and(|retryable| retryable > 0),
        })
    }

    /// Of an answer that none were.
    pub(super) fn of_refusal(body: &Value) -> Self {
        let rejects = rejects_of(body);
        // The server says in its words how many; the lines that it names are all there are up to its limit.
        let rejected = body["message"].as_str().and_then(count_in);
        Self {
            rejected: rejected.unwrap_or_default().max(rejects.len() as u64),
            rejects,
            has_later: body["retryable"].as_bool().unwrap_or(false),
            ..Self::default()
        }
    }

    /// Whether it names what was rejected.
    pub(super) fn names_rejects(&self) -> bool {
        !self.rejects.is_empty()
    }
}

impl Outcome {
    /// Adds what became of `body`. What the server takes later comes back as a body of its own, unless this is the last
    /// word: then it is rejected.
    pub(super) fn add(&mut self, body: &Body<'_>, report: Report, is_last: bool) -> Option<Body<'static>> {
        // Records behind the last one that was named are sent again where some of them were rejected: those that had been
        // stored count once. Of their values only the share is known.
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
        let places = body.places();
        let unnamed = report.rejected.saturating_sub(report.rejects.len() as u64);
        let last_line = report.rejects.last().map_or(0, |reject| reject.line);
        let (later, ended): (Vec<Reject>, Vec<Reject>) = report
            .rejects
            .into_iter()
            .partition(|reject| report.has_later && !is_last && reject.is_for_now);
        self.rejected += ended.len() as u64;
        let origin = |line| places.origin(line).unwrap_or(usize::MAX);
        let placed = ended
            .into_iter()
            .map(|reject| (origin(reject.line), reject.reason));
        self.rejects.extend(placed);
        if report.has_later && !is_last {
            let lines: Vec<usize> = later.iter().map(|reject| reject.line).collect();
            let behind = (unnamed > 0).then_some(last_line);
            return Some(places.again(&lines, behind, lines.len() as u64 + unnamed));
        }
        self.rejected += unnamed;
        self.unnamed += unnamed;
        self.last_named = places.origin(last_line);
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

/// The first number of a text.
fn count_in(message: &str) -> Option<u64> {
    message
        .split(|c: char| !c.is_ascii_digit())
        .find_map(|digits| digits.parse().ok())
}
