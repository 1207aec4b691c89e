//! Parts of a table that can have rows that match a condition. Other parts are not read.

use tideline_engine::WideTable;
use tideline_engine::condition::{Node, Subject};
use tideline_engine::model::TierScope;
use tideline_engine::model::value::ValueKind;
use tideline_engine::rows::{ALL_PARTS, PartNumbers};

use crate::condition::RowMatcher;
use crate::error::{Result, RowsError};

/// Returns bounds of the numbers of the parts whose rows can match a condition. Returns all parts if the table is not
/// divided, or if an alternative of the condition does not limit the time.
pub(crate) fn parts_of(table: &WideTable, matcher: Option<&RowMatcher>) -> PartNumbers {
    let (Some(parts), Some(matcher)) = (&table.settings().parts, matcher) else {
        return ALL_PARTS;
    };
    let (first, last) = times_of(matcher.root(), &parts.by);
    parts.every.number_of(first)..=parts.every.number_of(last)
}

/// Returns an error if a read is limited to one tier, but the table has no tiers.
pub(crate) fn check_tier(table: &WideTable, tier: TierScope) -> Result<()> {
    if tier.is_all() || table.settings().parts.is_some() {
        return Ok(());
    }
    Err(RowsError::Invalid(format!(
        "tier is {tier}, and only tables that are divided into parts have tiers; omit it"
    )))
}

/// Returns bounds of the values that a column can have in rows that match a condition.
fn times_of(node: &Node, column: &str) -> (i64, i64) {
    const ALL: (i64, i64) = (i64::MIN, i64::MAX);
    match node {
        Node::And(nodes) => {
            let times = nodes.iter().map(|node| times_of(node, column));
            times.fold(ALL, |all, times| (all.0.max(times.0), all.1.min(times.1)))
        }
        Node::Or(nodes) => {
            let times = nodes.iter().map(|node| times_of(node, column));
            let joined = times.reduce(|all, times| (all.0.min(times.0), all.1.max(times.1)));
            joined.unwrap_or(ALL)
        }
        Node::Intervals {
            subject: Subject::Column(name),
            intervals,
            is_outside: false,
        } if &**name == column && intervals.kind() == Some(ValueKind::Number) => {
            let bounds = intervals.signed().first().zip(intervals.signed().last());
            bounds.map_or(ALL, |((first, _), (_, last))| (*first, *last))
        }
        _ => ALL,
    }
}
