//! Messages of a feed as one user sees them.
//!
//! A viewer sees neither the messages whose lists `to` and `except` exclude the viewer, nor the messages of blocked
//! senders. The same applies to the events of these messages. A read without a viewer returns all messages.

use std::collections::BTreeSet;

use tideline_engine::feeds::FeedName;
use tideline_engine::model::TimelineId;
use tideline_engine::model::feed::{EVENT, INBOX, SENDER, TARGET_SENDER};
use tideline_engine::rows::{CellValue, Mutation};
use tideline_engine::{Engine, EngineError, ErrorKind, WideTable};
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

    /// Returns true if the user sees a message. The user sees an event if the user sees its message, and does not see it
    /// otherwise. The principal of the change does not matter.
    pub(crate) fn sees(&self, table: &WideTable, message: &Mutation<'_>) -> bool {
        let is_blocked = !self.blocked.is_empty()
            && matches!(author(table, message), Some(CellValue::String(author)) if self.blocked.contains(&**author));
        !is_blocked && is_for(table, message, &self.user)
    }
}

/// Returns the sender of a message; for an event, the sender of the message that it changes. Events of earlier builds have
/// only the principal who has made the change.
fn author<'r>(table: &WideTable, message: &'r Mutation<'_>) -> Option<&'r CellValue<'r>> {
    newest(table, message, EVENT)
        .and_then(|_| newest(table, message, TARGET_SENDER))
        .or_else(|| newest(table, message, SENDER))
}

/// Returns the user whose inbox a feed is; `None` for another feed, and if the feed does not exist.
///
/// # Errors
///
/// The errors of [`Engine::described_feed`], except that the feed does not exist.
pub fn inbox_user(engine: &Engine, table: &WideTable, feed: TimelineId) -> Result<Option<String>> {
    let tags = tags_of(engine, table, &FeedName::Id(feed))?;
    Ok(user_of_inbox(tags))
}

/// Returns the user to whom a feed belongs, as [`inbox_user`] does; also for a feed of the type of inboxes with further
/// tags, which earlier builds have created. Such a feed is no inbox, but only its user can read and change it.
pub(crate) fn owner_of(engine: &Engine, table: &WideTable, feed: TimelineId) -> Result<Option<String>> {
    let tags = tags_of(engine, table, &FeedName::Id(feed))?;
    Ok(user_tag(tags))
}

/// Returns the tags of a feed of the type of inboxes, which need not exist if it is named by its key; no tags for another
/// feed, and for an id that does not exist.
fn tags_of(engine: &Engine, table: &WideTable, name: &FeedName) -> Result<Vec<(String, String)>> {
    let none = Ok(Vec::new());
    if table.feed().inboxes.is_none() {
        return none;
    }
    match name {
        FeedName::Id(feed) => match engine.described_feed(table, *feed) {
            Ok(feed) if feed.measurement == INBOX => Ok(feed.tags),
            Ok(_) => none,
            Err(error) if error.kind() == ErrorKind::NotFound => none,
            Err(error) => Err(error.into()),
        },
        FeedName::Key(key) if !may_name_inbox(key) => none,
        FeedName::Key(_) => match name.identity() {
            Some(identity) if identity.measurement() == INBOX => Ok(identity.tags().to_vec()),
            _ => none,
        },
    }
}

/// Returns the user whose inbox has these tags: an inbox has only the tag `user`.
fn user_of_inbox(tags: Vec<(String, String)>) -> Option<String> {
    match tags.len() {
        1 => user_tag(tags),
        _ => None,
    }
}

fn user_tag(tags: Vec<(String, String)>) -> Option<String> {
    let mut tags = tags.into_iter();
    tags.find(|(key, _)| key == "user").map(|(_, user)| user)
}

/// Returns true if a feed is an inbox, or was one and was deleted since the start of the server.
pub fn was_inbox(engine: &Engine, table: &WideTable, feed: TimelineId) -> bool {
    if table.feed().inboxes.is_none() {
        return false;
    }
    let known = engine.known_or_removed_feed(table, feed);
    known.is_some_and(|feed| feed.measurement == INBOX && feed.tags.iter().any(|(key, _)| key == "user"))
}

/// Returns false if a key is certainly not the name of an inbox. A key that begins with a line feed consists of labels, of
/// which one is the type of the feed.
pub fn may_name_inbox(key: &[u8]) -> bool {
    key.starts_with(INBOX.as_bytes()) || key.starts_with(b"\n")
}

/// Returns the user whose inbox has a name; `None` for another feed. The inbox need not exist.
///
/// # Errors
///
/// The errors of [`inbox_user`].
pub fn named_inbox_user(engine: &Engine, table: &WideTable, name: &FeedName) -> Result<Option<String>> {
    Ok(user_of_inbox(tags_of(engine, table, name)?))
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
    match owner_of(engine, table, feed)?.filter(|of| of != user) {
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
    let Some(user) = user else {
        return Ok(());
    };
    match user_tag(tags_of(engine, table, name)?).filter(|of| of != user) {
        None => Ok(()),
        Some(of) => Err(EngineError::Forbidden(format!(
            "as: {user:?} cannot change the inbox of user {of:?}; name a feed that is no inbox, or omit `as`"
        ))
        .into()),
    }
}

/// Returns the error message for a change of data of another user.
pub fn not_changeable(principal: &str, user: &str) -> String {
    format!(
        "as: {principal:?} cannot change what belongs to user {user:?}; name the principal in the path, or omit `as`"
    )
}

/// Returns the error message for a read of data of another user.
pub fn not_readable(principal: &str, user: &str) -> String {
    format!(
        "as: {principal:?} cannot read what belongs to user {user:?}; name the principal in the path, or omit `as`"
    )
}
