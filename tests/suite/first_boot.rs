//! A first boot that is killed at any system call leaves a folder that can be opened.
//!
//! One traced boot lists the calls of `CALLS` that touch the data folder, except opens for reading. Each case
//! kills a first boot before one of these calls is carried out and restarts the service. The service must
//! become ready and keep the next write.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use tideline_fleet::Random;
use tideline_tests::ledger::{Fate, Ledger, MEASUREMENT};
use tideline_tests::server::DataFolder;
use tideline_tests::{Launch, reading, rounds, seed, skip};

/// System calls that change files or make changes durable.
const CALLS: &str = "openat,creat,write,pwrite64,writev,pwritev,ftruncate,fallocate,fsync,fdatasync,syncfs,rename,renameat,\
                     renameat2,mkdir,mkdirat,unlink,unlinkat,rmdir,link,linkat,symlink,flock,fchmod,chmod";

/// System call of a boot.
#[derive(Debug, Clone)]
struct Case {
    call: String,
    /// Number of the call among the calls with this name in its thread, from 1.
    number: usize,
    /// Line of the call in the trace.
    line: String,
}

#[test]
fn a_first_boot_killed_at_any_call_leaves_a_folder_that_opens() {
    if Command::new("strace").arg("-V").output().is_err() {
        skip("strace is missing; install the package strace");
        return;
    }
    let mut random = Random::new(seed("first_boot"));
    let cases = calls_of_a_boot();
    assert!(cases.len() > 40, "{} calls of a boot were seen", cases.len());
    let count = rounds("TIDELINE_BOOT_KILLS", 5, cases.len()).min(cases.len());
    let mut reached = 0;
    for number in 0..count {
        // Spreads the cases over the boot; runs each once if `count` is the number of cases.
        let (from, to) = (number * cases.len() / count, (number + 1) * cases.len() / count);
        let case = &cases[from + random.index(to - from)];
        reached += usize::from(is_survived(case));
    }
    println!("{count} of {} calls, {reached} kills", cases.len());
    assert!(reached * 2 >= count, "{reached} of {count} boots were killed");
}

/// Traces a boot until it is ready; returns its calls.
fn calls_of_a_boot() -> Vec<Case> {
    let folder = DataFolder::new();
    let trace = folder.beside("trace");
    let options = [
        "--seccomp-bpf",
        "-y",
        "-s",
        "0",
        "-e",
        &format!("trace={CALLS}"),
        "-o",
    ]
    .map(str::to_owned);
    let server = folder.start(&Launch::default().traced_by(&strace(options, &trace)));
    server.kill();
    let text = std::fs::read_to_string(trace).expect("strace has written");
    let data = folder.path().to_string_lossy().into_owned();
    let mut counts: HashMap<(&str, &str), usize> = HashMap::new();
    let mut cases = Vec::new();
    for line in text.lines() {
        let Some((thread, call)) = line.split_once(' ') else {
            continue;
        };
        let Some((name, arguments)) = call.trim_start().split_once('(') else {
            continue;
        };
        if name.starts_with('<') {
            continue;
        }
        let number = counts.entry((thread, name)).or_default();
        *number += 1;
        let is_read = name == "openat" && arguments.contains("O_RDONLY");
        if arguments.contains(&data) && !is_read {
            cases.push(Case {
                call: name.to_owned(),
                number: *number,
                line: call.replace(&data, "data"),
            });
        }
    }
    cases
}

fn strace<const N: usize>(options: [String; N], output: &Path) -> Vec<String> {
    // `--seccomp-bpf` is an option of the tracing caller only, because injection does not work with it.
    let always = ["strace", "-f", "-qq"].map(str::to_owned);
    let mut all: Vec<String> = always.into_iter().chain(options).collect();
    all.push(output.to_string_lossy().into_owned());
    all
}

/// Kills a first boot, restarts and checks. Returns false if the boot became ready without reaching the call,
/// because threads differ between boots.
fn is_survived(case: &Case) -> bool {
    let folder = DataFolder::new();
    let Case { call, number, line } = case;
    let inject = format!("inject={call}:signal=KILL:when={number}");
    let options = [
        "-e".to_owned(),
        format!("trace={call}"),
        "-e".to_owned(),
        inject,
        "-o".to_owned(),
    ];
    let launch = Launch::default().traced_by(&strace(options, Path::new("/dev/null")));
    let boot = folder.spawn(&launch).wait_ready_or_gone();
    let is_killed = boot.is_none();
    println!(
        "{}: {call} {number}: {line}",
        if is_killed { "killed" } else { "ready" }
    );
    drop(boot);

    let server = folder.start(&Launch::default());
    let mut ledger = Ledger::new(1);
    let key = ("after".to_owned(), 1_700_000_000_000_000_000);
    let written = server
        .client()
        .post_lines("/v1/tables/default/points", &ledger.line(&key));
    assert!(written.is_success(), "{line}: {written:?}");
    ledger.note(&[key], Fate::Acknowledged);
    server.kill();
    let server = folder.start(&Launch::default());
    let rows = reading::all(&server.client(), "default", MEASUREMENT);
    let contradictions = ledger.contradictions(&rows, false);
    assert!(contradictions.is_empty(), "{line}: {contradictions:?}");
    is_killed
}
