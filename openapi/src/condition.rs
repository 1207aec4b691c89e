//! Condition trees on timelines, on values and on rows, with their OpenAPI schemas.
//!
//! [`tideline_condition`] defines the tree, its operators and its JSON form. [`Condition`], [`ValueCondition`] and
//! [`RowFilter`] are separate types, because the OpenAPI document describes the members of each separately. Their
//! schemas are generated from the members of the operators.

use serde::{Deserialize, Deserializer, Serialize};
use tideline_condition::json::{self, Form, Shape};
use tideline_condition::{Condition as Tree, Domain, Subject};
use tideline_model::ColumnType;
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, KnownFormat, ObjectBuilder, OneOfBuilder, RefBuilder, Schema,
    SchemaType, Type,
};
use utoipa::openapi::{Deprecated, Ref, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

use crate::attribute::AttributeValue;
use crate::geo::{Circle, GeoBox, LatLon};
use crate::time::TimeInput;
use crate::wide::ColumnTypeSchema;

/// Condition on timelines.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Condition(
    /// Condition tree.
    pub Tree,
);

/// Condition on the field values of points.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ValueCondition(
    /// Condition tree.
    pub Tree,
);

/// Condition on rows: on the newest values of their columns and on their key columns.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct RowFilter(
    /// Condition tree.
    pub Tree,
);

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        json::deserialize(Domain::Timelines, deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for ValueCondition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        json::deserialize(Domain::Values, deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for RowFilter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        json::deserialize(Domain::Rows, deserializer).map(Self)
    }
}

/// Property of a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Property {
    /// Measurement.
    Measurement,
    /// Source (machine): the value of the first source tag present.
    Source,
    /// All texts of a timeline together: measurement, tags and text attributes. Only for `text` and `phrase`.
    /// The words of `text` may be in different texts; a phrase must be in a single text.
    Any,
    /// Timeline id, 32 hexadecimal digits. Only for `equals`, `not_equals` and `in`.
    Id,
    /// Timestamp of the oldest point. Only for `range`.
    FirstSeen,
    /// Timestamp of the newest point. Only for `range`.
    LastSeen,
}

impl From<Property> for Subject {
    fn from(property: Property) -> Self {
        match property {
            Property::Measurement => Self::Measurement,
            Property::Source => Self::Source,
            Property::Any => Self::Any,
            Property::Id => Self::Id,
            Property::FirstSeen => Self::FirstSeen,
            Property::LastSeen => Self::LastSeen,
        }
    }
}

/// Fill value: text, number or boolean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a text, true, false or a number")]
pub enum Scalar {
    /// Text.
    Text(String),
    /// Boolean.
    Boolean(bool),
    /// Finite number.
    Number(f64),
}

/// Value to compare with: a number, text or boolean. Integers are compared exactly.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum FieldValue {
    /// Boolean.
    Boolean(bool),
    /// Signed 64-bit integer.
    Signed(i64),
    /// Unsigned integer above the range of a signed 64-bit integer.
    Unsigned(u64),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(String),
}

/// Value to compare with a column: a number, text or boolean. Numbers are compared exactly. In a column without a
/// declared type, it is compared with values of each type that it can have; to compare with values of one type only, give
/// the type.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum ColumnValue {
    /// Boolean.
    Boolean(bool),
    /// Signed 64-bit integer.
    Signed(i64),
    /// Unsigned integer above the range of a signed 64-bit integer.
    Unsigned(u64),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(String),
    /// Value with its type, in the form of writes.
    Typed(TypedValue),
}

/// Value with its type.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(example = json!({"type": "decimal", "value": "5.32"}))]
pub struct TypedValue {
    /// Type of the value. If the column is declared, this is its type.
    #[serde(rename = "type")]
    #[schema(value_type = ColumnTypeSchema)]
    pub column_type: ColumnType,
    /// The value, in the JSON form of the type.
    pub value: FieldValue,
}

/// Time range from `start` (inclusive) to `end` (exclusive). A missing bound is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"start": "now-1h", "end": "now"}))]
pub struct TimeSpan {
    /// Start, inclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<TimeInput>,
    /// End, exclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<TimeInput>,
}

/// Description of a condition on timelines.
const CONDITION: &str = "Condition on timelines: exactly one of `and`, `or`, `not`, `saved`, or a subject (`tag`, `attribute` \
    or `property`) with\nexactly one test (`equals`, `not_equals`, `in`, `prefix`, `suffix`, `wildcard`, `regex`, `fuzzy`, \
    `text`, `phrase`,\n`exists`, `range`, `near`, `box`, `polygon`, or bounds of a number: `gt` or `gte`, `lt` or `lte`).";
/// Description of a condition on values.
const VALUE_CONDITION: &str = "Condition on points: exactly one of `and`, `or`, `not`, or a `field` with exactly one test \
    (`equals`, `not_equals`, `in`,\n`gt`, `gte`, `lt`, `lte`, `between`, `exists`). A point without the field passes only \
    `\"exists\": false`. NaN\nis not equal to any value. Numbers of all types are compared exactly, texts byte by byte. \
    Booleans support only equality tests.";
/// Description of a condition on rows.
const ROW_FILTER: &str = "Condition on rows: exactly one of `and`, `or`, `not`, or a `column` with exactly one test \
    (`equals`, `not_equals`, `in`,\n`prefix`, `suffix`, `wildcard`, `regex`, `fuzzy`, `text`, `phrase`, bounds: `gt` or \
    `gte`, `lt` or `lte`, `between`,\n`exists`, `range`, `near`, `box`, `polygon`). A column without a value passes only \
    `\"exists\": false`. A list passes if one of\nits values passes; `not_equals` passes only if no value is equal. Numbers \
    of all types are compared exactly, texts byte by\nbyte, words without regard to case. Booleans support only equality \
    tests.";

impl PartialSchema for Condition {
    fn schema() -> RefOr<Schema> {
        let node =
            branches("Condition").property("saved", text("Name of a saved search, used as a condition."));
        let node = node
            .property("tag", text("Subject: value of the tag with this key."))
            .property(
                "attribute",
                text("Subject: value of the attribute with this key."),
            )
            .property("property", reference("Property", "Subject: this property."));
        let example = serde_json::json!({"and": [
            {"property": "measurement", "equals": "cpu"},
            {"tag": "host", "in": ["sim-001", "sim-002"]}
        ]});
        described(with_tests(node, Domain::Timelines), CONDITION, example)
    }
}

impl ToSchema for Condition {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        add::<Property>(schemas);
        add::<AttributeValue>(schemas);
        add::<TimeSpan>(schemas);
        add::<Circle>(schemas);
        add::<GeoBox>(schemas);
        add::<LatLon>(schemas);
    }
}

impl PartialSchema for ValueCondition {
    fn schema() -> RefOr<Schema> {
        let field = text("Field to test. It does not have to be one of the requested fields.");
        let node = branches("ValueCondition").property("field", field);
        let example = serde_json::json!({"field": "usage_user", "gt": 90});
        described(with_tests(node, Domain::Values), VALUE_CONDITION, example)
    }
}

impl ToSchema for ValueCondition {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        add::<FieldValue>(schemas);
    }
}

impl PartialSchema for RowFilter {
    fn schema() -> RefOr<Schema> {
        let column = text("Column to test: a column or a key column. It does not have to be returned.");
        let earlier = plain(Type::String)
            .description(Some("Earlier name of `column`."))
            .deprecated(Some(Deprecated::True));
        let node = branches("RowFilter")
            .property("column", column)
            .property("field", earlier);
        let example = serde_json::json!({"column": "total", "gt": 5});
        described(with_tests(node, Domain::Rows), ROW_FILTER, example)
    }
}

impl ToSchema for RowFilter {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        add::<ColumnValue>(schemas);
        add::<TimeSpan>(schemas);
        add::<Circle>(schemas);
        add::<GeoBox>(schemas);
        add::<LatLon>(schemas);
    }
}

/// Adds a schema and the schemas that it refers to.
fn add<T: ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
}

/// Returns an object schema with the members `and`, `or` and `not`. They contain conditions of the schema `name`.
fn branches(name: &str) -> ObjectBuilder {
    ObjectBuilder::new()
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        .property(
            "and",
            list(name, "True if all conditions are true. An empty list is true."),
        )
        .property(
            "or",
            list(
                name,
                "True if at least one condition is true. An empty list is false.",
            ),
        )
        .property("not", reference(name, "True if the condition is false."))
}

/// Adds the members of all operators of a domain.
fn with_tests(node: ObjectBuilder, domain: Domain) -> ObjectBuilder {
    json::members(domain).fold(node, |node, member| match member.form(domain) {
        Some(form) => node.property(member.name, test(form, domain)),
        None => node,
    })
}

#[expect(
    deprecated,
    reason = "derived schemas have `example` too, and the document has one form"
)]
fn described(node: ObjectBuilder, description: &str, example: serde_json::Value) -> RefOr<Schema> {
    node.description(Some(description)).example(Some(example)).into()
}

fn test(form: &Form, domain: Domain) -> RefOr<Schema> {
    let doc = form.doc;
    let value = match domain {
        Domain::Rows => "ColumnValue",
        Domain::Timelines | Domain::Values => "FieldValue",
    };
    match form.shape {
        Shape::Text => text(doc),
        Shape::Flag => plain(Type::Boolean).description(Some(doc)).into(),
        Shape::Count => plain(Type::Integer)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int32)))
            .minimum(Some(0))
            .description(Some(doc))
            .into(),
        Shape::Number => plain(Type::Number)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Double)))
            .description(Some(doc))
            .into(),
        Shape::Attribute => reference("AttributeValue", doc),
        Shape::Attributes => list("AttributeValue", doc),
        Shape::Value => reference(value, doc),
        Shape::Values | Shape::Pair => list(value, doc),
        Shape::Span => reference("TimeSpan", doc),
        Shape::Circle => reference("Circle", doc),
        Shape::Box => reference("GeoBox", doc),
        Shape::Ring => list("Place", doc),
    }
}

/// Returns the schema of a type that also allows null.
fn plain(of: Type) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::from_iter([of, Type::Null]))
}

fn text(doc: &str) -> RefOr<Schema> {
    plain(Type::String).description(Some(doc)).into()
}

/// Returns the schema of a list with elements of a named schema; it also allows null.
fn list(name: &str, doc: &str) -> RefOr<Schema> {
    ArrayBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Array, Type::Null]))
        .items(Ref::from_schema_name(name))
        .description(Some(doc))
        .into()
}

/// Returns a schema that matches null and all values of a named schema.
fn reference(name: &str, doc: &str) -> RefOr<Schema> {
    let reference = RefBuilder::new()
        .ref_location_from_schema_name(name)
        .description(Some(doc));
    OneOfBuilder::new()
        .item(reference)
        .item(ObjectBuilder::new().schema_type(SchemaType::Type(Type::Null)))
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_its_own_members() {
        let on_timelines = r#"{"tag":"host","equals":"a"}"#;
        let on_values = r#"{"field":"a","gt":1}"#;
        assert!(serde_json::from_str::<Condition>(on_timelines).is_ok());
        assert!(serde_json::from_str::<Condition>(on_values).is_err());
        assert!(serde_json::from_str::<ValueCondition>(on_values).is_ok());
        assert!(serde_json::from_str::<ValueCondition>(on_timelines).is_err());
        let on_rows = r#"{"column":"a","prefix":"b"}"#;
        assert!(serde_json::from_str::<RowFilter>(on_rows).is_ok());
        assert!(serde_json::from_str::<RowFilter>(on_timelines).is_err());
        assert!(serde_json::from_str::<ValueCondition>(on_rows).is_err());
        let earlier = serde_json::from_str::<RowFilter>(on_values).expect("the earlier name");
        assert_eq!(
            serde_json::to_string(&earlier).expect("plain data"),
            r#"{"column":"a","gt":1}"#
        );
    }

    #[test]
    fn the_schemas_have_all_members() {
        for (schema, domain) in [
            (Condition::schema(), Domain::Timelines),
            (ValueCondition::schema(), Domain::Values),
            (RowFilter::schema(), Domain::Rows),
        ] {
            let schema = serde_json::to_value(&schema).expect("plain data");
            for member in json::members(domain) {
                assert!(schema["properties"][member.name].is_object(), "{}", member.name);
            }
        }
    }
}
