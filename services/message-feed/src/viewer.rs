//! Messages of a feed as one user sees them.
//!
//! A viewer sees neither the messages whose lists `to` and `except` exclude the viewer, nor the messages of blocked
//! senders. The same applies to the events of these messages. A read without a viewer returns all messages.

use std::collections::BTreeSet;

use tideline_engine::feeds::FeedName;
use tideline_engine::model::TimelineId;
use tideline_engine::model::feed::SENDER;
use tideline_engine::rows::{CellValue, Mutation};
use tideline_engine::{Engine, EngineError, ErrorKind, WideTable};
use tideline_rows::Result;

use crate::blocks::blocked;
use crate::inbox::is_for;
use crate::members::INBOX;
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

/// Returns the user whose inbox a feed is; `None` for another feed, and if the feed does not exist.
///
/// # Errors
///
/// The errors of [`Engine::described_feed`], except that the feed does not exist.
pub fn inbox_user(engine: &Engine, table: &WideTable, feed: TimelineId) -> Result<Option<String>> {
    if table.feed().inboxes.is_none() {
        return Ok(None);
    }
    match engine.described_feed(table, feed) {
        Ok(feed) if feed.measurement == INBOX => {
            let mut tags = feed.tags.into_iter();
            Ok(tags.find(|(key, _)| key == "user").map(|(_, user)| user))
        }
        Ok(_) => Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the feed with a name, for a read on behalf of a user; `None` = any read. An inbox is only read by its user.
///
/// # Errors
///
/// [`EngineError::Forbidden`] for the inbox of another user, and the errors of [`Engine::feed`].
pub fn readable_feed(
    engine: &Engine,
    table: &WideTable,
    name: &FeedName,
    user: Option<&str>,
) -> Result<TimelineId> {
    let feed = engine.feed(table, name)?;
    let Some(user) = user else {
        return Ok(feed);
    };
    match inbox_user(engine, table, feed)?.filter(|of| of != user) {
        None => Ok(feed),
        Some(of) => Err(EngineError::Forbidden(not_readable(user, &of)).into()),
    }
}

/// Checks that a feed, which need not exist, can be changed on behalf of a user; `None` = any change. An inbox is only
/// changed on behalf of its user.
///
/// # Errors
///
/// [`EngineError::Forbidden`] for the inbox of another user, and the errors of [`inbox_user`].
pub fn check_writable(engine: &Engine, table: &WideTable, name: &FeedName, user: Option<&str>) -> Result<()> {
    let Some(user) = user.filter(|_| table.feed().inboxes.is_some()) else {
        return Ok(());
    };
    let of = match name {
        FeedName::Id(feed) => inbox_user(engine, table, *feed)?,
        FeedName::Key(key) if !key.starts_with(INBOX.as_bytes()) => None,
        FeedName::Key(_) => name
            .identity()
            .filter(|identity| identity.measurement() == INBOX)
            .and_then(|identity| identity.tag("user").map(str::to_owned)),
    };
    match of.filter(|of| of != user) {
        None => Ok(()),
        Some(of) => Err(EngineError::Forbidden(format!(
            "as: {user:?} cannot change the inbox of user {of:?}; name a feed that is no inbox, or omit `as`"
        ))
        .into()),
    }
}

/// Returns the error message for a read of data of another user.
pub fn not_readable(principal: &str, user: &str) -> String {
    format!(
        "as: {principal:?} cannot read what belongs to user {user:?}; name the principal in the path, or omit `as`"
    )
}
