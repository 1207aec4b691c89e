//! Damage of the journal files that are kept for change streams. `tideline check` names the file. A reader of the
//! stream gets an explicit gap with the reason `damaged`, and all other changes as they were written.
//!
//! Each round flips bits in one file of a copy of the folder, or cuts the file.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tideline_testkit::{Random, rounds, seed};
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch, archive, wait};

use crate::row_archive::check_of;

const STREAM: &str = "/v1/changes/all";
/// Minimum number of journal files that are kept.
const FILES: usize = 4;
/// Number of rows per file.
const ROWS: u64 = 25;
/// Time limit for a state that is awaited.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the journal files of the history, oldest first.
fn history(folder: &Path) -> Vec<PathBuf> {
    let Ok(files) = fs::read_dir(folder.join("history")) else {
        return Vec::new();
    };
    let files = files.map(|file| file.expect("a file").path());
    let mut files: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|end| end == "journal"))
        .collect();
    files.sort();
    files
}

/// Writes rows, one per request, until the history has enough files. Returns the records of the stream.
fn prepare(folder: &DataFolder) -> Vec<Value> {
    let server = folder.start(&Launch::default());
    let client = server.client();
    let wide =
        json!({"key": [{"name": "n", "type": "u64"}], "columns": [{"name": "text", "type": "string"}]});
    let orders = json!({"name": "orders", "model": "wide", "wide": wide});
    client.post_json("/v1/tables", &orders).expect_status(201);
    client
        .put_json(STREAM, &json!({"tables": ["orders"], "kinds": ["row"]}))
        .expect_status(200);
    let mut next = 0;
    let kept = wait::until(PATIENCE, || {
        for n in next..next + ROWS {
            let row =
                json!({"op": "put", "key": {"n": n}, "columns": {"text": format!("text {n} ").repeat(20)}});
            let rows = json!({"rows": [row]});
            client
                .post_json("/v1/tables/orders/rows", &rows)
                .expect_status(200);
        }
        next += ROWS;
        let seal = json!({"kind": "seal", "wait": true});
        client.post_json("/v1/jobs", &seal).expect_status(200);
        (history(&folder.path()).len() >= FILES).then_some(())
    });
    assert!(kept.is_some(), "{FILES} files are kept");
    let records = read_all(&client, "/records?");
    let numbers: Vec<u64> = records.iter().map(number).collect();
    assert_eq!(numbers, (0..next).collect::<Vec<_>>());
    assert!(server.terminate().status.success());
    records
}

fn number(record: &Value) -> u64 {
    record["key"]["n"]
        .as_u64()
        .unwrap_or_else(|| panic!("not a row: {record}"))
}

/// Reads a stream from its oldest change to its end, in small pages. `path` ends with the `?` of a query.
fn read_all(client: &Client, path: &str) -> Vec<Value> {
    let (mut records, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("{STREAM}{path}limit=7{cursor}"));
        let page = page.expect_status(200).json();
        records.extend(page["records"].as_array().expect("a list").clone());
        let next = page["next"].as_str().expect("a cursor");
        if page["has_more"] == false {
            return records;
        }
        assert!(
            !cursor.ends_with(&format!("={next}")),
            "the reader goes on: {page}"
        );
        cursor = format!("&cursor={next}");
    }
}

/// Damages a file. Returns a description.
fn damage(path: &Path, random: &mut Random) -> String {
    let mut bytes = fs::read(path).expect("a file");
    let at = random.below(bytes.len() as u64) as usize;
    let what = if random.is(25) {
        bytes.truncate(at);
        format!("cut at byte {at} of")
    } else {
        let bit = random.below(8);
        bytes[at] ^= 1 << bit;
        format!("bit {bit} of byte {at} flipped of")
    };
    fs::write(path, bytes).expect("written");
    format!("{what} {}", path.display())
}

/// Checks that the records are those of the undamaged stream, with one gap in place of some of them.
fn check_gap(found: &[Value], whole: &[Value], what: &str) {
    let gaps: Vec<usize> = (0..found.len())
        .filter(|at| found[*at]["kind"] == "gap")
        .collect();
    let [gap] = gaps[..] else {
        panic!("{what}: {} gaps, {} records", gaps.len(), found.len());
    };
    assert_eq!(found[gap]["reason"], "damaged", "{what}");
    assert_eq!(
        found[gap].get("table"),
        None,
        "{what}: a gap concerns every table"
    );
    let (before, after) = (&found[..gap], &found[gap + 1..]);
    assert_eq!(before, &whole[..before.len()], "{what}: before the gap");
    assert_eq!(
        after,
        &whole[whole.len() - after.len()..],
        "{what}: after the gap"
    );
    // The damaged entries can belong to another table; then no record of the stream is missing.
    assert!(before.len() + after.len() <= whole.len(), "{what}");
}

#[test]
fn damage_of_kept_changes_is_reported_and_a_gap_for_readers() {
    let seed = seed("damage_of_kept_changes_is_reported_and_a_gap_for_readers");
    let mut random = Random::new(seed);
    let folder = DataFolder::new();
    let whole = prepare(&folder);
    let report = check_of(&folder);
    assert_eq!(report["findings"], json!([]), "{report}");
    let packed = archive::pack(&folder.path(), |_| false).expect("the folder can be read");
    for round in 1..=rounds("TIDELINE_HISTORY_DAMAGES", 6, 100) {
        let copy = DataFolder::new();
        archive::unpack(&packed, &copy.path()).expect("a copy");
        let files = history(&copy.path());
        let file = &files[random.below(files.len() as u64) as usize];
        let what = format!("round {round}: {}", damage(file, &mut random));
        println!("{what}");

        let report = check_of(&copy);
        let findings = report["findings"].as_array().expect("a list");
        let name = file.file_name().expect("a name").to_str().expect("a text");
        assert_eq!(findings.len(), 1, "{what}: {report}");
        let finding = findings[0].as_str().expect("a text");
        assert!(
            finding.contains(name) && finding.contains("gap"),
            "{what}: {finding}"
        );

        let server = copy.start(&Launch::default());
        let client = server.client();
        check_gap(&read_all(&client, "/records?"), &whole, &what);
        let group = format!("{STREAM}/groups/late");
        client
            .put_json(&group, &json!({"from": "oldest"}))
            .expect_status(200);
        check_gap(&read_all(&client, "/groups/late/records?"), &whole, &what);
        let metrics = client.get("/metrics").text();
        assert!(
            metrics.contains("tideline_change_gaps_total 2"),
            "{what}: both readers got a gap"
        );
        // Writes and the stream continue. Damage of the last entry includes its position, so a gap can precede the new
        // row.
        let row = json!({"rows": [{"op": "put", "key": {"n": whole.len()}, "columns": {"text": "later"}}]});
        client
            .post_json("/v1/tables/orders/rows", &row)
            .expect_status(200);
        let cursor = whole.last().and_then(|last| last["cursor"].as_str());
        let page = client.get(&format!("{STREAM}/records?cursor={}", cursor.expect("a cursor")));
        let page = page.expect_status(200).json();
        let later = page["records"].as_array().and_then(|records| records.last());
        assert_eq!(later.map(number), Some(whole.len() as u64), "{what}: {page}");
        assert!(server.terminate().status.success());
    }
}
