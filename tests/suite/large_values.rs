//! Tests that kill the server during uploads of large values, at arbitrary times and at every step.
//!
//! After each kill, every value is either the whole old value or the whole new value, and acknowledged values are
//! stored. `tideline check` finds no damage, and the pieces of killed uploads are removed. The command line writes and
//! reads the same values. A long upload takes bounded memory.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::json;
use tideline_testkit::Random;
use tideline_tests::server::{DataFolder, binary};
use tideline_tests::{Client, Launch, wait};

/// Steps of an upload, and the step of an ordinary write with large values.
pub(super) const STEPS: [&str; 2] = ["wide.large_pieces", "wide.cut_values"];
/// Number of kills at arbitrary times.
const KILLS: u64 = 6;
/// Size of the uploaded values, in bytes.
const VALUE_BYTES: usize = 24 << 20;
/// Size of the upload whose memory is measured, in MiB.
const LONG_MIB: usize = 256;
/// Maximum growth of peak resident memory during this upload, in bytes.
const GROWTH_MAX: u64 = 32 << 20;
/// Time limit for the removal of the pieces of killed uploads.
const PATIENCE: Duration = Duration::from_secs(120);

fn create(client: &Client) {
    let table = json!({"name": "media", "model": "wide", "wide": {
        "key": [{"name": "id", "type": "string"}],
        "columns": [{"name": "video", "type": "binary"}]
    }});
    client.post_json("/v1/tables", &table).expect_status(201);
}

fn path(id: &str) -> String {
    format!("/v1/tables/media/blobs/video?key=%7B%22id%22%3A%22{id}%22%7D")
}

fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let words = (0..bytes.div_ceil(8)).flat_map(|_| random.next().to_le_bytes());
    words.take(bytes).collect()
}

/// Uploads a value. Returns true if it was acknowledged.
fn upload(client: &Client, id: &str, content: &[u8]) -> bool {
    let headers = [("content-type", "application/octet-stream")];
    let sent = client.send("PUT", &path(id), &headers, content);
    sent.is_ok_and(|response| response.is_success())
}

fn check(folder: &DataFolder) {
    let checked = Command::new(binary()).arg("check").arg(folder.path()).output();
    let checked = checked.expect("the check runs");
    assert!(
        checked.status.success(),
        "{}{}",
        String::from_utf8_lossy(&checked.stdout),
        String::from_utf8_lossy(&checked.stderr)
    );
}

#[test]
fn a_value_is_whole_or_absent_after_kills_during_its_upload() {
    let folder = DataFolder::new();
    let mut server = folder.start(&Launch::default());
    create(&server.client());
    // Seeds of the values that each row may have: the last acknowledged value, and all values that were sent after it.
    let mut possible: BTreeMap<String, Vec<Option<u64>>> = BTreeMap::new();
    for round in 0..KILLS {
        let uploads: Vec<_> = [format!("new {round}"), "same".to_owned()]
            .into_iter()
            .zip([2 * round, 2 * round + 1])
            .map(|(id, seed)| {
                let client = server.client();
                let id = id.replace(' ', "-");
                thread::spawn(move || {
                    let is_acknowledged = upload(&client, &id, &content(seed, VALUE_BYTES));
                    (id, seed, is_acknowledged)
                })
            })
            .collect();
        wait::pause(Duration::from_millis(150 * round));
        server.kill();
        for upload in uploads {
            let (id, seed, is_acknowledged) = upload.join().expect("it ends");
            let seeds = possible.entry(id).or_insert_with(|| vec![None]);
            if is_acknowledged {
                seeds.clear();
            }
            seeds.push(Some(seed));
        }
        server = folder.start(&Launch::default());
        let client = server.client();
        for (id, seeds) in &mut possible {
            let read = client.get(&path(id));
            let found = match read.status {
                404 => None,
                _ => {
                    let read = read.expect_status(200);
                    let mut known = seeds.iter().copied().flatten();
                    let found = known.find(|seed| read.body == content(*seed, VALUE_BYTES));
                    assert!(
                        found.is_some(),
                        "round {round}: {id} has another value than any that was sent"
                    );
                    found
                }
            };
            assert!(seeds.contains(&found), "round {round}: {id}");
            *seeds = vec![found];
        }
    }
    assert!(server.terminate().status.success());
    check(&folder);
}

#[test]
fn the_pieces_of_an_upload_that_is_killed_at_any_step_are_removed() {
    let [pieces, _] = STEPS;
    for (point, is_stored) in [
        (format!("{pieces}.before"), false),
        (format!("{pieces}.after"), true),
        (format!("{pieces}.after:3"), true),
        // The last pieces are stored, and the row is not.
        (format!("{pieces}.after:7"), true),
    ] {
        let folder = DataFolder::new();
        let server = folder.start(&Launch::default().environment("TIDELINE_KILL_AT", &point));
        create(&server.client());
        let sent = content(7, VALUE_BYTES);
        assert!(!upload(&server.client(), "a", &sent), "{point}: it is killed");
        server.wait_gone(PATIENCE).expect("it is killed");
        let server = folder.start(&Launch::default());
        let client = server.client();
        client.get(&path("a")).expect_status(404);
        assert_eq!(removed(&client), Some(f64::from(u8::from(is_stored))), "{point}");
        assert!(upload(&client, "a", &sent), "{point}");
        assert!(client.get(&path("a")).expect_status(200).body == sent, "{point}");
        assert!(server.terminate().status.success());
        check(&folder);
    }
}

#[test]
fn an_upload_takes_bounded_memory_whatever_its_length() {
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    create(&server.client());
    // The pieces of an ordinary write are in a file that spans the keys of later pieces, so they are merged with it.
    let row = json!({"op": "put", "key": {"id": "row"}, "columns": {"text": "wort ".repeat(30_000)}});
    let written = server
        .client()
        .post_json("/v1/tables/media/rows", &json!({"rows": [row]}));
    written.expect_status(200);
    let before = server.resident_bytes_peak();
    let large = content(2, 1 << 20).repeat(LONG_MIB);
    assert!(upload(&server.client(), "large", &large));
    let grown = server.resident_bytes_peak().saturating_sub(before);
    assert!(grown <= GROWTH_MAX, "{} MiB", grown >> 20);
    let client = server.client();
    let last = client.send("GET", &path("large"), &[("range", "bytes=-9")], b"");
    let last = last.expect("an answer").expect_status(206);
    assert!(large.ends_with(&last.body));
}

/// Returns the number of values that the first removal after a start has removed.
fn removed(client: &Client) -> Option<f64> {
    wait::until(PATIENCE, || {
        let metrics = client.get("/metrics").text();
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix("tideline_row_large_values_removed{table=\"media\"} "));
        line.and_then(|line| line.parse::<f64>().ok())
    })
}

#[test]
fn ordinary_writes_of_large_values_that_are_killed_change_nothing() {
    let [_, cut] = STEPS;
    let text = |seed: u64| format!("{}{seed}", "wort ".repeat(30_000));
    let write = |client: &Client, id: &str, seed: u64| {
        let put = |column: &str| json!({"op": "put", "key": {"id": format!("{id}-{column}")}, "columns": {column: text(seed)}});
        let rows = json!({"rows": [put("text"), put("document")]});
        let headers = [("content-type", "application/json")];
        let sent = client.send(
            "POST",
            "/v1/tables/media/rows",
            &headers,
            rows.to_string().as_bytes(),
        );
        sent.is_ok_and(|response| response.is_success())
    };
    let read = |client: &Client, id: &str| {
        let keys = json!({"keys": [{"id": format!("{id}-text")}, {"id": format!("{id}-document")}]});
        let read = client
            .post_json("/v1/tables/media/rows/get", &keys)
            .expect_status(200);
        let rows = read.json()["rows"].clone();
        [("text", 0), ("document", 1)]
            .map(|(column, row)| rows[row]["columns"][column].as_str().map(str::to_owned))
    };
    for (side, is_stored) in [("before:2", false), ("after:2", true)] {
        let folder = DataFolder::new();
        let point = format!("{cut}.{side}");
        let server = folder.start(&Launch::default().environment("TIDELINE_KILL_AT", &point));
        create(&server.client());
        assert!(write(&server.client(), "a", 1), "{point}");
        assert!(!write(&server.client(), "a", 2), "{point}: it is killed");
        server.wait_gone(PATIENCE).expect("it is killed");
        let server = folder.start(&Launch::default());
        let client = server.client();
        assert!(read(&client, "a") == [Some(text(1)), Some(text(1))], "{point}");
        let expected = if is_stored { 2.0 } else { 0.0 };
        assert_eq!(removed(&client), Some(expected), "{point}");
        assert!(write(&client, "a", 3) && write(&client, "b", 4), "{point}");
        server.kill();
        let server = folder.start(&Launch::default());
        let client = server.client();
        assert!(read(&client, "a") == [Some(text(3)), Some(text(3))], "{point}");
        assert!(read(&client, "b") == [Some(text(4)), Some(text(4))], "{point}");
        assert!(server.terminate().status.success());
        check(&folder);
    }
}

#[test]
fn the_command_line_writes_values_from_files_and_continues_downloads() {
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    create(&server.client());
    let address = format!("http://{}", server.client().address());
    let run = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        let command = command.arg("rows").args(arguments).args(["--server", &address]);
        command.output().expect("the command runs")
    };
    let (from, out) = (folder.beside("from.bin"), folder.beside("out.bin"));
    let (from_text, out_text) = (from.to_str().expect("a path"), out.to_str().expect("a path"));
    let sent = content(3, 3_000_001);
    fs::write(&from, &sent).expect("it is written");
    let written = run(&[
        "put-value",
        "media",
        "video",
        "id=a",
        "--from",
        from_text,
        "--json",
    ]);
    assert!(
        written.status.success(),
        "{}",
        String::from_utf8_lossy(&written.stderr)
    );
    let written: serde_json::Value = serde_json::from_slice(&written.stdout).expect("JSON");
    let checksum = written["checksum"].as_str().expect("a text");
    let again = run(&[
        "put-value",
        "media",
        "video",
        "id=a",
        "--from",
        from_text,
        "--if-absent",
    ]);
    assert!(!again.status.success());
    assert!(String::from_utf8_lossy(&again.stderr).contains("condition"));
    // Partial files of interrupted downloads: of the same value, and of another value.
    for (checksum, length) in [
        (checksum, 1_000_000),
        (checksum, sent.len()),
        ("0123456789abcdef", 5_000),
        (checksum, 0),
    ] {
        let partial = folder.beside(&format!("out.bin.{checksum}.partial"));
        let kept = match checksum.starts_with("0123") {
            true => vec![0; length],
            false => sent[..length].to_vec(),
        };
        fs::write(&partial, kept).expect("it is written");
        let read = run(&["get-value", "media", "video", "id=a", "--out", out_text]);
        assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
        assert!(fs::read(&out).expect("it is read") == sent, "{length}");
        assert!(!partial.exists());
    }
    let part = run(&["get-value", "media", "video", "id=a", "--range", "10-19"]);
    assert!(part.stdout == sent[10..20]);
    let missing = run(&["get-value", "media", "video", "id=b", "--out", out_text]);
    assert!(!missing.status.success());
    assert!(server.terminate().status.success());
}
