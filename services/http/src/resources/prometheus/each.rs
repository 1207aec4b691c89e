//! Series with their samples, one after another: what federation hands out.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use tideline_promql::source::SeriesData;
use tideline_promql::{Labels, Matcher, Result, Samples, Select, Source};

use super::run::Running;

/// Bytes of an entry of the set of series that were handed out, beside its labels.
const SEEN_BYTES: usize = 32;

/// Takes a series with its samples, from several threads at once.
pub(super) type Take<'a> = dyn Fn(&Labels, Samples<'_>) -> Result<()> + Sync + 'a;

/// Hands each series that meets one of the selectors and has samples in the range (milliseconds, both ends included) to
/// `take`, each once, in no order.
pub(super) fn each_series(
    running: &Running<'_>,
    selectors: &[Vec<Matcher>],
    (start, end): (i64, i64),
    take: &Take<'_>,
) -> Result<()> {
    let source = running.view.source();
    let seen = Mutex::new(HashSet::new());
    for matchers in selectors {
        let select = Select {
            matchers,
            start,
            end,
            over_time: None,
            with_starts: false,
        };
        source.select(&select, &|labels, data| {
            let SeriesData::Samples(samples) = data else {
                return Ok(());
            };
            if selectors.len() > 1 {
                let texts: usize = labels.iter().map(|(name, value)| name.len() + value.len()).sum();
                source.hold(0, (texts + SEEN_BYTES) as u64)?;
            }
            // Whoever panicked with the lock has left a whole set.
            let is_new = selectors.len() == 1
                || seen
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(labels.clone());
            if is_new { take(labels, samples) } else { Ok(()) }
        })?;
    }
    Ok(())
}
