//! Names that a table has: measurements, tag keys and values, fields.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::timeline::Suggestion;

/// Which names a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NameQuery {
    /// Names begin with this.
    #[serde(default)]
    #[param(example = "us", default = "")]
    pub prefix: String,
    /// `next` of the page before.
    #[serde(default)]
    pub page: Option<String>,
    /// Most names of a page, 1 to 10,000. Default 1,000.
    #[serde(default)]
    #[param(example = 100)]
    pub limit: Option<usize>,
}

/// A page of names in byte order, with how many timelines bear each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "names": [{"name": "cpu", "timelines": 36}, {"name": "mem", "timelines": 12}],
    "next": null,
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct NameList {
    /// The names.
    pub names: Vec<CountedName>,
    /// Pass it as `page` to get what follows; `null` after the last page.
    pub next: Option<String>,
    /// The tag key or measurement of the request where the table does not have it, with similar names; missing where it does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<Suggestion>,
    /// Names the request in the log.
    pub request_id: String,
}

/// A name and how many timelines bear it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountedName {
    /// The measurement, tag key or tag value.
    pub name: String,
    /// Timelines that bear it.
    pub timelines: u32,
}

/// Every attribute key, with the type of its values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "attributes": [{"key": "owner", "types": [{"type": "string", "timelines": 3}]}],
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct AttributeKeyList {
    /// The keys, in byte order.
    pub attributes: Vec<AttributeKey>,
    /// Names the request in the log.
    pub request_id: String,
}

/// An attribute key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttributeKey {
    /// The key.
    pub key: String,
    /// The type of its values. More than one only where they were set before types were kept apart.
    pub types: Vec<CountedType>,
}

/// A type of attributes and how many timelines have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountedType {
    /// `string`, `number`, `boolean`, `time`, `geo point`, `list of strings` or `list of numbers`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Timelines that have it.
    pub timelines: u32,
}

/// Every field of every measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "fields": [{"measurement": "cpu", "field": "usage_user", "types": ["float"]}],
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct FieldList {
    /// The fields, by measurement and name.
    pub fields: Vec<Field>,
    /// The tag key or measurement of the request where the table does not have it, with similar names; missing where it does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<Suggestion>,
    /// Names the request in the log.
    pub request_id: String,
}

/// A field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Field {
    /// The measurement.
    pub measurement: String,
    /// The field.
    pub field: String,
    /// Every type it was written with: `float`, `integer`, `unsigned`, `boolean`, `string`. Numbers may mix.
    pub types: Vec<String>,
}

/// Which fields a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FieldQuery {
    /// Only of this measurement.
    #[serde(default)]
    #[param(example = "cpu")]
    pub measurement: Option<String>,
    /// Also those that accompany samples of Prometheus: start timestamps (`_start`) and exemplars (`_exemplar`).
    #[serde(default)]
    pub sample_details: bool,
}
