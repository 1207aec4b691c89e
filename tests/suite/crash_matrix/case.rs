//! One case: a step, a side of it, and what happens there.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tideline_tests::server::{DataFolder, Server, binary};
use tideline_tests::{Client, Launch, archive, wait};

use super::life::{COLD_DAYS, Delete, Life, TABLE};

/// How long a step may take to be reached, and a process to be gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a line of the log may take to arrive.
const LOG_PATIENCE: Duration = Duration::from_secs(5);

/// What happens at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blow {
    /// It fails.
    Fail,
    /// It waits, while others read and write.
    Pause,
    /// The process dies.
    Kill,
}

/// A step, a side of it, and what happens there.
#[derive(Debug, Clone)]
pub(super) struct Case {
    work: &'static str,
    step: &'static str,
    side: &'static str,
    blow: Blow,
}

/// What a paused step waits for. It is opened at the latest when this is dropped, so that a failed check never leaves
/// a request without its answer.
struct Gate(PathBuf);

/// A store that every case begins with.
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

    /// Waits until somebody waits here; whether that happened in time.
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
    /// Days of points in segments, hot and cold, with late points, overwrites and deletes over them, and a rest in
    /// the journal.
    ///
    /// # Panics
    ///
    /// When the binary has no fail points: every case would pass for nothing.
    pub(super) fn new(seed: u64) -> Self {
        let folder = DataFolder::new();
        // The seal is tried again at once, so this is only seen in the log, or in an answer.
        let server = folder.start(&launch(&folder).environment("TIDELINE_FAIL_AT", "seal.load.before"));
        let client = server.client();
        let mut life = Life::new(seed);
        client.post_json("/v1/tables", &Life::table()).expect_status(201);
        // Sealed when it is old: cold from the beginning.
        Life::set_hot_ttl(&client, "2d");
        life.write_days(&client, COLD_DAYS);
        life.write_days(&client, 40..42);
        let refused = client.post_json("/v1/jobs", &json!({"kind": "seal"}));
        let is_told = || server.log().contains("fail point").then_some(());
        assert!(
            !refused.is_success() || wait::until(LOG_PATIENCE, is_told).is_some(),
            "{} has no fail points: run `cargo test --workspace`, or build it with \
             `cargo build -p tideline-server --features fail-points`",
            binary().display()
        );
        seal(&client);
        Life::set_retention(&client);
        // Sealed when it is young, for this while: hot, and old enough to move later.
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
    /// `step` as `work.step`.
    pub(super) fn new(step: &'static str, side: &'static str, blow: Blow) -> Self {
        let (work, step) = step.split_once('.').expect("a step is named after its work");
        Self {
            work,
            step,
            side,
            blow,
        }
    }

    /// Runs it on a copy of the prepared store.
    ///
    /// # Panics
    ///
    /// When the store shows anything but what was written to it, or the step is never reached.
    pub(super) fn run(&self, prepared: &Prepared) {
        let folder = DataFolder::new();
        archive::unpack(&prepared.packed, &folder.path()).expect("it was packed here");
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
        // Again, and now it works.
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
            // The committer that waits in a delete takes no writes meanwhile.
            if self.work != "delete" {
                life.write_again(&client, 40);
                life.delete(&client);
                life.check(&client, &format!("{context}, written to while waiting"));
            }
            assert!(!work.is_finished(), "{context}: answered before it was done");
            drop(gate);
            let answer = work.join().expect("the work is answered");
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
        let gone = server.wait_gone(PATIENCE);
        assert!(
            gone.is_ok_and(|status| status.code().is_none()),
            "{context}: it was killed"
        );
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

    /// What the work needs; and what is deleted, where it is a delete.
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

    /// Makes the work begin and waits until it is done; status and body, `None` without an answer.
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

/// Everything moves to its end, and stays what it is.
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

/// Expired points are freed as soon as they are hidden; nothing else is done unasked after the start.
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
