//! One file a resource: its routes, described where they are handled.

pub(crate) mod archive;
pub(crate) mod attach;
pub(crate) mod bulk;
pub(crate) mod cardinality;
pub(crate) mod clock;
pub(crate) mod docs;
pub(crate) mod facets;
pub(crate) mod guide;
mod influx;
pub(crate) mod influx_v1;
pub(crate) mod influx_v2;
pub(crate) mod jobs;
pub(crate) mod latest;
pub(crate) mod names;
pub(crate) mod operation;
pub(crate) mod orphans;
pub(crate) mod points;
pub(crate) mod policies;
pub(crate) mod prometheus;
pub(crate) mod queries;
pub(crate) mod query;
pub(crate) mod searches;
pub(crate) mod statistics;
pub(crate) mod tables;
pub(crate) mod timelines;
pub(crate) mod watch;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use tideline_engine::model::time::NANOS_PER_SECOND;
use tideline_engine::model::{Policy, Timestamp};
use tideline_openapi::policy::PolicyChanges;
use tideline_openapi::statistics::Span;
use tideline_openapi::{DurationText, ErrorBody, ErrorCode};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoParams, IntoResponses, ToSchema};

use crate::failure::{Failure, Result};

/// The path of routes about a table.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct TablePath {
    /// Name of the table
    #[param(example = "default")]
    pub(crate) table: String,
}

/// The path of routes about a timeline.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct TimelinePath {
    /// Name of the table
    #[param(example = "default")]
    pub(crate) table: String,
    /// 32 hexadecimal digits
    #[param(example = "3f2a9c017bde45a18c40f1e29d3b6a57")]
    pub(crate) id: String,
}

/// The failures that every route of ours may answer with, for the document.
pub(crate) struct Failures;

/// The failures that questions about points may answer with besides, for the document.
pub(crate) struct QueryFailures;

/// The failures that a watch may answer with besides, for the document.
pub(crate) struct WatchFailures;

impl IntoResponses for Failures {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        described(&[
            ("400", "The request cannot be right, or passes a limit"),
            ("401", "The token is missing or wrong"),
            ("404", "What is named does not exist"),
            ("500", "A fault of the service"),
            (
                "503",
                "Too much at once, or promises cannot be kept just now: send it again",
            ),
        ])
    }
}

impl IntoResponses for QueryFailures {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let mut responses = described(&[
            ("406", "None of the accepted content types can be written"),
            ("409", "The query was cancelled"),
            ("422", "The query needs more than its budget"),
        ]);
        responses.extend(Failures::responses());
        responses
    }
}

impl IntoResponses for WatchFailures {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let mut responses = described(&[("410", "What followed the event is not kept any more")]);
        responses.extend(Failures::responses());
        responses
    }
}

/// Failures by status and description, with the one body of all.
fn described(kinds: &[(&str, &str)]) -> BTreeMap<String, RefOr<Response>> {
    let body = Ref::from_schema_name(ErrorBody::name());
    let content = ContentBuilder::new().schema(Some(body)).build();
    let response = |(status, description): &(&str, &str)| {
        let response = ResponseBuilder::new()
            .description(*description)
            .content("application/json", content.clone())
            .build();
        ((*status).to_owned(), response.into())
    };
    kinds.iter().map(response).collect()
}

/// How many entries a page has, where `asked` is what the request says.
fn page_limit(asked: Option<usize>, default: usize, most: usize) -> Result<usize> {
    match asked.unwrap_or(default) {
        0 => Err(Failure::invalid("limit is 0; a page has at least one entry")),
        limit if limit > most => Err(Failure::over(
            ErrorCode::OverLimit,
            "limit",
            most as u64,
            limit as u64,
        )),
        limit => Ok(limit),
    }
}

/// A span of time as answers write it, without the part of a second.
fn whole_seconds(time: Duration) -> DurationText {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    DurationText(seconds.saturating_mul(NANOS_PER_SECOND))
}

/// An instant as answers write it, RFC 3339.
fn instant(nanos: i64) -> String {
    Timestamp::from_nanos_clamped(nanos).to_rfc3339()
}

/// A half-open span as answers write it.
fn span((start, end): (i64, i64)) -> Span {
    Span {
        start: instant(start),
        end: instant(end),
    }
}

/// Returns a policy with changes.
///
/// # Errors
///
/// The outcome contradicts itself.
pub(crate) fn changed_policy(policy: Policy, changes: PolicyChanges) -> Result<Policy> {
    let policy = changes.applied_to(policy);
    tideline_scheduler::policy::check(&policy).map_err(Failure::invalid)?;
    Ok(policy)
}
