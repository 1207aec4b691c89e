//! Parameters of a request to Prometheus' API.
//!
//! Times are seconds, optionally with a fraction, or RFC 3339 text; durations are seconds or text such as `1h30m`.
//! Times outside of the range that Prometheus supports are clamped to it, so that sums with a range or an offset cannot
//! overflow. Very large times occur: the start-up probe of Grafana sends milliseconds instead of seconds.

use std::fmt;

use tideline_engine::condition::PatternBudget;
use tideline_promql::Matcher;
use tideline_promql::ast::Expr;

use crate::error::{RequestError, Result};

/// First time that Prometheus supports, in milliseconds.
pub(crate) const TIME_MIN: i64 = (i64::MIN / 1_000 + 62_135_596_801) * 1_000;
/// Last time that Prometheus supports, in milliseconds.
pub(crate) const TIME_MAX: i64 = (i64::MAX / 1_000 - 62_135_596_801) * 1_000 + 999;
/// First time in the notation of Prometheus, with a year that RFC 3339 does not allow.
const TIME_MIN_TEXT: &str = "-292273086-05-16T16:47:06Z";
/// Last time in the notation of Prometheus.
const TIME_MAX_TEXT: &str = "292277025-08-18T07:12:54.999999999Z";

/// Parameters by name, in the order of the request. A name may occur several times.
#[derive(Debug, Default)]
pub struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Parses parameters from form-encoded parts. The form-encoded body must precede the query string of the URL.
    pub fn read<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let pairs = parts.into_iter().flat_map(form_urlencoded::parse);
        Self(
            pairs
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .collect(),
        )
    }

    /// Returns the first value of a name; empty if the name is missing.
    pub fn text(&self, name: &str) -> &str {
        self.texts(name).next().unwrap_or_default()
    }

    /// Returns all values of a name.
    pub(crate) fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.0.iter().filter(move |(at, _)| at == name);
        named.map(|(_, value)| value.as_str())
    }

    /// Reads an optional time in milliseconds.
    pub(crate) fn optional_time(&self, name: &str) -> Result<Option<i64>> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        let time = parse_time(text).map_err(|problem| format!("invalid time value for '{name}': {problem}"));
        time.map(Some).map_err(|problem| wrong(name, problem))
    }

    /// Reads a time in milliseconds.
    pub(crate) fn time(&self, name: &str) -> Result<i64> {
        parse_time(self.text(name)).map_err(|problem| wrong(name, problem))
    }

    /// Reads the range from `start` to `end` in milliseconds, both inclusive. A missing `start` defaults to the first
    /// supported time, a missing `end` to the last one.
    pub(crate) fn range(&self) -> Result<(i64, i64)> {
        let start = self.optional_time("start")?.unwrap_or(TIME_MIN);
        let end = self.optional_time("end")?.unwrap_or(TIME_MAX);
        Ok((start, end))
    }

    /// Reads a duration in milliseconds, truncated.
    pub(crate) fn duration(&self, name: &str) -> Result<i64> {
        parse_duration(self.text(name)).map_err(|problem| wrong(name, problem))
    }

    /// Reads an optional duration in milliseconds.
    pub(crate) fn optional_duration(&self, name: &str) -> Result<Option<i64>> {
        match self.text(name) {
            "" => Ok(None),
            _ => self.duration(name).map(Some),
        }
    }

    /// Reads `limit`, the maximum number of entries of the response. Returns `None` (no limit) if the parameter is
    /// missing or 0.
    pub(crate) fn limit(&self) -> Result<Option<usize>> {
        let text = self.text("limit");
        if text.is_empty() {
            return Ok(None);
        }
        let limit: i64 = text
            .parse()
            .map_err(|_| wrong("limit", format!("{text:?} is not a number")))?;
        let limit = usize::try_from(limit).map_err(|_| wrong("limit", "limit must be non-negative"))?;
        Ok((limit > 0).then_some(limit))
    }

    /// Reads a count; `None` if the parameter is missing or negative.
    pub(crate) fn count(&self, name: &str) -> Result<Option<usize>> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        let count: i64 = text
            .parse()
            .map_err(|_| RequestError::Invalid(format!("{name} must be a number")))?;
        Ok(usize::try_from(count).ok())
    }

    /// Reads an optional boolean in one of Go's spellings.
    pub(crate) fn switch(&self, name: &str) -> Result<Option<bool>> {
        match self.text(name) {
            "" => Ok(None),
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Some(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Some(false)),
            other => Err(wrong(name, format!("{other:?} is neither true nor false"))),
        }
    }

    /// Reads the selectors `match[]`.
    pub(crate) fn any_selectors(&self) -> Result<Vec<Vec<Matcher>>> {
        let mut patterns = PatternBudget::default();
        let mut parse = |text| {
            let selector = tideline_promql::parse_selector(text).map_err(RequestError::invalid)?;
            for matcher in &selector {
                if let Some(pattern) = matcher.pattern() {
                    patterns.take(&matcher.value, pattern.bytes())?;
                }
            }
            Ok(selector)
        };
        self.texts("match[]").map(&mut parse).collect()
    }

    /// Reads the selectors `match[]`. Returns an error if a selector matches a series without labels.
    pub(crate) fn selectors(&self) -> Result<Vec<Vec<Matcher>>> {
        let selectors = self.any_selectors()?;
        let is_open = |selector: &Vec<Matcher>| selector.iter().all(|matcher| matcher.matches(""));
        if selectors.iter().any(is_open) {
            let problem = "match[] must contain at least one non-empty matcher";
            return Err(RequestError::invalid(problem));
        }
        Ok(selectors)
    }

    /// Returns an error if the request has no selector.
    pub(crate) fn need_selector(&self) -> Result<()> {
        match self.texts("match[]").next() {
            None => Err(RequestError::invalid("no match[] parameter provided")),
            Some(_) => Ok(()),
        }
    }

    /// Returns the selectors `match[]` as one text, for the list of running queries.
    pub(crate) fn selectors_text(&self) -> String {
        self.texts("match[]").collect::<Vec<_>>().join(" or ")
    }

    /// Checks the parameters of a request for rules. The response is always an empty list.
    ///
    /// # Errors
    ///
    /// [`RequestError`] if a parameter is not valid, with the error texts of Prometheus.
    pub fn check_rules(&self) -> Result<()> {
        self.selectors()?;
        let kind = self.text("type").to_ascii_lowercase();
        if !matches!(kind.as_str(), "" | "alert" | "record") {
            return Err(wrong("type", format!("not supported value {kind:?}")));
        }
        self.switch("exclude_alerts")?;
        let (limit, next) = (self.text("group_limit"), self.text("group_next_token"));
        if limit.is_empty() && next.is_empty() {
            return Ok(());
        }
        if limit.is_empty() {
            let problem = "group_limit needs to be present in order to paginate over the groups";
            return Err(wrong("group_next_token", problem));
        }
        match limit.parse::<i32>() {
            Err(problem) => {
                let problem = format!("group_limit needs to be a valid number: {problem}");
                Err(wrong("group_limit", problem))
            }
            Ok(..=0) => Err(wrong("group_limit", "group_limit needs to be greater than 0")),
            // The list is always empty, so there is no next page.
            Ok(_) if !next.is_empty() => {
                let problem = format!("invalid group_next_token '{next}'. were rule groups changed?");
                Err(wrong("group_next_token", problem))
            }
            Ok(_) => Ok(()),
        }
    }

    /// Checks the parameters of a request for metadata of targets. The response is always an empty list.
    ///
    /// # Errors
    ///
    /// [`RequestError::Invalid`] if a parameter is not valid.
    pub fn check_target_metadata(&self) -> Result<()> {
        self.count("limit")?;
        let selector = self.text("match_target");
        if !selector.is_empty() {
            tideline_promql::parse_selector(selector).map_err(|problem| wrong("match_target", problem))?;
        }
        Ok(())
    }
}

/// Parses the parameter `query`. Regular expressions are checked, but not compiled.
///
/// # Errors
///
/// [`RequestError::Invalid`] if the expression is not valid PromQL.
pub fn parse_query(text: &str) -> Result<Expr> {
    tideline_promql::parse(text).map_err(|problem| wrong("query", problem))
}

/// Returns the error of a parameter, with the error text of Prometheus.
pub(crate) fn wrong(name: &str, problem: impl fmt::Display) -> RequestError {
    RequestError::Invalid(format!("invalid parameter {name:?}: {problem}"))
}

/// Parses a time and returns it in milliseconds.
fn parse_time(text: &str) -> std::result::Result<i64, String> {
    if let Some(seconds) = parse_number(text) {
        let whole = seconds.trunc();
        // A value that is too large saturates and is then clamped.
        let whole_millis = (whole as i64).saturating_mul(1_000);
        let millis = whole_millis.saturating_add(((seconds - whole) * 1e3).round() as i64);
        return Ok(millis.clamp(TIME_MIN, TIME_MAX));
    }
    if let Ok(time) = chrono::DateTime::parse_from_rfc3339(text) {
        return Ok(time.timestamp_millis().clamp(TIME_MIN, TIME_MAX));
    }
    match text {
        TIME_MIN_TEXT => Ok(TIME_MIN),
        TIME_MAX_TEXT => Ok(TIME_MAX),
        _ => Err(format!("cannot parse {text:?} to a valid timestamp")),
    }
}

/// Parses a duration and returns it in milliseconds, truncated.
fn parse_duration(text: &str) -> std::result::Result<i64, String> {
    if let Some(seconds) = parse_number(text) {
        let nanos = seconds * 1e9;
        if nanos >= i64::MAX as f64 || nanos <= i64::MIN as f64 {
            return Err(format!(
                "cannot parse {text:?} to a valid duration. It overflows int64"
            ));
        }
        return Ok((seconds * 1e3) as i64);
    }
    tideline_promql::parse_duration(text).map_err(|_| format!("cannot parse {text:?} to a valid duration"))
}

/// Parses a finite number.
fn parse_number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(form: &str) -> Parameters {
        Parameters::read([form.as_bytes()])
    }

    #[test]
    fn times_are_seconds_or_rfc_3339_and_stay_in_range() {
        for (text, millis) in [
            ("4", 4_000),
            ("0.0011", 1),
            ("1543578564.705", 1_543_578_564_705),
            ("-1.5", -1_500),
            ("1e3", 1_000_000),
            ("2026-11-20T12:00:00Z", 1_795_176_000_000),
            ("2026-11-20T13:00:00.25+01:00", 1_795_176_000_250),
            ("9999-12-31T23:59:59Z", 253_402_300_799_000),
            // Milliseconds instead of seconds.
            ("1795176000000", 1_795_176_000_000_000),
            ("1e300", TIME_MAX),
            ("-1e300", TIME_MIN),
            (TIME_MIN_TEXT, TIME_MIN),
            (TIME_MAX_TEXT, TIME_MAX),
        ] {
            assert_eq!(parse_time(text), Ok(millis), "{text}");
        }
        for text in ["", "now", "NaN", "inf", "2026-11-20", "30d"] {
            parse_time(text).expect_err(text);
        }
        // One year, in milliseconds, can be added to and subtracted from every valid time.
        assert!(TIME_MIN.checked_sub(31_536_000_000).is_some());
        assert!(TIME_MAX.checked_add(31_536_000_000).is_some());
    }

    #[test]
    fn durations_are_seconds_or_units() {
        for (text, millis) in [
            ("15", 15_000),
            ("0.0005", 0),
            ("-1", -1_000),
            ("1h30m", 5_400_000),
            ("250ms", 250),
        ] {
            assert_eq!(parse_duration(text), Ok(millis), "{text}");
        }
        for text in ["", "1us", "1h 30m", "fast", "1e300", "NaN"] {
            parse_duration(text).expect_err(text);
        }
    }

    #[test]
    fn a_name_may_stand_several_times_and_limits_are_counts() {
        let parameters = of("match[]=up&limit=3&match[]=%7Bjob%3D%22a%22%7D&empty=");
        assert_eq!(
            parameters.texts("match[]").collect::<Vec<_>>(),
            ["up", "{job=\"a\"}"]
        );
        assert_eq!(parameters.limit().expect("a count"), Some(3));
        assert_eq!(parameters.text("empty"), "");
        assert_eq!(of("limit=0").limit().expect("a count"), None);
        for bad in ["limit=-1", "limit=x", "limit=1.5"] {
            let error = of(bad).limit().expect_err(bad).to_string();
            assert!(error.starts_with("invalid parameter \"limit\": "), "{error}");
        }
        let error = of("start=x").range().expect_err("no time");
        assert_eq!(
            error.to_string(),
            "invalid parameter \"start\": invalid time value for 'start': cannot parse \"x\" to a valid timestamp"
        );
    }

    #[test]
    fn an_empty_selector_is_refused() {
        assert_eq!(of("match[]=up").selectors().expect("a selector").len(), 1);
        for open in ["match[]={}", "match[]={job%3D~\".*\"}"] {
            let error = of(open).selectors().expect_err(open);
            assert!(error.to_string().contains("at least one non-empty matcher"));
        }
    }
}
