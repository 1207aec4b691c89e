//! One file a resource: its routes, described where they are handled.

pub(crate) mod docs;
pub(crate) mod influx_v1;
pub(crate) mod influx_v2;
pub(crate) mod jobs;
pub(crate) mod latest;
pub(crate) mod names;
pub(crate) mod operation;
pub(crate) mod points;
pub(crate) mod query;
pub(crate) mod tables;
pub(crate) mod timelines;

use std::collections::BTreeMap;

use tideline_openapi::ErrorBody;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

/// The failures that every route of ours may answer with, for the document.
pub(crate) struct Failures;

impl IntoResponses for Failures {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let kinds = [
            ("400", "The request cannot be right, or passes a limit"),
            ("401", "The token is missing or wrong"),
            ("404", "What is named does not exist"),
            ("500", "A fault of the service"),
            (
                "503",
                "Too much at once, or promises cannot be kept just now: send it again",
            ),
        ];
        let body = Ref::from_schema_name(ErrorBody::name());
        let content = ContentBuilder::new().schema(Some(body)).build();
        let response = |(status, description): (&str, &str)| {
            let response = ResponseBuilder::new()
                .description(description)
                .content("application/json", content.clone())
                .build();
            (status.to_owned(), response.into())
        };
        kinds.into_iter().map(response).collect()
    }
}
