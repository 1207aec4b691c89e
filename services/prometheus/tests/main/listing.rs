//! Tests of metric names, matchers, lists and cardinality, and of requests that exceed a budget or are cancelled.
//!
//! All tests use one small fleet of hosts.

use tideline_model::Value;
use tideline_prometheus::Listed;
use tideline_prometheus::SeriesView;
use tideline_promql::MatchOp::{NotEqual, NotRegex};
use tideline_promql::{Labels, PromqlError};
use tideline_query::{Budget, Cancel};

use crate::support::{Point, World, eq, float, matcher, re};

fn fleet() -> World {
    let load = |busy: f64| {
        vec![
            ("usage_user", Value::Float(busy)),
            ("state", Value::String("ok".into())),
        ]
    };
    let points: Vec<Point<'_>> = vec![
        ("up,job=web,host=h1", 1_000, float(1.0)),
        ("up,job=web,host=h2", 2_000, float(0.0)),
        ("up,job=db,host=h1", 3_000, float(1.0)),
        ("up,host=h3", 4_000, vec![("value", Value::Signed(1))]),
        ("cpu,host=h1,cpu=total", 5_000, load(0.5)),
        (
            "cpu_usage,host=h9",
            6_000,
            vec![("user", Value::Signed(3)), ("_start", Value::Signed(7))],
        ),
        (
            "note,host=h1",
            7_000,
            vec![("value", Value::String("text".into()))],
        ),
    ];
    World::with(&points)
}

fn names(listed: Listed<String>) -> Vec<String> {
    assert!(!listed.is_cut);
    listed.items
}

#[test]
fn names_are_made_of_measurements_and_fields() {
    let world = fleet();
    let all = names(
        world
            .view()
            .label_values("__name__", &[], None, None)
            .expect("listed"),
    );
    assert_eq!(all, ["cpu_usage_user", "up"]);
    // Two measurements have a metric of the same name.
    assert_eq!(
        world.series(&[eq("__name__", "cpu_usage_user")]),
        [
            r#"{__name__="cpu_usage_user", cpu="total", host="h1"}"#,
            r#"{__name__="cpu_usage_user", host="h9"}"#,
        ]
    );
    // A search of all fields finds the same series.
    assert_eq!(
        world.series(&[re("__name__", "cpu_.*_user")]),
        world.series(&[eq("__name__", "cpu_usage_user")]),
    );
    for hidden in [
        "up_value",
        "cpu",
        "cpu_state",
        "cpu_usage",
        "cpu_usage__start",
        "note",
        "note_value",
        "",
    ] {
        assert_eq!(world.series(&[eq("__name__", hidden)]), [""; 0], "{hidden}");
    }
}

#[test]
fn matchers_select_as_prometheus_does() {
    let world = fleet();
    let hosts = |matchers: &[tideline_promql::Matcher]| -> Vec<String> {
        let mut all = vec![eq("__name__", "up")];
        all.extend(matchers.iter().cloned());
        let listed = world.view().series(&[all], None, None).expect("listed");
        let of = |labels: &Labels| {
            format!(
                "{}/{}",
                labels.get("host").unwrap_or(""),
                labels.get("job").unwrap_or("")
            )
        };
        listed.items.iter().map(of).collect()
    };
    assert_eq!(hosts(&[]), ["h1/db", "h1/web", "h2/web", "h3/"]);
    assert_eq!(hosts(&[eq("host", "h1")]), ["h1/db", "h1/web"]);
    assert_eq!(hosts(&[matcher("host", NotEqual, "h1")]), ["h2/web", "h3/"]);
    assert_eq!(hosts(&[re("host", "h1|h3")]), ["h1/db", "h1/web", "h3/"]);
    assert_eq!(hosts(&[re("host", "h.*")]).len(), 4);
    // Regular expressions are anchored at both ends.
    assert_eq!(hosts(&[re("host", "h")]), [""; 0]);
    assert_eq!(
        hosts(&[re("job", "[dw](b|eb)"), re("host", ".[1]")]),
        ["h1/db", "h1/web"]
    );
    // A missing label equals the empty string.
    assert_eq!(hosts(&[eq("job", "")]), ["h3/"]);
    assert_eq!(hosts(&[re("job", "")]), ["h3/"]);
    assert_eq!(hosts(&[re("job", "|db")]), ["h1/db", "h3/"]);
    assert_eq!(hosts(&[re("job", "d?b?")]), ["h1/db", "h3/"]);
    assert_eq!(hosts(&[re("job", ".*")]).len(), 4);
    assert_eq!(hosts(&[re("job", ".+")]), ["h1/db", "h1/web", "h2/web"]);
    assert_eq!(
        hosts(&[matcher("job", NotEqual, "")]),
        ["h1/db", "h1/web", "h2/web"]
    );
    assert_eq!(hosts(&[matcher("job", NotRegex, "web")]), ["h1/db", "h3/"]);
    assert_eq!(hosts(&[matcher("job", NotRegex, ".*")]), [""; 0]);
    assert_eq!(hosts(&[matcher("job", NotRegex, ".+")]), ["h3/"]);
    assert_eq!(hosts(&[eq("absent", ""), eq("host", "h2")]), ["h2/web"]);
    // The expression is longer than the index supports.
    let long = format!("h2.*|{}", "x".repeat(2_000));
    assert_eq!(hosts(&[re("host", &long)]), ["h2/web"]);
    // As in Go, a bracket in a character class is a plain character.
    assert_eq!(hosts(&[re("host", r"[[h]\d")]).len(), 4);
    // Several matchers of the name.
    assert_eq!(
        world.series(&[eq("__name__", "up"), matcher("__name__", NotEqual, "up")]),
        [""; 0]
    );
    assert_eq!(
        world
            .series(&[matcher("__name__", NotRegex, "cpu.*"), eq("host", "h2")])
            .len(),
        1
    );
    assert_eq!(world.series(&[eq("host", "h1")]).len(), 3);
}

#[test]
fn lists_are_sorted_cut_and_bounded_by_time() {
    let world = fleet();
    let view = world.view();
    let values = |name: &str, range| view.label_values(name, &[], range, None).expect("listed");
    assert_eq!(
        names(view.label_names(&[], None, None).expect("listed")),
        ["__name__", "cpu", "host", "job"]
    );
    assert_eq!(names(values("host", None)), ["h1", "h2", "h3", "h9"]);
    assert_eq!(names(values("host", Some((2_000, 3_000)))), ["h1", "h2"]);
    assert_eq!(names(values("host", Some((6_001, 9_000)))), [""; 0]);
    assert_eq!(
        names(values("__name__", Some((4_001, 9_000)))),
        ["cpu_usage_user"]
    );
    assert_eq!(names(values("nothing", None)), [""; 0]);
    let up = [vec![eq("__name__", "up")]];
    let of = |range| names(view.label_names(&up, range, None).expect("listed"));
    assert_eq!(of(None), ["__name__", "host", "job"]);
    assert_eq!(of(Some((4_000, 4_000))), ["__name__", "host"]);
    let cut = view.label_values("host", &up, None, Some(2)).expect("listed");
    assert_eq!((cut.items.join(" "), cut.is_cut), ("h1 h2".to_owned(), true));
    let whole = view.label_values("host", &up, None, Some(3)).expect("listed");
    assert_eq!((whole.items.len(), whole.is_cut), (3, false));
    let both = [
        vec![eq("host", "h2")],
        vec![eq("host", "h2")],
        vec![eq("host", "h9")],
    ];
    assert_eq!(view.series(&both, None, None).expect("listed").items.len(), 2);
    let cut = view.series(&both, Some((0, 9_000)), Some(1)).expect("listed");
    assert_eq!((cut.items.len(), cut.is_cut), (1, true));
}

#[test]
fn cardinality_counts_series_and_labels() {
    let world = fleet();
    let counted = world.view().cardinality(2).expect("counted");
    // Four series of `up`, two of `cpu_usage_user`.
    assert_eq!(counted.series, 6);
    assert_eq!(
        counted.by_metric_name,
        [("up".to_owned(), 4), ("cpu_usage_user".to_owned(), 2)]
    );
    assert_eq!(counted.values_by_label[0], ("host".to_owned(), 4));
    assert_eq!(counted.bytes_by_label[0], ("__name__".to_owned(), 16));
    assert_eq!(counted.by_label_pair[0], ("__name__=up".to_owned(), 4));
    assert_eq!(counted.label_pairs, 4 + 2 + 1 + 2);
    assert_eq!(counted.span, Some((1_000, 7_000)));
}

#[test]
fn budgets_and_clients_that_leave_end_it() {
    let world = fleet();
    let budget = Budget {
        timelines_max: 3,
        ..Budget::default()
    };
    let view = SeriesView::new(&world.querier, &world.table, budget, &Cancel::new());
    let refused = view.series(&[vec![eq("__name__", "up")]], None, None);
    assert!(matches!(refused, Err(PromqlError::TooMany(_))), "{refused:?}");
    let cancel = Cancel::new();
    let view = SeriesView::new(&world.querier, &world.table, Budget::default(), &cancel);
    cancel.cancel();
    let refused = view.series(&[vec![eq("__name__", "up")]], None, None);
    assert!(matches!(refused, Err(PromqlError::Canceled(_))), "{refused:?}");
}
