//! The JSON form of conditions.
//!
//! ```json
//! {"and": [
//!   {"property": "measurement", "equals": "cpu"},
//!   {"attribute": "cores", "gte": 8, "lt": 64},
//!   {"or": [{"tag": "dc", "in": ["fra", "ams"]}, {"attribute": "owner", "equals": "team-storage"}]},
//!   {"not": {"property": "last_seen", "range": {"end": "now-1d"}}}
//! ]}
//! {"and": [{"field": "usage_user", "gt": 90}, {"not": {"field": "state", "in": ["idle", "off"]}}]}
//! {"and": [{"column": "total", "gte": 5, "lt": 10}, {"column": "note", "text": "urgent delivery"}]}
//! ```
//!
//! A node is exactly one of `and`, `or`, `not`, `saved`, or a subject with a test. Null members count as absent.
//! Unknown members are rejected with a list of the known ones.

use std::fmt;
use std::sync::LazyLock;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde::{Deserialize, Serialize as DeriveSerialize};

use crate::condition::{Condition, Property, Subject};
use crate::domain::Domain;
use crate::literal::{AttributeForm, ColumnForm, FieldForm, LatLon, Literal, TimeSpan};
use crate::operators::{MEMBERS, Test, names_of_operators};

/// JSON member of an operator.
#[derive(Debug)]
pub struct Member {
    /// Member name.
    pub name: &'static str,
    /// Form for timelines; `None` if not supported.
    pub timelines: Option<Form>,
    /// Form for values; `None` if not supported.
    pub values: Option<Form>,
    /// Error message if the member is present but no operator has read it; empty if the operator of the member always
    /// reads it.
    pub unused: &'static str,
}

/// Form of a member in one domain.
#[derive(Debug)]
pub struct Form {
    /// Shape of the member's value.
    pub shape: Shape,
    /// Description in the OpenAPI document.
    pub doc: &'static str,
}

/// Shape of a member's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Text.
    Text,
    /// True or false.
    Flag,
    /// Integer from 0 to 255.
    Count,
    /// Double.
    Number,
    /// Value of an attribute.
    Attribute,
    /// List of attribute values.
    Attributes,
    /// Value of a field.
    Value,
    /// List of field values.
    Values,
    /// Two field values.
    Pair,
    /// Time range.
    Span,
    /// Circle on the earth.
    Circle,
    /// Box on the earth.
    Box,
    /// Corners of a polygon on the earth.
    Ring,
}

/// Value of a member.
#[derive(Debug, Clone, PartialEq, DeriveSerialize)]
#[serde(untagged)]
pub enum Content {
    /// [`Shape::Text`].
    Text(String),
    /// [`Shape::Flag`].
    Flag(bool),
    /// [`Shape::Count`].
    Count(u8),
    /// [`Shape::Number`], [`Shape::Attribute`] and [`Shape::Value`].
    Literal(Literal),
    /// [`Shape::Attributes`] and [`Shape::Values`].
    Literals(Vec<Literal>),
    /// [`Shape::Pair`].
    Pair(Box<[Literal; 2]>),
    /// [`Shape::Span`].
    Span(TimeSpan),
    /// [`Shape::Circle`].
    Circle(Circle),
    /// [`Shape::Box`].
    Box(Sides),
    /// [`Shape::Ring`].
    Ring(Vec<LatLon>),
}

/// Circle in JSON.
#[derive(Debug, Clone, Copy, PartialEq, DeriveSerialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Circle {
    /// Degrees north of the equator.
    pub lat: f64,
    /// Degrees east of Greenwich.
    pub lon: f64,
    /// Radius in meters.
    pub meters: f64,
}

/// Box in JSON, in degrees.
#[derive(Debug, Clone, Copy, PartialEq, DeriveSerialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sides {
    /// Latitude of the southern side.
    pub south: f64,
    /// Longitude of the western side.
    pub west: f64,
    /// Latitude of the northern side.
    pub north: f64,
    /// Longitude of the eastern side.
    pub east: f64,
}

/// Members of a node that no operator has read yet.
#[derive(Debug)]
pub struct Members {
    domain: Domain,
    found: Vec<(&'static Member, Content)>,
}

/// Reason for rejecting a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Error message of an operator.
    Because(&'static str),
    /// The node does not have exactly one test.
    Tests,
}

impl Member {
    /// Returns the form in a domain; `None` if the domain does not support the member. Rows have the form for values if
    /// there is one, otherwise the form for timelines.
    pub fn form(&self, domain: Domain) -> Option<&Form> {
        match domain {
            Domain::Timelines => self.timelines.as_ref(),
            Domain::Values => self.values.as_ref(),
            Domain::Rows => self.values.as_ref().or(self.timelines.as_ref()),
        }
    }
}

/// Iterates over all members of the operators of a domain, in document order.
pub fn members(domain: Domain) -> impl Iterator<Item = &'static Member> {
    let all = MEMBERS.iter().flat_map(|members| members.iter());
    all.filter(move |member| member.form(domain).is_some())
}

impl Members {
    /// Returns the domain of the condition.
    pub(crate) fn domain(&self) -> Domain {
        self.domain
    }

    fn take(&mut self, name: &str) -> Option<Content> {
        let at = self.found.iter().position(|(member, _)| member.name == name)?;
        Some(self.found.swap_remove(at).1)
    }

    /// Takes a text; `None` if the member is absent.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        match self.take(name)? {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Takes a boolean; `None` if the member is absent.
    pub(crate) fn flag(&mut self, name: &str) -> Option<bool> {
        match self.take(name)? {
            Content::Flag(flag) => Some(flag),
            _ => None,
        }
    }

    /// Takes an integer; `None` if the member is absent.
    pub(crate) fn count(&mut self, name: &str) -> Option<u8> {
        match self.take(name)? {
            Content::Count(count) => Some(count),
            _ => None,
        }
    }

    /// Takes a value; `None` if the member is absent.
    pub(crate) fn literal(&mut self, name: &str) -> Option<Literal> {
        match self.take(name)? {
            Content::Literal(literal) => Some(literal),
            _ => None,
        }
    }

    /// Takes a list of values; `None` if the member is absent.
    pub(crate) fn literals(&mut self, name: &str) -> Option<Vec<Literal>> {
        match self.take(name)? {
            Content::Literals(literals) => Some(literals),
            _ => None,
        }
    }

    /// Takes a pair of values; `None` if the member is absent.
    pub(crate) fn pair(&mut self, name: &str) -> Option<[Literal; 2]> {
        match self.take(name)? {
            Content::Pair(pair) => Some(*pair),
            _ => None,
        }
    }

    /// Takes a time range; `None` if the member is absent.
    pub(crate) fn span(&mut self, name: &str) -> Option<TimeSpan> {
        match self.take(name)? {
            Content::Span(span) => Some(span),
            _ => None,
        }
    }

    /// Takes a circle; `None` if the member is absent.
    pub(crate) fn circle(&mut self, name: &str) -> Option<Circle> {
        match self.take(name)? {
            Content::Circle(circle) => Some(circle),
            _ => None,
        }
    }

    /// Takes a box; `None` if the member is absent.
    pub(crate) fn sides(&mut self, name: &str) -> Option<Sides> {
        match self.take(name)? {
            Content::Box(sides) => Some(sides),
            _ => None,
        }
    }

    /// Takes the corners of a polygon; `None` if the member is absent.
    pub(crate) fn ring(&mut self, name: &str) -> Option<Vec<LatLon>> {
        match self.take(name)? {
            Content::Ring(corners) => Some(corners),
            _ => None,
        }
    }
}

/// Deserializes a condition of a domain.
///
/// # Errors
///
/// The error of the deserializer if the input is not a valid condition.
pub fn deserialize<'de, D: Deserializer<'de>>(
    domain: Domain,
    deserializer: D,
) -> Result<Condition, D::Error> {
    Node(domain).deserialize(deserializer)
}

/// Parses a condition of a domain from JSON text.
///
/// # Errors
///
/// An error if the text is not JSON or not a valid condition.
///
/// # Examples
///
/// ```
/// use tideline_condition::{Condition, Domain, json};
///
/// let text = r#"{"and": [{"tag": "dc", "equals": "fra"}, {"not": {"tag": "host", "prefix": "test-"}}]}"#;
/// let condition = json::from_str(Domain::Timelines, text)?;
/// let Condition::And(parts) = condition else { panic!("not a conjunction") };
/// assert_eq!(parts[0], Condition::tag("dc", "fra"));
///
/// let error = json::from_str(Domain::Timelines, r#"{"tag": "dc", "equal": "fra"}"#).unwrap_err();
/// assert!(error.to_string().contains("unknown field `equal`"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn from_str(domain: Domain, text: &str) -> Result<Condition, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let condition = deserialize(domain, &mut reader)?;
    reader.end()?;
    Ok(condition)
}

/// Deserializer of one node.
#[derive(Clone, Copy)]
struct Node(Domain);

/// Deserializer of a nullable value.
struct Nullable<S>(S);

/// Deserializer of a list of nodes.
struct Nodes(Domain);

/// Deserializer of a member name.
struct Key(Domain);

/// Known member of a node.
enum NodeMember {
    And,
    Or,
    Not,
    Saved,
    Subject(&'static str),
    Operator(&'static Member),
}

/// Returns the names of all members of a domain.
fn known_names(domain: Domain) -> &'static [&'static str] {
    static NAMES: LazyLock<[Vec<&'static str>; 3]> =
        LazyLock::new(|| [Domain::Timelines, Domain::Values, Domain::Rows].map(all_names));
    match domain {
        Domain::Timelines => &NAMES[0],
        Domain::Values => &NAMES[1],
        Domain::Rows => &NAMES[2],
    }
}

fn all_names(domain: Domain) -> Vec<&'static str> {
    let saved = domain.has_saved().then_some("saved");
    let names = ["and", "or", "not"].into_iter().chain(saved);
    let names = names.chain(domain.subject_members().iter().copied());
    names.chain(members(domain).map(|member| member.name)).collect()
}

impl<'de> DeserializeSeed<'de> for Key {
    type Value = (&'static str, NodeMember);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Key {
    type Value = (&'static str, NodeMember);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("field identifier")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        let domain = self.0;
        let names = known_names(domain);
        let current = domain.current_name(name);
        let Some(name) = names.iter().copied().find(|known| *known == current) else {
            return Err(E::unknown_field(name, names));
        };
        let known = match name {
            "and" => NodeMember::And,
            "or" => NodeMember::Or,
            "not" => NodeMember::Not,
            "saved" => NodeMember::Saved,
            _ => match members(domain).find(|member| member.name == name) {
                Some(member) => NodeMember::Operator(member),
                None => NodeMember::Subject(name),
            },
        };
        Ok((name, known))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Nullable<S> {
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Nullable<S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("option")
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

impl<'de> DeserializeSeed<'de> for Nodes {
    type Value = Vec<Condition>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Nodes {
    type Value = Vec<Condition>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut nodes: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(node) = nodes.next_element_seed(Node(self.0))? {
            all.push(node);
        }
        Ok(all)
    }
}

impl<'de> DeserializeSeed<'de> for Node {
    type Value = Condition;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Condition, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Node {
    type Value = Condition;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Condition, A::Error> {
        let domain = self.0;
        let mut seen: Vec<&'static str> = Vec::new();
        let (mut branches, mut subjects) = (Vec::new(), Vec::new());
        let found = Vec::new();
        let mut members = Members { domain, found };
        while let Some((name, known)) = map.next_key_seed(Key(domain))? {
            if seen.contains(&name) {
                return Err(A::Error::duplicate_field(name));
            }
            seen.push(name);
            match known {
                NodeMember::And => {
                    branches.extend(map.next_value_seed(Nullable(Nodes(domain)))?.map(Condition::And));
                }
                NodeMember::Or => {
                    branches.extend(map.next_value_seed(Nullable(Nodes(domain)))?.map(Condition::Or));
                }
                NodeMember::Not => {
                    let inner = map.next_value_seed(Nullable(self))?;
                    branches.extend(inner.map(|inner| Condition::Not(Box::new(inner))));
                }
                NodeMember::Saved => {
                    branches.extend(map.next_value::<Option<String>>()?.map(Condition::Saved));
                }
                NodeMember::Subject("property") => {
                    subjects.extend(map.next_value::<Option<Property>>()?.map(Subject::from));
                }
                NodeMember::Subject(name) => {
                    let of = |key| match name {
                        "tag" => Subject::Tag(key),
                        "attribute" => Subject::Attribute(key),
                        "column" => Subject::Column(key),
                        _ => Subject::Field(key),
                    };
                    subjects.extend(map.next_value::<Option<String>>()?.map(of));
                }
                NodeMember::Operator(member) => {
                    let Some(form) = member.form(domain) else { continue };
                    let content = content(domain, form.shape, &mut map)?;
                    members.found.extend(content.map(|content| (member, content)));
                }
            }
        }
        assemble(branches, subjects, members).map_err(A::Error::custom)
    }
}

/// Reads the value of a member; `None` if it is null.
fn content<'de, A: MapAccess<'de>>(
    domain: Domain,
    shape: Shape,
    map: &mut A,
) -> Result<Option<Content>, A::Error> {
    let attribute = |AttributeForm(literal)| literal;
    let value = |FieldForm(literal)| literal;
    let column = |ColumnForm(literal)| literal;
    Ok(match shape {
        Shape::Text => map.next_value::<Option<String>>()?.map(Content::Text),
        Shape::Flag => map.next_value::<Option<bool>>()?.map(Content::Flag),
        Shape::Count => map.next_value::<Option<u8>>()?.map(Content::Count),
        Shape::Number => {
            let number = map.next_value::<Option<f64>>()?;
            number.map(|number| Content::Literal(Literal::Float(number)))
        }
        Shape::Attribute => {
            let form = map.next_value::<Option<AttributeForm>>()?;
            form.map(attribute).map(Content::Literal)
        }
        Shape::Attributes => {
            let forms = map.next_value::<Option<Vec<AttributeForm>>>()?;
            forms.map(|forms| Content::Literals(forms.into_iter().map(attribute).collect()))
        }
        Shape::Value if domain == Domain::Rows => {
            let form = map.next_value::<Option<ColumnForm>>()?;
            form.map(column).map(Content::Literal)
        }
        Shape::Values if domain == Domain::Rows => {
            let forms = map.next_value::<Option<Vec<ColumnForm>>>()?;
            forms.map(|forms| Content::Literals(forms.into_iter().map(column).collect()))
        }
        Shape::Pair if domain == Domain::Rows => {
            let forms = map.next_value::<Option<[ColumnForm; 2]>>()?;
            forms.map(|forms| Content::Pair(Box::new(forms.map(column))))
        }
        Shape::Value => {
            let form = map.next_value::<Option<FieldForm>>()?;
            form.map(value).map(Content::Literal)
        }
        Shape::Values => {
            let forms = map.next_value::<Option<Vec<FieldForm>>>()?;
            forms.map(|forms| Content::Literals(forms.into_iter().map(value).collect()))
        }
        Shape::Pair => {
            let forms = map.next_value::<Option<[FieldForm; 2]>>()?;
            forms.map(|forms| Content::Pair(Box::new(forms.map(value))))
        }
        Shape::Span => map.next_value::<Option<TimeSpan>>()?.map(Content::Span),
        Shape::Circle => map.next_value::<Option<Circle>>()?.map(Content::Circle),
        Shape::Box => map.next_value::<Option<Sides>>()?.map(Content::Box),
        Shape::Ring => map.next_value::<Option<Vec<LatLon>>>()?.map(Content::Ring),
    })
}

/// Builds a node from its parts.
fn assemble(
    mut branches: Vec<Condition>,
    mut subjects: Vec<Subject>,
    mut members: Members,
) -> Result<Condition, String> {
    let domain = members.domain;
    let has_members = !members.found.is_empty();
    let mut tests = Vec::new();
    let read = Test::read_all(&mut members, &mut tests);
    match read {
        Err(Fault::Because(reason)) => return Err(reason.to_owned()),
        Err(Fault::Tests) => return Err(one_test(domain)),
        Ok(()) => {}
    }
    if let Some((member, _)) = members.found.first() {
        return Err(member.unused.to_owned());
    }
    let has_leaf = has_members || !subjects.is_empty();
    let is_one_branch = branches.len() == 1;
    match branches.pop() {
        Some(branch) if is_one_branch && !has_leaf => Ok(branch),
        None if has_leaf => {
            let is_one_subject = subjects.len() == 1;
            let Some(subject) = subjects.pop().filter(|_| is_one_subject) else {
                return Err(one_subject(domain).to_owned());
            };
            let is_one_test = tests.len() == 1;
            let Some(test) = tests.pop().filter(|_| is_one_test) else {
                return Err(one_test(domain));
            };
            Ok(Condition::Leaf { subject, test })
        }
        _ => Err(one_kind(domain).to_owned()),
    }
}

fn one_kind(domain: Domain) -> &'static str {
    match domain {
        Domain::Timelines => {
            "a condition is exactly one of: and, or, not, saved, or a subject (tag, attribute or property) with a test"
        }
        Domain::Values => "a condition on values is exactly one of: and, or, not, or a field with a test",
        Domain::Rows => "a condition on rows is exactly one of: and, or, not, or a column with a test",
    }
}

fn one_subject(domain: Domain) -> &'static str {
    match domain {
        Domain::Timelines => "a test has exactly one subject: tag, attribute or property",
        Domain::Values | Domain::Rows => one_kind(domain),
    }
}

fn one_test(domain: Domain) -> String {
    let whose = match domain {
        Domain::Timelines => "a subject",
        Domain::Values => "a field",
        Domain::Rows => "a column",
    };
    format!("{whose} has exactly one test: {}", names_of_operators(domain))
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::All => map.serialize_entry::<_, [Self]>("and", &[])?,
            Self::And(conditions) => map.serialize_entry("and", conditions)?,
            Self::Or(conditions) => map.serialize_entry("or", conditions)?,
            Self::Not(inner) => map.serialize_entry("not", inner)?,
            Self::Saved(name) => map.serialize_entry("saved", name)?,
            Self::Leaf { subject, test } => {
                match subject {
                    Subject::Tag(key) => map.serialize_entry("tag", key)?,
                    Subject::Attribute(key) => map.serialize_entry("attribute", key)?,
                    Subject::Field(name) => map.serialize_entry("field", name)?,
                    Subject::Column(name) => map.serialize_entry("column", name)?,
                    property => map.serialize_entry("property", &property.property())?,
                }
                for (name, content) in test.write() {
                    map.serialize_entry(name, &content)?;
                }
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_read_back() {
        for (domain, json) in [
            (Domain::Timelines, r#"{"and":[]}"#),
            (
                Domain::Timelines,
                r#"{"or":[{"tag":"host","equals":"a"},{"not":{"attribute":"n","in":["x",1.5,true]}}]}"#,
            ),
            (
                Domain::Timelines,
                r#"{"property":"any","text":"backup fra","distance":1}"#,
            ),
            (Domain::Timelines, r#"{"and":[{"saved":"mine"}]}"#),
            (Domain::Timelines, r#"{"attribute":"cores","gte":8.0,"lt":64.0}"#),
            (
                Domain::Timelines,
                r#"{"attribute":"site","box":{"south":1.0,"west":2.0,"north":3.0,"east":4.0}}"#,
            ),
            (
                Domain::Values,
                r#"{"or":[{"field":"a","gt":9007199254740993},{"not":{"field":"b","in":["x","y"]}}]}"#,
            ),
            (
                Domain::Values,
                r#"{"field":"a","between":[-1.5,18446744073709551615]}"#,
            ),
            (Domain::Values, r#"{"field":"a","not_equals":true}"#),
            (
                Domain::Rows,
                r#"{"or":[{"column":"a","gte":9007199254740993,"lt":9007199254740999},{"not":{"column":"b","prefix":"x"}}]}"#,
            ),
            (
                Domain::Rows,
                r#"{"and":[{"column":"a","text":"b c","distance":1},{"column":"a","range":{"start":"now-1h"}}]}"#,
            ),
            (
                Domain::Rows,
                r#"{"and":[{"column":"a","equals":1234567890123456.76},{"column":"a","in":[1234567890123456.76,5.32]},{"column":"a","between":[-1234567890123456.76,18446744073709551616]}]}"#,
            ),
            (
                Domain::Rows,
                r#"{"or":[{"column":"a","gt":{"type":"decimal","value":"1.5"}},{"column":"a","in":[{"type":"binary","value":"AAE="},"x"]}]}"#,
            ),
        ] {
            let read = from_str(domain, json).expect(json);
            assert_eq!(serde_json::to_string(&read).expect("plain data"), json);
        }
        let read =
            from_str(Domain::Timelines, r#"{"tag":"a","equals":"b","prefix":null}"#).expect("null is absent");
        assert_eq!(read, Condition::tag("a", "b"));
        let read = from_str(Domain::Rows, r#"{"field":"a","exists":true}"#).expect("the earlier name");
        assert_eq!(
            serde_json::to_string(&read).expect("plain data"),
            r#"{"column":"a","exists":true}"#
        );
    }

    #[test]
    fn a_node_is_exactly_one_thing() {
        for (domain, json, said) in [
            (Domain::Timelines, "{}", "exactly one of: and, or, not, saved"),
            (Domain::Timelines, r#"{"and":[],"or":[]}"#, "exactly one of: and"),
            (
                Domain::Timelines,
                r#"{"and":[],"tag":"a","equals":"b"}"#,
                "exactly one of: and",
            ),
            (
                Domain::Timelines,
                r#"{"tag":"a"}"#,
                "exactly one test: equals, not_equals, in, prefix, suffix, wildcard, \
                regex, fuzzy, text, phrase, exists, range, near, box, polygon or bounds of a number",
            ),
            (
                Domain::Timelines,
                r#"{"tag":"a","equals":"b","prefix":"c"}"#,
                "exactly one test",
            ),
            (
                Domain::Timelines,
                r#"{"tag":"a","gt":1,"equals":"b"}"#,
                "exactly one test",
            ),
            (Domain::Timelines, r#"{"equals":"b"}"#, "exactly one subject"),
            (
                Domain::Timelines,
                r#"{"tag":"a","property":"id","equals":"b"}"#,
                "exactly one subject",
            ),
            (
                Domain::Timelines,
                r#"{"tag":"a","equalz":"b"}"#,
                "unknown field `equalz`",
            ),
            (
                Domain::Timelines,
                r#"{"tag":"a","tag":"b"}"#,
                "duplicate field `tag`",
            ),
            (
                Domain::Timelines,
                r#"{"property":"colour","equals":"b"}"#,
                "unknown variant `colour`",
            ),
            (Domain::Values, "{}", "exactly one of: and, or, not, or a field"),
            (
                Domain::Values,
                r#"{"and":[],"field":"a","gt":1}"#,
                "exactly one of: and",
            ),
            (Domain::Values, r#"{"gt":1}"#, "exactly one of: and"),
            (
                Domain::Values,
                r#"{"field":"a"}"#,
                "exactly one test: equals, not_equals, in, gt, gte, lt, lte, between or exists",
            ),
            (
                Domain::Values,
                r#"{"field":"a","greater":1}"#,
                "unknown field `greater`",
            ),
            (Domain::Values, r#"{"tag":"a","equals":1}"#, "unknown field `tag`"),
            (
                Domain::Values,
                r#"{"column":"a","equals":1}"#,
                "unknown field `column`",
            ),
            (Domain::Rows, "{}", "exactly one of: and, or, not, or a column"),
            (
                Domain::Rows,
                r#"{"column":"a"}"#,
                "a column has exactly one test: equals, not_equals, in, prefix, suffix, wildcard, regex, fuzzy, \
                text, phrase, gt, gte, lt, lte, between, exists, range, near, box or polygon",
            ),
            (
                Domain::Rows,
                r#"{"column":"a","field":"b","gt":1}"#,
                "duplicate field `column`",
            ),
            (Domain::Rows, r#"{"saved":"mine"}"#, "unknown field `saved`"),
            (
                Domain::Rows,
                r#"{"column":"a","gt":1,"prefix":"b"}"#,
                "exactly one test",
            ),
        ] {
            let error = from_str(domain, json).expect_err(json).to_string();
            assert!(error.contains(said), "{json}: {error}");
        }
        let deep = format!(
            "{}{{\"and\":[]}}{}",
            "{\"not\":".repeat(100_000),
            "}".repeat(100_000)
        );
        assert!(from_str(Domain::Timelines, &deep).is_err());
    }
}
