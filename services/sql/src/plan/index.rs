//! Choice between the primary key and the secondary indexes.
//!
//! An index is not used while it is being built, or if it does not cover the tiers of all parts that the statement
//! reads. A row without a value in an index column has no entry. An index is therefore used only if the conditions
//! exclude such rows: for each index column outside of the primary key, one of the conditions must be false for all
//! rows without a value in the column.

use std::sync::Arc;

use tideline_engine::indexes::Index;
use tideline_engine::model::TierScope;
use tideline_engine::rows::ColumnName;
use tideline_engine::{Engine, WideTable};
use tideline_openapi::row::ScanDirection;
use tideline_rows::Scan;
use tideline_rows::read::{NeededColumns, RangeTerms};

use super::{Access, AccessPath, filter_of, order};
use crate::statement::{ColumnTest, Comparison, Predicate, Select};

/// Returns the path with the most restricted key columns among the paths that return the rows in the requested order.
/// If there is no such path, returns the path of the primary key; the error message then describes this path.
pub(super) fn choose(engine: &Engine, table: &WideTable, primary: Access, select: &Select) -> Access {
    if primary.is_whole_key() {
        return primary;
    }
    let serves = |access: &Access| -> bool {
        let is_allowed = access.is_restricted() || select.allow_scan;
        let path = order::of_path(table, access);
        is_allowed && order::is_backward(table, access, &path, &select.order, select.order_at).is_ok()
    };
    let mut best: Option<Access> = None;
    for index in table.indexes().iter().filter(|index| index.is_ready()) {
        if !has_all_rows(table, index, primary.conditions()) {
            continue;
        }
        // An index is skipped if the conditions result in too many ranges of its key. Another path may be able to
        // execute the statement.
        let Ok(access) = primary.with_index(table, index) else {
            continue;
        };
        let is_better = best
            .as_ref()
            .is_none_or(|best| access.restrictions() > best.restrictions());
        if is_better
            && !access.is_whole_key()
            && serves(&access)
            && covers_tiers(engine, table, &access, select)
        {
            best = Some(access);
        }
    }
    let is_served = serves(&primary);
    match best {
        Some(best) if !is_served || best.restrictions() > primary.restrictions() => best,
        _ => primary,
    }
}

/// Returns true if the index of a path covers the tiers of all parts that the path reads.
fn covers_tiers(engine: &Engine, table: &WideTable, access: &Access, select: &Select) -> bool {
    let Some(index) = access.index().filter(|index| !index.tier().is_all()) else {
        return true;
    };
    let path = access.path(table, select.allow_scan, "SELECT");
    let (Ok(AccessPath::Ranges(ranges) | AccessPath::Table(ranges)), Ok(filter)) =
        (path, filter_of(table, access.filter()))
    else {
        return false;
    };
    let terms = RangeTerms {
        index: Some(index),
        needed: NeededColumns::All,
        direction: ScanDirection::Forward,
        filter: filter.as_ref(),
        tier: TierScope::All,
        page_token: None,
        encoder_terms: &[],
    };
    let scan = Scan::of_ranges(engine, table, ranges, &terms);
    scan.is_ok_and(|scan| scan.check_tiers(engine).is_ok())
}

/// Returns true if every row that meets the conditions has an entry in the index.
fn has_all_rows(table: &WideTable, index: &Arc<Index>, conditions: &[Predicate]) -> bool {
    let mut columns = index.layout().logical().iter();
    columns.all(|column| {
        let is_key = table.layout().has_column(&column.name);
        // A column that was declared after values were stored may hold values of another type. Rows with such values
        // have no entry.
        let has_one_type = matches!(table.column(&column.name).0, ColumnName::Declared(_));
        is_key
            || conditions
                .iter()
                .any(|condition| requires(condition, &column.name, has_one_type))
    })
}

/// Returns true if the condition is false for every row without a value of the declared type in the column.
fn requires(condition: &Predicate, column: &str, has_one_type: bool) -> bool {
    match condition {
        Predicate::And(all) => all
            .iter()
            .any(|condition| requires(condition, column, has_one_type)),
        Predicate::Or(any) => any
            .iter()
            .all(|condition| requires(condition, column, has_one_type)),
        Predicate::Test(name, test) => {
            name.text == column
                && match test {
                    ColumnTest::IsNull => false,
                    ColumnTest::IsNotNull
                    | ColumnTest::Compare(Comparison::NotEqual, _)
                    | ColumnTest::In(_, true)
                    | ColumnTest::Between(_, true)
                    | ColumnTest::Prefix(_, true) => has_one_type,
                    ColumnTest::Compare(..)
                    | ColumnTest::In(_, false)
                    | ColumnTest::Between(_, false)
                    | ColumnTest::Prefix(_, false) => true,
                }
        }
    }
}
