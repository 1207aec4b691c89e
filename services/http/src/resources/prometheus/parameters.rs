//! Parameters of a request to Prometheus' API: from its address and from its form, read as Prometheus reads them.
//!
//! Times are seconds (with a fraction) or RFC 3339, durations seconds or text such as `1h30m`. What lies beyond the
//! instants that Prometheus knows is brought to their ends, so that no sum with a range or an offset overflows: Grafana,
//! for one, asks at its start with milliseconds where seconds belong.

use axum::extract::{FromRequest, Request};
use axum::http::Method;
use tideline_openapi::ErrorCode;
use tideline_pattern::PatternBudget;
use tideline_promql::Matcher;

use crate::app::App;
use crate::body::{self, BodyLimits};
use crate::extract::content_type;
use crate::failure::{Failure, Result};

/// The first instant that Prometheus knows, in milliseconds.
pub(super) const TIME_MIN: i64 = (i64::MIN / 1_000 + 62_135_596_801) * 1_000;
/// The last one.
pub(super) const TIME_MAX: i64 = (i64::MAX / 1_000 - 62_135_596_801) * 1_000 + 999;
/// The first instant as Prometheus writes it, with a year that RFC 3339 does not have.
const TIME_MIN_TEXT: &str = "-292273086-05-16T16:47:06Z";
/// The last one.
const TIME_MAX_TEXT: &str = "292277025-08-18T07:12:54.999999999Z";

/// The content type of a form.
const FORM: &str = "application/x-www-form-urlencoded";

/// Parameters by name; one name may stand several times. Those of the form come before those of the address.
#[derive(Debug, Default)]
pub(crate) struct Parameters(Vec<(String, String)>);

impl FromRequest<App> for Parameters {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self> {
        let address = read_form(request.uri().query().unwrap_or_default().as_bytes());
        if request.method() != Method::POST {
            return Ok(Self(address.collect()));
        }
        let address: Vec<_> = address.collect();
        match content_type(request.headers()).as_str() {
            FORM => {}
            // What it holds is asked for: it must not be passed over.
            sent @ "multipart/form-data" => {
                body::discard(request, app).await;
                return Err(Failure::new(
                    ErrorCode::UnsupportedMediaType,
                    format!("content type {sent:?} is not read here; send {FORM}"),
                ));
            }
            _ => {
                body::discard(request, app).await;
                return Ok(Self(address));
            }
        }
        let received = body::receive(request, app, BodyLimits::requests(&app.settings)).await?;
        let form = received.decode_small().await?;
        Ok(Self(read_form(form.trim_ascii_end()).chain(address).collect()))
    }
}

fn read_form(form: &[u8]) -> impl Iterator<Item = (String, String)> {
    form_urlencoded::parse(form).map(|(name, value)| (name.into_owned(), value.into_owned()))
}

impl Parameters {
    /// The first value of a name; nothing where it is missing.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.texts(name).next().unwrap_or_default()
    }

    /// All values of a name.
    pub(crate) fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.0.iter().filter(move |(at, _)| at == name);
        named.map(|(_, value)| value.as_str())
    }

    /// An instant in milliseconds that may be left out.
    pub(crate) fn optional_time(&self, name: &str) -> Result<Option<i64>> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        let time = parse_time(text).map_err(|problem| format!("invalid time value for '{name}': {problem}"));
        time.map(Some).map_err(|problem| wrong(name, problem))
    }

    /// An instant in milliseconds.
    pub(crate) fn time(&self, name: &str) -> Result<i64> {
        parse_time(self.text(name)).map_err(|problem| wrong(name, problem))
    }

    /// The range from `start` to `end`, in milliseconds, both inclusive; all of time where they are left out.
    pub(crate) fn range(&self) -> Result<(i64, i64)> {
        let start = self.optional_time("start")?.unwrap_or(TIME_MIN);
        let end = self.optional_time("end")?.unwrap_or(TIME_MAX);
        Ok((start, end))
    }

    /// A length of time in milliseconds, fractions cut off.
    pub(crate) fn duration(&self, name: &str) -> Result<i64> {
        parse_duration(self.text(name)).map_err(|problem| wrong(name, problem))
    }

    /// The same where it may be left out.
    pub(crate) fn optional_duration(&self, name: &str) -> Result<Option<i64>> {
        match self.text(name) {
            "" => Ok(None),
            _ => self.duration(name).map(Some),
        }
    }

    /// The most entries of the answer; `None` for all.
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

    /// A count under `name`; `None` where it is left out or below zero.
    pub(crate) fn count(&self, name: &str) -> Result<Option<usize>> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        let count: i64 = text
            .parse()
            .map_err(|_| Failure::invalid(format!("{name} must be a number")))?;
        Ok(usize::try_from(count).ok())
    }

    /// A switch: `true` or `false` in Go's ways of writing them.
    pub(crate) fn switch(&self, name: &str) -> Result<Option<bool>> {
        match self.text(name) {
            "" => Ok(None),
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Some(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Some(false)),
            other => Err(wrong(name, format!("{other:?} is neither true nor false"))),
        }
    }

    /// The selectors `match[]`.
    pub(crate) fn any_selectors(&self) -> Result<Vec<Vec<Matcher>>> {
        let mut patterns = PatternBudget::default();
        let mut parse = |text| {
            let selector = tideline_promql::parse_selector(text).map_err(Failure::invalid)?;
            for matcher in &selector {
                if let Some(pattern) = matcher.pattern() {
                    patterns.take(&matcher.value, pattern.bytes())?;
                }
            }
            Ok(selector)
        };
        self.texts("match[]").map(&mut parse).collect()
    }

    /// The selectors `match[]`; each has a matcher that a series without labels does not meet.
    pub(crate) fn selectors(&self) -> Result<Vec<Vec<Matcher>>> {
        let selectors = self.any_selectors()?;
        let is_open = |selector: &Vec<Matcher>| selector.iter().all(|matcher| matcher.matches(""));
        if selectors.iter().any(is_open) {
            let problem = "match[] must contain at least one non-empty matcher";
            return Err(Failure::invalid(problem));
        }
        Ok(selectors)
    }
}

/// The refusal of a parameter, in Prometheus' words.
pub(crate) fn wrong(name: &str, problem: impl std::fmt::Display) -> Failure {
    Failure::invalid(format!("invalid parameter {name:?}: {problem}"))
}

/// An instant in milliseconds.
fn parse_time(text: &str) -> std::result::Result<i64, String> {
    if let Some(seconds) = parse_number(text) {
        let whole = seconds.trunc();
        // What is too large for an integer becomes the largest, and then the last instant.
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

/// A length of time in milliseconds.
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

/// A finite number.
fn parse_number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(form: &str) -> Parameters {
        Parameters(read_form(form.as_bytes()).collect())
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
            // Milliseconds where seconds belong.
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
        // A year of milliseconds fits beside every instant.
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
            let failure = of(bad).limit().expect_err(bad);
            assert!(
                failure.message.starts_with("invalid parameter \"limit\": "),
                "{}",
                failure.message
            );
        }
        let failure = of("start=x").range().expect_err("no time");
        assert_eq!(
            failure.message,
            "invalid parameter \"start\": invalid time value for 'start': cannot parse \"x\" to a valid timestamp"
        );
    }

    #[test]
    fn a_selector_says_something() {
        assert_eq!(of("match[]=up").selectors().expect("a selector").len(), 1);
        for open in ["match[]={}", "match[]={job%3D~\".*\"}"] {
            let failure = of(open).selectors().expect_err(open);
            assert!(failure.message.contains("at least one non-empty matcher"));
        }
    }
}
