//! Ageing of points. A shorter policy hides old points at once, and a longer one shows them again. Expired
//! points are freed. Expired timelines and dropped tables disappear. Deletes apply to every tier.

use serde_json::{Value as Json, json};
use tideline_model::{Clock as _, SystemClock, Value};
use tideline_tests::reading;
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch};

const TABLE: &str = "ages";
const DAY: i64 = 86_400_000_000_000;

#[test]
fn a_shorter_policy_hides_at_once_and_a_longer_one_shows_again() {
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let client = server.client();
    let now = prepare(&client, &json!({"hot_ttl": "2d"}));
    assert_eq!(ages_seen(&client, now), [0, 1, 5, 10, 20, 40]);
    for (policy, seen) in [
        (json!({"retention": "30d"}), &[0, 1, 5, 10, 20][..]),
        (json!({"cold_ttl": "7d"}), &[0, 1, 5][..]),
        (json!({"cold_ttl": null}), &[0, 1, 5, 10, 20][..]),
        (json!({"retention": null}), &[0, 1, 5, 10, 20, 40][..]),
        (json!({"retention": "15d"}), &[0, 1, 5, 10][..]),
    ] {
        alter(&client, &policy);
        assert_eq!(ages_seen(&client, now), seen, "{policy}");
        // The purge delay is one day, so jobs free nothing.
        job(&client, "expire");
        job(&client, "migrate");
        assert_eq!(ages_seen(&client, now), seen, "{policy}, after moves");
    }
    assert!(server.terminate().status.success());
    let server = folder.start(&Launch::default());
    let client = server.client();
    assert_eq!(ages_seen(&client, now), [0, 1, 5, 10], "after a restart");
    alter(&client, &json!({"retention": null}));
    assert_eq!(ages_seen(&client, now), [0, 1, 5, 10, 20, 40]);
}

#[test]
fn what_has_expired_is_freed_and_nothing_else() {
    let folder = DataFolder::new();
    let launch = Launch::default().environment("TIDELINE__LIFECYCLE__PURGE_DELAY", "0s");
    let server = folder.start(&launch);
    let client = server.client();
    let now = prepare(&client, &json!({"hot_ttl": "2d"}));
    alter(&client, &json!({"retention": "15d"}));
    job(&client, "expire");
    let statistics = statistics(&client);
    assert_eq!(statistics["sealed_points"], 4, "{statistics}");
    alter(&client, &json!({"retention": null}));
    assert_eq!(ages_seen(&client, now), [0, 1, 5, 10]);
    server.kill();
    let server = folder.start(&launch);
    assert_eq!(ages_seen(&server.client(), now), [0, 1, 5, 10], "after a kill");
}

#[test]
fn a_silent_timeline_goes_when_its_time_is_over() {
    let folder = DataFolder::new();
    let launch = Launch::default().environment("TIDELINE__LIFECYCLE__PURGE_DELAY", "0s");
    let server = folder.start(&launch);
    let client = server.client();
    let now = prepare(&client, &json!({"hot_ttl": "2d"}));
    write(&client, &format!("age,host=silent days=25i {}", now - 25 * DAY));
    assert_eq!(hosts(&client), ["a", "silent"]);
    alter(&client, &json!({"timeline_ttl": "20d"}));
    for kind in ["expire", "clean_catalog", "seal", "purge"] {
        job(&client, kind);
    }
    assert_eq!(hosts(&client), ["a"]);
    assert_eq!(
        ages_seen(&client, now),
        [0, 1, 5, 10, 20, 40],
        "an active timeline keeps all points"
    );
    write(&client, &format!("age,host=silent days=0i {now}"));
    assert_eq!(hosts(&client), ["a", "silent"], "found again after a write");
}

#[test]
fn deleted_points_are_away_in_every_tier_and_what_is_written_later_is_there() {
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let client = server.client();
    let now = prepare(&client, &json!({"hot_ttl": "2d"}));
    write(&client, &format!("age,host=b days=3i {}", now - 3 * DAY));
    let span = json!({"start": now - 11 * DAY, "end": now - DAY / 2});
    let selector = json!({"where": {"tag": "host", "equals": "a"}});
    for _ in 0..2 {
        let body = json!({"timelines": selector, "range": span});
        let answer = client.post_json(&format!("/v1/tables/{TABLE}/points/delete"), &body);
        assert!(answer.is_success(), "{answer:?}");
        assert_eq!(ages_seen(&client, now), [0, 3, 20, 40]);
    }
    write(&client, &format!("age,host=a days=5i {}", now - 5 * DAY));
    for kind in ["seal", "migrate", "purge", "fold"] {
        job(&client, kind);
        assert_eq!(ages_seen(&client, now), [0, 3, 5, 20, 40], "after {kind}");
    }
    let answer = client.post_json(
        &format!("/v1/tables/{TABLE}/timelines/delete"),
        &json!({"timelines": selector}),
    );
    assert!(answer.is_success(), "{answer:?}");
    assert_eq!(
        (ages_seen(&client, now), hosts(&client)),
        (vec![3], vec!["b".to_owned()])
    );
    server.kill();
    let server = folder.start(&Launch::default());
    let client = server.client();
    assert_eq!(
        (ages_seen(&client, now), hosts(&client)),
        (vec![3], vec!["b".to_owned()])
    );
    write(&client, &format!("age,host=a days=1i {}", now - DAY));
    assert_eq!(ages_seen(&client, now), [1, 3]);
    assert_eq!(hosts(&client), ["a", "b"]);
}

#[test]
fn a_dropped_table_takes_everything_with_it() {
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let client = server.client();
    prepare(&client, &json!({"hot_ttl": "2d"}));
    job(&client, "migrate");
    let path = format!("/v1/tables/{TABLE}");
    client
        .send("DELETE", &path, &[], b"")
        .expect("a response")
        .expect_status(204);
    client.get(&path).expect_status(404);
    server.kill();
    let server = folder.start(&Launch::default());
    let client = server.client();
    client.get(&path).expect_status(404);
    client
        .post_json("/v1/tables", &json!({"name": TABLE}))
        .expect_status(201);
    assert_eq!(statistics(&client)["sealed_points"], 0);
    assert!(hosts(&client).is_empty());
}

/// Creates a table with one machine and sealed points. The points are whole days older than the returned timestamp,
/// which is half an hour ago.
fn prepare(client: &Client, policy: &Json) -> i64 {
    let never = json!({"cron": "0 0 29 2 *", "time_zone": "UTC"});
    let mut table = json!({"name": TABLE, "policy": policy});
    table["policy"]["migrate"] = never.clone();
    table["policy"]["expire"] = never;
    client.post_json("/v1/tables", &table).expect_status(201);
    let now = SystemClock.now().nanos() - DAY / 48;
    for days in [40, 20, 10, 5, 1, 0] {
        write(client, &format!("age,host=a days={days}i {}", now - days * DAY));
        job(client, "seal");
    }
    now
}

fn write(client: &Client, lines: &str) {
    client
        .post_lines(&format!("/v1/tables/{TABLE}/points"), lines)
        .expect_status(200);
}

fn alter(client: &Client, policy: &Json) {
    let body = json!({"policy": policy}).to_string();
    let headers = [("content-type", "application/json")];
    client
        .send("PATCH", &format!("/v1/tables/{TABLE}"), &headers, body.as_bytes())
        .expect("a response")
        .expect_status(200);
}

fn job(client: &Client, kind: &str) {
    let body = match kind {
        "seal" => json!({"kind": kind}),
        _ => json!({"kind": kind, "table": TABLE, "wait": true}),
    };
    let answer = client.post_json("/v1/jobs", &body);
    assert!(answer.is_success(), "{kind}: {answer:?}");
}

fn statistics(client: &Client) -> Json {
    client
        .get(&format!("/v1/tables/{TABLE}"))
        .expect_status(200)
        .json()["statistics"]
        .clone()
}

fn hosts(client: &Client) -> Vec<String> {
    reading::sources(
        client,
        TABLE,
        &json!({"property": "measurement", "equals": "age"}),
    )
}

/// Returns the ages of all visible points in days; four kinds of queries must agree.
fn ages_seen(client: &Client, now: i64) -> Vec<i64> {
    let ages = |tier: &str| {
        let rows = reading::rows(client, TABLE, json!({"tier": tier})).expect("a response");
        let mut ages: Vec<i64> = rows.iter().map(|row| (now - row.time) / DAY).collect();
        ages.sort_unstable();
        ages
    };
    let all = ages("all");
    let mut tiers = [ages("hot"), ages("cold")].concat();
    tiers.sort_unstable();
    assert_eq!(tiers, all, "each point is in one tier");
    let range = json!({"start": "2000-01-01T00:00:00Z", "end": "2200-01-01T00:00:00Z"});
    let query = json!({"aggregate": {"functions": ["count", "sum"]}, "fields": ["days"], "range": range});
    let answer = client
        .post_json(&format!("/v1/tables/{TABLE}/query"), &query)
        .expect_status(200);
    let told: Vec<Value> = reading::rows_of(&answer)
        .iter()
        .flat_map(|row| {
            ["count", "sum"].map(|function| row.fields[&reading::column(function, "days")].clone())
        })
        .collect();
    let known = [all.len() as i64, all.iter().sum()].map(Value::Signed);
    assert_eq!(
        told,
        if all.is_empty() { &[][..] } else { &known[..] },
        "aggregates follow from rows"
    );
    let answer = client.post_json(&format!("/v1/tables/{TABLE}/latest"), &json!({}));
    let newest = reading::rows_of(&answer.expect_status(200));
    let newest = newest.iter().map(|row| (now - row.time) / DAY).min();
    assert_eq!(
        newest,
        all.first().copied(),
        "the newest value is that of a visible point"
    );
    all
}
