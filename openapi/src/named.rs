//! Schemas of string enums that `tideline-model` defines.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};

/// Returns the schema of a string that is one of `names`.
pub(crate) fn named<const N: usize>(description: &str, names: [&'static str; N]) -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(SchemaType::Type(Type::String))
        .description(Some(description))
        .enum_values(Some(names))
        .into()
}
