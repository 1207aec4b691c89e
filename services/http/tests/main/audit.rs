//! Audit table: records of changes and refusals, access to them, and their retention.
//!
//! Records are read with SQL, as an admin does.

use std::io::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tideline_backend::memory::{Character, MemoryDisk};
use tideline_http::{ChangeSettings, HttpSettings, WebhookSettings};

use crate::access::{ROOT, ask, bearer, create, settings, start};
use crate::client::Server;

/// Returns the audit records that match a condition of SQL, oldest first.
pub(crate) fn records(server: &Server, condition: &str) -> Vec<Value> {
    let statement = format!(
        "SELECT time, kind, principal, tenant, client, method, path, status, code, count, request_id, detail \
         FROM \"tideline-audit\" WHERE time >= '2000-01-01T00:00:00Z' AND {condition}"
    );
    let body = json!({"statement": statement}).to_string();
    let found = ask(server, ROOT, "POST", "/v1/sql", &body).expect(200);
    found["rows"].as_array().expect("rows").clone()
}

#[test]
fn changes_are_recorded_with_their_principal_and_outcome() {
    let server = start();
    ask(&server, ROOT, "POST", "/v1/tables", r#"{"name": "fleet"}"#).expect(201);
    let operator = create(&server, &json!({"name": "ops", "roles": ["operator"]}));
    let (id, secret) = (&operator["id"], operator["token"].as_str().expect("a token"));
    let policy = r#"{"policy": {"hot_ttl": "3d"}}"#;
    let changed = server.send(
        "PATCH",
        "/v1/tables/fleet?secret=planted-in-a-query",
        &[
            ("authorization", &*bearer(secret)),
            ("content-type", "application/json"),
            ("x-request-id", "change-1"),
        ],
        policy.as_bytes(),
    );
    assert_eq!(changed.status, 200, "{}", changed.text());
    let sql = r#"{"statement": "CREATE TABLE \"meters\" (id BIGINT PRIMARY KEY)"}"#;
    let created = ask(&server, secret, "POST", "/v1/sql", sql);
    assert_eq!(created.status, 200, "{}", created.text());
    ask(&server, ROOT, "POST", "/v1/jobs", r#"{"kind": "seal"}"#).expect(200);
    let all = records(&server, "kind = 'change'");
    let seen: Vec<[&Value; 3]> = all
        .iter()
        .map(|record| [&record["method"], &record["path"], &record["status"]])
        .collect();
    assert_eq!(
        json!(seen),
        json!([
            ["POST", "/v1/tables/fleet", 201],
            ["POST", format!("/v1/tokens/{}", id.as_str().expect("an id")), 201],
            ["PATCH", "/v1/tables/fleet", 200],
            ["POST", "/v1/sql CREATE TABLE meters", 200],
            ["POST", "/v1/jobs seal", 200],
        ])
    );
    assert_eq!(all[0]["principal"], "configured token");
    let principal = format!("token {} (ops)", id.as_str().expect("an id"));
    assert_eq!(all[2]["principal"], *principal);
    assert_eq!(
        (&all[2]["request_id"], &all[2]["count"]),
        (&json!("change-1"), &json!(1))
    );
    assert!(
        all[2]["client"]
            .as_str()
            .expect("an address")
            .starts_with("127.0.0.1:")
    );
    assert_eq!(all[2]["detail"], r#"policy.hot_ttl: "7d" → "3d""#);
    let everything = json!(all).to_string();
    assert!(
        !everything.contains(secret) && !everything.contains("planted"),
        "{everything}"
    );
}

/// Returns the path and the detail of each change, oldest first.
fn details(server: &Server) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let changes = records(server, "kind = 'change'");
    let details = changes
        .iter()
        .map(|record| (text(&record["path"]), text(&record["detail"])));
    details.collect()
}

#[test]
fn records_describe_what_was_changed() {
    let server = start();
    let root = |method: &str, path: &str, body: &Value| {
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let response = ask(&server, ROOT, method, path, &body);
        assert!(response.status < 300, "{method} {path}: {}", response.text());
    };
    let sql = |statement: &str| root("POST", "/v1/sql", &json!({"statement": statement}));
    root("POST", "/v1/tables", &json!({"name": "fleet"}));
    root(
        "PATCH",
        "/v1/tables/fleet",
        &json!({"policy": {"hot_ttl": "3d", "retention": "90d"}, "durability": "synced"}),
    );
    let created = create(
        &server,
        &json!({"name": "ops", "roles": ["reader", "writer"], "tables": ["fleet"],
            "timelines": {"tag": "team", "equals": "x"}, "expires": "2027-01-01T00:00:00Z"}),
    );
    let secret = created["token"].as_str().expect("a token");
    let token = format!("/v1/tokens/{}", created["id"].as_str().expect("an id"));
    let rotate = format!("{token}/rotate");
    root("POST", &rotate, &json!({"overlap": "1h"}));
    root("DELETE", &token, &Value::Null);
    root(
        "PUT",
        "/v1/tenants/acme",
        &json!({"tables": ["acme-*"], "budgets": {"queries": 8}}),
    );
    root(
        "PUT",
        "/v1/tenants/acme",
        &json!({"tables": ["acme-*"], "budgets": {"queries": 4}}),
    );
    root("DELETE", "/v1/tenants/acme", &Value::Null);
    root("PUT", "/v1/audit/retention", &json!({"retention": "90d"}));
    let web = json!({"where": {"tag": "host", "equals": "web-1"}});
    root(
        "POST",
        "/v1/tables/fleet/points/delete",
        &json!({"timelines": web, "range": {"start": null, "end": "2026-11-01T00:00:00Z"}}),
    );
    root(
        "POST",
        "/v1/tables/fleet/timelines/delete",
        &json!({"timelines": web}),
    );
    sql("CREATE TABLE meters (id BIGINT PRIMARY KEY, note VARCHAR)");
    sql("ALTER TABLE meters SET (TTL = '30d')");
    sql("DELETE FROM meters WHERE id >= 7");
    root(
        "POST",
        "/v1/tables/meters/rows/delete",
        &json!({"range": {"column": "id", "from": 3, "to": 5}}),
    );
    root("POST", "/v1/jobs", &json!({"kind": "seal"}));
    root("POST", "/v1/jobs", &json!({"kind": "migrate", "table": "fleet"}));

    let found = details(&server);
    let token_text = r#"name: "ops"; roles: reader, writer; expires: 2027-01-01T00:00:00Z; scope: tables fleet of the model series, timelines with team=x"#;
    let rotate_text = format!("overlap: 1h; {token_text}");
    let expected: [(&str, &str); 11] = [
        ("/v1/tables/fleet", ""),
        (
            "/v1/tables/fleet",
            r#"policy.hot_ttl: "7d" → "3d"; policy.retention: null → "90d""#,
        ),
        (&token, token_text),
        (&rotate, &rotate_text),
        (&token, token_text),
        ("/v1/tenants/acme", r#"budgets.queries: 8; tables: ["acme-*"]"#),
        ("/v1/tenants/acme", "budgets.queries: 8 → 4"),
        ("/v1/tenants/acme", r#"budgets.queries: 4; tables: ["acme-*"]"#),
        ("/v1/audit/retention", r#"retention: "365d" → "90d""#),
        (
            "/v1/tables/fleet/points/delete",
            r#"range: {"start":null,"end":"2026-11-01T00:00:00Z"}; timelines: {"where":{"tag":"host","equals":"web-1"}}"#,
        ),
        (
            "/v1/tables/fleet/timelines/delete",
            r#"timelines: {"where":{"tag":"host","equals":"web-1"}}"#,
        ),
    ];
    for (found, (path, detail)) in found.iter().zip(expected) {
        assert_eq!((found.0.as_str(), found.1.as_str()), (path, detail));
    }
    let rest: Vec<&str> = found[expected.len()..]
        .iter()
        .map(|(_, detail)| detail.as_str())
        .collect();
    let [new, altered, deleted, rows, seal, migrate] = rest[..] else {
        panic!("{rest:?}")
    };
    assert!(new.contains("wide.key: null → "), "{new}");
    assert!(altered.contains(r#"wide.ttl: null → "30d""#), "{altered}");
    assert!(
        deleted.starts_with("condition: ") && deleted.contains("id >= 7"),
        "{deleted}"
    );
    assert_eq!(rows, r#"rows: {"range":{"column":"id","from":3,"to":5}}"#);
    assert_eq!(seal, "kind: seal; all tables");
    assert_eq!(migrate, "kind: migrate; table: fleet");
    assert!(
        found.iter().all(|(_, detail)| !detail.contains(secret)),
        "{found:?}"
    );
}

#[test]
fn records_name_new_indexes_and_the_attributes_of_many_timelines() {
    let server = start();
    let root = |method: &str, path: &str, body: &Value| {
        let response = ask(&server, ROOT, method, path, &body.to_string());
        assert!(response.status < 300, "{method} {path}: {}", response.text());
    };
    let wide =
        json!({"key": [{"name": "id", "type": "string"}], "columns": [{"name": "v", "type": "string"}]});
    root(
        "POST",
        "/v1/tables",
        &json!({"name": "meters", "model": "wide", "wide": wide}),
    );
    root(
        "POST",
        "/v1/tables/meters/indexes",
        &json!({"name": "by_v", "key": [{"name": "v"}]}),
    );
    root(
        "POST",
        "/v1/tables/meters/search-indexes",
        &json!({"name": "all", "columns": [{"column": "v", "as": "keyword"}]}),
    );
    let web = json!({"where": {"tag": "host", "equals": "web-1"}});
    root(
        "POST",
        "/v1/tables/default/timelines/attributes",
        &json!({"timelines": web, "set": {"owner": "ann"}, "remove": ["rack"]}),
    );
    // A query that does not run cannot be cancelled, so this request changes nothing.
    root("DELETE", "/v1/queries/4711", &Value::Null);
    let found = details(&server);
    let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "/v1/tables/meters",
            "/v1/tables/meters/indexes/by_v",
            "/v1/tables/meters/search-indexes/all",
            "/v1/tables/default/timelines/attributes",
        ]
    );
    assert!(found[1].1.contains(r#"name: "by_v""#), "{}", found[1].1);
    assert!(found[2].1.contains(r#"name: "all""#), "{}", found[2].1);
    assert_eq!(
        found[3].1,
        r#"timelines: {"where":{"tag":"host","equals":"web-1"}}; set: {"owner":"ann"}; remove: ["rack"]"#
    );
}

#[test]
fn a_webhook_is_recorded_without_its_path_and_secret() {
    let server = Server::with(HttpSettings {
        changes: ChangeSettings {
            webhooks: WebhookSettings {
                hosts: vec!["hooks.example.com".parse().expect("a host")],
                ..WebhookSettings::default()
            },
            ..ChangeSettings::default()
        },
        ..settings()
    });
    let hook = "/v1/changes/all/webhooks/shop";
    let stream = json!({"kinds": ["row"], "retention": "3d"}).to_string();
    ask(&server, ROOT, "PUT", "/v1/changes/all", &stream).expect(200);
    let url = "https://hooks.example.com:8443/planted-path?key=planted-key";
    let secret = "whsec_cGxhbnRlZC1zaWduaW5nLTAxMjM0NTY3ODlhYmNkZWY=";
    let first = json!({"url": url, "secret": secret}).to_string();
    ask(&server, ROOT, "PUT", hook, &first).expect(200);
    let second = json!({"url": url, "batch": 5, "hold": true}).to_string();
    ask(&server, ROOT, "PUT", hook, &second).expect(200);
    let address = "url: https://hooks.example.com:8443";
    assert_eq!(
        details(&server),
        [
            (
                "/v1/changes/all".to_owned(),
                r#"kinds: ["row"]; retention: "3d""#.to_owned()
            ),
            (
                hook.to_owned(),
                format!("{address}; batch: 100; hold: false; secret: new")
            ),
            (
                hook.to_owned(),
                format!("{address}; batch: 5; hold: true; secret: unchanged")
            ),
        ]
    );
}

#[test]
fn a_long_detail_is_cut() {
    let server = start();
    let hosts: Vec<String> = (0..500).map(|number| format!("é-{number}")).collect();
    let body = json!({
        "timelines": {"where": {"tag": "host", "in": hosts}},
        "range": {"start": "2026-11-01T00:00:00Z", "end": null}
    });
    let path = "/v1/tables/default/points/delete";
    ask(&server, ROOT, "POST", path, &body.to_string()).expect(200);
    let found = details(&server);
    let detail = &found[0].1;
    assert!(
        detail.starts_with(r#"range: {"start":"2026-11-01T00:00:00Z","end":null}; timelines: {"where""#)
            && detail.ends_with('…')
            && detail.len() <= 1_024 + '…'.len_utf8(),
        "{detail}"
    );
}

#[test]
fn deletes_of_messages_and_of_groups_are_recorded() {
    let server = start();
    let chat = json!({"name": "chat", "model": "feed", "feed": {}}).to_string();
    ask(&server, ROOT, "POST", "/v1/tables", &chat).expect(201);
    let messages = "/v1/tables/chat/feeds/room/messages";
    let sent = json!({"messages": [{"sender": "ann"}]}).to_string();
    let sent = ask(&server, ROOT, "POST", messages, &sent).expect(200);
    let sequence = sent["messages"][0]["sequence"].as_str().expect("a text");
    let message = format!("{messages}/{sequence}");
    ask(&server, ROOT, "DELETE", &message, "").expect(200);
    let groups = [
        "/metrics/job/nightly",
        "/metrics/job/nightly/instance/db-1",
        "/v1/tables/default/prometheus/metrics/job/nightly",
        "/v1/tables/default/prometheus/metrics/job/nightly/instance/db-1",
    ];
    for group in groups {
        let headers = [("authorization", &*bearer(ROOT)), ("content-type", "text/plain")];
        let pushed = server.send("POST", group, &headers, b"rows 1\n");
        assert_eq!(pushed.status, 200, "{}", pushed.text());
        assert_eq!(ask(&server, ROOT, "DELETE", group, "").status, 202, "{group}");
    }
    let found = details(&server);
    let paths: Vec<&str> = found.iter().skip(1).map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, [&[message.as_str()][..], &groups[..]].concat());
}

#[test]
fn refusals_are_counted_and_recorded_at_the_end() {
    let disk = MemoryDisk::new(Character::Embedded);
    let mut server = Server::on(disk.clone(), settings());
    let reader = create(&server, &json!({"name": "dashboards", "roles": ["reader"]}));
    let reader = reader["token"].as_str().expect("a token");
    for _ in 0..20 {
        ask(&server, reader, "POST", "/v1/tables", r#"{"name": "mine"}"#).expect(403);
        ask(&server, "guessed", "GET", "/v1/tables", "").expect(401);
    }
    for _ in 0..3 {
        ask(&server, ROOT, "DELETE", "/v1/tables/missing", "").expect(404);
        ask(&server, ROOT, "GET", "/v1/tables/missing", "").expect(404);
    }
    assert_eq!(records(&server, "kind = 'refusal'"), [] as [Value; 0]);
    server.wait_stopped();
    drop(server);

    let server = Server::on(disk, settings());
    let mut found: Vec<[Value; 6]> = records(&server, "kind = 'refusal'")
        .into_iter()
        .map(|record| {
            ["principal", "method", "path", "status", "code", "count"].map(|name| record[name].clone())
        })
        .collect();
    found.sort_by_key(|record| record[3].as_u64());
    assert_eq!(
        json!(found),
        json!([
            [null, "GET", "/v1/tables", 401, "unauthenticated", 20],
            [found[1][0], "POST", "/v1/tables", 403, "forbidden", 20],
            [
                "configured token",
                "DELETE",
                "/v1/tables/{table}",
                404,
                "not_found",
                3
            ],
        ]),
        "a read of a missing table is no refusal"
    );
    assert!(
        found[1][0]
            .as_str()
            .expect("a principal")
            .ends_with("(dashboards)")
    );
}

#[test]
fn only_admins_read_the_records_and_no_token_changes_them() {
    let server = start();
    let [reader, operator, admin] = ["reader", "operator", "admin"].map(|role| {
        let token = create(&server, &json!({"name": role, "roles": [role]}));
        token["token"].as_str().expect("a token").to_owned()
    });
    let reads = [
        ("GET", "/v1/tables/tideline-audit", ""),
        (
            "POST",
            "/v1/tables/tideline-audit/rows/scan",
            r#"{"allow_scan": true}"#,
        ),
        (
            "POST",
            "/v1/tables/tideline-audit/rows/count",
            r#"{"allow_scan": true}"#,
        ),
        (
            "POST",
            "/v1/tables/tideline-audit/rows/aggregate",
            r#"{"allow_scan": true, "by": [{"column": "principal"}], "metrics": [{"column": "count", "functions": ["sum"]}]}"#,
        ),
        (
            "POST",
            "/v1/sql",
            r#"{"statement": "SELECT * FROM \"tideline-audit\" ALLOW FILTERING"}"#,
        ),
    ];
    for (method, path, body) in reads {
        for token in [&reader, &operator] {
            let refused = ask(&server, token, method, path, body);
            assert_eq!(refused.status, 403, "{path}: {}", refused.text());
        }
        let read = ask(&server, &admin, method, path, body);
        assert_eq!(read.status, 200, "{path}: {}", read.text());
    }
    for (method, path, body) in [
        ("DELETE", "/v1/tables/tideline-audit", ""),
        ("PATCH", "/v1/tables/tideline-audit", r#"{"wide": {"ttl": "1s"}}"#),
        ("POST", "/v1/tables", r#"{"name": "tideline-audit"}"#),
        (
            "POST",
            "/v1/tables/tideline-audit/rows",
            r#"{"rows": [{"op": "delete", "key": {"time": "2026-01-01T00:00:00Z", "number": 0}}]}"#,
        ),
        (
            "POST",
            "/v1/tables/tideline-audit/rows/delete",
            r#"{"all": true}"#,
        ),
        (
            "POST",
            "/v1/sql",
            r#"{"statement": "DROP TABLE \"tideline-audit\""}"#,
        ),
        (
            "POST",
            "/v1/sql",
            r#"{"statement": "DELETE FROM \"tideline-audit\" WHERE time = '2026-01-01T00:00:00Z' AND number = 0"}"#,
        ),
        ("POST", "/write?db=tideline-audit", "cpu usage=1"),
    ] {
        let refused = ask(&server, &admin, method, path, body);
        assert!(
            (400..500).contains(&refused.status),
            "{method} {path}: {}",
            refused.text()
        );
    }
    let show = r#"{"statement": "SHOW TABLES"}"#;
    for (method, path, body) in [("GET", "/v1/tables", ""), ("POST", "/v1/sql", show)] {
        let tables = ask(&server, &admin, method, path, body).expect(200);
        assert!(!tables.to_string().contains("tideline-"), "{tables}");
    }
}

#[test]
fn the_retention_is_set_by_admins_and_recorded() {
    let disk = MemoryDisk::new(Character::Embedded);
    let mut server = Server::on(disk.clone(), settings());
    let path = "/v1/audit/retention";
    let operator = create(&server, &json!({"name": "ops", "roles": ["operator"]}));
    let operator = operator["token"].as_str().expect("a token");
    ask(&server, operator, "GET", path, "").expect(403);
    ask(&server, operator, "PUT", path, r#"{"retention": "90d"}"#).expect(403);
    assert_eq!(
        ask(&server, ROOT, "GET", path, "").expect(200)["retention"],
        "365d"
    );
    ask(&server, ROOT, "PUT", path, r#"{"retention": "23h"}"#).expect(400);
    ask(&server, ROOT, "PUT", path, r#"{"retention": "x"}"#).expect(400);
    let set = ask(&server, ROOT, "PUT", path, r#"{"retention": "2d"}"#).expect(200);
    assert_eq!(set["retention"], "2d");
    let changes = format!("kind = 'change' AND path = '{path}'");
    assert_eq!(records(&server, &changes).len(), 1);
    server.wait_stopped();
    drop(server);

    let server = Server::on(disk, settings());
    assert_eq!(ask(&server, ROOT, "GET", path, "").expect(200)["retention"], "2d");
    assert_eq!(records(&server, &changes).len(), 1);
    let two_days_and_a_second = (2 * 86_400 + 1) * 1_000_000_000;
    server.clock.advance(two_days_and_a_second);
    assert_eq!(
        records(&server, "status > 0"),
        [] as [Value; 0],
        "all have expired"
    );
}

#[test]
fn a_change_whose_client_has_left_is_recorded_without_an_outcome() {
    let disk = MemoryDisk::new(Character::Embedded);
    let server = Server::on(disk.clone(), settings());
    create(&server, &json!({"name": "a", "roles": ["reader"]}));
    // Each write to the disk takes so long that the server detects the end of the connection before the change
    // has ended.
    disk.delay_round_trips(Duration::from_millis(300));
    // The server can also detect it before the change begins. Then nothing is recorded, and the client tries again.
    let (name, found) = (0..)
        .find_map(|attempt| {
            let name = format!("late-{attempt}");
            let body = json!({"name": name}).to_string();
            let head = format!(
                "POST /v1/tables HTTP/1.1\r\nhost: localhost\r\nauthorization: {}\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n",
                bearer(ROOT),
                body.len()
            );
            let mut stream = server.connect();
            stream
                .write_all(format!("{head}{body}").as_bytes())
                .expect("sent");
            drop(stream);
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(5) {
                let found = records(&server, &format!("path = '/v1/tables/{name}'"));
                if !found.is_empty() {
                    return Some((name, found));
                }
            }
            None
        })
        .expect("one of the attempts is recorded");
    assert_eq!(
        (&found[0]["status"], &found[0]["principal"]),
        (&Value::Null, &json!("configured token")),
        "{found:?}"
    );
    disk.delay_round_trips(Duration::ZERO);
    let made = || ask(&server, ROOT, "GET", &format!("/v1/tables/{name}"), "").status == 200;
    while !made() {
        std::thread::yield_now();
    }
}

#[test]
fn statements_of_sql_that_fail_or_change_nothing() {
    let server = start();
    let sql = |statement: &str| {
        let body = json!({"statement": statement}).to_string();
        ask(&server, ROOT, "POST", "/v1/sql", &body).status
    };
    assert_eq!(
        sql("CREATE TABLE meters (id BIGINT PRIMARY KEY, note VARCHAR)"),
        200
    );
    assert_eq!(
        sql("CREATE TABLE IF NOT EXISTS meters (id BIGINT PRIMARY KEY)"),
        200
    );
    assert_eq!(sql("CREATE TABLE meters (id BIGINT PRIMARY KEY)"), 409);
    assert_eq!(sql("INSERT INTO meters (id) VALUES (1)"), 200);
    assert_eq!(sql("DELETE FROM meters WHERE id = 1"), 200);
    assert_eq!(sql("DELETE FROM meters WHERE id >= 1"), 200);
    assert_eq!(sql("DROP TABLE meters"), 200);
    let changes = records(&server, "kind = 'change'");
    let paths: Vec<&str> = changes
        .iter()
        .map(|record| record["path"].as_str().expect("a path"))
        .collect();
    assert_eq!(
        paths,
        [
            "/v1/sql CREATE TABLE meters",
            "/v1/sql DELETE FROM meters",
            "/v1/sql DROP TABLE meters"
        ]
    );
}

#[test]
fn a_database_of_influx_is_a_change_once() {
    let server = start();
    for _ in 0..2 {
        let statement = "q=CREATE%20DATABASE%20telegraf";
        let headers = [
            ("authorization", &*bearer(ROOT)),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        let created = server.send("POST", "/query", &headers, statement.as_bytes());
        assert_eq!(created.status, 200, "{}", created.text());
    }
    let changes = records(&server, "kind = 'change'");
    let paths: Vec<&Value> = changes.iter().map(|record| &record["path"]).collect();
    assert_eq!(json!(paths), json!(["/query CREATE DATABASE telegraf"]));
}
