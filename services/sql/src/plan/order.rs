//! Order of the rows of an access path, and `ORDER BY`.
//!
//! A path returns rows in the order of the stored key columns after the bucket. A column that is fixed to one value
//! does not affect the order. A hash prefix does not affect it either, if each of its columns is fixed or earlier in
//! the order. After any other hash prefix, or after a reversed column whose value is not fixed, the rows are not sorted
//! by further logical columns.

use tideline_engine::WideTable;
use tideline_engine::key_codec::layout::ColumnOrigin;
use tideline_engine::key_codec::tuple::ColumnOrder;

use super::keys::Access;
use crate::error::{Position, Result, SqlError};
use crate::statement::OrderItem;

/// Returns the logical columns by which the rows of a path are sorted, each with true for descending order.
pub(super) fn of_path(table: &WideTable, access: &Access) -> Vec<(usize, bool)> {
    let mut order: Vec<(usize, bool)> = Vec::new();
    for column in access.layout(table).stored() {
        let is_descending = column.order() == ColumnOrder::Descending;
        let logical = column.logical();
        match column.origin() {
            ColumnOrigin::Bucket => continue,
            ColumnOrigin::HashPrefix => {
                let is_known = |number: &usize| {
                    access.is_fixed(*number) || order.iter().any(|(earlier, _)| earlier == number)
                };
                match column.hashed().unwrap_or_default().iter().all(is_known) {
                    true => continue,
                    false => return order,
                }
            }
            ColumnOrigin::Reverse if !access.is_fixed(logical.start) => return order,
            ColumnOrigin::Reverse | ColumnOrigin::Splice | ColumnOrigin::Logical => {}
        }
        order.extend(logical.map(|number| (number, is_descending)));
    }
    order
}

/// Returns true if the path must be read backward to return rows in the order of `ORDER BY`.
///
/// # Errors
///
/// [`SqlError::Refused`] if neither direction of the path returns its rows in this order.
pub(super) fn is_backward(
    table: &WideTable,
    access: &Access,
    path: &[(usize, bool)],
    order: &[OrderItem],
    at: Position,
) -> Result<bool> {
    let logical = access.layout(table).logical();
    let mut sorted = path.iter().filter(|(number, _)| !access.is_fixed(*number));
    let mut backward = None;
    let has_all_columns = path.len() == logical.len();
    for item in order {
        let number = logical.iter().position(|column| column.name == item.column.text);
        if number.is_some_and(|number| access.is_fixed(number)) {
            continue;
        }
        let Some((next, is_descending)) = sorted.next() else {
            // Keys are unique, so further columns cannot change the order.
            if has_all_columns {
                break;
            }
            return Err(refused(table, access, path, at));
        };
        let is_opposite = *is_descending != item.is_descending;
        if number != Some(*next) || backward.is_some_and(|backward| backward != is_opposite) {
            return Err(refused(table, access, path, at));
        }
        backward = Some(is_opposite);
    }
    Ok(backward.unwrap_or(false))
}

fn refused(table: &WideTable, access: &Access, path: &[(usize, bool)], at: Position) -> SqlError {
    let logical = access.layout(table).logical();
    let names = path
        .iter()
        .filter(|(number, _)| !access.is_fixed(*number))
        .map(|(number, is_descending)| {
            let direction = if *is_descending { " DESC" } else { "" };
            format!("{}{direction}", crate::statement::quoted(&logical[*number].name))
        });
    let names: Vec<String> = names.collect();
    let given = match names.is_empty() {
        true => "in the order of a hash or of reversed values".to_owned(),
        false => format!("in the order {}", names.join(", ")),
    };
    SqlError::refused(
        at,
        format!(
            "rows are not sorted: the conditions give them {given}, or in the opposite order. ORDER BY must be the \
             beginning of one of these; omit it and sort in the application, or use a table with the key in the wanted \
             order"
        ),
    )
}
