//! Examples of searches over rows: empty lists, refused tests, long texts, groups, percentiles, NaN, and stopped searches.
//!
//! Each index has at most one row, so the expected results are evident.

use super::*;

/// Opens an index in a new folder, and indexes one row with these cells.
fn with_one_row(cells: Vec<Vec<Cell>>) -> (tempfile::TempDir, RowIndex, Row) {
    let folder = tempfile::tempdir().expect("a folder");
    let traits = RowTraits::default();
    let opened = RowIndex::open(folder.path(), columns(), traits, Sharding::one(), HEAP_BYTES);
    let (index, _) = opened.expect("a folder");
    let row = Row {
        key: b"k".to_vec(),
        time: 0,
        cells,
    };
    index
        .replace(vec![row.key.clone()], vec![index.document(&row)])
        .expect("a writer");
    index
        .commit(&RowPosition { end: 1, build: None })
        .expect("a writer");
    (folder, index, row)
}

#[test]
fn an_empty_list_matches_no_row() {
    let mut cells = vec![Vec::new(); COLUMNS.len()];
    (cells[0], cells[6]) = (vec![Cell::Text("red".to_owned())], vec![Cell::Signed(7)]);
    let (_folder, index, row) = with_one_row(cells);
    for name in ["word", "count", "title"] {
        let listed = Condition::leaf(Subject::Column(name.to_owned()), Test::from(In(Vec::new())));
        let others = Condition::Not(Box::new(listed.clone()));
        for (condition, expected) in [(listed, vec![]), (others, vec![row.key.clone()])] {
            let matcher = compiled(&condition).expect("a valid condition");
            let found = all_pages(&index, &matcher, &[], 9, RowsShown::default());
            assert_eq!(found, expected, "{name}");
        }
    }
}

#[test]
fn tests_that_an_index_cannot_decide_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let traits = RowTraits::default();
    let opened = RowIndex::open(folder.path(), columns(), traits, Sharding::one(), HEAP_BYTES);
    let (index, _) = opened.expect("a folder");
    for (column, test, said) in [
        (
            "missing",
            Exists(true).into(),
            "is not in the search index; it has the columns word, labels, title, body",
        ),
        (
            "title",
            Test::from(Equals(Literal::Text("a".into()))),
            "index it as keyword",
        ),
        (
            "word",
            Words {
                text: "a".into(),
                distance: 0,
            }
            .into(),
            "index it as text",
        ),
        (
            "word",
            Equals(Literal::Signed(1)).into(),
            "index it as number or time",
        ),
        (
            "count",
            Near(Circle {
                lat: 0.0,
                lon: 0.0,
                meters: 1.0,
            })
            .into(),
            "index it as geo",
        ),
        ("count", Equals(Literal::Boolean(true)).into(), "index it as bool"),
    ] {
        let condition = Condition::leaf(Subject::Column(column.to_owned()), test);
        let nested = Condition::And(vec![Condition::Not(Box::new(condition))]);
        let matcher = compiled(&nested).expect("a valid condition");
        let error = index.check(matcher.root()).expect_err("it cannot be decided");
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_phrase_of_equal_words_is_found_in_a_long_text_and_can_be_stopped() {
    const WORDS: usize = 200_000;
    let mut cells = vec![Vec::new(); COLUMNS.len()];
    cells[2] = vec![Cell::Text("red ".repeat(WORDS))];
    let (_folder, index, row) = with_one_row(cells);
    let phrase = Phrase {
        text: "red red".into(),
        distance: 0,
    };
    let condition = Condition::leaf(Subject::Column("title".to_owned()), Test::from(phrase));
    let matcher = compiled(&condition).expect("a valid condition");
    let found = all_pages(&index, &matcher, &[], 9, RowsShown::default());
    assert_eq!(found, [row.key]);
    // The first check is made before the positions are compared.
    let checks = std::cell::Cell::new(0);
    let query = RowQuery {
        root: matcher.root(),
        sort: &[],
        after: None,
        limit: 9,
        is_stopped: &|| checks.replace(checks.get() + 1) > 0,
    };
    let page = index.search(&query, RowsShown::default()).expect("a sound index");
    assert_eq!((page.total, checks.get()), (0, 2));
}

#[test]
fn a_plan_that_is_stopped_reads_no_segment() {
    let (_folder, index, _) = with_one_row(vec![Vec::new(); COLUMNS.len()]);
    let nothing = Condition::leaf(Subject::Column("word".to_owned()), Test::from(In(Vec::new())));
    let matcher = compiled(&Condition::Not(Box::new(nothing))).expect("a valid condition");
    for (is_stopped, expected) in [(false, 1), (true, 0)] {
        let plan = index.plan_test(matcher.root(), RowsShown::default(), &|| is_stopped);
        assert_eq!(plan.expect("a sound index").rows, expected);
    }
}

#[test]
fn groups_of_lists_are_counted_within_limits_and_can_be_stopped() {
    let mut cells = vec![Vec::new(); COLUMNS.len()];
    cells[1] = (0..90).map(|n| Cell::Text(format!("label-{n}"))).collect();
    (cells[6], cells[7]) = (vec![Cell::Signed(1)], vec![Cell::Unsigned(2)]);
    cells[8] = vec![Cell::Float(3.0)];
    let (_folder, index, _) = with_one_row(cells);
    let matcher = compiled(&Condition::All).expect("a valid condition");
    let count = |keys: usize, metrics: &[RowMetric], is_stopped: &dyn Fn() -> bool| {
        let query = RowFacetQuery {
            root: matcher.root(),
            by: &vec![RowFacetKey::Value(1); keys],
            metrics,
            limit: 1,
            is_by_value: true,
            is_stopped,
        };
        index.facets(&query, RowsShown::default())
    };
    // The only row is in 729,000 groups of the last level.
    let checks = std::cell::Cell::new(0);
    let stopped = count(3, &[], &|| checks.replace(checks.get() + 1) >= 20);
    assert!(matches!(stopped, Err(SearchError::Stopped)), "{stopped:?}");
    // Each of 8,100 groups has a sketch for each metric.
    let metric = |column| RowMetric {
        column,
        has_percentiles: true,
    };
    let refused = count(2, &[6, 7, 8].map(metric), &|| false);
    assert!(
        matches!(refused, Err(SearchError::OverLimit { .. })),
        "{refused:?}"
    );
    let counted = count(2, &[metric(8)], &|| false).expect("few groups");
    assert_eq!((counted.rows, counted.distinct), (1, 90));
}

#[test]
fn percentiles_hold_for_all_doubles() {
    let at = |percent: f64, values: &[f64]| {
        let mut cells = vec![Vec::new(); COLUMNS.len()];
        cells[8] = values.iter().copied().map(Cell::Float).collect();
        let (_folder, index, _) = with_one_row(cells);
        let matcher = compiled(&Condition::All).expect("a valid condition");
        let query = RowFacetQuery {
            root: matcher.root(),
            by: &[],
            metrics: &[RowMetric {
                column: 8,
                has_percentiles: true,
            }],
            limit: 1,
            is_by_value: true,
            is_stopped: &|| false,
        };
        let facets = index.facets(&query, RowsShown::default()).expect("few groups");
        facets.metrics[0].percentile(percent)
    };
    for values in [
        vec![1e-300, 1e-12, 2e-12, 3e-12, 1.0, 2.0, 1e12, 1e15, 1e300],
        vec![-1e300, -5.0, -1e-15, 0.0, 1e-15, f64::MAX, f64::INFINITY],
        vec![f64::NEG_INFINITY, -f64::MAX, 7.0, f64::INFINITY],
        vec![f64::INFINITY, f64::INFINITY],
    ] {
        for (rank, value) in values.iter().enumerate() {
            let percent = 100.0 * (rank as f64 + 0.1) / (values.len() - 1) as f64;
            let found = at(percent.min(100.0), &values).expect("values");
            let is_near = (found - value).abs() <= value.abs() / 100.0;
            assert!(found == *value || is_near, "{percent} of {values:?}: {found}");
        }
    }
    // NaN is not counted.
    assert_eq!(at(50.0, &[f64::NAN]), None);
    assert_eq!(at(100.0, &[f64::NAN, 3.0, f64::NAN]), Some(3.0));
}

#[test]
fn nan_is_in_no_range() {
    for values in [vec![f64::NAN], vec![-f64::NAN], vec![f64::NAN, 100.0]] {
        let mut cells = vec![Vec::new(); COLUMNS.len()];
        cells[8] = values.into_iter().map(Cell::Float).collect();
        let (_folder, index, row) = with_one_row(cells);
        let number = |number: f64| Literal::Float(number);
        for test in [
            Test::from(Between(Box::new([number(0.0), number(7.0)]))),
            Test::from(Equals(number(5.0))),
        ] {
            let inside = Condition::leaf(Subject::Column("price".to_owned()), test);
            let outside = Condition::Not(Box::new(inside.clone()));
            for (condition, expected) in [(inside, vec![]), (outside, vec![row.key.clone()])] {
                let matcher = compiled(&condition).expect("a valid condition");
                let found = all_pages(&index, &matcher, &[], 9, RowsShown::default());
                assert_eq!(found, expected, "{condition:?}");
            }
        }
    }
}

/// A time that is quadratic in the number of matches would be minutes.
#[test]
fn matches_in_a_long_text_are_highlighted_in_linear_time() {
    const WORDS: usize = 500_000;
    let mut cells = vec![Vec::new(); COLUMNS.len()];
    cells[2] = vec![Cell::Text("red é ".repeat(WORDS))];
    let row = Row {
        key: b"k".to_vec(),
        time: 0,
        cells,
    };
    let leaf = |text: &str| {
        let (text, distance) = (text.to_owned(), 0);
        Condition::leaf(
            Subject::Column("title".to_owned()),
            Test::from(Words { text, distance }),
        )
    };
    let condition = Condition::Or(vec![leaf("red"), leaf("red white")]);
    let matcher = compiled(&condition).expect("a valid condition");
    let started = Instant::now();
    let found = highlights(matcher.root(), &row);
    let elapsed = started.elapsed();
    assert!(elapsed < Duration::from_secs(60), "{elapsed:?}");
    assert_eq!((found.len(), found[0].spans.len()), (1, WORDS));
    let last = 6 * (WORDS - 1);
    assert_eq!(found[0].spans.last(), Some(&(last..last + 3)));
}
