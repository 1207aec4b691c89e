//! Random tests: printing and parsing do not change random expressions, and broken texts are rejected or parsed
//! without a panic.

use tideline_promql::ast::ValueType;
use tideline_promql::function::{FUNCTIONS, FunctionSpec, Variadic};
use tideline_promql::{parse, pretty};

use super::print::same;

/// Pseudorandom number generator, reproducible by its seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_of<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[self.below(items.len())]
    }

    fn is_one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

const SCALARS: [&str; 10] = [
    "1", "-2.5", "1e3", "0x1F", "5m", "Inf", "1_000", "pi()", "step()", ".5",
];
const STRINGS: [&str; 5] = ["\"a\"", "'b c'", "`\\d`", "\"\\u00e9\\n\"", "\"le\""];
const LABELS: [&str; 5] = ["job", "on", "'a b'", "\"\u{e9}\"", "__name__"];
const MATCHERS: [&str; 6] = [
    "a=\"b\"",
    "'c d'!='x'",
    "e=~\".+\"",
    "f!~'g|h'",
    "i=\"\\\"\"",
    "j=``",
];
const DURATIONS: [&str; 8] = [
    "5m",
    "90",
    "1h30m",
    "step()",
    "(2 * step())",
    "max_of(1m, range())",
    "1m + 2m",
    "(5)",
];

fn expression(chance: &mut Chance, wanted: ValueType, depth: usize) -> String {
    match wanted {
        ValueType::String => chance.one_of(&STRINGS).to_owned(),
        ValueType::Scalar => scalar(chance, depth),
        ValueType::Vector => vector(chance, depth),
        ValueType::Matrix => matrix(chance, depth),
    }
}

fn scalar(chance: &mut Chance, depth: usize) -> String {
    if depth == 0 {
        return chance.one_of(&SCALARS).to_owned();
    }
    let depth = depth - 1;
    match chance.below(4) {
        0 => format!("({})", scalar(chance, depth)),
        1 => format!("-{}", scalar(chance, depth)),
        2 => format!("scalar({})", vector(chance, depth)),
        _ => {
            let op = chance.one_of(&["+", "-", "*", "/", "%", "^", "atan2", "==bool", ">= bool"]);
            format!("{} {op} {}", scalar(chance, depth), scalar(chance, depth))
        }
    }
}

fn vector(chance: &mut Chance, depth: usize) -> String {
    if depth == 0 {
        let selector = selector(chance);
        return shifted(chance, selector, true);
    }
    let depth = depth - 1;
    match chance.below(6) {
        0 => format!("({})", vector(chance, depth)),
        1 => format!("-{}", vector(chance, depth)),
        2 => aggregation(chance, depth),
        3 | 4 => call(chance, depth),
        _ => operation(chance, depth),
    }
}

fn selector(chance: &mut Chance) -> String {
    let name = chance.one_of(&["up", "a:b", "sum", "start", "", "'q n'"]);
    let mut matchers: Vec<&str> = (0..chance.below(4)).map(|_| chance.one_of(&MATCHERS)).collect();
    if name.starts_with('\'') {
        matchers.insert(0, name);
        return format!("{{{}}}", matchers.join(","));
    }
    if name.is_empty() {
        matchers.push("z=\"z\"");
    }
    if matchers.is_empty() {
        name.to_owned()
    } else {
        format!("{name}{{{}}}", matchers.join(", "))
    }
}

/// Adds random modifiers: `offset`, `@`, `anchored`, `smoothed`.
fn shifted(chance: &mut Chance, mut text: String, may_be_bounded: bool) -> String {
    if chance.is_one_in(4) {
        // Without a sign, a parenthesized offset would absorb the next operator.
        let sign = chance.one_of(&["+", "-"]);
        let offset = chance.one_of(&["5m", "90", "step()", "(1m + step())", "range()"]);
        text.push_str(&format!(" offset {sign}{offset}"));
    }
    if chance.is_one_in(4) {
        text.push_str(chance.one_of(&[" @ 1.5", " @ -3", " @ start()", " @end()"]));
    }
    if may_be_bounded && chance.is_one_in(8) {
        text.push_str(chance.one_of(&[" anchored", " smoothed"]));
    }
    text
}

fn matrix(chance: &mut Chance, depth: usize) -> String {
    let range = chance.one_of(&DURATIONS);
    if depth == 0 || chance.is_one_in(2) {
        let text = format!("{}[{range}]", selector(chance));
        return shifted(chance, text, true);
    }
    let step = if chance.is_one_in(2) {
        ""
    } else {
        chance.one_of(&DURATIONS)
    };
    let text = format!("({})[1h + {range}:{step}]", vector(chance, depth - 1));
    shifted(chance, text, false)
}

fn labels(chance: &mut Chance) -> String {
    let labels: Vec<&str> = (0..chance.below(3)).map(|_| chance.one_of(&LABELS)).collect();
    format!("({})", labels.join(","))
}

fn aggregation(chance: &mut Chance, depth: usize) -> String {
    let (name, parameter) = match chance.below(3) {
        0 => ("count_values", format!("{}, ", chance.one_of(&STRINGS))),
        1 => {
            let name = chance.one_of(&["topk", "quantile", "limitk", "limit_ratio"]);
            (name, format!("{}, ", scalar(chance, depth)))
        }
        _ => (chance.one_of(&["sum", "MIN", "stddev", "group"]), String::new()),
    };
    let over = vector(chance, depth);
    let grouping = match chance.below(3) {
        0 => String::new(),
        1 => format!(" by {}", labels(chance)),
        _ => format!(" without {}", labels(chance)),
    };
    match chance.is_one_in(2) {
        true => format!("{name}{grouping} ({parameter}{over})"),
        false => format!("{name}({parameter}{over}){grouping}"),
    }
}

fn call(chance: &mut Chance, depth: usize) -> String {
    let vectors: Vec<&FunctionSpec> = FUNCTIONS
        .iter()
        .filter(|function| function.returns == ValueType::Vector && function.name != "info")
        .collect();
    let function = vectors[chance.below(vectors.len())];
    let mut types = function.arguments.to_vec();
    if function.variadic != Variadic::No && chance.is_one_in(2) {
        types.pop();
    }
    let arguments: Vec<String> = types
        .into_iter()
        .map(|wanted| expression(chance, wanted, depth))
        .collect();
    format!("{}({})", function.name, arguments.join(","))
}

fn operation(chance: &mut Chance, depth: usize) -> String {
    let (left, right) = (vector(chance, depth), vector(chance, depth));
    let on = chance.one_of(&["on", "ignoring"]);
    let labels = labels(chance);
    if chance.is_one_in(3) {
        let op = chance.one_of(&["and", "or", "unless"]);
        return format!("{left} {op} {on} {labels} {right}");
    }
    let op = chance.one_of(&["+", "-", "*", "/", "%", "^", "atan2", "==", "> bool", "</", ">/"]);
    let group = chance.one_of(&["", "group_right(x)", "group_left()"]);
    let fill = chance.one_of(&[
        "",
        "",
        "fill(0)",
        "fill_left(-1) fill_right(2.5)",
        "fill_right(1)",
    ]);
    format!("{left} {op} {on} {labels} {group} {fill} {right}")
}

#[test]
fn random_expressions_print_and_read_back() {
    for seed in tideline_testkit::seeds("random expressions", 1_500) {
        let mut chance = Chance(seed);
        let depth = 1 + chance.below(4);
        let text = expression(&mut chance, ValueType::Vector, depth);
        let expr = parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {text}: {error}"));
        println!("seed {seed}: {text}");
        same(&text, &expr.to_string());
        same(&text, &pretty(&expr));
    }
}

#[test]
fn broken_texts_are_refused_without_harm() {
    let mut refused = 0;
    for seed in tideline_testkit::seeds("broken texts", 6_000) {
        let mut chance = Chance(seed);
        let text = expression(&mut chance, ValueType::Vector, 3);
        let mut chars: Vec<char> = text.chars().collect();
        for _ in 0..=chance.below(3) {
            let at = chance.below(chars.len());
            match chance.below(3) {
                0 if chars.len() > 1 => drop(chars.remove(at)),
                1 => chars.insert(
                    at,
                    chance
                        .one_of(&["(", "]", "\"", "{", "5", ":", "@", "-", "\u{e9}", "#"])
                        .chars()
                        .next()
                        .unwrap(),
                ),
                _ => chars.truncate(at + 1),
            }
        }
        let text: String = chars.into_iter().collect();
        match parse(&text) {
            Ok(expr) => same(&text, &expr.to_string()),
            Err(error) => {
                refused += 1;
                assert!(error.at.start <= text.len(), "seed {seed}: {text}: {error:?}");
            }
        }
    }
    assert!(refused > 2_000, "{refused}");
}
