//! Tests of evaluations with many series or steps: limits, warnings, threads that wait for the budget, extreme
//! timestamps.
//!
//! Queries over few samples can produce many series or steps, which must be limited as well.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use tideline_promql::source::Visit;
use tideline_promql::{
    Point, PromqlError, QueryParameters, QueryResult, QueryValue, Result, Select, Settings, Source, parse,
};

use super::memory::{Memory, settings};

const MINUTE: i64 = 60_000;

/// Evaluates an instant query with a limit on samples.
fn evaluate(memory: &Memory, query: &str, max_samples: usize) -> Result<QueryResult> {
    let settings = Settings {
        max_samples,
        ..settings()
    };
    memory.evaluate(query, (10 * MINUTE, 10 * MINUTE, 0), &settings)
}

fn loaded(series: &str) -> Memory {
    let mut memory = Memory::default();
    memory.load_script(&format!("load 1m\n{series}"));
    memory
}

/// Returns the numbers of an instant vector.
fn numbers(result: QueryResult) -> Vec<f64> {
    let QueryValue::Vector(samples) = result.value else {
        panic!()
    };
    let number = |point: &Point| match point {
        Point::Float(value) => *value,
        Point::Histogram(_) => panic!(),
    };
    samples.iter().map(|sample| number(&sample.value)).collect()
}

fn is_too_many(result: &Result<QueryResult>) -> bool {
    matches!(result, Err(PromqlError::TooMany(_)))
}

#[test]
fn a_series_for_each_step_is_too_many() {
    let buckets = " h_bucket{le=\"1\"} 1x20\n h_bucket{le=\"+Inf\"} 2x20\n";
    let memory = loaded(buckets);
    for (query, max) in [
        // 100,000 steps fit, 100,000 series do not.
        (
            "last_over_time(count_values(\"v\", vector(time()))[100s:1ms])",
            400_000,
        ),
        (
            "sum_over_time(histogram_quantiles(h_bucket, \"q\", time() / 1e9)[100s:1ms])",
            800_000,
        ),
    ] {
        assert!(is_too_many(&evaluate(&memory, query, max)), "{query}");
    }
    let few = "count(last_over_time(count_values(\"v\", vector(time()))[1s:1ms]))";
    assert_eq!(numbers(evaluate(&memory, few, 100_000).unwrap()), [1_000.0]);
    let few = "count(last_over_time(histogram_quantiles(h_bucket, \"q\", time() / 1e9)[1s:1ms]))";
    assert_eq!(numbers(evaluate(&memory, few, 100_000).unwrap()), [1_000.0]);
    // Output series have no extra cost if there are at most as many as input series.
    let many: String = (0..1_000)
        .map(|at| format!(" x{{i=\"{at}\"}} {at}x20\n"))
        .collect();
    let query = "count(count_values(\"v\", x))";
    assert_eq!(
        numbers(evaluate(&loaded(&many), query, 4_000).unwrap()),
        [1_000.0]
    );
}

#[test]
fn quantiles_that_vary_are_remarked_on_by_their_ends() {
    let memory = loaded(" x 1x20\n");
    let query = "sum_over_time(histogram_quantile(time() - 595, nosuch)[10s:1s])";
    let result = evaluate(&memory, query, 100_000).unwrap();
    let wrong =
        |value: &str| format!("PromQL warning: quantile value should be between 0 and 1, got {value} (1:34)");
    assert_eq!(result.warnings, [wrong("-4"), wrong("5")]);
}

#[test]
fn threads_wait_for_room_instead_of_failing() {
    let mut memory = loaded(" x{i=\"a\"} 1x20\n x{i=\"b\"} 1x20\n x{i=\"c\"} 1x20\n x{i=\"d\"} 1x20\n");
    memory.is_shuffled = true;
    let settings = Settings {
        max_samples: 4 * 11,
        ..settings()
    };
    for _ in 0..100 {
        memory.evaluate("x", (0, 10 * MINUTE, MINUTE), &settings).unwrap();
    }
}

#[test]
fn series_of_both_sides_that_follow_each_other_are_paired_one_by_one() {
    let mut series = String::new();
    for at in 0..1_200 {
        writeln!(series, " many{{i=\"{at}\"}} {at}x59").unwrap();
    }
    for at in 0..60 {
        writeln!(series, " one{{j=\"{at}\"}} _x{at} 1 stale").unwrap();
    }
    let memory = loaded(&series.replace(" _x0 ", " "));
    let query = "many * on () group_left (j) one";
    let result = memory
        .evaluate(query, (MINUTE, 59 * MINUTE, MINUTE), &settings())
        .unwrap();
    let QueryValue::Matrix(found) = result.value else {
        panic!()
    };
    assert_eq!(found.len(), 1_200 * 59);
    assert!(found.iter().all(|series| series.floats.len() == 1));
}

#[test]
fn long_columns_are_aggregated_whole() {
    let memory = Memory::default();
    let count = "sum_over_time(count(vector(time()))[10s:1ms])".to_owned();
    let equal =
        |operator| format!("count_over_time(({operator}(vector(time())) == vector(time()))[10s:1ms])");
    for query in ["sum", "avg", "min", "max"].map(equal).into_iter().chain([count]) {
        assert_eq!(
            numbers(evaluate(&memory, &query, 1_000_000).unwrap()),
            [10_000.0],
            "{query}"
        );
    }
}

#[test]
fn lines_from_the_ends_of_time_do_no_harm() {
    let memory = loaded(" x 1+1x20\n");
    for at in ["-9223372036000000", "9223372036000000"] {
        let query = format!("predict_linear(vector(time())[10m:1m] @ {at}, 1)");
        assert_eq!(
            numbers(evaluate(&memory, &query, 1_000).unwrap()).len(),
            1,
            "{query}"
        );
    }
}

/// Returns a query that nests `levels` calls around an expression. `call` is the text of a call, with `#` for its first
/// argument.
fn nested(expression: &str, call: &str, levels: usize) -> String {
    (0..levels).fold(expression.to_owned(), |inner, _| call.replacen('#', &inner, 1))
}

#[test]
fn label_values_that_double_at_each_level_are_too_long() {
    let memory = Memory::default();
    let start = r#"label_replace(vector(1), "a", "xxxxxxxx", "", "")"#;
    for (function, call, fitting) in [
        ("label_join", r#"label_join(#, "a", "", "a", "a")"#, 13),
        (
            "label_replace",
            r#"label_replace(#, "a", "$1$1", "a", "(.*)")"#,
            12,
        ),
    ] {
        let fits = nested(start, call, fitting);
        assert_eq!(
            numbers(evaluate(&memory, &fits, 1_000).unwrap()),
            [1.0],
            "{function}"
        );
        let result = evaluate(&memory, &nested(start, call, 24), 1_000);
        let Err(PromqlError::TooMany(message)) = result else {
            panic!("{function} is not refused")
        };
        assert!(
            message.contains(&format!("{function}(): the value of label \"a\"")),
            "{message}"
        );
    }
}

/// Source with a limit on the bytes that an evaluation holds.
struct Limited {
    memory: Memory,
    held: AtomicU64,
    max: u64,
    /// Largest number of bytes that were held at once by one call.
    growth_max: AtomicU64,
}

impl Limited {
    fn of(memory: Memory, max: u64) -> Self {
        Self {
            memory,
            held: AtomicU64::new(0),
            max,
            growth_max: AtomicU64::new(0),
        }
    }

    /// Evaluates an instant query.
    fn evaluate(&self, query: &str) -> Result<QueryResult> {
        let parameters = QueryParameters {
            text: query,
            start: 10 * MINUTE,
            end: 10 * MINUTE,
            step: 0,
            lookback_delta: None,
        };
        tideline_promql::evaluate(self, &parse(query)?, &parameters, &settings())
    }
}

impl Source for Limited {
    fn select(&self, select: &Select<'_>, visit: &Visit<'_>) -> Result<()> {
        self.memory.select(select, visit)
    }

    fn check(&self) -> Result<()> {
        self.memory.check()
    }

    fn hold(&self, before: u64, now: u64) -> Result<()> {
        self.growth_max
            .fetch_max(now.saturating_sub(before), Ordering::Relaxed);
        self.held.fetch_add(now, Ordering::Relaxed);
        let held = self.held.fetch_sub(before, Ordering::Relaxed) - before;
        match held > self.max && now > before {
            true => Err(PromqlError::TooMany("no memory".to_owned())),
            false => Ok(()),
        }
    }
}

#[test]
fn labels_that_functions_make_longer_are_held() {
    let series = format!(" x{{a=\"{}\"}} 1x20\n", "x".repeat(1_000));
    let sources = [r#""a""#; 50].join(", ");
    let references = "$1".repeat(50);
    for call in [
        format!(r#"label_join(x, "b", "", {sources})"#),
        format!(r#"label_replace(x, "b", "{references}", "a", "(.*)")"#),
    ] {
        // Each call makes 50,000 bytes of labels, which are held until the evaluation ends.
        for (calls, fits) in [(2, true), (30, false)] {
            let source = Limited::of(loaded(&series), 1_000_000);
            let result = source.evaluate(&vec![format!("count({call})"); calls].join(" + "));
            match fits {
                true => assert_eq!(numbers(result.unwrap()), [calls as f64], "{call}"),
                false => assert!(is_too_many(&result), "{call}"),
            }
        }
    }
}

#[test]
fn histograms_of_a_column_under_construction_are_held() {
    let value = "{{schema:0 sum:4 count:4 buckets:[1 2 1]}}";
    let series = format!(" h {value}+{value}x20\n");
    for expression in ["rate(h[5m])", "h smoothed"] {
        // Each of the 100,000 steps has a separate histogram.
        let source = Limited::of(loaded(&series), 4_000_000);
        let result = source.evaluate(&format!("count_over_time(({expression})[100s:1ms])"));
        assert!(is_too_many(&result), "{expression}");
        // The evaluation ends at the limit, not when all histograms of the column exist.
        let growth = source.growth_max.load(Ordering::Relaxed);
        assert!(growth <= 1_000_000, "{expression}: {growth} bytes at once");
    }
}

#[test]
fn merging_many_series_can_be_stopped() {
    let mut series = String::new();
    for at in 1..=200 {
        writeln!(series, " x{{i=\"{at}\"}} _x{at} 1 stale").unwrap();
    }
    let memory = loaded(&series);
    let query = r#"label_replace(x, "i", "", "", "")"#;
    let result = memory
        .evaluate(query, (0, 210 * MINUTE, MINUTE), &settings())
        .unwrap();
    let QueryValue::Matrix(found) = result.value else {
        panic!()
    };
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].floats.len(), 200);
    // One check for each selected series, and one for each series that is merged into the first.
    let checks = memory.checks.load(Ordering::Relaxed);
    assert!(checks >= 200 + 199, "{checks}");
}

#[test]
fn grouping_of_many_series_can_be_stopped() {
    let series: String = (0..6_400).map(|at| format!(" x{{i=\"{at}\"}} 1x20\n")).collect();
    let memory = loaded(&series);
    for (query, selected) in [("sum(x)", 6_400), ("x and x", 2 * 6_400)] {
        let before = memory.checks.load(Ordering::Relaxed);
        evaluate(&memory, query, 1_000_000).unwrap();
        // In addition to one check for each selected series, one for each 64 series while they are grouped, and one for
        // each 64 series or groups afterwards.
        let checks = memory.checks.load(Ordering::Relaxed) - before - selected;
        assert!(checks >= 200, "{query}: {checks}");
    }
}
