//! Prometheus view of a table (metric names, labels, series), and the requests and formats of Prometheus' HTTP API.
//!
//! A timeline is one series for each of its metrics. The labels of a series are the tags of its timeline and the
//! name of the metric. The name is derived from measurement and field:
//!
//! | field | name |
//! |---|---|
//! | `value`, with numbers or booleans | the measurement |
//! | `histogram`, with histograms | the measurement |
//! | begins with `_`, or holds strings | none |
//! | any other | measurement, `_`, field |
//!
//! The field `value` of a timeline is therefore the same series, whether remote write or line protocol wrote it.
//!
//! A request is parsed from its [`Parameters`], waits for a permit outside of this crate, and then writes its
//! response ([`SeriesRequest`]).
//!
//! | module | content |
//! |---|---|
//! | [`parameters`] | parameters, times, durations, limits |
//! | [`settings`] | settings of the API, budgets |
//! | [`request`] | [`SeriesRequest`], trait of requests that read series |
//! | [`query`] | queries at a time and over a range |
//! | `read_range` | time range that an expression reads, selectors of an expression |
//! | [`list`] | requests for lists of series, label names, label values |
//! | [`exemplars`] | single observations with a trace |
//! | [`metadata`] | metadata of metrics |
//! | [`export`] | lines of JSON |
//! | [`federation`], `escaping` | newest samples in the text format, escaping of names |
//! | [`remote_read`] | remote read: Protocol Buffers and chunks |
//! | [`import`] | parameters of imports, groups of a Pushgateway, description of refused samples |
//! | `json`, `number` | JSON responses, numbers and times as text |
//! | [`error`] | errors of request parsing |
//!
//! The requests are based on the view of a table:
//!
//! | module | content |
//! |---|---|
//! | [`view`] | [`SeriesView`], extended by the other modules |
//! | [`names`] | resolution of metric names to fields of measurements |
//! | `matching` | conversion of matchers to conditions of the search index |
//! | `scope` | selection of timelines by matchers |
//! | [`listing`] | lists of series, label names, label values |
//! | [`cardinality`] | number of series, names and labels |
//! | [`source`] | samples of series, for PromQL |
//! | [`transfer`] | page-by-page transfer of encoded samples |
//! | `samples`, `steps` | conversion of runs of points to samples or windows of series |
//! | `series_merge` | merge of series with several timelines |
//! | `page` | page of a transfer |
//! | `labels`, `time` | labels of a series, conversion of timestamps |
//! | `failure` | conversion of query and engine errors to errors of PromQL |
//! | `held_bytes` | accounting of held bytes against the budget and the memory account |
//!
//! # Out of scope
//!
//! HTTP routes, statuses and headers; permits, threads and clients. A response is written to any
//! [`Write`](std::io::Write).

pub mod cardinality;
pub mod error;
mod escaping;
pub mod exemplars;
pub mod export;
mod failure;
pub mod federation;
mod held_bytes;
pub mod import;
mod json;
mod labels;
pub mod list;
pub mod listing;
mod matching;
pub mod metadata;
pub mod names;
mod number;
mod page;
pub mod parameters;
pub mod query;
mod read_range;
pub mod remote_read;
pub mod request;
mod samples;
mod scope;
mod series_merge;
pub mod settings;
pub mod source;
mod steps;
mod time;
pub mod transfer;
pub mod view;

pub use cardinality::Cardinality;
pub use error::RequestError;
pub use exemplars::{Exemplar, ExemplarRequest, SeriesExemplars};
pub use export::Export;
pub use federation::Federation;
pub use list::ListRequest;
pub use listing::Listed;
pub use metadata::MetadataRequest;
pub use parameters::Parameters;
pub use query::{Query, QueryOptions};
pub use remote_read::RemoteRead;
pub use request::SeriesRequest;
pub use settings::Settings;
pub use source::TableSource;
pub use tideline_ingest_protocols::prometheus::{ImportOptions, TextFormat};
pub use tideline_promql::ast::Expr;
pub use tideline_promql::{PromqlError, pretty, to_json};
pub use time::millis;
pub use transfer::SeriesFragment;
pub use view::{SeriesView, reaches_cold};
