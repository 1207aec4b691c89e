//! Exemplars: single observations with a trace to look at, kept as JSON beside the samples of their series.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use parking_lot::Mutex;
use serde::Deserialize;
use tideline_model::ColumnData;
use tideline_promql::{Labels, LabelsBuilder, Matcher, Result};

use crate::failure;
use crate::labels;
use crate::names::EXEMPLAR_FIELD;
use crate::samples::rows;
use crate::scope::{Found, Scope};
use crate::time::{Span, millis};
use crate::view::SeriesView;

/// One observation.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar {
    /// What leads to it, such as a trace id.
    pub labels: Labels,
    /// What was observed.
    pub value: f64,
    /// When, in milliseconds.
    pub time: i64,
}

/// The exemplars of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesExemplars {
    /// The series.
    pub labels: Labels,
    /// At least one, by rising instants.
    pub exemplars: Vec<Exemplar>,
}

/// The stored form.
#[derive(Debug, Deserialize)]
struct Stored {
    #[serde(default)]
    labels: BTreeMap<String, String>,
    value: Number,
}

/// A number; as text where JSON has none for it: `NaN`, `+Inf`, `-Inf`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Number {
    Plain(f64),
    Text(String),
}

impl SeriesView<'_> {
    /// The exemplars in a range (milliseconds, both ends included) of series that meet all matchers of one of the
    /// selectors, sorted by the labels of the series. What is stored and is none is passed over.
    pub fn exemplars(&self, selectors: &[Vec<Matcher>], range: (i64, i64)) -> Result<Vec<SeriesExemplars>> {
        let mut all = BTreeMap::new();
        let field = self.table.points().schema().field(EXEMPLAR_FIELD);
        let (Some(field), true) = (field, range.0 <= range.1) else {
            return Ok(Vec::new());
        };
        let range = Span::of_millis(range).range();
        for matchers in selectors {
            let mut scope = Scope::select(self, matchers)?;
            self.check_timelines(scope.timelines.len())?;
            // They are of the series that is named as its measurement.
            scope.retain_metrics(|measurement, metric| measurement == metric);
            scope.timelines.sort_unstable_by_key(|timeline| timeline.id);
            let found = Mutex::new(Vec::new());
            let swept = self.querier.sweep(self.table, range, &self.watch, |sweep| {
                sweep.shares(
                    &scope.timelines,
                    |found| found.id,
                    &[field],
                    |share, reader| {
                        for timeline in share {
                            let mut exemplars = Vec::new();
                            reader.timeline(timeline.id, &mut |run| {
                                for column in run.columns.iter().filter(|column| column.field == field) {
                                    let ColumnData::String(texts) = &column.values else {
                                        continue;
                                    };
                                    let numbered = rows(column, run.rows()).enumerate();
                                    let each = numbered
                                        .filter_map(|(at, row)| read(texts.get(at), run.timestamps[row]));
                                    exemplars.extend(each);
                                }
                                Ok(ControlFlow::Continue(()))
                            })?;
                            if !exemplars.is_empty() {
                                found.lock().push((*timeline, exemplars));
                            }
                        }
                        Ok(())
                    },
                )
            });
            swept.map_err(|error| failure::of_query(&error))?;
            let found = found.into_inner().into_iter();
            all.extend(
                found.filter_map(|(timeline, exemplars)| {
                    Some((self.labels_of(&scope, &timeline)?, exemplars))
                }),
            );
        }
        let series = |(labels, exemplars)| SeriesExemplars { labels, exemplars };
        Ok(all.into_iter().map(series).collect())
    }

    fn labels_of(&self, scope: &Scope, timeline: &Found) -> Option<Labels> {
        let reader = self.table.catalog().reader();
        let entry = reader.entry(timeline.ordinal)?;
        Some(labels::of_entry(&entry, &scope.measurement(timeline).name))
    }
}

fn read(text: &str, nanos: i64) -> Option<Exemplar> {
    let stored: Stored = serde_json::from_str(text).ok()?;
    let pairs = stored.labels.iter();
    let labels: LabelsBuilder = pairs
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    Some(Exemplar {
        labels: labels.build(),
        value: match stored.value {
            Number::Plain(value) => value,
            Number::Text(text) => text.parse().ok()?,
        },
        time: millis(nanos),
    })
}
