//! Tests of split points: ascending, evenly distributed, and returned only if the first column is a hash.

use super::*;

fn shown(layout: &KeyLayout, n: usize) -> Vec<String> {
    layout
        .split_points(n)
        .iter()
        .map(|point| point.escape_ascii().to_string())
        .collect()
}

#[test]
fn hash_prefixes_are_split_at_digits() {
    let of = |digits| layout_of(&[hash("h", &["n"], digits), plain("n", ColumnType::U64)]);
    assert_eq!(shown(&of(2), 4), ["40", "80", "c0"]);
    assert_eq!(shown(&of(4), 3), ["5555", "aaaa"]);
    assert_eq!(shown(&of(8), 2), ["80000000"]);
    assert_eq!(shown(&of(1), 100).len(), 15);
    assert_eq!(shown(&of(1), 1), [""; 0]);
    assert_eq!(shown(&of(1), 0), [""; 0]);
}

#[test]
fn buckets_are_split_at_numbers() {
    let layout = layout_of(&[bucket("b", &["n"], 256), plain("n", ColumnType::U64)]);
    assert_eq!(layout.split_points(4), [[64], [128], [192]]);
    let layout = layout_of(&[bucket("b", &["n"], 5), plain("n", ColumnType::U64)]);
    assert_eq!(layout.split_points(9), [[1], [2], [3], [4]]);
    assert_eq!(layout.split_points(2), [[2]]);
}

#[test]
fn other_keys_have_no_points() {
    let layout = layout_of(&[
        plain("a", ColumnType::U64),
        hash("h", &["n"], 4),
        plain("n", ColumnType::U64),
    ]);
    assert_eq!(shown(&layout, 4), [""; 0]);
}

#[test]
fn points_split_rows_evenly() {
    let first = [hash("h", &["n"], 4), bucket("h", &["n"], 64)];
    for first in first
        .into_iter()
        .flat_map(|first| [first.clone(), descending(first)])
    {
        let layout = layout_of(&[first.clone(), plain("n", ColumnType::U64)]);
        let points = layout.split_points(8);
        assert!(points.is_sorted() && points.len() == 7, "{first:?}");
        let mut counts = [0_u32; 8];
        for n in 0..8_000_u64 {
            let key = encoded(&layout, &[n.into()]);
            counts[points.partition_point(|point| *point <= key)] += 1;
        }
        assert!(
            counts.iter().all(|count| (850..1_150).contains(count)),
            "{first:?}: {counts:?}"
        );
    }
}
