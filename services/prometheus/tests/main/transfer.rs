//! Tests that transfers by pages return the same samples as a selection, for small and large pages.
//!
//! Also tests the order and the memory limit of sorted transfers, overlapping selectors, and errors.

use std::collections::BTreeMap;

use tideline_histogram::Histogram;
use tideline_model::ColumnData;
use tideline_prometheus::{SeriesFragment, SeriesView};
use tideline_promql::source::{SeriesData, Source};
use tideline_promql::{Labels, Matcher, PromqlError, Result, Samples, Select};
use tideline_query::{Budget, Cancel};

use crate::source::{keep, select};
use crate::support::{MILLI, World, eq, float, re};

/// Samples by series: timestamp, text of the value.
type Found = BTreeMap<String, Vec<(i64, String)>>;

fn view(world: &World, held_bytes_max: u64) -> SeriesView<'_> {
    let budget = Budget {
        held_bytes_max,
        timelines_max: 1,
        points_max: u64::MAX,
        ..Budget::default()
    };
    SeriesView::new(&world.querier, &world.table, budget, &Cancel::new())
}

fn encode(labels: &Labels, samples: Samples<'_>, out: &mut Vec<u8>) -> Result<()> {
    for (time, value, _) in keep(SeriesData::Samples(samples)) {
        out.extend_from_slice(format!("{labels}\t{time}\t{value}\n").as_bytes());
    }
    Ok(())
}

fn read(bytes: &[u8], found: &mut Found) {
    for line in std::str::from_utf8(bytes).expect("text").lines() {
        let mut parts = line.split('\t');
        let mut next = || parts.next().expect("three parts").to_owned();
        let (labels, time, value) = (next(), next().parse().expect("a number"), next());
        found.entry(labels).or_default().push((time, value));
    }
}

fn transferred(
    view: &SeriesView<'_>,
    selectors: &[Vec<Matcher>],
    range: (i64, i64),
) -> Result<(Found, usize)> {
    let (mut found, mut pieces) = (Found::new(), 0);
    view.transfer(selectors, range, &encode, &mut |bytes| {
        pieces += 1;
        read(bytes, &mut found);
        Ok(())
    })?;
    Ok((found, pieces))
}

fn sorted(view: &SeriesView<'_>, matchers: &[Matcher], range: (i64, i64)) -> Result<Found> {
    let mut found = Found::new();
    let mut before: Option<(Labels, bool)> = None;
    view.transfer_sorted(matchers, range, &encode, &mut |fragment: SeriesFragment<'_>| {
        if let Some((labels, is_last)) = &before {
            assert_eq!(
                labels == fragment.labels,
                !is_last,
                "{labels} before {}",
                fragment.labels
            );
            assert!(labels <= fragment.labels, "{labels} before {}", fragment.labels);
        }
        before = Some((fragment.labels.clone(), fragment.is_last));
        read(fragment.bytes, &mut found);
        Ok(())
    })?;
    assert!(before.is_none_or(|(_, is_last)| is_last));
    Ok(found)
}

/// Returns the samples of a selection.
fn at_once(world: &World, matchers: &[Matcher], range: (i64, i64)) -> Found {
    let found = select(world, matchers, range).into_iter();
    let plain = |kept: crate::source::Kept| kept.into_iter().map(|(time, value, _)| (time, value)).collect();
    found.map(|(labels, kept)| (labels, plain(kept))).collect()
}

/// Writes long and short series, points that share a millisecond, series of two measurements, and numbers among
/// histograms.
fn world() -> World {
    let world = World::new();
    let line = |key: &str, field: &str, times: &[i64]| {
        let values = times.iter().map(|time| (time % 9_973) as f64).collect();
        world.write_line(key, field, times, ColumnData::Float(values));
    };
    let every = |nanos: i64, count: i64| (0..count).map(|at| at * nanos).collect::<Vec<_>>();
    line("m,host=long", "value", &every(MILLI * 2 / 5, 60_000));
    line("m,host=a", "busy", &every(MILLI, 30_000));
    line("m_busy,host=a", "value", &every(MILLI * 3 / 2, 30_000));
    line("m_busy,host=b", "value", &every(MILLI, 100));
    for at in 0..200 {
        line(&format!("m,host=h{at}"), "value", &every(MILLI * 100, 10));
    }
    let stored = |at: i64| {
        let count = at % 500 + 1;
        let buckets = format!("{count} ").repeat(40);
        let text = format!(
            "{{{{schema:3 count:{} sum:5 buckets:[{}]}}}}",
            40 * count,
            buckets.trim()
        );
        let mut stored = Vec::new();
        Histogram::parse(&text)
            .expect("a histogram")
            .to_bytes(&mut stored);
        stored
    };
    let times = every(10 * MILLI, 2_000);
    let values: Vec<Vec<u8>> = (0..2_000).map(stored).collect();
    let values = ColumnData::Histogram(values.iter().map(Vec::as_slice).collect());
    world.write_line("lag,host=a", "histogram", &times, values);
    line("lag,host=a", "value", &every(1_370 * MILLI, 15));
    world
}

#[test]
fn pages_hold_what_there_is_however_long_and_many_series_are() {
    let world = world();
    let all = [re("host", ".+")];
    for is_sealed in [false, true] {
        if is_sealed {
            world.engine.seal().expect("sealed");
        }
        for range in [(0, 100_000), (3_001, 20_000), (7, 7), (90_000, 95_000), (5, 4)] {
            let expected = at_once(&world, &all, range);
            for held_bytes_max in [2 << 20, 256 << 20] {
                let view = view(&world, held_bytes_max);
                let (found, _) = transferred(&view, &[all.to_vec()], range).expect("transferred");
                assert!(found == expected, "{range:?} {held_bytes_max}");
                let found = sorted(&view, &all, range).expect("transferred");
                assert!(found == expected, "{range:?} {held_bytes_max}, sorted");
            }
        }
    }
}

#[test]
fn a_series_that_is_larger_than_the_budget_comes_in_pieces() {
    let world = World::new();
    let times: Vec<i64> = (0..80_000).map(|at| at * MILLI).collect();
    world.write_line(
        "m,host=a",
        "value",
        &times,
        ColumnData::Float(vec![0.5; times.len()]),
    );
    let matchers = [eq("__name__", "m")];
    let small = view(&world, 1 << 20);
    let selection = Select {
        matchers: &matchers,
        start: 0,
        end: 80_000,
        over_time: None,
        with_starts: false,
    };
    let (found, pieces) = transferred(&small, &[matchers.to_vec()], (0, 80_000)).expect("transferred");
    assert_eq!(found.values().map(Vec::len).sum::<usize>(), 80_000);
    assert!(pieces > 4, "{pieces}");
    // All memory was released, so the transfer can be repeated. A selection of this size is refused.
    let (again, _) = transferred(&small, &[matchers.to_vec()], (0, 80_000)).expect("transferred");
    assert!(found == again);
    let refused = small.source().select(&selection, &|_, _| Ok(()));
    assert!(matches!(refused, Err(PromqlError::TooMany(_))), "{refused:?}");
}

#[test]
fn a_series_of_several_selectors_comes_once_and_failures_end_it() {
    let world = World::with(&[
        ("m,host=a", 1_000, float(1.5)),
        ("m,host=b", 1_000, float(2.5)),
        ("n,host=b", 1_000, float(3.5)),
    ]);
    let selectors = [
        vec![eq("host", "a")],
        vec![eq("__name__", "m")],
        vec![re("__name__", ".+")],
    ];
    let view = world.view();
    let (found, _) = transferred(&view, &selectors, (0, 9_000)).expect("transferred");
    assert!(found.values().all(|samples| samples.len() == 1), "{found:?}");
    assert_eq!(found.len(), 3);
    let refuse = |_: &Labels, _: Samples<'_>, _: &mut Vec<u8>| Err(PromqlError::Execution("no".into()));
    let ended = view.transfer(&selectors, (0, 9_000), &refuse, &mut |_| Ok(()));
    assert_eq!(ended, Err(PromqlError::Execution("no".into())));
    let ended = view.transfer(&selectors, (0, 9_000), &encode, &mut |_| {
        Err(PromqlError::Canceled("here"))
    });
    assert_eq!(ended, Err(PromqlError::Canceled("here")));
    // Labels to be sorted count against the budget.
    let tiny = crate::transfer::view(&world, 200);
    let refused = sorted(&tiny, &[re("host", ".+")], (0, 9_000));
    assert!(matches!(refused, Err(PromqlError::TooMany(_))), "{refused:?}");
}
