//! Rows of a request between their parsing and their write: keys, partitions and states.
//!
//! A row that is not valid excludes the other rows of its partition, because a partition is written as a whole. The
//! partition is determined even if the rest of the key is not valid. If it cannot be determined, the row could belong to
//! the partition of any other row, and therefore excludes all of them, unless the rows are lines.

use std::borrow::Borrow;

use bytes::Bytes;
use hashbrown::HashSet;
use tideline_engine::key_codec::layout::KeyLayout;
use tideline_engine::key_codec::tuple::KeyValue;
use tideline_engine::rows::{Mutation, RowWrite as EngineWrite};
use tideline_engine::{EngineError, WideTable};
use tideline_openapi::row::{Members, RowOperation, RowWrite};

use super::prepared::{Prepared, Preparer, Unprepared};
use crate::error::{Result, RowsError};
use crate::key;
use crate::transaction::Transaction;

/// Bytes that are allocated before a key is encoded. Typical keys are shorter, and then need one allocation.
const TYPICAL_KEY_BYTES: usize = 64;

/// Row of a request that could not be read.
pub(crate) struct Unreadable {
    /// Reason.
    pub(super) reason: String,
    /// Key of the row; `None` if it could not be read.
    pub(super) key: Option<Members>,
}

impl From<String> for Unreadable {
    fn from(reason: String) -> Self {
        Self { reason, key: None }
    }
}

/// Row of a request.
pub(super) struct Draft {
    pub(super) index: u64,
    /// Key of the row; `None` if it is not valid.
    pub(super) key: Option<DraftKey>,
    partition: Partition,
    pub(super) state: State,
}

/// Partition of a row.
enum Partition {
    /// Bytes that identify the partition.
    Known(Bytes),
    /// The partition depends on an id that the server assigns, so it has no other row.
    New,
    /// The partition cannot be determined.
    Unknown,
}

/// Key of a row.
pub(super) struct DraftKey {
    /// Values of the logical key columns; `None` for an id that the server assigns.
    pub(super) values: Vec<Option<KeyValue<'static>>>,
    /// Stored key; `None` if the server assigns an id.
    pub(super) stored: Option<Bytes>,
    /// Bytes that identify the partition; `None` if the partition depends on an id that the server assigns.
    pub(super) partition: Option<Bytes>,
}

/// Result of parsing a row.
pub(super) enum State {
    /// The row is valid, and is passed to the engine.
    Ready(Box<Prepared>),
    /// The row is valid, but is not written because another row is not valid; holds the reason.
    Excluded(&'static str),
    /// The row is not valid; holds the reason.
    Refused(String),
}

/// Reason of a row that is not written because of another row of its partition.
pub(super) const OTHER_OF_PARTITION: &str = "another row of its partition was not written";
/// Reason of a row that is not written because of another row of its transaction.
const OTHER_OF_TRANSACTION: &str = "another row of the transaction is not valid";
/// Reason of a row that is not written because the partition of another row cannot be determined.
const OTHER_UNKNOWN: &str = "the partition of another row, which is not valid, cannot be determined";

impl Draft {
    /// Parses a row.
    ///
    /// # Errors
    ///
    /// An error of the engine that does not result from the row, such as a lack of memory.
    pub(super) fn new(
        preparer: &mut Preparer<'_>,
        index: u64,
        row: std::result::Result<impl Borrow<RowWrite>, Unreadable>,
    ) -> Result<Self> {
        let layout = preparer.table().layout();
        let refused = |partition, reason| Self {
            index,
            key: None,
            partition,
            state: State::Refused(reason),
        };
        let row = match row {
            Ok(row) => row,
            Err(Unreadable { reason, key }) => {
                let partition = key.map_or(Partition::Unknown, |key| {
                    Partition::of_invalid(layout, &key, false)
                });
                return Ok(refused(partition, reason));
            }
        };
        let row = row.borrow();
        let key = match DraftKey::new(layout, row) {
            Ok(key) => key,
            Err(reason) => {
                let is_put = row.op == RowOperation::Put;
                return Ok(refused(Partition::of_invalid(layout, &row.key, is_put), reason));
            }
        };
        let state = match preparer.prepare(row) {
            Ok(prepared) => State::Ready(Box::new(prepared)),
            Err(Unprepared::Refused(reason)) => State::Refused(reason),
            Err(Unprepared::Failed(error)) => return Err(error),
        };
        Ok(Self {
            index,
            partition: key.partition.clone().map_or(Partition::New, Partition::Known),
            key: Some(key),
            state,
        })
    }

    /// Returns the key and the changes of a row that is passed to the engine; `None` for other rows.
    pub(super) fn ready(&self) -> Option<(&DraftKey, &Prepared)> {
        match (&self.key, &self.state) {
            (Some(key), State::Ready(prepared)) => Some((key, prepared)),
            _ => None,
        }
    }
}

impl DraftKey {
    /// Parses the key of a row, and checks that it can be stored.
    fn new(layout: &KeyLayout, row: &RowWrite) -> std::result::Result<Self, String> {
        let values = key::parse_values(layout, &row.key)?;
        let generated = layout.generated();
        let is_assigned = generated.is_some_and(|number| values[number].is_none());
        if let Some(number) = generated {
            let name = &layout.logical()[number].name;
            if is_assigned && row.op != RowOperation::Put {
                return Err(format!(
                    "the key has no value of the generated column {name:?}; give the id of the row, or use the \
                     operation put to create a row"
                ));
            }
            let must_not_exist = row.condition.as_ref().is_some_and(|it| it.exists == Some(false));
            if !is_assigned && must_not_exist {
                return Err(format!(
                    "the generated column {name:?} has a value, and the row must not exist; omit the value, so that \
                     the server assigns a new id"
                ));
            }
        }
        // An id that is not assigned yet is replaced by 0. The computed partition is used only if it does not depend on
        // the id.
        let complete: Vec<KeyValue<'_>> = values
            .iter()
            .map(|value| value.as_ref().map_or(KeyValue::Signed(0), KeyValue::borrowed))
            .collect();
        let mut stored = Vec::with_capacity(TYPICAL_KEY_BYTES);
        layout
            .encode(&complete, &mut stored)
            .map_err(|error| error.to_string())?;
        let partition = layout.partition_len(&stored).map_err(|error| error.to_string())?;
        let stored = Bytes::copy_from_slice(&stored);
        let partition = stored.slice(..partition);
        let is_known =
            !is_assigned || generated.is_none_or(|number| !layout.partition_columns().contains(&number));
        Ok(Self {
            values,
            stored: (!is_assigned).then_some(stored),
            partition: is_known.then_some(partition),
        })
    }
}

impl Partition {
    /// Determines the partition of a row whose key is not valid, from the columns that determine the partition. With
    /// `assigns_id`, the server would assign a missing id.
    fn of_invalid(layout: &KeyLayout, key: &Members, assigns_id: bool) -> Self {
        let mut values = vec![KeyValue::Signed(0); layout.logical().len()];
        for number in layout.partition_columns() {
            let column = &layout.logical()[*number];
            let json = match key.get(&column.name) {
                Some(json) => json,
                None if column.is_generated && assigns_id => return Self::New,
                None => return Self::Unknown,
            };
            match key::parse_value(&column.name, json, column.kind) {
                Ok(value) => values[*number] = value,
                Err(_) => return Self::Unknown,
            }
        }
        let mut partition = Vec::new();
        match layout.encode_partition(&values, &mut partition) {
            Ok(()) => Self::Known(partition.into()),
            Err(_) => Self::Unknown,
        }
    }
}

/// Returns an error if a row belongs to another partition than the transaction. A row whose partition cannot be
/// determined is not valid, and [`exclude_rows`] excludes the whole transaction.
pub(super) fn check_partition(drafts: &[Draft], transaction: &Transaction) -> Result<()> {
    let other = drafts.iter().find(|draft| match &draft.partition {
        Partition::Known(partition) => *partition != transaction.partition,
        Partition::New => true,
        Partition::Unknown => false,
    });
    match other {
        None => Ok(()),
        Some(draft) => Err(RowsError::Invalid(format!(
            "rows/{} belongs to another partition than the elements of unchanged; a transaction covers one partition",
            draft.index
        ))),
    }
}

/// Excludes the valid rows of each partition that has an invalid row. If the partition of an invalid row cannot be
/// determined, or if the rows are a transaction, excludes all valid rows. If the rows are lines, a row without a known
/// partition excludes no others: one damaged line must not stop hundreds of lines of other partitions.
pub(super) fn exclude_rows(drafts: &mut [Draft], is_transaction: bool, are_lines: bool) {
    let mut of_all = None;
    let mut refused = HashSet::new();
    for draft in drafts.iter() {
        if !matches!(draft.state, State::Refused(_)) {
            continue;
        }
        if is_transaction {
            of_all = Some(OTHER_OF_TRANSACTION);
        }
        match &draft.partition {
            Partition::Known(partition) => {
                refused.insert(partition.clone());
            }
            Partition::Unknown if !are_lines => of_all = of_all.or(Some(OTHER_UNKNOWN)),
            Partition::New | Partition::Unknown => {}
        }
    }
    if of_all.is_none() && refused.is_empty() {
        return;
    }
    for draft in drafts {
        let reason = match &draft.partition {
            Partition::Known(partition) if refused.contains(partition) => Some(OTHER_OF_PARTITION),
            _ => of_all,
        };
        if let Some(reason) = reason
            && matches!(draft.state, State::Ready(_))
        {
            draft.state = State::Excluded(reason);
        }
    }
}

/// Returns the write of a row for the engine.
pub(super) fn to_write<'w>(
    table: &'w WideTable,
    key: &'w DraftKey,
    prepared: &'w Prepared,
    time: i64,
    next_id: &mut dyn FnMut() -> i64,
) -> std::result::Result<EngineWrite<'w>, EngineError> {
    let layout = table.layout();
    let (stored, partition) = match (&key.stored, &key.partition) {
        (Some(stored), Some(partition)) => (stored.clone(), partition.len()),
        _ => with_id(table, &key.values, next_id)?,
    };
    let condition = prepared.condition.as_ref().map(|condition| {
        let key = stored.clone();
        let is_met = move |row: Option<&Mutation<'_>>| {
            let exists = condition.exists.is_none_or(|exists| exists == row.is_some());
            let matcher = condition.matcher.as_ref();
            exists && matcher.is_none_or(|matcher| matcher.matches(layout, &key, row))
        };
        Box::new(is_met) as tideline_engine::rows::RowCondition<'w>
    });
    Ok(EngineWrite {
        key: stored,
        partition,
        time,
        action: prepared.action(time),
        condition,
        image: prepared.image,
    })
}

/// Encodes a key with an id that the server assigns. Returns the key, and the length of its prefix that identifies the
/// partition.
fn with_id(
    table: &WideTable,
    values: &[Option<KeyValue<'static>>],
    next_id: &mut dyn FnMut() -> i64,
) -> std::result::Result<(Bytes, usize), EngineError> {
    let mut complete = Vec::with_capacity(values.len());
    for value in values {
        complete.push(match value {
            Some(value) => value.borrowed(),
            None => KeyValue::Signed(next_id()),
        });
    }
    table.encode_key(&complete)
}
