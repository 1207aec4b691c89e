//! Repository rules that the compiler does not check.
//!
//! Each test lists all violations of its rule, so that one run is enough to fix them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tideline_tests::corpora::{corpus, workspace};

/// Folders that are not checked.
const SKIPPED: [&str; 3] = ["target", ".git", "tideline-data"];

/// Manifest of a crate.
struct Manifest {
    /// Folder, relative to the root of the workspace.
    folder: String,
    /// Text of the manifest.
    text: String,
    /// Names under `[dependencies]`.
    dependencies: Vec<String>,
}

#[test]
fn every_source_file_has_a_header() {
    let is_source = |path: &Path| path.extension().is_some_and(|end| end == "rs");
    // A format crate may include its `FORMAT.md` instead.
    let has_no_header = |text: &str| !text.starts_with("//!") && !text.starts_with("#![doc = include_str!");
    let without_header = files_where(is_source, has_no_header);
    assert_none(&without_header, "a source file opens with its module doc");
}

#[test]
fn long_modules_have_a_header_of_several_lines() {
    const LONG: usize = 100;
    let is_source = |path: &Path| path.extension().is_some_and(|end| end == "rs");
    let is_terse = |text: &str| {
        let header = text.lines().take_while(|line| line.starts_with("//!")).count();
        text.lines().count() > LONG && header == 1
    };
    let terse = files_where(is_source, is_terse);
    assert_none(
        &terse,
        "the header of a module of more than 100 lines says what it contains and why: at least two lines",
    );
}

/// Checks that texts and names contain none of the listed words, which a reader from outside would not understand.
#[test]
fn texts_and_names_are_plain() {
    // The words are split, so that this file does not match.
    let words = [
        ["who", "ever"],
        ["some", "body"],
        ["no", "body"],
        ["le", "st"],
        ["cho", "re"],
        ["err", "and"],
        ["peo", "ple"],
        ["agen", "da"],
        ["man", "ner"],
        ["wi", "sh"],
    ]
    .map(|halves| halves.concat());
    let phrases = [
        ["is no", "ne"],
        ["are no", "ne"],
        ["comes ", "to"],
        ["come ", "to"],
        ["leave ", "away"],
        ["hands ", "on"],
    ]
    .map(|halves| halves.concat());
    let is_dialect = |text: &str| {
        let text = text.to_lowercase();
        let mut parts = text.split(|c: char| !c.is_alphabetic());
        let has_word = parts.any(|part| {
            words
                .iter()
                .any(|word| part.strip_suffix('s').unwrap_or(part) == word)
        });
        let has_phrase = |phrase: &String| {
            text.match_indices(phrase.as_str()).any(|(at, found)| {
                !text[..at].ends_with(char::is_alphabetic)
                    && !text[at + found.len()..].starts_with(char::is_alphabetic)
            })
        };
        has_word || phrases.iter().any(has_phrase)
    };
    // Data of a stored fixture, which is compared byte by byte.
    const STORED: [&str; 2] = ["tests/fixtures/spine", "tests/suite/upgrade/story.rs"];
    let is_checked =
        |path: &Path| is_text(path) && !STORED.iter().any(|stored| shown(path).starts_with(stored));
    let dialect = files_where(is_checked, is_dialect);
    assert_none(
        &dialect,
        "texts and names use plain words (the list is in tests/suite/house.rs)",
    );
}

#[test]
fn module_tables_list_every_module() {
    let is_root = |path: &Path| path.ends_with("src/lib.rs");
    let lacks_modules = |text: &str| {
        let is_header = |line: &&str| line.starts_with("//!");
        let header: Vec<&str> = text.lines().take_while(is_header).collect();
        let has_table = header.iter().any(|line| line.starts_with("//! | module |"));
        let header = header.join("\n");
        let is_listed = |module: &str| {
            let forms = [
                format!("`{module}`"),
                format!("mod@{module}`"),
                format!("({module}"),
            ];
            forms.iter().any(|form| header.contains(form))
        };
        let module = |line: &'_ str| {
            let name = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ")?;
            name.strip_suffix(';').map(str::to_owned)
        };
        has_table && !text.lines().filter_map(module).all(|module| is_listed(&module))
    };
    let incomplete = files_where(is_root, lacks_modules);
    assert_none(
        &incomplete,
        "a crate whose header has a table of modules lists all of them there",
    );
}

#[test]
fn modules_and_tests_lie_where_one_looks_for_them() {
    let is_misplaced = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        let folder = path.parent().unwrap_or(path);
        let is_rust = path.extension().is_some_and(|end| end == "rs");
        let is_loose_test =
            is_rust && folder.ends_with("tests") && folder.with_file_name("Cargo.toml").exists();
        name == "mod.rs" || is_loose_test
    };
    let misplaced: Vec<String> = files_below(workspace())
        .iter()
        .filter(|path| is_misplaced(path))
        .map(|path| shown(path))
        .collect();
    assert_none(
        &misplaced,
        "a module with submodules is name.rs next to name/; integration tests of a crate are below tests/main/",
    );
}

#[test]
fn nothing_is_parked() {
    // The marks are concatenated, so that this file does not match.
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
        concat!("HA", "CK:"),
    ];
    let parked = files_where(is_text, |text| marks.iter().any(|mark| text.contains(mark)));
    assert_none(&parked, "open work belongs in an issue, not in a comment");
}

#[test]
fn imports_go_one_way() {
    let rooms = [
        ("storage/", &["storage/"][..]),
        ("indexer/", &["storage/", "indexer/"][..]),
        ("openapi", &["storage/model", "indexer/condition"][..]),
        (
            "services/cli",
            &["indexer/condition", "openapi", "services/ingest-protocols"][..],
        ),
    ];
    let crates = manifests();
    let folder_of = folders(&crates);
    let mut broken = Vec::new();
    for manifest in &crates {
        let Some((_, allowed)) = rooms.iter().find(|(room, _)| manifest.folder.starts_with(room)) else {
            continue;
        };
        for dependency in &manifest.dependencies {
            let Some(folder) = folder_of.get(dependency.as_str()) else {
                continue;
            };
            if !allowed.iter().any(|room| folder.starts_with(room)) {
                broken.push(format!("{} uses {folder}", manifest.folder));
            }
        }
    }
    assert_none(
        &broken,
        "services use indexer and storage, indexer uses storage, storage uses storage; the command line uses no code of the server",
    );
}

#[test]
fn services_reach_storage_and_indexer_through_the_engine() {
    // Crates that connect the layers, or that need no engine. Crates of network formats use the primitives of
    // storage/wire. A separate test checks that only the server depends on a backend.
    let lawful = [
        "services/access",
        "services/connections",
        "services/histogram",
        "services/engine",
        "services/cli",
        "services/ingest-protocols",
        "services/promql",
    ];
    let crates = manifests();
    let folder_of = folders(&crates);
    let mut broken = Vec::new();
    for manifest in &crates {
        let folder = manifest.folder.as_str();
        if !folder.starts_with("services/") || lawful.contains(&folder) {
            continue;
        }
        for dependency in &manifest.dependencies {
            let below = folder_of.get(dependency.as_str());
            if let Some(below) = below
                .filter(|below| below.starts_with("storage/") || below.starts_with("indexer/"))
                .filter(|below| {
                    ![
                        "storage/wire",
                        "storage/backend-cassandra",
                        "storage/backend-fjall",
                    ]
                    .contains(below)
                })
            {
                broken.push(format!("{folder} uses {below}"));
            }
        }
    }
    assert_none(&broken, "services use storage and indexer through the engine");
}

#[test]
fn engines_and_http_stay_in_their_rooms() {
    // Dependencies, and the crates that may use them.
    let lawful = [
        ("axum", &["services/connections", "services/http"][..]),
        ("hyper", &["services/connections", "services/http"][..]),
        ("hyper-util", &["services/connections"][..]),
        ("tower-http", &["services/http"][..]),
        ("utoipa-axum", &["services/http"][..]),
        ("utoipa", &["services/http", "openapi"][..]),
        ("tantivy", &["indexer/search-index"][..]),
        (
            "arrow-array",
            &["services/results", "services/rows", "services/cli"][..],
        ),
        (
            "parquet",
            &[
                "storage/archive",
                "services/results",
                "services/rows",
                "services/cli",
            ][..],
        ),
        ("object_store", &["storage/archive"][..]),
        ("reqwest", &["storage/archive", "services/webhooks"][..]),
        ("fjall", &["storage/backend-fjall"][..]),
        ("tideline-backend-fjall", &["services/server"][..]),
        ("scylla", &["storage/backend-cassandra"][..]),
        ("tideline-backend-cassandra", &["services/server"][..]),
        ("tideline-http", &["services/server"][..]),
        ("tideline-cli", &["services/server"][..]),
        ("tideline-server", &[][..]),
    ];
    let mut broken = Vec::new();
    for manifest in manifests() {
        for (dependency, rooms) in &lawful {
            let has = manifest.dependencies.iter().any(|name| name == dependency);
            if has && !rooms.contains(&manifest.folder.as_str()) {
                broken.push(format!(
                    "{} uses {dependency}, which belongs to {rooms:?}",
                    manifest.folder
                ));
            }
        }
    }
    assert_none(
        &broken,
        "storage backends, HTTP and OpenAPI libraries are used only in their assigned crates",
    );
}

#[test]
fn only_key_codec_makes_keys() {
    // Backends and tests are not checked: backends address their own files, and tests may build any bytes.
    let rooms = [
        "storage/log/src",
        "storage/series-store/src",
        "indexer/timeline-catalog/src",
    ];
    let mut makers = Vec::new();
    for room in rooms {
        for path in files_below(&workspace().join(room)) {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for (number, line) in (1..).zip(code.lines()) {
                if line.contains(".to_be_bytes()") {
                    makers.push(format!("{}:{number}", shown(&path)));
                }
            }
        }
    }
    assert_none(&makers, "only the crate key-codec encodes keys");
}

#[test]
fn threads_of_the_database_have_a_supervisor() {
    // Scoped threads are allowed, because they end with their call. Threads of the server are not checked: their
    // failure ends the process or is not essential.
    let rooms = [
        "storage",
        "indexer",
        "services/engine",
        "services/query",
        "services/scheduler",
    ];
    let mut unsupervised = Vec::new();
    for path in rooms.iter().flat_map(|room| files_below(&workspace().join(room))) {
        let place = shown(&path);
        let is_meant = place.contains("/src/") && !place.ends_with("/tests.rs");
        if !is_meant || place == "storage/runtime/src/supervision.rs" {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in (1..).zip(code.lines()) {
            let is_thread = line.contains("thread::spawn(") || line.contains(".spawn(move ||");
            if is_thread && !line.contains("scope.spawn(") {
                unsupervised.push(format!("{place}:{number}"));
            }
        }
    }
    assert_none(
        &unsupervised,
        "long-lived threads are started by the supervisor, so that their panic ends the process",
    );
}

#[test]
fn every_crate_is_under_the_same_rules() {
    let mut broken = Vec::new();
    for manifest in manifests() {
        for line in [
            "[lints]\nworkspace = true",
            "license.workspace = true",
            "version.workspace = true",
        ] {
            if !manifest.text.contains(line) {
                broken.push(format!("{} lacks {line:?}", manifest.folder));
            }
        }
        let name = manifest.folder.rsplit('/').next().unwrap_or_default();
        if manifest.package() != Some(format!("tideline-{name}")) {
            broken.push(format!("{} is not named after its folder", manifest.folder));
        }
    }
    assert_none(
        &broken,
        "lints, licence and version come from the workspace; a crate is named after its folder",
    );
}

#[test]
fn the_map_is_true_and_complete() {
    let page = |name: &str| fs::read_to_string(workspace().join(name)).expect("the page is there");
    let (map, lists) = (page("ARCHITECTURE.md"), page("CONTRIBUTING.md"));
    let missing: Vec<String> = quoted_paths(&map)
        .chain(quoted_paths(&lists))
        .filter(|path| {
            let file = workspace().join(path);
            !file.exists() && !file.with_extension("rs").exists()
        })
        .map(str::to_owned)
        .collect();
    assert_none(
        &missing,
        "every path in ARCHITECTURE.md and CONTRIBUTING.md exists, as a file, a folder or a module",
    );
    let unmapped: Vec<String> = manifests()
        .into_iter()
        .map(|manifest| manifest.folder)
        .filter(|folder| !is_mapped(&map, folder))
        .collect();
    assert_none(&unmapped, "ARCHITECTURE.md names every crate by its folder");
}

#[test]
fn variables_that_size_tests_are_documented() {
    let readme = fs::read_to_string(workspace().join("tests/README.md")).expect("tests/README.md is there");
    let mut missing = Vec::new();
    for path in files_below(workspace()) {
        if path.extension().is_none_or(|end| end != "rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        for call in text.split("rounds(").skip(1) {
            let Some(argument) = call.trim_start().strip_prefix('"') else {
                continue;
            };
            let variable = argument.split('"').next().unwrap_or_default();
            if variable.starts_with("TIDELINE_") && !readme.contains(&format!("| `{variable}` |")) {
                missing.push(format!("{}: {variable}", shown(&path)));
            }
        }
    }
    assert_none(
        &missing,
        "tests/README.md lists each variable that sets the size of a test",
    );
}

#[test]
fn random_tests_take_their_seed_from_the_testkit() {
    // Without this configuration, a property test draws a seed that is not printed.
    let draws_alone = |text: &str| {
        let blocks = text.split("proptest! {").skip(1);
        let mut openings = blocks.map(|block| block.trim_start().lines().next().unwrap_or_default());
        openings.any(|line| !line.contains("tideline_testkit::proptest_config("))
    };
    let is_source = |path: &Path| path.extension().is_some_and(|end| end == "rs");
    let is_other = |path: &Path| is_source(path) && !path.ends_with("tests/suite/house.rs");
    let alone = files_where(is_other, draws_alone);
    assert_none(
        &alone,
        "a property test begins with `#![proptest_config(tideline_testkit::proptest_config(cases))]`",
    );
}

#[test]
fn no_outside_data_is_inside() {
    // Length of a sample in bytes: long enough to be unique, and short enough to be found in a partial copy.
    const SAMPLE_BYTES: usize = 160;
    let mut samples: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for name in [
        "nab",
        "line-protocol-corpus",
        "influxql",
        "promqltest",
        "otlp",
        "prometheus-openapi",
    ] {
        let Some(folder) = corpus(name) else { continue };
        for path in files_below(&folder) {
            let is_licence = path.file_stem().is_some_and(|stem| stem == "LICENSE");
            let bytes = fs::read(&path).unwrap_or_default();
            if is_licence || bytes.len() < 4 * SAMPLE_BYTES {
                continue;
            }
            for part in 1..4 {
                let at = bytes.len() / 4 * part;
                samples.push((path.clone(), bytes[at..][..SAMPLE_BYTES].to_vec()));
            }
        }
    }
    let mut copies = Vec::new();
    for path in files_below(workspace()) {
        let bytes = fs::read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        for (origin, sample) in &samples {
            if std::str::from_utf8(sample).is_ok_and(|sample| text.contains(sample)) {
                copies.push(format!("{} holds a part of {}", shown(&path), origin.display()));
            }
        }
    }
    assert_none(&copies, "outside data is read from its own folder, never copied");
}

impl Manifest {
    fn package(&self) -> Option<String> {
        let line = self.text.lines().find(|line| line.starts_with("name = "))?;
        Some(line.trim_start_matches("name = ").trim_matches('"').to_owned())
    }
}

/// Returns the manifests of all crates of the workspace.
fn manifests() -> Vec<Manifest> {
    let mut found: Vec<Manifest> = files_below(workspace())
        .into_iter()
        .filter(|path| path.ends_with("Cargo.toml"))
        .filter_map(|path| {
            let text = fs::read_to_string(&path).ok()?;
            let folder = shown(path.parent()?);
            text.contains("[package]").then(|| Manifest {
                dependencies: dependencies(&text),
                folder,
                text,
            })
        })
        // Fuzz targets have separate workspaces.
        .filter(|manifest| !manifest.folder.ends_with("fuzz"))
        .collect();
    found.sort_by(|a, b| a.folder.cmp(&b.folder));
    assert!(found.len() > 10, "the workspace has crates");
    found
}

/// Returns the folder of each package.
fn folders(crates: &[Manifest]) -> BTreeMap<String, &str> {
    crates
        .iter()
        .filter_map(|manifest| Some((manifest.package()?, manifest.folder.as_str())))
        .collect()
}

/// Returns the names in the `[dependencies]` of a manifest, without dev-dependencies.
fn dependencies(manifest: &str) -> Vec<String> {
    manifest
        .lines()
        .skip_while(|line| line.trim() != "[dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['.', '=', ' ']).next())
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

/// Returns true if the architecture map contains the path of a crate or the name of its folder.
fn is_mapped(map: &str, folder: &str) -> bool {
    let name = folder.rsplit('/').next().unwrap_or(folder);
    map.contains(folder)
        || map
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'))
            .any(|word| word == name)
}

/// Returns the words of the map that have the form of a path of this repository, in backquotes, links or running text.
fn quoted_paths(map: &str) -> impl Iterator<Item = &str> {
    let rooms = [
        "storage/",
        "indexer/",
        "services/",
        "openapi/",
        "docker/",
        "tests/",
        ".ci/",
    ];
    map.split(['`', '(', ')', ' ', '\n', '|'])
        .map(|text| text.trim_end_matches(['.', ',', ':', ';']))
        .filter(move |text| rooms.iter().any(|room| text.starts_with(room)))
        .filter(|text| !text.contains(['*', '{', '<', '…']))
}

/// Returns the files that pass `is_meant` and for whose text `breaks` returns true.
fn files_where(is_meant: impl Fn(&Path) -> bool, breaks: impl Fn(&str) -> bool) -> Vec<String> {
    files_below(workspace())
        .into_iter()
        .filter(|path| is_meant(path))
        .filter(|path| fs::read_to_string(path).is_ok_and(|text| breaks(&text)))
        .map(|path| shown(&path))
        .collect()
}

fn is_text(path: &Path) -> bool {
    let ends = [
        "rs", "toml", "md", "json", "txt", "yml", "yaml", "sh", "html", "css", "js",
    ];
    path.extension()
        .and_then(|end| end.to_str())
        .is_some_and(|end| ends.contains(&end))
}

/// Returns all files below a folder, without build output.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if SKIPPED.iter().any(|skipped| name == *skipped) {
                continue;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files.sort();
    files
}

fn shown(path: &Path) -> String {
    path.strip_prefix(workspace())
        .unwrap_or(path)
        .display()
        .to_string()
}

#[track_caller]
fn assert_none(broken: &[String], rule: &str) {
    assert!(
        broken.is_empty(),
        "rule: {rule}; broken by:\n  {}",
        broken.join("\n  ")
    );
}
