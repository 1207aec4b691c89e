//! Shared by every route that takes samples: the write and its failures.

use std::collections::BTreeMap;

use tideline_engine::WriteOutcome;
use tideline_ingest::{Decoder, Outcome, Target, WriteRequest};
use tideline_openapi::ErrorCode;
use tideline_prometheus::import::refusal_text;
use utoipa::IntoResponses;
use utoipa::openapi::{ContentBuilder, ObjectBuilder, RefOr, Response, ResponseBuilder, Type};

use crate::app::App;
use crate::failure::{Failure, Result};
use crate::ingest;
use tideline_connections::ReceivedBody;

/// The failures of every route that takes samples, for the document: texts.
const FAILURES: [(&str, &str, &str); 5] = [
    (
        "400",
        "Something could not be stored and never will be, and is named by its line or series; the rest was stored",
        "1 stored, 1 refused\nline 2: up{: a quote is not closed\n",
    ),
    (
        "401",
        "The token is missing or wrong",
        "the token is missing or wrong\n",
    ),
    ("404", "There is no such table", "no table \"x\"\n"),
    (
        "415",
        "The content type or encoding is not read here",
        "content encoding \"br\" is not read here\n",
    ),
    (
        "503",
        "Too much at once, or the disk is nearly full: send it again after `Retry-After`",
        "too many bytes of requests in flight\n",
    ),
];
/// What remote write answers 400 to: its senders repeat what is answered 413 for ever.
const TOO_LARGE: (&str, &str, &str) = (
    "413",
    "The body is too large",
    "body of 40000000 bytes is over the limit of 33554432\n",
);

/// The failures of remote write.
pub(super) struct WriteFailures;

/// The failures of the other routes that take samples.
pub(super) struct ImportFailures;

impl IntoResponses for WriteFailures {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        FAILURES.iter().map(described).collect()
    }
}

impl IntoResponses for ImportFailures {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        FAILURES.iter().chain([&TOO_LARGE]).map(described).collect()
    }
}

fn described((status, what, example): &(&str, &str, &str)) -> (String, RefOr<Response>) {
    let text = ObjectBuilder::new().schema_type(Type::String);
    let content = ContentBuilder::new()
        .schema(Some(text))
        .example(Some((*example).into()))
        .build();
    let response = ResponseBuilder::new().description(*what);
    let response = response.content("text/plain", content).build();
    ((*status).to_owned(), response.into())
}

/// Stores the samples of a body in a table.
pub(super) async fn store(
    app: &App,
    protocol: &'static str,
    table: String,
    body: ReceivedBody,
    decoder: Decoder,
) -> Result<Outcome> {
    let request = WriteRequest::new(Target::Table(table), decoder);
    ingest::write(app, protocol, body, request).await
}

/// The failure of a write of which not all was stored; `None` when all was. What may be stored later is requested again as a
/// whole: samples that are stored already overwrite themselves.
pub(super) fn refusal(outcome: &WriteOutcome) -> Option<Failure> {
    if outcome.rejected == 0 {
        return None;
    }
    if outcome.retryable > 0 {
        return Some(Failure::later(outcome, "samples"));
    }
    let code = match outcome.points {
        0 => ErrorCode::AllRejected,
        _ => ErrorCode::Invalid,
    };
    Some(Failure::new(code, refusal_text(outcome)))
}
