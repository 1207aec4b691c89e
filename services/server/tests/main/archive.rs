//! Tests of `tideline archive`: the check of a target, the verification of an archive without its server, and the
//! detection of damage. Also covers the status, restores, attaching and unused objects.

use std::fs;
use std::path::{Path, PathBuf};

use crate::lab::{Ended, at_home, ended};
use crate::process::{Running, tideline};

fn run(home: &Path, url: Option<&str>, arguments: &[&str]) -> Ended {
    let mut command = at_home(arguments, home);
    if let Some(url) = url {
        command.env("TIDELINE_SERVER", url);
    }
    ended(command)
}

/// Returns the Parquet files below a folder.
fn parquet_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(parquet_files(&path));
        } else if path.extension().is_some_and(|end| end == "parquet") {
            found.push(path);
        }
    }
    found
}

/// Copies an archive file under the name of another segment. Returns the path of the copy.
fn copied(file: &Path, segment: &str) -> PathBuf {
    let name = file
        .file_name()
        .expect("it has one")
        .to_string_lossy()
        .into_owned();
    let (origin, rest) = name.split_once('-').expect("origin, segment, checksum");
    let (_, digits) = rest.split_once('-').expect("segment, checksum");
    let copy = file.with_file_name(format!("{origin}{segment}{digits}"));
    fs::copy(file, &copy).expect("copied");
    copy
}

#[test]
fn what_is_archived_is_read_back_without_a_server_and_damage_is_found() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let home = home.path();
    let files = home.join("files");
    let target = format!("file://{}", files.display());
    let checked = run(home, None, &["archive", "check", &target]);
    assert_eq!(checked.code, 0, "{checked:?}");
    assert!(checked.out.contains("ok      refuse to replace"), "{checked:?}");

    let mut command = tideline(&["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    command
        .arg(home.join("data"))
        .env("TIDELINE__ARCHIVE__TARGET", &target);
    let mut server = Running::start(command);
    let line = server.wait_for(|line| line.starts_with("listening on "));
    let address = line.trim_start_matches("listening on ").split(',').next();
    let url = address.expect("an address").to_owned();
    let on = |arguments: &[&str]| {
        let ended = run(home, Some(&url), arguments);
        assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
        ended.out
    };
    let archive = r#"archive={"target": "default", "after": "2d", "schedule": {"cron": "0 0 29 2 *"}}"#;
    on(&[
        "tables",
        "policy",
        "default",
        "--set",
        "hot_ttl=1d",
        "--set",
        archive,
    ]);
    let points = home.join("points.lp");
    let lines = (0..200).map(|at| format!("cpu,host=h{} n={at}i 1700000{at:03}000000000\n", at % 3));
    fs::write(&points, lines.collect::<String>()).expect("a file");
    on(&["write", &points.display().to_string()]);
    on(&["jobs", "run", "seal"]);
    on(&["jobs", "run", "archive", "--table", "default", "--wait"]);
    let counted = on(&[
        "query",
        "--json",
        "--from",
        "2023-11-14T00:00:00Z",
        "--to",
        "2023-11-15T00:00:00Z",
        "--fn",
        "count",
    ]);
    assert!(counted.contains("\"archive\""), "{counted}");

    let restored = on(&["archive", "restore", "--all-time", "--for", "1d", "--wait"]);
    assert!(restored.contains("done"), "{restored}");
    let tiers = on(&["tables", "show", "default"]);
    let cold = tiers.lines().find(|line| line.trim_start().starts_with("cold"));
    assert!(cold.is_some_and(|line| line.contains("200")), "{tiers}");
    let status = on(&["archive", "status"]);
    assert!(status.contains(&target) && status.contains("default"), "{status}");
    let status = on(&["archive", "status", "--json"]);
    assert!(status.contains(r#""copied":{"windows":1"#), "{status}");
    let none = run(home, Some(&url), &["archive", "restore"]);
    assert_eq!(none.code, 2, "a range is required: {none:?}");

    // A server does not attach its own files.
    let attached = on(&["archive", "attach", "default"]);
    assert!(
        attached.contains("0 of 0 segments") && attached.contains("1 segments or parts were known before"),
        "{attached}"
    );
    let attached = on(&["archive", "attach", "default", "--json"]);
    assert!(attached.contains(r#""done":true"#), "{attached}");
    let begun = on(&["archive", "attach", "default", "--no-wait"]);
    assert!(begun.contains("started job"), "{begun}");
    let none = run(
        home,
        Some(&url),
        &["archive", "attach", "default", "--table", "none"],
    );
    assert!(
        none.code == 1 && none.err.contains("no archive of table none"),
        "{none:?}"
    );
    let wrong = run(
        home,
        Some(&url),
        &["archive", "attach", "default", "--as", "other"],
    );
    assert_eq!(wrong.code, 2, "{wrong:?}");

    // Simulates leftovers of a failed job: copies of the files under the name of a segment that does not exist.
    let nothing = on(&["archive", "orphans", "default"]);
    assert!(nothing.contains("0 objects left over"), "{nothing}");
    let left: Vec<PathBuf> = parquet_files(&files)
        .iter()
        .map(|file| copied(file, "-99999-"))
        .collect();
    let found = run(home, Some(&url), &["archive", "orphans", "default"]);
    assert!(found.code == 1 && found.out.contains("-99999-"), "{found:?}");
    assert!(left.iter().all(|file| file.exists()), "listing removes nothing");
    let removed = on(&["archive", "orphans", "default", "--remove"]);
    assert!(removed.contains("2 objects removed"), "{removed}");
    assert!(left.iter().all(|file| !file.exists()));
    let outside = run(home, Some(&url), &["archive", "orphans", "file:///etc"]);
    assert!(
        outside.code == 1 && outside.err.contains("archive.allowed_targets"),
        "{outside:?}"
    );

    let verified = run(home, None, &["archive", "verify", &target, "--json"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    assert!(
        verified.out.contains(r#""is_sound":true"#) && verified.out.contains(r#""segments":1"#),
        "{verified:?}"
    );
    let [one, ..] = parquet_files(&files)
        .try_into()
        .map(|all: [PathBuf; 2]| all)
        .expect("points and timelines");
    let mut bytes = fs::read(&one).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&one, bytes).expect("a file");
    let damaged = run(home, None, &["archive", "verify", &target]);
    assert_eq!(damaged.code, 1, "{damaged:?}");
    let name = one
        .file_name()
        .expect("it has one")
        .to_string_lossy()
        .into_owned();
    assert!(damaged.out.contains(&name), "{damaged:?}");
}

#[test]
fn what_cannot_hold_an_archive_is_said() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let file = home.path().join("a-file");
    fs::write(&file, "not a folder").expect("a file");
    let target = format!("file://{}/inside", file.display());
    let checked = run(home.path(), None, &["archive", "check", &target, "--json"]);
    assert_eq!(checked.code, 1, "{checked:?}");
    assert!(checked.out.contains(r#""is_good":false"#), "{checked:?}");
    for none in ["nothing", "ftp://host/x", "s3://user:word@bucket/x"] {
        let refused = run(home.path(), None, &["archive", "check", none]);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(!refused.err.contains(":word"), "{refused:?}");
    }
}
