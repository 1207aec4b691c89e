//! Success responses, conversion of errors to [`Failure`], and the error responses of the Prometheus API in the OpenAPI
//! document.

use std::collections::BTreeMap;

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tideline_openapi::ErrorCode;
use tideline_openapi::prometheus::{Answer, PrometheusError};
use tideline_prometheus::{PromqlError, RequestError};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response as Described, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

use crate::failure::{Failure, QueryFault};

/// Returns a success response without warnings.
pub(super) fn success(data: impl Serialize) -> Response {
    Json(Answer::new(data)).into_response()
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Invalid(message) => Self::invalid(message),
            RequestError::Pattern(error) => error.into(),
            RequestError::OverLimit { what, limit, actual } => {
                Self::over(ErrorCode::OverLimit, what, limit, actual)
            }
        }
    }
}

impl From<PromqlError> for Failure {
    fn from(error: PromqlError) -> Self {
        let (code, fault) = match &error {
            PromqlError::Parse(_) | PromqlError::Invalid(_) => (ErrorCode::Invalid, None),
            PromqlError::Execution(_) | PromqlError::TooMany(_) => {
                (ErrorCode::OverBudget, Some(QueryFault::Execution))
            }
            PromqlError::Timeout(_) => (ErrorCode::OverBudget, Some(QueryFault::Timeout)),
            PromqlError::Canceled(_) => (ErrorCode::Conflict, Some(QueryFault::Canceled)),
            PromqlError::Storage { is_overloaded, .. } => match is_overloaded {
                true => (ErrorCode::Overloaded, None),
                false => (ErrorCode::Internal, None),
            },
        };
        Self {
            fault,
            ..Self::new(code, error.to_string())
        }
    }
}

/// Error responses of the routes of the Prometheus API, except imports and writes of samples, for the OpenAPI
/// document.
pub(super) struct PrometheusFailures;

impl IntoResponses for PrometheusFailures {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        let body = Ref::from_schema_name(PrometheusError::name());
        let content = ContentBuilder::new().schema(Some(body)).build();
        let kinds = [
            ("400", "`bad_data`: the request is not valid"),
            ("401", "`bad_data`: the token is missing or wrong"),
            ("404", "`not_found`: the table does not exist"),
            (
                "422",
                "`execution`: the expression cannot be evaluated, or needs too many samples",
            ),
            ("499", "`canceled`: the query was cancelled"),
            ("500", "`internal`: internal error of the service"),
            (
                "503",
                "`timeout`: the query took too long; `unavailable`: too many requests, retry later",
            ),
        ];
        let described = |(status, description): (&str, &str)| {
            let response = ResponseBuilder::new()
                .description(description)
                .content("application/json", content.clone())
                .build();
            (status.to_owned(), response.into())
        };
        kinds.into_iter().map(described).collect()
    }
}
