//! Tests of the parser.
//!
//! The tests cover the expressions of valid texts, Prometheus' error messages for invalid texts, limits of depth and
//! length, the function table, and `parse_duration`.

use tideline_promql::ast::{
    AtModifier, BinaryOp, Bounds, Cardinality, DurationExpr, DurationValue, Expr, TextRange, ValueType,
};
use tideline_promql::function::{self, FUNCTIONS};
use tideline_promql::{DEPTH_MAX, MatchOp, TEXT_BYTES_MAX, parse, parse_duration, parse_selector};

use super::corpus;

fn number(text: &str) -> f64 {
    match parse(text).unwrap_or_else(|error| panic!("{text}: {error}")) {
        Expr::Number(number) => number.value,
        other => panic!("{text}: {other:?}"),
    }
}

fn refusal(text: &str) -> String {
    match parse(text) {
        Ok(expr) => panic!("{text}: {expr:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_query_of_the_scripts_parses_unless_it_must_fail() {
    let queries = corpus::queries();
    let (mut parsed, mut refused) = (0, 0);
    for query in &queries {
        match parse(&query.text) {
            Ok(_) => parsed += 1,
            Err(error) => {
                assert!(query.must_fail, "{}: {}: {error}", query.place, query.text);
                refused += 1;
            }
        }
    }
    println!("{parsed} parsed, {refused} refused");
}

#[test]
fn numbers_are_decimal_hexadecimal_octal_or_durations() {
    let said = [
        ("1", 1.0),
        ("-.5", -0.5),
        ("5.", 5.0),
        ("1_000_000", 1e6),
        ("1_000.5", 1000.5),
        ("1.5e3", 1500.0),
        ("5e-3", 0.005),
        ("0x1f", 31.0),
        ("0X_1F", 31.0),
        ("0755", 493.0),
        ("089", 89.0),
        ("+Inf", f64::INFINITY),
        ("-inf", f64::NEG_INFINITY),
        ("1h30m", 5400.0),
        ("15ms", 0.015),
        ("-2d", -172_800.0),
        ("1y", 31_536_000.0),
    ];
    for (text, value) in said {
        assert_eq!(number(text), value, "{text}");
    }
    assert!(number("NaN").is_nan());
}

#[test]
fn strings_have_the_escapes_of_go() {
    let said = [
        (r#""double""#, "double"),
        ("'single \"'", "single \""),
        (r"`raw \n`", r"raw \n"),
        (r#""\a\b\f\n\r\t\v\\\"""#, "\u{7}\u{8}\u{c}\n\r\t\u{b}\\\""),
        (r#""\x41\101\u00e9\U0001F600""#, "AA\u{e9}\u{1f600}"),
        (r#""\xc3\xa9""#, "\u{e9}"),
    ];
    for (text, value) in said {
        let Ok(Expr::String(string)) = parse(text) else {
            panic!("{text}");
        };
        assert_eq!(string.value, value, "{text}");
        assert_eq!(string.invalid, None, "{text}");
    }
    let Ok(Expr::String(string)) = parse(r#""a\xc5z""#) else {
        panic!("bytes that are not UTF-8 are no string");
    };
    assert_eq!(string.value, "a\u{fffd}z");
    assert_eq!(string.invalid.as_deref(), Some(&b"a\xc5z"[..]));
}

#[test]
fn operators_bind_as_arithmetic_does() {
    // Pairs of texts whose expressions must be equal except for positions and parentheses.
    let same = [
        ("a + b * c", "a + (b * c)"),
        ("a * b + c", "(a * b) + c"),
        ("a - b - c", "(a - b) - c"),
        ("a ^ b ^ c", "a ^ (b ^ c)"),
        ("-a ^ b", "-(a ^ b)"),
        ("a ^ -b * c", "(a ^ (-b)) * c"),
        ("-a * b", "(-a) * b"),
        ("a or b and c", "a or (b and c)"),
        ("a and b unless c", "(a and b) unless c"),
        ("a == b + c", "a == (b + c)"),
        ("a % b atan2 c", "(a % b) atan2 c"),
        ("a > b </ c", "(a > b) </ c"),
    ];
    for (plain, explicit) in same {
        assert_eq!(
            shape(&parse(plain).unwrap()),
            shape(&parse(explicit).unwrap()),
            "{plain}"
        );
    }
}

/// Formats an expression with parentheses around each operation and without the parentheses of the text.
fn shape(expr: &Expr) -> String {
    match expr {
        Expr::Binary(binary) => {
            let op = binary.op.name();
            format!("({} {op} {})", shape(&binary.left), shape(&binary.right))
        }
        Expr::Unary(unary) => format!("(-{})", shape(&unary.expr)),
        Expr::Paren(paren) => shape(&paren.expr),
        Expr::Vector(selector) => selector.name.clone().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn selectors_take_names_and_labels_of_any_text() {
    let Ok(Expr::Vector(selector)) = parse(r#"up{job=~"a|b",'the "job"'!="x",}"#) else {
        panic!();
    };
    assert_eq!(selector.name.as_deref(), Some("up"));
    let matchers: Vec<_> = selector
        .matchers
        .iter()
        .map(|matcher| (matcher.name.as_str(), matcher.op, matcher.value.as_str()))
        .collect();
    let wanted = [
        ("job", MatchOp::Regex, "a|b"),
        ("the \"job\"", MatchOp::NotEqual, "x"),
        ("__name__", MatchOp::Equal, "up"),
    ];
    assert_eq!(matchers, wanted);

    let Ok(Expr::Vector(selector)) = parse(r#"{"the name", a="b"}"#) else {
        panic!();
    };
    assert_eq!(selector.name, None);
    assert_eq!(selector.matchers[0].name, "__name__");
    assert_eq!(selector.matchers[0].value, "the name");
    // Many keywords are also valid metric names.
    for name in [
        "sum", "offset", "by", "start", "fill", "anchored", "max_of", "unless", "a:b",
    ] {
        let Ok(Expr::Vector(selector)) = parse(name) else {
            panic!("{name}");
        };
        assert_eq!(selector.name.as_deref(), Some(name));
    }
    let matchers = parse_selector(r#"{a=""}"#).unwrap();
    assert_eq!(matchers.len(), 1);
    let refused = parse_selector("up offset 5m").unwrap_err();
    assert_eq!(refused.to_string(), "1:4: parse error: unexpected <offset>");
}

#[test]
fn ranges_and_shifts_are_read_in_any_order() {
    for text in [
        "up[5m] offset -1h @ 7.5",
        "up[5m] @ 7.5 offset -1h",
        "up[300] @7.5 offset -3600",
    ] {
        let Ok(Expr::Matrix(matrix)) = parse(text) else {
            panic!("{text}");
        };
        assert_eq!(matrix.range, DurationValue::Fixed(300_000));
        assert_eq!(
            matrix.selector.shift.offset,
            Some(DurationValue::Fixed(-3_600_000))
        );
        assert_eq!(matrix.selector.shift.at, Some(AtModifier::Instant(7500)));
    }
    let Ok(Expr::Subquery(subquery)) = parse("rate(up[1m])[1h:] @ end() offset 1m") else {
        panic!();
    };
    assert_eq!(
        (subquery.step.as_ref(), &subquery.shift.at),
        (None, &Some(AtModifier::End))
    );
    let Ok(Expr::Matrix(matrix)) = parse("up[1m] smoothed") else {
        panic!();
    };
    assert_eq!(matrix.selector.bounds, Bounds::Smoothed);
}

#[test]
fn durations_are_computed_from_the_query() {
    let Ok(Expr::Matrix(matrix)) = parse("up[max_of(1m, 2 * step())] offset -range()") else {
        panic!();
    };
    let DurationValue::Computed(range) = &matrix.range else {
        panic!("{:?}", matrix.range);
    };
    assert!(matches!(&**range, DurationExpr::Max(_, right, _)
        if matches!(&**right, DurationExpr::Binary(BinaryOp::Multiply, _, _))));
    let Some(DurationValue::Computed(offset)) = &matrix.selector.shift.offset else {
        panic!();
    };
    assert!(
        matches!(&**offset, DurationExpr::Sign(true, inner, _) if matches!(&**inner, DurationExpr::Range(_)))
    );
    // An offset ends after a plain literal.
    assert!(matches!(parse("up offset 5m + 1"), Ok(Expr::Binary(_))));
    assert!(matches!(parse("up offset (5m + 1)"), Ok(Expr::Vector(_))));
    assert!(parse("up[step():1m]").is_ok());
}

#[test]
fn the_pairing_of_series_is_read() {
    let text = "a * on (x, 'y z') group_left (n) fill_right (-1) fill_left (2) b";
    let Ok(Expr::Binary(binary)) = parse(text) else {
        panic!();
    };
    let matching = binary.matching.as_ref().unwrap();
    assert_eq!(matching.cardinality, Cardinality::ManyToOne);
    assert_eq!(matching.labels, ["x", "y z"]);
    assert_eq!(matching.include, ["n"]);
    assert!(matching.is_on);
    assert_eq!((matching.fill_left, matching.fill_right), (Some(2.0), Some(-1.0)));
    let Ok(Expr::Binary(binary)) = parse("a unless ignoring () b") else {
        panic!();
    };
    assert_eq!(
        binary.matching.as_ref().unwrap().cardinality,
        Cardinality::ManyToMany
    );
    let Ok(Expr::Binary(binary)) = parse("a > bool 1") else {
        panic!();
    };
    assert!(binary.return_bool && binary.matching.is_none());
}

#[test]
fn faults_are_reported_in_the_words_of_prometheus() {
    let table = [
        ("", "unknown position: parse error: no expression found in input"),
        ("# only this\n", "1:1: parse error: no expression found in input"),
        ("1 +", "1:4: parse error: unexpected end of input"),
        ("a\n  b", "2:3: parse error: unexpected identifier \"b\""),
        ("(a", "1:3: parse error: unclosed left parenthesis"),
        ("a ! b", "1:3: parse error: unexpected character after '!': ' '"),
        ("0xZ", "1:1: parse error: bad number or duration syntax: \"0x\""),
        ("5m5h", "1:1: parse error: not a valid duration string: \"5m5h\""),
        ("\"a", "1:1: parse error: unterminated quoted string"),
        ("'\\q'", "1:1: parse error: unknown escape sequence U+0071 'q'"),
        ("a{", "1:3: parse error: unexpected end of input inside braces"),
        (
            "a{b}",
            "1:4: parse error: unexpected \"}\" in label matching, expected label matching operator",
        ),
        (
            "a{b=c}",
            "1:5: parse error: unexpected identifier \"c\" in label matching, expected string",
        ),
        (
            "a{,}",
            "1:3: parse error: unexpected \",\" in label matching, expected identifier or \"}\"",
        ),
        (
            "{a=''}",
            "1:1: parse error: vector selector must contain at least one non-empty matcher",
        ),
        (
            "a{__name__='b'}",
            "1:1: parse error: metric name must not be set twice: \"a\" or \"b\"",
        ),
        ("a[0]", "1:3: parse error: duration must be greater than 0"),
        ("a[5m / 0]", "1:6: parse error: division by zero"),
        ("a[1000y]", "1:3: parse error: duration out of range"),
        ("a[5m", "1:5: parse error: unclosed left bracket"),
        (
            "1[5m]",
            "1:2: parse error: ranges only allowed for vector selectors",
        ),
        (
            "a offset 1m [5m]",
            "1:13: parse error: no offset modifiers allowed before range",
        ),
        (
            "a @ 1 @ 2",
            "1:1: parse error: @ <timestamp> may not be set multiple times",
        ),
        (
            "a @ x",
            "1:5: parse error: unexpected identifier \"x\" in @, expected timestamp",
        ),
        (
            "a offset x",
            "1:10: parse error: unexpected identifier \"x\" in offset, expected number, duration, step(), or range()",
        ),
        (
            "a anchored smoothed",
            "1:1: parse error: anchored and smoothed modifiers cannot be used together",
        ),
        ("nope(a)", "1:1: parse error: unknown function with name \"nope\""),
        (
            "abs()",
            "1:1: parse error: expected 1 argument(s) in call to \"abs\", got 0",
        ),
        (
            "rate(a)",
            "1:6: parse error: expected type range vector in call to function \"rate\", got instant vector",
        ),
        (
            "abs(a,)",
            "1:6: parse error: trailing commas not allowed in function call args",
        ),
        (
            "sum(a, b)",
            "1:1: parse error: wrong number of arguments for aggregate expression provided, expected 1, got 2",
        ),
        (
            "sum(a b)",
            "1:7: parse error: unexpected identifier \"b\" in aggregation",
        ),
        (
            "sum by a (b)",
            "1:8: parse error: unexpected identifier \"a\" in grouping opts, expected \"(\"",
        ),
        (
            "sum('a')",
            "1:5: parse error: expected type instant vector in aggregation expression, got string",
        ),
        (
            "1 == 2",
            "1:3: parse error: comparisons between scalars must use BOOL modifier",
        ),
        (
            "a + bool b",
            "1:3: parse error: bool modifier can only be used on comparison operators",
        ),
        (
            "1 and b",
            "1:1: parse error: set operator \"and\" not allowed in binary scalar expression",
        ),
        (
            "a and on (x) group_left b",
            "1:1: parse error: no grouping allowed for \"and\" operation",
        ),
        (
            "a + on (x) group_left (x) b",
            "1:3: parse error: label \"x\" must not occur in ON and GROUP clause at once",
        ),
        (
            "a + fill (0) 1",
            "1:1: parse error: filling in missing series only allowed between instant vectors",
        ),
        (
            "a[1m][1m:]",
            "1:1: parse error: subquery is only allowed on instant vector, got matrix instead",
        ),
        (
            "-'a'",
            "1:1: parse error: unary expression only allowed on expressions of type scalar or instant vector, got \"string\"",
        ),
        (
            "info(a, b)",
            "1:9: parse error: expected label selectors only, got vector selector instead",
        ),
    ];
    for (text, message) in table {
        assert_eq!(refusal(text), message, "{text}");
    }
    assert!(refusal("a{b=~'*'}").starts_with("1:3: parse error: error parsing regexp: "));
}

#[test]
fn every_node_has_its_position() {
    let text = "sum by (a) (rate(up{b=\"c\"}[5m] offset 1m)) / -x";
    let Ok(Expr::Binary(binary)) = parse(text) else {
        panic!();
    };
    let said = |at: TextRange| &text[at.start..at.end];
    assert_eq!(
        said(binary.left.at()),
        "sum by (a) (rate(up{b=\"c\"}[5m] offset 1m))"
    );
    assert_eq!(said(binary.right.at()), "-x");
    let Expr::Aggregate(sum) = &binary.left else {
        panic!();
    };
    assert_eq!(said(sum.expr.at()), "rate(up{b=\"c\"}[5m] offset 1m)");
    let Expr::Call(rate) = &sum.expr else {
        panic!();
    };
    assert_eq!(said(rate.arguments[0].at()), "up{b=\"c\"}[5m] offset 1m");
}

#[test]
fn no_text_exhausts_the_stack() {
    let deep = 50_000;
    let texts = [
        "(".repeat(deep),
        "-".repeat(deep) + "1a",
        "abs(".repeat(deep),
        "1^".repeat(deep) + "1",
        "1+".repeat(deep) + "1",
        format!("a{}", "[1m:]".repeat(deep)),
        format!("a[{}", "(".repeat(deep)),
        format!("a[{}1", "-".repeat(deep)),
        format!("a[{}1]", "1+".repeat(deep)),
        format!("a[{}1]", "1^".repeat(deep)),
        format!("a[{}1{}]", "((1+".repeat(70), "+1)+1)".repeat(70)),
        format!("{}1{}", "(".repeat(DEPTH_MAX), ")".repeat(DEPTH_MAX)),
        format!("{}1{}", "(1+".repeat(99), "+1+1+1)".repeat(99)),
    ];
    for text in texts {
        let head = &text[..30];
        let message = refusal(&text);
        assert!(
            message.ends_with("nested deeper than 200 levels"),
            "{head}: {message}"
        );
    }
    let sum = "1+".repeat(DEPTH_MAX - 1) + "1";
    assert!(parse(&sum).is_ok());
    let long = " ".repeat(TEXT_BYTES_MAX);
    assert!(refusal(&(long + "1")).contains("at most 262144 are allowed"));
}

#[test]
fn functions_are_found_by_name() {
    for pair in FUNCTIONS.windows(2) {
        assert!(pair[0].name < pair[1].name);
    }
    for function in &FUNCTIONS {
        assert_eq!(function::find(function.name), Some(function));
    }
    assert_eq!(function::find("Rate"), None);
    assert_eq!(parse("time() + step()").unwrap().value_type(), ValueType::Scalar);
    assert_eq!(parse("scalar(up) + up").unwrap().value_type(), ValueType::Vector);
}

#[test]
fn durations_name_units_from_large_to_small() {
    let said = [
        ("0", 0),
        ("1d2h3m4s5ms", 93_784_005),
        ("1w", 604_800_000),
        ("292y", 9_208_512_000_000),
    ];
    for (text, milliseconds) in said {
        assert_eq!(parse_duration(text), Ok(milliseconds), "{text}");
    }
    let refused = [
        ("", "empty duration string"),
        ("5", "not a valid duration string: \"5\""),
        ("-5m", "not a valid duration string: \"-5m\""),
        ("5m1h", "not a valid duration string: \"5m1h\""),
        ("5q", "unknown unit \"q\" in duration \"5q\""),
        ("293y", "duration out of range"),
    ];
    for (text, message) in refused {
        assert_eq!(parse_duration(text).unwrap_err().to_string(), message);
    }
}
