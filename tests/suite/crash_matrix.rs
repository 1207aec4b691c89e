//! Tests an error, a pause and a kill before and after every step of deletes, seals and moves. The short form runs one
//! random case of each step. The hot, cold and archive tiers together must hold each point once, and no deleted point,
//! in rows and in aggregates.
//!
//! A case consists of a step, a side (before or after) and a fault. It begins with a copy of a prepared store
//! and starts the work that passes the step. It checks the store while the work is paused, after it failed,
//! or after a restart. Then it runs all moves to their end and checks after each move and after another
//! restart.
//!
//! With `TIDELINE_SUITE_BACKEND=cassandra`, each case copies the prepared store into a keyspace of a cluster, and only seals,
//! migrations and archiving are tested.
//!
//! The binary needs the fail points of a build with debug assertions; see `tests/README.md`.

mod case;
mod life;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use tideline_fleet::Random;
use tideline_tests::cluster;
use tideline_tests::corpora::workspace;
use tideline_tests::{rounds, seed};

use case::{Blow, Case, Prepared};

/// Steps of all kinds of work. The side before `delete.apply` is the same point as the side after `delete.append`, so
/// only one of the two is tested.
const STEPS: [&str; 28] = [
    "delete.append",
    "delete.apply",
    "seal.load",
    "seal.save",
    "seal.sync",
    "seal.edit",
    "seal.forget",
    "mig.load",
    "mig.edit",
    "mig.drop",
    "arc.write",
    "arc.describe",
    "arc.load",
    "arc.edit",
    "arc.drop",
    "evict.edit",
    "evict.drop",
    "restore.load",
    "restore.edit",
    "restore.drop",
    "fold.load",
    "fold.edit",
    "fold.drop",
    "purge.load",
    "purge.edit",
    "purge.drop",
    "expire.edit",
    "expire.drop",
];
/// Steps of attaching the archive of another database; `upgrade::attach` kills before and after each step.
const ATTACH: [&str; 2] = ["attach.load", "attach.edit"];
/// Kinds of work that share the steps of a compaction.
const REWRITES: [&str; 5] = ["mig", "arc", "restore", "fold", "purge"];
/// Kinds of work that are tested with the data in a cluster. The other kinds use the same steps of the store and the log,
/// and each case takes most of a minute.
const IN_CLUSTER: [&str; 3] = ["seal", "mig", "arc"];
/// Number of concurrent servers.
const WORKERS: usize = 2;

#[test]
fn every_point_is_there_once_whatever_step_of_a_move_fails() {
    let seed = seed("crash_matrix");
    let seeds = rounds("TIDELINE_SEEDS", 0, 3);
    let picked = std::env::var("TIDELINE_CASES").ok();
    let started = Instant::now();
    let mut count = 0;
    for offset in 0..seeds.max(1) as u64 {
        let seed = seed.wrapping_add(offset);
        let cases = match (&picked, seeds) {
            (Some(picked), _) => all_named(picked),
            (None, 0) => sample(seed),
            (None, _) => all(),
        };
        count += cases.len();
        run(&Prepared::new(seed), &cases);
    }
    println!("{count} cases in {:?}", started.elapsed());
}

#[test]
fn every_step_of_the_code_is_in_the_matrix() {
    let mut unknown = BTreeSet::new();
    let mut found = 0;
    let of_moves = crate::row_archive::STEPS
        .iter()
        .chain(&crate::row_archive_values::STEPS)
        .chain(&crate::large_values::STEPS);
    let of_work = crate::row_steps::STEPS.iter().map(|(step, ..)| step);
    let of_rows = crate::row_faults::STEPS
        .iter()
        .chain([
            &crate::row_faults::DICTIONARY_STEP,
            &crate::row_steps::IMPORT_STEP,
        ])
        .chain(of_work)
        .chain(of_moves);
    let known = STEPS.iter().chain(&ATTACH).chain(of_rows);
    // Source folders. Some calls pass the kind of work as a variable; for these calls, each folder lists the possible
    // kinds, and the matrix must have the step of the call for each listed kind. The suite `crash` covers crashes
    // during appends to the log.
    let rooms = [
        ("storage/series-store/src", &REWRITES[..]),
        ("storage/log/src", &["delete"]),
        ("storage/wide-table/src", &[]),
        ("services/engine/src", &[]),
        ("services/rows/src", &[]),
        ("services/http/src", &[]),
    ];
    let files = rooms.map(|(room, works)| {
        sources(&workspace().join(room))
            .into_iter()
            .map(move |path| (path, works))
    });
    for (path, variable) in files.into_iter().flatten() {
        let text = fs::read_to_string(&path).expect("a source can be read");
        for call in [
            "around(",
            "pass(",
            "around::<_, EngineError>(",
            "pass::<EngineError>(",
        ] {
            for arguments in text.split(call).skip(1) {
                let mut arguments = arguments.split(',').map(str::trim);
                let (work, step) = (arguments.next().unwrap_or_default(), arguments.next());
                let Some(step) = step.and_then(literal) else {
                    continue;
                };
                found += 1;
                let works = literal(work).map_or(variable.to_vec(), |work| vec![work]);
                let steps = works.iter().map(|work| format!("{work}.{step}"));
                unknown.extend(steps.filter(|step| !known.clone().any(|known| known == step)));
            }
        }
    }
    assert!(found > 10, "the code has steps");
    assert!(unknown.is_empty(), "steps without a case: {unknown:?}");
}

/// Returns the text of a string literal.
fn literal(argument: &str) -> Option<&str> {
    argument.strip_prefix('"')?.strip_suffix('"')
}

/// Returns all files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the sources are there");
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .collect()
}

/// Returns the tested steps.
fn steps() -> impl Iterator<Item = &'static str> {
    let is_everywhere = !cluster::is_selected();
    let is_tested = move |step: &&'static str| {
        let work = step.split('.').next().unwrap_or_default();
        is_everywhere || IN_CLUSTER.contains(&work)
    };
    STEPS.into_iter().filter(is_tested)
}

/// Returns all cases: every step, side and fault.
fn all() -> Vec<Case> {
    steps().flat_map(of_step).collect()
}

/// Returns the cases whose names contain a text, such as `mig.edit`.
fn all_named(picked: &str) -> Vec<Case> {
    let mut cases = all();
    cases.retain(|case| case.to_string().contains(picked));
    assert!(!cases.is_empty(), "no case is named {picked:?}");
    cases
}

/// Returns one random case of every step.
fn sample(seed: u64) -> Vec<Case> {
    let mut random = Random::new(seed);
    let of_step = steps().map(of_step);
    of_step
        .map(|mut cases| cases.swap_remove(random.index(cases.len())))
        .collect()
}

fn of_step(step: &'static str) -> Vec<Case> {
    let sides: &[&'static str] = match step {
        "delete.apply" => &["after"],
        _ => &["before", "after"],
    };
    let of_side = |side: &&'static str| Blow::ALL.map(|blow| Case::new(step, side, blow));
    sides.iter().flat_map(of_side).collect()
}

/// Runs cases on [`WORKERS`] concurrent servers; panics with the names of all failed cases.
fn run(prepared: &Prepared, cases: &[Case]) {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let started = Instant::now();
                    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case.run(prepared)));
                    println!("seed {}, {case}: {:?}", prepared.seed(), started.elapsed());
                    if run.is_err() {
                        failed
                            .lock()
                            .expect("no thread panics while holding it")
                            .push(case.to_string());
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no thread panics while holding it");
    assert!(failed.is_empty(), "seed {}: {failed:#?}", prepared.seed());
}
