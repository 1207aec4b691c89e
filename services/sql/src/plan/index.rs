//! Choice between the primary key and the secondary indexes.
//!
//! An index is not used while it is being built, or if it does not cover the tiers of all parts that the statement
//! reads. A row without a value in an index column has no entry. An index is therefore used only if the conditions
//! exclude such rows: for each index column outside of the primary key, one of the conditions must be false for all
//! rows without a value in the column.

use tideline_engine::indexes::Index;
use tideline_engine::key_codec::tuple::KeyKind;
use tideline_engine::model::{ColumnType, TierScope};
use tideline_engine::rows::ColumnName;
use tideline_engine::{Engine, WideTable};
use tideline_openapi::row::ScanDirection;
use tideline_rows::Scan;
use tideline_rows::read::{NeededColumns, RangeTerms};

use super::{Access, AccessPath, filter_of, order};
use crate::statement::{ColumnTest, Comparison, Predicate, Select, quoted};

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
fn has_all_rows(table: &WideTable, index: &Index, conditions: &[Predicate]) -> bool {
    untested(table, index, conditions).next().is_none()
}

/// Returns the columns of the index, without which rows that meet the conditions have no entry.
fn untested<'i>(
    table: &WideTable,
    index: &'i Index,
    conditions: &[Predicate],
) -> impl Iterator<Item = &'i str> {
    let columns = index.layout().logical().iter();
    columns.map(|column| column.name.as_str()).filter(move |column| {
        let has_one_type = has_one_type(table, column);
        let is_tested = |condition: &Predicate| requires(condition, column, has_one_type);
        !table.layout().has_column(column) && !conditions.iter().any(is_tested)
    })
}

/// Returns true if all values of a column have its declared type. A column that was declared after values were stored
/// may hold values of another type. Rows with such values have no entry.
fn has_one_type(table: &WideTable, column: &str) -> bool {
    matches!(table.column(column).0, ColumnName::Declared(_))
}

/// Returns advice for a `SELECT` that no path serves: the index that would serve it, or the index to create. `None` if
/// no index would serve it.
pub(super) fn advice(table: &WideTable, access: &Access, select: &Select) -> Option<String> {
    existing(table, access, select).or_else(|| missing(table, access.conditions(), select))
}

/// Returns advice to use an index that the statement cannot use as it is.
fn existing(table: &WideTable, access: &Access, select: &Select) -> Option<String> {
    let candidates = table.indexes().iter().filter_map(|index| {
        let access = access.with_index(table, index).ok()?;
        let path = order::of_path(table, &access);
        let is_sorted = order::is_backward(table, &access, &path, &select.order, select.order_at).is_ok();
        let is_possible = is_sorted && access.is_restricted() && !access.is_whole_key();
        is_possible.then(|| (access.restrictions(), index))
    });
    let (_, index) = candidates.max_by_key(|(restrictions, _)| *restrictions)?;
    let name = quoted(index.name());
    if !index.is_ready() {
        return Some(format!(
            "wait until the index {name} is built by the job build_index"
        ));
    }
    let tests: Vec<String> = untested(table, index, access.conditions())
        .map(|column| missing_test(table, column))
        .collect();
    match tests.is_empty() {
        true => Some(format!(
            "read only parts of the tier {}, which the index {name} covers",
            index.tier().name()
        )),
        false => Some(format!(
            "add {}, and the index {name} serves the statement (it has no entry of a row without a value in one of its \
             columns)",
            tests.join(" and ")
        )),
    }
}

/// Returns the condition that excludes the rows without an entry because of a column, for messages.
fn missing_test(table: &WideTable, column: &str) -> String {
    match has_one_type(table, column) {
        true => format!("{} IS NOT NULL", quoted(column)),
        false => format!("a comparison of {} by =, IN or a range", quoted(column)),
    }
}

/// Returns the statement that creates an index for the conditions; `None` if an index cannot hold their columns.
fn missing(table: &WideTable, conditions: &[Predicate], select: &Select) -> Option<String> {
    let is_indexable = |name: &str| table.type_of(name).and_then(KeyKind::of).is_some();
    let (mut columns, mut bounded): (Vec<(&str, bool)>, Option<&str>) = (Vec::new(), None);
    for condition in conditions {
        let Predicate::Test(column, test) = condition else {
            continue;
        };
        let name = column.text.as_str();
        match test {
            ColumnTest::Compare(Comparison::Equal, _)
            | ColumnTest::In(_, false)
            | ColumnTest::SameText(_, false)
                if is_indexable(name) && !columns.iter().any(|(known, _)| *known == name) =>
            {
                columns.push((name, false));
            }
            ColumnTest::Compare(Comparison::Equal | Comparison::NotEqual, _) => {}
            ColumnTest::Prefix(text, false) if text.is_empty() => {}
            ColumnTest::Compare(..) | ColumnTest::Between(_, false) | ColumnTest::Prefix(_, false)
                if is_indexable(name) =>
            {
                bounded.get_or_insert(name);
            }
            _ => {}
        }
    }
    let equal = columns.len();
    for item in &select.order {
        let name = item.column.text.as_str();
        if !is_indexable(name) {
            return None;
        }
        if !columns.iter().any(|(known, _)| *known == name) {
            columns.push((name, item.is_descending));
        }
    }
    if let Some(name) = bounded.filter(|name| columns.iter().all(|(known, _)| known != name)) {
        columns.push((name, false));
    }
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let first = *names.first()?;
    let is_restricted = equal > 0 || bounded == Some(first);
    // A key that begins with a time or with generated ids is refused.
    let generated = table.layout().generated();
    let is_rising = table.type_of(first) == Some(ColumnType::Timestamp)
        || generated.is_some_and(|number| table.layout().logical()[number].name == first);
    if !is_restricted || is_rising {
        return None;
    }
    let written = columns.iter().map(|(name, is_descending)| match is_descending {
        true => format!("{} DESC", quoted(name)),
        false => quoted(name),
    });
    let untested = names.iter().filter(|name| {
        let tests = |condition: &Predicate| requires(condition, name, has_one_type(table, name));
        !table.layout().has_column(name) && !conditions.iter().any(tests)
    });
    let tests: Vec<String> = untested.map(|name| missing_test(table, name)).collect();
    let tests = match tests.is_empty() {
        true => String::new(),
        false => format!(", and add {}", tests.join(" and ")),
    };
    Some(format!(
        "create an index by CREATE INDEX {} ON {} ({}){tests}",
        quoted(&format!("by_{}", names.join("_"))),
        quoted(table.table().name().as_str()),
        written.collect::<Vec<_>>().join(", ")
    ))
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
                    | ColumnTest::Prefix(_, true)
                    | ColumnTest::SameText(_, true) => has_one_type,
                    ColumnTest::Compare(..)
                    | ColumnTest::In(_, false)
                    | ColumnTest::Between(_, false)
                    | ColumnTest::Prefix(_, false)
                    | ColumnTest::SameText(_, false) => true,
                }
        }
    }
}
