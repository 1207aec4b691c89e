//! Tests of `tideline write`: the content of files is stored exactly once, even after failures.
//!
//! They cover input formats, rejects, a busy server, interrupted runs and usage errors.

use std::collections::BTreeSet;
use std::io::Write as _;

use crate::lab::{Lab, Pretender, at_home, ended};

/// Returns `each` points for each of `hosts` machines, one per line.
fn lines(hosts: usize, each: usize) -> String {
    let at = |n: usize| 1_700_000_000_000_000_000 + n as i64 * 1_000_000_000;
    let line = |n: usize| {
        format!(
            "cpu,host=h{} usage={}.5,n={n}i {}\n",
            n % hosts,
            n % 97,
            at(n / hosts)
        )
    };
    (0..hosts * each).map(line).collect()
}

fn count(lab: &Lab, measurement: &str, field: &str) -> String {
    let csv = lab.ok(&[
        "query",
        "-m",
        measurement,
        "-f",
        field,
        "--fn",
        "count",
        "-o",
        "csv",
    ]);
    csv.lines()
        .nth(1)
        .and_then(|row| row.rsplit(',').next())
        .unwrap_or("0")
        .to_owned()
}

fn stored(points: u64) -> String {
    format!(
        r#"{{"points":{points},"values":{points},"rejected":0,"rejects":[],"retryable":0,"repeated":false,"request_id":"r"}}"#
    )
}

#[test]
fn files_folders_packed_ones_and_standard_input_arrive() {
    let lab = Lab::start();
    std::fs::create_dir_all(lab.path("in/deeper")).expect("a folder");
    let text = lines(50, 200);
    let parts: Vec<&str> = text.split_inclusive('\n').collect();
    lab.file("in/a.lp", parts[..4_000].concat());
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed
        .write_all(parts[4_000..6_000].concat().as_bytes())
        .expect("memory");
    lab.file("in/b.txt.gz", packed.finish().expect("memory"));
    let packed = zstd::encode_all(parts[6_000..8_000].concat().as_bytes(), 1).expect("memory");
    lab.file("in/deeper/c.lp.zst", packed);
    lab.file("in/notes.md", "not for us");
    let folder = lab.path("in").display().to_string();
    let said = lab.ok(&["write", &folder, "--batch-bytes", "16KiB"]);
    assert!(
        said.starts_with("8,000 points (16,000 values) of 3 files"),
        "{said}"
    );
    let fed = lab.feed(&["write", "--json", "-"], parts[8_000..].concat().as_bytes());
    assert_eq!(fed.code, 0, "{fed:?}");
    assert!(
        fed.out.contains("\"points\":2000") && fed.err.is_empty(),
        "{fed:?}"
    );
    assert_eq!(count(&lab, "cpu", "n"), "10000");
}

#[test]
fn what_is_rejected_is_kept_with_its_reason_and_can_be_mended() {
    let lab = Lab::start();
    let bad = lab.file(
        "bad.lp",
        "a v=1 1\nnonsense\na v=2 2\na s=\"x\ny\",v=oops 3\n\na v=4 4\n",
    );
    let rejects = lab.path("rejects.lp").display().to_string();
    let ended = lab.run(&["write", &bad, "--rejects", &rejects]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.err.contains("2 of 5 rows were not stored"), "{ended:?}");
    let kept = std::fs::read_to_string(&rejects).expect("it is there");
    let kept: Vec<&str> = kept.lines().collect();
    assert!(
        kept[0].starts_with(&format!("# {bad}:2: ")) && kept[1] == "nonsense",
        "{kept:?}"
    );
    assert!(
        kept[2].starts_with(&format!("# {bad}:4: ")) && kept[2].contains("oops"),
        "{kept:?}"
    );
    assert_eq!(kept[3..], ["a s=\"x", "y\",v=oops 3"]);
    let mended = std::fs::read_to_string(&rejects)
        .expect("it is there")
        .replace("oops", "3")
        .replace("nonsense", "");
    let mended = lab.file("mended.lp", mended);
    assert!(lab.ok(&["write", &mended]).starts_with("1 points"));
    assert_eq!(count(&lab, "a", "v"), "4");
}

#[test]
fn rejects_beyond_those_that_the_server_names_are_kept_too() {
    let lab = Lab::start();
    lab.file("first.lp", "m,host=a v=1 1\n");
    lab.ok(&["write", &lab.path("first.lp").display().to_string()]);
    let text: String = (0..1_500).map(|n| format!("m,host=a v=\"text\" {n}\n")).collect();
    lab.file("texts.lp", text);
    let rejects = lab.path("rejects.lp").display().to_string();
    let texts = lab.path("texts.lp").display().to_string();
    let ended = lab.run(&["write", &texts, "--rejects", &rejects]);
    assert_eq!(ended.code, 1, "{ended:?}");
    let kept = std::fs::read_to_string(&rejects).expect("it is there");
    let rows = kept.lines().filter(|line| line.starts_with("m,host=a")).count();
    assert_eq!(rows, 1_500);
    assert!(
        kept.contains("# ") && kept.contains("500 of these rows after line 1000"),
        "{}",
        &kept[..200]
    );
}

#[test]
fn what_is_read_is_never_written_into() {
    let lab = Lab::start();
    lab.file("in.lp", "m,host=a v=1 1\n");
    let file = lab.path("in.lp").display().to_string();
    for output in ["--rejects", "--resume"] {
        let ended = lab.run(&["write", &file, output, &file]);
        assert!(
            ended.code == 2 && ended.err.contains("is one of the files to send"),
            "{ended:?}"
        );
        let kept = std::fs::read_to_string(&file).expect("it is there");
        assert_eq!(kept, "m,host=a v=1 1\n");
    }
}

#[test]
fn csv_and_ndjson_become_points() {
    let lab = Lab::start();
    let rooms = lab.file(
        "rooms.csv",
        "ts,host,temperature,note\n1700000000,attic,21,\"two\nlines\"\n1700000060,attic,x,\n1700000120,attic,22,\n",
    );
    let mapping = [
        "--measurement",
        "room",
        "--tag",
        "host",
        "--field",
        "temperature:float",
        "--field",
        "note",
        "--time",
        "ts",
        "--time-format",
        "s",
    ];
    let rejects = lab.path("bad.csv").display().to_string();
    let mut line = vec!["write", &*rooms, "--rejects", &*rejects];
    line.extend(mapping);
    let ended = lab.run(&line);
    assert_eq!(ended.code, 1, "{ended:?}");
    let kept = std::fs::read_to_string(&rejects).expect("it is there");
    assert!(
        kept.starts_with(&format!("# {rooms}:4: ")) && kept.ends_with("\n1700000060,attic,x,\n"),
        "{kept}"
    );
    let shown = lab.ok(&["query", "-m", "room", "-o", "ndjson"]);
    assert!(
        shown.contains(r#""host":"attic""#) && shown.contains(r#""temperature":21.0"#),
        "{shown}"
    );
    assert!(
        shown.contains(r#""note":"two\nlines""#) && shown.contains("2023-11-14T22:13:20Z"),
        "{shown}"
    );

    let points = "{\"measurement\":\"k\",\"time\":1,\"fields\":{\"n\":1}}\n{\"measurement\":\"k\",\"time\":2,\"fields\":{\"n\":2}}\n";
    let points = lab.file("points.jsonl", points);
    assert!(
        lab.ok(&["write", &points, "--precision", "s"])
            .starts_with("2 points")
    );
    assert!(
        lab.ok(&["query", "-m", "k", "-o", "csv"])
            .contains("1970-01-01T00:00:02Z,2")
    );

    let wrong = lab.run(&["write", &rooms, "--measurement", "room", "--tag", "hosst"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(
        wrong
            .err
            .contains("there is no column \"hosst\"; the columns are: ts, host"),
        "{wrong:?}"
    );
}

#[test]
fn a_busy_server_is_waited_for_and_nothing_is_sent_under_a_new_key() {
    let home = tempfile::tempdir().expect("a folder");
    let file = home.path().join("a.lp");
    std::fs::write(&file, lines(1, 10)).expect("a file");
    let busy = Pretender::start(|number, _| match number {
        0 => (
            503,
            "retry-after: 1\r\n",
            r#"{"code":"overloaded","message":"too much","retryable":true}"#.into(),
        ),
        1 => (
            429,
            "",
            r#"{"code":"too_many_timelines","message":"later","retryable":true}"#.into(),
        ),
        _ => (200, "", stored(10)),
    });
    let begun = std::time::Instant::now();
    let mut command = at_home(&["write", "a.lp", "--json", "--server", &busy.url], home.path());
    command.env("TIDELINE_SERVER", "http://127.0.0.1:1");
    let ended = ended(command);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(
        begun.elapsed().as_secs_f64() >= 1.0,
        "as long as the server requests"
    );
    assert!(
        ended.out.contains("\"retries\":2") && ended.out.contains("\"points\":10"),
        "{ended:?}"
    );
    let requests = busy.requests();
    assert_eq!(requests.len(), 3);
    let keys: BTreeSet<_> = requests
        .iter()
        .map(|request| request.header("idempotency-key"))
        .collect();
    assert!(keys.len() == 1 && !keys.contains(&None), "{keys:?}");
}

#[test]
fn an_interrupted_run_goes_on_and_sends_nothing_acknowledged_again() {
    let home = tempfile::tempdir().expect("a folder");
    let text = lines(10, 2_000);
    std::fs::write(home.path().join("a.lp"), &text).expect("a file");
    // Six batches are stored, then the token is rejected; later it is accepted again.
    let server = Pretender::start(|number, _| match number {
        6..=9 => (
            401,
            "",
            r#"{"code":"unauthenticated","message":"no token","request_id":"abc"}"#.into(),
        ),
        _ => (200, "", stored(1)),
    });
    let run = || {
        let line = [
            "write",
            "a.lp",
            "--batch-bytes",
            "16KiB",
            "--parallel",
            "2",
            "--resume",
            "r",
            "--server",
            &server.url,
        ];
        ended(at_home(&line, home.path()))
    };
    let first = run();
    assert_eq!(first.code, 1, "{first:?}");
    assert!(
        first.err.contains("no token") && first.err.contains("request  abc"),
        "{first:?}"
    );
    let sent_first = server.requests().len();
    // Further runs fail in the same way, until the token is accepted.
    while server.requests().len() < 10 {
        assert_eq!(run().code, 1);
    }
    let second = run();
    assert_eq!(second.code, 0, "{second:?}");
    assert!(second.out.contains("were acknowledged before"), "{second:?}");
    let requests = server.requests();
    assert!(sent_first <= 8);
    let stored = requests
        .iter()
        .enumerate()
        .filter(|(number, _)| !(6..=9).contains(number));
    let mut got: Vec<&str> = Vec::new();
    for (_, request) in stored {
        got.extend(std::str::from_utf8(&request.body).expect("text").lines());
    }
    let mut wanted: Vec<&str> = text.lines().collect();
    got.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(got.len(), wanted.len(), "each line once");
    assert!(got == wanted);

    let third = run();
    assert_eq!(
        (third.code, server.requests().len()),
        (0, requests.len()),
        "nothing is left to send: {third:?}"
    );
    let other = ended(at_home(
        &["write", "a.lp", "--resume", "r", "--server", "http://127.0.0.1:1"],
        home.path(),
    ));
    assert_eq!(other.code, 2, "{other:?}");
    assert!(
        other.err.contains("belongs to a run into table default"),
        "{other:?}"
    );

    // Only the bytes after the previous end of a grown file are sent.
    std::fs::write(home.path().join("a.lp"), format!("{text}grown v=1 1\n")).expect("a file");
    assert_eq!(run().code, 0);
    let bodies: Vec<Vec<u8>> = server.requests()[requests.len()..]
        .iter()
        .map(|request| request.body.clone())
        .collect();
    assert_eq!(bodies.concat(), b"grown v=1 1\n");
}

#[test]
fn wrong_usage_and_an_absent_server_are_distinguished() {
    let lab = Lab::start();
    let file = lab.file("a.dat", "a v=1 1\n");
    for (line, code, said) in [
        (
            &["write", &*file][..],
            2,
            "use --format lp, csv, ndjson or parquet",
        ),
        (
            &["write", &*file, "--format", "lp", "--tag", "x"],
            2,
            "apply to CSV and Parquet",
        ),
        (
            &["write", &*file, "--batch-bytes", "1GiB"],
            2,
            "from 1KiB to 16MiB",
        ),
        (&["write", "absent.lp"], 1, "absent.lp: No such file"),
        (
            &["write", &*file, "--format", "lp", "--table", "absent"],
            1,
            "table absent does not exist",
        ),
        (
            &[
                "write",
                &*file,
                "--format",
                "lp",
                "--server",
                "http://127.0.0.1:1",
                "--patience",
                "1ms",
            ],
            1,
            "cannot reach http://127.0.0.1:1",
        ),
    ] {
        let ended = lab.run(line);
        assert_eq!(ended.code, code, "{line:?}: {ended:?}");
        assert!(ended.err.contains(said), "{line:?}: {ended:?}");
    }
    let refused = lab.run(&["write", &file, "--format", "lp", "--table", "absent"]);
    assert!(
        refused.err.contains("404 not_found") && refused.err.contains("request  "),
        "{refused:?}"
    );
}
