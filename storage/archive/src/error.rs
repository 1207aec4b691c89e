//! What can go wrong between the database and its archive, in words that help and hold no secret.

use std::io;

/// A failure of the archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The text does not name a target, or an option of it is wrong.
    #[error("archive target {target:?}: {reason}")]
    BadTarget {
        /// What was given, without credentials.
        target: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Requests may not name the target.
    #[error("archive target {target:?} is not allowed; allowed is {allowed}")]
    NotAllowed {
        /// The target, without credentials.
        target: String,
        /// The allowed targets, and the settings that name them.
        allowed: String,
    },
    /// The target did not do what it was asked to.
    #[error("archive target {target}: {action} of {object:?} failed: {reason}")]
    Target {
        /// The target.
        target: String,
        /// What was asked for.
        action: &'static str,
        /// The object.
        object: String,
        /// What the target, or the way to it, said.
        reason: String,
        /// Why, as far as it matters to callers.
        kind: TargetFault,
    },
    /// What is stored is not what was written.
    #[error("archive target {target}: {object:?} is damaged: {reason}")]
    Damaged {
        /// The target.
        target: String,
        /// The object.
        object: String,
        /// What was found.
        reason: String,
    },
    /// The local disk failed, where files are made before they are sent.
    #[error("archive: {action} a local file failed: {source}")]
    Local {
        /// What was done.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Everything stops, and so did this.
    #[error("the archive is stopping")]
    Stopped,
    /// A file could not be made or decoded.
    #[error("archive: {what}: {reason}")]
    Format {
        /// Of what.
        what: String,
        /// What is wrong.
        reason: String,
    },
}

/// Kinds of faults of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetFault {
    /// There is no such object.
    Missing,
    /// There is an object of that name already.
    Exists,
    /// It does not let us.
    Refused,
    /// It was not reached, was too slow, or is in trouble: it may work later.
    Unreachable,
}

/// The outcome of work on the archive.
pub type Result<T> = std::result::Result<T, ArchiveError>;

impl ArchiveError {
    /// Whether trying again later may help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Target { kind, .. } => *kind == TargetFault::Unreachable,
            Self::Local { .. } | Self::Stopped => true,
            Self::BadTarget { .. } | Self::NotAllowed { .. } | Self::Damaged { .. } | Self::Format { .. } => {
                false
            }
        }
    }

    /// Whether the object is not there.
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

/// Runs a decoder that was written for sound files and may panic on others; in words what came of that.
pub(crate) fn guarded<T>(decode: impl FnOnce() -> T) -> std::result::Result<T, String> {
    // What it leaves half done is thrown away by every caller.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode))
        .map_err(|_| "it cannot be decoded".to_owned())
}

/// Longest reason that is passed on.
const REASON_MAX: usize = 300;

/// What a target said, without what could be a credential: queries and user parts of addresses, and of an answer in
/// XML everything but its code and message.
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
