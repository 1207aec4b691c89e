//! Tests of streamed values that move to the archive and back with their rows. The server is killed before and after
//! each step that copies the values.
//!
//! After each kill, every value is whole, and the same work succeeds when it is repeated, also after the pieces of
//! archived values were removed from the storage engine. Another server reads the values from the archive. The offline
//! check and `tideline archive verify` find no damage.

use serde_json::json;
use tideline_testkit::Random;
use tideline_tests::Client;
use tideline_tests::server::DataFolder;

use crate::row_archive::{Lab, PATIENCE, check_of};

/// Steps that copy streamed values.
pub(super) const STEPS: [&str; 2] = ["wide_archive.values", "wide_restore.values"];
/// Rows with their sizes in bytes; all are in one part.
const VALUES: [(&str, usize); 3] = [("small", 70_000), ("medium", 1 << 20), ("large", (9 << 20) + 7)];

fn path(id: &str) -> String {
    let key = format!("%7B%22id%22%3A%22{id}%22%2C%22at%22%3A%222024-01-07T08%3A00%3A00Z%22%7D");
    format!("/v1/tables/media/blobs/video?key={key}")
}

fn content(bytes: usize) -> Vec<u8> {
    let mut random = Random::new(bytes as u64);
    let words = (0..bytes.div_ceil(8)).flat_map(|_| random.next().to_le_bytes());
    words.take(bytes).collect()
}

/// Creates a table with a part of streamed values.
fn create(client: &Client) {
    let table = json!({"name": "media", "model": "wide", "wide": {
        "key": [{"name": "id", "type": "string"}, {"name": "at", "type": "timestamp"}],
        "columns": [{"name": "video", "type": "binary"}],
        "parts": {"by": "at", "every": "month"},
    }});
    client.post_json("/v1/tables", &table).expect_status(201);
    for (id, bytes) in VALUES {
        let headers = [("content-type", "application/octet-stream")];
        let sent = client.send("PUT", &path(id), &headers, &content(bytes));
        sent.expect("an answer").expect_status(200);
    }
    // Only stored rows are moved.
    client
        .post_json("/v1/jobs", &json!({"kind": "seal"}))
        .expect_status(200);
}

/// Allows the table to use the archive. A server that starts with due work begins it before it listens.
fn allow_archive(client: &Client) {
    let headers = [("content-type", "application/json")];
    let parts = json!({"wide": {"parts": {"archive": {"target": "default", "after": "30d"}}}});
    let sent = client.send(
        "PATCH",
        "/v1/tables/media",
        &headers,
        parts.to_string().as_bytes(),
    );
    sent.expect("an answer").expect_status(200);
}

/// Starts work and waits for its end. Returns false if it fails or the server was killed.
fn run(client: &Client, step: &str) -> bool {
    let (path, state, body) = match step.starts_with("wide_archive") {
        true => (
            "/v1/jobs",
            "/state",
            json!({"kind": "archive", "table": "media", "wait": true}),
        ),
        false => (
            "/v1/tables/media/parts/restore",
            "/job/state",
            json!({"from": "2024-01-01T00:00:00Z", "to": "2024-02-01T00:00:00Z", "for": "1d", "wait": true}),
        ),
    };
    let headers = [("content-type", "application/json")];
    let sent = client.send("POST", path, &headers, body.to_string().as_bytes());
    sent.is_ok_and(|response| response.is_success() && response.json().pointer(state) == Some(&json!("done")))
}

fn tier(client: &Client) -> String {
    let parts = client.get("/v1/tables/media/parts").expect_status(200).json();
    parts["parts"][0]["tier"].as_str().unwrap_or("hot").to_owned()
}

/// Reads all values, as a whole and in a range.
fn check_values(client: &Client, context: &str) {
    for (id, bytes) in VALUES {
        let expected = content(bytes);
        let read = client.get(&path(id)).expect_status(200);
        assert!(read.body == expected, "{context}: {id}");
        let (first, last) = (bytes / 2, bytes - 1);
        let range = format!("bytes={first}-{last}");
        let headers = [("range", range.as_str())];
        let read = client.send("GET", &path(id), &headers, b"");
        let read = read.expect("an answer").expect_status(206);
        assert!(read.body == expected[first..], "{context}: {id} from {first}");
    }
}

/// Removes pieces that are no longer needed. If the rows are in the archive, no pieces are kept.
fn remove_pieces(client: &Client) {
    let is_archived = tier(client) == "archive";
    let job = json!({"kind": "remove_expired", "table": "media", "wait": true});
    let ended = client.post_json("/v1/jobs", &job).expect_status(200).json();
    assert_eq!(ended["state"], "done", "{ended}");
    let outcome = ended["jobs"][0]["outcome"].as_str().unwrap_or_default();
    assert!(outcome.contains("large values that are not needed"), "{ended}");
    assert!(
        !is_archived || outcome.contains("and 0 with 0 bytes are kept"),
        "{ended}"
    );
}

fn kill_at(step: &str, side: &str) {
    let context = format!("{step}.{side}");
    let lab = Lab::new();
    let server = lab.folder.start(&lab.launch());
    create(&server.client());
    let is_restore = step.starts_with("wide_restore");
    if is_restore {
        allow_archive(&server.client());
        assert!(run(&server.client(), STEPS[0]), "{context}");
        remove_pieces(&server.client());
    }
    assert!(server.terminate().status.success());

    let server = lab
        .folder
        .start(&lab.launch().environment("TIDELINE_KILL_AT", &context));
    if !is_restore {
        allow_archive(&server.client());
    }
    assert!(!run(&server.client(), step), "{context}: never reached");
    server.expect_killed(&context);

    let server = lab.folder.start(&lab.launch());
    let client = server.client();
    check_values(&client, &format!("{context}, after the kill"));
    remove_pieces(&client);
    let expected = if is_restore { "cold" } else { "archive" };
    // The scheduler may already have repeated the work.
    let ended = tideline_tests::wait::until(PATIENCE, || {
        let is_done = tier(&client) == expected || run(&client, step) && tier(&client) == expected;
        is_done.then_some(())
    });
    assert!(ended.is_some(), "{context}: {}", tier(&client));
    check_values(&client, &format!("{context}, repeated"));
    remove_pieces(&client);
    check_values(&client, &format!("{context}, after a removal of pieces"));
    assert!(server.terminate().status.success());
    assert_eq!(lab.check()["is_sound"], true, "{context}");
    assert_eq!(lab.verify()["is_sound"], true, "{context}");
}

#[test]
fn streamed_values_are_whole_whatever_step_of_an_archiving_or_restore_is_cut() {
    for step in STEPS {
        for side in ["before", "after"] {
            kill_at(step, side);
        }
    }
}

#[test]
fn an_empty_machine_reads_streamed_values_from_the_archive() {
    let lab = Lab::new();
    let server = lab.folder.start(&lab.launch());
    create(&server.client());
    allow_archive(&server.client());
    assert!(run(&server.client(), STEPS[0]));
    server.kill();

    let folder = DataFolder::new();
    let server = folder.start(&lab.launch());
    let client = server.client();
    let attached = client.post_json("/v1/archive/attach", &json!({"target": "default"}));
    let attached = attached.expect_status(200).text();
    let attached: serde_json::Value =
        serde_json::from_str(attached.lines().last().expect("a line")).expect("JSON");
    assert_eq!(
        (&attached["parts_attached"], &attached["problem_count"]),
        (&json!(1), &json!(0)),
        "{attached}"
    );
    check_values(&client, "attached");

    // A restored part does not need the files of the other server.
    assert!(run(&client, STEPS[1]));
    assert_eq!(tier(&client), "cold");
    std::fs::remove_dir_all(&lab.files).expect("it is removed");
    std::fs::create_dir_all(&lab.files).expect("a folder");
    remove_pieces(&client);
    check_values(&client, "restored");
    assert!(server.terminate().status.success());
    assert_eq!(check_of(&folder)["is_sound"], true);
}
