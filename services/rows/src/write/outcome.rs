//! Outcomes of a write, one per row, and their stored form for idempotency keys.
//!
//! The outcome of a written row contains its complete key. This is the key of the request. If the server assigned the
//! id, or if the key has decimal columns, it is the stored key.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tideline_engine::key_codec::tuple::{KeyKind, KeyValue};
use tideline_engine::rows::{
    COLUMN_BYTES_MAX, Mutation, PARTS_MAX, ROW_BYTES_MAX, Refused, RowOutcome as EngineOutcome,
    RowWrite as EngineWrite, WRITE_BYTES_MAX,
};
use tideline_engine::{Engine, WideTable};
use tideline_openapi::row::{RowCounts, RowIntegers, RowOutcome, RowStatus};

use super::Outcomes;
use super::draft::{Draft, OTHER_OF_PARTITION, State};
use crate::error::{Result, RowsError};
use crate::key;
use crate::read::newest_position;
use crate::selection::{RowEncoder, Selection, write_key};

/// Outcomes that are stored with an idempotency key.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Remembered {
    pub(super) rows: Vec<RowOutcome>,
}

/// Returns the stored outcomes of an earlier request.
///
/// # Errors
///
/// [`RowsError::Damaged`] if they cannot be read, and the errors of [`Engine::check_reads`] and
/// [`Engine::check_tenant_reads`] if they contain rows: the earlier request can have had another token.
pub(super) fn repeated(engine: &Engine, table: &WideTable, stored: &RawValue) -> Result<Outcomes> {
    let Remembered { rows } = serde_json::from_str(stored.get()).map_err(|error| RowsError::Damaged {
        table: table.table().name().to_string(),
        reason: format!("a stored outcome cannot be read: {error}"),
    })?;
    if rows.iter().any(|row| row.row.is_some()) {
        engine.check_reads()?;
        engine.check_tenant_reads()?;
        charge_images(engine, &rows);
    }
    // The position of the earlier request is not stored. The newest one is after it, so a search that waits for it finds
    // the rows.
    let is_written = rows.iter().any(|row| row.status == RowStatus::Written);
    Ok(Outcomes {
        counts: counts_of(&rows),
        rows,
        repeated: true,
        position: is_written.then(|| newest_position(engine)),
    })
}

/// Charges the tenant of the request for the rows in the outcomes, like a read.
pub(super) fn charge_images(engine: &Engine, rows: &[RowOutcome]) {
    let images = rows.iter().filter_map(|row| row.row.as_ref());
    let bytes: usize = images.map(|image| image.get().len()).sum();
    if bytes > 0 {
        engine.charge_tenant_read(bytes as u64);
    }
}

pub(super) fn counts_of(rows: &[RowOutcome]) -> RowCounts {
    let mut counts = RowCounts::default();
    rows.iter().for_each(|row| counts.add(row.status));
    counts
}

/// Returns the outcomes of all rows. `writes` and `outcomes` have one element for each row that was passed to the
/// engine.
pub(super) fn outcomes_of(
    table: &WideTable,
    drafts: &[Draft],
    writes: &[EngineWrite<'_>],
    outcomes: &[EngineOutcome],
    integers: RowIntegers,
) -> Vec<RowOutcome> {
    // A decimal number in a key is stored without trailing zeros. The stored key can therefore differ from the key of
    // the request, so the stored key is returned.
    let mut logical = table.layout().logical().iter();
    let has_decimals = logical.any(|column| column.kind == KeyKind::Decimal);
    let selection = Selection::all(integers);
    let mut written = writes.iter().zip(outcomes);
    let to_outcome = |draft: &Draft| {
        let given = draft.key.as_ref().and_then(|key| {
            let values: Option<Vec<KeyValue<'_>>> = key.values.iter().cloned().collect();
            let mut out = Vec::new();
            key::write(table.layout(), &values?, integers, &mut out);
            raw(out)
        });
        let not_written = |status, reason: String| RowOutcome {
            key: given.clone(),
            reason: Some(reason),
            ..outcome(draft.index, status)
        };
        match &draft.state {
            State::Refused(reason) => return not_written(RowStatus::Refused, reason.clone()),
            State::Excluded(reason) => return not_written(RowStatus::NotApplied, (*reason).into()),
            State::Ready(_) => {}
        }
        let Some((write, result)) = written.next() else {
            return not_written(RowStatus::NotApplied, OTHER_OF_PARTITION.into());
        };
        let row = |image: &Option<Mutation<'static>>| {
            let mut out = Vec::new();
            selection
                .write_row(table, &write.key, image.as_ref()?, None, &mut out)
                .ok()?;
            raw(out)
        };
        match result {
            EngineOutcome::Written(image) => {
                let key = given.filter(|_| !has_decimals).or_else(|| {
                    let mut key = Vec::new();
                    write_key(table, &write.key, integers, &mut key).ok()?;
                    raw(key)
                });
                RowOutcome {
                    key,
                    row: row(image),
                    ..outcome(draft.index, RowStatus::Written)
                }
            }
            EngineOutcome::ConditionFailed(image) => RowOutcome {
                row: row(image),
                ..not_written(RowStatus::ConditionFailed, "the condition is not met".into())
            },
            EngineOutcome::NotApplied => not_written(RowStatus::NotApplied, OTHER_OF_PARTITION.into()),
            EngineOutcome::Refused(refused) => not_written(RowStatus::Refused, refused_text(table, refused)),
        }
    };
    drafts.iter().map(to_outcome).collect()
}

/// Returns the reason why a row was refused, for users.
pub fn refused_text(table: &WideTable, refused: &Refused) -> String {
    let name = |column| table.name_of(column).unwrap_or_default().to_owned();
    match refused {
        Refused::NotAnInteger(column) => {
            format!(
                "column {:?} holds no integer, so it cannot be incremented",
                name(column)
            )
        }
        Refused::Overflow(column) => {
            format!(
                "the sum of column {:?} is outside the range of its type",
                name(column)
            )
        }
        Refused::ColumnTooLarge(column, bytes) => {
            format!(
                "column {:?} with its versions would have {bytes} bytes, over the limit of {COLUMN_BYTES_MAX}",
                name(column)
            )
        }
        Refused::PartDropped(first) => {
            format!("the part of the row was dropped; the oldest part that is kept begins at {first}")
        }
        Refused::PartHidden(first) => {
            format!(
                "the part of the row is hidden, because it is older than parts.keep allows; the oldest part that is kept \
                 begins at {first}; a longer keep shows the part until it is dropped"
            )
        }
        Refused::PartClosed(first) => {
            format!(
                "the part of the row is closed for writes; the oldest part that can be written begins at {first}"
            )
        }
        Refused::PartArchived => {
            "the part of the row is in the archive; restore it before its rows are written".to_owned()
        }
        Refused::TooManyParts => format!(
            "the row would begin a further part of the table, which has {PARTS_MAX} parts already; drop old parts, or check \
             the time of the row"
        ),
        Refused::NotIndexable(reason) => reason.clone(),
        Refused::TooLarge(bytes) => {
            format!("the row would have {bytes} bytes, over the limit of {ROW_BYTES_MAX}")
        }
        Refused::WriteTooLarge(bytes) => format!(
            "the changes of the row and of its index entries would have {bytes} bytes, over the limit of \
             {WRITE_BYTES_MAX}; write fewer columns at once, or let the indexes cover fewer columns"
        ),
    }
}

/// Returns an outcome with only an index and a status.
pub(super) fn outcome(index: u64, status: RowStatus) -> RowOutcome {
    RowOutcome {
        index,
        status,
        key: None,
        row: None,
        reason: None,
        retryable: false,
    }
}

/// Converts bytes that contain JSON to a JSON value; `None` if the JSON is not valid.
pub(super) fn raw(json: Vec<u8>) -> Option<Box<RawValue>> {
    RawValue::from_string(String::from_utf8(json).ok()?).ok()
}
