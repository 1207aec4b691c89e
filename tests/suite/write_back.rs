//! Failed write-backs, then a power cut: every acknowledged point must be stored, unless the file system has
//! aborted its journal.
//!
//! If the write-back of a page fails, the kernel marks the page clean: it stays readable, and a later sync
//! does not write it. Each round fills a thin disk below the file system while writers run, until the service
//! reports a failure or 10 s pass. Then either space is freed and the service recovers, or the service is killed,
//! space is freed, and the service is restarted. Writers continue, and finally the power is cut.
//!
//! A second test opens a folder with zeroed ranges in its logs: the start succeeds only if the loss is accepted.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tideline_fleet::Random;
use tideline_tests::disk::{Ext4, ThinDisk};
use tideline_tests::ledger::{Fate, MEASUREMENT, PointKey};
use tideline_tests::load::Load;
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch, Server, reading, rounds, seed, skip, wait};

/// Number of concurrent writers, in addition to the one that creates timelines.
const WRITERS: u64 = 2;
/// Number of new timelines per write; their rows take several pages of fjall's log.
const TIMELINES: i64 = 200;
/// Time limit of a repair; attempts are up to 30 s apart.
const REPAIR_PATIENCE: Duration = Duration::from_secs(60);

/// Event after the failure.
#[derive(Debug, Clone, Copy)]
enum After {
    /// Space is freed, and the service recovers without a restart.
    Repair,
    /// The service is killed while the disk is full, and restarted after space is freed.
    Kill,
}

#[test]
fn nothing_acknowledged_is_lost_after_a_failed_write_back_and_a_power_cut() {
    let mut random = Random::new(seed("write_back"));
    let rounds = rounds("TIDELINE_CUTS", 2, 32);
    let mut failures = 0;
    for round in 0..rounds {
        let kind = [Ext4::Plain, Ext4::Journaled][round / 2 % 2];
        let disk = match ThinDisk::make(kind) {
            Ok(disk) => disk,
            Err(missing) => {
                skip(&format!("a loop device with ext4 is needed, as root: {missing}"));
                return;
            }
        };
        let after = [After::Kill, After::Repair][round % 2];
        print!("{kind:?} ext4, ");
        failures += usize::from(cut(disk, after, &mut random));
    }
    println!("{rounds} power cuts after failed write-backs, {failures} with a failed store");
    assert!(failures > 0, "no write-back failed: the disk was not full");
}

/// Runs one round. Returns true if the service reported a failure and the file system stayed writable.
fn cut(disk: ThinDisk, after: After, random: &mut Random) -> bool {
    let load = Load::new(random.bits());
    let launch = launch();
    let folder = DataFolder::within(disk.path());
    let server = folder.start(&launch);
    let mut next = 0;
    let failed = while_writing(&load, &server, &mut next, || {
        wait::pause(Duration::from_millis(200 + random.index(300) as u64));
        disk.exhaust();
        let failed = wait::until(Duration::from_secs(10), || (!is_ready(&server)).then_some(()));
        wait::pause(Duration::from_millis(random.index(300) as u64));
        if matches!(after, After::Repair) {
            disk.relieve();
            let repaired = wait::until(REPAIR_PATIENCE, || {
                (is_ready(&server) || disk.is_read_only()).then_some(())
            });
            assert!(repaired.is_some(), "not ready again after {REPAIR_PATIENCE:?}");
            wait::pause(Duration::from_millis(200 + random.index(500) as u64));
        }
        failed.is_some()
    });
    let server = match after {
        After::Repair => server,
        After::Kill => {
            server.kill();
            disk.relieve();
            if disk.is_read_only() {
                return verify(disk, &load, &launch, after, failed);
            }
            let server = folder.start(&launch);
            while_writing(&load, &server, &mut next, || {
                wait::pause(Duration::from_millis(200 + random.index(500) as u64));
            });
            server
        }
    };
    server.kill();
    verify(disk, &load, &launch, after, failed)
}

/// Cuts the power and compares the stored points with the ledger. Returns true if the service had failed and
/// the file system had stayed writable.
fn verify(disk: ThinDisk, load: &Load, launch: &Launch, after: After, failed: bool) -> bool {
    let is_read_only = disk.is_read_only();
    let disk = disk.cut_power();
    let server = DataFolder::within(disk.path()).start(launch);
    let rows = reading::all(&server.client(), "default", MEASUREMENT);
    let acknowledged = load.ledger().keys(Fate::Acknowledged).len();
    let contradictions = load.ledger().contradictions(&rows, false);
    let wrong = contradictions.len();
    println!(
        "{after:?}, failed {failed}, file system read-only {is_read_only}: {wrong} of {acknowledged} points are wrong"
    );
    // A file system that aborts its journal may lose data that was synced just before; this is a fault of the
    // kernel.
    assert!(
        is_read_only || wrong == 0,
        "{after:?}: {wrong} of {acknowledged} points are wrong, the first ones:\n{}",
        contradictions[..wrong.min(10)].join("\n")
    );
    server.kill();
    failed && !is_read_only
}

fn launch() -> Launch {
    // Disables the watermarks, which would refuse writes before the disk is full.
    Launch::default()
        .environment("TIDELINE__STORAGE__FREE_BYTES_MIN", "0")
        .environment("TIDELINE__STORAGE__FREE_PER_MILLE_MIN", "0")
        .environment("TIDELINE__STORAGE__HEAD_BYTES_MAX", "4MiB")
}

fn is_ready(server: &Server) -> bool {
    let answer = server.client().send("GET", "/ready", &[], b"");
    answer.is_ok_and(|answer| answer.status == 200)
}

/// Runs `body` while points of known and of new timelines are written.
fn while_writing<T>(load: &Load, server: &Server, next: &mut i64, body: impl FnOnce() -> T) -> T {
    let client = server.client();
    let writers = load.start(&client, WRITERS);
    let stop = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        // Stops the writer even if `body` panics.
        let _stops = StopsOnDrop(&stop);
        let registrar = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                write_new_timelines(load, &client, *next);
                *next += 1;
                if *next % 2 == 0 {
                    // A seal writes the rows of the timelines, and so adds to fjall's log.
                    seal(&client);
                }
            }
        });
        let result = body();
        stop.store(true, Ordering::Relaxed);
        registrar.join().expect("the writer of timelines ends");
        result
    });
    writers.stop();
    result
}

struct StopsOnDrop<'a>(&'a AtomicBool);

impl Drop for StopsOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn write_new_timelines(load: &Load, client: &Client, number: i64) {
    let time = 1_600_000_000_000_000_000;
    let host = |n| (format!("new-{number:04}-{n:03}"), time);
    let keys: Vec<PointKey> = (0..TIMELINES).map(host).collect();
    let lines: Vec<String> = keys.iter().map(|key| load.ledger().line(key)).collect();
    load.ledger().note(&keys, Fate::Unknown);
    let headers = [("content-type", "text/plain")];
    let body = lines.join("\n");
    let sent = client.send("POST", "/v1/tables/default/points", &headers, body.as_bytes());
    if sent.is_ok_and(|answer| answer.is_success()) {
        load.ledger().note(&keys, Fate::Acknowledged);
    } else {
        wait::pause(Duration::from_millis(20));
    }
}

#[test]
fn a_folder_with_holes_in_its_logs_opens_when_the_loss_is_accepted() {
    let random = &mut Random::new(seed("write_back"));
    for damaged in ["store", "journal"] {
        let folder = DataFolder::new();
        let load = Load::new(random.bits());
        let server = folder.start(&Launch::default());
        let client = server.client();
        for number in 0..20 {
            write_new_timelines(&load, &client, number);
            if damaged == "store" && number < 15 {
                // A seal writes the rows of the timelines, and so adds to fjall's log.
                seal(&client);
            }
        }
        server.kill();
        let log = logs(&folder.path().join(damaged)).pop().expect("a log");
        let mut content = std::fs::read(&log).expect("read");
        let end = content.iter().rposition(|byte| *byte != 0).expect("a log");
        content[end / 2..end / 2 + (end / 4).min(4_096)].fill(0);
        std::fs::write(&log, content).expect("damage");

        let refused = folder.spawn(&Launch::default());
        let ended = refused.wait_ready_or_gone();
        assert!(ended.is_none(), "{damaged}: it started with a hole in a log");

        let accepting = Launch::default().environment("TIDELINE__STORAGE__ACCEPT_LOSS", "true");
        let server = folder.start(&accepting);
        let report = std::fs::read_to_string(folder.path().join("lost/1/REPORT")).expect("a report");
        assert!(report.contains("unreadable bytes"), "{damaged}: {report}");
        let client = server.client();
        let found = reading::all(&client, "default", MEASUREMENT).len();
        let written = load.ledger().keys(Fate::Acknowledged).len();
        assert!(
            found > 0 && found < written,
            "{damaged}: {found} of {written} points"
        );
        println!(
            "{damaged}: {found} of {written} points after a hole; {}",
            report.trim()
        );
        write_new_timelines(&load, &client, 100);
        assert_eq!(
            reading::all(&client, "default", MEASUREMENT).len(),
            found + TIMELINES as usize
        );
        server.kill();
        let server = folder.start(&Launch::default());
        let again = reading::all(&server.client(), "default", MEASUREMENT).len();
        assert_eq!(again, found + TIMELINES as usize, "{damaged}");
    }
}

fn seal(client: &Client) {
    let headers = [("content-type", "application/json")];
    let _ = client.send("POST", "/v1/jobs", &headers, br#"{"kind": "seal"}"#);
}

/// Returns the logs in a folder, oldest first.
fn logs(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    found.retain(|path| {
        path.extension()
            .is_some_and(|end| end == "jnl" || end == "journal")
    });
    found.sort();
    found
}
