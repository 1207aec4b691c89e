//! Feeds: timelines whose messages are rows of their table. The id of a feed is the partition key of its messages, so
//! the messages of a feed are one ordered range.
//!
//! A feed is added to the catalog before its first message is written. The deletion of a feed refuses new messages,
//! deletes the messages, and then removes the feed from the catalog. An interrupted deletion leaves the feed with some
//! of its messages, and can be repeated.
//!
//! The members of the feeds of a table are rows of a separate table, which is created and dropped together with the
//! feed table. The *audience* of a feed, its members with their inboxes, is cached. An inbox is a feed of the feed
//! table.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use parking_lot::{Condvar, Mutex};
use tideline_backend::Direction;
use tideline_chunk::Delta;
use tideline_ingest_protocols::series_key;
use tideline_key_codec::layout::Ranges;
use tideline_key_codec::tuple::KeyValue;
use tideline_model::feed::{INBOX, users_rows};
use tideline_model::{
    Durability, Identity, SeriesResolver as _, TableId, TableModel, TableName, TableSpec, TimeRange,
    TimelineId,
};
use tideline_series_store::StoreError;
use tideline_timeline_catalog::LastKey;
use tideline_wide_table::WideError;

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::find::{Stop, Timeline, described};
use crate::rows::RowPath;
use crate::system_table::check_not_system;
use crate::wide_table::WideTable;
use crate::write::introduced;

/// Feed of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedName {
    /// Id of a feed that exists.
    Id(TimelineId),
    /// Type and tags in the form of a series key: `type,tag=value,…`. A write creates the feed if it does not exist.
    Key(Bytes),
}

impl FeedName {
    /// Returns the name of a feed with this type and these tags.
    ///
    /// # Errors
    ///
    /// [`EngineError::Invalid`] for a text that a series key cannot hold: an empty one, one that ends with a backslash,
    /// or one with control characters.
    pub fn of(kind: &str, tags: &[(&str, &str)]) -> Result<Self> {
        let mut key = Vec::new();
        let written = series_key::write(kind, tags.iter().copied(), &mut key);
        written.map_err(|error| EngineError::Invalid(format!("type {kind:?}, tags {tags:?}: {error}")))?;
        Ok(Self::Key(key.into()))
    }

    /// Parses the name of a feed: 32 hexadecimal digits are an id; any other text is a key, which is checked when it is
    /// used.
    pub fn parse(text: &str) -> Self {
        text.parse()
            .map_or_else(|_| Self::Key(Bytes::copy_from_slice(text.as_bytes())), Self::Id)
    }

    /// Returns the type and the tags of a key; `None` for an id, and for a key that cannot be parsed.
    pub fn identity(&self) -> Option<Identity> {
        match self {
            Self::Id(_) => None,
            Self::Key(key) => series_key::parse(key).ok(),
        }
    }
}

/// Interval at which a reader that waits for writes tests whether its request was stopped.
const STOP_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of members of all cached audiences.
const CACHED_MEMBERS_MAX: usize = 1_000_000;

/// Member of a feed to whose inbox its messages are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    /// Name of the member.
    pub user: Box<str>,
    /// Id of the inbox.
    pub inbox: TimelineId,
    /// Lowest sequence number that the inbox shows.
    pub visible_from: i64,
}

/// Members of a feed to whose inboxes its messages are written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audience {
    /// The members. Empty while members read messages from the feed.
    pub members: Vec<Recipient>,
    /// True if a job writes new messages to the inboxes.
    pub is_fanned_out: bool,
    /// Lowest sequence number of the messages whose copies in inboxes are current. `None` while members read messages
    /// from the feed.
    pub copied_from: Option<i64>,
    /// Lowest sequence number of the messages whose changes also change their copies. Lower than `copied_from` while
    /// the delivery switches, because the copies of these messages can be current after the switch. `None` while new
    /// messages are not written to inboxes.
    pub changes_copied_from: Option<i64>,
    /// Ranges of sequence numbers that members read from the feed: the start and the end of each range. A range that
    /// has not ended has no end.
    pub pulled: Vec<(i64, Option<i64>)>,
}

impl Audience {
    /// Returns true while members read messages from the feed.
    pub fn is_pulled(&self) -> bool {
        self.pulled.last().is_some_and(|(_, end)| end.is_none())
    }
}

/// Cached audiences.
#[derive(Debug, Default)]
struct Audiences {
    by_feed: HashMap<(TableId, TimelineId), Arc<Audience>>,
    members: usize,
    /// Number of changes of members since the start. An audience that was read before a change is not cached after it.
    changes: u64,
}

/// Feeds that are being deleted, message ids that are being written, and cached audiences.
#[derive(Debug, Default)]
pub(crate) struct FeedClaims {
    audiences: Mutex<Audiences>,
    /// Versions that the running writes of messages have taken when they began. Deletions, changes of members and
    /// readers of several ranges wait for the writes with lower versions than their own.
    begun: Mutex<BTreeSet<i64>>,
    /// Signals the end of a write.
    ended: Condvar,
    deleting: Mutex<HashSet<(TableId, TimelineId)>>,
    message_ids: Mutex<HashSet<(TableId, TimelineId, Box<str>)>>,
}

/// Claim of a write on a feed and on its message ids. While it exists, the feed is not deleted, and other messages with
/// these ids are refused. It must exist until the write is committed or has failed, even if the request that began the
/// write has ended. It holds no lock, so it can be held while a task waits.
#[derive(Debug)]
pub struct FeedClaim {
    claims: Arc<FeedClaims>,
    table: TableId,
    feed: TimelineId,
    message_ids: Vec<Box<str>>,
    /// Version below all sequence numbers of the write.
    begun: i64,
}

impl Drop for FeedClaim {
    fn drop(&mut self) {
        self.claims.begun.lock().remove(&self.begun);
        self.claims.ended.notify_all();
        if self.message_ids.is_empty() {
            return;
        }
        let mut claimed = self.claims.message_ids.lock();
        for id in self.message_ids.drain(..) {
            claimed.remove(&(self.table, self.feed, id));
        }
    }
}

/// Mark of a feed that is being deleted.
struct Deletion<'e> {
    claims: &'e FeedClaims,
    feed: (TableId, TimelineId),
}

impl Drop for Deletion<'_> {
    fn drop(&mut self) {
        self.claims.deleting.lock().remove(&self.feed);
    }
}

impl Engine {
    /// Returns the id of a feed that exists.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSuchFeed`] if the feed does not exist, [`EngineError::Invalid`] for a key that cannot be
    /// parsed.
    pub fn feed(&self, table: &WideTable, name: &FeedName) -> Result<TimelineId> {
        let missing = |feed: String| EngineError::NoSuchFeed {
            table: table.table().name().clone(),
            feed,
        };
        let catalog = &table.table().catalog;
        match name {
            FeedName::Id(id) => {
                let known = catalog.reader().by_id(*id);
                known.map(|_| *id).ok_or_else(|| missing(id.to_string()))
            }
            FeedName::Key(key) => {
                if let Some(id) = self.known_feed(table, key) {
                    return Ok(id);
                }
                let identity = series_key::parse(key).map_err(|error| invalid_key(key, &error))?;
                let reader = catalog.reader();
                let known = reader.by_identity(&identity)?;
                known
                    .map(|ordinal| reader.id(ordinal))
                    .ok_or_else(|| missing(String::from_utf8_lossy(key).into_owned()))
            }
        }
    }

    /// Returns the id of an existing feed if the look-up needs no read of storage: for an id, or for a cached key.
    /// Returns `None` otherwise.
    pub fn cached_feed(&self, table: &WideTable, name: &FeedName) -> Option<TimelineId> {
        match name {
            FeedName::Id(_) => self.feed(table, name).ok(),
            FeedName::Key(key) => self.known_feed(table, key),
        }
    }

    /// Returns the id of a visible feed whose key is cached.
    fn known_feed(&self, table: &WideTable, key: &[u8]) -> Option<TimelineId> {
        let reader = table.table().catalog.reader();
        let ordinal = reader.by_key(key, &mut LastKey::default())?;
        reader.visible().contains(ordinal.0).then(|| reader.id(ordinal))
    }

    /// Returns the id of a feed, and creates the feed if it does not exist. A new feed is durable and can be found on
    /// return.
    ///
    /// # Errors
    ///
    /// The errors of [`feed`](Self::feed) for an id, [`EngineError::Invalid`] for a key that cannot be parsed or that is
    /// almost the name of an inbox, [`EngineError::FeedRefused`] at a limit of the table, and the errors of the commit.
    pub fn feed_or_new(&self, table: &WideTable, name: &FeedName) -> Result<TimelineId> {
        let FeedName::Key(key) = name else {
            return self.feed(table, name);
        };
        if let Some(id) = self.known_feed(table, key) {
            return Ok(id);
        }
        let identity = series_key::parse(key).map_err(|error| invalid_key(key, &error))?;
        check_new_inbox(table, &identity)?;
        self.check_writable()?;
        let table = table.table();
        let generation = table.points.timeline_generation();
        let ordinal = self
            .resolver(table)
            .resolve(key)
            .map_err(EngineError::FeedRefused)?;
        let (id, new_timelines) = {
            let reader = table.catalog.reader();
            let is_new = reader.needs_identity(ordinal);
            let new = is_new.then(|| introduced(&reader, ordinal));
            (reader.id(ordinal), new.into_iter().collect::<Vec<_>>())
        };
        if new_timelines.is_empty() {
            return Ok(id);
        }
        let delta = Delta {
            table: table.points.id(),
            timelines: vec![id],
            new_timelines,
            ..Delta::default()
        };
        self.commit_named(table, delta, Vec::new(), Durability::Synced, generation)?;
        self.index.notify();
        Ok(id)
    }

    /// Returns a visible feed with its type, tags and attributes. Unlike [`timeline`](Self::timeline), does not look up
    /// the time span of points, which feeds do not have.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSuchTimeline`] if the feed does not exist.
    pub fn described_feed(&self, table: &WideTable, feed: TimelineId) -> Result<Timeline> {
        let ordinal = self.visible(table.table(), feed)?;
        let described = table.table().describe(ordinal);
        described.ok_or_else(|| EngineError::NoSuchTimeline(feed.to_string()))
    }

    /// Returns a feed with its type, tags and attributes like [`described_feed`](Self::described_feed); also a feed that
    /// was removed since the start of the server.
    pub fn known_or_removed_feed(&self, table: &WideTable, feed: TimelineId) -> Option<Timeline> {
        let reader = table.table().catalog.reader();
        let entry = reader.known_entry(reader.known_by_id(feed)?)?;
        Some(described(&entry))
    }

    /// Claims a feed and message ids for a write.
    ///
    /// # Errors
    ///
    /// [`EngineError::FeedDeleting`] while the feed is deleted, [`EngineError::MessageRunning`] if a message with one
    /// of the ids is being written, and [`EngineError::Invalid`] if two ids are equal.
    pub fn claim_feed<'i>(
        &self,
        table: &WideTable,
        feed: TimelineId,
        message_ids: impl Iterator<Item = &'i str>,
    ) -> Result<FeedClaim> {
        let claims = &self.feed_claims;
        let id = table.table().points.id();
        let begun = {
            // The version is taken under the lock, so that no reader that holds it later misses the write.
            let mut running = claims.begun.lock();
            let begun = self.next_version();
            running.insert(begun);
            begun
        };
        let mut claim = FeedClaim {
            claims: Arc::clone(claims),
            table: id,
            feed,
            message_ids: Vec::new(),
            begun,
        };
        // A deletion sets its mark before it takes its version. So it waits for this claim, or its mark is found here.
        if claims.deleting.lock().contains(&(id, feed)) {
            return Err(EngineError::FeedDeleting(feed.to_string()));
        }
        for message_id in message_ids {
            let is_free = claims
                .message_ids
                .lock()
                .insert((id, feed, Box::from(message_id)));
            if !is_free {
                let is_own = claim.message_ids.iter().any(|claimed| **claimed == *message_id);
                return Err(match is_own {
                    true => EngineError::Invalid(format!(
                        "two messages of the request have the id {message_id:?}"
                    )),
                    false => EngineError::MessageRunning(message_id.to_owned()),
                });
            }
            claim.message_ids.push(Box::from(message_id));
        }
        Ok(claim)
    }

    /// Waits for the running writes of messages that began before a version, which the caller has taken from
    /// [`next_version`](Self::next_version). No message below the version appears afterwards. A reader of several
    /// ranges needs such a bound, because it reads one range after the other. Returns false if `stop` returned true
    /// meanwhile.
    pub fn wait_for_messages(&self, version: i64, stop: Stop<'_>) -> bool {
        let claims = &self.feed_claims;
        let mut running = claims.begun.lock();
        while running.first().is_some_and(|begun| *begun < version) {
            claims.ended.wait_for(&mut running, STOP_INTERVAL);
            if stop() {
                return false;
            }
        }
        true
    }

    /// Returns the range of the stored message keys of a feed, limited to sequence numbers.
    ///
    /// # Errors
    ///
    /// [`EngineError::Invalid`] for bounds that the key cannot hold.
    pub fn messages_of(
        &self,
        table: &WideTable,
        feed: TimelineId,
        (low, high): (Bound<i64>, Bound<i64>),
    ) -> Result<Ranges> {
        let feed = KeyValue::String(feed.to_string().into());
        let bounds = (low.map(KeyValue::Signed), high.map(KeyValue::Signed));
        let ranges = table.layout().ranges(&[feed], bounds);
        ranges.map_err(|error| EngineError::Invalid(error.to_string()))
    }

    /// Returns the audience of a feed if it is cached.
    pub fn cached_audience(&self, table: &WideTable, feed: TimelineId) -> Option<Arc<Audience>> {
        let audiences = self.feed_claims.audiences.lock();
        audiences.by_feed.get(&(table.table().points.id(), feed)).cloned()
    }

    /// Returns the audience of a feed; `read` reads it if it is not cached.
    ///
    /// # Errors
    ///
    /// The errors of `read`.
    pub fn audience<E>(
        &self,
        table: &WideTable,
        feed: TimelineId,
        read: impl FnOnce() -> std::result::Result<Audience, E>,
    ) -> std::result::Result<Arc<Audience>, E> {
        let key = (table.table().points.id(), feed);
        let audiences = &self.feed_claims.audiences;
        let changes = {
            let audiences = audiences.lock();
            if let Some(known) = audiences.by_feed.get(&key) {
                return Ok(Arc::clone(known));
            }
            audiences.changes
        };
        let audience = Arc::new(read()?);
        let mut audiences = audiences.lock();
        if audiences.changes == changes {
            let members = audience.members.len() + 1;
            if audiences.members + members > CACHED_MEMBERS_MAX {
                audiences.by_feed.clear();
                audiences.members = 0;
            }
            audiences.members += members;
            audiences.by_feed.insert(key, Arc::clone(&audience));
        }
        Ok(audience)
    }

    /// Ends the use of the audience of a feed, because its members were changed: returns when every write of messages
    /// that may use the previous audience has ended.
    pub fn audience_changed(&self, table: &WideTable, feed: TimelineId) {
        let claims = &self.feed_claims;
        {
            let mut audiences = claims.audiences.lock();
            audiences.changes += 1;
            let known = audiences.by_feed.remove(&(table.table().points.id(), feed));
            audiences.members -= known.map_or(0, |known| known.members.len() + 1);
        }
        self.wait_for_messages(self.next_version(), &|| false);
    }

    /// Returns the table of the users of a feed table.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoInboxes`] if the feed table has no table of users, and the errors of
    /// [`table_of_rows`](Self::table_of_rows) except a refused access: a principal that may use the feed table may use
    /// its users.
    pub fn users_table(&self, table: &WideTable) -> Result<Arc<WideTable>> {
        let name = table.table().name();
        match table.feed().inboxes {
            Some(_) => self.known_rows(&users_name(name)),
            None => Err(EngineError::NoInboxes(name.clone())),
        }
    }

    /// Creates the table of the users of a new feed table. A table of users that an interrupted creation or drop has
    /// left is replaced: it may hold the members of the dropped feed table. The caller holds the lock of the list of
    /// tables.
    pub(crate) fn create_users(&self, name: &TableName, spec: &TableSpec) -> Result<()> {
        if spec.feed.is_none_or(|feed| feed.inboxes.is_none()) {
            return Ok(());
        }
        // An earlier edit with an unknown outcome may have created or dropped the feed table.
        self.store.log().settle().map_err(StoreError::from)?;
        match self.store.table(name.as_str()) {
            Err(StoreError::NoSuchTable(_)) => {}
            // The creation of the feed table fails, because the name is in use. The users of that table stay.
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let users = TableName::new(&users_name(name)).map_err(|_| {
            EngineError::Invalid(format!(
                "table {name}: its users are in a table with {USERS_SUFFIX} after this name, so it can have at most {} \
                 characters",
                64 - USERS_SUFFIX.len()
            ))
        })?;
        if let Ok(left) = self.store.table(users.as_str())
            && left.spec().users_of.as_ref() == Some(name)
        {
            self.store.drop_table(users.as_str())?;
        }
        let mut spec = TableSpec {
            model: TableModel::Wide,
            durability: spec.durability,
            wide: Some(Box::new(users_rows())),
            users_of: Some(name.clone()),
            ..TableSpec::default()
        };
        self.check_rows(&users, &mut spec, None)?;
        self.add_table(users, spec)?;
        Ok(())
    }

    /// Refuses to drop a table of users while its feed table exists. For a feed table with inboxes, returns the name of
    /// its table of users.
    pub(crate) fn check_droppable(&self, name: &str) -> Result<Option<TableName>> {
        let Ok(table) = self.known_table(name) else {
            return Ok(None);
        };
        check_not_system(&table)?;
        let spec = table.spec();
        if let Some(owner) = &spec.users_of
            && self.known_table(owner.as_str()).is_ok()
        {
            return Err(EngineError::UsersTable {
                table: table.name().clone(),
                owner: owner.clone(),
            });
        }
        let has_users = spec.feed.is_some_and(|feed| feed.inboxes.is_some());
        Ok(has_users
            .then(|| TableName::new(&users_name(table.name())).ok())
            .flatten())
    }

    /// Deletes a feed with its messages and attributes. `stop` is called between pages of messages. A feed that gets a
    /// message later is created again with the same id.
    ///
    /// # Errors
    ///
    /// [`EngineError::FeedDeleting`] if another request deletes the feed, and the errors of
    /// [`delete_rows`](Self::delete_rows), for example if the part of the first message or a later part cannot be
    /// written. Some of the messages may be deleted then, and the deletion can be repeated.
    pub fn delete_feed(&self, table: &Arc<WideTable>, feed: TimelineId, stop: Stop<'_>) -> Result<()> {
        let claims = &self.feed_claims;
        let marked = (table.table().points.id(), feed);
        if !claims.deleting.lock().insert(marked) {
            return Err(EngineError::FeedDeleting(feed.to_string()));
        }
        let _deletion = Deletion { claims, feed: marked };
        // Waits for the writes that began before the mark.
        self.wait_for_messages(self.next_version(), &|| false);
        let messages = self.messages_of(table, feed, (Bound::Unbounded, Bound::Unbounded))?;
        match self.delete_rows(table, &messages.ranges, None, stop) {
            // A part of the table cannot be written. This does not matter if all messages of the feed are newer.
            Err(EngineError::Rows(WideError::PartClosed { .. } | WideError::PartArchived(_))) => {
                let newer = self.messages_from_first_part(table, feed, messages)?;
                self.delete_rows(table, &newer.ranges, None, stop)?;
            }
            deleted => deleted?,
        }
        let removed = self.remove_timelines(table.table(), &[feed], TimeRange::ALL);
        // Runs even after an error, because the feed may have been removed nevertheless.
        self.inbox_removed(table, feed);
        removed?;
        self.forget_removed(table.table())
    }

    /// Ends the use of the audiences with this feed as an inbox, because the feed was removed. The next reader or
    /// writer of such an audience reads its members, and creates their inboxes again.
    fn inbox_removed(&self, table: &WideTable, feed: TimelineId) {
        let id = table.table().points().id();
        let mut audiences = self.feed_claims.audiences.lock();
        audiences.changes += 1;
        let Audiences { by_feed, members, .. } = &mut *audiences;
        by_feed.retain(|(of, _), audience| {
            let has_inbox = *of == id && audience.members.iter().any(|member| member.inbox == feed);
            if has_inbox {
                *members -= audience.members.len() + 1;
            }
            !has_inbox
        });
    }

    /// Returns the range of the stored message keys of a feed, beginning with the part of the first message. `messages`
    /// is the range of all messages of the feed.
    fn messages_from_first_part(
        &self,
        table: &Arc<WideTable>,
        feed: TimelineId,
        messages: Ranges,
    ) -> Result<Ranges> {
        let (path, direction) = (RowPath::Primary, Direction::Ascending);
        let mut scan = self.scan_rows(Arc::clone(table), path, messages, direction, None, 1);
        let first = match scan.next_row()? {
            None => None,
            Some(found) => {
                let key = table.layout().decode(&found.row.key);
                let key = key.map_err(|error| EngineError::Invalid(error.to_string()))?;
                match key.last() {
                    Some(KeyValue::Signed(sequence)) => Some(*sequence),
                    _ => None,
                }
            }
        };
        let now = self.store.trusted_now().now.nanos();
        let start_of_part = |sequence| {
            let every = table.settings().parts.as_ref().map(|parts| parts.every);
            every.map_or(i64::MIN, |every| every.start_of(every.number_of(sequence)))
        };
        let low = Bound::Included(start_of_part(first.unwrap_or(now)));
        self.messages_of(table, feed, (low, Bound::Unbounded))
    }
}

/// End of the name of a table of users.
const USERS_SUFFIX: &str = "-users";

fn users_name(table: &TableName) -> String {
    format!("{table}{USERS_SUFFIX}")
}

/// Refuses a new feed of the type of inboxes with other tags than an inbox. Users would take it for an inbox, but nothing
/// is ever delivered to it. Earlier builds have created such feeds.
fn check_new_inbox(table: &WideTable, identity: &Identity) -> Result<()> {
    let is_inbox = matches!(identity.tags(), [(key, _)] if key == "user");
    if table.feed().inboxes.is_none() || identity.measurement() != INBOX || is_inbox {
        return Ok(());
    }
    if table.table().catalog.reader().by_identity(identity)?.is_some() {
        return Ok(());
    }
    Err(EngineError::Invalid(format!(
        "in table {}, a feed of the type {INBOX} is the inbox of a user and has only the tag `user`, such as \
         `{INBOX},user=ann`; use another type",
        table.table().name()
    )))
}

fn invalid_key(key: &[u8], error: &tideline_model::SeriesError) -> EngineError {
    EngineError::Invalid(format!(
        "feed {:?}: {error}; name a feed by its id, or by its type and tags as in `room,name=lobby`",
        String::from_utf8_lossy(key)
    ))
}
