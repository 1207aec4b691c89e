//! Examples of inboxes: bounds of reads, changes of messages, interrupted requests, cursors, and joins during sends.
//!
//! The random tests in the module above compare inboxes with a naive model. These tests show cases that the model does
//! not have or reaches rarely.

use super::*;

#[test]
fn a_read_of_an_inbox_reaches_cold_parts_by_its_bounds() {
    const DAYS: i64 = 86_400 * SECOND;
    let mut settings = settings(SETTINGS[0]);
    settings["parts"] = json!({"every": "day"});
    let mut database = Database::new(memory(Character::Embedded), &settings, None);
    let (engine, table) = (database.engine(), database.table());
    add_member(&database, FEEDS[0], "ann");
    let old = database.send_one(FEEDS[0], &json!({}));
    database.clock.advance(2 * DAYS);
    let new = database.send_one(FEEDS[0], &json!({}));
    let reaches_cold = |user: &str, after: Option<i64>| {
        let terms = ReadTerms {
            after,
            ..ReadTerms::default()
        };
        reaches_cold(engine, &table, user, &terms).expect("known parts")
    };
    assert!(!reaches_cold("ann", None));
    engine.seal().expect("it is flushed");
    let parts = table.settings().parts.clone().expect("parts");
    let mut step = |_: &MoveProgress| ControlFlow::Continue(());
    let rows = table.table().points().id();
    let number = parts.every.number_of(old);
    let moved = engine.move_table_part(rows, number, Tier::Cold, &mut step);
    assert_ne!(moved.expect("it is moved"), MoveEnd::Stopped);
    assert!(reaches_cold("ann", None));
    assert!(!reaches_cold("ann", Some(new - 1)));
    assert!(!reaches_cold("bea", None), "a user without an inbox");
    let found = read_sequences(&database, "ann", 10);
    assert_eq!(found, [old, new]);
    database.close();
}

/// A feed table and its table of users are dropped by two edits. The drop ends after the first one.
#[test]
fn a_table_created_again_after_an_interrupted_drop_has_no_members() {
    for is_known in [true, false] {
        let disk = MemoryDisk::new(Character::Distributed);
        let opened = Arc::clone(&disk);
        let open: OpenBackend = Box::new(move || Arc::new(MemoryBackend::open(&opened)));
        let settings = settings(SETTINGS[0]);
        let mut database = Database::new(open, &settings, None);
        let engine = database.engine();
        add_member(&database, FEEDS[0], "ann");
        disk.fail_edit(EditFault::Applied);
        match is_known {
            // The manifest shows at once that the first edit was applied, and that the second one was not.
            true => disk.fail_edit(EditFault::Lost),
            // The first edit has an unknown outcome until the table is created again.
            false => disk.hide_manifest(true),
        }
        let interrupted = engine.drop_table(TABLE).expect_err("the drop is interrupted");
        assert!(interrupted.is_retryable(), "{interrupted}");
        disk.hide_manifest(false);

        database.create_table(&settings);
        let table = database.table();
        let joined = join(engine, &table, &key(FEEDS[0]), "bea", None, &|| false).expect("a member");
        let found = members::members(engine, &table, joined.member.feed, None, 10).expect("members");
        let users: Vec<&str> = found.members.iter().map(|member| member.user.as_str()).collect();
        assert_eq!(users, ["bea"]);
        database.close();
    }
}

#[test]
fn a_deleted_inbox_shows_later_messages() {
    let mut database = open(SETTINGS[0]);
    let (engine, table) = (database.engine(), database.table());
    add_member(&database, FEEDS[0], "ann");
    // The first message caches the audience with the inbox.
    database.send_one(FEEDS[0], &json!({}));
    let inbox = database.id("inbox,user=ann");
    members::delete_feed(engine, &table, inbox, &|| false).expect("it is deleted");
    let later = database.send_one(FEEDS[0], &json!({}));
    let found = read_sequences(&database, "ann", 10);
    assert_eq!(found, [later]);
    database.close();
}

/// Returns the target of a change of a message.
fn target_of(feed: &FeedName, sequence: i64) -> Target<'_> {
    Target {
        feed,
        sequence,
        event: None,
    }
}

#[test]
fn a_removed_text_remains_in_no_earlier_edit() {
    for inboxes in SETTINGS {
        let mut database = open(inboxes);
        let (engine, table, feed) = (database.engine(), database.table(), key(FEEDS[0]));
        for user in ["ann", "bea"] {
            add_member(&database, FEEDS[0], user);
        }
        let sent = [(); 3].map(|()| database.send_one(FEEDS[0], &json!({"columns": {"text": "sent"}})));
        for sequence in sent {
            for text in ["secret one", "secret two"] {
                let edit: EditMessage = parse(&json!({"columns": {"text": text}}));
                let target = target_of(&feed, sequence);
                change::edit(engine, &table, target, &edit, &on_behalf_of(None)).expect("edited");
            }
        }
        let [recalled, deleted, kept] = sent;
        change::recall(engine, &table, target_of(&feed, recalled), &on_behalf_of(None)).expect("recalled");
        change::delete(engine, &table, target_of(&feed, deleted), &on_behalf_of(None)).expect("deleted");
        let with_text = |messages: &[Value]| {
            let texts = messages
                .iter()
                .filter(|message| message["columns"]["text"].is_string());
            texts.count()
        };
        for is_reopened in [false, true] {
            if is_reopened {
                database.reopen();
            }
            let all = database.all(FEEDS[0]);
            // Two messages, six edits, a recall and a deletion.
            assert_eq!(all.len(), 10);
            let edits = all.iter().filter(|message| message["event"] == "edit");
            assert_eq!(edits.count(), 6);
            // The message that is kept, and its two edits.
            assert_eq!(with_text(&all), 3);
            for user in ["ann", "bea"] {
                let shown = read(&database, user, MessageOrder::Ascending, 100);
                assert_eq!(shown.len(), 10, "{inboxes}");
                let texts = shown.iter().filter(|(_, text, _)| text.is_some());
                assert_eq!(texts.count(), 3, "{inboxes}");
            }
        }
        let last = read(&database, "ann", MessageOrder::Ascending, 100)
            .into_iter()
            .find(|(sequence, ..)| *sequence == kept);
        assert_eq!(last, Some((kept, Some("secret two".to_owned()), false)));
        database.close();
    }
}

/// Each event repeats the list of the message, so all events together exceed the size of a write.
#[test]
fn a_message_with_a_long_list_and_many_edits_is_recalled() {
    let mut database = open(SETTINGS[0]);
    let (engine, table, feed) = (database.engine(), database.table(), key(FEEDS[0]));
    let to: Vec<String> = (0..1_000).map(|number| format!("{number:020}")).collect();
    let message = json!({"columns": {"text": "sent"}, "to": to});
    let sequence = database.send_one(FEEDS[0], &message);
    for number in 0..300 {
        let edit: EditMessage = parse(&json!({"columns": {"text": format!("secret {number}")}}));
        let target = target_of(&feed, sequence);
        change::edit(engine, &table, target, &edit, &on_behalf_of(None)).expect("edited");
    }
    let recalled = change::recall(engine, &table, target_of(&feed, sequence), &on_behalf_of(None));
    assert!(recalled.expect("recalled").is_some());
    let mut terms = ReadTerms {
        has_events: true,
        ..ReadTerms::default()
    };
    let mut edits = 0;
    loop {
        let page = database.page(database.id(FEEDS[0]), &terms, 1_000);
        for message in values(&page.messages) {
            edits += usize::from(message["event"] == "edit");
            assert!(!message["columns"]["text"].is_string(), "{}", message["sequence"]);
        }
        if !page.has_more {
            break;
        }
        terms.after = page.next;
    }
    assert_eq!(edits, 300);
    database.close();
}

#[test]
fn a_changed_message_stays_in_inboxes_until_it_expires() {
    for inboxes in SETTINGS {
        let mut settings = settings(inboxes);
        settings["ttl"] = json!("100s");
        let mut database = Database::new(memory(Character::Embedded), &settings, None);
        let feed = key(FEEDS[0]);
        for user in ["ann", "bea"] {
            add_member(&database, FEEDS[0], user);
        }
        let edited = database.send_one(FEEDS[0], &json!({"columns": {"text": "one"}}));
        let counted = database.send_one(FEEDS[0], &json!({"columns": {"text": "two"}}));
        let unchanged = database.send_one(FEEDS[0], &json!({"columns": {"text": "three"}}));
        database.clock.advance(60 * SECOND);
        let (engine, table) = (database.engine(), database.table());
        let edit: EditMessage = parse(&json!({"columns": {"text": "new"}}));
        let terms = on_behalf_of(None);
        let event = change::edit(engine, &table, target_of(&feed, edited), &edit, &terms).expect("edited");
        let add = [("like".to_owned(), 1)].into();
        change::count(engine, &table, target_of(&feed, counted), &add, &terms).expect("counted");
        let sequences = |database: &Database| read_sequences(database, "bea", 10);
        assert_eq!(
            sequences(&database),
            [edited, counted, unchanged, event],
            "{inboxes}"
        );
        database.clock.advance(60 * SECOND);
        assert_eq!(sequences(&database), [edited, counted, event], "{inboxes}");
        database.clock.advance(60 * SECOND);
        assert!(sequences(&database).is_empty(), "{inboxes}");
        database.close();
    }
}

#[test]
fn an_inbox_is_complete_after_an_interrupted_join() {
    for inboxes in SETTINGS {
        let mut database = open(inboxes);
        let feed = key(FEEDS[0]);
        let mut sent = vec![
            database.send_one(FEEDS[0], &json!({})),
            database.send_one(FEEDS[0], &json!({})),
        ];
        let (engine, table) = (database.engine(), database.table());
        let interrupted = join(engine, &table, &feed, "ann", Some(i64::MIN), &|| true);
        assert!(
            matches!(interrupted, Err(RowsError::Cancelled)),
            "{interrupted:?}"
        );
        sent.push(database.send_one(FEEDS[0], &json!({})));
        let sequences = |database: &Database| read_sequences(database, "ann", 2);
        database.reopen();
        assert_eq!(sequences(&database), sent, "{inboxes}");
        let is_filling = |database: &Database| {
            let (engine, table) = (database.engine(), database.table());
            let member = members::member(engine, &table, database.id(FEEDS[0]), "ann");
            member.expect("a read").expect("a member").is_filling
        };
        assert!(is_filling(&database));
        // Repeating the request writes the entries.
        let (engine, table) = (database.engine(), database.table());
        join(engine, &table, &feed, "ann", Some(i64::MIN), &|| false).expect("a member");
        assert!(!is_filling(&database));
        assert_eq!(sequences(&database), sent, "{inboxes}");
        database.close();
    }
}

#[test]
fn an_inbox_has_no_members_and_its_entries_are_no_messages() {
    let mut database = open(SETTINGS[0]);
    let (engine, table) = (database.engine(), database.table());
    add_member(&database, FEEDS[0], "ann");
    let sequence = database.send_one(FEEDS[0], &json!({"columns": {"text": "sent"}}));
    let inbox = FeedName::Id(database.id("inbox,user=ann"));
    for name in [inbox.clone(), key("inbox,user=ann"), key("inbox,user=absent")] {
        let joined = join(engine, &table, &name, "bea", None, &|| false).expect_err("it is refused");
        assert!(joined.to_string().contains("which has no members"), "{joined}");
    }
    engine
        .feed(&table, &key("inbox,user=absent"))
        .expect_err("it is not created");
    let terms = on_behalf_of(None);
    let target = target_of(&inbox, sequence);
    let edit: EditMessage = parse(&json!({"columns": {"text": "new"}}));
    let add = [("like".to_owned(), 1)].into();
    for refused in [
        change::edit(engine, &table, target, &edit, &terms).err(),
        change::recall(engine, &table, target, &terms).err(),
        change::delete(engine, &table, target, &terms).err(),
        change::count(engine, &table, target, &add, &terms).err(),
    ] {
        let error = refused.expect("it is refused");
        assert!(
            matches!(error, RowsError::Engine(EngineError::NoSuchMessage { .. })),
            "{error}"
        );
    }
    let shown = read(&database, "ann", MessageOrder::Ascending, 10);
    assert_eq!(shown, [(sequence, Some("sent".to_owned()), false)]);
    database.close();
}

#[test]
fn readers_of_a_message_see_changes_by_every_principal() {
    for inboxes in SETTINGS.into_iter().chain([r#"{"push_max": 0}"#]) {
        let mut database = open(inboxes);
        let (engine, table, feed) = (database.engine(), database.table(), key(FEEDS[0]));
        add_member(&database, FEEDS[0], "ann");
        let old = database.send_one(FEEDS[0], &json!({"sender": "ann", "columns": {"text": "old"}}));
        add_member(&database, FEEDS[0], "bea");
        block(engine, &table, "bea", "cid").expect("blocked");
        let hidden = database.send_one(FEEDS[0], &json!({"sender": "cid", "columns": {"text": "spam"}}));
        let bad = database.send_one(FEEDS[0], &json!({"sender": "ann", "columns": {"text": "bad"}}));
        let plain = database.send_one(FEEDS[0], &json!({"columns": {"text": "plain"}}));
        let edit: EditMessage = parse(&json!({"columns": {"text": "edited"}}));
        let mut events = Vec::new();
        for (sequence, principal) in [(old, "ann"), (hidden, "eva"), (bad, "cid"), (plain, "cid")] {
            let terms = on_behalf_of(Some(principal));
            let event = change::edit(engine, &table, target_of(&feed, sequence), &edit, &terms);
            events.push(event.expect("edited"));
        }
        let unnamed = change::edit(
            engine,
            &table,
            target_of(&feed, hidden),
            &edit,
            &on_behalf_of(None),
        );
        unnamed.expect("edited");
        let terms = on_behalf_of(Some("cid"));
        let recalled = change::recall(engine, &table, target_of(&feed, bad), &terms).expect("recalled");
        let deleted = change::delete(engine, &table, target_of(&feed, plain), &terms).expect("deleted");
        // The inbox has neither the message before the membership nor its event, and nothing of the blocked sender. It has
        // the changes that the blocked principal has made to other messages.
        let expected = [bad, events[2], events[3], recalled.expect("an event"), deleted];
        let found = read_sequences(&database, "bea", 2);
        assert_eq!(found, expected, "{inboxes}");
        // A read of the feed on behalf of the user also has messages from before the membership.
        let terms = ReadTerms {
            has_events: true,
            ..ReadTerms::default()
        };
        let terms = terms.seen_by(engine, &table, Some("bea")).expect("a viewer");
        let limits = (20, &mut Room::default());
        let id = database.id(FEEDS[0]);
        let read = reading::page(
            engine,
            &table,
            (id, &terms),
            &MessageEncoder::default(),
            limits,
            &|| false,
        );
        let found = sequences(&read.expect("a page").messages);
        let before = [old, bad, events[0]].into_iter();
        let expected: Vec<i64> = before.chain(expected[1..].iter().copied()).collect();
        assert_eq!(found, expected, "{inboxes}");
        database.close();
    }
}

#[test]
fn a_page_of_an_inbox_has_more_only_if_the_user_sees_more() {
    let mut database = open(SETTINGS[0]);
    let (engine, table) = (database.engine(), database.table());
    add_member(&database, FEEDS[0], "ann");
    block(engine, &table, "ann", "cid").expect("blocked");
    database.send_one(FEEDS[0], &json!({"sender": "bea"}));
    let hidden = database.send_one(FEEDS[0], &json!({"sender": "cid"}));
    let terms = ReadTerms::default();
    let encoder = MessageEncoder::default();
    let found = page(engine, &table, ("ann", &terms), &encoder, 1, &|| false).expect("a page");
    assert_eq!((found.messages.len(), found.has_more), (1, false));
    assert_eq!(found.next, Some(hidden));
    database.close();
}

#[test]
fn a_history_does_not_begin_in_the_future() {
    let mut database = open(SETTINGS[0]);
    let (engine, table) = (database.engine(), database.table());
    let later = engine.next_version() + 3_600 * SECOND;
    let refused = join(engine, &table, &key(FEEDS[0]), "ann", Some(later), &|| false);
    let refused = refused.expect_err("it is in the future").to_string();
    assert!(refused.contains("since is in the future"), "{refused}");
    database.close();
}

/// A device can set its cursor while its user leaves the feed.
#[test]
fn no_cursor_of_a_device_remains_after_a_leave() {
    let mut database = open(SETTINGS[0]);
    let (engine, table) = (database.engine(), database.table());
    let sequence = database.send_one(FEEDS[0], &json!({}));
    let feed = database.id(FEEDS[0]);
    for _ in 0..100 {
        add_member(&database, FEEDS[0], "ann");
        thread::scope(|scope| {
            for device in ["phone", "laptop", "watch"] {
                let table = &table;
                scope.spawn(move || {
                    let device = Some(device);
                    let change = MemberChange::Cursor { device, sequence };
                    // The user may have left before.
                    let _ = change_member(engine, table, feed, "ann", change);
                });
            }
            leave(engine, &table, feed, "ann", &|| false).expect("it leaves");
        });
        let left = members::device_cursors(engine, &table, feed, "ann").expect("cursors");
        assert!(left.is_empty(), "{left:?}");
    }
    database.close();
}

#[test]
fn a_cursor_is_bounded_and_can_be_set_back() {
    let mut database = open(SETTINGS[0]);
    let (engine, table) = (database.engine(), database.table());
    add_member(&database, FEEDS[0], "ann");
    let first = database.send_one(FEEDS[0], &json!({}));
    let second = database.send_one(FEEDS[0], &json!({}));
    let feed = database.id(FEEDS[0]);
    let unread = || {
        let found = conversations(engine, &table, "ann", (10, None), &|| false);
        found.expect("conversations").unread
    };
    for device in [None, Some("phone")] {
        let set = |sequence| {
            let change = MemberChange::Cursor { device, sequence };
            change_member(engine, &table, feed, "ann", change)
        };
        let refused = set(i64::MAX).expect_err("later messages would count as read");
        assert!(
            refused.to_string().contains("sequence number so far"),
            "{refused}"
        );
        assert_eq!(set(second).expect("a cursor"), Some(second));
        assert_eq!(set(first).expect("a cursor"), Some(second));
        let sequence = first;
        let back = MemberChange::Rewind { device, sequence };
        let back = change_member(engine, &table, feed, "ann", back);
        assert_eq!(back.expect("a cursor"), Some(first));
    }
    assert_eq!(unread(), 1);
    database.close();
}

/// While the row of a new member is committed, messages are still sent to the members before it. Their numbers can be
/// above the time of the join.
#[test]
fn a_join_misses_no_message_that_is_sent_meanwhile() {
    for inboxes in [
        r#"{"push_max": 1000}"#,
        r#"{"push_max": 1000, "entries": "copy"}"#,
    ] {
        join_while_messages_are_sent(inboxes);
    }
}

fn join_while_messages_are_sent(inboxes: &str) {
    const SENDERS: usize = 3;
    const MEMBERS: usize = 20;
    const JOINS: usize = 20;
    let mut database = open(inboxes);
    let (engine, table) = (database.engine(), database.table());
    let join_as = |user: String, history| join(engine, &table, &key(FEEDS[0]), &user, history, &|| false);
    for number in 0..MEMBERS {
        join_as(format!("member {number}"), None).expect("a member");
    }
    let is_ended = AtomicBool::new(false);
    let joined: Vec<Result<Join, RowsError>> = thread::scope(|scope| {
        for _ in 0..SENDERS {
            scope.spawn(|| {
                let messages = parse::<Vec<_>>(&json!([{"columns": {"text": "x"}}]));
                while !is_ended.load(Ordering::SeqCst) {
                    let sent = send(engine, &table, &key(FEEDS[0]), &messages, &WriteTerms::default());
                    sent.expect("sent");
                }
            });
        }
        let history = |number: usize| number.is_multiple_of(2).then_some(i64::MIN);
        let joined = (0..JOINS).map(|number| join_as(format!("new {number}"), history(number)));
        let joined = joined.collect();
        is_ended.store(true, Ordering::SeqCst);
        joined
    });
    let all = read(&database, "member 0", MessageOrder::Ascending, 500);
    for joined in joined {
        let Join { member, .. } = joined.expect("a member");
        let visible = all
            .iter()
            .filter(|(sequence, ..)| *sequence >= member.visible_from);
        let expected: Vec<i64> = visible.map(|(sequence, ..)| *sequence).collect();
        let found = read_sequences(&database, &member.user, 500);
        assert_eq!(found, expected, "{} with {inboxes}", member.user);
    }
    database.close();
}

/// A leave that ends early keeps entries of the inbox. Changes of their messages do not reach them any more.
#[test]
fn a_message_that_is_deleted_after_an_interrupted_leave_stays_deleted() {
    for inboxes in SETTINGS {
        let mut database = open(inboxes);
        let (engine, table) = (database.engine(), database.table());
        let feed = key(FEEDS[0]);
        for user in ["ann", "bea"] {
            add_member(&database, FEEDS[0], user);
        }
        let deleted = database.send_one(FEEDS[0], &json!({"columns": {"text": "deleted"}}));
        let kept = database.send_one(FEEDS[0], &json!({"columns": {"text": "kept"}}));
        let interrupted = leave(engine, &table, database.id(FEEDS[0]), "ann", &|| true);
        assert!(
            matches!(interrupted, Err(RowsError::Cancelled)),
            "{interrupted:?}"
        );
        let target = Target {
            feed: &feed,
            sequence: deleted,
            event: None,
        };
        let event = change::delete(engine, &table, target, &on_behalf_of(None)).expect("deleted");
        join(engine, &table, &feed, "ann", Some(i64::MIN), &|| false).expect("a member");
        let found = read_sequences(&database, "ann", 10);
        assert_eq!(found, [kept, event], "{inboxes}");
        database.close();
    }
}

/// A request holds a page of each feed, and the newest message of each conversation.
#[test]
fn reads_of_several_feeds_reserve_the_memory_of_their_messages() {
    let mut database = open(SETTINGS[0]);
    let (engine, table) = (database.engine(), database.table());
    let text = "x".repeat(8 << 10);
    for feed in FEEDS {
        add_member(&database, feed, "ann");
        database.send_one(feed, &json!({"columns": {"text": text}}));
    }
    let feeds = FEEDS.map(|feed| database.id(feed));
    let merged = |engine: &Engine| {
        let (terms, encoder) = (ReadTerms::default(), MessageEncoder::default());
        let merged = reading::merge(engine, &table, &feeds, &terms, &encoder, (1, None), &|| false);
        merged.map(|merged| merged.messages.len())
    };
    let listed = |engine: &Engine| {
        let found = conversations(engine, &table, "ann", (1, None), &|| false);
        found.map(|found| found.total)
    };
    assert_eq!(merged(engine).expect("a page"), 1);
    assert_eq!(listed(engine).expect("conversations"), FEEDS.len());
    let account = engine.memory();
    let whole = account.whole_bytes();
    let set_aside = whole - account.limit_bytes();
    // Two messages fit, and three do not.
    account.set_limit(set_aside + account.used_bytes() + (20 << 10));
    for (found, holder) in [
        (merged(engine), "rows of scans"),
        (listed(engine), "conversations"),
    ] {
        match found.expect_err("the memory is full") {
            RowsError::Engine(EngineError::Memory(full)) => assert_eq!(full.holder, holder),
            error => panic!("{error}"),
        }
    }
    account.set_limit(whole);
    assert_eq!(merged(engine).expect("a page"), 1);
    database.close();
}

#[test]
fn pages_of_conversations_miss_none_that_does_not_change() {
    let mut database = open(SETTINGS[0]);
    let (engine, table) = (database.engine(), database.table());
    let name = |room: usize| format!("room,number={room}");
    for room in 0..12 {
        add_member(&database, &name(room), "ann");
    }
    // The first room has no messages.
    for room in 1..12 {
        database.send_one(&name(room), &json!({}));
    }
    let list = |user: &str, page: Option<&str>| conversations(engine, &table, user, (3, page), &|| false);
    let room_of = |feed: TimelineId| (0..12).find(|room| database.id(&name(*room)) == feed);
    let mut pages = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let read = list("ann", next.as_deref()).expect("conversations");
        let rooms = read.conversations.iter();
        pages.push(
            rooms
                .map(|one| room_of(one.member.feed).expect("a room"))
                .collect::<Vec<_>>(),
        );
        assert_eq!((read.total, read.unread), (12, 10 + pages.len() as u64));
        let Some(token) = read.next else { break };
        let foreign = list("bea", Some(&token)).expect_err("the token is that of another user");
        assert!(
            foreign.to_string().contains("belongs to another list"),
            "{foreign}"
        );
        // A room of the first page, and two of later pages, get a message.
        let changed = [10, 2, 4];
        if let Some(room) = changed.get(pages.len() - 1) {
            database.send_one(&name(*room), &json!({}));
        }
        next = Some(token);
    }
    assert_eq!(pages, [vec![11, 10, 9], vec![8, 7, 6], vec![5, 4, 3], vec![1, 0]]);
    let first = list("ann", None).expect("conversations").conversations;
    let first: Vec<_> = first.iter().map(|one| room_of(one.member.feed)).collect();
    assert_eq!(first, [Some(4), Some(2), Some(10)]);
    database.close();
}
