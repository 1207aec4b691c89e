//! Functions that change labels only: `label_replace` and `label_join`.
//!
//! Changed labels may become equal, so the resulting series are merged.

use std::collections::HashMap;
use std::sync::PoisonError;

use tideline_pattern::{Pattern, PatternError};

use super::Scope;
use super::call::text_of;
use super::column::Column;
use crate::error::{PromqlError, Result};
use crate::labels::{Labels, METRIC_NAME};
use crate::pattern;
use crate::plan::{Kind, Node};

impl Scope<'_> {
    /// Evaluates `label_replace(vector, target, replacement, source, expression)`.
    pub(super) fn label_replace(&self, arguments: &[Node<'_>]) -> Result<Vec<Column>> {
        let (target, replacement) = (text_of(&arguments[1])?, text_of(&arguments[2])?);
        let (source, expression) = (text_of(&arguments[3])?, text_of(&arguments[4])?);
        let pattern = self.pattern_with_groups(expression)?;
        let bytes = usize::try_from(pattern.bytes_with_groups()).unwrap_or(usize::MAX);
        let _held = self.budget().bytes(bytes)?;
        let regex = pattern.compile().map_err(|error| too_large(&error))?;
        check_name(&arguments[1], "destination", "label_replace")?;
        let mut columns = self.vector(&arguments[0])?;
        // Results by source value, because many series share values; `None` if the expression does not match.
        let mut results: HashMap<String, Option<String>> = HashMap::new();
        for column in &mut columns {
            let value = column.labels.get(source).unwrap_or_default();
            if !results.contains_key(value) {
                let result = regex.captures(value.as_bytes()).map(|captures| {
                    let mut result = Vec::new();
                    captures.expand(replacement.as_bytes(), &mut result);
                    // The input is UTF-8, so captures consist of whole characters.
                    String::from_utf8_lossy(&result).into_owned()
                });
                results.insert(value.to_owned(), result);
            }
            if let Some(result) = &results[value] {
                set_label(column, target, result);
            }
        }
        self.merged_held(columns, true)
    }

    /// Parses the expression of `label_replace`. The expressions of all calls share one memory budget.
    fn pattern_with_groups(&self, expression: &str) -> Result<Pattern> {
        self.check()?;
        let pattern = pattern::whole(expression).map_err(|error| match error {
            PatternError::Invalid(_) => PromqlError::Execution(format!(
                "invalid regular expression in label_replace(): {expression}"
            )),
            error => too_large(&error),
        })?;
        let mut patterns = self
            .shared
            .patterns
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let taken = patterns.take(expression, pattern.bytes_with_groups());
        taken.map_err(|error| too_large(&error))?;
        Ok(pattern)
    }

    /// Evaluates `label_join(vector, target, separator, source, …)`.
    pub(super) fn label_join(&self, arguments: &[Node<'_>]) -> Result<Vec<Column>> {
        let (target, separator) = (text_of(&arguments[1])?, text_of(&arguments[2])?);
        let sources = arguments[3..].iter().map(text_of).collect::<Result<Vec<_>>>()?;
        for argument in &arguments[3..] {
            check_name(argument, "source", "label_join")?;
        }
        check_name(&arguments[1], "destination", "label_join")?;
        let mut columns = self.vector(&arguments[0])?;
        for column in &mut columns {
            let values: Vec<&str> = sources
                .iter()
                .map(|source| column.labels.get(source).unwrap_or_default())
                .collect();
            let joined = values.join(separator);
            set_label(column, target, &joined);
        }
        self.merged_held(columns, true)
    }
}

fn too_large(error: &PatternError) -> PromqlError {
    PromqlError::TooMany(format!("label_replace(): {error}"))
}

/// Rejects label names that are empty or not UTF-8. All other names are valid.
fn check_name(argument: &Node<'_>, role: &str, function: &str) -> Result<()> {
    match &argument.kind {
        Kind::Text(text) if text.value.is_empty() || text.invalid.is_some() => Err(PromqlError::Execution(
            format!("invalid {role} label name in {function}(): {}", text.value),
        )),
        _ => Ok(()),
    }
}

fn set_label(column: &mut Column, name: &str, value: &str) {
    column.labels = with_label(&column.labels, name, value);
    if name == METRIC_NAME {
        column.drops_name = false;
    }
}

/// Returns the labels with one label set; an empty value removes it.
pub(super) fn with_label(labels: &Labels, name: &str, value: &str) -> Labels {
    let others = || labels.iter().filter(|(at, _)| *at != name);
    if value.is_empty() {
        return Labels::from_sorted(others());
    }
    let before = others().take_while(|(at, _)| *at < name);
    let after = others().skip_while(|(at, _)| *at < name);
    Labels::from_sorted(before.chain(std::iter::once((name, value))).chain(after))
}
