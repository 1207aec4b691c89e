//! Feeds: timelines whose messages are rows of their table. The id of a feed is the partition key of its messages, so the
//! messages of a feed are one ordered range.
//!
//! A feed is catalogued before its first message is written. The deletion of a feed refuses new messages, deletes the
//! messages, and then removes the feed from the catalog. An interrupted deletion leaves the feed with some of its
//! messages, and can be repeated.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashSet;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tideline_chunk::Delta;
use tideline_ingest_protocols::series_key;
use tideline_key_codec::layout::Ranges;
use tideline_key_codec::tuple::KeyValue;
use tideline_model::{Durability, SeriesResolver as _, TableId, TimeRange, TimelineId};
use tideline_timeline_catalog::LastKey;

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::find::Stop;
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
    /// Parses the name of a feed: 32 hexadecimal digits are an id; any other text is a key, which is checked when it is
    /// used.
    pub fn parse(text: &str) -> Self {
        text.parse()
            .map_or_else(|_| Self::Key(Bytes::copy_from_slice(text.as_bytes())), Self::Id)
    }
}

/// Feeds that are being deleted, and message ids that are being written.
#[derive(Debug, Default)]
pub(crate) struct FeedClaims {
    /// Held by writes of messages, so that a deletion can wait for those that began before it.
    writing: RwLock<()>,
    deleting: Mutex<HashSet<(TableId, TimelineId)>>,
    message_ids: Mutex<HashSet<(TableId, TimelineId, Box<str>)>>,
}

/// Claim of a write on a feed and on its message ids. While it exists, the feed is not deleted, and other messages with
/// these ids are refused.
#[derive(Debug)]
pub struct FeedClaim<'e> {
    engine: &'e Engine,
    table: TableId,
    feed: TimelineId,
    message_ids: Vec<Box<str>>,
    _writing: RwLockReadGuard<'e, ()>,
}

impl Drop for FeedClaim<'_> {
    fn drop(&mut self) {
        if self.message_ids.is_empty() {
            return;
        }
        let mut claimed = self.engine.feed_claims.message_ids.lock();
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
    /// [`EngineError::NoSuchFeed`] if the feed does not exist, [`EngineError::Invalid`] for a key that cannot be parsed.
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
    /// The errors of [`feed`](Self::feed) for an id, [`EngineError::FeedRefused`] at a limit of the table, and the errors
    /// of the commit.
    pub fn feed_or_new(&self, table: &WideTable, name: &FeedName) -> Result<TimelineId> {
        let FeedName::Key(key) = name else {
            return self.feed(table, name);
        };
        if let Some(id) = self.known_feed(table, key) {
            return Ok(id);
        }
        series_key::parse(key).map_err(|error| invalid_key(key, &error))?;
        self.check_writable()?;
        let table = table.table();
        let generation = table.points.timeline_generation();
        let ordinal = self
            .resolver(table)
            .resolve(key)
            .map_err(EngineError::FeedRefused)?;
        let (id, new_timelines) = {
            let reader = table.catalog.reader();
            let is_new = reader.needs_announcement(ordinal);
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

    /// Claims a feed and message ids for a write.
    ///
    /// # Errors
    ///
    /// [`EngineError::FeedDeleting`] while the feed is deleted, [`EngineError::MessageRunning`] if a message with one of
    /// the ids is being written, and [`EngineError::Invalid`] if two ids are equal.
    pub fn claim_feed<'i>(
        &self,
        table: &WideTable,
        feed: TimelineId,
        message_ids: impl Iterator<Item = &'i str>,
    ) -> Result<FeedClaim<'_>> {
        let claims = &self.feed_claims;
        let id = table.table().points.id();
        let writing = claims.writing.read();
        if claims.deleting.lock().contains(&(id, feed)) {
            return Err(EngineError::FeedDeleting(feed.to_string()));
        }
        let mut claim = FeedClaim {
            engine: self,
            table: id,
            feed,
            message_ids: Vec::new(),
            _writing: writing,
        };
        for message_id in message_ids {
            if claim.message_ids.iter().any(|claimed| **claimed == *message_id) {
                return Err(EngineError::Invalid(format!(
                    "two messages of the request have the id {message_id:?}"
                )));
            }
            let is_free = claims
                .message_ids
                .lock()
                .insert((id, feed, Box::from(message_id)));
            if !is_free {
                return Err(EngineError::MessageRunning(message_id.to_owned()));
            }
            claim.message_ids.push(Box::from(message_id));
        }
        Ok(claim)
    }

    /// Returns the range of the stored keys of the messages of a feed, limited to sequence numbers.
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

    /// Deletes a feed with its messages and attributes. `stop` is called between pages of messages. A feed that gets a
    /// message later is created again with the same id.
    ///
    /// # Errors
    ///
    /// [`EngineError::FeedDeleting`] if another request deletes the feed, and the errors of
    /// [`delete_rows`](Self::delete_rows). Some of the messages may be deleted then, and the deletion can be repeated.
    pub fn delete_feed(&self, table: &Arc<WideTable>, feed: TimelineId, stop: Stop<'_>) -> Result<()> {
        let claims = &self.feed_claims;
        let marked = (table.table().points.id(), feed);
        if !claims.deleting.lock().insert(marked) {
            return Err(EngineError::FeedDeleting(feed.to_string()));
        }
        let _deletion = Deletion { claims, feed: marked };
        // Waits for the writes that began before the mark.
        drop(claims.writing.write());
        let messages = self.messages_of(table, feed, (Bound::Unbounded, Bound::Unbounded))?;
        self.delete_rows(table, &messages.ranges, None, stop)?;
        self.remove_timelines(table.table(), vec![feed], TimeRange::ALL)?;
        self.forget_removed(table.table())
    }
}

fn invalid_key(key: &[u8], error: &tideline_model::SeriesError) -> EngineError {
    EngineError::Invalid(format!(
        "feed {:?}: {error}; name a feed by its id, or by its type and tags as in `room,name=lobby`",
        String::from_utf8_lossy(key)
    ))
}
