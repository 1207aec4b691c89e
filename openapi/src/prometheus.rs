//! Bodies that Prometheus' clients expect. Their form is not ours to choose.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A failure, as Prometheus' HTTP API words it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "status": "error",
    "errorType": "bad_data",
    "error": "invalid parameter \"query\": 1:4: parse error: unexpected end of input"
}))]
pub struct PrometheusError {
    /// Always `error`.
    pub status: String,
    /// `bad_data`, `execution`, `timeout`, `canceled`, `internal`, `unavailable`, `not_found` or `not_acceptable`.
    #[serde(rename = "errorType")]
    pub error_type: String,
    /// For people.
    pub error: String,
}
