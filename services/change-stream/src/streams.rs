//! Streams, consumer groups and their checkpoints.
//!
//! Their state is in rows of the server ([`Engine::put_state`]), with a copy in memory. A change is stored before the
//! copy is changed, under one lock, so rows and copy agree. After an error of unknown outcome, the copy is read again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use tideline_engine::Engine;
use tideline_engine::model::{SequenceNumber, TableName, Timestamp};
use tideline_engine::state_table::StateRow;
use tideline_openapi::change::{
    ChangeKind, Checkpoint, Group, GroupSettings, GroupStart, Stream, StreamSettings,
};
use tideline_openapi::time::DurationText;
use tideline_webhooks::{Backoff, WebhookSender, WebhookSettings};

use crate::error::{ChangesError, Result};
use crate::hooks::{HookState, StoredHook, failed_count};
use crate::position::{PARTITIONS_MAX, Partition, Position};

/// Owner of the state rows.
pub(crate) const OWNER: &str = "changes";
/// Maximum number of streams.
pub const STREAMS_MAX: usize = 100;
/// Maximum number of consumer groups of a stream.
pub const GROUPS_MAX: usize = 100;
/// Maximum number of tables and prefixes of a stream.
pub const TABLES_MAX: usize = 100;

/// Settings of change streams.
#[derive(Debug, Clone)]
pub struct ChangeSettings {
    /// Time for which changes are kept for a stream that does not set one.
    pub retention: Duration,
    /// Maximum bytes of the journal that are kept only for change streams.
    pub bytes_max: u64,
    /// Hosts, networks and limits of webhooks; without hosts they are off.
    pub webhooks: WebhookSettings,
    /// Delays between the attempts of a delivery.
    pub backoff: Backoff,
}

impl Default for ChangeSettings {
    fn default() -> Self {
        Self {
            retention: Duration::from_secs(24 * 60 * 60),
            bytes_max: 1 << 30,
            webhooks: WebhookSettings::default(),
            backoff: Backoff {
                give_up_after: Duration::from_secs(24 * 60 * 60),
                ..Backoff::default()
            },
        }
    }
}

/// Change streams of a database.
#[derive(Debug)]
pub struct ChangeStreams {
    pub(crate) engine: Arc<Engine>,
    pub(crate) settings: ChangeSettings,
    /// Held while state is stored, and while changes are freed.
    pub(crate) writing: Mutex<()>,
    /// Sender of webhooks; `None` if they are off.
    pub(crate) sender: Option<WebhookSender>,
    /// Changed when a webhook is created, changed, deleted or can continue.
    pub(crate) webhooks_changed: tokio::sync::watch::Sender<()>,
    /// Webhooks whose failed deliveries are being replayed: stream and webhook.
    pub(crate) replaying: Mutex<BTreeSet<(String, String)>>,
    pub(crate) state: RwLock<BTreeMap<String, StreamState>>,
    pub(crate) counters: Counters,
    /// Sequences of the newest journal entries, if they hold only state of change streams. A checkpoint without entries
    /// between itself and the start of this range is not behind, because it lacks only these entries.
    own_entries: Mutex<Range<SequenceNumber>>,
}

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) records: AtomicU64,
    pub(crate) gaps: AtomicU64,
    pub(crate) kept_bytes: AtomicU64,
    /// Sequence below which a position has most of the bytes that may be kept after it.
    pub(crate) risk_before: AtomicU64,
    /// Number of times that changes were freed although a group or webhook still held them.
    pub(crate) overruns: AtomicU64,
    /// Requests of webhooks that were accepted.
    pub(crate) deliveries: AtomicU64,
    /// Requests of webhooks that failed, including those that are repeated.
    pub(crate) delivery_errors: AtomicU64,
    /// Deliveries that were given up.
    pub(crate) deliveries_failed: AtomicU64,
}

/// State of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StreamState {
    pub(crate) stored: StoredStream,
    pub(crate) groups: BTreeMap<String, GroupState>,
    pub(crate) webhooks: BTreeMap<String, HookState>,
}

/// Stored form of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredStream {
    pub(crate) settings: StreamSettings,
    /// Nanoseconds since 1970-01-01T00:00:00Z.
    created: i64,
    /// Cursor of the first change.
    pub(crate) from: String,
}

/// State of a consumer group.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GroupState {
    pub(crate) stored: StoredGroup,
    /// One for each partition.
    pub(crate) checkpoints: Vec<StoredCheckpoint>,
}

/// Stored form of a consumer group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredGroup {
    partitions: u16,
    pub(crate) hold: bool,
    /// Checkpoint of the partitions that have confirmed nothing.
    start: StoredCheckpoint,
}

/// Stored form of a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredCheckpoint {
    pub(crate) cursor: String,
    /// Nanoseconds since 1970-01-01T00:00:00Z.
    pub(crate) time: i64,
}

impl StoredCheckpoint {
    pub(crate) fn position(&self) -> Position {
        // Only cursors that were parsed are stored.
        self.cursor.parse().unwrap_or(Position::before(SequenceNumber(0)))
    }
}

impl StreamState {
    pub(crate) fn from(&self) -> Position {
        self.stored
            .from
            .parse()
            .unwrap_or(Position::before(SequenceNumber(0)))
    }
}

/// Figures of all change streams, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChangeSummary {
    /// Number of streams.
    pub streams: u64,
    /// Number of consumer groups.
    pub groups: u64,
    /// Largest number of journal entries between the checkpoint of a group, or the position up to which a webhook has
    /// read, and the newest change.
    pub lag_max: u64,
    /// Bytes of the journal that are kept only for change streams.
    pub kept_bytes: u64,
    /// Records that were read since the start.
    pub records: u64,
    /// Gaps that were reported since the start.
    pub gaps: u64,
    /// Number of times since the start that changes were freed although a group or webhook still held them.
    pub overruns: u64,
    /// Number of webhooks.
    pub webhooks: u64,
    /// Number of webhooks whose receivers accept no more deliveries.
    pub webhooks_paused: u64,
    /// Number of webhooks whose lists of failed deliveries are full.
    pub webhooks_stopped: u64,
    /// Requests of webhooks that were accepted since the start.
    pub deliveries: u64,
    /// Requests of webhooks that failed since the start.
    pub delivery_errors: u64,
    /// Deliveries that were given up since the start.
    pub deliveries_failed: u64,
}

/// Function that can refuse a stream. It gets the tables of the existing stream (`None` for a new one), and those of all
/// streams.
pub type Admit<'f> = dyn Fn(Option<&[String]>, &[Vec<String>]) -> Result<()> + 'f;

impl ChangeStreams {
    /// Reads the stored state.
    ///
    /// # Errors
    ///
    /// [`ChangesError::Invalid`] for invalid settings of webhooks, [`ChangesError::Internal`] for a row that this build
    /// cannot read, and the errors of [`Engine::state_rows`] and [`keep`](Self::keep).
    pub fn open(engine: Arc<Engine>, settings: ChangeSettings) -> Result<Self> {
        let state = read_state(&engine)?;
        let sender = match settings.webhooks.hosts.is_empty() {
            true => None,
            false => {
                let sender = WebhookSender::new(settings.webhooks.clone());
                Some(sender.map_err(|error| ChangesError::Invalid(format!("webhooks: {error}")))?)
            }
        };
        let streams = Self {
            engine,
            settings,
            writing: Mutex::default(),
            sender,
            webhooks_changed: tokio::sync::watch::Sender::new(()),
            replaying: Mutex::default(),
            state: RwLock::new(state),
            counters: Counters::default(),
            own_entries: Mutex::new(SequenceNumber(0)..SequenceNumber(0)),
        };
        streams.keep()?;
        if !streams.state.read().is_empty()
            && let Err(error) = streams.engine.note_tables()
        {
            tracing::warn!(%error, "the drop of a table before the restart is reported later");
        }
        Ok(streams)
    }

    /// Creates a stream with the changes from now on, or replaces its settings. Creating it again with the same
    /// settings changes nothing. `admit` can refuse the stream. It gets the tables of the existing stream (`None` for a
    /// new one) and those of all streams, which other requests change only after the call.
    ///
    /// # Errors
    ///
    /// [`ChangesError::Invalid`] for an invalid name or setting, and for the users of a feed table without this table;
    /// [`ChangesError::OverLimit`] for too many streams or tables; the errors of `admit`, and the errors of
    /// [`Engine::put_state`].
    pub fn put_stream(&self, name: &str, settings: &StreamSettings, admit: &Admit<'_>) -> Result<Stream> {
        check_name("stream", name)?;
        if settings.tables.len() > TABLES_MAX {
            return Err(over(
                "number of tables of a stream",
                TABLES_MAX,
                settings.tables.len(),
            ));
        }
        settings
            .tables
            .iter()
            .try_for_each(|pattern| check_pattern(pattern))?;
        self.check_owners(settings)?;
        let _writing = self.writing.lock();
        let known = self.state.read().get(name).map(|stream| stream.stored.clone());
        let count = self.state.read().len();
        let of_known = known.as_ref().map(|known| known.settings.tables.as_slice());
        admit(of_known, &self.all_tables())?;
        if known.is_none() && count >= STREAMS_MAX {
            return Err(over("number of change streams", STREAMS_MAX, count + 1));
        }
        let stored = match known {
            Some(known) => StoredStream {
                settings: settings.clone(),
                ..known
            },
            None => {
                if count == 0 {
                    // The journal must be kept before the first stream is stored.
                    self.engine.keep_changes(Some(self.engine.changes_end()))?;
                    // The drops of the existing tables are reported from now on.
                    self.engine.note_tables()?;
                }
                StoredStream {
                    settings: settings.clone(),
                    created: self.engine.now().nanos(),
                    from: Position::before(self.engine.changes_end()).to_string(),
                }
            }
        };
        self.put(&[row(&["stream", name], Some(&stored))])?;
        let mut state = self.state.write();
        let stream = state.entry(name.to_owned()).or_insert_with(|| StreamState {
            stored: stored.clone(),
            groups: BTreeMap::new(),
            webhooks: BTreeMap::new(),
        });
        stream.stored = stored;
        drop(state);
        self.stream(name)
    }

    /// Returns a stream.
    ///
    /// # Errors
    ///
    /// [`ChangesError::NotFound`] if it does not exist, and the errors of the backend.
    pub fn stream(&self, name: &str) -> Result<Stream> {
        let oldest = self.oldest_kept()?;
        let state = self.state.read();
        let stream = state.get(name).ok_or_else(|| no_stream(name))?;
        Ok(self.view(name, stream, oldest))
    }

    /// Returns the tables of a stream: names and prefixes, empty for all. `None` if the stream does not exist.
    pub fn tables_of(&self, name: &str) -> Option<Vec<String>> {
        let state = self.state.read();
        state
            .get(name)
            .map(|stream| stream.stored.settings.tables.clone())
    }

    /// Returns the tables of each stream: names and prefixes, empty for all.
    pub fn all_tables(&self) -> Vec<Vec<String>> {
        let state = self.state.read();
        let streams = state.values();
        streams
            .map(|stream| stream.stored.settings.tables.clone())
            .collect()
    }

    /// Returns all streams by name.
    ///
    /// # Errors
    ///
    /// The errors of the backend.
    pub fn all(&self) -> Result<Vec<Stream>> {
        let oldest = self.oldest_kept()?;
        let state = self.state.read();
        Ok(state
            .iter()
            .map(|(name, stream)| self.view(name, stream, oldest))
            .collect())
    }

    /// Returns the bytes of the journal that are kept only for change streams, and their limit.
    pub fn kept_bytes(&self) -> (u64, u64) {
        (
            self.counters.kept_bytes.load(Ordering::Relaxed),
            self.settings.bytes_max,
        )
    }

    /// Deletes a stream with its groups and webhooks. Changes that no other stream needs are freed.
    ///
    /// # Errors
    ///
    /// [`ChangesError::NotFound`] if it does not exist, and the errors of [`Engine::put_state`].
    pub fn delete_stream(&self, name: &str) -> Result<()> {
        let _writing = self.writing.lock();
        let stream = self.state_of(name)?;
        for webhook in stream.webhooks.keys() {
            self.remove_webhook(name, webhook)?;
        }
        for (group, state) in &stream.groups {
            self.put(&group_rows(name, group, state))?;
        }
        self.put(&[row::<()>(&["stream", name], None)])?;
        self.state.write().remove(name);
        self.keep_needed()
    }

    /// Creates a consumer group, or changes its `hold`. Creating it again changes no checkpoint.
    ///
    /// # Errors
    ///
    /// [`ChangesError::Invalid`] for an invalid name or cursor, [`ChangesError::OverLimit`] for too many groups or
    /// partitions, [`ChangesError::Conflict`] for another number of partitions, [`ChangesError::NotFound`] if the
    /// stream does not exist, and the errors of [`Engine::put_state`].
    pub fn put_group(&self, stream: &str, name: &str, settings: &GroupSettings) -> Result<Group> {
        check_name("group", name)?;
        Partition::new(0, settings.partitions)?;
        let _writing = self.writing.lock();
        let found = self.state_of(stream)?;
        let stored = match found.groups.get(name) {
            Some(known) if known.stored.partitions != settings.partitions => {
                return Err(ChangesError::Conflict(format!(
                    "group {name:?} has {} partitions, which cannot be changed; create another group",
                    known.stored.partitions
                )));
            }
            Some(known) => StoredGroup {
                hold: settings.hold,
                ..known.stored.clone()
            },
            None if found.groups.len() >= GROUPS_MAX => {
                return Err(over(
                    "number of groups of a stream",
                    GROUPS_MAX,
                    found.groups.len() + 1,
                ));
            }
            None => StoredGroup {
                partitions: settings.partitions,
                hold: settings.hold,
                start: self.start(&found, &settings.from)?,
            },
        };
        self.put(&[row(&["group", stream, name], Some(&stored))])?;
        let mut state = self.state.write();
        let found = state.get_mut(stream).ok_or_else(|| no_stream(stream))?;
        let group = found.groups.entry(name.to_owned()).or_insert_with(|| GroupState {
            checkpoints: vec![stored.start.clone(); usize::from(stored.partitions)],
            stored: stored.clone(),
        });
        group.stored = stored;
        Ok(self.view_of_group(name, group))
    }

    /// Returns a consumer group.
    ///
    /// # Errors
    ///
    /// [`ChangesError::NotFound`] if the stream or the group does not exist.
    pub fn group(&self, stream: &str, name: &str) -> Result<Group> {
        self.with_group(stream, name, |group| self.view_of_group(name, group))
    }

    /// Returns the consumer groups of a stream by name.
    ///
    /// # Errors
    ///
    /// [`ChangesError::NotFound`] if the stream does not exist.
    pub fn groups(&self, stream: &str) -> Result<Vec<Group>> {
        let state = self.state.read();
        let found = state.get(stream).ok_or_else(|| no_stream(stream))?;
        let groups = found.groups.iter();
        Ok(groups
            .map(|(name, group)| self.view_of_group(name, group))
            .collect())
    }

    /// Deletes a consumer group.
    ///
    /// # Errors
    ///
    /// [`ChangesError::NotFound`] if the stream or the group does not exist, and the errors of [`Engine::put_state`].
    pub fn delete_group(&self, stream: &str, name: &str) -> Result<()> {
        let _writing = self.writing.lock();
        let group = self.with_group(stream, name, GroupState::clone)?;
        self.put(&group_rows(stream, name, &group))?;
        if let Some(found) = self.state.write().get_mut(stream) {
            found.groups.remove(name);
        }
        Ok(())
    }

    /// Returns a partition of a group, and the position of its checkpoint.
    ///
    /// # Errors
    ///
    /// [`ChangesError::NotFound`] if the stream or the group does not exist, and [`ChangesError::Invalid`] if the
    /// partition does not.
    pub fn partition(&self, stream: &str, name: &str, number: u16) -> Result<(Partition, Position)> {
        self.with_group(stream, name, |group| {
            let partition = Partition::new(number, group.stored.partitions)?;
            Ok((partition, group.checkpoints[usize::from(number)].position()))
        })?
    }

    /// Moves the checkpoint of a partition. The new checkpoint is on stable storage on return.
    ///
    /// # Errors
    ///
    /// [`ChangesError::Conflict`] for a cursor before the checkpoint, unless `rewinds`; [`ChangesError::Invalid`] for a
    /// cursor after the newest change, or a partition that does not exist; [`ChangesError::NotFound`] if the stream or
    /// the group does not exist; and the errors of [`Engine::put_state`].
    pub fn confirm(
        &self,
        stream: &str,
        name: &str,
        (number, position): (u16, Position),
        rewinds: bool,
    ) -> Result<Checkpoint> {
        let position = self.check_reached(position)?;
        let _writing = self.writing.lock();
        let (_, current) = self.partition(stream, name, number)?;
        if position < current && !rewinds {
            return Err(ChangesError::Conflict(format!(
                "the cursor {position} is before the checkpoint {current} of partition {number}: another reader has \
                 confirmed more; set `rewind` to read the changes again"
            )));
        }
        let checkpoint = self.checkpoint(position);
        self.put(&[checkpoint_row(stream, name, number, Some(&checkpoint))])?;
        let mut state = self.state.write();
        let group = state.get_mut(stream).and_then(|found| found.groups.get_mut(name));
        if let Some(held) = group.and_then(|group| group.checkpoints.get_mut(usize::from(number))) {
            *held = checkpoint.clone();
        }
        Ok(self.view_of_checkpoint(number, &checkpoint))
    }

    /// Returns the figures of all streams.
    pub fn summary(&self) -> ChangeSummary {
        let state = self.state.read();
        let groups = || state.values().flat_map(|stream| stream.groups.values());
        let webhooks = || state.values().flat_map(|stream| stream.webhooks.values());
        let positions = groups()
            .flat_map(|group| &group.checkpoints)
            .map(StoredCheckpoint::position)
            .chain(webhooks().map(|webhook| webhook.reached));
        let lag = positions.map(|position| self.lag_of(position));
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ChangeSummary {
            streams: state.len() as u64,
            groups: groups().count() as u64,
            lag_max: lag.max().unwrap_or(0),
            kept_bytes: count(&self.counters.kept_bytes),
            records: count(&self.counters.records),
            gaps: count(&self.counters.gaps),
            overruns: count(&self.counters.overruns),
            webhooks: webhooks().count() as u64,
            webhooks_paused: webhooks()
                .filter(|webhook| webhook.stored.pause.is_some())
                .count() as u64,
            webhooks_stopped: webhooks().filter(|webhook| webhook.is_stopped()).count() as u64,
            deliveries: count(&self.counters.deliveries),
            delivery_errors: count(&self.counters.delivery_errors),
            deliveries_failed: count(&self.counters.deliveries_failed),
        }
    }

    /// Returns the largest lag of the partitions of each consumer group, with the name `stream/group`, by name.
    pub fn group_lags(&self) -> Vec<(String, u64)> {
        let state = self.state.read();
        let groups = state.iter().flat_map(|(stream, found)| {
            found
                .groups
                .iter()
                .map(move |(name, group)| (stream, name, group))
        });
        let lag = |group: &GroupState| {
            let positions = group.checkpoints.iter().map(StoredCheckpoint::position);
            positions.map(|position| self.lag_of(position)).max().unwrap_or(0)
        };
        groups
            .map(|(stream, name, group)| (format!("{stream}/{name}"), lag(group)))
            .collect()
    }

    /// Checks that the stream also has the feed table of each table of users that it names. The stream would have no
    /// change of the users otherwise.
    fn check_owners(&self, settings: &StreamSettings) -> Result<()> {
        for table in &settings.tables {
            if let Some(owner) = self.engine.owner_of_users(table)
                && !Self::has_table(settings, owner.as_str())
            {
                return Err(ChangesError::Invalid(format!(
                    "tables: {table} holds the users of the feed table {owner}, and a stream has their changes only together \
                     with those of the feed table; add {owner}"
                )));
            }
        }
        Ok(())
    }

    /// Returns true if a stream has the changes of a table.
    pub(crate) fn has_table(settings: &StreamSettings, table: &str) -> bool {
        let is_named = |wanted: &String| match wanted.strip_suffix('*') {
            Some(prefix) => table.starts_with(prefix),
            None => table == wanted,
        };
        settings.tables.is_empty() || settings.tables.iter().any(is_named)
    }

    /// Returns true if a stream has the changes of a kind.
    pub(crate) fn has_kind(settings: &StreamSettings, kind: ChangeKind) -> bool {
        settings.kinds.is_empty() || settings.kinds.contains(&kind)
    }

    /// Refuses a position after the newest change.
    pub(crate) fn check_reached(&self, position: Position) -> Result<Position> {
        let end = Position::before(self.engine.changes_end());
        match position > end {
            true => Err(ChangesError::Invalid(format!(
                "the cursor {position} is after the newest change, {end}; it belongs to another database, or to changes \
                 that were lost"
            ))),
            false => Ok(position),
        }
    }

    fn oldest_kept(&self) -> Result<Option<SequenceNumber>> {
        Ok(self.engine.kept_changes()?.from)
    }

    fn view(&self, name: &str, stream: &StreamState, oldest: Option<SequenceNumber>) -> Stream {
        let kept = Position::before(oldest.unwrap_or(SequenceNumber(0)));
        Stream {
            name: name.to_owned(),
            tables: stream.stored.settings.tables.clone(),
            kinds: stream.stored.settings.kinds.clone(),
            retention: stream.stored.settings.retention,
            created: rfc3339(stream.stored.created),
            oldest: stream.from().max(kept).to_string(),
            end: Position::before(self.engine.changes_end()).to_string(),
            groups: stream.groups.keys().cloned().collect(),
        }
    }

    fn with_group<T>(&self, stream: &str, name: &str, read: impl FnOnce(&GroupState) -> T) -> Result<T> {
        let state = self.state.read();
        let found = state.get(stream).ok_or_else(|| no_stream(stream))?;
        let group = found.groups.get(name);
        group.map(read).ok_or_else(|| ChangesError::NotFound {
            what: "consumer group",
            name: name.to_owned(),
        })
    }

    /// Returns the state of a stream.
    pub(crate) fn state_of(&self, stream: &str) -> Result<StreamState> {
        let found = self.state.read().get(stream).cloned();
        found.ok_or_else(|| no_stream(stream))
    }

    /// Returns the first checkpoint of a group or webhook.
    pub(crate) fn start(&self, stream: &StreamState, from: &GroupStart) -> Result<StoredCheckpoint> {
        Ok(self.checkpoint(match from {
            GroupStart::End => Position::before(self.engine.changes_end()),
            GroupStart::Oldest => stream.from(),
            GroupStart::Cursor(cursor) => self.check_reached(cursor.parse()?)?,
        }))
    }

    pub(crate) fn checkpoint(&self, position: Position) -> StoredCheckpoint {
        StoredCheckpoint {
            cursor: position.to_string(),
            time: self.engine.now().nanos(),
        }
    }

    /// Returns true if the journal has changes after a position.
    fn is_behind(&self, position: Position) -> bool {
        let end = self.engine.changes_end();
        let own = self.own_entries.lock();
        let is_own = own.end == end && self.engine.changes_between(position.sequence, own.start) == 0;
        position < Position::before(end) && !is_own
    }

    /// Returns the number of journal entries between a position and the newest change; at least 1 if there are changes.
    fn lag_of(&self, position: Position) -> u64 {
        let end = self.engine.changes_end();
        match self.is_behind(position) {
            true => self.engine.changes_between(position.sequence, end).max(1),
            false => 0,
        }
    }

    fn view_of_group(&self, name: &str, group: &GroupState) -> Group {
        let checkpoints = (0..).zip(&group.checkpoints);
        let checkpoints = checkpoints.map(|(number, checkpoint)| self.view_of_checkpoint(number, checkpoint));
        Group {
            name: name.to_owned(),
            hold: group.stored.hold,
            checkpoints: checkpoints.collect(),
        }
    }

    fn view_of_checkpoint(&self, partition: u16, checkpoint: &StoredCheckpoint) -> Checkpoint {
        // A position that is behind has a positive lag, so both are of the same moment.
        let lag = self.lag_of(checkpoint.position());
        Checkpoint {
            partition,
            cursor: checkpoint.cursor.clone(),
            time: rfc3339(checkpoint.time),
            behind: lag > 0,
            lag,
        }
    }

    /// Stores rows. The outcome of an error can be unknown, so the state is read again after an error.
    pub(crate) fn put(&self, rows: &[StateRow]) -> Result<()> {
        let stored = self.try_put(rows);
        if stored.is_err() {
            match read_state(&self.engine) {
                Ok(state) => *self.state.write() = state,
                Err(error) => {
                    tracing::warn!(%error, "the state of change streams could not be read again");
                }
            }
        }
        stored
    }

    /// Stores rows. After an error, it is unknown whether they are stored, and the state is not read again.
    pub(crate) fn try_put(&self, rows: &[StateRow]) -> Result<()> {
        let before = self.engine.changes_end();
        if let Some(sequence) = self.engine.put_state(OWNER, rows)? {
            let mut own = self.own_entries.lock();
            let follows = before == sequence && own.end == sequence;
            *own = if follows { own.start } else { sequence }..SequenceNumber(sequence.0 + 1);
        }
        Ok(())
    }
}

/// Returns the time for which a stream keeps changes.
pub(crate) fn retention_of(stream: &StreamState, settings: &ChangeSettings) -> Duration {
    let own = stream.stored.settings.retention.as_ref();
    own.map_or(settings.retention, |DurationText(nanos)| {
        Duration::from_nanos(nanos.unsigned_abs())
    })
}

fn read_state(engine: &Engine) -> Result<BTreeMap<String, StreamState>> {
    let rows = engine.state_rows(OWNER)?;
    let mut state: BTreeMap<String, StreamState> = BTreeMap::new();
    // Names hold no slash, so the parts of a name are unambiguous. Streams are read before groups, and these before
    // checkpoints.
    for wanted in ["stream", "group", "checkpoint", "webhook", "delivered"] {
        for found in &rows {
            let parts: Vec<&str> = found.name.split('/').collect();
            let value = found.value.as_deref().unwrap_or_default();
            match (wanted, parts.as_slice()) {
                ("stream", ["stream", name]) => {
                    let stored = parsed(&found.name, value)?;
                    let stream = StreamState {
                        stored,
                        groups: BTreeMap::new(),
                        webhooks: BTreeMap::new(),
                    };
                    state.insert((*name).to_owned(), stream);
                }
                ("group", ["group", stream, name]) => {
                    let stored: StoredGroup = parsed(&found.name, value)?;
                    if let Some(stream) = state.get_mut(*stream) {
                        let count = stored.partitions.min(PARTITIONS_MAX);
                        let checkpoints = vec![stored.start.clone(); usize::from(count)];
                        stream
                            .groups
                            .insert((*name).to_owned(), GroupState { stored, checkpoints });
                    }
                }
                ("checkpoint", ["checkpoint", stream, name]) => {
                    let stored: StoredCheckpoint = parsed(&found.name, value)?;
                    let group = state
                        .get_mut(*stream)
                        .and_then(|stream| stream.groups.get_mut(*name));
                    let number: Option<usize> = found.part.parse().ok();
                    if let (Some(group), Some(number)) = (group, number)
                        && let Some(held) = group.checkpoints.get_mut(number)
                    {
                        *held = stored;
                    }
                }
                ("webhook", ["webhook", stream, name]) => {
                    let stored: StoredHook = parsed(&found.name, value)?;
                    if let Some(stream) = state.get_mut(*stream) {
                        stream.webhooks.insert((*name).to_owned(), HookState::new(stored));
                    }
                }
                ("delivered", ["delivered", stream, name]) => {
                    let stored = parsed(&found.name, value)?;
                    let webhook = state
                        .get_mut(*stream)
                        .and_then(|stream| stream.webhooks.get_mut(*name));
                    if let Some(webhook) = webhook {
                        webhook.move_to(stored);
                    }
                }
                _ => {}
            }
        }
    }
    for (stream, found) in &mut state {
        for (name, webhook) in &mut found.webhooks {
            webhook.failed = failed_count(engine, stream, name)?;
            webhook.catches_up_to = Some(Position::before(engine.changes_end()));
        }
    }
    Ok(state)
}

pub(crate) fn parsed<T: for<'de> Deserialize<'de>>(name: &str, value: &str) -> Result<T> {
    serde_json::from_str(value).map_err(|error| {
        ChangesError::Internal(format!(
            "the stored state {name:?} of change streams cannot be read: {error}"
        ))
    })
}

/// Returns a state row. A value of `None` deletes the row.
pub(crate) fn row<T: Serialize>(name: &[&str], value: Option<&T>) -> StateRow {
    StateRow {
        name: name.join("/"),
        part: String::new(),
        value: value.map(|value| serde_json::to_string(value).unwrap_or_default()),
    }
}

fn checkpoint_row(stream: &str, group: &str, number: u16, value: Option<&StoredCheckpoint>) -> StateRow {
    StateRow {
        part: number.to_string(),
        ..row(&["checkpoint", stream, group], value)
    }
}

/// Returns the rows that delete a group.
fn group_rows(stream: &str, name: &str, group: &GroupState) -> Vec<StateRow> {
    let mut rows = vec![row::<()>(&["group", stream, name], None)];
    rows.extend((0..group.stored.partitions).map(|number| checkpoint_row(stream, name, number, None)));
    rows
}

pub(crate) fn rfc3339(nanos: i64) -> String {
    Timestamp::from_nanos_clamped(nanos).to_rfc3339()
}

/// Returns the error for a new stream whose name another stream has. It does not describe the other stream, which the
/// request may not see.
pub fn name_in_use(name: &str) -> ChangesError {
    ChangesError::Conflict(format!(
        "the name {name:?} is in use; names of change streams are shared by all users of the server, so choose another \
         name"
    ))
}

/// Returns the error for a stream that does not exist.
pub fn no_stream(name: &str) -> ChangesError {
    ChangesError::NotFound {
        what: "change stream",
        name: name.to_owned(),
    }
}

pub(crate) fn over(what: &'static str, limit: usize, actual: usize) -> ChangesError {
    ChangesError::OverLimit {
        what,
        limit: limit as u64,
        actual: actual as u64,
    }
}

/// Checks a name of a table, or a prefix of names that ends with `*`.
fn check_pattern(pattern: &str) -> Result<()> {
    let prefix = pattern.strip_suffix('*');
    if prefix == Some("") {
        return Ok(());
    }
    match TableName::new(prefix.unwrap_or(pattern)) {
        Ok(_) => Ok(()),
        Err(_) => {
            let shown: String = pattern.chars().take(80).collect();
            Err(ChangesError::Invalid(format!(
                "tables: {shown:?} is neither the name of a table nor a prefix that ends with `*`; a name has 1 to 64 \
                 characters of a-z, 0-9, _ and -"
            )))
        }
    }
}

/// Checks the name of a stream, group or webhook: 1 to 64 letters, digits, dots, dashes and underscores, but not a dot or
/// two dots alone, which clients remove from paths.
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let is_relative = matches!(name, "." | "..");
    match (1..=64).contains(&name.len()) && name.bytes().all(is_valid) && !is_relative {
        true => Ok(()),
        false => Err(ChangesError::Invalid(format!(
            "the name {name:?} of a {what} is not valid; use 1 to 64 letters, digits, dots, dashes and underscores, but \
             not `.` or `..`"
        ))),
    }
}
