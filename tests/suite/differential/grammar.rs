//! Random PromQL expressions, always well-formed and mostly with a result.
//!
//! Expressions without an exactly defined result, such as a choice among equal values, are not generated.

use std::fmt;

use tideline_fleet::Random;

use super::data::{END, START};

/// Query; an instant query if `step` is 0.
pub(super) struct RandomQuery {
    pub(super) query: String,
    /// Start in milliseconds; `end` and `step` have the same unit.
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) step: i64,
}

/// Generator of expressions from a seed.
pub(super) struct Grammar {
    random: Random,
    /// True if only functions of Prometheus 2 may be used.
    is_old: bool,
}

/// Maximum nesting depth of expressions.
const DEPTH: u32 = 3;
const COUNTERS: [&str; 2] = ["requests_total", "errors_total"];
const GAUGES: [&str; 3] = ["temperature", "sparse", "strange"];
const LABELS: [&str; 4] = ["job", "instance", "code", "zone"];
const OVER_TIME: [&str; 12] = [
    "avg_over_time",
    "min_over_time",
    "max_over_time",
    "sum_over_time",
    "count_over_time",
    "stddev_over_time",
    "stdvar_over_time",
    "last_over_time",
    "present_over_time",
    "changes",
    "deriv",
    "delta",
];
const RATES: [&str; 5] = ["rate", "increase", "irate", "resets", "idelta"];
const OF_VECTORS: [&str; 15] = [
    "abs",
    "ceil",
    "floor",
    "exp",
    "sqrt",
    "ln",
    "log2",
    "log10",
    "sgn",
    "sin",
    "cos",
    "atan",
    "deg",
    "timestamp",
    "absent",
];
const OF_DATES: [&str; 6] = ["day_of_week", "hour", "minute", "month", "year", "days_in_month"];
const AGGREGATIONS: [&str; 8] = ["sum", "avg", "min", "max", "count", "group", "stddev", "stdvar"];

impl RandomQuery {
    pub(super) fn random(grammar: &mut Grammar) -> Self {
        let query = match grammar.random.index(8) {
            0 => grammar.scalar(DEPTH),
            _ => grammar.vector(DEPTH),
        };
        // Samples are at whole seconds and windows last whole seconds, so the offset of 347 ms keeps window
        // bounds apart from samples.
        let start = START + 1_000 * grammar.random.index(((END - START) / 1_000) as usize) as i64 + 347;
        let (end, step) = match grammar.random.index(3) {
            0 => (start, 0),
            _ => {
                let step = [15_000, 60_000, 47_000, 300_000][grammar.random.index(4)];
                (start + step * (1 + grammar.random.index(30) as i64), step)
            }
        };
        Self {
            query,
            start,
            end,
            step,
        }
    }
}

impl fmt::Display for RandomQuery {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, end, step) = (self.start, self.end, self.step);
        write!(out, "{} from {start} to {end} by {step}", self.query)
    }
}

impl Grammar {
    pub(super) fn new(seed: u64, is_old: bool) -> Self {
        Self {
            random: Random::new(seed),
            is_old,
        }
    }

    fn one_of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.random.index(words.len())]
    }

    fn chance(&mut self, of: usize) -> bool {
        self.random.index(of) == 0
    }

    /// Returns a number from a small range, often an integer.
    fn number(&mut self) -> String {
        match self.random.index(5) {
            0 => "0".into(),
            1 => format!("{:.3}", self.random.unit() * 100.0),
            2 => format!("-{}", self.random.index(20)),
            _ => self.random.index(50).to_string(),
        }
    }

    fn duration(&mut self) -> String {
        let seconds = [20, 45, 60, 150, 300, 600, 1_800];
        format!("{}s", seconds[self.random.index(seconds.len())])
    }

    fn scalar(&mut self, depth: u32) -> String {
        match self.random.index(if depth == 0 { 2 } else { 6 }) {
            0 | 1 => self.number(),
            2 => "time()".into(),
            3 => format!("scalar({})", self.vector(depth - 1)),
            4 => format!("-{}", self.atom(depth - 1)),
            _ => {
                let operator = self.one_of(&["+", "-", "*", "/", "%", "^"]);
                format!(
                    "({} {operator} {})",
                    self.scalar(depth - 1),
                    self.scalar(depth - 1)
                )
            }
        }
    }

    /// Returns a scalar in parentheses, as the operand of a sign.
    fn atom(&mut self, depth: u32) -> String {
        format!("({})", self.scalar(depth))
    }

    fn vector(&mut self, depth: u32) -> String {
        if depth == 0 {
            return self.selector();
        }
        let depth = depth - 1;
        match self.random.index(16) {
            0 => self.selector(),
            // Uses only valid dates, because the result for other numbers depends on the processor.
            15 => format!("{}(requests_total * 1e5)", self.one_of(&OF_DATES)),
            1..=3 => self.over_range(depth),
            4..=6 => self.aggregation(depth),
            7 => format!("{}({})", self.one_of(&OF_VECTORS), self.vector(depth)),
            8 => self.quantile_of_buckets(),
            9 => self.relabelled(depth),
            10 => self.clamped(depth),
            11 => self.with_scalar(depth),
            12 => self.set_operation(depth),
            13 => self.matched(depth),
            _ => format!("-({})", self.vector(depth)),
        }
    }

    fn selector(&mut self) -> String {
        let metric = match self.random.index(3) {
            0 => self.one_of(&COUNTERS),
            _ => self.one_of(&GAUGES),
        };
        format!("{metric}{}{}", self.matchers(), self.shift())
    }

    fn matchers(&mut self) -> String {
        let matcher = match self.random.index(8) {
            0 => "job=\"api\"",
            1 => "job!=\"api\"",
            2 => "instance=~\"i[0-2]\"",
            3 => "code!~\"4..\"",
            4 => "zone=\"\"",
            5 => "job=~\"api|web\", zone!=\"\"",
            _ => return String::new(),
        };
        format!("{{{matcher}}}")
    }

    fn shift(&mut self) -> String {
        match self.random.index(10) {
            0 => format!(" offset {}", self.duration()),
            1 => format!(" offset -{}", self.duration()),
            2 => " @ start()".into(),
            3 => " @ end()".into(),
            4 => {
                let at = START / 1_000 + self.random.index(3_600) as i64;
                format!(" @ {at}.347")
            }
            _ => String::new(),
        }
    }

    fn over_range(&mut self, depth: u32) -> String {
        let is_rate = self.chance(2);
        let function = if is_rate {
            self.one_of(&RATES)
        } else {
            self.one_of(&OVER_TIME)
        };
        let range = match self.random.index(4) {
            0 => {
                let step = self.one_of(&["13s", "30s", "60s"]);
                format!("({})[{}:{step}]", self.vector(depth.min(1)), self.duration())
            }
            _ => {
                let metric = if is_rate {
                    self.one_of(&COUNTERS)
                } else {
                    self.one_of(&GAUGES)
                };
                format!("{metric}{}[{}]{}", self.matchers(), self.duration(), self.shift())
            }
        };
        match self.random.index(12) {
            0 => format!("quantile_over_time({:.2}, {range})", self.random.unit()),
            1 => format!("predict_linear({range}, {})", self.random.index(900)),
            2 => format!("absent_over_time({range})"),
            // Reads only `temperature`, because the result for infinities depends on the version.
            3 if !self.is_old => format!(
                "mad_over_time(temperature{}[{}])",
                self.matchers(),
                self.duration()
            ),
            4 if !self.is_old => format!("double_exponential_smoothing({range}, 0.4, 0.3)"),
            _ => format!("{function}({range})"),
        }
    }

    fn labels(&mut self) -> String {
        let count = self.random.index(3);
        let labels: Vec<&str> = (0..count).map(|_| self.one_of(&LABELS)).collect();
        labels.join(", ")
    }

    fn aggregation(&mut self, depth: u32) -> String {
        let grouping = match self.random.index(3) {
            0 => String::new(),
            1 => format!(" by ({})", self.labels()),
            _ => format!(" without ({})", self.labels()),
        };
        match self.random.index(12) {
            0 => format!(
                "quantile{grouping} ({:.2}, {})",
                self.random.unit(),
                self.vector(depth)
            ),
            // The choice among equal values is undefined, so only values that are never equal are ranked.
            1 => format!("topk{grouping} ({}, temperature)", 1 + self.random.index(4)),
            2 => format!("bottomk{grouping} ({}, temperature)", 1 + self.random.index(4)),
            3 => format!("count_values{grouping} (\"worth\", ceil(temperature / 10))"),
            _ => format!(
                "{}{grouping} ({})",
                self.one_of(&AGGREGATIONS),
                self.vector(depth)
            ),
        }
    }

    fn quantile_of_buckets(&mut self) -> String {
        let phi = self.one_of(&["0", "0.5", "0.9", "0.99", "1", "-1", "2"]);
        let by = self.one_of(&["le", "le, job", "le, instance"]);
        let range = self.duration();
        format!("histogram_quantile({phi}, sum by ({by}) (rate(latency_bucket[{range}])))")
    }

    fn relabelled(&mut self, depth: u32) -> String {
        let vector = self.vector(depth);
        match self.random.index(2) {
            0 => format!("label_replace({vector}, \"made\", \"$1-x\", \"instance\", \"i(.*)\")"),
            _ => format!("label_join({vector}, \"made\", \"-\", \"job\", \"instance\")"),
        }
    }

    fn clamped(&mut self, depth: u32) -> String {
        let vector = self.vector(depth);
        match self.random.index(4) {
            0 => format!("clamp({vector}, {}, {})", self.number(), self.number()),
            1 => format!("clamp_min({vector}, {})", self.number()),
            2 => format!("clamp_max({vector}, {})", self.number()),
            _ => format!("round({vector}, {})", ["0.5", "1", "7"][self.random.index(3)]),
        }
    }

    fn with_scalar(&mut self, depth: u32) -> String {
        // Does not use `%`, because the remainder of a large number or of a sum of floats depends on the last digit.
        let operator = self.one_of(&[
            "+", "-", "*", "/", "^", "atan2", "> bool", "== bool", "<= bool", ">", "<", "!=",
        ]);
        let (vector, scalar) = (self.vector(depth), self.scalar(depth));
        match self.chance(2) {
            true => format!("(({vector}) {operator} ({scalar}))"),
            false => format!("(({scalar}) {operator} ({vector}))"),
        }
    }

    fn set_operation(&mut self, depth: u32) -> String {
        let operator = self.one_of(&["and", "or", "unless"]);
        let matching = self.matching();
        format!(
            "({}) {operator}{matching} ({})",
            self.vector(depth),
            self.vector(depth)
        )
    }

    fn matching(&mut self) -> String {
        match self.random.index(4) {
            0 => format!(" on ({})", self.labels()),
            1 => format!(" ignoring ({})", self.labels()),
            _ => String::new(),
        }
    }

    fn matched(&mut self, depth: u32) -> String {
        let operator = self.one_of(&["+", "-", "*", "/", ">", "== bool", "atan2"]);
        match self.random.index(3) {
            0 => format!("({}) {operator} ({})", self.vector(depth), self.vector(depth)),
            1 => {
                let (left, right) = (self.over_range(0), self.vector(depth));
                format!(
                    "({left}) {operator} on (job, instance) group_left (zone) (max by (job, instance) ({right}))"
                )
            }
            _ => {
                let (left, right) = (self.vector(depth), self.over_range(0));
                format!("(sum by (job) ({left})) {operator} on (job) group_right () ({right})")
            }
        }
    }
}
