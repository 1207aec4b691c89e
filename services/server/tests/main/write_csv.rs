//! Tests of `tideline write` with CSV files of other programs: file names, time formats, column types.
//!
//! They also cover replaced points, streams and warnings about times near 1970.

use crate::lab::Lab;

#[test]
fn a_folder_of_files_is_imported_with_tags_from_their_names() {
    let lab = Lab::start();
    std::fs::create_dir(lab.path("in")).expect("a folder");
    lab.file(
        "in/metrics-web-1.csv",
        "when,load\n2023-11-14 22:13:20,1\n2023-11-14 22:13:21.5,1.5\n",
    );
    lab.file("in/metrics-web-2.csv", "when,load\n1700000000,2\n1700000001,3\n");
    let folder = lab.path("in").display().to_string();
    let line = [
        "write",
        &folder,
        "--measurement",
        "cpu",
        "--time",
        "when",
        "--tag-from-file",
        "host=metrics-*.csv",
        "--tag",
        "dc=fra",
    ];
    let written = lab.run(&line);
    assert!(
        written.code == 0 && written.out.starts_with("4 points"),
        "{written:?}"
    );
    let shown = lab.ok(&["query", "-m", "cpu", "-o", "csv"]);
    for row in [
        "fra,web-1,2023-11-14T22:13:20Z,1.0",
        "fra,web-1,2023-11-14T22:13:21.500Z,1.5",
        "fra,web-2,2023-11-14T22:13:20Z,2",
    ] {
        assert!(shown.contains(row), "{row}: {shown}");
    }
    assert!(lab.ok(&["fields", "cpu"]).contains("load"), "it has a field");

    lab.file("in/other.csv", "when,load\n1700000000,2\n");
    let refused = lab.run(&line);
    assert!(
        refused.code == 2 && refused.err.contains("does not match the pattern"),
        "{refused:?}"
    );
}

#[test]
fn a_text_among_numbers_is_named_before_anything_is_sent() {
    let lab = Lab::start();
    let file = lab.file(
        "m.csv",
        "time,load,note\n1700000000,1,a\n1700000001,2,7\n1700000002,oops,b\n",
    );
    let refused = lab.run(&["write", &file, "--measurement", "m"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused.err.contains(&format!("{file}:4: column load: \"oops\"")),
        "{refused:?}"
    );
    assert_eq!(lab.run(&["find", "measurement=m"]).code, 1, "nothing was stored");
    let kept = lab.run(&[
        "write",
        &file,
        "--measurement",
        "m",
        "--field",
        "load:float",
        "--field",
        "note",
    ]);
    assert_eq!(kept.code, 1, "{kept:?}");
    assert!(
        kept.err.contains("1 of 3 rows") && kept.err.contains("column load"),
        "{kept:?}"
    );

    let day_or_month = lab.file("d.csv", "time,load\n03/04/2024,1\n");
    let refused = lab.run(&["write", &day_or_month, "--measurement", "d"]);
    assert!(
        refused.code == 2 && refused.err.contains("--time-format"),
        "{refused:?}"
    );
    lab.ok(&[
        "write",
        &day_or_month,
        "--measurement",
        "d",
        "--time-format",
        "%d/%m/%Y",
    ]);
    assert!(
        lab.ok(&["query", "-m", "d", "-o", "csv"])
            .contains("2024-04-03T00:00:00Z")
    );
}

#[test]
fn replaced_points_are_counted() {
    let lab = Lab::start();
    let file = lab.file(
        "m.csv",
        "time,host,v\n1700000000,a,1\n1700000000,b,1\n1700000000,a,2\n1700000001,a,3\n",
    );
    let line = [
        "write",
        &file,
        "--measurement",
        "m",
        "--tag",
        "host",
        "--parallel",
        "1",
    ];
    let written = lab.ok(&line);
    assert!(
        written.contains("1 have the timeline and time of another row"),
        "{written}"
    );
    let in_json = lab.ok(&[&line[..], &["--json"]].concat());
    assert!(in_json.contains("\"replaced\":1"), "{in_json}");
}

#[test]
fn a_stream_is_read_by_its_first_batch() {
    let lab = Lab::start();
    let line = [
        "write",
        "-",
        "--format",
        "csv",
        "--measurement",
        "m",
        "--tag",
        "site=a",
    ];
    let fed = lab.feed(&line, b"time,v\n1700000000000,1\n1700000000500,2.5\n");
    assert!(fed.code == 0 && fed.out.starts_with("2 points"), "{fed:?}");
    let shown = lab.ok(&["query", "-m", "m", "-o", "csv"]);
    assert!(shown.contains("a,2023-11-14T22:13:20Z,1.0"), "{shown}");
    let unnamed = lab.feed(
        &[
            "write",
            "-",
            "--format",
            "csv",
            "--measurement",
            "m",
            "--tag-from-file",
            "h",
        ],
        b"time,v\n",
    );
    assert!(
        unnamed.code == 2 && unnamed.err.contains("standard input has no name"),
        "{unnamed:?}"
    );
}

#[test]
fn times_near_1970_are_warned_of() {
    let lab = Lab::start();
    let file = lab.file("in.lp", "m,host=a v=1 1700000000\nm,host=a v=2 1700000001\n");
    let written = lab.run(&["write", &file, "--quiet"]);
    assert_eq!(written.code, 0, "any year can be stored: {written:?}");
    assert!(
        written.err.contains("warning: ") && written.err.contains("did you mean --precision s?"),
        "{written:?}"
    );
    let points = b"{\"measurement\":\"k\",\"time\":1700000000000,\"fields\":{\"n\":1}}\n";
    let in_json = lab.feed(&["write", "-", "--format", "ndjson", "--json"], points);
    assert!(
        in_json.out.contains("did you mean --precision ms?"),
        "{in_json:?}"
    );
    let csv = lab.file("m.csv", "time,v\n1700000000,1\n");
    let said = lab.run(&["write", &csv, "--measurement", "m", "--precision", "ns"]);
    assert!(said.err.contains("--precision s?"), "{said:?}");
    let right = lab.run(&["write", &file, "--precision", "s", "--quiet"]);
    assert!(right.code == 0 && right.err.is_empty(), "{right:?}");
}
