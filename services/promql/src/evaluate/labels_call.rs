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
use crate::quote::quote;

/// Maximum length, in bytes, of a label value that `label_replace` or `label_join` makes. The length is checked before
/// the value is built, because nested calls can double a value at each level.
const VALUE_BYTES_MAX: usize = 64 << 10;

impl Scope<'_> {
    /// Evaluates `label_replace(vector, target, replacement, source, expression)`.
    pub(super) fn label_replace(&self, arguments: &[Node<'_>]) -> Result<Vec<Column>> {
        let (target, replacement) = (text_of(&arguments[1])?, text_of(&arguments[2])?);
        let (source, expression) = (text_of(&arguments[3])?, text_of(&arguments[4])?);
        let pattern = self.pattern_with_groups(expression)?;
        let bytes = usize::try_from(pattern.bytes_with_groups()).unwrap_or(usize::MAX);
        let mut held = self.budget().bytes(bytes)?;
        let regex = pattern.compile().map_err(|error| too_large(&error))?;
        check_name(&arguments[1], "destination", "label_replace")?;
        let mut columns = self.vector(&arguments[0])?;
        // Results by source value, because many series share values; `None` if the expression does not match.
        let mut results: HashMap<String, Option<String>> = HashMap::new();
        // Each reference to a group begins with a dollar sign and inserts at most the whole source value.
        let references = replacement.matches('$').count();
        for (position, column) in columns.iter_mut().enumerate() {
            self.check_now_and_then(position)?;
            let value = column.labels.get(source).unwrap_or_default();
            if !results.contains_key(value) {
                let mut result = None;
                if let Some(captures) = regex.captures(value.as_bytes()) {
                    let length_max = replacement.len() + references * value.len();
                    check_length("label_replace", target, length_max)?;
                    let mut bytes = Vec::new();
                    captures.expand(replacement.as_bytes(), &mut bytes);
                    // The input is UTF-8, so captures consist of whole characters.
                    result = Some(String::from_utf8_lossy(&bytes).into_owned());
                }
                let texts = value.len() + result.as_ref().map_or(0, String::len);
                held.grow(texts + size_of::<(String, Option<String>)>())?;
                results.insert(value.to_owned(), result);
            }
            if let Some(result) = &results[value] {
                self.set_label(column, target, result)?;
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
        for (position, column) in columns.iter_mut().enumerate() {
            self.check_now_and_then(position)?;
            let values: Vec<&str> = sources
                .iter()
                .map(|source| column.labels.get(source).unwrap_or_default())
                .collect();
            let separators = separator.len() * values.len().saturating_sub(1);
            let length = separators + values.iter().map(|value| value.len()).sum::<usize>();
            check_length("label_join", target, length)?;
            let joined = values.join(separator);
            self.set_label(column, target, &joined)?;
        }
        self.merged_held(columns, true)
    }

    /// Sets a label, or removes it if the value is empty. Reserves memory if the labels become longer.
    fn set_label(&self, column: &mut Column, name: &str, value: &str) -> Result<()> {
        let labels = with_label(&column.labels, name, value);
        self.budget().hold_longer_labels(&column.labels, &labels)?;
        column.labels = labels;
        if name == METRIC_NAME {
            column.drops_name = false;
        }
        Ok(())
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

/// Fails if a label value of this length is too long. The length can be an upper bound.
fn check_length(function: &str, target: &str, length: usize) -> Result<()> {
    if length > VALUE_BYTES_MAX {
        return Err(PromqlError::TooMany(format!(
            "{function}(): the value of label {} could have {length} bytes, at most {VALUE_BYTES_MAX} are allowed; \
             combine fewer or shorter texts",
            quote(target)
        )));
    }
    Ok(())
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
