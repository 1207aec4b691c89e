//! Translation of metric names and units.
//!
//! The rules are those of Prometheus' `otlptranslator`. A name with suffixes consists of the tokens of the OTLP name,
//! the unit, the unit after `per`, and a type suffix. The type suffix is `total` for counters and `ratio` for gauges
//! with the unit `1`. A suffix that the name already has is not repeated.

use std::borrow::Cow;

use super::settings::TranslationStrategy;
use crate::reject::{Reason, quote};

/// Units that have a name in Prometheus.
const UNITS: [(&str, &str); 26] = [
    ("d", "days"),
    ("h", "hours"),
    ("min", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("By", "bytes"),
    ("KiBy", "kibibytes"),
    ("MiBy", "mebibytes"),
    ("GiBy", "gibibytes"),
    ("TiBy", "tibibytes"),
    ("KBy", "kilobytes"),
    ("MBy", "megabytes"),
    ("GBy", "gigabytes"),
    ("TBy", "terabytes"),
    ("m", "meters"),
    ("V", "volts"),
    ("A", "amperes"),
    ("J", "joules"),
    ("W", "watts"),
    ("g", "grams"),
    ("Cel", "celsius"),
    ("Hz", "hertz"),
    ("1", ""),
    ("%", "percent"),
];

/// Units after a slash that have a name in Prometheus.
const UNITS_PER: [(&str, &str); 7] = [
    ("s", "second"),
    ("m", "minute"),
    ("h", "hour"),
    ("d", "day"),
    ("w", "week"),
    ("mo", "month"),
    ("y", "year"),
];

/// Type of a metric, reduced to the differences that affect the translation of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameKind {
    Counter,
    Gauge,
    Other,
}

/// Writes the translated name of a metric to `out`, replacing its content.
///
/// # Errors
///
/// Returns a reason if the translated name is empty, or if escaping changes the name into underscores only.
pub(super) fn translate(
    name: &str,
    unit: &str,
    kind: NameKind,
    strategy: TranslationStrategy,
    out: &mut String,
) -> Result<(), Reason> {
    out.clear();
    match (strategy.escapes(), strategy.adds_suffixes()) {
        (true, true) => escape_with_suffixes(name, unit, kind, out),
        (true, false) => escape(name, out),
        (false, true) => add_suffixes(name, unit, kind, out),
        (false, false) => out.push_str(name),
    }
    if out.is_empty() {
        return Err(format!(
            "the metric name {} is empty in translation",
            quote(name.as_bytes())
        )
        .into());
    }
    if strategy.escapes() && out != name && out.bytes().all(|byte| byte == b'_') {
        return Err(format!(
            "the metric name {} has no valid character",
            quote(name.as_bytes())
        )
        .into());
    }
    Ok(())
}

/// Returns the unit as the metadata of a metric shows it, such as `bytes_per_second`.
pub(super) fn translate_unit(unit: &str) -> String {
    let (main, per) = suffixes(unit);
    let (main, per) = (cleaned(&main), cleaned(&per));
    let joined = match (main.is_empty(), per.is_empty()) {
        (false, false) => format!("{main}_{per}"),
        (false, true) => main.into_owned(),
        _ => per.into_owned(),
    };
    let trimmed = joined.strip_prefix('_').unwrap_or(&joined);
    trimmed.strip_suffix('_').unwrap_or(trimmed).to_owned()
}

fn is_valid(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == ':'
}

fn escape_with_suffixes(name: &str, unit: &str, kind: NameKind, out: &mut String) {
    let tokens = || name.split(|c| !is_valid(c)).filter(|token| !token.is_empty());
    let has = |suffix: &str| tokens().any(|token| token == suffix);
    let (main, per) = suffixes(unit);
    let (main, per) = (cleaned(&main), cleaned(&per));
    let per = match &*per {
        "per_" => "",
        per => per.strip_suffix('_').unwrap_or(per),
    };
    let per = Some(per).filter(|per| !per.is_empty() && !has(per));
    let main = Some(&*main).filter(|main| !main.is_empty() && !has(main));
    let main = main.map(|main| match per {
        Some(_) => main.strip_suffix('_').unwrap_or(main),
        None => main,
    });
    let last = match kind {
        NameKind::Counter => Some("total"),
        NameKind::Gauge if unit == "1" => Some("ratio"),
        _ => None,
    };
    let tokens = tokens().chain(main).chain(per);
    for token in tokens.filter(|token| Some(*token) != last).chain(last) {
        if !out.is_empty() {
            out.push('_');
        }
        out.push_str(token);
    }
    prefix_digit(out);
}

/// Replaces each run of invalid characters by one underscore, and drops such runs at both ends. A name that then begins
/// with a digit gets the prefix `_`.
fn escape(name: &str, out: &mut String) {
    let tokens = name.split(|c| !is_valid(c) && c != '_');
    for token in tokens.filter(|token| !token.is_empty()) {
        if !out.is_empty() {
            out.push('_');
        }
        out.push_str(token);
    }
    prefix_digit(out);
}

fn prefix_digit(name: &mut String) {
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
}

/// Writes a name with unchanged characters and its suffixes.
fn add_suffixes(name: &str, unit: &str, kind: NameKind, out: &mut String) {
    let last = match kind {
        NameKind::Counter => "total",
        NameKind::Gauge if unit == "1" => "ratio",
        _ => "",
    };
    let (main, per) = suffixes(unit);
    out.push_str(without(without(name, last), &per));
    if !main.is_empty() && !out.ends_with(&*main) {
        out.push('_');
        out.push_str(&main);
    }
    for suffix in [&*per, last] {
        if !suffix.is_empty() {
            out.push('_');
            out.push_str(suffix);
        }
    }
}

/// Returns a name without a suffix and its delimiter, the character before the suffix. Returns the whole name if it
/// does not have the suffix or nothing would remain.
fn without<'a>(name: &'a str, suffix: &str) -> &'a str {
    let rest = name.strip_suffix(suffix).filter(|_| !suffix.is_empty());
    let rest = rest.map(|rest| {
        let mut characters = rest.chars();
        characters.next_back();
        characters.as_str()
    });
    rest.filter(|rest| !rest.is_empty()).unwrap_or(name)
}

/// Returns the suffixes of a unit: `By/s` has `bytes` and `per_second`. A part that contains braces has no suffix.
fn suffixes(unit: &str) -> (Cow<'_, str>, Cow<'_, str>) {
    let named = |unit: &'_ str, names: &[(&str, &'static str)]| {
        let found = names.iter().find(|(known, _)| *known == unit);
        found.map(|(_, name)| *name)
    };
    let is_plain = |unit: &&str| !unit.is_empty() && !unit.contains(['{', '}']);
    let (main, per) = unit.split_once('/').unwrap_or((unit, ""));
    let main = Some(main.trim()).filter(is_plain).unwrap_or_default();
    let per = Some(per.trim()).filter(is_plain);
    let per = per.map(|per| format!("per_{}", named(per, &UNITS_PER).unwrap_or(per)));
    (
        named(main, &UNITS).unwrap_or(main).into(),
        per.unwrap_or_default().into(),
    )
}

/// Replaces each run of invalid characters and underscores by one underscore, and drops such runs at the start.
fn cleaned(unit: &str) -> Cow<'_, str> {
    if unit.chars().all(|c| c.is_ascii_alphanumeric()) {
        return unit.into();
    }
    let mut out = String::with_capacity(unit.len());
    for c in unit.chars() {
        match is_valid(c) {
            true => out.push(c),
            false if out.is_empty() || out.ends_with('_') => {}
            false => out.push('_'),
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::NameKind::{Counter, Gauge, Other};
    use super::TranslationStrategy as Strategy;
    use super::*;

    fn translated(strategy: Strategy, name: &str, unit: &str, kind: NameKind) -> Result<String, String> {
        let mut out = String::from("of the metric before");
        let done = translate(name, unit, kind, strategy, &mut out);
        done.map(|()| out).map_err(|reason| reason.to_string())
    }

    #[test]
    fn escaped_names_get_suffixes_that_they_lack() {
        for (name, unit, kind, expected) in [
            ("requests", "", Counter, "requests_total"),
            ("cpu_usage", "1", Gauge, "cpu_usage_ratio"),
            ("items", "1", Counter, "items_total"),
            ("response_time", "ms", Gauge, "response_time_milliseconds"),
            ("memory.usage", "By", Gauge, "memory_usage_bytes"),
            ("requests", "1/s", Gauge, "requests_per_second"),
            ("throughput", "By/s", Gauge, "throughput_bytes_per_second"),
            ("custom_metric", "custom_unit", Gauge, "custom_metric_custom_unit"),
            ("custom_metric", "{custom}", Gauge, "custom_metric"),
            ("custom_metric", "By/{custom}", Gauge, "custom_metric_bytes"),
            ("requests_total", "", Counter, "requests_total"),
            ("cpu_usage_ratio", "1", Gauge, "cpu_usage_ratio"),
            ("response_time_seconds", "s", Gauge, "response_time_seconds"),
            ("total.of.calls", "", Counter, "of_calls_total"),
            (
                "system.network.io",
                "By",
                Counter,
                "system_network_io_bytes_total",
            ),
            ("a__b..c", "", Other, "a_b_c"),
            ("temp", "°F", Other, "temp_F"),
            ("temp", "unit_with_trailing__", Other, "temp_unit_with_trailing_"),
            ("rate", "/min", Other, "rate_per_min"),
            ("rate", "/m", Other, "rate_per_minute"),
            ("speed", "m/s", Gauge, "speed_meters_per_second"),
            ("2xx", "", Counter, "_2xx_total"),
            ("foo:bar", "", Other, "foo:bar"),
            ("rate", "a_/°", Other, "rate_a_"),
        ] {
            let found = translated(Strategy::UnderscoreEscapingWithSuffixes, name, unit, kind);
            assert_eq!(found.as_deref(), Ok(expected), "{name} in {unit}");
        }
        for bad in ["", "@#$%", "___"] {
            let found = translated(Strategy::UnderscoreEscapingWithSuffixes, bad, "", Other);
            assert!(found.is_err(), "{bad}: {found:?}");
        }
    }

    #[test]
    fn names_can_be_escaped_without_suffixes() {
        for (name, expected) in [
            ("simple_metric", "simple_metric"),
            ("metric@with#special$chars", "metric_with_special_chars"),
            ("123metric", "_123metric"),
            ("metric@@##$$name", "metric_name"),
            ("a__b", "a__b"),
            ("___", "___"),
            ("@edge@", "edge"),
        ] {
            let found = translated(Strategy::UnderscoreEscapingWithoutSuffixes, name, "By", Counter);
            assert_eq!(found.as_deref(), Ok(expected), "{name}");
        }
        for bad in ["", "@#$%", "@_#_$_%"] {
            let found = translated(Strategy::UnderscoreEscapingWithoutSuffixes, bad, "", Other);
            assert!(found.is_err(), "{bad}: {found:?}");
        }
    }

    #[test]
    fn names_can_keep_their_characters() {
        for (name, unit, kind, expected) in [
            ("requests_total", "", Counter, "requests_total"),
            ("cpu_usage_ratio", "1", Gauge, "cpu_usage_ratio"),
            ("response.time.seconds", "s", Gauge, "response.time.seconds"),
            ("cpu_seconds_total", "s", Counter, "cpu_seconds_total"),
            (
                "otelcol_process_cpu_seconds",
                "s",
                Counter,
                "otelcol_process_cpu_seconds_total",
            ),
            ("http.server.requests", "", Counter, "http.server.requests_total"),
            ("日本", "By/s", Gauge, "日本_bytes_per_second"),
            ("io.per_second", "By/s", Other, "io_bytes_per_second"),
            ("total", "", Counter, "total_total"),
        ] {
            let found = translated(Strategy::NoUtf8EscapingWithSuffixes, name, unit, kind);
            assert_eq!(found.as_deref(), Ok(expected), "{name} in {unit}");
        }
        let found = translated(Strategy::NoTranslation, "http.server.requests", "1/s", Counter);
        assert_eq!(found.as_deref(), Ok("http.server.requests"));
        assert!(translated(Strategy::NoTranslation, "", "", Other).is_err());
    }

    #[test]
    fn units_have_plain_names() {
        for (unit, expected) in [
            ("", ""),
            ("1", ""),
            ("s", "seconds"),
            ("By/s", "bytes_per_second"),
            ("1/s", "per_second"),
            ("{packet}/s", "per_second"),
            ("%", "percent"),
            ("custom unit", "custom_unit"),
            ("__x__", "x"),
        ] {
            assert_eq!(translate_unit(unit), expected, "{unit}");
        }
    }
}
