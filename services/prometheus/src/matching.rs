//! Matchers of labels as conditions on tags, which the search index answers.

use tideline_engine::catalog::Entry;
use tideline_engine::condition::Pattern;
use tideline_engine::condition::operators::{Equals, Exists, In, Regex, takes_regular_expression};
use tideline_engine::condition::{Condition, Literal, Subject, Test};
use tideline_promql::labels::METRIC_NAME;
use tideline_promql::{MatchOp, Matcher, PromqlError, Result};

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

    /// Compiles the expressions that are put to values here, the ones of the index left out. `take` is called with the bytes
    /// of each before, and fails where the request should end.
    pub(crate) fn compile(&self, take: &dyn Fn(u64) -> Result<()>) -> Result<()> {
        for matcher in self.names.iter().chain(&self.rest) {
            let Some(pattern) = matcher.pattern() else {
                continue;
            };
            take(pattern.bytes())?;
            let compiled = matcher.compile();
            compiled.map_err(|error| PromqlError::TooMany(error.to_string()))?;
        }
        Ok(())
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
        MatchOp::Regex => (false, expression(matcher.text_pattern()?)?),
        MatchOp::NotRegex => (true, expression(matcher.text_pattern()?)?),
    };
    let leaf = |test: Test| Condition::leaf(Subject::Tag(matcher.name.clone()), test);
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
    Some(Equals(Literal::Text(value.to_owned())).into())
}

/// The test that an expression is: inside, `None` where every text passes; outside, `None` where the index cannot say.
#[allow(clippy::option_option, reason = "both are told apart by the one caller")]
fn expression(pattern: &Pattern) -> Option<Option<Test>> {
    match pattern.as_str() {
        ".*" => return Some(None),
        ".+" => return Some(Some(Exists(true).into())),
        _ => {}
    }
    if let Some(texts) = pattern.texts() {
        return Some(Some(match texts {
            [text] => Equals(Literal::Text(text.clone())).into(),
            texts => In(texts.iter().cloned().map(Literal::Text).collect()).into(),
        }));
    }
    let pattern = pattern.as_str();
    takes_regular_expression(pattern).then(|| Some(Regex(pattern.to_owned()).into()))
}

#[cfg(test)]
mod tests {
    use tideline_engine::condition::condition::PATTERN_BYTES_MAX;

    use super::*;

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
        let regex = Condition::leaf(Subject::Tag("host".into()), Regex("h1.*".into()));
        assert_eq!(split.conditions, [regex]);
        assert_eq!(split.rest, [&matchers[2], &matchers[3]]);
    }
}
