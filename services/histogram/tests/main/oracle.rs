//! Comparison with Prometheus' arithmetic: `oracle.txt` holds Prometheus' results for random histograms.

use tideline_histogram::Histogram;

use crate::parse;

#[test]
fn operations_give_what_prometheus_gives() {
    let cases = include_str!("oracle.txt")
        .lines()
        .filter(|line| !line.starts_with('#'));
    let mut count = 0;
    for line in cases {
        let fields: Vec<_> = line.split('|').map(str::trim).collect();
        let [operation, inputs @ .., expected] = fields.as_slice() else {
            panic!("{line}")
        };
        let found = outcome(operation, inputs);
        assert_eq!(found, *expected, "{line}");
        count += 1;
    }
    assert!(count > 300, "{count}");
}

fn outcome(operation: &str, inputs: &[&str]) -> String {
    let mut histogram = parse(inputs[0]);
    let number = || inputs[1].parse::<f64>().expect("a number is given");
    match operation {
        "add" | "sub" => {
            let other = parse(inputs[1]);
            let outcome = if operation == "add" {
                histogram.add(&other)
            } else {
                histogram.sub(&other)
            };
            let outcome = outcome.expect("the histograms are compatible");
            let collision = if outcome.counter_reset_collision {
                " collision"
            } else {
                ""
            };
            let reconciled = if outcome.bounds_reconciled {
                " reconciled"
            } else {
                ""
            };
            return format!("{}{collision}{reconciled}", histogram.notation());
        }
        "sum" => histogram = compensated_sum(inputs),
        "is_reset" => return histogram.detect_reset(&parse(inputs[1])).to_string(),
        "same" => return histogram.same_as(&parse(inputs[1])).to_string(),
        "reduce" => histogram.reduce_resolution(inputs[1].parse().expect("a schema is given")),
        "mul" => histogram.mul(number()),
        "div" => histogram.div(number()),
        "trim_upper" => histogram.trim_upper(number()),
        "trim_lower" => histogram.trim_lower(number()),
        "string" => return histogram.to_string(),
        "size" => return histogram.sample_size().to_string(),
        other => panic!("{other}"),
    }
    histogram.notation()
}

fn compensated_sum(inputs: &[&str]) -> Histogram {
    let (mut sum, mut compensation) = (parse(inputs[0]), None);
    for other in &inputs[1..] {
        sum.kahan_add(&parse(other), &mut compensation)
            .expect("the histograms are compatible");
    }
    sum.add(&compensation.expect("at least two are added"))
        .expect("it has the sum's layout");
    sum
}
