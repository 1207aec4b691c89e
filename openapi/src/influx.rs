//! Bodies that InfluxDB clients expect. Their form is not ours to choose.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A failure, as InfluxDB 1 words it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"error": "unable to parse 'cpu': missing fields"}))]
pub struct InfluxV1Error {
    /// What went wrong; also in the header `X-Influxdb-Error`.
    pub error: String,
}

/// A failure, as InfluxDB 2 words it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"code": "invalid", "message": "unable to parse 'cpu': missing fields"}))]
pub struct InfluxV2Error {
    /// `invalid`, `not found`, `unauthorized`, `unavailable`, `request too large`, …
    pub code: String,
    /// For people.
    pub message: String,
}

/// The answer to a query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"results": [{
    "statement_id": 0,
    "series": [{"name": "databases", "columns": ["name"], "values": [["default"]]}]
}]}))]
pub struct QueryAnswer {
    /// One for each statement.
    pub results: Vec<StatementResult>,
}

/// The answer to one statement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatementResult {
    /// The place of the statement in the query, from 0.
    pub statement_id: usize,
    /// What it found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Vec<ResultSeries>>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A table of values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResultSeries {
    /// What it lists.
    pub name: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows of one value a column.
    pub values: Vec<Vec<String>>,
}

/// The buckets of InfluxDB 2: here the tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"buckets": [{
    "id": "default", "orgID": "tideline", "type": "user", "name": "default", "retentionRules": []
}]}))]
pub struct BucketList {
    /// The buckets.
    pub buckets: Vec<Bucket>,
}

/// A bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bucket {
    /// Its name again: there is no other id.
    pub id: String,
    /// Always `tideline`.
    #[serde(rename = "orgID")]
    pub org_id: String,
    /// Always `user`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The name.
    pub name: String,
    /// Always empty: data is kept.
    #[serde(rename = "retentionRules")]
    #[schema(value_type = Vec<Object>)]
    pub retention_rules: Vec<serde_json::Value>,
}
