//! Feeds that were written since a position in the journal, for readers that wait for messages.
//!
//! The changes are read from the recent journal entries, so no write is missed, whichever request or job made it. A
//! reader of a changed feed reads it again after its cursor, and may find nothing new.

use bytes::Bytes;
use hashbrown::HashSet;
use tideline_chunk::Delta;
use tideline_key_codec::tuple::KeyValue;
use tideline_model::feed::FAN_OUT;
use tideline_model::{ModelTag, SequenceNumber, TimelineId};
use tideline_wide_table::written_keys;

use crate::engine::Engine;
use crate::wide_table::WideTable;

/// Number of journal bytes of a table after which [`Engine::feed_changes`] returns.
const STEP_BYTES_MAX: usize = 4 << 20;

/// Changes of the feeds of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeedChanges {
    /// True if any feed and any user may have changed; `feeds` and `users` are incomplete then.
    pub is_any: bool,
    /// Feeds with new, changed or deleted messages, and deleted feeds.
    pub feeds: HashSet<TimelineId>,
    /// Users whose memberships or cursors were changed. An empty name means every user: the delivery of a feed was
    /// changed.
    pub users: HashSet<Box<str>>,
    /// Position in the journal to continue from: the end of the journal, or an earlier position if [`STEP_BYTES_MAX`]
    /// bytes were read before the end.
    pub next: SequenceNumber,
}

impl Engine {
    /// Returns the feeds of a table, and the users of its inboxes, that were written since a position in the journal.
    /// Changes that are no longer in memory, or cannot be read, and the drop of the table, are reported as
    /// [`FeedChanges::is_any`].
    pub fn feed_changes(&self, table: &WideTable, from: SequenceNumber) -> FeedChanges {
        let (feeds, next) = self.written_names(table, from);
        let (users, next_user) = match self.users_table(table) {
            Ok(users) => self.written_names(&users, from),
            Err(_) => (Some(HashSet::new()), next),
        };
        FeedChanges {
            is_any: feeds.is_none() || users.is_none() || self.check_exists(table.table()).is_err(),
            feeds: feeds
                .into_iter()
                .flatten()
                .filter_map(|feed| feed.parse().ok())
                .collect(),
            users: users.unwrap_or_default(),
            next: next.min(next_user),
        }
    }

    /// Returns the values of the first key column of the rows that were written since a position in the journal, and
    /// the position to continue from; `None` if they are not known.
    fn written_names(
        &self,
        table: &WideTable,
        from: SequenceNumber,
    ) -> (Option<HashSet<Box<str>>>, SequenceNumber) {
        let end = self.store.recent_end();
        let log = self.store.log();
        let Ok(page) = log.recent(table.table().points.id(), from, STEP_BYTES_MAX) else {
            return (None, end);
        };
        let mut names = HashSet::new();
        let mut entries = page.entries.iter();
        let are_known = entries.all(|entry| add_names(table, &entry.encoded, &mut names).is_some());
        (are_known.then_some(names), page.next)
    }
}

/// Adds the values of the first key column of the rows that an entry has written; `None` if they cannot be read. Ranges
/// of rows are deleted only when their feed is deleted. They need no case here, because a later entry of the catalog
/// holds the id of the feed.
fn add_names(table: &WideTable, entry: &Bytes, names: &mut HashSet<Box<str>>) -> Option<()> {
    if ModelTag::of(entry) != Some(ModelTag::WIDE) {
        let deleted = Delta::decode(entry).ok()?.delete;
        let deleted = deleted.into_iter().flat_map(|delete| delete.timelines);
        names.extend(deleted.map(|feed| feed.to_string().into_boxed_str()));
        return Some(());
    }
    for key in &written_keys(entry).ok()? {
        match table.layout().decode(key).ok()?.as_slice() {
            // The progress of a fan-out changes no inbox: before the fan-out, readers have read the messages from the
            // feed.
            [KeyValue::String(user), _, KeyValue::String(row)] if user.is_empty() && **row == *FAN_OUT => {}
            [KeyValue::String(name), ..] if names.contains(name.as_ref()) => {}
            [KeyValue::String(name), ..] => {
                names.insert(name.as_ref().into());
            }
            _ => return None,
        }
    }
    Some(())
}
