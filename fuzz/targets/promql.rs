//! Fuzz target: arbitrary text as PromQL. Parsing returns an error or an expression and never panics. The printed
//! form of an expression parses to an expression with the same printed form. The pretty form can also be parsed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tideline_promql::{parse, parse_duration, parse_selector, pretty, to_json};

fuzz_target!(|text: &str| {
    let _ = parse_duration(text);
    let _ = parse_selector(text);
    let Ok(expr) = parse(text) else {
        return;
    };
    let printed = expr.to_string();
    let again = parse(&printed).expect("what is printed can be read");
    assert_eq!(again.to_string(), printed);
    assert!(parse(&pretty(&expr)).is_ok());
    to_json(&expr);
});
