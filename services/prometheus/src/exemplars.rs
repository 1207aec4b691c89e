//! Exemplars: single observations with labels such as a trace id, stored as JSON with the samples of their series.
//!
//! The number and the bytes of the exemplars that a request reads are limited.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use tideline_engine::model::{ColumnData, FieldId};
use tideline_promql::{Labels, LabelsBuilder, Matcher, PromqlError, Result};
use tideline_query::{PointReader, QueryError};

use crate::error::{self, RequestError};
use crate::failure;
use crate::held_bytes::HeldBytes;
use crate::json::{put_comma, put_labels, write_list};
use crate::labels;
use crate::names::EXEMPLAR_FIELD;
use crate::number::{NumberForm, put_number, put_time};
use crate::parameters::Parameters;
use crate::read_range::selectors;
use crate::request::SeriesRequest;
use crate::samples::rows;
use crate::scope::{Found, Scope};
use crate::time::{Span, millis};
use crate::view::SeriesView;

/// Maximum number of exemplars in a response.
pub const EXEMPLARS_MAX: usize = 100_000;

/// Single observation.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar {
    /// Labels of the exemplar, such as a trace id.
    pub labels: Labels,
    /// Observed value.
    pub value: f64,
    /// Timestamp in milliseconds.
    pub time: i64,
}

/// Exemplars of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesExemplars {
    /// Labels of the series.
    pub labels: Labels,
    /// Exemplars in ascending order of timestamp; at least one.
    pub exemplars: Vec<Exemplar>,
}

/// Exemplars of one timeline, held while other timelines are read.
#[derive(Debug)]
struct HeldExemplars<'w> {
    exemplars: Vec<Exemplar>,
    held: HeldBytes<'w>,
}

/// Stored form of an exemplar.
#[derive(Debug, Deserialize)]
struct Stored {
    #[serde(default)]
    labels: BTreeMap<String, String>,
    value: Number,
}

/// Number; a string for values that JSON numbers cannot represent: `NaN`, `+Inf`, `-Inf`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Number {
    Plain(f64),
    Text(String),
}

/// Request for exemplars.
#[derive(Debug)]
pub struct ExemplarRequest {
    query: String,
    selectors: Vec<Vec<Matcher>>,
    range: (i64, i64),
}

impl ExemplarRequest {
    /// Reads the parameters of a request.
    ///
    /// # Errors
    ///
    /// [`RequestError::Invalid`] if a time or the query is not valid, or if the range ends before it starts.
    pub fn read(parameters: &Parameters) -> error::Result<Self> {
        let range = parameters.range()?;
        if range.1 < range.0 {
            let problem = "end timestamp must not be before start timestamp";
            return Err(RequestError::invalid(problem));
        }
        let query = parameters.text("query").to_owned();
        let expr = tideline_promql::parse(&query).map_err(RequestError::invalid)?;
        Ok(Self {
            query,
            selectors: selectors(&expr),
            range,
        })
    }
}

impl SeriesRequest for ExemplarRequest {
    fn text(&self) -> String {
        self.query.clone()
    }

    fn read_range(&self) -> Option<(i64, i64)> {
        Some(self.range)
    }

    fn write(&self, view: &SeriesView<'_>, _: Duration, out: &mut dyn Write) -> Result<()> {
        let found = match self.selectors.is_empty() {
            true => Vec::new(),
            false => view.exemplars(&self.selectors, self.range)?,
        };
        write_list(&found, put_series, &[], out)
    }
}

fn put_series(series: &SeriesExemplars, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"seriesLabels\":");
    put_labels(&series.labels, out);
    out.extend_from_slice(b",\"exemplars\":[");
    for (at, exemplar) in series.exemplars.iter().enumerate() {
        put_comma(at, out);
        out.extend_from_slice(b"{\"labels\":");
        put_labels(&exemplar.labels, out);
        out.extend_from_slice(b",\"value\":");
        put_number(exemplar.value, NumberForm::Short, out);
        out.extend_from_slice(b",\"timestamp\":");
        put_time(exemplar.time, out);
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
}

impl SeriesView<'_> {
    /// Returns the exemplars in a range (milliseconds, both ends included) of the series that match all matchers of at
    /// least one selector. The list is sorted by the labels of the series. Stored texts that are not valid exemplars
    /// are skipped.
    ///
    /// # Errors
    ///
    /// [`PromqlError::TooMany`] if there are more than [`EXEMPLARS_MAX`] exemplars, or more timelines or bytes than the
    /// budget allows. Also errors of storage, cancellation and timeout.
    pub fn exemplars(&self, selectors: &[Vec<Matcher>], range: (i64, i64)) -> Result<Vec<SeriesExemplars>> {
        let mut all = BTreeMap::new();
        let field = self.table.points().schema().field(EXEMPLAR_FIELD);
        let (Some(field), true) = (field, range.0 <= range.1) else {
            return Ok(Vec::new());
        };
        let range = Span::of_millis(range).range();
        let count = AtomicUsize::new(0);
        for matchers in selectors {
            let mut scope = Scope::select(self, matchers)?;
            self.check_timelines(scope.timelines.len())?;
            // A timeline can have several metrics. Its exemplars belong to the metric whose name is the name of the
            // measurement.
            scope.retain_metrics(|measurement, metric| measurement == metric);
            scope.timelines.sort_unstable_by_key(|timeline| timeline.id);
            let found = Mutex::new(Vec::new());
            let scanned = self.querier.scan(self.table, range, &self.watch, |scan| {
                let id = |found: &Found| found.id;
                scan.shares(&scope.timelines, id, &[field], |share, reader| {
                    for timeline in share {
                        let of_it = self.exemplars_of(timeline, field, reader, &count)?;
                        if !of_it.exemplars.is_empty() {
                            found.lock().push((*timeline, of_it));
                        }
                    }
                    Ok(())
                })
            });
            scanned.map_err(|error| failure::of_query(&error))?;
            let found = found.into_inner().into_iter();
            all.extend(
                found.filter_map(|(timeline, exemplars)| {
                    Some((self.labels_of(&scope, &timeline)?, exemplars))
                }),
            );
            check_count(all.values().map(|of| of.exemplars.len()).sum())?;
            // The counter restarts for each selector, because exemplars that several selectors find are stored in the
            // map only once.
            count.store(0, Ordering::Relaxed);
        }
        let series = |(labels, of): (Labels, HeldExemplars<'_>)| SeriesExemplars {
            labels,
            exemplars: of.exemplars,
        };
        Ok(all.into_iter().map(series).collect())
    }

    /// Returns the exemplars of a timeline. Adds their number to `count`, the number of exemplars of all timelines of
    /// the selector. Stops reading when `count` exceeds [`EXEMPLARS_MAX`].
    fn exemplars_of(
        &self,
        timeline: &Found,
        field: FieldId,
        reader: &mut PointReader<'_>,
        count: &AtomicUsize,
    ) -> std::result::Result<HeldExemplars<'_>, QueryError> {
        let mut of_it = HeldExemplars {
            exemplars: Vec::new(),
            held: HeldBytes::new(&self.watch, "bytes of exemplars"),
        };
        reader.timeline(timeline.id, &mut |run| {
            let (mut added, mut bytes) = (0, 0);
            for column in run.columns.iter().filter(|column| column.field == field) {
                let ColumnData::String(texts) = &column.values else {
                    continue;
                };
                for (at, row) in rows(column, run.rows()).enumerate() {
                    let text = texts.get(at);
                    if let Some(exemplar) = read(text, run.timestamps[row]) {
                        of_it.exemplars.push(exemplar);
                        bytes += text.len() + size_of::<Exemplar>();
                        added += 1;
                    }
                }
            }
            of_it.held.add(bytes as u64)?;
            let counted = count.fetch_add(added, Ordering::Relaxed) + added;
            // The excess is reported by the caller; reading can stop here.
            Ok(match counted > EXEMPLARS_MAX {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        })?;
        Ok(of_it)
    }

    fn labels_of(&self, scope: &Scope<'_>, timeline: &Found) -> Option<Labels> {
        let reader = self.table.reader();
        let entry = reader.entry(timeline.ordinal)?;
        Some(labels::of_entry(&entry, &scope.measurement(timeline).name))
    }
}

fn check_count(count: usize) -> Result<()> {
    if count > EXEMPLARS_MAX {
        return Err(PromqlError::TooMany(format!(
            "exemplars: more than the limit of {EXEMPLARS_MAX}; request a shorter range or fewer series"
        )));
    }
    Ok(())
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
