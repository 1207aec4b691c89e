//! Tests of charts at 60, 80 and 200 columns.
//!
//! They cover scaling, spikes, gaps, extreme values and several series.

use super::*;

fn line(name: &str, points: Vec<(i64, f64)>) -> Line {
    Line {
        name: name.into(),
        points,
    }
}

fn drawn(points: &[(i64, f64)], width: Option<usize>) -> Vec<String> {
    let text = chart("t", &[line("x", points.to_vec())], width);
    text.lines().map(str::to_owned).collect()
}

fn filled(line: &str) -> usize {
    line.chars().filter(|c| BLOCKS.contains(c)).count()
}

#[test]
fn a_rise_goes_up_to_the_right_at_every_width() {
    let points: Vec<(i64, f64)> = (0..7_200).map(|at| (at * NANOS_PER_SECOND, at as f64)).collect();
    for (width, columns) in [(Some(60), 54), (None, 74), (Some(200), 194)] {
        let lines = drawn(&points, width);
        assert_eq!(
            filled(&lines[HEIGHT]),
            columns,
            "the lowest line is full: {lines:?}"
        );
        for at in 1..HEIGHT {
            assert!(filled(&lines[at]) < filled(&lines[at + 1]), "{lines:?}");
        }
        assert!(
            lines[1].starts_with("7199 ┤") && lines[HEIGHT].starts_with("   0 ┤"),
            "{lines:?}"
        );
        let times = lines[HEIGHT + 1].trim();
        assert!(
            times.starts_with("1970-01-01T00:00:00Z") && times.ends_with("1970-01-01T01:59:59Z"),
            "{times}"
        );
        assert_eq!(
            lines[HEIGHT + 2],
            "minimum 0, mean 3599.5, maximum 7199, last 7199"
        );
        assert!(
            lines
                .iter()
                .all(|line| line.chars().count() <= width.unwrap_or(80)),
            "{lines:?}"
        );
    }
}

#[test]
fn windows_stand_side_by_side() {
    let points: Vec<(i64, f64)> = (0..50).map(|at| (at * 300, 1.0)).collect();
    let middle = &drawn(&points, None)[HEIGHT];
    assert_eq!(filled(middle), 50);
    assert!(!middle.trim_start_matches(|c| c != '┤').contains(' '), "{middle}");
}

#[test]
fn a_spike_between_many_points_is_drawn() {
    let mut points: Vec<(i64, f64)> = (0..10_000).map(|at| (at * NANOS_PER_SECOND, 1.0)).collect();
    points[5_000].1 = 100.0;
    points[7_000].1 = 0.0;
    let lines = drawn(&points, None);
    assert_eq!(lines[1].matches(BAND).count(), 1, "{lines:?}");
    assert!(
        lines[1].starts_with("100 ┤") && lines[HEIGHT].starts_with("  0 ┤"),
        "{lines:?}"
    );
    assert!(lines[HEIGHT + 2].starts_with("minimum 0, mean 1.00"), "{lines:?}");
    assert_eq!(
        lines[HEIGHT + 3],
        "█ up to the minimum and ▒ up to the maximum of each 2m15s"
    );
}

#[test]
fn gaps_stay_empty_and_odd_values_do_no_harm() {
    let gap = drawn(&[(0, 1.0), (100, 2.0), (50, f64::NAN)], None);
    assert_eq!(filled(&gap[HEIGHT]), 2, "{gap:?}");
    assert_eq!(drawn(&[(0, f64::NAN)], None), ["t", "  no numbers"]);
    for extreme in [
        &[(i64::MIN, 3.0), (i64::MAX, 3.0)][..],
        &[(5, -1e300)],
        &[(0, f64::MIN), (9, f64::MAX)],
    ] {
        assert_eq!(drawn(extreme, Some(60)).len(), 3 + HEIGHT, "{extreme:?}");
    }
}

#[test]
fn series_share_one_axis_and_have_a_legend() {
    let rise = (0..4).map(|at| (at * NANOS_PER_SECOND, at as f64)).collect();
    let fall = (0..4)
        .map(|at| (at * NANOS_PER_SECOND, 3.0 - at as f64))
        .collect();
    let text = chart(
        "cpu usage",
        &[line("host=a", rise), line("host=b", fall)],
        Some(60),
    );
    assert_eq!(
        text,
        "\
cpu usage
3 ┤b  a
  ┤
  ┤
  ┤
  ┤ ba
  ┤
  ┤
  ┤
  ┤
  ┤ ab
  ┤
  ┤
  ┤
0 ┤a  b
   1970-01-01T00:00:00Z 1970-01-01T00:00:03Z
   series  minimum  mean  maximum  last
─  ──────  ───────  ────  ───────  ────
a  host=a        0   1.5        3     3
b  host=b        0   1.5        3     0
+ marks several series
"
    );
}

#[test]
fn equal_points_of_two_series_are_marked() {
    let same = || (0..3).map(|at| (at, 1.0)).collect();
    let text = chart("t", &[line("a", same()), line("b", same())], Some(200));
    assert!(text.contains("┤+++") || text.contains(" +++"), "{text}");
}
