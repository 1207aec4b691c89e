//! Matchers of labels as conditions on tags, which the search index answers.

use regex_syntax::hir::{Class, Hir, HirKind};
use tideline_promql::labels::METRIC_NAME;
use tideline_promql::{MatchOp, Matcher};
use tideline_search_index::{Condition, Subject, Test, takes_regular_expression};
use tideline_timeline_catalog::{AttributeValue, Entry};

/// Most texts that an expression is written out as.
const TEXTS_MAX: usize = 1_000;

/// The matchers of a selector, by who answers them.
#[derive(Debug)]
pub(crate) struct Split<'m> {
    /// Those of the metric name.
    pub(crate) names: Vec<&'m Matcher>,
    /// What the index can answer of the others.
    pub(crate) conditions: Vec<Condition>,
    /// What it cannot: each timeline that meets the conditions is put through these.
    pub(crate) rest: Vec<&'m Matcher>,
}

impl<'m> Split<'m> {
    pub(crate) fn new(matchers: &'m [Matcher]) -> Self {
        let mut split = Self {
            names: Vec::new(),
            conditions: Vec::new(),
            rest: Vec::new(),
        };
        for matcher in matchers {
            if matcher.name == METRIC_NAME {
                split.names.push(matcher);
                continue;
            }
            match condition(matcher) {
                Some(Condition::All) => {}
                Some(condition) => split.conditions.push(condition),
                None => split.rest.push(matcher),
            }
        }
        split
    }

    /// Whether a timeline meets what the index could not answer.
    pub(crate) fn takes(&self, entry: &Entry<'_>) -> bool {
        let meets = |matcher: &&Matcher| matcher.matches(entry.tag(&matcher.name).unwrap_or(""));
        self.rest.iter().all(meets)
    }
}

/// The condition that a matcher of a tag is; `None` where the index has none like it.
fn condition(matcher: &Matcher) -> Option<Condition> {
    let (is_not, test) = match matcher.op {
        MatchOp::Equal => (false, equals(&matcher.value)),
        MatchOp::NotEqual => (true, equals(&matcher.value)),
        MatchOp::Regex => (false, expression(&matcher.pattern()?)?),
        MatchOp::NotRegex => (true, expression(&matcher.pattern()?)?),
    };
    let leaf = |test| Condition::leaf(Subject::Tag(matcher.name.clone()), test);
    let condition = match test {
        Some(test) => leaf(test),
        None => Condition::All,
    };
    Some(match (is_not, condition) {
        (true, condition) => Condition::Not(Box::new(condition)),
        (false, condition) => condition,
    })
}

fn equals(value: &str) -> Option<Test> {
    Some(Test::Equals(AttributeValue::Text(value.to_owned())))
}

/// The test that an expression is: inside, `None` where every text passes; outside, `None` where the index cannot say.
#[allow(clippy::option_option, reason = "both are told apart by the one caller")]
fn expression(pattern: &str) -> Option<Option<Test>> {
    match pattern {
        ".*" => return Some(None),
        ".+" => return Some(Some(Test::Exists)),
        _ => {}
    }
    if let Some(mut texts) = texts(pattern) {
        return Some(Some(match texts.len() {
            1 => Test::Equals(AttributeValue::Text(texts.remove(0))),
            _ => Test::In(texts.into_iter().map(AttributeValue::Text).collect()),
        }));
    }
    takes_regular_expression(pattern).then(|| Some(Test::Regex(pattern.to_owned())))
}

/// All texts that an expression takes, if they are few.
pub(crate) fn texts(pattern: &str) -> Option<Vec<String>> {
    let mut texts = written_out(&regex_syntax::parse(pattern).ok()?)?;
    texts.sort_unstable();
    texts.dedup();
    Some(texts)
}

fn written_out(hir: &Hir) -> Option<Vec<String>> {
    match hir.kind() {
        HirKind::Empty => Some(vec![String::new()]),
        HirKind::Literal(literal) => Some(vec![std::str::from_utf8(&literal.0).ok()?.to_owned()]),
        HirKind::Class(Class::Unicode(class)) => {
            let ranges = class.iter();
            let count: usize = ranges
                .map(|range| range.end() as usize - range.start() as usize + 1)
                .sum();
            let letters = || class.iter().flat_map(|range| range.start()..=range.end());
            (count <= TEXTS_MAX).then(|| letters().map(String::from).collect())
        }
        HirKind::Capture(capture) => written_out(&capture.sub),
        HirKind::Alternation(either) => {
            let mut all = Vec::new();
            for one in either {
                all.append(&mut written_out(one)?);
                if all.len() > TEXTS_MAX {
                    return None;
                }
            }
            Some(all)
        }
        HirKind::Concat(parts) => {
            let mut all = vec![String::new()];
            for part in parts {
                let ends = written_out(part)?;
                if all.len() * ends.len() > TEXTS_MAX {
                    return None;
                }
                let joined = all
                    .iter()
                    .flat_map(|begin| ends.iter().map(move |end| format!("{begin}{end}")));
                all = joined.collect();
            }
            Some(all)
        }
        HirKind::Class(Class::Bytes(_)) | HirKind::Look(_) | HirKind::Repetition(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use tideline_search_index::condition::PATTERN_BYTES_MAX;

    use super::*;

    #[test]
    fn expressions_of_few_texts_are_written_out() {
        let of = |pattern| texts(pattern).map(|texts| texts.join(" "));
        assert_eq!(of("web"), Some("web".into()));
        assert_eq!(of("web|db|web"), Some("db web".into()));
        assert_eq!(of("h(1|2[ab])x"), Some("h1x h2ax h2bx".into()));
        assert_eq!(of(r"a\.b|"), Some(" a.b".into()));
        assert_eq!(of("(?i:a)"), Some("A a".into()));
        for unbounded in [
            "a.*",
            "a+",
            "h[0-9]{4}",
            "(a|b|c|d|e)(a|b|c|d|e){6}",
            r"\w",
            "^a$",
        ] {
            assert_eq!(of(unbounded), None, "{unbounded}");
        }
    }

    #[test]
    fn what_everything_meets_is_no_condition_and_what_the_index_cannot_take_is_left() {
        let matcher = |op, value: &str| Matcher::new("host", op, value).expect("an expression");
        let long = format!("a{}.*", "b".repeat(PATTERN_BYTES_MAX));
        let matchers = [
            matcher(MatchOp::Regex, ".*"),
            matcher(MatchOp::Regex, "h1.*"),
            matcher(MatchOp::NotRegex, &long),
            // Short, and large once it is compiled.
            matcher(MatchOp::Regex, r"\pL{50}"),
        ];
        let split = Split::new(&matchers);
        let regex = Condition::leaf(Subject::Tag("host".into()), Test::Regex("h1.*".into()));
        assert_eq!(split.conditions, [regex]);
        assert_eq!(split.rest, [&matchers[2], &matchers[3]]);
    }
}
