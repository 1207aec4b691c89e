//! Error body of all routes except those of InfluxDB, Prometheus and OTLP.
//!
//! Clients distinguish errors by [`ErrorCode`], which is stable across versions; messages may change.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::points::Reject;

/// Error, with its reason and the limit that was exceeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "code": "body_too_large",
    "message": "body of 41943040 bytes is over the limit of 33554432",
    "limit": 33_554_432,
    "actual": 41_943_040,
    "retryable": false,
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct ErrorBody {
    /// Error code, stable across versions.
    pub code: ErrorCode,
    /// Human-readable description: what is wrong, where, and what to do.
    pub message: String,
    /// Limit that was exceeded. Omitted if the error has no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Actual value that exceeded the limit. Omitted if the error has no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual: Option<u64>,
    /// True if repeating the same request can succeed; the header `Retry-After` gives the time to wait. For
    /// `all_rejected`: true if at least one of the rejected lines is retryable.
    pub retryable: bool,
    /// Id of the request, as in the server log and in the header `X-Request-Id`.
    pub request_id: String,
    /// First rejected lines and their reasons, if no point of a write was stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejects: Vec<Reject>,
}

/// Error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The request is not valid.
    Invalid,
    /// None of the points or rows of a write could be stored.
    AllRejected,
    /// No row of a write was written, and at least one condition was not met.
    ConditionFailed,
    /// Part of the request exceeds a limit.
    OverLimit,
    /// The body is larger than allowed, as sent or after decompression.
    BodyTooLarge,
    /// The body arrived too slowly.
    BodyTooSlow,
    /// The content type or encoding of the body is not supported.
    UnsupportedMediaType,
    /// None of the accepted content types is supported for the response.
    NotAcceptable,
    /// The token is missing or wrong, or has expired.
    Unauthenticated,
    /// The request is not allowed: the roles or the scope of the token exclude it, a browser sent it for a page of another
    /// site, its `Host` header contains a host that is not allowed, or it contains an archive target that the operator
    /// does not allow.
    Forbidden,
    /// The resource does not exist.
    NotFound,
    /// The resource existed but is not kept any more.
    Gone,
    /// A value has no bytes in the requested range.
    RangeNotSatisfiable,
    /// The resource does not support this method.
    MethodNotAllowed,
    /// The request applies only to tables of another model.
    WrongModel,
    /// The SQL statement is valid, but no access path of its table serves it; the message describes what to do.
    PlanRefused,
    /// The request conflicts with the current state.
    Conflict,
    /// The `Idempotency-Key` was used before with another body. Nothing was stored.
    IdempotencyKeyReused,
    /// The server is overloaded. Nothing was done.
    Overloaded,
    /// The disk is nearly full. Nothing was done.
    DiskFull,
    /// All points of a write belong to new timelines, and the table's limit of new timelines per minute is reached.
    /// Nothing was stored.
    TooManyTimelines,
    /// The rate of reads or writes that a wide table allows, or a budget of the tenant, is used up. Nothing was done.
    RateLimited,
    /// The server temporarily cannot meet its guarantees, for example while its clock is in doubt. The outcome of a
    /// write can be unknown; repeating the write is safe.
    Unavailable,
    /// A query needed more than its budget, such as time, memory, points or rows.
    OverBudget,
    /// The job that the request waited for failed. The planner schedules the work again, unless the job was started
    /// with parameters, such as a `restore` or a `rekey`.
    JobFailed,
    /// Internal error of the server.
    Internal,
}
