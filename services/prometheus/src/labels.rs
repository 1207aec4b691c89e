//! Labels of a series: the tags of its timeline and the name of its metric.

use tideline_engine::catalog::Entry;
use tideline_promql::Labels;
use tideline_promql::labels::METRIC_NAME;

/// The labels of a timeline under a name. A tag that is called as the name's label is hidden by it.
pub(crate) fn of_entry(entry: &Entry<'_>, name: &str) -> Labels {
    let before = entry.tags().take_while(|(key, _)| *key < METRIC_NAME);
    let after = entry.tags().skip_while(|(key, _)| *key <= METRIC_NAME);
    Labels::from_sorted(before.chain([(METRIC_NAME, name)]).chain(after))
}
