//! A small chart of one series in block characters: time to the right, values upwards.

/// The parts of a cell that are filled, from an eighth to all of it.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Lines of a chart.
const HEIGHT: usize = 8;
/// Most columns of a chart.
const WIDTH_MAX: usize = 72;
/// Steps of a column.
const STEPS: usize = HEIGHT * BLOCKS.len();

/// Draws points, given as nanoseconds and value in any order. Each column of the chart shows the mean of its points,
/// none where it has none; the lowest mean still shows a line. `label` makes a time readable.
pub(crate) fn chart(title: &str, points: &[(i64, f64)], label: impl Fn(i64) -> String) -> String {
    let mut out = format!("{title}\n");
    let finite = || points.iter().filter(|(_, value)| value.is_finite());
    let (Some(first), Some(last)) = (
        finite().map(|(time, _)| *time).min(),
        finite().map(|(time, _)| *time).max(),
    ) else {
        out.push_str("  no numbers\n");
        return out;
    };
    let width = width(finite().map(|(time, _)| *time).collect(), first, last);
    let columns = columns(finite().copied(), first, last, width);
    let means = || columns.iter().flatten().copied();
    let lowest = means().fold(f64::INFINITY, f64::min);
    let highest = means().fold(f64::NEG_INFINITY, f64::max);
    let (top, bottom) = (number(highest), number(lowest));
    let margin = top.chars().count().max(bottom.chars().count());
    for line in (0..HEIGHT).rev() {
        let label = match line {
            _ if line + 1 == HEIGHT => &top,
            0 => &bottom,
            _ => "",
        };
        let mut text = format!("{label:>margin$} ┤");
        for mean in &columns {
            text.push(mean.map_or(' ', |mean| cell(mean, lowest, highest, line)));
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    let (from, to) = (label(first), label(last));
    let space = width
        .saturating_sub(from.chars().count() + to.chars().count())
        .max(1);
    let to = if first == last {
        String::new()
    } else {
        format!("{}{to}", " ".repeat(space))
    };
    out.push_str(&format!("{:margin$}  {from}{to}\n", ""));
    out
}

/// A column for each step of time, as long as there is room: so windows that follow each other leave no gaps.
fn width(mut times: Vec<i64>, first: i64, last: i64) -> usize {
    times.sort_unstable();
    let steps = times
        .windows(2)
        .map(|pair| i128::from(pair[1]) - i128::from(pair[0]));
    let step = steps.filter(|step| *step > 0).min().unwrap_or(1);
    let steps = (i128::from(last) - i128::from(first)) / step + 1;
    usize::try_from(steps).unwrap_or(WIDTH_MAX).min(WIDTH_MAX)
}

/// The mean of each column.
fn columns(
    points: impl Iterator<Item = (i64, f64)>,
    first: i64,
    last: i64,
    width: usize,
) -> Vec<Option<f64>> {
    let span = i128::from(last) - i128::from(first);
    let mut sums = vec![(0.0, 0u64); width];
    for (time, value) in points {
        let offset = i128::from(time) - i128::from(first);
        let at = if span == 0 {
            0
        } else {
            offset * (width as i128 - 1) / span
        };
        // The offset is at most the span.
        let column = &mut sums[usize::try_from(at).unwrap_or(0)];
        column.0 += value;
        column.1 += 1;
    }
    sums.into_iter()
        .map(|(sum, count)| (count > 0).then(|| sum / count as f64))
        .collect()
}

/// What a column shows on a line, the lowest being 0.
fn cell(mean: f64, lowest: f64, highest: f64, line: usize) -> char {
    let share = if highest > lowest {
        (mean - lowest) / (highest - lowest)
    } else {
        0.5
    };
    // One step at least, so that the lowest value is seen too.
    let steps = 1 + (share * (STEPS - 1) as f64).round() as usize;
    match steps.saturating_sub(line * BLOCKS.len()) {
        0 => ' ',
        filled => BLOCKS[filled.min(BLOCKS.len()) - 1],
    }
}

/// A number in a few digits.
fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 || (1e-3..1e7).contains(&size) {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{value:.3e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(points: &[(i64, f64)]) -> Vec<String> {
        chart("t", points, |nanos| nanos.to_string())
            .lines()
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn a_rise_goes_up_to_the_right() {
        let points: Vec<(i64, f64)> = (0..720).map(|at| (at, at as f64)).collect();
        let lines = lines(&points);
        assert_eq!(lines.len(), 2 + HEIGHT);
        let filled = |line: &str| line.chars().filter(|c| BLOCKS.contains(c)).count();
        assert_eq!(filled(&lines[HEIGHT]), WIDTH_MAX, "the lowest line is full");
        for at in 1..HEIGHT {
            assert!(filled(&lines[at]) < filled(&lines[at + 1]), "{lines:?}");
        }
        assert!(
            lines[1].ends_with('█') && lines[HEIGHT].contains('▁'),
            "{lines:?}"
        );
        assert!(lines[HEIGHT + 1].trim().starts_with('0') && lines[HEIGHT + 1].ends_with("719"));
    }

    #[test]
    fn windows_stand_side_by_side() {
        let points: Vec<(i64, f64)> = (0..50).map(|at| (at * 300, 1.0)).collect();
        let middle = &lines(&points)[HEIGHT];
        assert_eq!(middle.chars().filter(|c| BLOCKS.contains(c)).count(), 50);
        assert!(!middle.trim_start_matches(|c| c != '┤').contains(' '), "{middle}");
    }

    #[test]
    fn gaps_stay_empty_and_odd_values_do_no_harm() {
        let gap = lines(&[(0, 1.0), (100, 2.0), (50, f64::NAN)]);
        assert_eq!(
            gap[HEIGHT].chars().filter(|c| BLOCKS.contains(c)).count(),
            2,
            "{gap:?}"
        );
        assert_eq!(lines(&[(0, f64::NAN)]), ["t", "  no numbers"]);
        assert_eq!(lines(&[(i64::MIN, 3.0), (i64::MAX, 3.0)]).len(), 2 + HEIGHT);
        assert_eq!(lines(&[(5, -1e300)]).len(), 2 + HEIGHT);
    }
}
