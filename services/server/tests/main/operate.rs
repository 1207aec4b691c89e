//! Tests of tables, jobs, deletes, exports, watches, `top` and `ready` from the command line; completions and manual
//! pages.
//!
//! They check output texts, exit statuses and that exported points can be written again.

use std::process::Command;

use crate::lab::{Lab, Pretender, at_home, ended};
use crate::process::{output, text, tideline};

/// Points with all value types of line protocol, in two measurements.
const POINTS: &str = "\
all,host=a\\ b,t=1\\,2 f=0.1,i=-7i,u=18446744073709551615u,b=true,s=\"two\nlines, \\\"quoted\\\" \\\\\" 1700000000123456789
all,host=a\\ b,t=1\\,2 f=1e300,i=9007199254740993i,u=5u 1700000001000000000
all,host=c f=-0.3333333333333333,b=false -5
un\\,usual,k=v fie\\ ld=1 1
un\\,usual,k=v fie\\ ld=2i 2
";

#[test]
fn pages_of_an_export_are_bounded_in_bytes() {
    const POINTS: u64 = 300;
    let long = "x".repeat(200_000);
    let server = Pretender::start(move |_, request| {
        if request.head.starts_with("GET") {
            let field = r#"{"measurement":"m","field":"s","types":["string"]}"#;
            return (200, "", format!(r#"{{"fields":[{field}]}}"#));
        }
        if request.head.starts_with("POST /v1/tables/default/explain") {
            return (200, "", r#"{"plan":{"timelines":1}}"#.to_owned());
        }
        let query: serde_json::Value = serde_json::from_slice(&request.body).expect("JSON");
        let first = query["page"]
            .as_str()
            .map_or(0, |page| page.parse().expect("a number"));
        let end = POINTS.min(first + query["limit"].as_u64().expect("a number"));
        let points: Vec<String> = (first..end).map(|n| format!(r#"[{n},"{long}"]"#)).collect();
        let next = match end < POINTS {
            true => format!("\"{end}\""),
            false => "null".to_owned(),
        };
        let points = points.join(",");
        let series =
            format!(r#"{{"measurement":"m","tags":{{}},"columns":["time","s"],"points":[{points}]}}"#);
        (200, "", format!(r#"{{"series":[{series}],"next":{next}}}"#))
    });
    let home = tempfile::tempdir().expect("a folder");
    let ended = ended(at_home(&["export", "--server", &server.url], home.path()));
    assert_eq!((ended.code, ended.out.lines().count()), (0, 300), "{}", ended.err);
    let limits: Vec<u64> = server
        .requests()
        .iter()
        .filter_map(|request| {
            serde_json::from_slice::<serde_json::Value>(&request.body).ok()?["limit"].as_u64()
        })
        .collect();
    // The first response of 60 MB is rejected; later pages are sized to about 4 MiB.
    assert_eq!(limits[..2], [1_000, 125]);
    assert!(
        limits[2..].iter().all(|limit| (15..25).contains(limit)),
        "{limits:?}"
    );
}

#[test]
fn histograms_are_left_out_of_exports_and_counted_whatever_their_text() {
    let server = Pretender::start(|_, request| {
        if request.head.starts_with("GET") {
            let field =
                |name: &str, of: &str| format!(r#"{{"measurement":"m","field":"{name}","types":["{of}"]}}"#);
            let fields = [field("h", "histogram"), field("v", "float")].join(",");
            return (200, "", format!(r#"{{"fields":[{fields}]}}"#));
        }
        let query: serde_json::Value = serde_json::from_slice(&request.body).expect("JSON");
        if !query["aggregate"].is_null() {
            assert_eq!(query["fields"], serde_json::json!(["h"]));
            return (
                200,
                "",
                r#"{"series":[{"points":[["2026-01-01T00:00:00Z",3]]}]}"#.to_owned(),
            );
        }
        let points = r#"[1,"{{schema:0 count:1 sum:1 buckets:[1]}}",1.5],[2,"{{unreadable: it ends early}}",null],[3,"{{}}",2.5]"#;
        let series =
            format!(r#"{{"measurement":"m","tags":{{}},"columns":["time","h","v"],"points":[{points}]}}"#);
        (200, "", format!(r#"{{"series":[{series}],"next":null}}"#))
    });
    let home = tempfile::tempdir().expect("a folder");
    let file = home.path().join("m.parquet").display().to_string();
    let export = |more: &[&str]| {
        let arguments = [&["export", "--server", &server.url][..], more].concat();
        ended(at_home(&arguments, home.path()))
    };
    for format in ["lp", "ndjson"] {
        let ended = export(&["--format", format]);
        assert_eq!((ended.code, ended.out.lines().count()), (1, 2), "{ended:?}");
        assert!(ended.err.contains("3 values were omitted"), "{ended:?}");
    }
    let ended = export(&["--format", "parquet", "--out", &file]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.err.contains("3 values are histograms"), "{ended:?}");
    let other = export(&["--format", "parquet", "--out", &file, "--field", "v"]);
    assert_eq!(other.code, 0, "{other:?}");
}

#[test]
fn what_is_exported_is_the_same_when_it_is_written_again() {
    let lab = Lab::start();
    let file = lab.file("in.lp", POINTS);
    lab.ok(&["write", &file, "-q"]);
    let mut many = String::new();
    for n in 0..45_000 {
        many.push_str(&format!(
            "many,host=h{} v={n} {}\n",
            n % 7,
            1_700_000_000_000_000_000_i64 + n
        ));
    }
    let many = lab.file("many.lp", many);
    lab.ok(&["write", &many, "-q"]);
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let first = lab.ok(&["export"]);
    assert_eq!(
        first.lines().count(),
        45_006,
        "five points, one of them on two lines, and many"
    );
    // NDJSON members have a fixed order, so sorted lines can be compared.
    let points = |table: &str| sorted(&lab.ok(&["export", "--format", "ndjson", "--table", table]));
    for format in ["lp", "ndjson"] {
        let file = lab.path(&format!("out.{format}")).display().to_string();
        let table = format!("copy-{format}");
        lab.ok(&["export", "--format", format, "--out", &file]);
        lab.ok(&["tables", "create", &table]);
        lab.ok(&["write", &file, "-q", "--table", &table]);
        assert!(points(&table) == points("default"), "{format}");
    }
    let types = |table: &str| lab.ok(&["fields", "--table", table]);
    for copy in ["copy-lp", "copy-ndjson"] {
        assert_eq!(types(copy), types("default"), "{copy}");
    }
    assert!(
        lab.ok(&["export", "-m", "all", "--format", "csv"])
            .starts_with("id,measurement,host,t,time,")
    );

    // Line protocol cannot represent NaN.
    let odd = lab.file(
        "odd.ndjson",
        r#"{"measurement":"odd","time":1,"fields":{"x":{"float":"NaN"},"y":1.5}}"#,
    );
    lab.ok(&["write", &odd, "-q"]);
    let ended = lab.run(&["export", "-m", "odd"]);
    assert_eq!((ended.code, &*ended.out), (1, "odd y=1.5 1\n"), "{ended:?}");
    assert!(
        ended
            .err
            .contains("1 values were omitted, because line protocol cannot represent them"),
        "{ended:?}"
    );
    let whole = lab.run(&["export", "-m", "odd", "--format", "ndjson"]);
    assert!(
        whole.code == 0 && whole.out.contains(r#""x":{"float":"NaN"}"#),
        "{whole:?}"
    );
}

#[test]
fn tables_are_made_described_altered_and_dropped() {
    let lab = Lab::start();
    let made = lab.ok(&[
        "tables",
        "create",
        "devices",
        "--model",
        "series",
        "--source-tag",
        "device",
        "--set",
        "retention=90d",
    ]);
    assert_eq!(made, "created table devices\n");
    let list = lab.ok(&["tables", "list"]);
    let row = list
        .lines()
        .find(|line| line.starts_with("devices"))
        .expect("it is there");
    assert!(
        row.contains("series") && row.contains("90d") && row.ends_with("device"),
        "{list}"
    );
    let previewed = lab.ok(&["tables", "policy", "devices", "--set", "hot_ttl=2d", "--preview"]);
    assert!(
        previewed.contains("moves to cold") && previewed.contains("hot_ttl                2d"),
        "{previewed}"
    );
    let policy = |more: &[&str]| lab.ok(&[&["tables", "policy", "devices"], more].concat());
    assert!(
        policy(&[]).contains("hot_ttl                7d"),
        "a preview changes nothing"
    );
    assert!(
        policy(&["--set", "hot_ttl=2d", "--set", "retention=null"]).contains("retention              none")
    );
    let wrong = lab.run(&["tables", "policy", "devices", "--set", "hot_ttl=soon"]);
    assert_eq!(wrong.code, 1);
    assert!(wrong.err.contains("policy.hot_ttl"), "{wrong:?}");

    let file = lab.file("in.lp", "m,device=d v=1 1\n");
    lab.ok(&["write", &file, "-q", "--table", "devices"]);
    let shown = lab.ok(&["tables", "show", "devices"]);
    assert!(
        shown.starts_with("table devices, created ") && shown.contains(", synced, series, 1 timelines"),
        "{shown}"
    );
    let unasked = lab.run(&["tables", "drop", "devices"]);
    assert_eq!(unasked.code, 2, "there is no terminal to confirm: {unasked:?}");
    assert!(
        unasked.err.contains("1 points of 1 timelines") && unasked.err.contains("--yes"),
        "{unasked:?}"
    );
    lab.ok(&["tables", "drop", "devices", "--yes"]);
    let gone = lab.run(&["tables", "show", "devices"]);
    assert!(gone.code == 1 && gone.err.contains("404 not_found"), "{gone:?}");
}

#[test]
fn jobs_are_run_watched_and_listed() {
    let lab = Lab::start();
    let file = lab.file(
        "in.lp",
        "old,host=a v=1 1600000000000000000\nold,host=a v=2 1600000001000000000\n",
    );
    lab.ok(&["write", &file, "-q"]);
    let sealed = lab.ok(&["jobs", "run", "seal"]);
    assert!(
        sealed.contains("100%") && sealed.contains("2 points are in"),
        "{sealed}"
    );
    let waited = lab.ok(&["jobs", "run", "seal", "--wait"]);
    assert!(waited.contains("seal of all tables, done 100%"), "{waited}");
    let seals = lab.ok(&["jobs", "list", "--kind", "seal", "--state", "done"]);
    assert_eq!(seals.matches("100%").count(), 2, "{seals}");
    lab.ok(&["delete", "-m", "old", "--to", "1600000000500000000", "--yes"]);
    let purged = lab.ok(&["jobs", "run", "purge", "--wait"]);
    let last = purged.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("job ") && last.contains("purge of default, done 100%"),
        "{purged}"
    );
    let list = lab.ok(&["jobs", "list", "--state", "done", "--kind", "purge"]);
    let id = list
        .lines()
        .nth(2)
        .and_then(|row| row.split_whitespace().next())
        .expect("a job")
        .to_owned();
    assert!(lab.ok(&["jobs", "show", &id]).contains("purge"));
    assert!(
        lab.ok(&["jobs", "watch", &id, "--json"])
            .contains("\"state\":\"done\"")
    );
    let late = lab.run(&["jobs", "cancel", &id]);
    assert!(late.code == 1 && late.err.contains("409 conflict"), "{late:?}");
    assert_eq!(lab.run(&["jobs", "show", "999999"]).code, 1);
    let alone = lab.run(&["jobs", "run", "restore"]);
    assert!(
        alone.code == 2 && alone.err.contains("clean_catalog"),
        "{alone:?}"
    );
    assert_eq!(lab.ok(&["jobs", "list", "--kind", "restore"]).lines().count(), 2);
}

#[test]
fn deletes_say_what_they_mean() {
    let lab = Lab::start();
    let file = lab.file("in.lp", "m,host=a v=1 1\nm,host=a v=2 5\nm,host=b v=3 1\n");
    lab.ok(&["write", &file, "-q"]);
    for wrong in [
        &["delete", "--all-time", "--yes"][..],
        &["delete", "-m", "m", "--yes"],
        &["delete"],
    ] {
        assert_eq!(lab.run(wrong).code, 2, "{wrong:?}");
    }
    let dry = lab.run(&["delete", "-w", "host=a", "--to", "3ns", "--dry-run"]);
    assert!(
        dry.code == 0
            && dry
                .out
                .starts_with("would delete points of 1 timelines of table default"),
        "{dry:?}"
    );
    assert!(dry.err.contains("host=a"), "{dry:?}");
    assert_eq!(
        lab.run(&["delete", "-w", "host=a", "--to", "3ns"]).code,
        2,
        "there is no terminal to confirm"
    );
    assert_eq!(lab.ok(&["export"]).lines().count(), 3);
    lab.ok(&["delete", "-w", "host=a", "--to", "3ns", "--yes"]);
    let left = lab.ok(&["export"]);
    let mut left: Vec<&str> = left.lines().collect();
    left.sort_unstable();
    assert_eq!(left, ["m,host=a v=2 5", "m,host=b v=3 1"]);
    lab.ok(&["delete", "--all-timelines", "--all-time", "--yes"]);
    assert_eq!(lab.ok(&["export"]), "");
}

#[test]
fn a_running_server_can_be_watched() {
    let lab = Lab::start();
    let file = lab.file("in.lp", "m,host=a v=1,w=2 1\nm,host=b v=3,w=4 1\n");
    lab.ok(&["write", &file, "-q"]);
    let seen = lab.ok(&["top", "--count", "2", "--interval", "100ms"]);
    assert_eq!(seen.matches(": reads ready, writes ready; ").count(), 2, "{seen}");
    assert!(seen.contains("points             0      2"), "{seen}");
    let mut lines = seen.lines().map(str::split_whitespace);
    assert!(lines.any(|cells| cells.take(2).eq(["head", "2"])), "{seen}");
    assert!(seen.contains("/metrics"), "{seen}");
    let json = lab.ok(&["top", "--count", "1", "--interval", "100ms", "--json"]);
    assert!(
        json.contains("\"head_points\":2") && json.contains("\"points_per_second\":0.0"),
        "{json}"
    );
    assert_eq!(lab.run(&["top", "--interval", "0s"]).code, 2);
}

#[test]
fn new_points_and_timelines_are_followed() {
    let lab = Lab::start();
    let begin = lab.ok(&["watch", "--for", "0s", "--json"]);
    let begin: serde_json::Value = serde_json::from_str(&begin).expect("an event");
    assert_eq!(
        (&begin["event"], &begin["id"]),
        (&"ready".into(), &begin["cursor"])
    );
    let id = begin["id"].as_str().expect("a text");
    let file = lab.file("in.lp", "m,host=a v=1,s=\"x\" 1\nm,host=b v=2 2\n");
    lab.ok(&["write", &file, "-q"]);
    let told = lab.ok(&["watch", "--from", id, "--for", "0s", "-w", "host=a"]);
    assert_eq!(told, "1970-01-01T00:00:00.000000001Z  m host=a  v=1.0 s=x\n");
    let told = lab.ok(&["watch", "--from", id, "--for", "0s", "--timelines", "--json"]);
    let told: Vec<serde_json::Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(told[1]["timelines"].as_array().map(Vec::len), Some(2), "{told:?}");
    let refused = lab.run(&["watch", "--from", "nonsense"]);
    assert!(
        refused.code == 1 && refused.err.contains("cursor"),
        "{}",
        refused.err
    );
}

#[test]
fn a_server_reports_whether_it_is_ready() {
    let lab = Lab::start();
    assert_eq!(lab.ok(&["ready"]), "ready\n");
    assert!(lab.ok(&["ready", "--json"]).contains("\"ready\":true"));
    let server = Pretender::start(|_, _| {
        let body = r#"{"reads":true,"writes":false,"reasons":["the disk is nearly full"]}"#;
        (503, "", body.to_owned())
    });
    let home = tempfile::tempdir().expect("a folder");
    let ended = ended(at_home(&["ready", "--server", &server.url], home.path()));
    assert!(
        ended.code == 1 && ended.err.contains("nearly full"),
        "{}",
        ended.err
    );
}

#[test]
fn shells_and_manuals_know_the_command_line() {
    for (shell, mark) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef tideline"),
        ("fish", "complete -c tideline"),
    ] {
        let script = text(&output(tideline(&["completions", shell])).stdout);
        assert!(script.contains(mark) && script.contains("batch-rows"), "{shell}");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = folder.path().join("tideline.bash");
    std::fs::write(&script, output(tideline(&["completions", "bash"])).stdout).expect("a file");
    let line = "source \"$0\"; COMP_WORDS=(tideline ta); COMP_CWORD=1; _tideline tideline ta tideline; echo ${COMPREPLY[@]}";
    let answered = Command::new("bash")
        .args(["-c", line])
        .arg(&script)
        .output()
        .expect("bash runs");
    assert_eq!(
        text(&answered.stdout),
        "tags tables\n",
        "{}",
        text(&answered.stderr)
    );

    let mut command = tideline(&["man"]);
    command.arg(folder.path().join("man1"));
    assert!(text(&output(command).stdout).contains(" pages in "));
    let page = |name: &str| std::fs::read_to_string(folder.path().join("man1").join(name)).expect(name);
    let write = page("tideline-write.1");
    assert!(
        write.contains(".TH tideline-write 1")
            && write.contains("\\-\\-resume")
            && write.contains("Examples:")
    );
    for name in [
        "tideline.1",
        "tideline-tables-policy.1",
        "tideline-jobs-watch.1",
        "tideline-man.1",
    ] {
        assert!(page(name).contains(".SH SYNOPSIS"), "{name}");
    }
}
