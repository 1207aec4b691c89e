//! Blocked senders. The inbox and the unread counts of a user omit all messages of blocked senders, including messages
//! that were sent before the block. These messages appear again when the block ends.
//!
//! A blocked sender is a row without columns in the table of users, under (user, "", sender). Inboxes are filtered when
//! they are read, so blocks do not slow down senders.

use std::collections::BTreeSet;

use tideline_engine::backend::Direction;
use tideline_engine::key_codec::tuple::KeyValue;
use tideline_engine::rows::{Action, Image, RowWrite, RowWriteOptions};
use tideline_engine::{Engine, WideTable};
use tideline_rows::{Result, RowsError};

use crate::members::range_of;
use crate::message::{check_length, damaged};
use crate::read::begin_scan;

/// Maximum number of senders that a user can block.
pub const BLOCKS_MAX: usize = 1_000;

/// Blocks a sender for a user. Repeating the request is safe.
///
/// # Errors
///
/// [`RowsError::Invalid`] for an invalid name, [`RowsError::OverLimit`] if the user has blocked [`BLOCKS_MAX`] other
/// senders, and the errors of [`Engine::users_table`] and [`Engine::write_rows`].
pub fn block(engine: &Engine, table: &WideTable, user: &str, sender: &str) -> Result<()> {
    check_length("the user", user, "the request")?;
    check_length("the sender", sender, "the request")?;
    let mut blocked = blocked(engine, table, user)?;
    if blocked.insert(sender.to_owned()) && blocked.len() > BLOCKS_MAX {
        return Err(RowsError::over(
            "number of senders that a user has blocked",
            BLOCKS_MAX as u64,
            blocked.len() as u64,
        ));
    }
    write(engine, table, (user, sender), &Action::Put(Vec::new()))
}

/// Ends the block of a sender for a user. Repeating the request is safe.
///
/// # Errors
///
/// The errors of [`block`].
pub fn unblock(engine: &Engine, table: &WideTable, user: &str, sender: &str) -> Result<()> {
    write(engine, table, (user, sender), &Action::Delete)
}

/// Returns the senders that a user has blocked.
///
/// # Errors
///
/// [`RowsError::Damaged`] for a stored key that cannot be read, and the errors of [`Engine::users_table`] and of the
/// scan.
pub fn blocked(engine: &Engine, table: &WideTable, user: &str) -> Result<BTreeSet<String>> {
    let users = engine.users_table(table)?;
    let ranges = range_of(&users, &[user, ""])?;
    let mut scan = begin_scan(engine, &users, ranges, Direction::Ascending, BLOCKS_MAX);
    let mut senders = BTreeSet::new();
    while let Some(found) = scan.next_row()? {
        senders.extend(sender_of(&users, &found.row.key)?);
    }
    Ok(senders)
}

/// Returns the sender of a row that holds a block; `None` for other rows of the table of users.
pub(crate) fn sender_of(users: &WideTable, key: &[u8]) -> Result<Option<String>> {
    let key = users.layout().decode(key);
    match key.map_err(|error| damaged(users, error))?.as_slice() {
        [_, KeyValue::String(feed), KeyValue::String(sender)] => {
            Ok(feed.is_empty().then(|| sender.to_string()))
        }
        _ => Err(damaged(users, "the key of a user has other columns")),
    }
}

fn write(
    engine: &Engine,
    table: &WideTable,
    (user, sender): (&str, &str),
    action: &Action<'static>,
) -> Result<()> {
    let users = engine.users_table(table)?;
    let (key, partition) = users.encode_key(&[user, "", sender].map(|text| KeyValue::String(text.into())))?;
    let make = |next_id: &mut dyn FnMut() -> i64| {
        Ok(vec![RowWrite {
            key: key.clone(),
            partition,
            time: next_id(),
            action: action.clone(),
            condition: None,
            image: Image::None,
        }])
    };
    engine.write_rows(&users, &make, &RowWriteOptions::default())?;
    Ok(())
}
