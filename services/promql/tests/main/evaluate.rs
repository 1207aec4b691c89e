//! Properties of evaluations that scripts do not cover: limits, cancellation, the order of series, statistics, windows
//! computed by the source, removal of metric names, deep expressions.

use std::fmt::Write;

use tideline_promql::{PromqlError, QueryResult, QueryValue, Settings};

use super::memory::{Memory, settings};

const MINUTE: i64 = 60_000;

/// Creates series of one hour: `m_total` and `g` for 4 hosts and 3 paths, and the classic histogram `h` and
/// the native histogram `n` for 4 hosts.
fn memory() -> Memory {
    let mut text = String::from("load 1m\n");
    for host in 0..4 {
        for path in ["/", "/a", "/b"] {
            let labels = format!("host=\"h{host}\",path=\"{path}\"");
            writeln!(text, " m_total{{{labels}}} 0+{}x60", host + 1).unwrap();
            writeln!(
                text,
                " g{{{labels}}} {}x20 _x10 7x30",
                0.1 + 0.2 * f64::from(host)
            )
            .unwrap();
        }
        for (le, count) in [("0.1", 1), ("1", 3), ("+Inf", 4)] {
            writeln!(
                text,
                " h_bucket{{host=\"h{host}\",le=\"{le}\"}} 0+{}x60",
                count * (host + 1)
            )
            .unwrap();
        }
        writeln!(
            text,
            " n{{host=\"h{host}\"}} {{{{count:4 sum:4 buckets:[1 2 1]}}}}x60"
        )
        .unwrap();
    }
    let mut memory = Memory::default();
    memory.load_script(&text);
    memory
}

/// Queries of all kinds.
const QUERIES: [&str; 22] = [
    "g",
    "rate(m_total[5m])",
    "sum by (host) (rate(m_total[5m]))",
    "avg without (path) (g)",
    "stddev(g)",
    "quantile by (path) (0.3, g)",
    "topk by (path) (2, g)",
    "bottomk(3, m_total)",
    "limitk(5, g)",
    "limit_ratio(0.5, g)",
    "count_values by (host) (\"value\", g)",
    "m_total / on (host, path) g",
    "m_total * on (host) group_left () sum by (host) (g)",
    "g > bool 0.3 or m_total",
    "m_total unless g",
    "histogram_quantile(0.9, sum by (le) (rate(h_bucket[5m])))",
    "histogram_quantile(0.9, sum(n))",
    "max_over_time(rate(m_total[5m])[30m:3m])",
    "label_replace(g, \"x\", \"$1\", \"host\", \"h(.)\")",
    "absent_over_time(g[2m])",
    "sum(g @ end()) + scalar(sum(m_total)) + time()",
    "-g ^ 2 + sqrt(g) - clamp(g, 0.2, 0.5)",
];

#[test]
fn results_do_not_depend_on_the_order_of_series() {
    let mut memory = memory();
    for delayed_name_removal in [false, true] {
        let settings = Settings {
            delayed_name_removal,
            ..settings()
        };
        for query in QUERIES {
            for times in [(0, 60 * MINUTE, MINUTE), (13 * MINUTE, 13 * MINUTE, 0)] {
                memory.is_shuffled = false;
                let wanted = memory.evaluate(query, times, &settings).unwrap();
                memory.is_shuffled = true;
                for _ in 0..3 {
                    let got = memory.evaluate(query, times, &settings).unwrap();
                    assert_eq!(got.value, wanted.value, "{query}");
                    assert_eq!(got.warnings, wanted.warnings, "{query}");
                    assert_eq!(
                        got.stats.samples_per_step, wanted.stats.samples_per_step,
                        "{query}"
                    );
                }
            }
        }
    }
}

#[test]
fn steps_of_a_range_equal_instant_queries() {
    let memory = memory();
    for query in QUERIES.into_iter().filter(|query| !query.contains("end()")) {
        let range = memory
            .evaluate(query, (0, 60 * MINUTE, 7 * MINUTE), &settings())
            .unwrap();
        let QueryValue::Matrix(series) = range.value else {
            panic!()
        };
        for minute in (0..=60).step_by(7) {
            let time = minute * MINUTE;
            let instant = memory.evaluate(query, (time, time, 0), &settings()).unwrap();
            let mut wanted = match instant.value {
                QueryValue::Vector(samples) => samples,
                other => panic!("{other:?}"),
            };
            wanted.sort_by(|a, b| a.labels.cmp(&b.labels));
            let got: Vec<_> = series
                .iter()
                .filter_map(|series| {
                    let float = series.floats.iter().find(|(at, _)| *at == time);
                    let histogram = series.histograms.iter().find(|(at, _)| *at == time);
                    let value = float
                        .map(|(_, value)| tideline_promql::Point::Float(*value))
                        .or_else(|| {
                            histogram.map(|(_, value)| tideline_promql::Point::Histogram(value.clone()))
                        })?;
                    Some((series.labels.clone(), value))
                })
                .collect();
            let wanted: Vec<_> = wanted
                .into_iter()
                .map(|sample| (sample.labels, sample.value))
                .collect();
            assert_eq!(got, wanted, "{query} at minute {minute}");
        }
    }
}

#[test]
fn what_a_source_computes_is_what_samples_come_to() {
    let mut memory = memory();
    for function in ["sum", "avg", "min", "max", "count"] {
        for selector in [
            "m_total[5m]",
            "m_total[7m30s] offset 3m",
            "m_total[1m] offset -90s",
            "m_total[5m] @ 1200",
            "m_total[2h] @ end()",
            "m_total[4m:1m]",
            "m_total[90s]",
        ] {
            for query in [
                format!("{function}_over_time({selector})"),
                format!("max by (host) ({function}_over_time({selector}))"),
                format!("sum_over_time({function}_over_time({selector})[10m:3m])"),
            ] {
                for times in [(0, 60 * MINUTE, 7 * MINUTE), (13 * MINUTE, 13 * MINUTE, 0)] {
                    memory.computes = false;
                    let wanted = memory.evaluate(&query, times, &settings()).unwrap();
                    memory.computes = true;
                    let got = memory.evaluate(&query, times, &settings()).unwrap();
                    assert_eq!(got.value, wanted.value, "{query}");
                    let samples = |result: &QueryResult| result.stats.samples_per_step.clone();
                    assert_eq!(samples(&got), samples(&wanted), "{query}");
                }
            }
        }
    }
    assert!(memory.computed.into_inner() > 1000);
}

#[test]
fn too_many_samples_are_refused() {
    let memory = memory();
    let limited = |query: &str, times, max_samples| {
        let settings = Settings {
            max_samples,
            ..settings()
        };
        memory.evaluate(query, times, &settings)
    };
    let message = "query processing would load too many samples into memory in query execution";
    let hour = (0, 60 * MINUTE, MINUTE);
    // 12 series of 61 samples. Windows of 5 minutes are held one at a time.
    assert!(limited("m_total", hour, 12 * 61).is_ok());
    for (query, max) in [
        ("m_total", 12 * 61 - 1),
        ("sum(m_total)", 12 * 61 - 1),
        ("abs(m_total)", 2 * 12 * 61 + 11),
        ("rate(m_total[5m])", 12 * 60 - 1),
        ("m_total[1h]", 12 * 60 - 1),
        ("max_over_time(m_total[1h:1m])", 12 * 60 - 1),
    ] {
        let times = if query.ends_with("[1h]") || query.starts_with("max") {
            (60 * MINUTE, 60 * MINUTE, 0)
        } else {
            hour
        };
        let error = limited(query, times, max).unwrap_err();
        assert_eq!(error, PromqlError::TooMany(message.to_owned()), "{query}");
    }
    // Too many steps are rejected before memory is allocated for them.
    for query in ["1", "m_total", "sum_over_time(m_total[100y:1ms])"] {
        let error = limited(query, (0, i64::MAX / 2, 1), 50_000_000).unwrap_err();
        assert!(matches!(error, PromqlError::TooMany(_)), "{query}: {error}");
    }
    let error = limited("sum_over_time(m_total[100y:1ms])", (0, 0, 0), 50_000_000).unwrap_err();
    assert!(matches!(error, PromqlError::TooMany(_)), "{error}");
}

#[test]
fn what_is_held_is_counted_and_given_back() {
    let memory = memory();
    let peak = |query: &str| {
        let result = memory
            .evaluate(query, (0, 60 * MINUTE, MINUTE), &settings())
            .unwrap();
        result.stats.samples_peak
    };
    assert_eq!(peak("m_total"), 12 * 61);
    // Input, output, and the values of one step.
    assert_eq!(peak("abs(m_total)"), 12 * 61 + 12 * 61 + 12);
    // All results and the window of the last series. The first step has only one sample in its window and no
    // rate.
    assert_eq!(peak("rate(m_total[5m])"), 12 * 60 + 5);
    assert_eq!(peak("sum(rate(m_total[5m]))"), 12 * 60 + 5);
    // Each operator releases its input, so a chain of operators holds no more than a single one.
    let once = peak("m_total + 1");
    assert_eq!(peak("m_total + 1 + 1 + 1 + 1"), once);
    assert_eq!(peak("abs(abs(abs(abs(m_total))))"), peak("abs(m_total)"));
    assert_eq!(
        peak("sum(m_total) + sum(m_total) + sum(m_total)"),
        peak("sum(m_total) + sum(m_total)")
    );
}

#[test]
fn processed_samples_are_counted_by_steps() {
    let memory = memory();
    let stats = |query: &str| {
        let times = (10 * MINUTE, 12 * MINUTE, MINUTE);
        memory.evaluate(query, times, &settings()).unwrap().stats
    };
    let steps = |count: u64| {
        (10..=12)
            .map(|minute| (minute * MINUTE, count))
            .collect::<Vec<_>>()
    };
    assert_eq!(stats("m_total").samples_per_step, steps(12));
    assert_eq!(stats("m_total").samples_total, 36);
    assert_eq!(stats("rate(m_total[5m])").samples_per_step, steps(60));
    assert_eq!(stats("sum(m_total) + sum(g)").samples_per_step, steps(24));
    assert_eq!(stats("m_total @ 600").samples_per_step, steps(12));
    assert_eq!(stats("max_over_time(m_total[3m:1m])").samples_per_step, steps(36));
    // The range of each step includes five minutes on both sides.
    assert_eq!(stats("m_total smoothed").samples_per_step, steps(12 * 10));
}

#[test]
fn an_evaluation_ends_when_its_client_leaves() {
    for query in QUERIES {
        let mut memory = memory();
        memory.is_shuffled = true;
        let times = (0, 60 * MINUTE, MINUTE);
        memory.checks.store(0, std::sync::atomic::Ordering::Relaxed);
        memory.evaluate(query, times, &settings()).unwrap();
        let checks = memory.checks.load(std::sync::atomic::Ordering::Relaxed);
        assert!(checks >= 4, "{query} was checked {checks} times");
        for checks_max in [0, checks / 2, checks - 1] {
            memory.checks_max = Some(checks_max);
            memory.checks.store(0, std::sync::atomic::Ordering::Relaxed);
            let error = memory.evaluate(query, times, &settings()).unwrap_err();
            assert!(matches!(error, PromqlError::Canceled(_)), "{query}: {error}");
        }
    }
}

#[test]
fn wide_windows_of_one_series_end_with_their_client() {
    let mut memory = memory();
    let query = "quantile_over_time(0.5, m_total{host=\"h0\",path=\"/\"}[1d])";
    // Each window of the 20,001 steps contains 61 samples: more than a million samples in total.
    let times = (60 * MINUTE, 60 * MINUTE + 20_000, 1);
    memory.evaluate(query, times, &settings()).unwrap();
    let checks = memory.checks.swap(0, std::sync::atomic::Ordering::Relaxed);
    memory.checks_max = Some(checks - 2);
    let error = memory.evaluate(query, times, &settings()).unwrap_err();
    assert!(matches!(error, PromqlError::Canceled(_)), "{error}");
    memory.checks_max = None;
    memory.checks.store(0, std::sync::atomic::Ordering::Relaxed);
    memory
        .evaluate(query, (60 * MINUTE, 60 * MINUTE, 0), &settings())
        .unwrap();
    assert!(
        memory.checks.into_inner() < checks,
        "a narrow query must be checked less often"
    );
}

#[test]
fn names_are_dropped_by_each_function_unless_it_is_delayed() {
    let memory = memory();
    let series = |query: &str, delayed_name_removal| {
        let settings = Settings {
            delayed_name_removal,
            ..settings()
        };
        memory.evaluate(query, (MINUTE, MINUTE, 0), &settings)
    };
    let both = "{__name__=~\"m_total|g\", host=\"h0\", path=\"/\"}";
    assert!(series(&format!("count by (__name__) ({both})"), false).is_ok());
    let error = series(&format!("sum_over_time({both}[2m])"), false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "vector cannot contain metrics with the same labelset"
    );
    let delayed = series(&format!("sum by (__name__) (sum_over_time({both}[2m]))"), true);
    assert!(delayed.is_err(), "both sums lose their name at the end");
    let settings = Settings {
        keeps_grouped_names: true,
        ..settings()
    };
    let query = format!("sum by (__name__) (sum_over_time({both}[2m]))");
    let kept = memory.evaluate(&query, (MINUTE, MINUTE, 0), &settings).unwrap();
    let QueryValue::Vector(samples) = kept.value else {
        panic!()
    };
    let names: Vec<_> = samples.iter().map(|sample| sample.labels.metric_name()).collect();
    assert_eq!(names, [Some("g"), Some("m_total")]);
    assert!(kept.warnings.is_empty());
    let named = series(
        &format!("label_replace(sum_over_time({both}[2m]), \"name\", \"$1\", \"__name__\", \"(.*)\")"),
        true,
    );
    let QueryValue::Vector(samples) = named.unwrap().value else {
        panic!()
    };
    assert_eq!(samples.len(), 2);
}

#[test]
fn names_dropped_early_unite_series_that_follow_each_other() {
    let mut memory = Memory {
        drops_names_early: true,
        ..Memory::default()
    };
    memory.load_script(
        r#"
load 10m
  before{job="a"} 2 _
  behind{job="a"} _ 4
  other{job="a", __type__="gauge", __unit__="bytes"} 1 1

eval range from 0 to 10m step 10m -{__name__=~"be.*"}
  {job="a"} -2 -4

eval range from 0 to 10m step 10m abs({__name__=~"be.*"}) or other
  {job="a"} 2 4
  other{job="a", __type__="gauge", __unit__="bytes"} 1 1

eval instant at 10m {job="a"} > 2
  behind{job="a"} 4

eval instant at 10m other * 3
  {job="a"} 3

eval instant at 10m last_over_time(other[5m])
  other{job="a", __type__="gauge", __unit__="bytes"} 1

eval instant at 10m sum_over_time(other[5m])
  {job="a"} 1

eval instant at 10m sum without () (other)
  {job="a", __type__="gauge", __unit__="bytes"} 1

eval instant at 10m abs({__name__=~"behind|other"})
  expect fail msg: vector cannot contain metrics with the same labelset

eval range from 0 to 10m step 10m sum_over_time({__name__=~"be.*"}[5m])
  expect fail msg: vector cannot contain metrics with the same labelset
"#,
    );
}

#[test]
fn info_series_that_contradict_matter_only_beside_something_to_describe() {
    let mut memory = Memory::default();
    memory.load_script(
        r#"
load 1m
  m{job="a"} _ _ 1 2 3
  n{job="a"} 1 1 1 1 1
  target_info{job="a", x="1"} 1 1 1 1 1
  target_info{job="a", x="2"} 1 1 stale _ _

eval range from 0 to 4m step 1m info(m)
  m{job="a", x="1"} _ _ 1 2 3

eval instant at 1m info(vector(1))
  {} 1

eval instant at 1m info(n)
  expect fail regex: found duplicate series for info metric
"#,
    );
}

#[test]
fn ranges_need_an_expression_with_steps() {
    let memory = memory();
    for (query, name) in [("m_total[5m]", "range vector"), ("\"text\"", "string")] {
        let error = memory
            .evaluate(query, (0, MINUTE, MINUTE), &settings())
            .unwrap_err();
        let message =
            format!("invalid expression type \"{name}\" for range query, must be Scalar or instant Vector");
        assert_eq!(error, PromqlError::Invalid(message));
        assert!(memory.evaluate(query, (0, 0, 0), &settings()).is_ok());
    }
    let backwards = memory
        .evaluate("m_total", (MINUTE, 0, MINUTE), &settings())
        .unwrap();
    assert_eq!(backwards.value, QueryValue::Matrix(Vec::new()));
}

#[test]
fn deep_expressions_are_evaluated() {
    let memory = memory();
    let chain = vec!["sum(m_total)"; 150].join(" + ");
    let result = memory.evaluate(&chain, (MINUTE, MINUTE, 0), &settings()).unwrap();
    let QueryValue::Vector(samples) = result.value else {
        panic!()
    };
    assert_eq!(samples[0].value, tideline_promql::Point::Float(150.0 * 30.0));
    let nested = format!("{}g{}", "abs(".repeat(150), ")".repeat(150));
    memory
        .evaluate(&nested, (0, 60 * MINUTE, MINUTE), &settings())
        .unwrap();
}

#[test]
fn instants_at_the_ends_of_time_do_no_harm() {
    let memory = memory();
    for query in QUERIES {
        for time in [i64::MIN, -1, i64::MAX] {
            let _ = memory.evaluate(query, (time, time, 0), &settings());
        }
        let _ = memory.evaluate(query, (i64::MIN, i64::MAX, i64::MAX), &settings());
        let _ = memory.evaluate(
            &format!("({query}) and g @ 9223372036854775.8"),
            (0, 0, 0),
            &settings(),
        );
    }
}
