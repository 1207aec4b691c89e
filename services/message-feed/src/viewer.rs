//! Messages of a feed as one user sees them.
//!
//! A viewer does not see the messages that their lists `to` and `except` keep from it, and those of senders that it has
//! blocked. The same holds for their events. A read without a viewer returns all messages.

use std::collections::BTreeSet;

use tideline_engine::model::feed::SENDER;
use tideline_engine::rows::{CellValue, Mutation};
use tideline_engine::{Engine, WideTable};
use tideline_rows::Result;

use crate::blocks::blocked;
use crate::inbox::is_for;
use crate::message::{check_length, newest};

/// User on whose behalf messages are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Viewer {
    pub(crate) user: String,
    /// Senders that the user has blocked.
    blocked: BTreeSet<String>,
}

impl Viewer {
    /// Returns a user with the senders that the user has blocked now. The user need not be a member of any feed.
    ///
    /// # Errors
    ///
    /// [`RowsError::Invalid`](tideline_rows::RowsError::Invalid) for an invalid name, and the errors of [`blocked`].
    pub fn new(engine: &Engine, table: &WideTable, user: &str) -> Result<Self> {
        check_length("the principal", user, "the request")?;
        // A table without inboxes has neither blocks nor lists.
        let blocked = match table.feed().inboxes {
            Some(_) => blocked(engine, table, user)?,
            None => BTreeSet::new(),
        };
        Ok(Self::with_blocked(user, blocked))
    }

    /// Returns a user with the senders that the user has blocked.
    pub(crate) fn with_blocked(user: &str, blocked: BTreeSet<String>) -> Self {
        Self {
            user: user.to_owned(),
            blocked,
        }
    }

    /// Returns true if the user sees a message.
    pub(crate) fn sees(&self, table: &WideTable, message: &Mutation<'_>) -> bool {
        let is_blocked = !self.blocked.is_empty()
            && matches!(newest(table, message, SENDER), Some(CellValue::String(sender)) if self.blocked.contains(&**sender));
        !is_blocked && is_for(table, message, &self.user)
    }
}
