//! Vector matching by labels: groups the series of two vectors once, for all steps.

use std::collections::HashMap;

use super::Scope;
use super::column::Column;
use crate::ast::VectorMatching;
use crate::error::Result;
use crate::labels::{Labels, METRIC_NAME};

/// Series of both sides with equal matching labels.
#[derive(Debug, Default)]
pub(super) struct MatchGroup {
    /// Positions of the left series.
    pub(super) left: Vec<usize>,
    /// Positions of the right series.
    pub(super) right: Vec<usize>,
}

/// Groups the series of both sides. Groups are in the order of their first series, left side first. Fails if the query
/// ends early: a list of labels can be long, and each label of each series is compared with it.
pub(super) fn match_groups(
    scope: &Scope<'_>,
    left: &[Column],
    right: &[Column],
    matching: &VectorMatching,
) -> Result<Vec<MatchGroup>> {
    let mut positions: HashMap<Box<[u8]>, usize> = HashMap::with_capacity(left.len());
    let mut groups: Vec<MatchGroup> = Vec::with_capacity(left.len());
    let mut key = Vec::with_capacity(256);
    let mut position_of = |labels: &Labels, groups: &mut Vec<MatchGroup>| {
        write_key(labels, matching, &mut key);
        match positions.get(key.as_slice()) {
            Some(position) => *position,
            None => {
                positions.insert(key.as_slice().into(), groups.len());
                groups.push(MatchGroup::default());
                groups.len() - 1
            }
        }
    };
    for (at, column) in left.iter().enumerate() {
        scope.check_now_and_then(at)?;
        let position = position_of(&column.labels, &mut groups);
        groups[position].left.push(at);
    }
    for (at, column) in right.iter().enumerate() {
        scope.check_now_and_then(at)?;
        let position = position_of(&column.labels, &mut groups);
        groups[position].right.push(at);
    }
    Ok(groups)
}

/// Returns true if a label is a matching label.
fn counts(matching: &VectorMatching, name: &str) -> bool {
    let is_named = matching.labels.iter().any(|label| label == name);
    match matching.is_on {
        true => is_named,
        false => !is_named && name != METRIC_NAME,
    }
}

fn write_key(labels: &Labels, matching: &VectorMatching, key: &mut Vec<u8>) {
    key.clear();
    for (name, value) in labels.iter().filter(|(name, _)| counts(matching, name)) {
        push_text(key, name);
        push_text(key, value);
    }
}

/// Appends a text after its length, so that different lists of texts have different bytes.
pub(super) fn push_text(key: &mut Vec<u8>, text: &str) {
    key.extend_from_slice(&text.len().to_le_bytes());
    key.extend_from_slice(text.as_bytes());
}

/// Returns the matching labels.
pub(super) fn matching_labels(labels: &Labels, matching: &VectorMatching) -> Labels {
    labels.filtered(|name| counts(matching, name))
}
