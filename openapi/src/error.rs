//! The one body of every failure of our own routes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::points::Reject;

/// What went wrong, and what to do about it.
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
    /// The kind of failure; stable across versions.
    pub code: ErrorCode,
    /// The same for people.
    pub message: String,
    /// The limit that was passed, where one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// By what it was passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual: Option<u64>,
    /// Whether sending the same request again can help. The header `Retry-After` says when. With `all_rejected` it can
    /// where one of the `rejects` is `retryable`.
    pub retryable: bool,
    /// Names the request in the log; also in the header `X-Request-Id`.
    pub request_id: String,
    /// With `all_rejected`: what was wrong with each line, the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejects: Vec<Reject>,
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The request cannot be right.
    Invalid,
    /// A write held points and none could be stored.
    AllRejected,
    /// A stated limit of a part of the request was passed.
    OverLimit,
    /// The body is larger than allowed, as sent or after decompression.
    BodyTooLarge,
    /// The body came too slowly.
    BodyTooSlow,
    /// The content type or encoding is not read here.
    UnsupportedMediaType,
    /// None of the content types that would be accepted can be written here.
    NotAcceptable,
    /// The token is missing or wrong.
    Unauthenticated,
    /// A page of another site asked a browser to do this.
    Forbidden,
    /// What is named does not exist.
    NotFound,
    /// What is named was there, and is not kept any more.
    Gone,
    /// The resource does not have this method.
    MethodNotAllowed,
    /// The server does not serve tables of this model, or the request is for tables of another model.
    WrongModel,
    /// It contradicts what is there.
    Conflict,
    /// The `Idempotency-Key` was used before, with another body. Nothing was stored.
    IdempotencyKeyReused,
    /// Too much at once. Nothing was done.
    Overloaded,
    /// The disk is nearly full. Nothing was done.
    DiskFull,
    /// All points of a write are of new timelines, of which the table takes only so many a minute. Nothing was stored.
    TooManyTimelines,
    /// Promises cannot be kept just now. The outcome of a write is unknown; sending it again is safe.
    Unavailable,
    /// A query needed more than its budget of time or memory.
    OverBudget,
    /// A job that was waited for failed. Its work is planned again by itself.
    JobFailed,
    /// A fault of the service.
    Internal,
}
