//! PromQL, the query language of Prometheus 3: parser, planner, evaluator.
//!
//! | module | content |
//! |---|---|
//! | [`annotations`] | [`Annotations`]: warnings and infos of a query result |
//! | [`ast`] | the expression tree |
//! | [`parse`](parse()) | parser and type checks of expressions |
//! | `lex`, `check` | tokens of a query; checks of types, arguments and vector matching |
//! | [`pretty`](pretty()), [`to_json`] | expression as indented text or JSON; the `Display` of `Expr` writes one line |
//! | `print`, `json` | these texts |
//! | `plan` | the plan of a query: the expression with its parameters resolved |
//! | [`function`] | the function table: names, argument types, result types |
//! | [`labels`] | [`Labels`], the identity of a series |
//! | [`matcher`] | [`Matcher`], a condition on one label |
//! | [`source`] | [`Source`], the storage interface of the evaluator, and the requests of a plan |
//! | [`value`] | values of query results |
//! | [`range`] | functions over ranges of samples |
//! | [`histogram_functions`] | quantiles, fractions, averages and variances of distributions |
//! | [`mod@evaluate`] | the evaluator: executes a plan column by column |
//! | [`note`] | notes of functions on their samples, the source of annotations |
//! | [`pattern`] | regular expressions with Prometheus' semantics |
//! | [`quote`] | string literals with Go's quoting |
//! | `number`, `math` | number formats and float arithmetic of Go |
//! | `calendar` | dates in UTC |
//! | `hash` | hash of labels, by which `limit_ratio` selects series |
//! | [`error`] | errors in the classes of Prometheus' API |
//!
//! # Boundaries
//!
//! The crate contains no storage, no HTTP and no clock. Timestamps are parameters, and series are read
//! through a [`Source`].

pub mod annotations;
pub mod ast;
mod calendar;
mod check;
pub mod error;
pub mod evaluate;
pub mod function;
mod hash;
pub mod histogram_functions;
mod json;
pub mod labels;
mod lex;
pub mod matcher;
mod math;
pub mod note;
mod number;
mod parse;
pub mod pattern;
mod plan;
mod pretty;
mod print;
pub mod quote;
pub mod range;
pub mod source;
pub mod value;

pub use annotations::{Annotation, Annotations};
pub use error::{ParseError, PromqlError, Result};
pub use evaluate::{QueryParameters, QueryResult, Settings, Stats, evaluate};
pub use json::to_json;
pub use labels::{Labels, LabelsBuilder};
pub use matcher::{MatchOp, Matcher};
pub use parse::{DEPTH_MAX, DurationError, TEXT_BYTES_MAX, parse, parse_duration, parse_selector};
pub use pretty::pretty;
pub use source::{Samples, Select, Source};
pub use tideline_histogram as histogram;
pub use value::{Point, QueryValue, Sample, Series};
