//! Tests of tables in a pipe and in terminals of various widths.
//!
//! They cover alignment, shortening, wrapping, blocks and control characters.

use super::*;

#[test]
fn columns_stand_below_each_other() {
    let mut grid = Grid::new(["name", "n"]);
    grid.row(vec!["a".into(), "1".into()]);
    grid.row(vec!["much longer".into(), "1,200".into()]);
    assert_eq!(
        grid.render_within(None),
        "name             n\n───────────  ─────\na                1\nmuch longer  1,200\n"
    );
}

#[test]
fn what_steers_a_terminal_is_not_shown() {
    let mut grid = Grid::new(["x"]);
    grid.row(vec!["a\x1b[2J\nb".into()]);
    assert_eq!(grid.render_within(None).lines().nth(2), Some("a·[2J·b"));
    assert_eq!(Grid::new(["x"]).render_within(None), "x\n─\n");
    let mut grid = Grid::new(["x"]);
    grid.row(vec!["user\u{202e}exe".into()]);
    assert_eq!(grid.render_within(Some(60)).lines().nth(2), Some("user·exe"));
}

#[test]
fn wide_characters_take_two_columns() {
    let mut grid = Grid::new(["host", "x"]);
    grid.row(vec!["日本".into(), "a".into()]);
    grid.row(vec!["cafe\u{301}".into(), "b".into()]);
    assert_eq!(
        grid.render_within(None),
        "host  x\n────  ─\n日本  a\ncafe\u{301}  b\n"
    );
    assert_eq!(elide("日本語日本語", 7), "日…語");
}

/// Returns a table like the output of `find`: ids of 32 digits, times with nanoseconds, long tags.
fn timelines() -> Grid {
    let mut grid = Grid::new(["measurement", "tags", "first seen", "last seen", "id"]);
    for (host, id, seen) in [
        (
            "web-1",
            "3f2a9c017bde45a18c40f1e29d3b6a57",
            "2026-11-20T12:00:00.123456789Z",
        ),
        (
            "web-2",
            "a0b1c2d3e4f5061728394a5b6c7d8e9f",
            "2026-11-20T12:00:10Z",
        ),
    ] {
        grid.row(
            [
                "cpu",
                &format!("datacenter=frankfurt host={host} rack=12"),
                seen,
                "2026-11-20T13:00:00Z",
                id,
            ]
            .map(str::to_owned)
            .into(),
        );
    }
    grid
}

#[test]
fn at_200_columns_a_table_loses_needless_digits_only() {
    assert_eq!(
        timelines().render_within(Some(200)),
        "\
measurement  tags                                     first seen            last seen             id
───────────  ───────────────────────────────────────  ────────────────────  ────────────────────  ────────────────────────────────
cpu          datacenter=frankfurt host=web-1 rack=12  2026-11-20T12:00:00Z  2026-11-20T13:00:00Z  3f2a9c017bde45a18c40f1e29d3b6a57
cpu          datacenter=frankfurt host=web-2 rack=12  2026-11-20T12:00:10Z  2026-11-20T13:00:00Z  a0b1c2d3e4f5061728394a5b6c7d8e9f
"
    );
}

#[test]
fn between_long_texts_lose_their_middle() {
    assert_eq!(
        timelines().render_within(Some(110)),
        "\
measurement  tags                        first seen            last seen             id
───────────  ──────────────────────────  ────────────────────  ────────────────────  ─────────────────────────
cpu          datacenter=fr…eb-1 rack=12  2026-11-20T12:00:00Z  2026-11-20T13:00:00Z  3f2a9c017bde…f1e29d3b6a57
cpu          datacenter=fr…eb-2 rack=12  2026-11-20T12:00:10Z  2026-11-20T13:00:00Z  a0b1c2d3e4f5…4a5b6c7d8e9f
"
    );
}

#[test]
fn at_60_columns_rows_become_blocks() {
    assert_eq!(
        timelines().render_within(Some(60)),
        "\
─ 1 of 2 ───────────────────────────────
measurement  cpu
tags         datacenter=frankfurt host=web-1 rack=12
first seen   2026-11-20T12:00:00Z
last seen    2026-11-20T13:00:00Z
id           3f2a9c017bde45a18c40f1e29d3b6a57
─ 2 of 2 ───────────────────────────────
measurement  cpu
tags         datacenter=frankfurt host=web-2 rack=12
first seen   2026-11-20T12:00:10Z
last seen    2026-11-20T13:00:00Z
id           a0b1c2d3e4f5061728394a5b6c7d8e9f
"
    );
}

#[test]
fn a_pipe_gets_everything() {
    let text = timelines().render_within(None);
    assert!(
        text.contains("2026-11-20T12:00:00.123456789Z") && text.contains("3f2a9c017bde45a18c40f1e29d3b6a57"),
        "{text}"
    );
    assert!(!text.contains('…'), "{text}");
}

#[test]
fn numbers_stand_at_their_point_within_the_width() {
    let mut grid = Grid::new(["host", "time", "percentile_99.9(usage_of_the_cpu)"]);
    for (host, time, value) in [
        ("a", "2026-11-20T12:00:00Z", "43.333333333333336"),
        ("b", "2026-11-20T12:00:00.5Z", "7.0"),
        ("c", "2026-11-20T12:00:01Z", "1234567.891"),
        ("d", "2026-11-20T12:00:02Z", "1.25e-9"),
    ] {
        grid.row([host, time, value].map(str::to_owned).into());
    }
    let shown = grid.render_within(Some(48));
    assert_eq!(
        shown,
        "\
host  time                      percenti…he_cpu)
────  ────────────────────────  ────────────────
a     2026-11-20T12:00:00.000Z          43.3333
b     2026-11-20T12:00:00.500Z           7.0
c     2026-11-20T12:00:01.000Z     1234567.9
d     2026-11-20T12:00:02.000Z           1.25e-9
"
    );
    assert!(shown.lines().all(|line| width(line) <= 48), "{shown}");
    assert!(grid.render_within(None).contains("43.333333333333336"));
}

#[test]
fn texts_that_would_look_alike_are_not_elided() {
    let mut grid = Grid::new(["path", "n"]);
    for middle in ["one", "two"] {
        grid.row(vec![
            format!("/a/long/path/{middle}/and/the/same/end/of/all"),
            "1".into(),
        ]);
    }
    let shown = grid.render_within(Some(30));
    assert!(shown.starts_with("─ 1 of 2 "), "{shown}");
    assert!(shown.contains("one/") && shown.contains("two/"), "{shown}");
    assert!(shown.lines().all(|line| width(line) <= 30), "{shown}");
}

#[test]
fn a_last_column_may_wrap() {
    let mut grid = Grid::new(["job", "reason"]).wrapping();
    grid.row(vec![
        "7".into(),
        "the target refused the file, and the job is planned again".into(),
    ]);
    assert_eq!(
        grid.render_within(Some(30)),
        "\
job  reason
───  ─────────────────────────
  7  the target refused the
     file, and the job is
     planned again
"
    );
    assert_eq!(grid.render_within(None).lines().count(), 3);
}
