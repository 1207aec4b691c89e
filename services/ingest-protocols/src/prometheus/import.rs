//! Options and helpers shared by all import formats: text, metric families and JSON lines.
//!
//! The options come from the URL of a request and are independent of its format.

use std::borrow::Cow;
use std::fmt::Write as _;

use tideline_histogram::Shortest;
use tideline_model::SeriesResolver;

use super::labels::{self, METRIC_NAME};
use super::samples::SampleWriter;
use crate::options::{DecodeOptions, or_unknown};
use crate::reject::Reason;

/// Options that apply to all samples of a body of text, metric families or JSON lines.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImportOptions {
    /// Timestamp of samples that have none, in milliseconds since the epoch; `None` uses the default time of the decode
    /// options. JSON lines always have timestamps.
    pub millis: Option<i64>,
    /// Labels added to every series; they replace labels of the same name. An empty value only removes that label.
    pub extra_labels: Vec<(String, String)>,
    /// Additional samples as name and value. They get the default timestamp (see `millis`) and only the extra labels.
    /// The decoder of JSON lines does not write them.
    pub extra_samples: Vec<(String, f64)>,
}

impl ImportOptions {
    /// Returns the timestamp of samples that have none, in milliseconds; `None` if it is unknown.
    pub(crate) fn default_millis(&self, options: &DecodeOptions) -> Option<i64> {
        let arrival = options
            .default_time
            .map(|time| time.nanos().div_euclid(1_000_000));
        self.millis.or(arrival)
    }

    /// Writes the additional samples.
    pub(crate) fn write_extra_samples<R: SeriesResolver>(
        &self,
        default_millis: Option<i64>,
        writer: &mut SampleWriter<'_, R>,
        key: &mut Vec<u8>,
    ) {
        for (name, value) in &self.extra_samples {
            let name = std::iter::once((METRIC_NAME, Cow::Borrowed(name.as_bytes())));
            let written = spell_key(name, &self.extra_labels, key)
                .and_then(|()| writer.series(key))
                .and_then(|series| writer.number(series, or_unknown(default_millis)?, *value, None));
            if let Err(reason) = written {
                writer.reject(reason, key);
            }
        }
    }
}

/// Builds the key of a series. Extra labels replace labels of the same name. Labels with an empty value are omitted.
/// Fails if no label remains.
pub(crate) fn spell_key<'a>(
    own: impl Iterator<Item = (&'a [u8], Cow<'a, [u8]>)>,
    extra: &[(String, String)],
    key: &mut Vec<u8>,
) -> Result<(), Reason> {
    key.clear();
    for (name, value) in own {
        let is_replaced = extra.iter().any(|(replaced, _)| replaced.as_bytes() == name);
        if !value.is_empty() && !is_replaced {
            labels::push(name, &value, key);
        }
    }
    for (name, value) in extra.iter().filter(|(_, value)| !value.is_empty()) {
        labels::push(name.as_bytes(), value.as_bytes(), key);
    }
    match key.is_empty() {
        true => Err("the series has no labels".into()),
        false => Ok(()),
    }
}

/// Formats the bound of a bucket or a quantile as Prometheus does, so that `1` and `1.0` are the same label value.
/// Replaces the content of `text`.
pub(crate) fn spell_bound(bound: f64, text: &mut String) {
    text.clear();
    if bound == 0.0 {
        text.push_str("0.0");
        return;
    }
    write!(text, "{}", Shortest(bound)).expect("writing to a string cannot fail");
    if bound.is_finite() && !text.contains(['.', 'e']) {
        text.push_str(".0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_spelt_as_prometheus_spells_them() {
        let mut text = String::new();
        for (bound, spelt) in [
            (1.0, "1.0"),
            (0.0, "0.0"),
            (-0.0, "0.0"),
            (0.25, "0.25"),
            (-2.0, "-2.0"),
            (1e21, "1e+21"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            spell_bound(bound, &mut text);
            assert_eq!(text, spelt);
        }
    }
}
