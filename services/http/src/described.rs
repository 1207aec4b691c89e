//! Parts of the OpenAPI document that are added automatically: common error responses, and merged enum schemas.
//!
//! Each route declares its own errors. Common errors depend only on the method, the path, the declared action and the
//! presence of a body, so they are added here. Examples are a missing token, a request from a page of another site, a
//! body over a limit and a full disk. The dialect of the route determines the status and body of these errors.

use tideline_openapi::influx::{InfluxV1Error, InfluxV2Error};
use tideline_openapi::otlp::RpcStatus;
use tideline_openapi::prometheus::PrometheusError;
use tideline_openapi::{ErrorBody, ErrorCode};
use utoipa::ToSchema;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::Type;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, ObjectBuilder, OneOf, OpenApi, Ref, RefOr, ResponseBuilder, Schema};

use crate::auth;
use crate::context::Dialect;
use crate::failure::status;
use crate::routes::{Declared, declaration, operations_mut};

/// Adds the security scheme, and the common error responses to all operations; merges the enum schemas.
pub(crate) fn complete(document: &mut OpenApi) {
    let token = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some(
            "Token, or none on a server that requires no token. Also accepted as the password of `Basic`, as \
             `Authorization: Token …`, and as the parameter `p` of the routes of InfluxDB 1. The listed action must be \
             allowed by a role of the token.",
        ))
        .build();
    let components = document.components.get_or_insert_default();
    components.add_security_scheme("token", SecurityScheme::Http(token));
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
        for (method, operation) in operations_mut(item) {
            let kind = match declaration(operation) {
                _ if method.is_safe() => Kind::Reads,
                Some(Declared::Action(needed)) if needed.reads() => Kind::Asks,
                _ => Kind::Changes,
            };
            add(path, operation, kind);
        }
    }
}

/// Class of a request, which determines its common errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Request with a safe method.
    Reads,
    /// Request with an unsafe method that changes nothing.
    Asks,
    /// Request that changes data or state.
    Changes,
}

fn add(path: &str, operation: &mut Operation, kind: Kind) {
    let dialect = Dialect::of(path);
    let mut codes = vec![(ErrorCode::Invalid, "The request is invalid or exceeds a limit")];
    if !auth::is_open(path) {
        codes.extend([
            (ErrorCode::Unauthenticated, "The token is missing, wrong or has expired"),
            (
                ErrorCode::Forbidden,
                "The token does not allow the request, the requested host is not allowed, or the request comes from a \
                 page of another site",
            ),
            (ErrorCode::Internal, "Internal error of the service"),
            (ErrorCode::Overloaded, "Too many concurrent requests; retry later"),
        ]);
    }
    if path.contains('{') {
        codes.push((ErrorCode::NotFound, "The named object does not exist"));
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
            (ErrorCode::BodyTooSlow, "The body was sent too slowly"),
            (
                ErrorCode::UnsupportedMediaType,
                "The content type or encoding is not supported",
            ),
        ]);
    }
    if kind == Kind::Changes {
        codes.extend([
            (
                ErrorCode::Conflict,
                "The request conflicts with the current state",
            ),
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
            .push_str("; or the table has another model than the request requires");
    }
}

/// Merges the string schemas of a `oneOf` into one enum schema if there are several, because client generators
/// confuse several string schemas.
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

/// Returns the media type and content of an error body in a dialect.
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
        Dialect::Otlp(_) => of(&RpcStatus::name()),
        Dialect::RemoteWrite | Dialect::SampleImport => {
            let text = ObjectBuilder::new().schema_type(Type::String);
            let content = ContentBuilder::new().schema(Some(text));
            ("text/plain", content.example(Some(example.into())))
        }
    }
}
