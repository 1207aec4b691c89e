//! Tests of the printers.
//!
//! An expression that is printed as text and parsed again must equal the original. Both are compared as
//! text and as JSON.

use serde_json::json;
use tideline_promql::{parse, pretty, to_json};

use super::corpus;

/// Asserts that two texts parse to the same expression, regardless of the changes that printing
/// makes.
pub(crate) fn same(text: &str, printed: &str) {
    let again = parse(printed).unwrap_or_else(|error| panic!("{text}: {printed}: {error}"));
    assert_eq!(
        again.to_string(),
        parse(text).unwrap().to_string(),
        "{text}: {printed}"
    );
    let [mut before, mut after] = [parse(text).unwrap(), again].map(|expr| to_json(&expr));
    normalise(&mut before);
    normalise(&mut after);
    assert_eq!(after, before, "{text}: {printed}");
}

/// Normalizes the parts that printing changes: matchers are printed in sorted order, and the plus sign of a duration
/// is omitted.
fn normalise(json: &mut serde_json::Value) {
    let is_plus =
        json.get("op").is_some_and(|op| op == "+") && json["type"] == "durationExpr" && json["lhs"].is_null();
    if is_plus && json["wrapped"] == false {
        *json = json["rhs"].take();
    }
    match json {
        serde_json::Value::Object(fields) => {
            fields.values_mut().for_each(normalise);
            if let Some(matchers) = fields
                .get_mut("matchers")
                .and_then(|matchers| matchers.as_array_mut())
            {
                matchers.sort_by_key(serde_json::Value::to_string);
            }
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(normalise),
        _ => {}
    }
}

#[test]
fn every_query_of_the_scripts_prints_and_reads_back() {
    for query in corpus::queries() {
        if let Ok(expr) = parse(&query.text) {
            same(&query.text, &expr.to_string());
            same(&query.text, &pretty(&expr));
        }
    }
}

#[test]
fn the_printed_form_is_one() {
    let table = [
        ("sum(up)by(job,'a b',)", "sum by (job, \"a b\") (up)"),
        ("sum by () (up)", "sum(up)"),
        ("sum without () (up)", "sum without () (up)"),
        ("topk(5,up)", "topk(5, up)"),
        ("up{b='x',a=~\"y\"}", "up{a=~\"y\",b=\"x\"}"),
        (
            "{'http.requests',\"a b\"=\"\\n\"}",
            "{\"a b\"=\"\\n\",__name__=\"http.requests\"}",
        ),
        ("up{}", "up"),
        (
            "a+on(b)group_left(c)fill_left(1)d",
            "a + on (b) group_left (c) fill_left (1) d",
        ),
        ("a * ignoring() b", "a * b"),
        ("a * ignoring() group_right b", "a * ignoring () group_right () b"),
        ("a + fill(1e7) b", "a + fill (1e+07) b"),
        ("a>bool 1", "a > bool 1"),
        ("a and b", "a and b"),
        ("rate(up[90s]offset 1m@1.5)", "rate(up[1m30s] @ 1.500 offset 1m)"),
        ("up @ start() offset -1w", "up @ start() offset -1w"),
        ("up[5m] smoothed", "up[5m] smoothed"),
        ("(a-b)[1d:]", "(a - b)[1d:]"),
        ("a[12w6d:1h30m]@end()", "a[90d:1h30m] @ end()"),
        ("a[step()*2+(5)]", "a[step() * 2 + (5)]"),
        ("a offset (1m) @ 2", "a offset (1m) @ 2.000"),
        ("a offset -min_of(1m,range())", "a offset -min_of(1m, range())"),
        ("- -1", "1"),
        ("-a^2", "-a ^ 2"),
        ("+a", "+a"),
        ("1e100", &format!("1{}", "0".repeat(100))),
        ("0x1F", "31"),
        ("inf", "+Inf"),
        ("NaN", "NaN"),
        ("1.50", "1.5"),
        ("-90s", "-1m30s"),
        ("'a\"\\x7f\u{e9}\u{200b}'", "\"a\\\"\\x7f\u{e9}\\u200b\""),
        ("'\\xc5'", "\"\\xc5\""),
        ("info(up, {})", "info(up, {})"),
        ("pi()", "pi()"),
        ("RATE(up[5m])", ""),
    ];
    for (text, printed) in table {
        match parse(text) {
            Ok(expr) => {
                assert_eq!(expr.to_string(), printed);
                if printed != "NaN" {
                    same(text, printed);
                }
            }
            Err(error) => assert!(printed.is_empty(), "{text}: {error}"),
        }
    }
}

#[test]
fn long_expressions_are_opened_level_by_level() {
    let long = "a_metric_of_a_rather_long_name_that_fills_lines";
    let text = format!("sum by (job) (rate({long}[5m])) / -topk(3, abs({long}{{a='b'}} offset 1h))");
    let wanted =
        format!("  sum by (job) (rate({long}[5m]))\n/\n  -topk(3, abs({long}{{a=\"b\"}} offset 1h))");
    assert_eq!(pretty(&parse(&text).unwrap()), wanted);

    let text = format!("histogram_quantile(0.9, (sum by (le) ({long} + {long} + {long})))");
    let wanted = format!(
        "histogram_quantile(\n  0.9,\n  (\n    sum by (le) (\n        {long} + {long}\n      +\n        {long}\n    )\n  )\n)"
    );
    assert_eq!(pretty(&parse(&text).unwrap()), wanted);
    assert_eq!(pretty(&parse("a+b").unwrap()), "a + b");
}

#[test]
fn trees_are_printed_as_prometheus_prints_them() {
    let json = to_json(&parse("sum by (x) (rate(a{b='c'}[5m] offset 1m)) > bool 0.5").unwrap());
    let wanted = json!({
        "type": "binaryExpr", "op": ">", "bool": true, "matching": null,
        "rhs": { "type": "numberLiteral", "val": "0.5" },
        "lhs": {
            "type": "aggregation", "op": "sum", "param": null, "grouping": ["x"], "without": false,
            "expr": {
                "type": "call",
                "func": { "name": "rate", "argTypes": ["matrix"], "variadic": 0, "returnType": "vector" },
                "args": [{
                    "type": "matrixSelector", "name": "a", "range": 300_000, "rangeExpr": null,
                    "offset": 60_000, "offsetExpr": null, "timestamp": null, "startOrEnd": null,
                    "anchored": false, "smoothed": false,
                    "matchers": [
                        { "name": "b", "value": "c", "type": "=" },
                        { "name": "__name__", "value": "a", "type": "=" },
                    ],
                }],
            },
        },
    });
    assert_eq!(json, wanted);
    let text = "a - on (b) group_left (c) fill (0) max_over_time(d[1h:(1m)] @ 2)";
    let json = to_json(&parse(text).unwrap());
    let matching = json!({
        "card": "many-to-one", "labels": ["b"], "on": true, "include": ["c"],
        "fillValues": { "lhs": 0.0, "rhs": 0.0 },
    });
    assert_eq!(json["matching"], matching);
    let subquery = &json["rhs"]["args"][0];
    assert_eq!(
        (&subquery["timestamp"], &subquery["step"]),
        (&json!(2000), &json!(0))
    );
    let minute = json!({ "type": "numberLiteral", "val": "60", "duration": true });
    let wrapped = json!({ "type": "durationExpr", "op": "+", "lhs": null, "rhs": minute, "wrapped": true });
    assert_eq!(subquery["stepExpr"], wrapped);
}
