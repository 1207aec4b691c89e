//! Response bodies of OTLP. The protocol defines their form, in JSON and as Protocol Buffers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Response to an export of metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({"partialSuccess": {
    "rejectedDataPoints": "1",
    "errorMessage": "1 of 20 data points rejected: {__name__=\"queue\"}: the data point has no time"
}}))]
pub struct ExportMetricsServiceResponse {
    /// Absent if no part of the request was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial_success: Option<ExportMetricsPartialSuccess>,
}

/// Rejected parts of an export.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportMetricsPartialSuccess {
    /// Number of rejected data points, as a decimal string. `0` if only exemplars or descriptions were rejected.
    pub rejected_data_points: String,
    /// Reasons of the first rejects.
    pub error_message: String,
}

/// Error body of OTLP: `google.rpc.Status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "code": 3,
    "message": "content type \"text/plain\" is not supported; use application/x-protobuf or application/json"
}))]
pub struct RpcStatus {
    /// gRPC status code, such as 3 (invalid argument) or 14 (unavailable).
    pub code: i32,
    /// Human-readable description.
    pub message: String,
}
