//! Tests of `tideline check`: a sound folder passes, a flipped byte in any kind of file is found and the file is named,
//! and nothing is modified. Files that cannot be read have another exit status than damaged ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::lab::{Ended, at_home, ended};
use crate::process::Running;

/// Returns a point every ten minutes over the last `days` days, for `hosts` machines. The fields have four types, so
/// that chunks have several kinds of columns.
fn lines(days: i64, hosts: usize) -> String {
    let newest = now();
    let mut text = String::new();
    for step in 0..days * 144 {
        let at = newest - step * 600 * 1_000_000_000;
        for host in 0..hosts {
            text.push_str(&format!(
                "cpu,host=h{host} usage={}.25,n={step}i,ok={},s=\"state {}\" {at}\n",
                step % 97,
                step % 2 == 0,
                step % 5
            ));
        }
    }
    text
}

fn now() -> i64 {
    use tideline_model::Clock;
    tideline_model::SystemClock.now().nanos()
}

/// Returns every file below a folder, with its bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let bytes = fs::read(&path).expect("a file");
            found.insert(path, bytes);
        }
    }
    found
}

/// Stops a server cleanly.
fn stop(server: Running) {
    server.signal(Signal::TERM);
    let (status, _, said) = server.end();
    assert!(status.success(), "{said}");
}

fn check(folder: &Path, more: &[&str]) -> Ended {
    let shown = folder.display().to_string();
    let line = [&["check", &shown][..], more].concat();
    ended(at_home(&line, folder.parent().expect("a parent folder")))
}

/// Creates a folder with both tiers and unsealed points in the journal, closed cleanly.
fn store(home: &Path) -> PathBuf {
    let data = home.join("data");
    let (server, address) = Running::serve(&data);
    let url = format!("http://{address}");
    let run = |line: &[&str]| {
        let line = [line, &["--server", &url]].concat();
        let ended = ended(at_home(&line, home));
        assert_eq!(ended.code, 0, "{line:?}: {ended:?}");
    };
    fs::write(home.join("all.lp"), lines(6, 8)).expect("a file");
    fs::write(home.join("rest.lp"), lines(1, 2).replace("cpu", "rest")).expect("a file");
    run(&["write", "all.lp"]);
    run(&["tables", "policy", "default", "--set", "hot_ttl=2d"]);
    run(&["jobs", "run", "seal"]);
    run(&["jobs", "run", "migrate", "--wait"]);
    run(&["delete", "-w", "host=h7", "--last", "1h", "--yes"]);
    run(&["write", "rest.lp"]);
    stop(server);
    data
}

#[test]
fn a_flipped_byte_is_found_and_named_and_nothing_is_changed() {
    let home = tempfile::tempdir().expect("a folder");
    let data = store(home.path());
    let before = files(&data);
    let sound = check(&data, &["--json"]);
    assert_eq!(sound.code, 0, "{sound:?}");
    let report: serde_json::Value = serde_json::from_str(&sound.out).expect("JSON");
    let counts = &report["counts"];
    assert_eq!(report["is_sound"], true);
    assert_eq!(counts["points"], 6 * 144 * 8, "{report}");
    assert_eq!(counts["points_in_journal"], 144 * 2, "{report}");
    assert_eq!(
        counts["timelines"],
        8 + 2,
        "those of the journal count once: {report}"
    );
    assert!(files(&data) == before, "checking has changed something");
    let names: Vec<&Path> = before.keys().map(PathBuf::as_path).collect();
    assert!(
        names.iter().any(|path| path.starts_with(data.join("cold/store"))),
        "{names:?}"
    );

    let mut kinds: BTreeMap<String, &PathBuf> = BTreeMap::new();
    for (path, bytes) in &before {
        let short = path
            .strip_prefix(&data)
            .expect("it is below the data folder")
            .display()
            .to_string();
        // Skips the process id and empty marker files, which hold no data, and the search index, which also keeps files
        // that its last commit does not use, and therefore has a separate test.
        let is_idle = bytes.is_empty() || short.ends_with("LOCK") || short.starts_with("index/");
        if !is_idle && is_current(path, &before) {
            let kind: String = short.chars().filter(|c| !c.is_ascii_digit()).collect();
            kinds.entry(kind).or_insert(path);
        }
    }
    assert!(kinds.len() >= 14, "{kinds:?}");
    for (kind, path) in &kinds {
        let bytes = &before[*path];
        // Flips the first byte, a byte in the middle, and the last byte that is not zero.
        let last = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
        let middle = bytes[..=last / 2]
            .iter()
            .rposition(|byte| *byte != 0)
            .unwrap_or(0);
        // The end of a log may be a write that was never acknowledged, so a flipped last byte is not damage.
        let is_torn_end = path.extension().is_some_and(|of| of == "jnl") && last + 1 == bytes.len();
        for at in [0, middle, last]
            .into_iter()
            .take(if is_torn_end { 2 } else { 3 })
        {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            fs::write(path, &damaged).expect("a file");
            let seen = check(&data, &[]);
            assert!(
                matches!(seen.code, 1 | 2),
                "{kind} at {at} of {}: {seen:?}",
                bytes.len()
            );
            let said = format!("{}{}", seen.out, seen.err);
            assert!(is_named(&said, path), "{kind} at {at}: {said}");
            assert!(fs::read(path).expect("a file") == damaged, "{kind} was changed");
            fs::write(path, bytes).expect("a file");
        }
    }
    assert_eq!(check(&data, &[]).code, 0);
    assert!(files(&data) == before);
}

#[test]
fn a_flipped_byte_in_a_search_index_is_found_and_the_next_start_builds_the_index_again() {
    let home = tempfile::tempdir().expect("a folder");
    let data = store(home.path());
    let run_on = |line: &[&str]| {
        let (server, address) = Running::serve(&data);
        let url = format!("http://{address}");
        let line = [line, &["--server", &url]].concat();
        let ended = ended(at_home(&line, home.path()));
        assert_eq!(ended.code, 0, "{line:?}: {ended:?}");
        stop(server);
        ended.out
    };
    run_on(&[
        "sql",
        "CREATE TABLE orders (id STRING, state STRING, PRIMARY KEY (id))",
    ]);
    run_on(&["sql", "UPSERT INTO orders (id, state) VALUES ('a', 'open')"]);
    run_on(&[
        "rows",
        "search-index",
        "create",
        "orders",
        "all",
        "state=keyword",
        "--wait",
    ]);
    let index = data.join("index");
    let of_rows = fs::read_dir(index.join("rows")).expect("a folder").next();
    let of_rows = of_rows.expect("a search index").expect("an entry").path();
    assert_eq!(check(&data, &[]).code, 0);
    for (folder, name) in [
        (&index, "search index of timelines: "),
        (&of_rows, "search index \"all\" of table orders: "),
    ] {
        let entries = fs::read_dir(folder).expect("a folder");
        let mut terms = entries.map(|entry| entry.expect("an entry").path());
        let terms = terms.find(|path| path.extension().is_some_and(|of| of == "term"));
        let terms = terms.expect("a file of terms");
        let mut bytes = fs::read(&terms).expect("a file");
        bytes[3] ^= 0x10;
        fs::write(&terms, &bytes).expect("a file");
        let seen = check(&data, &[]);
        let file = terms.display().to_string();
        assert!(
            seen.code == 1 && seen.out.contains(name) && seen.out.contains(&file),
            "{seen:?}"
        );
        assert!(fs::read(&terms).expect("a file") == bytes, "the file was changed");
    }
    let (server, address) = Running::serve(&data);
    let url = format!("http://{address}");
    let search = ["rows", "search", "orders", "state=open", "--server", &url];
    // The search is refused until the index is built again.
    let begun = Instant::now();
    let found = loop {
        let found = ended(at_home(&search, home.path()));
        if found.code == 0 {
            break found.out;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{found:?}");
    };
    assert!(found.contains("\"id\":\"a\""), "{found}");
    stop(server);
    assert_eq!(check(&data, &[]).code, 0);
}

/// Returns false for an outdated version file of fjall, which the store no longer reads, and true for all other files.
fn is_current(path: &Path, all: &BTreeMap<PathBuf, Vec<u8>>) -> bool {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let Some(number) = name.strip_prefix('v').and_then(|rest| rest.parse::<u64>().ok()) else {
        return true;
    };
    let current = path.with_file_name("current");
    all.get(&current)
        .is_some_and(|bytes| bytes[..8] == number.to_le_bytes())
}

/// Returns true if a text names a file. For version files, `FORMAT` and journal files, the folder or part of the
/// name is enough.
fn is_named(said: &str, path: &Path) -> bool {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let folder = path.parent().unwrap_or(path).display().to_string();
    said.contains(&path.display().to_string())
        || (name.starts_with('v') && said.contains(&folder))
        || (name == "FORMAT" && said.contains(&folder))
        || (name.ends_with(".journal") && (said.contains(name) || said.contains("journal")))
}

#[test]
fn unreadable_files_are_distinguished_from_damaged_ones() {
    let home = tempfile::tempdir().expect("a folder");
    fs::create_dir(home.path().join("empty")).expect("a folder");
    for (name, said) in [("absent", "is not a folder"), ("empty", "is not a data folder")] {
        let seen = check(&home.path().join(name), &[]);
        assert!(seen.code == 2 && seen.err.contains(said), "{seen:?}");
    }
    let data = home.path().join("data");
    let (server, _) = Running::serve(&data);
    let seen = check(&data, &[]);
    assert!(
        seen.code == 2 && seen.err.contains("is using") && seen.err.contains("data"),
        "{seen:?}"
    );
    stop(server);
    let seen = check(&data, &[]);
    assert!(seen.code == 0 && seen.out.contains("data is sound"), "{seen:?}");
    let list = data.join("KEYSPACES");
    let text = fs::read_to_string(&list).expect("a file").replace("xxh3", "xxh4");
    fs::write(&list, text).expect("a file");
    let seen = check(&data, &[]);
    assert!(
        seen.code == 1
            && seen.out.contains("KEYSPACES is damaged")
            && seen.err.contains("1 thing is damaged"),
        "{seen:?}"
    );
    fs::remove_file(data.join("FORMAT")).expect("it is there");
    assert_eq!(check(&data, &[]).code, 2);
}
