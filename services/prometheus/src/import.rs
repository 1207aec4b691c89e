//! Imports of samples: URL parameters, groups of a Pushgateway, and the description of refused samples.
//!
//! The samples themselves are parsed by the crate of ingest protocols.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode_str;
use tideline_engine::WriteOutcome;
use tideline_engine::model::LineReject;
use tideline_ingest_protocols::prometheus::ImportOptions;

use crate::error::{RequestError, Result};

/// Maximum number of labels that a request may add to all its series.
const EXTRA_LABELS_MAX: usize = 64;
/// Maximum number of labels of a group.
const GROUP_LABELS_MAX: usize = 64;
/// Maximum number of refused samples that a description lists; if more are refused, the last refused sample is listed
/// in addition.
const REJECTS_SHOWN_MAX: usize = 10;

/// Base64 with the URL-safe alphabet. Padding is optional.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads the URL parameters `timestamp` and `extra_label`; others are ignored.
///
/// # Errors
///
/// [`RequestError::Invalid`] if a value is not valid, [`RequestError::OverLimit`] if there are more than 64 extra
/// labels.
pub fn read_options(parameters: Vec<(String, String)>) -> Result<ImportOptions> {
    let mut import = ImportOptions::default();
    for (name, value) in parameters {
        match name.as_str() {
            "timestamp" => {
                let millis = value.parse();
                let millis = millis.map_err(|_| {
                    RequestError::Invalid(format!("timestamp {value:?} is not a number of milliseconds"))
                })?;
                import.millis = Some(millis);
            }
            "extra_label" => {
                let Some((label, value)) = value.split_once('=').filter(|(label, _)| !label.is_empty())
                else {
                    return Err(RequestError::Invalid(format!(
                        "extra_label {value:?} is not of the form name=value"
                    )));
                };
                // The last value of a label counts.
                import.extra_labels.retain(|(known, _)| known != label);
                import.extra_labels.push((label.to_owned(), value.to_owned()));
            }
            _ => {}
        }
    }
    let what = "number of extra labels";
    check_count(what, EXTRA_LABELS_MAX, import.extra_labels.len()).map(|()| import)
}

fn check_count(what: &'static str, limit: usize, actual: usize) -> Result<()> {
    match actual > limit {
        true => Err(RequestError::OverLimit {
            what,
            limit: limit as u64,
            actual: actual as u64,
        }),
        false => Ok(()),
    }
}

/// Reads the labels of a group from a URL path: after `/metrics/`, alternating label names and values, `job` first.
///
/// # Errors
///
/// [`RequestError::Invalid`] if a label has no value, a wrong encoding or a reserved name, or is repeated, or if
/// the job is missing; [`RequestError::OverLimit`] if there are more than 64 labels.
pub fn read_group(path: &str) -> Result<BTreeMap<String, String>> {
    let path = path.split_once("/metrics/").map_or("", |(_, path)| path);
    let mut labels = BTreeMap::new();
    let mut parts = path.trim_end_matches('/').split('/');
    while let Some(name) = parts.next() {
        let name = decoded(name)?;
        let value = parts.next();
        let value = value.ok_or_else(|| RequestError::Invalid(format!("label {name:?} has no value")))?;
        let (name, value) = match name.strip_suffix("@base64") {
            Some(name) => (name.to_owned(), from_base64(value)?),
            None => (name, decoded(value)?),
        };
        if labels.is_empty() && name != "job" {
            return Err(RequestError::invalid("the first label of a group must be job"));
        }
        if name.is_empty() || name.starts_with("__") {
            return Err(RequestError::Invalid(format!("label {name:?} is not allowed")));
        }
        if labels.contains_key(&name) {
            return Err(RequestError::Invalid(format!("duplicate label {name:?}")));
        }
        labels.insert(name, value);
    }
    if labels.get("job").is_none_or(String::is_empty) {
        return Err(RequestError::invalid("the job of a group must not be empty"));
    }
    let what = "number of labels of a group";
    check_count(what, GROUP_LABELS_MAX, labels.len()).map(|()| labels)
}

fn decoded(part: &str) -> Result<String> {
    let text = percent_decode_str(part).decode_utf8();
    text.map(Into::into)
        .map_err(|_| RequestError::Invalid(format!("{part:?} is not UTF-8")))
}

/// Decodes a base64 value. `=` alone is the empty value, since a path segment cannot be empty.
fn from_base64(part: &str) -> Result<String> {
    if part == "=" {
        return Ok(String::new());
    }
    let part = decoded(part)?;
    let bytes = BASE64.decode(&part).ok();
    bytes
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| RequestError::Invalid(format!("{part:?} is not text in base64")))
}

/// Returns a description of the stored and refused samples of a write.
pub fn refusal_text(outcome: &WriteOutcome) -> String {
    let mut text = format!("{} stored, {} refused", outcome.points, outcome.rejected);
    let (shown, rest) = outcome
        .rejects
        .split_at(outcome.rejects.len().min(REJECTS_SHOWN_MAX));
    shown.iter().for_each(|reject| put_reject(reject, &mut text));
    let hidden = outcome.rejected.saturating_sub(REJECTS_SHOWN_MAX as u64);
    if hidden > 0 {
        write!(text, "\nand {hidden} more").expect("writing to a string cannot fail");
    }
    // The last reject can state that the rest of the input was not read.
    if let Some(last) = rest.last() {
        text.push_str(", the last of them:");
        put_reject(last, &mut text);
    }
    text
}

fn put_reject(reject: &LineReject, text: &mut String) {
    text.push('\n');
    if !reject.excerpt.is_empty() {
        write!(text, "{}: ", reject.excerpt).expect("writing to a string cannot fail");
    }
    write!(text, "{}", reject.reason).expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(path: &str) -> std::result::Result<Vec<(String, String)>, String> {
        let group = read_group(path).map_err(|error| error.to_string())?;
        Ok(group.into_iter().collect())
    }

    #[test]
    fn a_path_names_the_labels_of_its_group() {
        let pairs = |pairs: &[(&str, &str)]| {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            Ok(pairs.iter().map(owned).collect::<Vec<_>>())
        };
        assert_eq!(group("/metrics/job/a"), pairs(&[("job", "a")]));
        assert_eq!(
            group("/metrics/job/a%20b/instance/c/"),
            pairs(&[("instance", "c"), ("job", "a b")])
        );
        assert_eq!(
            group("/v1/tables/x/prometheus/metrics/job/a"),
            pairs(&[("job", "a")])
        );
        assert_eq!(
            group("/metrics/job@base64/YS9i/path@base64/L3Zhci90bXA/name/foo"),
            pairs(&[("job", "a/b"), ("name", "foo"), ("path", "/var/tmp")])
        );
        assert_eq!(
            group("/metrics/job/titan/dir@base64/="),
            pairs(&[("dir", ""), ("job", "titan")])
        );
        for (path, reason) in [
            ("/metrics/instance/a", "the first label of a group must be job"),
            ("/metrics/job/", "label \"job\" has no value"),
            ("/metrics/job/a/instance", "label \"instance\" has no value"),
            ("/metrics/job/a/x/1/x/2", "duplicate label \"x\""),
            ("/metrics/job/a/__name__/2", "label \"__name__\" is not allowed"),
            ("/metrics/job@base64/=", "the job of a group must not be empty"),
            ("/metrics/job@base64/%%", "\"%%\" is not text in base64"),
        ] {
            assert_eq!(group(path), Err(reason.to_owned()), "{path}");
        }
    }
}
