//! Change streams over HTTP: the records of every kind of change, pages, partitions, consumer groups, gaps, and a copy of a
//! table that follows its stream.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_change_stream::{ChangeStreams, Position};
use tideline_engine::state_table::StateRow;
use tideline_engine::{Engine, Settings};
use tideline_http::{ChangeSettings, HttpSettings};
use tideline_model::{ManualClock, Timestamp};
use tideline_openapi::change::StreamSettings;
use tideline_testkit::{Random, seed};

use crate::client::{NOW, Response, Server};

fn put(server: &Server, path: &str, body: &Value) -> Response {
    server.json("PUT", path, &body.to_string())
}

fn post(server: &Server, path: &str, body: &Value) -> Response {
    server.json("POST", path, &body.to_string())
}

fn delete(server: &Server, path: &str) {
    let response = server.json("DELETE", path, "");
    assert_eq!(response.status, 204, "{}", response.text());
}

fn write_points(server: &Server, lines: &str) {
    let response = server.post("/v1/tables/default/points", "text/plain", lines);
    assert_eq!(response.status, 200, "{}", response.text());
}

/// Starts a server with a stream of everything.
fn start_with(settings: HttpSettings) -> Server {
    let server = Server::with(settings);
    put(&server, "/v1/changes/all", &json!({})).expect(200);
    create_orders(&server);
    server
}

fn start() -> Server {
    start_with(HttpSettings::default())
}

fn create_orders(server: &Server) {
    let wide = json!({
        "key": [{"name": "customer", "type": "string"}, {"name": "number", "type": "i64"}],
        "columns": [{"name": "state", "type": "string"}, {"name": "total", "type": "decimal"}],
    });
    post(
        server,
        "/v1/tables",
        &json!({"name": "orders", "model": "wide", "wide": wide}),
    )
    .expect(201);
}

fn write_rows(server: &Server, rows: &Value) {
    post(server, "/v1/tables/orders/rows", &json!({"rows": rows})).expect(200);
}

fn write_order(server: &Server, customer: &str, number: i64, state: &str) {
    let key = json!({"customer": customer, "number": number});
    write_rows(
        server,
        &json!([{"op": "put", "key": key, "columns": {"state": state}}]),
    );
}

/// Reads a stream or group to its end in pages. Returns all records, and the cursor after them.
fn read_all(server: &Server, path: &str, query: &str, limit: usize) -> (Vec<Value>, String) {
    let mut records = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let after = cursor
            .map(|cursor| format!("&cursor={cursor}"))
            .unwrap_or_default();
        let page = server
            .get(&format!("/v1/changes/{path}/records?limit={limit}{query}{after}"))
            .expect(200);
        let found = page["records"].as_array().expect("a list").clone();
        assert!(found.len() <= limit, "{page}");
        records.extend(found);
        let next = page["next"].as_str().expect("a cursor").to_owned();
        if page["has_more"] == false {
            return (records, next);
        }
        cursor = Some(next);
    }
}

fn kinds(records: &[Value]) -> Vec<&str> {
    records
        .iter()
        .map(|record| record["kind"].as_str().expect("a kind"))
        .collect()
}

/// Checks the status, the code and the message of an error.
fn refused(response: &Response, status: u16, code: &str, said: &str) {
    let body = response.expect(status);
    assert_eq!(body["code"], code, "{body}");
    let message = body["message"].as_str().expect("a message");
    assert!(message.contains(said), "{message}");
}

fn write_everything(server: &Server) {
    let points = "cpu,host=a usage=1.5,busy=true 1795700000000000000\ncpu,host=a usage=2 1795700001000000000";
    write_points(server, points);
    let found = post(server, "/v1/tables/default/timelines/search", &json!({})).expect(200);
    let id = found["timelines"][0]["id"].as_str().expect("an id");
    let attributes = json!({"team": "core"}).to_string();
    server
        .json(
            "PATCH",
            &format!("/v1/tables/default/timelines/{id}/attributes"),
            &attributes,
        )
        .expect(200);
    let search = json!({"where": {"tag": "host", "equals": "a"}});
    put(server, "/v1/tables/default/searches/mine", &search).expect(200);
    delete(server, "/v1/tables/default/searches/mine");
    let old = json!({"timelines": {"ids": [id]}, "range": {"start": null, "end": "2026-11-26T13:33:21Z"}});
    post(server, "/v1/tables/default/points/delete", &old).expect(200);

    write_order(server, "acme", 1, "new");
    let key = json!({"customer": "acme", "number": 1});
    write_rows(
        server,
        &json!([{"op": "update", "key": key, "columns": {"total": "5.32"}, "clear": ["state"]}]),
    );
    write_rows(server, &json!([{"op": "delete", "key": key}]));
    write_order(server, "acme", 2, "new");
    post(
        server,
        "/v1/tables/orders/rows/delete",
        &json!({"prefix": {"customer": "acme"}}),
    )
    .expect(200);

    let chat =
        json!({"name": "chat", "model": "feed", "feed": {"columns": [{"name": "text", "type": "string"}]}});
    post(server, "/v1/tables", &chat).expect(201);
    let messages = json!({"messages": [{"sender": "ann", "columns": {"text": "hello"}}]});
    post(
        server,
        "/v1/tables/chat/feeds/room,name=lobby/messages",
        &messages,
    )
    .expect(200);
}

#[test]
fn every_kind_of_change_has_a_record() {
    let server = start();
    write_everything(&server);
    let (records, end) = read_all(&server, "all", "", 1_000);
    let expected = [
        "timeline",
        "points",
        "points",
        "timeline",
        "search",
        "search",
        "points_deleted",
        "row",
        "row",
        "row",
        "row",
        "rows_deleted",
        "timeline",
        "message",
    ];
    let found = kinds(&records);
    // The two points have different fields, so they are in two groups.
    assert_eq!(found, expected, "{records:#?}");
    for record in &records {
        assert!(
            record["cursor"].is_string() && record["table"].is_string(),
            "{record}"
        );
    }
    let of = |kind: &str, at: usize| -> &Value {
        records
            .iter()
            .filter(|record| record["kind"] == kind)
            .nth(at)
            .expect("a record")
    };
    assert_eq!(
        of("timeline", 1)["timeline"]["attributes"],
        json!({"team": "core"})
    );
    let series = &of("points", 0)["series"];
    assert_eq!(series["tags"], json!({"host": "a"}));
    assert_eq!(series["points"][0][0], "2026-11-26T13:33:20Z", "{series}");
    assert_eq!(of("search", 0)["deleted"], true, "the state is that of the read");
    assert_eq!(of("points_deleted", 0)["end"], "2026-11-26T13:33:21Z");
    assert_eq!(of("points_deleted", 0)["removed"], false);
    assert_eq!(
        [
            &of("row", 0)["op"],
            &of("row", 0)["key"],
            &of("row", 0)["columns"]
        ],
        [
            &json!("put"),
            &json!({"customer": "acme", "number": 1}),
            &json!({"state": "new"})
        ]
    );
    assert_eq!(
        [
            &of("row", 1)["op"],
            &of("row", 1)["columns"],
            &of("row", 1)["clear"]
        ],
        [&json!("update"), &json!({"total": "5.32"}), &json!(["state"])]
    );
    assert_eq!(of("row", 2)["op"], "delete");
    assert_eq!(of("rows_deleted", 0)["start"]["key"], json!({"customer": "acme"}));
    assert_eq!(of("message", 0)["message"]["columns"], json!({"text": "hello"}));
    assert_eq!(of("message", 0)["message"]["sender"], "ann");

    // Pages of any size return the same records, also from the journal that is kept after a flush.
    for limit in [1, 3] {
        assert_eq!(
            read_all(&server, "all", "", limit),
            (records.clone(), end.clone())
        );
    }
    server.engine.seal().expect("flushed");
    write_order(&server, "beta", 1, "new");
    let (all, _) = read_all(&server, "all", "", 2);
    assert_eq!(all[..records.len()], records);
    assert_eq!(kinds(&all[records.len()..]), ["row"]);

    // A stream that is created now contains only later changes, and only those of its tables and kinds.
    put(
        &server,
        "/v1/changes/some",
        &json!({"tables": ["ord*"], "kinds": ["row"]}),
    )
    .expect(200);
    write_everything_again(&server);
    let (some, _) = read_all(&server, "some", "", 1);
    assert_eq!(kinds(&some), ["row"]);
}

fn write_everything_again(server: &Server) {
    write_points(server, "cpu,host=b usage=1 1795700000000000000");
    write_order(server, "gamma", 1, "new");
}

#[test]
fn records_of_inbox_entries_are_marked() {
    let server = start();
    let chat = json!({"name": "chat", "model": "feed", "feed": {"inboxes": {}}});
    post(&server, "/v1/tables", &chat).expect(201);
    let feeds = "/v1/tables/chat/feeds";
    for user in ["ann", "bea"] {
        let member = format!("{feeds}/room,name=lobby/members/{user}");
        put(&server, &member, &json!({})).expect(200);
    }
    let message = json!({"messages": [{"sender": "ann"}]});
    for feed in ["room,name=lobby", "inbox,user=ann"] {
        post(&server, &format!("{feeds}/{feed}/messages"), &message).expect(200);
    }
    delete(&server, &format!("{feeds}/room,name=lobby/members/bea"));
    let [room, ann, bea] = ["room,name=lobby", "inbox,user=ann", "inbox,user=bea"].map(|feed| {
        let described = server.get(&format!("{feeds}/{feed}")).expect(200);
        described["id"].clone()
    });
    let (records, _) = read_all(&server, "all", "", 1_000);
    let of = |feed: &Value| -> Vec<Value> {
        let records = records.iter().filter(|record| record["message"]["feed"] == *feed);
        records
            .map(|record| json!([record["op"], record.get("inbox"), record.get("source")]))
            .collect()
    };
    assert_eq!(of(&room), [json!(["put", null, null])], "{records:#?}");
    // The second message was sent to the inbox itself.
    let (entry, own) = (json!(["put", true, room]), json!(["put", true, null]));
    assert_eq!(of(&ann), [entry.clone(), own], "{records:#?}");
    assert_eq!(of(&bea), [entry, json!(["delete", true, null])], "{records:#?}");

    // The earlier records do not change when an inbox is deleted.
    let entries = |records: &[Value]| -> Vec<Value> {
        let entries = records.iter().filter(|record| record["message"]["feed"] == bea);
        entries
            .map(|record| json!([record["op"], record.get("inbox")]))
            .collect()
    };
    let before = entries(&records);
    delete(&server, &format!("{feeds}/inbox,user=bea"));
    let (records, _) = read_all(&server, "all", "", 1_000);
    assert_eq!(entries(&records)[..2], before[..], "{records:#?}");
}

#[test]
fn a_page_continues_inside_a_write_after_one_of_its_timelines_was_removed() {
    let server = start();
    let lines = ["a", "b", "c"].map(|host| format!("cpu,host={host} usage=1 1795700000000000000"));
    write_points(&server, &lines.join("\n"));
    let first = server.get("/v1/changes/all/records?limit=4").expect(200);
    let records = first["records"].as_array().expect("a list");
    assert_eq!(kinds(records), ["timeline", "timeline", "timeline", "points"]);
    let removed = &records[3]["series"];
    let id = removed["id"].as_str().expect("an id");
    delete(&server, &format!("/v1/tables/default/timelines/{id}"));

    let next = first["next"].as_str().expect("a cursor");
    let rest = server
        .get(&format!("/v1/changes/all/records?cursor={next}"))
        .expect(200);
    let records = rest["records"].as_array().expect("a list");
    assert_eq!(kinds(records), ["points", "points", "points_deleted"]);
    let mut hosts: Vec<&str> = [removed, &records[0]["series"], &records[1]["series"]]
        .into_iter()
        .map(|series| series["tags"]["host"].as_str().expect("a host"))
        .collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["a", "b", "c"]);
    // A reader from the start gets only the timelines that are left, in pages of any size.
    for limit in [1, 2, 1_000] {
        let (records, _) = read_all(&server, "all", "", limit);
        assert_eq!(
            kinds(&records),
            ["timeline", "timeline", "points", "points", "points_deleted"]
        );
    }
}

/// Changes are freed at any time while streams are created.
#[test]
fn the_changes_of_the_first_stream_are_kept_from_its_creation() {
    let index = tempfile::tempdir().expect("a folder for the index");
    let backend = MemoryBackend::open(&MemoryDisk::new(Character::Embedded));
    let clock = ManualClock::new(Timestamp::parse_rfc3339(NOW).expect("a time"));
    let settings = Settings::new(index.path().to_owned());
    let engine = Engine::open(Arc::new(backend), Arc::new(clock), settings).expect("opens");
    let engine = Arc::new(engine);
    let streams = ChangeStreams::open(Arc::clone(&engine), ChangeSettings::default()).expect("opens");
    std::thread::scope(|threads| {
        let creating = threads.spawn(|| {
            for _ in 0..200 {
                let created = streams.put_stream("all", &StreamSettings::default(), &|_, _| Ok(()));
                let end: Position = created.expect("created").end.parse().expect("a cursor");
                let kept = engine.kept_changes().expect("a history").from;
                assert!(
                    kept.is_some_and(|kept| kept < end.sequence),
                    "{kept:?} is not before the change that stores the stream"
                );
                streams.delete_stream("all").expect("deleted");
            }
        });
        while !creating.is_finished() {
            streams.keep().expect("freed");
        }
        creating.join().expect("no panic");
    });
}

#[test]
fn streams_groups_and_their_changes_survive_a_restart() {
    let mut server = start();
    write_everything(&server);
    let group = json!({"partitions": 2, "hold": true, "from": "oldest"});
    put(&server, "/v1/changes/all/groups/copy", &group).expect(200);
    let (before, _) = read_all(&server, "all", "", 1_000);
    let first = server
        .get("/v1/changes/all/groups/copy/records?partition=1&limit=1")
        .expect(200);
    let confirmed = json!({"partition": 1, "cursor": first["next"]});
    post(&server, "/v1/changes/all/groups/copy/checkpoints", &confirmed).expect(200);
    let described = server.get("/v1/changes/all/groups/copy").expect(200);
    server.engine.seal().expect("flushed");
    server.wait_stopped();

    let server = Server::on(Arc::clone(&server.disk), HttpSettings::default());
    assert_eq!(read_all(&server, "all", "", 1_000).0, before);
    let mut again = server.get("/v1/changes/all/groups/copy").expect(200);
    again["request_id"] = described["request_id"].clone();
    // A start skips sequence numbers.
    for partition in 0..2 {
        again["checkpoints"][partition]["lag"] = described["checkpoints"][partition]["lag"].clone();
    }
    assert_eq!(again, described);
    assert_eq!(again["checkpoints"][1]["cursor"], first["next"]);
    write_order(&server, "acme", 7, "new");
    let (all, _) = read_all(&server, "all", "", 1_000);
    assert_eq!(
        kinds(&all[before.len()..]),
        ["row"],
        "the numbers that a start skips are no gap"
    );
}

#[test]
fn partitions_share_the_changes_and_keep_the_order_of_each_key() {
    let server = start();
    for number in 0..40 {
        write_order(&server, &format!("customer-{}", number % 8), number, "new");
    }
    let (all, _) = read_all(&server, "all", "", 1_000);
    let mut by_customer: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut used = 0;
    let mut count = 0;
    for partition in 0..4 {
        let (records, _) = read_all(&server, "all", &format!("&partition={partition}&partitions=4"), 3);
        used += usize::from(!records.is_empty());
        count += records.len();
        for record in records {
            let customer = record["key"]["customer"].as_str().expect("a customer").to_owned();
            by_customer.entry(customer).or_default().push(record);
        }
    }
    assert_eq!(count, all.len());
    assert!(used > 1, "the keys spread");
    for (customer, records) in by_customer {
        let expected: Vec<&Value> = all
            .iter()
            .filter(|record| record["key"]["customer"] == *customer)
            .collect();
        assert_eq!(records.iter().collect::<Vec<_>>(), expected, "{customer}");
    }
}

/// A deletion of the rows of one customer is only in the partition of this customer. Other deletions are in all
/// partitions, and their positions show which rows they deleted.
#[test]
fn deletions_of_ranges_have_the_order_of_the_rows_in_all_partitions() {
    let server = start();
    write_order(&server, "acme", 1, "new");
    let delete = |body: Value| post(&server, "/v1/tables/orders/rows/delete", &body).expect(200);
    delete(json!({"prefix": {"customer": "acme"}}));
    write_order(&server, "acme", 1, "again");
    let deleted = delete(json!({"allow_all": true}));
    write_order(&server, "acme", 1, "last");
    let of_partition = |number: u16| {
        let query = format!("&partition={number}&partitions=2");
        read_all(&server, "all", &query, 1_000).0
    };
    let mut partitions = [of_partition(0), of_partition(1)];
    partitions.sort_by_key(Vec::len);
    let [other, own] = &partitions;
    assert_eq!(kinds(other), ["rows_deleted"], "{other:?}");
    assert_eq!(
        kinds(own),
        ["row", "rows_deleted", "row", "rows_deleted", "row"],
        "{own:?}"
    );
    let position = |record: &Value| -> u64 {
        let text = record["position"].as_str().expect("a position");
        text.parse().expect("a number")
    };
    assert!(own.windows(2).all(|pair| position(&pair[0]) < position(&pair[1])));
    assert_eq!(other[0]["position"], own[3]["position"]);
    assert_eq!(other[0]["position"], deleted["position"]);
}

#[test]
fn a_checkpoint_moves_back_only_on_request() {
    let server = start();
    put(&server, "/v1/changes/all/groups/copy", &json!({"from": "oldest"})).expect(200);
    write_order(&server, "acme", 1, "new");
    write_order(&server, "acme", 2, "new");
    let group = "/v1/changes/all/groups/copy";
    let first = server.get(&format!("{group}/records?limit=1")).expect(200);
    let second = server.get(&format!("{group}/records")).expect(200);
    assert_eq!(
        second["records"].as_array().map(Vec::len),
        Some(2),
        "reading confirms nothing"
    );
    let checkpoints = format!("{group}/checkpoints");
    let confirmed = post(&server, &checkpoints, &json!({"cursor": second["next"]})).expect(200);
    assert_eq!(confirmed["behind"], false, "the checkpoint itself is no change");
    let empty = server.get(&format!("{group}/records")).expect(200);
    assert_eq!(empty["records"], json!([]));
    let back = json!({"cursor": first["next"]});
    refused(
        &post(&server, &checkpoints, &back),
        409,
        "conflict",
        "before the checkpoint",
    );
    let rewind = json!({"cursor": first["next"], "rewind": true});
    post(&server, &checkpoints, &rewind).expect(200);
    let again = server.get(&format!("{group}/records")).expect(200);
    assert_eq!(again["records"][0]["key"]["number"], 2);
    delete(&server, group);
    refused(&server.get(group), 404, "not_found", "consumer group \"copy\"");
    delete(&server, "/v1/changes/all");
    refused(
        &server.get("/v1/changes/all"),
        404,
        "not_found",
        "change stream \"all\"",
    );
}

#[test]
fn freed_changes_are_an_explicit_gap() {
    let settings = HttpSettings {
        changes: ChangeSettings {
            bytes_max: 1,
            ..ChangeSettings::default()
        },
        ..HttpSettings::default()
    };
    let mut server = start_with(settings.clone());
    let group = json!({"from": "oldest", "hold": true});
    put(&server, "/v1/changes/all/groups/slow", &group).expect(200);
    let oldest = |server: &Server| server.get("/v1/changes/all").expect(200)["oldest"].clone();
    let begin = oldest(&server);
    for number in 0..3 {
        write_order(&server, "acme", number, "new");
    }
    server.engine.seal().expect("flushed");
    let deadline = Instant::now() + Duration::from_secs(20);
    while oldest(&server) == begin {
        assert!(
            Instant::now() < deadline,
            "the changes are freed beyond the limit"
        );
    }
    let metrics = server.get("/metrics").text();
    let overruns = metrics
        .lines()
        .find(|line| line.starts_with("tideline_change_overruns"));
    assert_ne!(overruns, Some("tideline_change_overruns_total 0"));
    server.wait_stopped();

    let server = Server::on(Arc::clone(&server.disk), settings);
    write_order(&server, "acme", 9, "late");
    let (records, _) = read_all(&server, "all/groups/slow", "", 10);
    assert_eq!(kinds(&records), ["gap", "row"], "{records:?}");
    assert_eq!(
        (&records[0]["from"], &records[0]["reason"]),
        (&begin, &json!("freed"))
    );
    assert_eq!(records[1]["columns"]["state"], "late");
}

/// The cursor of a deleted stream, or of another stream, can be older than a stream.
#[test]
fn changes_before_the_creation_of_a_stream_are_an_explicit_gap() {
    let server = start();
    put(&server, "/v1/changes/rows", &json!({"tables": ["orders"]})).expect(200);
    write_order(&server, "acme", 1, "read");
    let (_, cursor) = read_all(&server, "rows", "", 10);
    write_order(&server, "acme", 2, "not read");
    delete(&server, "/v1/changes/rows");
    write_order(&server, "acme", 3, "without a stream");
    put(&server, "/v1/changes/rows", &json!({"tables": ["orders"]})).expect(200);
    let oldest = server.get("/v1/changes/rows").expect(200)["oldest"].clone();
    write_order(&server, "acme", 4, "new");
    let from = json!({"from": cursor});
    put(&server, "/v1/changes/rows/groups/copy", &from).expect(200);
    for path in [
        format!("/v1/changes/rows/records?cursor={cursor}"),
        "/v1/changes/rows/groups/copy/records".to_owned(),
    ] {
        let page = server.get(&path).expect(200);
        let records = page["records"].as_array().expect("a list");
        assert_eq!(kinds(records), ["gap", "row"], "{path}: {records:?}");
        let gap = json!({"cursor": oldest, "kind": "gap", "from": cursor, "reason": "before_stream"});
        assert_eq!(records[0], gap, "{path}");
        assert_eq!(records[1]["key"]["number"], 4, "{path}");
        // A page can end after the gap, and the next one has no gap.
        let separator = if path.contains('?') { '&' } else { '?' };
        let first = server.get(&format!("{path}{separator}limit=1")).expect(200);
        assert_eq!(first["next"], oldest, "{path}");
        assert_eq!(first["has_more"], true, "{path}");
    }
    let oldest = oldest.as_str().expect("a cursor");
    let page = server
        .get(&format!("/v1/changes/rows/records?cursor={oldest}"))
        .expect(200);
    assert_eq!(kinds(page["records"].as_array().expect("a list")), ["row"]);
    assert_eq!(kinds(&read_all(&server, "rows", "", 10).0), ["row"]);
}

/// A group that has confirmed its changes is not the reason why the journal is kept.
#[test]
fn ready_names_only_groups_that_have_not_confirmed_the_kept_changes() {
    let settings = HttpSettings {
        changes: ChangeSettings {
            bytes_max: 100_000,
            ..ChangeSettings::default()
        },
        ..HttpSettings::default()
    };
    let server = start_with(settings);
    let group = json!({"from": "oldest", "hold": true});
    put(&server, "/v1/changes/all/groups/slow", &group).expect(200);
    let reasons = || server.get("/ready").expect(200)["reasons"].to_string();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut number = 0;
    while !reasons().contains("slow") {
        assert!(Instant::now() < deadline, "most of the bytes are not confirmed");
        write_order(&server, "acme", number, &"x".repeat(1_000));
        server.engine.seal().expect("flushed");
        number += 1;
    }
    let end = server.get("/v1/changes/all").expect(200)["end"].clone();
    let confirmed = json!({"partition": 0, "cursor": end});
    post(&server, "/v1/changes/all/groups/slow/checkpoints", &confirmed).expect(200);
    assert!(!reasons().contains("slow"));
}

#[test]
fn the_drop_of_a_table_is_a_record_before_the_changes_of_the_next_table_of_its_name() {
    let mut server = start();
    let of_orders = json!({"tables": ["orders"], "kinds": ["row"]});
    put(&server, "/v1/changes/rows", &of_orders).expect(200);
    put(&server, "/v1/changes/other", &json!({"tables": ["default"]})).expect(200);
    put(
        &server,
        "/v1/changes/rows/groups/billing",
        &json!({"partitions": 2}),
    )
    .expect(200);
    write_order(&server, "acme", 1, "read");
    let (records, read) = read_all(&server, "rows", "", 10);
    assert_eq!(kinds(&records), ["row"], "{records:?}");
    write_order(&server, "acme", 2, "not read");
    delete(&server, "/v1/tables/orders");
    create_orders(&server);
    write_order(&server, "acme", 3, "new");
    server.wait_stopped();

    let server = Server::on(Arc::clone(&server.disk), HttpSettings::default());
    let after = format!("&cursor={read}");
    let page = server
        .get(&format!("/v1/changes/rows/records?limit=10{after}"))
        .expect(200);
    let records = page["records"].as_array().expect("a list");
    assert_eq!(kinds(records), ["table", "row"], "{records:?}");
    assert_eq!(
        (&records[0]["op"], &records[0]["table"]),
        (&json!("drop"), &json!("orders"))
    );
    assert_eq!(records[1]["columns"]["state"], "new");
    // A page can end after the record.
    let (records, _) = read_all(&server, "rows", "", 1);
    assert_eq!(kinds(&records), ["table", "row"], "{records:?}");
    for partition in 0..2 {
        let query = format!("&partition={partition}");
        let (records, _) = read_all(&server, "rows/groups/billing", &query, 10);
        assert_eq!(records[0]["kind"], "table", "partition {partition}: {records:?}");
    }
    let (records, _) = read_all(&server, "other", "", 10);
    assert!(!kinds(&records).contains(&"table"), "{records:?}");
}

/// A crash can end the server after a drop, before the drop is reported.
#[test]
fn a_start_reports_the_drops_that_are_not_reported_yet() {
    let mut server = start();
    let note = StateRow {
        name: "lost".to_owned(),
        part: "4711".to_owned(),
        value: Some("table".to_owned()),
    };
    server.engine.put_state("tables", &[note]).expect("stored");
    assert_eq!(read_all(&server, "all", "", 10).0, [] as [Value; 0]);
    server.wait_stopped();
    let server = Server::on(Arc::clone(&server.disk), HttpSettings::default());
    let (records, _) = read_all(&server, "all", "", 10);
    assert_eq!(kinds(&records), ["table"], "{records:?}");
    assert_eq!(records[0]["table"], "lost");
}

#[test]
fn the_lag_of_a_group_is_in_its_checkpoints_and_in_the_metrics() {
    let server = start();
    put(
        &server,
        "/v1/changes/all/groups/billing",
        &json!({"partitions": 2}),
    )
    .expect(200);
    for number in 0..3 {
        write_order(&server, "acme", number, "new");
    }
    let groups = server.get("/v1/changes/all/groups").expect(200);
    for partition in 0..2 {
        let lag = &groups["groups"][0]["checkpoints"][partition]["lag"];
        assert!(lag.as_u64().is_some_and(|lag| lag >= 3), "{groups}");
    }
    let metrics = server.get("/metrics").text();
    let lag = metrics
        .lines()
        .find_map(|line| line.strip_prefix("tideline_change_group_lag{group=\"all/billing\"} "));
    let lag: Option<f64> = lag.and_then(|lag| lag.parse().ok());
    assert!(lag.is_some_and(|lag| lag >= 3.0), "{lag:?}: {metrics}");
}

#[test]
fn the_lag_does_not_count_the_numbers_that_a_restart_skips() {
    let mut server = start();
    put(&server, "/v1/changes/all/groups/billing", &json!({})).expect(200);
    for number in 0..3 {
        write_order(&server, "acme", number, "new");
        server.wait_stopped();
        server = Server::on(Arc::clone(&server.disk), HttpSettings::default());
    }
    let end = server.get("/v1/changes/all").expect(200)["end"].clone();
    let sequence = end.as_str().and_then(|end| end.split('-').nth(1));
    let sequence = sequence.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    assert!(sequence > Some(1 << 24), "starts skip numbers: {end}");
    let group = server.get("/v1/changes/all/groups/billing").expect(200);
    let lag = group["checkpoints"][0]["lag"].as_u64();
    assert!(lag.is_some_and(|lag| (3..1_000).contains(&lag)), "{group}");
    let metrics = server.get("/metrics").text();
    let lags = metrics.lines().filter_map(|line| {
        let (name, lag) = line.rsplit_once(' ')?;
        let is_lag = name == "tideline_change_lag_max" || name.starts_with("tideline_change_group_lag{");
        is_lag.then(|| lag.parse::<f64>().expect("a number"))
    });
    assert_eq!(
        lags.collect::<Vec<_>>(),
        [lag.map_or(0.0, |lag| lag as f64); 2],
        "{metrics}"
    );

    // The checkpoint after a restart is not behind: only its own entry follows.
    let end = server.get("/v1/changes/all").expect(200)["end"].clone();
    let checkpoint = json!({"partition": 0, "cursor": end});
    let confirmed = post(&server, "/v1/changes/all/groups/billing/checkpoints", &checkpoint);
    assert_eq!(confirmed.expect(200)["lag"], 0);
}

#[test]
fn a_request_waits_for_a_first_change() {
    let server = start();
    let end = server.get("/v1/changes/all").expect(200)["end"]
        .as_str()
        .expect("a cursor")
        .to_owned();
    let path = format!("/v1/changes/all/records?cursor={end}");
    let empty = server.get(&format!("{path}&wait=10ms")).expect(200);
    assert_eq!(empty["records"], json!([]));
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| server.get(&format!("{path}&wait=20s")).expect(200));
        write_order(&server, "acme", 1, "new");
        let page = waiting.join().expect("no panic");
        assert_eq!(page["records"][0]["key"]["number"], 1);
    });
}

#[test]
fn wrong_requests_are_refused() {
    let server = start();
    let cases = [
        (
            put(&server, "/v1/changes/a%20b", &json!({})),
            400,
            "invalid",
            "letters, digits",
        ),
        (
            put(&server, "/v1/changes/a", &json!({"kind": "row"})),
            400,
            "invalid",
            "kind",
        ),
        (
            put(&server, "/v1/changes/all/groups/g", &json!({"partitions": 0})),
            400,
            "invalid",
            "at least 1",
        ),
        (
            put(&server, "/v1/changes/all/groups/g", &json!({"partitions": 257})),
            400,
            "over_limit",
            "256",
        ),
        (
            put(&server, "/v1/changes/all/groups/g", &json!({"from": "later"})),
            400,
            "invalid",
            "not a cursor",
        ),
        (
            put(&server, "/v1/changes/none/groups/g", &json!({})),
            404,
            "not_found",
            "none",
        ),
        (server.get("/v1/changes/none/records"), 404, "not_found", "none"),
        (
            server.get("/v1/changes/all/records?cursor=x"),
            400,
            "invalid",
            "not a cursor",
        ),
        (
            server.get("/v1/changes/all/records?cursor=0-ffffffff-0"),
            400,
            "invalid",
            "after the newest change",
        ),
        (
            server.get("/v1/changes/all/records?limit=0"),
            400,
            "invalid",
            "at least 1",
        ),
        (
            server.get("/v1/changes/all/records?limit=10001"),
            400,
            "over_limit",
            "10000",
        ),
        (
            server.get("/v1/changes/all/records?partition=4&partitions=4"),
            400,
            "invalid",
            "partition 4",
        ),
        (
            server.get("/v1/changes/all/records?wait=6m"),
            400,
            "invalid",
            "5m",
        ),
        (
            put(&server, "/v1/changes/a", &json!({"tables": ["a*b"]})),
            400,
            "invalid",
            "a*b",
        ),
        (
            put(&server, "/v1/changes/a", &json!({"tables": [""]})),
            400,
            "invalid",
            "name of a table",
        ),
        (
            put(
                &server,
                "/v1/changes/a",
                &json!({"tables": [format!("{}*", "a".repeat(65))]}),
            ),
            400,
            "invalid",
            "64",
        ),
        (
            put(&server, "/v1/changes/..", &json!({})),
            400,
            "invalid",
            "not valid",
        ),
    ];
    for (response, status, code, said) in &cases {
        refused(response, *status, code, said);
    }
    put(
        &server,
        "/v1/changes/a",
        &json!({"tables": ["*", "a*", "default"]}),
    )
    .expect(200);
    for (method, path) in [
        ("GET", "/v1/changes"),
        ("GET", "/v1/changes/all"),
        ("PUT", "/v1/changes/all"),
        ("DELETE", "/v1/changes/all"),
        ("GET", "/v1/changes/all/records"),
        ("GET", "/v1/changes/all/groups"),
        ("PUT", "/v1/changes/all/groups/g"),
        ("GET", "/v1/changes/all/webhooks"),
    ] {
        let response = server.json(method, &format!("{path}?as=ann"), "{}");
        refused(&response, 400, "invalid", "as");
    }
    // The table with the state is not listed, and requests neither read nor change it.
    put(&server, "/v1/changes/all/groups/g", &json!({"partitions": 2})).expect(200);
    refused(
        &put(&server, "/v1/changes/all/groups/g", &json!({"partitions": 3})),
        409,
        "conflict",
        "cannot be changed",
    );
    let tables = server.get("/v1/tables").text();
    assert!(!tables.contains("tideline-state"), "{tables}");
    let state = "/v1/tables/tideline-state";
    for response in [
        post(
            &server,
            &format!("{state}/rows/scan"),
            &json!({"allow_scan": true}),
        ),
        post(&server, &format!("{state}/rows"), &json!({"rows": []})),
        server.json("DELETE", state, ""),
        post(
            &server,
            "/v1/sql",
            &json!({"statement": "SELECT * FROM \"tideline-state\""}),
        ),
    ] {
        assert!(
            [400, 403].contains(&response.status),
            "{} {}",
            response.status,
            response.text()
        );
    }
}

/// A copy that begins with an export and follows the stream from a position before the export has the same rows in
/// the end.
#[test]
fn a_base_and_the_stream_after_its_position_rebuild_a_table() {
    let seed = seed("a_base_and_the_stream_after_its_position_rebuild_a_table");
    let mut random = Random::new(seed);
    let server = start();
    let copy = start();
    let mut write = |server: &Server, count: usize| {
        for _ in 0..count {
            let key = json!({"customer": format!("c{}", random.below(4)), "number": random.below(6)});
            let state = format!("s{}", random.below(100));
            let row = match random.below(8) {
                0 => json!({"op": "delete", "key": key}),
                1 => json!({"op": "update", "key": key, "clear": ["state"]}),
                2 => json!({"op": "update", "key": key, "columns": {"free": random.below(9)}}),
                3 => json!({"op": "update", "key": key, "increment": {"count": 1}}),
                _ => json!({"op": "put", "key": key, "columns": {"state": state, "total": "1.5"}}),
            };
            write_rows(server, &json!([row]));
            if random.below(10) == 0 {
                server.engine.seal().expect("flushed");
            }
        }
    };
    write(&server, 60);
    let position = server.get("/v1/changes/all").expect(200)["end"]
        .as_str()
        .expect("a cursor")
        .to_owned();
    write(&server, 20);
    let base = scan(&server);
    for row in base["rows"].as_array().expect("rows") {
        write_rows(
            &copy,
            &json!([{"op": "put", "key": row["key"], "columns": row["columns"]}]),
        );
    }
    write(&server, 60);
    let mut cursor = position;
    loop {
        let page = server
            .get(&format!("/v1/changes/all/records?limit=7&cursor={cursor}"))
            .expect(200);
        for record in page["records"].as_array().expect("a list") {
            let mut row = json!({"op": record["op"], "key": record["key"]});
            if record["op"] != "delete" {
                row["columns"] = record["columns"].clone();
            }
            if let Some(clear) = record.get("clear") {
                row["clear"] = clear.clone();
            }
            write_rows(&copy, &json!([row]));
        }
        cursor = page["next"].as_str().expect("a cursor").to_owned();
        if page["has_more"] == false {
            break;
        }
    }
    assert_eq!(scan(&copy)["rows"], scan(&server)["rows"], "seed {seed}");
}

fn scan(server: &Server) -> Value {
    post(
        server,
        "/v1/tables/orders/rows/scan",
        &json!({"allow_scan": true}),
    )
    .expect(200)
}
