//! Feeds and users that are reported as changed since a position in the journal: each write names its feed, the inboxes
//! that it reaches, and the user whose memberships it changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use tideline_engine::backend::memory::Character;
use tideline_engine::feed_changes::FeedChanges;
use tideline_engine::feeds::FeedName;
use tideline_engine::model::{SequenceNumber, TimelineId};
use tideline_engine::{Engine, WideTable};
use tideline_message_feed::change::{self, Target};
use tideline_message_feed::members::{MemberChange, change_member, delete_feed, inbox_of, join, leave};
use tideline_message_feed::send::{WriteTerms, send};
use tideline_rows::Result;

use crate::database::{Database, key, memory, parse};

const ROOM: &str = "room,name=one";
const OTHER: &str = "room,name=two";

/// Database with the position up to which its changes were read.
struct Watched {
    database: Database,
    position: SequenceNumber,
}

impl Watched {
    fn new(settings: &Value) -> Self {
        let database = Database::new(memory(Character::Embedded), settings, None);
        let position = database.engine().store().recent_end();
        Self { database, position }
    }

    fn call<T>(&self, call: impl FnOnce(&Engine, &Arc<WideTable>) -> Result<T>) -> T {
        call(self.database.engine(), &self.database.table()).expect("it succeeds")
    }

    fn changes(&mut self) -> FeedChanges {
        let changes = self.call(|engine, table| Ok(engine.feed_changes(table, self.position)));
        self.position = changes.next;
        assert_eq!(changes.next, self.database.engine().store().recent_end());
        changes
    }

    /// Checks that exactly these feeds and users are changed.
    fn expect(&mut self, feeds: &[TimelineId], users: &[&str]) {
        let changes = self.changes();
        assert!(!changes.is_any);
        let found: BTreeSet<TimelineId> = changes.feeds.into_iter().collect();
        assert_eq!(found, feeds.iter().copied().collect());
        let found: BTreeSet<&str> = changes.users.iter().map(AsRef::as_ref).collect();
        assert_eq!(found, users.iter().copied().collect());
    }

    /// Sends a message with this text. Returns its sequence number.
    fn send(&self, feed: &str, text: &str) -> i64 {
        let message = parse(&json!({"columns": {"text": text}}));
        let sent =
            self.call(|engine, table| send(engine, table, &key(feed), &[message], &WriteTerms::default()));
        sent.messages[0].sequence
    }

    fn join(&self, user: &str) {
        self.call(|engine, table| join(engine, table, &key(ROOM), user, None, &|| false));
    }

    fn id(&self, feed: &FeedName) -> TimelineId {
        self.call(|engine, table| Ok(engine.feed(table, feed)?))
    }
}

#[test]
fn changes_name_feeds_inboxes_and_users() {
    let mut watched =
        Watched::new(&json!({"columns": [{"name": "text", "type": "string"}], "inboxes": {"push_max": 2}}));
    watched.expect(&[], &[]);
    watched.send(ROOM, "x");
    watched.send(OTHER, "x");
    let (room, other) = (watched.id(&key(ROOM)), watched.id(&key(OTHER)));
    watched.expect(&[room, other], &[]);
    watched.join("ann");
    watched.expect(&[], &["ann"]);
    let inbox = watched.id(&inbox_of("ann").expect("a name"));
    let sequence = watched.send(ROOM, "x");
    watched.expect(&[room, inbox], &[]);
    let feed = FeedName::Id(room);
    let target = Target {
        feed: &feed,
        sequence,
        event: None,
    };
    let (add, terms) = ([("like".to_owned(), 1)].into(), WriteTerms::default());
    watched.call(|engine, table| change::count(engine, table, target, &add, &terms));
    watched.expect(&[room], &[]);
    watched.call(|engine, table| change::recall(engine, table, target, &terms));
    let cursor = MemberChange::Cursor {
        device: Some("phone"),
        sequence,
    };
    watched.call(|engine, table| change_member(engine, table, room, "ann", cursor));
    watched.expect(&[room, inbox], &["ann"]);
    // The third member changes the delivery of the feed, which concerns every user.
    watched.join("bea");
    watched.join("cid");
    watched.expect(&[], &["", "bea", "cid"]);
    assert!(watched.call(|engine, table| leave(engine, table, room, "ann", &|| false)));
    // The entries of the feed are removed from the inbox together with the membership.
    watched.expect(&[inbox], &["ann"]);
    watched.call(|engine, table| delete_feed(engine, table, other, &|| false));
    watched.expect(&[other], &[]);
}

#[test]
fn anything_may_have_changed_since_a_position_that_is_no_longer_in_memory() {
    let mut watched = Watched::new(&json!({"columns": [{"name": "text", "type": "string"}]}));
    for _ in 0..20 {
        watched.send(ROOM, &"x".repeat(1 << 20));
    }
    assert!(watched.changes().is_any);
    watched.expect(&[], &[]);
    // A position of another database.
    watched.position = SequenceNumber(u64::MAX);
    assert!(watched.changes().is_any);
}
