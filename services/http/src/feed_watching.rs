//! Shared state of all readers that wait for messages of feeds: watches, and requests that wait for a first message.
//!
//! 1. A commit wakes a single task, regardless of the number of readers. The task determines which feeds were
//!    written since its last run, and signals the readers of these feeds. Without readers it does nothing.
//! 2. A reader that is signalled reads its feed after its cursor. Messages are stored, so a reader misses none, however
//!    slow it is and however often it connects again.
//! 3. Watches of one feed in the same form share the pages that one of them has read and encoded.
//!
//! A reader of an inbox waits for its entries, for the feeds whose messages it pulls, and for changes of the memberships of
//! its user.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tideline_engine::WideTable;
use tideline_engine::feed_changes::FeedChanges;
use tideline_engine::model::{SequenceNumber, TableId, TimelineId};
use tideline_message_feed::MessageEncoder;
use tokio::sync::Notify;

use crate::app::{App, WeakApp};
use crate::live::{SharedSteps, StepCounters};

/// Time in which changes are collected, so that one run of the task handles many small writes.
const GATHER: Duration = Duration::from_millis(2);

/// Shared state of all readers that wait for messages.
#[derive(Debug, Default)]
pub(crate) struct FeedWatching {
    /// Wakes the task.
    news: Arc<Notify>,
    is_running: AtomicBool,
    tables: Mutex<HashMap<TableId, Readers>>,
    last_reader: AtomicU64,
    /// Steps of watches of feeds.
    pub(crate) steps: StepCounters,
}

/// Readers of the feeds of a table.
#[derive(Debug)]
struct Readers {
    table: Arc<WideTable>,
    /// Position in the journal up to which the readers were signalled.
    position: SequenceNumber,
    feeds: HashMap<TimelineId, FeedReaders>,
    /// Readers of inboxes, by user.
    users: HashMap<Box<str>, HashMap<u64, Arc<Signal>>>,
}

/// Readers of a feed.
#[derive(Debug, Default)]
struct FeedReaders {
    /// Number of changes of the feed that were signalled.
    version: Arc<AtomicU64>,
    signals: HashMap<u64, Arc<Signal>>,
    /// Pages of the watches of the feed, by their form.
    pages: Vec<(PageForm, Weak<SharedSteps<i64>>)>,
}

/// Form of the pages of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageForm {
    /// Encoder of the messages.
    pub(crate) encoder: MessageEncoder,
    /// True if events are returned too.
    pub(crate) has_events: bool,
}

/// Signal to a reader that it may find new messages.
#[derive(Debug, Default)]
struct Signal {
    notify: Notify,
    is_changed: AtomicBool,
    are_memberships_changed: AtomicBool,
}

impl Signal {
    fn change(&self) {
        self.is_changed.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    fn change_memberships(&self) {
        self.are_memberships_changed.store(true, Ordering::Release);
        self.change();
    }
}

/// Reader that waits for messages. It is registered until it is dropped.
#[derive(Debug)]
pub(crate) struct FeedReader {
    watching: Arc<FeedWatching>,
    table: Arc<WideTable>,
    /// Position in the journal when the reader was registered.
    position: SequenceNumber,
    number: u64,
    signal: Arc<Signal>,
    feeds: Vec<TimelineId>,
    user: Option<Box<str>>,
}

/// Pages that the watches of a feed share.
#[derive(Debug, Clone)]
pub(crate) struct FeedPages {
    version: Arc<AtomicU64>,
    pub(crate) steps: Arc<SharedSteps<i64>>,
}

impl FeedPages {
    /// Returns the number of changes of the feed that were signalled. A page that is read afterwards includes them.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns true if another watch uses the pages.
    pub(crate) fn are_shared(&self) -> bool {
        Arc::strong_count(&self.steps) > 1
    }
}

impl FeedWatching {
    /// Returns a function that wakes the task. It never blocks.
    pub(crate) fn waker(&self) -> impl Fn() + Send + Sync + 'static {
        let news = Arc::clone(&self.news);
        move || news.notify_one()
    }

    /// Signals all readers, so that they detect the shutdown.
    pub(crate) fn signal_all(&self) {
        self.tables.lock().values().for_each(Readers::signal_all);
    }

    /// Registers a reader of a feed, which is signalled from now on. The first call starts the task.
    pub(crate) fn read_feed(
        self: &Arc<Self>,
        app: &App,
        table: &Arc<WideTable>,
        feed: TimelineId,
    ) -> FeedReader {
        let mut reader = self.reader(app, table);
        reader.follow(vec![feed]);
        reader
    }

    /// Registers a reader of the inbox of a user. From now on, the reader is signalled when memberships change,
    /// and when the feeds that it [follows](FeedReader::follow) change. The first call starts the task.
    pub(crate) fn read_inbox(self: &Arc<Self>, app: &App, table: &Arc<WideTable>, user: &str) -> FeedReader {
        let mut reader = self.reader(app, table);
        let mut tables = self.tables.lock();
        let readers = tables.entry(reader.id()).or_insert_with(|| reader.first());
        let signals = readers.users.entry(user.into()).or_default();
        signals.insert(reader.number, Arc::clone(&reader.signal));
        drop(tables);
        reader.user = Some(user.into());
        reader
    }

    fn reader(self: &Arc<Self>, app: &App, table: &Arc<WideTable>) -> FeedReader {
        if !self.is_running.swap(true, Ordering::Relaxed) {
            tokio::spawn(run(app.downgrade(), Arc::clone(&self.news)));
        }
        FeedReader {
            watching: Arc::clone(self),
            table: Arc::clone(table),
            position: app.service_engine().store().recent_end(),
            number: self.last_reader.fetch_add(1, Ordering::Relaxed),
            signal: Arc::default(),
            feeds: Vec::new(),
            user: None,
        }
    }

    /// Returns the tables with readers, and the position of each.
    fn positions(&self) -> Vec<(Arc<WideTable>, SequenceNumber)> {
        let tables = self.tables.lock();
        let positions = tables.values();
        positions
            .map(|readers| (Arc::clone(&readers.table), readers.position))
            .collect()
    }

    /// Signals the readers of changes.
    fn signal(&self, table: TableId, changes: &FeedChanges) {
        if let Some(readers) = self.tables.lock().get_mut(&table) {
            readers.position = changes.next;
            readers.signal(changes);
        }
    }
}

impl Readers {
    fn signal(&self, changes: &FeedChanges) {
        if changes.is_any {
            return self.signal_all();
        }
        for feed in &changes.feeds {
            if let Some(readers) = self.feeds.get(feed) {
                readers.signal();
            }
        }
        if changes.users.contains("") {
            return self.signal_users();
        }
        for user in &changes.users {
            let signals = self.users.get(user).into_iter().flatten();
            signals.for_each(|(_, signal)| signal.change_memberships());
        }
    }

    fn signal_all(&self) {
        self.feeds.values().for_each(FeedReaders::signal);
        self.signal_users();
    }

    fn signal_users(&self) {
        let signals = self.users.values().flat_map(HashMap::values);
        signals.for_each(|signal| signal.change_memberships());
    }

    fn is_empty(&self) -> bool {
        self.feeds.is_empty() && self.users.is_empty()
    }
}

impl FeedReaders {
    fn signal(&self) {
        // The version rises before the signals, so that a signalled reader gets a version that includes the change.
        self.version.fetch_add(1, Ordering::Release);
        self.signals.values().for_each(|signal| signal.change());
    }
}

impl FeedReader {
    /// Replaces the feeds whose messages the reader waits for.
    pub(crate) fn follow(&mut self, feeds: Vec<TimelineId>) {
        let watching = Arc::clone(&self.watching);
        let mut tables = watching.tables.lock();
        let readers = tables.entry(self.id()).or_insert_with(|| self.first());
        for feed in &feeds {
            let of_feed = readers.feeds.entry(*feed).or_default();
            of_feed.signals.insert(self.number, Arc::clone(&self.signal));
        }
        for feed in std::mem::replace(&mut self.feeds, feeds) {
            if !self.feeds.contains(&feed) {
                self.leave(readers, feed);
            }
        }
    }

    /// Returns the shared pages, in the given form, of a feed that this reader follows.
    pub(crate) fn pages(&self, feed: TimelineId, form: &PageForm) -> FeedPages {
        let mut tables = self.watching.tables.lock();
        let readers = tables.entry(self.id()).or_insert_with(|| self.first());
        let of_feed = readers.feeds.entry(feed).or_default();
        of_feed.pages.retain(|(_, pages)| pages.strong_count() > 0);
        let mut known = of_feed.pages.iter().filter(|(of_pages, _)| of_pages == form);
        let steps = known.find_map(|(_, pages)| pages.upgrade()).unwrap_or_else(|| {
            let steps = Arc::default();
            of_feed.pages.push((form.clone(), Arc::downgrade(&steps)));
            steps
        });
        FeedPages {
            version: Arc::clone(&of_feed.version),
            steps,
        }
    }

    fn id(&self) -> TableId {
        self.table.table().points().id()
    }

    /// Creates the entry of the table for its first reader.
    fn first(&self) -> Readers {
        Readers {
            table: Arc::clone(&self.table),
            position: self.position,
            feeds: HashMap::new(),
            users: HashMap::new(),
        }
    }

    /// Clears the signals so far, so that later changes signal the reader again. Must be called before the read
    /// that returns the signalled messages. Returns true if the memberships of the user of an inbox may have
    /// changed.
    pub(crate) fn begin_read(&self) -> bool {
        self.signal.is_changed.store(false, Ordering::Release);
        self.signal.are_memberships_changed.swap(false, Ordering::AcqRel)
    }

    /// Waits for a signal since [`begin_read`](Self::begin_read).
    pub(crate) async fn changed(&self) {
        while !self.signal.is_changed.load(Ordering::Acquire) {
            self.signal.notify.notified().await;
        }
    }

    fn leave(&self, readers: &mut Readers, feed: TimelineId) {
        if let Some(of_feed) = readers.feeds.get_mut(&feed) {
            of_feed.signals.remove(&self.number);
            if of_feed.signals.is_empty() {
                readers.feeds.remove(&feed);
            }
        }
    }
}

impl Drop for FeedReader {
    fn drop(&mut self) {
        let watching = Arc::clone(&self.watching);
        let mut tables = watching.tables.lock();
        let Some(readers) = tables.get_mut(&self.id()) else {
            return;
        };
        for feed in &self.feeds {
            self.leave(readers, *feed);
        }
        if let Some(user) = &self.user
            && let Some(signals) = readers.users.get_mut(user)
        {
            signals.remove(&self.number);
            if signals.is_empty() {
                readers.users.remove(user);
            }
        }
        if readers.is_empty() {
            tables.remove(&self.id());
        }
    }
}

/// Signals readers after changes until the service is dropped.
async fn run(app: WeakApp, news: Arc<Notify>) {
    loop {
        news.notified().await;
        tokio::time::sleep(GATHER).await;
        let Some(app) = app.upgrade() else { return };
        for (table, position) in app.feed_watching.positions() {
            let engine = Arc::clone(app.service_engine());
            let id = table.table().points().id();
            let changes = app
                .watching
                .in_background(move || engine.feed_changes(&table, position))
                .await;
            // A panic while entries were read must not leave readers waiting.
            let changes = changes.unwrap_or_else(|_| FeedChanges {
                is_any: true,
                next: app.service_engine().store().recent_end(),
                ..FeedChanges::default()
            });
            if changes.next < app.service_engine().store().recent_end() {
                news.notify_one();
            }
            app.feed_watching.signal(id, &changes);
        }
    }
}
