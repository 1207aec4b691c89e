//! Ageing of points: moves between tiers, policies and deletes.
//!
//! Steps are applied to the service and to the model.

use crate::{Client, reading};
use serde_json::{Value as Json, json};
use tideline_fleet::Random;
use tideline_model::time::format_duration;
use tideline_model::{Clock as _, SystemClock};

use super::naive::{Model, Span};
use super::writes::{DAY, FIRST_INSTANT, MEASUREMENTS};

/// Kinds of jobs for the default table.
const MOVES: [&str; 5] = ["migrate", "fold", "purge", "expire", "clean_catalog"];

/// Delay between hiding and purging of points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purge {
    /// One day, longer than any run: a longer policy shows all hidden points again.
    NextDay,
    /// No delay: a longer policy shows the points that are not yet purged.
    AtOnce,
}

impl Purge {
    pub(super) fn draw(random: &mut Random) -> Self {
        [Self::NextDay, Self::AtOnce][random.index(2)]
    }

    /// Returns the value of the setting.
    pub fn delay(self) -> &'static str {
        match self {
            Self::NextDay => "24h",
            Self::AtOnce => "0s",
        }
    }
}

/// Writes a point with the current time to a separate table, because the newest point of the database limits
/// expiry.
pub(super) fn write_now(client: &Client) {
    client
        .post_json("/v1/tables", &json!({"name": "now"}))
        .expect_status(201);
    client
        .post_lines("/v1/tables/now/points", "now,host=now is=1i")
        .expect_status(200);
}

/// Starts a job; half of the jobs run concurrently with the next steps.
pub(super) fn start_move(client: &Client, random: &mut Random, context: &str) {
    let kind = MOVES[random.index(MOVES.len())];
    run_move(client, kind, random.index(2) == 0, context);
}

fn run_move(client: &Client, kind: &str, wait: bool, context: &str) {
    let body = json!({"kind": kind, "table": "default", "wait": wait});
    let response = client.post_json("/v1/jobs", &body);
    assert!(response.is_success(), "{context}, {body}: {response:?}");
}

/// Deletes the points of random timelines in a random range, or timelines with all their points.
pub(super) fn delete(client: &Client, model: &mut Model, random: &mut Random, context: &str) {
    let Some(mut span) = Span::draw(model, random) else {
        return;
    };
    match random.index(8) {
        0 => {
            span.keep_one_host(random);
            let body = json!({"timelines": {"where": span.condition()}});
            post_delete(client, random, "timelines", &body, context);
            model.remove_timelines(&span);
        }
        1 => {
            span.keep_one_host(random);
            delete_by_id(client, &span, context);
            model.remove_timelines(&span);
        }
        _ => {
            let (start, end) = span.range();
            let range = json!({"start": start, "end": end});
            let body = json!({"timelines": {"where": span.condition()}, "range": range});
            post_delete(client, random, "points", &body, context);
            model.delete(&span);
        }
    }
    check_timelines(client, model, &format!("{context}, {span:?}"));
}

/// Sends a delete once or twice, because deletes are idempotent.
fn post_delete(client: &Client, random: &mut Random, what: &str, body: &Json, context: &str) {
    for _ in 0..=random.index(2) {
        let response = client.post_json(&format!("/v1/tables/default/{what}/delete"), body);
        assert!(response.is_success(), "{context}, {body}: {response:?}");
    }
}

/// Deletes timelines by id; the second request returns 404.
fn delete_by_id(client: &Client, span: &Span, context: &str) {
    let found = reading::search(
        client,
        "default",
        &json!({"where": span.condition(), "limit": 100}),
    );
    for timeline in found["timelines"].as_array().expect("a page has timelines") {
        let id = timeline["id"].as_str().expect("a timeline has an id");
        for status in [204, 404] {
            let path = format!("/v1/tables/default/timelines/{id}");
            let response = client.send("DELETE", &path, &[], b"").expect("a response");
            assert_eq!(response.status, status, "{context}, {path}: {response:?}");
        }
    }
}

/// Sets a random policy. A longer policy shows hidden points again unless they were purged in the meantime. No points
/// are purged within the purge delay.
pub(super) fn set_policy(
    client: &Client,
    model: &mut Model,
    random: &mut Random,
    purge: Purge,
    context: &str,
) {
    let now = SystemClock.now().nanos();
    // The cut is half a day away from all late points, so that the time passing during the test hides no point.
    let cut = |random: &mut Random| FIRST_INSTANT - random.index(41) as i64 * DAY - DAY / 2;
    let visible_from = (random.index(3) > 0).then(|| cut(random));
    let hot_from = match random.index(4) {
        0 => None,
        1 => Some(now - DAY),
        _ => Some(cut(random).max(visible_from.unwrap_or(i64::MIN) + DAY)),
    };
    let age = |from: Option<i64>| from.map_or(Json::Null, |from| json!(format_duration(now - from)));
    let name = match hot_from {
        None => "retention",
        Some(_) => ["retention", "cold_ttl"][random.index(2)],
    };
    let mut policy = json!({"retention": null, "cold_ttl": null, "hot_ttl": age(hot_from)});
    policy[name] = age(visible_from);
    let body = json!({"policy": policy}).to_string();
    let headers = [("content-type", "application/json")];
    let response = client
        .send("PATCH", "/v1/tables/default", &headers, body.as_bytes())
        .expect("a response");
    assert!(response.is_success(), "{context}, {body}: {response:?}");
    let visible_from = visible_from.unwrap_or(i64::MIN);
    let hidden_before = model.show_from(visible_from);
    if purge == Purge::AtOnce && visible_from < hidden_before {
        // Waits until the jobs that started under the shorter policy are done.
        for kind in ["expire", "clean_catalog"] {
            run_move(client, kind, true, context);
        }
        for measurement in MEASUREMENTS {
            let rows = reading::all_if_known(client, "default", measurement);
            model.keep_of_hidden(measurement, (visible_from, hidden_before), rows);
        }
    }
}

/// Checks that a search finds every timeline with a visible point, and none that was removed or never
/// written. A timeline without visible points is found until the catalog is cleaned.
pub(super) fn check_timelines(client: &Client, model: &Model, context: &str) {
    for measurement in MEASUREMENTS {
        let condition = json!({"property": "measurement", "equals": measurement});
        let found = reading::sources(client, "default", &condition);
        let mut known = model.hosts(measurement);
        for host in &found {
            let once = known.remove(host).is_some();
            assert!(
                once,
                "{context}: {measurement} of {host} is found twice, was removed, or was never written"
            );
        }
        let lost: Vec<_> = known.iter().filter(|(_, is_seen)| **is_seen).collect();
        assert!(
            lost.is_empty(),
            "{context}: {measurement} of {lost:?} is not found"
        );
    }
}
