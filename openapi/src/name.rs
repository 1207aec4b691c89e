//! Names in a table: measurements, tag keys and values, attribute keys, fields.
//!
//! Lists are sorted. Lists of measurements, tag keys and tag values have pages and can be limited to a prefix.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::timeline::Suggestion;

/// Parameters of a list of names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NameQuery {
    /// Only names with this prefix.
    #[serde(default)]
    #[param(example = "us", default = "")]
    pub prefix: String,
    /// `next` of the previous page.
    #[serde(default)]
    pub page: Option<String>,
    /// Maximum number of names per page, 1 to 10,000. Default 1,000.
    #[serde(default)]
    #[param(example = 100)]
    pub limit: Option<usize>,
}

/// Page of names in byte order, each with the number of timelines that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "names": [{"name": "cpu", "timelines": 36}, {"name": "mem", "timelines": 12}],
    "next": null,
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct NameList {
    /// Names.
    pub names: Vec<CountedName>,
    /// Token of the next page, sent as `page`; `null` on the last page.
    pub next: Option<String>,
    /// Tag key of the request if the table does not have it, with similar names. Omitted otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<Suggestion>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Name and the number of timelines that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountedName {
    /// Measurement, tag key or tag value.
    pub name: String,
    /// Number of timelines with this name.
    pub timelines: u32,
}

/// All attribute keys with their types.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "attributes": [{"key": "owner", "types": [{"type": "string", "timelines": 3}]}],
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct AttributeKeyList {
    /// Keys in byte order.
    pub attributes: Vec<AttributeKey>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Attribute key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttributeKey {
    /// Key.
    pub key: String,
    /// Types of its values. A key has several types only if a build that did not enforce one type per key has
    /// set them.
    pub types: Vec<CountedType>,
}

/// Attribute type and the number of timelines that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountedType {
    /// Type: `string`, `number`, `boolean`, `time`, `geo point`, `list of strings` or `list of numbers`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Number of timelines with a value of this type.
    pub timelines: u32,
}

/// Fields of all measurements, or of the requested measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "fields": [{"measurement": "cpu", "field": "usage_user", "types": ["float"]}],
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct FieldList {
    /// Fields, ordered by measurement and name.
    pub fields: Vec<Field>,
    /// Measurement of the request if the table does not have it, with similar names. Omitted otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<Suggestion>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Field of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Field {
    /// Measurement.
    pub measurement: String,
    /// Name of the field.
    pub field: String,
    /// Types that were written: `float`, `integer`, `unsigned`, `boolean`, `string`, `histogram`. A field may
    /// have several numeric types.
    pub types: Vec<String>,
}

/// Parameters of the list of fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FieldQuery {
    /// Only fields of this measurement.
    #[serde(default)]
    #[param(example = "cpu")]
    pub measurement: Option<String>,
    /// True to include the fields that accompany Prometheus samples: start timestamps (`_start`) and exemplars
    /// (`_exemplar`).
    #[serde(default)]
    pub sample_details: bool,
}
