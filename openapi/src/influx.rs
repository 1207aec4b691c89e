//! Response bodies of the InfluxDB routes. InfluxDB defines their form.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Error body of InfluxDB 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"error": "unable to parse 'cpu': missing fields"}))]
pub struct InfluxV1Error {
    /// Description of the error; also in the header `X-Influxdb-Error`.
    pub error: String,
}

/// Error body of InfluxDB 2.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"code": "invalid", "message": "unable to parse 'cpu': missing fields"}))]
pub struct InfluxV2Error {
    /// Error code: `invalid`, `not found`, `unauthorized`, `unavailable`, `request too large`, …
    pub code: String,
    /// Human-readable description.
    pub message: String,
}

/// Response to an InfluxQL query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"results": [{
    "statement_id": 0,
    "series": [{"name": "databases", "columns": ["name"], "values": [["default"]]}]
}]}))]
pub struct QueryAnswer {
    /// Results, one per statement.
    pub results: Vec<StatementResult>,
}

/// Result of one statement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatementResult {
    /// Index of the statement in the query, from 0.
    pub statement_id: usize,
    /// Result, as lists of rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Vec<ResultSeries>>,
    /// Reason why the statement failed. Omitted if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// List of rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResultSeries {
    /// Name of the list.
    pub name: String,
    /// Column names.
    pub columns: Vec<String>,
    /// Rows with one value per column.
    pub values: Vec<Vec<String>>,
}

/// Buckets of InfluxDB 2. Each table that has the model `series` is a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"buckets": [{
    "id": "default", "orgID": "tideline", "type": "user", "name": "default", "retentionRules": []
}]}))]
pub struct BucketList {
    /// Buckets.
    pub buckets: Vec<Bucket>,
}

/// Bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bucket {
    /// Id: equal to the name.
    pub id: String,
    /// Organization; always `tideline`.
    #[serde(rename = "orgID")]
    pub org_id: String,
    /// Kind of bucket; always `user`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Name.
    pub name: String,
    /// Retention rules; always empty.
    #[serde(rename = "retentionRules")]
    #[schema(value_type = Vec<Object>)]
    pub retention_rules: Vec<serde_json::Value>,
}
