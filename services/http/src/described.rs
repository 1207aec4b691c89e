//! Parts of the document that follow rules: failures that no handler causes, and words that have one schema.
//!
//! Failures of the layers around all handlers, of bodies, of the disk: each route declares the failures of its own. These come from what it shares with others: whoever asks may lack the token
//! or come from a page of another site, a body may be too large, a change may find the disk full. So they are added by rule,
//! with the status and the body of the route's dialect.

use tideline_openapi::influx::{InfluxV1Error, InfluxV2Error};
use tideline_openapi::prometheus::PrometheusError;
use tideline_openapi::{ErrorBody, ErrorCode};
use utoipa::ToSchema;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::schema::Type;
use utoipa::openapi::{ContentBuilder, ObjectBuilder, OneOf, OpenApi, Ref, RefOr, ResponseBuilder, Schema};

use crate::auth;
use crate::context::Dialect;
use crate::failure::status;

/// Requests that send a body and change nothing.
const READING: [&str; 11] = [
    "/query",
    "/query/batch",
    "/explain",
    "/latest",
    "/watch",
    "/timelines/search",
    "/timelines/facets",
    "/policies/preview",
    "/api/v1/read",
    "/api/v1/export",
    "/federate",
];

/// Completes the document of all routes.
pub(crate) fn complete(document: &mut OpenApi) {
    let schemas = document
        .components
        .iter_mut()
        .flat_map(|components| components.schemas.values_mut());
    for schema in schemas {
        if let RefOr::T(Schema::OneOf(choice)) = schema {
            join_words(choice);
        }
    }
    for (path, item) in &mut document.paths.paths {
        let PathItem {
            get,
            put,
            post,
            delete,
            patch,
            ..
        } = item;
        if let Some(get) = get {
            add(path, get, Kind::Reads);
        }
        let is_reading =
            READING.iter().any(|end| path.ends_with(end)) || Dialect::of(path) == Dialect::Prometheus;
        for operation in [put, post, delete, patch].into_iter().flatten() {
            let kind = if is_reading { Kind::Asks } else { Kind::Changes };
            add(path, operation, kind);
        }
    }
}

/// Kind of a request as far as its failures are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A safe method.
    Reads,
    /// Another method that changes nothing.
    Asks,
    /// It stores or removes something.
    Changes,
}

fn add(path: &str, operation: &mut Operation, kind: Kind) {
    let dialect = Dialect::of(path);
    let mut codes = vec![(
        ErrorCode::Invalid,
        "The request cannot be right, or passes a limit",
    )];
    if !auth::is_open(path) {
        codes.extend([
            (ErrorCode::Unauthenticated, "The token is missing or wrong"),
            (
                ErrorCode::Forbidden,
                "The host is not served here, or a page of another site asks",
            ),
            (ErrorCode::Internal, "A fault of the service"),
            (ErrorCode::Overloaded, "Too much at once: send it again"),
        ]);
    }
    if path.contains('{') {
        codes.push((ErrorCode::NotFound, "What is named does not exist"));
    }
    let is_of_table = path.starts_with("/v1/tables/{table}/");
    if is_of_table {
        codes.push((
            ErrorCode::OverBudget,
            "The request needs more than its budget of time or memory",
        ));
    }
    if operation.request_body.is_some() {
        codes.extend([
            (ErrorCode::BodyTooLarge, "The body is too large"),
            (ErrorCode::BodyTooSlow, "The body came too slowly"),
            (
                ErrorCode::UnsupportedMediaType,
                "The content type or encoding is not read here",
            ),
        ]);
    }
    if kind == Kind::Changes {
        codes.extend([
            (ErrorCode::Conflict, "It contradicts what is there"),
            (ErrorCode::DiskFull, "The disk is nearly full"),
        ]);
    }
    for (code, description) in codes {
        let responses = &mut operation.responses.responses;
        let status = status(code, dialect).as_str().to_owned();
        responses.entry(status).or_insert_with(|| {
            let response = ResponseBuilder::new().description(description);
            let (media_type, content) = body_of(dialect, description);
            response.content(media_type, content.build()).build().into()
        });
    }
    let wrong_model = status(ErrorCode::WrongModel, dialect);
    if let Some(RefOr::T(response)) = operation.responses.responses.get_mut(wrong_model.as_str())
        && is_of_table
    {
        response
            .description
            .push_str("; or the table has another model than the request is for");
    }
}

/// Makes one schema of all words of a choice: generators of clients take several schemas of texts for each other.
fn join_words(choice: &mut OneOf) {
    let is_word =
        |item: &RefOr<Schema>| matches!(item, RefOr::T(Schema::Object(word)) if word.enum_values.is_some());
    if choice.items.iter().filter(|item| is_word(item)).count() < 2 {
        return;
    }
    let (mut values, mut descriptions) = (Vec::new(), Vec::new());
    for item in &choice.items {
        let RefOr::T(Schema::Object(word)) = item else {
            continue;
        };
        for value in word.enum_values.iter().flatten() {
            let description = word.description.as_deref().unwrap_or_default();
            descriptions.push(format!(
                "* `{}`: {description}",
                value.as_str().unwrap_or_default()
            ));
            values.push(value.clone());
        }
    }
    let words = ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some(descriptions.join("\n")))
        .enum_values(Some(values));
    choice.items.retain(|item| !is_word(item));
    choice.items.insert(0, words.into());
}

/// The body of an error in a dialect.
fn body_of(dialect: Dialect, example: &str) -> (&'static str, ContentBuilder) {
    let of = |name: &str| {
        (
            "application/json",
            ContentBuilder::new().schema(Some(Ref::from_schema_name(name))),
        )
    };
    match dialect {
        Dialect::Native => of(&ErrorBody::name()),
        Dialect::InfluxV1 => of(&InfluxV1Error::name()),
        Dialect::InfluxV2 => of(&InfluxV2Error::name()),
        Dialect::Prometheus => of(&PrometheusError::name()),
        Dialect::RemoteWrite | Dialect::SampleImport => {
            let text = ObjectBuilder::new().schema_type(Type::String);
            let content = ContentBuilder::new().schema(Some(text));
            ("text/plain", content.example(Some(example.into())))
        }
    }
}
