//! Case of the crash matrix: a step, its side (before or after), and a fault.
//!
//! The method of each fault returns a running server; [`finish`] then runs all jobs on it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tideline_tests::server::{DataFolder, Server, binary};
use tideline_tests::{Client, Launch, archive, wait};

use super::life::{COLD_DAYS, Delete, Life, TABLE};

/// Time limit for reaching a step and for the end of a process.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit for a line to appear in the log.
const LOG_PATIENCE: Duration = Duration::from_secs(5);

/// Fault at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blow {
    /// The step returns an error.
    Fail,
    /// The step waits while other requests read and write.
    Pause,
    /// The process is killed.
    Kill,
}

/// Step, side and fault.
#[derive(Debug, Clone)]
pub(super) struct Case {
    work: &'static str,
    step: &'static str,
    side: &'static str,
    blow: Blow,
}

/// File whose creation resumes a paused step. It is created when the gate is dropped, so that a failed check never
/// leaves a request without a response.
struct Gate(PathBuf);

/// Prepared store, packed into one archive; every case begins with a copy.
#[derive(Debug)]
pub(super) struct Prepared {
    seed: u64,
    packed: Vec<u8>,
    life: Life,
}

impl Blow {
    pub(super) const ALL: [Self; 3] = [Self::Fail, Self::Pause, Self::Kill];
}

impl Gate {
    fn path(&self) -> &Path {
        &self.0
    }

    /// Waits until the step is reached; returns false after [`PATIENCE`].
    fn is_reached(&self) -> bool {
        let mut reached = self.0.as_os_str().to_owned();
        reached.push(".reached");
        wait::until(PATIENCE, || Path::new(&reached).exists().then_some(())).is_some()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        fs::write(&self.0, b"").expect("the folder can be written");
    }
}

impl Prepared {
    /// Creates a store with points of several days in hot and cold segments, with overwrites, late points and
    /// a delete, and with points that are only in the journal.
    ///
    /// # Panics
    ///
    /// Panics if the binary has no fail points: all cases would pass without testing anything.
    pub(super) fn new(seed: u64) -> Self {
        let folder = DataFolder::new();
        // The seal is retried at once, so its failure is visible only in the log or in the response.
        let server = folder.start(&launch(&folder).environment("TIDELINE_FAIL_AT", "seal.load.before"));
        let client = server.client();
        let mut life = Life::new(seed);
        client.post_json("/v1/tables", &Life::table()).expect_status(201);
        // Points that are already old when they are sealed are cold from the beginning.
        Life::set_hot_ttl(&client, "2d");
        life.write_days(&client, COLD_DAYS);
        life.write_days(&client, 40..42);
        let refused = client.post_json("/v1/jobs", &json!({"kind": "seal"}));
        let is_told = || server.log().contains("fail point").then_some(());
        assert!(
            !refused.is_success() || wait::until(LOG_PATIENCE, is_told).is_some(),
            "{} has no fail points: build it with `cargo build`, in a profile with debug assertions",
            binary().display()
        );
        seal(&client);
        Life::set_retention(&client);
        // With this longer TTL, points are sealed as hot. The shorter TTL below makes some of them old enough to move.
        Life::set_hot_ttl(&client, "20d");
        life.write_days(&client, 0..5);
        life.write_now(&client);
        seal(&client);
        for _ in 0..3 {
            life.write_again(&client, 120);
            seal(&client);
        }
        Life::set_hot_ttl(&client, "2d");
        life.delete(&client);
        life.write_again(&client, 60);
        life.check(&client, &format!("seed {seed}, prepared"));
        assert!(server.terminate().status.success());
        let packed =
            archive::pack(&folder.path(), |path| path.ends_with("LOCK")).expect("the folder can be read");
        println!("seed {seed}: {} points in {} bytes", life.points(), packed.len());
        Self { seed, packed, life }
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }
}

impl Case {
    /// Creates a case; `step` has the form `work.step`.
    pub(super) fn new(step: &'static str, side: &'static str, blow: Blow) -> Self {
        let (work, step) = step.split_once('.').expect("a step is named after its work");
        Self {
            work,
            step,
            side,
            blow,
        }
    }

    /// Runs the case on a copy of the prepared store.
    ///
    /// # Panics
    ///
    /// Panics if the store returns anything but the written points, or if the step is not reached.
    pub(super) fn run(&self, prepared: &Prepared) {
        let folder = DataFolder::of_suite();
        folder.fill(&prepared.packed);
        let mut life = prepared.life.clone();
        let context = format!("seed {}, {self}", prepared.seed);
        let server = match self.blow {
            Blow::Fail => self.fail(&folder, &mut life, &context),
            Blow::Pause => self.pause(&folder, &mut life, &context),
            Blow::Kill => self.kill(&folder, &mut life, &context),
        };
        finish(server, &folder, &mut life, &context);
    }

    fn fail(&self, folder: &DataFolder, life: &mut Life, context: &str) -> Server {
        let server = folder.start(&launch(folder).environment("TIDELINE_FAIL_AT", &self.point()));
        let client = server.client();
        let delete = self.begin(&client, life);
        let answer = self.trigger(&client, &delete);
        let is_told = || {
            let told = format!("{answer:?} {}", server.log());
            told.contains(&format!("fail point {}", self.point()))
                .then_some(())
        };
        assert!(
            wait::until(LOG_PATIENCE, is_told).is_some(),
            "{context}: never reached: {answer:?}\n{}",
            server.log()
        );
        life.check(&client, &format!("{context}, failed"));
        // The retry must succeed.
        let answer = self.trigger(&client, &delete);
        assert!(is_success(&answer), "{context}: {answer:?}\n{}", server.log());
        self.end(life, &delete);
        life.check(&client, &format!("{context}, done again"));
        server
    }

    fn pause(&self, folder: &DataFolder, life: &mut Life, context: &str) -> Server {
        let gate = Gate(folder.beside("go-on"));
        let launch = launch(folder)
            .environment("TIDELINE_PAUSE_AT", &self.point())
            .environment("TIDELINE_PAUSE_UNTIL", &gate.path().display().to_string());
        let server = folder.start(&launch);
        let client = server.client();
        let delete = self.begin(&client, life);
        thread::scope(|scope| {
            let work = scope.spawn(|| self.trigger(&client, &delete));
            let gate = gate;
            assert!(gate.is_reached(), "{context}: never reached\n{}", server.log());
            life.check(&client, &format!("{context}, waiting"));
            // A committer that waits in a delete processes no writes.
            if self.work != "delete" {
                life.write_again(&client, 40);
                life.delete(&client);
                life.check(&client, &format!("{context}, written to while waiting"));
            }
            assert!(!work.is_finished(), "{context}: response before the work ended");
            drop(gate);
            let answer = work.join().expect("the worker does not panic");
            assert!(is_success(&answer), "{context}: {answer:?}\n{}", server.log());
        });
        self.end(life, &delete);
        life.check(&client, &format!("{context}, gone on"));
        server
    }

    fn kill(&self, folder: &DataFolder, life: &mut Life, context: &str) -> Server {
        let server = folder.start(&launch(folder).environment("TIDELINE_KILL_AT", &self.point()));
        let client = server.client();
        let delete = self.begin(&client, life);
        let answer = self.trigger(&client, &delete);
        assert!(answer.is_none(), "{context}: never reached: {answer:?}");
        server.expect_killed(context);
        let server = folder.start(&launch(folder));
        let client = server.client();
        life.check(&client, &format!("{context}, after the kill"));
        let answer = self.trigger(&client, &delete);
        assert!(is_success(&answer), "{context}: {answer:?}\n{}", server.log());
        self.end(life, &delete);
        life.check(&client, &format!("{context}, done again"));
        server
    }

    fn point(&self) -> String {
        format!("{}.{}.{}", self.work, self.step, self.side)
    }

    /// Prepares the work; returns the delete if the work is a delete.
    fn begin(&self, client: &Client, life: &mut Life) -> Option<Delete> {
        match self.work {
            "fold" => life.write_stack(client, seal),
            "purge" => life.delete_cold(client),
            "arc" => life.set_archive(client),
            "evict" | "restore" => {
                Life::set_archive_keeping(client, Some("1000d").filter(|_| self.work == "evict"));
                job(client, "archive");
                Life::set_archive_keeping(client, None);
            }
            _ => {}
        }
        (self.work == "delete").then(|| {
            let delete = life.draw_delete();
            life.begin_delete(&delete);
            delete
        })
    }

    fn end(&self, life: &mut Life, delete: &Option<Delete>) {
        if let Some(delete) = delete {
            life.finish_delete(delete);
        }
    }

    /// Starts the work and waits for its end; returns status and body, or `None` without a response.
    fn trigger(&self, client: &Client, delete: &Option<Delete>) -> Option<(u16, String)> {
        let (path, body) = match (delete, self.work) {
            (Some(delete), _) => (format!("/v1/tables/{TABLE}/points/delete"), delete.body()),
            (None, "restore") => (
                format!("/v1/tables/{TABLE}/archive/restore"),
                json!({"range": {}, "wait": true}),
            ),
            (None, "seal") => ("/v1/jobs".to_owned(), json!({"kind": "seal"})),
            (None, work) => ("/v1/jobs".to_owned(), job_body(kind(work))),
        };
        let headers = [("content-type", "application/json")];
        let answer = client
            .send("POST", &path, &headers, body.to_string().as_bytes())
            .ok()?;
        Some((answer.status, answer.text()))
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}", self.blow, self.point())
    }
}

/// Runs the jobs one after another and checks the store after each, then again after writes and a restart.
fn finish(server: Server, folder: &DataFolder, life: &mut Life, context: &str) {
    let client = server.client();
    for kind in [
        "fold", "migrate", "purge", "expire", "seal", "migrate", "archive", "evict", "purge",
    ] {
        job(&client, kind);
        life.check(&client, &format!("{context}, then {kind}"));
    }
    life.write_again(&client, 40);
    life.check(&client, &format!("{context}, written to at the end"));
    assert!(server.terminate().status.success(), "{context}");
    let server = folder.start(&launch(folder));
    life.check(&server.client(), &format!("{context}, at the end"));
}

/// Returns a launch with an archive target. Expired points can be purged as soon as they are hidden. The
/// scheduler searches for work once an hour, so that jobs start only on request.
fn launch(folder: &DataFolder) -> Launch {
    let files = folder.beside("files");
    Launch::default()
        .environment(
            "TIDELINE__ARCHIVE__TARGET",
            &format!("file://{}", files.display()),
        )
        .environment("TIDELINE__LIFECYCLE__PURGE_DELAY", "0s")
        .environment("TIDELINE__LIFECYCLE__INTERVAL", "1h")
}

fn is_success(answer: &Option<(u16, String)>) -> bool {
    answer.as_ref().is_some_and(|(status, _)| *status < 300)
}

fn seal(client: &Client) {
    client
        .post_json("/v1/jobs", &json!({"kind": "seal"}))
        .expect_status(200);
}

fn job(client: &Client, kind: &str) {
    let answer = client.post_json("/v1/jobs", &job_body(kind));
    assert!(answer.is_success(), "{kind}: {answer:?}");
}

fn job_body(kind: &str) -> Json {
    match kind {
        "seal" => json!({"kind": kind}),
        _ => json!({"kind": kind, "table": TABLE, "wait": true}),
    }
}

fn kind(work: &str) -> &str {
    match work {
        "mig" => "migrate",
        "arc" => "archive",
        work => work,
    }
}
