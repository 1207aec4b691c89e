//! Reads of feeds on behalf of a principal: every route omits messages that the principal must not see, and data
//! of a user can be read only on behalf of this user.

use serde_json::{Value, json};

use crate::client::{Response, Server};

const TABLE: &str = "/v1/tables/team";
const ROOM: &str = "/v1/tables/team/feeds/room,name=ops";

fn request(server: &Server, method: &str, path: &str, body: &Value) -> Response {
    server.json(method, path, &body.to_string())
}

/// Starts a server with four messages: one for everyone, one of cem, one for bea only, and one for everyone
/// except bea. Bea has blocked cem.
fn start() -> (Server, Vec<String>) {
    let server = Server::start();
    let columns = json!([{"name": "text", "type": "string"}]);
    let team = json!({"name": "team", "model": "feed", "feed": {"columns": columns, "inboxes": {}}});
    request(&server, "POST", "/v1/tables", &team).expect(201);
    for user in ["ann", "bea", "cem"] {
        request(&server, "PUT", &format!("{ROOM}/members/{user}"), &json!({})).expect(200);
    }
    server
        .json("PUT", &format!("{TABLE}/users/bea/blocks/cem"), "")
        .expect(200);
    let messages = json!({"messages": [
        {"sender": "ann", "columns": {"text": "all"}},
        {"sender": "cem", "columns": {"text": "cem"}},
        {"sender": "ann", "columns": {"text": "bea"}, "to": ["bea"]},
        {"sender": "ann", "columns": {"text": "others"}, "except": ["bea"]}]});
    let sent = request(&server, "POST", &format!("{ROOM}/messages"), &messages).expect(200);
    let sequences = sent["messages"].as_array().expect("a list").iter();
    let sequences = sequences.map(|message| message["sequence"].as_str().expect("a number").to_owned());
    let sequences = sequences.collect();
    (server, sequences)
}

/// Returns the texts of a list of messages.
fn texts(messages: &Value) -> Vec<&str> {
    let messages = messages.as_array().expect("a list").iter();
    messages
        .map(|message| message["columns"]["text"].as_str().expect("a text"))
        .collect()
}

/// Checks that a request is refused with a code, and that the message names the principal.
fn refused(response: &Response, status: u16, code: &str) {
    let body = response.expect(status);
    assert_eq!(body["code"], code, "{body}");
}

#[test]
fn each_read_of_a_feed_leaves_out_what_the_principal_does_not_see() {
    let (server, sequences) = start();
    for (principal, expected) in [
        ("bea", vec!["all", "bea"]),
        ("ann", vec!["all", "cem", "bea", "others"]),
        // A principal need not be a member.
        ("eva", vec!["all", "cem", "others"]),
    ] {
        let page = server.get(&format!("{ROOM}/messages?as={principal}")).expect(200);
        assert_eq!(texts(&page["messages"]), expected, "{principal}");
        // Pages of one message continue until the end.
        let mut found = Vec::new();
        let mut after = String::new();
        loop {
            let page = server
                .get(&format!("{ROOM}/messages?as={principal}&limit=1{after}"))
                .expect(200);
            found.extend(texts(&page["messages"]).into_iter().map(str::to_owned));
            if page["more"] == false {
                break;
            }
            after = format!("&after={}", page["next"].as_str().expect("a cursor"));
        }
        assert_eq!(found, expected, "{principal}");
        let counted = server
            .get(&format!("{ROOM}/messages/count?as={principal}"))
            .expect(200);
        assert_eq!(counted["count"], expected.len(), "{principal}");
        let read = json!({"feeds": [{"feed": "room,name=ops"}], "as": principal});
        let pages = request(&server, "POST", &format!("{TABLE}/feeds/read"), &read).expect(200);
        assert_eq!(texts(&pages["feeds"][0]["messages"]), expected, "{principal}");
        let merge = json!({"feeds": ["room,name=ops"], "as": principal});
        let merged = request(&server, "POST", &format!("{TABLE}/feeds/merge"), &merge).expect(200);
        assert_eq!(texts(&merged["messages"]), expected, "{principal}");
        let watched = server
            .get(&format!("{ROOM}/watch?after=0&for=0s&as={principal}"))
            .text();
        for text in ["all", "cem", "bea", "others"] {
            let is_shown = watched.contains(&format!("{{\"text\":\"{text}\"}}"));
            assert_eq!(is_shown, expected.contains(&text), "{principal}: {watched}");
        }
    }
    // Without a principal, a feed has all messages.
    let page = server.get(&format!("{ROOM}/messages")).expect(200);
    assert_eq!(texts(&page["messages"]).len(), 4);
    let others = format!("{ROOM}/messages/{}", sequences[3]);
    refused(&server.get(&format!("{others}?as=bea")), 404, "not_found");
    server.get(&format!("{others}?as=ann")).expect(200);
    server.get(&others).expect(200);
}

#[test]
fn a_change_of_blocks_applies_to_a_watch_that_runs() {
    let (server, sequences) = start();
    let path = format!("{ROOM}/messages?as=bea&after={}&wait=20s", sequences[3]);
    std::thread::scope(|threads| {
        // A message that bea does not see does not end the wait.
        let waiting = threads.spawn(|| server.get(&path).expect(200));
        for (sender, text) in [("cem", "hidden"), ("ann", "shown")] {
            let message = json!({"messages": [{"columns": {"text": text}}]});
            request(&server, "POST", &format!("{ROOM}/messages?as={sender}"), &message).expect(200);
        }
        let page = waiting.join().expect("no panic");
        assert_eq!(texts(&page["messages"]), ["shown"]);
    });
    let ended = server.json("DELETE", &format!("{TABLE}/users/bea/blocks/cem"), "");
    assert_eq!(ended.status, 204);
    let page = server.get(&path).expect(200);
    assert_eq!(texts(&page["messages"]), ["hidden", "shown"]);
}

#[test]
fn what_belongs_to_a_user_is_only_read_by_the_user() {
    let (server, _) = start();
    for path in [
        "inbox?",
        "inbox/watch?for=0s&after=0&",
        "conversations?",
        "cursors/room,name=ops?",
        "blocks?",
    ] {
        let path = format!("{TABLE}/users/bea/{path}as=");
        let own = server.get(&format!("{path}bea"));
        assert_eq!(own.status, 200, "{path}: {}", own.text());
        let other = server.get(&format!("{path}ann"));
        refused(&other, 403, "forbidden");
        assert!(
            other.text().contains("ann") && other.text().contains("bea"),
            "{}",
            other.text()
        );
    }
    let page = server.get(&format!("{TABLE}/users/bea/inbox?as=bea")).expect(200);
    assert_eq!(texts(&page["messages"]), ["all", "bea"]);
    let empty = server.get(&format!("{ROOM}/messages?as="));
    refused(&empty, 400, "invalid");
}

#[test]
fn writes_of_a_user_are_made_only_on_behalf_of_the_user() {
    let (server, sequences) = start();
    let cursor = json!({"sequence": sequences[0]});
    for (method, path, body, status) in [
        (
            "PUT",
            format!("{TABLE}/users/bea/cursors/room,name=ops"),
            cursor,
            200,
        ),
        ("PUT", format!("{TABLE}/users/bea/blocks/dan"), json!({}), 200),
        ("DELETE", format!("{TABLE}/users/bea/blocks/dan"), json!({}), 204),
        (
            "PATCH",
            format!("{ROOM}/members/bea"),
            json!({"muted": true}),
            200,
        ),
        (
            "PUT",
            format!("{TABLE}/feeds/inbox,user=bea"),
            json!({"attributes": {"a": 1}}),
            200,
        ),
    ] {
        let own = request(&server, method, &format!("{path}?as=bea"), &body);
        assert_eq!(own.status, status, "{path}: {}", own.text());
        let other = request(&server, method, &format!("{path}?as=ann"), &body);
        refused(&other, 403, "forbidden");
        assert!(other.text().contains("cannot change"), "{}", other.text());
        refused(
            &request(&server, method, &format!("{path}?user=bea"), &body),
            400,
            "invalid",
        );
    }
    // A member can add and remove other members.
    for (method, status) in [("PUT", 200), ("DELETE", 204)] {
        let path = format!("{ROOM}/members/eva");
        let changed = request(&server, method, &format!("{path}?as=ann"), &json!({}));
        assert_eq!(changed.status, status, "{}", changed.text());
        refused(
            &request(&server, method, &format!("{path}?user=ann"), &json!({})),
            400,
            "invalid",
        );
    }
    // The cursor is at most the highest sequence number so far, and is set back only on request.
    let path = format!("{TABLE}/users/bea/cursors/room,name=ops");
    let far = json!({"sequence": "9223372036854775807"});
    refused(&request(&server, "PUT", &path, &far), 400, "invalid");
    for (sequence, rewind, expected) in [(3, false, 3), (1, false, 3), (1, true, 1)] {
        let body = json!({"sequence": sequences[sequence], "rewind": rewind});
        let set = request(&server, "PUT", &path, &body).expect(200);
        assert_eq!(set["cursor"], sequences[expected]);
    }
}

#[test]
fn an_inbox_is_changed_only_on_behalf_of_its_user() {
    let (server, _) = start();
    let inbox = format!("{TABLE}/feeds/inbox,user=bea");
    let id = server.get(&inbox).expect(200)["id"].clone();
    let by_id = format!("{TABLE}/feeds/{}", id.as_str().expect("an id"));
    let message = json!({"messages": [{"columns": {"text": "own"}}]});
    // The labels `__name__` and `user`, in the form of Prometheus' remote write.
    let labels = "%0A%11%0A%08__name__%12%05inbox%0A%0B%0A%04user%12%03bea";
    let by_labels = format!("{TABLE}/feeds/{labels}");
    let member = request(&server, "PUT", &format!("{by_labels}/members/ann"), &json!({}));
    refused(&member, 400, "invalid");
    for feed in [&inbox, &by_id, &by_labels] {
        let send = |user: &str| request(&server, "POST", &format!("{feed}/messages{user}"), &message);
        refused(&send("?as=ann"), 403, "forbidden");
        send("?as=bea").expect(200);
        send("").expect(200);
        let deleted = request(&server, "DELETE", &format!("{feed}?as=ann"), &json!({}));
        refused(&deleted, 403, "forbidden");
        let page = server.get(&format!("{feed}/messages?as=bea")).expect(200);
        assert!(page.to_string().contains(r#""text":"own""#), "{page}");
        let sent = send("").expect(200);
        let sequence = sent["messages"][0]["sequence"]
            .as_str()
            .expect("a number")
            .to_owned();
        let own = format!("{feed}/messages/{sequence}");
        for (method, path, body) in [
            ("PATCH", own.clone(), json!({"columns": {"text": "new"}})),
            ("POST", format!("{own}/counters"), json!({"add": {"like": 1}})),
            ("POST", format!("{own}/recall"), json!({})),
            ("DELETE", own.clone(), json!({})),
        ] {
            let change = |user: &str| request(&server, method, &format!("{path}?as={user}"), &body);
            refused(&change("ann"), 403, "forbidden");
            change("bea").expect(200);
        }
    }
    // A refused request does not create the inbox.
    let new = format!("{TABLE}/feeds/inbox,user=zed");
    refused(
        &request(&server, "PUT", &format!("{new}?as=ann"), &json!({})),
        403,
        "forbidden",
    );
    refused(
        &request(&server, "POST", &format!("{new}/messages?as=ann"), &message),
        403,
        "forbidden",
    );
    assert_eq!(server.get(&new).status, 404);
    let deleted = request(&server, "DELETE", &format!("{inbox}?as=bea"), &json!({}));
    assert_eq!(deleted.status, 204, "{}", deleted.text());
    let deleted = request(&server, "DELETE", &format!("{ROOM}?as=ann"), &json!({}));
    assert_eq!(deleted.status, 204, "{}", deleted.text());
}

#[test]
fn a_feed_of_the_type_of_inboxes_has_only_a_user() {
    let (server, _) = start();
    let message = json!({"messages": [{"columns": {"text": "lost"}}]});
    for feed in ["inbox,user=bea,x=1", "inbox,x=1", "inbox"] {
        let path = format!("{TABLE}/feeds/{feed}");
        for (method, path, body) in [
            ("POST", format!("{path}/messages"), &message),
            ("POST", format!("{path}/messages?as=bea"), &message),
            ("PUT", path.clone(), &json!({})),
        ] {
            let response = request(&server, method, &path, body);
            refused(&response, 400, "invalid");
            assert!(response.text().contains("inbox,user=ann"), "{}", response.text());
        }
        assert_eq!(server.get(&path).status, 404, "{feed}");
    }
    let other = format!("{TABLE}/feeds/inbox,user=bea,x=1/messages?as=ann");
    refused(&request(&server, "POST", &other, &message), 403, "forbidden");
    // The type has no meaning in a table without inboxes.
    let plain = json!({"name": "plain", "model": "feed", "feed": {}});
    request(&server, "POST", "/v1/tables", &plain).expect(201);
    let path = "/v1/tables/plain/feeds/inbox,user=bea,x=1/messages";
    request(&server, "POST", path, &message).expect(200);
    assert_eq!(texts(&server.get(path).expect(200)["messages"]), ["lost"]);
}

#[test]
fn the_table_of_users_keeps_its_definition() {
    let (server, sequences) = start();
    let users = "/v1/tables/team-users";
    let before = server.get(users).expect(200)["wide"].clone();
    let column = json!({"name": "mine", "type": "string"});
    let sql = |statement: &str| request(&server, "POST", "/v1/sql", &json!({"statement": statement}));
    let index = json!({"name": "mine", "key": [{"name": "feed"}]});
    let search = json!({"name": "mine", "columns": [{"column": "feed", "as": "keyword"}]});
    for response in [
        request(&server, "PATCH", users, &json!({"wide": {"ttl": "1s"}})),
        request(&server, "PATCH", users, &json!({"wide": {"max_versions": 2}})),
        request(
            &server,
            "PATCH",
            users,
            &json!({"wide": {"add_columns": [column]}}),
        ),
        request(
            &server,
            "PATCH",
            users,
            &json!({"wide": {"remove_columns": ["joined"]}}),
        ),
        request(&server, "PATCH", users, &json!({"durability": "buffered"})),
        request(&server, "PATCH", users, &json!({})),
        request(&server, "DELETE", &format!("{users}/indexes/by_feed"), &json!({})),
        request(&server, "POST", &format!("{users}/indexes"), &index),
        request(&server, "POST", &format!("{users}/search-indexes"), &search),
        request(
            &server,
            "DELETE",
            &format!("{users}/search-indexes/mine"),
            &json!({}),
        ),
        sql("ALTER TABLE `team-users` ADD mine STRING"),
        sql("CREATE INDEX mine ON `team-users` (feed)"),
        sql("DROP INDEX by_feed ON `team-users`"),
    ] {
        refused(&response, 422, "wrong_model");
    }
    assert_eq!(server.get(users).expect(200)["wide"], before);
    // Members still get messages.
    let text = json!({"messages": [{"sender": "ann", "columns": {"text": "more"}}]});
    request(&server, "POST", &format!("{ROOM}/messages"), &text).expect(200);
    let after = sequences.last().expect("a message");
    let inbox = server.get(&format!("{TABLE}/users/bea/inbox?after={after}"));
    assert_eq!(texts(&inbox.expect(200)["messages"]), ["more"]);
}

/// Creates a search index over the messages, also over the lists of their readers.
fn create_index(server: &Server) {
    let columns = json!([
        {"column": "feed", "as": "keyword"}, {"column": "sender", "as": "keyword"}, {"column": "text", "as": "text"},
        {"column": "sequence", "as": "number"}, {"column": "except", "as": "keyword"}]);
    let index = json!({"name": "messages", "columns": columns});
    let path = format!("{TABLE}/search-indexes?refresh=wait");
    let created = request(server, "POST", &path, &index);
    assert!([200, 201].contains(&created.status), "{}", created.text());
}

fn search(server: &Server, body: &Value) -> Response {
    request(server, "POST", &format!("{TABLE}/feeds/messages/search"), body)
}

#[test]
fn a_page_token_continues_only_its_search() {
    let (server, _) = start();
    create_index(&server);
    let first = json!({"as": "ann", "where": {"column": "text", "exists": true}, "limit": 1});
    let token = search(&server, &first).expect(200)["next"].clone();
    let mut next = first;
    next["page_token"] = token;
    search(&server, &next).expect(200);
    next["where"] = json!({"column": "sender", "equals": "ann"});
    let response = search(&server, &next);
    refused(&response, 400, "invalid");
    assert!(
        response.text().contains("belongs to another search"),
        "{}",
        response.text()
    );
}

#[test]
fn a_search_finds_and_counts_only_what_the_principal_sees() {
    let (server, _) = start();
    // This message is in the inbox itself, which only its user can read.
    let own = json!({"messages": [{"sender": "ann", "columns": {"text": "own"}}]});
    let path = format!("{TABLE}/feeds/inbox,user=bea/messages");
    request(&server, "POST", &path, &own).expect(200);
    create_index(&server);
    let by_number = json!([{"column": "sequence"}]);
    for (principal, expected) in [
        ("bea", vec!["all", "bea", "own"]),
        ("ann", vec!["all", "cem", "bea", "others"]),
        ("eva", vec!["all", "cem", "others"]),
    ] {
        let all = json!({"as": principal, "where": {"column": "text", "exists": true}, "sort": by_number});
        let found = search(&server, &all).expect(200);
        assert_eq!(texts(&found["messages"]), expected, "{principal}");
        assert_eq!(found["total"], expected.len(), "{principal}");
        assert!(found["next"].is_null(), "{found}");
        // The entries of inboxes have no text; a search without a condition omits them too.
        let found = search(&server, &json!({"as": principal})).expect(200);
        assert_eq!(found["total"], expected.len(), "{principal}: {found}");
        // Each page has the total of all pages, and the last one has no token, although hidden messages follow.
        let mut page = all.clone();
        page["limit"] = json!(1);
        let mut paged = Vec::new();
        loop {
            let found = search(&server, &page).expect(200);
            assert_eq!(found["total"], expected.len(), "{principal}");
            paged.extend(texts(&found["messages"]).into_iter().map(str::to_owned));
            match found["next"].as_str() {
                Some(next) => page["page_token"] = json!(next),
                None => break,
            }
        }
        assert_eq!(paged, expected, "{principal}");
        // Words of hidden messages are not found, so neither the total nor highlights reveal them.
        for text in ["all", "cem", "bea", "others", "own"] {
            let words =
                json!({"as": principal, "where": {"column": "text", "text": text}, "highlight": true});
            let found = search(&server, &words).expect(200);
            let is_seen = expected.contains(&text);
            assert_eq!(found["total"], u64::from(is_seen), "{principal}: {text}");
            let highlights = found["messages"][0].get("highlights");
            assert_eq!(highlights.is_some(), is_seen, "{principal}: {found}");
        }
        let one = json!({"as": principal, "feeds": ["room,name=ops"], "sort": by_number});
        let found = search(&server, &one).expect(200);
        let in_room: Vec<&str> = expected.iter().copied().filter(|text| *text != "own").collect();
        assert_eq!(texts(&found["messages"]), in_room, "{principal}");
    }
    // Without a principal, a search has everything.
    let all = json!({"where": {"column": "text", "exists": true}});
    assert_eq!(search(&server, &all).expect(200)["total"], 5);
    // Neither a condition nor the order reveals who else gets a message.
    let who = json!({"column": "except", "exists": true});
    search(&server, &json!({"where": who})).expect(200);
    refused(
        &search(&server, &json!({"as": "ann", "where": who})),
        400,
        "invalid",
    );
    let sort = json!([{"column": "except"}]);
    refused(
        &search(&server, &json!({"as": "ann", "sort": sort})),
        400,
        "invalid",
    );
    refused(&search(&server, &json!({"as": ""})), 400, "invalid");
    let inbox = json!({"feeds": ["inbox,user=bea"], "as": "ann"});
    refused(&search(&server, &inbox), 403, "forbidden");
    let inbox = json!({"feeds": ["inbox,user=bea"], "as": "bea"});
    assert_eq!(texts(&search(&server, &inbox).expect(200)["messages"]), ["own"]);
}

#[test]
fn a_search_without_a_principal_finds_each_message_once() {
    let (server, _) = start();
    let columns = ["feed", "sender", "source"].map(|column| json!({"column": column, "as": "keyword"}));
    let index = json!({"name": "messages", "columns": columns});
    let path = format!("{TABLE}/search-indexes?refresh=wait");
    let created = request(&server, "POST", &path, &index);
    assert!([200, 201].contains(&created.status), "{}", created.text());
    let total = |body: Value| {
        let found = search(&server, &body).expect(200);
        let count = found["messages"].as_array().expect("a list").len();
        assert_eq!(found["total"], count, "{body}");
        count
    };
    // Four messages, and their entries: three each for the first two, two for `to` and two for `except`.
    assert_eq!((total(json!({})), total(json!({"inbox_entries": true}))), (4, 14));
    let others = json!({"not": {"column": "sender", "equals": "ann"}});
    assert_eq!(total(json!({"where": others})), 1);
    assert_eq!(total(json!({"where": others, "inbox_entries": true})), 11);
    // Conditions on entries and on inboxes keep their meaning.
    assert_eq!(total(json!({"where": {"column": "source", "exists": true}})), 10);
    let inbox = server.get(&format!("{TABLE}/feeds/inbox,user=bea")).expect(200);
    assert_eq!(total(json!({"feeds": ["inbox,user=bea"]})), 3);
    assert_eq!(
        total(json!({"where": {"column": "feed", "equals": inbox["id"]}})),
        3
    );
    // Pages of one message have the same total, and continue until the end.
    let (mut page, mut found) = (json!({"limit": 1}), 0);
    loop {
        let read = search(&server, &page).expect(200);
        assert_eq!(read["total"], 4);
        found += read["messages"].as_array().expect("a list").len();
        match read["next"].as_str() {
            Some(next) => page["page_token"] = json!(next),
            None => break,
        }
    }
    assert_eq!(found, 4);
}

#[test]
fn a_search_does_not_find_the_text_of_an_edit_after_a_recall() {
    let (server, sequences) = start();
    create_index(&server);
    let message = format!("{ROOM}/messages/{}", sequences[0]);
    let edit = json!({"columns": {"text": "secret"}});
    request(&server, "PATCH", &message, &edit).expect(200);
    request(&server, "POST", &format!("{message}/recall"), &json!({})).expect(200);
    let sent = json!({"messages": [{"columns": {"text": "later"}}]});
    let sent = request(&server, "POST", &format!("{ROOM}/messages"), &sent).expect(200);
    for principal in [Value::Null, json!("bea")] {
        let words = json!({"column": "text", "text": "secret"});
        let body = json!({"as": principal, "where": words, "at_least": sent["position"]});
        assert_eq!(search(&server, &body).expect(200)["total"], 0);
    }
}

#[test]
fn the_feed_of_an_inbox_is_only_read_by_its_user() {
    let (server, _) = start();
    let feed = format!("{TABLE}/feeds/inbox,user=bea");
    let own = json!({"messages": [{"sender": "ann", "columns": {"text": "own"}}]});
    let sent = request(&server, "POST", &format!("{feed}/messages"), &own).expect(200);
    let sequence = sent["messages"][0]["sequence"]
        .as_str()
        .expect("a number")
        .to_owned();
    for path in [
        "messages?".to_owned(),
        "messages?after=0&wait=1s&".to_owned(),
        "messages/count?".to_owned(),
        format!("messages/{sequence}?"),
        "watch?after=0&for=0s&".to_owned(),
    ] {
        let path = format!("{feed}/{path}as=");
        assert_eq!(server.get(&format!("{path}bea")).status, 200, "{path}");
        refused(&server.get(&format!("{path}ann")), 403, "forbidden");
    }
    for (route, body) in [
        ("read", json!({"feeds": [{"feed": "inbox,user=bea"}]})),
        ("merge", json!({"feeds": ["inbox,user=bea"]})),
    ] {
        let path = format!("{TABLE}/feeds/{route}");
        for (principal, status) in [("bea", 200), ("ann", 403)] {
            let mut body = body.clone();
            body["as"] = json!(principal);
            let read = request(&server, "POST", &path, &body);
            assert_eq!(read.status, status, "{route}: {}", read.text());
        }
    }
    for path in [feed.clone(), format!("{feed}/members")] {
        assert_eq!(server.get(&format!("{path}?as=bea")).status, 200, "{path}");
        refused(&server.get(&format!("{path}?as=ann")), 403, "forbidden");
        refused(&server.get(&format!("{path}?bogus=1")), 400, "invalid");
    }
    // A search for feeds does not find the inboxes of other users.
    let types = |query: &str| {
        let found = request(
            &server,
            "POST",
            &format!("{TABLE}/feeds/search{query}"),
            &json!({}),
        );
        let found = found.expect(200);
        let feeds = found["timelines"].as_array().expect("a list").iter();
        let names: Vec<String> = feeds
            .map(|feed| format!("{} {}", feed["measurement"], feed["tags"]["user"]))
            .collect();
        let inboxes = names.iter().filter(|name| name.contains("inbox")).count();
        (
            names.len(),
            inboxes,
            names.contains(&r#""inbox" "bea""#.to_owned()),
        )
    };
    assert_eq!(types(""), (4, 3, true));
    assert_eq!(types("?as=bea"), (2, 1, true));
    assert_eq!(types("?as=eva"), (1, 0, false));
}

#[test]
fn reads_of_several_feeds_take_the_principal_of_the_query_or_of_the_body() {
    let (server, _) = start();
    create_index(&server);
    for (route, body) in [
        ("read", json!({"feeds": [{"feed": "room,name=ops"}]})),
        ("merge", json!({"feeds": ["room,name=ops"]})),
        ("messages/search", json!({"feeds": ["room,name=ops"]})),
    ] {
        let post = |query: &str, principal: Value| {
            let mut body = body.clone();
            body["as"] = principal;
            let path = format!("{TABLE}/feeds/{route}{query}");
            request(&server, "POST", &path, &body)
        };
        for (query, principal) in [
            ("?as=bea", Value::Null),
            ("?as=bea", json!("bea")),
            ("", json!("bea")),
        ] {
            let read = post(query, principal).expect(200).to_string();
            assert!(read.contains(r#"{"text":"bea"}"#), "{route}{query}: {read}");
            for hidden in ["cem", "others"] {
                let hidden = format!(r#"{{"text":"{hidden}"}}"#);
                assert!(!read.contains(&hidden), "{route}{query}: {read}");
            }
        }
        refused(&post("?as=ann", json!("bea")), 400, "invalid");
        refused(&post("?bogus=1", Value::Null), 400, "invalid");
    }
    let search = format!("{TABLE}/feeds/search?bogus=1");
    refused(&request(&server, "POST", &search, &json!({})), 400, "invalid");
}

#[test]
fn the_feed_of_an_inbox_has_the_messages_that_the_inbox_shows() {
    let (server, sequences) = start();
    let feed = format!("{TABLE}/feeds/inbox,user=bea");
    let own = json!({"messages": [{"sender": "ann", "columns": {"text": "own"}}]});
    request(&server, "POST", &format!("{feed}/messages"), &own).expect(200);
    let id = server.get(&feed).expect(200)["id"].clone();
    let by_id = format!("{TABLE}/feeds/{}", id.as_str().expect("an id"));
    let inbox = server.get(&format!("{TABLE}/users/bea/inbox")).expect(200);
    assert_eq!(texts(&inbox["messages"]), ["all", "bea", "own"]);
    for path in [&feed, &by_id] {
        for user in ["", "?as=bea"] {
            let page = server.get(&format!("{path}/messages{user}")).expect(200);
            assert_eq!(page["messages"], inbox["messages"], "{path}{user}");
            let counted = server.get(&format!("{path}/messages/count{user}")).expect(200);
            assert_eq!(counted["count"], 3, "{path}{user}");
        }
        let watched = server.get(&format!("{path}/watch?after=0&for=0s")).text();
        for text in ["all", "bea", "own"] {
            assert!(watched.contains(&format!(r#"{{"text":"{text}"}}"#)), "{watched}");
        }
        let message = server
            .get(&format!("{path}/messages/{}", sequences[0]))
            .expect(200);
        assert_eq!(message["message"], inbox["messages"][0]);
        // The sender of this message is blocked.
        refused(
            &server.get(&format!("{path}/messages/{}", sequences[1])),
            404,
            "not_found",
        );
    }
    let read = json!({"feeds": [{"feed": "inbox,user=bea"}, {"feed": "room,name=ops"}], "as": "bea"});
    let read = request(&server, "POST", &format!("{TABLE}/feeds/read"), &read).expect(200);
    assert_eq!(read["feeds"][0]["messages"], inbox["messages"]);
    // A merge has each message once.
    let merge = json!({"feeds": ["room,name=ops", "inbox,user=bea"], "as": "bea"});
    let merged = request(&server, "POST", &format!("{TABLE}/feeds/merge"), &merge).expect(200);
    assert_eq!(texts(&merged["messages"]), ["all", "bea", "own"]);
}
