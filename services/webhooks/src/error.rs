//! Reasons of failed requests, and whether a retry can help.
//!
//! A caller shows `message` to the owner of the webhook. It contains the host, but no IP address, path, query, secret
//! or part of the response.

use std::time::Duration;

/// Failure of one request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct SendError {
    /// Reason of the failure.
    pub kind: SendErrorKind,
    /// True if the same request can succeed later without a change of the webhook.
    pub retryable: bool,
    /// Description of the failure and what to do.
    pub message: String,
    /// Delay before the next attempt, as requested by the receiver; at most [`crate::RETRY_AFTER_MAX`].
    pub retry_after: Option<Duration>,
}

/// Reason of a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendErrorKind {
    /// The id or content type of the delivery is not a valid header value. Nothing was sent.
    InvalidDelivery,
    /// The settings do not allow the target. Nothing was sent.
    TargetRefused,
    /// The name has no address that may be connected to. Nothing was sent.
    AddressRefused,
    /// The name could not be resolved.
    NameNotResolved,
    /// No connection, or no valid certificate.
    ConnectFailed,
    /// The time limit passed before the head of the response. The receiver may have processed the request.
    TimedOut,
    /// The connection ended before the head of the response, or the head was invalid. The receiver may have processed
    /// the request.
    BrokenResponse,
    /// Status 3xx with this code. Redirects are not followed.
    Redirected(u16),
    /// Status 410: the receiver accepts no more deliveries. The caller should disable the webhook.
    Gone,
    /// Another status that is not 2xx.
    Status(u16),
}

impl SendErrorKind {
    /// Returns true if the same request can succeed later without a change of the webhook.
    pub fn is_retryable(self) -> bool {
        match self {
            Self::NameNotResolved | Self::ConnectFailed | Self::TimedOut | Self::BrokenResponse => true,
            Self::Status(status) => matches!(status, 408 | 425 | 429 | 500..=599),
            Self::InvalidDelivery
            | Self::TargetRefused
            | Self::AddressRefused
            | Self::Redirected(_)
            | Self::Gone => false,
        }
    }
}

impl SendError {
    pub(crate) fn new(kind: SendErrorKind, message: String) -> Self {
        Self {
            kind,
            retryable: kind.is_retryable(),
            message,
            retry_after: None,
        }
    }
}
