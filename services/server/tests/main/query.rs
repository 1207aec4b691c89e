//! Tests of `query` and related commands against the real server.
//!
//! They check the options of each command, output formats, errors in JSON, and completions.

use crate::lab::{Lab, at_home, ended};

/// Starts a server with two hosts in two data centers and ten minutes of points, one per minute. One host lacks
/// its fourth minute.
fn filled() -> Lab {
    let lab = Lab::start();
    let mut text = String::new();
    for (host, dc, base) in [("web-1", "fra", 0), ("web-2", "ams", 50)] {
        for minute in 0..10 {
            if host == "web-1" && minute == 3 {
                continue;
            }
            let time = (1_700_000_040 + minute * 60) * 1_000_000_000_i64;
            let usage = base + minute;
            text.push_str(&format!(
                "cpu,dc={dc},host={host} usage={usage}.0,idle=7.0 {time}\n"
            ));
        }
    }
    let file = lab.file("in.lp", text);
    lab.ok(&["write", &file, "--quiet"]);
    lab
}

const RANGE: [&str; 4] = ["--from", "2023-11-14T22:14:00Z", "--to", "2023-11-14T22:24:00Z"];

/// Returns the rows of a query as CSV, without its header.
#[track_caller]
fn rows(lab: &Lab, more: &[&str]) -> Vec<String> {
    let line = [
        &["query", "-m", "cpu", "-f", "usage", "-o", "csv"],
        &RANGE[..],
        more,
    ]
    .concat();
    lab.ok(&line).lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn windows_have_percentiles_fills_zones_and_ranks() {
    let lab = filled();
    assert_eq!(
        rows(&lab, &["--fn", "p50,max", "--group-by", "host"]),
        [
            "cpu,web-1,2023-11-14T22:14:00Z,5.0,9.0",
            "cpu,web-2,2023-11-14T22:14:00Z,54.5,59.0"
        ]
    );
    let filled = rows(
        &lab,
        &[
            "-w",
            "host=web-1",
            "--fn",
            "mean",
            "--window",
            "1m",
            "--fill",
            "linear",
        ],
    );
    assert_eq!(filled.len(), 10, "{filled:?}");
    assert_eq!(filled[3], "cpu,2023-11-14T22:17:00Z,3.0");
    let previous = rows(
        &lab,
        &[
            "-w",
            "host=web-1",
            "--fn",
            "mean",
            "--window",
            "1m",
            "--fill",
            "previous:5m",
        ],
    );
    assert_eq!(previous[3], "cpu,2023-11-14T22:17:00Z,2.0");
    assert_eq!(
        rows(
            &lab,
            &["--fn", "count", "--window", "1d", "--zone", "Europe/Berlin"]
        ),
        ["cpu,2023-11-13T23:00:00Z,19"]
    );
    assert_eq!(
        rows(
            &lab,
            &["--fn", "count", "--each", "--top", "1", "--by", "max(usage)"]
        )
        .len(),
        1
    );
    let top = rows(&lab, &["--fn", "max", "--group-by", "host", "--top", "1"]);
    assert!(top[0].starts_with("cpu,web-2,"), "{top:?}");
    let bottom = rows(
        &lab,
        &[
            "--fn",
            "max",
            "--group-by",
            "host",
            "--bottom",
            "1",
            "--by",
            "mean",
        ],
    );
    assert!(bottom[0].starts_with("cpu,web-1,"), "{bottom:?}");
    let spread = lab.ok(&[
        "query",
        "-m",
        "cpu",
        "--from",
        RANGE[1],
        "--to",
        RANGE[3],
        "--compute-windows",
        "d=max(usage)-min(usage)",
        "-o",
        "csv",
    ]);
    assert_eq!(spread.lines().nth(1), Some("cpu,2023-11-14T22:14:00Z,59.0"));
}

#[test]
fn points_are_chosen_by_their_values_computed_sampled_and_sorted() {
    let lab = filled();
    assert_eq!(rows(&lab, &["--value", "usage>=58"]).len(), 2);
    assert_eq!(
        rows(&lab, &["--value", "usage>57", "--value", "usage!=58"]).len(),
        1
    );
    assert_eq!(
        rows(&lab, &["--value", r#"{"not": {"field": "usage", "lt": 59}}"#]).len(),
        1
    );
    let highest = rows(&lab, &["--highest", "usage", "--limit", "1"]);
    assert!(highest[0].ends_with(",59.0"), "{highest:?}");
    let lowest = rows(&lab, &["--lowest", "usage", "--limit", "1"]);
    assert!(lowest[0].ends_with(",0.0"), "{lowest:?}");
    assert_eq!(rows(&lab, &["-w", "host=web-2", "--sample", "4"]).len(), 4);
    let line = [
        &[
            "query",
            "-m",
            "cpu",
            "--compute",
            "busy=usage+idle",
            "-f",
            "busy",
            "-o",
            "csv",
            "--highest",
            "busy",
        ],
        &RANGE[..],
    ];
    let busy = lab.ok(&line.concat());
    assert!(
        busy.lines().nth(1).is_some_and(|row| row.ends_with(",66.0")),
        "{busy}"
    );
    let refused = lab.run(&["query", "--value", "usage"]);
    assert!(
        refused.code == 2 && refused.err.contains("write one such as usage>90"),
        "{refused:?}"
    );
}

#[test]
fn several_series_are_drawn_on_one_axis() {
    let lab = filled();
    let line = [&["query", "-m", "cpu", "-f", "usage", "--chart"], &RANGE[..]].concat();
    let chart = lab.ok(&line);
    assert!(chart.starts_with("cpu usage\n59 ┤"), "{chart}");
    assert!(
        chart.contains("a  dc=ams host=web-2") || chart.contains("a  dc=fra host=web-1"),
        "{chart}"
    );
    assert!(
        chart.contains("series") && chart.contains("minimum") && chart.contains("maximum"),
        "{chart}"
    );
    assert_eq!(chart.matches('┤').count(), 14, "one axis: {chart}");
}

#[test]
fn explain_reports_what_would_be_read() {
    let lab = filled();
    let line = [
        &["explain", "-m", "cpu", "-f", "usage", "--fn", "mean"],
        &RANGE[..],
    ]
    .concat();
    let text = lab.ok(&line);
    assert!(
        text.contains("columns       mean(usage)") || text.contains("mean(usage)"),
        "{text}"
    );
    assert!(text.contains("timelines") && text.contains("unsealed"), "{text}");
    let json = lab.ok(&[&line[..], &["--json"]].concat());
    assert!(json.contains("\"estimate\""), "{json}");
}

#[test]
fn promql_is_evaluated_at_a_time_and_over_a_range() {
    let lab = filled();
    let at = lab.ok(&[
        "promql",
        "sum by (dc) (cpu_usage)",
        "--at",
        "2023-11-14T22:20:00Z",
    ]);
    assert!(at.contains("dc   time                  value"), "{at}");
    assert!(at.contains("ams  2023-11-14T22:20:00Z     56"), "{at}");
    let line = [
        "promql",
        "cpu_usage",
        "--from",
        RANGE[1],
        "--to",
        "2023-11-14T22:16:00Z",
        "--step",
        "1m",
    ];
    let range = lab.ok(&line);
    assert!(
        range.ends_with("\n6 values\n") && range.contains("cpu_usage"),
        "{range}"
    );
    let chart = lab.ok(&[&line[..], &["--chart"]].concat());
    assert!(chart.starts_with("cpu_usage value\n"), "{chart}");
    let json = lab.ok(&["promql", "1 + 1", "--json"]);
    assert!(json.contains("\"resultType\":\"scalar\""), "{json}");
    let refused = lab.run(&["promql", "sum("]);
    assert!(
        refused.code == 1 && refused.err.contains("bad_data"),
        "{refused:?}"
    );
    assert_eq!(lab.run(&["promql", "up", "--step", "1m"]).code, 2);
}

#[test]
fn timelines_are_counted_by_values() {
    let lab = filled();
    let facets = lab.ok(&["facets", "dc", "host"]);
    assert!(
        facets.contains("ams  web-2          1") && facets.contains("fra  web-1          1"),
        "{facets}"
    );
    assert!(facets.ends_with("2 timelines, 2 values of dc\n"), "{facets}");
    let some = lab.ok(&["facets", "dc", "--limit", "1", "-w", "host^=web-"]);
    assert!(some.contains("1 more are not shown: raise --limit"), "{some}");
    assert!(lab.ok(&["facets", "@owner"]).contains("(none)"));
    assert!(
        lab.ok(&["facets", "measurement", "--json"])
            .contains("\"distinct\":1")
    );
}

#[test]
fn attributes_are_set_shown_and_removed() {
    let lab = filled();
    let set = lab.ok(&["attributes", "set", "owner=team-a", "rack=12", "-w", "host=web-1"]);
    assert_eq!(set, "1 timelines changed, 0 unchanged, of 1\n");
    assert_eq!(
        lab.run(&["attributes", "set", "owner=team-a"]).code,
        2,
        "timelines are required"
    );
    let id = lab.ok(&["find", "--ids", "@rack=12"]);
    let shown = lab.ok(&["attributes", "show", id.trim()]);
    assert!(
        shown.contains("owner      team-a") && shown.contains("rack       12"),
        "{shown}"
    );
    let keys = lab.ok(&["attributes", "show"]);
    assert!(keys.contains("owner      string          1"), "{keys}");
    let removed = lab.ok(&["attributes", "remove", "owner", "--id", id.trim(), "--json"]);
    assert!(removed.contains("\"changed\":1"), "{removed}");
    assert!(!lab.ok(&["attributes", "show", id.trim()]).contains("owner"));
    let wrong = lab.run(&["attributes", "set", "rack=twelve", "--all-timelines"]);
    assert!(wrong.code == 1, "{wrong:?}");
}

#[test]
fn searches_are_saved_run_listed_and_deleted() {
    let lab = filled();
    lab.ok(&[
        "searches",
        "save",
        "web",
        "-w",
        "host^=web-",
        "--description",
        "web servers",
    ]);
    let listed = lab.ok(&["searches", "list"]);
    assert!(listed.contains("web     web servers"), "{listed}");
    let found = lab.ok(&["searches", "run", "web"]);
    assert!(
        found.contains("host=web-1") && found.ends_with("2 of 2\n"),
        "{found}"
    );
    lab.ok(&["searches", "delete", "web"]);
    let gone = lab.run(&["searches", "run", "web"]);
    assert!(gone.code == 1 && gone.err.contains("web"), "{gone:?}");
    assert_eq!(lab.run(&["searches", "save", "all"]).code, 2);
}

#[test]
fn queries_are_listed_and_a_missing_one_is_not_cancelled() {
    let lab = filled();
    assert!(lab.ok(&["queries", "list"]).starts_with("query  table  kind"));
    let missing = lab.run(&["queries", "cancel", "4711"]);
    assert!(
        missing.code == 1 && missing.err.contains("no query 4711 is running"),
        "{missing:?}"
    );
}

#[test]
fn errors_are_json_where_json_is_wanted() {
    let lab = filled();
    let error = |line: &[&str]| {
        let ended = lab.run(line);
        assert!(ended.code != 0 && ended.out.is_empty(), "{ended:?}");
        let error: serde_json::Value =
            serde_json::from_str(&ended.err).unwrap_or_else(|_| panic!("{ended:?}"));
        (ended.code, error["error"].clone())
    };
    let (code, refused) = error(&["query", "-f", "nothing", "--json"]);
    assert_eq!((code, &refused["code"]), (1, &"invalid".into()));
    assert!(
        refused["request_id"].is_string() && refused["retryable"] == false,
        "{refused}"
    );
    let (code, usage) = error(&["query", "--json", "--limit", "many"]);
    assert_eq!((code, &usage["code"]), (2, &"usage".into()));
    let message = usage["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("not a whole number") && !message.contains("digit found"),
        "{message}"
    );
    let (_, away) = error(&["tables", "list", "--json", "--server", "http://127.0.0.1:9"]);
    assert_eq!(
        (&away["code"], &away["retryable"]),
        (&"unreachable".into(), &true.into())
    );
    let (_, condition) = error(&["find", "--json", "{\"tag\": }"]);
    let message = condition["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("(character 9)") && !message.contains("column"),
        "{message}"
    );
}

#[test]
fn the_server_completes_names() {
    let lab = filled();
    lab.ok(&["searches", "save", "web", "-w", "host^=web-"]);
    for (line, expected) in [
        ("tideline query -m ", "cpu\n"),
        ("tideline query -m cpu -f us", "usage\n"),
        ("tideline query --group-by dc,h", "dc,host\n"),
        ("tideline find ", "dc=\nhost=\nmeasurement=\n"),
        ("tideline find host=web-", "host=web-1\nhost=web-2\n"),
        ("tideline find measurement=", "measurement=cpu\n"),
        ("tideline tables show d", "default\n"),
        ("tideline searches run ", "web\n"),
        ("tideline query --table nope -m ", ""),
        ("tideline jobs ", ""),
    ] {
        assert_eq!(
            lab.ok(&["complete", "--shell", "zsh", "--line", line]),
            expected,
            "{line}"
        );
    }
    let of_bash = lab.ok(&["complete", "--shell", "bash", "--line", "tideline find host=web-"]);
    assert_eq!(of_bash, "web-1\nweb-2\n");
}

#[test]
fn completion_without_a_server_is_silent_and_quick() {
    let home = tempfile::tempdir().expect("a folder");
    // The first server does not listen, the second never responds, and the third is not a valid address.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = format!("http://{}", listener.local_addr().expect("it listens"));
    let begun = std::time::Instant::now();
    for server in ["http://127.0.0.1:9", &silent, "not an address"] {
        let line = format!("tideline query --server '{server}' -m ");
        let ended = ended(at_home(&["complete", "--line", &line], home.path()));
        assert_eq!((ended.code, &*ended.out, &*ended.err), (0, "", ""), "{server}");
    }
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}
