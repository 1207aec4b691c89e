//! Outcome of a response: which statuses are failures, and when to try again.

use std::time::Duration;

use chrono::DateTime;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

use crate::error::{SendError, SendErrorKind};

/// Maximum delay of a `Retry-After` header. Longer delays are shortened to this maximum.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// Returns the outcome of a request by the head of its response.
///
/// Redirects are permanent failures: a redirect chooses another address, which must pass the checks of a target.
pub(crate) fn outcome(
    host: &str,
    status: StatusCode,
    headers: &HeaderMap,
    sent_at_seconds: i64,
) -> Result<(), SendError> {
    if status.is_success() {
        return Ok(());
    }
    let code = status.as_u16();
    let (kind, what_to_do) = match code {
        300..=399 => (
            SendErrorKind::Redirected(code),
            "redirects are not followed; use the final address",
        ),
        410 => (
            SendErrorKind::Gone,
            "the receiver accepts no more deliveries; correct the address, resume the webhook, or delete it",
        ),
        _ if SendErrorKind::Status(code).is_retryable() => (
            SendErrorKind::Status(code),
            "a later attempt can succeed; expected is a status from 200 to 299",
        ),
        _ => (
            SendErrorKind::Status(code),
            "expected is a status from 200 to 299; correct the receiver or the address",
        ),
    };
    let mut error = SendError::new(kind, format!("{host} responded with status {code}: {what_to_do}"));
    error.retry_after = error
        .retryable
        .then(|| retry_after(headers, sent_at_seconds))
        .flatten();
    Err(error)
}

/// Reads `Retry-After`: seconds, or a date, which is compared with the time at which the request was sent. Returns
/// `None` if the header is missing or invalid.
fn retry_after(headers: &HeaderMap, sent_at_seconds: i64) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = if is_number {
        text.parse().unwrap_or(u64::MAX)
    } else {
        let date = DateTime::parse_from_rfc2822(text).ok()?;
        u64::try_from(date.timestamp().saturating_sub(sent_at_seconds)).unwrap_or(0)
    };
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2015-10-21 07:28:00 UTC.
    const NOW: i64 = 1_445_412_480;

    #[test]
    fn retry_after_is_read_in_both_forms_and_limited() {
        for (text, seconds) in [
            ("0", Some(0)),
            ("120", Some(120)),
            (" 7 ", Some(7)),
            ("3601", Some(3600)),
            ("99999999999999999999999999", Some(3600)),
            ("Wed, 21 Oct 2015 07:29:30 GMT", Some(90)),
            ("Wed, 21 Oct 2015 07:27:00 GMT", Some(0)),
            ("Thu, 21 Oct 2055 07:27:00 GMT", Some(3600)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("tomorrow", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().expect("a header value"));
            let expected = seconds.map(Duration::from_secs);
            assert_eq!(retry_after(&headers, NOW), expected, "{text:?}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), NOW), None);
    }
}
