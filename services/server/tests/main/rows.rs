//! Tests of `tideline rows` and of wide tables in `tideline tables create`: reads and writes of rows, secondary
//! indexes, parts, changes of keys, exports and imports in each format, rejects, interrupted exports and imports.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::lab::{Lab, Pretender, at_home, ended};

fn create(lab: &Lab, table: &str) {
    lab.ok(&[
        "tables",
        "create",
        table,
        "--key",
        "spread bucket 4 of id",
        "--key",
        "id string",
        "--key",
        "at timestamp desc",
        "--column",
        "total decimal",
        "--column",
        "n u64",
        "--column",
        "seen_* timestamp",
    ]);
}

/// Returns the rows of a table as lines of JSON.
fn rows(lab: &Lab, table: &str) -> BTreeSet<String> {
    let text = lab.ok(&["rows", "export", table]);
    text.lines().map(str::to_owned).collect()
}

/// Imports `count` rows into a table. Tests of exports use 25,000 rows, because a page of an export has 10,000.
fn fill(lab: &Lab, table: &str, count: u64) {
    let lines: String = (0..count)
        .map(|n| {
            let row = json!({"id": format!("id-{n:06}"), "at": n, "total": format!("{n}.10"), "n": u64::MAX - n,
                "note": if n % 3 == 0 { "" } else { "a,\"b\"" }});
            format!("{row}\n")
        })
        .collect();
    let file = lab.file("fill.ndjson", lines);
    lab.ok(&["rows", "import", table, &file, "--quiet"]);
}

#[test]
fn indexes_are_created_listed_read_and_dropped_and_rows_get_another_key() {
    let lab = Lab::start();
    create(&lab, "orders");
    fill(&lab, "orders", 30);
    let created = lab.ok(&[
        "rows", "index", "create", "orders", "by_n", "n:desc", "--covers", "total",
    ]);
    assert!(created.contains("build_index"), "{created}");
    // The schedule may have built the index already. The job is then cancelled.
    let built = lab.run(&["jobs", "run", "build_index", "--wait"]);
    assert!(
        built.code == 0 || built.err.contains("is ready already"),
        "{built:?}"
    );
    let list = lab.ok(&["rows", "index", "list", "orders"]);
    assert!(
        list.contains("by_n") && list.contains("n:desc") && list.contains("ready"),
        "{list}"
    );
    let least = format!("n<={}", u64::MAX - 27);
    let found = lab.ok(&[
        "rows",
        "scan",
        "orders",
        "--index",
        "by_n",
        &least,
        "--json",
        "--columns",
        "total",
    ]);
    let found: Value = serde_json::from_str(&found).expect("JSON");
    let ids = found["rows"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| row["key"]["id"].clone());
    assert_eq!(
        ids.collect::<Vec<_>>(),
        [json!("id-000027"), json!("id-000028"), json!("id-000029")]
    );
    let explained = lab.ok(&["rows", "explain", "orders", "--index", "by_n", &least]);
    assert!(explained.contains("by_n"), "{explained}");
    let wrong = lab.run(&["rows", "index", "create", "orders", "by_x", "n:up"]);
    assert!(
        wrong.code == 2 && wrong.err.contains(":asc or :desc"),
        "{wrong:?}"
    );
    let dropped = lab.ok(&["rows", "index", "drop", "orders", "by_n"]);
    assert!(dropped.contains("by_n"), "{dropped}");
    lab.ok(&[
        "tables",
        "create",
        "by_time",
        "--key",
        "id string",
        "--key",
        "at timestamp",
    ]);
    let copied = lab.ok(&["rows", "rekey", "orders", "by_time"]);
    assert!(copied.contains("30 of 30 rows copied"), "{copied}");
    assert_eq!(rows(&lab, "by_time").len(), 30);
}

#[test]
fn a_wide_table_is_shown_with_its_columns_and_dropped_with_the_number_of_its_rows() {
    let lab = Lab::start();
    let created = [
        "tables",
        "create",
        "cards",
        "--key",
        "spread bucket 4 of no",
        "--key",
        "no u64 desc",
        "--column",
        "total decimal",
        "--ttl",
        "30d",
        "--ttl-of",
        "cell",
    ];
    lab.ok(&created);
    let file = lab.file("cards.ndjson", "{\"no\": 1, \"total\": \"1.5\"}\n{\"no\": 2}\n");
    lab.ok(&["rows", "import", "cards", &file, "--quiet"]);
    let shown = lab.ok(&["tables", "show", "cards"]);
    assert!(shown.contains(", synced, wide, 2 rows\n"), "{shown}");
    let lines: Vec<String> = shown
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for setting in [
        "key spread bucket 4 of no",
        "key no u64 desc",
        "column total decimal",
        "ttl 30d",
        "ttl_of cell",
    ] {
        assert!(lines.iter().any(|line| line == setting), "{setting}: {shown}");
    }
    assert!(!shown.contains("timelines"), "{shown}");
    let unasked = lab.run(&["tables", "drop", "cards"]);
    assert!(
        unasked.code == 2 && unasked.err.contains("with 2 rows"),
        "{unasked:?}"
    );
    lab.ok(&["tables", "drop", "cards", "--yes"]);
    let scope = lab.run(&[
        "tables",
        "create",
        "cards",
        "--key",
        "no string",
        "--ttl-of",
        "cell",
    ]);
    assert!(scope.code == 2 && scope.err.contains("--ttl"), "{scope:?}");
}

#[test]
fn parts_are_listed_and_dropped_after_a_confirmation() {
    let lab = Lab::start();
    lab.ok(&[
        "tables",
        "create",
        "readings",
        "--key",
        "meter string",
        "--key",
        "at timestamp",
        "--parts",
        "at month",
        "--keep-parts",
        "3650d",
    ]);
    let rows = "{\"meter\": \"m\", \"at\": \"2026-08-31T00:00:00Z\"}\n{\"meter\": \"m\", \"at\": \"2026-09-01T00:00:00Z\"}\n";
    let file = lab.file("readings.ndjson", rows);
    lab.ok(&["rows", "import", "readings", &file, "--quiet"]);
    let listed = lab.ok(&["tables", "parts", "readings"]);
    assert!(
        listed.contains("2026-08") && listed.contains("2026-09"),
        "{listed}"
    );
    let drop = [
        "tables",
        "drop-parts",
        "readings",
        "--before",
        "2026-09-02T00:00:00Z",
    ];
    let preview = lab.ok(&[&drop[..], &["--preview"]].concat());
    assert!(
        preview.contains("2026-08") && !preview.contains("2026-09 "),
        "{preview}"
    );
    let unasked = lab.run(&drop);
    assert!(
        unasked.code == 2 && unasked.err.contains("drops 1 parts of table readings"),
        "{unasked:?}"
    );
    let dropped = lab.ok(&[&drop[..], &["--yes"]].concat());
    assert_eq!(dropped, "dropped 1 parts of table readings\n");
    assert!(!lab.ok(&["tables", "parts", "readings"]).contains("2026-08"));
    let shown = lab.ok(&["tables", "show", "readings"]);
    assert!(shown.contains(", synced, wide, 1 rows\n"), "{shown}");
    let wrong = lab.run(&["tables", "create", "x", "--key", "at timestamp", "--parts", "at"]);
    assert!(
        wrong.code == 2 && wrong.err.contains("'placed month'"),
        "{wrong:?}"
    );
}

#[test]
fn settings_of_rows_are_altered() {
    let lab = Lab::start();
    lab.ok(&[
        "tables",
        "create",
        "readings",
        "--key",
        "meter string",
        "--key",
        "at timestamp",
        "--column",
        "note string zstd",
        "--parts",
        "at month",
        "--row-limit",
        "writes 20000",
        "--row-limit",
        "30d reads 5000 writes 100",
    ]);
    let settings = || -> Value {
        let shown = lab.ok(&["tables", "show", "readings", "--json"]);
        serde_json::from_str::<Value>(&shown).expect("JSON")["wide"].clone()
    };
    let limits = json!([{"writes_per_second": 20_000},
        {"older_than": "30d", "reads_per_second": 5_000, "writes_per_second": 100}]);
    assert_eq!(settings()["limits"], limits);
    let shown = lab.ok(&["tables", "show", "readings"]);
    assert!(shown.contains("30d reads 5000 writes 100"), "{shown}");

    let alter = |more: &[&str]| lab.run(&[&["tables", "alter", "readings"], more].concat());
    let altered = alter(&[
        "--row-limit",
        "reads 7",
        "--add-column",
        "text_* string lz4",
        "--compression",
        "note=none",
        "--ttl",
        "90d",
    ]);
    assert!(
        altered.code == 0 && altered.out.contains("reads 7"),
        "{altered:?}"
    );
    let after = settings();
    assert_eq!(after["limits"], json!([{"reads_per_second": 7}]), "{after}");
    assert_eq!(after["ttl"], "90d", "{after}");
    assert_eq!(
        after["columns"],
        json!([{"name": "note", "type": "string", "compression": "none"},
            {"name": "text_*", "type": "string", "compression": "lz4"}])
    );
    assert_eq!(alter(&["--no-row-limits", "--ttl", "never"]).code, 0);
    let after = settings();
    assert!(after["limits"].is_null() && after["ttl"].is_null(), "{after}");

    for (wrong, said) in [
        (&["--row-limit", "fast"][..], "'30d reads 5000 writes 100'"),
        (&["--compression", "note"], "COLUMN=COMPRESSION"),
        (
            &["--no-row-limits", "--row-limit", "reads 1"],
            "cannot be used with",
        ),
        (&[], "no change is given"),
    ] {
        let refused = alter(wrong);
        assert!(refused.code == 2 && refused.err.contains(said), "{refused:?}");
    }
    let zero = alter(&["--row-limit", "reads 0"]);
    assert!(zero.code == 1 && zero.err.contains("at least 1"), "{zero:?}");
}

#[test]
fn the_ages_schedules_and_rate_of_parts_are_options() {
    let lab = Lab::start();
    let create = |name: &str, more: &[&str]| {
        let key = [
            "tables",
            "create",
            name,
            "--key",
            "meter string",
            "--key",
            "at timestamp",
        ];
        lab.run(&[&key[..], more].concat())
    };
    let created = create(
        "meters",
        &[
            "--parts",
            "at month",
            "--parts-migrate-schedule",
            "0 3 * * * in Europe/Berlin",
            "--parts-move-rate",
            "9",
        ],
    );
    assert_eq!(created.code, 0, "{created:?}");
    let parts = || -> Value {
        let shown = lab.ok(&["tables", "show", "meters", "--json"]);
        serde_json::from_str::<Value>(&shown).expect("JSON")["wide"]["parts"].clone()
    };
    let nightly = json!({"cron": "0 3 * * *", "time_zone": "Europe/Berlin"});
    assert_eq!(
        parts(),
        json!({"by": "at", "every": "month", "migrate": nightly, "move_bytes_per_second": 9})
    );

    let alter = |more: &[&str]| lab.run(&[&["tables", "alter", "meters"], more].concat());
    let altered = alter(&[
        "--keep-parts",
        "365d",
        "--hot-parts",
        "30d",
        "--parts-migrate-schedule",
        "continuous",
        "--parts-expire-schedule",
        "0 5 * * *",
        "--parts-move-rate",
        "none",
    ]);
    assert_eq!(altered.code, 0, "{altered:?}");
    let after = parts();
    assert_eq!((&after["keep"], &after["hot"]), (&json!("365d"), &json!("30d")));
    assert_eq!(after["expire"], json!({"cron": "0 5 * * *", "time_zone": "UTC"}));
    assert!(
        after["migrate"].is_null() && after["move_bytes_per_second"].is_null(),
        "{after}"
    );
    assert_eq!(alter(&["--hot-parts", "never"]).code, 0);
    assert!(parts()["hot"].is_null());

    let undivided = create("other", &["--parts-expire-schedule", "0 5 * * *"]);
    assert!(
        undivided.code == 2 && undivided.err.contains("add --parts"),
        "{undivided:?}"
    );
    let archive = alter(&["--parts-archive-schedule", "0 4 * * *"]);
    assert!(
        archive.code == 2 && archive.err.contains("add --archive-parts"),
        "{archive:?}"
    );
    let rate = alter(&["--parts-move-rate", "fast"]);
    assert!(
        rate.code == 2 && rate.err.contains("bytes per second"),
        "{rate:?}"
    );
    let wrong = alter(&["--parts-expire-schedule", "every night"]);
    assert!(
        wrong.code == 1 && wrong.err.contains("parts.expire: "),
        "{wrong:?}"
    );
}

#[test]
fn rows_are_written_read_changed_counted_and_deleted() {
    let lab = Lab::start();
    create(&lab, "orders");
    let key = ["id=a", "at=2026-11-20T12:00:00Z"];
    let put = |rest: &[&str]| lab.run(&[&["rows", "put", "orders"], &key[..], rest].concat());
    assert_eq!(
        put(&["total=5.320", "note=red", "seen_web=17", "--if-absent"]).code,
        0
    );
    let again = put(&["--if-absent"]);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.err.contains("condition"), "{again:?}");
    let update = [
        &["rows", "update", "orders"],
        &key[..],
        &[
            "--increment",
            "n=3",
            "--clear",
            "note",
            "--if",
            "total>5",
            "--return",
            "after",
        ],
    ]
    .concat();
    let after: Value = serde_json::from_str(&lab.ok(&update)).expect("JSON");
    assert_eq!(
        after["columns"],
        json!({"total": "5.32", "n": 3, "seen_web": "1970-01-01T00:00:00.000000017Z"})
    );
    let plus = lab.run(&["rows", "update", "orders", key[0], key[1], "n+=3"]);
    assert!(
        plus.code != 0 && plus.err.contains("--increment n=NUMBER"),
        "{plus:?}"
    );
    lab.ok(&["rows", "put", "orders", "id=b", "at=1", "total=1"]);
    let got = lab.ok(&[
        "rows",
        "get",
        "orders",
        "id=a",
        "id=b",
        "at=1",
        "--columns",
        "total",
    ]);
    assert_eq!(
        got,
        "{\"key\":{\"id\":\"b\",\"at\":\"1970-01-01T00:00:00.000000001Z\"},\"columns\":{\"total\":\"1\"}}\n{\"found\":1}\n"
    );
    let table = lab.ok(&[
        "rows",
        "scan",
        "orders",
        "id=a",
        "at>=2026-11-20T00:00:00Z",
        "--output",
        "table",
    ]);
    assert!(table.starts_with("id") && table.contains("5.32"), "{table}");
    let csv = lab.ok(&[
        "rows",
        "scan",
        "orders",
        "--allow-scan",
        "--backward",
        "--columns",
        "total",
        "--output",
        "csv",
    ]);
    assert_eq!(
        csv,
        "id,at,total\r\nb,1970-01-01T00:00:00.000000001Z,1\r\na,2026-11-20T12:00:00Z,5.32\r\n"
    );
    let refused = lab.run(&["rows", "scan", "orders", "--where", "total>5"]);
    assert_eq!(refused.code, 1);
    assert!(
        refused
            .err
            .contains("give \"id\" by NAME=VALUE or bounds, or use --allow-scan"),
        "{refused:?}"
    );
    assert_eq!(
        lab.ok(&["rows", "count", "orders", "--where", "total>5", "--allow-scan"]),
        "1\n"
    );
    assert_eq!(
        lab.ok(&["rows", "count", "orders", "--estimate", "--allow-scan"]),
        "2\n"
    );
    let explained = lab.ok(&["rows", "explain", "orders", "id=a", "--where", "total>5"]);
    assert!(
        explained.contains("prefix") && explained.contains("total"),
        "{explained}"
    );
    assert_eq!(
        lab.run(&["rows", "delete", "orders", "id=a"]).code,
        2,
        "an incomplete key"
    );
    lab.ok(&[&["rows", "delete", "orders"], &key[..]].concat());
    assert_eq!(
        lab.run(&["rows", "delete", "orders", "--range", "id=b"]).code,
        2,
        "no confirmation"
    );
    let all = lab.run(&["rows", "delete", "orders", "--range", "--yes"]);
    assert!(all.code == 2 && all.err.contains("--all"), "{all:?}");
    lab.ok(&["rows", "delete", "orders", "--range", "id=b", "--yes"]);
    assert_eq!(lab.ok(&["rows", "count", "orders", "--allow-scan"]), "0\n");
    assert_eq!(
        lab.run(&["rows", "get", "default", "id=a"]).code,
        2,
        "a table of series"
    );
}

#[test]
fn decimals_keep_all_their_digits() {
    let lab = Lab::start();
    lab.ok(&[
        "tables",
        "create",
        "pay",
        "--key",
        "amount decimal",
        "--column",
        "total decimal",
    ]);
    let amount = |digit: u8| format!("1234567890123456.7{digit}");
    for digit in 5..10 {
        let (key, total) = (
            format!("amount={}", amount(digit)),
            format!("total={}", amount(digit)),
        );
        lab.ok(&["rows", "put", "pay", &key, &total]);
    }
    let counted = |rest: &[&str]| lab.ok(&[&["rows", "count", "pay"], rest].concat());
    for (keys, count) in [
        (&["amount=1234567890123456.76"][..], "1\n"),
        (&["amount<=1234567890123456.76"][..], "2\n"),
        (
            &["amount>1234567890123456.76", "amount<1234567890123456.79"][..],
            "2\n",
        ),
        (
            &["--allow-scan", "--where", "total=1234567890123456.76"][..],
            "1\n",
        ),
        (
            &["--allow-scan", "--where", "total<=1234567890123456.76"][..],
            "2\n",
        ),
        (
            &[
                "--allow-scan",
                "--where",
                r#"{"column": "total", "in": [1234567890123456.76, 1234567890123456.78]}"#,
                "--where",
                "total!=1234567890123456.78",
            ][..],
            "1\n",
        ),
    ] {
        assert_eq!(counted(keys), count, "{keys:?}");
    }
    for key in ["amount=1234567890123456.76", r#"{"amount": 1234567890123456.76}"#] {
        let got = lab.ok(&["rows", "get", "pay", key]);
        assert!(got.contains(r#""total":"1234567890123456.76""#), "{got}");
        let why = lab.ok(&["rows", "why", "pay", key]);
        assert!(why.contains("reads return the row"), "{why}");
    }
    let update = |condition: &str| {
        let key = "amount=1234567890123456.76";
        lab.run(&["rows", "update", "pay", key, "paid=true", "--if", condition])
            .code
    };
    assert_eq!(update("total=1234567890123456.77"), 1);
    assert_eq!(update("total=1234567890123456.76"), 0);
    let file = lab.path("some.ndjson");
    lab.ok(&[
        "rows",
        "export",
        "pay",
        "--where",
        "total>1234567890123456.77",
        "--out",
        &file.display().to_string(),
    ]);
    let exported = std::fs::read_to_string(&file).expect("the export");
    assert_eq!(exported.lines().count(), 2, "{exported}");
    lab.ok(&[
        "rows",
        "delete",
        "pay",
        "--range",
        "amount<=1234567890123456.76",
        "--yes",
    ]);
    let left = rows(&lab, "pay");
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(
        left.iter()
            .all(|row| !row.contains("6.75") && !row.contains("6.76")),
        "{left:?}"
    );
}

#[test]
fn every_format_is_exported_and_imported_without_a_difference() {
    let lab = Lab::start();
    create(&lab, "source");
    fill(&lab, "source", 25_000);
    let expected = rows(&lab, "source");
    assert_eq!(expected.len(), 25_000);
    for (number, ending) in ["csv", "ndjson", "arrow", "parquet"].into_iter().enumerate() {
        let file = lab.path(&format!("export.{ending}")).display().to_string();
        let said = lab.ok(&["rows", "export", "source", "--out", &file, "--quiet"]);
        assert_eq!(said, "");
        for left in ["partial", "export", "new"] {
            assert!(
                !lab.path(&format!("export.{ending}.{left}")).exists(),
                "{ending} {left}"
            );
        }
        let table = format!("copy{number}");
        create(&lab, &table);
        let summary = lab.ok(&["rows", "import", &table, &file, "--json", "--parallel", "3"]);
        let summary: Value = serde_json::from_str(&summary).expect("JSON");
        assert_eq!(
            (&summary["written"], &summary["rejected"]),
            (&json!(25_000), &json!(0)),
            "{ending}"
        );
        assert!(summary["batches"].as_u64() > Some(4), "{summary}");
        assert!(rows(&lab, &table) == expected, "{ending}");
    }
}

#[test]
fn an_interrupted_export_continues_with_its_next_page() {
    let lab = Lab::start();
    create(&lab, "source");
    fill(&lab, "source", 25_000);
    for ending in ["csv", "parquet"] {
        let whole = lab.path(&format!("whole.{ending}")).display().to_string();
        lab.ok(&["rows", "export", "source", "--out", &whole, "--quiet"]);
        let file = lab.path(&format!("cut.{ending}"));
        let name = file.display().to_string();
        let export = ["rows", "export", "source", "--out", name.as_str(), "--quiet"];
        // The process is killed after the first page was recorded.
        let mut running = lab.command(&export).spawn().expect("it starts");
        let state = lab.path(&format!("cut.{ending}.export"));
        while !state.exists() && running.try_wait().expect("it runs").is_none() {
            std::thread::yield_now();
        }
        let _ = running.kill();
        running.wait().expect("it ends");
        if state.exists() {
            let other = lab.run(&["rows", "export", "source", "--out", &name, "--columns", "n"]);
            assert_eq!(other.code, 2, "other arguments: {other:?}");
        }
        lab.ok(&export);
        assert!(
            std::fs::read(&file).expect("a file") == std::fs::read(&whole).expect("a file"),
            "{ending}"
        );
    }
}

#[test]
fn an_import_that_was_killed_is_resumed_exactly() {
    let lab = Lab::start();
    create(&lab, "target");
    let text: String = std::iter::once("id,at,n\n".to_owned())
        .chain((0..60_000).map(|n| format!("id-{n:06},{n},{n}\n")))
        .collect();
    let file = lab.file("rows.csv", text);
    let resume = lab.path("rows.resume").display().to_string();
    let import = [
        "rows",
        "import",
        "target",
        file.as_str(),
        "--resume",
        resume.as_str(),
        "--batch-rows",
        "500",
        "--json",
    ];
    let mut killed = 0;
    for round in 1..=3 {
        let mut command = lab.command(&import);
        command
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        let mut running = command.spawn().expect("it starts");
        let batches = || {
            let text = std::fs::read_to_string(&resume).unwrap_or_default();
            text.lines().filter(|line| line.contains("\"hash\"")).count()
        };
        while batches() < round * 10 && running.try_wait().expect("it runs").is_none() {
            std::thread::yield_now();
        }
        killed += usize::from(running.kill().is_ok());
        running.wait().expect("it ends");
    }
    assert!(killed > 0);
    let summary: Value = serde_json::from_str(&lab.ok(&import)).expect("JSON");
    assert!(summary["batches_before"].as_u64() >= Some(10), "{summary}");
    assert_eq!(lab.ok(&["rows", "count", "target", "--allow-scan"]), "60000\n");
    let again: Value = serde_json::from_str(&lab.ok(&import)).expect("JSON");
    assert_eq!(
        (&again["batches"], &again["batches_before"]),
        (&json!(0), &json!(120)),
        "nothing is sent again"
    );
    let other = lab.run(&["rows", "import", "target", &file, "--resume", &resume, "--update"]);
    assert_eq!(other.code, 2, "other options");
}

#[test]
fn rejected_rows_are_in_a_file_with_their_reasons() {
    let lab = Lab::start();
    create(&lab, "target");
    let file = lab.file(
        "rows.csv",
        "No,at,n,internal\na,1,1,x\nb,2,many,x\n\nc,x\nd,4,4,x\n",
    );
    let rejects = lab.path("bad.txt").display().to_string();
    let import = lab.run(&[
        "rows",
        "import",
        "target",
        &file,
        "--map",
        "No=id",
        "--map",
        "internal=",
        "--rejects",
        &rejects,
        "--quiet",
    ]);
    assert_eq!(import.code, 1, "{import:?}");
    assert!(import.err.contains("2 of 4 rows were not written"), "{import:?}");
    let text = std::fs::read_to_string(&rejects).expect("a file");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(
        lines[0].starts_with("# ") && lines[0].contains("rows.csv:3: ") && lines[0].contains("u64"),
        "{text}"
    );
    assert_eq!(lines[1], "b,2,many,x");
    assert!(lines[2].contains("rows.csv:5: the record has 2 cells"), "{text}");
    assert_eq!(lines[3], "c,x");
    assert_eq!(lab.ok(&["rows", "count", "target", "--allow-scan"]), "2\n");
    let unknown = lab.run(&["rows", "import", "missing", &file]);
    assert_eq!(unknown.code, 1, "{unknown:?}");
    let fed = lab.feed(
        &["rows", "import", "target", "-", "--format", "ndjson", "--quiet"],
        b"{\"id\":\"p\",\"at\":1}\n",
    );
    assert_eq!(fed.code, 0, "{fed:?}");
    assert_eq!(lab.ok(&["rows", "count", "target", "id=p"]), "1\n");
}

#[test]
fn integer_times_in_another_unit_get_a_warning() {
    let lab = Lab::start();
    create(&lab, "target");
    let file = lab.file(
        "rows.csv",
        "No,at,n,seen_web\na,1700000000,1700000000,1700000000000\nb,1700000001,1700000000,\n",
    );
    let import = lab.run(&["rows", "import", "target", &file, "--map", "No=id"]);
    assert_eq!(import.code, 0, "{import:?}");
    for said in [
        "column at are near 1970",
        "look like seconds",
        "column seen_web are",
        "look like milliseconds",
    ] {
        assert!(import.err.contains(said), "{said}: {import:?}");
    }
    assert!(!import.err.contains("column n "), "{import:?}");
    let file = lab.file("rows.ndjson", "{\"id\":\"c\",\"at\":1700000000000000000}\n");
    let import = lab.run(&["rows", "import", "target", &file]);
    assert!(import.code == 0 && !import.err.contains("warning"), "{import:?}");
}

#[test]
fn a_busy_server_is_waited_for_and_gets_each_batch_under_its_key() {
    let home = tempfile::tempdir().expect("a folder");
    std::fs::write(home.path().join("a.csv"), "id,at\na,1\nb,2\n").expect("a file");
    let busy = Pretender::start(|number, _| {
        let stopped =
            r#"{"written":1,"refused":0,"omitted":0,"stopped":"the disk is busy","retryable":true}"#;
        match number {
            0 => (
                503,
                "retry-after: 1\r\n",
                r#"{"code":"overloaded","message":"too much","retryable":true}"#.into(),
            ),
            1 => (200, "", stopped.into()),
            _ => (
                200,
                "",
                r#"{"written":2,"refused":0,"omitted":0,"stopped":null,"retryable":false}"#.into(),
            ),
        }
    });
    let begun = std::time::Instant::now();
    let arguments = ["rows", "import", "t", "a.csv", "--json", "--server", &busy.url];
    let run = ended(at_home(&arguments, home.path()));
    assert_eq!(run.code, 0, "{run:?}");
    assert!(
        begun.elapsed().as_secs_f64() >= 1.0,
        "as long as the server requests"
    );
    let summary: Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!((&summary["retries"], &summary["written"]), (&json!(2), &json!(2)));
    let requests = busy.requests();
    let keys: BTreeSet<_> = requests
        .iter()
        .map(|request| request.header("idempotency-key"))
        .collect();
    assert!(
        requests.len() == 3 && keys.len() == 1 && !keys.contains(&None),
        "{keys:?}"
    );
    assert!(
        requests
            .iter()
            .all(|request| request.body == b"id,at\na,1\nb,2\n")
    );
}
