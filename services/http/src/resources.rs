//! Handlers, one file per resource. Each handler declares its route and its part of the OpenAPI document.
//!
//! This module holds the common parts of several resources: path parameters, common error responses and conversions.

pub(crate) mod advice;
pub(crate) mod archive;
pub(crate) mod attach;
pub(crate) mod audit;
pub(crate) mod blobs;
pub(crate) mod bulk;
pub(crate) mod cardinality;
pub(crate) mod changes;
pub(crate) mod clock;
pub(crate) mod docs;
pub(crate) mod facets;
pub(crate) mod feeds;
pub(crate) mod guide;
pub(crate) mod indexes;
mod influx;
pub(crate) mod influx_v1;
pub(crate) mod influx_v2;
pub(crate) mod jobs;
pub(crate) mod latest;
pub(crate) mod names;
pub(crate) mod operation;
pub(crate) mod orphans;
pub(crate) mod parts;
pub(crate) mod points;
pub(crate) mod policies;
pub(crate) mod prometheus;
pub(crate) mod queries;
pub(crate) mod query;
pub(crate) mod rows;
pub(crate) mod search_indexes;
pub(crate) mod searches;
pub(crate) mod sql;
pub(crate) mod statistics;
pub(crate) mod tables;
pub(crate) mod tenants;
pub(crate) mod timelines;
pub(crate) mod tokens;
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

/// Path parameter of routes for a table.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct TablePath {
    /// Name of the table
    #[param(example = "default")]
    pub(crate) table: String,
}

/// Path parameter of routes for a wide table.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct WideTablePath {
    /// Name of the table, which has the model `wide`
    #[param(example = "orders")]
    pub(crate) table: String,
}

/// Path parameters of routes for a timeline.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct TimelinePath {
    /// Name of the table
    #[param(example = "default")]
    pub(crate) table: String,
    /// Timeline id, 32 hexadecimal digits
    #[param(example = "3f2a9c017bde45a18c40f1e29d3b6a57")]
    pub(crate) id: String,
}

/// Error responses of native routes, for the OpenAPI document.
pub(crate) struct Failures;

/// Error responses of queries for points, including those of [`Failures`], for the OpenAPI document.
pub(crate) struct QueryFailures;

/// Error responses of a watch, including those of [`Failures`], for the OpenAPI document.
pub(crate) struct WatchFailures;

impl IntoResponses for Failures {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        described(&[
            ("400", "The request is invalid or exceeds a limit"),
            ("401", "The token is missing, wrong or has expired"),
            ("404", "The named object does not exist"),
            ("500", "Internal error of the service"),
            (
                "503",
                "Too many concurrent requests, or the service is temporarily unavailable; retry later",
            ),
        ])
    }
}

impl IntoResponses for QueryFailures {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let mut responses = described(&[
            ("406", "None of the accepted content types is supported"),
            ("409", "The query was cancelled"),
            ("422", "The query needs more than its budget"),
        ]);
        responses.extend(Failures::responses());
        responses
    }
}

impl IntoResponses for WatchFailures {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let mut responses = described(&[("410", "The writes after the event are no longer available")]);
        responses.extend(Failures::responses());
        responses
    }
}

/// Returns responses with the given statuses and descriptions, all with the native error body.
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

/// Returns the requested page size, or `default` if it is missing. Fails if the page size is 0 or over `most`.
fn page_limit(requested: Option<usize>, default: usize, most: usize) -> Result<usize> {
    match requested.unwrap_or(default) {
        0 => Err(Failure::invalid("limit is 0; it must be at least 1")),
        limit if limit > most => Err(Failure::over(
            ErrorCode::OverLimit,
            "limit",
            most as u64,
            limit as u64,
        )),
        limit => Ok(limit),
    }
}

/// Converts a duration for a response, truncated to whole seconds.
pub(crate) fn whole_seconds(time: Duration) -> DurationText {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    DurationText(seconds.saturating_mul(NANOS_PER_SECOND))
}

/// Converts a timestamp for a response, as RFC 3339.
fn instant(nanos: i64) -> String {
    Timestamp::from_nanos_clamped(nanos).to_rfc3339()
}

/// Converts a half-open time span for a response.
fn span((start, end): (i64, i64)) -> Span {
    Span {
        start: instant(start),
        end: instant(end),
    }
}

/// Returns a policy with changes applied.
///
/// # Errors
///
/// Returns an error if the changed policy is not valid.
pub(crate) fn changed_policy(policy: Policy, changes: PolicyChanges) -> Result<Policy> {
    let policy = changes.applied_to(policy);
    tideline_scheduler::policy::check(&policy).map_err(Failure::invalid)?;
    Ok(policy)
}
