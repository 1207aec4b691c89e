//! Rows of a request between their parsing and their write: keys, partitions and states.
//!
//! A row that is not valid excludes the other rows of its partition, because a partition is written as a whole.

use std::borrow::Borrow;

use bytes::Bytes;
use hashbrown::HashSet;
use tideline_engine::key_codec::tuple::KeyValue;
use tideline_engine::model::Timestamp;
use tideline_engine::rows::{Mutation, RowWrite as EngineWrite};
use tideline_engine::{Engine, EngineError, WideTable};
use tideline_openapi::row::{RowOperation, RowWrite};

use super::prepared::Prepared;
use crate::error::{Result, RowsError};
use crate::key;
use crate::transaction::Transaction;

/// Bytes that are allocated before a key is encoded. Typical keys are shorter, and then need one allocation.
const TYPICAL_KEY_BYTES: usize = 64;

/// Row of a request.
pub(super) struct Draft {
    pub(super) index: u64,
    /// Key of the row; `None` if it could not be read.
    pub(super) key: Option<DraftKey>,
    pub(super) state: State,
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
    /// The row is valid, but another row of its partition is not, so the row is not written.
    Excluded,
    /// The row is not valid; holds the reason.
    Refused(String),
}

impl Draft {
    /// Parses a row.
    pub(super) fn new(
        engine: &Engine,
        table: &WideTable,
        index: u64,
        row: std::result::Result<impl Borrow<RowWrite>, String>,
        now: Timestamp,
    ) -> Self {
        let row = match row {
            Ok(row) => row,
            Err(reason) => {
                return Self {
                    index,
                    key: None,
                    state: State::Refused(reason),
                };
            }
        };
        let row = row.borrow();
        let key = match DraftKey::new(table, row) {
            Ok(key) => key,
            Err(reason) => {
                return Self {
                    index,
                    key: None,
                    state: State::Refused(reason),
                };
            }
        };
        let prepared = Prepared::new(engine, table, row, now);
        Self {
            index,
            key: Some(key),
            state: prepared.map_or_else(State::Refused, |prepared| State::Ready(Box::new(prepared))),
        }
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
    fn new(table: &WideTable, row: &RowWrite) -> std::result::Result<Self, String> {
        let layout = table.layout();
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

/// Returns an error if a row belongs to another partition than the transaction.
pub(super) fn check_partition(drafts: &[Draft], transaction: &Transaction) -> Result<()> {
    let other = drafts.iter().find(|draft| {
        let key = draft.key.as_ref();
        key.is_some_and(|key| key.partition.as_deref() != Some(transaction.partition.as_slice()))
    });
    match other {
        None => Ok(()),
        Some(draft) => Err(RowsError::Invalid(format!(
            "rows/{} belongs to another partition than the elements of unchanged; a transaction covers one partition",
            draft.index
        ))),
    }
}

/// Excludes the valid rows of each partition that has an invalid row.
pub(super) fn exclude_partitions(drafts: &mut [Draft]) {
    let partition_of = |draft: &Draft| draft.key.as_ref()?.partition.clone();
    let refused = drafts
        .iter()
        .filter(|draft| matches!(draft.state, State::Refused(_)));
    let refused: HashSet<Bytes> = refused.filter_map(partition_of).collect();
    if refused.is_empty() {
        return;
    }
    for draft in drafts {
        let is_excluded = partition_of(draft).is_some_and(|partition| refused.contains(&partition));
        if is_excluded && matches!(draft.state, State::Ready(_)) {
            draft.state = State::Excluded;
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
