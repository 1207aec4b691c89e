//! Tests of retries and resumed runs of `tideline write`: parts of a batch, grown files, later runs, a server that
//! stops responding.
//!
//! A fake server returns chosen responses, and the tests compare the bodies and keys of the requests.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::lab::{Ended, Pretender, at_home, ended};
use crate::process::text;

fn report(points: u64, rejected: u64, rejects: &str, retryable: u64) -> String {
    format!(
        r#"{{"points":{points},"values":{points},"rejected":{rejected},"rejects":[{rejects}],"retryable":{retryable},
        "repeated":false,"request_id":"r"}}"#
    )
}

fn reject(line: u32, retryable: bool) -> String {
    format!(r#"{{"line":{line},"reason":"no {line}","excerpt":"x","retryable":{retryable}}}"#)
}

/// Runs a command line in a folder against a server.
fn run(home: &std::path::Path, server: &Pretender, line: &[&str]) -> Ended {
    let mut line = line.to_vec();
    line.extend(["--server", &server.url]);
    ended(at_home(&line, home))
}

#[test]
fn of_a_batch_only_what_was_refused_for_now_is_sent_again() {
    let home = tempfile::tempdir().expect("a folder");
    let text = "a v=1\nb s=\"x\ny\"\nnonsense\nc v=1\nd v=1\n";
    std::fs::write(home.path().join("a.lp"), text).expect("a file");
    let server = Pretender::start(|number, _| match number {
        // Lines 2, 4 and 5 are rejected; line 4 permanently.
        0 => {
            let rejects = [reject(2, true), reject(4, false), reject(5, true)].join(",");
            (200, "retry-after: 1\r\n", report(2, 3, &rejects, 2))
        }
        // Both remaining lines are refused again, so the whole body gets 429.
        1 => {
            let rejects = [reject(1, true), reject(3, true)].join(",");
            let body = format!(
                r#"{{"code":"too_many_timelines","message":"none of 2","retryable":true,"rejects":[{rejects}]}}"#
            );
            (429, "retry-after: 1\r\n", body)
        }
        // One of these two lines is stored, the other line is invalid.
        _ => (200, "", report(1, 1, &reject(3, false), 0)),
    });
    let ended = run(
        home.path(),
        &server,
        &["write", "a.lp", "--json", "--rejects", "bad"],
    );
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(
        ended.out.contains("\"points\":3") && ended.out.contains("\"rejected\":2"),
        "{ended:?}"
    );
    let requests = server.requests();
    let bodies: Vec<String> = requests.iter().map(|request| self::text(&request.body)).collect();
    assert_eq!(bodies, [text, "b s=\"x\ny\"\nc v=1\n", "b s=\"x\ny\"\nc v=1\n"]);
    let keys: Vec<_> = requests
        .iter()
        .map(|request| request.header("idempotency-key"))
        .collect();
    assert!(keys[0] != keys[1] && keys[1] == keys[2], "{keys:?}");
    let times: Vec<&str> = requests
        .iter()
        .filter_map(|request| request.head.split_once("&time=")?.1.split(' ').next())
        .collect();
    assert!(
        times.len() == 3 && times[0].len() == 19 && times.iter().all(|time| time == &times[0]),
        "lines without a time keep it: {times:?}"
    );
    let kept = std::fs::read_to_string(home.path().join("bad")).expect("rejects");
    assert_eq!(kept, "# a.lp:4: no 4\nnonsense\n# a.lp:5: no 3\nc v=1\n");
}

#[test]
fn what_the_server_does_not_name_is_sent_again_and_counted_once() {
    let home = tempfile::tempdir().expect("a folder");
    std::fs::write(home.path().join("a.lp"), "a v=1\nb v=1\nc v=1\nd v=1\ne v=1\n").expect("a file");
    let server = Pretender::start(|number, _| match number {
        // Lines 2 and 4 are rejected, but only line 2 is named.
        0 => (200, "retry-after: 1\r\n", report(3, 2, &reject(2, true), 2)),
        _ => (200, "", report(4, 0, "", 0)),
    });
    let ended = run(home.path(), &server, &["write", "a.lp", "--json"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(
        ended.out.contains("\"points\":5") && ended.out.contains("\"values\":5"),
        "{ended:?}"
    );
    assert_eq!(text(&server.requests()[1].body), "b v=1\nc v=1\nd v=1\ne v=1\n");
}

#[test]
fn a_pipe_is_given_up_when_nothing_can_be_sent() {
    let home = tempfile::tempdir().expect("a folder");
    let server = Pretender::start(|_, _| (401, "", r#"{"code":"unauthenticated","message":"no"}"#.into()));
    let mut command = at_home(
        &["write", "-", "--batch-bytes", "1KiB", "--server", &server.url],
        home.path(),
    );
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    let mut input = child.stdin.take().expect("it is piped");
    input
        .write_all("a v=1 1\n".repeat(1_000).as_bytes())
        .expect("it reads");
    // The pipe is still open, because the test holds its writing end.
    let begun = Instant::now();
    let output = child.wait_with_output().expect("it ends");
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("401 unauthenticated"), "{output:?}");
    drop(input);
}

#[test]
fn a_server_that_falls_silent_ends_a_command() {
    let home = tempfile::tempdir().expect("a folder");
    std::fs::write(home.path().join("a.lp"), "a v=1 1\n".repeat(2_000_000)).expect("a file");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("it listens"));
    let (done, until) = mpsc::channel::<()>();
    let silent = std::thread::spawn(move || {
        let mut held = Vec::new();
        // On the first connection the server never reads. On the second it starts a response and stops.
        let mut answers = [false, true].into_iter();
        while let (Some(answers), Ok((mut stream, _))) = (answers.next(), listener.accept()) {
            if answers {
                let mut head = [0; 4_096];
                let _ = stream.read(&mut head);
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
                    .expect("it is read");
            }
            held.push(stream);
        }
        let _ = until.recv();
    });
    for line in [
        &[
            "write",
            "a.lp",
            "--batch-bytes",
            "16MiB",
            "--batch-rows",
            "1000000",
            "--parallel",
            "1",
        ][..],
        &["tables", "list"],
    ] {
        let mut line = line.to_vec();
        line.extend(["--server", &url, "--timeout", "1s"]);
        if line[0] == "write" {
            line.extend(["--patience", "0s"]);
        }
        let begun = Instant::now();
        let ended = ended(at_home(&line, home.path()));
        assert!(begun.elapsed() < Duration::from_secs(30), "{line:?}");
        assert_eq!(ended.code, 1, "{line:?}: {ended:?}");
        assert!(
            ended.err.contains("cannot reach http://127.0.0.1"),
            "{line:?}: {ended:?}"
        );
        if line[0] == "write" {
            assert!(ended.err.contains("timeout"), "{ended:?}");
        }
    }
    drop(done);
    silent.join().expect("it ends");
}

#[test]
fn a_resumed_run_reads_as_the_first_one_did() {
    let home = tempfile::tempdir().expect("a folder");
    std::fs::write(home.path().join("a.lp"), "a v=1 1\n").expect("a file");
    let server = Pretender::start(|_, _| (200, "", report(1, 0, "", 0)));
    let write = |more: &[&str]| {
        let line = [&["write", "a.lp", "--resume", "r"][..], more].concat();
        run(home.path(), &server, &line)
    };
    assert_eq!(write(&["--precision", "s"]).code, 0);
    assert_eq!(
        write(&["--precision", "s", "--batch-rows", "5"]).code,
        0,
        "the batch size does not matter"
    );
    for (more, said) in [
        (&[][..], "a run with s for --precision, and this one has ns"),
        (
            &["--precision", "s", "--format", "lp"],
            "a run with nothing for --format, and this one has lp",
        ),
        (
            &["--precision", "s", "--table", "other"],
            "belongs to a run into table default",
        ),
    ] {
        let ended = write(more);
        assert!(ended.code == 2 && ended.err.contains(said), "{more:?}: {ended:?}");
    }
    assert_eq!(server.requests().len(), 1, "it was there already");

    std::fs::write(home.path().join("a.csv"), "ts,host,v,w\n1,a,1,2\n").expect("a file");
    let csv = |more: &[&str]| {
        let line = [
            "write",
            "a.csv",
            "--resume",
            "c",
            "--measurement",
            "m",
            "--time",
            "ts",
            "--time-format",
            "s",
        ];
        run(home.path(), &server, &[&line[..], more].concat())
    };
    assert_eq!(csv(&["--tag", "host"]).code, 0);
    let ended = csv(&["--tag", "host", "--field", "v"]);
    assert!(
        ended.code == 2 && ended.err.contains("for --field, and this one has [\"v\"]"),
        "{ended:?}"
    );
}

#[test]
fn a_record_at_whose_middle_a_file_ended_is_sent_again_when_it_has_grown() {
    let home = tempfile::tempdir().expect("a folder");
    let path = home.path().join("a.lp");
    let server = Pretender::start(|_, request| {
        let lines = request.body.iter().filter(|byte| **byte == b'\n').count() as u64;
        (200, "", report(lines.max(1), 0, "", 0))
    });
    let write = |text: &str| {
        std::fs::write(&path, text).expect("a file");
        let before = server.requests().len();
        let ended = run(
            home.path(),
            &server,
            &["write", "a.lp", "--resume", "r", "--parallel", "1"],
        );
        assert_eq!(ended.code, 0, "{ended:?}");
        let bodies: Vec<String> = server.requests()[before..]
            .iter()
            .map(|request| text_of(&request.body))
            .collect();
        (bodies, ended.err)
    };
    let whole = "a v=1 1\nb v=2 2\n";
    assert_eq!(write(&format!("{whole}c v=3 12")).0, [whole, "c v=3 12"]);
    assert_eq!(
        write(&format!("{whole}c v=3 12")).0,
        [""; 0],
        "nothing has changed"
    );
    let (bodies, said) = write(&format!("{whole}c v=3 12345\nd s=\"x\n"));
    assert_eq!(bodies, ["c v=3 12345\n", "d s=\"x\n"]);
    assert!(
        said.contains("a.lp:3: an earlier run sent only the first 8 bytes of this record"),
        "{said}"
    );
    // In the previous run, the file ended within this string.
    let (bodies, said) = write(&format!("{whole}c v=3 12345\nd s=\"x\ny\" 7\n"));
    assert_eq!(bodies, ["d s=\"x\ny\" 7\n"]);
    assert!(said.contains("a.lp:4: an earlier run"), "{said}");
    assert_eq!(write(&format!("{whole}c v=3 12345\nd s=\"x\ny\" 7\n")).0, [""; 0]);
}

fn text_of(bytes: &[u8]) -> String {
    text(bytes)
}

#[test]
fn rejects_of_an_earlier_run_are_remembered() {
    let home = tempfile::tempdir().expect("a folder");
    std::fs::write(home.path().join("a.lp"), "a v=1 1\nnonsense\n").expect("a file");
    let server = Pretender::start(|_, _| (200, "", report(1, 1, &reject(2, false), 0)));
    let write = || run(home.path(), &server, &["write", "a.lp", "--resume", "r"]);
    let first = write();
    assert!(
        first.code == 1 && first.err.contains("1 of 2 rows were not stored"),
        "{first:?}"
    );
    let second = write();
    assert_eq!(server.requests().len(), 1);
    assert!(
        second.code == 1 && second.err.contains("1 rows were not stored by earlier runs"),
        "{second:?}"
    );
    assert!(
        second
            .out
            .contains("were acknowledged before, 1 rows of them rejected"),
        "{second:?}"
    );
}
