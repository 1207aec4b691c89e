//! Tests of policies and retention times that hide data: the command shows the effect and requires a confirmation.

use tideline_model::{Clock, SystemClock};

use crate::lab::Lab;

/// Writes one point for each of the last `days` days.
fn days(lab: &Lab, days: i64) {
    const DAY: i64 = 86_400_000_000_000;
    let now = SystemClock.now().nanos();
    let at = |day: i64| now - day * DAY - 60_000_000_000;
    let text: String = (0..days)
        .map(|day| format!("m,host=a v={day} {}\n", at(day)))
        .collect();
    let file = lab.file("days.lp", text);
    lab.ok(&["write", &file, "--quiet"]);
}

fn retention(lab: &Lab) -> String {
    let shown = lab.ok(&["tables", "policy", "default"]);
    let row = shown.lines().find(|line| line.starts_with("retention"));
    let value = row.and_then(|row| row.split_whitespace().last());
    value.unwrap_or_default().to_owned()
}

#[test]
fn a_shorter_retention_shows_what_it_hides_and_asks() {
    let lab = Lab::start();
    days(&lab, 60);
    let set = |text: &'static str| ["tables", "policy", "default", "--set", text];
    let longer = lab.run(&set("retention=90d"));
    assert_eq!(longer.code, 0, "it hides nothing: {longer:?}");

    let refused = lab.run(&set("retention=30d"));
    assert_eq!(refused.code, 2, "there is no terminal to confirm: {refused:?}");
    assert!(
        refused.err.contains("hides about 30 points") && refused.err.contains("--yes"),
        "{refused:?}"
    );
    assert_eq!(retention(&lab), "90d", "nothing was changed");
    let in_json = lab.run(&[&set("retention=30d")[..], &["--json"]].concat());
    assert_eq!(in_json.code, 2, "{in_json:?}");

    let agreed = lab.run(&[&set("retention=30d")[..], &["--yes"]].concat());
    assert_eq!(agreed.code, 0, "{agreed:?}");
    assert_eq!(retention(&lab), "30d");

    let again = lab.run(&set("hot_ttl=2d"));
    assert_eq!(
        again.code, 0,
        "points that are already hidden need no confirmation: {again:?}"
    );
    let more = lab.run(&set("retention=10d"));
    assert!(
        more.code == 2 && more.err.contains("hides about 20 more points"),
        "{more:?}"
    );
}

#[test]
fn a_shorter_retention_of_audit_records_asks() {
    let lab = Lab::start();
    let retention = || lab.ok(&["audit", "retention"]).trim().to_owned();
    assert_eq!(retention(), "365d");
    let refused = lab.run(&["audit", "retention", "90d"]);
    assert_eq!(refused.code, 2, "there is no terminal to confirm: {refused:?}");
    assert!(
        refused.err.contains("older than 90d") && refused.err.contains("--yes"),
        "{refused:?}"
    );
    assert_eq!(retention(), "365d", "nothing was changed");
    lab.ok(&["audit", "retention", "90d", "--yes"]);
    assert_eq!(retention(), "90d");
    lab.ok(&["audit", "retention", "90d"]);
    lab.ok(&["audit", "retention", "1y"]);
    assert_eq!(retention(), "365d", "more records are kept");
}
