//! The condition tree in requests and in the document.
//!
//! [`tideline_condition`] owns tree, operators and JSON form. Here each place has a type of its own, because the document
//! describes the members of both places apart. The schemas are made of the operators' members.

use serde::{Deserialize, Deserializer, Serialize};
use tideline_condition::json::{self, Form, Shape};
use tideline_condition::{Condition as Tree, Domain, Subject};
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, KnownFormat, ObjectBuilder, OneOfBuilder, RefBuilder, Schema,
    SchemaType, Type,
};
use utoipa::openapi::{Ref, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

use crate::attribute::AttributeValue;
use crate::geo::{Circle, GeoBox, Place};
use crate::time::TimeInput;

/// Selects timelines.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Condition(
    /// The tree.
    pub Tree,
);

/// Selects points by the values of their fields.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ValueCondition(
    /// The tree.
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

/// A property that every timeline has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Property {
    /// The measurement.
    Measurement,
    /// The machine: the value of the first source tag present.
    Source,
    /// Measurement, tags and attributes that are text, all together: `text` and `phrase` only. Words may be said by
    /// different ones, a phrase by one.
    Any,
    /// The timeline id, as 32 hexadecimal digits: `equals`, `not_equals` and `in` only.
    Id,
    /// The instant of the oldest point: `range` only.
    FirstSeen,
    /// The instant of the newest point: `range` only.
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

/// A value that points are compared with: text, number or boolean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a text, true, false or a number")]
pub enum Scalar {
    /// Text.
    Text(String),
    /// True or false.
    Boolean(bool),
    /// A finite number.
    Number(f64),
}

/// A value to compare with: a number, text, or a boolean. Integers are exact.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum FieldValue {
    /// True or false.
    Boolean(bool),
    /// An integer of 64 bits.
    Signed(i64),
    /// An unsigned integer beyond those.
    Unsigned(u64),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(String),
}

/// A span of time: `start` belongs to it, `end` does not. What is left away is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"start": "now-1h", "end": "now"}))]
pub struct TimeSpan {
    /// The first instant inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<TimeInput>,
    /// The first instant after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<TimeInput>,
}

/// The description of a condition on timelines.
const CONDITION: &str = "Which timelines are meant: exactly one of `and`, `or`, `not`, `saved`, or a subject (`tag`, `attribute` \
    or `property`) with\nexactly one test (`equals`, `not_equals`, `in`, `prefix`, `suffix`, `wildcard`, `regex`, `fuzzy`, \
    `text`, `phrase`,\n`exists`, `range`, `near`, `box`, `polygon`, or bounds of a number: `gt` or `gte`, `lt` or `lte`).";
/// The description of a condition on values.
const VALUE_CONDITION: &str = "Which points count: exactly one of `and`, `or`, `not`, or a `field` with exactly one test \
    (`equals`, `not_equals`, `in`,\n`gt`, `gte`, `lt`, `lte`, `between`, `exists`). A point without the field passes no test but \
    `\"exists\": false`; NaN\nequals nothing. Numbers of all types are compared exactly, texts byte by byte; booleans are \
    equal or not.";

impl PartialSchema for Condition {
    fn schema() -> RefOr<Schema> {
        let node = branches("Condition").property("saved", text("The saved search of this name holds."));
        let node = node
            .property("tag", text("Subject: the value of this tag."))
            .property("attribute", text("Subject: the value of this attribute."))
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
        add::<Place>(schemas);
    }
}

impl PartialSchema for ValueCondition {
    fn schema() -> RefOr<Schema> {
        let field = text("The field; it need not be among those asked for.");
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

/// Adds a schema and those that it refers to.
fn add<T: ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
}

/// Returns an object with the members that join conditions of a name.
fn branches(name: &str) -> ObjectBuilder {
    ObjectBuilder::new()
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        .property("and", list(name, "All hold; an empty list holds always."))
        .property("or", list(name, "At least one holds; an empty list never does."))
        .property("not", reference(name, "It does not hold."))
}

/// Adds the members of all operators.
fn with_tests(node: ObjectBuilder, domain: Domain) -> ObjectBuilder {
    json::members(domain).fold(node, |node, member| match member.form(domain) {
        Some(form) => node.property(member.name, test(form)),
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

fn test(form: &Form) -> RefOr<Schema> {
    let doc = form.doc;
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
        Shape::Value => reference("FieldValue", doc),
        Shape::Values | Shape::Pair => list("FieldValue", doc),
        Shape::Span => reference("TimeSpan", doc),
        Shape::Circle => reference("Circle", doc),
        Shape::Box => reference("GeoBox", doc),
        Shape::Ring => list("Place", doc),
    }
}

/// Returns a member of a type, or null.
fn plain(of: Type) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::from_iter([of, Type::Null]))
}

fn text(doc: &str) -> RefOr<Schema> {
    plain(Type::String).description(Some(doc)).into()
}

/// Returns a list of a schema, or null.
fn list(name: &str, doc: &str) -> RefOr<Schema> {
    ArrayBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Array, Type::Null]))
        .items(Ref::from_schema_name(name))
        .description(Some(doc))
        .into()
}

/// Returns a schema by its name, or null.
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
    }

    #[test]
    fn the_schemas_have_all_members() {
        for (schema, domain) in [
            (Condition::schema(), Domain::Timelines),
            (ValueCondition::schema(), Domain::Values),
        ] {
            let schema = serde_json::to_value(&schema).expect("plain data");
            for member in json::members(domain) {
                assert!(schema["properties"][member.name].is_object(), "{}", member.name);
            }
        }
    }
}
