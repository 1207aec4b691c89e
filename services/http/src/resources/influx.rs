//! Common parts of the writes of both InfluxDB protocols.

use axum::extract::Request;
use tideline_engine::WriteOutcome;
use tideline_engine::model::{Precision, RejectReason};
use tideline_ingest::protocols::line_protocol::{partial_write, unable_to_parse};
use tideline_ingest::{Decoder, Target, WriteRequest};
use tideline_openapi::ErrorCode;

use crate::body;
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::ingest;

/// Maximum number of rejects that an error text contains.
const REJECTS_SHOWN_MAX: usize = 100;

/// Stores the lines of a request in the table for this `db` or `bucket`. Returns an error unless all lines were stored;
/// valid lines are stored either way.
pub(super) async fn write(
    app: &Grant,
    request: Request,
    protocol: &'static str,
    database: String,
    precision: Option<String>,
) -> Result<()> {
    let precision = precision.as_deref().filter(|name| !name.is_empty());
    let precision = precision.map(parse_precision).transpose()?.unwrap_or_default();
    let write = WriteRequest {
        key: ingest::request_key(request.headers())?,
        ..WriteRequest::new(Target::Database(database), Decoder::LineProtocol(precision))
    };
    let received = body::receive(request, app, body::write_limits(&app.settings)).await?;
    let outcome = ingest::write(app, protocol, received, write).await?;
    refusal(&outcome.written).map_or(Ok(()), Err)
}

fn parse_precision(name: &str) -> Result<Precision> {
    Precision::parse(name)
        .ok_or_else(|| Failure::invalid(format!("invalid precision {name:?} (use n, u, ms, s, m or h)")))
}

/// Returns the InfluxDB error of a write with rejected lines; `None` if no line was rejected. Agents search the
/// text for `partial write` and `unable to parse`.
fn refusal(outcome: &WriteOutcome) -> Option<Failure> {
    if outcome.rejected == 0 {
        return None;
    }
    if outcome.retryable > 0 {
        // The permanent rejects are omitted: agents that read `partial write` drop the batch.
        return Some(Failure::later(outcome, "lines"));
    }
    let is_unreadable = |reason: &RejectReason| {
        let is_refused = matches!(
            reason,
            RejectReason::Remembered(_) | RejectReason::OutsideOfToken(_)
        );
        !reason.is_of_row() && !is_refused
    };
    let shown = outcome.rejects.iter().take(REJECTS_SHOWN_MAX);
    let mut texts: Vec<String> = shown
        .map(|reject| {
            let reason = reject.reason.to_string();
            match is_unreadable(&reject.reason) {
                true => unable_to_parse(&reject.excerpt, &reason),
                false => reason,
            }
        })
        .collect();
    let hidden = outcome.rejected.saturating_sub(texts.len() as u64);
    if hidden > 0 {
        texts.push(format!("{hidden} more lines"));
    }
    let texts = texts.join("\n");
    let unreadable = outcome
        .rejects
        .iter()
        .filter(|reject| is_unreadable(&reject.reason));
    let dropped = outcome.rejected as usize - unreadable.count();
    if outcome.points == 0 && dropped == 0 {
        return Some(Failure::new(ErrorCode::AllRejected, texts));
    }
    let code = if outcome.points == 0 {
        ErrorCode::AllRejected
    } else {
        ErrorCode::Invalid
    };
    Some(Failure::new(code, partial_write(&texts, dropped)))
}
