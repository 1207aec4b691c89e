//! A table as Prometheus sees it: metric names, labels, series.
//!
//! A timeline is one series for each metric that it has. The labels of a series are the tags of its timeline and the name
//! of the metric; the name is made of measurement and field:
//!
//! | field | name |
//! |---|---|
//! | `value`, with numbers or booleans | the measurement |
//! | `histogram`, with histograms | the measurement |
//! | begins with `_`, or holds text | none |
//! | any other | measurement, `_`, field |
//!
//! Whatever is written as `value`, by remote write or by line protocol, is so one and the same series.
//!
//! | module | does |
//! |---|---|
//! | [`view`] | [`SeriesView`], which the others give its verbs |
//! | [`names`] | metric name → fields of measurements |
//! | `matching` | matchers → conditions of the search index |
//! | `scope` | a selection → timelines |
//! | [`listing`] | series, label names, label values |
//! | [`cardinality`] | how many of each there are |
//! | [`source`] | samples of series, for PromQL |
//! | [`transfer`] | samples of however many series, encoded, page by page |
//! | [`exemplars`] | single observations with a trace |
//! | `samples`, `steps` | runs of points → samples of series, or windows of them |
//! | `union` | series of several timelines |
//! | `page` | a page of a transfer |
//! | `held` | what is held of them, against the budget |
//!
//! # What is absent
//!
//! No HTTP, no language: matchers come in as values, what is found goes out as values.

pub mod cardinality;
pub mod exemplars;
mod failure;
mod held;
mod labels;
pub mod listing;
mod matching;
pub mod names;
mod page;
mod samples;
mod scope;
pub mod source;
mod steps;
mod time;
pub mod transfer;
mod union;
pub mod view;

pub use cardinality::Cardinality;
pub use exemplars::{Exemplar, SeriesExemplars};
pub use listing::Listed;
pub use source::TableSource;
pub use time::NANOS_PER_MILLI;
pub use transfer::Piece;
pub use view::SeriesView;
