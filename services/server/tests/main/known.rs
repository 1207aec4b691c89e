//! Tests of unknown names: a command never returns an empty result that looks like success.

use crate::lab::{Ended, Lab};

fn filled() -> Lab {
    let lab = Lab::start();
    let file = lab.file(
        "in.lp",
        "cpu,host=web-1 usage_user=1 1700000000000000000\n\
         cpu,host=web-2 usage_user=2 1700000000000000000\n\
         room,site=attic temperature=21.5 1700000000000000000\n",
    );
    lab.ok(&["write", &file, "--quiet"]);
    lab
}

/// Asserts that a command fails with a suggestion and prints nothing.
#[track_caller]
fn refuses(lab: &Lab, line: &[&str], said: &str) {
    let Ended { code, out, err } = lab.run(line);
    assert_eq!(code, 1, "{line:?}: {out} {err}");
    assert!(out.is_empty() && err.contains(said), "{line:?}: {out} {err}");
}

#[test]
fn an_unknown_name_is_an_error_with_a_suggestion() {
    let lab = filled();
    let measurement = "no measurement \"cpuu\"; did you mean cpu?";
    let tag = "no tag \"hosst\"; did you mean host?";
    let field = "has the field \"temperature\"";
    for (line, said) in [
        (&["query", "-m", "cpuu"][..], measurement),
        (&["query", "-m", "cpuu", "-o", "csv"], measurement),
        (&["query", "-m", "cpuu", "--json"], "\"code\":\"unknown_name\""),
        (&["query", "-w", "hosst=web-1"], tag),
        (
            &["query", "-m", "cpu", "--fn", "count", "--group-by", "hosst"],
            tag,
        ),
        (&["query", "-m", "cpu", "-f", "temperature"], field),
        (
            &["query", "-m", "cpu", "-f", "usage_usr"],
            "did you mean usage_user?",
        ),
        (&["latest", "-m", "cpuu"], measurement),
        (&["latest", "-m", "cpu", "-f", "temperature"], field),
        (&["find", "measurement=cpuu"], measurement),
        (&["find", "--ids", "--all", "hosst=web-1"], tag),
        (&["find", "--sort", "hosst"], tag),
        (&["find", "--sort", "@owner"], "no attribute \"owner\""),
        (&["facets", "hosst"], tag),
        (&["explain", "-m", "cpuu"], measurement),
        (&["export", "-m", "cpuu"], measurement),
        (&["export", "-m", "cpuu", "--out", "x.parquet"], measurement),
        (&["delete", "-m", "cpuu", "--all-time", "--yes"], measurement),
        (&["delete", "-m", "cpuu", "--all-time", "--dry-run"], measurement),
        (&["tags", "hosst"], tag),
        (&["fields", "cpuu"], measurement),
        (&["watch", "-m", "cpuu", "--for", "0s"], measurement),
    ] {
        refuses(&lab, line, said);
    }
    assert!(!lab.path("x.parquet").exists(), "no file without an answer");
}

#[test]
fn a_query_in_json_is_checked_too() {
    let lab = filled();
    let body = br#"{"timelines": {"where": {"property": "measurement", "equals": "rom"}}}"#;
    let refused = lab.feed(&["query", "--body", "-"], body);
    assert!(
        refused.code == 1 && refused.err.contains("did you mean room?"),
        "{refused:?}"
    );
}

#[test]
fn what_matches_all_the_same_is_a_warning() {
    let lab = filled();
    let shown = lab.run(&["query", "-w", "rack!=r1", "-f", "usage_user", "-o", "csv"]);
    assert_eq!((shown.code, shown.out.lines().count()), (0, 3), "{shown:?}");
    assert!(
        shown.err.contains("warning: table default has no tag \"rack\""),
        "{shown:?}"
    );
    let either = r#"{"or": [{"property": "measurement", "equals": "cpu"}, {"property": "measurement", "equals": "cpuu"}]}"#;
    let shown = lab.run(&["find", "--ids", either]);
    assert_eq!((shown.code, shown.out.lines().count()), (0, 2), "{shown:?}");
    assert!(shown.err.contains("warning: "), "{shown:?}");
    let nothing = lab.run(&["query", "-w", "host=web-9", "-o", "csv"]);
    assert_eq!(nothing.code, 0, "values are not names: {nothing:?}");
}
