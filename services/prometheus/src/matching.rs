//! Conversion of label matchers to conditions on tags, which the search index evaluates.
//!
//! Matchers that the index does not support are applied to each timeline that the index finds.

use tideline_engine::catalog::Entry;
use tideline_engine::condition::Pattern;
use tideline_engine::condition::operators::{Equals, Exists, In, Regex, takes_regular_expression};
use tideline_engine::condition::{Condition, Literal, Subject, Test};
use tideline_promql::labels::METRIC_NAME;
use tideline_promql::{MatchOp, Matcher, PromqlError, Result};

/// Matchers of a selection, grouped by the component that evaluates them.
#[derive(Debug)]
pub(crate) struct Split<'m> {
    /// Matchers of the metric name.
    pub(crate) names: Vec<&'m Matcher>,
    /// Conditions for the index.
    pub(crate) conditions: Vec<Condition>,
    /// Matchers that the index does not support; they are applied to each timeline that matches the conditions.
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

    /// Compiles the regular expressions that are evaluated here and not by the index. Before each expression is
    /// compiled, `take` is called with an upper bound of its memory in bytes. `take` returns an error if the request
    /// must end.
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

    /// Returns true if a timeline matches the matchers that the index does not support.
    pub(crate) fn takes(&self, entry: &Entry<'_>) -> bool {
        let matches = |matcher: &&Matcher| matcher.matches(entry.tag(&matcher.name).unwrap_or(""));
        self.rest.iter().all(matches)
    }
}

/// Returns the condition of a matcher; `None` if the index does not support it.
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

/// Returns the test of a regular expression. The outer `None` means that the index does not support the expression; the
/// inner `None` means that every text matches.
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
    fn matchers_of_everything_are_no_condition_and_the_rest_is_left_to_the_index() {
        let matcher = |op, value: &str| Matcher::new("host", op, value).expect("an expression");
        let long = format!("a{}.*", "b".repeat(PATTERN_BYTES_MAX));
        let matchers = [
            matcher(MatchOp::Regex, ".*"),
            matcher(MatchOp::Regex, "h1.*"),
            matcher(MatchOp::NotRegex, &long),
            // This expression is short, but large when compiled.
            matcher(MatchOp::Regex, r"\pL{50}"),
        ];
        let split = Split::new(&matchers);
        let regex = Condition::leaf(Subject::Tag("host".into()), Regex("h1.*".into()));
        assert_eq!(split.conditions, [regex]);
        assert_eq!(split.rest, [&matchers[2], &matchers[3]]);
    }
}
