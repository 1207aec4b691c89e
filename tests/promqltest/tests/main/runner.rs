//! Tests of the runner and of the parser of API responses. The runner must report every difference from the
//! expectation and evaluate instant queries in three ways.
//!
//! A target with canned results replaces an engine.

use std::sync::Arc;

use tideline_promql::histogram::Histogram;
use tideline_promql::{Labels, Point, QueryValue, Sample, Series};
use tideline_promqltest::{LoadedSeries, Options, QueryResult, Script, Target, api, run};

/// Target that returns the same result for every query and records the queries.
struct Canned {
    result: Result<QueryResult, String>,
    asked: Vec<String>,
}

impl Target for Canned {
    fn clear(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn load(&mut self, _: &[LoadedSeries]) -> Result<(), String> {
        Ok(())
    }

    fn instant(&mut self, query: &str, time: i64) -> Result<QueryResult, String> {
        self.asked.push(format!("{query} at {time}"));
        self.result.clone()
    }

    fn range(&mut self, query: &str, start: i64, end: i64, step: i64) -> Result<QueryResult, String> {
        self.asked
            .push(format!("{query} from {start} to {end} step {step}"));
        self.result.clone()
    }
}

const ONCE: Options = Options {
    is_fixed_too: false,
    as_range_too: false,
    has_listed_histograms: false,
};

fn result(value: QueryValue) -> QueryResult {
    QueryResult {
        value,
        warnings: Vec::new(),
        infos: Vec::new(),
    }
}

fn name(name: &str) -> Labels {
    Labels::from_sorted([("__name__", name)])
}

fn sample(labels: &str, value: Point) -> Sample {
    Sample {
        labels: name(labels),
        time: 0,
        value,
    }
}

/// Runs a script of one `eval` at time zero with these lines; returns the reason of the reported failure, if any.
fn reason(result: &Result<QueryResult, String>, lines: &str) -> Option<String> {
    let script = Script::parse(&format!("eval instant at 0 q\n{lines}")).unwrap();
    let mut target = Canned {
        result: result.clone(),
        asked: Vec::new(),
    };
    let mut report = run(&script, &mut target, ONCE);
    assert_eq!(report.evals, 1);
    report.failures.pop().map(|failure| failure.reason)
}

fn is_fine(result: &Result<QueryResult, String>, lines: &str) {
    assert_eq!(reason(result, lines), None, "{lines}");
}

fn is_wrong(result: &Result<QueryResult, String>, lines: &str) {
    assert!(reason(result, lines).is_some(), "{lines}");
}

#[test]
fn vectors_are_compared_series_by_series() {
    let samples = vec![sample("a", Point::Float(1.0)), sample("b", Point::Float(2.0))];
    let got = Ok(result(QueryValue::Vector(samples)));
    is_fine(&got, "a 1\nb 2");
    is_fine(&got, "b 2\na 1.0000001");
    is_wrong(&got, "a 1\nb 2.0001");
    is_wrong(&got, "a 1");
    is_wrong(&got, "a 1\nb 2\nc 3");
    is_wrong(&got, "a 1\nb stale");
    is_wrong(&got, "a 1\nb {{}}");
    is_wrong(&got, "1");
    is_wrong(&got, "expect string \"a\"");
    is_wrong(&got, "");
    is_fine(&got, "expect ordered\na 1\nb 2");
    is_wrong(&got, "expect ordered\nb 2\na 1");
    is_wrong(&got, "expect fail");
}

#[test]
fn scalars_and_strings_are_compared() {
    let got = Ok(result(QueryValue::Scalar {
        time: 0,
        value: f64::NAN,
    }));
    is_fine(&got, "NaN");
    is_wrong(&got, "0");
    is_wrong(&got, "{} NaN");
    let got = Ok(result(QueryValue::String {
        time: 0,
        value: "a".to_owned(),
    }));
    is_fine(&got, "expect string 'a'");
    is_wrong(&got, "expect string 'b'");
}

#[test]
fn histograms_are_compared_without_empty_buckets() {
    let histogram = Histogram::parse("{{count:3 sum:1 offset:1 buckets:[1 0 2 0] counter_reset_hint:gauge}}");
    let point = Point::Histogram(Arc::new(histogram.unwrap()));
    let got = Ok(result(QueryValue::Vector(vec![sample("a", point)])));
    is_fine(&got, "a {{count:3 sum:1 buckets:[0 1 0 2]}}");
    is_fine(
        &got,
        "a {{count:3 sum:1 offset:1 buckets:[1 0 2] counter_reset_hint:gauge}}",
    );
    is_wrong(
        &got,
        "a {{count:3 sum:1 offset:1 buckets:[1 0 2] counter_reset_hint:unknown}}",
    );
    is_wrong(&got, "a {{count:3 sum:1 offset:1 buckets:[1 2]}}");
    is_wrong(&got, "a {{count:3 sum:1 offset:2 buckets:[1 0 2]}}");
    is_wrong(&got, "a {{schema:1 count:3 sum:1 offset:1 buckets:[1 0 2]}}");
    is_wrong(&got, "a {{count:3 sum:1 z_bucket:1 offset:1 buckets:[1 0 2]}}");
    is_wrong(&got, "a 3");
}

#[test]
fn annotations_are_compared() {
    let mut with = result(QueryValue::Vector(Vec::new()));
    with.warnings = vec![
        "PromQL warning: x (1:1)".to_owned(),
        "PromQL warning: y (1:1)".to_owned(),
    ];
    let got = Ok(with);
    is_fine(&got, "");
    is_fine(&got, "expect warn\nexpect no_info");
    is_fine(
        &got,
        "expect warn msg: PromQL warning: x (1:1)\nexpect warn regex: y \\(1:\\d\\)",
    );
    is_wrong(&got, "expect warn msg: PromQL warning: x (1:1)");
    is_wrong(&got, "expect warn\nexpect warn regex: z");
    is_wrong(&got, "expect info");
    is_wrong(&got, "expect no_warn");
}

#[test]
fn failures_are_compared() {
    let got = Err("it is broken".to_owned());
    is_wrong(&got, "");
    is_fine(&got, "expect fail");
    is_fine(&got, "expect fail msg: it is broken");
    is_wrong(&got, "expect fail msg: it is");
    is_fine(&got, "expect fail regex: is b.*n$");
    is_wrong(&got, "expect fail regex: whole");
}

#[test]
fn ranges_are_compared_instant_by_instant() {
    let series = Series {
        labels: name("a"),
        floats: vec![(0, 1.0), (20_000, 3.0)],
        histograms: Vec::new(),
    };
    let got = Ok(result(QueryValue::Matrix(vec![series])));
    let reason = |lines: &str| {
        let script = Script::parse(&format!("eval range from 0 to 20s step 10s q\n{lines}")).unwrap();
        let mut target = Canned {
            result: got.clone(),
            asked: Vec::new(),
        };
        run(&script, &mut target, ONCE).failures.pop()
    };
    assert_eq!(reason("a 1 _ 3"), None);
    assert!(reason("a 1 3").is_some());
    assert!(reason("a 1").is_some());
    assert!(reason("a 1 2 3").is_some());
    assert!(reason("a 1 _ 3 4").is_some());
    is_fine(&got, "expect range vector from 0 to 20s step 20s\na 1 3");
    is_wrong(&got, "expect range vector from 0 to 20s step 10s\na 1 3");
}

#[test]
fn instants_are_queried_in_three_ways() {
    let vector = result(QueryValue::Vector(Vec::new()));
    let mut target = Canned {
        result: Ok(vector),
        asked: Vec::new(),
    };
    let script = Script::parse("eval instant at 10s sum_over_time(a[5s]) + b @ 3").unwrap();
    let only_fixed = Options {
        as_range_too: false,
        ..Options::default()
    };
    run(&script, &mut target, only_fixed);
    let fixed = "sum_over_time(a[5s] @ 10.000) + b @ 3.000";
    let wanted = [
        "sum_over_time(a[5s]) + b @ 3 at 10000".to_owned(),
        format!("{fixed} at -100000"),
        format!("{fixed} at 0"),
        format!("{fixed} at 2000"),
        format!("{fixed} at 10000"),
        format!("{fixed} at 100000"),
    ];
    assert_eq!(target.asked, wanted);

    target.asked.clear();
    let script = Script::parse("eval instant at 1m timestamp(a)").unwrap();
    let report = run(&script, &mut target, Options::default());
    assert_eq!(
        target.asked,
        [
            "timestamp(a) at 60000",
            "timestamp(a) from 0 to 120000 step 60000"
        ]
    );
    // A vector as the result of a range query is a failure.
    assert_eq!(report.failures.len(), 1);
}

#[test]
fn answers_of_the_api_are_read() {
    let result = |json: &str| api::result(json.as_bytes());
    let body = r#"{"status":"success","warnings":["w (1:1)"],"data":{"resultType":"vector","result":[
        {"metric":{"__name__":"a"},"value":[1.5,"+Inf"]},
        {"metric":{"__name__":"h"},"histogram":[1.5,{"count":"3","sum":"1","buckets":[[0,"1","2","1"],[0,"4","8","2"]]}]}
    ]}}"#;
    let got = result(body);
    assert_eq!(got.as_ref().unwrap().warnings, ["w (1:1)"]);
    let script = |count| {
        let text = format!(
            "eval instant at 1500ms q\na Inf\nh {{{{count:{count} sum:1 offset:1 buckets:[1 0 2]}}}}"
        );
        Script::parse(&text).unwrap()
    };
    let listed = Options {
        has_listed_histograms: true,
        ..ONCE
    };
    for (count, failures) in [(3, 0), (4, 1)] {
        let mut target = Canned {
            result: got.clone(),
            asked: Vec::new(),
        };
        let report = run(&script(count), &mut target, listed);
        assert_eq!(report.failures.len(), failures, "{:?}", report.failures);
    }

    let body = r#"{"status":"success","data":{"resultType":"matrix","result":[
        {"metric":{},"values":[[0,"1"],[0.001,"NaN"]],"histograms":[[1,{"count":"0","sum":"0"}]]}]}}"#;
    let QueryValue::Matrix(series) = result(body).unwrap().value else {
        panic!();
    };
    assert_eq!((series[0].floats[0], series[0].floats[1].0), ((0, 1.0), 1));
    assert_eq!(series[0].histograms[0].0, 1000);
    let body = r#"{"status":"success","data":{"resultType":"string","result":[2,"x"]}}"#;
    let string = QueryValue::String {
        time: 2000,
        value: "x".to_owned(),
    };
    assert_eq!(result(body).unwrap().value, string);
    let body = r#"{"status":"error","errorType":"bad_data","error":"invalid parameter \"query\": 1:2: parse error: x"}"#;
    assert_eq!(result(body), Err("1:2: parse error: x".to_owned()));
    assert!(result("{}").is_err() && result("<html>").is_err());
}
