//! Labels of a series: the tags of its timeline and the name of its metric.

use tideline_engine::catalog::Entry;
use tideline_promql::Labels;
use tideline_promql::labels::METRIC_NAME;

/// Returns the labels of a timeline for a metric name. A tag with the key `__name__` is hidden.
pub(crate) fn of_entry(entry: &Entry<'_>, name: &str) -> Labels {
    let before = entry.tags().take_while(|(key, _)| *key < METRIC_NAME);
    let after = entry.tags().skip_while(|(key, _)| *key <= METRIC_NAME);
    Labels::from_sorted(before.chain([(METRIC_NAME, name)]).chain(after))
}
