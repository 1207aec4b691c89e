//! Functions that order the series of an instant query.
//!
//! The functions reorder the columns, and the result of an instant query keeps the order of its columns.

use std::cmp::Ordering;
use std::collections::HashSet;

use super::Scope;
use super::call::text_of;
use super::column::Column;
use crate::annotations::Annotation;
use crate::ast::TextRange;
use crate::error::Result;
use crate::plan::{Call, Function};

impl Scope<'_> {
    /// Evaluates `sort`, `sort_desc`, `sort_by_label` and `sort_by_label_desc`. The first two drop histograms.
    pub(super) fn sort_call(&self, call: &Call<'_>, at: TextRange) -> Result<Vec<Column>> {
        let mut columns = self.vector(&call.arguments[0])?;
        if !self.grid.is_instant() {
            self.annotate(&Annotation::SortInRangeQuery, at);
        }
        match call.function {
            Function::Sort | Function::SortDescending => {
                let before = super::cost(&columns);
                let floats = columns
                    .into_iter()
                    .filter_map(|column| match column.has_histograms() {
                        true => column.map_floats(|value| value),
                        false => Some(column),
                    });
                columns = floats.collect();
                self.budget().release(before - super::cost(&columns).min(before));
                match call.function {
                    Function::Sort => columns.sort_by(|a, b| by_value(a.values[0], b.values[0])),
                    _ => columns.sort_by(|a, b| by_falling_value(a.values[0], b.values[0])),
                }
            }
            _ => {
                let names = call.arguments[1..]
                    .iter()
                    .map(text_of)
                    .collect::<Result<Vec<_>>>()?;
                let names = names_in_use(&columns, &names);
                columns.sort_by(|a, b| by_labels(a, b, &names));
                if let Function::SortByLabelDescending = call.function {
                    columns.reverse();
                }
            }
        }
        Ok(columns)
    }
}

/// Compares by rising value, NaN last.
fn by_value(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Compares by falling value, NaN last.
pub(super) fn by_falling_value(a: f64, b: f64) -> Ordering {
    b.partial_cmp(&a).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Returns the names that at least one series has, each once. Other names do not change the order. A query can list
/// tens of thousands of names. A comparison of two series would look up each of them, and cannot be stopped.
fn names_in_use<'a>(columns: &[Column], names: &[&'a str]) -> Vec<&'a str> {
    let labels = columns.iter().flat_map(|column| column.labels.iter());
    let in_use: HashSet<&str> = labels.map(|(name, _)| name).collect();
    let mut seen = HashSet::new();
    let kept = names.iter().copied();
    kept.filter(|name| in_use.contains(name) && seen.insert(*name))
        .collect()
}

fn by_labels(a: &Column, b: &Column, names: &[&str]) -> Ordering {
    let [a_labels, b_labels] = [a, b].map(|column| &column.labels);
    names
        .iter()
        .map(|name| {
            let value = a_labels.get(name).unwrap_or_default();
            natural(value, b_labels.get(name).unwrap_or_default())
        })
        .find(|order| order.is_ne())
        .unwrap_or_else(|| a_labels.cmp(b_labels))
}

/// Compares runs of digits as numbers and everything else by bytes.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    while !a.is_empty() && !b.is_empty() {
        let ((chunk_a, rest_a), (chunk_b, rest_b)) = (split_chunk(a), split_chunk(b));
        let are_numbers = starts_with_digit(chunk_a) && starts_with_digit(chunk_b);
        let order = match are_numbers {
            true => by_digits(chunk_a, chunk_b),
            false => chunk_a.cmp(chunk_b),
        };
        if order.is_ne() {
            return order;
        }
        (a, b) = (rest_a, rest_b);
    }
    a.len().cmp(&b.len())
}

fn starts_with_digit(text: &str) -> bool {
    text.starts_with(|char: char| char.is_ascii_digit())
}

/// Splits off the leading run of digits or of other characters.
fn split_chunk(text: &str) -> (&str, &str) {
    let is_number = starts_with_digit(text);
    let end = text
        .find(|char: char| char.is_ascii_digit() != is_number)
        .unwrap_or(text.len());
    text.split_at(end)
}

/// Compares runs of digits of any length as numbers.
fn by_digits(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::Labels;

    #[test]
    fn names_that_no_series_has_are_not_compared() {
        let column = |name: &str| Column::constant(Labels::from_sorted([(name, "1")]), 1.0, 1);
        let columns = [column("a"), column("c")];
        assert_eq!(names_in_use(&columns, &["d", "c", "b", "a", "c"]), ["c", "a"]);
        assert!(names_in_use(&[], &["a"]).is_empty());
    }

    #[test]
    fn numbers_in_texts_compare_as_numbers() {
        let mut texts = ["b10", "b9", "b", "a100", "10", "9", "b9a", "b09", ""];
        texts.sort_by(|a, b| natural(a, b));
        assert_eq!(texts, ["", "9", "10", "a100", "b", "b9", "b09", "b9a", "b10"]);
    }
}
