//! One flipped bit in an archived file, over HTTP: queries and restores return the written data, or an error
//! that is not retryable and names the target and the file.
//!
//! `TIDELINE_FLIPS` sets the number of flips; each is made in a fresh copy.

use std::fs;
use std::path::Path;

use serde_json::{Value as Json, json};
use tideline_tests::reading::{self, Row};
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Response, rounds, seed};

use super::{FILES, STORE, TABLES, archive_all, copy_tree, launch, objects, tell_story, unpack};

/// Number of flips in the short and in the slow form; each flip needs a start of the server.
const FLIPS: (usize, usize) = (5, 60);

#[test]
fn a_flipped_bit_is_an_error_and_never_an_answer() {
    let first = DataFolder::new();
    let sound = first.beside("files");
    let server = first.start(&launch(&sound));
    tell_story(&server.client());
    archive_all(&server.client());
    assert!(server.terminate().status.success());
    flip("a flipped bit", |folder, files| {
        copy_tree(&first.path(), &folder.path());
        copy_tree(&sound, files);
    });
}

/// Runs the test on files that have no checksums of their parts.
#[test]
fn a_flipped_bit_in_files_of_an_older_build_is_an_error_and_never_an_answer() {
    flip("a flipped bit, older build", |folder, files| {
        unpack(STORE, &folder.path());
        unpack(FILES, files);
    });
}

/// Flips one bit in each of several archives; `prepare` creates an archive and its data folder.
fn flip(test: &str, prepare: impl Fn(&DataFolder, &Path)) {
    let mut random = seed(test);
    let mut below = |end: usize| {
        // SplitMix64.
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    };
    let mut expected: Option<Vec<Vec<Row>>> = None;
    let (flips, mut noticed) = (rounds("TIDELINE_FLIPS", FLIPS.0, FLIPS.1), 0);
    // The first server reads the undamaged files.
    for nth in 0..=flips {
        let folder = DataFolder::new();
        let files = folder.beside("files");
        prepare(&folder, &files);
        let mut names = objects(&files);
        names.retain(|name| name.ends_with(".parquet") && !name.contains("/_segments/"));
        names.sort();
        let name = &names[below(names.len())];
        if nth > 0 {
            let path = files.join(name);
            let mut bytes = fs::read(&path).expect("it is there");
            let bit = below(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, bytes).expect("written");
            println!("{test}: bit {bit} of {name}");
        }
        let no_disk_cache = launch(&files).environment("TIDELINE__ARCHIVE__DISK_CACHE_BYTES", "0");
        let server = folder.start(&no_disk_cache);
        let client = server.client();
        let check = |answer: &Response, code: &str| {
            let body = answer.status == 500 && answer.json()["code"] == code;
            let says = answer.json()["message"].as_str().unwrap_or_default().to_owned();
            let target = files.display().to_string();
            assert!(
                body && says.contains(name) && says.contains(&target),
                "{answer:?}"
            );
            assert_eq!(answer.json()["retryable"], false, "{answer:?}");
        };
        let read = || -> Vec<Result<Vec<Row>, Box<Response>>> {
            TABLES.iter().map(|table| rows(&client, table)).collect()
        };
        let Some(expected) = &expected else {
            let sound = read().into_iter().map(|rows| rows.expect("the files are sound"));
            expected = Some(sound.collect());
            continue;
        };
        for (of_table, expected) in read().into_iter().zip(expected) {
            match of_table {
                Ok(rows) => assert!(&rows == expected, "{name}: other rows, and no error"),
                Err(answer) => {
                    noticed += 1;
                    check(&answer, "internal");
                }
            }
        }
        for table in TABLES {
            let all = json!({"start": "1960-01-01T00:00:00Z", "end": "2027-01-01T00:00:00Z"});
            let body = json!({"range": all, "for": "3d", "wait": true});
            let answer = client.post_json(&format!("/v1/tables/{table}/archive/restore"), &body);
            if !answer.is_success() {
                check(&answer, "job_failed");
            }
        }
        // Restored points are correct; points that were not restored are still in the file.
        for (of_table, expected) in read().into_iter().zip(expected) {
            match of_table {
                Ok(rows) => assert!(&rows == expected, "{name}: other rows were restored"),
                Err(answer) => check(&answer, "internal"),
            }
        }
    }
    println!("{test}: {noticed} of {flips} flips were noticed");
    assert!(noticed > 0, "none of {flips} flips was noticed");
}

/// Returns all rows of a table, or the first response with a status other than 200.
fn rows(client: &Client, table: &str) -> Result<Vec<Row>, Box<Response>> {
    let mut query: Json = json!({"limit": 1_000, "times": "nanos"});
    let mut rows = Vec::new();
    loop {
        let answer = client.post_json(&format!("/v1/tables/{table}/query"), &query);
        if answer.status != 200 {
            return Err(Box::new(answer));
        }
        rows.extend(reading::rows_of(&answer));
        match &answer.json()["next"] {
            Json::String(next) => query["page"] = json!(next),
            _ => return Ok(rows),
        }
    }
}
