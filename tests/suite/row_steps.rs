//! Kills before and after every step of long work on rows: the build and the drop of a secondary index, the build, the
//! replacement and the drop of a search index, the drop of a part, the removal of expired cells, a copy into a table
//! with another key, and an import. Imports are also killed on the side of the command: while the server writes an
//! entry, and at every position of the resume file.
//!
//! Each case begins with a copy of a prepared store. It starts the work, which kills the server at the step. After the
//! restart, most cases change rows. The work then continues by itself, or is requested again. Every row is found once
//! by the table, by its indexes and by searches, both after the restart and at the end of the work. The offline check
//! finds no damage.
//!
//! The binary needs the fail points of a build with debug assertions; see `tests/README.md`. The suite `row_kills`
//! kills the same work at arbitrary moments, with more rows.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};
use tideline_tests::program::free_address;
use tideline_tests::server::{DataFolder, binary};
use tideline_tests::{Client, Launch, archive, rounds, wait};

use crate::row_archive::check_of;

/// Kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    BuildIndex,
    DropIndex,
    ReplaceSearch,
    DropSearch,
    DropPart,
    Expire,
    Rekey,
}

/// Steps, each with the work that passes it, and the number of passages at which the work is killed in the slow form.
pub(super) const STEPS: [(&str, Work, u64); 25] = [
    ("row_index.create", Work::BuildIndex, 1),
    ("row_index.page", Work::BuildIndex, 3),
    ("row_index.checkpoint", Work::BuildIndex, 1),
    ("row_index.ready", Work::BuildIndex, 1),
    ("row_index.drop", Work::DropIndex, 1),
    ("wide_free.edit", Work::DropIndex, 1),
    ("wide_free.reclaim", Work::DropIndex, 3),
    ("search_index.create", Work::ReplaceSearch, 1),
    ("search_index.begin", Work::ReplaceSearch, 1),
    ("search_index.page", Work::ReplaceSearch, 3),
    ("search_index.commit", Work::ReplaceSearch, 2),
    ("search_index.built", Work::ReplaceSearch, 1),
    ("search_index.swap", Work::ReplaceSearch, 1),
    ("search_index.remove", Work::ReplaceSearch, 1),
    ("search_index.drop", Work::DropSearch, 1),
    ("search_index.remove", Work::DropSearch, 1),
    ("part_drop.settings", Work::DropPart, 1),
    ("wide_free.edit", Work::DropPart, 1),
    ("wide_free.reclaim", Work::DropPart, 2),
    ("row_expire.page", Work::Expire, 3),
    ("rekey.begin", Work::Rekey, 1),
    ("rekey.page", Work::Rekey, 3),
    ("rekey.write", Work::Rekey, 3),
    ("rekey.record", Work::Rekey, 1),
    ("rekey.end", Work::Rekey, 1),
];
/// Step of an import on the server.
pub(super) const IMPORT_STEP: &str = "row_import.entry";
/// Number of rows of the prepared table, in three parts. A step of long work reads at most 500.
const ROWS: u64 = 1_200;
/// Number of records of an imported file. An entry has at most 1,000 of them.
const RECORDS: u64 = 2_500;
/// Time limit of each wait.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time after which changes of a search index are committed, with a margin.
const COMMIT_DELAY: Duration = Duration::from_millis(600);

/// Expected rows of a table, by number: state and text. The state is `None` if it has expired.
type Rows = BTreeMap<u64, (Option<String>, String)>;

/// Prepared store, packed into one archive.
static PREPARED: OnceLock<Vec<u8>> = OnceLock::new();

/// Step, side and passage at which the work is killed.
struct Case {
    step: &'static str,
    side: &'static str,
    passage: u64,
    work: Work,
}

#[test]
fn every_row_is_found_once_whatever_step_of_the_build_of_an_index_is_cut() {
    kill_at_every_step(Work::BuildIndex);
}

#[test]
fn every_row_is_found_once_whatever_step_of_the_drop_of_an_index_is_cut() {
    kill_at_every_step(Work::DropIndex);
}

#[test]
fn every_row_is_found_once_whatever_step_of_the_replacement_of_a_search_index_is_cut() {
    kill_at_every_step(Work::ReplaceSearch);
}

#[test]
fn every_row_is_found_once_whatever_step_of_the_drop_of_a_search_index_is_cut() {
    kill_at_every_step(Work::DropSearch);
}

#[test]
fn a_part_is_there_or_dropped_whatever_step_of_its_drop_is_cut() {
    kill_at_every_step(Work::DropPart);
}

#[test]
fn only_expired_cells_are_gone_whatever_step_of_their_removal_is_cut() {
    kill_at_every_step(Work::Expire);
}

#[test]
fn every_row_is_copied_once_whatever_step_of_a_copy_into_another_key_is_cut() {
    kill_at_every_step(Work::Rekey);
}

fn kill_at_every_step(work: Work) {
    let passages = rounds("TIDELINE_ROW_PASSAGES", 1, 3) as u64;
    for (step, _, count) in STEPS.into_iter().filter(|(_, of, _)| *of == work) {
        let killed = match passages {
            // At this passage, the work is neither at its beginning nor at its end.
            1 => count.min(2)..=count.min(2),
            passages => 1..=count.min(passages),
        };
        for passage in killed {
            for side in ["before", "after"] {
                let case = Case {
                    step,
                    side,
                    passage,
                    work,
                };
                case.run();
            }
        }
    }
}

/// Returns the options of each start: the scheduler looks for work often, and expired data is not kept for a day.
fn launch() -> Launch {
    Launch::default()
        .environment("TIDELINE__LIFECYCLE__INTERVAL", "200ms")
        .environment("TIDELINE__LIFECYCLE__PURGE_DELAY", "0s")
}

fn prepared() -> &'static [u8] {
    PREPARED.get_or_init(|| {
        let folder = DataFolder::new();
        let server = folder.start(&launch());
        let client = server.client();
        let columns = json!([{"name": "state", "type": "string"}, {"name": "text", "type": "string"}]);
        // Expired cells are removed on request, because the schedule has only one time per year.
        let orders = json!({"name": "orders", "model": "wide", "wide": {
            "key": [{"name": "n", "type": "u64"}, {"name": "at", "type": "timestamp"}], "columns": columns,
            "ttl": "3650d", "ttl_of": "cell", "version_guard": null,
            "parts": {"by": "at", "every": "month", "expire": {"cron": "0 0 1 1 *"}},
        }});
        create(&client, &orders);
        let target = json!({"name": "by_text", "model": "wide", "wide": {
            "key": [
                {"name": "text", "type": "string"}, {"name": "n", "type": "u64"}, {"name": "at", "type": "timestamp"}
            ],
            "columns": [{"name": "state", "type": "string"}], "version_guard": null,
        }});
        create(&client, &target);
        let rows: Vec<Value> = (0..ROWS).map(put).collect();
        for rows in rows.chunks(400) {
            client
                .post_json("/v1/tables/orders/rows", &json!({"rows": rows}))
                .expect_status(200);
        }
        check(&client, "orders", &all_rows(), "prepared");
        client
            .post_json("/v1/jobs", &json!({"kind": "seal"}))
            .expect_status(200);
        assert!(server.terminate().status.success());
        archive::pack(&folder.path(), |path| path.ends_with("LOCK")).expect("the folder can be read")
    })
}

/// Creates a table with the index `by_state` and the search index `all`.
fn create(client: &Client, table: &Value) {
    client.post_json("/v1/tables", table).expect_status(201);
    let path = format!("/v1/tables/{}", table["name"].as_str().expect("a name"));
    let index = json!({"name": "by_state", "key": [{"name": "state"}]});
    client
        .post_json(&format!("{path}/indexes"), &index)
        .expect_status(201);
    wait_index(client, &format!("{path}/indexes/by_state"), "prepared");
    let search = json!({"name": "all", "columns": [{"column": "state", "as": "keyword"}]});
    client
        .post_json(&format!("{path}/search-indexes?refresh=wait"), &search)
        .expect_status(201);
}

fn key(n: u64) -> Value {
    json!({"n": n, "at": format!("2025-{:02}-07T00:00:00Z", 1 + n % 3)})
}

fn state(n: u64) -> String {
    format!("s{}", n % 4)
}

/// Returns true if the state of a row has an old version.
fn is_old(n: u64) -> bool {
    n.is_multiple_of(5)
}

/// Returns the write of a row.
fn put(n: u64) -> Value {
    let mut columns = json!({"state": state(n), "text": format!("text {n}")});
    if is_old(n) {
        columns["state"] = json!({"value": state(n), "version": "2020-01-01T00:00:00Z"});
    }
    json!({"op": "put", "key": key(n), "columns": columns})
}

fn all_rows() -> Rows {
    let row = |n| (n, (Some(state(n)), format!("text {n}")));
    (0..ROWS).map(row).collect()
}

/// Changes rows while the work is being continued: adds one, deletes one, and changes one.
fn change(client: &Client, rows: &mut Rows) {
    let writes = json!([
        put(ROWS + 1),
        {"op": "delete", "key": key(7)},
        {"op": "update", "key": key(8), "columns": {"state": state(1)}},
    ]);
    client
        .post_json("/v1/tables/orders/rows", &json!({"rows": writes}))
        .expect_status(200);
    rows.insert(ROWS + 1, (Some(state(ROWS + 1)), format!("text {}", ROWS + 1)));
    rows.remove(&7);
    rows.insert(8, (Some(state(1)), "text 8".to_owned()));
}

/// Sends a request. Returns the response if it is a success, and `None` also without a response.
fn send(client: &Client, method: &str, path: &str, body: &Value) -> Option<Value> {
    let headers = [("content-type", "application/json")];
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let sent = client.send(method, path, &headers, body.as_bytes()).ok()?;
    let body = || serde_json::from_slice(&sent.body).unwrap_or_default();
    sent.is_success().then(body)
}

/// Returns all rows that a scan of a table or of an index finds, sorted by number. Key columns count as columns.
fn scanned(client: &Client, table: &str, scan: &Value) -> Vec<(u64, Option<String>, Option<String>)> {
    let page = client.post_json(&format!("/v1/tables/{table}/rows/scan"), scan);
    let page = page.expect_status(200).json();
    assert!(page["next"].is_null(), "one page");
    let found = page["rows"].as_array().expect("a list").iter().map(|row| {
        let column = |name: &str| {
            let value = row["columns"].get(name).or_else(|| row["key"].get(name));
            value.and_then(Value::as_str).map(str::to_owned)
        };
        let n = row["key"]["n"].as_u64().expect("a number");
        (n, column("state"), column("text"))
    });
    let mut found: Vec<_> = found.collect();
    found.sort();
    found
}

fn check_table(client: &Client, table: &str, rows: &Rows, context: &str) {
    let scan = json!({"allow_scan": true, "limit": 10_000});
    let expected = rows.iter();
    let expected = expected.map(|(n, (state, text))| (*n, state.clone(), Some(text.clone())));
    let expected: Vec<_> = expected.collect();
    assert_eq!(
        scanned(client, table, &scan),
        expected,
        "{context}: table {table}"
    );
}

/// Checks that an index has one entry for each row with a value.
fn check_index(client: &Client, table: &str, (index, column): (&str, &str), rows: &Rows, context: &str) {
    let scan = json!({"index": index, "columns": [column], "allow_scan": true, "limit": 10_000});
    let found = scanned(client, table, &scan).into_iter();
    let found: Vec<(u64, Option<String>)> = match column {
        "state" => found.map(|(n, state, _)| (n, state)).collect(),
        _ => found.map(|(n, _, text)| (n, text)).collect(),
    };
    let expected = rows.iter().map(|(n, (state, text))| match column {
        "state" => (*n, state.clone()),
        _ => (*n, Some(text.clone())),
    });
    let expected: Vec<_> = expected.filter(|(_, value)| value.is_some()).collect();
    assert_eq!(found, expected, "{context}: index {index} of table {table}");
}

/// Checks that searches for each state find each row once, as of the newest write.
fn check_search(client: &Client, table: &str, rows: &Rows, context: &str) {
    let path = format!("/v1/tables/{table}/rows");
    // Deletes a row that does not exist, for the position of the newest entry.
    let prefix = match table {
        "by_text" => json!({"text": "no such text"}),
        _ => json!({"n": u64::MAX}),
    };
    let newest = client.post_json(&format!("{path}/delete"), &json!({"prefix": prefix}));
    let newest = newest.expect_status(200).json()["position"].clone();
    for wanted in (0..4).map(state) {
        let search = json!({
            "where": {"column": "state", "equals": wanted}, "limit": 1_000, "at_least": newest,
        });
        // Until an index serves searches, they are refused.
        let found = wait::until(PATIENCE, || {
            send(client, "POST", &format!("{path}/search"), &search)
        });
        let found = found.unwrap_or_else(|| panic!("{context}: no search of table {table}"));
        let expected = rows
            .iter()
            .filter(|(_, (state, _))| state.as_ref() == Some(&wanted));
        let expected: Vec<u64> = expected.map(|(n, _)| *n).collect();
        let mut numbers: Vec<u64> = found["rows"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|row| row["key"]["n"].as_u64())
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, expected, "{context}: search of table {table}");
        assert_eq!(
            found["total"],
            expected.len(),
            "{context}: search of table {table}"
        );
    }
}

/// Checks that a table, its index `by_state` and its search index find exactly these rows.
fn check(client: &Client, table: &str, rows: &Rows, context: &str) {
    check_table(client, table, rows, context);
    check_index(client, table, ("by_state", "state"), rows, context);
    check_search(client, table, rows, context);
}

/// Waits until the index at this path can be read.
fn wait_index(client: &Client, path: &str, context: &str) {
    let ready = wait::until(PATIENCE, || {
        let index = send(client, "GET", path, &Value::Null)?;
        (index["status"] == "ready").then_some(())
    });
    assert!(ready.is_some(), "{context}: {path} is not ready");
}

/// Waits until the folder of the search indexes has this number of indexes.
fn wait_folders(folder: &DataFolder, count: usize, context: &str) {
    let rows = folder.path().join("index/rows");
    let found = wait::until(PATIENCE, || {
        let found = fs::read_dir(&rows).expect("a folder").count();
        (found == count).then_some(())
    });
    assert!(
        found.is_some(),
        "{context}: {count} folders below {}",
        rows.display()
    );
}

/// Waits until no job of a kind is waiting or running, except jobs that wait for a scheduled time. Returns the state of
/// the newest of the others.
fn newest_job(client: &Client, kind: &str, context: &str) -> String {
    let path = format!("/v1/jobs?kind={kind}");
    let jobs = wait::until(PATIENCE, || {
        let jobs = send(client, "GET", &path, &Value::Null)?["jobs"].take();
        let is_final =
            |job: &Value| !["planned", "running", "paused"].contains(&job["state"].as_str().unwrap_or("?"));
        let is_scheduled = |job: &Value| job["state"] == "planned" && !job["due"].is_null();
        let mut jobs: Vec<Value> = jobs.as_array()?.clone();
        jobs.retain(|job| !is_scheduled(job));
        jobs.iter().all(is_final).then_some(jobs)
    });
    let jobs = jobs.unwrap_or_else(|| panic!("{context}: the jobs end"));
    jobs[0]["state"].as_str().unwrap_or_default().to_owned()
}

impl Work {
    /// Starts the work. The server may be killed before it sends a response.
    fn start(self, client: &Client) {
        let orders = "/v1/tables/orders";
        let (method, path, body) = match self {
            Self::BuildIndex => (
                "POST",
                format!("{orders}/indexes"),
                json!({"name": "by_text", "key": [{"name": "text"}]}),
            ),
            Self::DropIndex => ("DELETE", format!("{orders}/indexes/by_state"), Value::Null),
            Self::ReplaceSearch => {
                let columns = json!([{"column": "text", "as": "text"}, {"column": "state", "as": "keyword"}]);
                let index = json!({"name": "all", "columns": columns, "replace": true});
                ("POST", format!("{orders}/search-indexes"), index)
            }
            Self::DropSearch => ("DELETE", format!("{orders}/search-indexes/all"), Value::Null),
            Self::DropPart => (
                "POST",
                format!("{orders}/parts/drop"),
                json!({"before": "2025-02-01T00:00:00Z"}),
            ),
            Self::Expire => {
                set_ttl(client, "30d");
                let job = json!({"kind": "remove_expired", "table": "orders", "wait": true});
                ("POST", "/v1/jobs".to_owned(), job)
            }
            Self::Rekey => (
                "POST",
                format!("{orders}/rows/rekey"),
                json!({"into": "by_text", "wait": true}),
            ),
        };
        let _ = send(client, method, &path, &body);
    }
}

fn set_ttl(client: &Client, ttl: &str) {
    let body = json!({"wide": {"ttl": ttl}});
    let altered = send(client, "PATCH", "/v1/tables/orders", &body);
    assert!(altered.is_some(), "ttl {ttl}");
}

impl Case {
    /// Returns the fail point with its passage.
    fn point(&self) -> String {
        format!("{}.{}:{}", self.step, self.side, self.passage)
    }

    /// Returns the fail point at which the work waits until the condition of its next step is met; `None` for most
    /// steps.
    fn pause(&self) -> Option<&'static str> {
        match (self.step, self.passage) {
            ("row_index.checkpoint", _) => Some("row_index.page.after"),
            // The first commit is that of the empty index.
            ("search_index.commit", 2) => Some("search_index.page.after:2"),
            _ => None,
        }
    }

    fn run(&self) {
        let context = self.point();
        let folder = DataFolder::new();
        archive::unpack(prepared(), &folder.path()).expect("it was packed here");
        self.kill(&folder);
        let server = folder.start(&launch());
        let client = server.client();
        let mut rows = all_rows();
        match self.work {
            Work::BuildIndex => self.end_build(&client, &mut rows),
            Work::DropIndex => self.end_drop_of_index(&client, &mut rows),
            Work::ReplaceSearch => self.end_replacement(&client, &folder, &mut rows),
            Work::DropSearch => self.end_drop_of_search(&client, &folder, &mut rows),
            Work::DropPart => self.end_drop_of_part(&client, &mut rows),
            Work::Expire => self.end_removal(&client, &mut rows),
            Work::Rekey => self.end_copy(&client, &rows),
        }
        client
            .post_json("/v1/jobs", &json!({"kind": "seal"}))
            .expect_status(200);
        assert!(server.terminate().status.success(), "{context}");
        let report = check_of(&folder);
        assert_eq!(report["is_sound"], true, "{context}: {report}");
        let tables = match self.work {
            // The target has all rows too.
            Work::Rekey => 2,
            _ => 1,
        };
        assert_eq!(report["counts"]["rows"], tables * rows.len(), "{context}");
    }

    /// Starts the work on a server that is killed at the step.
    fn kill(&self, folder: &DataFolder) {
        let context = self.point();
        let (gate, reached) = (folder.beside("go-on"), folder.beside("go-on.reached"));
        let mut launch = launch().environment("TIDELINE_KILL_AT", &context);
        if let Some(pause) = self.pause() {
            launch = launch
                .environment("TIDELINE_PAUSE_AT", pause)
                .environment("TIDELINE_PAUSE_UNTIL", &gate.display().to_string());
        }
        let mut server = folder.start(&launch);
        let client = server.client();
        self.work.start(&client);
        if self.pause().is_some() {
            let is_over = || (reached.exists() || server.gone().is_some()).then_some(());
            assert!(wait::until(PATIENCE, is_over).is_some(), "{context}: no pause");
            match self.step {
                // A build that is cancelled stores its position.
                "row_index.checkpoint" => cancel(&client, "build_index", &context),
                // A commit is due after some time.
                _ => wait::pause(COMMIT_DELAY),
            }
            fs::write(&gate, b"").expect("the folder can be written");
        }
        server.expect_killed(&context);
    }

    /// Checks the old indexes, and waits until the new index has all rows.
    fn end_build(&self, client: &Client, rows: &mut Rows) {
        let (context, path) = (self.point(), "/v1/tables/orders/indexes/by_text");
        change(client, rows);
        check(client, "orders", rows, &context);
        let is_known = send(client, "GET", path, &Value::Null).is_some();
        assert_eq!(
            is_known,
            !context.starts_with("row_index.create.before"),
            "{context}"
        );
        if !is_known {
            self.work.start(client);
        }
        wait_index(client, path, &context);
        check(client, "orders", rows, &context);
        check_index(client, "orders", ("by_text", "text"), rows, &context);
        // If the last step is done, nothing is left for another job.
        let expected = match context.starts_with("row_index.ready.after") {
            true => "cancelled",
            false => "done",
        };
        assert_eq!(newest_job(client, "build_index", &context), expected, "{context}");
    }

    /// Repeats the drop, and creates the index again.
    fn end_drop_of_index(&self, client: &Client, rows: &mut Rows) {
        let (context, path) = (self.point(), "/v1/tables/orders/indexes/by_state");
        let is_known = send(client, "GET", path, &Value::Null).is_some();
        assert_eq!(
            is_known,
            context.starts_with("row_index.drop.before"),
            "{context}"
        );
        if is_known {
            check(client, "orders", rows, &context);
            self.work.start(client);
        }
        change(client, rows);
        check_table(client, "orders", rows, &context);
        check_search(client, "orders", rows, &context);
        let index = json!({"name": "by_state", "key": [{"name": "state"}]});
        client
            .post_json("/v1/tables/orders/indexes", &index)
            .expect_status(201);
        wait_index(client, path, &context);
        check(client, "orders", rows, &context);
    }

    /// Checks the index that serves searches, and waits until the new index has replaced it.
    fn end_replacement(&self, client: &Client, folder: &DataFolder, rows: &mut Rows) {
        let (context, path) = (self.point(), "/v1/tables/orders/search-indexes");
        change(client, rows);
        check(client, "orders", rows, &context);
        if context.starts_with("search_index.create.before") {
            self.work.start(client);
        }
        let replaced = wait::until(PATIENCE, || {
            let listed = send(client, "GET", path, &Value::Null)?["search_indexes"].take();
            let is_new = listed[0]["columns"][0]["column"] == "text" && listed[0]["status"] == "ready";
            (is_new && listed.as_array()?.len() == 1).then_some(())
        });
        assert!(replaced.is_some(), "{context}: the index is replaced");
        check(client, "orders", rows, &context);
        // The folders of the new index, and of the index of the other table.
        wait_folders(folder, 2, &context);
    }

    /// Repeats the drop, and waits until the files are deleted.
    fn end_drop_of_search(&self, client: &Client, folder: &DataFolder, rows: &mut Rows) {
        let (context, path) = (self.point(), "/v1/tables/orders/search-indexes/all");
        let is_known = send(client, "GET", path, &Value::Null).is_some();
        assert_eq!(
            is_known,
            context.starts_with("search_index.drop.before"),
            "{context}"
        );
        if is_known {
            check(client, "orders", rows, &context);
            self.work.start(client);
        }
        change(client, rows);
        check_table(client, "orders", rows, &context);
        check_index(client, "orders", ("by_state", "state"), rows, &context);
        wait_folders(folder, 1, &context);
    }

    /// Checks that the part is there or dropped, and repeats the drop.
    fn end_drop_of_part(&self, client: &Client, rows: &mut Rows) {
        let context = self.point();
        if context.starts_with("part_drop.settings.before") {
            check(client, "orders", rows, &context);
        }
        rows.retain(|n, _| !n.is_multiple_of(3));
        if !context.starts_with("part_drop.settings.before") {
            check(client, "orders", rows, &context);
        }
        self.work.start(client);
        // The flush of these changes also frees the part.
        change(client, rows);
        check(client, "orders", rows, &context);
        let parts = client.get("/v1/tables/orders/parts").expect_status(200).json();
        assert_eq!(
            parts["parts"].as_array().map(Vec::len),
            Some(2),
            "{context}: {parts}"
        );
    }

    /// Checks that only old cells are hidden, repeats the removal, and checks that the cells are not only hidden.
    fn end_removal(&self, client: &Client, rows: &mut Rows) {
        let context = self.point();
        for (n, (state, _)) in rows.iter_mut() {
            *state = state.take().filter(|_| !is_old(*n));
        }
        check(client, "orders", rows, &context);
        self.work.start(client);
        assert_eq!(
            newest_job(client, "remove_expired", &context),
            "done",
            "{context}"
        );
        check(client, "orders", rows, &context);
        set_ttl(client, "3650d");
        check(client, "orders", rows, &context);
    }

    /// Repeats the copy, and checks both tables.
    fn end_copy(&self, client: &Client, rows: &Rows) {
        let context = self.point();
        check(client, "orders", rows, &context);
        let body = json!({"into": "by_text", "wait": true});
        let copied = wait::until(PATIENCE, || {
            let job = send(client, "POST", "/v1/tables/orders/rows/rekey", &body)?;
            (job["state"] == "done").then_some(())
        });
        assert!(copied.is_some(), "{context}: the copy ends");
        check(client, "orders", rows, &context);
        check(client, "by_text", rows, &context);
    }
}

/// Cancels the running job of a kind.
fn cancel(client: &Client, kind: &str, context: &str) {
    let path = format!("/v1/jobs?kind={kind}&state=running");
    let jobs = client.get(&path).expect_status(200).json();
    let id = &jobs["jobs"][0]["id"];
    let cancelled = send(client, "POST", &format!("/v1/jobs/{id}/cancel"), &Value::Null);
    assert!(cancelled.is_some(), "{context}: {jobs}");
}

/// Creates the table of the imports, and the file to import. Its first record is not valid.
fn prepare_import(client: &Client, folder: &DataFolder) {
    let table = json!({"name": "imported", "model": "wide", "wide": {
        "key": [{"name": "n", "type": "u64"}],
        "columns": [{"name": "state", "type": "string"}, {"name": "text", "type": "string"}],
        // An entry that is written twice adds versions.
        "max_versions": 5,
    }});
    create(client, &table);
    let mut records = String::from("n,state,text\nmany,s0,a number is expected\n");
    for n in 0..RECORDS {
        let written = writeln!(records, "{n},{},text {n}", state(n));
        assert!(written.is_ok());
    }
    fs::write(folder.beside("rows.csv"), records).expect("the file is written");
}

/// Starts `tideline rows import` with a resume file, and with one request at a time.
fn import(folder: &DataFolder, client: &Client, batch_rows: u64) -> Child {
    let mut command = Command::new(binary());
    command
        .args(["rows", "import", "imported"])
        .arg(folder.beside("rows.csv"))
        .args(["--server", &format!("http://{}", client.address())])
        .args(["--update", "--quiet", "--parallel", "1", "--patience", "60s"])
        .args(["--batch-rows", &batch_rows.to_string()])
        .arg("--resume")
        .arg(folder.beside("resume"))
        .arg("--rejects")
        .arg(folder.beside("rejects"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().expect("the command starts")
}

/// Waits for the end of an import, and checks that each record was written once, and that the other one is a reject.
fn check_import(command: &mut Child, client: &Client, folder: &DataFolder, context: &str) {
    let status = wait::until(PATIENCE, || command.try_wait().expect("it is asked"));
    let status = status.unwrap_or_else(|| panic!("{context}: the command ends"));
    // 1: a record was rejected.
    assert_eq!(status.code(), Some(1), "{context}");
    let row = |n| (n, (Some(state(n)), format!("text {n}")));
    check(client, "imported", &(0..RECORDS).map(row).collect(), context);
    let scan = json!({"allow_scan": true, "limit": 10_000, "versions": 5});
    let page = client.post_json("/v1/tables/imported/rows/scan", &scan);
    let page = page.expect_status(200).json();
    for row in page["rows"].as_array().expect("a list") {
        for column in ["state", "text"] {
            let versions = row["columns"][column].as_array().map(Vec::len);
            assert_eq!(versions, Some(1), "{context}: {row} was written once");
        }
    }
    let rejects = fs::read_to_string(folder.beside("rejects")).expect("the rejects are listed");
    assert!(rejects.contains("many"), "{context}: {rejects}");
}

#[test]
fn every_record_is_written_once_whatever_entry_of_an_import_is_cut() {
    // The file has two requests with two entries each.
    let passages = match rounds("TIDELINE_ROW_PASSAGES", 1, 3) as u64 {
        1 => 2..=2,
        passages => 1..=passages.min(4),
    };
    for passage in passages {
        for side in ["before", "after"] {
            let point = format!("{IMPORT_STEP}.{side}:{passage}");
            let folder = DataFolder::new();
            // The restarted server has the same address, so that the running command reaches it.
            let launch = launch().listen(free_address());
            let server = folder.start(&launch.clone().environment("TIDELINE_KILL_AT", &point));
            let client = server.client();
            prepare_import(&client, &folder);
            let mut command = import(&folder, &client, RECORDS / 2 + 1);
            server.expect_killed(&point);
            let server = folder.start(&launch);
            check_import(&mut command, &server.client(), &folder, &point);
            end_import(server, &folder, &point);
        }
    }
}

#[test]
fn every_record_is_written_once_if_the_command_is_killed_while_the_server_writes() {
    for side in ["before", "after"] {
        let point = format!("{IMPORT_STEP}.{side}:2");
        let folder = DataFolder::new();
        let gate = folder.beside("go-on");
        let launch = launch()
            .environment("TIDELINE_PAUSE_AT", &point)
            .environment("TIDELINE_PAUSE_UNTIL", &gate.display().to_string());
        let server = folder.start(&launch);
        let client = server.client();
        prepare_import(&client, &folder);
        let mut command = import(&folder, &client, RECORDS / 2 + 1);
        let reached = folder.beside("go-on.reached");
        let is_reached = wait::until(PATIENCE, || reached.exists().then_some(()));
        assert!(is_reached.is_some(), "{point}: never reached");
        command.kill().expect("it is our child");
        command.wait().expect("it is our child");
        fs::write(&gate, b"").expect("the folder can be written");
        let mut command = import(&folder, &client, RECORDS / 2 + 1);
        check_import(&mut command, &client, &folder, &point);
        end_import(server, &folder, &point);
    }
}

#[test]
fn every_record_is_written_once_wherever_the_resume_file_of_an_import_is_cut() {
    let folder = DataFolder::new();
    let server = folder.start(&launch());
    let client = server.client();
    prepare_import(&client, &folder);
    let resume = folder.beside("resume");
    // The first run was killed while it wrote the first line.
    fs::write(&resume, b"{\"r").expect("the file is written");
    check_import(&mut import(&folder, &client, 700), &client, &folder, "first line");
    let whole = fs::read_to_string(&resume).expect("the file is read");
    assert_eq!(
        whole.lines().count(),
        5,
        "one line, and one for each batch: {whole}"
    );
    for cut in cuts(&whole) {
        let context = format!("cut at {cut} of {whole}");
        fs::write(&resume, &whole[..cut]).expect("the file is written");
        check_import(&mut import(&folder, &client, 700), &client, &folder, &context);
        check_resumed(&resume, &whole, &context);
    }
    end_import(server, &folder, "resume file");
}

/// Returns the positions in a resume file at which a kill can end it: after each line, and within each line except the
/// first. Nothing is sent before the first line is written.
fn cuts(whole: &str) -> Vec<usize> {
    let ends = whole.match_indices('\n').map(|(at, _)| at + 1);
    ends.flat_map(|end| [end, end + 20])
        .filter(|cut| *cut <= whole.len())
        .collect()
}

/// Checks that a resume file acknowledges the same batches as before it was cut.
fn check_resumed(resume: &Path, whole: &str, context: &str) {
    let batches = |text: &str| {
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let starts = lines.filter_map(|line| line["start"].as_u64());
        let mut starts: Vec<u64> = starts.collect();
        starts.sort_unstable();
        starts
    };
    let now = fs::read_to_string(resume).expect("the file is read");
    assert_eq!(batches(&now), batches(whole), "{context}: {now}");
}

/// Ends the server of an import, and checks its files.
fn end_import(server: tideline_tests::Server, folder: &DataFolder, context: &str) {
    assert!(server.terminate().status.success(), "{context}");
    let report = check_of(folder);
    assert_eq!(report["is_sound"], true, "{context}: {report}");
}
