//! Comparison with Prometheus for cases that Prometheus' own test scripts do not cover.
//!
//! Most cases are test scripts with the results that Prometheus returns.

use std::fmt::Write;

use tideline_promql::{LabelsBuilder, QueryValue};

use super::memory::{Memory, settings};

fn passes(script: &str) {
    Memory::default().load_script(script);
}

#[test]
fn of_equal_values_at_the_cut_the_heap_decides_which_stays() {
    passes(
        r#"
load 1m
  x{i="a"} 1
  x{i="b"} 1
  x{i="c"} 2
  y{i="a"} 2
  y{i="b"} 1
  y{i="c"} 2
  y{i="d"} 0
  y{i="e"} NaN

eval instant at 0 topk(2, x)
  expect ordered
  x{i="c"} 2
  x{i="b"} 1

eval instant at 0 topk(3, x)
  expect ordered
  x{i="c"} 2
  x{i="a"} 1
  x{i="b"} 1

eval instant at 0 bottomk(2, y)
  expect ordered
  y{i="d"} 0
  y{i="b"} 1

eval instant at 0 bottomk(3, y)
  expect ordered
  y{i="d"} 0
  y{i="b"} 1
  y{i="c"} 2

eval instant at 0 topk(5, y)
  expect ordered
  y{i="c"} 2
  y{i="a"} 2
  y{i="b"} 1
  y{i="d"} 0
  y{i="e"} NaN
"#,
    );
}

#[test]
fn operators_that_trim_histograms_take_no_two_numbers() {
    passes(
        r#"
eval instant at 0 1 </ 2
  expect fail msg: operator "</" not allowed for Scalar operations

eval instant at 0 1 >/ 2
  expect fail msg: operator ">/" not allowed for Scalar operations
"#,
    );
}

#[test]
fn bounds_of_buckets_are_numbers_that_exist() {
    passes(
        r#"
load 1m
  h_bucket{le="1"} 1
  h_bucket{le="+Inf"} 2
  h_bucket{le="1e400"} 3
  h_bucket{le="NaN"} 4

eval instant at 0 histogram_quantile(0.5, h_bucket)
  expect warn msg: PromQL warning: bucket label "le" is missing or has a malformed value of "1e400" for metric name "h_bucket" (1:25)
  expect warn msg: PromQL warning: bucket label "le" is missing or has a malformed value of "NaN" for metric name "h_bucket" (1:25)
  {} 1
"#,
    );
}

#[test]
fn info_applies_its_label_conditions_everywhere() {
    passes(
        r#"
load 1m
  up{instance="i", job="j"} 1 1 1
  target_info{instance="i", job="j", cluster="a", version="2"} 1 1 1
  lag_info{instance="i", job="j"} {{count:1 sum:1 buckets:[1]}} {{count:1 sum:1 buckets:[1]}}

eval range from 0 to 2m step 1m info(up, {cluster="a"})
  up{instance="i", job="j", cluster="a"} 1 1 1

eval range from 0 to 2m step 1m info(up, {cluster="a"} @ 100)
  up{instance="i", job="j", cluster="a"} 1 1 1

eval range from 0 to 2m step 1m info(up, {cluster="b"} @ 100)

eval range from 0 to 2m step 1m info(up, {__name__=~".*_info"})
  expect fail regex: this should be an info metric, with float samples: .*lag_info
"#,
    );
}

#[test]
fn info_series_of_many_targets_are_found_and_read_once() {
    let mut series = String::from("load 1m\n");
    for at in 0..1_100 {
        writeln!(series, " up{{instance=\"{at}\", job=\"j\"}} 1").unwrap();
        writeln!(
            series,
            " target_info{{instance=\"{at}\", job=\"j\", x=\"{at}\"}} 1"
        )
        .unwrap();
    }
    series.push_str(" target_info{instance=\"none\", job=\"j\", x=\"none\"} 1\n");
    let mut memory = Memory::default();
    memory.load_script(&series);
    let result = memory.evaluate("info(up)", (0, 0, 0), &settings()).unwrap();
    assert_eq!(result.stats.samples_total, 2 * 1_100);
    let QueryValue::Vector(samples) = result.value else {
        panic!()
    };
    assert_eq!(samples.len(), 1_100);
    let is_described = |labels: &tideline_promql::Labels| labels.get("x") == labels.get("instance");
    assert!(samples.iter().all(|sample| is_described(&sample.labels)));
}

#[test]
fn labels_are_shown_as_go_quotes_them() {
    let mut labels = LabelsBuilder::default();
    labels.set("a", "\u{7f}\u{e9}'\0").set("b", "x\"\n");
    assert_eq!(labels.build().to_string(), r#"{a="\x7fé'\x00", b="x\"\n"}"#);
}
