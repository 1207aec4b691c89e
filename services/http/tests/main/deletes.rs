//! Deletes of points and of timelines.
//!
//! Deleted data is invisible immediately, and data written later is visible again. Ambiguous requests are refused.

use serde_json::json;

use crate::ages::{DAY, NOW, TABLE, aged, ages, seal, statistics, write};

#[test]
fn deleted_points_are_gone_and_what_is_written_later_is_there() {
    let server = aged(&json!({"hot_ttl": "3d"}), &[20, 10, 5, 1]);
    write(&server, &format!("age,host=b days=2i {}\n", NOW - 2 * DAY));
    let delete = json!({
        "timelines": {"where": {"tag": "host", "equals": "a"}},
        "range": {"start": "now-12d", "end": "now-4d"}
    })
    .to_string();
    for _ in 0..2 {
        let report = server
            .json("POST", &format!("{TABLE}/points/delete"), &delete)
            .expect(200);
        assert_eq!(report["timelines"], 1);
        assert_eq!(ages(&server), [1, 2, 20]);
    }
    let statistics = statistics(&server);
    assert!(
        statistics["deletes_waiting"].as_u64() > Some(0)
            && statistics["bytes_with_deletes"].as_u64() > Some(0),
        "{statistics}"
    );
    write(&server, &format!("age,host=a days=5i {}\n", NOW - 5 * DAY));
    assert_eq!(ages(&server), [1, 2, 5, 20]);
    let purge = r#"{"kind": "purge", "table": "ages", "wait": true}"#;
    server.json("POST", "/v1/jobs", purge).expect(200);
    seal(&server);
    assert_eq!(ages(&server), [1, 2, 5, 20]);
    let everything = r#"{"timelines": {"where": {"and": []}}, "range": {"start": null, "end": null}}"#;
    let report = server
        .json("POST", &format!("{TABLE}/points/delete"), everything)
        .expect(200);
    assert_eq!((&report["timelines"], ages(&server)), (&json!(2), Vec::new()));
    let found = server.get(&format!("{TABLE}/timelines")).expect(200);
    assert_eq!(found["total"], 2, "timelines stay without points");
}

#[test]
fn a_delete_that_does_not_say_what_it_means_is_refused() {
    let server = aged(&json!({}), &[5, 1]);
    let ids = "\"timelines\": {\"where\": {\"and\": []}}";
    for (path, body, status) in [
        ("points", format!("{{{ids}}}"), 400),
        ("points", format!("{{{ids}, \"range\": {{}}}}"), 400),
        ("points", format!("{{{ids}, \"range\": {{\"start\": 0}}}}"), 400),
        (
            "points",
            format!("{{{ids}, \"range\": {{\"start\": 5, \"end\": 5}}}}"),
            400,
        ),
        (
            "points",
            r#"{"range": {"start": null, "end": null}}"#.to_owned(),
            400,
        ),
        (
            "points",
            r#"{"timelines": {}, "range": {"start": null, "end": null}}"#.to_owned(),
            400,
        ),
        ("timelines", "{}".to_owned(), 400),
        ("timelines", r#"{"timelines": {"ids": ["xyz"]}}"#.to_owned(), 400),
        (
            "timelines",
            format!("{{{ids}, \"range\": {{\"start\": 0, \"end\": 1}}}}"),
            400,
        ),
        (
            "timelines",
            format!("{{\"timelines\": {{\"ids\": [\"{}\"]}}}}", "0".repeat(32)),
            404,
        ),
    ] {
        let response = server.json("POST", &format!("{TABLE}/{path}/delete"), &body);
        assert!(response.expect(status)["message"].is_string(), "{path} {body}");
    }
    server
        .json(
            "POST",
            "/v1/tables/unknown/points/delete",
            &format!("{{{ids}, \"range\": {{\"start\": null, \"end\": null}}}}"),
        )
        .expect(404);
    assert_eq!(ages(&server), [1, 5]);
}

#[test]
fn deleted_timelines_are_gone_and_come_back_when_they_are_written() {
    let server = aged(&json!({}), &[5, 1]);
    write(
        &server,
        &format!("age,host=b days=2i {0}\nage,host=c days=3i {0}\n", NOW - 2 * DAY),
    );
    let sources = || {
        let search = r#"{"sort": [{"tag": "host"}]}"#;
        let found = server
            .json("POST", &format!("{TABLE}/timelines/search"), search)
            .expect(200);
        let timelines = found["timelines"].as_array().expect("a list").clone();
        timelines
            .iter()
            .map(|timeline| timeline["source"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    let id_of = |host: &str| {
        let found = server
            .get(&format!("{TABLE}/timelines?source={host}"))
            .expect(200);
        found["timelines"][0]["id"].as_str().expect("an id").to_owned()
    };
    let (b, c) = (id_of("b"), id_of("c"));
    for (selector, count) in [
        (json!({"ids": [b]}), 1),
        (json!({"where": {"tag": "host", "equals": "b"}}), 0),
    ] {
        let delete = json!({"timelines": selector}).to_string();
        let report = server
            .json("POST", &format!("{TABLE}/timelines/delete"), &delete)
            .expect(200);
        assert_eq!(report["timelines"], count, "a repeated delete finds nothing");
        assert_eq!(
            (sources(), ages(&server)),
            (vec!["a".to_owned(), "c".to_owned()], vec![1, 3, 5])
        );
    }
    server.get(&format!("{TABLE}/timelines/{b}")).expect(404);
    let path = format!("{TABLE}/timelines/{c}");
    assert_eq!(server.send("DELETE", &path, &[], b"").status, 204);
    assert_eq!(server.get(&path).status, 404);
    assert_eq!(
        server
            .send("DELETE", &format!("{TABLE}/timelines/xyz"), &[], b"")
            .status,
        400
    );
    assert_eq!((sources(), ages(&server)), (vec!["a".to_owned()], vec![1, 5]));
    write(&server, &format!("age,host=c days=0i {NOW}\n"));
    assert_eq!(
        (sources(), ages(&server)),
        (vec!["a".to_owned(), "c".to_owned()], vec![0, 1, 5])
    );
    assert_eq!(id_of("c"), c, "it is created again with the same id");
}
