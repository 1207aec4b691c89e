//! Errors of the archive. Messages describe the problem without credentials.
//!
//! Reasons reported by a target are redacted and limited in length before they become part of an error.

use std::io;

/// Error of an archive operation.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The address or name of a target is not valid, or one of its options is not valid.
    #[error("archive target {target:?}: {reason}")]
    BadTarget {
        /// The address or name, without credentials.
        target: String,
        /// Description of the problem.
        reason: String,
    },
    /// Requests may not use the target.
    #[error("archive target {target:?} is not allowed; allowed: {allowed}")]
    NotAllowed {
        /// The target, without credentials.
        target: String,
        /// Allowed targets, and the settings that list them.
        allowed: String,
    },
    /// A request to the target failed.
    #[error("archive target {target}: {action} of {object:?} failed: {reason}")]
    Target {
        /// The target, without credentials.
        target: String,
        /// Requested operation.
        action: &'static str,
        /// Name of the object.
        object: String,
        /// Error of the target or of the connection.
        reason: String,
        /// Kind of the fault.
        kind: TargetFault,
    },
    /// A stored object differs from the written data.
    #[error("archive target {target}: {object:?} is damaged: {reason}")]
    Damaged {
        /// The target, without credentials.
        target: String,
        /// Name of the object.
        object: String,
        /// Description of the damage.
        reason: String,
    },
    /// An operation on a temporary or cached file on the local disk failed.
    #[error("archive: {action} a local file failed: {source}")]
    Local {
        /// Attempted operation.
        action: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The archive is shutting down, or the caller has stopped the operation.
    #[error("the archive is stopping")]
    Stopped,
    /// A file or another structure could not be created, encoded or decoded.
    #[error("archive: {what}: {reason}")]
    Format {
        /// The file or structure.
        what: String,
        /// Description of the problem.
        reason: String,
    },
}

/// Kind of a fault of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetFault {
    /// The object does not exist.
    Missing,
    /// An object of this name exists already.
    Exists,
    /// The target denied the request or does not support it.
    Refused,
    /// The target could not be reached, was too slow or has a temporary problem; a retry can succeed.
    Unreachable,
}

/// Result of an archive operation.
pub type Result<T> = std::result::Result<T, ArchiveError>;

impl ArchiveError {
    /// Returns true if a retry can succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Target { kind, .. } => *kind == TargetFault::Unreachable,
            Self::Local { .. } | Self::Stopped => true,
            Self::BadTarget { .. } | Self::NotAllowed { .. } | Self::Damaged { .. } | Self::Format { .. } => {
                false
            }
        }
    }

    /// Returns true if the object does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(
            self,
            Self::Target {
                kind: TargetFault::Missing,
                ..
            }
        )
    }

    pub(crate) fn local(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Local { action, source }
    }

    pub(crate) fn format(what: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Format {
            what: what.into(),
            reason: reason.to_string(),
        }
    }
}

/// Runs a decoder that may panic on damaged files. Converts a panic to a fixed human-readable reason.
pub(crate) fn guarded<T>(decode: impl FnOnce() -> T) -> std::result::Result<T, String> {
    // This is unwind-safe, because every caller discards the state that the panic may have left incomplete.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode))
        .map_err(|_| "it cannot be decoded".to_owned())
}

/// Maximum length of a reported reason in bytes, without the ellipsis that marks a truncated reason.
const REASON_MAX: usize = 300;

/// Removes possible credentials from a message of a target: queries and user parts of URLs, and the parts of an XML
/// response other than code and message. Limits the length.
pub(crate) fn redacted(text: &str) -> String {
    let text = text.split_once("<?xml").map_or_else(
        || text.to_owned(),
        |(before, xml)| {
            let part = |tag: &str| {
                let (_, rest) = xml.split_once(&format!("<{tag}>"))?;
                Some(rest.split_once("</")?.0.to_owned())
            };
            let parts: Vec<String> = ["Code", "Message"].into_iter().filter_map(part).collect();
            format!("{before}{}", parts.join(": "))
        },
    );
    let words: Vec<String> = text.split_whitespace().map(redacted_word).collect();
    let mut text = words.join(" ");
    if text.len() > REASON_MAX {
        text.truncate(text.floor_char_boundary(REASON_MAX));
        text.push('…');
    }
    text
}

fn redacted_word(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else {
        return word.to_owned();
    };
    let rest = rest.split_once('?').map_or(rest, |(path, _)| path);
    let (host, path) = rest
        .split_once('/')
        .map_or((rest, None), |(host, path)| (host, Some(path)));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    path.map_or_else(
        || format!("{scheme}://{host}"),
        |path| format!("{scheme}://{host}/{path}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_hold_no_credentials() {
        let text = "error for url (https://me:word@host.example/b/k?sig=abc&se=1): <?xml version='1.0'?><Error>\
                    <Code>SignatureDoesNotMatch</Code><Message>no match</Message><AWSAccessKeyId>AKIA</AWSAccessKeyId>\
                    <StringToSign>secret</StringToSign></Error>";
        let text = redacted(text);
        assert_eq!(
            text,
            "error for url (https://host.example/b/k SignatureDoesNotMatch: no match"
        );
    }
}
