//! Tests of searches, queries and the forms of times on the command line, and of the choice of the server that a
//! command uses.
//!
//! They use a real server for results and a fake server to inspect requests.

use crate::lab::{Lab, Pretender, at_home, ended};

/// Starts a server with points of two machines over a minute, and one point of a room.
fn filled() -> Lab {
    let lab = Lab::start();
    let mut text = String::new();
    for host in ["web-1", "web-2"] {
        for second in 0..60 {
            let time = (1_700_000_000 + second) * 1_000_000_000_i64;
            text.push_str(&format!(
                "cpu,dc=fra,host={host} usage={second}.0,n={second}i {time}\n"
            ));
        }
    }
    text.push_str("room,host=attic temperature=21.5,open=true 1700000000000000000\n");
    let file = lab.file("in.lp", text);
    lab.ok(&["write", &file, "--quiet"]);
    lab
}

const RANGE: [&str; 4] = ["--from", "2023-11-14T22:13:20Z", "--to", "2023-11-14T22:14:20Z"];

#[test]
fn all_ids_are_shown_however_many_pages_they_take() {
    let lab = Lab::start();
    let text: String = (0..10_050).map(|n| format!("m,host=h{n} v=1 1\n")).collect();
    let file = lab.file("in.lp", text);
    lab.ok(&["write", &file, "--quiet"]);
    let first = lab.run(&["find", "--ids", "--limit", "10000"]);
    assert!(
        first.out.lines().count() == 10_000 && first.err.contains("use --all for all"),
        "{}",
        first.err
    );
    let shown = lab.run(&["find", "--ids", "--all"]);
    let ids: std::collections::BTreeSet<&str> = shown.out.lines().collect();
    assert!(
        ids.len() == 10_050 && shown.err.is_empty(),
        "{} {}",
        ids.len(),
        shown.err
    );
    assert_eq!(lab.run(&["find", "--all"]).code, 2, "--all requires --ids");
    assert_eq!(lab.ok(&["find", "--ids", "--all", "host=h7"]).lines().count(), 1);
}

#[test]
fn timelines_are_found_by_typed_conditions() {
    let lab = filled();
    let ids = |conditions: &[&str]| {
        let mut line = vec!["find", "--ids"];
        line.extend(conditions);
        lab.ok(&line).lines().count()
    };
    assert_eq!(ids(&[]), 3);
    assert_eq!(ids(&["measurement=cpu"]), 2);
    assert_eq!(ids(&["host^=web-"]), 2);
    assert_eq!(ids(&["host^=web-", "host!=web-1"]), 1);
    assert_eq!(ids(&["host=~web-[1-9]|attic"]), 3);
    assert_eq!(ids(&["host!~web.*"]), 1);
    assert_eq!(ids(&["dc="]), 1, "a missing tag equals the empty text");
    assert_eq!(ids(&["last_seen<2023-11-14T22:13:30Z"]), 1);
    assert_eq!(ids(&[r#"{"not": {"tag": "dc", "exists": true}}"#]), 1);
    let table = lab.ok(&["find", "measurement=cpu", "--sort", "host", "--desc"]);
    let rows: Vec<&str> = table.lines().collect();
    assert!(
        rows[0].starts_with("measurement  tags") && rows[2].contains("dc=fra host=web-2"),
        "{table}"
    );
    assert!(table.ends_with("2 of 2\n"), "{table}");
    let json = lab.ok(&["find", "measurement=room", "--json"]);
    assert!(
        json.contains("\"total\":1") && json.contains("\"request_id\""),
        "{json}"
    );
    assert_eq!(lab.run(&["find", "host"]).code, 2);

    let tags = lab.ok(&["tags"]);
    assert_eq!(
        tags.lines().skip(2).collect::<Vec<_>>(),
        ["dc            2", "host          3"]
    );
    assert!(
        lab.ok(&["tags", "host", "--prefix", "web"])
            .contains("web-2          1")
    );
    let fields = lab.ok(&["fields", "room"]);
    assert!(
        fields.contains("temperature  float") && !fields.contains("usage"),
        "{fields}"
    );
}

#[test]
fn points_are_read_as_tables_charts_and_for_programs() {
    let lab = filled();
    let query = |more: &[&str]| {
        let mut line = vec!["query", "-m", "cpu", "-f", "usage"];
        line.extend(RANGE);
        line.extend(more);
        lab.ok(&line)
    };
    let table = query(&["--fn", "mean,max", "--window", "30s", "--group-by", "host"]);
    assert!(
        table.contains("measurement  host   time                  mean(usage)  max(usage)"),
        "{table}"
    );
    assert!(
        table.contains("cpu          web-2  2023-11-14T22:14:00Z"),
        "{table}"
    );
    let csv = query(&["--fn", "sum", "-o", "csv"]);
    assert_eq!(csv.lines().last(), Some("cpu,2023-11-14T22:13:20Z,3540.0"));
    assert_eq!(
        query(&["-w", "host=web-1", "-o", "ndjson"]).lines().count(),
        61,
        "sixty rows and the cost"
    );
    let json = query(&["--json", "--limit", "1", "--desc", "-w", "host=web-2"]);
    assert!(
        json.contains("[\"2023-11-14T22:14:19Z\",59.0]") && json.contains("\"more\":true"),
        "{json}"
    );
    let short = query(&["--limit", "5"]);
    assert!(
        short.contains("5 rows, and there are more: raise --limit"),
        "{short}"
    );

    let chart = query(&[
        "--fn",
        "mean",
        "--window",
        "1s",
        "--each",
        "--chart",
        "-w",
        "host=web-1",
    ]);
    assert!(chart.matches('█').count() > 100, "{chart}");
    assert!(
        chart.starts_with("cpu dc=fra host=web-1 mean(usage)\n") && chart.contains("59 ┤"),
        "{chart}"
    );
    assert!(
        chart.contains("2023-11-14T22:13:20Z") && chart.contains("2023-11-14T22:14:19Z"),
        "{chart}"
    );

    let body = br#"{"fields": ["temperature"], "limit": 5}"#;
    let raw = lab.feed(&["query", "--body", "-", "-o", "csv"], body);
    assert!(raw.code == 0 && raw.out.ends_with("21.5\r\n"), "{raw:?}");
    let latest = lab.ok(&["latest", "-w", "host=attic"]);
    assert!(
        latest.contains("temperature") && latest.contains("21.5") && latest.contains("true"),
        "{latest}"
    );

    let refused = lab.run(&["query", "-f", "usage", "--fn", "wisdom", "--last", "1h"]);
    assert_eq!(refused.code, 1);
    assert!(
        refused.err.contains("wisdom") && refused.err.contains("request  "),
        "{refused:?}"
    );
    for wrong in [
        &["query", "--last", "yesterday"][..],
        &["query", "--last", "1h", "--from", "now"],
        &["query", "--window", "1m"],
    ] {
        assert_eq!(lab.run(wrong).code, 2, "{wrong:?}");
    }
}

#[test]
fn profiles_choose_server_table_and_token_and_keep_the_token_to_themselves() {
    let home = tempfile::tempdir().expect("a folder");
    let response = r#"{"names":[],"next":null,"request_id":"r"}"#;
    let lab = Pretender::start(move |_, _| (200, "", response.into()));
    let other = Pretender::start(move |_, _| (200, "", response.into()));
    let folder = home.path().join(".config/tideline");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(home.path().join("lab.token"), "a-secret-of-this-test\n").expect("a file");
    let profiles = format!(
        "default = \"lab\"\n[profiles.lab]\nserver = \"{}\"\ntoken_file = \"~/lab.token\"\ntable = \"machines\"\n",
        lab.url
    );
    std::fs::write(folder.join("profiles.toml"), profiles).expect("a file");

    let run = |line: &[&str]| ended(at_home(line, home.path()));
    let first = run(&["tags"]);
    assert_eq!(first.code, 0, "{first:?}");
    let request = lab.requests().pop().expect("a request");
    assert!(
        request.head.starts_with("GET /v1/tables/machines/tags?"),
        "{}",
        request.head
    );
    assert_eq!(
        request.header("authorization").as_deref(),
        Some("Bearer a-secret-of-this-test")
    );

    assert_eq!(run(&["tags", "--profile", "lab", "--table", "t"]).code, 0);
    assert!(lab.requests()[1].head.starts_with("GET /v1/tables/t/tags?"));
    assert_eq!(run(&["tags", "--server", &other.url]).code, 0);
    let request = other.requests().pop().expect("a request");
    assert!(
        request.head.starts_with("GET /v1/tables/default/tags?"),
        "{}",
        request.head
    );
    assert_eq!(
        request.header("authorization"),
        None,
        "the token of a profile is for its server"
    );

    let mut command = at_home(&["tags", "--server", &other.url], home.path());
    command.env("TIDELINE_TOKEN_FILE", home.path().join("lab.token"));
    assert_eq!(ended(command).code, 0);
    assert!(other.requests()[1].header("authorization").is_some());
    let unknown = run(&["tags", "--profile", "nowhere"]);
    assert_eq!(unknown.code, 2);
    assert!(
        unknown.err.contains("it has: lab") && !unknown.err.contains("secret"),
        "{unknown:?}"
    );
    assert_eq!(
        run(&["tags", "--token", "x"]).code,
        2,
        "no token on the command line"
    );
    assert_eq!(run(&["tags", "--server", "ftp://a"]).code, 2);
}

#[test]
fn times_are_read_in_every_form_and_a_unit_is_required() {
    let lab = Lab::start();
    let points = lab.file("in.lp", "m,host=a v=1 1700000000000000000\n");
    lab.ok(&["write", &points]);
    for from in [
        "2023-11-14",
        "2023-11-14 22:13",
        "1700000000s",
        "1700000000000ms",
        "1700000000000000000",
        "2023-11-14T23:13:20+01:00",
    ] {
        let response = lab.ok(&["query", "--from", from, "--to", "2023-11-15", "--output", "csv"]);
        assert_eq!(response.lines().count(), 2, "{from}: {response}");
    }
    for (bare, unit) in [
        ("1700000000", "1700000000s"),
        ("1700000000000", "1700000000000ms"),
        ("1700000000000000", "1700000000000000us"),
    ] {
        let refused = lab.run(&["query", "--from", bare]);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(
            refused.err.contains(&format!("did you mean {unit}?")),
            "{refused:?}"
        );
    }
}
