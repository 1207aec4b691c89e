//! The search index can always be rebuilt from the catalog. If its folder is missing at the start, or is
//! removed while the service runs, results stay the same and writes continue.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch, reading, wait};

/// Number of timelines that are written before the index is removed.
const TIMELINES: usize = 3_000;

#[test]
fn the_index_is_rebuilt_at_the_start_when_its_folder_is_gone() {
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let client = server.client();
    write_hosts(&client, 0..TIMELINES);
    set_attribute(&client, "h-00007");
    seal(&client);
    let before = answers(&client);
    assert!(server.terminate().status.success());
    fs::remove_dir_all(folder.path().join("index")).expect("the index has a folder of its own");

    let server = folder.start(&Launch::default());
    let client = server.client();
    assert_eq!(answers(&client), before, "while it may still be rebuilding");
    write_hosts(&client, TIMELINES..TIMELINES + 10);
    let newest = json!({"tag": "host", "equals": format!("h-{:05}", TIMELINES + 9)});
    assert_eq!(
        reading::sources(&client, "default", &newest).len(),
        1,
        "a new timeline is found"
    );
    wait_rebuilt(&client);
    assert_eq!(answers(&client), before);
    assert!(server.terminate().status.success());
}

#[test]
fn the_index_survives_that_its_folder_is_taken_away() {
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let client = server.client();
    write_hosts(&client, 0..TIMELINES);
    set_attribute(&client, "h-00007");
    seal(&client);
    let before = answers(&client);
    fs::remove_dir_all(folder.path().join("index")).expect("the index has a folder of its own");
    assert_eq!(answers(&client), before, "without its folder");
    write_hosts(&client, TIMELINES..TIMELINES + 10);
    let newest = json!({"tag": "host", "equals": format!("h-{:05}", TIMELINES + 9)});
    assert_eq!(
        reading::sources(&client, "default", &newest).len(),
        1,
        "a new timeline is found"
    );
    server.kill();
    let server = folder.start(&Launch::default());
    let client = server.client();
    assert_eq!(answers(&client), before, "after a kill without its folder");
    assert_eq!(reading::sources(&client, "default", &newest).len(), 1);
}

fn write_hosts(client: &Client, hosts: std::ops::Range<usize>) {
    let lines: Vec<String> = hosts
        .map(|host| {
            format!(
                "cpu,host=h-{host:05},rack=r{} usage={host}i 1700000000000000000",
                host % 40
            )
        })
        .collect();
    client.post_lines("/write", &lines.join("\n")).expect_status(204);
}

fn set_attribute(client: &Client, host: &str) {
    let found = reading::search(
        client,
        "default",
        &json!({"where": {"tag": "host", "equals": host}}),
    );
    let id = found["timelines"][0]["id"]
        .as_str()
        .expect("it is found")
        .to_owned();
    reading::set_attributes(client, "default", &id, &json!({"owner": "storage"}));
}

fn seal(client: &Client) {
    client
        .post_json("/v1/jobs", &json!({"kind": "seal"}))
        .expect_status(200);
}

/// Returns the results of several searches: the sources in order, and the total.
fn answers(client: &Client) -> Vec<(Vec<String>, Value)> {
    let old = json!({"not": {"tag": "host", "prefix": format!("h-0{}", TIMELINES / 1_000)}});
    let conditions = [
        json!({"and": [{"tag": "rack", "equals": "r7"}, old]}),
        json!({"and": [{"tag": "host", "regex": "h-0[01]0.9"}, {"not": {"tag": "rack", "in": ["r1", "r9"]}}]}),
        json!({"attribute": "owner", "equals": "storage"}),
        json!({"and": [{"tag": "host", "wildcard": "h-002*"}, {"property": "measurement", "equals": "cpu"}]}),
    ];
    conditions
        .iter()
        .map(|condition| {
            let page = json!({"where": condition, "sort": [{"tag": "host"}], "limit": 1});
            let total = reading::search(client, "default", &page)["total"].clone();
            (reading::sources(client, "default", condition), total)
        })
        .collect()
}

/// Waits until `/ready` no longer reports that the index is being rebuilt.
fn wait_rebuilt(client: &Client) {
    let rebuilt = wait::until(Duration::from_secs(20), || {
        let ready = client.get("/ready");
        (!ready.text().contains("rebuilt")).then_some(())
    });
    assert!(rebuilt.is_some(), "still rebuilding: {:?}", client.get("/ready"));
}
