//! Feeds over HTTP: statuses and messages of wrong requests, pages and cursors, principals, settings of tables, and the
//! routes of the other models on feed tables.
//!
//! The reads themselves are compared with a naive model by the tests of `tideline-message-feed`.

use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tideline_openapi::feed::MessagesSent;

use crate::client::{Response, Server};

const LOBBY: &str = "/v1/tables/chat/feeds/room,name=lobby";

fn create(server: &Server, name: &str, feed: &Value) -> Response {
    let body = json!({"name": name, "model": "feed", "feed": feed}).to_string();
    server.json("POST", "/v1/tables", &body)
}

/// Starts a server with a feed table whose sequence numbers the server assigns.
fn start() -> Server {
    let server = Server::start();
    let columns = json!([{"name": "text", "type": "string"}, {"name": "size", "type": "i64"}]);
    create(&server, "chat", &json!({"columns": columns})).expect(201);
    server
}

fn post(server: &Server, path: &str, body: &Value) -> Response {
    server.json("POST", path, &body.to_string())
}

fn send(server: &Server, messages: &Value) -> Value {
    post(
        server,
        &format!("{LOBBY}/messages"),
        &json!({"messages": messages}),
    )
    .expect(200)
}

/// Sends one message. Returns its sequence number.
fn send_one(server: &Server, message: &Value) -> String {
    let sent = send(server, &json!([message]));
    text(&sent["messages"][0]["sequence"])
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// Returns a member of each message.
fn members(page: &Value, member: &str) -> Vec<Value> {
    let messages = page["messages"].as_array().expect("a list").iter();
    messages.map(|message| message[member].clone()).collect()
}

/// Checks the status, the code and the message of an error.
fn refused(response: &Response, status: u16, code: &str, said: &str) {
    let body = response.expect(status);
    assert_eq!(body["code"], code, "{body}");
    let message = text(&body["message"]);
    assert!(message.contains(said), "{message}");
}

#[test]
fn a_feed_is_created_described_changed_and_deleted() {
    let server = start();
    refused(
        &server.get(LOBBY),
        404,
        "not_found",
        "has no feed \"room,name=lobby\"",
    );
    let put = json!({"attributes": {"title": "Lobby", "seats": 50}}).to_string();
    let created = server.json("PUT", LOBBY, &put).expect(200);
    assert_eq!(
        (
            &created["type"],
            &created["tags"],
            &created["attributes"],
            &created["newest"]
        ),
        (
            &json!("room"),
            &json!({"name": "lobby"}),
            &json!({"title": "Lobby", "seats": 50.0}),
            &Value::Null
        )
    );
    let id = text(&created["id"]);
    let put = json!({"attributes": {"seats": null}}).to_string();
    let by_id = server.json("PUT", &format!("/v1/tables/chat/feeds/{id}"), &put);
    assert_eq!(by_id.expect(200)["attributes"], json!({"title": "Lobby"}));
    // A feed can be found when the request that created it is acknowledged.
    let search = json!({"where": {"tag": "name", "equals": "lobby"}});
    let found = post(&server, "/v1/tables/chat/feeds/search", &search).expect(200);
    assert_eq!(found["timelines"][0]["id"], id);
    let sequence = send_one(&server, &json!({"columns": {"text": "one"}}));
    assert_eq!(server.get(LOBBY).expect(200)["newest"], sequence);
    assert_eq!(server.send("DELETE", LOBBY, &[], b"").status, 204);
    refused(&server.get(LOBBY), 404, "not_found", "has no feed");
    refused(
        &server.send("DELETE", LOBBY, &[], b""),
        404,
        "not_found",
        "has no feed",
    );
    // A message creates the feed again, with the same id and without the attributes.
    let other = send(&server, &json!([{}]));
    assert_eq!(other["feed"], id);
    let again = server.get(LOBBY).expect(200);
    assert_eq!(again["attributes"], json!({}));
    assert_eq!(again["newest"], other["messages"][0]["sequence"]);
    let page = server.get(&format!("{LOBBY}/messages")).expect(200);
    assert_eq!(members(&page, "sequence"), [again["newest"].clone()]);
}

#[test]
fn pages_continue_by_their_cursors_in_both_directions() {
    let server = start();
    let messages: Vec<Value> = (0..25)
        .map(|n| json!({"columns": {"size": n, "text": "x"}}))
        .collect();
    let sent = send(&server, &json!(messages));
    let sequences = members(&sent, "sequence");
    for (order, cursor) in [("ascending", "after"), ("descending", "before")] {
        let (mut path, mut found) = (format!("{LOBBY}/messages?limit=10&order={order}"), Vec::new());
        loop {
            let page = server.get(&path).expect(200);
            found.extend(members(&page, "sequence"));
            path = format!(
                "{LOBBY}/messages?limit=10&order={order}&{cursor}={}",
                text(&page["next"])
            );
            assert_eq!(page["more"], found.len() < 25);
            if page["more"] == false {
                break;
            }
        }
        if order == "descending" {
            found.reverse();
        }
        assert_eq!(found, sequences);
        // No message follows, so the cursor stays the same.
        let page = server.get(&path).expect(200);
        assert_eq!((&page["messages"], &page["more"]), (&json!([]), &json!(false)));
        assert!(path.ends_with(&text(&page["next"])));
    }
    // A reader at the end gets only new messages.
    let last = text(&sequences[24]);
    let new = send_one(&server, &json!({"columns": {"text": "new"}}));
    let page = server.get(&format!("{LOBBY}/messages?after={last}")).expect(200);
    assert_eq!(members(&page, "sequence"), [json!(new)]);
    let counted = server
        .get(&format!("{LOBBY}/messages/count?after={last}"))
        .expect(200);
    assert_eq!((&counted["count"], &counted["next"]), (&json!(1), &Value::Null));
    let some = server
        .get(&format!("{LOBBY}/messages?limit=1&columns=size"))
        .expect(200);
    assert_eq!(some["messages"][0]["columns"], json!({"size": 0}));
    // An empty feed has no cursor.
    server
        .json("PUT", "/v1/tables/chat/feeds/empty", "{}")
        .expect(200);
    let empty = server.get("/v1/tables/chat/feeds/empty/messages").expect(200);
    assert_eq!((&empty["next"], &empty["more"]), (&Value::Null, &json!(false)));
    let future = server.get(&format!("{LOBBY}/messages?from=now%2B1h")).expect(200);
    assert_eq!(future["messages"], json!([]));
    let past = server
        .get(&format!("{LOBBY}/messages?from=now-1h&to=now%2B1h&limit=1000"))
        .expect(200);
    assert_eq!(members(&past, "sequence").len(), 26);
}

#[test]
fn the_response_to_new_messages_has_the_form_of_the_api() {
    let server = start();
    let path = format!("{LOBBY}/messages");
    let messages = json!({"messages": [{"id": "a", "columns": {"text": "one"}}, {"columns": {"size": 2}}]});
    for is_repeated in [false, true] {
        let response = post(&server, &path, &messages);
        assert_eq!(response.status, 200);
        assert_eq!(response.header("content-type"), "application/json");
        let sent: MessagesSent = serde_json::from_slice(&response.body).expect("the form of the API");
        let repeated: Vec<bool> = sent.messages.iter().map(|message| message.repeated).collect();
        assert_eq!(repeated, [is_repeated, false]);
        let expected = serde_json::to_string(&sent).expect("JSON");
        assert_eq!(String::from_utf8_lossy(&response.body), expected);
    }
}

#[test]
fn events_follow_the_messages_that_they_change() {
    let server = start();
    let message = json!({"id": "a", "columns": {"text": "one", "size": 1}});
    let sequence = send_one(&server, &message);
    let path = format!("{LOBBY}/messages/{sequence}");
    let edit = json!({"columns": {"text": "two"}, "clear": ["size"]}).to_string();
    let edited = server.json("PATCH", &format!("{path}?as=bea"), &edit).expect(200);
    let counted = post(&server, &format!("{path}/counters"), &json!({"add": {"like": 2}}));
    assert_eq!(counted.expect(200)["counters"], json!({"like": 2}));
    let recalled = post(&server, &format!("{path}/recall?as=ann"), &json!({})).expect(200);
    let again = post(&server, &format!("{path}/recall"), &json!({})).expect(200);
    assert_eq!(again["event"], Value::Null);
    let read = server.get(&path).expect(200);
    let message = &read["message"];
    assert_eq!(
        (&message["id"], &message["columns"], &message["counters"]),
        (&json!("a"), &json!({}), &json!({"like": 2}))
    );
    assert!(
        message["edited"].is_string() && message["recalled"].is_string(),
        "{message}"
    );
    let deleted = server.send("DELETE", &path, &[], b"").expect(200);
    refused(
        &server.get(&path),
        404,
        "not_found",
        "no message with the sequence number",
    );
    // A reader that has seen the message sees its changes.
    let page = server
        .get(&format!("{LOBBY}/messages?after={sequence}"))
        .expect(200);
    let events: Vec<Value> = [&edited, &recalled, &deleted]
        .map(|changed| changed["event"].clone())
        .to_vec();
    assert_eq!(members(&page, "sequence"), events);
    assert_eq!(members(&page, "event"), ["edit", "recall", "delete"]);
    assert_eq!(
        members(&page, "sender"),
        [json!("bea"), json!("ann"), Value::Null]
    );
    assert_eq!(members(&page, "target"), vec![json!(sequence); 3]);
    assert_eq!(
        page["messages"][0]["columns"],
        // The recall has removed the value.
        json!({"text": null, "size": null})
    );
    let messages = server.get(&format!("{LOBBY}/messages?events=false")).expect(200);
    assert_eq!(
        (&messages["messages"], &messages["more"]),
        (&json!([]), &json!(false))
    );
    assert_eq!(
        server.get(&format!("{LOBBY}/messages/count")).expect(200)["count"],
        0
    );
    // A repeated request is safe also after the deletion.
    let sent = send(&server, &json!([{"id": "a"}, {"id": "b"}]));
    let first = &sent["messages"][0];
    assert_eq!(
        (&first["sequence"], &first["repeated"]),
        (&json!(sequence), &json!(true))
    );
    assert_eq!(sent["messages"][1]["repeated"], Value::Null);
    let repeated = send(&server, &json!([{"id": "b"}]));
    assert_eq!(repeated["position"], Value::Null);
}

#[test]
fn the_principal_is_the_default_sender() {
    let server = start();
    let messages = json!({"messages": [{"columns": {}}, {"sender": "bea"}]});
    post(&server, &format!("{LOBBY}/messages?as=ann"), &messages).expect(200);
    post(&server, &format!("{LOBBY}/messages"), &messages).expect(200);
    let page = server.get(&format!("{LOBBY}/messages")).expect(200);
    assert_eq!(
        members(&page, "sender"),
        [json!("ann"), json!("bea"), Value::Null, json!("bea")]
    );
    let long = "x".repeat(256);
    for principal in ["", long.as_str()] {
        let sent = post(
            &server,
            &format!("{LOBBY}/messages?as={principal}"),
            &json!({"messages": [{}]}),
        );
        refused(&sent, 400, "invalid", "1 to 255 are allowed");
        let sequence = text(&page["messages"][0]["sequence"]);
        let recall = format!("{LOBBY}/messages/{sequence}/recall?as={principal}");
        refused(
            &post(&server, &recall, &json!({})),
            400,
            "invalid",
            "1 to 255 are allowed",
        );
    }
}

#[test]
fn several_feeds_are_read_and_merged() {
    let server = start();
    for n in 0..6 {
        let feed = ["room,name=lobby", "room,name=garden", "mail"][n % 3];
        let body =
            json!({"messages": [{"columns": {"size": n}}, {"columns": {"size": n, "text": "second"}}]});
        post(&server, &format!("/v1/tables/chat/feeds/{feed}/messages"), &body).expect(200);
    }
    let feeds = json!(["room,name=lobby", "mail", "room,name=garden"]);
    for order in ["ascending", "descending"] {
        let mut request = json!({"feeds": feeds, "order": order, "limit": 5});
        let (mut sizes, mut pages) = (Vec::new(), 0);
        loop {
            let page = post(&server, "/v1/tables/chat/feeds/merge", &request).expect(200);
            sizes.extend(
                members(&page, "columns")
                    .iter()
                    .map(|columns| columns["size"].clone()),
            );
            assert!(members(&page, "feed").iter().all(Value::is_string));
            pages += 1;
            if page["next"].is_null() {
                break;
            }
            request["page"] = page["next"].clone();
        }
        if order == "descending" {
            sizes.reverse();
        }
        assert_eq!(json!(sizes), json!([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]));
        assert_eq!(pages, 3);
    }
    let read = json!({"feeds": [{"feed": "mail"}, {"feed": "room,name=lobby"}], "limit": 3});
    let pages = post(&server, "/v1/tables/chat/feeds/read", &read).expect(200);
    let first = &pages["feeds"][0];
    assert_eq!((&first["feed"], &first["more"]), (&json!("mail"), &json!(true)));
    assert_eq!(first["messages"].as_array().map(Vec::len), Some(3));
    let mut read = read;
    read["feeds"][0]["after"] = first["next"].clone();
    let pages = post(&server, "/v1/tables/chat/feeds/read", &read).expect(200);
    assert_eq!(pages["feeds"][0]["messages"].as_array().map(Vec::len), Some(1));
    assert_eq!(pages["feeds"][1]["messages"].as_array().map(Vec::len), Some(3));
    // A feed that does not exist does not prevent the read of the others.
    let read = json!({"feeds": [{"feed": "absent", "after": "7"}, {"feed": "mail"}]});
    let pages = post(&server, "/v1/tables/chat/feeds/read", &read).expect(200);
    let (absent, mail) = (&pages["feeds"][0], &pages["feeds"][1]);
    assert_eq!(absent["error"]["code"], "not_found", "{absent}");
    assert!(
        text(&absent["error"]["message"]).contains("has no feed \"absent\""),
        "{absent}"
    );
    assert_eq!((&absent["messages"], &absent["next"]), (&json!([]), &json!("7")));
    assert_eq!(mail["messages"].as_array().map(Vec::len), Some(4));
    assert!(mail.get("error").is_none(), "{mail}");
    for (path, body, status, code, said) in [
        ("read", json!({"feeds": []}), 400, "invalid", "feeds is empty"),
        ("merge", json!({"feeds": []}), 400, "invalid", "feeds is empty"),
        (
            "merge",
            json!({"feeds": vec!["mail"; 1_001]}),
            400,
            "over_limit",
            "1001",
        ),
        (
            "merge",
            json!({"feeds": ["mail", "absent"]}),
            404,
            "not_found",
            "has no feed \"absent\"",
        ),
        (
            "merge",
            json!({"feeds": ["mail"], "page": "x"}),
            400,
            "invalid",
            "page is damaged",
        ),
        (
            "merge",
            json!({"feeds": ["mail"], "limit": 0}),
            400,
            "invalid",
            "limit",
        ),
        (
            "read",
            json!({"feeds": [{"feed": "mail"}], "limit": 1_001}),
            400,
            "over_limit",
            "limit",
        ),
        (
            "read",
            json!({"feeds": [{"feed": "mail", "since": "1"}]}),
            400,
            "invalid",
            "since",
        ),
    ] {
        let response = post(&server, &format!("/v1/tables/chat/feeds/{path}"), &body);
        let shown = body.to_string();
        assert_eq!(
            response.status,
            status,
            "{path} {}: {}",
            &shown[..shown.len().min(80)],
            response.text()
        );
        refused(&response, status, code, said);
    }
}

#[test]
fn messages_are_searched_in_feeds() {
    let server = start();
    let index = json!({"name": "all", "columns": [{"column": "text", "as": "text"}, {"column": "feed", "as": "keyword"}]});
    post(&server, "/v1/tables/chat/search-indexes?refresh=wait", &index).expect(201);
    post(
        &server,
        "/v1/tables/chat/feeds/mail/messages",
        &json!({"messages": [{"columns": {"text": "lunch"}}]}),
    )
    .expect(200);
    let sent = send(
        &server,
        &json!([{"columns": {"text": "Lunch at noon?"}}, {"columns": {"text": "no"}}]),
    );
    let mut search = json!({"where": {"column": "text", "text": "lunch"}, "at_least": sent["position"], "highlight": true});
    let all = post(&server, "/v1/tables/chat/feeds/messages/search", &search).expect(200);
    assert_eq!(all["total"], 2, "{all}");
    search["feeds"] = json!(["room,name=lobby"]);
    let found = post(&server, "/v1/tables/chat/feeds/messages/search", &search).expect(200);
    assert_eq!(
        members(&found, "sequence"),
        [sent["messages"][0]["sequence"].clone()]
    );
    assert_eq!(members(&found, "feed"), [sent["feed"].clone()]);
    search["feeds"] = json!([]);
    let empty = post(&server, "/v1/tables/chat/feeds/messages/search", &search);
    refused(
        &empty,
        400,
        "invalid",
        "feeds is empty; name a feed, or omit it to search all",
    );
    search["feeds"] = json!(["absent"]);
    let absent = post(&server, "/v1/tables/chat/feeds/messages/search", &search);
    refused(&absent, 404, "not_found", "has no feed");
}

#[test]
fn decimals_in_searches_of_feeds_keep_all_their_digits() {
    let server = Server::start();
    let columns = json!([{"name": "price", "type": "decimal"}]);
    create(&server, "chat", &json!({"columns": columns})).expect(201);
    let index = json!({"name": "all", "columns": [{"column": "price", "as": "keyword"}, {"column": "feed", "as": "keyword"}]});
    post(&server, "/v1/tables/chat/search-indexes?refresh=wait", &index).expect(201);
    let prices = ["1234567890123456.76", "1234567890123456.77"];
    let sent = send(
        &server,
        &prices
            .iter()
            .map(|price| json!({"columns": {"price": price}}))
            .collect(),
    );
    for feeds in ["", r#""feeds":["room,name=lobby"],"#] {
        let search = format!(
            r#"{{{feeds}"where":{{"column":"price","equals":1234567890123456.76}},"at_least":{}}}"#,
            sent["position"]
        );
        let found = server.json("POST", "/v1/tables/chat/feeds/messages/search", &search);
        assert_eq!(
            members(&found.expect(200), "sequence"),
            [sent["messages"][0]["sequence"].clone()],
            "{search}"
        );
    }
}

#[test]
fn wrong_requests_for_messages_are_refused() {
    let server = start();
    let sequence = send_one(&server, &json!({"columns": {"text": "one"}}));
    let message = format!("{LOBBY}/messages/{sequence}");
    let messages = format!("{LOBBY}/messages");
    let one = json!({"messages": [{}]});
    let edit = json!({"columns": {"text": "two"}});
    let integer = "expected an integer of up to 64 bits";
    for (method, path, body, status, code, said) in [
        (
            "POST",
            messages.clone(),
            json!({"messages": []}),
            400,
            "invalid",
            "messages is empty",
        ),
        ("POST", messages.clone(), json!({}), 400, "invalid", "messages"),
        (
            "POST",
            messages.clone(),
            json!({"messages": [{"text": "x"}]}),
            400,
            "invalid",
            "text",
        ),
        (
            "POST",
            messages.clone(),
            json!({"messages": vec![json!({}); 1_001]}),
            400,
            "over_limit",
            "1001",
        ),
        (
            "POST",
            messages.clone(),
            json!({"messages": [{"sequence": "7"}]}),
            400,
            "invalid",
            "omit it",
        ),
        (
            "POST",
            messages.clone(),
            json!({"messages": [{"sequence": "x"}]}),
            400,
            "invalid",
            integer,
        ),
        (
            "POST",
            messages.clone(),
            json!({"messages": [{"columns": {"sender": "x"}}]}),
            400,
            "invalid",
            "is set by the server",
        ),
        (
            "POST",
            format!("{messages}?durability=never"),
            one.clone(),
            400,
            "invalid",
            "durability",
        ),
        (
            "POST",
            format!("{messages}?since=1"),
            one.clone(),
            400,
            "invalid",
            "since",
        ),
        (
            "POST",
            "/v1/tables/chat/feeds/room,name/messages".to_owned(),
            one.clone(),
            400,
            "invalid",
            "name a feed by its id",
        ),
        (
            "POST",
            "/v1/tables/absent/feeds/room/messages".to_owned(),
            one,
            404,
            "not_found",
            "absent",
        ),
        (
            "GET",
            format!("{messages}?after=x"),
            Value::Null,
            400,
            "invalid",
            "parameter after: expected an integer",
        ),
        (
            "GET",
            format!("{messages}?before=9223372036854775808"),
            Value::Null,
            400,
            "invalid",
            "parameter before",
        ),
        (
            "GET",
            format!("{messages}?from=x"),
            Value::Null,
            400,
            "invalid",
            "parameter from",
        ),
        (
            "GET",
            format!("{messages}?limit=0"),
            Value::Null,
            400,
            "invalid",
            "limit",
        ),
        (
            "GET",
            format!("{messages}?limit=1001"),
            Value::Null,
            400,
            "over_limit",
            "limit",
        ),
        (
            "GET",
            format!("{messages}?order=newest"),
            Value::Null,
            400,
            "invalid",
            "order",
        ),
        (
            "GET",
            format!("{messages}/count?limit=5"),
            Value::Null,
            400,
            "invalid",
            "parameter limit: a count does not have it; omit it",
        ),
        (
            "GET",
            format!("{messages}/count?order=ascending"),
            Value::Null,
            400,
            "invalid",
            "parameter order",
        ),
        (
            "GET",
            format!("{messages}/x"),
            Value::Null,
            400,
            "invalid",
            "parameter sequence: expected an integer",
        ),
        (
            "GET",
            format!("{messages}/7"),
            Value::Null,
            404,
            "not_found",
            "no message with the sequence number 7",
        ),
        (
            "GET",
            "/v1/tables/chat/feeds/absent/messages".to_owned(),
            Value::Null,
            404,
            "not_found",
            "has no feed \"absent\"",
        ),
        (
            "PATCH",
            message.clone(),
            json!({}),
            400,
            "invalid",
            "the edit changes nothing",
        ),
        (
            "PATCH",
            message.clone(),
            json!({"columns": {"text": "a"}, "sequence": 9}),
            400,
            "invalid",
            "omit it",
        ),
        (
            "PATCH",
            format!("{messages}/7"),
            edit,
            404,
            "not_found",
            "sequence number 7",
        ),
        (
            "POST",
            format!("{message}/recall?sequence=x"),
            json!({}),
            400,
            "invalid",
            "parameter sequence",
        ),
        (
            "POST",
            format!("{message}/recall?sequence=7"),
            json!({}),
            400,
            "invalid",
            "omit it",
        ),
        (
            "DELETE",
            format!("{message}?sequence=7"),
            Value::Null,
            400,
            "invalid",
            "omit it",
        ),
        (
            "POST",
            format!("{message}/counters"),
            json!({"add": {}}),
            400,
            "invalid",
            "add is empty",
        ),
        (
            "POST",
            format!("{message}/counters"),
            json!({"add": {"like": 1.5}}),
            400,
            "invalid",
            "1.5",
        ),
        (
            "POST",
            format!("{messages}/7/counters"),
            json!({"add": {"like": 1}}),
            404,
            "not_found",
            "sequence number 7",
        ),
    ] {
        let response = match body {
            Value::Null => server.send(method, &path, &[], b""),
            body => server.json(method, &path, &body.to_string()),
        };
        assert_eq!(response.status, status, "{method} {path}: {}", response.text());
        refused(&response, status, code, said);
    }
    let page = server.get(&messages).expect(200);
    assert_eq!(
        members(&page, "sequence"),
        [json!(sequence)],
        "nothing was written"
    );
    post(&server, &format!("{message}/recall"), &json!({})).expect(200);
    let edit = server.json("PATCH", &message, &json!({"columns": {"text": "a"}}).to_string());
    refused(&edit, 409, "condition_failed", "was recalled");
    let count = post(
        &server,
        &format!("{message}/counters"),
        &json!({"add": {"like": 1}}),
    );
    refused(&count, 409, "condition_failed", "was recalled");
}

#[test]
fn writes_of_messages_refuse_an_idempotency_key() {
    let server = start();
    let sequence = send_one(&server, &json!({"columns": {"text": "one"}}));
    let message = format!("{LOBBY}/messages/{sequence}");
    let header = [("idempotency-key", "a"), ("content-type", "application/json")];
    for (method, path, body) in [
        ("POST", format!("{LOBBY}/messages"), json!({"messages": [{}]})),
        ("PATCH", message.clone(), json!({"columns": {"text": "two"}})),
        ("POST", format!("{message}/counters"), json!({"add": {"like": 1}})),
        ("POST", format!("{message}/recall"), json!({})),
        ("DELETE", message.clone(), json!({})),
    ] {
        let response = server.send(method, &path, &header, body.to_string().as_bytes());
        refused(&response, 400, "invalid", "Idempotency-Key");
    }
    let read = server.get(&message).expect(200);
    assert_eq!(read["message"]["columns"], json!({"text": "one"}));
    assert!(read["message"].get("counters").is_none(), "{read}");
}

/// Sends a message with the id `one`. Returns its sequence number and whether it is repeated; `None` while another request
/// sends it.
fn send_once(server: &Server) -> Option<(String, bool)> {
    let body = json!({"messages": [{"id": "one", "columns": {"text": "hello"}}]});
    let sent = post(server, &format!("{LOBBY}/messages"), &body);
    if sent.status == 409 {
        let body = sent.expect(409);
        assert_eq!(body["retryable"], true, "{body}");
        return None;
    }
    let sent = sent.expect(200);
    let message = &sent["messages"][0];
    Some((text(&message["sequence"]), message["repeated"] == true))
}

#[test]
fn equal_message_ids_that_are_sent_at_once_give_one_message() {
    let server = start();
    send_one(&server, &json!({"columns": {"text": "first"}}));
    let sent: Vec<(String, bool)> = thread::scope(|scope| {
        let senders: Vec<_> = (0..24).map(|_| scope.spawn(|| send_once(&server))).collect();
        let sent = senders.into_iter().map(|sender| sender.join().expect("no panic"));
        sent.flatten().collect()
    });
    let repeated = send_once(&server).expect("no request is running");
    assert!(repeated.1);
    assert!(
        sent.iter().all(|(sequence, _)| *sequence == repeated.0),
        "{sent:?}"
    );
    assert_eq!(sent.iter().filter(|(_, is_repeated)| !is_repeated).count(), 1);
    let page = server.get(&format!("{LOBBY}/messages")).expect(200);
    assert_eq!(members(&page, "sequence").len(), 2);
}

#[test]
fn a_message_id_stays_claimed_when_the_client_leaves_before_the_commit() {
    let server = start();
    send_one(&server, &json!({"columns": {"text": "first"}}));
    server.disk.delay_round_trips(Duration::from_millis(500));
    let body = json!({"messages": [{"id": "one", "columns": {"text": "hello"}}]}).to_string();
    let head = format!(
        "POST {LOBBY}/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let (begun, deadline) = (
        server.disk.round_trips(),
        Instant::now() + Duration::from_secs(20),
    );
    let mut left = server.connect();
    left.write_all(format!("{head}{body}").as_bytes()).expect("sent");
    while server.disk.round_trips() == begun {
        assert!(Instant::now() < deadline, "the message is written in time");
        thread::yield_now();
    }
    drop(left);
    let mut refused = 0;
    let (_, is_repeated) = loop {
        match send_once(&server) {
            Some(sent) => break sent,
            None => refused += 1,
        }
        assert!(Instant::now() < deadline, "the claim is released in time");
    };
    assert!(refused > 0, "the id is claimed while the message is written");
    assert!(is_repeated, "the message of the client that left was written");
    server.disk.delay_round_trips(Duration::ZERO);
    let page = server.get(&format!("{LOBBY}/messages")).expect(200);
    assert_eq!(members(&page, "sequence").len(), 2);
    // A deletion waits for all writes, so no message id stays claimed.
    assert_eq!(server.send("DELETE", LOBBY, &[], b"").status, 204);
}

#[test]
fn manual_sequence_numbers_are_kept_and_not_replaced() {
    let server = Server::start();
    create(&server, "chat", &json!({"sequence": "manual"})).expect(201);
    assert_eq!(
        server.get("/v1/tables/chat").expect(200)["feed"]["sequence"],
        "manual"
    );
    let messages = format!("{LOBBY}/messages");
    let largest = i64::MAX.to_string();
    let body = json!({"messages": [{"sequence": -3, "columns": {"text": "a"}}, {"sequence": largest}]});
    let sent = post(&server, &messages, &body).expect(200);
    assert_eq!(members(&sent, "sequence"), [json!("-3"), json!(largest)]);
    let taken = post(
        &server,
        &messages,
        &json!({"messages": [{"sequence": 5}, {"sequence": "-3"}]}),
    );
    refused(
        &taken,
        409,
        "condition_failed",
        "messages/1: the feed has a message with this sequence number",
    );
    refused(
        &post(&server, &messages, &json!({"messages": [{}]})),
        400,
        "invalid",
        "give a sequence",
    );
    let page = server.get(&messages).expect(200);
    assert_eq!(members(&page, "sequence"), [json!("-3"), json!(largest)]);
    // The response has the time that is stored with the message.
    assert_eq!(members(&page, "time"), members(&sent, "time"));
    let end = server.get(&format!("{messages}?after={largest}")).expect(200);
    assert_eq!(end["messages"], json!([]));
    let recalled = post(&server, &format!("{messages}/-3/recall?sequence=8"), &json!({})).expect(200);
    assert_eq!(recalled["event"], "8");
}

#[test]
fn wrong_settings_of_feed_tables_are_refused() {
    let server = start();
    for (body, said) in [
        (
            json!({"model": "feed", "feed": {"sequence": "manual", "parts": {"every": "month"}}}),
            "feed.parts: parts follow from generated sequence numbers",
        ),
        (
            json!({"model": "feed", "wide": {"key": [{"name": "id", "type": "string"}]}}),
            "a table of the model feed has `feed`",
        ),
        (
            json!({"model": "wide", "wide": {"key": [{"name": "id", "type": "string"}]}, "feed": {}}),
            "the setting `feed` is for tables of the model feed, not wide",
        ),
        (
            json!({"feed": {}}),
            "the setting `feed` is for tables of the model feed, not series",
        ),
        (json!({"model": "feed", "feed": {"sequence": "random"}}), "random"),
        (json!({"model": "feed", "feed": {"key": []}}), "key"),
        (
            json!({"model": "feed", "feed": {"parts": {"every": "month", "by": "sequence"}}}),
            "by",
        ),
        (json!({"model": "feed", "write_past": "1d"}), "write_past"),
        (
            json!({"model": "feed", "feed": {"columns": [{"name": "sender", "type": "string"}]}}),
            "sender",
        ),
        (
            json!({"model": "feed", "feed": {"columns": [{"name": "feed", "type": "string"}]}}),
            "feed",
        ),
        (
            json!({"model": "feed", "feed": {"columns": [{"name": "counter.like", "type": "i64"}]}}),
            "names that begin with counter. are reserved for counters",
        ),
    ] {
        let mut body = body;
        body["name"] = json!("other");
        let created = post(&server, "/v1/tables", &body);
        assert_eq!(created.status, 400, "{body}: {}", created.text());
        refused(&created, 400, "invalid", said);
    }
    refused(&server.get("/v1/tables/other"), 404, "not_found", "other");

    let text = json!({"name": "text", "type": "string"});
    for (change, said) in [
        (
            json!({"remove_columns": ["sender"]}),
            "column \"sender\" belongs to every message",
        ),
        (
            json!({"remove_columns": ["id"], "add_columns": [{"name": "id", "type": "i64"}]}),
            "column \"id\" belongs to every message",
        ),
        (json!({"max_versions": 2}), "max_versions is fixed"),
        (json!({"ttl": "1d", "ttl_of": "cell"}), "ttl_of is fixed"),
        (
            json!({"add_columns": [{"name": "counter.x", "type": "i64"}]}),
            "reserved for counters",
        ),
        (
            json!({"parts": {"keep": "30d"}}),
            "the table is not divided into parts",
        ),
    ] {
        let altered = server.json("PATCH", "/v1/tables/chat", &json!({"wide": change}).to_string());
        assert_eq!(altered.status, 400, "{change}: {}", altered.text());
        refused(&altered, 400, "invalid", said);
    }
    let dropped = server.send("DELETE", "/v1/tables/chat/indexes/by_message_id", &[], b"");
    refused(
        &dropped,
        400,
        "invalid",
        "index by_message_id finds message ids and cannot be dropped",
    );
    // Other columns and indexes can be changed.
    let change = json!({"wide": {"remove_columns": ["text"], "add_columns": [text, {"name": "note", "type": "string"}]}});
    server
        .json("PATCH", "/v1/tables/chat", &change.to_string())
        .expect(200);
    let index = json!({"name": "by_note", "key": [{"name": "note"}]});
    post(&server, "/v1/tables/chat/indexes", &index).expect(201);
    assert_eq!(
        server
            .send("DELETE", "/v1/tables/chat/indexes/by_note", &[], b"")
            .status,
        204
    );
    let sent = send(&server, &json!([{"id": "a", "columns": {"text": "x"}}]));
    let again = send(&server, &json!([{"id": "a"}]));
    assert_eq!(again["messages"][0]["sequence"], sent["messages"][0]["sequence"]);
}

#[test]
fn rows_of_a_feed_table_are_read_but_not_written() {
    let server = start();
    let sent = send(
        &server,
        &json!([{"id": "a", "columns": {"text": "one", "size": 1}}]),
    );
    let key = json!({"feed": sent["feed"], "sequence": sent["messages"][0]["sequence"]});
    let said = "table chat has the model feed";
    let rows = "/v1/tables/chat/rows";
    let put = json!({"op": "put", "key": key, "columns": {"text": "two"}});
    for (path, body) in [
        (rows.to_owned(), json!({"rows": [put]})),
        (
            format!("{rows}/delete"),
            json!({"prefix": {"feed": sent["feed"]}}),
        ),
    ] {
        refused(&post(&server, &path, &body), 422, "wrong_model", said);
    }
    let lines = server.post(rows, "application/x-ndjson", put.to_string());
    assert_eq!(lines.status, 422, "{}", lines.text());
    let imported = server.post(
        &format!("{rows}/import"),
        "text/csv",
        "feed,sequence,text\na,1,x\n",
    );
    assert_eq!(imported.status, 422, "{}", imported.text());
    for statement in [
        "INSERT INTO chat (feed, sequence, text) VALUES ('a', 1, 'x')",
        "UPDATE chat SET text = 'x' WHERE feed = 'a' AND sequence = 1",
        "DELETE FROM chat WHERE feed = 'a' AND sequence = 1",
    ] {
        let run = post(&server, "/v1/sql", &json!({"statement": statement}));
        assert!((400..500).contains(&run.status), "{statement}: {}", run.text());
    }
    let got = post(&server, &format!("{rows}/get"), &json!({"keys": [key]})).expect(200);
    assert_eq!(
        got["rows"][0]["columns"],
        json!({"id": "a", "text": "one", "size": 1})
    );
    let scan = json!({"prefix": {"feed": sent["feed"]}});
    let scanned = post(&server, &format!("{rows}/scan"), &scan).expect(200);
    assert_eq!(scanned["rows"], got["rows"]);
    let by_id = json!({"index": "by_message_id", "prefix": {"feed": sent["feed"], "id": "a"}});
    let by_id = post(&server, &format!("{rows}/scan"), &by_id).expect(200);
    assert_eq!(by_id["rows"][0]["key"], scanned["rows"][0]["key"]);
    assert_eq!(
        post(&server, &format!("{rows}/count"), &scan).expect(200)["count"],
        1
    );
    let selected =
        json!({"statement": format!("SELECT text FROM chat WHERE feed = '{}'", text(&sent["feed"]))});
    assert_eq!(
        post(&server, "/v1/sql", &selected).expect(200)["rows"],
        json!([{"text": "one"}])
    );
}

#[test]
fn routes_refuse_tables_of_other_models() {
    let server = start();
    send(&server, &json!([{}]));
    let wide = json!({"name": "rows", "model": "wide", "wide": {"key": [{"name": "id", "type": "string"}]}});
    post(&server, "/v1/tables", &wide).expect(201);
    let said = "table chat has the model feed; this request is for tables of the model series";
    let all = json!({"timelines": {"where": {"and": []}}, "range": {"start": "now-1h", "end": "now"}});
    let back = json!({"for": "7d", "range": {"start": "now-2d", "end": "now-1d"}});
    for (path, body) in [
        ("points", json!({"points": []})),
        ("points/delete", all.clone()),
        ("query", json!({"range": {"start": "now-1h"}})),
        ("latest", json!({})),
        ("timelines/search", json!({})),
        ("timelines/delete", json!({"timelines": {"where": {"and": []}}})),
        (
            "timelines/attributes",
            json!({"set": {"a": 1}, "timelines": {"where": {"and": []}}}),
        ),
        ("archive/restore", back),
    ] {
        let response = post(&server, &format!("/v1/tables/chat/{path}"), &body);
        assert_eq!(response.status, 422, "{path}: {}", response.text());
        refused(&response, 422, "wrong_model", said);
    }
    for path in [
        "timelines",
        "tags",
        "measurements",
        "fields?measurement=m",
        "cardinality",
        "watch",
    ] {
        let response = server.get(&format!("/v1/tables/chat/{path}"));
        assert_eq!(response.status, 422, "{path}: {}", response.text());
        refused(&response, 422, "wrong_model", said);
    }
    for (table, model) in [("rows", "wide"), ("default", "series")] {
        let said =
            format!("table {table} has the model {model}; this request is for tables of the model feed");
        let feeds = format!("/v1/tables/{table}/feeds");
        let one = json!({"messages": [{}]});
        for response in [
            server.json("PUT", &format!("{feeds}/room"), "{}"),
            server.get(&format!("{feeds}/room")),
            server.send("DELETE", &format!("{feeds}/room"), &[], b""),
            post(&server, &format!("{feeds}/search"), &json!({})),
            post(
                &server,
                &format!("{feeds}/read"),
                &json!({"feeds": [{"feed": "room"}]}),
            ),
            post(&server, &format!("{feeds}/merge"), &json!({"feeds": ["room"]})),
            post(&server, &format!("{feeds}/messages/search"), &json!({})),
            post(&server, &format!("{feeds}/room/messages"), &one),
            server.get(&format!("{feeds}/room/messages")),
            server.get(&format!("{feeds}/room/messages/count")),
            server.get(&format!("{feeds}/room/messages/1")),
            server.json(
                "PATCH",
                &format!("{feeds}/room/messages/1"),
                r#"{"clear": ["a"]}"#,
            ),
            post(&server, &format!("{feeds}/room/messages/1/recall"), &json!({})),
            server.send("DELETE", &format!("{feeds}/room/messages/1"), &[], b""),
            post(
                &server,
                &format!("{feeds}/room/messages/1/counters"),
                &json!({"add": {"a": 1}}),
            ),
        ] {
            refused(&response, 422, "wrong_model", &said);
        }
    }
}

/// Returns the value of a metric with the label of the table.
fn table_metric(server: &Server, name: &str) -> f64 {
    let text = String::from_utf8(server.get("/metrics").body).expect("UTF-8");
    let line = format!("tideline_{name}{{table=\"chat\"}} ");
    let value = text.lines().find_map(|found| found.strip_prefix(&line));
    value.expect("the metric exists").parse().expect("a number")
}

/// Runs the job that writes messages to inboxes. Returns the response after its end.
fn fan_out(server: &Server) -> Value {
    let run = json!({"kind": "fan_out", "table": "chat", "wait": true}).to_string();
    server.json("POST", "/v1/jobs", &run).expect(200)
}

#[test]
fn a_message_reaches_five_thousand_inboxes_at_once_and_by_a_job() {
    const MEMBERS: usize = 5_000;
    let server = Server::start();
    create(
        &server,
        "chat",
        &json!({"inboxes": {"push_max": 20, "fan_out_max": MEMBERS}}),
    )
    .expect(201);
    let (server, failed) = (&server, &std::sync::Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for first in 0..4 {
            scope.spawn(move || {
                for user in (first..MEMBERS).step_by(4) {
                    let joined = server.json("PUT", &format!("{LOBBY}/members/u{user}"), "{}");
                    if joined.status != 200 {
                        failed.lock().expect("no panic").push(joined.status);
                    }
                }
            });
        }
    });
    assert!(failed.lock().expect("no panic").is_empty());
    // Automatic jobs begin only when a message has waited for a minute; the clock of the test does not advance.
    fan_out(server);
    let sequence = send_one(server, &json!({"columns": {"text": "hello"}}));
    let shown = |user: usize| {
        let page = server.get(&format!("/v1/tables/chat/users/u{user}/inbox"));
        members(&page.expect(200), "sequence")
    };
    let stored = |user: usize| {
        let inbox = server.get(&format!("/v1/tables/chat/feeds/inbox,user=u{user}"));
        let entries = json!({"prefix": {"feed": inbox.expect(200)["id"]}});
        post(server, "/v1/tables/chat/rows/count", &entries).expect(200)["count"].clone()
    };
    let some = [0, 1, 2_500, 4_999];
    for user in some {
        assert_eq!((shown(user), stored(user)), (vec![json!(sequence)], json!(0)));
    }
    assert_eq!(table_metric(server, "feed_fan_out_waiting_feeds"), 1.0);
    assert!(
        server.get("/ready").expect(200)["reasons"]
            .as_array()
            .is_some_and(Vec::is_empty)
    );
    let done = fan_out(server);
    let job = &done["jobs"][0];
    assert_eq!(
        (&job["state"], &job["total"]["points"], &job["done"]["points"]),
        (&json!("done"), &json!(MEMBERS), &json!(MEMBERS)),
        "{done}"
    );
    for user in some {
        assert_eq!((shown(user), stored(user)), (vec![json!(sequence)], json!(1)));
    }
    assert_eq!(table_metric(server, "feed_fan_out_waiting_feeds"), 0.0);
    assert_eq!(table_metric(server, "feed_fan_out_lag_seconds"), 0.0);
    let left = server.send("DELETE", &format!("{LOBBY}/members/u2500"), &[], b"");
    assert!(left.status < 300, "{left:?}");
    assert_eq!((shown(2_500), stored(2_500)), (vec![], json!(0)));
}

#[test]
fn messages_that_wait_for_inboxes_for_long_are_reported() {
    let server = Server::start();
    create(
        &server,
        "chat",
        &json!({"inboxes": {"push_max": 0, "fan_out_max": 10}}),
    )
    .expect(201);
    server
        .json("PUT", &format!("{LOBBY}/members/ann"), "{}")
        .expect(200);
    // The job of the start of the server has ended here, and later ones are paused.
    fan_out(&server);
    send_one(&server, &json!({}));
    let begun = Instant::now();
    let id = loop {
        let jobs = server.get("/v1/jobs?kind=fan_out&state=planned").expect(200);
        if let Some(id) = jobs["jobs"][0]["id"].as_u64() {
            break id;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "the job is planned");
        thread::yield_now();
    };
    let paused = server.json("POST", &format!("/v1/jobs/{id}/pause"), "{}");
    assert!(paused.status < 300, "{paused:?}");
    for _ in 0..3 {
        server.clock.advance(3_600_000_000_000);
        server.get("/ready").expect(200);
    }
    let ready = server.get("/ready").expect(200);
    let reason = text(&ready["reasons"][0]);
    assert!(
        reason.contains("fan-out of table chat: messages of 1 feeds"),
        "{reason}"
    );
    assert!(table_metric(&server, "feed_fan_out_lag_seconds") > 3_600.0);
    assert_eq!(
        members(&server.get("/v1/tables/chat/users/ann/inbox").expect(200), "feed").len(),
        1
    );
}

#[test]
fn settings_of_inboxes_have_limits() {
    let server = Server::start();
    for (inboxes, status, code, said) in [
        (
            json!({"push_max": 5, "fan_out_max": 5}),
            400,
            "invalid",
            "must be above push_max",
        ),
        (
            json!({"fan_out_max": 100_001}),
            400,
            "over_limit",
            "feed.inboxes.fan_out_max",
        ),
        (json!({"entries": "both"}), 400, "invalid", "reference"),
    ] {
        refused(
            &create(&server, "chat", &json!({"inboxes": inboxes})),
            status,
            code,
            said,
        );
    }
    let columns = json!([{"name": "copy", "type": "string"}]);
    let copies = json!({"entries": "copy"});
    let twice = create(&server, "chat", &json!({"columns": columns, "inboxes": copies}));
    refused(&twice, 400, "invalid", "declared twice");
    create(
        &server,
        "chat",
        &json!({"inboxes": {"fan_out_max": 900, "entries": "copy"}}),
    )
    .expect(201);
    let table = server.get("/v1/tables/chat").expect(200);
    assert_eq!(
        table["feed"]["inboxes"],
        json!({"push_max": 500, "fan_out_max": 900, "entries": "copy"})
    );
}

#[test]
fn inboxes_of_members_who_join_and_leave_do_not_need_parts_that_are_closed_for_writes() {
    const DAY: i64 = 86_400_000_000_000;
    let server = Server::start();
    let columns = json!([{"name": "text", "type": "string"}]);
    let parts = json!({"every": "day", "writable": "2d"});
    create(
        &server,
        "chat",
        &json!({"columns": columns, "parts": parts, "inboxes": {}}),
    )
    .expect(201);
    let join = |user: &str, history: &str| {
        let body = json!({"history": history}).to_string();
        server
            .json("PUT", &format!("{LOBBY}/members/{user}"), &body)
            .expect(200)
    };
    let inbox = |user: &str| -> Vec<String> {
        let page = server
            .get(&format!("/v1/tables/chat/users/{user}/inbox"))
            .expect(200);
        let messages = members(&page, "columns").into_iter();
        messages.map(|columns| text(&columns["text"])).collect()
    };
    let message = |text: &str| json!([{"columns": {"text": text}}]);
    assert_eq!(join("ann", "none").get("skipped"), None);
    send(&server, &message("old"));
    send(&server, &message("older than two days"));
    server.clock.advance(10 * DAY);
    send(&server, &message("new"));
    assert_eq!(inbox("ann"), ["old", "older than two days", "new"]);

    // The messages of the closed part get no entries, which the response reports. The message of the open part
    // gets its entry.
    for _ in 0..2 {
        assert_eq!(join("bea", "all")["skipped"], 2);
        assert_eq!(inbox("bea"), ["new"]);
    }
    // Entries in the closed part cannot be removed, but the inbox no longer shows them.
    let left = server.send("DELETE", &format!("{LOBBY}/members/ann"), &[], b"");
    assert_eq!(left.status, 204);
    assert_eq!(inbox("ann"), Vec::<String>::new());
    let rows = server.json(
        "POST",
        "/v1/tables/chat/rows/scan",
        &json!({"allow_scan": true, "where": {"column": "source", "exists": true}}).to_string(),
    );
    let entries = rows.expect(200)["rows"].as_array().expect("a list").len();
    assert_eq!(entries, 3, "two entries of ann that stay, one of bea");
    join("ann", "none");
    send(&server, &message("later"));
    assert_eq!(inbox("ann"), ["later"]);
}
