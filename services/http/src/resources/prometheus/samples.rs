//! Common parts of the routes that accept samples: the write and its error responses. OTLP uses only the write.
//!
//! A write whose samples are not all stored returns an error text; valid samples are stored either way. The
//! text lists the first rejected samples, or requests a retry if some samples can be stored later.

use std::collections::BTreeMap;

use tideline_engine::WriteOutcome;
use tideline_ingest::{Decoder, Outcome, Target, WriteRequest};
use tideline_openapi::ErrorCode;
use tideline_prometheus::import::refusal_text;
use utoipa::IntoResponses;
use utoipa::openapi::{ContentBuilder, ObjectBuilder, RefOr, Response, ResponseBuilder, Type};

use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::ingest;
use tideline_connections::ReceivedBody;

/// Entries of the OpenAPI document for the plain-text error responses: status, description, example. They apply to
/// all routes that accept samples except OTLP.
const FAILURES: [(&str, &str, &str); 5] = [
    (
        "400",
        "Some samples were rejected permanently and are listed by line or series; the rest was stored",
        "1 stored, 1 refused\nline 2: up{: a quote is not closed\n",
    ),
    (
        "401",
        "The token is missing, wrong or has expired",
        "the token is missing or wrong\n",
    ),
    ("404", "The table does not exist", "table x does not exist\n"),
    (
        "415",
        "The content type or encoding is not supported",
        "content encoding \"br\" is not supported\n",
    ),
    (
        "503",
        "Too many concurrent requests, or the disk is nearly full; retry after `Retry-After`",
        "too many bytes of requests in flight\n",
    ),
];
/// Error response of a body over the limit. Remote write returns 400 instead, because its senders retry forever after a
/// 413.
const TOO_LARGE: (&str, &str, &str) = (
    "413",
    "The body is too large",
    "body of 40000000 bytes is over the limit of 33554432\n",
);

/// Error responses of remote write.
pub(super) struct WriteFailures;

/// Error responses of imports and of Pushgateway routes.
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
    app: &Grant,
    protocol: &'static str,
    table: String,
    body: ReceivedBody,
    decoder: Decoder,
) -> Result<Outcome> {
    let request = WriteRequest::new(Target::Table(table), decoder);
    ingest::write(app, protocol, body, request).await
}

/// Returns the error of a write with rejected samples; `None` if no sample was rejected. If some samples can be
/// stored later, the client must retry the whole request; stored samples are overwritten with the same values.
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
