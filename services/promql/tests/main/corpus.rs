//! Prometheus' test scripts, if available. They are never part of the repository; `tideline_testkit::corpus`
//! locates them.

use std::path::{Path, PathBuf};

/// Query of a script.
#[derive(Debug)]
pub(crate) struct Query {
    /// File and line.
    pub(crate) place: String,
    /// Text of the query.
    pub(crate) text: String,
    /// True if the evaluation, including parsing, is expected to fail.
    pub(crate) must_fail: bool,
}

/// Returns the folder of the scripts; `None` if it is not available.
pub(crate) fn folder() -> Option<PathBuf> {
    tideline_testkit::corpus("promqltest")
}

/// Returns all queries of all scripts; empty if the scripts are not available.
pub(crate) fn queries() -> Vec<Query> {
    let Some(folder) = folder() else {
        return Vec::new();
    };
    let mut queries = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "test") {
            read(&path, &mut queries);
        }
    }
    assert!(queries.len() > 2000, "only {} queries found", queries.len());
    queries
}

fn read(path: &Path, queries: &mut Vec<Query>) {
    let script = std::fs::read_to_string(path).unwrap();
    let name = path.file_name().unwrap().to_string_lossy();
    let lines: Vec<&str> = script.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let command = line.trim();
        if !command.starts_with("eval") {
            continue;
        }
        let old_form = command.starts_with("eval_fail");
        let words = if command.contains(" instant at ") { 4 } else { 8 };
        let text = (0..words).fold(command, |rest, _| {
            let behind = rest.trim_start().split_once([' ', '\t']);
            behind.map_or("", |(_, rest)| rest)
        });
        let block = lines[at + 1..].iter().take_while(|line| !line.trim().is_empty());
        let must_fail = old_form
            || block
                .into_iter()
                .any(|line| line.trim().starts_with("expect fail"));
        queries.push(Query {
            place: format!("{name}:{}", at + 1),
            text: text.trim().to_owned(),
            must_fail,
        });
    }
}
